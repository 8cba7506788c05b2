// Functions are inlined with what is known of their arguments; a composite by its decomposition, or
// as the operation that its name says.
// RUN: hlo-opt %s | FileCheck %s
module @m attributes {mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<2x3xf32> {tf.aliasing_output = 0 : i32}) -> (tensor<2x3xf32> {jax.result_info = "['y']"}, tensor<2x3xf32>) {
    %0 = call @scaled(%arg0) : (tensor<2x3xf32>) -> tensor<2x3xf32>
    %1 = stablehlo.composite "chlo.erf" %0 {decomposition = @unused, version = 1 : i32} : (tensor<2x3xf32>) -> tensor<2x3xf32>
    %2 = stablehlo.composite "mine.twice" %0 {decomposition = @twice} : (tensor<2x3xf32>) -> tensor<2x3xf32>
    return %1, %2 : tensor<2x3xf32>, tensor<2x3xf32>
  }
  func.func private @scaled(%arg0: tensor<2x3xf32>) -> tensor<2x3xf32> {
    %cst = stablehlo.constant dense<2.500000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x3xf32>
    %1 = stablehlo.multiply %arg0, %0 : tensor<2x3xf32>
    return %1 : tensor<2x3xf32>
  }
  func.func private @twice(%arg0: tensor<2x3xf32>) -> tensor<2x3xf32> {
    %0 = stablehlo.add %arg0, %arg0 : tensor<2x3xf32>
    return %0 : tensor<2x3xf32>
  }
  func.func private @unused(%arg0: tensor<2x3xf32>) -> tensor<2x3xf32> {
    return %arg0 : tensor<2x3xf32>
  }
}
// CHECK: input_output_alias={ {0}: (0, {}, may-alias) }
// CHECK: ENTRY
// CHECK-NOT: call(
// CHECK: multiply(
// CHECK: erf(
// CHECK: add(
