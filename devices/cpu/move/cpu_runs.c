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
static inline __attribute__((always_inline)) void move(char *to, const char *from, int64_t n) {
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
#define SIZE(bytes)                                                                                \
    case bytes:                                                                                    \
        runs(to, to_step, from, from_step, bytes, n);                                              \
        return;
        SIZE(1)
        SIZE(2)
        SIZE(3)
        SIZE(4)
        SIZE(5)
        SIZE(6)
        SIZE(7)
        SIZE(8)
        SIZE(10)
        SIZE(12)
        SIZE(14)
        SIZE(16)
        SIZE(20)
        SIZE(24)
        SIZE(28)
        SIZE(32)
        SIZE(40)
        SIZE(48)
        SIZE(56)
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

// Sixteen bytes of elements that are all *value; false: 16 is no multiple of their size.
static bool pattern_of(const void *value, int64_t size, uint64_t *out) {
    uint8_t byte;
    uint16_t half;
    uint32_t word;
    switch (size) {
    case 1:
        memcpy(&byte, value, 1);
        out[0] = byte * UINT64_C(0x0101010101010101);
        break;
    case 2:
        memcpy(&half, value, 2);
        out[0] = half * UINT64_C(0x0001000100010001);
        break;
    case 4:
        memcpy(&word, value, 4);
        out[0] = word * UINT64_C(0x0000000100000001);
        break;
    case 8:
        memcpy(&out[0], value, 8);
        break;
    case 16:
        memcpy(out, value, 16);
        return true;
    default:
        return false;
    }
    out[1] = out[0];
    return true;
}
static inline __attribute__((always_inline)) void fill(char *to, const char *pattern,
                                                       int64_t bytes) {
    if (bytes < 16) {
        move(to, pattern, bytes);
        return;
    }
    for (int64_t k = 0; k + 16 < bytes; k += 16)
        move_16(to + k, pattern);
    move_16(to + bytes - 16, pattern);
}
// `n` elements of `size` bytes, each equal to *value.
void cpu_fill(char *to, const void *value, int64_t size, int64_t n) {
    uint64_t pattern[2];
    int64_t bytes = size * n;
    const unsigned char *v = value;
    bool even = bytes >= LONG_RUN;
    for (int64_t k = 1; k < size && even; k++)
        even = v[k] == v[0];
    if (even) {
        memset(to, v[0], (size_t)bytes);
        return;
    }
    if (pattern_of(value, size, pattern)) {
        fill(to, (const char *)pattern, bytes);
        return;
    }
    if (n > 0) memcpy(to, value, (size_t)size);
    for (int64_t done = 1; done < n;) { // doubling
        int64_t more = done < n - done ? done : n - done;
        memcpy(to + done * size, to, (size_t)(more * size));
        done += more;
    }
}
// The same for `runs` places that lie `step` bytes apart.
void cpu_fill_runs(char *to, int64_t step, const void *value, int64_t size, int64_t n,
                   int64_t runs) {
    uint64_t pattern[2];
    const char *from = (const char *)pattern;
    int64_t bytes = size * n;
    if (bytes >= LONG_RUN || !pattern_of(value, size, pattern)) {
        for (int64_t k = 0; k < runs; k++, to += step)
            cpu_fill(to, value, size, n);
        return;
    }
    switch (bytes) {
#define SIZE(b)                                                                                    \
    case b:                                                                                        \
        for (int64_t k = 0; k < runs; k++, to += step)                                             \
            memcpy(to, from, b);                                                                   \
        return;
        SIZE(1)
        SIZE(2)
        SIZE(4)
        SIZE(8)
        SIZE(16)
#undef SIZE
    default:
        for (int64_t k = 0; k < runs; k++, to += step)
            fill(to, from, bytes);
    }
}
