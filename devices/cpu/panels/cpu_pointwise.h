// SPDX-License-Identifier: Apache-2.0
// cpu_pointwise: convolutions of f32 whose window is one pixel, over images in blocks of 16
// channels, as matrix products with the post-operations of library.h, a sum before activations. A
// tile of pixels by one to three blocks of features stays in registers over all channels; an
// element of the image, read where it lies, meets the weights of these blocks (Goto & van de Geijn,
// "Anatomy of High-Performance Matrix Multiplication", 2008). Channels that fill up the last block
// are not multiplied, features that do are zero; where these are half of the block or more, two
// pixels share a vector of it. Pixels are shared out among tiles evenly, so that
// none is nearly empty. AVX-512. Thread: any.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "compiler/passes/fusion/library.h"

enum { POINT_LANES = 16, POINT_BLOCKS = 3 };
struct pointwise {
    int64_t images, pixels, channels, features;
    struct lib_post post[LIB_MAX_POST];
    int n_post;
    // of pointwise_plan
    int64_t blocks, panels; // of features; of blocks
    int64_t chunks, chunk;  // of an image's pixels
    bool weights_stay;      // a chunk of pixels meets all weights before the next one comes
    bool bias, bounded;     // the first post-operation; bounds
    int sum;                // post-operation that adds in registers, -1 = none
    float low, high;        // bounds
    int rest;               // the first post-operation that is done on results in memory
    int64_t units, grain;   // of cpu_parallel
};
void pointwise_plan(struct pointwise *p, int threads);
int64_t pointwise_packed_bytes(const struct pointwise *p);
// plain: [features, channels], may lie unaligned. packed: panels of blocks, [channel, block, 16].
void pointwise_pack(const struct pointwise *p, const void *plain, float *packed);
struct pointwise_run {
    const struct pointwise *p;
    const float *image, *weights; // packed
    float *out;
    const float *operand[LIB_MAX_POST]; // a sum's may be `out`
};
void pointwise_run(const struct pointwise_run *r);
