// Also there as bytecode (../stablehlo_bytecode/kinds.*.bc).
module @kinds attributes {mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<2x4xf32> {tf.aliasing_output = 0 : i32}, %arg1: tensor<i32>, %arg2: !stablehlo.token) -> (tensor<2x4xf32> {jax.result_info = "y"}, tensor<2x4xi1>, !stablehlo.token) {
    %big = stablehlo.constant dense<[[1.0, -2.0, 0.5, 3.0], [4.0, 5.0, 6.0, 7.0]]> : tensor<2x4xf32>
    %bits = stablehlo.constant dense<[[true, false, true, true], [false, true, false, false]]> : tensor<2x4xi1>
    %all = stablehlo.constant dense<true> : tensor<2x4xi1>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %0 = stablehlo.compare GT, %arg0, %big, TOTALORDER : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xi1>
    %1 = stablehlo.and %0, %bits : tensor<2x4xi1>
    %2 = call @inner(%arg0) : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %3:2 = stablehlo.while(%i = %arg1, %acc = %2) : tensor<i32>, tensor<2x4xf32>
    cond {
      %more = stablehlo.compare LT, %i, %one, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %more : tensor<i1>
    } do {
      %next = stablehlo.add %i, %one : tensor<i32>
      %sum = stablehlo.add %acc, %big : tensor<2x4xf32>
      stablehlo.return %next, %sum : tensor<i32>, tensor<2x4xf32>
    }
    %4 = stablehlo.transpose %3#1, dims = [1, 0] : (tensor<2x4xf32>) -> tensor<4x2xf32>
    %5 = stablehlo.dot_general %3#1, %4, contracting_dims = [1] x [0], precision = [HIGHEST, DEFAULT] : (tensor<2x4xf32>, tensor<4x2xf32>) -> tensor<2x2xf32>
    %6 = stablehlo.reduce(%5 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<2x2xf32>, tensor<f32>) -> tensor<2xf32>
    %7 = stablehlo.broadcast_in_dim %6, dims = [0] : (tensor<2xf32>) -> tensor<2x4xf32>
    %8:2 = stablehlo.custom_call @target(%7, %arg2) {backend_config = "text", has_side_effect = true} : (tensor<2x4xf32>, !stablehlo.token) -> (tensor<2x4xf32>, !stablehlo.token)
    %9 = stablehlo.and %1, %all : tensor<2x4xi1>
    return %8#0, %9, %8#1 : tensor<2x4xf32>, tensor<2x4xi1>, !stablehlo.token
  }
  func.func private @inner(%arg0: tensor<2x4xf32>) -> tensor<2x4xf32> {
    %0 = stablehlo.slice %arg0 [0:2, 0:4:2] : (tensor<2x4xf32>) -> tensor<2x2xf32>
    %1 = stablehlo.concatenate %0, %0, dim = 1 : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x4xf32>
    return %1 : tensor<2x4xf32>
  }
}
