// SPDX-License-Identifier: Apache-2.0
// Growth by doubling, from 8 elements; sizes are checked against overflow.
#include "base/vec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t next_cap(size_t cap, size_t elem) {
    size_t want = cap ? cap * 2 : 8;
    if (want > SIZE_MAX / 2 / elem) {
        fprintf(stderr, "lvl=error ev=oom what=vec\n");
        abort();
    }
    return want;
}

void vec_grow_(void **v, size_t n, size_t *cap, size_t elem) {
    if (n < *cap) return;
    size_t want = next_cap(*cap, elem);
    *v = arena_must_realloc(*v, want * elem);
    *cap = want;
}

void vec_free_(void **v) {
    free(*v);
    *v = NULL;
}

void avec_grow_(struct arena *a, void **v, size_t n, size_t *cap, size_t elem) {
    if (n < *cap) return;
    size_t want = next_cap(*cap, elem);
    void *p = arena_alloc(a, want * elem);
    if (n) memcpy(p, *v, n * elem);
    *v = p;
    *cap = want;
}
