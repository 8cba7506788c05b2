// SPDX-License-Identifier: Apache-2.0
// Evaluation of batch normalisation (XLA operation semantics, "BatchNormTraining" and after):
// scale * (x - mean) / sqrt(variance + epsilon) + offset, per feature, in double. The variance is
// the biased one.
#include <math.h>

#include "compiler/ops/eval_rules.h"
#include "compiler/ops/index.h"

EVAL(BATCH_NORM_INFERENCE) {
    NEW_RESULT(r);
    int64_t f = HLO_ATTR(i, batchnorm)->feature_index, k = 0;
    double eps = (double)HLO_ATTR(i, batchnorm)->epsilon;
    EACH_INDEX(x, r->shape) {
        double scale = lit_get_f64(in[1], x[f]), offset = lit_get_f64(in[2], x[f]),
               mean = lit_get_f64(in[3], x[f]), var = lit_get_f64(in[4], x[f]);
        lit_set_f64(r, k, scale * (lit_get_f64(in[0], k) - mean) / sqrt(var + eps) + offset);
        k++;
    }
    return ST_OK;
}

// Sums over all elements of a feature: f(first) in a, f(second) in b.
struct feature {
    double a, b;
};

EVAL(BATCH_NORM_TRAINING) {
    NEW_RESULT(r);
    const struct shape *s = in[0]->shape;
    int64_t f = HLO_ATTR(i, batchnorm)->feature_index, nf = s->dims[f], k = 0;
    double eps = (double)HLO_ATTR(i, batchnorm)->epsilon,
           n = nf ? (double)shape_elements(s) / (double)nf : 0;
    struct feature *sum = arena_zarray(ev->arena, struct feature, nf + 1);
    EACH_INDEX(x, s) sum[x[f]].a += lit_get_f64(in[0], k++) / n; // mean
    k = 0;
    EACH_INDEX(x, s) {
        double v = lit_get_f64(in[0], k++) - sum[x[f]].a;
        sum[x[f]].b += v * v / n; // variance
    }
    k = 0;
    EACH_INDEX(x, s) {
        double v = (lit_get_f64(in[0], k) - sum[x[f]].a) / sqrt(sum[x[f]].b + eps);
        lit_set_f64(r->elems[0], k++, lit_get_f64(in[1], x[f]) * v + lit_get_f64(in[2], x[f]));
    }
    for (int64_t c = 0; c < nf; c++) {
        lit_set_f64(r->elems[1], c, sum[c].a);
        lit_set_f64(r->elems[2], c, sum[c].b);
    }
    return ST_OK;
}

// Operands x, scale, mean, variance, dy; results dx, dscale, doffset.
EVAL(BATCH_NORM_GRAD) {
    NEW_RESULT(r);
    const struct shape *s = in[0]->shape;
    int64_t f = HLO_ATTR(i, batchnorm)->feature_index, nf = s->dims[f], k = 0;
    double eps = (double)HLO_ATTR(i, batchnorm)->epsilon,
           n = nf ? (double)shape_elements(s) / (double)nf : 0;
    struct feature *sum = arena_zarray(ev->arena, struct feature, nf + 1);
    EACH_INDEX(x, s) {
        double dy = lit_get_f64(in[4], k), v = lit_get_f64(in[0], k) - lit_get_f64(in[2], x[f]);
        sum[x[f]].a += dy;
        sum[x[f]].b += dy * v;
        k++;
    }
    k = 0;
    EACH_INDEX(x, s) {
        double dy = lit_get_f64(in[4], k), v = lit_get_f64(in[0], k) - lit_get_f64(in[2], x[f]);
        double var = lit_get_f64(in[3], x[f]) + eps;
        double dx = dy - sum[x[f]].a / n - v * sum[x[f]].b / (n * var);
        lit_set_f64(r->elems[0], k++, lit_get_f64(in[1], x[f]) / sqrt(var) * dx);
    }
    for (int64_t c = 0; c < nf; c++) {
        lit_set_f64(r->elems[1], c, sum[c].b / sqrt(lit_get_f64(in[3], c) + eps));
        lit_set_f64(r->elems[2], c, sum[c].a);
    }
    return ST_OK;
}
