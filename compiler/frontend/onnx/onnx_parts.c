// SPDX-License-Identifier: Apache-2.0
// Cuts of a graph. The values that the nodes left over use, and that the part computed, are results
// of the part and parameters of the next, so nothing is computed twice: random numbers and rounding
// near a whole number are the same on both sides of the cut. Every part is lowered from the start
// of the graph, by the same steps, so that all agree on what is carried; what lies before the cut
// is dead then. What depends on weights or constants alone is not carried but made again.
#include "compiler/frontend/onnx/onnx_parts.h"

#include "compiler/frontend/onnx/onnx_dynamic.h"

enum { MAX_NEED = 256, MAX_HINT = 16 }; // elements: of a value; of one that may decide a size
enum { ON_RUN = 1, ON_WEIGHTS = 2 };    // what a value depends on

// ---- what it depends on

static void find_sources(const struct hlo_computation *c, struct pmap *out) {
    HLO_EACH_INSTR(i, c) {
        uintptr_t on = i->op == HLO_PARAMETER ? i->param_kind == PARAM_INPUT ? ON_RUN : ON_WEIGHTS
                       : hlo_has_effect(i)    ? ON_RUN
                                              : 0;
        for (int k = 0; k < i->n_operands; k++)
            on |= (uintptr_t)pmap_get_ptr(out, i->operands[k]);
        if (on) pmap_put_ptr(out, i, (void *)on);
    }
}
static bool on_run(const struct pmap *from, hv v) {
    return (uintptr_t)pmap_get_ptr(from, v) & ON_RUN;
}

// ---- what a refused node needs

static bool add_once(struct onnx_ctx *c, struct onnx_leaves *to, hv v) {
    for (size_t k = 0; k < to->n; k++)
        if (to->v[k] == v) return false;
    avec_push(c->a, to, v);
    return true;
}
static bool need(struct onnx_ctx *c, hv v) {
    if (!v || v->op == HLO_CONSTANT) return false;
    add_once(c, &c->parts->needs, v);
    return true;
}
static bool need_elements(struct onnx_ctx *c, const struct onnx_val *v, int64_t most) {
    if (!v || !v->v || v->known || v->text || v->size) return false;
    const struct shape *s = v->v->shape;
    if (shape_is_tuple(s) || shape_elements(s) > most || dtype_size(s->dtype) > 8 ||
        dtype_class(s->dtype) == DC_COMPLEX || (dtype_bits(s->dtype) < 8 && s->dtype != DT_PRED))
        return false;
    return need(c, v->bound_of ? v->bound_of : v->v);
}
bool onnx_parts_need_elements(struct onnx_ctx *c, const struct onnx_val *v) {
    return need_elements(c, v, MAX_NEED);
}
bool onnx_parts_need_sizes(struct onnx_ctx *c, const struct onnx_val *v) {
    bool any = v && v->size && need(c, v->size);
    for (size_t k = 0; v && v->list && k < v->list->n; k++)
        any |= onnx_parts_need_sizes(c, v->list->v[k]);
    return any;
}
static bool is_small_int(const struct onnx_val *v) {
    return v && v->v && !shape_is_tuple(v->v->shape) &&
           (dtype_is_int(v->v->shape->dtype) || v->v->shape->dtype == DT_PRED);
}

static const struct onnx_val *value_named(const struct onnx_ctx *c, struct str name) {
    return name.n ? smap_get(&c->values, name) : NULL;
}

bool onnx_parts_need(struct onnx_ctx *c, const struct onnx_node *n) {
    const struct onnx_op *op = onnx_op_find(n, c->opset);
    uint32_t shapes = (op ? op->shape_inputs : 0) | c->wanted;
    bool any = false, below = !op;
    if (str_is(n->op, "If")) shapes |= 1;
    if (str_is(n->op, "Loop")) shapes |= 3;
    for (size_t k = 0; k < n->attrs.n; k++)
        below |= n->attrs.v[k].graph != NULL;
    for (size_t k = 0; k < n->in.n; k++) {
        const struct onnx_val *v = value_named(c, n->in.v[k]);
        if (k < 32 && shapes >> k & 1) any |= need_elements(c, v, MAX_NEED);
        any |= onnx_parts_need_sizes(c, v);
    }
    for (size_t k = 0; k < n->captures.n; k++)
        any |= onnx_parts_need_sizes(c, value_named(c, n->captures.v[k]));
    // Inside a body it may be any whole number that comes in.
    for (size_t k = 0; below && !any && k < n->in.n + n->captures.n; k++) {
        const struct onnx_val *v =
            value_named(c, k < n->in.n ? n->in.v[k] : n->captures.v[k - n->in.n]);
        if (is_small_int(v)) any |= need_elements(c, v, MAX_HINT);
    }
    return any;
}

void onnx_parts_note(struct onnx_ctx *c, const struct onnx_node *n) {
    size_t needs = c->parts->needs.n;
    c->parts->lacks |= onnx_parts_need(c, n);
    c->parts->needs.n = needs;
}

