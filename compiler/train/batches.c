// SPDX-License-Identifier: Apache-2.0
// Batches: the order of an epoch's rows and the random numbers of a step, by the counter-based
// generator ThreeFry (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011), so that
// both follow from seed, epoch and step alone.
#include "compiler/train/parts.h"

#include <math.h>

// u32 bits of the dimensions of `like`. The key is seed and stream, the counter begins at
// `position` * 2^32.
static hv random_bits(struct hb *b, hv seed, int64_t stream, hv position,
                      const struct shape *like) {
    struct arena *a = b->c->module->arena;
    const int64_t one = 1;
    hv key = hb_convert(b, hb_convert(b, seed, DT_U32), DT_U64);
    key = hb_add(b, key, hb_const_i64(b, DT_U64, stream << 32));
    hv at = hb_convert(b, hb_convert(b, position, DT_U32), DT_U64);
    at = hb_binary(b, HLO_SHIFT_LEFT, at, hb_const_i64(b, DT_U64, 32));
    hv state[2] = {hb_reshape(b, key, &one, 1), hb_reshape(b, at, &one, 1)};
    hv both = hb_concat(b, state, 2, 0);
    if (!hb_ok(b)) return both;
    const struct shape *parts[2] = {both->shape, shape_make(a, DT_U32, like->dims, like->rank)};
    hv r = hb_op(b, HLO_RNG_BIT_GENERATOR, shape_tuple(a, parts, 2), &both, 1,
                 &(struct hlo_attr_rngbits){.algorithm = RNG_THREE_FRY});
    return hb_gte(b, r, 1);
}

static struct hlo_computation *ascending(struct hb *b) { // of (bits, place)
    struct hlo_module *m = b->c->module;
    struct hlo_computation *c = hb_callee(m, "by_bits");
    hv p[4];
    for (int k = 0; k < 4; k++)
        p[k] = hlo_add_param(c, k, shape_scalar(m->arena, k < 2 ? DT_U32 : DT_S32), "p");
    struct hb cb = hb_begin(c);
    hlo_set_root(c, hb_compare(&cb, p[0], p[1], CMP_LT));
    status_t st = hb_end(&cb);
    if (st) hb_fail(b, st);
    return c;
}
hv batch_order(struct hb *b, hv seed, hv epoch, int64_t rows) {
    const struct shape *s = shape_make(b->c->module->arena, DT_S32, &rows, 1);
    int64_t dim = 0;
    hv in[2] = {random_bits(b, seed, 0, epoch, s), hb_iota(b, s, 0)};
    struct hlo_computation *f = ascending(b);
    struct hlo_attr_sort how = {.dimensions = {&dim, 1}, .is_stable = true};
    return hb_gte(b, hb_call(b, HLO_SORT, NULL, in, 2, &how, &f, 1), 1);
}

static hv part_of(struct hb *b, hv x, hv at, int64_t batch) { // rows [at * batch, ...)
    int64_t sizes[HLO_MAX_RANK];
    hv in[HLO_MAX_RANK + 1] = {x};
    if (!hb_ok(b)) return x;
    int rank = x->shape->rank;
    in[1] = part_mul(b, at, (double)batch);
    for (int k = 0; k < rank; k++) {
        sizes[k] = k ? x->shape->dims[k] : batch;
        if (k) in[1 + k] = hb_const_i64(b, DT_S32, 0);
    }
    struct hlo_attr_dynslice a = {.dynamic_slice_sizes = {sizes, rank}};
    return hb_op(b, HLO_DYNAMIC_SLICE, NULL, in, rank + 1, &a);
}
hv batch_rows(struct hb *b, hv x, hv order, hv at, int64_t batch) {
    if (!hb_ok(b) || x->shape->dims[0] == batch) return x;
    if (!order) return part_of(b, x, at, batch);
    int64_t offset[HLO_MAX_RANK], sizes[HLO_MAX_RANK], first = 0;
    int rank = x->shape->rank;
    for (int k = 0; k < rank; k++)
        sizes[k] = k ? x->shape->dims[k] : 1, offset[k] = k + 1;
    struct hlo_attr_gather g = {.offset_dims = {offset, rank - 1},
                                .collapsed_slice_dims = {&first, 1},
                                .start_index_map = {&first, 1},
                                .index_vector_dim = 1,
                                .slice_sizes = {sizes, rank}};
    return hb_gather(b, x, part_of(b, order, at, batch), &g);
}

static hv random_unit(struct hb *b, hv seed, int64_t stream, hv step, const struct shape *like) {
    hv bits = random_bits(b, seed, stream, step, like); // f32 in [0, 1)
    bits = hb_binary(b, HLO_SHIFT_RIGHT_LOGICAL, bits, part_like(b, bits, 8));
    return part_mul(b, hb_convert(b, bits, DT_F32), 0x1p-24);
}
// Between p and q, or with mean p and deviation q (Box and Muller; 1 - u is never 0).
static hv random_numbers(struct hb *b, hv i, hv seed, int64_t stream, hv step) {
    hv p = i->operands[0], q = i->operands[1];
    hv u = random_unit(b, seed, stream, step, i->shape);
    if (HLO_ATTR(i, rng)->distribution == RNG_UNIFORM) {
        u = hb_mul(b, u, part_wide(b, hb_sub(b, q, p), u));
        return hb_add(b, u, part_wide(b, p, u));
    }
    hv angle = part_mul(b, random_unit(b, seed, stream + 1, step, i->shape), 2 * M_PI);
    hv radius = hb_unary(b, HLO_LOG, hb_sub(b, part_like(b, u, 1), u));
    radius = hb_unary(b, HLO_SQRT, part_mul(b, radius, -2));
    hv n = hb_mul(b, radius, hb_unary(b, HLO_COS, angle));
    return hb_add(b, hb_mul(b, n, part_wide(b, q, n)), part_wide(b, p, n));
}
void batch_seed_rng(struct hb *b, hv seed, hv step) {
    int64_t stream = 1;
    hv last = b->c->last;
    for (hv i = b->c->first, next; i && hb_ok(b); i = next) {
        next = i == last ? NULL : i->next;
        if (i->op != HLO_RNG) continue;
        if (i->shape->dtype != DT_F32)
            return hb_fail(b, st_unimplemented("random numbers of %s '%s' are not in f32",
                                               i->op_type ? i->op_type : "rng",
                                               i->op_name ? i->op_name : i->name));
        hv before = b->c->last, u = random_numbers(b, i, seed, stream, step);
        stream += HLO_ATTR(i, rng)->distribution == RNG_UNIFORM ? 1 : 2;
        for (hv k = before->next, after; k; k = after) { // made at the end, wanted here
            after = k->next;
            hlo_move_before(k, i);
        }
        hlo_replace_uses(i, u);
        hlo_remove_instr(i);
    }
}
