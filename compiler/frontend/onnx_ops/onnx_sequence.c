// SPDX-License-Identifier: Apache-2.0
// Sequences and optionals. They exist at compile time alone: a sequence is a list of tensors whose
// number is known, so these operators move values and build no HLO, except for splitting and
// joining. Positions must be known at compile time.
#include "compiler/frontend/onnx/onnx_scope.h"

enum { MAX_PARTS = 4096 };

static struct onnx_list *in_list(struct onnx_ctx *c, size_t k) {
    struct onnx_val *v = onnx_in_any(c, k);
    if (v && v->list) return v->list;
    onnx_fail(c,
              v && v->v ? "input %zu is a tensor, a sequence is expected"
                        : "input %zu is missing, a sequence is expected",
              k);
    return arena_new_of(c->a, struct onnx_list);
}
static void out_list(struct onnx_ctx *c, size_t k, struct onnx_list *l) {
    struct onnx_val *v = arena_new_of(c->a, struct onnx_val);
    v->list = l;
    onnx_out_any(c, k, v);
}
// Input k as a position among n (def if it is left out).
static size_t position(struct onnx_ctx *c, size_t k, size_t n, size_t def, size_t limit) {
    int64_t p;
    int got;
    if (!onnx_in_has(c, k)) return def;
    if (!onnx_in_ints(c, k, &p, 1, &got) || got != 1) {
        onnx_fail(c, "a position is one integer");
        return 0;
    }
    if (p < 0) p += (int64_t)n;
    if (p >= 0 && (size_t)p < limit) return (size_t)p;
    onnx_fail(c, "position %lld in a sequence of %zu", (long long)p, n);
    return 0;
}

static struct onnx_list *new_list(struct onnx_ctx *c, const struct onnx_list *like) {
    struct onnx_list *l = arena_new_of(c->a, struct onnx_list);
    l->dtype = like->dtype;
    l->text = like->text;
    return l;
}
// May input k be an element of l?
static bool fits(struct onnx_ctx *c, size_t k, const struct onnx_list *l) {
    enum dtype t = onnx_in_val(c, k)->shape->dtype;
    bool text = onnx_in_any(c, k) && onnx_in_any(c, k)->text;
    if (!hb_ok(&c->b)) return false;
    if (t == l->dtype && text == l->text) return true;
    onnx_fail(c, "input %zu is %s in a sequence of %s", k, text ? "text" : dtype_name(t),
              l->text ? "text" : dtype_name(l->dtype));
    return false;
}

ONNX(identity) {
    struct onnx_val *v = onnx_in_any(c, 0);
    if (!v) return onnx_fail(c, "input 0 is missing");
    onnx_out_any(c, 0, v);
}
ONNX(sequenceempty) {
    struct onnx_list *l = arena_new_of(c->a, struct onnx_list);
    l->text = onnx_at_int(c, "dtype", 1) == ONNX_STRING;
    l->dtype = l->text ? DT_S32 : dtype_from_onnx((int)onnx_at_int(c, "dtype", 1));
    out_list(c, 0, l);
}
ONNX(sequenceconstruct) {
    struct onnx_list *l = arena_new_of(c->a, struct onnx_list);
    l->dtype = onnx_in_val(c, 0)->shape->dtype;
    l->text = onnx_in_any(c, 0) && onnx_in_any(c, 0)->text;
    for (size_t k = 0; k < c->n->in.n; k++) {
        if (!fits(c, k, l)) return;
        avec_push(c->a, l, onnx_in_any(c, k));
    }
    out_list(c, 0, l);
}
ONNX(sequenceinsert) {
    const struct onnx_list *l = in_list(c, 0);
    size_t at = position(c, 2, l->n, l->n, l->n + 1);
    if (!hb_ok(b)) return;
    if (!fits(c, 1, l)) return;
    // A loop that inserts makes a list of each length.
    if (l->n >= MAX_PARTS) return onnx_fail(c, "a sequence of %zu", l->n + 1);
    struct onnx_list *r = new_list(c, l);
    for (size_t k = 0; k <= l->n; k++) {
        if (k == at) avec_push(c->a, r, onnx_in_any(c, 1));
        if (k < l->n) avec_push(c->a, r, l->v[k]);
    }
    out_list(c, 0, r);
}
ONNX(sequenceerase) {
    const struct onnx_list *l = in_list(c, 0);
    size_t at = position(c, 1, l->n, l->n - 1, l->n);
    if (l->n == 0) onnx_fail(c, "the sequence is empty");
    if (!hb_ok(b)) return;
    struct onnx_list *r = new_list(c, l);
    for (size_t k = 0; k < l->n; k++)
        if (k != at) avec_push(c->a, r, l->v[k]);
    out_list(c, 0, r);
}
ONNX(sequenceat) {
    const struct onnx_list *l = in_list(c, 0);
    size_t at = position(c, 1, l->n, 0, l->n);
    if (hb_ok(b)) onnx_out_any(c, 0, l->v[at]);
}
ONNX(sequencelength) {
    onnx_out_val(c, 0, hb_const_i64(b, DT_S64, (int64_t)in_list(c, 0)->n));
}

