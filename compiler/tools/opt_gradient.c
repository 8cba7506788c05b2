// SPDX-License-Identifier: Apache-2.0
// Derivatives against central differences: of each case (tests/ops), in double precision, the
// derivative in a random direction. Points are the case's inputs, moved a little, and random ones;
// those where the function has no value or a corner are passed over.
#include "compiler/tools/opt.h"

#include <math.h>
#include <stdio.h>

#include "compiler/eval.h"
#include "compiler/gradient/gradient.h"
#include "compiler/pipeline.h"
#include "compiler/tools/cases.h"

enum { POINTS = 6 };
// Where inputs are drawn from; low = high: the case's own, moved by so much.
static const struct {
    double low, high;
} ranges[POINTS] = {{0.01, 0.01}, {0.2, 0.8}, {1.2, 1.9}, {-0.9, 0.9}, {-3, 3}, {0.3, 0.3}};

struct check {
    struct test_case *c;
    struct hlo_module *g, *f; // the derivatives, reverse and forward
    struct arena a;
    uint64_t random;
    struct literal **x, **v, **seeds; // inputs, direction, weights of the results' leaves
    int n_x, n_leaves;
};
static double draw(struct check *k) { // in [0, 1): SplitMix64
    uint64_t z = k->random += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}
static bool is_number(const struct shape *s) {
    return dtype_is_float(s->dtype) || dtype_is_complex(s->dtype);
}
static void fill(struct check *k, struct literal *l, double low, double high) {
    for (int64_t e = 0; e < shape_elements(l->shape); e++) {
        double re = low + (high - low) * draw(k), im = low + (high - low) * draw(k);
        lit_set_c128(l, e, re, dtype_is_complex(l->shape->dtype) ? im : 0);
    }
}
// x + by * v
static struct literal *moved(struct check *k, struct literal *x, struct literal *v, double by) {
    struct literal *r = lit_clone(&k->a, x);
    for (int j = 0; j < shape_leaves(x->shape); j++) {
        struct literal *to = lit_leaf(r, j), *d = lit_leaf(v, j);
        if (!is_number(to->shape)) continue;
        for (int64_t e = 0; e < shape_elements(to->shape); e++) {
            double p[2], q[2];
            lit_get_c128(to, e, p);
            lit_get_c128(d, e, q);
            lit_set_c128(to, e, p[0] + by * q[0], p[1] + by * q[1]);
        }
    }
    return r;
}
// The real part of the sum of products, over the leaves of numbers.
static double inner(struct literal *x, struct literal *y) {
    double sum = 0;
    for (int64_t e = 0; e < shape_elements(x->shape); e++) {
        double p[2], q[2];
        lit_get_c128(x, e, p);
        lit_get_c128(y, e, q);
        if (p[0] == 0 && p[1] == 0) continue; // a seed of 0 asks for nothing
        sum += p[0] * q[0] - p[1] * q[1];
    }
    return sum;
}
static status_t value_at(struct check *k, double by, double *out) {
    struct hlo_eval ev = hlo_eval_begin(&k->a);
    struct literal **in = arena_zarray(&k->a, struct literal *, k->n_x + 1), *got;
    for (int j = 0; j < k->n_x; j++)
        in[j] = moved(k, k->x[j], k->v[j], by);
    RETURN_IF_ERR(hlo_eval_module(&ev, k->c->m, in, k->n_x, &got));
    *out = 0;
    for (int j = 0; j < k->n_leaves; j++)
        if (k->seeds[j]) *out += inner(k->seeds[j], lit_leaf(got, j));
    return ST_OK;
}
static status_t derivative_at(struct check *k, double *out, double *size) {
    struct hlo_eval ev = hlo_eval_begin(&k->a);
    struct literal **in = arena_zarray(&k->a, struct literal *, k->n_x + k->n_leaves + 1), *got;
    int n = k->n_x, at = 0;
    for (int j = 0; j < k->n_x; j++)
        in[j] = k->x[j];
    for (int j = 0; j < k->n_leaves; j++)
        if (k->seeds[j]) in[n++] = k->seeds[j];
    RETURN_IF_ERR(hlo_eval_module(&ev, k->g, in, n, &got));
    *out = *size = 0;
    for (int j = 0; j < k->n_x; j++)
        for (int leaf = 0; leaf < shape_leaves(k->x[j]->shape); leaf++) {
            struct literal *v = lit_leaf(k->v[j], leaf);
            if (!is_number(v->shape)) continue;
            double one = inner(v, lit_leaf(got, at++));
            *out += one, *size += fabs(one);
        }
    return ST_OK;
}
// The same by forward mode.
static status_t forward_at(struct check *k, double *out) {
    struct hlo_eval ev = hlo_eval_begin(&k->a);
    struct arena *a = &k->a;
    struct literal **in, *got;
    int n = k->n_x, at = 0, leaves = 0;
    for (int j = 0; j < k->n_x; j++)
        leaves += shape_leaves(k->x[j]->shape);
    in = arena_zarray(a, struct literal *, n + leaves + 1);
    for (int j = 0; j < k->n_x; j++) {
        in[j] = k->x[j];
        for (int leaf = 0; leaf < shape_leaves(k->v[j]->shape); leaf++)
            if (is_number(lit_leaf(k->v[j], leaf)->shape)) in[n++] = lit_leaf(k->v[j], leaf);
    }
    RETURN_IF_ERR(hlo_eval_module(&ev, k->f, in, n, &got));
    *out = 0;
    for (int j = 0; j < k->n_leaves; j++)
        if (k->seeds[j]) *out += inner(k->seeds[j], lit_leaf(got, at++));
    return ST_OK;
}
static void choose(struct check *k, int point) {
    double low = ranges[point].low, high = ranges[point].high;
    bool own = low == high;
    for (int j = 0; j < k->n_x; j++) {
        k->x[j] = lit_clone(&k->a, k->c->in[j]);
        k->v[j] = lit_clone(&k->a, k->c->in[j]);
        for (int leaf = 0; leaf < shape_leaves(k->x[j]->shape); leaf++) {
            if (!is_number(lit_leaf(k->x[j], leaf)->shape)) continue;
            fill(k, lit_leaf(k->v[j], leaf), -1, 1);
            if (!own) fill(k, lit_leaf(k->x[j], leaf), low, high);
        }
        if (own) k->x[j] = moved(k, k->x[j], k->v[j], low);
    }
    int leaves = 0;
    for (int j = 0; j < k->n_leaves; j++) {
        const struct shape *s = shape_leaf(k->c->m->entry->root->shape, j);
        k->seeds[j] = NULL;
        if (!is_number(s)) continue;
        k->seeds[j] = lit_new(&k->a, s);
        fill(k, k->seeds[j], -1, 1);
        leaves++;
    }
}
// Has a value that the entry computes on the way no number, or does its slope have none (a root at
// 0)? The derivative through it has none either, though the value may be left out of the result.
static status_t lost_on_the_way(struct check *k, bool *out) {
    struct hlo_module *m = hlo_module_clone(k->c->m);
    struct hb b = hb_begin(m->entry);
    struct literal *got = NULL;
    hv *all = arena_array(&k->a, hv, 2 * m->entry->n_instrs + 1);
    int n = 0;
    for (hv i = m->entry->first; i; i = i->next)
        if (is_number(i->shape)) all[n++] = i;
    for (int j = 0, values = n; j < values; j++)
        if (all[j]->op == HLO_CBRT || all[j]->op == HLO_SQRT)
            all[n++] = hb_div(&b, hb_splat(&b, all[j]->shape, 1), all[j]);
    hv root = hb_tuple(&b, all, n);
    status_t st = hb_end(&b);
    if (!st) {
        hlo_set_root(m->entry, root);
        struct hlo_eval ev = hlo_eval_begin(&k->a);
        st = hlo_eval_module(&ev, m, k->x, k->n_x, &got);
    }
    *out = false;
    for (int j = 0; j < n && !st; j++)
        for (int64_t e = 0; e < shape_elements(got->elems[j]->shape); e++) {
            double v[2];
            lit_get_c128(got->elems[j], e, v);
            *out |= !isfinite(v[0]) || !isfinite(v[1]);
        }
    hlo_module_free(m);
    return st;
}
// Do differences over a smaller step tell another slope than `want`? A remainder of huge numbers
// has a thousand teeth in the step, each as steep as the derivative says.
static status_t has_teeth(struct check *k, double want, double h, bool *out) {
    double up, down;
    RETURN_IF_ERR(value_at(k, h / 64, &up));
    RETURN_IF_ERR(value_at(k, -h / 64, &down));
    double near = (up - down) / (2 * h / 64);
    *out = !(fabs(near - want) <= 0.01 * (fabs(near) + fabs(want)));
    return ST_OK;
}
// 1: equal; 0: the function has a corner or no value there; -1: differs, told on stdout.
static status_t compare_at(struct check *k, int point, int *verdict) {
    double d, size, here, up, down, forward, h = 1e-6;
    *verdict = 0;
    choose(k, point);
    RETURN_IF_ERR(value_at(k, 0, &here));
    RETURN_IF_ERR(value_at(k, h, &up));
    RETURN_IF_ERR(value_at(k, -h, &down));
    RETURN_IF_ERR(derivative_at(k, &d, &size));
    RETURN_IF_ERR(forward_at(k, &forward));
    double right = (up - here) / h, left = (here - down) / h, want = (up - down) / (2 * h);
    double scale = fabs(want) + size + 1e-9 / h * fabs(here) + 1e-6;
    if (!isfinite(here) || !isfinite(right) || !isfinite(left)) return ST_OK;
    if (fabs(right - left) > 1e-3 * scale) return ST_OK;
    bool lost = false;
    if (isnan(d)) RETURN_IF_ERR(lost_on_the_way(k, &lost));
    if (lost) return ST_OK;
    bool equal = fabs(d - want) <= 2e-5 * scale && fabs(forward - d) <= 1e-7 * (scale + size);
    if (!equal) RETURN_IF_ERR(has_teeth(k, want, h, &lost));
    if (lost) return ST_OK;
    *verdict = equal ? 1 : -1;
    if (!equal)
        printf("case at line %d, point %d: derivative %.9g, forward %.9g, differences %.9g\n",
               k->c->line, point, d, forward, want);
    return ST_OK;
}
static bool has_numbers(const struct check *k) {
    bool in = false, out = false;
    for (int j = 0; j < k->c->n_in; j++)
        for (int leaf = 0; leaf < shape_leaves(k->c->in[j]->shape); leaf++)
            in |= is_number(shape_leaf(k->c->in[j]->shape, leaf));
    for (int leaf = 0; leaf < k->n_leaves; leaf++)
        out |= is_number(shape_leaf(k->c->m->entry->root->shape, leaf));
    return in && out;
}
struct tally {
    int equal, unfit, refused, differ, left_out;
};
static status_t check_one(struct check *k, struct tally *n) {
    status_t st = pipeline_evaluable(k->c->m);
    if (st || !has_numbers(k)) {
        n->left_out++;
        st_drop(st);
        return ST_OK;
    }
    k->g = hlo_module_clone(k->c->m);
    k->f = hlo_module_clone(k->c->m);
    st = gradient_module(k->g);
    if (!st) st = gradient_forward(k->f);
    if (st && st_code(st) == ST_UNIMPLEMENTED) {
        printf("refused: %s\n", st_message(st));
        n->refused++;
        st_drop(st);
        return ST_OK;
    }
    RETURN_IF_ERR(st);
    RETURN_IF_ERR(hlo_verify(k->g));
    RETURN_IF_ERR(hlo_verify(k->f));
    int equal = 0, differ = 0, verdict = 0;
    for (int p = 0; p < POINTS; p++) {
        RETURN_IF_ERR(compare_at(k, p, &verdict));
        equal += verdict > 0, differ += verdict < 0;
    }
    n->differ += differ > 0;
    n->equal += !differ && equal;
    n->unfit += !differ && !equal;
    return ST_OK;
}

status_t opt_check_gradient(struct str text, int *out_rc) {
    struct tally n = {0};
    int line = 0;
    for (uint64_t seed = 1;; seed++) {
        struct test_case c;
        RETURN_IF_ERR(cases_next_inputs(&text, &line, &c));
        if (!c.m) break;
        struct check k = {.c = &c, .random = seed, .n_x = c.n_in};
        k.n_leaves = shape_leaves(c.m->entry->root->shape);
        k.x = arena_zarray(&k.a, struct literal *, 2 * c.n_in + k.n_leaves + 1);
        k.v = k.x + c.n_in, k.seeds = k.v + c.n_in;
        status_t st = c.refused.n ? ST_OK : st_note(check_one(&k, &n), "case at line %d", c.line);
        hlo_module_free(k.g);
        hlo_module_free(k.f);
        arena_done(&k.a);
        cases_done(&c);
        RETURN_IF_ERR(st);
    }
    printf("%d equal, %d without a smooth point, %d refused, %d without numbers, %d differ\n",
           n.equal, n.unfit, n.refused, n.left_out, n.differ);
    *out_rc = n.differ > 0;
    return ST_OK;
}
