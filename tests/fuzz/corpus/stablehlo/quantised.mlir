!q = !quant.uniform<i8<-100:100>:f32:1, {0.5:3, 0.25}>
func.func @main(%x: tensor<3x2x!q>) -> tensor<2x3x!quant.uniform<ui8:f32, 2.0:128>> {
  %0 = stablehlo.add %x, %x : tensor<3x2x!q>
  %1 = stablehlo.uniform_dequantize %0 : (tensor<3x2x!q>) -> tensor<3x2xf32>
  %2 = stablehlo.uniform_quantize %1 : (tensor<3x2xf32>) -> tensor<3x2x!quant.uniform<ui8:f32, 2.0:128>>
  %3 = stablehlo.transpose %2, dims = [1, 0] : (tensor<3x2x!quant.uniform<ui8:f32, 2.0:128>>) -> tensor<2x3x!quant.uniform<ui8:f32, 2.0:128>>
  return %3 : tensor<2x3x!quant.uniform<ui8:f32, 2.0:128>>
}
