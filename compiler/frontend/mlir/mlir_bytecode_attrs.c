// SPDX-License-Identifier: Apache-2.0
// Attributes of bytecode: VHLO's own and the builtin ones.
#include <string.h>

#include "compiler/frontend/mlir/mlir_bytecode_reader.h"
#include "compiler/ir/shape.h"

// ---- by index

status_t mb_attr_at(struct mb *b, size_t k, const struct mlir_attr **out) {
    struct mb_entry *e = &b->attrs.v[k];
    if (e->state == MB_READING) return st_invalid("attribute %zu is made of itself", k);
    if (e->state == MB_UNREAD) {
        const struct mlir_attr *t;
        if (++b->depth > b->limits.max_depth)
            return st_exhausted("attributes nest deeper than %d", b->limits.max_depth);
        e->state = MB_READING;
        RETURN_IF_ERR(mb_read_attr(b, e, &t));
        e->state = MB_READ;
        e->value = t;
        b->depth--;
    }
    *out = e->value;
    return ST_OK;
}
status_t mb_attr(struct mb *b, struct mb_cursor *c, const struct mlir_attr **out) {
    size_t k;
    RETURN_IF_ERR(mb_index(b, c, b->attrs.n, "attribute", &k));
    return mb_attr_at(b, k, out);
}
static status_t string_attr(struct mb *b, struct mb_cursor *c, struct str *out) {
    const struct mlir_attr *t;
    RETURN_IF_ERR(mb_attr(b, c, &t));
    if (t->kind != MLIR_A_STRING) return mb_error(b, c, "a name is no string");
    *out = t->s;
    return ST_OK;
}

// ---- lists

static status_t array(struct mb *b, struct mb_cursor *c, struct mlir_attr *out) {
    out->kind = MLIR_A_ARRAY;
    RETURN_IF_ERR(mb_count(b, c, sizeof *out->list, &out->n));
    out->list = arena_array(b->a, const struct mlir_attr *, out->n + 1);
    for (int32_t k = 0; k < out->n; k++)
        RETURN_IF_ERR(mb_attr(b, c, &out->list[k]));
    return ST_OK;
}
static status_t dictionary(struct mb *b, struct mb_cursor *c, struct mlir_attr *out) {
    out->kind = MLIR_A_DICT;
    RETURN_IF_ERR(mb_count(b, c, sizeof *out->dict, &out->n));
    out->dict = arena_array(b->a, struct mlir_named, out->n + 1);
    int32_t kept = 0;
    for (int32_t k = 0; k < out->n; k++) {
        struct mlir_named *x = &out->dict[kept];
        RETURN_IF_ERR(string_attr(b, c, &x->name));
        RETURN_IF_ERR(mb_attr(b, c, &x->attr));
        if (x->attr->kind != MLIR_A_MISSING) kept++;
    }
    out->n = kept;
    mlir_sort_named(out->dict, (size_t)out->n);
    return ST_OK;
}
static struct mlir_attr *new_attr(struct mb *b, enum mlir_attr_kind kind) {
    struct mlir_attr *x = arena_new_of(b->a, struct mlir_attr);
    x->kind = kind;
    x->weight = -1;
    return x;
}
// A structure whose fields stand in the order of their names.
static void structure(struct mb *b, struct mlir_attr *out, int32_t n, const char *const *names,
                      const struct mlir_attr *const *fields) {
    out->kind = MLIR_A_DICT;
    out->n = n;
    out->dict = arena_array(b->a, struct mlir_named, n);
    for (int32_t k = 0; k < n; k++)
        out->dict[k] = (struct mlir_named){str_of(names[k]), fields[k]};
}

// ---- numbers

static status_t integer(struct mb *b, struct mb_cursor *c, struct mlir_attr *out) {
    RETURN_IF_ERR(mb_type(b, c, &out->type));
    enum dtype t = out->type->dtype;
    if (out->type->kind != MLIR_SCALAR || (!dtype_is_int(t) && t != DT_PRED))
        return mb_error(b, c, "an integer's type is none");
    int bits = t == DT_PRED ? 1 : dtype_bits(t);
    out->kind = t == DT_PRED ? MLIR_A_BOOL : MLIR_A_INT;
    RETURN_IF_ERR(mb_apint(b, c, bits, &out->i));
    if (dtype_class(t) == DC_UNSIGNED && bits < 64) out->i &= (INT64_C(1) << bits) - 1;
    if (t == DT_PRED) out->i &= 1;
    return ST_OK;
}
static status_t floating(struct mb *b, struct mb_cursor *c, struct mlir_attr *out) {
    out->kind = MLIR_A_FLOAT;
    RETURN_IF_ERR(mb_type(b, c, &out->type));
    if (out->type->kind != MLIR_SCALAR) return mb_error(b, c, "a float's type is none");
    return mb_apfloat(b, c, out->type->dtype, &out->f);
}
static status_t boolean(struct mb *b, struct mb_cursor *c, struct mlir_attr *out) {
    uint64_t v;
    RETURN_IF_ERR(mb_int(b, c, &v));
    if (v > 1) return mb_error(b, c, "a boolean is %llu", (unsigned long long)v);
    out->kind = MLIR_A_BOOL;
    out->i = (int64_t)v;
    return ST_OK;
}
static status_t integers(struct mb *b, struct mb_cursor *c, struct mlir_attr *out) {
    out->kind = MLIR_A_INTS;
    return mb_signed_list(b, c, &out->ints, &out->n);
}

