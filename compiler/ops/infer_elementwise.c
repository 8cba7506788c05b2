// SPDX-License-Identifier: Apache-2.0
// Shape rules of elementwise operations and leaves.
#include "compiler/ops/infer.h"
#include "compiler/ops/rules.h"

static const struct shape *plain(struct arena *a, const struct shape *s) {
    return shape_with_layout(a, s, NULL);
}

status_t hlo_infer_unary(struct arena *a, const struct hlo_instr *i, const struct shape **out) {
    RETURN_IF_ERR(rule_array(i, 0));
    *out = plain(a, rule_shape(i, 0));
    return ST_OK;
}
status_t hlo_infer_copy(UNUSED struct arena *a, const struct hlo_instr *i,
                        const struct shape **out) {
    *out = rule_shape(i, 0);
    return ST_OK;
}
status_t hlo_infer_same(struct arena *a, const struct hlo_instr *i, const struct shape **out) {
    return hlo_infer_copy(a, i, out);
}

static enum dtype real_of(enum dtype t) {
    return t == DT_C64 ? DT_F32 : t == DT_C128 ? DT_F64 : t;
}
status_t hlo_infer_abs(struct arena *a, const struct hlo_instr *i, const struct shape **out) {
    RETURN_IF_ERR(rule_array(i, 0));
    *out = shape_with_dtype(a, plain(a, rule_shape(i, 0)), real_of(rule_shape(i, 0)->dtype));
    return ST_OK;
}
status_t hlo_infer_real(struct arena *a, const struct hlo_instr *i, const struct shape **out) {
    return hlo_infer_abs(a, i, out);
}
status_t hlo_infer_complex(struct arena *a, const struct hlo_instr *i, const struct shape **out) {
    enum dtype t = rule_shape(i, 0)->dtype;
    RETURN_IF_ERR(rule_same_dims(a, i, 0, 1));
    RETURN_IF_ERR(rule_same_dtype(a, i, 0, 1));
    if (t != DT_F32 && t != DT_F64)
        return st_invalid("operands are %s, expected f32 or f64", dtype_name(t));
    *out = shape_with_dtype(a, plain(a, rule_shape(i, 0)), t == DT_F32 ? DT_C64 : DT_C128);
    return ST_OK;
}
status_t hlo_infer_predicate(struct arena *a, const struct hlo_instr *i, const struct shape **out) {
    RETURN_IF_ERR(rule_array(i, 0));
    *out = shape_with_dtype(a, plain(a, rule_shape(i, 0)), DT_PRED);
    return ST_OK;
}
status_t hlo_infer_binary(struct arena *a, const struct hlo_instr *i, const struct shape **out) {
    RETURN_IF_ERR(rule_arrays(i));
    RETURN_IF_ERR(rule_same_dims(a, i, 0, 1));
    RETURN_IF_ERR(rule_same_dtype(a, i, 0, 1));
    *out = plain(a, rule_shape(i, 0));
    return ST_OK;
}
status_t hlo_infer_compare(struct arena *a, const struct hlo_instr *i, const struct shape **out) {
    const struct shape *s;
    RETURN_IF_ERR(hlo_infer_binary(a, i, &s));
    *out = shape_with_dtype(a, s, DT_PRED);
    return ST_OK;
}
status_t hlo_infer_clamp(struct arena *a, const struct hlo_instr *i, const struct shape **out) {
    RETURN_IF_ERR(rule_arrays(i));
    for (int k = 0; k < 3; k += 2) {
        RETURN_IF_ERR(rule_same_dtype(a, i, k, 1));
        if (rule_shape(i, k)->rank) RETURN_IF_ERR(rule_same_dims(a, i, k, 1));
    }
    *out = plain(a, rule_shape(i, 1));
    return ST_OK;
}
status_t hlo_infer_select(struct arena *a, const struct hlo_instr *i, const struct shape **out) {
    if (rule_shape(i, 0)->dtype != DT_PRED)
        return st_invalid("operand 0 is %s, expected pred", shape_text(a, rule_shape(i, 0)));
    if (!shape_compatible(rule_shape(i, 1), rule_shape(i, 2)))
        return st_invalid("operands 1 and 2 are %s and %s", shape_text(a, rule_shape(i, 1)),
                          shape_text(a, rule_shape(i, 2)));
    if (rule_shape(i, 0)->rank) RETURN_IF_ERR(rule_same_dims(a, i, 0, 1));
    *out = plain(a, rule_shape(i, 1));
    return ST_OK;
}
status_t hlo_infer_stochastic_convert(struct arena *a, const struct hlo_instr *i,
                                      const struct shape **out) {
    RETURN_IF_ERR(rule_arrays(i));
    RETURN_IF_ERR(rule_same_dims(a, i, 0, 1));
    return hlo_infer_declared(a, i, out);
}

