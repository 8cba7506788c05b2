// Dimensions whose names are expressions over others follow from them; what is no expression is a
// name of its own.
// RUN: hlo-opt --bind 'b=3,c=2,b+=5' %s | FileCheck %s
// RUN: hlo-opt --bind 'b=1,c=2,2*b+1=9,b+=5' %s | FileCheck --check-prefix=SAID %s
// RUN: hlo-opt --bind 'b=3' %s 2>&1 | FileCheck --check-prefix=OPEN %s
// RUN: hlo-opt --bind 'b=-5,c=1' %s 2>&1 | FileCheck --check-prefix=NEGATIVE %s
// RUN: hlo-opt --bind 'b=3,c=0' %s 2>&1 | FileCheck --check-prefix=ZERO %s
module @m {
  func.func public @main(%arg0: tensor<?xf32> {hlod.dims = ["2*b+1"]}, %arg1: tensor<?x?xf32> {hlod.dims = ["floordiv(b+3,c)", "b"]}, %arg2: tensor<?xf32> {hlod.dims = ["b+"]}) -> tensor<?xf32> {
    return %arg0 : tensor<?xf32>
  }
}
// CHECK: f32[7] parameter(0)
// CHECK: f32[3,3] parameter(1)
// CHECK: f32[5] parameter(2)
// SAID: f32[9] parameter(0)
// SAID: f32[2,1] parameter(1)
// OPEN: dimensions are not bound: floordiv(b+3,c), b+
// NEGATIVE: input 'arg0': dimension 0 is negative
// ZERO: dimensions are not bound: floordiv(b+3,c), b+
