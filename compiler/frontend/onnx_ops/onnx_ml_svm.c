// SPDX-License-Identifier: Apache-2.0
// Support vector machines of ai.onnx.ml: kernels between samples and support vectors, one decision
// for each pair of classes, votes, and probabilities coupled from the pairs as libsvm does (Wu, Lin
// and Weng, Probability Estimates for Multi-class Classification by Pairwise Coupling, algorithm
// 2). Scores follow ONNX Runtime where the standard leaves them open.
#include "compiler/frontend/onnx/onnx_tools.h"

enum { MAX_CLASSES = 64, MAX_TURNS = 100 };
struct svm {
    hv kernel;                     // [n, vectors], f32; linear machines: NULL
    const float *coef, *rho;       // [classes - 1, vectors], [pairs]
    size_t n_coef, n_rho, classes; // 0 = not told by vectors_per_class
    const struct onnx_attr *per_class;
};

static hv matrix(struct onnx_ctx *c, const float *v, int64_t rows, int64_t columns) {
    return onnx_lit_f32s(c, v, (int64_t[]){rows, columns}, 2);
}
static hv times(struct onnx_ctx *c, hv x, hv y) { // x [n, k], y [m, k] -> [n, m]
    int64_t one = 1;
    return hb_dot_over(&c->b, x, y, one, one);
}
// The kernel function between each row of x [n, features] and of v [m, features].
static hv kernel_of(struct onnx_ctx *c, hv x, hv v) {
    struct hb *b = &c->b;
    struct str type = onnx_at_str(c, "kernel_type", "LINEAR");
    const float *p;
    size_t n = onnx_at_floats(c, "kernel_params", &p);
    double gamma = n > 0 ? (double)p[0] : 0, coef = n > 1 ? (double)p[1] : 0,
           degree = n > 2 ? (double)p[2] : 0;
    if (str_is(type, "RBF")) {
        int64_t last = 2, dims[3] = {x->shape->dims[0], v->shape->dims[0], x->shape->dims[1]};
        hv d = hb_sub(b, hb_broadcast(b, x, dims, 3, (int64_t[]){0, 2}),
                      hb_broadcast(b, v, dims, 3, (int64_t[]){1, 2}));
        d = onnx_reduce_keep(c, hb_mul(b, d, d), &last, 1, HLO_ADD, false);
        return hb_unary(b, HLO_EXP, onnx_mul_k(c, d, -gamma));
    }
    hv dot = times(c, x, v);
    if (str_is(type, "LINEAR")) return dot;
    dot = onnx_add_k(c, onnx_mul_k(c, dot, gamma), coef);
    if (str_is(type, "SIGMOID")) return hb_unary(b, HLO_TANH, dot);
    if (str_is(type, "POLY")) return hb_binary(b, HLO_POWER, dot, onnx_splat_like(c, dot, degree));
    return onnx_fail(c, "kernel_type '" STR_FMT "'", STR_ARG(type)), dot;
}
static bool read_svm(struct onnx_ctx *c, hv x, struct svm *s) {
    const float *v;
    size_t n = onnx_at_floats(c, "support_vectors", &v);
    s->n_coef = onnx_at_floats(c, "coefficients", &s->coef),
    s->n_rho = onnx_at_floats(c, "rho", &s->rho);
    if (x->shape->rank != 2 || x->shape->dims[1] < 1 || !s->n_rho || !s->n_coef)
        return onnx_fail(c, "%zu coefficients, %zu rho for %s", s->n_coef, s->n_rho,
                         onnx_show(c, x)),
               false;
    if (n == 0) return true;
    int64_t features = x->shape->dims[1], m = (int64_t)n / features;
    if (m * features != (int64_t)n)
        return onnx_fail(c, "%zu numbers of support_vectors for %s", n, onnx_show(c, x)), false;
    s->kernel = kernel_of(c, x, matrix(c, v, m, features));
    return hb_ok(&c->b);
}

ONNX(svmregressor) {
    struct svm s = {.kernel = NULL};
    hv x = hb_convert(b, onnx_in_val(c, 0), DT_F32);
    if (!read_svm(c, x, &s)) return;
    int64_t columns = s.kernel ? s.kernel->shape->dims[1] : x->shape->dims[1];
    if ((int64_t)s.n_coef != columns) return onnx_fail(c, "%zu coefficients", s.n_coef);
    hv w = matrix(c, s.coef, 1, columns);
    hv y = s.kernel ? times(c, s.kernel, w) : kernel_of(c, x, w);
    y = onnx_add_k(c, y, (double)s.rho[0]);
    if (onnx_at_int(c, "one_class", 0))
        y = hb_select(b, onnx_compare_k(c, y, 0, CMP_GT), onnx_splat_like(c, y, 1),
                      onnx_splat_like(c, y, -1));
    onnx_out_val(c, 0, y); // ONNX Runtime does not look at post_transform either
}

// ---- classifier

