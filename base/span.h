// SPDX-License-Identifier: Apache-2.0
// span: views of memory owned by someone else, and overflow-checked size arithmetic for sizes that
// come from outside; quotients and sizes that are rounded up.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct span {
    const uint8_t *p;
    size_t n;
}; // bytes, borrowed
struct str {
    const char *p;
    size_t n;
}; // text, borrowed, not NUL-terminated

#define STR(lit)   ((struct str){("" lit), sizeof(lit) - 1})
#define STR_FMT    "%.*s"
#define STR_ARG(s) (int)(s).n, (s).p
static inline struct str str_of(const char *z) {
    return (struct str){z, z ? strlen(z) : 0};
}
static inline bool str_eq(struct str a, struct str b) {
    return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}
static inline bool str_is(struct str a, const char *z) {
    return a.n ? a.p[0] == z[0] && str_eq(a, str_of(z)) : !z[0]; // names mostly differ at once
}
static inline bool str_starts(struct str a, const char *z) {
    size_t n = strlen(z);
    return a.n >= n && memcmp(a.p, z, n) == 0;
}
// True on success; false (and *out untouched) on overflow of int64 or a negative factor.
static inline bool sz_mul(int64_t a, int64_t b, int64_t *out) {
    int64_t r;
    if (a < 0 || b < 0 || __builtin_mul_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}
static inline bool sz_add(int64_t a, int64_t b, int64_t *out) {
    int64_t r;
    if (a < 0 || b < 0 || __builtin_add_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}
// Adds x, not negative, to a sum that stays at INT64_MAX once it is there.
static inline void sz_sum(int64_t *sum, int64_t x) {
    if (x < 0 || !sz_add(*sum, x, sum)) *sum = INT64_MAX;
}
// The least whole number at or above a / b, for b > 0.
static inline int64_t ceil_div(int64_t a, int64_t b) {
    return a / b + (a % b > 0);
}
// The least multiple of `to` at or above n; n is not negative and lies `to` below INT64_MAX.
static inline int64_t round_up(int64_t n, int64_t to) {
    return ceil_div(n, to) * to;
}
