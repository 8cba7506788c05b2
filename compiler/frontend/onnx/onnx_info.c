// SPDX-License-Identifier: Apache-2.0
// What there is to tell about an ONNX file: opsets, operators with their counts, weights, who wrote
// it.
#include "compiler/frontend/onnx/onnx.h"

enum { MAX_OPERATORS = 4096 }; // distinct ones; a file may make up as many as it has nodes

enum { INT32 = 6, INT64, STRING, BOOL }; // of TensorProto: shapes, indices and flags, no weights

static void count_weights(struct arena *a, const struct onnx_graph *g, struct program_info *out) {
    for (size_t k = 0; k < g->inits.n; k++) {
        const struct onnx_tensor *t = &g->inits.v[k];
        const struct shape *s;
        if (t->data_type >= INT32 && t->data_type <= BOOL) continue;
        status_t st = onnx_tensor_shape(a, t, &s);
        if (!st) {
            int64_t n = shape_elements(s), bytes;
            if (!sz_mul(n, dtype_size(s->dtype), &bytes)) continue;
            if (onnx_packed(s->dtype)) bytes = (bytes + 1) / 2;
            if (!sz_add(out->parameters, n, &out->parameters) ||
                !sz_add(out->parameter_bytes, bytes, &out->parameter_bytes))
                out->parameters = out->parameter_bytes = 0;
        }
        st_drop(st); // of no known type: found where it is used
    }
}

static void count(struct arena *a, const struct onnx_graph *g, struct smap *seen,
                  struct program_info *out) {
    count_weights(a, g, out);
    for (size_t k = 0; k < g->nodes.n; k++) {
        const struct onnx_node *n = &g->nodes.v[k];
        bool own = n->domain.n == 0 || str_is(n->domain, "ai.onnx");
        const char *name =
            own ? arena_printf(a, STR_FMT, STR_ARG(n->op))
                : arena_printf(a, STR_FMT "." STR_FMT, STR_ARG(n->domain), STR_ARG(n->op));
        if (out->ops.n < MAX_OPERATORS || smap_has(seen, str_of(name)))
            frontend_program_info_count(a, out, seen, str_of(name));
        else
            out->nodes++;
        for (size_t i = 0; i < n->attrs.n; i++)
            if (n->attrs.v[i].graph) count(a, n->attrs.v[i].graph, seen, out);
    }
}

void onnx_info(struct arena *a, const struct onnx_model *m, struct program_info *out) {
    struct smap seen = {0};
    *out = (struct program_info){0};
    count(a, &m->main, &seen, out);
    for (size_t k = 0; k < m->functions.n; k++)
        count(a, &m->functions.v[k].body, &seen, out);
    frontend_program_info_sort(out);
    smap_done(&seen);
    for (size_t k = 0; k < m->opsets.n; k++) {
        const struct opset *o = &m->opsets.v[k]; // tools list some twice
        bool again = false;
        for (size_t i = 0; i < k; i++)
            again |= m->opsets.v[i].version == o->version &&
                     str_is(str_of(m->opsets.v[i].domain), o->domain);
        if (!again) avec_push(a, &out->opsets, *o);
    }
    if (m->producer.n)
        out->producer =
            arena_printf(a, STR_FMT "%s" STR_FMT, STR_ARG(m->producer),
                         m->producer_version.n ? " " : "", STR_ARG(m->producer_version));
}
