func.func @main(%x: tensor<2x3xf32>, %i: tensor<2xf32>) -> (tensor<2x3xf32>, tensor<2xf32>) {
  %0:2 = chlo.scan(%x) inits(%i) dimension=1 attributes {is_reverse = true} {
  ^bb0(%e: tensor<2xf32>, %c: tensor<2xf32>):
    %1 = stablehlo.add %c, %e : tensor<2xf32>
    stablehlo.return %1, %1 : tensor<2xf32>, tensor<2xf32>
  } : (tensor<2x3xf32>, tensor<2xf32>) -> (tensor<2x3xf32>, tensor<2xf32>)
  %2 = sdy.sharding_constraint %0#1 <@mesh, [{"d"}]> : tensor<2xf32>
  return %0#0, %2 : tensor<2x3xf32>, tensor<2xf32>
}
