// SPDX-License-Identifier: Apache-2.0
// Reads case files and compares results. The comparison scales with the largest expected magnitude,
// so that cancellation in one element does not decide.
#include "compiler/tools/cases.h"

#include <math.h>

#include "compiler/eval.h"
#include "compiler/ir/text/parser.h"
#include "compiler/pipeline.h"
#include "compiler/results.h"

enum { MAX_CUT = 64 };

static struct str next_line(struct str *text) {
    struct str line = {NULL, 0};
    str_cut(text, '\n', &line);
    return line;
}

// Cuts the text of one case: up to a line "// ----".
static struct str cut_case(struct str *text, int *lines) {
    struct str all = *text;
    *lines = 0;
    while (text->n) {
        const char *at = text->p;
        struct str line = next_line(text);
        ++*lines;
        if (str_starts(str_trim(line), "// ----")) return (struct str){all.p, (size_t)(at - all.p)};
    }
    return all;
}

static status_t literal_of(struct hlo_module *m, const struct shape *s, struct str text,
                           struct literal **out) {
    struct parser p = {.start = text.p,
                       .c = {text.p, text.p + text.n},
                       .m = m,
                       .limits = {.max_literal_bytes = 1 << 26, .max_depth = 64}};
    if (s->dynamic) RETURN_IF_ERR(p_shape(&p, &p.c, 0, &s));
    return p_literal(&p, &p.c, s, out);
}

static status_t read_case(struct str text, bool results, struct test_case *c) {
    RETURN_IF_ERR(hlo_parse(text, NULL, &c->m));
    const struct hlo_computation *e = c->m->entry;
    int leaves = shape_leaves(e->root->shape);
    c->tol = c->rtol = -1;
    c->in = arena_zarray(c->m->arena, struct literal *, e->params.n + 1);
    c->want = arena_zarray(c->m->arena, struct literal *, leaves + 1);

    while (text.n) {
        struct str line = str_trim(next_line(&text));
        bool in = str_starts(line, "// IN:"), want = results && str_starts(line, "// OUT:");
        struct str value = {line.p + (in ? 6 : 7), line.n - (in ? 6 : 7)};

        if (str_starts(line, "// TOL:") &&
            !str_to_f64(str_trim((struct str){line.p + 7, line.n - 7}), &c->tol))
            return st_invalid("bad TOL line");
        if (str_starts(line, "// RTOL:") &&
            !str_to_f64(str_trim((struct str){line.p + 8, line.n - 8}), &c->rtol))
            return st_invalid("bad RTOL line");
        if (str_starts(line, "// REFUSED:"))
            c->refused = str_trim((struct str){line.p + 11, line.n - 11});

        if (!in && !want) continue;
        if (in ? c->n_in >= (int)e->params.n : c->n_want >= leaves)
            return st_invalid("too many %s lines", in ? "IN" : "OUT");
        const struct shape *s =
            in ? e->params.v[c->n_in]->shape : shape_leaf(e->root->shape, c->n_want);
        RETURN_IF_ERR(
            st_note(literal_of(c->m, s, value, in ? &c->in[c->n_in] : &c->want[c->n_want]),
                    "%s line %d", in ? "IN" : "OUT", in ? c->n_in : c->n_want));
        *(in ? &c->n_in : &c->n_want) += 1;
    }

    if (c->n_in != (int)e->params.n || c->n_want != (c->refused.n || !results ? 0 : leaves))
        return st_invalid("%d IN lines for %zu parameters, %d OUT lines for %d results", c->n_in,
                          e->params.n, c->n_want, leaves);
    return ST_OK;
}

static status_t next_case(struct str *text, int *line, bool results, struct test_case *out) {
    *out = (struct test_case){.line = *line};
    while (text->n) {
        int lines;
        struct str one = cut_case(text, &lines);
        out->line = *line + 1;
        *line += lines;
        if (str_trim(one).n == 0) continue;
        status_t st = st_note(read_case(one, results, out), "case at line %d", out->line);
        if (st) cases_done(out);
        return st;
    }
    return ST_OK;
}
status_t cases_next(struct str *text, int *line, struct test_case *out) {
    return next_case(text, line, true, out);
}
status_t cases_next_inputs(struct str *text, int *line, struct test_case *out) {
    return next_case(text, line, false, out);
}
void cases_done(struct test_case *c) {
    hlo_module_free(c->m);
    c->m = NULL;
}

