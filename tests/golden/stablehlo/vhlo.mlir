// Text of the dialect inside portable artefacts is told from StableHLO's.
// RUN: hlo-opt %s 2>&1 | FileCheck %s
module @m {
  vhlo.func_v1 @main(%arg0: !vhlo.tensor_v1<2x!vhlo.f32_v1>) -> (!vhlo.tensor_v1<2x!vhlo.f32_v1>) {
    "vhlo.return_v1"(%arg0) : (!vhlo.tensor_v1<2x!vhlo.f32_v1>) -> ()
  }
}
// CHECK: line 4: the text is of VHLO
