// SPDX-License-Identifier: Apache-2.0
// Random numbers as elementwise operations on the places of their elements, which kernels compute a
// vector at a time and fuse with what uses them. The values are the evaluator's
// (compiler/ops/random.c). rng-bit-generator: every element computes its block of random words and
// takes its own, so that nothing is interleaved. rng: draw k of the sequence is a function of the
// state plus k times a constant (splitmix64), so that one step takes the state and moves it on by
// all draws, and the rest is elementwise. Targets with a compiler of their own do this themselves.
#include <math.h>

#include "compiler/ops/random.h"
#include "compiler/passes/pass.h"

// The elements, as an array of up to three dimensions in the order of the result's.
struct places {
    struct hb *b;
    int64_t dims[3];
    int rank;
};
static hv spread(const struct places *p, hv scalar) {
    return hb_broadcast(p->b, scalar, p->dims, p->rank, NULL);
}
static hv with(const struct places *p, enum hlo_op op, hv x, uint64_t v) {
    hv k = hb_const_i64(p->b, x->shape->dtype, (int64_t)v);
    return hb_binary(p->b, op, x, x->shape->rank ? spread(p, k) : k);
}
static hv along(const struct places *p, int d) {
    struct arena *a = p->b->c->module->arena;
    return hb_iota(p->b, shape_make(a, DT_U64, p->dims, p->rank), d);
}
static hv low(const struct places *p, hv x) { // of 64 bits
    return hb_convert(p->b, with(p, HLO_AND, x, UINT32_MAX), DT_U32);
}
static hv high(const struct places *p, hv x) {
    return hb_convert(p->b, with(p, HLO_SHIFT_RIGHT_LOGICAL, x, 32), DT_U32);
}
static hv join(const struct places *p, hv lo, hv hi) {
    hi = with(p, HLO_SHIFT_LEFT, hb_convert(p->b, hi, DT_U64), 32);
    return hb_binary(p->b, HLO_OR, hb_convert(p->b, lo, DT_U64), hi);
}
static hv word_of(struct hb *b, hv state, int64_t k) {
    return hb_reshape(b, hb_slice(b, state, &(struct range){k, k + 1, 1}), NULL, 0);
}

// ---- rng-bit-generator