// The part of leaf k that counts, in m's arena.
static const struct literal *true_part(const struct hlo_module *m, int k,
                                       struct literal *const *got) {
    struct dynamic_result r[MAX_CUT];
    const struct shape *s = got[k]->shape;
    struct literal *part = NULL;
    int64_t dims[HLO_MAX_RANK];
    int n = results_dynamic(m, r, MAX_CUT);
    if (s->rank) memcpy(dims, s->dims, sizeof *dims * (size_t)s->rank);
    for (int j = 0; j < n; j++) {
        if (r[j].leaf != k) continue;
        if (!part) part = lit_clone(m->arena, got[k]);
        results_cut(dtype_size(s->dtype), s->rank, r[j].dim, lit_get_i64(got[r[j].size_leaf], 0),
                    part->data, dims);
        part->shape = shape_make(m->arena, s->dtype, dims, s->rank);
    }
    return part ? part : got[k];
}
bool cases_matches(const struct test_case *c, const struct hlo_module *m, int k,
                  struct literal *const *all, struct strbuf *why) {
    const struct literal *want = c->want[k], *got = true_part(m, k, all);
    enum dtype t = want->shape->dtype;
    bool inexact = dtype_is_float(t) || dtype_is_complex(t);
    double tol = c->tol >= 0          ? c->tol
                 : !inexact           ? 0
                 : dtype_bits(t) <= 8 ? 0
                 : t == DT_F16        ? 1e-3
                 : t == DT_BF16       ? 8e-3
                                      : 1e-6,
           scale = 0;

    if (!shape_compatible(want->shape, got->shape)) {
        strbuf_puts(why, "shape differs");
        return false;
    }

    int64_t n = shape_elements(want->shape);
    for (int64_t e = 0; e < n; e++) {
        double v[2];
        lit_get_c128(want, e, v);
        for (int p = 0; p < 2; p++)
            if (isfinite(v[p]) && fabs(v[p]) > scale) scale = fabs(v[p]);
    }

    for (int64_t e = 0; e < n; e++) {
        double x[2], y[2];
        lit_get_c128(want, e, x);
        lit_get_c128(got, e, y);
        for (int p = 0; p < 2; p++) {
            bool same = (isnan(x[p]) && isnan(y[p])) || x[p] == y[p] ||
                        (isfinite(x[p]) && isfinite(y[p]) &&
                         fabs(x[p] - y[p]) <= (c->rtol >= 0 ? c->rtol * fabs(x[p]) : tol * scale));
            if (!inexact && t != DT_PRED) same = lit_get_i64(want, e) == lit_get_i64(got, e);
            if (same) continue;
            strbuf_printf(why, "element %lld is %.9g, expected %.9g", (long long)e, y[p], x[p]);
            return false;
        }
    }
    return true;
}

bool cases_refused(const struct test_case *c, status_t st) {
    const char *said = st_message(st);
    return st_code(st) == ST_UNIMPLEMENTED &&
           memmem(said, strlen(said), c->refused.p, c->refused.n);
}

status_t cases_check(struct str text, FILE *log, int *out_rc) {
    int line = 0, ran = 0, failed = 0;
    for (;;) {
        struct test_case c;
        RETURN_IF_ERR(cases_next(&text, &line, &c));
        if (!c.m) break;

        struct arena a = {0};
        struct hlo_eval ev = hlo_eval_begin(&a);
        struct literal *got;
        status_t st = pipeline_evaluable(c.m);
        if (!st) st = hlo_eval_module(&ev, c.m, c.in, c.n_in, &got);
        struct strbuf why = {0};
        bool ok = c.refused.n ? cases_refused(&c, st) : !st;

        if (!ok) strbuf_puts(&why, st ? st_message(st) : "was not refused");
        int leaves = ok && !st ? shape_leaves(got->shape) : 0;
        struct literal **each = arena_array(&a, struct literal *, leaves + 1);
        for (int k = 0; k < leaves; k++)
            each[k] = lit_leaf(got, k);

        for (int k = 0; ok && k < c.n_want; k++)
            ok = cases_matches(&c, c.m, k, each, &why);
        if (!ok) fprintf(log, "case at line %d: %s\n", c.line, strbuf_cstr(&why));
        st_drop(st);

        strbuf_done(&why);
        arena_done(&a);
        cases_done(&c);
        ran++;
        failed += !ok;
    }

    if (!ran) return st_invalid("the file has no cases");
    fprintf(log, "%d cases, %d failed\n", ran, failed);
    *out_rc = failed > 0;
    return ST_OK;
}
