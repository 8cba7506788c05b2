// SPDX-License-Identifier: Apache-2.0
// cpu_pairs: what cpu_pairs.c (which products, sizes), cpu_pairs_pack.c (weights and rows of x in
// the form that is multiplied), cpu_pairs_run.c (the loops) and cpu_pairs_steps.c (steps behind the
// product) share. Private to them.
#pragma once
#include "devices/cpu/cpu.h"
#include "devices/cpu/routines/cpu_thin.h"

// Rows of x that are multiplied at once; columns of the weights that lie together, bytes of each.
enum { PAIRS_ROWS = 4, PAIRS_PANEL = 16, PAIRS_QUAD = 4, PAIRS_AXES = 3, PAIRS_TAPS = 512 };
enum { PAIRS_STEP = PAIRS_PANEL * PAIRS_QUAD }; // bytes of a panel that meet four bytes of x

struct pairs_axis { // of an image, outermost first; those that are not there have one element
    int64_t in, out, taps, stride, dilation, low;
};
struct pairs_run { // of a window's bytes that lie side by side: where, from the window's beginning
    int64_t offset;
    int64_t at[PAIRS_AXES]; // in elements of the axes
};
// result[row, group, column] = sum over k of x[row, group, k] * w[group, column, k]. A row of a
// convolution is the window of a position; its bytes lie in `n_runs` runs of `run` bytes each.
struct pairs_state {
    thin_activate_fn activate;
    int x, w, out; // leaves
    enum dtype result;
    bool sign;             // x is s8: taken as u8, 128 more
    bool turn_x, turn_out; // x, the result: planes of channels, not channels last
    struct pairs_axis axis[PAIRS_AXES];
    int64_t images, pixel;       // pixel: bytes of x from one to the next
    int64_t x_bytes;             // of all x
    int64_t groups, depth, cols; // of a group: channels of x, of the result
    const struct pairs_run *runs;
    int64_t n_runs, run, quads; // quads of bytes in all runs, each run's bytes filled up
    int64_t across;             // pixels of a run
    int64_t rows, panels;       // panels: of a group
    int32_t *from;        // [quads][4] of a column: where its bytes lie in the weights; -1: none
    int64_t column;       // and from column to column
    int64_t block, chunk; // of a share of the work: rows, panels
    int64_t units, grain;
    struct lib_post post[LIB_MAX_POST];
    int leaf[LIB_MAX_POST]; // of the operand, -1 = none
    int n_post, sum;        // sum: the leaf of LIB_POST_SUM, -1 = none
    // Where the steps are these, in this order, each there or not, a vector stays in registers
    // through them: bias of s32, conversion, scale, bias, tensor, bounds, quantisation.
    bool in_order, floats;
    int bias_s32, scale, bias, bounds, quantise; // steps; -1 = none
};
// A run. x, out, sum: channels last; w: packed; scratch: of all threads.
struct pairs_call {
    const struct pairs_state *t;
    void **bufs;
    const char *x, *w, *sum;
    char *out, *scratch;
};

// cpu_pairs_pack.c. A panel: what its sums start with; how many of its steps sum pairs within 16
// bits; in which order steps stand where not all do; steps: [quads][columns][4] bytes.
struct pairs_panel {
    const int32_t *start, *order; // [columns], [quads]
    const char *steps;
    int64_t narrow;
};
struct pairs_panel cpu_pairs_panel(const struct pairs_state *t, const char *w, int64_t panel);
int64_t cpu_pairs_panel_bytes(const struct pairs_state *t);
// `from` lies as it may.
void cpu_pairs_pack_panel(const struct pairs_state *t, const int8_t *from, int64_t panel, char *w);
// The window of a row.
struct pairs_window {
    int64_t image, out[PAIRS_AXES], in[PAIRS_AXES], begin; // begin: in bytes of x
    bool lines, inside; // is all of it within the image: along all axes but the last, along all
};
// Four rows of a group, `w` the first one's window, as [quads][rows] of four bytes; there are
// `rows` of them. w becomes the window of the row behind them.
void cpu_pairs_pack_rows(const struct pairs_state *t, const uint8_t *x, int64_t group,
                         struct pairs_window *w, int rows, uint8_t *room, int32_t *to);
int64_t cpu_pairs_rows_bytes(const struct pairs_state *t); // of four rows packed
int64_t cpu_pairs_room_bytes(const struct pairs_state *t);
void cpu_pairs_window(const struct pairs_state *t, int64_t row, struct pairs_window *w);
void cpu_pairs_next(const struct pairs_state *t, struct pairs_window *w); // of the next row

// cpu_pairs_steps.c. What the steps behind a panel of n columns from `column` on are; its sums go
// to the result from element `at` of it on, a line of PAIRS_PANEL each.
struct pairs_steps {
    const struct pairs_call *call;
    int64_t column, n, row;  // row: elements from row to row of the result
    int32_t in[PAIRS_PANEL]; // columns that there are: all bits set
    // What is neutral where there is no such step.
    int32_t bias_s32[PAIRS_PANEL];
    float scale[PAIRS_PANEL], bias[PAIRS_PANEL], low, high;
    float step, inverse, zero, least, most; // of a quantisation
};
void cpu_pairs_begin(const struct pairs_call *c, int64_t column, int64_t n, struct pairs_steps *s);
void cpu_pairs_finish(const struct pairs_steps *s, const int32_t *sums, int rows, int64_t at);
void cpu_pairs_order(struct pairs_state *t); // finds what the steps are

// cpu_pairs_run.c
int64_t cpu_pairs_thread_bytes(const struct pairs_state *t); // of scratch
void cpu_pairs_multiply(const struct pairs_call *c);
