// SPDX-License-Identifier: Apache-2.0
// ONNX bytes: ingest, then lower the program with every symbol bound to 2, four elements of inputs
// that are bound by value, and two tensors of shape [2, 2] for each sequence or optional.
#include "compiler/frontend/frontend.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct arena a = {0};
    struct ingest_result r;
    struct frontend_limits limits = {
        .max_program_bytes = 1 << 20, .max_nodes = 1000, .channel_block = 8};
    status_t st = frontend_ingest(&a, "onnx", (struct span){data, size}, &limits, &r);
    if (!st) {
        VEC(struct dim_binding) b = {0};
        for (int k = 0; k < r.sig.n_in; k++) {
            const struct sig_tensor *t = &r.sig.in[k];
            for (int e = 0; t->by_value && e < 4; e++)
                avec_push(&a, &b,
                          ((struct dim_binding){arena_printf(&a, "=%d[%d]", k, e), 1 - e % 2}));
            if (t->rank < 0)
                avec_push(&a, &b,
                          ((struct dim_binding){arena_printf(&a, "#%d", k), t->sequence ? 2 : 1}));
            for (int e = 0; t->rank < 0 && e < 2; e++) {
                const char *name = arena_printf(&a, "#%d[%04d]", k, e);
                avec_push(&a, &b, ((struct dim_binding){name, 2}));
                for (int d = 0; d < 2; d++)
                    avec_push(&a, &b,
                              ((struct dim_binding){arena_printf(&a, "%s.%d", name, d), 2}));
            }
            for (int d = 0; d < r.sig.in[k].rank; d++)
                if (r.sig.in[k].dims[d].symbol)
                    avec_push(&a, &b, ((struct dim_binding){r.sig.in[k].dims[d].symbol, 2}));
        }
        struct lower_request q = {
            .program = r.program, .bindings = b.v, .n_bindings = (int32_t)b.n, .limits = limits};
        struct hlo_module *m;
        st = frontend_lower("onnx", &q, &m);
        if (!st) hlo_module_free(m);
    }
    st_drop(st);
    arena_done(&a);
    return 0;
}
