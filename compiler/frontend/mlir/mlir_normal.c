// SPDX-License-Identifier: Apache-2.0
// One form for what the text and VHLO spell differently.
#include <string.h>

#include "compiler/frontend/mlir/mlir.h"
#include "compiler/ir/literal.h"

enum attr_rule { STRUCT, INTS, INT, BOOL, ENUM, STRING, ARRAY, PRECISION, ACCURACY };
static const struct row {
    const char *name;
    enum attr_rule rule;
    const char *usual; // text of the default
} rows[] = {
#define ATTR(name, rule, usual) {#name, rule, #usual},
#include "compiler/frontend/mlir/mlir_attrs.def"
#undef ATTR
};
enum { N_ROWS = sizeof rows / sizeof *rows };

static const struct row *row_of(struct str name) {
    for (size_t k = 0; k < N_ROWS; k++)
        if (str_is(name, rows[k].name)) return &rows[k];
    return NULL;
}

// ---- one attribute

// Names of API versions, which text gives by number.
static int64_t api_version(const struct mlir_attr *t) {
    static const char *const names[] = {
        "API_VERSION_UNSPECIFIED", "API_VERSION_ORIGINAL", "API_VERSION_STATUS_RETURNING",
        "API_VERSION_STATUS_RETURNING_UNIFIED", "API_VERSION_TYPED_FFI"};
    for (int k = 0; k < 5; k++)
        if (str_is(t->s, names[k])) return k;
    return -1;
}
static const struct mlir_attr *as_int(struct arena *a, const struct mlir_attr *t) {
    struct mlir_attr *x = arena_new_of(a, struct mlir_attr);
    *x = (struct mlir_attr){.kind = MLIR_A_INT, .i = t->i, .weight = -1};
    if (t->kind == MLIR_A_ENUM) x->i = api_version(t);
    return x;
}
// Dense integers or booleans, or a list of either, as integers; NULL: it is neither.
static const struct mlir_attr *as_ints(struct arena *a, const struct mlir_attr *t) {
    int64_t n = t->kind == MLIR_A_DENSE ? mlir_type_elements(t->type) : t->n;
    struct literal lit = {0};
    if (t->kind == MLIR_A_DENSE) {
        if (n < 0 || n > INT32_MAX || t->weight >= 0) return NULL;
        if (!dtype_is_int(t->type->dtype) && t->type->dtype != DT_PRED) return NULL;
        int64_t held = (int64_t)t->bytes.n / dtype_size(t->type->dtype);
        if (n && held < (t->splat ? 1 : n)) return NULL;
        lit = (struct literal){shape_make(a, t->type->dtype, &held, 1),
                               (void *)(uintptr_t)t->bytes.p, t->bytes.n, NULL, false};
    } else if (t->kind != MLIR_A_INTS && t->kind != MLIR_A_ARRAY) {
        return NULL;
    }
    struct mlir_attr *x = arena_new_of(a, struct mlir_attr);
    *x = (struct mlir_attr){.kind = MLIR_A_INTS, .n = (int32_t)n, .weight = -1};
    x->ints = arena_zarray(a, int64_t, n + 1);
    for (int64_t k = 0; k < n; k++) {
        if (t->kind == MLIR_A_INTS)
            x->ints[k] = t->ints[k];
        else if (t->kind == MLIR_A_DENSE)
            x->ints[k] = lit_get_i64(&lit, t->splat ? 0 : k);
        else if (t->list[k]->kind == MLIR_A_INT || t->list[k]->kind == MLIR_A_BOOL)
            x->ints[k] = t->list[k]->i;
        else
            return NULL;
    }
    return x;
}
static bool all_default(const struct mlir_attr *t) {
    for (int32_t k = 0; k < t->n; k++)
        if (t->list[k]->kind != MLIR_A_ENUM || !str_is(t->list[k]->s, "DEFAULT")) return false;
    return true;
}
static bool default_accuracy(const struct mlir_attr *t) {
    const struct mlir_attr *mode = t->kind == MLIR_A_DICT ? mlir_dict_attr(t, "mode") : t;
    return !mode || (mode->kind == MLIR_A_ENUM && str_is(mode->s, "DEFAULT"));
}
// Does it say what a missing one means?
static bool usual(const struct row *r, const struct mlir_attr *t) {
    int64_t v;
    bool number = str_to_i64(str_of(r->usual), &v), empty = strcmp(r->usual, "EMPTY") == 0;
    switch (r->rule) {
    case STRUCT:
        return false;
    case INTS:
        for (int32_t k = 0; number && k < t->n; k++)
            if (t->ints[k] != v) return false;
        return number || (empty && t->n == 0);
    case INT:
    case BOOL:
        return number && t->i == v;
    case ENUM:
        return str_is(t->s, r->usual);
    case STRING:
        return (t->kind == MLIR_A_STRING && !t->s.n) || (t->kind == MLIR_A_DICT && !t->n);
    case ARRAY:
        return (t->kind == MLIR_A_ARRAY || t->kind == MLIR_A_DICT) && t->n == 0;
    case PRECISION:
        return t->kind == MLIR_A_ARRAY && all_default(t);
    case ACCURACY:
        return default_accuracy(t);
    }
    return false;
}

