// SPDX-License-Identifier: Apache-2.0
// NaN before steps that lose it. oneDNN's maximum with a constant (Relu, Clip) and its maximum over
// a window give a number where an operand is NaN; ONNX Runtime and HLO give NaN. Its code is the
// fastest there is, and NaN is rare, so such a step looks at its operands first, and runs another
// way where they hold NaN or an infinity (cpu_onednn.c). A look costs some hundredths of what the
// step takes, and is left out where no operand can hold one: NaN enters a program with its inputs
// and by operations that make it of finite numbers (0/0, log of a negative), and what follows a
// step that looked is finite unless the look found something, which is kept for the rest of the
// run. Weights are looked at once, when they are prepared. Not seen: sums and products that leave
// the range of f32, and constants that are not finite.
#include <immintrin.h>

#include "compiler/ir/module.h"
#include "devices/cpu/cpu.h"

// May `i` make NaN or an infinity of finite numbers, other than by leaving the range in a sum?
static bool makes_nan(const struct hlo_instr *i) {
    static const bool makes[HLO_OP_COUNT] = {[HLO_EXP] = true,
                                             [HLO_EXPM1] = true,
                                             [HLO_LOG] = true,
                                             [HLO_LOG1P] = true,
                                             [HLO_SQRT] = true,
                                             [HLO_RSQRT] = true,
                                             [HLO_POWER] = true,
                                             [HLO_REMAINDER] = true,
                                             [HLO_ACOS] = true,
                                             [HLO_ACOSH] = true,
                                             [HLO_ASIN] = true,
                                             [HLO_ATANH] = true,
                                             [HLO_COSH] = true,
                                             [HLO_SINH] = true,
                                             [HLO_TAN] = true,
                                             [HLO_CHOLESKY] = true,
                                             [HLO_BITCAST_CONVERT] = true,
                                             [HLO_BATCH_NORM_TRAINING] = true,
                                             [HLO_BATCH_NORM_INFERENCE] = true,
                                             [HLO_TRIANGULAR_SOLVE] = true,
                                             [HLO_CUSTOM_CALL] = true,
                                             [HLO_CALL] = true,
                                             [HLO_CONDITIONAL] = true,
                                             [HLO_WHILE] = true,
                                             [HLO_SCAN] = true};

    if (i->op != HLO_DIVIDE) return makes[i->op];
    const struct hlo_instr *by = i->operands[1];
    while (by->op == HLO_BROADCAST)
        by = by->operands[0];
    return by->op != HLO_CONSTANT;
}
static bool holds_floats(const struct shape *s) {
    if (!shape_is_tuple(s)) return dtype_is_float(s->dtype) || dtype_is_complex(s->dtype);
    for (int k = 0; k < s->n_elems; k++)
        if (holds_floats(s->elems[k])) return true;
    return false;
}
// may: by id, for the instructions before i.
static bool may_hold(const struct hlo_instr *i, const bool *may) {
    if (!holds_floats(i->shape)) return false;
    if (i->op == HLO_PARAMETER) return i->param_kind != PARAM_BOUND;
    if (makes_nan(i)) return true;
    for (int c = 0; c < i->n_called; c++)
        for (const struct hlo_instr *e = i->called[c]->first; e; e = e->next)
            if (makes_nan(e)) return true;
    for (int k = 0; k < i->n_operands; k++)
        if (may[i->operands[k]->id]) return true;
    return false;
}
// The operand leaves of a step that may hold one: of f32 or bf16, no constants; weights or others.
static uint32_t leaves_of(const struct cpu_exe *x, const struct cpu_step *s, bool bound) {
    const struct hlo_instr *i = s->plan->instr;
    uint32_t at = 0;
    for (int k = 0; k < i->n_operands && k < 32; k++)
        if ((i->operands[k]->shape->dtype == DT_F32 || i->operands[k]->shape->dtype == DT_BF16) &&
            s->plan->in[k].where != SLICE_CONST && cpu_is_bound(x, s, k) == bound)
            at |= UINT32_C(1) << k;
    return at;
}
void cpu_mark_nan(struct cpu_exe *x, struct cpu_plan *p) {
    const struct hlo_computation *c = p->plan->comp;
    struct arena a = {0};
    struct cpu_step **step = NULL; // by id
    int n = (int)c->module->next_id;
    for (int k = 0; k < p->plan->n_steps; k++) {
        if (!p->steps[k].swallows) continue;
        if (!step) step = arena_zarray(&a, struct cpu_step *, n);
        step[p->steps[k].plan->instr->id] = &p->steps[k];
    }
    if (!step) return;
    bool *may = arena_zarray(&a, bool, n);
    for (const struct hlo_instr *i = c->first; i; i = i->next) {
        struct cpu_step *s = step[i->id];
        may[i->id] = !s && may_hold(i, may);
        if (!s) continue;
        s->nan_leaves = leaves_of(x, s, false);
        s->nan_bound = leaves_of(x, s, true);
        for (int e = 0; e < i->n_operands; e++)
            s->looks = s->looks || may[i->operands[e]->id];
    }
    arena_done(&a);
}

