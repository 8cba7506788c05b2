// SPDX-License-Identifier: Apache-2.0
// Random numbers and dropout.
#include <math.h>
#include <string.h>

#include "compiler/frontend/onnx/onnx_tools.h"

// Bits from a seeded generator, the same at every run: u32 of the given dimensions.
static hv seeded_bits(struct onnx_ctx *c, float seed, const struct shape *like) {
    uint32_t bits;
    memcpy(&bits, &seed, sizeof bits);
    struct literal *state = lit_new(c->a, shape_make(c->a, DT_U64, (int64_t[]){2}, 1));
    lit_set_i64(state, 0, (int64_t)bits);
    const struct shape *parts[2] = {state->shape, shape_make(c->a, DT_U32, like->dims, like->rank)};
    hv s = hb_constant(&c->b, state);
    hv r = hb_op(&c->b, HLO_RNG_BIT_GENERATOR, shape_tuple(c->a, parts, 2), &s, 1,
                 &(struct hlo_attr_rngbits){.algorithm = RNG_THREE_FRY});
    return hb_gte(&c->b, r, 1);
}
static hv seeded_unit(struct onnx_ctx *c, float seed, const struct shape *like) { // f32 in [0, 1)
    struct hb *b = &c->b;
    hv bits = seeded_bits(c, seed, like);
    bits = hb_binary(b, HLO_SHIFT_RIGHT_LOGICAL, bits, onnx_splat_like(c, bits, 8));
    return onnx_mul_k(c, hb_convert(b, bits, DT_F32), 0x1p-24);
}
// Numbers of a distribution: uniform over [p, q), or normal with mean p and deviation q. Without a
// seed the run's generator gives others at every run.
static hv draw(struct onnx_ctx *c, const struct shape *like, bool normal, double p, double q) {
    struct hb *b = &c->b;
    const struct shape *s = shape_make(c->a, DT_F32, like->dims, like->rank);
    if (!onnx_attr(c->n, "seed") || c->purpose == LOWER_TRAINING) {
        hv args[2] = {hb_const_f64(b, DT_F32, p), hb_const_f64(b, DT_F32, q)};
        struct hlo_attr_rng a = {.distribution = normal ? RNG_NORMAL : RNG_UNIFORM};
        return hb_op(b, HLO_RNG, s, args, 2, &a);
    }
    bool whole = str_is(c->n->op, "Dropout"); // its seed is an integer
    float seed = whole ? (float)onnx_at_int(c, "seed", 0) : (float)onnx_at_float(c, "seed", 0);
    hv u = seeded_unit(c, seed, s);
    if (!normal) return onnx_add_k(c, onnx_mul_k(c, u, q - p), p);
    // Box and Muller; 1 - u is never 0.
    hv radius = hb_unary(b, HLO_LOG, hb_sub(b, onnx_splat_like(c, u, 1), u));
    radius = hb_unary(b, HLO_SQRT, onnx_mul_k(c, radius, -2));
    hv angle = onnx_mul_k(c, seeded_unit(c, -seed - 1, s), 2 * M_PI);
    return onnx_add_k(c, onnx_mul_k(c, hb_mul(b, radius, hb_unary(b, HLO_COS, angle)), q), p);
}

// arg: 1 = normal. With an input: its shape, and its type unless dtype says another.
ONNX(random) {
    bool normal = onnx_op_arg(c) & 1;
    int64_t dims[HLO_MAX_RANK];
    int n;
    const struct shape *like;
    double p = normal ? onnx_at_float(c, "mean", 0) : onnx_at_float(c, "low", 0),
           q = normal ? onnx_at_float(c, "scale", 1) : onnx_at_float(c, "high", 1);
    if (c->n->in.n) {
        like = onnx_in_val(c, 0)->shape;
    } else {
        if (!onnx_at_ints(c, "shape", dims, HLO_MAX_RANK, &n))
            return onnx_fail(c, "shape is missing");
        like = shape_make(c->a, DT_F32, dims, n);
        status_t st = shape_check(like, 0);
        if (st) return hb_fail(b, st);
    }
    enum dtype t = onnx_attr_dtype(c, "dtype", c->n->in.n ? like->dtype : DT_F32);
    onnx_out_val(c, 0, hb_convert(b, draw(c, like, normal, p, q), t));
}
ONNX_X(bernoulli) {
    hv u = draw(c, x->shape, false, 0, 1);
    hv hit = hb_compare(b, u, hb_convert(b, x, DT_F32), CMP_LT);
    onnx_out_val(c, 0, hb_convert(b, hit, onnx_attr_dtype(c, "dtype", x->shape->dtype)));
}
// The class of each draw: the first whose Gumbel-perturbed log probability is largest.
ONNX_X(multinomial) {
    int64_t draws = onnx_at_int(c, "sample_size", 1), axis = 2;
    if (x->shape->rank != 2 || draws < 1 || draws > 1 << 24)
        return onnx_fail(c, "input %s, %lld draws", onnx_show(c, x), (long long)draws);
    int64_t dims[3] = {x->shape->dims[0], draws, x->shape->dims[1]};
    const struct shape *s = shape_make(c->a, DT_F32, dims, 3);
    status_t st = shape_check(s, 0);
    if (st) return hb_fail(b, st);
    hv u = draw(c, s, false, 0, 1);
    u = hb_max(b, u, onnx_splat_like(c, u, 0x1p-25));
    hv noise = hb_unary(b, HLO_NEGATE, hb_unary(b, HLO_LOG, u));
    noise = hb_unary(b, HLO_NEGATE, hb_unary(b, HLO_LOG, noise));
    x = hb_broadcast(b, hb_convert(b, x, DT_F32), dims, 3, (int64_t[]){0, 2});
    hv score = hb_add(b, x, noise);
    hv at = onnx_place_of_extreme(c, score, axis, true, false, false);
    onnx_out_val(c, 0, hb_convert(b, at, onnx_attr_dtype(c, "dtype", DT_S32)));
}

// In training mode elements are dropped with probability `ratio` and the rest scaled up; otherwise
// it is the identity. Its mask is of ones then; before opset 12, which says nothing of it, of
// zeros, as ONNX Runtime's.
ONNX_X(dropout) {
    enum dtype mask = c->opset >= 10 ? DT_PRED : x->shape->dtype;
    const struct literal *training =
        c->opset >= 12 && onnx_in_has(c, 2) ? onnx_in_known(c, 2) : NULL;
    double ratio = c->opset < 12 ? onnx_at_float(c, "ratio", 0.5f) : 0.5;
    bool drops = c->purpose == LOWER_TRAINING || (training && lit_get_i64(training, 0));
    drops &= c->purpose != LOWER_VALIDATION;
    if (drops && c->opset >= 12 && onnx_in_has(c, 1)) {
        const struct literal *l = onnx_in_known(c, 1);
        ratio = l ? lit_get_f64(l, 0) : 0;
    }
    if (!drops || ratio == 0) {
        onnx_out_val(c, 0, x);
        return onnx_out_val(c, 1,
                            hb_splat(b, shape_with_dtype(c->a, x->shape, mask), c->opset >= 12));
    }
    if (!(ratio > 0 && ratio < 1)) return onnx_fail(c, "ratio %g", ratio);
    hv u = draw(c, x->shape, false, 0, 1);
    hv keep = onnx_compare_k(c, u, ratio, CMP_GE);
    onnx_out_val(c, 0,
                 hb_select(b, keep, onnx_mul_k(c, x, 1 / (1 - ratio)), onnx_splat_like(c, x, 0)));
    onnx_out_val(c, 1, hb_convert(b, keep, mask));
}
