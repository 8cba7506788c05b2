// SPDX-License-Identifier: Apache-2.0
// kir to LLVM IR. A kernel is one function whose buffers are noalias parameters; one with more than
// HLOD_KERNEL_DIRECT buffers gets a second, exported one that unpacks the buffer array. Kernels of
// one form share a function, which reads their sizes from its last argument.
#include "compiler/codegen/llvm_emit.h"

#include <llvm-c/DebugInfo.h>
#include <stdio.h>

#include "compiler/codegen/abi.h"

enum { MAX_BUFS = 512 };
struct emit {
    LLVMContextRef c;
    LLVMModuleRef m;
    LLVMBuilderRef b;
    LLVMValueRef fn, scratch, bufs[MAX_BUFS], *tables;
    const struct kir_fn *f;
    bool halves; // some value is a f16
    int lanes;   // that loops over halves are to have; 0: as LLVM likes
    bool soft;   // the machine has no halves and does not round away from zero (llvm_soft.c), and
                 // its pointers have 32 bits: s64 values that fit these are i32
    const struct llvm_inside *in; // within a loop's function; or NULL
    int n_sizes;                  // of a shared body
    LLVMValueRef sizes[LLVM_MAX_SIZES];
};

static LLVMTypeRef type_of(struct emit *e, enum dtype t) {
    switch (t) {
    case DT_F32:
        return LLVMFloatTypeInContext(e->c);
    case DT_F64:
        return LLVMDoubleTypeInContext(e->c);
    case DT_PRED:
        return LLVMInt1TypeInContext(e->c);
    default:
        return LLVMIntTypeInContext(e->c, (unsigned)dtype_bits(t));
    }
}
static LLVMTypeRef memory_type(struct emit *e, enum dtype t) {
    if (t == DT_F32 || t == DT_F64) return type_of(e, t);
    if (t == DT_F16 && !e->soft) return LLVMHalfTypeInContext(e->c);
    return LLVMIntTypeInContext(e->c, (unsigned)dtype_size(t) * 8);
}
static LLVMTypeRef i_n(struct emit *e, int bits) {
    return LLVMIntTypeInContext(e->c, (unsigned)bits);
}
static LLVMTypeRef lanes_of(LLVMTypeRef t, int lanes) {
    return lanes ? LLVMVectorType(t, (unsigned)lanes) : t;
}
static LLVMValueRef val(const struct kir_val *v) {
    return v->emit;
}
static LLVMValueRef ci(LLVMTypeRef t, int64_t v) {
    return LLVMConstInt(t, (unsigned long long)v, 1);
}
static bool is_signed(enum dtype t) {
    return dtype_class(t) == DC_SIGNED;
}

static bool is_short(const struct emit *e, const struct kir_val *v) {
    return e->soft && kir_fits_32(v);
}
static LLVMTypeRef type_of_val(struct emit *e, const struct kir_val *v) {
    return is_short(e, v) ? i_n(e, 32) : type_of(e, v->type);
}
// Argument k as a value of so many bits, if it is an s64.
static LLVMValueRef arg_of(struct emit *e, const struct kir_val *v, int k, int bits) {
    LLVMValueRef x = val(v->args[k]);
    if (!e->soft || v->args[k]->type != DT_S64 || v->args[k]->lanes) return x;
    return LLVMBuildIntCast2(e->b, x, i_n(e, bits), 1, "");
}
// Of which operations on s64 the lower half follows from the lower halves.
static int bits_of(const struct emit *e, const struct kir_val *v) {
    static const bool plain[KOP_COUNT] = {
        [K_ADD] = true, [K_SUB] = true, [K_MUL] = true,    [K_NEG] = true,    [K_MIN] = true,
        [K_MAX] = true, [K_CMP] = true, [K_SELECT] = true, [K_DIVMOD] = true, [K_CAST] = true};
    bool place = v->op == K_LOAD || v->op == K_STORE || v->op == K_TABLE;
    bool fits = e->soft && (plain[v->op] || place) && (v->type != DT_S64 || is_short(e, v));
    for (int k = 0; k < v->n_args && fits; k++)
        fits = v->args[k]->type != DT_S64 || is_short(e, v->args[k]);
    return fits ? 32 : 64;
}

static LLVMValueRef intrinsic(struct emit *e, const char *name, LLVMTypeRef *over, int n_over,
                              LLVMValueRef *args, unsigned n) {
    unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
    LLVMValueRef f = LLVMGetIntrinsicDeclaration(e->m, id, over, (size_t)n_over);
    LLVMTypeRef ft = LLVMIntrinsicGetType(e->c, id, over, (size_t)n_over);
    return LLVMBuildCall2(e->b, ft, f, args, n, "");
}
static LLVMValueRef intrinsic1(struct emit *e, const char *name, LLVMValueRef x) {
    LLVMTypeRef t = LLVMTypeOf(x);
    return intrinsic(e, name, &t, 1, &x, 1);
}
static LLVMValueRef intrinsic2(struct emit *e, const char *name, LLVMValueRef x, LLVMValueRef y) {
    LLVMTypeRef t = LLVMTypeOf(x);
    LLVMValueRef a[2] = {x, y};
    return intrinsic(e, name, &t, 1, a, 2);
}

// f32 to bfloat16 bits, to nearest even; NaN stays NaN (quiet).
static LLVMValueRef to_bf16(struct emit *e, LLVMValueRef x) {
    LLVMTypeRef t = i_n(e, 32);
    LLVMValueRef u = LLVMBuildBitCast(e->b, x, t, "");
    LLVMValueRef lsb = LLVMBuildAnd(e->b, LLVMBuildLShr(e->b, u, ci(t, 16), ""), ci(t, 1), "");
    LLVMValueRef r = LLVMBuildAdd(e->b, LLVMBuildAdd(e->b, u, ci(t, 0x7fff), ""), lsb, "");
    LLVMValueRef nan = LLVMBuildFCmp(e->b, LLVMRealUNO, x, x, "");
    r = LLVMBuildSelect(e->b, nan, LLVMBuildOr(e->b, u, ci(t, 0x400000), ""), r, "");
    return LLVMBuildLShr(e->b, r, ci(t, 16), "");
}
static LLVMValueRef from_bf16(struct emit *e, LLVMValueRef bits32) {
    LLVMTypeRef t = i_n(e, 32);
    return LLVMBuildBitCast(e->b, LLVMBuildShl(e->b, bits32, ci(t, 16), ""),
                            LLVMFloatTypeInContext(e->c), "");
}