// Decisions [n, pairs], positive for the first of a pair. A pair's weights are a column with zeros
// for the vectors of other classes.
static hv decisions(struct onnx_ctx *c, const struct svm *s) {
    int64_t m = s->kernel->shape->dims[1], k = (int64_t)s->classes, first[MAX_CLASSES + 1] = {0};
    int64_t pairs = k * (k - 1) / 2, row = 0;
    for (int64_t i = 0; i < k; i++)
        first[i + 1] = first[i] + (s->per_class->ints.v[i] > 0 ? s->per_class->ints.v[i] : 0);
    if (first[k] != m || (int64_t)s->n_coef != (k - 1) * m || (int64_t)s->n_rho != pairs)
        return onnx_fail(c, "%zu coefficients, %zu rho for %lld classes", s->n_coef, s->n_rho,
                         (long long)k),
               s->kernel;
    float *w = arena_zarray(c->a, float, pairs *m + 1);
    for (int64_t i = 0; i < k; i++)
        for (int64_t j = i + 1; j < k; j++, row++) {
            for (int64_t v = first[i]; v < first[i + 1]; v++)
                w[row * m + v] = s->coef[(j - 1) * m + v];
            for (int64_t v = first[j]; v < first[j + 1]; v++)
                w[row * m + v] = s->coef[i * m + v];
        }
    double *rho = arena_array(c->a, double, pairs + 1);
    for (int64_t p = 0; p < pairs; p++)
        rho[p] = (double)s->rho[p];
    hv y = times(c, s->kernel, matrix(c, w, pairs, m));
    return hb_add(&c->b, y, onnx_along(c, onnx_lit_f64s(c, DT_F32, rho, &pairs, 1), y->shape, 1));
}
// How many pairs each class wins, [n, classes].
static hv votes_of(struct onnx_ctx *c, hv decided, int64_t k) {
    struct hb *b = &c->b;
    hv won = hb_convert(b, onnx_compare_k(c, decided, 0, CMP_GT), DT_F32);
    int64_t pairs = decided->shape->dims[1], row = 0;
    float *w = arena_zarray(c->a, float, k *pairs + 1);
    double *lost = arena_zarray(c->a, double, k + 1);
    for (int64_t i = 0; i < k; i++)
        for (int64_t j = i + 1; j < k; j++, row++)
            w[i * pairs + row] = 1, w[j * pairs + row] = -1, lost[j]++;
    hv y = times(c, won, matrix(c, w, k, pairs));
    return hb_add(b, y, onnx_along(c, onnx_lit_f64s(c, DT_F32, lost, &k, 1), y->shape, 1));
}

