// What a function is called with, and gives, has the types that it says.
// RUN: hlo-opt %s 2>&1 | FileCheck %s
// RUN: sed 's/3xf32/2xf32/g' %s > build/wrong-call.mlir; hlo-opt build/wrong-call.mlir | FileCheck --check-prefix=RIGHT %s
// RUN: sed '/call/d; s/return %0/return %a/; s/main(%a: tensor<2/main(%a: tensor<4/; s/return %a : tensor<2/return %a : tensor<4/' %s > build/wrong-call.mlir; hlo-opt build/wrong-call.mlir 2>&1 | FileCheck --check-prefix=RESULT %s
func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {
  %0 = func.call @impl(%a) : (tensor<2xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}
func.func private @impl(%a: tensor<3xf32>) -> tensor<3xf32> {
  return %a : tensor<3xf32>
}
// CHECK: func.call: @impl: argument 0 is declared as f32[3], it is f32[2]
// RIGHT: f32[2] parameter(0)
// RESULT: @main: result 0 is declared as f32[2], it is f32[4]
