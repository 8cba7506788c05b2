// SPDX-License-Identifier: Apache-2.0
// Types of bytecode: VHLO's own and the builtin ones.
#include <string.h>

#include "compiler/frontend/mlir/mlir_bytecode_reader.h"
#include "compiler/ir/literal.h"

// ---- numbers by type

status_t mb_apint(struct mb *b, struct mb_cursor *c, int bits, int64_t *out) {
    int64_t v;
    if (bits > 64) return mb_error(b, c, "an integer of %d bits", bits);
    if (bits <= 8) {
        uint8_t byte;
        RETURN_IF_ERR(mb_byte(b, c, &byte));
        v = byte;
    } else {
        RETURN_IF_ERR(mb_signed(b, c, &v));
    }
    int unused = 64 - bits;
    *out = (int64_t)((uint64_t)v << unused) >> unused;
    return ST_OK;
}
status_t mb_apfloat(struct mb *b, struct mb_cursor *c, enum dtype t, double *out) {
    int64_t bits;
    if (!dtype_is_float(t)) return mb_error(b, c, "a number's type is no float");
    RETURN_IF_ERR(mb_apint(b, c, dtype_bits(t), &bits));
    struct literal lit = {shape_scalar(b->a, t), &bits, sizeof bits, NULL, false};
    *out = lit_get_f64(&lit, 0);
    return ST_OK;
}
status_t mb_signed_list(struct mb *b, struct mb_cursor *c, int64_t **out, int32_t *n) {
    RETURN_IF_ERR(mb_count(b, c, sizeof **out, n));
    *out = arena_array(b->a, int64_t, *n + 1);
    for (int32_t k = 0; k < *n; k++)
        RETURN_IF_ERR(mb_signed(b, c, &(*out)[k]));
    return ST_OK;
}

// ---- by index

status_t mb_type_at(struct mb *b, size_t k, const struct mlir_type **out) {
    struct mb_entry *e = &b->types.v[k];
    if (e->state == MB_READING) return st_invalid("type %zu is made of itself", k);
    if (e->state == MB_UNREAD) {
        const struct mlir_type *t;
        if (++b->depth > b->limits.max_depth)
            return st_exhausted("types nest deeper than %d", b->limits.max_depth);
        e->state = MB_READING;
        RETURN_IF_ERR(mb_read_type(b, e, &t));
        e->state = MB_READ;
        e->value = t;
        b->depth--;
    }
    *out = e->value;
    return ST_OK;
}
status_t mb_type(struct mb *b, struct mb_cursor *c, const struct mlir_type **out) {
    size_t k;
    RETURN_IF_ERR(mb_index(b, c, b->types.n, "type", &k));
    return mb_type_at(b, k, out);
}
status_t mb_type_list(struct mb *b, struct mb_cursor *c, const struct mlir_type ***out,
                      int32_t *n) {
    RETURN_IF_ERR(mb_count(b, c, sizeof **out, n));
    *out = arena_array(b->a, const struct mlir_type *, *n + 1);
    for (int32_t k = 0; k < *n; k++)
        RETURN_IF_ERR(mb_type(b, c, &(*out)[k]));
    return ST_OK;
}

// ---- composed types