// ---- attributes of an operation

typedef VEC(struct mlir_named) named_vec;

static bool kind_fits(enum attr_rule rule, const struct mlir_attr *t) {
    switch (rule) {
    case INT:
        return t->kind == MLIR_A_INT || (t->kind == MLIR_A_ENUM && api_version(t) >= 0);
    case BOOL:
        return t->kind == MLIR_A_BOOL || t->kind == MLIR_A_UNIT || t->kind == MLIR_A_INT;
    case ENUM:
        return t->kind == MLIR_A_ENUM;
    default:
        return true;
    }
}
static status_t put(struct arena *a, const struct mlir_op *op, struct mlir_named x, int depth,
                    named_vec *out);
static status_t put_fields(struct arena *a, const struct mlir_op *op, const struct mlir_attr *t,
                           int depth, named_vec *out) {
    for (int32_t k = 0; k < t->n; k++)
        RETURN_IF_ERR(put(a, op, t->dict[k], depth + 1, out));
    return ST_OK;
}
static status_t put(struct arena *a, const struct mlir_op *op, struct mlir_named x, int depth,
                    named_vec *out) {
    const struct row *r = row_of(x.name);
    if (x.attr->kind == MLIR_A_MISSING) return ST_OK;
    if (r && r->rule == STRUCT && x.attr->kind == MLIR_A_DICT && depth == 0)
        return put_fields(a, op, x.attr, depth, out);

    if (r && !kind_fits(r->rule, x.attr))
        return st_invalid("%.*s: attribute '%.*s' has a value of another kind", (int)op->name.n,
                          op->name.p, (int)x.name.n, x.name.p);
    if (r && r->rule == INTS) {
        const struct mlir_attr *ints = as_ints(a, x.attr);
        if (!ints)
            return st_invalid("%.*s: attribute '%.*s' must be integers", (int)op->name.n,
                              op->name.p, (int)x.name.n, x.name.p);
        x.attr = ints;
    } else if (r && r->rule == INT) {
        x.attr = as_int(a, x.attr);
    } else if (r && r->rule == BOOL) {
        struct mlir_attr *yes = arena_new_of(a, struct mlir_attr);
        *yes = (struct mlir_attr){.kind = MLIR_A_BOOL, .weight = -1};
        yes->i = x.attr->kind == MLIR_A_UNIT || x.attr->i != 0;
        x.attr = yes;
    }
    if (!r || !usual(r, x.attr)) avec_push(a, out, x);
    return ST_OK;
}
// A constant whose elements are all the same is a splat.
static void make_splat(struct arena *a, struct mlir_named *x) {
    const struct mlir_attr *t = x->attr;
    if (t->kind != MLIR_A_DENSE || t->splat || t->weight >= 0 || !t->bytes.n) return;
    size_t size = (size_t)dtype_size(t->type->dtype);
    if (!size || t->bytes.n < size) return;
    if (t->bytes.n > size && memcmp(t->bytes.p, t->bytes.p + size, t->bytes.n - size) != 0) return;
    struct mlir_attr *s = arena_dup(a, t, sizeof *t);
    s->splat = true;
    s->bytes.n = size;
    x->attr = s;
}
static status_t normal_op(struct mlir_module *m, struct mlir_op *op) {
    named_vec v = {0};
    for (size_t k = 0; k < op->attrs.n; k++)
        RETURN_IF_ERR(put(m->arena, op, op->attrs.v[k], 0, &v));
    for (size_t k = 0; k < v.n; k++)
        make_splat(m->arena, &v.v[k]);
    mlir_sort_named(v.v, v.n);
    for (size_t k = 1; k < v.n; k++)
        if (str_eq(v.v[k - 1].name, v.v[k].name))
            return st_invalid("%.*s: attribute '%.*s' is there twice", (int)op->name.n, op->name.p,
                              (int)v.v[k].name.n, v.v[k].name.p);
    op->attrs.v = v.v;
    op->attrs.n = v.n;
    op->attrs.cap = v.cap;
    return ST_OK;
}
static status_t normal_region(struct mlir_module *m, const struct mlir_region *r) {
    for (size_t k = 0; k < r->ops.n; k++) {
        struct mlir_op *op = r->ops.v[k];
        status_t st = normal_op(m, op);
        if (st) return st_note(st, "%s %lld", m->where, (long long)op->at);
        for (int32_t i = 0; i < op->n_regions; i++)
            RETURN_IF_ERR(normal_region(m, &op->regions[i]));
    }
    return ST_OK;
}
status_t mlir_normal(struct mlir_module *m) {
    mlir_sort_named(m->attrs.v, m->attrs.n);
    for (size_t k = 0; k < m->funcs.n; k++)
        RETURN_IF_ERR(normal_region(m, &m->funcs.v[k]->body));
    return ST_OK;
}
