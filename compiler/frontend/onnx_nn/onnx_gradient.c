// SPDX-License-Identifier: Apache-2.0
// Gradient of ai.onnx.preview.training: derivatives of a value of the graph by others of it,
// written as HLO beside it (compiler/gradient).
#include "compiler/frontend/onnx/onnx_scope.h"
#include "compiler/frontend/onnx/onnx_tools.h"
#include "compiler/gradient/gradient.h"

// Names of the values, in the attribute; they must be those of the inputs: derivatives at other
// places than where the graph has been would need it once more.
static bool names_inputs(struct onnx_ctx *c, const char *attr, size_t first, size_t *n) {
    const struct onnx_attr *a = onnx_attr(c->n, attr);
    *n = a ? a->strings.n : 0;
    for (size_t k = 0; k < *n; k++)
        if (first + k >= c->n->in.n || !str_eq(a->strings.v[k], c->n->in.v[first + k])) {
            onnx_fail(c, "%s names '" STR_FMT "', input %zu is another value", attr,
                      STR_ARG(a->strings.v[k]), first + k);
            return false;
        }
    return true;
}

ONNX(gradient) {
    size_t n, rest;
    if (c->b.c != c->b.c->module->entry)
        return onnx_fail(c,
                         "in the body of a branch or a loop, which does not see how y came about");
    if (!names_inputs(c, "xs", 0, &n) || !names_inputs(c, "zs", n, &rest)) return;
    const struct onnx_val *y = smap_get(&c->values, onnx_at_str(c, "y", ""));
    if (!n || !y || !y->v || y->size || !dtype_is_float(y->v->shape->dtype))
        return onnx_fail(c, "y is not a tensor of numbers that the graph has");
    hv *xs = arena_zarray(c->a, hv, n), **grads = arena_zarray(c->a, hv *, n);
    for (size_t k = 0; k < n; k++) {
        const struct onnx_val *x = onnx_in_any(c, k);
        if (!x || !x->v || x->known || !dtype_is_float(onnx_in_val(c, k)->shape->dtype))
            return onnx_fail(c, "input %zu is not a tensor of numbers that a request brings", k);
        xs[k] = x->v;
    }
    hv seed = onnx_splat_like(c, y->v, 1);
    gradient_of(b, y->v, &seed, xs, (int)n, grads);
    for (size_t k = 0; k < n && hb_ok(b); k++)
        onnx_out_val(c, k, grads[k][0] ? grads[k][0] : onnx_splat_like(c, xs[k], 0));
}
