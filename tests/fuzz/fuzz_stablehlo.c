// SPDX-License-Identifier: Apache-2.0
// StableHLO text: what reads must print, read again, and print the same; what is ingested must
// lower or say why not.
#include <stdlib.h>
#include <string.h>

#include "compiler/frontend/frontend.h"
#include "compiler/frontend/mlir/mlir_text.h"

static status_t print_of(struct span source, const struct mlir_limits *limits, struct strbuf *out) {
    struct arena a = {0};
    struct mlir_module m;
    status_t st = mlir_read_text(&a, source, limits, &m);
    if (!st) st = mlir_normal(&m);
    if (!st) mlir_print(out, &m);
    arena_done(&a);
    return st;
}
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct mlir_limits limits = {
        .max_depth = 50, .max_ops = 10000, .max_values = 50000, .max_attr_bytes = 16 << 20};
    struct strbuf a = {0}, b = {0};
    status_t st = print_of((struct span){data, size}, &limits, &a);
    if (!st) {
        limits = mlir_default_limits; // what is printed may nest deeper
        st = print_of((struct span){(const uint8_t *)strbuf_cstr(&a), a.n}, &limits, &b);
        if (st || a.n != b.n || memcmp(a.p, b.p, a.n) != 0) abort();
    }
    st_drop(st);
    strbuf_done(&a);
    strbuf_done(&b);

    struct arena mem = {0};
    struct frontend_limits small = {.max_program_bytes = 1 << 20,
                                    .max_depth = 50,
                                    .max_nodes = 2000,
                                    .max_tensor_bytes = 1 << 24};
    struct ingest_result r;
    st = frontend_ingest(&mem, "stablehlo", (struct span){data, size}, &small, &r);
    struct lower_request req = {.program = r.program, .limits = small};
    struct hlo_module *hlo;
    if (!st && !(st = frontend_lower("stablehlo", &req, &hlo))) hlo_module_free(hlo);
    st_drop(st);
    arena_done(&mem);
    return 0;
}
