// SPDX-License-Identifier: Apache-2.0
// See device_cases.h. Inputs are entry parameters; nothing is bound, so the prepare module is empty
// but for what constants alone give.
#include "devices/device_cases.h"

// Leaves of an input in the order of the plan's parameters.
static int leaves_in(const struct literal *l, const void **out, int n) {
    if (!shape_is_tuple(l->shape)) {
        out[n++] = l->data;
        return n;
    }
    for (int e = 0; e < l->shape->n_elems; e++)
        n = leaves_in(l->elems[e], out, n);
    return n;
}

// Parameters that nothing reads keep their place, so inputs are given as the case lists them.
static status_t run_loaded(struct device_cases *dc, const struct test_case *c, struct dev_exe *x,
                           struct arena *a, FILE *log, bool *ok) {
    struct dev_weights *w;
    const struct shape *root = x->exe->main->entry->root->shape;
    int n_in = 0, n_out = shape_leaves(root), total = 0;
    for (int k = 0; k < c->n_in; k++)
        total += shape_leaves(c->in[k]->shape);
    const void **in = arena_zarray(a, const void *, total + 1);
    void **out = arena_zarray(a, void *, n_out + 1);
    for (int k = 0; k < c->n_in; k++)
        n_in = leaves_in(c->in[k], in, n_in);
    for (int k = 0; k < n_out; k++)
        out[k] = arena_alloc_aligned(a, (size_t)shape_bytes(shape_leaf(root, k)) + 64, 64);

    RETURN_IF_ERR(dev_prepare(x, NULL, 0, NULL, &w));
    struct profile p = {.rows = arena_zarray(a, struct profile_row, 1024), .cap = 1024};
    status_t st = dev_run(x, w, &(struct dev_run){.in = in, .out = out, .profile = &p});
    dev_release(w);
    if (st) return st;

    for (int k = 0; k < p.n; k++) {
        bool fell = strcmp(p.rows[k].impl, "reference") == 0;
        dc->steps++;
        dc->reference += fell;
        if (fell && dc->list_reference)
            fprintf(log, "case at line %d: %s on the reference evaluator\n", c->line, p.rows[k].op);
    }

    struct strbuf why = {0};
    struct literal **got = arena_array(a, struct literal *, n_out + 1);
    for (int k = 0; k < n_out; k++)
        got[k] = lit_borrow(a, shape_leaf(root, k), out[k]);
    for (int k = 0; k < c->n_want && *ok; k++)
        *ok = cases_matches(c, x->exe->main, k, got, &why);
    if (!*ok) fprintf(log, "case at line %d: %s\n", c->line, strbuf_cstr(&why));
    strbuf_done(&why);
    return ST_OK;
}

static status_t run_case(struct device *d, struct device_cases *dc, struct test_case *c, FILE *log,
                         bool *ok) {
    struct compile_options opt = {.precision = dc->precision,
                                  .disable_passes = dc->disable_passes ? dc->disable_passes : "",
                                  .disable_rules = "",
                                  .verify_each = true};
    struct executable *e;
    struct dev_exe *x;
    struct arena a = {0};
    RETURN_IF_ERR(hlo_compile_module(hlo_module_clone(c->m), &opt, dev_target(d), NULL, &e));
    RETURN_IF_ERR(dev_load(d, e, NULL, &x));
    status_t st = run_loaded(dc, c, x, &a, log, ok);
    dev_unload(x);
    arena_done(&a);
    return st;
}

status_t device_cases_check(struct device *d, struct str text, FILE *log, struct device_cases *dc) {
    int line = 0, before = dc->ran;
    for (;;) {
        struct test_case c;
        bool ok = true;
        RETURN_IF_ERR(cases_next(&text, &line, &c));
        if (!c.m) break;
        status_t st = run_case(d, dc, &c, log, &ok);
        dc->ran++;
        if (c.refused.n) {
            if (!cases_refused(&c, st)) {
                fprintf(log, "case at line %d: %s\n", c.line,
                        st ? st_message(st) : "was not refused");
                dc->failed++;
            }
        } else if (st_code(st) == ST_UNIMPLEMENTED) {
            fprintf(log, "case at line %d: not run: %s\n", c.line, st_message(st));
            dc->skipped++;
        } else if (st || !ok) {
            if (st) fprintf(log, "case at line %d: %s\n", c.line, st_message(st));
            dc->failed++;
        }
        st_drop(st);
        cases_done(&c);
    }
    if (dc->ran == before) return st_invalid("the file has no cases");
    return ST_OK;
}