// One turn of the coupling. v: p [n, k], and r [n, k, k], the chance of t against j.
static void couple(struct onnx_ctx *c, UNUSED hv i, hv *v, void *user) {
    struct hb *b = &c->b;
    int64_t k = *(int64_t *)user, n = v[0]->shape->dims[0], last = 1, two = 2;
    hv p = v[0], q = v[1], total = NULL, went = p; // q: the matrix Q
    int64_t dims[3] = {n, k, k};
    hv qp = onnx_reduce_keep(c, hb_mul(b, q, hb_broadcast(b, p, dims, 3, (int64_t[]){0, 2})), &two,
                             1, HLO_ADD, false);
    total = onnx_reduce_keep(c, hb_mul(b, p, qp), &last, 1, HLO_ADD, false); // [n]
    hv off = hb_unary(b, HLO_ABS, hb_sub(b, qp, onnx_along(c, total, qp->shape, 0)));
    hv worst = onnx_reduce_keep(c, off, &last, 1, HLO_MAXIMUM, false);
    hv done = onnx_compare_k(c, worst, 0.005 / (double)k, CMP_LT);
    for (int64_t t = 0; t < k; t++) {
        hv mine = onnx_row(c, q, 1, t), own = onnx_row(c, mine, 1, t); // Q[t], Q[t][t]
        hv at = onnx_row(c, qp, 1, t), diff = hb_div(b, hb_sub(b, total, at), own),
           up = onnx_add_k(c, diff, 1);
        total = hb_add(b, total,
                       hb_mul(b, diff, hb_add(b, hb_mul(b, diff, own), onnx_mul_k(c, at, 2))));
        total = hb_div(b, hb_div(b, total, up), up);
        hv wide = onnx_along(c, diff, qp->shape, 0), by = onnx_along(c, up, qp->shape, 0);
        hv here = onnx_index_along(c, p->shape, DT_S32, 1);
        here = hb_convert(b, onnx_compare_k(c, here, (double)t, CMP_EQ), DT_F32);
        qp = hb_div(b, hb_add(b, qp, hb_mul(b, wide, mine)), by);
        went = hb_div(b, hb_add(b, went, hb_mul(b, wide, here)), by);
    }
    v[0] = hb_select(b, hb_broadcast(b, done, p->shape->dims, 2, (int64_t[]){0}), p, went);
}
// Probabilities [n, k] from the decisions and the sigmoids of the pairs.
static hv probabilities(struct onnx_ctx *c, hv decided, int64_t k) {
    struct hb *b = &c->b;
    int64_t n = decided->shape->dims[0], pairs = decided->shape->dims[1], row_at = 0, two = 2;
    const float *pa, *pb;
    double *a = arena_array(c->a, double, pairs + 1), *off = arena_array(c->a, double, pairs + 1);

    if ((int64_t)onnx_at_floats(c, "prob_a", &pa) != pairs ||
        (int64_t)onnx_at_floats(c, "prob_b", &pb) != pairs)
        return onnx_fail(c, "prob_a or prob_b does not have %lld values", (long long)pairs),
               decided;
    for (int64_t p = 0; p < pairs; p++)
        a[p] = -(double)pa[p], off[p] = -(double)pb[p];

    hv r = hb_mul(b, decided,
                  onnx_along(c, onnx_lit_f64s(c, DT_F32, a, &pairs, 1), decided->shape, 1));
    r = hb_add(b, r, onnx_along(c, onnx_lit_f64s(c, DT_F32, off, &pairs, 1), r->shape, 1));
    r = hb_clamp(b, hb_const_f64(b, DT_F32, 1e-7), hb_unary(b, HLO_LOGISTIC, r),
                 hb_const_f64(b, DT_F32, 1 - 1e-7));

    // Chances [n, k, k] by columns: pair (i, j) is r at i,j and 1 - r at j,i; 0 on the diagonal.
    hv *cell = arena_zarray(c->a, hv, k * k + 1);
    for (int64_t i = 0; i < k; i++)
        for (int64_t j = i + 1; j < k; j++, row_at++) {
            cell[i * k + j] = onnx_part(c, r, 1, row_at, row_at + 1);
            cell[j * k + i] = onnx_add_k(c, hb_unary(b, HLO_NEGATE, cell[i * k + j]), 1);
        }
    for (int64_t i = 0; i < k; i++)
        cell[i * k + i] = onnx_splat_like(c, cell[1], 0);

    int64_t dims[3] = {n, k, k};
    hv chance = hb_reshape(b, hb_concat(b, cell, (int)(k * k), 1), dims, 3); // [t][j]: t beats j
    hv against = onnx_swap_axes(c, chance, 1, 2), sq = hb_mul(b, against, against);
    hv diagonal = hb_broadcast(b, onnx_reduce_keep(c, sq, &two, 1, HLO_ADD, false), dims, 3,
                               (int64_t[]){0, 1});
    hv t = onnx_index_along(c, chance->shape, DT_S32, 1),
       j = onnx_index_along(c, chance->shape, DT_S32, 2);
    hv q = hb_unary(b, HLO_NEGATE, hb_mul(b, against, chance));
    q = hb_select(b, hb_compare(b, t, j, CMP_EQ), diagonal, q);

    hv v[2] = {hb_splat(b, shape_make(c->a, DT_F32, (int64_t[]){n, k}, 2), 1 / (double)k), q};
    onnx_loop_times(c, MAX_TURNS, v, 2, couple, &k);
    return v[0];
}
ONNX(svmclassifier) {
    struct svm s = {.per_class = onnx_attr(c->n, "vectors_per_class")};
    const struct onnx_attr *labels = onnx_ml_labels(c, "classlabels_ints", "classlabels_strings");
    hv x = hb_convert(b, onnx_in_val(c, 0), DT_F32), y, votes;
    struct str post = onnx_at_str(c, "post_transform", "NONE");
    int64_t k = labels ? (int64_t)(labels->ints.n + labels->strings.n) : 0;
    if (k < 2 || k > MAX_CLASSES) return onnx_fail(c, "%lld labels", (long long)k);
    if (!read_svm(c, x, &s)) return;
    if (!s.kernel) { // a linear machine: one row of coefficients a class
        if ((int64_t)s.n_coef != k * x->shape->dims[1])
            return onnx_fail(c, "%zu coefficients for %lld classes", s.n_coef, (long long)k);
        y = onnx_add_k(c, kernel_of(c, x, matrix(c, s.coef, k, x->shape->dims[1])),
                       (double)s.rho[0]);
        return onnx_ml_classify(c, y, labels, post);
    }
    s.classes = s.per_class ? s.per_class->ints.n : 0;
    if ((int64_t)s.classes != k) return onnx_fail(c, "vectors_per_class has %zu values", s.classes);
    y = decisions(c, &s);
    if (!hb_ok(b)) return;
    votes = votes_of(c, y, k);
    onnx_ml_label(c, votes, labels);
    if (onnx_attr(c->n, "prob_a") && onnx_attr(c->n, "prob_a")->floats.n)
        y = onnx_ml_post_transform(c, probabilities(c, y, k), post);
    else if (k == 2)
        y = onnx_ml_two_scores(c, y, !str_is(post, "NONE"), post);
    else
        y = onnx_ml_post_transform(c, y, post);
    onnx_out_val(c, 1, y);
}
