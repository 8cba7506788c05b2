// SPDX-License-Identifier: Apache-2.0
// Evaluation of random numbers. rng-bit-generator is a pure function of its state, bit for bit as
// XLA defines it: ThreeFry-2x32 (20 rounds) and Philox-4x32 (10 rounds), after Salmon et al.,
// "Parallel Random Numbers: As Easy as 1, 2, 3" (2011). rng draws from the evaluator's own state
// (splitmix64): XLA leaves its values free.
#include <math.h>

#include "compiler/ops/eval_rules.h"
#include "compiler/ops/index.h"
#include "compiler/ops/random.h"

static uint32_t rotl(uint32_t v, uint32_t n) {
    return v << n | v >> (32 - n);
}
static void threefry(const uint32_t key[2], uint32_t x[2]) {
    uint32_t ks[3] = {key[0], key[1], RNG_SKEIN_PARITY ^ key[0] ^ key[1]};
    x[0] += ks[0], x[1] += ks[1];
    for (uint32_t block = 0; block < 5; block++) {
        for (int k = 0; k < 4; k++) {
            x[0] += x[1];
            x[1] = rotl(x[1], rng_threefry_rotations[block & 1][k]) ^ x[0];
        }
        x[0] += ks[(block + 1) % 3];
        x[1] += ks[(block + 2) % 3] + block + 1;
    }
}
static void philox(const uint32_t key[2], uint32_t x[4]) {
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p = (uint64_t)x[0] * RNG_PHILOX_M0, q = (uint64_t)x[2] * RNG_PHILOX_M1;
        uint32_t y[4] = {(uint32_t)(q >> 32) ^ x[1] ^ k0, (uint32_t)q,
                         (uint32_t)(p >> 32) ^ x[3] ^ k1, (uint32_t)p};
        memcpy(x, y, sizeof y);
        k0 += RNG_PHILOX_W0, k1 += RNG_PHILOX_W1;
    }
}

int random_threefry_split(const struct shape *s, int64_t *half) {
    int split = -1;
    for (int d = 0; d < s->rank && split < 0; d++)
        if (s->dims[d] % 2 == 0) split = d;
    if (split < 0)
        for (int d = 0; d < s->rank; d++)
            if (split < 0 || s->dims[d] > s->dims[split]) split = d;
    for (int d = 0; d < s->rank; d++)
        half[d] = d == split ? (s->dims[d] + 1) / 2 : s->dims[d];
    return split;
}
static void threefry_32(const uint32_t key[2], uint64_t counter, struct literal *r,
                        uint64_t *out_used) {
    const struct shape *s = r->shape;
    int64_t half[HLO_MAX_RANK], to = 0;
    int split = random_threefry_split(s, half);
    uint64_t blocks = 1;
    for (int d = 0; d < s->rank; d++)
        blocks *= (uint64_t)half[d];
    EACH_INDEX(x, s) {
        int64_t at[HLO_MAX_RANK] = {0};
        for (int d = 0; d < s->rank; d++)
            at[d] = d == split ? x[d] / 2 : x[d];
        uint64_t c = counter + (uint64_t)index_linear(at, half, s->rank);
        uint32_t w[2] = {(uint32_t)c, (uint32_t)(c >> 32)};
        threefry(key, w);
        lit_set_i64(r, to++, w[split >= 0 && x[split] % 2]);
    }
    *out_used = blocks;
}

static void fill_threefry(uint64_t *state, struct literal *r) {
    uint32_t key[2] = {(uint32_t)state[0], (uint32_t)(state[0] >> 32)};
    uint64_t used = (uint64_t)shape_elements(r->shape);
    if (dtype_bits(r->shape->dtype) == 64) {
        for (uint64_t k = 0; k < used; k++) {
            uint64_t c = state[1] + k;
            uint32_t w[2] = {(uint32_t)c, (uint32_t)(c >> 32)};
            threefry(key, w);
            lit_set_i64(r, (int64_t)k, (int64_t)(w[0] | (uint64_t)w[1] << 32));
        }
    } else {
        threefry_32(key, state[1], r, &used);
    }
    state[1] += used;
}

