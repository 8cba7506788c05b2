// Dimensions that follow from others, where only the request says them: sizes computed outside a
// loop decide shapes in it, a slice begins where only the run knows, elements become their bytes,
// products read two types of 8 bits.
// RUN: hlo-opt --bind '_arg0_0=7' %s | FileCheck %s
// RUN: hlo-opt --bind '_arg0_0=2' %s 2>&1 | FileCheck --check-prefix=SHORT %s
// RUN: hlo-run --compare --bind "_arg0_0=7" %s
module @m {
  func.func public @main(%arg0: tensor<?x4xf32>, %arg1: tensor<i32>, %arg2: tensor<4x2xf32>) -> (tensor<?x4xf32>, tensor<3x4xf32>, tensor<?x4x4xui8>, tensor<?x4xf32>, tensor<?x2xf32>) {
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %n = stablehlo.get_dimension_size %arg0, dim = 0 : (tensor<?x4xf32>) -> tensor<i32>
    %wide = stablehlo.convert %n : (tensor<i32>) -> tensor<i64>
    %half = stablehlo.constant dense<0.5> : tensor<f32>
    %r:2 = stablehlo.while(%i = %zero, %acc = %arg0) : tensor<i32>, tensor<?x4xf32>
    cond {
      %more = stablehlo.compare LT, %i, %arg1, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %more : tensor<i1>
    } do {
      %next = stablehlo.add %i, %one : tensor<i32>
      %v = stablehlo.reshape %wide : (tensor<i64>) -> tensor<1xi64>
      %four = stablehlo.constant dense<4> : tensor<1xi64>
      %dims = stablehlo.concatenate %v, %four, dim = 0 : (tensor<1xi64>, tensor<1xi64>) -> tensor<2xi64>
      %all = stablehlo.dynamic_broadcast_in_dim %half, %dims, dims = [] : (tensor<f32>, tensor<2xi64>) -> tensor<?x4xf32>
      %sum = stablehlo.add %acc, %all : tensor<?x4xf32>
      stablehlo.return %next, %sum : tensor<i32>, tensor<?x4xf32>
    }

    %i1 = stablehlo.reshape %arg1 : (tensor<i32>) -> tensor<1xi32>
    %zeros = stablehlo.constant dense<0> : tensor<2xi32>
    %z1 = stablehlo.constant dense<0> : tensor<1xi32>
    %sizes = stablehlo.constant dense<[3, 4]> : tensor<2xi32>
    %ones = stablehlo.constant dense<1> : tensor<2xi32>
    %n1 = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
    %four32 = stablehlo.constant dense<4> : tensor<1xi32>
    %shape = stablehlo.concatenate %n1, %four32, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %last = stablehlo.subtract %shape, %sizes : tensor<2xi32>
    %at = stablehlo.concatenate %i1, %z1, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %start = stablehlo.clamp %zeros, %at, %last : tensor<2xi32>
    %end = stablehlo.add %start, %sizes : tensor<2xi32>
    %rows = stablehlo.real_dynamic_slice %arg0, %start, %end, %ones : (tensor<?x4xf32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>) -> tensor<3x4xf32>

    %bytes = stablehlo.bitcast_convert %arg0 : (tensor<?x4xf32>) -> tensor<?x4x4xui8>
    %back = stablehlo.bitcast_convert %bytes : (tensor<?x4x4xui8>) -> tensor<?x4xf32>

    %p = stablehlo.convert %arg0 : (tensor<?x4xf32>) -> tensor<?x4xf8E4M3FN>
    %q = stablehlo.convert %arg2 : (tensor<4x2xf32>) -> tensor<4x2xf8E5M2>
    %dot = stablehlo.dot_general %p, %q, contracting_dims = [1] x [0] : (tensor<?x4xf8E4M3FN>, tensor<4x2xf8E5M2>) -> tensor<?x2xf32>
    return %r#1, %rows, %bytes, %back, %dot : tensor<?x4xf32>, tensor<3x4xf32>, tensor<?x4x4xui8>, tensor<?x4xf32>, tensor<?x2xf32>
  }
}
// CHECK: f32[7,4] broadcast(
// CHECK: %[[AT:.*]] = s32[] parameter(1)
// CHECK: f32[3,4] dynamic-slice(%{{.*}}, %[[AT]], %{{.*}}), dynamic_slice_sizes={3,4}
// CHECK: u8[7,4,4] bitcast-convert(
// CHECK: f32[7,4] bitcast-convert(
// CHECK: f32[7,2] dot(
// SHORT: dynamic-slice: size 3 in dimension 0 of f32[2,4]
