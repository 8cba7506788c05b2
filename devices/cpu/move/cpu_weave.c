// SPDX-License-Identifier: Apache-2.0
// weave: elements of some arrays in turn, as a stack along a new last dimension has them: by tiles
// of a vector's width, which are turned in registers (cpu_turn.h).
#include <string.h>

#include "devices/cpu/move/cpu_weave.h"
#include "devices/cpu/routines/cpu_turn.h"

enum { NEAR = 256 }; // bytes of an array that are taken before the next ones': some lines

// Of the last tile of arrays or elements, what stands in the one before is written once more. Where
// there are fewer arrays than lanes, a row's vector reaches into the next rows, which are written
// behind it: the last ones are put together by elements.
#define WEAVE(NAME, TYPE, T)                                                                       \
    TURN_SQUARE(NAME, TYPE, T)                                                                     \
    /* Tiles of arrays `first` on, rows `at` to `end`: T at least. */                              \
    static inline void NAME##_tiles(const char *const *from, int first, int n, char *to,           \
                                    int64_t at, int64_t end) {                                     \
        const int64_t size = sizeof(TYPE), all = n * size;                                         \
        const char *in[T];                                                                         \
        _Pragma("GCC unroll 16") for (int k = 0; k < T; k++) in[k] =                               \
            from[first + k < n ? first + k : n - 1];                                               \
        for (; at < end; at += T) {                                                                \
            int64_t r = at + T <= end ? at : end - T;                                              \
            NAME##_vector v[T];                                                                    \
            _Pragma("GCC unroll 16") for (int k = 0; k < T; k++)                                   \
                memcpy(&v[k], in[k] + r * size, sizeof v[k]);                                      \
            NAME##_turn(v);                                                                        \
            _Pragma("GCC unroll 16") for (int k = 0; k < T; k++)                                   \
                memcpy(to + (r + k) * all + first * size, &v[k], sizeof v[k]);                     \
        }                                                                                          \
    }                                                                                              \
    static void NAME(const char *const *from, int n, char *to, int64_t rows) {                     \
        const int64_t size = sizeof(TYPE), all = n * size, near = NEAR / size;                     \
        int64_t most = n < T ? rows - (T - 1) / n : rows, done = most < T ? 0 : most;              \
        for (int64_t at = 0; at < done; at += near) {                                              \
            int64_t end = at + near < done ? at + near : done;                                     \
            int64_t begin = end - at < T ? end - T : at;                                           \
            for (int g = 0; g < n; g += T)                                                         \
                NAME##_tiles(from, g + T <= n || n < T ? g : n - T, n, to, begin, end);            \
        }                                                                                          \
        for (int64_t r = done; r < rows; r++)                                                      \
            for (int k = 0; k < n; k++)                                                            \
                memcpy(to + r * all + k * size, from[k] + r * size, sizeof(TYPE));                 \
    }
WEAVE(bytes, uint8_t, 16)
WEAVE(twos, uint16_t, 8)
WEAVE(fours, uint32_t, 4)
WEAVE(eights, uint64_t, 2)

void cpu_weave(int64_t size, const char *const *from, int n, char *to, int64_t rows) {
    switch (size) {
    case 1:
        bytes(from, n, to, rows);
        break;
    case 2:
        twos(from, n, to, rows);
        break;
    case 4:
        fours(from, n, to, rows);
        break;
    default:
        eights(from, n, to, rows);
    }
}
