// SPDX-License-Identifier: Apache-2.0
// The table of operators and what their functions call: inputs, attributes, outputs, values,
// errors.
#include "compiler/frontend/onnx/onnx_scope.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "compiler/strings.h"

static const struct onnx_op table[] = {
#define ONNX_OP(name, since, until, min, max, shapes, fn, arg)                                     \
    {name, since, until, min, max, shapes, onnx_##fn, arg},
#include "compiler/frontend/onnx/onnx_ops.def"
#undef ONNX_OP
};
// Rows of other domains are named "domain.Operator"; their versions are not told apart.
static bool row_is(const struct onnx_op *row, const struct onnx_node *n) {
    size_t d = n->domain.n;
    if (d == 0) return str_is(n->op, row->name);
    return strncmp(row->name, n->domain.p, d) == 0 && row->name[d] == '.' &&
           str_is(n->op, row->name + d + 1);
}
// Rows by the operator's own name: the first of a bucket, and for each row the next; 0 ends, k + 1
// is row k. In the table's order.
enum { ROWS = sizeof table / sizeof table[0], BUCKETS = 512 };
static uint16_t first_row[BUCKETS], next_row[ROWS];
static size_t bucket_of(struct str op) {
    return hash64(op.p, op.n, 1) % BUCKETS;
}
static void sort_rows(void) {
    for (int k = ROWS - 1; k >= 0; k--) {
        const char *dot = strrchr(table[k].name, '.');
        size_t b = bucket_of(str_of(dot ? dot + 1 : table[k].name));
        next_row[k] = first_row[b];
        first_row[b] = (uint16_t)(k + 1);
    }
}
const struct onnx_op *onnx_op_find(const struct onnx_node *n, int64_t opset) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, sort_rows);
    for (int k = first_row[bucket_of(n->op)]; k; k = next_row[k - 1]) {
        const struct onnx_op *row = &table[k - 1];
        if (row_is(row, n) && (n->domain.n || (opset >= row->since && opset <= row->until)))
            return row;
    }
    return NULL;
}

// ---- what operator functions call

void onnx_fail(struct onnx_ctx *c, const char *fmt, ...) {
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    hb_fail(&c->b, st_invalid("%s", text));
}
int onnx_op_arg(const struct onnx_ctx *c) {
    return onnx_op_find(c->n, c->opset)->arg;
}

bool onnx_in_has(const struct onnx_ctx *c, size_t k) {
    return k < c->n->in.n && c->n->in.v[k].n > 0;
}
struct onnx_val *onnx_in_any(struct onnx_ctx *c, size_t k) {
    return onnx_in_has(c, k) ? smap_get(&c->values, c->n->in.v[k]) : NULL;
}

