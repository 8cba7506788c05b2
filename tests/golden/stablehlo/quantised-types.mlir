// Types of unsigned integers are written u8, and what no quantised type has is refused.
// RUN: hlo-opt %s | FileCheck %s
// RUN: sed 's/0\.5:3/0.0:3/' %s > build/quantised-types.mlir; hlo-opt build/quantised-types.mlir 2>&1 | FileCheck --check-prefix=SCALE %s
// RUN: sed 's/u8:f32/i8<-200:1>:f32/' %s > build/quantised-types.mlir; hlo-opt build/quantised-types.mlir 2>&1 | FileCheck --check-prefix=BOUNDS %s
// RUN: sed 's/u8:f32/i64:f32/' %s > build/quantised-types.mlir; hlo-opt build/quantised-types.mlir 2>&1 | FileCheck --check-prefix=WIDE %s
// RUN: sed 's/u8:f32, 0.5:3/i8:f32:{0:1}, {0.5, 1.0, 2.0, 4.0}/' %s > build/quantised-types.mlir; hlo-opt build/quantised-types.mlir 2>&1 | FileCheck --check-prefix=BLOCKS %s
!q = !quant.uniform<u8:f32, 0.5:3>
func.func @main(%x: tensor<4x!q>) -> tensor<4xf32> {
  %0 = stablehlo.uniform_dequantize %x : (tensor<4x!q>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
// CHECK: u8[4] parameter(0)
// SCALE: a quantised type has a scale that is not above 0
// BOUNDS: a quantised type has bounds that are not of what it stores
// WIDE: a quantised type stores more than 32 bits
// BLOCKS: scales of blocks (sub-channels) are not supported