static LLVMValueRef from_f16(struct emit *e, LLVMValueRef half) {
    if (e->soft) return llvm_soft_widen(e->b, half);
    return LLVMBuildFPExt(e->b, half, LLVMFloatTypeInContext(e->c), "");
}
static LLVMValueRef to_f16(struct emit *e, LLVMValueRef x) {
    if (e->soft) return llvm_soft_narrow(e->b, x);
    return LLVMBuildFPTrunc(e->b, x, LLVMHalfTypeInContext(e->c), "");
}

// Says of a load or store of buffer `buf` what it cannot touch.
static void apart(struct emit *e, LLVMValueRef access, int64_t buf) {
    const struct llvm_apart *a = !e->in               ? NULL
                                 : buf == KIR_SCRATCH ? &e->in->scratch_apart
                                 : buf >= 0           ? &e->in->apart[buf]
                                                      : NULL;
    if (!a || !a->own) return;
    LLVMSetMetadata(access, LLVMGetMDKindIDInContext(e->c, "alias.scope", 11), a->own);
    if (a->others) LLVMSetMetadata(access, LLVMGetMDKindIDInContext(e->c, "noalias", 7), a->others);
}
// Where element `at` lies. A constant that is added to it is added to the place, where what is left
// is one too: such a sum does not wrap, and an instruction of WebAssembly can do it.
static LLVMValueRef place_of(struct emit *e, LLVMValueRef base, LLVMTypeRef mt,
                             const struct kir_val *at) {
    int n = at->op == K_ADD && at->args[0]->op == K_CONST ? 0 : 1; // which of them is
    const struct kir_val *c = at->op == K_ADD ? at->args[n] : NULL;
    bool splits =
        e->soft && c && c->op == K_CONST && c->imm_i > 0 && !c->imm_j && at->args[1 - n]->lo >= 0;
    LLVMValueRef i = val(splits ? at->args[1 - n] : at), by = splits ? val(c) : NULL;
    LLVMValueRef p = LLVMBuildInBoundsGEP2(e->b, mt, base, &i, 1, "");
    return splits ? LLVMBuildInBoundsGEP2(e->b, mt, p, &by, 1, "") : p;
}
static LLVMValueRef load(struct emit *e, LLVMValueRef base, enum dtype elem,
                         const struct kir_val *at, int64_t buf) {
    LLVMTypeRef mt = memory_type(e, elem);
    LLVMValueRef p = place_of(e, base, mt, at);
    LLVMValueRef v = LLVMBuildLoad2(e->b, mt, p, "");
    LLVMSetAlignment(v, (unsigned)dtype_size(elem));
    apart(e, v, buf);
    switch (elem) {
    case DT_PRED:
        return LLVMBuildICmp(e->b, LLVMIntNE, v, ci(mt, 0), "");
    case DT_F16:
        return from_f16(e, v);
    case DT_BF16:
        return from_bf16(e, LLVMBuildZExt(e->b, v, i_n(e, 32), ""));
    default:
        return v;
    }
}
static void store(struct emit *e, LLVMValueRef base, enum dtype elem, const struct kir_val *at,
                  LLVMValueRef v, int64_t buf) {
    LLVMTypeRef mt = memory_type(e, elem);
    LLVMValueRef p = place_of(e, base, mt, at);
    if (elem == DT_PRED) v = LLVMBuildZExt(e->b, v, mt, "");
    if (elem == DT_F16) v = to_f16(e, v);
    if (elem == DT_BF16) v = LLVMBuildTrunc(e->b, to_bf16(e, v), mt, "");
    LLVMValueRef r = LLVMBuildStore(e->b, v, p);
    LLVMSetAlignment(r, (unsigned)dtype_size(elem));
    apart(e, r, buf);
}
// Elements side by side, of a type that memory has as values have it.
static LLVMValueRef lanes_at(struct emit *e, LLVMValueRef base, const struct kir_val *v) {
    LLVMTypeRef mt = memory_type(e, v->elem);
    LLVMValueRef p = place_of(e, base, mt, v->args[0]);
    LLVMValueRef r = v->op == K_STORE ? LLVMBuildStore(e->b, val(v->args[1]), p)
                                      : LLVMBuildLoad2(e->b, lanes_of(mt, v->lanes), p, "");
    LLVMSetAlignment(r, (unsigned)dtype_size(v->elem));
    apart(e, r, v->imm_i);
    return r;
}
static LLVMValueRef splat(struct emit *e, LLVMValueRef x, int lanes) {
    LLVMTypeRef t = LLVMTypeOf(x), i32 = i_n(e, 32);
    LLVMValueRef none = LLVMGetPoison(lanes_of(t, lanes)),
                 one = LLVMBuildInsertElement(e->b, none, x, ci(i32, 0), "");
    return LLVMBuildShuffleVector(e->b, one, none, LLVMConstNull(lanes_of(i32, lanes)), "");
}
static LLVMValueRef zip(struct emit *e, LLVMValueRef x, LLVMValueRef y, int lanes, bool second) {
    LLVMValueRef at[KIR_MAX_LANES];
    for (int n = 0; n < lanes; n++)
        at[n] = ci(i_n(e, 32), (second ? lanes / 2 : 0) + n / 2 + n % 2 * lanes);
    return LLVMBuildShuffleVector(e->b, x, y, LLVMConstVector(at, (unsigned)lanes), "");
}
// An instruction of WebAssembly.
static LLVMValueRef pairs(struct emit *e, const struct kir_val *v) {
    LLVMTypeRef halves = LLVMVectorType(i_n(e, 16), 2u * v->lanes);
    LLVMValueRef x = val(v->args[0]), y = val(v->args[1]),
                 by = splat(e, ci(i_n(e, 32), 16), v->lanes);
    if (e->soft) {
        LLVMValueRef a[2] = {LLVMBuildBitCast(e->b, x, halves, ""),
                             LLVMBuildBitCast(e->b, y, halves, "")};
        return intrinsic(e, "llvm.wasm.dot", NULL, 0, a, 2);
    }
    LLVMValueRef high =
        LLVMBuildMul(e->b, LLVMBuildAShr(e->b, x, by, ""), LLVMBuildAShr(e->b, y, by, ""), "");
    x = LLVMBuildAShr(e->b, LLVMBuildShl(e->b, x, by, ""), by, "");
    y = LLVMBuildAShr(e->b, LLVMBuildShl(e->b, y, by, ""), by, "");
    return LLVMBuildAdd(e->b, LLVMBuildMul(e->b, x, y, ""), high, "");
}
static LLVMValueRef vector(struct emit *e, const struct kir_val *v, LLVMValueRef x) {
    if (v->op == K_SPLAT) return splat(e, x, v->lanes);
    return v->op == K_ZIP ? zip(e, x, val(v->args[1]), v->lanes, v->imm_i) : pairs(e, v);
}
static LLVMValueRef base_of(struct emit *e, int64_t buf) {
    return buf == KIR_SCRATCH ? e->scratch : e->bufs[buf];
}

