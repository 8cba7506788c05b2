// SPDX-License-Identifier: Apache-2.0
// Operations one by one: the table, functions and calls, attributes, shapes, and values that are
// known.
#include "compiler/frontend/stablehlo/stablehlo_lower.h"

#include <stdatomic.h>
#include <string.h>

#include "compiler/eval.h"
#include "proto/hlod.pb-c.h"

static const struct shl_row table[] = {
#define OP(name, fn, hlo) {name, shl_##fn, HLO_##hlo},
#include "compiler/frontend/stablehlo/stablehlo_ops.def"
#undef OP
};
enum { N_OPS = sizeof table / sizeof *table, MAX_CALLS = 200, MAX_KNOWN_BYTES = 1 << 16 };

const struct shl_row *shl_row_of(struct str name) {
    if (str_starts(name, "stablehlo.")) name = (struct str){name.p + 10, name.n - 10};
    for (size_t k = 0; k < N_OPS; k++)
        if (str_is(name, table[k].name)) return &table[k];
    return NULL;
}

// ---- attributes

status_t shl_needs(const struct mlir_op *op, const char *name, const struct mlir_attr **out) {
    *out = mlir_op_attr(op, name);
    return *out ? ST_OK : st_invalid("attribute '%s' is missing", name);
}
int64_t shl_int(const struct mlir_op *op, const char *name, int64_t usual) {
    const struct mlir_attr *t = mlir_op_attr(op, name);
    return t && (t->kind == MLIR_A_INT || t->kind == MLIR_A_BOOL) ? t->i : usual;
}
bool shl_flag(const struct mlir_op *op, const char *name) {
    return shl_int(op, name, 0) != 0;
}
struct str shl_word(const struct mlir_op *op, const char *name) {
    const struct mlir_attr *t = mlir_op_attr(op, name);
    bool word =
        t && (t->kind == MLIR_A_ENUM || t->kind == MLIR_A_STRING || t->kind == MLIR_A_SYMBOL);
    return word ? t->s : (struct str){"", 0};
}
status_t shl_ints(struct shl *l, const struct mlir_op *op, const char *name, int n, int64_t usual,
                  struct i64s *out) {
    const struct mlir_attr *t = mlir_op_attr(op, name);
    if (t && t->kind != MLIR_A_INTS) return st_invalid("attribute '%s' must be integers", name);
    if (t && n >= 0 && t->n != n)
        return st_invalid("attribute '%s' has %d elements, expected %d", name, t->n, n);
    if (t) {
        *out = (struct i64s){t->ints, t->n};
        return ST_OK;
    }
    *out = (struct i64s){arena_zarray(l->a, int64_t, (n > 0 ? n : 0) + 1), n > 0 ? n : 0};
    for (int k = 0; k < out->n; k++)
        out->v[k] = usual;
    return ST_OK;
}

// ---- shapes

const struct shape *shl_shape(struct arena *a, const struct mlir_type *t) {
    switch (t->kind) {
    case MLIR_TOKEN:
        return shape_make(a, DT_TOKEN, NULL, 0);
    case MLIR_TUPLE: {
        const struct shape **v = arena_array(a, const struct shape *, t->n_elems + 1);
        for (int32_t k = 0; k < t->n_elems; k++)
            if (!(v[k] = shl_shape(a, t->elems[k]))) return NULL;
        return shape_tuple(a, v, t->n_elems);
    }
    case MLIR_TENSOR:
        if (t->dtype == DT_INVALID || t->rank < 0 || t->rank > HLO_MAX_RANK ||
            mlir_type_elements(t) < 0)
            return NULL;
        return shape_make(a, t->dtype, t->dims, t->rank);
    default:
        return NULL;
    }
}
static const struct mlir_type *as_computed(const struct shl *l, const struct mlir_type *t) {
    if (!l->real || !t->quant) return t;
    struct mlir_type *real = arena_dup(l->a, t, sizeof *t);
    real->dtype = t->quant->expressed;
    real->quant = NULL;
    return real;
}
const struct mlir_type *shl_result_type(const struct shl *l, const struct mlir_op *op, int k) {
    return as_computed(l, l->frame->f->values.v[op->result + (uint32_t)k]);
}
const struct shape *shl_result_shape(struct shl *l, const struct mlir_op *op, int k,
                                     const int64_t *dims, int rank) {
    const struct mlir_type *t = shl_result_type(l, op, k);
    const struct shape *s = shl_shape(l->a, t);
    return s ? s : shape_make(l->a, t->dtype, dims, rank);
}
// Of all results; NULL where one is dynamic.
static const struct shape *declared(struct shl *l, const struct mlir_op *op) {
    if (op->n_results == 1) return shl_shape(l->a, shl_result_type(l, op, 0));
    const struct shape **v = arena_array(l->a, const struct shape *, op->n_results + 1);
    for (int k = 0; k < op->n_results; k++)
        if (!(v[k] = shl_shape(l->a, shl_result_type(l, op, k)))) return NULL;
    return shape_tuple(l->a, v, op->n_results);
}
status_t shl_emit(struct shl *l, const struct mlir_op *op, enum hlo_op hlo, hv const *in, int n,
                  const void *attr, struct hlo_computation *const *called, int n_called, hv *out) {
    const struct shape *s = declared(l, op);
    if (s) RETURN_IF_ERR(shape_check(s, l->hlo->max_bytes));
    hv r = hb_call(&l->b, hlo, s, in, n, attr, called, n_called);
    if (!hb_ok(&l->b)) return ST_OK; // the caller looks
    enum dtype t = op->n_results == 1 ? shl_result_type(l, op, 0)->dtype : DT_INVALID;
    if (!s && op->n_results == 1 && r->shape->dtype != t && t != DT_INVALID)
        r = hb_call(&l->b, hlo, shape_with_dtype(l->a, r->shape, t), in, n, attr, called, n_called);
    if (op->n_results == 1) out[0] = r;
    for (int k = 0; op->n_results > 1 && k < op->n_results; k++)
        out[k] = hb_gte(&l->b, r, k);
    return ST_OK;
}

