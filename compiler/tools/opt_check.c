// SPDX-License-Identifier: Apache-2.0
// hlo-opt --check-passes: no pass may change what a module computes. Each module of the file is
// evaluated, then evaluated again after every single pass, and after the whole pipeline with its
// split into prepare and main. By default values agree within a tolerance for the type; under
// strict precision they are the same, and inputs carry zeros of both signs, infinities and NaN.
// Modules that the evaluator cannot run are left out aloud.
#include <math.h>
#include <stdio.h>

#include "compiler/tools/cases.h"
#include "compiler/eval.h"
#include "compiler/tools/opt.h"
#include "compiler/passes/control/hoist.h"
#include "compiler/pipeline.h"

enum { MAX_STEPS = 2000000, MAX_BYTES = 1 << 28, MAX_WORK = 20000000 };

struct check {
    struct arena a;             // of one module: inputs and expected values
    const struct hlo_module *m; // as the evaluator takes it
    struct literal **in, *want; // [params of m]
    struct target t;
    struct compile_options opt;
    struct strbuf why;
    int64_t compared; // results compared
};

// ---- inputs

static uint64_t next_random(uint64_t *x) {
    *x ^= *x >> 12, *x ^= *x << 25, *x ^= *x >> 27;
    return *x * UINT64_C(0x2545f4914f6cdd1d);
}
static void fill(struct literal *l, uint64_t seed, bool special) {
    static const double odd[] = {0.0, -0.0, INFINITY, -INFINITY, NAN, 1, -1, 1e-30};
    uint64_t x = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    if (shape_is_tuple(l->shape)) {
        for (int k = 0; k < l->shape->n_elems; k++)
            fill(l->elems[k], seed * 31 + (uint64_t)k, special);
        return;
    }
    enum dtype t = l->shape->dtype;
    for (int64_t k = 0, n = shape_elements(l->shape); k < n; k++) {
        uint64_t r = next_random(&x) >> 11;
        double u = (double)r / 9007199254740992.0;
        if (t == DT_PRED || dtype_is_int(t))
            lit_set_i64(l, k, t == DT_PRED ? (int64_t)(r & 1) : (int64_t)(u * 4));
        else if (special && r % 5 == 0)
            lit_set_c128(l, k, odd[r / 5 % 8], 0);
        else
            lit_set_c128(l, k, 2 * u - 1, dtype_is_complex(t) ? u : 0);
    }
}
static struct literal *random_literal(struct arena *a, const struct shape *s, uint64_t seed,
                                      bool special) {
    struct literal *l;
    if (shape_is_tuple(s)) {
        struct literal **e = arena_array(a, struct literal *, s->n_elems + 1);
        for (int k = 0; k < s->n_elems; k++)
            e[k] = random_literal(a, s->elems[k], seed * 31 + (uint64_t)k, special);
        return lit_tuple(a, s, e);
    }
    l = lit_new(a, s);
    fill(l, seed, special);
    return l;
}

// ---- evaluation and comparison

static status_t evaluate(struct arena *a, const struct hlo_module *m, struct literal *const *in,
                         struct literal **out) {
    struct hlo_eval ev = hlo_eval_begin(a);
    ev.max_steps = MAX_STEPS;
    ev.max_bytes = MAX_BYTES;
    return hlo_eval_module(&ev, m, in, (int)m->entry->params.n, out);
}

static double tolerance(enum dtype t, bool strict) {
    bool inexact = dtype_is_float(t) || dtype_is_complex(t);
    if (strict || !inexact) return 0;
    return dtype_bits(t) <= 8            ? 0.25
           : t == DT_F16                 ? 5e-3
           : t == DT_BF16                ? 4e-2
           : t == DT_F64 || t == DT_C128 ? 1e-12
                                         : 1e-5;
}
static bool same_number(double x, double y, double tol) {
    if (isnan(x) || isnan(y)) return isnan(x) && isnan(y);
    return x == y || fabs(x - y) <= tol;
}
// The coarsest rounding of halves in a module: what its values may move by where a pass leaves
// roundings out.
static double half_tolerance(const struct hlo_module *m) {
    double most = 0;
    HLO_EACH_COMPUTATION(c, m)
    HLO_EACH_INSTR(i, c)
    for (int k = 0, n = shape_leaves(i->shape); k < n; k++) {
        enum dtype t = shape_leaf(i->shape, k)->dtype;
        if ((t == DT_F16 || t == DT_BF16) && tolerance(t, false) > most) most = tolerance(t, false);
    }
    return most;
}
static bool agrees(const struct literal *want, const struct literal *got, bool strict, double least,
                   struct strbuf *why) {
    if (!shape_compatible(want->shape, got->shape)) {
        strbuf_puts(why, "the result has another shape");
        return false;
    }
    if (want->shape->dtype == DT_TOKEN) return true;
    enum dtype t = want->shape->dtype;
    double scale = 0, v[2], w[2];
    int64_t n = shape_elements(want->shape);
    bool exact = dtype_is_int(t) || t == DT_PRED;
    double part = tolerance(t, strict);
    if (part > 0 && part < least) part = least;
    for (int64_t k = 0; k < n && !exact; k++) {
        lit_get_c128(want, k, v);
        for (int p = 0; p < 2; p++)
            if (isfinite(v[p]) && fabs(v[p]) > scale) scale = fabs(v[p]);
    }
    for (int64_t k = 0; k < n; k++) {
        lit_get_c128(want, k, v);
        lit_get_c128(got, k, w);
        bool ok =
            exact ? lit_get_i64(want, k) == lit_get_i64(got, k)
                  : same_number(v[0], w[0], part * scale) && same_number(v[1], w[1], part * scale);
        if (ok) continue;
        strbuf_printf(why, "element %lld is %.9g, was %.9g", (long long)k, w[0], v[0]);
        return false;
    }
    return true;
}

