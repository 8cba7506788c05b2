// All operations that are not known, in one error; and where a program is wrong.
// RUN: hlo-opt %s 2>&1 | FileCheck %s
func.func @main(%arg0: tensor<2xf32>) -> tensor<2xf32> {
  %0 = stablehlo.frobnicate %arg0 : tensor<2xf32>
  %1 = "other.thing"(%0) {k = 1 : i64} : (tensor<2xf32>) -> tensor<2xf32>
  return %1 : tensor<2xf32>
}
// CHECK: 2 operations cannot run:
// CHECK: stablehlo.frobnicate: an operation that is not known here
// CHECK: other.thing: an operation that is not known here
