// SPDX-License-Identifier: Apache-2.0
// cpu_taps: sums of a square window over one block of 16 channels, each channel with weights of its
// own. A tile of a few rows of results lies in registers, and so do the weights of a small window:
// an element is read once and meets all results of the tile that it belongs to, where the library's
// kernel reads it for each. All of a tile is written out: windows of 3, 5 and 7, strides of 1 and
// 2, 5, 7 or 8 results across. AVX-512. Thread: any.
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum { TAPS_LANES = 16, TAPS_ROWS = 3, TAPS_ACROSS = 8, TAPS_WINDOW = 7, TAPS_STRIDE = 2 };
enum {
    TAPS_OVER = TAPS_WINDOW / 2, // pixels that a tile may reach over an end of a row
    TAPS_READ = (TAPS_ROWS - 1) * TAPS_STRIDE + TAPS_WINDOW,         // rows that a tile reads
    TAPS_READ_ACROSS = (TAPS_ACROSS - 1) * TAPS_STRIDE + TAPS_WINDOW // and pixels of each
};
struct taps_tile {
    const float *row[TAPS_READ];
    int64_t at; // of each row: where its first window begins
    // Which of the pixels that half a window has there are at the begin of a row and, from the end,
    // at its end: all lanes or none. Others are zero.
    uint16_t left[TAPS_OVER], right[TAPS_OVER];
    const float *w;     // [window, window, 16]
    const float *first; // [16]: where the sums start
    float *out;
    int64_t out_row;
    bool bounded; // max(low, min(high, sum)); NaN stays
    float low, high;
};
typedef void (*taps_fn)(const struct taps_tile *t);
struct taps {
    taps_fn tile[TAPS_ROWS + 1]; // by rows of results
    int rows, across;            // of results at once
};
// For rows of `out` results; false: such a window has no tiles.
bool cpu_taps_of(int64_t window, int64_t stride, int64_t out, struct taps *t);