static status_t function_type(struct mb *b, struct mb_cursor *c, struct mlir_type *out) {
    const struct mlir_type **in, **to;
    int32_t n_in, n_to;
    RETURN_IF_ERR(mb_type_list(b, c, &in, &n_in));
    RETURN_IF_ERR(mb_type_list(b, c, &to, &n_to));
    out->kind = MLIR_FUNCTION;
    out->n_in = n_in;
    out->n_elems = n_in + n_to;
    out->elems = arena_array(b->a, const struct mlir_type *, out->n_elems + 1);
    memcpy(out->elems, in, sizeof *in * (size_t)n_in);
    memcpy(out->elems + n_in, to, sizeof *to * (size_t)n_to);
    return ST_OK;
}
static status_t complex_type(struct mb *b, struct mb_cursor *c, struct mlir_type *out) {
    const struct mlir_type *part;
    RETURN_IF_ERR(mb_type(b, c, &part));
    if (part->kind != MLIR_SCALAR || (part->dtype != DT_F32 && part->dtype != DT_F64))
        return mb_error(b, c, "complex numbers are of f32 or f64");
    out->kind = MLIR_SCALAR;
    out->dtype = part->dtype == DT_F32 ? DT_C64 : DT_C128;
    return ST_OK;
}
static status_t dimensions(struct mb *b, struct mb_cursor *c, int64_t **out, int32_t *n) {
    RETURN_IF_ERR(mb_signed_list(b, c, out, n));
    for (int32_t k = 0; k < *n; k++) {
        if ((*out)[k] == INT64_MIN) (*out)[k] = -1; // dynamic
        if ((*out)[k] < -1) return mb_error(b, c, "a dimension is negative");
    }
    return ST_OK;
}
static status_t element_type(struct mb *b, struct mb_cursor *c, struct mlir_type *out) {
    const struct mlir_type *e;
    RETURN_IF_ERR(mb_type(b, c, &e));
    out->kind = MLIR_TENSOR;
    out->dtype = e->dtype;
    out->index = e->index;
    out->quant = e->quant;
    if (e->kind == MLIR_OTHER) {
        out->dtype = DT_INVALID;
        out->name = e->name;
    } else if (e->kind != MLIR_SCALAR) {
        return mb_error(b, c, "a tensor's elements are no scalars");
    }
    return ST_OK;
}
// encoded: bounds of the dimensions, or what another dialect says of it, stand before the shape.
static status_t tensor_type(struct mb *b, struct mb_cursor *c, bool encoded,
                            struct mlir_type *out) {
    const struct mlir_attr *e = NULL;
    if (encoded) RETURN_IF_ERR(mb_attr(b, c, &e));
    RETURN_IF_ERR(dimensions(b, c, &out->dims, &out->rank));
    RETURN_IF_ERR(element_type(b, c, out));
    if (!e || e->kind != MLIR_A_INTS) return ST_OK;
    if (e->n != out->rank) return mb_error(b, c, "%d bounds for %d dimensions", e->n, out->rank);
    out->bounds = arena_array(b->a, int64_t, out->rank + 1);
    for (int32_t d = 0; d < out->rank; d++)
        out->bounds[d] = e->ints[d] == INT64_MIN ? -1 : e->ints[d];
    return ST_OK;
}

// ---- quantised types

static status_t quant_numbers(struct mb *b, struct mb_cursor *c, bool by_axis,
                              struct mlir_quant *q) {
    if (!by_axis) {
        q->axis = -1;
        q->n = 1;
        q->scales = arena_array(b->a, double, 1);
        q->zero_points = arena_array(b->a, int64_t, 1);
        RETURN_IF_ERR(mb_apfloat(b, c, DT_F64, q->scales));
        RETURN_IF_ERR(mb_signed(b, c, q->zero_points));
    } else {
        int64_t axis;
        RETURN_IF_ERR(mb_signed(b, c, &axis));
        if (axis < 0 || axis >= HLO_MAX_RANK) return mb_error(b, c, "an axis is not valid");
        q->axis = (int32_t)axis;
    }
    return ST_OK;
}
static status_t axis_numbers(struct mb *b, struct mb_cursor *c, struct mlir_quant *q) {
    int32_t n;
    RETURN_IF_ERR(mb_count(b, c, sizeof *q->scales, &q->n));
    q->scales = arena_array(b->a, double, q->n + 1);
    for (int32_t k = 0; k < q->n; k++)
        RETURN_IF_ERR(mb_apfloat(b, c, DT_F64, &q->scales[k]));
    RETURN_IF_ERR(mb_signed_list(b, c, &q->zero_points, &n));
    return n == q->n ? ST_OK : mb_error(b, c, "%d scales and %d zero points", q->n, n);
}
static status_t quant_type(struct mb *b, struct mb_cursor *c, bool by_axis, struct mlir_type *out) {
    struct mlir_quant *q = arena_new_of(b->a, struct mlir_quant);
    const struct mlir_type *storage, *expressed;
    uint64_t flags;
    RETURN_IF_ERR(mb_int(b, c, &flags));
    RETURN_IF_ERR(mb_type(b, c, &storage));
    RETURN_IF_ERR(mb_type(b, c, &expressed));
    if (storage->kind != MLIR_SCALAR || expressed->kind != MLIR_SCALAR ||
        !dtype_is_int(storage->dtype) || !dtype_is_float(expressed->dtype))
        return mb_error(b, c, "a quantised type is not of an integer and a float");
    q->storage = storage->dtype;
    q->expressed = expressed->dtype;
    if (!(flags & 1) && dtype_class(q->storage) == DC_SIGNED) // the flag tells what i8 stands for
        q->storage = mlir_dtype(str_of(arena_printf(b->a, "u%s", mlir_dtype_text(q->storage))));
    RETURN_IF_ERR(quant_numbers(b, c, by_axis, q));
    RETURN_IF_ERR(mb_signed(b, c, &q->storage_min));
    RETURN_IF_ERR(mb_signed(b, c, &q->storage_max));
    if (by_axis) RETURN_IF_ERR(axis_numbers(b, c, q));
    const char *wrong = mlir_quant_wrong(q);
    if (wrong) return mb_error(b, c, "a quantised type %s", wrong);
    out->kind = MLIR_SCALAR;
    out->dtype = q->storage;
    out->quant = q;
    return ST_OK;
}

