// A start that only a run knows stays open where the steps are 1; with others it is bound by value,
// since the sizes of the result follow from it.
// RUN: hlo-opt --bind '=1[0]=2' %s | FileCheck %s
// CHECK: slice({{.*}}), slice={[2:6:2]}
func.func @main(%a: tensor<8xf32>, %s: tensor<1xi64>) -> tensor<?xf32> {
  %n = stablehlo.constant dense<4> : tensor<1xi64>
  %two = stablehlo.constant dense<2> : tensor<1xi64>
  %l = stablehlo.add %s, %n : tensor<1xi64>
  %r = stablehlo.real_dynamic_slice %a, %s, %l, %two : (tensor<8xf32>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<?xf32>
  return %r : tensor<?xf32>
}
