// SPDX-License-Identifier: Apache-2.0
// Lowers the nodes of a graph in order, each through its row of onnx_ops.def or, of a model-local
// function, through the function's body. A node whose inputs are all known at compile time is
// evaluated at once (onnx_fold.c).
#include "compiler/frontend/onnx/onnx_parts.h"

#include <stdlib.h>

// ---- nodes

static const struct {
    const char *attr, *op, *words;
} choices[] = {
#define ONNX_ATTRS(op, names)
#define ONNX_CHOICE(attr, op, words) {attr, op, words},
#include "compiler/frontend/onnx/onnx_attrs.def"
#undef ONNX_CHOICE
#undef ONNX_ATTRS
};
static const struct attr_names {
    const char *op, *names;
} attr_names[] = {
#define ONNX_ATTRS(op, names) {op, names},
#define ONNX_CHOICE(attr, op, words)
#include "compiler/frontend/onnx/onnx_attrs.def"
#undef ONNX_CHOICE
#undef ONNX_ATTRS
};
static bool among(struct str word, const char *words) {
    for (const char *end; *words; words = end + (*end == ' ')) {
        end = words + strcspn(words, " ");
        if (str_eq(word, (struct str){words, (size_t)(end - words)})) return true;
    }
    return false;
}
// Do the node's texts name something that there is?
static status_t check_choices(const struct onnx_node *n) {
    for (size_t k = 0; k < n->attrs.n; k++) {
        const struct onnx_attr *a = &n->attrs.v[k];
        for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
            const char *op = choices[i].op;
            if (!str_is(a->name, choices[i].attr) || (*op && !str_is(n->op, op))) continue;
            if (!a->s.n && str_is(a->name, "auto_pad")) continue; // as if it were left out
            if (!among(a->s, choices[i].words))
                return st_invalid("%s '" STR_FMT "' is none of: %s", choices[i].attr, STR_ARG(a->s),
                                  choices[i].words);
        }
    }
    return ST_OK;
}

// One of a row's words "name", "name+since", "name-until", "name+since-until".
struct attr_word {
    struct str name;
    int64_t since, until;
};
static struct attr_word attr_word(const char **words) {
    const char *end, *at = *words;
    struct attr_word w = {{at, strcspn(at, " +-")}, 0, INT64_MAX};
    at += w.name.n;
    if (*at == '+') {
        w.since = strtol(at + 1, (char **)&end, 10);
        at = end;
    }
    if (*at == '-') {
        w.until = strtol(at + 1, (char **)&end, 10);
        at = end;
    }
    *words = at + (*at == ' ');
    return w;
}
// Names are those of ONNX's own domain where they have versions.
static status_t check_name(const char *words, struct str name, int64_t opset) {
    bool other = false;
    struct strbuf has = {0};
    while (*words) {
        struct attr_word w = attr_word(&words);
        bool now = opset >= w.since && opset <= w.until, is = str_eq(name, w.name);
        if (is && now) {
            strbuf_done(&has);
            return ST_OK;
        }
        other |= is;
        if (now) strbuf_printf(&has, "%s" STR_FMT, has.n ? " " : ": ", STR_ARG(w.name));
    }
    status_t st = other ? st_invalid("attribute '" STR_FMT "' is of another opset%s%s",
                                     STR_ARG(name), has.n ? "; this one's" : "", has.n ? has.p : "")
                        : st_invalid("attribute '" STR_FMT "' is none of the operator's%s",
                                     STR_ARG(name), has.n ? has.p : ", which has none");
    strbuf_done(&has);
    return st;
}
static int by_op(const void *name, const void *row) {
    return strcmp(name, ((const struct attr_names *)row)->op);
}
// Has the operator all attributes that the node has, and the node each once? Those in front of
// whose name a tool wrote "__" are its own, as in ONNX's checker.
static status_t check_names(const struct onnx_op *op, const struct onnx_node *n, int64_t opset) {
    if (!n->attrs.n) return ST_OK;
    const struct attr_names *row =
        bsearch(op->name, attr_names, sizeof attr_names / sizeof *row, sizeof *row, by_op);
    for (size_t k = 0; row && k < n->attrs.n; k++) {
        struct str name = n->attrs.v[k].name;
        if (!str_starts(name, "__")) RETURN_IF_ERR(check_name(row->names, name, opset));
        for (size_t i = 0; i < k; i++)
            if (str_eq(name, n->attrs.v[i].name))
                return st_invalid("attribute '" STR_FMT "' is there twice", STR_ARG(name));
    }
    return ST_OK;
}