// ---- VHLO

enum { // codes of types that are made of others
    V_COMPLEX = 1,
    V_FUNCTION = 8,
    V_INDEX = 9,
    V_TENSOR = 20,
    V_ENCODED_TENSOR = 21,
    V_TOKEN = 22,
    V_TUPLE = 23,
    V_QUANT = 24,
    V_UNRANKED = 25,
    V_WITNESS = 26,
    V_QUANT_AXIS = 30,
    V_NONE = 33,
    V_TF32 = 34,
    V_F6E2M3 = 38,
    V_F6E3M2 = 39,
    V_BUFFER = 41,
    V_FUTURE = 42,
};
static const enum dtype vhlo_scalars[] = {
    [0] = DT_PRED,      [2] = DT_BF16,        [3] = DT_F16,         [4] = DT_F32,
    [5] = DT_F64,       [6] = DT_F8E4M3FN,    [7] = DT_F8E5M2,      [10] = DT_S4,
    [11] = DT_S8,       [12] = DT_S16,        [13] = DT_S32,        [14] = DT_S64,
    [15] = DT_U4,       [16] = DT_U8,         [17] = DT_U16,        [18] = DT_U32,
    [19] = DT_U64,      [27] = DT_F8E4M3FNUZ, [28] = DT_F8E5M2FNUZ, [29] = DT_F8E4M3B11FNUZ,
    [31] = DT_S2,       [32] = DT_U2,         [35] = DT_F8E4M3,     [36] = DT_F8E3M4,
    [37] = DT_F4E2M1FN, [40] = DT_F8E8M0FNU,
};
static status_t named_type(struct mlir_type *out, const char *name) {
    out->kind = MLIR_OTHER;
    out->name = name;
    return ST_OK;
}
// Types that are kept as their text.
static status_t printed_type(struct mb *b, struct strbuf *text, struct mlir_type *out) {
    status_t st = mb_spend(b, (int64_t)text->n);
    *out = (struct mlir_type){.kind = MLIR_OTHER};
    if (!st) out->name = arena_strdup(b->a, strbuf_cstr(text));
    strbuf_done(text);
    return st;
}
static status_t buffer_type(struct mb *b, struct mb_cursor *c, struct mlir_type *out) {
    static const size_t word = sizeof "tensor" - 1;
    struct strbuf tensor = {0}, text = {0};
    RETURN_IF_ERR(tensor_type(b, c, false, out));
    mlir_print_type(&tensor, out);
    strbuf_printf(&text, "memref%s", strbuf_cstr(&tensor) + word);
    strbuf_done(&tensor);
    return printed_type(b, &text, out);
}
static status_t future_type(struct mb *b, struct mb_cursor *c, struct mlir_type *out) {
    const struct mlir_type **of;
    struct strbuf text = {0};
    int32_t n;
    RETURN_IF_ERR(mb_type_list(b, c, &of, &n));
    strbuf_limit(&text, 1 << 16);
    strbuf_puts(&text, "!stablehlo.future<");
    for (int32_t k = 0; k < n; k++) {
        if (k) strbuf_puts(&text, ", ");
        mlir_print_type(&text, of[k]);
    }
    strbuf_puts(&text, ">");
    return printed_type(b, &text, out);
}
status_t mb_vhlo_type(struct mb *b, struct mb_cursor *c, uint64_t code, struct mlir_type *out) {
    size_t n = sizeof vhlo_scalars / sizeof *vhlo_scalars;
    switch (code) {
    case V_COMPLEX:
        return complex_type(b, c, out);
    case V_FUNCTION:
        return function_type(b, c, out);
    case V_INDEX:
        *out = (struct mlir_type){.kind = MLIR_SCALAR, .dtype = DT_S64, .index = true};
        return ST_OK;
    case V_TENSOR:
    case V_ENCODED_TENSOR:
        return tensor_type(b, c, code == V_ENCODED_TENSOR, out);
    case V_TOKEN:
        out->kind = MLIR_TOKEN;
        return ST_OK;
    case V_TUPLE:
        out->kind = MLIR_TUPLE;
        return mb_type_list(b, c, &out->elems, &out->n_elems);

    case V_QUANT:
    case V_QUANT_AXIS:
        return quant_type(b, c, code == V_QUANT_AXIS, out);
    case V_UNRANKED:
        out->rank = -1;
        return element_type(b, c, out);
    case V_WITNESS:
        return named_type(out, "!shape.witness");
    case V_NONE:
        out->kind = MLIR_NONE;
        return ST_OK;
    case V_TF32:
        return named_type(out, "tf32");
    case V_F6E2M3:
        return named_type(out, "f6E2M3FN");
    case V_F6E3M2:
        return named_type(out, "f6E3M2FN");

    case V_BUFFER:
        return buffer_type(b, c, out);
    case V_FUTURE:
        return future_type(b, c, out);
    default:
        if (code >= n || vhlo_scalars[code] == DT_INVALID)
            return mb_error(b, c, "VHLO type %llu is not known", (unsigned long long)code);
        *out = (struct mlir_type){.kind = MLIR_SCALAR, .dtype = vhlo_scalars[code]};
        return ST_OK;
    }
}

