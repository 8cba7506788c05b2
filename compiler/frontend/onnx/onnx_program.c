// SPDX-License-Identifier: Apache-2.0
// Where a graph meets its module: inputs with their dimensions bound, weights, results, and the
// whole lowering.
#include "compiler/eval.h"
#include "compiler/frontend/onnx/onnx.h"
#include "compiler/frontend/onnx/onnx_dynamic.h"
#include "compiler/frontend/onnx/onnx_parts.h"
#include "compiler/results.h"
#include "compiler/strings.h"
#include "proto/hlod.pb-c.h"

static int64_t bound_size(const struct lower_request *req, struct str symbol) {
    for (int k = 0; k < req->n_bindings; k++)
        if (str_is(symbol, req->bindings[k].symbol)) return req->bindings[k].size;
    return -1;
}

static struct str own_symbol(struct arena *a, size_t input, int d) {
    return str_of(arena_printf(a, "*%zu.%d", input, d));
}
// Of dimension d of input k: its own, where it differs from others of its name, else its name's.
static int64_t bound_dim(struct onnx_ctx *c, const struct smap *bound, size_t k, int d,
                         struct str symbol) {
    const struct dim_binding *own = smap_get(bound, own_symbol(c->a, k, d)),
                             *x = own ? own : smap_get(bound, symbol);
    return x ? x->size : -1;
}
static struct smap bindings_by_symbol(const struct lower_request *req) {
    struct smap m = {.borrows = true};
    smap_seed_random(&m);
    for (int k = req->n_bindings; k-- > 0;)
        smap_put(&m, str_of(req->bindings[k].symbol), (void *)(uintptr_t)&req->bindings[k]);
    return m;
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

// Takes note of one more parameter: is it text?
static bool add_input(struct onnx_ctx *c, const struct onnx_value *v) {
    avec_push(c->a, &c->texts->in, v->elem_type == ONNX_STRING);
    return v->elem_type == ONNX_STRING;
}

// Tensor e of an input without a rank of its own.
static status_t add_loose_tensor(struct onnx_ctx *c, const struct lower_request *req, size_t input,
                                 int64_t e, int64_t *number, struct onnx_val **out) {
    const struct onnx_value *v = &c->m->main.inputs.v[input];
    int64_t dims[HLO_MAX_RANK], rank = bound(req, arena_printf(c->a, "#%zu[%04d]", input, (int)e));
    if (rank < 0 || rank > HLO_MAX_RANK)
        return st_invalid("input '" STR_FMT "': the rank of tensor %lld is not "
                          "bound",
                          STR_ARG(v->name), (long long)e);
    for (int d = 0; d < rank; d++) {
        dims[d] = bound(req, arena_printf(c->a, "#%zu[%04d].%d", input, (int)e, d));
        if (dims[d] < 0)
            return st_invalid("input '" STR_FMT "': dimension %d of tensor %lld "
                              "is not bound",
                              STR_ARG(v->name), d, (long long)e);
    }
    const struct shape *s = shape_make(c->a, onnx_dtype_of(v), dims, (int)rank);
    RETURN_IF_ERR(st_note(shape_check(s, 0), "input '" STR_FMT "'", STR_ARG(v->name)));
    *out = arena_new_of(c->a, struct onnx_val);
    (*out)->text = add_input(c, v);
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
        return st_invalid("input '" STR_FMT "': how many tensors it has is not bound (#%zu)",
                          STR_ARG(v->name), input);
    if (v->is_sequence && (n || !v->is_optional)) {
        o->list = arena_new_of(c->a, struct onnx_list);
        o->list->dtype = onnx_dtype_of(v);
        o->list->text = v->elem_type == ONNX_STRING;
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
    struct smap static_names = {0}, bound = bindings_by_symbol(req);
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
            dims[d] = v->dims[d].size >= 0 ? v->dims[d].size : bound_dim(c, &bound, k, d, symbol);
            if (dims[d] < 0)
                strbuf_printf(&missing, "%s" STR_FMT " (dimension %d of input '" STR_FMT "')",
                              missing.n ? ", " : "", STR_ARG(symbol), d, STR_ARG(v->name));
        }
        if (missing.n) continue;

        const char *name = arena_strndup(c->a, v->name.p, v->name.n);
        bool rows = req->batch && v->rank && dims[0] == req->fixed_batch;
        if (rows && !(req->whole && str_in_globs(req->whole, name))) dims[0] = req->batch;
        const struct shape *s = shape_make(c->a, onnx_dtype_of(v), dims, v->rank);
        GOTO_IF_ERR(out, st_note(shape_check(s, 0), "input '" STR_FMT "'", STR_ARG(v->name)));
        struct onnx_val *o = arena_new_of(c->a, struct onnx_val);
        o->text = add_input(c, v);
        o->v = hlo_add_param(comp, (*number)++, s, name);
        if (onnx_by_value(&static_names, v)) o->known = bound_value(c, req, k, s);
        if (o->known) o->v = hb_constant(&c->b, o->known); // the parameter stays, unused
        smap_put(&c->values, v->name, o);
    }