static status_t lower_op(struct onnx_ctx *c, const struct onnx_node *n) {
    const struct onnx_op *op = onnx_op_find(n, c->opset);
    if (!op) return st_invalid("operator is not supported");
    if ((int)n->in.n < op->min_in || (op->max_in >= 0 && (int)n->in.n > op->max_in))
        return st_invalid("%zu inputs, expected %d to %d", n->in.n, op->min_in, op->max_in);
    for (int k = 0; k < op->min_in; k++)
        if (!onnx_in_has(c, (size_t)k)) return st_invalid("input %d is empty", k);
    RETURN_IF_ERR(check_names(op, n, c->opset));
    RETURN_IF_ERR(check_choices(n));
    if (onnx_has_text(c))
        onnx_pass_text(c, op->fn);
    else if (onnx_has_dynamic(c))
        onnx_pass_dynamic(c, op->fn);
    else
        op->fn(c);
    onnx_bound_outputs(c, op->fn);
    return hb_end(&c->b);
}

static status_t call_function(struct onnx_ctx *c, const struct onnx_function *f) {
    const struct onnx_node *call = c->n;
    if (call->in.n > f->inputs.n || call->out.n > f->outputs.n)
        return st_invalid("%zu inputs and %zu outputs, the function has %zu, %zu", call->in.n,
                          call->out.n, f->inputs.n, f->outputs.n);
    struct onnx_val **formals = arena_zarray(c->a, struct onnx_val *, f->inputs.n + 1),
                    **outs = arena_zarray(c->a, struct onnx_val *, f->outputs.n + 1);
    for (size_t k = 0; k < call->in.n; k++)
        formals[k] = onnx_in_any(c, k);
    struct onnx_ctx *child = onnx_child(c, NULL);
    child->opset = f->opset;
    status_t st = onnx_lower_body(child, onnx_function_body(c, f), formals, outs);
    onnx_child_end(c, child);
    RETURN_IF_ERR(st_note(st, "function '" STR_FMT "'", STR_ARG(f->name)));
    for (size_t k = 0; k < call->out.n; k++)
        if (outs[k]) onnx_out_any(c, k, outs[k]);
    return ST_OK;
}

static status_t lower_node(struct onnx_ctx *c, const struct onnx_node *n) {
    const struct onnx_function *f = onnx_function_find(c->m, n);
    c->n = n;
    c->wanted = 0;
    c->b.op_type = arena_strndup(c->a, n->op.p, n->op.n);
    c->b.op_name = n->name.n  ? arena_strndup(c->a, n->name.p, n->name.n)
                   : n->out.n ? arena_strndup(c->a, n->out.v[0].p, n->out.v[0].n)
                              : NULL;
    if (c->cancel && *c->cancel) return st_new(ST_CANCELLED, "the compile was cancelled");
    if (--*c->budget < 0)
        return st_exhausted("more than %lld nodes, counting those of unrolled loops and functions",
                            (long long)c->m->limits.max_nodes);
    if (n->attrs.n && n->attrs.v[0].t && n->attrs.v[0].t->weight) { // a constant kept as a weight
        onnx_out_any(c, 0, onnx_weight_val(c, n->attrs.v[0].t));
        return ST_OK;
    }
    RETURN_IF_ERR(f ? call_function(c, f) : lower_op(c, n));
    c->n = n;
    for (size_t k = 0; k < n->out.n; k++)
        if (n->out.v[k].n && !smap_get(&c->values, n->out.v[k]))
            return st_invalid("output %zu is not supported", k);
    return onnx_fold_outputs(c);
}

