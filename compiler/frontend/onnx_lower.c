// SPDX-License-Identifier: Apache-2.0
// Drives the lowering of a graph with its dimensions bound: node by node in order, each through its
// row of onnx_ops.def. A node whose inputs are all known at compile time is evaluated at once by
// the reference evaluator, so that shape arithmetic folds as it goes.
#include "compiler/frontend/onnx_scope.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "compiler/eval.h"
#include "compiler/frontend/onnx.h"
#include "compiler/frontend/onnx_dynamic.h"
#include "compiler/ir/text.h"
#include "compiler/results.h"

enum { MAX_FOLD_BYTES = 1 << 20, MAX_SPLAT = 256 };

static const struct onnx_op table[] = {
#define ONNX_OP(name, since, until, min, max, shapes, fn, arg)                                     \
    {name, since, until, min, max, shapes, onnx_##fn, arg},
#include "compiler/frontend/onnx_ops.def"
#undef ONNX_OP
};
// Rows of other domains are named "domain.Operator"; their versions are not told apart.
static bool row_is(const struct onnx_op *row, const struct onnx_node *n) {
    size_t d = n->domain.n;
    if (d == 0) return str_is(n->op, row->name);
    return strncmp(row->name, n->domain.p, d) == 0 && row->name[d] == '.' &&
           str_is(n->op, row->name + d + 1);
}
const struct onnx_op *onnx_op_find(const struct onnx_node *n, int64_t opset) {
    for (size_t k = 0; k < sizeof table / sizeof table[0]; k++)
        if (row_is(&table[k], n) &&
            (n->domain.n || (opset >= table[k].since && opset <= table[k].until)))
            return &table[k];
    return NULL;
}

// ---- what operator functions call

void fail(struct onnx_ctx *c, const char *fmt, ...) {
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    hb_fail(&c->b, st_new(ST_INVALID_ARGUMENT, "%s", text));
}
int op_arg(const struct onnx_ctx *c) {
    return onnx_op_find(c->n, c->opset)->arg;
}

bool in_has(const struct onnx_ctx *c, size_t k) {
    return k < c->n->in.n && c->n->in.v[k].n > 0;
}
struct onnx_val *in_any(struct onnx_ctx *c, size_t k) {
    return in_has(c, k) ? smap_get(&c->values, c->n->in.v[k]) : NULL;
}

hv in_val(struct onnx_ctx *c, size_t k) {
    struct onnx_val *v = in_any(c, k);
    if (v && v->size && !c->dynamic_ok) fail(c, "input %zu has a size that only the run knows", k);
    if (!v || !v->v)
        fail(c,
             v && v->list ? "input %zu is a sequence, a tensor is expected"
             : v          ? "input %zu is an absent optional, a tensor is expected"
                          : "input %zu is missing",
             k);
    return v && v->v ? v->v : hb_const_f64(&c->b, DT_F32, 0);
}
const struct literal *in_known(struct onnx_ctx *c, size_t k) {
    struct onnx_val *v = in_any(c, k);
    if (!v || !v->known)
        fail(c,
             "input %zu must be known at compile time (it decides a shape), but it depends on the "
             "request's data",
             k);
    return v ? v->known : NULL;
}
bool in_ints(struct onnx_ctx *c, size_t k, int64_t *v, int max, int *n) {
    const struct literal *l = in_known(c, k);
    *n = 0;
    if (!l) return false;
    int64_t count = shape_elements(l->shape);
    if (count > max || !dtype_is_int(l->shape->dtype)) {
        fail(c, "input %zu is %s, expected at most %d integers", k, shape_text(c->a, l->shape),
             max);
        return false;
    }
    for (int64_t i = 0; i < count; i++)
        v[i] = lit_get_i64(l, i);
    *n = (int)count;
    return true;
}
void out_val(struct onnx_ctx *c, size_t k, hv v) {
    out_any(c, k, onnx_tensor_val(c, v));
}
void out_any(struct onnx_ctx *c, size_t k, struct onnx_val *v) {
    if (k < c->n->out.n && c->n->out.v[k].n) smap_put(&c->values, c->n->out.v[k], v);
}
int64_t at_int(const struct onnx_ctx *c, const char *name, int64_t def) {
    const struct onnx_attr *a = onnx_attr(c->n, name);
    return a ? a->i : def;
}
float at_float(const struct onnx_ctx *c, const char *name, float def) {
    const struct onnx_attr *a = onnx_attr(c->n, name);
    return a ? a->f : def;
}
struct str at_str(const struct onnx_ctx *c, const char *name, const char *def) {
    const struct onnx_attr *a = onnx_attr(c->n, name);
    return a ? a->s : str_of(def);
}
bool at_ints(struct onnx_ctx *c, const char *name, int64_t *v, int max, int *n) {
    const struct onnx_attr *a = onnx_attr(c->n, name);
    *n = 0;
    if (!a) return false;
    if ((int64_t)a->ints.n > max) {
        fail(c, "attribute %s has %zu values, at most %d make sense", name, a->ints.n, max);
        return false;
    }
    for (size_t k = 0; k < a->ints.n; k++)
        v[(*n)++] = a->ints.v[k];
    return true;
}
int64_t axis_of(struct onnx_ctx *c, int64_t axis, int rank) {
    int64_t a = axis < 0 ? axis + rank : axis;
    if (a >= 0 && a < rank) return a;
    fail(c, "axis %lld of rank %d", (long long)axis, rank);
    return 0;
}
void axes_of(struct onnx_ctx *c, size_t k, int rank, int64_t *axes, int *n, bool *given) {
    *given = in_has(c, k) ? in_ints(c, k, axes, HLO_MAX_RANK, n)
                          : at_ints(c, "axes", axes, HLO_MAX_RANK, n);
    for (int i = 0; i < *n; i++) {
        axes[i] = axis_of(c, axes[i], rank);
        for (int j = 0; j < i; j++)
            if (axes[j] == axes[i]) fail(c, "axis %lld is there twice", (long long)axes[i]);
    }
}
hv splat_like(struct onnx_ctx *c, hv x, double v) {
    return hb_splat(&c->b, x->shape, v);
}

hv back_to(struct onnx_ctx *c, hv x, const struct shape *s, const int64_t *dropped, int n) {
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
hv reduce_keep(struct onnx_ctx *c, hv x, const int64_t *axes, int n, enum hlo_op op, bool keep) {
    hv r =
        hb_reduce(&c->b, x, hb_const_f64(&c->b, x->shape->dtype, reduce_init(op, x->shape->dtype)),
                  axes, n, op);
    if (!keep) return r;
    int64_t dims[HLO_MAX_RANK];
    for (int d = 0; d < x->shape->rank; d++)
        dims[d] = i64s_has((struct i64s){(int64_t *)(uintptr_t)axes, n}, d) ? 1 : x->shape->dims[d];
    return hb_reshape(&c->b, r, dims, x->shape->rank);
}

// ---- the driver

static int64_t bound_size(const struct lower_request *req, struct str symbol) {
    for (int k = 0; k < req->n_bindings; k++)
        if (str_is(symbol, req->bindings[k].symbol)) return req->bindings[k].size;
    return -1;
}

// The value of input k if the request binds it by its elements; NULL if it does not.
static struct literal *bound_value(struct onnx_ctx *c, const struct lower_request *req, size_t k,
                                   const struct shape *s) {
    int64_t n = shape_elements(s), found = 0;
    struct literal *l = n <= MAX_BOUND_VALUES ? lit_new(c->a, s) : NULL;
    for (int b = 0; l && b < req->n_bindings; b++) {
        struct str symbol = str_of(req->bindings[b].symbol), part;
        int64_t input, at;
        if (!str_starts(symbol, "=")) continue;
        symbol = (struct str){symbol.p + 1, symbol.n - 1};
        if (!str_cut(&symbol, '[', &part) || !str_to_i64(part, &input) || input != (int64_t)k ||
            !str_cut(&symbol, ']', &part) || !str_to_i64(part, &at) || at < 0 || at >= n)
            continue;
        memcpy((char *)l->data + at * dtype_size(s->dtype), &req->bindings[b].size,
               (size_t)dtype_size(s->dtype));
        found++;
    }
    return found == n ? l : NULL;
}

static int64_t bound(const struct lower_request *req, const char *symbol) {
    return bound_size(req, str_of(symbol));
}

// Tensor e of an input without a rank of its own.
static status_t add_loose_tensor(struct onnx_ctx *c, const struct lower_request *req, size_t input,
                                 int64_t e, int64_t *number, struct onnx_val **out) {
    const struct onnx_value *v = &c->m->main.inputs.v[input];
    int64_t dims[HLO_MAX_RANK], rank = bound(req, arena_printf(c->a, "#%zu[%04d]", input, (int)e));
    if (rank < 0 || rank > HLO_MAX_RANK)
        return st_new(ST_INVALID_ARGUMENT,
                      "input '" STR_FMT "': the rank of tensor %lld is not "
                      "bound",
                      STR_ARG(v->name), (long long)e);
    for (int d = 0; d < rank; d++) {
        dims[d] = bound(req, arena_printf(c->a, "#%zu[%04d].%d", input, (int)e, d));
        if (dims[d] < 0)
            return st_new(ST_INVALID_ARGUMENT,
                          "input '" STR_FMT "': dimension %d of tensor %lld "
                          "is not bound",
                          STR_ARG(v->name), d, (long long)e);
    }
    const struct shape *s = shape_make(c->a, dtype_from_onnx(v->elem_type), dims, (int)rank);
    RETURN_IF_ERR(st_note(shape_check(s, 0), "input '" STR_FMT "'", STR_ARG(v->name)));
    *out = arena_new_of(c->a, struct onnx_val);
    (*out)->v = hlo_add_param(c->b.c, (*number)++, s,
                              arena_printf(c->a, STR_FMT "_%lld", STR_ARG(v->name), (long long)e));
    return ST_OK;
}

static status_t add_loose_input(struct onnx_ctx *c, const struct lower_request *req, size_t input,
                                int64_t *number) {
    const struct onnx_value *v = &c->m->main.inputs.v[input];
    int64_t n = bound(req, arena_printf(c->a, "#%zu", input));
    struct onnx_val *o = arena_new_of(c->a, struct onnx_val);
    if (n < 0 || n > 1024 || (n > 1 && !v->is_sequence))
        return st_new(ST_INVALID_ARGUMENT,
                      "input '" STR_FMT "': how many tensors it has is not bound (#%zu)",
                      STR_ARG(v->name), input);
    if (v->is_sequence && (n || !v->is_optional)) {
        o->list = arena_new_of(c->a, struct onnx_list);
        o->list->dtype = dtype_from_onnx(v->elem_type);
        for (int64_t e = 0; e < n; e++) {
            struct onnx_val *item;
            RETURN_IF_ERR(add_loose_tensor(c, req, input, e, number, &item));
            avec_push(c->a, o->list, item);
        }
    } else if (n) {
        RETURN_IF_ERR(add_loose_tensor(c, req, input, 0, number, &o));
    }
    smap_put(&c->values, v->name, o);
    return ST_OK;
}

static status_t add_inputs(struct onnx_ctx *c, const struct lower_request *req,
                           struct hlo_computation *comp, int64_t *number) {
    struct strbuf missing = {0};
    struct smap static_names = {0};
    status_t st = ST_OK;
    onnx_static_names(c->m, &static_names);
    for (size_t k = 0; k < c->m->main.inputs.n; k++) {
        const struct onnx_value *v = &c->m->main.inputs.v[k];
        int64_t dims[HLO_MAX_RANK];
        if (v->is_sequence || v->is_optional || !v->has_shape) {
            GOTO_IF_ERR(out, add_loose_input(c, req, k, number));
            continue;
        }
        for (int d = 0; d < v->rank; d++) {
            struct str symbol = onnx_dim_symbol(c->a, v, d);
            dims[d] = v->dims[d].size >= 0 ? v->dims[d].size : bound_size(req, symbol);
            if (dims[d] < 0)
                strbuf_printf(&missing, "%s" STR_FMT " (dimension %d of input '" STR_FMT "')",
                              missing.n ? ", " : "", STR_ARG(symbol), d, STR_ARG(v->name));
        }
        if (missing.n) continue;
        const struct shape *s = shape_make(c->a, dtype_from_onnx(v->elem_type), dims, v->rank);
        GOTO_IF_ERR(out, st_note(shape_check(s, 0), "input '" STR_FMT "'", STR_ARG(v->name)));
        struct onnx_val *o = arena_new_of(c->a, struct onnx_val);
        o->v = hlo_add_param(comp, (*number)++, s, arena_strndup(c->a, v->name.p, v->name.n));
        if (onnx_by_value(&static_names, v)) o->known = bound_value(c, req, k, s);
        if (o->known) o->v = hb_constant(&c->b, o->known); // the parameter stays, unused
        smap_put(&c->values, v->name, o);
    }
    if (missing.n) st = st_new(ST_INVALID_ARGUMENT, "dimensions are not bound: %s", missing.p);
out:
    strbuf_done(&missing);
    smap_done(&static_names);
    return st;
}

// Our program form marks a cut weight by external data at "weight:N".
static bool weight_index(const struct onnx_tensor *t, int64_t *out) {
    return t->external && str_starts(t->location, "weight:") &&
           str_to_i64((struct str){t->location.p + 7, t->location.n - 7}, out) && *out >= 0 &&
           *out < INT32_MAX;
}

static status_t add_weight(struct onnx_ctx *c, struct onnx_tensor *t, struct str name,
                           int64_t *number) {
    const struct shape *s;
    int64_t w;
    if (!weight_index(t, &w)) return ST_OK;
    t->weight = (int)w + 1;
    RETURN_IF_ERR(onnx_tensor_shape(c->a, t, &s));
    hv p = pmap_get(c->weights, (uint64_t)t->weight);
    if (p && !shape_compatible(p->shape, s))
        return st_new(ST_INVALID_ARGUMENT, "weight %lld has two shapes", (long long)w);
    if (p) return ST_OK;
    p = hlo_add_param(c->b.c, (*number)++, s, arena_strndup(c->a, name.p, name.n));
    p->param_kind = PARAM_WEIGHT;
    p->param_index = w;
    pmap_put(c->weights, (uint64_t)t->weight, p);
    return ST_OK;
}

// Weights of g and of the graphs below it: initializers and large constants.
static status_t add_weights(struct onnx_ctx *c, struct onnx_graph *g, int64_t *number) {
    for (size_t k = 0; k < g->inits.n; k++)
        RETURN_IF_ERR(add_weight(c, &g->inits.v[k], g->inits.v[k].name, number));
    for (size_t k = 0; k < g->nodes.n; k++)
        for (size_t i = 0; i < g->nodes.v[k].attrs.n; i++) {
            struct onnx_attr *at = &g->nodes.v[k].attrs.v[i];
            if (at->graph) RETURN_IF_ERR(add_weights(c, at->graph, number));
            if (at->t && g->nodes.v[k].out.n)
                RETURN_IF_ERR(add_weight(c, at->t, g->nodes.v[k].out.v[0], number));
        }
    return ST_OK;
}

static struct onnx_val *weight_val(struct onnx_ctx *c, const struct onnx_tensor *t) {
    struct onnx_val *o = arena_new_of(c->a, struct onnx_val);
    o->v = pmap_get(c->weights, (uint64_t)t->weight);
    o->weight = true;
    return o;
}

static status_t add_initializers(struct onnx_ctx *c, const struct onnx_graph *g) {
    for (size_t k = 0; k < g->inits.n; k++) {
        const struct onnx_tensor *t = &g->inits.v[k];
        struct onnx_val *o;
        if (t->weight) {
            o = weight_val(c, t);
        } else {
            struct literal *l;
            RETURN_IF_ERR(onnx_tensor_literal(c->a, t, &l));
            l = lit_clone(c->a, l); // the program's bytes may go away
            o = onnx_tensor_val(c, hb_constant(&c->b, l));
        }
        smap_put(&c->values, t->name, o);
    }
    return ST_OK;
}

// ---- folding

// One value many times stays a broadcast: it would be printed, hashed and kept element by element.
static hv folded(struct onnx_ctx *c, struct literal *l) {
    size_t n = (size_t)shape_elements(l->shape), size = (size_t)dtype_size(l->shape->dtype);
    bool splat = n > MAX_SPLAT;
    for (size_t k = 1; k < n && splat; k++)
        splat = memcmp((char *)l->data + k * size, l->data, size) == 0;
    if (!splat) return hb_constant(&c->b, l);
    struct literal *one = lit_new(c->a, shape_make(c->a, l->shape->dtype, NULL, 0));
    memcpy(one->data, l->data, size);
    return hb_broadcast(&c->b, hb_constant(&c->b, one), l->shape->dims, l->shape->rank, NULL);
}

static status_t fold(struct onnx_ctx *c, struct onnx_val *o) {
    if (!o || !o->v || o->known || shape_is_tuple(o->v->shape) ||
        shape_bytes(o->v->shape) > MAX_FOLD_BYTES)
        return ST_OK;
    struct arena tmp = {0};
    struct literal *l = NULL;
    status_t st = hlo_eval_value(&tmp, o->v, &l);
    if (!st) {
        o->known = lit_clone(c->a, l);
        o->v = folded(c, o->known);
    }
    arena_done(&tmp);
    if (st_code(st) != ST_UNIMPLEMENTED) return st;
    st_drop(st);
    return ST_OK;
}
void onnx_fold_value(struct onnx_ctx *c, struct onnx_val *v) {
    status_t st = fold(c, v);
    if (st) hb_fail(&c->b, st);
}

static bool known(const struct onnx_val *v) {
    if (!v) return false;
    for (size_t k = 0; v->list && k < v->list->n; k++)
        if (!known(v->list->v[k])) return false;
    return !v->v || v->known;
}
static bool has_weights(const struct onnx_graph *g) {
    for (size_t k = 0; k < g->inits.n; k++)
        if (g->inits.v[k].weight) return true;
    for (size_t k = 0; k < g->nodes.n; k++)
        for (size_t i = 0; i < g->nodes.v[k].attrs.n; i++) {
            const struct onnx_attr *at = &g->nodes.v[k].attrs.v[i];
            if ((at->t && at->t->weight) || (at->graph && has_weights(at->graph))) return true;
        }
    return false;
}

// Replaces outputs that depend on known values alone by constants.
static status_t fold_outputs(struct onnx_ctx *c) {
    const struct onnx_node *n = c->n;
    for (size_t k = 0; k < n->in.n; k++)
        if (n->in.v[k].n && !known(in_any(c, k))) return ST_OK;
    for (size_t k = 0; k < n->captures.n; k++)
        if (!known(smap_get(&c->values, n->captures.v[k]))) return ST_OK;
    for (size_t k = 0; k < n->attrs.n; k++)
        if (n->attrs.v[k].graph && has_weights(n->attrs.v[k].graph)) return ST_OK;
    for (size_t k = 0; k < n->out.n; k++) {
        struct onnx_val *o = smap_get(&c->values, n->out.v[k]);
        if (o && o->size) { // known after all
            struct onnx_val size = {.v = o->size};
            RETURN_IF_ERR(fold(c, &size));
            o = onnx_dynamic_val(c, o->v, size.v, o->size_dim);
            out_any(c, k, o);
        }
        for (size_t i = 0; o && o->list && i < o->list->n; i++)
            RETURN_IF_ERR(fold(c, o->list->v[i]));
        RETURN_IF_ERR(fold(c, o));
    }
    return ST_OK;
}

// ---- nodes

static status_t lower_op(struct onnx_ctx *c, const struct onnx_node *n) {
    const struct onnx_op *op = onnx_op_find(n, c->opset);
    if (!op) return st_new(ST_INVALID_ARGUMENT, "operator is not supported");
    if ((int)n->in.n < op->min_in || (op->max_in >= 0 && (int)n->in.n > op->max_in))
        return st_new(ST_INVALID_ARGUMENT, "%zu inputs, expected %d to %d", n->in.n, op->min_in,
                      op->max_in);
    for (int k = 0; k < op->min_in; k++)
        if (!in_has(c, (size_t)k)) return st_new(ST_INVALID_ARGUMENT, "input %d is empty", k);
    if (onnx_has_dynamic(c))
        onnx_pass_dynamic(c, op->fn);
    else
        op->fn(c);
    return hb_end(&c->b);
}

static status_t lower_node(struct onnx_ctx *c, const struct onnx_node *n) {
    const struct onnx_function *f = onnx_function_find(c->m, n->domain, n->op);
    c->n = n;
    c->b.op_type = arena_strndup(c->a, n->op.p, n->op.n);
    c->b.op_name = n->name.n  ? arena_strndup(c->a, n->name.p, n->name.n)
                   : n->out.n ? arena_strndup(c->a, n->out.v[0].p, n->out.v[0].n)
                              : NULL;
    if (--*c->budget < 0)
        return st_new(ST_RESOURCE_EXHAUSTED,
                      "more than %lld nodes, counting those of unrolled loops and functions",
                      (long long)c->m->limits.max_nodes);
    if (n->attrs.n && n->attrs.v[0].t && n->attrs.v[0].t->weight) { // a constant kept as a weight
        out_any(c, 0, weight_val(c, n->attrs.v[0].t));
        return ST_OK;
    }
    RETURN_IF_ERR(f ? onnx_call_function(c, f) : lower_op(c, n));
    c->n = n;
    for (size_t k = 0; k < n->out.n; k++)
        if (n->out.v[k].n && !smap_get(&c->values, n->out.v[k]))
            return st_new(ST_INVALID_ARGUMENT, "output %zu is not supported", k);
    return fold_outputs(c);
}

// ---- refusals: every node of the main graph that can be tried is, so that one error lists all

static bool depends_on_failed(struct onnx_ctx *c, const struct onnx_node *n) {
    for (size_t k = 0; k < n->in.n + n->captures.n; k++) {
        const struct onnx_val *v =
            smap_get(&c->values, k < n->in.n ? n->in.v[k] : n->captures.v[k - n->in.n]);
        if (v && v->failed) return true;
    }
    return false;
}
static void fail_outputs(struct onnx_ctx *c, const struct onnx_node *n) {
    for (size_t k = 0; k < n->out.n; k++) {
        struct onnx_val *v = arena_new_of(c->a, struct onnx_val);
        v->failed = true;
        smap_put(&c->values, n->out.v[k], v);
    }
}
static status_t refused(const struct strbuf *lines, int n) {
    const char *text = lines->p ? lines->p : "";
    if (n == 0) return ST_OK;
    if (n == 1) return st_new(ST_INVALID_ARGUMENT, "%s", text + 3); // behind the line break
    return st_new(ST_INVALID_ARGUMENT, "%d nodes cannot be lowered:%s", n, text);
}

status_t onnx_lower_nodes(struct onnx_ctx *c, const struct onnx_graph *g) {
    struct strbuf lines = {0};
    status_t st = add_initializers(c, g);
    int n = 0;
    strbuf_limit(&lines, 64 * 1024);
    for (size_t k = 0; k < g->nodes.n && !st; k++) {
        const struct onnx_node *node = &g->nodes.v[k];
        if (n && depends_on_failed(c, node)) {
            fail_outputs(c, node);
            continue;
        }
        st = st_note(lower_node(c, node), "node %s, opset %lld", onnx_node_name(c->a, node),
                     (long long)c->opset);
        if (c->depth > 0 || st_code(st) != ST_INVALID_ARGUMENT) continue;
        strbuf_printf(&lines, "\n  %s", st_message(st));
        n++;
        st_drop(st);
        st = ST_OK;
        fail_outputs(c, node);
    }
    if (!st) st = refused(&lines, n);
    strbuf_done(&lines);
    return st;
}

// Sizes of results that only the run knows follow the results (compiler/results.h).
static status_t lower_outputs(struct onnx_ctx *c, struct hlo_computation *comp) {
    const struct onnx_graph *g = &c->m->main;
    struct onnx_leaves outs = {0}, sizes = {0};
    struct dynamic_result *dynamic = arena_zarray(c->a, struct dynamic_result, g->outputs.n + 1);
    int leaf = 0;
    for (size_t k = 0; k < g->outputs.n; k++) {
        struct str name = g->outputs.v[k].name;
        struct onnx_val *v = smap_get(&c->values, name);
        if (!v)
            return st_new(ST_INVALID_ARGUMENT, "output '" STR_FMT "' is not defined by any node",
                          STR_ARG(name));
        if (v->v && v->size) {
            dynamic[sizes.n].leaf = leaf;
            dynamic[sizes.n].dim = v->size_dim;
            avec_push(c->a, &sizes, v->size);
        }
        if (v->v) {
            avec_push(c->a, &outs, v->v);
            leaf++;
            continue;
        }
        // A sequence is a tuple in the result, an absent optional an empty one.
        struct onnx_leaves leaves = {0};
        for (size_t e = 0; v->list && e < v->list->n; e++)
            if (v->list->v[e]->size)
                return st_new(ST_INVALID_ARGUMENT,
                              "output '" STR_FMT
                              "': element %zu has a size that only the run knows",
                              STR_ARG(name), e);
        onnx_leaves_add(c, v, true, &leaves);
        avec_push(c->a, &outs, hb_tuple(&c->b, leaves.v, (int)leaves.n));
        leaf += (int)leaves.n;
    }
    for (size_t k = 0; k < sizes.n; k++) {
        dynamic[k].size_leaf = leaf++;
        avec_push(c->a, &outs, sizes.v[k]);
    }
    c->b.op_type = c->b.op_name = NULL;
    if (sizes.n) results_set_dynamic(comp->module, dynamic, (int)sizes.n);
    hlo_set_root(comp, hb_tuple(&c->b, outs.v, (int)outs.n));
    return hb_end(&c->b);
}

// Weights that nothing uses are not parameters: a model may carry some.
static void drop_unused_weights(struct hlo_computation *comp) {
    size_t kept = 0;
    for (size_t k = 0; k < comp->params.n; k++) {
        struct hlo_instr *p = comp->params.v[k];
        if (p->param_kind == PARAM_WEIGHT && p->users.n == 0 && p != comp->root) {
            hlo_remove_instr(p);
            continue;
        }
        p->param_number = (int64_t)kept;
        comp->params.v[kept++] = p;
    }
    comp->params.n = kept;
}

// Computations that nothing calls: tried as a loop's body and given up.
static void drop_uncalled(struct hlo_module *m) {
    HLO_EACH_COMPUTATION(c, m) c->mark = c == m->entry;
    for (struct hlo_computation *c = m->last, *prev; c; c = prev) { // callers stand behind callees
        prev = c->prev;
        if (!c->mark) {
            hlo_computation_remove(c);
            continue;
        }
        HLO_EACH_INSTR(i, c)
        for (int k = 0; k < i->n_called; k++)
            i->called[k]->mark = 1;
    }
}

static status_t lower_graph(struct onnx_ctx *c, const struct lower_request *req,
                            struct onnx_graph *g, struct hlo_computation *comp) {
    int64_t number = 0;
    RETURN_IF_ERR(add_inputs(c, req, comp, &number));
    RETURN_IF_ERR(add_weights(c, g, &number));
    RETURN_IF_ERR(onnx_lower_nodes(c, g));
    RETURN_IF_ERR(lower_outputs(c, comp));
    hlo_remove_dead(comp);
    drop_unused_weights(comp);
    drop_uncalled(comp->module);
    return hlo_verify(comp->module);
}

status_t onnx_lower(const struct lower_request *req, struct hlo_module **out) {
    struct arena tmp = {0};
    struct onnx_model m;
    status_t st = onnx_parse(&tmp, req->program, &req->limits, &m);
    if (!st) st = onnx_check_supported(&m);
    if (st) {
        arena_done(&tmp);
        return st;
    }
    struct hlo_module *mod = hlo_module_new(req->entry_name ? req->entry_name : "main");
    struct hlo_computation *comp = hlo_computation_add(mod, "main");
    mod->entry = comp;
    struct pmap weights = {0};
    int64_t budget = m.limits.max_nodes;
    struct onnx_ctx c = {.b = hb_begin(comp),
                         .a = mod->arena,
                         .m = &m,
                         .opset = m.opset,
                         .weights = &weights,
                         .budget = &budget};
    st = lower_graph(&c, req, &m.main, comp);
    smap_done(&c.values);
    pmap_done(&weights);
    arena_done(&tmp);
    if (st)
        hlo_module_free(mod);
    else
        *out = mod;
    return st;
}
