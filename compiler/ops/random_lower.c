// SPDX-License-Identifier: Apache-2.0
// Kernel of rng-bit-generator: a unit makes one block of random words and stores its elements. Bit
// for bit what random.c computes (Salmon et al., 2011).
#include "compiler/kernel/lower.h"
#include "compiler/ops/lower_rules.h"
#include "compiler/ops/random.h"

typedef struct kir_val *V;

static V op(struct kir *k, enum kop o, V x, V y) {
    return kir_op(k, o, x, y, NULL);
}
static V u32(struct kir *k, uint32_t v) {
    return kir_int(k, DT_U32, v);
}
static V u64(struct kir *k, uint64_t v) {
    return kir_int(k, DT_U64, (int64_t)v);
}
static V low(struct kir *k, V x) { // of 64 bits
    return kir_cast(k, DT_U32, op(k, K_AND, x, u64(k, UINT32_MAX)));
}
static V high(struct kir *k, V x) {
    return kir_cast(k, DT_U32, op(k, K_SHR, x, u64(k, 32)));
}
static V join(struct kir *k, V lo, V hi) {
    return op(k, K_OR, kir_cast(k, DT_U64, lo), op(k, K_SHL, kir_cast(k, DT_U64, hi), u64(k, 32)));
}

static void threefry(struct kir *k, V key, V x[2]) {
    V ks[3] = {low(k, key), high(k, key), NULL};
    ks[2] = op(k, K_XOR, op(k, K_XOR, u32(k, RNG_SKEIN_PARITY), ks[0]), ks[1]);
    x[0] = op(k, K_ADD, x[0], ks[0]);
    x[1] = op(k, K_ADD, x[1], ks[1]);
    for (uint32_t block = 0; block < 5; block++) {
        for (int r = 0; r < 4; r++) {
            uint32_t by = rng_threefry_rotations[block & 1][r];
            x[0] = op(k, K_ADD, x[0], x[1]);
            V turned =
                op(k, K_OR, op(k, K_SHL, x[1], u32(k, by)), op(k, K_SHR, x[1], u32(k, 32 - by)));
            x[1] = op(k, K_XOR, turned, x[0]);
        }
        x[0] = op(k, K_ADD, x[0], ks[(block + 1) % 3]);
        x[1] = op(k, K_ADD, op(k, K_ADD, x[1], ks[(block + 2) % 3]), u32(k, block + 1));
    }
}
static void philox(struct kir *k, V key, V x[4]) {
    V k0 = low(k, key), k1 = high(k, key);
    for (int round = 0; round < 10; round++) {
        V p = op(k, K_MUL, kir_cast(k, DT_U64, x[0]), u64(k, RNG_PHILOX_M0));
        V q = op(k, K_MUL, kir_cast(k, DT_U64, x[2]), u64(k, RNG_PHILOX_M1));
        V y[4] = {op(k, K_XOR, op(k, K_XOR, high(k, q), x[1]), k0), low(k, q),
                  op(k, K_XOR, op(k, K_XOR, high(k, p), x[3]), k1), low(k, p)};
        memcpy(x, y, sizeof y);
        k0 = op(k, K_ADD, k0, u32(k, RNG_PHILOX_W0));
        k1 = op(k, K_ADD, k1, u32(k, RNG_PHILOX_W1));
    }
}

struct bits {
    const struct hlo_instr *i;
    const struct shape *s; // of the numbers
    V state[3];
    int64_t blocks;
};
// The element at `index`, if `exists` (NULL: it does), becomes the low bits of v. kir has no
// branches: a loop of one turn or none.
static void put(struct lower *lw, struct bits *b, V const *index, V v, V exists) {
    struct kir *k = &lw->k;
    V one = kir_i64(k, 1), zero = kir_i64(k, 0);
    struct kir_loop *l =
        exists ? kir_for(k, zero, kir_select(k, exists, one, zero), 1, NULL, 0) : NULL;
    lower_put(lw, b->i, 1, index, kmath_convert(lw, b->s->dtype, v->type, v));
    if (l) kir_end(k, l, NULL);
}
// Elements first, first + 1, ... of the row-major order take the words of a block.
static void put_words(struct lower *lw, struct bits *b, V first, V const *words, int n) {
    struct kir *k = &lw->k;
    int64_t total = shape_elements(b->s);
    for (int w = 0; w < n; w++) {
        V at = kir_idx_add(k, first, kir_i64(k, w)), index[HLO_MAX_RANK + 1];
        V exists = total % n ? kir_cmp(k, CMP_LT, at, kir_i64(k, total)) : NULL;
        lower_unflatten(lw, exists ? kir_idx_clamp(k, at, 0, total - 1) : at, b->s->dims,
                        b->s->rank, index);
        put(lw, b, index, words[w], exists);
    }
}