static void threefry(const struct places *p, hv key, hv x[2]) {
    struct hb *b = p->b;
    hv ks[3] = {low(p, key), high(p, key), NULL};
    ks[2] = hb_binary(b, HLO_XOR, with(p, HLO_XOR, ks[0], RNG_SKEIN_PARITY), ks[1]);
    x[0] = hb_add(b, x[0], spread(p, ks[0]));
    x[1] = hb_add(b, x[1], spread(p, ks[1]));
    for (uint32_t block = 0; block < 5; block++) {
        for (int k = 0; k < 4; k++) {
            uint32_t by = rng_threefry_rotations[block & 1][k];
            x[0] = hb_add(b, x[0], x[1]);
            hv turned = hb_binary(b, HLO_OR, with(p, HLO_SHIFT_LEFT, x[1], by),
                                  with(p, HLO_SHIFT_RIGHT_LOGICAL, x[1], 32 - by));
            x[1] = hb_binary(b, HLO_XOR, turned, x[0]);
        }
        x[0] = hb_add(b, x[0], spread(p, ks[(block + 1) % 3]));
        x[1] = hb_add(b, x[1], spread(p, with(p, HLO_ADD, ks[(block + 2) % 3], block + 1)));
    }
}
static void philox(const struct places *p, hv key, hv x[4]) {
    struct hb *b = p->b;
    hv k0 = low(p, key), k1 = high(p, key);
    for (int round = 0; round < 10; round++) {
        hv m = with(p, HLO_MULTIPLY, hb_convert(b, x[0], DT_U64), RNG_PHILOX_M0);
        hv q = with(p, HLO_MULTIPLY, hb_convert(b, x[2], DT_U64), RNG_PHILOX_M1);
        hv y0 = hb_binary(b, HLO_XOR, hb_binary(b, HLO_XOR, high(p, q), x[1]), spread(p, k0));
        hv y2 = hb_binary(b, HLO_XOR, hb_binary(b, HLO_XOR, high(p, m), x[3]), spread(p, k1));
        x[0] = y0, x[1] = low(p, q), x[2] = y2, x[3] = low(p, m);
        k0 = with(p, HLO_ADD, k0, RNG_PHILOX_W0);
        k1 = with(p, HLO_ADD, k1, RNG_PHILOX_W1);
    }
}
// Of two words the one that bit `bit` of `at` names. By bits: whole numbers made of places alone
// are computed by the run, not kept (hoist.c).
static hv pick(const struct places *p, hv at, uint64_t bit, hv x, hv y) {
    struct hb *b = p->b;
    hv one = with(p, HLO_AND, with(p, HLO_SHIFT_RIGHT_LOGICAL, at, bit), 1);
    one = hb_convert(b, one, x->shape->dtype);
    hv mask = hb_sub(b, spread(p, hb_const_i64(b, x->shape->dtype, 0)), one);
    return hb_binary(b, HLO_XOR, x, hb_binary(b, HLO_AND, hb_binary(b, HLO_XOR, x, y), mask));
}
// ThreeFry of 32 bits counts blocks over the dimensions with one of them halved.
static hv threefry_32(struct places *p, hv const *state, const struct shape *s,
                      uint64_t *out_used) {
    int64_t half[HLO_MAX_RANK];
    int split = random_threefry_split(s, half);
    p->rank = 3;
    for (int d = 0; d < 3; d++)
        p->dims[d] = 1;
    for (int d = 0; d < s->rank; d++)
        p->dims[d < split ? 0 : d == split ? 1 : 2] *= s->dims[d];
    int64_t halved = split < 0 ? 1 : half[split];
    hv place = split < 0 ? NULL : along(p, 1);
    hv block = along(p, 2);
    if (place)
        block = hb_add(p->b, block,
                       with(p, HLO_MULTIPLY, with(p, HLO_SHIFT_RIGHT_LOGICAL, place, 1),
                            (uint64_t)p->dims[2]));
    block =
        hb_add(p->b, block, with(p, HLO_MULTIPLY, along(p, 0), (uint64_t)(halved * p->dims[2])));
    block = hb_add(p->b, block, spread(p, state[1]));
    hv x[2] = {low(p, block), high(p, block)};
    threefry(p, state[0], x);
    *out_used = (uint64_t)(p->dims[0] * halved * p->dims[2]);
    return place ? pick(p, place, 0, x[0], x[1]) : x[0];
}
static hv threefry_64(struct places *p, hv const *state) {
    hv counter = hb_add(p->b, along(p, 0), spread(p, state[1]));
    hv x[2] = {low(p, counter), high(p, counter)};
    threefry(p, state[0], x);
    return join(p, x[0], x[1]);
}
static hv plus_carry(const struct places *p, hv hi, hv lo, hv start) {
    return hb_add(p->b, hi, hb_convert(p->b, hb_compare(p->b, lo, start, CMP_LT), DT_U64));
}
// The counter has 128 bits: words 1 and 2 of a state of three; of two, both, the high word first.
static hv philox_words(struct places *p, hv const *state, bool wide) {
    hv at = along(p, 0), start = spread(p, state[1]);
    hv lo = hb_add(p->b, with(p, HLO_SHIFT_RIGHT_LOGICAL, at, wide ? 1 : 2), start);
    hv hi = plus_carry(p, spread(p, state[2]), lo, start);
    hv x[4] = {low(p, lo), high(p, lo), low(p, hi), high(p, hi)};
    philox(p, state[0], x);
    if (wide) return pick(p, at, 0, join(p, x[0], x[1]), join(p, x[2], x[3]));
    return pick(p, at, 1, pick(p, at, 0, x[0], x[1]), pick(p, at, 0, x[2], x[3]));
}
static hv bits(struct hb *b, const struct hlo_instr *i) {
    const struct shape *of = i->operands[0]->shape;
    const struct shape *s = shape_is_tuple(i->shape) ? i->shape->elems[1] : NULL;
    if (!s || shape_is_tuple(s) || s->dynamic || of->dtype != DT_U64 || of->rank != 1 ||
        of->dims[0] < 2 || of->dims[0] > 3 || !dtype_is_int(s->dtype) || shape_elements(s) == 0)
        return NULL;
    int64_t n = shape_elements(s), words = of->dims[0], one[1] = {1};
    struct places p = {b, {n}, 1}, scalar = {b, {0}, 0};
    bool wide = dtype_bits(s->dtype) == 64;
    hv state[3], parts[3], r;
    for (int64_t k = 0; k < 3; k++)
        state[k] = word_of(b, i->operands[0], k < words ? k : 0);
    uint64_t used = (uint64_t)(wide ? (n + 1) / 2 : (n + 3) / 4);
    if (HLO_ATTR(i, rngbits)->algorithm != RNG_THREE_FRY)
        r = philox_words(&p, state, wide);
    else if (!wide)
        r = threefry_32(&p, state, s, &used);
    else
        r = threefry_64(&p, state), used = (uint64_t)n;
    hv next = with(&scalar, HLO_ADD, state[1], used);
    if (HLO_ATTR(i, rngbits)->algorithm != RNG_THREE_FRY)
        state[2] = plus_carry(&scalar, state[2], next, state[1]);
    state[1] = next;
    for (int64_t k = 0; k < words; k++)
        parts[k] = hb_reshape(b, state[k], one, 1);
    r = hb_reshape(b, hb_convert(b, r, s->dtype), s->dims, s->rank);
    return hb_tuple(b, (hv[]){hb_concat(b, parts, (int)words, 0), r}, 2);
}

// ---- rng