// ---- values

struct literal *shl_known(struct shl *l, hv v) {
    if (v->op == HLO_CONSTANT) return v->literal;
    if (shape_is_tuple(v->shape) || shape_bytes(v->shape) > MAX_KNOWN_BYTES) return NULL;
    struct arena tmp = {0};
    struct literal *known = NULL;
    struct hlo_eval ev = hlo_eval_at_compile(&tmp, l->folding_left, l->cancel);
    status_t st = hlo_eval_value(&ev, v, &known);
    l->folding_left -= ev.work;
    if (!st) known = lit_clone(l->a, known);
    arena_done(&tmp);
    bool ok = !st;
    st_drop(st);
    return ok ? known : NULL;
}
status_t shl_known_ints(struct shl *l, const struct mlir_op *op, int operand, hv v,
                        struct i64s *out) {
    struct literal *lit = dtype_is_int(v->shape->dtype) ? shl_known(l, v) : NULL;
    if (!lit)
        return st_reason(st_invalid("operand %d of %.*s must be known when it is compiled: it "
                                    "decides a shape",
                                    operand, (int)op->name.n, op->name.p),
                         HLOD__V1__REASON__REASON_UNSUPPORTED_OP);
    int64_t n = shape_elements(lit->shape);
    out->n = (int32_t)n;
    out->v = arena_zarray(l->a, int64_t, n + 1);
    for (int64_t k = 0; k < n; k++)
        out->v[k] = lit_get_i64(lit, k);
    return ST_OK;
}
status_t shl_constant(struct shl *l, const struct mlir_attr *t, hv *out) {
    if (t->kind != MLIR_A_DENSE) return st_invalid("a constant must have a dense value");
    const struct shape *s = shl_shape(l->a, t->type);
    if (!s) return st_invalid("a constant must have a static type");
    RETURN_IF_ERR(shape_check(s, l->hlo->max_bytes));
    if (t->weight >= 0) {
        if (t->weight >= l->n_weights || !l->weights[t->weight])
            return st_invalid("there is no weight %d", t->weight);
        *out = l->weights[t->weight];
        return ST_OK;
    }

    int64_t n = shape_elements(s), size = dtype_size(s->dtype);
    const struct shape *held = t->splat && s->rank ? shape_scalar(l->a, s->dtype) : s;
    if ((int64_t)t->bytes.n < (n ? (t->splat ? size : n * size) : 0))
        return st_invalid("a constant has %zu bytes, its type needs %lld", t->bytes.n,
                          (long long)(n * size));
    struct literal *lit = lit_new(l->a, held);
    if (shape_elements(held)) memcpy(lit->data, t->bytes.p, (size_t)(shape_elements(held) * size));
    hv c = hb_constant(&l->b, lit);
    *out = held == s ? c : hb_broadcast(&l->b, c, s->dims, s->rank, NULL);
    return ST_OK;
}

// ---- operations, regions, functions

