// A call of what is not here, in a branch (how checks of values are written that raise in Python,
// and kernels of other platforms): a run that comes to it ends there.
// RUN: hlo-opt %s | FileCheck %s
func.func @main(%arg0: tensor<i32>, %arg1: tensor<2xf32>) -> tensor<2xf32> {
  %0 = "stablehlo.case"(%arg0) ({
    stablehlo.return %arg1 : tensor<2xf32>
  }, {
    %1 = stablehlo.custom_call @xla_ffi_python_cpu_callback(%arg1) {api_version = 4 : i32, backend_config = {index = 0 : ui64}} : (tensor<2xf32>) -> tensor<2xf32>
    %2 = stablehlo.negate %1 : tensor<2xf32>
    stablehlo.return %2 : tensor<2xf32>
  }) : (tensor<i32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}
// CHECK-NOT: xla_ffi_python_cpu_callback
// CHECK: custom-call(), custom_call_target="hlod.refuse", custom_call_has_side_effect=true, backend_config="the run came to a branch that cannot run here: calls back into the Python process
// CHECK: negate(
// CHECK: conditional(