// The 64 bits of draws first, first + every, ... of the sequence behind `state`.
static hv draws(const struct places *p, hv state, uint64_t every, uint64_t first) {
    hv z = with(p, HLO_MULTIPLY, along(p, 0), every * RNG_STEP);
    z = hb_add(p->b, z, spread(p, with(p, HLO_ADD, state, first * RNG_STEP)));
    static const struct {
        int shift;
        uint64_t factor;
    } mix[] = {{30, RNG_MIX_0}, {27, RNG_MIX_1}, {31, 1}};
    for (int k = 0; k < 3; k++) {
        z = hb_binary(p->b, HLO_XOR, z,
                      with(p, HLO_SHIFT_RIGHT_LOGICAL, z, (uint64_t)mix[k].shift));
        if (mix[k].factor != 1) z = with(p, HLO_MULTIPLY, z, mix[k].factor);
    }
    return z;
}
static hv f64(const struct places *p, double v) {
    return spread(p, hb_const_f64(p->b, DT_F64, v));
}
static hv unit(const struct places *p, hv z) { // in [0, 1)
    z = hb_convert(p->b, with(p, HLO_SHIFT_RIGHT_LOGICAL, z, 11), DT_S64);
    return hb_mul(p->b, hb_convert(p->b, z, DT_F64), f64(p, 0x1p-53));
}
static hv normal(const struct places *p, hv state) { // Box and Muller
    struct hb *b = p->b;
    hv from = unit(p, draws(p, state, 2, 1)), turn = unit(p, draws(p, state, 2, 2));
    hv radius = hb_unary(b, HLO_LOG, hb_sub(b, f64(p, 1), from));
    radius = hb_unary(b, HLO_SQRT, hb_mul(b, radius, f64(p, -2)));
    return hb_mul(b, radius, hb_unary(b, HLO_COS, hb_mul(b, turn, f64(p, 2 * M_PI))));
}
static hv whole_numbers(const struct places *p, hv z, hv lo, hv hi) { // in [lo, hi)
    struct hb *b = p->b;
    enum dtype t = lo->shape->dtype;
    lo = hb_convert(b, lo, DT_U64), hi = hb_convert(b, hi, DT_U64);
    z = hb_binary(b, HLO_MULHI, z, spread(p, hb_sub(b, hi, lo)));
    return hb_convert(b, hb_add(b, z, spread(p, lo)), t);
}
static hv numbers(struct hb *b, const struct hlo_instr *i) {
    const struct shape *s = i->shape;
    bool is_normal = HLO_ATTR(i, rng)->distribution == RNG_NORMAL;
    if (HLO_ATTR(i, rng)->distribution == RNG_INVALID || shape_is_tuple(s) || s->dynamic ||
        dtype_is_complex(s->dtype) || (is_normal && !dtype_is_float(s->dtype)) ||
        shape_elements(s) == 0)
        return NULL;
    struct places p = {b, {shape_elements(s)}, 1};
    hv lo = i->operands[0], hi = i->operands[1], r;
    struct hlo_attr_rngstate by = {
        .delta = (int64_t)((uint64_t)p.dims[0] * (is_normal ? 2 : 1) * RNG_STEP)};
    const struct shape *two = shape_make(b->c->module->arena, DT_U64, (int64_t[]){2}, 1);
    hv state = word_of(b, hb_op(b, HLO_RNG_GET_AND_UPDATE_STATE, two, NULL, 0, &by), 0);
    if (!is_normal && !dtype_is_float(s->dtype)) {
        hv z = draws(&p, state, 1, 1);
        r = s->dtype == DT_PRED ? hb_convert(b, with(&p, HLO_SHIFT_RIGHT_LOGICAL, z, 63), DT_PRED)
                                : whole_numbers(&p, z, lo, hi);
        return hb_reshape(b, r, s->dims, s->rank);
    }
    hv from = hb_convert(b, lo, DT_F64), to = hb_convert(b, hi, DT_F64);
    r = is_normal ? normal(&p, state) : unit(&p, draws(&p, state, 1, 1));
    r = hb_mul(b, r, spread(&p, is_normal ? to : hb_sub(b, to, from)));
    r = hb_convert(b, hb_add(b, r, spread(&p, from)), s->dtype);
    if (!is_normal) // rounding may have reached the open end
        r = hb_select(b, hb_compare(b, r, spread(&p, hi), CMP_GE), spread(&p, lo), r);
    return hb_reshape(b, r, s->dims, s->rank);
}

static hv rewrite(struct hb *b, struct hlo_instr *i, UNUSED const struct pass_ctx *p) {
    if (i->control_preds.n) return NULL;
    if (i->op == HLO_RNG_BIT_GENERATOR) return bits(b, i);
    return i->op == HLO_RNG ? numbers(b, i) : NULL;
}
status_t pass_rng_expander(struct hlo_module *m, struct pass_ctx *p) {
    if (p->target && p->target->emit) return ST_OK;
    return pass_rewrite(m, p, rewrite);
}
