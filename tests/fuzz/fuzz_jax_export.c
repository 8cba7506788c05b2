// SPDX-License-Identifier: Apache-2.0
// jax.export's flatbuffer: what is read lies within the source; ingest takes it or says why not.
#include <stdlib.h>

#include "compiler/frontend/frontend.h"
#include "compiler/frontend/stablehlo/jax_export.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct arena a = {0};
    struct jax_export x;
    (void)jax_export_sniff((struct span){data, size < 512 ? size : 512});
    status_t st = jax_export_read(&a, (struct span){data, size}, &x);
    if (!st && (x.module.p < data || x.module.p + x.module.n > data + size)) abort();
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
