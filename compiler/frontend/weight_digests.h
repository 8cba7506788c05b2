// SPDX-License-Identifier: Apache-2.0
// weight_digests: SHA-256 of each of many spans, by a thread beside the caller, who does other work
// meanwhile and helps at the end. Few bytes take no thread.
//     struct weight_digests d;
//     weight_digests_begin(&d, spans, n, out);
//     ...
//     weight_digests_end(&d);  // always; then out[0..n) is filled
#pragma once
#include <pthread.h>

#include "base/hash.h"

struct weight_digests {
    const struct span *spans; // [n], borrowed with their bytes until the end
    struct digest *out;       // [n]
    size_t n;
    _Atomic size_t next;
    pthread_t other;
    bool two; // `other` runs
};
void weight_digests_begin(struct weight_digests *d, const struct span *spans, size_t n,
                          struct digest *out);
void weight_digests_end(struct weight_digests *d);
struct weight;
// Over the manifest in order: dtype, shape, digest.
struct digest weight_digests_of(const struct weight *v, int32_t n);
