// SPDX-License-Identifier: Apache-2.0
// Conversions of halves by their bits, and rounding to nearest with halves away from zero, for
// machines without instructions for them: LLVM would call functions.
#include <string.h>

#include "compiler/codegen/llvm_emit.h"

struct soft {
    LLVMBuilderRef b;
    LLVMTypeRef i32, f32;
};
static struct soft soft_of(LLVMBuilderRef b, LLVMValueRef x) {
    LLVMContextRef c = LLVMGetTypeContext(LLVMTypeOf(x));
    return (struct soft){b, LLVMInt32TypeInContext(c), LLVMFloatTypeInContext(c)};
}
static LLVMValueRef n32(const struct soft *s, uint32_t v) {
    return LLVMConstInt(s->i32, v, 0);
}

LLVMValueRef llvm_soft_widen(LLVMBuilderRef b, LLVMValueRef half) {
    struct soft s = soft_of(b, half);
    LLVMValueRef h = LLVMBuildZExt(b, half, s.i32, ""),
                 sign = LLVMBuildShl(b, LLVMBuildAnd(b, h, n32(&s, 0x8000), ""), n32(&s, 16), ""),
                 low = LLVMBuildShl(b, LLVMBuildAnd(b, h, n32(&s, 0x7fff), ""), n32(&s, 13), "");
    // The exponent's bias is off by 112; what is subnormal becomes normal by the product.
    LLVMValueRef f =
        LLVMBuildFMul(b, LLVMBuildBitCast(b, low, s.f32, ""), LLVMConstReal(s.f32, 0x1p112), "");
    LLVMValueRef u = LLVMBuildBitCast(b, f, s.i32, ""),
                 special = LLVMBuildICmp(b, LLVMIntUGE, low, n32(&s, 0x0f800000), "");
    u = LLVMBuildSelect(b, special, LLVMBuildOr(b, low, n32(&s, 0x7f800000), ""), u, "");
    return LLVMBuildBitCast(b, LLVMBuildOr(b, u, sign, ""), s.f32, "");
}

LLVMValueRef llvm_soft_narrow(LLVMBuilderRef b, LLVMValueRef x) {
    struct soft s = soft_of(b, x);
    LLVMValueRef bits = LLVMBuildBitCast(b, x, s.i32, ""),
                 a = LLVMBuildAnd(b, bits, n32(&s, 0x7fffffff), ""),
                 sign = LLVMBuildLShr(b, LLVMBuildXor(b, bits, a, ""), n32(&s, 16), "");
    // To nearest even: normal halves by adding below the last bit, subnormal ones by a sum whose
    // last bit is theirs.
    LLVMValueRef odd = LLVMBuildAnd(b, LLVMBuildLShr(b, a, n32(&s, 13), ""), n32(&s, 1), ""),
                 r = LLVMBuildAdd(b, LLVMBuildAdd(b, a, n32(&s, 0xc8000fff), ""), odd, "");
    r = LLVMBuildLShr(b, r, n32(&s, 13), "");
    LLVMValueRef tiny =
        LLVMBuildFAdd(b, LLVMBuildBitCast(b, a, s.f32, ""), LLVMConstReal(s.f32, 0.5), "");
    tiny = LLVMBuildSub(b, LLVMBuildBitCast(b, tiny, s.i32, ""), n32(&s, 0x3f000000), "");
    r = LLVMBuildSelect(b, LLVMBuildICmp(b, LLVMIntULT, a, n32(&s, 0x38800000), ""), tiny, r, "");
    LLVMValueRef large = LLVMBuildICmp(b, LLVMIntUGE, a, n32(&s, 0x47800000), ""),
                 nan = LLVMBuildICmp(b, LLVMIntUGT, a, n32(&s, 0x7f800000), "");
    LLVMValueRef top = LLVMBuildSelect(b, nan, n32(&s, 0x7e00), n32(&s, 0x7c00), "");
    r = LLVMBuildOr(b, LLVMBuildSelect(b, large, top, r, ""), sign, "");
    return LLVMBuildTrunc(b, r, LLVMInt16TypeInContext(LLVMGetTypeContext(s.i32)), "");
}

static LLVMValueRef intrinsic(LLVMModuleRef m, LLVMBuilderRef b, const char *name,
                              LLVMValueRef *args, unsigned n) {
    LLVMTypeRef t = LLVMTypeOf(args[0]);
    unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
    LLVMValueRef f = LLVMGetIntrinsicDeclaration(m, id, &t, 1);
    return LLVMBuildCall2(b, LLVMIntrinsicGetType(LLVMGetTypeContext(t), id, &t, 1), f, args, n,
                          "");
}
// What is cut off is exact, so it can be compared with a half.
LLVMValueRef llvm_soft_round(LLVMModuleRef m, LLVMBuilderRef b, LLVMValueRef x) {
    LLVMTypeRef t = LLVMTypeOf(x);
    LLVMValueRef whole = intrinsic(m, b, "llvm.trunc", &x, 1),
                 rest = LLVMBuildFSub(b, x, whole, "");
    rest = intrinsic(m, b, "llvm.fabs", &rest, 1);
    LLVMValueRef up = LLVMBuildFCmp(b, LLVMRealOGE, rest, LLVMConstReal(t, 0.5), ""), one[2];
    one[0] = LLVMConstReal(t, 1);
    one[1] = x;
    LLVMValueRef away = LLVMBuildFAdd(b, whole, intrinsic(m, b, "llvm.copysign", one, 2), "");
    return LLVMBuildSelect(b, up, away, whole, "");
}