// ---- refusals: every node of the main graph that can be tried is, so that one error lists all

static status_t refused(const struct strbuf *lines, int n) {
    const char *text = lines->p ? lines->p : "";
    if (n == 0) return ST_OK;
    if (n == 1) return st_invalid("%s", text + 3); // behind the line break
    return st_invalid("%d nodes cannot be lowered:%s", n, text);
}

struct sweep {           // once through what is to be lowered
    struct strbuf lines; // of what was refused
    int n_refused;
    struct onnx_todo left; // that, and what depends on it
    bool curable;          // values that a run finds would do for all that was refused
};

// Contexts of opened graphs build into the main computation, too.
static void hand_over(const struct onnx_ctx *from, struct onnx_ctx *to) {
    if (from == to) return;
    to->b = from->b;
    to->n_chosen = from->n_chosen;
    memcpy(to->chosen, from->chosen, sizeof to->chosen);
}

static void leave(struct onnx_ctx *c, const struct onnx_step *s, struct sweep *w) {
    onnx_step_give_up(s);
    avec_push(c->a, &w->left, *s);
}

// One step of the main graph; what it opens goes to `more`.
static status_t sweep_step(struct onnx_ctx *c, const struct onnx_step *s, struct sweep *w,
                           struct onnx_todo *more) {
    struct onnx_ctx *x = s->c;
    bool curable = false, failed = w->n_refused && onnx_step_failed(s);
    if (failed && !s->begins) {
        leave(c, s, w);
        return ST_OK;
    }

    hand_over(c, x);
    status_t st = s->n ? lower_node(x, s->n) : onnx_open_go_on(s, more, &curable);
    if (st && s->n && st_code(st) == ST_INVALID_ARGUMENT) {
        bool last = str_is(s->n->op, "Loop"); // one loop is better than many turns
        curable = last && onnx_parts_need(x, s->n);
        bool opened = !curable && w->curable && onnx_open(x, s->n, more);
        curable = curable || opened || (!last && onnx_parts_need(x, s->n));
        if (opened) {
            st_drop(st);
            st = ST_OK;
        }
    }
    hand_over(x, c);

    if (failed) avec_push(c->a, &w->left, *s);
    if (!st) return ST_OK;
    if (st_code(st) == ST_FAILED_PRECONDITION && !s->n) { // waits for what was refused
        st_drop(st);
        leave(c, s, w);
        return ST_OK;
    }

    if (s->n)
        st = st_note(st, "%snode %s, opset %lld", x->within ? x->within : "",
                     onnx_node_name(c->a, s->n), (long long)x->opset);
    else
        st = st_note(st, "%s", x->within);
    if (st_code(st) != ST_INVALID_ARGUMENT) return st;

    w->curable = curable && w->curable;
    strbuf_printf(&w->lines, "\n  %s", st_message(st));
    w->n_refused++;
    st_drop(st);
    leave(c, s, w);
    return ST_OK;
}

// One step after the other; those that cannot be lowered, and what depends on them, are left.
static status_t sweep(struct onnx_ctx *c, const struct onnx_todo *todo, struct sweep *w) {
    struct onnx_todo stack = {0}; // the next one last
    status_t st = ST_OK;
    for (size_t k = todo->n; k-- > 0;)
        avec_push(c->a, &stack, todo->v[k]);
    while (!st && stack.n) {
        struct onnx_step s = stack.v[--stack.n];
        struct onnx_todo more = {0};
        st = sweep_step(c, &s, w, &more);
        for (size_t k = more.n; k-- > 0 && !st;)
            avec_push(c->a, &stack, more.v[k]);
    }
    return st;
}

