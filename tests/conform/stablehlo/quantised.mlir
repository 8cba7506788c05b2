// Quantised types beyond the interpreter tests: zero points and scales along an axis, ranges of
// storage narrower than it, storages of other widths, one operand quantised, regions and data
// movement. Expected values: numpy, by the formulas of the specification.
!x = !quant.uniform<i8<-100:100>:f32, 0.5:3>
!y = !quant.uniform<i8:f32, 0.25:-4>
!w = !quant.uniform<i8:f32:1, {0.25, 0.5, 1.0, 2.0}>
!u = !quant.uniform<ui8:f32, 100.0:128>
func.func @dot() {
  %x = stablehlo.constant() {value = dense<[[6, 52, 31], [84, 100, -100]]> : tensor<2x3xi8>} : () -> tensor<2x3x!x>
  %w = "stablehlo.constant"() <{value = dense<[[-107, 125, 19, 74], [-21, 121, 41, 10], [21, -9, 38, 96]]> : tensor<3x4xi8>}> : () -> tensor<3x4x!w>
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<2x3x!x>, tensor<3x4x!w>) -> tensor<2x4x!u>
  %1 = stablehlo.transpose %0, dims = [1, 0] : (tensor<2x4x!u>) -> tensor<4x2x!u>
  %2 = stablehlo.bitcast_convert %1 : (tensor<4x2x!u>) -> tensor<4x2xui8>
  check.expect_eq_const %2, dense<[[127, 112], [143, 185], [144, 136], [162, 99]]> : tensor<4x2xui8>
  func.return
}

// -----

!w = !quant.uniform<i8:f32:1, {0.25, 0.5, 1.0, 2.0}>
func.func @hybrid() {
  %x = stablehlo.constant dense<[[1.5, -2.0, 0.25]]> : tensor<1x3xf32>
  %s = stablehlo.constant dense<[[-107, 125, 19, 74], [-21, 121, 41, 10], [21, -9, 38, 96]]> : tensor<3x4xi8>
  %w = stablehlo.bitcast_convert %s : (tensor<3x4xi8>) -> tensor<3x4x!w>
  %0 = stablehlo.dot %x, %w : (tensor<1x3xf32>, tensor<3x4x!w>) -> tensor<1x4xf32>
  check.expect_eq_const %0, dense<[[-28.3125, -28.375, -44.0, 230.0]]> : tensor<1x4xf32>
  func.return
}

// -----

!x = !quant.uniform<i8:f32, 0.05:-7>
!k = !quant.uniform<i8:f32:0, {0.01, 0.02}>
!o = !quant.uniform<i8:f32, 0.5:10>
func.func @convolution() {
  %sx = stablehlo.constant dense<[[[[20, 44, -35, 39], [14, 120, -102, -47], [90, 22, -62, -126], [63, -68, 1, 51]], [[-38, -59, -24, -18], [-31, 29, -22, 24], [123, -66, -121, 120], [43, -95, -5, -49]]]]> : tensor<1x2x4x4xi8>
  %sk = stablehlo.constant dense<[[[[48, -91, -108], [-34, -79, 21], [-1, 78, 116]], [[-100, -9, -74], [-128, 64, 105], [-110, -12, 63]]], [[[37, 56, 56], [71, 37, 125], [46, -95, -15]], [[-127, -43, -11], [-9, 74, 107], [-4, 100, -29]]]]> : tensor<2x2x3x3xi8>
  %x = stablehlo.bitcast_convert %sx : (tensor<1x2x4x4xi8>) -> tensor<1x2x4x4x!x>
  %k = stablehlo.bitcast_convert %sk : (tensor<2x2x3x3xi8>) -> tensor<2x2x3x3x!k>
  %0 = stablehlo.convolution(%x, %k) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x2x4x4x!x>, tensor<2x2x3x3x!k>) -> tensor<1x2x2x2x!o>
  %1 = stablehlo.bitcast_convert %0 : (tensor<1x2x2x2x!o>) -> tensor<1x2x2x2xi8>
  check.expect_eq_const %1, dense<[[[[-19, 14], [-34, 52]], [[17, 22], [-15, -28]]]]> : tensor<1x2x2x2xi8>
  func.return
}

// -----

!a = !quant.uniform<i4:f32, 0.5:1>
!b = !quant.uniform<i4:f32, 1.0:-1>
func.func @four_bits() {
  %x = stablehlo.constant dense<[-8, 7, 3, -2]> : tensor<4xi4>
  %y = stablehlo.constant dense<[-2, 3, 7, -8]> : tensor<4xi4>
  %qx = stablehlo.bitcast_convert %x : (tensor<4xi4>) -> tensor<4x!a>
  %qy = stablehlo.bitcast_convert %y : (tensor<4xi4>) -> tensor<4x!a>
  %0 = stablehlo.add %qx, %qy : (tensor<4x!a>, tensor<4x!a>) -> tensor<4x!b>
  %1 = stablehlo.bitcast_convert %0 : (tensor<4x!b>) -> tensor<4xi4>
  check.expect_eq_const %1, dense<[-7, 3, 3, -7]> : tensor<4xi4>
  func.return
}

