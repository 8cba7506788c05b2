#alias = #stablehlo<comparison_direction GT>
module {
  func.func @main(%a: tensor<?x2xi1, #stablehlo.bounds<4, ?>>, %b: tensor<2x2xcomplex<f32>>, %q: tensor<4x!quant.uniform<i8<-128:127>:f32:0, {0.5:3, 2.0}>>) -> tensor<2xi1> attributes {x.y = [1, "a\22", @s, {u, v = 2.5 : f32}]} {
    %c = stablehlo.constant dense<[[(1.0, -2.0), (0x7FC00000, 3.0)], [(0.0, 0.0), (1.5e3, 2.0)]]> : tensor<2x2xcomplex<f32>>
    %d = stablehlo.constant dense<"0x05"> : tensor<4xi1>
    %e = stablehlo.constant dense<[1, -2, 0x7F]> : tensor<3xi8>
    %f = "stablehlo.compare"(%e, %e) <{comparison_direction = #alias}> : (tensor<3xi8>, tensor<3xi8>) -> tensor<3xi1>
    %g = stablehlo.slice %f [0:2] : (tensor<3xi1>) -> tensor<2xi1>
    %h:2 = "stablehlo.sort"(%e, %f) <{dimension = 0 : i64, is_stable = true}> ({
    ^bb0(%p: tensor<i8>, %r: tensor<i8>, %s: tensor<i1>, %t: tensor<i1>):
      %u = stablehlo.compare LT, %p, %r, SIGNED : (tensor<i8>, tensor<i8>) -> tensor<i1>
      stablehlo.return %u : tensor<i1>
    }) : (tensor<3xi8>, tensor<3xi1>) -> (tensor<3xi8>, tensor<3xi1>)
    return %g : tensor<2xi1>
  }
}
