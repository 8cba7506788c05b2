// SPDX-License-Identifier: Apache-2.0
// cpu_bits: what cpu_bits.c and cpu_bits8.c share.
#pragma once
#include <math.h>

#include "compiler/calls/bits.h"

enum { BITS_PANEL = 64, BITS_GROUP = 4, BITS_WORD = 32 };
struct bits_state;
// The middle of each number's range in a word: numbers are packed less that (cpu_bits.c).
static inline uint32_t bits_middles(int bits) {
    return bits == 8 ? 0x80808080 : bits == 4 ? 0x88888888 : 0xaaaaaaaa;
}
// A few rows of x, to whole blocks.
struct bits_rows {
    const void *x; // [rows, wide]: f32; s8, each word's in the order that cpu_bits8.c takes them in
    const float *sums;  // [rows, blocks]
    const float *steps; // [rows, blocks]: of s8, what 1 stands for
};
// One panel, for rows that the function was made for. scales, zeros: of its columns, a block's n
// apart; stride 0 keeps to one zero for all.
typedef void (*bits_panel_fn)(const struct bits_state *s, const struct bits_rows *x,
                              const uint32_t *w, const float *scales, const float *zeros,
                              int64_t stride, float *out);
struct bits_state {
    struct bits b;
    int64_t words; // of a column in a block
    int64_t wide;  // k, to whole blocks
    int64_t units, grain, scratch_x;
    int x_bytes; // of an element of bits_rows
    bits_panel_fn panel[BITS_GROUP];
    // Words [from, to) of a panel's column to f32 [32 / bits (to - from), BITS_PANEL].
    void (*unpack)(const struct bits_state *s, const uint32_t *w, const float *scales,
                   const float *zeros, int64_t from, int64_t to, float *out);
    int vector_bits;
};

// Does this CPU multiply the rows of b in 8 bits?
bool cpu_bits8_takes(const struct bits *b);
bits_panel_fn cpu_bits8_panel(int bits, int rows);
// One row of s->b.k values rounded to x [wide], sums and steps [blocks]; false: it is to stay as it
// is.
bool cpu_bits8_round(const struct bits_state *s, const float *from, int8_t *x, float *sums,
                     float *steps);
