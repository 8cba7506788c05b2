// RUN: hlo-opt --target=cpu-avx512 --passes=fuse-loop,dce --stage=llvm %s | FileCheck %s
// Kernels of one form share their code, but what is known not to overflow in one (an index beyond
// 32 bits) may overflow in another (numbers that are added): two bodies.
module @"m" {
  func.func public @main(%0: tensor<100000xi64> {hlod.name = "x0"}, %1: tensor<100000xi1> {hlod.name = "g0"}, %2: tensor<100064xi64> {hlod.name = "x1"}, %3: tensor<100064xi1> {hlod.name = "g1"}, %4: tensor<100128xi64> {hlod.name = "x2"}, %5: tensor<100128xi1> {hlod.name = "g2"}, %6: tensor<100192xi64> {hlod.name = "x3"}, %7: tensor<100192xi1> {hlod.name = "g3"}) -> (tensor<100000xi64>, tensor<100064xi64>, tensor<100128xi64>, tensor<100192xi64>) {
    %8 = "stablehlo.constant"() <{value = dense<34359738368> : tensor<i64>}> : () -> tensor<i64>
    %9 = "stablehlo.broadcast_in_dim"(%8) <{broadcast_dimensions = array<i64>}> : (tensor<i64>) -> tensor<100000xi64>
    %10 = "stablehlo.iota"() <{iota_dimension = 0 : i64}> : () -> tensor<1099511627776xi64>
    %11 = "stablehlo.slice"(%10) <{start_indices = array<i64: 34359738368>, limit_indices = array<i64: 34359838368>, strides = array<i64: 1>}> : (tensor<1099511627776xi64>) -> tensor<100000xi64>
    %12 = "stablehlo.select"(%1, %11, %9) : (tensor<100000xi1>, tensor<100000xi64>, tensor<100000xi64>) -> tensor<100000xi64>
    %13 = "stablehlo.compare"(%12, %9) <{comparison_direction = #stablehlo<comparison_direction GT>}> : (tensor<100000xi64>, tensor<100000xi64>) -> tensor<100000xi1>
    %14 = "stablehlo.reverse"(%0) <{dimensions = array<i64: 0>}> : (tensor<100000xi64>) -> tensor<100000xi64>
    %15 = "stablehlo.compare"(%14, %9) <{comparison_direction = #stablehlo<comparison_direction GT>}> : (tensor<100000xi64>, tensor<100000xi64>) -> tensor<100000xi1>
    %16 = "stablehlo.xor"(%13, %15) : (tensor<100000xi1>, tensor<100000xi1>) -> tensor<100000xi1>
    %17 = "stablehlo.divide"(%14, %9) : (tensor<100000xi64>, tensor<100000xi64>) -> tensor<100000xi64>
    %18 = "stablehlo.add"(%14, %17) : (tensor<100000xi64>, tensor<100000xi64>) -> tensor<100000xi64>
    %19 = "stablehlo.select"(%16, %18, %11) : (tensor<100000xi1>, tensor<100000xi64>, tensor<100000xi64>) -> tensor<100000xi64>
    %20 = "stablehlo.constant"() <{value = dense<9223372036854774800> : tensor<i64>}> : () -> tensor<i64>
    %21 = "stablehlo.broadcast_in_dim"(%20) <{broadcast_dimensions = array<i64>}> : (tensor<i64>) -> tensor<100064xi64>
    %22 = "stablehlo.iota"() <{iota_dimension = 0 : i64}> : () -> tensor<100064xi64>
    %23 = "stablehlo.add"(%22, %21) : (tensor<100064xi64>, tensor<100064xi64>) -> tensor<100064xi64>
    %24 = "stablehlo.select"(%3, %23, %21) : (tensor<100064xi1>, tensor<100064xi64>, tensor<100064xi64>) -> tensor<100064xi64>
    %25 = "stablehlo.compare"(%24, %21) <{comparison_direction = #stablehlo<comparison_direction GT>}> : (tensor<100064xi64>, tensor<100064xi64>) -> tensor<100064xi1>
    %26 = "stablehlo.reverse"(%2) <{dimensions = array<i64: 0>}> : (tensor<100064xi64>) -> tensor<100064xi64>
    %27 = "stablehlo.compare"(%26, %21) <{comparison_direction = #stablehlo<comparison_direction GT>}> : (tensor<100064xi64>, tensor<100064xi64>) -> tensor<100064xi1>
    %28 = "stablehlo.xor"(%25, %27) : (tensor<100064xi1>, tensor<100064xi1>) -> tensor<100064xi1>
    %29 = "stablehlo.divide"(%26, %21) : (tensor<100064xi64>, tensor<100064xi64>) -> tensor<100064xi64>
    %30 = "stablehlo.add"(%26, %29) : (tensor<100064xi64>, tensor<100064xi64>) -> tensor<100064xi64>
    %31 = "stablehlo.select"(%28, %30, %23) : (tensor<100064xi1>, tensor<100064xi64>, tensor<100064xi64>) -> tensor<100064xi64>
    %32 = "stablehlo.constant"() <{value = dense<9223372036854773800> : tensor<i64>}> : () -> tensor<i64>
    %33 = "stablehlo.broadcast_in_dim"(%32) <{broadcast_dimensions = array<i64>}> : (tensor<i64>) -> tensor<100128xi64>
    %34 = "stablehlo.iota"() <{iota_dimension = 0 : i64}> : () -> tensor<100128xi64>
    %35 = "stablehlo.add"(%34, %33) : (tensor<100128xi64>, tensor<100128xi64>) -> tensor<100128xi64>
    %36 = "stablehlo.select"(%5, %35, %33) : (tensor<100128xi1>, tensor<100128xi64>, tensor<100128xi64>) -> tensor<100128xi64>
    %37 = "stablehlo.compare"(%36, %33) <{comparison_direction = #stablehlo<comparison_direction GT>}> : (tensor<100128xi64>, tensor<100128xi64>) -> tensor<100128xi1>
    %38 = "stablehlo.reverse"(%4) <{dimensions = array<i64: 0>}> : (tensor<100128xi64>) -> tensor<100128xi64>
    %39 = "stablehlo.compare"(%38, %33) <{comparison_direction = #stablehlo<comparison_direction GT>}> : (tensor<100128xi64>, tensor<100128xi64>) -> tensor<100128xi1>
    %40 = "stablehlo.xor"(%37, %39) : (tensor<100128xi1>, tensor<100128xi1>) -> tensor<100128xi1>
    %41 = "stablehlo.divide"(%38, %33) : (tensor<100128xi64>, tensor<100128xi64>) -> tensor<100128xi64>
    %42 = "stablehlo.add"(%38, %41) : (tensor<100128xi64>, tensor<100128xi64>) -> tensor<100128xi64>
    %43 = "stablehlo.select"(%40, %42, %35) : (tensor<100128xi1>, tensor<100128xi64>, tensor<100128xi64>) -> tensor<100128xi64>
    %44 = "stablehlo.constant"() <{value = dense<9223372036854772800> : tensor<i64>}> : () -> tensor<i64>
    %45 = "stablehlo.broadcast_in_dim"(%44) <{broadcast_dimensions = array<i64>}> : (tensor<i64>) -> tensor<100192xi64>
    %46 = "stablehlo.iota"() <{iota_dimension = 0 : i64}> : () -> tensor<100192xi64>
    %47 = "stablehlo.add"(%46, %45) : (tensor<100192xi64>, tensor<100192xi64>) -> tensor<100192xi64>
    %48 = "stablehlo.select"(%7, %47, %45) : (tensor<100192xi1>, tensor<100192xi64>, tensor<100192xi64>) -> tensor<100192xi64>
    %49 = "stablehlo.compare"(%48, %45) <{comparison_direction = #stablehlo<comparison_direction GT>}> : (tensor<100192xi64>, tensor<100192xi64>) -> tensor<100192xi1>
    %50 = "stablehlo.reverse"(%6) <{dimensions = array<i64: 0>}> : (tensor<100192xi64>) -> tensor<100192xi64>
    %51 = "stablehlo.compare"(%50, %45) <{comparison_direction = #stablehlo<comparison_direction GT>}> : (tensor<100192xi64>, tensor<100192xi64>) -> tensor<100192xi1>
    %52 = "stablehlo.xor"(%49, %51) : (tensor<100192xi1>, tensor<100192xi1>) -> tensor<100192xi1>
    %53 = "stablehlo.divide"(%50, %45) : (tensor<100192xi64>, tensor<100192xi64>) -> tensor<100192xi64>
    %54 = "stablehlo.add"(%50, %53) : (tensor<100192xi64>, tensor<100192xi64>) -> tensor<100192xi64>
    %55 = "stablehlo.select"(%52, %54, %47) : (tensor<100192xi1>, tensor<100192xi64>, tensor<100192xi64>) -> tensor<100192xi64>
    "func.return"(%19, %31, %43, %55) : (tensor<100000xi64>, tensor<100064xi64>, tensor<100128xi64>, tensor<100192xi64>) -> ()
  }
}
// CHECK-COUNT-2: define void