ONNX(concatfromsequence) {
    const struct onnx_list *l = in_list(c, 0);
    bool stack = onnx_at_int(c, "new_axis", 0) != 0;
    if (!l->n) return onnx_fail(c, "the sequence is empty");
    int rank = l->v[0]->v->shape->rank + stack;
    int64_t axis = onnx_axis_of(c, onnx_at_int(c, "axis", 0), rank), dims[HLO_MAX_RANK];
    hv *xs = arena_array(c->a, hv, l->n);
    if (!hb_ok(b)) return;
    if (rank > HLO_MAX_RANK) return onnx_fail(c, "the result has rank %d", rank);
    for (size_t k = 0; k < l->n; k++) {
        const struct shape *s = l->v[k]->v->shape;
        if (l->v[k]->size) return onnx_fail(c, "element %zu has a size that only the run knows", k);
        if (s->rank + stack != rank)
            return onnx_fail(c, "elements of ranks %d and %d", rank, s->rank);
        for (int d = 0, i = 0; d < rank; d++)
            dims[d] = stack && d == axis ? 1 : s->dims[i++];
        xs[k] = hb_reshape(b, l->v[k]->v, dims, rank);
    }
    struct onnx_val *y = onnx_tensor_val(c, l->n == 1 ? xs[0] : hb_concat(b, xs, (int)l->n, axis));
    y->text = l->text;
    onnx_out_any(c, 0, y);
}

ONNX_X(splittosequence) {
    const struct shape *s = x->shape;
    int64_t axis = onnx_axis_of(c, onnx_at_int(c, "axis", 0), s->rank), *sizes, at = 0;
    int n = 0;
    if (!hb_ok(b)) return;

    int64_t size = s->dims[axis];
    sizes = arena_zarray(c->a, int64_t, MAX_PARTS);

    if (onnx_in_has(c, 1)) {
        if (!onnx_in_ints(c, 1, sizes, MAX_PARTS, &n)) return;
        if (onnx_in_val(c, 1)->shape->rank == 0) { // chunks of one size, the last one what is left
            int64_t each = n ? sizes[0] : 0;
            if (each <= 0 || (size + each - 1) / each > MAX_PARTS)
                return onnx_fail(c, "chunks of %lld in a dimension of %lld", (long long)each,
                                 (long long)size);
            for (n = 0; at < size; at += each)
                sizes[n++] = size - at < each ? size - at : each;
        }
    } else {
        if (size > MAX_PARTS) return onnx_fail(c, "a sequence of %lld", (long long)size);
        for (n = 0; n < size; n++)
            sizes[n] = 1;
    }

    bool drop = !onnx_in_has(c, 1) && !onnx_at_int(c, "keepdims", 1);
    struct onnx_list *l = arena_new_of(c->a, struct onnx_list);
    l->dtype = s->dtype;
    l->text = onnx_in_any(c, 0)->text;
    at = 0;

    for (int k = 0; k < n; k++) {
        struct range r[HLO_MAX_RANK];
        int64_t dims[HLO_MAX_RANK];
        int rank = 0;
        if (sizes[k] < 0 || sizes[k] > size - at) return onnx_fail(c, "sizes beyond the dimension");
        for (int d = 0; d < s->rank; d++) {
            r[d] =
                d == axis ? (struct range){at, at + sizes[k], 1} : (struct range){0, s->dims[d], 1};
            if (!drop || d != axis) dims[rank++] = r[d].limit - r[d].start;
        }
        at += sizes[k];
        hv part = hb_reshape(b, hb_slice(b, x, r), dims, rank);
        avec_push(c->a, l, onnx_tensor_val(c, part));
        l->v[l->n - 1]->text = l->text;
    }

    if (at != size)
        return onnx_fail(c, "sizes sum to %lld of %lld", (long long)at, (long long)size);
    out_list(c, 0, l);
}