// To 8 or 16 bits: bounded as a float, an instruction for each bound.
static LLVMValueRef to_small(struct emit *e, enum dtype to, LLVMValueRef x) {
    LLVMTypeRef f = LLVMTypeOf(x), wide = i_n(e, 32);
    int bits = dtype_bits(to);
    bool sign = is_signed(to);
    LLVMValueRef lo = LLVMConstReal(f, sign ? -(double)(1 << (bits - 1)) : 0),
                 hi = LLVMConstReal(f, (1 << (bits - sign)) - 1);
    LLVMValueRef y = LLVMBuildSelect(e->b, LLVMBuildFCmp(e->b, LLVMRealOGT, x, lo, ""), x, lo, "");
    y = LLVMBuildSelect(e->b, LLVMBuildFCmp(e->b, LLVMRealOLT, y, hi, ""), y, hi, "");
    LLVMValueRef r = LLVMBuildFPToSI(e->b, y, wide, "");
    if (sign) // NaN became the lower bound
        r = LLVMBuildSelect(e->b, LLVMBuildFCmp(e->b, LLVMRealORD, x, x, ""), r,
                            LLVMConstNull(wide), "");
    return LLVMBuildTrunc(e->b, r, type_of(e, to), "");
}
// To s32, the nearest it has; NaN is 0. What LLVM makes of its own saturating conversion of vectors
// is one of each lane on x86.
static LLVMValueRef to_s32(struct emit *e, LLVMValueRef x) {
    LLVMTypeRef t = i_n(e, 32), from = LLVMTypeOf(x);
    LLVMValueRef high = LLVMConstReal(from, 0x1p31), low = LLVMConstReal(from, -0x1p31),
                 r = LLVMBuildFPToSI(e->b, x, t, "");
    r = LLVMBuildSelect(e->b, LLVMBuildFCmp(e->b, LLVMRealOGE, x, high, ""), ci(t, INT32_MAX), r,
                        "");
    r = LLVMBuildSelect(e->b, LLVMBuildFCmp(e->b, LLVMRealOLT, x, low, ""), ci(t, INT32_MIN), r,
                        "");
    return LLVMBuildSelect(e->b, LLVMBuildFCmp(e->b, LLVMRealUNO, x, x, ""), ci(t, 0), r, "");
}
static LLVMValueRef cast(struct emit *e, const struct kir_val *v) {
    enum dtype to = v->type, from = v->args[0]->type;
    LLVMValueRef x = arg_of(e, v, 0, bits_of(e, v));
    LLVMTypeRef t = type_of(e, to);
    if (to == DT_PRED) {
        if (dtype_is_float(from))
            return LLVMBuildFCmp(e->b, LLVMRealUNE, x, LLVMConstNull(LLVMTypeOf(x)), "");
        return LLVMBuildICmp(e->b, LLVMIntNE, x, LLVMConstNull(LLVMTypeOf(x)), "");
    }
    if (dtype_is_float(to) && dtype_is_float(from))
        return to == DT_F64 ? LLVMBuildFPExt(e->b, x, t, "") : LLVMBuildFPTrunc(e->b, x, t, "");
    if (dtype_is_float(to))
        return is_signed(from) ? LLVMBuildSIToFP(e->b, x, t, "") : LLVMBuildUIToFP(e->b, x, t, "");
    if (v->flags & KF_FITS) {
        LLVMTypeRef w = dtype_bits(to) < 32 ? i_n(e, 32) : t;
        bool sign = is_signed(to) || dtype_bits(to) < 32;
        x = sign ? LLVMBuildFPToSI(e->b, x, w, "") : LLVMBuildFPToUI(e->b, x, w, "");
        return LLVMBuildIntCast2(e->b, x, t, sign, "");
    }
    if (dtype_is_float(from) && dtype_bits(to) <= 16) return to_small(e, to, x);
    if (dtype_is_float(from) && to == DT_S32 && !e->soft) return to_s32(e, x);
    if (dtype_is_float(from)) {
        LLVMTypeRef over[2] = {t, LLVMTypeOf(x)};
        return intrinsic(e, is_signed(to) ? "llvm.fptosi.sat" : "llvm.fptoui.sat", over, 2, &x, 1);
    }
    return LLVMBuildIntCast2(e->b, x, lanes_of(t, v->lanes), is_signed(from), "");
}