// ---- elements

// i1 are bits, which become bytes; one byte of eight equal bits is a splat.
static status_t unpack(struct mb *b, struct mb_cursor *c, struct mlir_attr *out, int64_t n) {
    const uint8_t *bits = out->bytes.p;
    size_t have = out->bytes.n;
    bool each = have == (size_t)n, splat = have == 1 && n > 1 && (*bits == 0 || *bits == 0xFF);
    if (!each && !splat && have != (size_t)(n + 7) / 8)
        return mb_error(b, c, "%zu bytes for %lld elements of i1", have, (long long)n);
    size_t to = splat ? 1 : (size_t)n;
    RETURN_IF_ERR(mb_spend(b, (int64_t)to));
    uint8_t *v = arena_alloc(b->a, to + 1);
    for (size_t k = 0; k < to; k++)
        v[k] = each ? bits[k] & 1 : bits[k / 8] >> k % 8 & 1;
    out->bytes = (struct span){v, to};
    out->splat = splat;
    return ST_OK;
}
static status_t dense(struct mb *b, struct mb_cursor *c, struct mlir_attr *out) {
    uint64_t size;
    out->kind = MLIR_A_DENSE;
    RETURN_IF_ERR(mb_type(b, c, &out->type));
    RETURN_IF_ERR(mb_int(b, c, &size));
    RETURN_IF_ERR(mb_bytes(b, c, size, &out->bytes));
    int64_t n = mlir_type_elements(out->type);
    if (n < 0 || out->type->rank > HLO_MAX_RANK)
        return mb_error(b, c, "dense elements must have a static tensor type");
    if (out->type->quant) { // elements are what is stored
        struct mlir_type *as = arena_dup(b->a, out->type, sizeof *as);
        as->quant = NULL;
        out->type = as;
    }

    if (out->type->name) return ST_OK; // elements of a type that is not known
    if (out->type->dtype == DT_PRED) return unpack(b, c, out, n);
    size_t one = (size_t)dtype_size(out->type->dtype), all;
    if (__builtin_mul_overflow((size_t)n, one, &all))
        return mb_error(b, c, "%lld elements are too many", (long long)n);
    out->splat = n > 1 && out->bytes.n == one;
    if (!n && out->bytes.n == one) out->bytes.n = 0;
    if (!out->splat && out->bytes.n != all)
        return mb_error(b, c, "%zu bytes of elements for a type that has %zu", out->bytes.n, all);
    out->bytes = dtype_whole_codes(b->a, out->type->dtype, out->bytes);
    return ST_OK;
}
static status_t dense_array(struct mb *b, struct mb_cursor *c, struct mlir_attr *out) {
    uint64_t n, size;
    out->kind = MLIR_A_INTS;
    RETURN_IF_ERR(mb_type(b, c, &out->type));
    RETURN_IF_ERR(mb_int(b, c, &n));
    RETURN_IF_ERR(mb_int(b, c, &size));
    RETURN_IF_ERR(mb_bytes(b, c, size, &out->bytes));
    enum dtype t = out->type->dtype;
    if (out->type->kind != MLIR_SCALAR || (!dtype_is_int(t) && t != DT_PRED))
        return mb_error(b, c, "an array of other things than integers");
    size_t one = (size_t)dtype_size(t);
    if (n > out->bytes.n || n * one != out->bytes.n)
        return mb_error(b, c, "an array's bytes do not fit its length");
    RETURN_IF_ERR(mb_spend(b, (int64_t)(n * sizeof *out->ints)));
    out->n = (int32_t)n;
    out->ints = arena_array(b->a, int64_t, n + 1);
    for (size_t k = 0; k < n; k++) {
        uint64_t v = 0;
        int unused = 64 - 8 * (int)one;
        memcpy(&v, out->bytes.p + k * one, one);
        out->ints[k] = (int64_t)(v << unused) >> unused;
    }
    out->bytes = (struct span){0};
    return ST_OK;
}

