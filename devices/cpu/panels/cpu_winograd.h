// SPDX-License-Identifier: Apache-2.0
// cpu_winograd: convolutions of 3x3 windows, stride 1, by tiles of outputs (Winograd, "Arithmetic
// Complexity of Computations", 1980; Lavin & Gray, "Fast Algorithms for Convolutional Neural
// Networks", 2016). A tile of m x m outputs is A' [ (G g G') * (B' d B) ] A of its (m+2) x (m+2)
// inputs d: one multiplication for each of its (m+2)^2 points, input channel and feature, so that
// the products of one point over many tiles are a matrix product. m = 4 has the points 0, +-5/8,
// +-3/2 and infinity, which of small fractions err least (m = 2: 0, +-1, infinity).
// Error: at most 1e-6 of the sum, over the channels, of the tile's largest input times the sum of
// the filter's magnitudes (tested up to 1024 channels by cpu_winograd_test.c, where it is 4.3e-7).
// What an infinity or NaN of the input or of a filter makes of a result is what the sums as they
// are written make of it.
// Here: what works on arrays. Images and results lie in blocks of channels, a vector each.
#pragma once
#include "compiler/passes/fusion/library.h"
#include "devices/cpu/panels/cpu_panels.h"
#include "devices/cpu/routines/cpu_thin.h"

#define WINOGRAD_A 0.625f // points besides 0 and infinity, m = 4
#define WINOGRAD_B 1.5f
enum { WINOGRAD_LANES = 16 }; // at most
enum { WINOGRAD_MOST = 4, WINOGRAD_POINTS = (WINOGRAD_MOST + 2) * (WINOGRAD_MOST + 2) };
struct winograd {
    // Set by the caller.
    int64_t batch, channels, features;
    int64_t height, width, out_height, out_width; // of an image, of a result
    int64_t top, left;                            // padding
    int m;                                        // outputs of a tile a side: 2 or 4
    int n_post;
    struct lib_post post[LIB_MAX_POST];
    // winograd_plan's.
    const struct winograd_isa *isa;
    const struct panel_isa *panel;
    thin_activate_fn activate;
    int points;                            // of a tile
    int64_t in_blocks, out_blocks;         // of channels
    int64_t panels;                        // of two blocks of features
    int64_t tiles_high, tiles_wide, tiles; // of an image; of all
    int64_t block;                         // tiles that are transformed before their products
    int64_t step; // floats from one point to the next of a transformed block
    bool anew;    // weights are transformed in each run: little beside many tiles, less memory
    bool shared;  // all threads work on one block after another: transform, then a panel each
    int64_t units, grain; // where each thread has blocks of its own
};
// Arrays of one run. v: winograd_scratch bytes.
struct winograd_run {
    const struct winograd *w;
    const float *image;
    const float *weights; // packed; `anew`: as winograd_pack reads them
    float *out, *scratch;
    const float *operand[LIB_MAX_POST]; // of post-operations that have one
};
struct winograd_isa {
    // Tiles [tile, tile + n) of blocks of channels [from, to) into v.
    void (*transform)(const struct winograd_run *r, int64_t tile, int64_t n, int64_t from,
                      int64_t to, float *v);
    // Products of panel p with tiles [tile, tile + n), whose transforms are v, and the results that
    // they make. sums: room of block * points * two vectors.
    void (*finish)(const struct winograd_run *r, int64_t tile, int64_t n, int64_t p, const float *v,
                   float *sums);
};
// What inputs that are no finite numbers make of a tile's results: bits of enum taint, by output
// and feature of a panel.
enum taint { TAINT_PLUS = 1, TAINT_MINUS = 2, TAINT_NAN = 4 };
struct winograd_taints {
    bool any;
    uint8_t of[WINOGRAD_MOST * WINOGRAD_MOST][PANEL_VECTORS * WINOGRAD_LANES];
};
// Has panel p a filter with a tap that is no finite number?
bool winograd_filters(const struct winograd_run *r, int64_t p);
// Input x of a channel, at this place of a tile's inputs, meets the filters of panel p; where both
// are finite it changes nothing.
void winograd_taint(const struct winograd_run *r, int64_t p, int64_t channel, int place, float x,
                    struct winograd_taints *t);
float winograd_tainted(uint8_t taint);
// threads: that will run it. False: there is none for such vectors.
bool winograd_plan(struct winograd *w, int vector_bits, int threads);
int64_t winograd_packed_bytes(const struct winograd *w);
int64_t winograd_scratch_bytes(const struct winograd *w, int threads);
// weights [features, channels, 3, 3] as they may lie, into the form of `winograd_run.weights`.
void winograd_pack(const struct winograd *w, const void *weights, float *packed);
void winograd_run(const struct winograd_run *r);
double winograd_products(const struct winograd *w); // operations of the products of a run
bool winograd_alone(const struct winograd *w);      // too little for two threads
// cpu_winograd_isa.c
const struct winograd_isa *winograd_isa(int vector_bits);
