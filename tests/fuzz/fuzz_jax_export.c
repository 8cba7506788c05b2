// SPDX-License-Identifier: Apache-2.0
// jax.export's flatbuffer: what is read lies within the source; ingest takes it or says why not.
#include <stdlib.h>

#include "compiler/frontend/frontend.h"
#include "compiler/frontend/stablehlo/jax_export.h"
#include "proto/size_expr.h"

static bool short_names(void *ctx, struct str symbol, int64_t *out) {
    *out = (int64_t)symbol.n;
    return symbol.n < *(const size_t *)ctx;
}
// A dimension's expression, with more and more of its symbols known.
static void read_expression(struct str text) {
    for (size_t known = 0; known < 3; known++) {
        struct size_expr x;
        int64_t found;
        status_t st = size_expr_read(text, short_names, &known, &x);
        if (!st && x.form == SIZE_LINEAR && size_expr_solve(&x, 12, &found) &&
            x.factor * found + x.value != 12)
            abort();
        st_drop(st);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct arena a = {0};
    struct jax_export x;
    (void)jax_export_sniff((struct span){data, size < 512 ? size : 512});
    status_t st = jax_export_read(&a, (struct span){data, size}, &x);
    if (!st && (x.module.p < data || x.module.p + x.module.n > data + size)) abort();
    for (int k = 0; !st && k < x.in.n; k++)
        for (int d = 0; d < x.in.v[k].rank; d++)
            read_expression(x.in.v[k].dims[d]);
    read_expression((struct str){(const char *)data, size});
    st_drop(st);

    struct frontend_limits small = {.max_program_bytes = 1 << 20,
                                    .max_depth = 50,
                                    .max_nodes = 2000,
                                    .max_tensor_bytes = 1 << 24};
    struct ingest_result r;
    st_drop(frontend_ingest(&a, "jax-export", (struct span){data, size}, &small, &r));
    arena_done(&a);
    return 0;
}