// ---- what is alive behind the cut

struct used { // values, each once
    struct pmap seen;
    VEC(struct onnx_val *) v;
    VEC(struct str) names;
};
static void use(void *to, struct onnx_val *v, struct str name) {
    struct used *x = to;
    if (pmap_has_ptr(&x->seen, v)) return;
    pmap_put_ptr(&x->seen, v, v);
    vec_push(&x->v, v);
    vec_push(&x->names, name);
}
static void find_used(struct onnx_ctx *c, const struct onnx_graph *g, const struct onnx_todo *left,
                      struct used *x) {
    for (size_t k = 0; k < left->n; k++)
        onnx_step_uses(&left->v[k], use, x);
    for (size_t k = 0; k < g->outputs.n; k++) {
        struct onnx_val *v = smap_get(&c->values, g->outputs.v[k].name);
        if (v) use(x, v, g->outputs.v[k].name);
    }
}

static bool is_carried(const struct onnx_ctx *c, hv v) {
    for (size_t k = 0; k < c->parts->carried.n; k++)
        if (c->parts->carried.v[k] == v) return true;
    return false;
}

// The leaves of v that a run computes: to c->parts->live, those not there yet.
static status_t live_leaves(struct onnx_ctx *c, const struct pmap *from, const struct onnx_val *v,
                            struct str name) {
    for (size_t k = 0; v->list && k < v->list->n; k++)
        RETURN_IF_ERR(live_leaves(c, from, v->list->v[k], name));
    hv both[2] = {v->known ? NULL : v->v, v->size};
    for (int k = 0; k < 2; k++) {
        if (!both[k] || !on_run(from, both[k])) continue;
        if (both[k]->op == HLO_PARAMETER && !is_carried(c, both[k])) continue; // an input
        if (shape_is_tuple(both[k]->shape))
            return st_invalid("'" STR_FMT "' cannot be carried over a cut", STR_ARG(name));
        if (!add_once(c, &c->parts->live, both[k])) continue;
        avec_push(c->a, &c->parts->live_text, v->text && k == 0);
    }
    return ST_OK;
}

// ---- the next part

static struct literal *bound_need(struct onnx_ctx *c, hv v, int64_t *at) {
    const struct lower_request *req = c->parts->req;
    int64_t n = shape_elements(v->shape), width = dtype_size(v->shape->dtype);
    struct literal *l = lit_new(c->a, v->shape);
    for (int64_t k = 0; k < n; k++, ++*at) {
        const char *symbol = parts_symbol(c->a, c->parts->index, *at);
        int b = 0;
        while (b < req->n_bindings && strcmp(req->bindings[b].symbol, symbol) != 0)
            b++;
        if (b == req->n_bindings) return NULL;
        memcpy((char *)l->data + k * width, &req->bindings[b].size, (size_t)width);
    }
    return l;
}

// The value behind the cut: its leaves as parameters, or again from what is known now.
static void resume(struct onnx_ctx *c, const struct pmap *becomes, const struct pmap *from,
                   struct onnx_val *v) {
    for (size_t k = 0; v->list && k < v->list->n; k++)
        resume(c, becomes, from, v->list->v[k]);
    if (!v->v || v->known) return;
    hv x = pmap_get_ptr(becomes, v->v), size = v->size ? pmap_get_ptr(becomes, v->size) : NULL;
    bool text = v->text;
    v->bound_of = v->bound_of ? pmap_get_ptr(becomes, v->bound_of) : NULL;
    if (!v->bound_of || v->bound_of->op == HLO_CONSTANT) // that bound no longer holds
        v->bound_of = NULL, v->bound[0] = v->bound[1] = NULL;
    if (x && on_run(from, v->v)) v->v = x;
    if (size && on_run(from, v->size)) v->size = size;
    if (v->size && v->size->op == HLO_CONSTANT)
        *v = *onnx_dynamic_val(c, v->v, v->size, v->size_dim);
    else if (v->v->op == HLO_CONSTANT)
        v->known = v->v->literal;
    else if (!v->size && !pmap_get_ptr(from, v->v))
        onnx_fold_value(c, v);
    v->text = text;
}

