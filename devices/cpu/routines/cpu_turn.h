// SPDX-License-Identifier: Apache-2.0
// cpu_turn: which lanes of two vectors make a third, by the lanes of one: lower and upper halves in
// turn, of which log2(lanes) rounds turn a square of vectors; those of even and odd numbers. And
// such a square turned in registers.
#pragma once
// clang-format off
#define TURN_LOW_2 0, 2
#define TURN_HIGH_2 1, 3
#define TURN_EVEN_2 0, 2
#define TURN_ODD_2 1, 3
#define TURN_LOW_4 0, 4, 1, 5
#define TURN_HIGH_4 2, 6, 3, 7
#define TURN_EVEN_4 0, 2, 4, 6
#define TURN_ODD_4 1, 3, 5, 7
#define TURN_LOW_8 0, 8, 1, 9, 2, 10, 3, 11
#define TURN_HIGH_8 4, 12, 5, 13, 6, 14, 7, 15
#define TURN_EVEN_8 0, 2, 4, 6, 8, 10, 12, 14
#define TURN_ODD_8 1, 3, 5, 7, 9, 11, 13, 15
#define TURN_LOW_16 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define TURN_HIGH_16 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#define TURN_EVEN_16 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
#define TURN_ODD_16 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31
// clang-format on

// NAME_vector and NAME_turn: each round puts the halves of a row beside those of another.
#define TURN_SQUARE(NAME, TYPE, T)                                                                 \
    typedef TYPE NAME##_vector __attribute__((vector_size(T * sizeof(TYPE))));                     \
    static inline __attribute__((always_inline)) void NAME##_turn(NAME##_vector *v) {              \
        NAME##_vector w[T];                                                                        \
        _Pragma("GCC unroll 4") for (int half = 1; half < T; half *= 2) {                          \
            _Pragma("GCC unroll 8") for (int k = 0; k < T / 2; k++) {                              \
                w[2 * k] = __builtin_shufflevector(v[k], v[k + T / 2], TURN_LOW_##T);              \
                w[2 * k + 1] = __builtin_shufflevector(v[k], v[k + T / 2], TURN_HIGH_##T);         \
            }                                                                                      \
            _Pragma("GCC unroll 16") for (int k = 0; k < T; k++) v[k] = w[k];                      \
        }                                                                                          \
    }