static status_t compare(struct check *c, const struct literal *got, const char *after) {
    struct strbuf why = {0};
    bool strict = c->opt.precision == PRECISION_STRICT;
    int n = shape_leaves(c->want->shape);
    bool ok = n == shape_leaves(got->shape);
    bool fewer = !strcmp(after, "float-normalization") || !strcmp(after, "the whole pipeline");
    double least = fewer ? half_tolerance(c->m) : 0;
    for (int k = 0; k < n && ok; k++) // leaf by leaf: a pass may flatten the tuple of results
        ok = agrees(lit_leaf(c->want, k), lit_leaf((struct literal *)(uintptr_t)got, k), strict,
                    least, &why);
    if (!ok && !c->why.n)
        strbuf_printf(&c->why, "%s%s: %s", after, strict ? " (strict)" : "", strbuf_cstr(&why));
    strbuf_done(&why);
    c->compared++;
    return ST_OK;
}

// ---- passes

static status_t after_pass(struct check *c, const struct pass *pass) {
    struct hlo_module *m = hlo_module_clone(c->m);
    struct arena a = {0};
    struct pass_ctx p = {.opt = &c->opt, .target = &c->t, .keep = &a};
    struct literal *got;
    status_t st = pass_run(m, pass->name, &p);
    if (!st && p.changed) {
        st = st_note(evaluate(&a, m, c->in, &got), "after %s", pass->name);
        if (!st) st = compare(c, got, pass->name);
    }
    arena_done(&p.scratch);
    arena_done(&a);
    hlo_module_free(m);
    return st;
}

// Arguments of prepare and main out of those of the module.
static struct literal **weights_of(struct check *c, struct arena *a, const struct hlo_module *m) {
    struct literal **in = arena_zarray(a, struct literal *, m->entry->params.n + 1);
    for (size_t k = 0; k < m->entry->params.n; k++)
        for (size_t j = 0; j < c->m->entry->params.n; j++) {
            const struct hlo_instr *p = c->m->entry->params.v[j];
            if (p->param_kind == PARAM_WEIGHT &&
                p->param_index == m->entry->params.v[k]->param_index)
                in[k] = c->in[j];
        }
    return in;
}
static struct literal **inputs_of(struct check *c, struct arena *a, const struct hlo_module *m,
                                  const struct literal *bound) {
    struct literal **in = arena_zarray(a, struct literal *, m->entry->params.n + 1);
    size_t j = 0;
    for (size_t k = 0; k < m->entry->params.n; k++) {
        const struct hlo_instr *p = m->entry->params.v[k];
        if (p->param_kind == PARAM_BOUND) {
            in[k] = bound->elems[p->param_index];
            continue;
        }
        while (c->m->entry->params.v[j]->param_kind == PARAM_WEIGHT)
            j++;
        in[k] = c->in[j++];
    }
    return in;
}

static status_t after_split(struct check *c, struct arena *a, struct hlo_module *prepare,
                            struct hlo_module *mainm, struct pass_ctx *p) {
    struct literal *bound, *got;
    RETURN_IF_ERR(pipeline_prepare(prepare, p));
    RETURN_IF_ERR(pipeline_main(mainm, p));
    RETURN_IF_ERR(st_note(evaluate(a, prepare, weights_of(c, a, prepare), &bound), "prepare"));
    RETURN_IF_ERR(st_note(evaluate(a, mainm, inputs_of(c, a, mainm, bound), &got), "main"));
    return compare(c, got, "the whole pipeline");
}
static status_t after_pipeline(struct check *c) {
    struct hlo_module *m = hlo_module_clone(c->m), *prepare = NULL;
    struct arena a = {0};
    struct pass_ctx p = {.opt = &c->opt, .target = &c->t, .keep = &a};
    status_t st = pipeline_whole(m, &p);
    if (!st) st = hoist_split(m, &prepare);
    if (!st) st = after_split(c, &a, prepare, m, &p);
    hlo_module_free(prepare);
    hlo_module_free(m);
    arena_done(&p.scratch);
    arena_done(&a);
    return st_note(st, "the whole pipeline");
}

