func.func private @f(%x: tensor<4xi32>) -> (tensor<8xi32>, tensor<2xi32>, tensor<4xi32>) {
  %0 = "stablehlo.all_gather"(%x) {all_gather_dim = 0 : i64, replica_groups = dense<[[1, 0]]> : tensor<1x2xi64>} : (tensor<4xi32>) -> tensor<8xi32>
  %1 = "stablehlo.reduce_scatter"(%x) ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %s = stablehlo.add %a, %b : tensor<i32>
    stablehlo.return %s : tensor<i32>
  }) {scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<4xi32>) -> tensor<2xi32>
  %2 = "stablehlo.all_to_all"(%x) {split_dimension = 0 : i64, concat_dimension = 0 : i64, split_count = 2 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<4xi32>) -> tensor<4xi32>
  return %0, %1, %2 : tensor<8xi32>, tensor<2xi32>, tensor<4xi32>
}
func.func public @main(%x: tensor<4xi32>) -> tensor<2xi32> {
  %0:6 = "interpreter.run_parallel"(%x, %x) {programs = [[@f], [@f]]} : (tensor<4xi32>, tensor<4xi32>) -> (tensor<8xi32>, tensor<2xi32>, tensor<4xi32>, tensor<8xi32>, tensor<2xi32>, tensor<4xi32>)
  return %0#1 : tensor<2xi32>
}
