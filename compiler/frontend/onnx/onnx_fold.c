// SPDX-License-Identifier: Apache-2.0
// Values that are known at compile time: initializers, and what a node makes of known inputs, which
// the reference evaluator computes at once, so that shape arithmetic folds as it goes. What cannot
// be evaluated here, or takes too much, is left to the run.
#include "compiler/eval.h"
#include "compiler/frontend/onnx/onnx_dynamic.h"
#include "compiler/frontend/onnx/onnx_scope.h"

enum { MAX_FOLD_BYTES = 1 << 20, MAX_SPLAT = 256 };

struct onnx_val *onnx_weight_val(struct onnx_ctx *c, const struct onnx_tensor *t) {
    struct onnx_val *o = arena_new_of(c->a, struct onnx_val);
    o->v = pmap_get(c->weights, (uint64_t)t->weight);
    o->weight = true;
    return o;
}

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

status_t onnx_add_initializers(struct onnx_ctx *c, const struct onnx_graph *g) {
    for (size_t k = 0; k < g->inits.n; k++) {
        const struct onnx_tensor *t = &g->inits.v[k];
        struct onnx_val *o;
        struct literal *l;
        if (t->weight) {
            o = onnx_weight_val(c, t);
        } else if (t->data_type == ONNX_STRING) {
            RETURN_IF_ERR(onnx_string_literal(c, t, &l));
            o = onnx_string_val(c, hb_constant(&c->b, l));
        } else {
            RETURN_IF_ERR(onnx_tensor_literal(c->a, t, &l));
            l = lit_clone(c->a, l); // the program's bytes may go away
            o = onnx_tensor_val(c, folded(c, l));
            o->known = l;
        }
        smap_put(&c->values, t->name, o);
    }
    return ST_OK;
}

// ---- folding

static status_t fold(struct onnx_ctx *c, struct onnx_val *o) {
    if (!o || !o->v || o->known || shape_is_tuple(o->v->shape) ||
        shape_bytes(o->v->shape) > MAX_FOLD_BYTES)
        return ST_OK;
    struct arena tmp = {0};
    struct literal *l = NULL;
    struct hlo_eval ev = hlo_eval_at_compile(&tmp, *c->folding, c->cancel);
    ev.texts = c->texts->table;
    status_t st = hlo_eval_value(&ev, o->v, &l);
    *c->folding -= ev.work;
    if (!st) {
        o->known = lit_clone(c->a, l);
        o->v = folded(c, o->known);
    }
    arena_done(&tmp);
    // What cannot be evaluated here, or takes too much, the run computes.
    if (st_code(st) != ST_UNIMPLEMENTED && st_code(st) != ST_RESOURCE_EXHAUSTED) return st;
    st_drop(st);
    return ST_OK;
}

void onnx_fold_value(struct onnx_ctx *c, struct onnx_val *v) {
    hb_fail(&c->b, fold(c, v));
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

status_t onnx_fold_outputs(struct onnx_ctx *c) {
    const struct onnx_node *n = c->n;
    for (size_t k = 0; k < n->in.n; k++)
        if (n->in.v[k].n && !known(onnx_in_any(c, k))) return ST_OK;
    for (size_t k = 0; k < n->captures.n; k++)
        if (!known(smap_get(&c->values, n->captures.v[k]))) return ST_OK;
    for (size_t k = 0; k < n->attrs.n; k++)
        if (n->attrs.v[k].graph && has_weights(n->attrs.v[k].graph)) return ST_OK;
    for (size_t k = 0; k < n->out.n; k++) {
        struct onnx_val *o = smap_get(&c->values, n->out.v[k]);
        if (o && o->size) { // known after all
            struct onnx_val size = {.v = o->size};
            RETURN_IF_ERR(fold(c, &size));
            bool text = o->text;
            o = onnx_dynamic_val(c, o->v, size.v, o->size_dim);
            o->text = text;
            onnx_out_any(c, k, o);
        }
        for (size_t i = 0; o && o->list && i < o->list->n; i++)
            RETURN_IF_ERR(fold(c, o->list->v[i]));
        RETURN_IF_ERR(fold(c, o));
    }
    return ST_OK;
}