static LLVMValueRef divmod(struct emit *e, const struct kir_val *v) {
    bool narrow = v->args[0]->hi < INT64_C(0xffffffff);
    LLVMTypeRef t = i_n(e, narrow ? 32 : 64);
    LLVMValueRef x = LLVMBuildIntCast2(e->b, val(v->args[0]), t, 1, "");
    if (v->imm_i != 1) x = LLVMBuildUDiv(e->b, x, ci(t, v->imm_i), "");
    if (v->imm_j) x = LLVMBuildURem(e->b, x, ci(t, v->imm_j), "");
    return LLVMBuildIntCast2(e->b, x, type_of_val(e, v), 0, "");
}

static LLVMValueRef compare(struct emit *e, const struct kir_val *v) {
    static const LLVMRealPredicate real[] = {LLVMRealOEQ, LLVMRealUNE, LLVMRealOGE,
                                             LLVMRealOGT, LLVMRealOLE, LLVMRealOLT};
    static const LLVMIntPredicate sint[] = {LLVMIntEQ,  LLVMIntNE,  LLVMIntSGE,
                                            LLVMIntSGT, LLVMIntSLE, LLVMIntSLT};
    static const LLVMIntPredicate uint[] = {LLVMIntEQ,  LLVMIntNE,  LLVMIntUGE,
                                            LLVMIntUGT, LLVMIntULE, LLVMIntULT};
    int bits = bits_of(e, v);
    LLVMValueRef x = arg_of(e, v, 0, bits), y = arg_of(e, v, 1, bits);
    enum dtype t = v->args[0]->type;
    if (dtype_is_float(t)) return LLVMBuildFCmp(e->b, real[v->imm_i], x, y, "");
    return LLVMBuildICmp(e->b, is_signed(t) ? sint[v->imm_i] : uint[v->imm_i], x, y, "");
}

static void attribute(struct emit *e, LLVMValueRef fn, unsigned at, const char *name, uint64_t v) {
    unsigned k = LLVMGetEnumAttributeKindForName(name, strlen(name));
    LLVMAddAttributeAtIndex(fn, at, LLVMCreateEnumAttribute(e->c, k, v));
}
// A remainder is LLVM's own operation: of a loop with it LLVM makes vectors, each lane a call.
static LLVMValueRef call(struct emit *e, const struct kir_val *v) {
    LLVMTypeRef d = LLVMDoubleTypeInContext(e->c), p[4] = {d, d, d, d},
                ft = LLVMFunctionType(d, p, v->n_args, 0);
    const char *name = kir_fn_name((int)v->imm_i);
    LLVMValueRef f = LLVMGetNamedFunction(e->m, name), a[4];
    for (unsigned i = 0; i < v->n_args; i++)
        a[i] = val(v->args[i]);
    if (v->imm_i == KLIBM_FMOD && !e->soft) return LLVMBuildFRem(e->b, a[0], a[1], "");
    if (!f) {
        f = LLVMAddFunction(e->m, name, ft);
        attribute(e, f, (unsigned)LLVMAttributeFunctionIndex, "nounwind", 0);
        attribute(e, f, (unsigned)LLVMAttributeFunctionIndex, "willreturn", 0);
        attribute(e, f, (unsigned)LLVMAttributeFunctionIndex, "memory", 0);
    }
    return LLVMBuildCall2(e->b, ft, f, a, v->n_args, "");
}

// minimum and maximum spelled out. LLVM 19 narrows the intrinsics to half where it can, and its
// code for halves loses NaN.
static LLVMValueRef extremum(struct emit *e, const struct kir_val *v) {
    LLVMValueRef x = val(v->args[0]), y = val(v->args[1]);
    LLVMTypeRef t = LLVMTypeOf(x), bits = i_n(e, dtype_bits(v->type));
    bool max = v->op == K_MAX;
    LLVMValueRef before = LLVMBuildFCmp(e->b, max ? LLVMRealOGT : LLVMRealOLT, x, y, ""),
                 r = LLVMBuildSelect(e->b, before, x, y, "");
    LLVMValueRef a = LLVMBuildBitCast(e->b, x, bits, ""), b = LLVMBuildBitCast(e->b, y, bits, "");
    LLVMValueRef same = max ? LLVMBuildAnd(e->b, a, b, "") : LLVMBuildOr(e->b, a, b, "");
    r = LLVMBuildSelect(e->b, LLVMBuildFCmp(e->b, LLVMRealOEQ, x, y, ""),
                        LLVMBuildBitCast(e->b, same, t, ""), r, ""); // signed zeros
    return LLVMBuildSelect(e->b, LLVMBuildFCmp(e->b, LLVMRealUNO, x, x, ""), x, r, "");
}
// The same where no reduction is to be seen in it: of NaN and of equal zeros an instruction gives
// its second operand, so both orders of them, joined bit by bit, have the sign of the zero that is
// asked for and NaN where one was. LLVM's own form of the intrinsics asks for the sign first.
static LLVMValueRef both_orders(struct emit *e, const struct kir_val *v) {
    LLVMValueRef x = val(v->args[0]), y = val(v->args[1]), r[2];
    LLVMTypeRef t = LLVMTypeOf(x), bits = i_n(e, dtype_bits(v->type));
    bool max = v->op == K_MAX;
    for (int k = 0; k < 2; k++) {
        LLVMValueRef a = k ? y : x, b = k ? x : y,
                     first = LLVMBuildFCmp(e->b, max ? LLVMRealOGT : LLVMRealOLT, a, b, "");
        r[k] = LLVMBuildBitCast(e->b, LLVMBuildSelect(e->b, first, a, b, ""), bits, "");
    }
    LLVMValueRef either = LLVMBuildBitCast(e->b, LLVMBuildOr(e->b, r[0], r[1], ""), t, "");
    if (!max) return either;
    LLVMValueRef both = LLVMBuildBitCast(e->b, LLVMBuildAnd(e->b, r[0], r[1], ""), t, "");
    return LLVMBuildSelect(e->b, LLVMBuildFCmp(e->b, LLVMRealUNO, x, y, ""), either, both, "");
}
static bool is_plain_extremum(const struct emit *e, const struct kir_val *v) {
    if (e->halves || e->soft || (v->type != DT_F32 && v->type != DT_F64)) return false;
    for (int k = 0; k < 2; k++)
        if (v->args[k]->op == K_CONST || v->args[k]->op == K_CARRY) return false;
    return true;
}
static LLVMValueRef binary(struct emit *e, const struct kir_val *v) {
    int bits = bits_of(e, v);
    LLVMValueRef x = arg_of(e, v, 0, bits), y = arg_of(e, v, 1, bits);
    enum dtype t = v->type;
    bool f = dtype_is_float(t), s = is_signed(t);

    switch (v->op) {
    case K_ADD:
        return f                 ? LLVMBuildFAdd(e->b, x, y, "")
               : kir_is_exact(v) ? LLVMBuildNSWAdd(e->b, x, y, "")
                                 : LLVMBuildAdd(e->b, x, y, "");
    case K_SUB:
        return f ? LLVMBuildFSub(e->b, x, y, "") : LLVMBuildSub(e->b, x, y, "");
    case K_MUL:
        return f                 ? LLVMBuildFMul(e->b, x, y, "")
               : kir_is_exact(v) ? LLVMBuildNSWMul(e->b, x, y, "")
                                 : LLVMBuildMul(e->b, x, y, "");
    case K_DIV:
        return f   ? LLVMBuildFDiv(e->b, x, y, "")
               : s ? LLVMBuildSDiv(e->b, x, y, "")
                   : LLVMBuildUDiv(e->b, x, y, "");
    case K_REM:
        return s ? LLVMBuildSRem(e->b, x, y, "") : LLVMBuildURem(e->b, x, y, "");
    case K_MIN:
        if (f && e->halves) return extremum(e, v);
        if (f && is_plain_extremum(e, v)) return both_orders(e, v);
        return intrinsic2(e, f ? "llvm.minimum" : s ? "llvm.smin" : "llvm.umin", x, y);
    case K_MAX:
        if (f && e->halves) return extremum(e, v);
        if (f && is_plain_extremum(e, v)) return both_orders(e, v);
        return intrinsic2(e, f ? "llvm.maximum" : s ? "llvm.smax" : "llvm.umax", x, y);
    case K_AND:
        return LLVMBuildAnd(e->b, x, y, "");
    case K_OR:
        return LLVMBuildOr(e->b, x, y, "");
    case K_XOR:
        return LLVMBuildXor(e->b, x, y, "");
    case K_SHL:
        return LLVMBuildShl(e->b, x, y, "");
    case K_SHR:
        return s ? LLVMBuildAShr(e->b, x, y, "") : LLVMBuildLShr(e->b, x, y, "");
    default:
        return intrinsic2(e, "llvm.copysign", x, y);
    }
}

