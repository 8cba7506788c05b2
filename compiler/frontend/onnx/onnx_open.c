// SPDX-License-Identifier: Apache-2.0
// Graphs that the driver lowers node by node. A function or a branch is its nodes and an end, which
// hands the results to the node's outputs. A Loop is, for each turn, a begin (carried values come
// in), its nodes and an end, which asks the condition and adds the next turn or hands out what was
// carried and stacked. Steps may be tried again behind a cut, so none keeps a value: all are looked
// up by name in the contexts of the turns.
#include "compiler/frontend/onnx/onnx_open.h"

#include "compiler/frontend/onnx/onnx_parts.h"
#include "compiler/frontend/onnx/onnx_turns.h"

enum { MAX_TURNS = 1024 };

struct onnx_opened {
    const struct onnx_node *n;
    struct onnx_ctx *outer;
    const struct onnx_graph *g;
    int64_t count; // of a loop: turns at most, -1 = no bound; else NO_LOOP
    struct {       // contexts, one for each turn begun
        struct onnx_ctx **v;
        size_t n, cap;
    } turns;
};
enum { NO_LOOP = -2 };

// ---- opening

static struct onnx_ctx *add_turn(struct onnx_opened *o, const char *within) {
    struct onnx_ctx *c = onnx_child(o->outer, NULL);
    c->within =
        arena_printf(c->a, "%snode %s, opset %lld: %s", o->outer->within ? o->outer->within : "",
                     onnx_node_name(c->a, o->n), (long long)o->outer->opset, within);
    avec_push(c->a, &o->turns, c);
    avec_push(c->a, &c->parts->opened, c);
    return c;
}
// The steps of one turn, or of the whole where it is no loop.
static status_t add_steps(struct onnx_opened *o, struct onnx_ctx *c, struct onnx_todo *to) {
    size_t turn = o->turns.n - 1;
    RETURN_IF_ERR(onnx_add_initializers(c, o->g));
    struct onnx_step s = {.c = c, .of = o, .turn = turn, .begins = true};
    if (o->count != NO_LOOP) avec_push(c->a, to, s);
    for (size_t k = 0; k < o->g->nodes.n; k++) {
        struct onnx_step node = {.c = c, .n = &o->g->nodes.v[k]};
        avec_push(c->a, to, node);
    }
    s.begins = false;
    avec_push(c->a, to, s);
    return ST_OK;
}
static struct onnx_opened *opened(struct onnx_ctx *c, const struct onnx_graph *g, int64_t count) {
    struct onnx_opened *o = arena_new_of(c->a, struct onnx_opened);
    *o = (struct onnx_opened){.n = c->n, .outer = c, .g = g, .count = count};
    return o;
}
static bool opens(struct onnx_opened *o, struct onnx_ctx *inner, struct onnx_todo *to) {
    status_t st = add_steps(o, inner, to);
    if (!st) return true;
    st_drop(st);
    return false;
}

static bool open_function(struct onnx_ctx *c, const struct onnx_function *f, struct onnx_todo *to) {
    struct onnx_opened *o = opened(c, onnx_function_body(c, f), NO_LOOP);
    if (c->n->in.n > f->inputs.n || c->n->out.n > f->outputs.n) return false;
    struct onnx_ctx *in =
        add_turn(o, arena_printf(c->a, "function '" STR_FMT "': ", STR_ARG(f->name)));
    in->opset = f->opset;
    for (size_t k = 0; k < c->n->in.n; k++) {
        struct onnx_val *v = onnx_in_any(c, k);
        if (v) smap_put(&in->values, o->g->inputs.v[k].name, v);
    }
    return opens(o, in, to);
}

static bool open_if(struct onnx_ctx *c, struct onnx_todo *to) {
    const struct onnx_val *cond = onnx_in_any(c, 0);
    if (!cond || !cond->known || shape_elements(cond->known->shape) != 1) return false;
    const char *which = lit_get_i64(cond->known, 0) ? "then_branch" : "else_branch";
    const struct onnx_attr *a = onnx_attr(c->n, which);
    if (!a || !a->graph || a->graph->inputs.n || a->graph->outputs.n < c->n->out.n) return false;
    struct onnx_opened *o = opened(c, a->graph, NO_LOOP);
    struct onnx_ctx *in = add_turn(o, arena_printf(c->a, "%s: ", which));
    onnx_captures_take(c, in, o->g, NULL, NULL);
    return opens(o, in, to);
}

