// SPDX-License-Identifier: Apache-2.0
// Quantised operators of com.microsoft: those that ONNX Runtime's quantizer writes (QLinear*,
// QGemm, DynamicQuantizeMatMul, MatMulIntegerToFloat) and weights of few bits (MatMulNBits,
// MatMulBnb4, GatherBlockQuantized). What works on values is the float operator between
// dequantising and quantising; products stay products of integers. Packed weights are unpacked by
// instructions that depend on weights alone, so that a preparation runs them once.

#include "compiler/calls/bits.h"
#include "compiler/frontend/onnx_nn/onnx_quant.h"

// Input k as f32: (q - zero) * scale, whose inputs follow it; a zero point may be left out.
static hv real_of(struct onnx_ctx *c, size_t k) {
    hv x = onnx_in_val(c, k), zero = onnx_in_opt(c, k + 2);
    hv v = hb_convert(&c->b, onnx_centred(c, x, zero, 0), DT_F32);
    return hb_mul(
        &c->b, v,
        onnx_spread_param(c, hb_convert(&c->b, onnx_in_val(c, k + 1), DT_F32), x->shape, 0));
}
// y by the scale of input k and the zero point behind it (0 of type t if left out).
static void out_quantised(struct onnx_ctx *c, hv y, size_t k, enum dtype t) {
    struct hb *b = &c->b;
    if (!hb_ok(b)) return;
    hv zero = onnx_in_opt(c, k + 1);
    if (zero) t = zero->shape->dtype;
    y = hb_convert(b, y, DT_F32);
    y = hb_div(b, y, onnx_spread_param(c, hb_convert(b, onnx_in_val(c, k), DT_F32), y->shape, 0));
    if (zero) zero = onnx_spread_param(c, hb_convert(b, zero, DT_F32), y->shape, 0);
    onnx_out_val(c, 0, onnx_quant_saturate(c, y, zero, t));
}

// ---- elementwise

ONNX(qlinearbinary) { // a, scale, zero, b, scale, zero, scale, zero
    hv x = real_of(c, 0), y = real_of(c, 3);
    hb_numpy_pair(b, &x, &y);
    y = hb_binary(b, (enum hlo_op)onnx_op_arg(c), x, y);
    out_quantised(c, y, 6, onnx_in_val(c, 0)->shape->dtype);
}
ONNX(qlinearunary) { // x, scale, zero, scale, zero
    bool leaky = str_is(c->n->op, "QLinearLeakyRelu");
    hv x = real_of(c, 0);
    hv y = onnx_activate(c, leaky ? STR("LeakyRelu") : STR("Sigmoid"), x,
                         onnx_at_float(c, "alpha", 0.01f), 0);
    out_quantised(c, y, 3, onnx_in_val(c, 0)->shape->dtype);
}
// The float operator fn on input 0.
static void through(struct onnx_ctx *c, onnx_fn fn) {
    onnx_with_input(c, 0, real_of(c, 0), fn);
}
static void average_pool(struct onnx_ctx *c) {
    through(c, onnx_pool);
}
static void global_average(struct onnx_ctx *c) {
    through(c, onnx_globalpool);
}
ONNX(qlinearpool) { // arg: HLO_ADD, which the pools take for the average
    bool global = str_is(c->n->op, "QLinearGlobalAveragePool");
    onnx_fn fn = global ? global_average : average_pool;
    enum dtype t = onnx_in_val(c, 0)->shape->dtype;
    if (onnx_at_int(c, "channels_last", 0))
        onnx_channels_first(c, fn);
    else
        fn(c);
    if (hb_ok(b)) out_quantised(c, onnx_result(c, 0), 3, t);
}
ONNX(qlinearsoftmax) {
    int64_t opset = c->opset;
    enum dtype t = onnx_in_val(c, 0)->shape->dtype;
    c->opset = onnx_at_int(c, "opset", opset);
    through(c, onnx_softmax);
    c->opset = opset;
    if (hb_ok(b)) out_quantised(c, onnx_result(c, 0), 3, t);
}
ONNX(qlinearconcat) { // scale, zero, then each with its own
    hv all[256];
    size_t n = c->n->in.n < 5 ? 0 : (c->n->in.n - 2) / 3;
    if (n < 1 || n > 256 || c->n->in.n != 3 * n + 2) return onnx_fail(c, "%zu inputs", c->n->in.n);
    for (size_t k = 0; k < n; k++)
        all[k] = real_of(c, 3 * k + 2);
    int64_t axis = onnx_axis_of(c, onnx_at_int(c, "axis", 0), all[0]->shape->rank);
    if (hb_ok(b))
        out_quantised(c, hb_concat(b, all, (int)n, axis), 0, onnx_in_val(c, 2)->shape->dtype);
}
ONNX(qlinearwhere) { // condition, x, scale, zero, y, scale, zero, scale, zero
    hv p = onnx_in_val(c, 0), x = real_of(c, 1), y = real_of(c, 4);
    hb_numpy_pair(b, &x, &y);
    hb_numpy_pair(b, &p, &x);
    hb_numpy_pair(b, &p, &y);
    out_quantised(c, hb_select(b, p, x, y), 7, onnx_in_val(c, 1)->shape->dtype);
}
ONNX(msqlinearconv) {
    if (onnx_at_int(c, "channels_last", 0))
        onnx_channels_first(c, onnx_qlinearconv);
    else
        onnx_qlinearconv(c);
}

