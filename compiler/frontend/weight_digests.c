// SPDX-License-Identifier: Apache-2.0
// Both threads take the next span that nobody has. A span is not divided: SHA-256 is serial.
#include "compiler/frontend/weight_digests.h"

#include "compiler/frontend/frontend.h"

#include <stdatomic.h>

enum { THREAD_BYTES = 256 << 10 }; // some 200 us of hashing; a thread costs a tenth

static void *hash_spans(void *arg) {
    struct weight_digests *d = arg;
    for (size_t k; (k = atomic_fetch_add(&d->next, 1)) < d->n;)
        d->out[k] = sha256_of(d->spans[k].p, d->spans[k].n);
    return NULL;
}

void weight_digests_begin(struct weight_digests *d, const struct span *spans, size_t n,
                          struct digest *out) {
    size_t bytes = 0;
    *d = (struct weight_digests){.spans = spans, .out = out, .n = n};
    for (size_t k = 0; k < n && bytes < THREAD_BYTES; k++)
        bytes += spans[k].n < THREAD_BYTES ? spans[k].n : THREAD_BYTES;
    d->two = bytes >= THREAD_BYTES && !pthread_create(&d->other, NULL, hash_spans, d);
}
void weight_digests_end(struct weight_digests *d) {
    hash_spans(d);
    if (d->two) pthread_join(d->other, NULL);
    d->two = false;
}
struct digest weight_digests_of(const struct weight *v, int32_t n) {
    struct sha256 h;
    sha256_init(&h);
    for (int32_t k = 0; k < n; k++) {
        sha256_u64(&h, (uint64_t)v[k].dtype);
        sha256_u64(&h, (uint64_t)v[k].rank);
        sha256_add(&h, v[k].dims, sizeof(int64_t) * (size_t)v[k].rank);
        sha256_add(&h, v[k].digest.b, 32);
    }
    return sha256_end(&h);
}