// ---- shapes that the instruction itself declares

status_t hlo_infer_declared(UNUSED struct arena *a, const struct hlo_instr *i,
                            const struct shape **out) {
    if (!i->shape) return st_invalid("the shape must be given");
    *out = i->shape;
    return ST_OK;
}
status_t hlo_infer_convert(struct arena *a, const struct hlo_instr *i, const struct shape **out) {
    RETURN_IF_ERR(rule_array(i, 0));
    RETURN_IF_ERR(hlo_infer_declared(a, i, out));
    if (shape_is_tuple(i->shape) || !shape_same_dims(i->shape, rule_shape(i, 0)))
        return st_invalid("result %s, operand %s: dimensions differ", shape_text(a, i->shape),
                          shape_text(a, rule_shape(i, 0)));
    return ST_OK;
}
status_t hlo_infer_bitcast_convert(struct arena *a, const struct hlo_instr *i,
                                   const struct shape **out) {
    RETURN_IF_ERR(rule_array(i, 0));
    RETURN_IF_ERR(hlo_infer_declared(a, i, out));
    const struct shape *s = rule_shape(i, 0), *r = i->shape;
    int from = dtype_bits(s->dtype), to = dtype_bits(r->dtype);
    bool ok = from == to  ? shape_same_dims(s, r)
              : from > to ? r->rank == s->rank + 1 && r->dims[s->rank] == from / to &&
                                (s->rank == 0 ||
                                 memcmp(r->dims, s->dims, sizeof *s->dims * (size_t)s->rank) == 0)
                          : s->rank == r->rank + 1 && s->dims[r->rank] == to / from &&
                                (r->rank == 0 ||
                                 memcmp(r->dims, s->dims, sizeof *s->dims * (size_t)r->rank) == 0);
    if (!ok) return st_invalid("%s does not bitcast to %s", shape_text(a, s), shape_text(a, r));
    return ST_OK;
}
status_t hlo_infer_iota(struct arena *a, const struct hlo_instr *i, const struct shape **out) {
    RETURN_IF_ERR(hlo_infer_declared(a, i, out));
    int64_t d = HLO_ATTR(i, iota)->iota_dimension;
    if (shape_is_tuple(i->shape) || d < 0 || d >= i->shape->rank)
        return st_invalid("iota_dimension %lld of %s", (long long)d, shape_text(a, i->shape));
    return ST_OK;
}
status_t hlo_infer_scalar_u32(struct arena *a, UNUSED const struct hlo_instr *i,
                              const struct shape **out) {
    *out = shape_scalar(a, DT_U32);
    return ST_OK;
}
status_t hlo_infer_token(struct arena *a, UNUSED const struct hlo_instr *i,
                         const struct shape **out) {
    *out = shape_make(a, DT_TOKEN, NULL, 0);
    return ST_OK;
}

// ---- tuples

status_t hlo_infer_tuple(struct arena *a, const struct hlo_instr *i, const struct shape **out) {
    const struct shape **e =
        arena_array(a, const struct shape *, i->n_operands ? i->n_operands : 1);
    for (int k = 0; k < i->n_operands; k++)
        e[k] = rule_shape(i, k);
    *out = shape_tuple(a, e, i->n_operands);
    return ST_OK;
}
status_t hlo_infer_gte(struct arena *a, const struct hlo_instr *i, const struct shape **out) {
    const struct shape *s = rule_shape(i, 0);
    int64_t k = HLO_ATTR(i, gte)->index;
    if (!shape_is_tuple(s) || k < 0 || k >= s->n_elems)
        return st_invalid("element %lld of %s", (long long)k, shape_text(a, s));
    *out = s->elems[k];
    return ST_OK;
}