// The intrinsic of one operand that is the operation, or NULL.
static const char *unary_intrinsic(enum kop op) {
    static const char *const names[] = {
        [K_SQRT] = "llvm.sqrt",      [K_FLOOR] = "llvm.floor", [K_CEIL] = "llvm.ceil",
        [K_RINT] = "llvm.roundeven", [K_ROUND] = "llvm.round", [K_POPCNT] = "llvm.ctpop"};
    return (size_t)op < sizeof names / sizeof *names ? names[op] : NULL;
}

// What a kernel writes is rounded, though another kernel's sum reads it in the same function.
static void keep_value(struct emit *e, LLVMValueRef v) {
    if (e->in && LLVMIsAInstruction(v) && LLVMCanValueUseFastMathFlags(v))
        LLVMSetFastMathFlags(v, LLVMFastMathNone);
}
static LLVMValueRef value(struct emit *e, const struct kir_val *v) {
    int bits = bits_of(e, v);
    LLVMValueRef x = v->n_args ? arg_of(e, v, 0, bits) : NULL;
    LLVMTypeRef t = v->type ? type_of(e, v->type) : NULL;
    const char *name = unary_intrinsic(v->op);
    if (name && v->op == K_ROUND && e->soft) return llvm_soft_round(e->m, e->b, x);
    if (name) return intrinsic1(e, name, x);

    switch (v->op) {
    case K_CONST:
        if (e->n_sizes && v->type == DT_S64 && v->imm_j) return e->sizes[v->imm_j - 1];
        return dtype_is_float(v->type) ? LLVMConstReal(t, v->imm_f) : ci(t, v->imm_i);
    case K_SPLAT:
    case K_ZIP:
    case K_PAIRS:
        return vector(e, v, x);
    case K_LOAD:
        if (v->lanes) return lanes_at(e, base_of(e, v->imm_i), v);
        return load(e, base_of(e, v->imm_i), v->elem, v->args[0], v->imm_i);
    case K_STORE:
        keep_value(e, val(v->args[1]));
        if (v->lanes) return lanes_at(e, base_of(e, v->imm_i), v), NULL;
        store(e, base_of(e, v->imm_i), v->elem, v->args[0], arg_of(e, v, 1, 64), v->imm_i);
        return NULL;
    case K_TABLE:
        return load(e, e->tables[v->imm_i], v->elem, v->args[0], KIR_SCRATCH);
    case K_DIVMOD:
        return divmod(e, v);
    case K_FMA: {
        LLVMValueRef a[3] = {x, val(v->args[1]), val(v->args[2])};
        return intrinsic(e, "llvm.fma", &t, 1, a, 3);
    }
    case K_NEG:
        return dtype_is_float(v->type) ? LLVMBuildFNeg(e->b, x, "") : LLVMBuildNeg(e->b, x, "");
    case K_ABS: {
        LLVMValueRef a[2] = {x, ci(i_n(e, 1), 0)};
        return dtype_is_float(v->type) ? intrinsic1(e, "llvm.fabs", x)
                                       : intrinsic(e, "llvm.abs", &t, 1, a, 2);
    }
    case K_CLZ: {
        LLVMValueRef a[2] = {x, ci(i_n(e, 1), 0)};
        return intrinsic(e, "llvm.ctlz", &t, 1, a, 2);
    }
    case K_CMP:
        return compare(e, v);
    case K_SELECT:
        return LLVMBuildSelect(e->b, x, arg_of(e, v, 1, bits), arg_of(e, v, 2, bits), "");
    case K_CAST:
        return cast(e, v);
    case K_BITS:
        return LLVMBuildBitCast(e->b, x, t, "");
    case K_QUANT:
        if (v->imm_i == DT_BF16) return from_bf16(e, to_bf16(e, x));
        return from_f16(e, to_f16(e, x));
    case K_CALL:
        return call(e, v);
    default:
        return binary(e, v);
    }
}

