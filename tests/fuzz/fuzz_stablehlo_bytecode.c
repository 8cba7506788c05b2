// SPDX-License-Identifier: Apache-2.0
// StableHLO bytecode: what is read becomes normal and prints; what is ingested must lower or say
// why not.
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "compiler/frontend/frontend.h"
#include "compiler/frontend/mlir/mlir_bytecode.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct mlir_limits limits = {
        .max_depth = 50, .max_ops = 10000, .max_values = 50000, .max_attr_bytes = 16 << 20};
    struct arena a = {0};
    struct mlir_module m;
    struct strbuf text = {0};
    strbuf_limit(&text, 1 << 24);
    status_t st = mlir_read_bytecode(&a, (struct span){data, size}, &limits, &m);
    if (!st) st = mlir_normal(&m);
    if (!st) mlir_print(&text, &m);
    st_drop(st);
    strbuf_done(&text);

    struct frontend_limits small = {.max_program_bytes = 1 << 20,
                                    .max_depth = 50,
                                    .max_nodes = 2000,
                                    .max_tensor_bytes = 1 << 24};
    struct ingest_result r;
    st = frontend_ingest(&a, "stablehlo-bytecode", (struct span){data, size}, &small, &r);
    struct lower_request req = {.program = r.program, .limits = small};
    struct hlo_module *hlo;
    if (!st && !(st = frontend_lower("stablehlo-bytecode", &req, &hlo))) hlo_module_free(hlo);
    st_drop(st);
    arena_done(&a);
    return 0;
}
