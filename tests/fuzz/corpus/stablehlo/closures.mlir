// Regions use values from outside: a while passes them in its state, constants are made again.
// RUN: hlo-opt %s | FileCheck %s
module @jit_loop {
  func.func public @main(%x: tensor<3xf32>, %n: tensor<i32>) -> (tensor<3xf32>, tensor<i1>) {
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %step = stablehlo.multiply %x, %x : tensor<3xf32>
    %r:2 = stablehlo.while(%i = %zero, %acc = %x) : tensor<i32>, tensor<3xf32>
    cond {
      %more = stablehlo.compare LT, %i, %n, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %more : tensor<i1>
    } do {
      %next = stablehlo.add %i, %one : tensor<i32>
      %sum = stablehlo.add %acc, %step : tensor<3xf32>
      stablehlo.return %next, %sum : tensor<i32>, tensor<3xf32>
    }
    %odd = stablehlo.compare GT, %r#0, %one : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %y = "stablehlo.if"(%odd) ({
      %twice = stablehlo.add %r#1, %r#1 : tensor<3xf32>
      stablehlo.return %twice : tensor<3xf32>
    }, {
      stablehlo.return %step : tensor<3xf32>
    }) : (tensor<i1>) -> tensor<3xf32>
    return %y, %odd : tensor<3xf32>, tensor<i1>
  }
}
// CHECK-DAG: %while_condition (state: (s32[], f32[3], s32[], f32[3])) -> pred[]
// CHECK-DAG: %while_body (state{{.*}}: (s32[], f32[3], s32[], f32[3])) -> (s32[], f32[3], s32[], f32[3])
// CHECK-DAG: %if_branch{{.*}} (state{{.*}}: (f32[3])) -> (f32[3])
// CHECK: ENTRY
// CHECK: %[[T:.*]] = (s32[], f32[3], s32[], f32[3]) tuple(
// CHECK: while(%[[T]]), condition=%while_condition, body=%while_body
// CHECK: conditional(