    if (missing.n) st = st_invalid("dimensions are not bound: %s", missing.p);
out:
    strbuf_done(&missing);
    smap_done(&static_names);
    smap_done(&bound);
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
        return st_invalid("weight %lld has two shapes", (long long)w);
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

static void note_texts(struct onnx_ctx *c, const struct onnx_val *v) {
    for (size_t e = 0; v->list && e < v->list->n; e++)
        note_texts(c, v->list->v[e]);
    if (v->v) avec_push(c->a, &c->texts->out, v->text);
}
static void put_texts(struct onnx_ctx *c, struct hlo_module *m) {
    const struct onnx_strings *t = c->texts;
    bool any = strings_count(t->table) > 1;
    for (size_t k = 0; k < t->in.n; k++)
        any = any || t->in.v[k];
    for (size_t k = 0; k < t->out.n; k++)
        any = any || t->out.v[k];
    struct string_layout l = {t->table, t->in.v, t->out.v, (int)t->in.n, (int)t->out.n};
    if (any) strings_to_module(m, &l);
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
        if (!v) return st_invalid("output '" STR_FMT "' is not defined by any node", STR_ARG(name));
        RETURN_IF_ERR(onnx_check_declared(g, &g->outputs.v[k], v));

        note_texts(c, v);
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
                return st_invalid("output '" STR_FMT
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
    return ST_OK;
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

// Initializers that the request replaces become inputs behind the others.
static status_t replace_defaults(struct onnx_ctx *c, const struct lower_request *req,
                                 struct onnx_graph *g) {
    struct smap gone = {0};
    size_t n = 0, kept = 0;
    for (size_t k = 0; k < g->defaults.n; k++) {
        if (bound(req, arena_printf(c->a, "~%zu", k)) != 1) continue;
        smap_put(&gone, g->defaults.v[k].name, NULL);
        avec_push(c->m->arena, &g->inputs, g->defaults.v[k]);
    }
    for (int k = 0; k < req->n_bindings; k++)
        n += req->bindings[k].symbol[0] == '~';
    if (n != gone.n) {
        smap_done(&gone);
        return st_invalid("a value is replaced that the model has no default for");
    }

    for (size_t k = 0; k < g->inits.n; k++)
        if (!smap_has(&gone, g->inits.v[k].name)) g->inits.v[kept++] = g->inits.v[k];
    g->inits.n = kept;
    smap_done(&gone);
    return ST_OK;
}

static status_t lower_graph(struct onnx_ctx *c, const struct lower_request *req,
                            struct onnx_graph *g, struct hlo_computation *comp) {
    int64_t number = 0;
    RETURN_IF_ERR(replace_defaults(c, req, g));
    RETURN_IF_ERR(add_inputs(c, req, comp, &number));
    RETURN_IF_ERR(add_weights(c, g, &number));
    RETURN_IF_ERR(onnx_lower_nodes(c, g));
    if (c->parts->open)
        onnx_parts_root(c, comp);
    else
        RETURN_IF_ERR(lower_outputs(c, comp));
    RETURN_IF_ERR(hb_end(&c->b));
    RETURN_IF_ERR(onnx_parts_end(c, comp));
    put_texts(c, comp->module);
    hlo_remove_dead(comp);
    drop_unused_weights(comp);
    drop_uncalled(comp->module);
    return hlo_verify(comp->module);
}

// What does not fit may be due to a size that differs from others of its name.
static status_t note_own_sizes(const struct lower_request *req, const struct onnx_model *m,
                               status_t st) {
    for (size_t k = 0; st && k < m->main.inputs.n; k++) {
        const struct onnx_value *v = &m->main.inputs.v[k];
        for (int d = 0; d < v->rank; d++) {
            struct str name = onnx_dim_symbol(m->arena, v, d);
            int64_t own = bound_size(req, own_symbol(m->arena, k, d)),
                    other = bound_size(req, name);
            if (v->dims[d].size >= 0 || own < 0) continue;
            st = st_note(st,
                         "with %lld for dimension %d ('" STR_FMT "') of input '" STR_FMT
                         "' and %lld for others of that name",
                         (long long)own, d, STR_ARG(name), STR_ARG(v->name), (long long)other);
            return st_reason(st, HLOD__V1__REASON__REASON_SHAPE_MISMATCH);
        }
    }
    return st;
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
    int64_t budget = m.limits.max_nodes, folding = EVAL_COMPILE_WORK;
    struct onnx_strings texts = {.table = strings_new(NULL, 0)};
    struct onnx_parts parts = {.req = req};
    struct onnx_ctx c = {.b = hb_begin(comp),
                         .a = mod->arena,
                         .m = &m,
                         .opset = m.opset,
                         .weights = &weights,
                         .texts = &texts,
                         .budget = &budget,
                         .folding = &folding,
                         .cancel = req->cancel,
                         .purpose = req->purpose,
                         .fixed_batch = req->fixed_batch,
                         .batch = req->batch,
                         .parts = &parts};

    st = note_own_sizes(req, &m, lower_graph(&c, req, &m.main, comp));
    smap_done(&c.values);
    for (size_t k = 0; k < parts.opened.n; k++)
        smap_done(&parts.opened.v[k]->values);
    pmap_done(&weights);
    strings_free(texts.table);
    arena_done(&tmp);

    if (st)
        hlo_module_free(mod);
    else
        *out = mod;
    return st;
}