// ---- products

// A product of integers [.., m, n] as f32 by both scales, plus a bias.
static void out_scaled(struct onnx_ctx *c, hv y, hv left, hv right, size_t bias) {
    struct hb *b = &c->b;
    y = hb_convert(b, y, DT_F32);
    if (!hb_ok(b)) return;
    y = hb_mul(b, y, onnx_matrix_param(c, left, y, false));
    y = hb_mul(b, y, onnx_matrix_param(c, right, y, true));
    if (onnx_in_has(c, bias))
        y = hb_add(b, y,
                   hb_broadcast_numpy(b, onnx_in_val(c, bias), y->shape->dims, y->shape->rank));
    onnx_out_val(c, 0, y);
}
ONNX(matmulintegertofloat) { // a, b, scales, zero points, bias
    hv y = hb_matmul(b, onnx_matrix_centred(c, 0, 4, false), onnx_matrix_centred(c, 1, 5, true));
    out_scaled(c, y, onnx_in_val(c, 2), onnx_in_val(c, 3), 6);
}
ONNX(dynamicquantizematmul) { // a, b, its scale and zero point, bias
    hv scale, zero, q = onnx_quant_dynamic(c, onnx_in_val(c, 0), &scale, &zero);
    q = hb_convert(b, q, DT_S32);
    q = hb_sub(b, q, onnx_spread(c, hb_convert(b, zero, DT_S32), q->shape));
    out_scaled(c, hb_matmul(b, q, onnx_matrix_centred(c, 1, 3, true)), scale, onnx_in_val(c, 2), 4);
}
static hv transposed(struct onnx_ctx *c, hv x, const char *attr) {
    return onnx_at_int(c, attr, 0) && x->shape->rank == 2 ? onnx_swap_axes(c, x, 0, 1) : x;
}
ONNX(qgemm) { // a, scale, zero, b, scale, zero, c, scale and zero of y
    hv x = transposed(c, onnx_centred(c, onnx_in_val(c, 0), onnx_in_val(c, 2), 0), "transA");
    bool turned = onnx_at_int(c, "transB", 0) != 0;
    hv y = transposed(c, onnx_centred(c, onnx_in_val(c, 3), onnx_in_val(c, 5), turned ? 0 : 1),
                      "transB");
    hv r = hb_matmul(b, x, y);
    if (onnx_in_has(c, 6) && hb_ok(b))
        r = hb_add(b, r, hb_broadcast_numpy(b, onnx_in_val(c, 6), r->shape->dims, r->shape->rank));
    r = hb_convert(b, r, DT_F32);
    if (!hb_ok(b)) return;
    r = hb_mul(b, r, onnx_matrix_param(c, onnx_in_val(c, 1), r, false));
    r = hb_mul(b, r, onnx_matrix_param(c, onnx_in_val(c, 4), r, true));
    r = onnx_mul_k(c, r, onnx_at_float(c, "alpha", 1));
    if (onnx_in_has(c, 7))
        out_quantised(c, r, 7, DT_U8);
    else
        onnx_out_val(c, 0, r);
}
// ---- weights of few bits

