// Dimensions are bound at the request; a number that decides a shape is bound by its value, and the
// parameter stays. A shape assertion that fails refuses the request with its message.
// RUN: hlo-opt --bind '_arg1_0=4,=0[0]=4' %s | FileCheck %s
// RUN: hlo-opt --bind '_arg1_0=3,=0[0]=3' %s 2>&1 | FileCheck --check-prefix=ODD %s
// RUN: hlo-opt %s 2>&1 | FileCheck --check-prefix=OPEN %s
module @m {
  func.func public @main(%arg0: tensor<i64>, %arg1: tensor<?x3xf32>) -> tensor<?x6xf32> {
    %two = stablehlo.constant dense<2> : tensor<i64>
    %zero = stablehlo.constant dense<0> : tensor<i64>
    %rest = stablehlo.remainder %arg0, %two : tensor<i64>
    %even = stablehlo.compare EQ, %rest, %zero : (tensor<i64>, tensor<i64>) -> tensor<i1>
    stablehlo.custom_call @shape_assertion(%even, %arg0) {api_version = 2 : i32, error_message = "the batch must be even, not {0}", has_side_effect = true} : (tensor<i1>, tensor<i64>) -> ()
    %half = stablehlo.divide %arg0, %two : tensor<i64>
    %n = stablehlo.reshape %half : (tensor<i64>) -> tensor<1xi64>
    %six = stablehlo.constant dense<6> : tensor<1xi64>
    %shape = stablehlo.concatenate %n, %six, dim = 0 : (tensor<1xi64>, tensor<1xi64>) -> tensor<2xi64>
    %0 = stablehlo.dynamic_reshape %arg1, %shape : (tensor<?x3xf32>, tensor<2xi64>) -> tensor<?x6xf32>
    return %0 : tensor<?x6xf32>
  }
}
// CHECK: f32[4,3] parameter(1)
// CHECK: f32[2,6] reshape(
// ODD: the batch must be even, not 3
// OPEN: dimensions are not bound: _arg1_0