static status_t check_with(struct check *c, enum precision precision) {
    int n;
    const struct pass *table = pass_table(&n);
    c->opt = (struct compile_options){
        .precision = precision, .disable_passes = "", .disable_rules = "", .verify_each = true};
    for (int k = 0; k < n; k++)
        RETURN_IF_ERR(after_pass(c, &table[k]));
    return after_pipeline(c);
}

// False when the evaluator cannot run the module: the reason is printed.
static bool expected(struct check *c, const struct test_case *given, bool special) {
    const struct hlo_computation *e = c->m->entry;
    c->in = arena_zarray(&c->a, struct literal *, e->params.n + 1);
    for (size_t k = 0; k < e->params.n; k++)
        c->in[k] = given && !special && given->n_in == (int)e->params.n
                       ? given->in[k]
                       : random_literal(&c->a, e->params.v[k]->shape, k + 7, special);
    status_t st = evaluate(&c->a, c->m, c->in, &c->want);
    bool ok = !st;
    if (st) printf("not evaluated: %s: %s\n", c->m->name, st_message(st));
    st_drop(st);
    return ok;
}

// Element operations of one evaluation, roughly: each module is evaluated some forty times.
static int64_t work_of(const struct hlo_module *m) {
    int64_t sum = 0;
    HLO_EACH_COMPUTATION(c, m)
    for (const struct hlo_instr *i = c->first; i; i = i->next) {
        int64_t n = shape_bytes(i->shape), in = 1;
        for (int k = 0; k < i->n_operands; k++)
            in += shape_bytes(i->operands[k]->shape);
        int64_t each = 1;
        if (i->op == HLO_CONVOLUTION)
            each = shape_elements(i->operands[1]->shape) /
                   (i->operands[1]->shape->dims[HLO_ATTR(i, conv)->dim_labels.k_out] + 1);
        for (int k = 0; i->op == HLO_DOT && k < HLO_ATTR(i, dot)->lhs_contracting_dims.n; k++)
            each *= i->operands[0]->shape->dims[HLO_ATTR(i, dot)->lhs_contracting_dims.v[k]];
        sum += n * (each + 1) + in;
    }
    return sum;
}

static bool check_module(struct hlo_module *m, const struct test_case *given, int64_t *compared) {
    struct check c = {.m = m};
    bool ok = true;
    status_t st = pipeline_evaluable(m);
    if (st_code(st) == ST_UNIMPLEMENTED) {
        printf("not evaluated: %s: %s\n", m->name, st_message(st));
        st_drop(st);
        return true;
    }
    if (!st) st = opt_target("cpu-avx512", &c.t);
    if (work_of(m) > MAX_WORK) {
        printf("not evaluated: %s: too large\n", m->name);
        return true;
    }
    for (int special = 0; special < 2 && ok && !st; special++) {
        if (!expected(&c, given, special)) break;
        st = check_with(&c, special ? PRECISION_STRICT : PRECISION_DEFAULT);
        ok = !st && !c.why.n;
    }
    if (st) strbuf_printf(&c.why, "%s", st_message(st));
    if (!ok || st) printf("module %s: %s\n", m->name, strbuf_cstr(&c.why));
    st_drop(st);
    *compared += c.compared;
    strbuf_done(&c.why);
    arena_done(&c.a);
    return ok && !st;
}

// The next module of the file: cases are separated by lines "// ----".
static struct str next_module(struct str *text) {
    static const char mark[] = "\n// ----";
    const char *end = memmem(text->p, text->n, mark, sizeof mark - 1);
    struct str one = {text->p, end ? (size_t)(end - text->p) + 1 : text->n};
    text->p += one.n;
    text->n -= one.n;
    if (text->n) { // past the separator's line
        const char *nl = memchr(text->p, '\n', text->n);
        size_t skip = nl ? (size_t)(nl - text->p) + 1 : text->n;
        text->p += skip;
        text->n -= skip;
    }
    return one;
}

status_t opt_check_passes(struct str text, int *out_rc) {
    int64_t compared = 0;
    int modules = 0, refused = 0, failed = 0;

    while (text.n) {
        struct str one = next_module(&text), rest = one;
        struct test_case given = {0};
        struct hlo_module *m = NULL;
        int line = 0;
        if (!str_trim(one).n) continue;

        status_t st = cases_next(&rest, &line, &given);
        if (st) { // no inputs in the file
            st_drop(st);
            given.m = NULL;
            st = hlo_parse(one, NULL, &m);
        }

        if (st) {
            printf("refused: %s\n", st_message(st));
            refused++;
        } else {
            modules++;
            failed += !check_module(given.m ? given.m : m, given.m ? &given : NULL, &compared);
        }

        st_drop(st);
        cases_done(&given);
        hlo_module_free(m);
    }

    printf("%d modules, %lld comparisons, %d refused, %d failed\n", modules, (long long)compared,
           refused, failed);
    *out_rc = failed > 0;
    return ST_OK;
}