hv onnx_unpack_bits(struct onnx_ctx *c, hv x, int64_t bits) {
    struct hb *b = &c->b;
    hv parts[8];
    int n = (int)(8 / bits), rank = x->shape->rank;
    int64_t dims[HLO_MAX_RANK];
    if (n <= 1) return x;
    if (rank < 1) return onnx_fail(c, "numbers of %lld bits in a scalar", (long long)bits), x;
    for (int k = 0; k < n; k++) {
        hv v =
            k ? hb_binary(b, HLO_SHIFT_RIGHT_LOGICAL, x, onnx_splat_like(c, x, (double)(k * bits)))
              : x;
        parts[k] = onnx_and(c, v, onnx_splat_like(c, x, (double)((1 << bits) - 1)));
    }
    x = onnx_stack_last(c, parts, n);
    for (int d = 0; d < rank; d++)
        dims[d] = x->shape->dims[d];
    dims[rank - 1] *= n;
    return hb_reshape(b, x, dims, rank);
}
// Zero points [n, blocks]: packed bytes, or of the scales' type; the middle where there are none.
static hv block_zeros(struct onnx_ctx *c, size_t k, hv scales, int64_t bits) {
    struct hb *b = &c->b;
    const struct shape *s = scales->shape;
    if (!onnx_in_has(c, k)) return onnx_splat_like(c, scales, (double)(1 << (bits - 1)));
    hv z = onnx_in_val(c, k);
    if (z->shape->dtype == DT_U8) {
        int64_t row = (s->dims[1] * bits + 7) / 8;
        if (shape_elements(z->shape) != s->dims[0] * row)
            return onnx_fail(c, "zero points %s for scales %s", onnx_show(c, z),
                             shape_text(c->a, s)),
                   scales;
        z = onnx_unpack_bits(c, hb_reshape(b, z, (int64_t[]){s->dims[0], row}, 2), bits);
        z = onnx_part(c, z, 1, 0, s->dims[1]);
    } else if (shape_elements(z->shape) != shape_elements(s)) {
        return onnx_fail(c, "zero points %s for scales %s", onnx_show(c, z), shape_text(c->a, s)),
               scales;
    }
    return hb_reshape(b, hb_convert(b, z, s->dtype), s->dims, 2);
}
static void out_product(struct onnx_ctx *c, hv w, int64_t over, size_t bias) {
    struct hb *b = &c->b;
    hv x = onnx_in_val(c, 0);
    int64_t last = x->shape->rank - 1;
    if (last < 0) return onnx_fail(c, "a scalar has no rows");
    hv y = hb_dot_over(b, x, hb_convert(b, w, x->shape->dtype), last, over);
    y = onnx_add_along(c, y, bias, last);
    onnx_out_val(c, 0, y);
}
// May x be rounded to 8 bits? Where ONNX Runtime does not, neither do we.
static bool lets_round(struct onnx_ctx *c, int64_t bits, hv q) {
    int64_t block = q->shape->dims[2] * 8 / bits;
    bool has_kernel = bits > 2 ? block >= 16 : block >= 32 && block <= 128;
    return onnx_at_int(c, "accuracy_level", 0) == 4 && has_kernel;
}
// The product as the call of compiler/calls/bits.h: q [n, blocks, bytes], scales and zeros [n,
// blocks].
static void out_bits(struct onnx_ctx *c, hv q, hv scales, hv zeros, int64_t bits) {
    struct hb *b = &c->b;
    hv x = onnx_in_val(c, 0), middle = hb_const_f64(b, DT_F32, (double)(1 << (bits - 1)));
    zeros = onnx_in_has(c, 3) ? onnx_swap_axes(c, hb_convert(b, zeros, DT_F32), 0, 1) : middle;
    scales = onnx_swap_axes(c, hb_convert(b, scales, DT_F32), 0, 1);
    hv in[BITS_OPERANDS] = {hb_convert(b, x, DT_F32), q, scales, zeros};
    enum bits_x rounding = lets_round(c, bits, q) ? BITS_X_LEVEL4 : BITS_X_F32;
    hv y = hb_convert(b, bits_call(b, (int)bits, rounding, in), x->shape->dtype);
    int64_t last = x->shape->rank - 1;
    y = onnx_add_along(c, y, 5, last);
    onnx_out_val(c, 0, y);
}
// Blocks of whole words.
static bool worth_bits(struct onnx_ctx *c, int64_t k, int64_t block, int64_t bits) {
    const struct shape *x = onnx_in_val(c, 0)->shape;
    return !onnx_in_has(c, 4) && x->rank > 0 && x->dims[x->rank - 1] == k && !x->dynamic &&
           shape_elements(x) > 0 && block * bits % 32 == 0 && dtype_is_float(x->dtype) &&
           dtype_size(x->dtype) <= 4;
}
// a [..., K] times weights [N, K] in blocks along K: (q - zero) * scale.
ONNX(matmulnbits) {
    int64_t k = onnx_at_int(c, "K", 0), n = onnx_at_int(c, "N", 0),
            bits = onnx_at_int(c, "bits", 4), block = onnx_at_int(c, "block_size", 0), blocks;
    hv q = onnx_in_val(c, 1), scales = onnx_in_val(c, 2), zeros;

    if (bits != 2 && bits != 4 && bits != 8) return onnx_fail(c, "bits %lld", (long long)bits);
    if (onnx_at_int(c, "weight_prepacked", 0))
        return onnx_fail(c, "weight_prepacked is not supported");
    if (k < 1 || n < 1 || block < 8 || block > 1 << 20 || n > INT32_MAX || k > INT32_MAX)
        return onnx_fail(c, "K %lld, N %lld, block_size %lld", (long long)k, (long long)n,
                         (long long)block);
    blocks = (k + block - 1) / block;
    if (q->shape->dtype != DT_U8 || shape_elements(q->shape) != n * blocks * block * bits / 8 ||
        shape_elements(scales->shape) != n * blocks)
        return onnx_fail(c, "weights %s, scales %s", onnx_show(c, q), onnx_show(c, scales));

    int64_t wide[3] = {n, blocks, block}, flat[2] = {n, blocks * block};
    scales = hb_reshape(b, scales, wide, 2);
    zeros = block_zeros(c, 3, scales, bits);
    q = hb_reshape(b, q, (int64_t[]){n, blocks, block * bits / 8}, 3);
    if (worth_bits(c, k, block, bits) && hb_ok(b)) return out_bits(c, q, scales, zeros, bits);
    q = hb_convert(b, onnx_unpack_bits(c, q, bits), scales->shape->dtype);
    if (!hb_ok(b)) return;

    if (onnx_in_has(c, 4)) { // the block of each row of K
        hv group = hb_convert(b, onnx_part(c, onnx_in_val(c, 4), 0, 0, k), DT_S64);
        q = onnx_part(c, hb_reshape(b, q, flat, 2), 1, 0, k);
        scales = onnx_take(c, scales, group, 1), zeros = onnx_take(c, zeros, group, 1);
        q = hb_mul(b, hb_sub(b, q, zeros), scales);
    } else {
        zeros = hb_broadcast(b, zeros, wide, 3, (int64_t[]){0, 1});
        scales = hb_broadcast(b, scales, wide, 3, (int64_t[]){0, 1});
        q = hb_reshape(b, hb_mul(b, hb_sub(b, q, zeros), scales), flat, 2);
        q = onnx_part(c, q, 1, 0, k);
    }

    if (hb_ok(b)) out_product(c, q, 1, 5);
}
// Weights [N, K] as places in a table of 16 values, upper bits first, one scale a block of the
// flattened matrix.
ONNX(matmulbnb4) {
    static const double fp4[16] = {
        0.0,  0.005208333333,  0.66666667,  1.0,  0.33333333,  0.5,  0.16666667,  0.25,
        -0.0, -0.005208333333, -0.66666667, -1.0, -0.33333333, -0.5, -0.16666667, -0.25};
    static const double nf4[16] = {-1.0,
                                   -0.6961928009986877,
                                   -0.5250730514526367,
                                   -0.39491748809814453,
                                   -0.28444138169288635,
                                   -0.18477343022823334,
                                   -0.09105003625154495,
                                   0.0,
                                   0.07958029955625534,
                                   0.16093020141124725,
                                   0.24611230194568634,
                                   0.33791524171829224,
                                   0.44070982933044434,
                                   0.5626170039176941,
                                   0.7229568362236023,
                                   1.0};

    int64_t k = onnx_at_int(c, "K", 0), n = onnx_at_int(c, "N", 0),
            block = onnx_at_int(c, "block_size", 0), all, sixteen = 16, zero = 0;
    hv q = onnx_in_val(c, 1), scale = onnx_in_val(c, 2);

    if (k < 1 || n < 1 || block < 8 || !sz_mul(n, k, &all) ||
        shape_elements(q->shape) != (all + 1) / 2 ||
        shape_elements(scale->shape) != (all + block - 1) / block)
        return onnx_fail(c, "weights %s, absmax %s", onnx_show(c, q), onnx_show(c, scale));

    enum dtype t = scale->shape->dtype;
    int64_t bytes = (all + 1) / 2, blocks = (all + block - 1) / block;
    q = hb_reshape(b, q, &bytes, 1);
    hv high = hb_binary(b, HLO_SHIFT_RIGHT_LOGICAL, q, onnx_splat_like(c, q, 4));
    q = onnx_stack_last(c, (hv[]){high, onnx_and(c, q, onnx_splat_like(c, q, 15))}, 2);
    q = hb_reshape(b, q, (int64_t[]){2 * bytes}, 1);
    q = onnx_take(c, onnx_lit_f64s(c, t, onnx_at_int(c, "quant_type", 1) ? nf4 : fp4, &sixteen, 1),
                  q, 0);

    scale = hb_broadcast(b, hb_reshape(b, scale, &blocks, 1), (int64_t[]){blocks, block}, 2, &zero);
    scale = onnx_part(c, hb_reshape(b, scale, (int64_t[]){blocks * block}, 1), 0, 0, all);
    q = hb_mul(b, onnx_part(c, q, 0, 0, all), scale);
    if (hb_ok(b))
        out_product(c, hb_reshape(b, q, (int64_t[]){n, k}, 2), onnx_at_int(c, "transB", 1) ? 1 : 0,
                    64);
}
// Rows of a quantised table: the chosen rows are unpacked, not the table.
ONNX(gatherblocks) { // data, indices, scales, zero points
    hv q = onnx_in_val(c, 0), idx = onnx_in_val(c, 1), scales = onnx_in_val(c, 2), zeros;
    int rank = q->shape->rank;
    int64_t bits = onnx_at_int(c, "bits", 4), block = onnx_at_int(c, "block_size", 128);
    int64_t along_axis = onnx_axis_of(c, onnx_at_int(c, "quantize_axis", 1), rank);
    int64_t axis = onnx_axis_of(c, onnx_at_int(c, "gather_axis", 0), rank);
    bool packed = q->shape->dtype == DT_U8 && bits < 8;

    if (!hb_ok(b)) return;
    if (axis == along_axis || (packed && along_axis != rank - 1) || scales->shape->rank != rank ||
        !dtype_is_int(q->shape->dtype) || block < 1)
        return onnx_fail(c, "data %s by blocks of axis %lld, gathered along %lld, is not supported",
                         onnx_show(c, q), (long long)along_axis, (long long)axis);
    if (packed && bits != 2 && bits != 4) return onnx_fail(c, "bits %lld", (long long)bits);

    if (onnx_in_has(c, 3) && onnx_in_val(c, 3)->shape->rank != rank)
        return onnx_fail(c, "zero points %s for scales %s", onnx_show(c, onnx_in_val(c, 3)),
                         onnx_show(c, scales));

    hv rows = onnx_wrapped(c, idx, q->shape->dims[axis]);
    double middle = q->shape->dtype == DT_U8 ? (double)(1 << (bits - 1)) : 0;
    q = onnx_take(c, q, rows, (int)axis);
    scales = onnx_take(c, scales, rows, (int)axis);
    if (packed) q = onnx_unpack_bits(c, q, bits);

    if (onnx_in_has(c, 3)) {
        zeros = onnx_take(c, onnx_in_val(c, 3), rows, (int)axis);
        if (packed) zeros = onnx_unpack_bits(c, zeros, bits);
        zeros = onnx_part(c, zeros, zeros->shape->rank - 1, 0,
                          scales->shape->dims[scales->shape->rank - 1]);
        zeros = hb_convert(b, zeros, scales->shape->dtype);
    } else {
        zeros = onnx_splat_like(c, scales, middle);
    }
    if (!hb_ok(b)) return;

    // Over the blocks of the dimension that was quantised.
    int last = q->shape->rank - 1;
    int at = (int)along_axis + (along_axis > axis ? idx->shape->rank - 1 : 0);
    int64_t wide[HLO_MAX_RANK + 1], map[HLO_MAX_RANK], flat[HLO_MAX_RANK];
    if (last + 1 >= HLO_MAX_RANK) return onnx_fail(c, "rank %d", last + 1);
    for (int d = 0; d <= last; d++) {
        map[d] = d + (d > at);
        flat[d] = wide[map[d]] = scales->shape->dims[d];
    }
    wide[at + 1] = block, flat[at] *= block;
    if (flat[at] < q->shape->dims[at])
        return onnx_fail(c, "blocks of %lld do not cover the axis", (long long)block);

    hv *params[2] = {&scales, &zeros};
    for (int k = 0; k < 2; k++) {
        hv v = hb_broadcast(b, *params[k], wide, last + 2, map);
        *params[k] = onnx_part(c, hb_reshape(b, v, flat, last + 1), at, 0, q->shape->dims[at]);
    }
    onnx_out_val(c, 0, hb_mul(b, hb_sub(b, hb_convert(b, q, scales->shape->dtype), zeros), scales));
}
