// SPDX-License-Identifier: Apache-2.0
#include "scheduler/remote/rendezvous.h"

#include <string.h>

static struct digest weight(struct digest key, const char *node) {
    struct sha256 h;
    sha256_init(&h);
    sha256_add(&h, key.b, sizeof key.b);
    sha256_str(&h, str_of(node));
    return sha256_end(&h);
}
size_t rendezvous(struct digest key, const char *const *nodes, size_t n, size_t *out, size_t most) {
    struct digest weights[RENDEZVOUS_MAX];
    size_t found = 0;
    for (size_t k = 0; k < n && k < RENDEZVOUS_MAX; k++) {
        weights[k] = weight(key, nodes[k]);
        size_t at = found;
        while (at > 0 && memcmp(weights[out[at - 1]].b, weights[k].b, sizeof weights[k].b) < 0)
            at--;
        if (at == most) continue;
        if (found < most) found++;
        memmove(out + at + 1, out + at, (found - at - 1) * sizeof *out);
        out[at] = k;
    }
    return found;
}