// The body once for each element; other inputs are sequences of the same length or the same for
// all.
ONNX(sequencemap) {
    const struct onnx_attr *at = onnx_attr(c->n, "body");
    const struct onnx_list *l = in_list(c, 0);
    if (!hb_ok(b)) return;

    if (!at || !at->graph || at->graph->inputs.n != c->n->in.n)
        return onnx_fail(c, "the body does not take %zu inputs", c->n->in.n);
    const struct onnx_graph *g = at->graph;

    struct onnx_list **outs = arena_array(c->a, struct onnx_list *, g->outputs.n + 1);
    for (size_t o = 0; o < g->outputs.n; o++) {
        outs[o] = arena_new_of(c->a, struct onnx_list);
        outs[o]->dtype = onnx_dtype_of(&g->outputs.v[o]);
        outs[o]->text = g->outputs.v[o].elem_type == ONNX_STRING;
    }

    for (size_t k = 0; k < l->n; k++) {
        struct onnx_val **formals = arena_zarray(c->a, struct onnx_val *, g->inputs.n + 1),
                        **results = arena_zarray(c->a, struct onnx_val *, g->outputs.n + 1);
        for (size_t i = 0; i < c->n->in.n; i++) {
            struct onnx_val *v = onnx_in_any(c, i);
            if (v && v->list && v->list->n != l->n)
                return onnx_fail(c, "sequences of %zu and %zu", l->n, v->list->n);
            formals[i] = v && v->list ? v->list->v[k] : v;
        }
        onnx_inline(c, g, formals, results);
        if (!hb_ok(b)) return;
        for (size_t o = 0; o < g->outputs.n; o++) {
            if (!results[o]->v) return onnx_fail(c, "result %zu is not a tensor", o);
            outs[o]->dtype = results[o]->v->shape->dtype;
            outs[o]->text = results[o]->text;
            avec_push(c->a, outs[o], results[o]);
        }
    }

    for (size_t o = 0; o < g->outputs.n; o++)
        out_list(c, o, outs[o]);
}

// ---- optionals: present is the value itself, absent is a value with nothing in it

ONNX(optional) {
    struct onnx_val *v = onnx_in_any(c, 0);
    onnx_out_any(c, 0, v ? v : arena_new_of(c->a, struct onnx_val));
}
ONNX(optionalhaselement) {
    const struct onnx_val *v = onnx_in_any(c, 0);
    bool has = v && (v->v || v->list);
    onnx_out_val(c, 0, hb_constant(b, lit_scalar_i64(c->a, DT_PRED, has)));
}
ONNX(optionalgetelement) {
    struct onnx_val *v = onnx_in_any(c, 0);
    if (!v || (!v->v && !v->list)) return onnx_fail(c, "the optional is empty");
    onnx_out_any(c, 0, v);
}
