// SPDX-License-Identifier: Apache-2.0
// Runs of bytes from one place each to another, for what moves whole rows (concat, pad). A call of
// memcpy costs more than a short run: short ones are written out by size.
#include "devices/cpu/cpu.h"

enum { LONG_RUN = 512 }; // from here on memcpy's call is nothing beside the bytes

typedef uint8_t sixteen __attribute__((vector_size(16)));

static inline __attribute__((always_inline)) void move_16(char *to, const char *from) {
    sixteen v;
    memcpy(&v, from, sizeof v);
    memcpy(to, &v, sizeof v);
}
// Any size from 1 on: the last 16, 8 or 4 bytes may be written twice.
static inline void move(char *to, const char *from, int64_t n) {
    if (n >= 16) {
        for (int64_t k = 0; k + 16 < n; k += 16)
            move_16(to + k, from + k);
        move_16(to + n - 16, from + n - 16);
    } else if (n >= 8) {
        uint64_t x, y;
        memcpy(&x, from, 8);
        memcpy(&y, from + n - 8, 8);
        memcpy(to, &x, 8);
        memcpy(to + n - 8, &y, 8);
    } else if (n >= 4) {
        uint32_t x, y;
        memcpy(&x, from, 4);
        memcpy(&y, from + n - 4, 4);
        memcpy(to, &x, 4);
        memcpy(to + n - 4, &y, 4);
    } else {
        for (int64_t k = 0; k < n; k++)
            to[k] = from[k];
    }
}
static inline __attribute__((always_inline)) void runs(char *to, int64_t to_step, const char *from,
                                                       int64_t from_step, size_t run, int64_t n) {
    for (int64_t k = 0; k < n; k++, to += to_step, from += from_step)
        memcpy(to, from, run);
}

void cpu_copy_runs(char *to, int64_t to_step, const char *from, int64_t from_step, int64_t run,
                   int64_t n) {
    switch (run) {
#define SIZE(bytes)                                                                               \
    case bytes:                                                                                   \
        runs(to, to_step, from, from_step, bytes, n);                                             \
        return;
        SIZE(1)
        SIZE(2)
        SIZE(3)
        SIZE(4)
        SIZE(6)
        SIZE(8)
        SIZE(12)
        SIZE(16)
        SIZE(24)
        SIZE(32)
        SIZE(48)
        SIZE(64)
#undef SIZE
    default:
        for (int64_t k = 0; k < n; k++, to += to_step, from += from_step) {
            if (run < LONG_RUN)
                move(to, from, run);
            else
                memcpy(to, from, (size_t)run);
        }
    }
}

// `n` elements of `size` bytes, each equal to *value.
void cpu_fill(char *to, const void *value, int64_t size, int64_t n) {
    const unsigned char *v = value;
    bool even = true;
    for (int64_t k = 1; k < size; k++)
        even = even && v[k] == v[0];
    if (even) {
        memset(to, v[0], (size_t)(size * n));
        return;
    }
    if (n > 0) memcpy(to, value, (size_t)size);
    for (int64_t done = 1; done < n;) { // doubling
        int64_t more = done < n - done ? done : n - done;
        memcpy(to + done * size, to, (size_t)(more * size));
        done += more;
    }
}
