// Complex numbers: order by the real part, then by the imaginary one.
func.func @order() {
  %x = stablehlo.constant dense<[(1.0, 5.0), (2.0, -1.0), (2.0, 3.0)]> : tensor<3xcomplex<f32>>
  %y = stablehlo.constant dense<[(0.0, 9.0), (2.0, 1.0), (2.0, 1.0)]> : tensor<3xcomplex<f32>>
  %0 = stablehlo.maximum %x, %y : tensor<3xcomplex<f32>>
  check.expect_eq_const %0, dense<[(1.0, 5.0), (2.0, 1.0), (2.0, 3.0)]> : tensor<3xcomplex<f32>>
  %1 = stablehlo.minimum %x, %y : tensor<3xcomplex<f32>>
  check.expect_eq_const %1, dense<[(0.0, 9.0), (2.0, -1.0), (2.0, 1.0)]> : tensor<3xcomplex<f32>>
  func.return
}
