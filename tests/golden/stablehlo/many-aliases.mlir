// Aliases in front of a module, as JAX writes one for the name of each argument: of 700 arguments
// they are longer than any head of the file.
// RUN: (seq 700 | sed 's/.*/#loc& = loc("arguments[&]")/'; cat %s) | hlo-opt - | FileCheck %s
// CHECK: ENTRY
// CHECK: add(
module @jit_f {
  func.func public @main(%arg0: tensor<7xf32>, %arg1: tensor<7xf32>) -> tensor<7xf32> {
    %0 = stablehlo.add %arg0, %arg1 : tensor<7xf32>
    return %0 : tensor<7xf32>
  }
}