hv onnx_in_val(struct onnx_ctx *c, size_t k) {
    struct onnx_val *v = onnx_in_any(c, k);
    if (v && v->size && !c->dynamic_ok)
        onnx_fail(c, "input %zu has a size that only the run knows", k);
    if (v && v->text && !c->text_ok)
        onnx_fail(c, "input %zu is text, a tensor of numbers is expected", k);
    if (!v || !v->v)
        onnx_fail(c,
                  v && v->list ? "input %zu is a sequence, a tensor is expected"
                  : v          ? "input %zu is an absent optional, a tensor is expected"
                               : "input %zu is missing",
                  k);
    return v && v->v ? v->v : hb_const_f64(&c->b, DT_F32, 0);
}
const struct literal *onnx_in_known(struct onnx_ctx *c, size_t k) {
    struct onnx_val *v = onnx_in_any(c, k);
    if (v && v->text && !c->text_ok) onnx_fail(c, "input %zu is text, numbers are expected", k);
    if (v && !v->known && k < 32) c->wanted |= UINT32_C(1) << k;
    if (!v || !v->known)
        onnx_fail(
            c,
            "input %zu must be known at compile time (it decides a shape), but it depends on the "
            "request's data",
            k);
    return v ? v->known : NULL;
}
bool onnx_in_ints(struct onnx_ctx *c, size_t k, int64_t *v, int max, int *n) {
    const struct literal *l = onnx_in_known(c, k);
    *n = 0;
    if (!l) return false;
    int64_t count = shape_elements(l->shape);
    if (count > max || !dtype_is_int(l->shape->dtype)) {
        onnx_fail(c, "input %zu is %s, expected at most %d integers", k, shape_text(c->a, l->shape),
                  max);
        return false;
    }
    for (int64_t i = 0; i < count; i++)
        v[i] = lit_get_i64(l, i);
    *n = (int)count;
    return true;
}
void onnx_out_val(struct onnx_ctx *c, size_t k, hv v) {
    if (!v) return onnx_fail(c, "result %zu was not made", k); // the first failure stands
    onnx_out_any(c, k, onnx_tensor_val(c, v));
}
void onnx_out_any(struct onnx_ctx *c, size_t k, struct onnx_val *v) {
    if (k < c->n->out.n && c->n->out.v[k].n) smap_put(&c->values, c->n->out.v[k], v);
}
// The attribute, or NULL where it is left out, or of another type: that is refused, for its value
// lies in a field that nothing reads.
static const struct onnx_attr *typed(struct onnx_ctx *c, const char *name, int type) {
    static const char *const types[] = {"",      "float",  "int",  "string", "tensor",
                                        "graph", "floats", "ints", "strings"};
    const struct onnx_attr *a = onnx_attr(c->n, name);
    if (!a || !a->type || a->type == type) return a;
    if (a->type > 0 && a->type < (int)(sizeof types / sizeof *types))
        onnx_fail(c, "attribute %s is of type %s, expected %s", name, types[a->type], types[type]);
    else
        onnx_fail(c, "attribute %s is of type %d, expected %s", name, a->type, types[type]);
    return NULL;
}
int64_t onnx_at_int(struct onnx_ctx *c, const char *name, int64_t def) {
    const struct onnx_attr *a = typed(c, name, ONNX_ATTR_INT);
    return a ? a->i : def;
}
double onnx_at_float(struct onnx_ctx *c, const char *name, float def) {
    const struct onnx_attr *a = typed(c, name, ONNX_ATTR_FLOAT);
    return (double)(a ? a->f : def);
}
struct str onnx_at_str(struct onnx_ctx *c, const char *name, const char *def) {
    const struct onnx_attr *a = typed(c, name, ONNX_ATTR_STRING);
    return a ? a->s : str_of(def);
}
bool onnx_at_ints(struct onnx_ctx *c, const char *name, int64_t *v, int max, int *n) {
    const struct onnx_attr *a = typed(c, name, ONNX_ATTR_INTS);
    *n = 0;
    if (!a) return false;
    if ((int64_t)a->ints.n > max) {
        onnx_fail(c, "attribute %s has %zu values, at most %d make sense", name, a->ints.n, max);
        return false;
    }
    for (size_t k = 0; k < a->ints.n; k++)
        v[(*n)++] = a->ints.v[k];
    return true;
}
int64_t onnx_axis_of(struct onnx_ctx *c, int64_t axis, int rank) {
    int64_t a = axis < 0 ? axis + rank : axis;
    if (a >= 0 && a < rank) return a;
    onnx_fail(c, "axis %lld of rank %d", (long long)axis, rank);
    return 0;
}
static void read_axes(struct onnx_ctx *c, size_t k, int rank, int64_t *axes, int *n, bool *given) {
    *given = onnx_in_has(c, k) ? onnx_in_ints(c, k, axes, HLO_MAX_RANK, n)
                               : onnx_at_ints(c, "axes", axes, HLO_MAX_RANK, n);
    for (int i = 0; i < *n; i++)
        axes[i] = onnx_axis_of(c, axes[i], rank);
}
void onnx_axes_of(struct onnx_ctx *c, size_t k, int rank, int64_t *axes, int *n, bool *given) {
    read_axes(c, k, rank, axes, n, given);
    for (int i = 0; i < *n; i++)
        if (i64s_has((struct i64s){axes, i}, axes[i]))
            onnx_fail(c, "axis %lld is there twice", (long long)axes[i]);
}
void onnx_axis_set(struct onnx_ctx *c, size_t k, int rank, int64_t *axes, int *n, bool *given) {
    int kept = 0;
    read_axes(c, k, rank, axes, n, given);
    for (int i = 0; i < *n; i++)
        if (!i64s_has((struct i64s){axes, kept}, axes[i])) axes[kept++] = axes[i];
    *n = kept;
}
hv onnx_splat_like(struct onnx_ctx *c, hv x, double v) {
    return hb_splat(&c->b, x->shape, v);
}

