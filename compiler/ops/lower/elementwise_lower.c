// SPDX-License-Identifier: Apache-2.0
// Lowering of elementwise operations: rows of elementwise.def call kmath; compare, select, clamp,
// convert and copy are written out.
#include <math.h>

#include "compiler/kernel/lower.h"
#include "compiler/ops/lower/lower_rules.h"

// The operand of a sum that is a product nobody else sees, and so need not be rounded; -1 if none.
// It is decided by the graph, not by the code around: wherever the kernel computes the sum again,
// it computes the same.
static int product_of(const struct lower *lw, const struct hlo_instr *i, enum kfn fn) {
    enum dtype t = i->shape->dtype;
    if ((fn != KFN_ADD && fn != KFN_SUB) || (t != DT_F32 && t != DT_F64) || !lower_contract(lw))
        return -1;
    for (int n = 0; n < 2; n++) {
        const struct hlo_instr *p = i->operands[n];
        if (p->op == HLO_MULTIPLY && p->users.n == 1 && i->operands[0] != i->operands[1] &&
            !pmap_has_ptr(&lw->leaf, p))
            return n;
    }
    return -1;
}
static status_t multiply_add(struct lower *lw, const struct hlo_instr *i,
                             struct kir_val *const *index, enum kfn fn, int product,
                             struct kir_val **out) {
    struct kir *k = &lw->k;
    struct kir_val *x, *y, *z;
    RETURN_IF_ERR(lower_operand(lw, i->operands[product], 0, index, &x));
    RETURN_IF_ERR(lower_operand(lw, i->operands[product], 1, index, &y));
    RETURN_IF_ERR(lower_operand(lw, i, !product, index, &z));
    if (fn == KFN_SUB && product == 0) z = kir_op(k, K_NEG, z, NULL, NULL);
    if (fn == KFN_SUB && product == 1) x = kir_op(k, K_NEG, x, NULL, NULL);
    *out = kir_mul_add(k, x, y, z);
    return ST_OK;
}

