// SPDX-License-Identifier: Apache-2.0
// safetensors: what is read lies in the file, one tensor behind the other without gaps.
#include <stdlib.h>

#include "proto/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct arena a = {0};
    struct safetensor *v;
    const char *const *metadata;
    size_t n;
    status_t st = safetensors_read(&a, (struct span){data, size}, &v, &n, &metadata);
    for (size_t k = 0; !st && k < n; k++) {
        const uint8_t *begin = k ? v[k - 1].data.p + v[k - 1].data.n : v[k].data.p;
        if (v[k].data.p != begin || begin < data || begin + v[k].data.n > data + size) abort();
        if (v[k].rank > SAFETENSORS_MAX_RANK) abort();
    }
    if (!st && n && v[n - 1].data.p + v[n - 1].data.n != data + size) abort();
    st_drop(st);
    arena_done(&a);
    return 0;
}
