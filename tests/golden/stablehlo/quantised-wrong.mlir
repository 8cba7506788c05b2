// Scales that do not fit the dimension they belong to.
// RUN: hlo-opt %s 2>&1 | FileCheck %s
func.func @main(%x: tensor<3x2xf32>) -> tensor<3x2x!quant.uniform<i8:f32:1, {0.5, 0.25, 1.0}>> {
  %0 = stablehlo.uniform_quantize %x : (tensor<3x2xf32>) -> tensor<3x2x!quant.uniform<i8:f32:1, {0.5, 0.25, 1.0}>>
  return %0 : tensor<3x2x!quant.uniform<i8:f32:1, {0.5, 0.25, 1.0}>>
}
// CHECK: line 4: stablehlo.uniform_quantize: 3 scales do not fit f32[3,2] along dimension 1