// A nested graph, in the computation of its own or in place: the first refusal ends it.
static status_t lower_nested(struct onnx_ctx *c, const struct onnx_graph *g) {
    status_t st = ST_OK;
    for (size_t k = 0; k < g->nodes.n && !st; k++) {
        const struct onnx_node *n = &g->nodes.v[k];
        st = st_note(lower_node(c, n), "node %s, opset %lld", onnx_node_name(c->a, n),
                     (long long)c->opset);
        if (st_code(st) == ST_INVALID_ARGUMENT) onnx_parts_note(c, n);
    }
    return st;
}

status_t onnx_lower_nodes(struct onnx_ctx *c, const struct onnx_graph *g) {
    struct onnx_todo todo = {0};
    RETURN_IF_ERR(onnx_add_initializers(c, g));
    if (c->depth) return lower_nested(c, g);
    status_t st = ST_OK;
    for (size_t k = 0; k < g->nodes.n; k++) {
        struct onnx_step s = {.c = c, .n = &g->nodes.v[k]};
        avec_push(c->a, &todo, s);
    }
    while (!st && todo.n && !c->parts->open) {
        struct sweep w = {.curable = true};
        strbuf_limit(&w.lines, 64 * 1024);
        st = sweep(c, &todo, &w);
        if (!st && w.n_refused)
            st = w.curable ? onnx_parts_cut(c, g, &w.left) : refused(&w.lines, w.n_refused);
        strbuf_done(&w.lines);
        todo = w.left;
    }
    return st;
}

// ---- declared types of results

static bool made_here(const struct onnx_graph *g, struct str name) {
    for (size_t k = 0; k < g->inputs.n; k++)
        if (str_eq(g->inputs.v[k].name, name)) return false;
    for (size_t k = 0; k < g->inits.n; k++)
        if (str_eq(g->inits.v[k].name, name)) return false;
    return true;
}
static const char *type_name(enum dtype t, bool text) {
    return text ? "string" : dtype_name(t);
}

// As ONNX Runtime: element types must be those declared, of what a node makes; a shape may be
// another, and a type may be left out.
status_t onnx_check_declared(const struct onnx_graph *g, const struct onnx_value *o,
                             const struct onnx_val *v) {
    enum dtype declared = onnx_dtype_of(o), made = v->v      ? v->v->shape->dtype
                                                   : v->list ? v->list->dtype
                                                             : DT_INVALID;
    bool list = v->list != NULL, text = v->v ? v->text : list && v->list->text,
         declared_text = o->elem_type == ONNX_STRING;
    if (v->failed || o->is_map || declared == DT_INVALID || made == DT_INVALID ||
        !made_here(g, o->name))
        return ST_OK;

    if (o->is_sequence != list || declared != made || declared_text != text)
        return st_invalid("output '" STR_FMT "': the model declares %s%s, its nodes make %s%s",
                          STR_ARG(o->name), o->is_sequence ? "a sequence of " : "",
                          type_name(declared, declared_text), list ? "a sequence of " : "",
                          type_name(made, text));
    return ST_OK;
}

// ---- bodies

status_t onnx_lower_body(struct onnx_ctx *child, const struct onnx_graph *g,
                         struct onnx_val *const *formals, struct onnx_val **outs) {
    if (child->depth > child->m->limits.max_depth)
        return st_exhausted("graphs and functions are nested deeper than %d",
                            child->m->limits.max_depth);
    for (size_t k = 0; k < g->inputs.n; k++)
        if (formals[k]) smap_put(&child->values, g->inputs.v[k].name, formals[k]);
    RETURN_IF_ERR(onnx_lower_nodes(child, g));
    for (size_t k = 0; k < g->outputs.n; k++) {
        struct str name = g->outputs.v[k].name;
        outs[k] = smap_get(&child->values, name);
        if (!outs[k])
            return st_invalid("output '" STR_FMT "' of the subgraph is not defined", STR_ARG(name));
        RETURN_IF_ERR(onnx_check_declared(g, &g->outputs.v[k], outs[k]));
    }
    return ST_OK;
}
