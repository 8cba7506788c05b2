// SPDX-License-Identifier: Apache-2.0
// Signature and digest of an HLO module, and the refusal of what cannot run.
#include "compiler/frontend/hlo/hlo_ingest.h"

#include <string.h>

#include "compiler/eval.h"
#include "compiler/frontend/hlo/hlo_params.h"
#include "proto/hlod.pb-c.h"

struct hlo_parse_limits hlo_ingest_limits(const struct frontend_limits *limits) {
    struct hlo_parse_limits l = {.max_text_bytes = INT64_C(256) << 20,
                                 .max_literal_bytes = INT64_C(256) << 20,
                                 .max_depth = 64,
                                 .max_instrs = 1000000};
    if (limits && limits->max_program_bytes) l.max_text_bytes = limits->max_program_bytes;
    if (limits && limits->max_nodes) l.max_instrs = limits->max_nodes;
    if (limits && limits->max_depth) l.max_depth = limits->max_depth;
    return l;
}

// ---- calls of what is not here

// In `certain`: computations that a run comes to without choosing a branch. Callees come first.
static void find_certain(const struct hlo_module *m, struct pmap *certain) {
    pmap_put_ptr(certain, m->entry, NULL);
    for (const struct hlo_computation *c = m->last; c; c = c->prev) {
        if (!pmap_has_ptr(certain, c)) continue;
        for (const struct hlo_instr *i = c->first; i; i = i->next)
            for (int k = 0; k < i->n_called && i->op != HLO_CONDITIONAL; k++)
                pmap_put_ptr(certain, i->called[k], NULL);
    }
}

// One instruction that ends a run with `why` instead of call i, which is to be removed. Its name
// tells which: the text is part of the program's digest, names are not.
static status_t end_run_at(struct hlo_instr *i, const char *why, struct hlo_instr **out) {
    struct hlo_instr *end;
    struct strbuf text = {0};
    strbuf_printf(&text, "the run came to a branch that cannot run here: %s", why);
    status_t st = hlo_end_run(i->parent, i->shape, strbuf_cstr(&text), &end);
    strbuf_done(&text);
    if (st) return st;

    const char *name = i->name;
    end->op_name = i->op_name;
    for (size_t k = 0; k < i->control_preds.n; k++)
        hlo_add_control_pred(end, i->control_preds.v[k]);
    hlo_move_before(end, i);
    hlo_replace_uses(i, end);
    hlo_set_name(i, "ended");
    hlo_set_name(end, name);
    *out = end;
    return ST_OK;
}

static bool has_no_result(const struct hlo_instr *i) {
    return shape_is_tuple(i->shape) && i->shape->n_elems == 0;
}

// jax.debug.print and jax.debug.callback by the name that JAX gives them: they show values to who
// runs the Python process, and JAX itself may leave them out.
static bool only_shows(const struct hlo_instr *i) {
    static const char *const by[] = {"debug_print", "debug_callback"};
    if (i->users.n || i->parent->root == i || !has_no_result(i) || !hlo_eval_calls_python(i))
        return false;
    for (int k = 0; k < 2; k++)
        if (str_starts(str_of(i->name), by[k]) &&
            (!i->name[strlen(by[k])] || i->name[strlen(by[k])] == '.'))
            return true;
    return false;
}

// Whether a run may go on until it comes to call i. One without results that is not named may only
// show what it is given: a run must not end for it. A dynamic size has no value to stand for.
static bool may_wait(const struct hlo_instr *i, bool named) {
    for (int k = 0; k < shape_leaves(i->shape); k++)
        if (shape_leaf(i->shape, k)->dynamic) return false;
    return named || !has_no_result(i) || !hlo_eval_calls_python(i);
}

status_t hlo_ingest_calls(struct hlo_module *m, bool named) {
    struct pmap certain = {0};
    status_t st = ST_OK;
    find_certain(m, &certain);
    HLO_EACH_COMPUTATION(c, m) {
        struct pmap gone = {0}; // call -> what stands for it
        VEC(struct hlo_instr *) calls = {0};
        HLO_EACH_INSTR(i, c) {
            struct hlo_instr *end = NULL;
            if (i->op != HLO_CUSTOM_CALL || st) continue;
            status_t why = hlo_eval_supports_call(i);
            if (why && named && only_shows(i)) {
                pmap_put_ptr(&gone, i, NULL);
                vec_push(&calls, i);
            } else if (why && !pmap_has_ptr(&certain, c) && may_wait(i, named)) {
                st = end_run_at(i, st_message(why), &end);
                pmap_put_ptr(&gone, i, end);
                if (!st) vec_push(&calls, i);
            } // else hlo_ingest_check_runs tells all of them
            st_drop(why);
        }
        hlo_replace_control_preds(c, &gone);
        for (size_t k = 0; k < calls.n; k++)
            hlo_remove_instr(calls.v[k]);
        pmap_done(&gone);
        vec_done(&calls);
    }
    pmap_done(&certain);
    return st;
}

status_t hlo_ingest_lowered(struct hlo_module *m) {
    status_t st = hlo_split_tuple_params(m);
    if (!st) st = hlo_ingest_calls(m, true);
    if (st) hlo_module_free(m);
    return st;
}

