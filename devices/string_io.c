// SPDX-License-Identifier: Apache-2.0
#include "devices/string_io.h"

#include <stdlib.h>
#include <string.h>

#include "proto/hlod.pb-c.h"
#include "proto/numbers.h"

enum { MAX_RESULT_BYTES = 1 << 30 };
struct string_io {
    struct arena arena;
    struct string_layout layout;
};

struct string_io *string_io_new(const struct executable *e) {
    struct string_io *x = calloc(1, sizeof *x);
    if (!x) abort();
    if (strings_of_module(&x->arena, e->main, &x->layout)) return x;
    string_io_free(x);
    return NULL;
}
void string_io_free(struct string_io *x) {
    if (!x) return;
    strings_free(x->layout.table);
    arena_done(&x->arena);
    free(x);
}
bool string_io_is_result(const struct string_io *x, int leaf) {
    return x && leaf < x->layout.n_out && x->layout.out[leaf];
}

static status_t to_places(struct strings *run, struct arena *a, struct dev_tensor *t) {
    int64_t n = 1;
    struct str s;
    if (strcmp(t->dtype, "string"))
        return st_reason(st_invalid("expected string, found %s", t->dtype),
                         HLOD__V1__REASON__REASON_DTYPE_MISMATCH);
    for (int d = 0; d < t->rank; d++)
        if (!sz_mul(n, t->dims[d], &n)) n = INT64_MAX;
    RETURN_IF_ERR(numbers_check_strings(t->data, n));
    struct span rest = t->data; // at least four bytes each: n is bounded by what came
    int32_t *places = arena_alloc_aligned(a, (size_t)n * sizeof *places + 64, 64);
    for (int64_t k = 0; k < n && numbers_next_string(&rest, &s); k++)
        RETURN_IF_ERR(strings_add(run, s, &places[k]));
    t->dtype = "s32";
    t->data = (struct span){(const uint8_t *)places, (size_t)n * sizeof *places};
    return ST_OK;
}
status_t string_io_begin(const struct string_io *x, struct arena *a, struct dev_tensor *t, int n,
                         struct strings **out) {
    struct strings *run = strings_new(x->layout.table, 0);
    status_t st = ST_OK;
    for (int k = 0; k < n && k < x->layout.n_in && !st; k++)
        if (x->layout.in[k]) st = st_note(to_places(run, a, &t[k]), "input %d", k);
    if (st)
        strings_free(run);
    else
        *out = run;
    return st;
}

status_t string_io_result(const struct strings *run, struct arena *a, const int32_t *places,
                          int64_t n, struct span *out) {
    int64_t bytes = 0;
    for (int64_t k = 0; k < n; k++) {
        bytes += 4 + (int64_t)strings_get(run, places[k]).n;
        if (bytes > MAX_RESULT_BYTES)
            return st_exhausted("a result of more than %d bytes of text", MAX_RESULT_BYTES);
    }
    uint8_t *p = arena_alloc(a, (size_t)bytes + 1), *at = p;
    for (int64_t k = 0; k < n; k++) {
        struct str s = strings_get(run, places[k]);
        uint32_t size = (uint32_t)s.n; // little-endian
        memcpy(at, &size, sizeof size);
        memcpy(at + sizeof size, s.p, s.n);
        at += sizeof size + s.n;
    }
    *out = (struct span){p, (size_t)bytes};
    return ST_OK;
}
