// SPDX-License-Identifier: Apache-2.0
// The environment is read at every hit: fault builds are for tests, speed does not matter. Counting
// is per process and point name hash, not thread exact.
#include "base/fault.h"

#ifdef HLOD_FAULTS
#include <stdatomic.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/str.h"

bool fault_hit(const char *point) {
    static atomic_int hits[64];
    struct str spec = str_of(getenv("HLOD_FAULT"));
    size_t n = strlen(point);
    if (spec.n < n || memcmp(spec.p, point, n) != 0) return false;
    if (spec.n == n) return true;
    int64_t want;
    if (spec.p[n] != ':' || !str_to_i64((struct str){spec.p + n + 1, spec.n - n - 1}, &want))
        return false;
    return atomic_fetch_add(&hits[hash64(point, n, 0) & 63], 1) + 1 == want;
}
#else
typedef int fault_off; // an empty translation unit is not C
#endif