hv onnx_back_to(struct onnx_ctx *c, hv x, const struct shape *s, const int64_t *dropped, int n) {
    int64_t map[HLO_MAX_RANK];
    int k = 0;
    for (int d = 0; d < s->rank; d++)
        if (!i64s_has((struct i64s){(int64_t *)(uintptr_t)dropped, n}, d)) map[k++] = d;
    return hb_broadcast(&c->b, x, s->dims, s->rank, map);
}

static double reduce_init(enum hlo_op op, enum dtype t) {
    if (op == HLO_MULTIPLY) return 1;
    if (op == HLO_MAXIMUM)
        return dtype_is_float(t)             ? -(double)__builtin_inf()
               : dtype_class(t) == DC_SIGNED ? -9.3e18
                                             : 0;
    if (op == HLO_MINIMUM) return dtype_is_float(t) ? (double)__builtin_inf() : 1.9e19;
    return 0;
}
hv onnx_reduce_keep(struct onnx_ctx *c, hv x, const int64_t *axes, int n, enum hlo_op op,
                    bool keep) {
    if (n == 0) return x;
    hv r =
        hb_reduce(&c->b, x, hb_const_f64(&c->b, x->shape->dtype, reduce_init(op, x->shape->dtype)),
                  axes, n, op);
    if (!keep) return r;
    int64_t dims[HLO_MAX_RANK];
    for (int d = 0; d < x->shape->rank; d++)
        dims[d] = i64s_has((struct i64s){(int64_t *)(uintptr_t)axes, n}, d) ? 1 : x->shape->dims[d];
    return hb_reshape(&c->b, r, dims, x->shape->rank);
}

// ---- values of tensors and of string tensors

struct onnx_val *onnx_tensor_val(struct onnx_ctx *c, hv v) {
    struct onnx_val *o = arena_new_of(c->a, struct onnx_val);
    o->v = v;
    if (v->op == HLO_CONSTANT) o->known = v->literal;
    return o;
}

struct onnx_val *onnx_string_val(struct onnx_ctx *c, hv places) {
    struct onnx_val *o = onnx_tensor_val(c, places);
    o->text = true;
    return o;
}

int32_t onnx_string_place(struct onnx_ctx *c, struct str s) {
    int32_t place = 0;
    status_t st = strings_add(c->texts->table, s, &place);
    if (st) hb_fail(&c->b, st);
    return place;
}

struct literal *onnx_string_list(struct onnx_ctx *c, const struct str *v, size_t n) {
    struct literal *l = lit_new(c->a, shape_make(c->a, DT_S32, (int64_t[]){(int64_t)n}, 1));
    for (size_t k = 0; k < n; k++)
        lit_set_i64(l, (int64_t)k, onnx_string_place(c, v[k]));
    return l;
}

status_t onnx_string_literal(struct onnx_ctx *c, const struct onnx_tensor *t,
                             struct literal **out) {
    const struct shape *s = shape_make(c->a, DT_S32, t->dims, t->rank);
    RETURN_IF_ERR(st_note(shape_check(s, 0), "tensor '" STR_FMT "'", STR_ARG(t->name)));
    if (shape_elements(s) != (int64_t)t->strings.n)
        return st_invalid("tensor '" STR_FMT "': %zu texts, its shape has %lld", STR_ARG(t->name),
                          t->strings.n, (long long)shape_elements(s));
    *out = lit_new(c->a, s);
    memcpy((*out)->data, onnx_string_list(c, t->strings.v, t->strings.n)->data, (*out)->size_bytes);
    return hb_end(&c->b);
}
