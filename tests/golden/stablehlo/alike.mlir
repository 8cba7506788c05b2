// What says that two values are spread alike over devices (jax.experimental.shard_alike) gives
// nothing and is left out.
// RUN: hlo-opt %s | FileCheck %s
module @alike {
  sdy.mesh @mesh = <["x"=1]>
  func.func public @main(%arg0: tensor<4x3xf32>) -> tensor<4x3xf32> {
    %0 = stablehlo.negate %arg0 : tensor<4x3xf32>
    sdy.sharding_group %0 group_id=2 : tensor<4x3xf32>
    "sdy.sharding_group"(%arg0) <{group_id = 2 : i64}> : (tensor<4x3xf32>) -> ()
    return %0 : tensor<4x3xf32>
  }
}
// CHECK: ENTRY
// CHECK-NOT: sharding_group
// CHECK: f32[4,3] negate(
