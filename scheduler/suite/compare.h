// SPDX-License-Identifier: Apache-2.0
// compare: are these the values that were expected? Element by element: equal bytes are equal
// whatever the type; numbers may differ by atol + rtol * |expected|; a NaN equals a NaN, an
// infinity the same infinity. Complex numbers are compared by their parts, types of 8 bits without
// a number form by their bytes. Pure. Thread: any.
#pragma once
#include "proto/numbers.h"

struct compare_result {
    int64_t mismatches;
    int64_t first;           // index of the first mismatch, row-major; of the element, not its part
    double max_abs, max_rel; // over finite elements; rel: by |expected|, where that is not 0
};
// found, expected: n elements each, packed.
void compare_values(const struct dtype_row *t, int64_t n, const void *found, const void *expected,
                    double rtol, double atol, struct compare_result *out);