// ---- structures

static status_t output_alias(struct mb *b, struct mb_cursor *c, struct mlir_attr *out) {
    static const char *const names[] = {"operand_index", "operand_tuple_indices",
                                        "output_tuple_indices"};
    struct mlir_attr *index = new_attr(b, MLIR_A_INT), *in = new_attr(b, MLIR_A_INTS),
                     *to = new_attr(b, MLIR_A_INTS);
    RETURN_IF_ERR(integers(b, c, to));
    RETURN_IF_ERR(mb_signed(b, c, &index->i));
    RETURN_IF_ERR(integers(b, c, in));
    structure(b, out, 3, names, (const struct mlir_attr *[]){index, in, to});
    return ST_OK;
}
static status_t result_accuracy(struct mb *b, struct mb_cursor *c, struct mlir_attr *out) {
    static const char *const names[] = {"atol", "mode", "rtol", "ulps"};
    struct mlir_attr *atol = new_attr(b, MLIR_A_FLOAT), *rtol = new_attr(b, MLIR_A_FLOAT),
                     *ulps = new_attr(b, MLIR_A_INT);
    const struct mlir_attr *mode;
    RETURN_IF_ERR(mb_apfloat(b, c, DT_F64, &atol->f));
    RETURN_IF_ERR(mb_apfloat(b, c, DT_F64, &rtol->f));
    RETURN_IF_ERR(mb_signed(b, c, &ulps->i));
    RETURN_IF_ERR(mb_attr(b, c, &mode));
    structure(b, out, 4, names, (const struct mlir_attr *[]){atol, mode, rtol, ulps});
    return ST_OK;
}

static status_t sub_axis(struct mb *b, struct mb_cursor *c, struct mlir_attr *out) {
    static const char *const names[] = {"pre_size", "size"};
    struct mlir_attr *before = new_attr(b, MLIR_A_INT), *size = new_attr(b, MLIR_A_INT);
    RETURN_IF_ERR(mb_signed(b, c, &before->i));
    RETURN_IF_ERR(mb_signed(b, c, &size->i));
    structure(b, out, 2, names, (const struct mlir_attr *[]){before, size});
    return ST_OK;
}
static status_t axis_ref(struct mb *b, struct mb_cursor *c, struct mlir_attr *out) {
    static const char *const names[] = {"name", "sub_axis_info"};
    const struct mlir_attr *v[2];
    uint64_t parts;
    RETURN_IF_ERR(mb_attr(b, c, &v[0]));
    RETURN_IF_ERR(mb_int(b, c, &parts));
    if (parts) RETURN_IF_ERR(mb_attr(b, c, &v[1]));
    structure(b, out, parts ? 2 : 1, names, v);
    return ST_OK;
}
static status_t mesh_axes(struct mb *b, struct mb_cursor *c, struct mlir_attr *out) {
    static const char *const names[] = {"axes", "mesh"};
    const struct mlir_attr *mesh, *axes;
    RETURN_IF_ERR(mb_attr(b, c, &mesh));
    RETURN_IF_ERR(mb_attr(b, c, &axes));
    structure(b, out, 2, names, (const struct mlir_attr *[]){axes, mesh});
    return ST_OK;
}

// ---- VHLO

