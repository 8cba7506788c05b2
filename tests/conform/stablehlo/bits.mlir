// Elements below a byte lie in one each: a bitcast packs and unpacks them, the first one lowest.
func.func @packed() {
  %0 = stablehlo.constant dense<[[1, -2], [7, -8]]> : tensor<2x2xi4>
  %1 = stablehlo.optimization_barrier %0 : tensor<2x2xi4>
  %2 = stablehlo.bitcast_convert %1 : (tensor<2x2xi4>) -> tensor<2xui8>
  check.expect_eq_const %2, dense<[225, 135]> : tensor<2xui8>
  %3 = stablehlo.bitcast_convert %1 : (tensor<2x2xi4>) -> tensor<2x2xui4>
  check.expect_eq_const %3, dense<[[1, 14], [7, 8]]> : tensor<2x2xui4>
  %4 = stablehlo.constant dense<[[true, false, false, true, true, false, false, false]]> : tensor<1x8xi1>
  %5 = stablehlo.optimization_barrier %4 : tensor<1x8xi1>
  %6 = stablehlo.bitcast_convert %5 : (tensor<1x8xi1>) -> tensor<1xi8>
  check.expect_eq_const %6, dense<[25]> : tensor<1xi8>
  func.return
}

// -----

func.func @unpacked() {
  %0 = stablehlo.constant dense<[225, 135]> : tensor<2xui8>
  %1 = stablehlo.optimization_barrier %0 : tensor<2xui8>
  %2 = stablehlo.bitcast_convert %1 : (tensor<2xui8>) -> tensor<2x2xi4>
  check.expect_eq_const %2, dense<[[1, -2], [7, -8]]> : tensor<2x2xi4>
  %3 = stablehlo.bitcast_convert %1 : (tensor<2xui8>) -> tensor<2x4xui2>
  check.expect_eq_const %3, dense<[[1, 0, 2, 3], [3, 1, 0, 2]]> : tensor<2x4xui2>
  %4 = stablehlo.constant dense<[1.5, -0.0]> : tensor<2xf32>
  %5 = stablehlo.optimization_barrier %4 : tensor<2xf32>
  %6 = stablehlo.bitcast_convert %5 : (tensor<2xf32>) -> tensor<2x32xi1>
  %7 = stablehlo.convert %6 : (tensor<2x32xi1>) -> tensor<2x32xi32>
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %8 = stablehlo.reduce(%7 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<2x32xi32>, tensor<i32>) -> tensor<2xi32>
  check.expect_eq_const %8, dense<[8, 1]> : tensor<2xi32>
  func.return
}