static bool add_loop_turn(struct onnx_opened *o, struct onnx_todo *to) {
    struct onnx_ctx *in = add_turn(o, arena_printf(o->outer->a, "turn %zu: ", o->turns.n));
    onnx_captures_take(o->outer, in, o->g, NULL, NULL);
    return opens(o, in, to);
}
static bool open_loop(struct onnx_ctx *c, struct onnx_todo *to) {
    const struct onnx_attr *a = onnx_attr(c->n, "body");
    const struct onnx_val *m = onnx_in_any(c, 0), *go = onnx_in_any(c, 1);
    if (!a || !a->graph || c->n->in.n < 2 || a->graph->inputs.n != c->n->in.n ||
        a->graph->outputs.n < c->n->in.n - 1 || a->graph->outputs.n - 1 < c->n->out.n)
        return false;
    if ((onnx_in_has(c, 0) && (!m || !m->known || shape_elements(m->known->shape) != 1)) ||
        (onnx_in_has(c, 1) && (!go || !go->known || shape_elements(go->known->shape) != 1)))
        return false;
    for (size_t k = 2; k < c->n->in.n; k++)
        if (!onnx_in_any(c, k)) return false;
    int64_t count = m ? lit_get_i64(m->known, 0) : -1;
    if ((m && count <= 0) || (go && !lit_get_i64(go->known, 0))) return false;
    return add_loop_turn(opened(c, a->graph, count), to);
}

bool onnx_open(struct onnx_ctx *c, const struct onnx_node *n, struct onnx_todo *to) {
    const struct onnx_function *f = onnx_function_find(c->m, n);
    if (c->depth >= c->m->limits.max_depth) return false;
    c->n = n;
    if (f) return open_function(c, f, to);
    if (n->domain.n && !str_is(n->domain, "ai.onnx")) return false;
    if (str_is(n->op, "If")) return open_if(c, to);
    return str_is(n->op, "Loop") && open_loop(c, to);
}

// ---- begin and end

static struct onnx_val *value(const struct onnx_ctx *c, struct str name) {
    return name.n ? smap_get(&c->values, name) : NULL;
}
// Result k of the graph, in that turn.
static struct onnx_val *result(const struct onnx_opened *o, size_t turn, size_t k) {
    return value(o->turns.v[turn], o->g->outputs.v[k].name);
}
static size_t n_carried(const struct onnx_opened *o) {
    return o->g->inputs.n - 2;
}
// Carried value k at the begin of that turn.
static struct onnx_val *carried(const struct onnx_opened *o, size_t turn, size_t k) {
    return turn ? result(o, turn - 1, k + 1) : value(o->outer, o->n->in.v[k + 2]);
}

static status_t begin_turn(const struct onnx_step *s) {
    const struct onnx_opened *o = s->of;
    struct onnx_ctx *c = s->c;
    struct onnx_val *f[2];
    onnx_turn_number(c, o->g, hb_const_i64(&c->b, DT_S64, (int64_t)s->turn), f);
    for (size_t k = 0; k < o->g->inputs.n; k++) {
        struct onnx_val *v = k < 2 ? f[k] : carried(o, s->turn, k - 2);
        if (v) smap_put(&c->values, o->g->inputs.v[k].name, v);
    }
    return hb_end(&c->b);
}

// The last turn is over: what was carried, then one array for each result that is stacked.
static status_t end_loop(const struct onnx_step *s, bool *curable) {
    const struct onnx_opened *o = s->of;
    struct onnx_ctx *c = s->c;
    for (size_t k = 0; k < o->n->out.n; k++) {
        struct onnx_val *v = result(o, s->turn, k + 1);
        if (k >= n_carried(o)) {
            struct onnx_row rows = {0};
            for (size_t t = 0; t <= s->turn; t++) {
                struct onnx_val *row = result(o, t, k + 1);
                if (row->size) *curable |= onnx_parts_need_sizes(c, row);
                avec_push(c->a, &rows, row);
            }
            v = onnx_stack_turns(c, &rows, &o->g->outputs.v[k + 1]);
        }
        if (v && o->n->out.v[k].n) smap_put(&o->outer->values, o->n->out.v[k], v);
    }
    return hb_end(&c->b);
}

