// SPDX-License-Identifier: Apache-2.0
// round: quotients and sizes that are rounded up.
#pragma once
#include <stdint.h>

// The least whole number at or above a / b, for b > 0.
static inline int64_t ceil_div(int64_t a, int64_t b) {
    return a / b + (a % b > 0);
}
// The least multiple of `to` at or above n; n is not negative and lies `to` below INT64_MAX.
static inline int64_t round_up(int64_t n, int64_t to) {
    return ceil_div(n, to) * to;
}
