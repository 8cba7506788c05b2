// chlo.scan: a value from outside in its region, several arrays, a dimension that is not the first,
// backwards, no carry, no array's element.
func.func @outside() {
  %x = stablehlo.constant dense<[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]> : tensor<2x3xf32>
  %f = stablehlo.constant dense<[0.5, 2.0]> : tensor<2xf32>
  %factor = stablehlo.optimization_barrier %f : tensor<2xf32>
  %init = stablehlo.constant dense<1.0> : tensor<2xf32>
  %0:2 = chlo.scan(%x) inits(%init) dimension=1 attributes {is_reverse = true} {
  ^bb0(%e: tensor<2xf32>, %c: tensor<2xf32>):
    %1 = stablehlo.multiply %c, %factor : tensor<2xf32>
    %2 = stablehlo.add %1, %e : tensor<2xf32>
    stablehlo.return %1, %2 : tensor<2xf32>, tensor<2xf32>
  } : (tensor<2x3xf32>, tensor<2xf32>) -> (tensor<2x3xf32>, tensor<2xf32>)
  check.expect_eq_const %0#0, dense<[[1.875, 1.75, 0.5], [42.0, 16.0, 2.0]]> : tensor<2x3xf32>
  check.expect_eq_const %0#1, dense<[2.875, 46.0]> : tensor<2xf32>
  func.return
}

// -----

func.func @generic_without_carry() {
  %x = stablehlo.constant dense<[1, 2, 3]> : tensor<3xi32>
  %y = stablehlo.constant dense<[[1, 2], [3, 4], [5, 6]]> : tensor<3x2xi32>
  %0 = "chlo.scan"(%x, %y) <{dimension = 0 : i64, is_reverse = false, operandSegmentSizes = array<i32: 2, 0>, resultSegmentSizes = array<i32: 1, 0>}> ({
  ^bb0(%a: tensor<i32>, %b: tensor<2xi32>):
    %1 = stablehlo.broadcast_in_dim %a, dims = [] : (tensor<i32>) -> tensor<2xi32>
    %2 = stablehlo.multiply %1, %b : tensor<2xi32>
    stablehlo.return %2 : tensor<2xi32>
  }) : (tensor<3xi32>, tensor<3x2xi32>) -> tensor<3x2xi32>
  check.expect_eq_const %0, dense<[[1, 2], [6, 8], [15, 18]]> : tensor<3x2xi32>
  func.return
}

// -----

func.func @empty() {
  %x = stablehlo.constant dense<[]> : tensor<0xi32>
  %init = stablehlo.constant dense<7> : tensor<i32>
  %0:2 = chlo.scan(%x) inits(%init) dimension=0 {
  ^bb0(%e: tensor<i32>, %c: tensor<i32>):
    %1 = stablehlo.add %c, %e : tensor<i32>
    stablehlo.return %1, %1 : tensor<i32>, tensor<i32>
  } : (tensor<0xi32>, tensor<i32>) -> (tensor<0xi32>, tensor<i32>)
  check.expect_eq_const %0#1, dense<7> : tensor<i32>
  func.return
}