static status_t end_turn(const struct onnx_step *s, struct onnx_todo *more, bool *curable) {
    struct onnx_opened *o = s->of;
    const struct onnx_val *go = result(o, s->turn, 0);
    for (size_t k = 0; k < o->g->outputs.n; k++)
        if (!result(o, s->turn, k)) return st_invalid("output %zu of the body is not defined", k);
    if (!go->known) {
        *curable = onnx_parts_need_elements(s->c, go);
        return st_invalid("whether there is a next turn depends on the request's "
                          "data");
    }
    if (lit_get_i64(go->known, 0) && (o->count < 0 || (int64_t)s->turn + 1 < o->count)) {
        if (s->turn + 1 >= MAX_TURNS)
            return st_invalid("more than %d turns, each lowered by itself", MAX_TURNS);
        if (add_loop_turn(o, more)) return ST_OK;
        return st_invalid("turn %zu cannot be lowered", s->turn + 1);
    }
    for (size_t t = 0; t <= s->turn; t++)
        for (size_t k = 1; k < o->g->outputs.n; k++)
            if (result(o, t, k)->failed && (t == s->turn || k > n_carried(o)))
                return st_new(ST_FAILED_PRECONDITION, "of a refused node");
    return end_loop(s, curable);
}

status_t onnx_open_go_on(const struct onnx_step *s, struct onnx_todo *more, bool *curable) {
    const struct onnx_opened *o = s->of;
    if (s->begins) return begin_turn(s);
    if (o->count != NO_LOOP) return end_turn(s, more, curable);
    for (size_t k = 0; k < o->n->out.n; k++) {
        struct onnx_val *v = result(o, 0, k);
        if (!v && o->n->out.v[k].n) return st_invalid("output %zu of the graph is not defined", k);
        if (v && o->n->out.v[k].n) smap_put(&o->outer->values, o->n->out.v[k], v);
    }
    return ST_OK;
}

// ---- what a step uses

void onnx_step_uses(const struct onnx_step *s, onnx_use_fn use, void *to) {
    const struct onnx_opened *o = s->of;
    const struct onnx_node *n = s->n;
    for (size_t k = 0; n && k < n->in.n + n->captures.n; k++) {
        struct str name = k < n->in.n ? n->in.v[k] : n->captures.v[k - n->in.n];
        if (value(s->c, name)) use(to, value(s->c, name), name);
    }
    if (n) return;
    for (size_t k = 0; s->begins && k < n_carried(o); k++) // of a turn before it, or from outside
        if (carried(o, s->turn, k)) use(to, carried(o, s->turn, k), o->g->inputs.v[k + 2].name);
    for (size_t t = 0; t <= s->turn; t++)
        for (size_t k = 0; k < o->g->outputs.n; k++)
            if (result(o, t, k)) use(to, result(o, t, k), o->g->outputs.v[k].name);
    for (size_t k = 0; o->count != NO_LOOP && k < o->g->captures.n; k++) // of turns to come
        if (value(o->outer, o->g->captures.v[k]))
            use(to, value(o->outer, o->g->captures.v[k]), o->g->captures.v[k]);
}

bool onnx_step_failed(const struct onnx_step *s) {
    const struct onnx_node *n = s->n;
    for (size_t k = 0; n && k < n->in.n + n->captures.n; k++) {
        const struct onnx_val *v =
            value(s->c, k < n->in.n ? n->in.v[k] : n->captures.v[k - n->in.n]);
        if (v && v->failed) return true;
    }
    if (n) return false;
    const struct onnx_opened *o = s->of;
    for (size_t k = 0; s->begins && k < n_carried(o); k++)
        if (carried(o, s->turn, k) && carried(o, s->turn, k)->failed) return true;
    // Of a turn the condition is enough to go on with the next one.
    for (size_t k = 0; !s->begins && k < (o->count == NO_LOOP ? o->g->outputs.n : 1); k++)
        if (result(o, s->turn, k) && result(o, s->turn, k)->failed) return true;
    return false;
}

static const struct onnx_node *gives(const struct onnx_step *s) {
    return s->n ? s->n : s->begins ? NULL : s->of->n;
}
void onnx_step_give_up(const struct onnx_step *s) {
    const struct onnx_node *n = gives(s);
    struct onnx_ctx *c = s->n ? s->c : s->of->outer;
    for (size_t k = 0; n && k < n->out.n; k++) {
        struct onnx_val *v = arena_new_of(c->a, struct onnx_val);
        v->failed = true;
        smap_put(&c->values, n->out.v[k], v);
    }
}
void onnx_step_forget(const struct onnx_step *s) {
    const struct onnx_node *n = gives(s);
    for (size_t k = 0; n && k < n->out.n; k++)
        if (n->out.v[k].n) smap_del(s->n ? &s->c->values : &s->of->outer->values, n->out.v[k]);
}
