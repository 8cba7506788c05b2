// Meshes of devices beside functions are passed over, whatever stands on their line.
// RUN: hlo-opt %s | FileCheck %s
module @m { sdy.mesh @mesh = <["x"=2, "y"=1]> sdy.mesh @"other one" = <[], device_ids=[0]>
  "sdy.mesh"() <{mesh = #sdy.mesh<["x"=2]>, sym_name = "third"}> : () -> () func.func @main(
      %arg0: tensor<4x3xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) -> tensor<4x3xf32> {
    %0 = stablehlo.negate %arg0 : tensor<4x3xf32>
    return %0 : tensor<4x3xf32> } }
// CHECK: ENTRY
// CHECK: f32[4,3] negate(
