// What an operation computes is not what its type says.
// RUN: hlo-opt %s 2>&1 | FileCheck %s
func.func @main(%arg0: tensor<2xf32>, %arg1: tensor<3xf32>) -> tensor<4xf32> {
  %0 = stablehlo.concatenate %arg0, %arg1, dim = 0 : (tensor<2xf32>, tensor<3xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
// CHECK: line 4: stablehlo.concatenate: result 0 is declared as f32[4], what it computes is f32[5]