// An exponent of ones alone. Blocks of one size, so that the compiler takes vectors.
static inline __attribute__((always_inline)) bool look(const void *at, int64_t n) {
    enum { BLOCK = 1024 };
    // A weight lies where its file has it.
    typedef uint32_t __attribute__((aligned(1), may_alias)) word;
    const word *v = at;
    const uint32_t ones = 0x7f800000;
    uint32_t found = 0;
    for (; n >= BLOCK && !found; v += BLOCK, n -= BLOCK)
        for (int e = 0; e < BLOCK; e++)
            found |= (uint32_t)-(int32_t)((v[e] & ones) == ones);
    for (int64_t e = 0; e < n && !found; e++)
        found = (v[e] & ones) == ones;
    return found;
}
static bool look_plain(const void *at, int64_t n) {
    return look(at, n);
}
__attribute__((target("avx2"))) static bool look_avx2(const void *at, int64_t n) {
    return look(at, n);
}
// 16 elements an instruction; of four vectors at once, masked at the end.
__attribute__((target("avx512f,avx512dq"))) static bool look_avx512(const void *at, int64_t n) {
    enum { NOT_FINITE = 0x99 }; // quiet and signalling NaN, both infinities
    const float *v = at;
    __mmask16 found = 0;
    for (; n >= 64 && !found; v += 64, n -= 64)
        for (int e = 0; e < 64; e += 16)
            found |= _mm512_fpclass_ps_mask(_mm512_loadu_ps(v + e), NOT_FINITE);
    for (; n > 0 && !found; v += 16, n -= 16) {
        __mmask16 in = n >= 16 ? 0xffff : (__mmask16)((1u << n) - 1);
        found = _mm512_mask_fpclass_ps_mask(in, _mm512_maskz_loadu_ps(in, v), NOT_FINITE);
    }
    return found != 0;
}
// Of 16 bits, whose exponent these ones are.
static bool look_halves(const void *at, int64_t n, uint16_t ones) {
    typedef uint16_t __attribute__((aligned(1), may_alias)) half;
    const half *v = at;
    enum { BLOCK = 2048 };
    for (; n > 0; v += BLOCK, n -= BLOCK) {
        uint16_t found = 0;
        for (int e = 0; e < (n < BLOCK ? n : BLOCK); e++)
            found |= (uint16_t)-((v[e] & ones) == ones);
        if (found) return true;
    }
    return false;
}
bool cpu_not_finite(const void *at, int64_t n) {
    int bits = cpu_target()->vector_bits;
    if (bits == 512 && __builtin_cpu_supports("avx512dq")) return look_avx512(at, n);
    return bits > 128 ? look_avx2(at, n) : look_plain(at, n);
}
bool cpu_not_finite_of(enum dtype t, const void *at, int64_t bytes) {
    if (t == DT_BF16) return look_halves(at, bytes / 2, 0x7f80);
    if (t == DT_F16) return look_halves(at, bytes / 2, 0x7c00);
    return cpu_not_finite(at, bytes / 4);
}
static bool leaf_not_finite(const struct cpu_step *s, int k, const void *at) {
    return cpu_not_finite_of(s->plan->instr->operands[k]->shape->dtype, at,
                             s->plan->in[k].size_bytes);
}
bool cpu_meets_nan(struct cpu_exe *x, const struct cpu_step *s, void **bufs) {
    if (x->odd && s->packed_in >= 0 && x->odd[s->pack_slot]) return x->nan = true;
    if (!s->looks && !x->nan) return false;
    uint32_t bound = x->nan ? s->nan_bound : 0;
    if (s->packed_in >= 0) bound &= ~(UINT32_C(1) << s->packed_in); // `odd` is known of it
    uint32_t at = s->nan_leaves | bound;
    for (int k = 0; at >> k; k++) // operands are arrays: a leaf each
        if (at >> k & 1 && leaf_not_finite(s, k, bufs[k])) return x->nan = true;
    return false;
}