static void flags(LLVMValueRef r, const struct kir_val *v) {
    if (!(v->flags & (KF_REASSOC | KF_CONTRACT)) || !dtype_is_float(v->type) ||
        !LLVMIsAInstruction(r) || !LLVMCanValueUseFastMathFlags(r))
        return;
    LLVMSetFastMathFlags(
        r, (v->flags & KF_REASSOC ? LLVMFastMathAllowReassoc | LLVMFastMathAllowContract : 0) |
               (v->flags & KF_CONTRACT ? LLVMFastMathAllowContract : 0));
}

static LLVMMetadataRef note(struct emit *e, const char *name, int bits, int64_t v) {
    LLVMMetadataRef s = LLVMMDStringInContext2(e->c, name, strlen(name));
    if (!bits) return LLVMMDNodeInContext2(e->c, &s, 1);
    LLVMMetadataRef two[2] = {s, LLVMValueAsMetadata(ci(i_n(e, bits), v))};
    return LLVMMDNodeInContext2(e->c, two, 2);
}
// A loop for vectors with fewer turns than LLVM thinks worth it: with vectors of 128 bits a few
// are, and in loops that are one function, where some lines of a step are all its work.
static bool has_few_turns(const struct kir_loop *l) {
    enum { LANES = 4, LLVMS = 16 };
    int64_t from, to;
    return l->vectorize && kir_is_const(l->begin, &from) && kir_is_const(l->end, &to) &&
           to - from >= LANES && to - from < LLVMS;
}
static bool has_lanes(const struct kir_block *b) {
    for (const struct kir_val *v = b->first; v; v = v->next)
        if (v->lanes) return true;
    return false;
}
// Is v's place in memory the turn's, or the same in all?
static bool side_by_side(const struct kir_val *v, const struct kir_loop *l) {
    const struct kir_val *at = v->args[0];
    bool is_var =
        at == l->var || (at->op == K_ADD && (at->args[0] == l->var) != (at->args[1] == l->var));
    return is_var || at->level < l->var->level;
}
// A loop over halves and what has 32 bits that lie side by side: LLVM thinks conversions dear, and
// takes a few lanes where all are as fast.
static bool wants_all_lanes(const struct emit *e, const struct kir_loop *l) {
    if (!e->halves || !e->lanes || !l->vectorize || l->n_carry || l->trip < 4 * e->lanes)
        return false;
    bool any = false;
    for (const struct kir_val *v = l->body.first; v; v = v->next) {
        bool memory = v->op == K_LOAD || v->op == K_STORE;
        if (v->op == K_FOR || v->op == K_TABLE || v->op == K_CALL || v->lanes) return false;
        if (memory && (dtype_size(v->elem) > 4 || !side_by_side(v, l))) return false;
        if (v->type == DT_F64) return false;
        any |= memory && v->elem == DT_F16;
    }
    return any;
}
// A distinct !llvm.loop node: its first operand is itself.
static void loop_metadata(struct emit *e, LLVMValueRef branch, const struct kir_loop *l) {
    LLVMMetadataRef ops[7], self = LLVMTemporaryMDNode(e->c, NULL, 0);
    size_t n = 0;
    ops[n++] = self;
    ops[n++] = note(e, "llvm.loop.mustprogress", 0, 0);
    bool none = e->in && llvm_loop_is_worse(l),
         few = (e->soft || (e->in && !l->n_carry && !none)) && has_few_turns(l);
    if (!l->vectorize || few || none) ops[n++] = note(e, "llvm.loop.vectorize.enable", 1, few);
    if (e->in && l->vectorize && !none &&
        (l->n_carry ? llvm_sum_ends_hidden : llvm_loop_ends_hidden)(e->in, l))
        ops[n++] = note(e, "llvm.loop.vectorize.predicate.enable", 1, 1);
    // Sums of a tile fill the registers: values that two turns written out share do not fit.
    if (has_lanes(&l->body)) ops[n++] = note(e, "llvm.loop.unroll.disable", 0, 0);
    if (l->interleave) ops[n++] = note(e, "llvm.loop.interleave.count", 32, l->interleave);
    if (wants_all_lanes(e, l)) ops[n++] = note(e, "llvm.loop.vectorize.width", 32, e->lanes);
    LLVMMetadataRef node = LLVMMDNodeInContext2(e->c, ops, n);
    LLVMMetadataReplaceAllUsesWith(self, node);
    unsigned kind = LLVMGetMDKindIDInContext(e->c, "llvm.loop", 9);
    LLVMSetMetadata(branch, kind, LLVMMetadataAsValue(e->c, node));
}