status_t shl_set_results(struct shl *l, const struct mlir_op *op, hv const *out) {
    for (int32_t k = 0; k < op->n_results; k++) {
        const struct shape *want = shl_shape(l->a, shl_result_type(l, op, k));
        if (want && !shape_compatible(want, out[k]->shape))
            return st_invalid("result %d is declared as %s, what it computes is %s", k,
                              shape_text(l->a, want), shape_text(l->a, out[k]->shape));
        l->frame->values[op->result + (uint32_t)k] = out[k];
    }
    return ST_OK;
}
static status_t lower_op(struct shl *l, const struct mlir_op *op) {
    hv in_few[8], out_few[8];
    hv *in = op->n_operands > 8 ? arena_array(l->a, hv, op->n_operands) : in_few;
    hv *out = op->n_results > 8 ? arena_zarray(l->a, hv, op->n_results) : out_few;
    const struct shl_row *row = shl_row_of(op->name);
    if (!row)
        return st_reason(st_invalid("the operation is not known here"),
                         HLOD__V1__REASON__REASON_UNSUPPORTED_OP);
    if (l->ops_left-- <= 0) return st_exhausted("the program has too many operations inlined");
    if (l->cancel && atomic_load_explicit(l->cancel, memory_order_relaxed))
        return st_new(ST_CANCELLED, "cancelled");

    for (int32_t k = 0; k < op->n_operands; k++)
        if (!(in[k] = l->frame->values[op->operands[k]]))
            return st_invalid("operand %d has no value here", k);
    RETURN_IF_ERR(shl_run(l, row, op, in, out));
    RETURN_IF_ERR(hb_end(&l->b));
    return shl_set_results(l, op, out);
}
status_t shl_lower_op(struct shl *l, const struct mlir_op *op) {
    l->b.op_type = arena_strndup(l->a, op->name.p, op->name.n);
    status_t st = lower_op(l, op);
    return st ? st_note(st, "%s %lld: %.*s", l->m->where, (long long)op->at, (int)op->name.n,
                        op->name.p)
              : ST_OK;
}
static bool is_return(const struct mlir_op *op) {
    return str_is(op->name, "func.return") || str_is(op->name, "stablehlo.return");
}
status_t shl_inline_region(struct shl *l, const struct mlir_region *r, hv const *args, hv *out) {
    const struct mlir_op *end = r->ops.n ? r->ops.v[r->ops.n - 1] : NULL;
    if (!end || !is_return(end)) return st_invalid("a region must end with a return");
    for (int32_t k = 0; k < r->n_args; k++)
        l->frame->values[r->args + (uint32_t)k] = args[k];
    for (size_t k = 0; k + 1 < r->ops.n; k++)
        RETURN_IF_ERR(shl_lower_op(l, r->ops.v[k]));
    for (int32_t k = 0; k < end->n_operands; k++)
        if (!(out[k] = l->frame->values[end->operands[k]]))
            return st_invalid("result %d has no value", k);
    return ST_OK;
}
// Does a value have the type that the function says?
static status_t fits(struct shl *l, const char *what, int k, const struct mlir_type *t, hv x) {
    const struct shape *want = shl_shape(l->a, as_computed(l, t));
    if (!want || shape_compatible(want, x->shape)) return ST_OK;
    return st_invalid("%s %d is declared as %s, it is %s", what, k, shape_text(l->a, want),
                      shape_text(l->a, x->shape));
}
static status_t inline_body(struct shl *l, const struct mlir_func *f, hv const *in, hv *out) {
    for (int32_t k = 0; k < f->body.n_args; k++)
        RETURN_IF_ERR(fits(l, "argument", k, f->values.v[f->body.args + (uint32_t)k], in[k]));
    RETURN_IF_ERR(shl_inline_region(l, &f->body, in, out));
    for (int32_t k = 0; k < f->n_results; k++)
        RETURN_IF_ERR(fits(l, "result", k, f->results[k], out[k]));
    return ST_OK;
}
status_t shl_inline_call(struct shl *l, struct str callee, hv const *in, int n, hv *out,
                         int n_out) {
    const struct mlir_func *f = mlir_find_func(l->m, callee);
    if (!f || !f->body.ops.n)
        return st_invalid("there is no function @%.*s", (int)callee.n, callee.p);
    const struct mlir_op *end = f->body.ops.v[f->body.ops.n - 1];
    if (f->body.n_args != n || end->n_operands != n_out || f->n_results != n_out)
        return st_invalid("@%.*s takes %d values and gives %d, the call has %d and %d",
                          (int)callee.n, callee.p, f->body.n_args, end->n_operands, n, n_out);
    for (struct shl_frame *x = l->frame; x; x = x->caller)
        if (x->f == f) return st_invalid("@%.*s calls itself", (int)callee.n, callee.p);
    if (l->depth >= MAX_CALLS) return st_exhausted("calls nest too deep");

    struct shl_frame frame = {f, arena_zarray(l->a, hv, f->values.n + 1), l->frame};
    l->frame = &frame;
    l->depth++;
    status_t st = inline_body(l, f, in, out);
    l->depth--;
    l->frame = frame.caller;
    return st ? st_note(st, "@%.*s", (int)callee.n, callee.p) : ST_OK;
}
