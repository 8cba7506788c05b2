// SPDX-License-Identifier: Apache-2.0
// The tree of a StableHLO program: what readers, the normal form and the lowering share.
#include "compiler/frontend/mlir/mlir.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const struct mlir_limits mlir_default_limits = {.max_depth = 100,
                                                .max_ops = 1000000,
                                                .max_values = 4000000,
                                                .max_attr_bytes = INT64_C(1) << 30};

static const struct mlir_attr *find(const struct mlir_named *v, size_t n, const char *name) {
    for (size_t k = 0; k < n; k++)
        if (str_is(v[k].name, name)) return v[k].attr;
    return NULL;
}
const struct mlir_attr *mlir_op_attr(const struct mlir_op *op, const char *name) {
    return find(op->attrs.v, op->attrs.n, name);
}
const struct mlir_attr *mlir_dict_attr(const struct mlir_attr *dict, const char *name) {
    return dict ? find(dict->dict, (size_t)dict->n, name) : NULL;
}
static int by_name(const void *x, const void *y) {
    const struct mlir_named *a = x, *b = y;
    size_t n = a->name.n < b->name.n ? a->name.n : b->name.n;
    int d = memcmp(a->name.p, b->name.p, n);
    return d ? d : (a->name.n > b->name.n) - (a->name.n < b->name.n);
}
void mlir_sort_named(struct mlir_named *v, size_t n) {
    if (n) qsort(v, n, sizeof *v, by_name);
}
const struct mlir_func *mlir_find_func(const struct mlir_module *m, struct str name) {
    for (size_t k = 0; k < m->funcs.n; k++)
        if (str_eq(m->funcs.v[k]->name, name)) return m->funcs.v[k];
    return NULL;
}
uint32_t mlir_new_value(struct mlir_module *m, struct mlir_func *f, const struct mlir_type *t) {
    avec_push(m->arena, &f->values, t);
    return (uint32_t)f->values.n - 1;
}

// ---- types

// MLIR's spelling, and the signless one that means the same.
static const struct {
    enum dtype t;
    const char *text, *also;
} spellings[] = {
    {DT_PRED, "i1", NULL},
    {DT_S2, "i2", "si2"},
    {DT_S4, "i4", "si4"},
    {DT_S8, "i8", "si8"},
    {DT_S16, "i16", "si16"},
    {DT_S32, "i32", "si32"},
    {DT_S64, "i64", "si64"},
    {DT_U2, "ui2", NULL},
    {DT_U4, "ui4", NULL},
    {DT_U8, "ui8", NULL},
    {DT_U16, "ui16", NULL},
    {DT_U32, "ui32", NULL},
    {DT_U64, "ui64", NULL},
    {DT_F4E2M1FN, "f4E2M1FN", NULL},
    {DT_F8E3M4, "f8E3M4", NULL},
    {DT_F8E4M3, "f8E4M3", NULL},
    {DT_F8E4M3FN, "f8E4M3FN", NULL},
    {DT_F8E4M3B11FNUZ, "f8E4M3B11FNUZ", NULL},
    {DT_F8E4M3FNUZ, "f8E4M3FNUZ", NULL},
    {DT_F8E5M2, "f8E5M2", NULL},
    {DT_F8E5M2FNUZ, "f8E5M2FNUZ", NULL},
    {DT_F8E8M0FNU, "f8E8M0FNU", NULL},
    {DT_F16, "f16", NULL},
    {DT_BF16, "bf16", NULL},
    {DT_F32, "f32", NULL},
    {DT_F64, "f64", NULL},
    {DT_C64, "complex<f32>", NULL},
    {DT_C128, "complex<f64>", NULL},
};
enum { N_SPELLINGS = sizeof spellings / sizeof *spellings };
enum dtype mlir_dtype(struct str spelling) {
    for (int k = 0; k < N_SPELLINGS; k++)
        if (str_is(spelling, spellings[k].text) ||
            (spellings[k].also && str_is(spelling, spellings[k].also)))
            return spellings[k].t;
    return DT_INVALID;
}
const char *mlir_dtype_text(enum dtype t) {
    for (int k = 0; k < N_SPELLINGS; k++)
        if (spellings[k].t == t) return spellings[k].text;
    return "none";
}

const struct mlir_type *mlir_scalar_type(struct arena *a, const struct mlir_type *t) {
    struct mlir_type *x = arena_dup(a, t, sizeof *t);
    x->rank = 0;
    x->dims = x->bounds = NULL;
    return x;
}
int64_t mlir_type_elements(const struct mlir_type *t) {
    int64_t n = 1;
    if (t->kind != MLIR_TENSOR || t->rank < 0) return -1;
    for (int32_t d = 0; d < t->rank; d++) {
        if (t->dims[d] < 0) return -1;
        if (__builtin_mul_overflow(n, t->dims[d], &n)) return -1;
    }
    return n;
}
void mlir_storage_range(enum dtype storage, int64_t *min, int64_t *max) {
    int bits = dtype_bits(storage);
    bool is_signed = dtype_class(storage) == DC_SIGNED;
    if (bits > 62 || bits < 1) bits = 62;
    *max = (INT64_C(1) << (is_signed ? bits - 1 : bits)) - 1;
    *min = is_signed ? -*max - 1 : 0;
}
const char *mlir_quant_wrong(const struct mlir_quant *q) {
    int64_t min, max;
    mlir_storage_range(q->storage, &min, &max);
    if (dtype_bits(q->storage) > 32) return "stores more than 32 bits";
    if (q->storage_min < min || q->storage_max > max || q->storage_min >= q->storage_max)
        return "has bounds that are not of what it stores";
    for (int32_t k = 0; k < q->n; k++)
        if (!(q->scales[k] > 0) || isinf(q->scales[k])) return "has a scale that is not above 0";
    return NULL;
}
static bool same_quant(const struct mlir_quant *x, const struct mlir_quant *y) {
    if (!x || !y) return x == y;
    if (x->storage != y->storage || x->expressed != y->expressed || x->axis != y->axis ||
        x->n != y->n || x->storage_min != y->storage_min || x->storage_max != y->storage_max)
        return false;
    return memcmp(x->scales, y->scales, sizeof *x->scales * (size_t)x->n) == 0 &&
           memcmp(x->zero_points, y->zero_points, sizeof *x->zero_points * (size_t)x->n) == 0;
}
bool mlir_type_equal(const struct mlir_type *x, const struct mlir_type *y) {
    if (x == y) return true;
    if (!x || !y || x->kind != y->kind || x->dtype != y->dtype || x->index != y->index ||
        x->rank != y->rank || x->n_elems != y->n_elems || x->n_in != y->n_in ||
        !same_quant(x->quant, y->quant))
        return false;
    if ((x->name || y->name) && (!x->name || !y->name || strcmp(x->name, y->name) != 0))
        return false;
    for (int32_t d = 0; d < x->rank; d++) {
        int64_t bx = x->bounds ? x->bounds[d] : -1, by = y->bounds ? y->bounds[d] : -1;
        if (x->dims[d] != y->dims[d] || bx != by) return false;
    }
    for (int32_t k = 0; k < x->n_elems; k++)
        if (!mlir_type_equal(x->elems[k], y->elems[k])) return false;
    return true;
}
