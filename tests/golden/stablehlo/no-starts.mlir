// A slice of a scalar has no starts: the list of them is printed as nothing between its commas.
// RUN: hlo-opt %s | FileCheck %s
module @m {
  func.func public @main(%arg0: tensor<f32>, %arg1: tensor<f32>) -> (tensor<f32>, tensor<f32>) {
    %0 = stablehlo.dynamic_slice %arg0, , sizes = [] : (tensor<f32>) -> tensor<f32>
    %1 = stablehlo.dynamic_update_slice %arg0, %arg1,  : (tensor<f32>, tensor<f32>) -> tensor<f32>
    return %0, %1 : tensor<f32>, tensor<f32>
  }
}
// CHECK: f32[] dynamic-slice(%arg0), dynamic_slice_sizes={}
// CHECK: f32[] dynamic-update-slice(%arg0, %arg1)