// ---- builtin

// (bits << 2) | 0 signless, 1 signed, 2 unsigned
static status_t integer_type(struct mb *b, struct mb_cursor *c, struct mlir_type *out) {
    uint64_t v;
    RETURN_IF_ERR(mb_int(b, c, &v));
    bool is_unsigned = (v & 3) == 2;
    char *name = arena_printf(b->a, "%s%llu", is_unsigned ? "ui" : "i", (unsigned long long)v >> 2);
    *out = (struct mlir_type){.kind = MLIR_SCALAR, .dtype = mlir_dtype(str_of(name))};
    return out->dtype == DT_INVALID ? named_type(out, name) : ST_OK;
}
status_t mb_builtin_type(struct mb *b, struct mb_cursor *c, uint64_t code, struct mlir_type *out) {
    static const enum dtype floats[] = {[3] = DT_BF16, [4] = DT_F16, [5] = DT_F32, [6] = DT_F64};
    switch (code) {
    case 0:
        return integer_type(b, c, out);
    case 1:
        return mb_vhlo_type(b, c, V_INDEX, out);
    case 2:
        return function_type(b, c, out);
    case 3:
    case 4:
    case 5:
    case 6:
        *out = (struct mlir_type){.kind = MLIR_SCALAR, .dtype = floats[code]};
        return ST_OK;
    case 9:
        return complex_type(b, c, out);

    case 12:
        out->kind = MLIR_NONE;
        return ST_OK;
    case 13:
        return tensor_type(b, c, false, out);
    case 14:
        return tensor_type(b, c, true, out);
    case 15:
        return mb_vhlo_type(b, c, V_TUPLE, out);
    case 18:
        return mb_vhlo_type(b, c, V_UNRANKED, out);
    default:
        c->p = c->end; // its fields are not read
        return named_type(out, arena_printf(b->a, "!builtin.type%llu", (unsigned long long)code));
    }
}

status_t mb_read_type(struct mb *b, struct mb_entry *e, const struct mlir_type **out) {
    struct mlir_type *t = arena_new_of(b->a, struct mlir_type);
    struct mb_cursor c = mb_open(e->data);
    uint64_t code;
    RETURN_IF_ERR(mb_spend(b, sizeof *t));
    *out = t;
    if (!e->custom) {
        size_t n = e->data.n && !e->data.p[e->data.n - 1] ? e->data.n - 1 : e->data.n;
        return named_type(t, arena_strndup(b->a, (const char *)e->data.p, n));
    }
    RETURN_IF_ERR(mb_int(b, &c, &code));
    if (str_is(e->dialect, "vhlo"))
        RETURN_IF_ERR(mb_vhlo_type(b, &c, code, t));
    else if (str_is(e->dialect, "builtin"))
        RETURN_IF_ERR(mb_builtin_type(b, &c, code, t));
    else
        return named_type(t, arena_printf(b->a, "!%.*s.type", STR_ARG(e->dialect)));
    return c.p == c.end ? ST_OK : mb_error(b, &c, "a type has bytes too many");
}