static void block(struct emit *e, const struct kir_block *b);
// Within a loop's function most kernels are one element: no loop then.
static bool one_turn(struct emit *e, struct kir_loop *l) {
    LLVMValueRef begin = val(l->begin), end = val(l->end);
    if (!e->in || !LLVMIsAConstantInt(begin) || !LLVMIsAConstantInt(end) ||
        LLVMConstIntGetSExtValue(end) - LLVMConstIntGetSExtValue(begin) != 1)
        return false;
    l->var->emit = begin;
    for (int c = 0; c < l->n_carry; c++)
        l->carry[c]->emit = l->init[c]->emit;
    block(e, &l->body);
    for (int c = 0; c < l->n_carry; c++)
        l->result[c]->emit = l->yield[c]->emit;
    return true;
}
static LLVMTypeRef carried(struct emit *e, const struct kir_val *v) {
    return lanes_of(type_of_val(e, v), v->lanes);
}
static LLVMValueRef as_carried(struct emit *e, const struct kir_val *carry,
                               const struct kir_val *v) {
    if (!e->soft || carry->type != DT_S64 || carry->lanes) return val(v);
    return LLVMBuildIntCast2(e->b, val(v), type_of_val(e, carry), 1, "");
}
static void loop(struct emit *e, struct kir_loop *l) {
    if (one_turn(e, l)) return;
    LLVMBasicBlockRef pre = LLVMGetInsertBlock(e->b);
    LLVMBasicBlockRef body = LLVMAppendBasicBlockInContext(e->c, e->fn, ""),
                      done = LLVMAppendBasicBlockInContext(e->c, e->fn, "");
    LLVMTypeRef index = type_of_val(e, l->var);
    LLVMValueRef begin = LLVMBuildIntCast2(e->b, val(l->begin), index, 1, ""),
                 end = LLVMBuildIntCast2(e->b, val(l->end), index, 1, "");
    for (int c = 0; c < l->n_carry; c++) // what comes in; until it is known, instead of the result
        l->result[c]->emit = as_carried(e, l->carry[c], l->init[c]);
    bool known =
        l->begin->op == K_CONST && l->end->op == K_CONST && l->begin->imm_i < l->end->imm_i;
    if (known)
        LLVMBuildBr(e->b, body);
    else
        LLVMBuildCondBr(e->b, LLVMBuildICmp(e->b, LLVMIntSLT, begin, end, ""), body, done);

    LLVMPositionBuilderAtEnd(e->b, body);
    LLVMValueRef i = LLVMBuildPhi(e->b, index, "");
    LLVMAddIncoming(i, &begin, &pre, 1);
    l->var->emit = i;
    for (int c = 0; c < l->n_carry; c++) {
        LLVMValueRef phi = LLVMBuildPhi(e->b, carried(e, l->carry[c]), ""),
                     init = val(l->result[c]);
        LLVMAddIncoming(phi, &init, &pre, 1);
        l->carry[c]->emit = phi;
    }

    block(e, &l->body);
    LLVMBasicBlockRef latch = LLVMGetInsertBlock(e->b);
    LLVMValueRef next = LLVMBuildNSWAdd(e->b, i, ci(index, 1), "");
    LLVMSetNUW(next, 1);
    LLVMAddIncoming(i, &next, &latch, 1);

    for (int c = 0; c < l->n_carry; c++) {
        LLVMValueRef y = as_carried(e, l->carry[c], l->yield[c]);
        LLVMAddIncoming(val(l->carry[c]), &y, &latch, 1);
    }

    loop_metadata(
        e, LLVMBuildCondBr(e->b, LLVMBuildICmp(e->b, LLVMIntSLT, next, end, ""), body, done), l);

    LLVMPositionBuilderAtEnd(e->b, done);
    for (int c = 0; c < l->n_carry; c++) {
        LLVMValueRef phi = LLVMBuildPhi(e->b, carried(e, l->carry[c]), ""),
                     init = val(l->result[c]), y = LLVMGetIncomingValue(val(l->carry[c]), 1);
        LLVMAddIncoming(phi, &y, &latch, 1);
        if (!known) LLVMAddIncoming(phi, &init, &pre, 1);
        l->result[c]->emit = phi;
    }
}
static void block(struct emit *e, const struct kir_block *b) {
    for (struct kir_val *v = b->first; v; v = v->next) {
        if (v->op == K_FOR) {
            loop(e, v->loop);
            continue;
        }
        LLVMValueRef r = value(e, v);
        if (r) flags(r, v);
        bool index = e->soft && v->type == DT_S64 && !v->lanes;
        v->emit = index ? LLVMBuildIntCast2(e->b, r, type_of_val(e, v), 1, "") : r;
    }
}

static void text_attribute(struct emit *e, LLVMValueRef fn, const char *name, const char *v) {
    LLVMAddAttributeAtIndex(
        fn, LLVMAttributeFunctionIndex,
        LLVMCreateStringAttribute(e->c, name, (unsigned)strlen(name), v, (unsigned)strlen(v)));
}
static void make_tables(struct emit *e, LLVMValueRef *out) {
    for (size_t i = 0; i < e->f->tables.n; i++) {
        const struct kir_table *t = &e->f->tables.v[i];
        LLVMValueRef init =
            LLVMConstStringInContext(e->c, t->data, (unsigned)(t->n * dtype_size(t->elem)), 1);
        out[i] = LLVMAddGlobal(e->m, LLVMTypeOf(init), "table");
        LLVMSetInitializer(out[i], init);
        LLVMSetLinkage(out[i], LLVMPrivateLinkage);
        LLVMSetGlobalConstant(out[i], 1);
        LLVMSetAlignment(out[i], 64);
    }
}

static void load_sizes(struct emit *e, LLVMValueRef sizes) {
    LLVMTypeRef i64 = i_n(e, 64);
    unsigned invariant = LLVMGetMDKindIDInContext(e->c, "invariant.load", 14);
    LLVMValueRef none = LLVMMetadataAsValue(e->c, LLVMMDNodeInContext2(e->c, NULL, 0));
    for (int i = 0; i < e->n_sizes; i++) {
        LLVMValueRef at = ci(i64, i);
        at = LLVMBuildInBoundsGEP2(e->b, i64, sizes, &at, 1, "");
        e->sizes[i] = LLVMBuildLoad2(e->b, i64, at, "");
        LLVMSetMetadata(e->sizes[i], invariant, none);
    }
}