static status_t row(struct lower *lw, const struct hlo_instr *i, struct kir_val *const *index,
                    enum kfn fn, struct kir_val **out) {
    struct kir_val *x, *y = NULL;
    int product = product_of(lw, i, fn);
    if (product >= 0) return multiply_add(lw, i, index, fn, product, out);
    RETURN_IF_ERR(lower_operand(lw, i, 0, index, &x));
    if (i->n_operands > 1) RETURN_IF_ERR(lower_operand(lw, i, 1, index, &y));
    *out = kmath(lw, fn, i->operands[0]->shape->dtype, x, y);
    return *out ? ST_OK : lower_no(lw, "a function that is not lowered for this type");
}
#define EW(e, n, fx, sx, ux, px, cx, kop)                                                          \
    LOWER(e) {                                                                                     \
        return row(lw, i, index, KFN_##kop, out);                                                  \
    }
#include "compiler/ops/elementwise.def"
#undef EW

LOWER(COPY) {
    return lower_operand(lw, i, 0, index, out);
}
LOWER(OPT_BARRIER) {
    return lower_operand(lw, i, 0, index, out);
}
LOWER(CONVERT) {
    RETURN_IF_ERR(lower_operand(lw, i, 0, index, out));
    *out = kmath_convert(lw, i->shape->dtype, i->operands[0]->shape->dtype, *out);
    return ST_OK;
}

LOWER(COMPARE) {
    const struct hlo_attr_compare *a = HLO_ATTR(i, compare);
    struct kir *k = &lw->k;
    struct kir_val *x, *y;
    RETURN_IF_ERR(lower_operand(lw, i, 0, index, &x));
    RETURN_IF_ERR(lower_operand(lw, i, 1, index, &y));
    if (dtype_is_complex(i->operands[0]->shape->dtype)) {
        bool eq = a->direction == CMP_EQ;
        if (!eq && a->direction != CMP_NE) return lower_no(lw, "an ordering of complex numbers");
        *out = kir_op(k, eq ? K_AND : K_OR, kir_cmp(k, a->direction, kir_re(k, x), kir_re(k, y)),
                      kir_cmp(k, a->direction, kir_im(k, x), kir_im(k, y)), NULL);
        return ST_OK;
    }
    if (a->type == CMPT_TOTALORDER) {
        x = kmath_total_order(k, x);
        y = kmath_total_order(k, y);
    }
    *out = kir_cmp(k, a->direction, x, y);
    return ST_OK;
}

// Index of an operand that may be a scalar where the result is not.
static struct kir_val *const *maybe_scalar(const struct hlo_instr *i, int n,
                                           struct kir_val *const *index) {
    return i->operands[n]->shape->rank == 0 ? NULL : index;
}
LOWER(SELECT) {
    struct kir_val *c, *x, *y;
    RETURN_IF_ERR(lower_operand(lw, i, 0, maybe_scalar(i, 0, index), &c));
    RETURN_IF_ERR(lower_operand(lw, i, 1, index, &x));
    RETURN_IF_ERR(lower_operand(lw, i, 2, index, &y));
    *out = kir_select(&lw->k, c, x, y);
    return ST_OK;
}
LOWER(CLAMP) {
    struct kir_val *lo, *x, *hi;
    RETURN_IF_ERR(lower_operand(lw, i, 0, maybe_scalar(i, 0, index), &lo));
    RETURN_IF_ERR(lower_operand(lw, i, 1, index, &x));
    RETURN_IF_ERR(lower_operand(lw, i, 2, maybe_scalar(i, 2, index), &hi));
    x = kmath(lw, KFN_MAX, i->shape->dtype, x, lo);
    *out = x ? kmath(lw, KFN_MIN, i->shape->dtype, x, hi) : NULL;
    return *out ? ST_OK : lower_no(lw, "a clamp of this type");
}
// Types of one width whose values carry their bits: f16 does not.
LOWER(BITCAST_CONVERT) {
    enum dtype to = i->shape->dtype, from = i->operands[0]->shape->dtype;
    struct kir *k = &lw->k;
    bool plain = dtype_bits(to) == dtype_bits(from) && dtype_bits(to) >= 8 && to != DT_F16 &&
                 from != DT_F16 && !dtype_is_complex(to) && !dtype_is_complex(from) &&
                 to != DT_PRED && from != DT_PRED;
    if (!plain) return lower_no(lw, "a bitcast-convert of these types");
    RETURN_IF_ERR(lower_operand(lw, i, 0, index, out));
    struct kir_val *v = *out;
    if (kir_is_f8(from)) v = kir_encode8(k, from, v);
    if (from == DT_BF16)
        v = kir_cast(k, DT_U16,
                     kir_op(k, K_SHR, kir_bits(k, DT_U32, v), kir_int(k, DT_U32, 16), NULL));
    if (kir_is_f8(to))
        v = kir_decode8(k, to, kir_bits(k, DT_U8, v));
    else if (to == DT_BF16)
        v = kir_bits(k, DT_F32,
                     kir_op(k, K_SHL, kir_cast(k, DT_U32, kir_bits(k, DT_U16, v)),
                            kir_int(k, DT_U32, 16), NULL));
    else
        v = kir_bits(k, to, v);
    *out = v;
    return ST_OK;
}
// Away from zero with the probability of the fraction, where the random bits read as a fraction lie
// below it.
LOWER(STOCHASTIC_CONVERT) {
    struct kir *k = &lw->k;
    struct kir_val *v, *r;
    enum dtype bits = i->operands[1]->shape->dtype, t = DT_F64;
    RETURN_IF_ERR(lower_operand(lw, i, 0, index, &v));
    RETURN_IF_ERR(lower_operand(lw, i, 1, index, &r));
    if (!dtype_is_int(i->shape->dtype) || !dtype_is_float(v->type) ||
        dtype_class(bits) != DC_UNSIGNED)
        return lower_no(lw, "a stochastic-convert of these types");
    v = kir_cast(k, t, v);
    r = kir_op(k, K_MUL, kir_cast(k, t, r), kir_f(k, t, ldexp(1, -dtype_bits(bits))), NULL);
    struct kir_val *a = kir_op(k, K_ABS, v, NULL, NULL), *whole = kir_op(k, K_FLOOR, a, NULL, NULL);
    struct kir_val *up = kir_op(k, K_ADD, whole, kir_f(k, t, 1), NULL);
    struct kir_val *away = kir_cmp(k, CMP_LT, r, kir_op(k, K_SUB, a, whole, NULL));
    struct kir_val *moved = kir_op(k, K_COPYSIGN, kir_select(k, away, up, a), v, NULL);
    *out = kmath_convert(lw, i->shape->dtype, t, moved);
    return ST_OK;
}
static struct kir_val *index_scalar(struct lower *lw, enum dtype t, int64_t v) {
    return kir_int(&lw->k, kir_type(t), v);
}
LOWER(PARTITION_ID) { // one participant
    *out = index_scalar(lw, i->shape->dtype, 0);
    return ST_OK;
}
LOWER(REPLICA_ID) {
    *out = index_scalar(lw, i->shape->dtype, 0);
    return ST_OK;
}
LOWER(GET_DIMENSION_SIZE) {
    const struct shape *s = i->operands[0]->shape;
    int64_t d = HLO_ATTR(i, dims)->dimensions.v[0];
    if (s->dynamic && s->dynamic[d]) return lower_no(lw, "a dynamic dimension");
    *out = index_scalar(lw, i->shape->dtype, s->dims[d]);
    return ST_OK;
}
LOWER(REDUCE_PRECISION) {
    const struct hlo_attr_redprec *a = HLO_ATTR(i, redprec);
    enum dtype t = i->shape->dtype;
    RETURN_IF_ERR(lower_operand(lw, i, 0, index, out));
    if (!dtype_is_float(t) || a->exponent_bits < 1 || a->exponent_bits > 30 || a->mantissa_bits < 0)
        return lower_no(lw, "reduce-precision to this format");
    *out = kir_reduce_precision(&lw->k, t, *out, (int)a->exponent_bits,
                                a->mantissa_bits > 52 ? 52 : (int)a->mantissa_bits);
    *out = kmath_wrap(lw, t, *out);
    return ST_OK;
}
LOWER(CONSTANT) {
    const struct literal *l = i->literal;
    enum dtype t = lower_memory(lw, i->shape->dtype), c = kir_type(t);
    int64_t n = shape_elements(i->shape);
    struct kir *k = &lw->k;
    bool splat = n > 0;
    size_t size = (size_t)dtype_size(t);
    for (int64_t e = 1; e < n && splat; e++)
        splat = memcmp((const char *)l->data + (size_t)e * size, l->data, size) == 0;
    if (splat) {
        double z[2];
        if (dtype_is_complex(t)) {
            lit_get_c128(l, 0, z);
            *out = kir_complex(k, kir_f(k, c, z[0]), kir_f(k, c, z[1]));
        } else {
            int64_t bits = 0;
            if (t != i->shape->dtype) memcpy(&bits, l->data, size);
            *out = t != i->shape->dtype ? kir_int(k, c, bits)
                   : dtype_is_float(t)  ? kir_f(k, c, lit_get_f64(l, 0))
                                        : kir_int(k, c, lit_get_i64(l, 0));
        }
        return ST_OK;
    }
    if (n == 0 || n > 4096 || dtype_is_complex(t)) return lower_no(lw, "a large constant");
    *out = kir_table(k, kir_add_table(k, t, n, l->data),
                     lower_flatten(lw, index, i->shape->dims, i->shape->rank));
    return ST_OK;
}
LOWER(IOTA) {
    struct kir_val *v = index[HLO_ATTR(i, iota)->iota_dimension];
    enum dtype t = i->shape->dtype;
    if (dtype_is_complex(t))
        *out = kir_complex(&lw->k, kir_cast(&lw->k, kir_type(t), v), kir_f(&lw->k, kir_type(t), 0));
    else
        *out = kmath_convert(lw, t, DT_S64, v);
    return ST_OK;
}
LOWER(MAP) {
    struct kir_val *args[LOWER_MAX_RESULTS];
    if (i->n_operands > LOWER_MAX_RESULTS) return lower_no(lw, "too many operands of map");
    for (int n = 0; n < i->n_operands; n++)
        RETURN_IF_ERR(lower_operand(lw, i, n, index, &args[n]));
    return lower_call(lw, i->called[0], args, i->n_operands, out);
}
