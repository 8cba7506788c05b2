// Quantised values are what is stored: what moves them works on that, other operations on the real
// values, with what the types say of scales, zero points and ranges.
// RUN: hlo-opt %s | FileCheck %s
func.func @main(%x: tensor<2x3x!quant.uniform<i8<-100:100>:f32, 0.5:3>>, %w: tensor<3x4x!quant.uniform<i8:f32:1, {0.25, 0.5, 1.0, 2.0}>>) -> tensor<4x2x!quant.uniform<ui8:f32, 2.0:128>> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<2x3x!quant.uniform<i8<-100:100>:f32, 0.5:3>>, tensor<3x4x!quant.uniform<i8:f32:1, {0.25, 0.5, 1.0, 2.0}>>) -> tensor<2x4x!quant.uniform<ui8:f32, 2.0:128>>
  %1 = stablehlo.transpose %0, dims = [1, 0] : (tensor<2x4x!quant.uniform<ui8:f32, 2.0:128>>) -> tensor<4x2x!quant.uniform<ui8:f32, 2.0:128>>
  return %1 : tensor<4x2x!quant.uniform<ui8:f32, 2.0:128>>
}
// CHECK: ENTRY %main (arg0: s8[2,3], arg1: s8[3,4]) -> (u8[4,2])
// CHECK: s32[2,3] subtract(
// CHECK: f32[2,3] multiply(
// CHECK: f32[4] constant({0.25, 0.5, 1, 2})
// CHECK: f32[2,4] dot(
// CHECK: f32[2,4] clamp(
// CHECK: f32[2,4] round-nearest-even(
// CHECK: u8[4,2] transpose(