// Instructions that stand before the cut are known by their ids.
static status_t go_on(struct onnx_ctx *c, const struct used *used, struct literal *const *bound) {
    struct onnx_parts *p = c->parts;
    struct pmap becomes = {0}, from = {0};
    struct onnx_leaves carried = {0};
    p->before = c->b.c->module->next_id;

    for (size_t k = 0; k < p->needs.n; k++) {
        hv known = hb_constant(&c->b, bound[k]);
        pmap_put_ptr(&becomes, p->needs.v[k], known);
    }

    for (size_t k = 0; k < p->live.n; k++) {
        hv leaf = p->live.v[k];
        hv x = hlo_add_param(c->b.c, (int64_t)c->b.c->params.n, leaf->shape,
                             arena_printf(c->a, "carried_%d_%zu", p->index, k));
        avec_push(c->a, &carried, x);
        if (!pmap_has_ptr(&becomes, leaf)) pmap_put_ptr(&becomes, leaf, x);
    }

    for (size_t k = 0; k < p->needs.n; k++) {
        hv old = p->needs.v[k], known = pmap_get_ptr(&becomes, old);
        hlo_move_before(known, c->b.c->first);
        hlo_replace_uses(old, known);
    }

    find_sources(c->b.c, &from);
    for (size_t k = 0; k < p->needs.n; k++) // themselves, though nothing is made of them any more
        pmap_put_ptr(&from, p->needs.v[k], (void *)ON_RUN);
    for (size_t k = 0; k < used->v.n; k++)
        resume(c, &becomes, &from, used->v.v[k]);

    for (size_t k = 0; k < p->carried.n; k++)
        avec_push(c->a, &p->over, p->carried.v[k]);
    p->carried = carried;
    p->carried_text = p->live_text;
    p->needs = p->live = (struct onnx_leaves){0};
    p->live_text = (struct onnx_marks){0};
    p->index++;
    c->n_chosen = 0; // they lie before the cut
    memset(c->chosen, 0, sizeof c->chosen);

    pmap_done(&becomes);
    pmap_done(&from);
    return hb_end(&c->b);
}

static status_t cut(struct onnx_ctx *c, const struct used *used) {
    struct onnx_parts *p = c->parts;
    struct pmap from = {0};
    status_t st = ST_OK;
    int64_t elements = 0, at = 0;
    find_sources(c->b.c, &from);
    for (size_t k = 0; k < used->v.n && !st; k++)
        st = live_leaves(c, &from, used->v.v[k], used->names.v[k]);
    pmap_done(&from);
    RETURN_IF_ERR(st);
    for (size_t k = 0; k < p->needs.n; k++)
        elements += shape_elements(p->needs.v[k]->shape);
    if (p->index + 1 >= MAX_PARTS || elements > MAX_PART_SIZES)
        return st_exhausted(
            "sizes depend on sizes that only the run knows: %d parts, each compiled for "
            "what the one before it found, and at most %d sizes in one, are the limit",
            MAX_PARTS, MAX_PART_SIZES);
    struct literal **bound = arena_array(c->a, struct literal *, p->needs.n + 1);
    for (size_t k = 0; k < p->needs.n && !p->open; k++) {
        bound[k] = bound_need(c, p->needs.v[k], &at);
        p->open = !bound[k];
    }
    return p->open ? ST_OK : go_on(c, used, bound);
}

status_t onnx_parts_cut(struct onnx_ctx *c, const struct onnx_graph *g,
                        const struct onnx_todo *left) {
    struct used used = {0};
    for (size_t k = 0; k < left->n; k++) // what they left half done
        onnx_step_forget(&left->v[k]);
    find_used(c, g, left, &used);
    status_t st = cut(c, &used);
    pmap_done(&used.seen);
    vec_done(&used.v);
    vec_done(&used.names);
    return st;
}

// ---- the end

void onnx_parts_root(struct onnx_ctx *c, struct hlo_computation *comp) {
    struct onnx_leaves all = {0};
    for (size_t k = 0; k < c->parts->needs.n; k++)
        avec_push(c->a, &all, c->parts->needs.v[k]);
    for (size_t k = 0; k < c->parts->live.n; k++)
        avec_push(c->a, &all, c->parts->live.v[k]);
    for (size_t k = 0; k < all.n; k++)
        avec_push(c->a, &c->texts->out,
                  k >= c->parts->needs.n && c->parts->live_text.v[k - c->parts->needs.n]);
    c->b.op_type = c->b.op_name = NULL;
    hlo_set_root(comp, hb_tuple(&c->b, all.v, (int)all.n));
}

status_t onnx_parts_end(struct onnx_ctx *c, struct hlo_computation *comp) {
    struct onnx_parts *p = c->parts;
    if (!p->index && !p->open) return ST_OK;
    for (struct hlo_instr *i = comp->last, *prev; i; i = prev) { // with effects, too
        prev = i->prev;
        if (i->id < p->before && i->op != HLO_PARAMETER && !i->users.n && i != comp->root)
            hlo_remove_instr(i);
    }
    for (size_t k = 0; k < p->over.n; k++) {
        hv x = p->over.v[k];
        size_t at = 0;
        if (x->users.n) return st_internal("%s, of an earlier part, is still used", x->name);
        while (comp->params.v[at] != x)
            at++;
        memmove(comp->params.v + at, comp->params.v + at + 1,
                (--comp->params.n - at) * sizeof *comp->params.v);
        hlo_remove_instr(x);
    }
    struct part is = {
        .index = p->index, .sizes = p->open ? (int)p->needs.n : 0, .carried = (int)p->carried.n};
    for (int k = 0; k < is.carried; k++)
        avec_push(c->a, &c->texts->in, p->carried_text.v[k]);
    parts_set(comp->module, &is);
    return ST_OK;
}
