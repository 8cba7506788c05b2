// A grid of two replicas of two partitions: processes (0, 0), (0, 1), (1, 0), (1, 1) have 1, 2, 3, 4
// times [1, 10].
module @grid {
  func.func private @f(%x: tensor<2xi32>) -> (tensor<4xi32>, tensor<1xi32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>) {
    %0 = "stablehlo.all_gather"(%x) {all_gather_dim = 0 : i64, replica_groups = dense<[[1, 0]]> : tensor<1x2xi64>} : (tensor<2xi32>) -> tensor<4xi32>
    %1 = "stablehlo.reduce_scatter"(%x) ({
    ^bb0(%a: tensor<i32>, %b: tensor<i32>):
      %s = stablehlo.subtract %a, %b : tensor<i32>
      stablehlo.return %s : tensor<i32>
    }) {scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1], [3, 2]]> : tensor<2x2xi64>, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, use_global_device_ids} : (tensor<2xi32>) -> tensor<1xi32>
    %2 = "stablehlo.all_to_all"(%x) {split_dimension = 0 : i64, concat_dimension = 0 : i64, split_count = 2 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>} : (tensor<2xi32>) -> tensor<2xi32>
    %3 = "stablehlo.collective_permute"(%x) {source_target_pairs = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<2xi32>) -> tensor<2xi32>
    %4 = "stablehlo.collective_broadcast"(%x) {replica_groups = dense<[[1]]> : tensor<1x1xi64>, channel_handle = #stablehlo.channel_handle<handle = 2, type = 0>} : (tensor<2xi32>) -> tensor<2xi32>
    return %0, %1, %2, %3, %4 : tensor<4xi32>, tensor<1xi32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>
  }
  func.func @main() {
    %a = stablehlo.constant dense<[1, 10]> : tensor<2xi32>
    %b = stablehlo.constant dense<[2, 20]> : tensor<2xi32>
    %c = stablehlo.constant dense<[3, 30]> : tensor<2xi32>
    %d = stablehlo.constant dense<[4, 40]> : tensor<2xi32>
    %r:20 = "interpreter.run_parallel"(%a, %b, %c, %d) {programs = [[@f, @f], [@f, @f]]} : (tensor<2xi32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>) -> (tensor<4xi32>, tensor<1xi32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>, tensor<4xi32>, tensor<1xi32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>, tensor<4xi32>, tensor<1xi32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>, tensor<4xi32>, tensor<1xi32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>)
    check.expect_eq_const %r#0, dense<[3, 30, 1, 10]> : tensor<4xi32>
    check.expect_eq_const %r#5, dense<[4, 40, 2, 20]> : tensor<4xi32>
    check.expect_eq_const %r#1, dense<[-1]> : tensor<1xi32>
    check.expect_eq_const %r#6, dense<[-10]> : tensor<1xi32>
    check.expect_eq_const %r#11, dense<[10]> : tensor<1xi32>
    check.expect_eq_const %r#16, dense<[1]> : tensor<1xi32>
    check.expect_eq_const %r#2, dense<[1, 2]> : tensor<2xi32>
    check.expect_eq_const %r#7, dense<[10, 20]> : tensor<2xi32>
    check.expect_eq_const %r#17, dense<[30, 40]> : tensor<2xi32>
    check.expect_eq_const %r#3, dense<[0, 0]> : tensor<2xi32>
    check.expect_eq_const %r#13, dense<[1, 10]> : tensor<2xi32>
    check.expect_eq_const %r#18, dense<[2, 20]> : tensor<2xi32>
    check.expect_eq_const %r#4, dense<[0, 0]> : tensor<2xi32>
    check.expect_eq_const %r#9, dense<[2, 20]> : tensor<2xi32>
    check.expect_eq_const %r#19, dense<[4, 40]> : tensor<2xi32>
    func.return
  }
}
