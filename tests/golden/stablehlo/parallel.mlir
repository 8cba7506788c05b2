// Programs of a grid of processes as one: each waits at what goes between them. One that waits for
// another that has ended, or for itself, is refused.
// RUN: hlo-opt %s | FileCheck %s
// RUN: sed 's/\[\[0, 1\]\]/[[0, 2]]/' %s | hlo-opt - 2>&1 | FileCheck --check-prefix=OUT %s
// RUN: sed 's/\[@f\]\]/[@g]]/' %s | hlo-opt - 2>&1 | FileCheck --check-prefix=WAIT %s
module @m {
  func.func private @f(%x: tensor<2xf32>) -> tensor<2xf32> {
    %id = stablehlo.replica_id : tensor<ui32>
    %n = stablehlo.convert %id : (tensor<ui32>) -> tensor<f32>
    %wide = stablehlo.broadcast_in_dim %n, dims = [] : (tensor<f32>) -> tensor<2xf32>
    %y = stablehlo.add %x, %wide : tensor<2xf32>
    %0 = "stablehlo.all_reduce"(%y) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %s = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<2xf32>) -> tensor<2xf32>
    return %0 : tensor<2xf32>
  }
  func.func private @g(%x: tensor<2xf32>) -> tensor<2xf32> {
    return %x : tensor<2xf32>
  }
  func.func public @main(%x: tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>) {
    %0:2 = "interpreter.run_parallel"(%x, %x) {programs = [[@f], [@f]]} : (tensor<2xf32>, tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>)
    return %0#0, %0#1 : tensor<2xf32>, tensor<2xf32>
  }
}
// CHECK: u32[] constant(0)
// CHECK: u32[] constant(1)
// CHECK-NOT: all-reduce
// CHECK: map(
// OUT: stablehlo.all_reduce: process (1, 0) is in no group
// WAIT: interpreter.run_parallel: its processes wait for each other
