// JAX's DotAlgorithmPreset.BF16_BF16_F32 is HLO's algorithm of a dot; presets of several products
// (BF16_BF16_F32_X3) ask for f32's digits.
// RUN: hlo-opt %s | FileCheck %s
// RUN: hlo-opt --passes=@whole --target=cpu-bf16 %s | FileCheck --check-prefix=BF16 %s
module @m {
  func.func public @main(%arg0: tensor<32x64xf32>, %arg1: tensor<64x48xf32>) -> (tensor<32x48xf32>, tensor<32x48xf32>) {
    %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT], algorithm = <lhs_precision_type = bf16, rhs_precision_type = bf16, accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 1, allow_imprecise_accumulation = false> : (tensor<32x64xf32>, tensor<64x48xf32>) -> tensor<32x48xf32>
    %1 = "stablehlo.dot_general"(%arg0, %arg1) <{algorithm = #stablehlo.dot_algorithm<lhs_precision_type = bf16, rhs_precision_type = bf16, accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 3, allow_imprecise_accumulation = false>, dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>}> : (tensor<32x64xf32>, tensor<64x48xf32>) -> tensor<32x48xf32>
    return %0, %1 : tensor<32x48xf32>, tensor<32x48xf32>
  }
}
// CHECK: f32[32,48] dot({{.*}}), {{.*}}algorithm=dot_bf16_bf16_f32
// CHECK: f32[32,48] dot(
// CHECK-NOT: algorithm
// BF16: bf16[32,64] convert(
// BF16: f32[32,48] dot({{.*}}), {{.*}}algorithm=dot_bf16_bf16_f32
// BF16: f32[32,48] dot(%arg0, %arg1)
