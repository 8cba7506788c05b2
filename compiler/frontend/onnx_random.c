// SPDX-License-Identifier: Apache-2.0
// Random numbers and dropout.
#include "compiler/frontend/onnx_tools.h"

ONNX(dropout) {
    hv x = in_val(c, 0);
    if (in_has(c, 2)) { // training_mode
        const struct literal *t = in_known(c, 2);
        if (t && lit_get_i64(t, 0)) return fail(c, "training mode is not supported");
    }
    out_val(c, 0, x);
    if (c->n->out.n > 1)
        out_val(
            c, 1,
            hb_splat(&c->b,
                     shape_with_dtype(c->a, x->shape, c->opset >= 10 ? DT_PRED : x->shape->dtype),
                     1));
}