// What the evaluator does not run, no device of this build does: it stands last in every list.
status_t hlo_ingest_check_runs(const struct hlo_module *m) {
    struct strbuf b = {0};
    int n = 0;
    strbuf_limit(&b, 64 * 1024);
    HLO_EACH_COMPUTATION(c, m) {
        for (const struct hlo_instr *i = c->first; i; i = i->next) {
            if (i->op == HLO_PARAMETER) continue;
            status_t st = hlo_eval_supports(i);
            if (!st) continue;
            n++;
            strbuf_printf(&b, "\n%s", st_message(st));
            st_drop(st);
        }
    }
    status_t st = n ? st_reason(st_invalid("%d instruction%s cannot run:%s", n, n == 1 ? "" : "s",
                                           strbuf_cstr(&b)),
                                HLOD__V1__REASON__REASON_UNSUPPORTED_OP)
                    : ST_OK;
    strbuf_done(&b);
    return st;
}

MUST_CHECK static status_t tensor_of(struct arena *a, const char *what, const char *name,
                                     const struct shape *s, struct sig_tensor *out) {
    if (dtype_size(s->dtype) == 0)
        return st_invalid("%s '%s' is no tensor of a type that can be sent", what, name);
    *out = (struct sig_tensor){.name = arena_strdup(a, name), .dtype = s->dtype, .rank = s->rank};
    out->dims = arena_zarray(a, struct sig_dim, s->rank + 1);
    for (int d = 0; d < s->rank; d++)
        out->dims[d].size = s->dims[d];
    return ST_OK;
}

static void count_ops(struct arena *a, const struct hlo_module *m, struct program_info *out) {
    struct smap seen = {0};
    HLO_EACH_COMPUTATION(c, m)
    for (const struct hlo_instr *i = c->first; i; i = i->next)
        frontend_program_info_count(a, out, &seen, str_of(hlo_op_name(i->op)));
    frontend_program_info_sort(out);
    smap_done(&seen);
}

// ---- names of inputs
// XLA writes a caller's argument params['w'] as instruction params__w__.1 and keeps the author's
// words in op_name of its metadata, where the text was printed with it.

// op_name as the name of an argument, or NULL. Not where op_type says that it is an operation's;
// `=` ends a name on command lines.
static const char *argument_name(const struct hlo_instr *i) {
    if (i->op_type || !i->op_name || !*i->op_name || strlen(i->op_name) > 512) return NULL;
    for (const char *p = i->op_name; *p; p++)
        if ((uint8_t)*p < ' ' || (uint8_t)*p > '~' || *p == '=') return NULL;
    return i->op_name;
}

// "x" of the instruction "x.1": XLA gives each name of a module that it makes a number, that of
// the entry too. A name without one, or a module that somebody wrote, keeps its own.
static const char *without_number(struct arena *a, const struct hlo_computation *entry,
                                  const char *name) {
    const char *dot = strrchr(name, '.'), *of_entry = strrchr(entry->name, '.');
    int64_t number;
    if (!dot || dot == name || !of_entry || !str_to_i64(str_of(dot + 1), &number) ||
        !str_to_i64(str_of(of_entry + 1), &number))
        return NULL;
    return arena_strndup(a, name, (size_t)(dot - name));
}

// The best name of each parameter that no other has: its author's, else its instruction's. Names
// of instructions are never given to another parameter: they stay as aliases.
static void name_inputs(struct arena *a, const struct hlo_computation *e, struct signature *sig) {
    struct smap taken = {0};
    static char once, often;
    for (size_t k = 0; k < e->params.n; k++) {
        const struct hlo_instr *i = e->params.v[k];
        const char *wanted[] = {i->name, argument_name(i), without_number(a, e, i->name)};
        for (int w = 0; w < 3; w++)
            if (wanted[w] && !(w == 2 && wanted[1] && !strcmp(wanted[1], wanted[2])))
                smap_put(&taken, str_of(wanted[w]),
                         smap_has(&taken, str_of(wanted[w])) ? &often : &once);
    }
    for (size_t k = 0; k < e->params.n; k++) {
        const struct hlo_instr *i = e->params.v[k];
        const char *wanted[] = {argument_name(i), without_number(a, e, i->name)};
        for (int w = 0; w < 2; w++)
            if (wanted[w] && strcmp(wanted[w], i->name) != 0 &&
                smap_get(&taken, str_of(wanted[w])) == &once) {
                sig->in[k].name = arena_strdup(a, wanted[w]);
                sig->in[k].alias = arena_strdup(a, i->name);
                break;
            }
    }
    smap_done(&taken);
}

status_t hlo_ingest_module(struct arena *a, struct hlo_module *m, struct span source,
                           const char *format, struct ingest_result *out) {
    struct ingest_result r = {.format = format, .program = source};
    const struct hlo_computation *e = m->entry;
    RETURN_IF_ERR(hlo_split_tuple_params(m));
    int leaves = shape_leaves(e->root->shape);
    RETURN_IF_ERR(hlo_ingest_calls(m, true));
    RETURN_IF_ERR(hlo_ingest_check_runs(m));
    r.sig = (struct signature){.n_in = (int32_t)e->params.n, .n_out = leaves};
    r.sig.in = arena_zarray(a, struct sig_tensor, e->params.n + 1);
    r.sig.out = arena_zarray(a, struct sig_tensor, leaves + 1);
    for (size_t k = 0; k < e->params.n; k++)
        RETURN_IF_ERR(
            tensor_of(a, "input", e->params.v[k]->name, e->params.v[k]->shape, &r.sig.in[k]));
    name_inputs(a, e, &r.sig);
    bool one = leaves == 1 && !shape_is_tuple(e->root->shape);
    for (int k = 0; k < leaves; k++)
        RETURN_IF_ERR(tensor_of(a, "output", one ? "result" : arena_printf(a, "result%d", k),
                                shape_leaf(e->root->shape, k), &r.sig.out[k]));
    count_ops(a, m, &r.info);
    hlo_canonical_hash(m, &r.program_digest);
    r.weights_digest = sha256_of("", 0);
    *out = r;
    return ST_OK;
}
