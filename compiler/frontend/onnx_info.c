// SPDX-License-Identifier: Apache-2.0
// What there is to tell about an ONNX file: opsets, operators with their counts, who wrote it.
#include "compiler/frontend/onnx.h"

enum { MAX_OPERATORS = 4096 }; // distinct ones; a file may make up as many as it has nodes

static void count(struct arena *a, const struct onnx_graph *g, struct smap *seen,
                  struct program_info *out) {
    for (size_t k = 0; k < g->nodes.n; k++) {
        const struct onnx_node *n = &g->nodes.v[k];
        bool own = n->domain.n == 0 || str_is(n->domain, "ai.onnx");
        const char *name =
            own ? arena_printf(a, STR_FMT, STR_ARG(n->op))
                : arena_printf(a, STR_FMT "." STR_FMT, STR_ARG(n->domain), STR_ARG(n->op));
        if (out->ops.n < MAX_OPERATORS || smap_has(seen, str_of(name)))
            program_info_count(a, out, seen, str_of(name));
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
    program_info_sort(out);
    smap_done(&seen);
    for (size_t k = 0; k < m->opsets.n; k++)
        avec_push(a, &out->opsets, m->opsets.v[k]);
    if (m->producer.n)
        out->producer =
            arena_printf(a, STR_FMT "%s" STR_FMT, STR_ARG(m->producer),
                         m->producer_version.n ? " " : "", STR_ARG(m->producer_version));
}
