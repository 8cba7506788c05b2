// SPDX-License-Identifier: Apache-2.0
// Lowering of elementwise operations: rows of elementwise.def call kmath; compare, select, clamp,
// convert and copy are written out.
#include "compiler/kernel/lower.h"
#include "compiler/ops/lower_rules.h"

static status_t row(struct lower *lw, const struct hlo_instr *i, struct kir_val *const *index,
                    enum kfn fn, struct kir_val **out) {
    struct kir_val *x, *y = NULL;
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

// Bits of a float as an integer that orders like total order.
static struct kir_val *total_order(struct kir *k, struct kir_val *x) {
    enum dtype t = x->type == DT_F64 ? DT_S64 : DT_S32;
    struct kir_val *b = kir_bits(k, t, x);
    struct kir_val *sign = kir_op(k, K_SHR, b, kir_int(k, t, t == DT_S64 ? 63 : 31), NULL);
    struct kir_val *low =
        kir_op(k, K_AND, sign, kir_int(k, t, t == DT_S64 ? INT64_MAX : INT32_MAX), NULL);
    return kir_op(k, K_XOR, b, low, NULL);
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
    if (a->type == CMPT_TOTALORDER && dtype_is_float(x->type)) {
        x = total_order(k, x);
        y = total_order(k, y);
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
LOWER(REDUCE_PRECISION) {
    const struct hlo_attr_redprec *a = HLO_ATTR(i, redprec);
    enum dtype t = i->shape->dtype;
    RETURN_IF_ERR(lower_operand(lw, i, 0, index, out));
    if (!dtype_is_float(t) || a->exponent_bits < 1 || a->exponent_bits > 30 || a->mantissa_bits < 0)
        return lower_no(lw, "reduce-precision to this format");
    *out = kir_reduce_precision(&lw->k, *out, (int)a->exponent_bits,
                                a->mantissa_bits > 52 ? 52 : (int)a->mantissa_bits);
    *out = kmath_wrap(lw, t, *out);
    return ST_OK;
}
LOWER(CONSTANT) {
    const struct literal *l = i->literal;
    enum dtype t = i->shape->dtype, c = kir_type(t);
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
            *out = dtype_is_float(t) ? kir_f(k, c, lit_get_f64(l, 0))
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