// The kernel itself; parameters: its buffers, begin, end, scratch, sizes.
static LLVMValueRef body(struct emit *e, const char *name, LLVMTypeRef *out_type,
                         const struct target *t) {
    LLVMTypeRef ptr = LLVMPointerTypeInContext(e->c, 0), i64 = i_n(e, 64), params[MAX_BUFS + 4];
    unsigned n = 0, nb = (unsigned)e->f->n_bufs;
    for (unsigned i = 0; i < nb; i++)
        params[n++] = ptr;
    params[n++] = i64;
    params[n++] = i64;
    params[n++] = ptr;
    params[n++] = ptr;
    LLVMTypeRef ft = LLVMFunctionType(LLVMVoidTypeInContext(e->c), params, n, 0);

    LLVMValueRef fn = LLVMAddFunction(e->m, name, ft);
    for (unsigned i = 0; i <= nb; i++) {
        unsigned at = 1 + (i < nb ? i : nb + 2);
        attribute(e, fn, at, "noalias", 0);
        if (i >= (unsigned)e->f->n_in) attribute(e, fn, at, "align", 64);
    }

    llvm_function_attributes(e->m, fn, t);

    e->fn = fn;
    for (unsigned i = 0; i < nb; i++)
        e->bufs[i] = LLVMGetParam(fn, i);
    e->f->begin->emit = LLVMGetParam(fn, nb);
    e->f->end->emit = LLVMGetParam(fn, nb + 1);
    e->scratch = LLVMGetParam(fn, nb + 2);

    LLVMPositionBuilderAtEnd(e->b, LLVMAppendBasicBlockInContext(e->c, fn, ""));
    load_sizes(e, LLVMGetParam(fn, nb + 3));
    block(e, &e->f->top);
    LLVMBuildRetVoid(e->b);
    *out_type = ft;
    return fn;
}

static void find_halves(void *found, struct kir_val *v) {
    bool memory = v->op == K_LOAD || v->op == K_STORE || v->op == K_TABLE;
    if ((memory && v->elem == DT_F16) || (v->op == K_QUANT && v->imm_i == DT_F16))
        *(bool *)found = true;
}

// For many buffers: takes them as an array. Units are numbers of so many bits: JavaScript has none
// of 64 that are quick.
static void unpacked(struct emit *e, const char *symbol, LLVMValueRef fn, LLVMTypeRef type,
                     int bits) {
    LLVMTypeRef ptr = LLVMPointerTypeInContext(e->c, 0), i64 = i_n(e, 64), unit = i_n(e, bits),
                p[5] = {ptr, unit, unit, ptr, ptr};
    LLVMValueRef args[MAX_BUFS + 4];
    LLVMValueRef outer =
        LLVMAddFunction(e->m, symbol, LLVMFunctionType(LLVMVoidTypeInContext(e->c), p, 5, 0));
    attribute(e, outer, (unsigned)LLVMAttributeFunctionIndex, "nounwind", 0);
    LLVMPositionBuilderAtEnd(e->b, LLVMAppendBasicBlockInContext(e->c, outer, ""));
    unsigned n = 0;
    for (int i = 0; i < e->f->n_bufs; i++) {
        LLVMValueRef at = ci(i64, i);
        args[n++] = LLVMBuildLoad2(
            e->b, ptr, LLVMBuildInBoundsGEP2(e->b, ptr, LLVMGetParam(outer, 0), &at, 1, ""), "");
    }
    for (unsigned i = 1; i < 5; i++) {
        LLVMValueRef a = LLVMGetParam(outer, i);
        args[n++] = i < 3 && bits < 64 ? LLVMBuildZExt(e->b, a, i64, "") : a;
    }
    LLVMBuildCall2(e->b, type, fn, args, n, "");
    LLVMBuildRetVoid(e->b);
    LLVMSetLinkage(fn, LLVMInternalLinkage);
}

enum { MAX_TABLES = 64 };
status_t llvm_emit_inside(const struct llvm_inside *in, const struct kir_fn *f) {
    struct emit e = {.c = LLVMGetModuleContext(in->m),
                     .m = in->m,
                     .b = in->b,
                     .fn = in->fn,
                     .f = f,
                     .in = in,
                     .scratch = in->scratch};
    LLVMValueRef tables[MAX_TABLES];
    if (f->n_bufs > MAX_BUFS || f->tables.n > MAX_TABLES)
        return st_unimplemented("a kernel with %d buffers", f->n_bufs);
    kir_each((struct kir_block *)&f->top, find_halves, &e.halves);
    e.tables = tables;
    make_tables(&e, tables);
    memcpy(e.bufs, in->bufs, sizeof *in->bufs * (size_t)f->n_bufs);
    f->begin->emit = ci(i_n(&e, 64), 0);
    f->end->emit = ci(i_n(&e, 64), f->extent);
    block(&e, &f->top);
    return ST_OK;
}

void llvm_function_attributes(LLVMModuleRef m, LLVMValueRef fn, const struct target *t) {
    struct emit e = {.c = LLVMGetModuleContext(m)};
    attribute(&e, fn, (unsigned)LLVMAttributeFunctionIndex, "nounwind", 0);
    char width[16];
    snprintf(width, sizeof width, "%d", t->vector_bits ? t->vector_bits : 256);
    text_attribute(&e, fn, "prefer-vector-width", width);
    text_attribute(&e, fn, "no-trapping-math", "true");
}

status_t llvm_emit_kernel(LLVMModuleRef m, const struct kir_fn *f, const char *symbol, int n_sizes,
                          const struct target *t) {
    struct emit e = {.c = LLVMGetModuleContext(m), .m = m, .f = f, .n_sizes = n_sizes};
    LLVMValueRef tables[MAX_TABLES];
    LLVMTypeRef type;
    if (f->n_bufs > MAX_BUFS || f->tables.n > MAX_TABLES || n_sizes > LLVM_MAX_SIZES)
        return st_unimplemented("a kernel with %d buffers", f->n_bufs);
    e.soft = t->backend && strcmp(t->backend, "wasm") == 0;
    bool direct = f->n_bufs <= HLOD_KERNEL_DIRECT && !e.soft;
    e.b = LLVMCreateBuilderInContext(e.c);
    if (!e.soft) kir_each((struct kir_block *)&f->top, find_halves, &e.halves);
    e.lanes = t->vector_bits == 512 ? 16 : 0; // with 256 it takes 16 by itself
    e.tables = tables;
    make_tables(&e, tables);
    LLVMValueRef fn = body(&e, direct ? symbol : "body", &type, t);
    if (!direct) unpacked(&e, symbol, fn, type, e.soft ? 32 : 64);
    LLVMDisposeBuilder(e.b);
    return ST_OK;
}