static const struct {
    uint64_t code;
    const char *family;
    const char *names[6];
} enums[] = {
    {3, "comparison_direction", {"EQ", "NE", "GE", "GT", "LE", "LT"}},
    {4, "comparison_type", {"NOTYPE", "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED"}},
    {5,
     "api_version",
     {"API_VERSION_UNSPECIFIED", "API_VERSION_ORIGINAL", "API_VERSION_STATUS_RETURNING",
      "API_VERSION_STATUS_RETURNING_UNIFIED", "API_VERSION_TYPED_FFI"}},
    {7, "fft_type", {"FFT", "IFFT", "RFFT", "IRFFT"}},
    {11, "precision", {"DEFAULT", "HIGH", "HIGHEST"}},
    {12, "rng_algorithm", {"DEFAULT", "THREE_FRY", "PHILOX"}},
    {13, "rng_distribution", {NULL, "UNIFORM", "NORMAL"}},
    {16, "transpose", {"TRANSPOSE_INVALID", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"}},
    {19, "result_accuracy_mode", {"DEFAULT", "HIGHEST", "TOLERANCE"}},
};
static status_t enumerator(struct mb *b, struct mb_cursor *c, uint64_t code,
                           struct mlir_attr *out) {
    uint64_t v;
    for (size_t k = 0; k < sizeof enums / sizeof *enums; k++) {
        if (enums[k].code != code) continue;
        RETURN_IF_ERR(mb_int(b, c, &v));
        if (v >= 6 || !enums[k].names[v])
            return mb_error(b, c, "%s %llu is not known", enums[k].family, (unsigned long long)v);
        out->kind = MLIR_A_ENUM;
        out->of = str_of(enums[k].family);
        out->s = str_of(enums[k].names[v]);
        return ST_OK;
    }
    return mb_error(b, c, "VHLO attribute %llu is not known", (unsigned long long)code);
}
static status_t type_attr(struct mb *b, struct mb_cursor *c, struct mlir_attr *out) {
    RETURN_IF_ERR(mb_type(b, c, &out->type));
    out->kind = out->type->kind == MLIR_NONE ? MLIR_A_MISSING : MLIR_A_TYPE;
    return ST_OK;
}
static status_t vhlo_string(struct mb *b, struct mb_cursor *c, struct mlir_attr *out) {
    out->kind = MLIR_A_STRING;
    return mb_text(b, c, &out->s);
}
static status_t vhlo_attr(struct mb *b, struct mb_cursor *c, uint64_t code, struct mlir_attr *out) {
    static status_t (*const readers[])(struct mb *b, struct mb_cursor *c, struct mlir_attr *out) = {
        [1] = array,      [2] = boolean,       [6] = dictionary,       [8] = floating,
        [9] = integer,    [10] = output_alias, [14] = vhlo_string,     [15] = dense,
        [17] = type_attr, [18] = integers,     [20] = result_accuracy, [21] = sub_axis,
        [22] = axis_ref,  [23] = mesh_axes};
    if (code < sizeof readers / sizeof *readers && readers[code]) return readers[code](b, c, out);
    return enumerator(b, c, code, out);
}

// ---- builtin

static status_t symbol(struct mb *b, struct mb_cursor *c, bool nested, struct mlir_attr *out) {
    struct mlir_attr path = {0};
    out->kind = MLIR_A_SYMBOL;
    RETURN_IF_ERR(string_attr(b, c, &out->s));
    return nested ? array(b, c, &path) : ST_OK;
}
static status_t builtin_attr(struct mb *b, struct mb_cursor *c, uint64_t code,
                             struct mlir_attr *out) {
    switch (code) {
    case 0:
        return array(b, c, out);
    case 1:
        return dictionary(b, c, out);
    case 2:
        out->kind = MLIR_A_STRING;
        return mb_text(b, c, &out->s);
    case 3:
        out->kind = MLIR_A_STRING;
        RETURN_IF_ERR(mb_text(b, c, &out->s));
        return mb_type(b, c, &out->type);
    case 4:
    case 5:
        return symbol(b, c, code == 5, out);
    case 6:
        return type_attr(b, c, out);

    case 7:
        out->kind = MLIR_A_UNIT;
        return ST_OK;
    case 8:
        return integer(b, c, out);
    case 9:
        return floating(b, c, out);
    case 17:
        return dense_array(b, c, out);
    case 18:
        return dense(b, c, out);
    default:
        c->p = c->end; // its fields are not read
        out->kind = MLIR_A_OTHER;
        out->s = str_of(arena_printf(b->a, "#builtin.attr%llu", (unsigned long long)code));
        return ST_OK;
    }
}
status_t mb_read_attr(struct mb *b, struct mb_entry *e, const struct mlir_attr **out) {
    struct mb_cursor c = mb_open(e->data);
    uint64_t code;
    RETURN_IF_ERR(mb_spend(b, sizeof **out));
    struct mlir_attr *x = new_attr(b, MLIR_A_OTHER);
    *out = x;
    if (!e->custom) {
        size_t n = e->data.n && !e->data.p[e->data.n - 1] ? e->data.n - 1 : e->data.n;
        x->s = (struct str){(const char *)e->data.p, n};
        return ST_OK;
    }
    RETURN_IF_ERR(mb_int(b, &c, &code));
    if (str_is(e->dialect, "vhlo")) {
        RETURN_IF_ERR(vhlo_attr(b, &c, code, x));
    } else if (str_is(e->dialect, "builtin")) {
        RETURN_IF_ERR(builtin_attr(b, &c, code, x));
    } else {
        x->kind = MLIR_A_MISSING; // what other dialects encode in their own way (sdy.sharding)
        return ST_OK;
    }
    return c.p == c.end ? ST_OK : mb_error(b, &c, "an attribute has bytes too many");
}