static void threefry_block(struct lower *lw, struct bits *b, V block) {
    struct kir *k = &lw->k;
    const struct shape *s = b->s;
    V counter = op(k, K_ADD, b->state[1], kir_cast(k, DT_U64, block));
    V x[2] = {low(k, counter), high(k, counter)}, index[HLO_MAX_RANK + 1], exists = NULL;
    threefry(k, b->state[0], x);
    if (dtype_bits(s->dtype) == 64) {
        V whole = join(k, x[0], x[1]);
        put_words(lw, b, block, &whole, 1);
        return;
    }
    int64_t half[HLO_MAX_RANK];
    int split = rng_threefry_split(s, half);
    lower_unflatten(lw, block, half, s->rank, index);
    if (split >= 0) index[split] = kir_idx_mul(k, index[split], 2);
    put(lw, b, index, x[0], NULL);
    if (split < 0) return;
    V next = kir_idx_add(k, index[split], kir_i64(k, 1));
    if (s->dims[split] % 2) {
        exists = kir_cmp(k, CMP_LT, next, kir_i64(k, s->dims[split]));
        next = kir_idx_clamp(k, next, 0, s->dims[split] - 1);
    }
    index[split] = next;
    put(lw, b, index, x[1], exists);
}

// The counter of block n is 128 bits: the carry goes into the high word.
static V carry(struct kir *k, V lo, V start, V hi) {
    V over = kir_cmp(k, CMP_LT, lo, start);
    return op(k, K_ADD, hi, kir_select(k, over, u64(k, 1), u64(k, 0)));
}
static void philox_block(struct lower *lw, struct bits *b, int64_t words, V block) {
    struct kir *k = &lw->k;
    V start = b->state[1], hi = words >= 3 ? b->state[2] : b->state[0];
    V lo = op(k, K_ADD, start, kir_cast(k, DT_U64, block)), up = carry(k, lo, start, hi);
    V x[4] = {low(k, lo), high(k, lo), low(k, up), high(k, up)};
    philox(k, b->state[0], x);
    if (dtype_bits(b->s->dtype) == 64) {
        V two[2] = {join(k, x[0], x[1]), join(k, x[2], x[3])};
        put_words(lw, b, kir_idx_mul(k, block, 2), two, 2);
    } else {
        put_words(lw, b, kir_idx_mul(k, block, 4), x, 4);
    }
}

WHOLE(RNG_BIT_GENERATOR) {
    struct kir *k = &lw->k;
    const struct shape *state = i->operands[0]->shape;
    struct bits b = {.i = i, .s = shape_is_tuple(i->shape) ? shape_leaf(i->shape, 1) : NULL};
    bool three_fry = HLO_ATTR(i, rngbits)->algorithm == RNG_THREE_FRY;
    if (!b.s || state->dtype != DT_U64 || state->rank != 1 || state->dims[0] < 2 ||
        state->dims[0] > 3 || !dtype_is_int(b.s->dtype) || shape_elements(b.s) == 0)
        return lower_no(lw, "its state or its result");
    int64_t n = shape_elements(b.s), words = state->dims[0];
    int64_t per = three_fry ? 1 : dtype_bits(b.s->dtype) == 64 ? 2 : 4, half[HLO_MAX_RANK];
    b.blocks = (n + per - 1) / per;
    int64_t used = b.blocks; // what the counter moves on by
    if (three_fry && dtype_bits(b.s->dtype) != 64) {
        rng_threefry_split(b.s, half);
        b.blocks = 1;
        for (int d = 0; d < b.s->rank; d++)
            b.blocks *= half[d];
        used = b.blocks;
    }
    k->fn->extent = b.blocks;
    struct kir_loop *unit = kir_for(k, k->fn->begin, k->fn->end, b.blocks, NULL, 0);
    for (int64_t w = 0; w < words; w++)
        RETURN_IF_ERR(lower_operand(lw, i, 0, (V[]){kir_i64(k, w)}, &b.state[w]));
    if (three_fry)
        threefry_block(lw, &b, unit->var);
    else
        philox_block(lw, &b, words, unit->var);
    // The first unit stores the new state.
    V zero = kir_i64(k, 0), one = kir_i64(k, 1), next[3] = {b.state[0], NULL, b.state[2]};
    struct kir_loop *first =
        kir_for(k, zero, kir_select(k, kir_cmp(k, CMP_EQ, unit->var, zero), one, zero), 1, NULL, 0);
    next[1] = op(k, K_ADD, b.state[1], u64(k, (uint64_t)used));
    if (!three_fry && words >= 3) next[2] = carry(k, next[1], b.state[1], b.state[2]);
    for (int64_t w = 0; w < words; w++)
        lower_put(lw, i, 0, (V[]){kir_i64(k, w)}, next[w]);
    kir_end(k, first, NULL);
    kir_end(k, unit, NULL);
    return ST_OK;
}
