// Elements below a byte whose other bits are not as their sign says, as MLIR's bytecode has them;
// elements of i1 as bytes and, as older MLIR writes them, as bits.
// RUN: hlo-opt %s | FileCheck %s
func.func @main() -> (tensor<4xi4>, tensor<3xi2>, tensor<3xui4>, tensor<2xi4>, tensor<9xi1>, tensor<9xi1>) {
  %0 = stablehlo.constant dense<"0x08010FF7"> : tensor<4xi4>
  %1 = stablehlo.constant dense<"0x0203FD"> : tensor<3xi2>
  %2 = stablehlo.constant dense<"0xF80F07"> : tensor<3xui4>
  %3 = stablehlo.constant dense<"0x09"> : tensor<2xi4>
  %4 = stablehlo.constant dense<"0x010001010000000001"> : tensor<9xi1>
  %5 = stablehlo.constant dense<"0x0D01"> : tensor<9xi1>
  return %0, %1, %2, %3, %4, %5 : tensor<4xi4>, tensor<3xi2>, tensor<3xui4>, tensor<2xi4>, tensor<9xi1>, tensor<9xi1>
}
// CHECK: s4[4] constant({-8, 1, -1, 7})
// CHECK: s2[3] constant({-2, -1, 1})
// CHECK: u4[3] constant({8, 15, 7})
// CHECK: s4[] constant(-7)
// CHECK: pred[9] constant({true, false, true, true, false, false, false, false, true})
// CHECK: pred[9] constant({true, false, true, true, false, false, false, false, true})