// -----

// Halves go to the even stored value, zero point included; NaN is stored as 0.
!q = !quant.uniform<i8:f32, 1.0:1>
!c = !quant.uniform<i8:f32:0, {0.1:-30, 0.5:20, 0.75}>
func.func @rounding() {
  %x = stablehlo.constant dense<[0.5, 1.5, 2.5, -0.5, -1.5, 200.0, 0x7FC00000, 0xFF800000]> : tensor<8xf32>
  %0 = stablehlo.uniform_quantize %x : (tensor<8xf32>) -> tensor<8x!q>
  %1 = stablehlo.bitcast_convert %0 : (tensor<8x!q>) -> tensor<8xi8>
  check.expect_eq_const %1, dense<[2, 2, 4, 0, 0, 127, 0, -128]> : tensor<8xi8>
  %y = stablehlo.constant dense<[[1.0, 2.0, 3.0, -300.0], [1.0, 2.0, 3.0, -300.0], [1.0, 2.0, 3.0, -300.0]]> : tensor<3x4xf32>
  %2 = stablehlo.uniform_quantize %y : (tensor<3x4xf32>) -> tensor<3x4x!c>
  %3 = stablehlo.bitcast_convert %2 : (tensor<3x4x!c>) -> tensor<3x4xi8>
  check.expect_eq_const %3, dense<[[-20, -10, 0, -128], [22, 24, 26, -128], [1, 3, 4, -128]]> : tensor<3x4xi8>
  func.return
}

// -----

!x = !quant.uniform<i8<-100:100>:f32, 0.5:3>
!y = !quant.uniform<i8:f32, 0.25:-4>
!z = !quant.uniform<i8:f32, 0.125>
func.func @elements_and_regions() {
  %s = stablehlo.constant dense<[[6, 52, 31], [84, 100, -100]]> : tensor<2x3xi8>
  %x = stablehlo.bitcast_convert %s : (tensor<2x3xi8>) -> tensor<2x3x!x>
  %y = stablehlo.bitcast_convert %s : (tensor<2x3xi8>) -> tensor<2x3x!y>
  %0 = stablehlo.maximum %x, %y : (tensor<2x3x!x>, tensor<2x3x!y>) -> tensor<2x3x!x>
  %1 = stablehlo.bitcast_convert %0 : (tensor<2x3x!x>) -> tensor<2x3xi8>
  check.expect_eq_const %1, dense<[[8, 52, 31], [84, 100, -45]]> : tensor<2x3xi8>
  %2 = stablehlo.compare LT, %x, %y : (tensor<2x3x!x>, tensor<2x3x!y>) -> tensor<2x3xi1>
  check.expect_eq_const %2, dense<[[true, false, false], [false, false, true]]> : tensor<2x3xi1>
  %3 = stablehlo.uniform_quantize %x : (tensor<2x3x!x>) -> tensor<2x3x!z>
  %4 = stablehlo.bitcast_convert %3 : (tensor<2x3x!z>) -> tensor<2x3xi8>
  check.expect_eq_const %4, dense<[[12, 127, 112], [127, 127, -128]]> : tensor<2x3xi8>

  %zero = stablehlo.constant dense<3> : tensor<i8>
  %init = stablehlo.bitcast_convert %zero : (tensor<i8>) -> tensor<!x>
  %5 = stablehlo.reduce(%x init: %init) applies stablehlo.add across dimensions = [1] : (tensor<2x3x!x>, tensor<!x>) -> tensor<2x!x>
  %6 = stablehlo.bitcast_convert %5 : (tensor<2x!x>) -> tensor<2xi8>
  check.expect_eq_const %6, dense<[83, -3]> : tensor<2xi8>
  %7 = stablehlo.slice %x [0:2, 1:3] : (tensor<2x3x!x>) -> tensor<2x2x!x>
  %8 = stablehlo.concatenate %7, %x, dim = 1 : (tensor<2x2x!x>, tensor<2x3x!x>) -> tensor<2x5x!x>
  %9 = stablehlo.uniform_dequantize %8 : (tensor<2x5x!x>) -> tensor<2x5xf32>
  check.expect_eq_const %9, dense<[[24.5, 14.0, 1.5, 24.5, 14.0], [48.5, -51.5, 40.5, 48.5, -51.5]]> : tensor<2x5xf32>
  func.return
}