// The 128-bit counter is words 1 and 2 of a state of three; a state of two is the counter itself,
// high word first, and only its new low word is kept.
static void fill_philox(uint64_t *state, int64_t words, struct literal *r) {
    uint32_t key[2] = {(uint32_t)state[0], (uint32_t)(state[0] >> 32)};
    uint64_t lo = state[1], hi = words >= 3 ? state[2] : state[0], start = lo;
    int64_t n = shape_elements(r->shape), per = dtype_bits(r->shape->dtype) == 64 ? 2 : 4;
    int64_t blocks = (n + per - 1) / per;
    for (int64_t b = 0; b < blocks; b++) {
        uint64_t l = lo + (uint64_t)b, h = hi + (l < start);
        uint32_t w[4] = {(uint32_t)l, (uint32_t)(l >> 32), (uint32_t)h, (uint32_t)(h >> 32)};
        philox(key, w);
        for (int64_t k = 0; k < per && b * per + k < n; k++)
            lit_set_i64(r, b * per + k,
                        per == 4 ? (int64_t)w[k]
                                 : (int64_t)(w[2 * k] | (uint64_t)w[2 * k + 1] << 32));
    }
    lo += (uint64_t)blocks;
    hi += lo < start;
    state[1] = lo;
    if (words >= 3) state[2] = hi;
}

EVAL(RNG_BIT_GENERATOR) {
    const struct shape *s = in[0]->shape;
    struct literal *r;
    if (s->dtype != DT_U64 || s->rank != 1 || s->dims[0] < 2 || s->dims[0] > 3 ||
        !shape_is_tuple(i->shape) || i->shape->n_elems != 2 ||
        !shape_compatible(i->shape->elems[0], s) || !dtype_is_int(i->shape->elems[1]->dtype))
        return st_invalid("instruction '%s': state %s, result %s: expected u64[2] or u64[3] and "
                          "(state, integers)",
                          i->name, shape_text(ev->arena, s), shape_text(ev->arena, i->shape));
    RETURN_IF_ERR(hlo_eval_alloc(ev, i, &r));
    uint64_t state[3] = {0};
    for (int64_t k = 0; k < s->dims[0]; k++)
        state[k] = (uint64_t)lit_get_i64(in[0], k);
    bool three_fry = HLO_ATTR(i, rngbits)->algorithm == RNG_THREE_FRY;
    if (three_fry)
        fill_threefry(state, r->elems[1]);
    else
        fill_philox(state, s->dims[0], r->elems[1]);
    for (int64_t k = 0; k < s->dims[0]; k++)
        lit_set_i64(r->elems[0], k, (int64_t)state[k]);
    *out = r;
    return ST_OK;
}

static uint64_t next_u64(struct hlo_eval *ev) {
    uint64_t z = ev->rng_state += RNG_STEP;
    z = (z ^ z >> 30) * RNG_MIX_0;
    z = (z ^ z >> 27) * RNG_MIX_1;
    return z ^ z >> 31;
}
static double next_unit(struct hlo_eval *ev) { // in [0, 1)
    return (double)(next_u64(ev) >> 11) * 0x1p-53;
}

EVAL(RNG) {
    NEW_RESULT(r);
    enum dtype t = r->shape->dtype;
    bool normal = HLO_ATTR(i, rng)->distribution == RNG_NORMAL;
    if (HLO_ATTR(i, rng)->distribution == RNG_INVALID || dtype_is_complex(t) ||
        (normal && !dtype_is_float(t)))
        return st_invalid("instruction '%s': no such distribution over %s", i->name, dtype_name(t));
    double a = lit_get_f64(in[0], 0), b = lit_get_f64(in[1], 0);
    uint64_t lo = (uint64_t)lit_get_i64(in[0], 0), span = (uint64_t)lit_get_i64(in[1], 0) - lo;
    for (int64_t k = 0, n = shape_elements(r->shape); k < n; k++) {
        if (normal) { // Box and Muller
            double radius = sqrt(-2 * log(1 - next_unit(ev)));
            lit_set_f64(r, k, a + b * radius * cos(2 * M_PI * next_unit(ev)));
        } else if (t == DT_PRED) {
            lit_set_i64(r, k, next_u64(ev) >> 63);
        } else if (dtype_is_int(t)) {
            lit_set_i64(r, k,
                        (int64_t)(lo + (uint64_t)((unsigned __int128)next_u64(ev) * span >> 64)));
        } else {
            lit_set_f64(r, k, a + (b - a) * next_unit(ev));
            if (lit_get_f64(r, k) >= b) lit_set_f64(r, k, a); // rounding reached the open end
        }
    }
    return ST_OK;
}

// The state is a counter of 128 bits of which the evaluator keeps the low half.
EVAL(RNG_GET_AND_UPDATE_STATE) {
    struct literal *r;
    RETURN_IF_ERR(hlo_eval_alloc(ev, i, &r));
    if (shape_elements(r->shape) < 1) return st_invalid("instruction '%s': empty state", i->name);
    for (int64_t k = 0, n = shape_elements(r->shape); k < n; k++)
        lit_set_i64(r, k, k == 0 ? (int64_t)ev->rng_state : 0);
    ev->rng_state += (uint64_t)HLO_ATTR(i, rngstate)->delta;
    *out = r;
    return ST_OK;
}
