// SPDX-License-Identifier: Apache-2.0
// Evaluation of batch normalisation with given statistics (XLA operation semantics,
// "BatchNormInference"): scale * (x - mean) / sqrt(variance + epsilon) + offset.
#include <math.h>

#include "compiler/eval.h"
#include "compiler/ops/index.h"

status_t hlo_eval_BATCH_NORM_INFERENCE(struct hlo_eval *ev, const struct hlo_instr *i,
                                       struct literal *const *in, struct literal **out) {
    struct literal *r;
    RETURN_IF_ERR(hlo_eval_alloc(ev, i, &r));
    int64_t f = HLO_ATTR(i, batchnorm)->feature_index, k = 0;
    double eps = (double)HLO_ATTR(i, batchnorm)->epsilon;
    EACH_INDEX(x, r->shape) {
        double scale = lit_get_f64(in[1], x[f]), offset = lit_get_f64(in[2], x[f]),
               mean = lit_get_f64(in[3], x[f]), var = lit_get_f64(in[4], x[f]);
        lit_set_f64(r, k, scale * (lit_get_f64(in[0], k) - mean) / sqrt(var + eps) + offset);
        k++;
    }
    *out = r;
    return ST_OK;
}
