// SPDX-License-Identifier: Apache-2.0
// Which contractions generated tiles take from other implementations, which transposed convolutions
// the library's primitive takes, which convolutions and products are ours
// (devices/cpu/cpu_choice.c): by type and shape.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "compiler/ir/text/text.h"
#include "devices/cpu/cpu.h"

enum wanted { NOT, BETTER };
#define DOT      "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
#define CONV     "dim_labels=bf01_oi01->bf01"
#define GRADIENT "dim_labels=fb01_io01->fb01"
#define BACK     "lhs_dilate=2x2 rhs_reversal=1x1}, dim_labels=bf01_io01->bf01"

struct contraction {
    enum wanted want;
    const char *left, *right, *result, *op;
};
static const struct contraction tiles[] = {
    {BETTER, "f64[512,512]", "f64[512,512]", "f64[512,512]", "dot(x, y), " DOT},
    {BETTER, "s32[512,512]", "s32[512,512]", "s32[512,512]", "dot(x, y), " DOT},
    {NOT, "c64[512,512]", "c64[512,512]", "c64[512,512]", "dot(x, y), " DOT},
    {NOT, "f32[512,512]", "f32[512,512]", "f32[512,512]", "dot(x, y), " DOT},
    // Few rows: with few terms only, or not at all; few columns; short.
    {BETTER, "f64[16,200]", "f64[200,512]", "f64[16,512]", "dot(x, y), " DOT},
    {NOT, "f64[16,20000]", "f64[20000,32]", "f64[16,32]", "dot(x, y), " DOT},
    {NOT, "f64[33,2750]", "f64[2750,786]", "f64[33,786]", "dot(x, y), " DOT},
    {NOT, "f64[2944,40]", "f64[40,2]", "f64[2944,2]", "dot(x, y), " DOT},
    {BETTER, "f64[2944,40]", "f64[40,4]", "f64[2944,4]", "dot(x, y), " DOT},
    {NOT, "s32[2944,40]", "s32[40,4]", "s32[2944,4]", "dot(x, y), " DOT},
    {NOT, "f64[32,32]", "f64[32,32]", "f64[32,32]", "dot(x, y), " DOT},

    {BETTER, "f64[1,64,56,56]", "f64[64,64,3,3]", "f64[1,64,56,56]",
     "convolution(x, y), window={size=3x3 pad=1_1x1_1}, " CONV},
    {NOT, "c64[1,64,56,56]", "c64[64,64,3,3]", "c64[1,64,56,56]",
     "convolution(x, y), window={size=3x3 pad=1_1x1_1}, " CONV},
    // One feature: of many terms. Rows of two positions that windows reach over by four. Strides
    // over a large image, by windows that meet and of one place.
    {BETTER, "s32[8,46,12,12]", "s32[1,46,5,5]", "s32[8,1,8,8]",
     "convolution(x, y), window={size=5x5}, " CONV},
    {NOT, "f64[1,96,56,56]", "f64[96,1,3,3]", "f64[1,96,54,54]",
     "convolution(x, y), window={size=3x3}, " CONV ", feature_group_count=96"},
    {NOT, "f64[5,115,42,6]", "f64[111,115,3,5]", "f64[5,111,14,2]",
     "convolution(x, y), window={size=3x5 stride=3x3 pad=0_1x1_2}, " CONV},
    {BETTER, "s32[3,115,51,30]", "s32[53,115,3,2]", "s32[3,53,17,10]",
     "convolution(x, y), window={size=3x2 stride=3x3}, " CONV},
    {NOT, "s32[3,115,51,30]", "s32[53,115,1,1]", "s32[3,53,17,10]",
     "convolution(x, y), window={size=1x1 stride=3x3}, " CONV},
    // f32: few features of an image of 256 places and more, however short; not of fewer places, nor
    // of many features.
    {BETTER, "f32[1,1,16,16]", "f32[1,1,5,5]", "f32[1,1,16,16]",
     "convolution(x, y), window={size=5x5 pad=2_2x2_2}, " CONV},
    {BETTER, "f32[1,2,28,28]", "f32[6,2,5,5]", "f32[1,6,28,28]",
     "convolution(x, y), window={size=5x5 pad=2_2x2_2}, " CONV},
    {NOT, "f32[1,1,8,8]", "f32[1,1,5,5]", "f32[1,1,8,8]",
     "convolution(x, y), window={size=5x5 pad=2_2x2_2}, " CONV},
    {NOT, "f32[1,2,28,28]", "f32[16,2,5,5]", "f32[1,16,28,28]",
     "convolution(x, y), window={size=5x5 pad=2_2x2_2}, " CONV},
    // Weight gradients: few positions, features in the lanes; of groups.
    {BETTER, "f64[2,64,28,28]", "f64[2,64,14,14]", "f64[64,64,3,3]",
     "convolution(x, y), window={size=14x14 pad=0_1x0_1 rhs_dilate=2x2}, " GRADIENT},
    {BETTER, "f32[1,64,28,28]", "f32[1,64,28,28]", "f32[64,8,3,3]",
     "convolution(x, y), window={size=28x28 pad=1_1x1_1}, " GRADIENT ", batch_group_count=8"},

    // f32: few outputs of many taps and positions.
    {BETTER, "f32[1,32,64,64]", "f32[2,32,3,3]", "f32[1,2,64,64]",
     "convolution(x, y), window={size=3x3 pad=1_1x1_1}, " CONV},
    {NOT, "f32[1,32,64,64]", "f32[2,32,1,1]", "f32[1,2,64,64]",
     "convolution(x, y), window={size=1x1}, " CONV},
    {NOT, "f32[1,32,64,64]", "f32[16,32,3,3]", "f32[1,16,64,64]",
     "convolution(x, y), window={size=3x3 pad=1_1x1_1}, " CONV},
    {NOT, "f32[1,32,10,7]", "f32[2,32,3,3]", "f32[1,2,10,7]",
     "convolution(x, y), window={size=3x3 pad=1_1x1_1}, " CONV},
    {NOT, "f32[1,96,56,56]", "f32[96,1,3,3]", "f32[1,96,54,54]",
     "convolution(x, y), window={size=3x3}, " CONV ", feature_group_count=96"},
};
// Where the data path is as wide as AVX-512's vectors: products whose lines lie a multiple of a KiB
// apart, of many rows and terms; others; turned; batches.
static const struct contraction wide_dots[] = {
    {BETTER, "f32[512,3072]", "f32[3072,768]", "f32[512,768]", "dot(x, y), " DOT},
    {BETTER, "f32[128,3072]", "f32[3072,768]", "f32[128,768]", "dot(x, y), " DOT},
    {NOT, "f32[512,3072]", "f32[3072,700]", "f32[512,700]", "dot(x, y), " DOT},
    {NOT, "f32[128,768]", "f32[768,768]", "f32[128,768]", "dot(x, y), " DOT},
    {NOT, "f32[512,3072]", "f32[768,3072]", "f32[512,768]",
     "dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={1}"},
    {NOT, "f32[2,512,3072]", "f32[2,3072,768]", "f32[2,512,768]",
     "dot(x, y), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, "
     "rhs_contracting_dims={1}"},
    {NOT, "bf16[512,3072]", "bf16[3072,768]", "bf16[512,768]", "dot(x, y), " DOT},
};
// On AVX2: windows as large as images. Few positions or features, or products; much outside of the
// image; in three dimensions; a dilated window in two.
#define GRADIENT_1D "dim_labels=fb0_io0->fb0"
static const struct contraction windows[] = {
    {BETTER, "f32[4,64,4000]", "f32[4,64,4000]", "f32[64,64,5]",
     "convolution(x, y), window={size=4000 pad=2_2}, " GRADIENT_1D},
    {BETTER, "f32[4,1,4000]", "f32[4,32,4000]", "f32[32,1,16]",
     "convolution(x, y), window={size=4000 pad=7_8}, " GRADIENT_1D},
    {BETTER, "f32[4,64,4000]", "f32[4,64,2000]", "f32[64,64,5]",
     "convolution(x, y), window={size=2000 pad=1_2 rhs_dilate=2}, " GRADIENT_1D},
    {BETTER, "f32[8,3,64,64]", "f32[8,16,64,64]", "f32[16,3,3,3]",
     "convolution(x, y), window={size=64x64 pad=1_1x1_1}, " GRADIENT},
    {NOT, "f32[4,64,4000]", "f32[4,64,4000]", "f32[64,64,2]",
     "convolution(x, y), window={size=4000 pad=0_1}, " GRADIENT_1D},
    {NOT, "f32[4,64,4000]", "f32[4,4,4000]", "f32[4,64,5]",
     "convolution(x, y), window={size=4000 pad=2_2}, " GRADIENT_1D},
    {NOT, "f32[1,4,60]", "f32[1,8,60]", "f32[8,4,5]",
     "convolution(x, y), window={size=60 pad=2_2}, " GRADIENT_1D},
    {NOT, "f32[8,64,14,14]", "f32[8,64,14,14]", "f32[64,64,5,5]",
     "convolution(x, y), window={size=14x14 pad=2_2x2_2}, " GRADIENT},
    {NOT, "f32[2,16,16,16,16]", "f32[2,16,16,16,16]", "f32[16,16,3,3,3]",
     "convolution(x, y), window={size=16x16x16 pad=1_1x1_1x1_1}, dim_labels=fb012_io012->fb012"},
    {NOT, "f32[8,64,56,56]", "f32[8,64,28,28]", "f32[64,64,3,3]",
     "convolution(x, y), window={size=28x28 pad=0_1x0_1 rhs_dilate=2x2}, " GRADIENT},
};
// Where a vector of 512 bits goes in one step: few results of a row, or of many taps; not of few
// features, and not where most terms lie outside.
static const struct contraction wide_windows[] = {
    {BETTER, "f32[8,64,56,56]", "f32[8,64,56,56]", "f32[64,64,3,3]",
     "convolution(x, y), window={size=56x56 pad=1_1x1_1}, " GRADIENT},
    {BETTER, "f32[8,64,56,56]", "f32[8,64,28,28]", "f32[64,64,3,3]",
     "convolution(x, y), window={size=28x28 pad=0_1x0_1 rhs_dilate=2x2}, " GRADIENT},
    {BETTER, "f32[4,64,4000]", "f32[4,64,4000]", "f32[64,64,5]",
     "convolution(x, y), window={size=4000 pad=2_2}, " GRADIENT_1D},
    {BETTER, "f32[8,3,112,112]", "f32[8,64,56,56]", "f32[64,3,7,7]",
     "convolution(x, y), window={size=56x56 pad=2_3x2_3 rhs_dilate=2x2}, " GRADIENT},
    {NOT, "f32[4,24,28,28]", "f32[4,64,28,28]", "f32[64,24,7,7]",
     "convolution(x, y), window={size=28x28 pad=3_3x3_3}, " GRADIENT},
    {NOT, "f32[4,24,28,28]", "f32[4,16,28,28]", "f32[16,24,5,5]",
     "convolution(x, y), window={size=28x28 pad=2_2x2_2}, " GRADIENT},
    {NOT, "f32[8,128,14,14]", "f32[8,64,14,14]", "f32[64,128,3,3]",
     "convolution(x, y), window={size=14x14 stride=4x4 pad=4_4x4_4}, " GRADIENT},
};
// With any AVX-512: gradients of few results a row, channels that do not fill a block of 16; not of
// more results, nor of full blocks.
static const struct contraction wide_any[] = {
    {BETTER, "f32[8,64,56,56]", "f32[8,64,56,56]", "f32[64,64,3,3]",
     "convolution(x, y), window={size=56x56 pad=1_1x1_1}, " GRADIENT},
    {BETTER, "f32[8,64,56,56]", "f32[8,64,28,28]", "f32[64,64,3,3]",
     "convolution(x, y), window={size=28x28 pad=0_1x0_1 rhs_dilate=2x2}, " GRADIENT},
    {NOT, "f32[4,24,28,28]", "f32[4,16,28,28]", "f32[16,24,5,5]",
     "convolution(x, y), window={size=28x28 pad=2_2x2_2}, " GRADIENT},
    {BETTER, "f32[1,36,2000]", "f32[100,36,5]", "f32[1,100,2000]",
     "convolution(x, y), window={size=5 pad=2_2}, dim_labels=bf0_oi0->bf0"},
    {BETTER, "f32[2,320,14,14]", "f32[48,20,3,3]", "f32[2,48,14,14]",
     "convolution(x, y), window={size=3x3 pad=1_1x1_1}, " CONV ", feature_group_count=16"},
    {NOT, "f32[1,32,28,28]", "f32[64,32,3,3]", "f32[1,64,28,28]",
     "convolution(x, y), window={size=3x3 pad=1_1x1_1}, " CONV},
};
// Filters of many taps, whatever the vectors.
static const struct contraction filters[] = {
    {BETTER, "f32[1,1,100000]", "f32[1,1,1000]", "f32[1,1,99001]",
     "convolution(x, y), window={size=1000}, dim_labels=bf0_oi0->bf0"},
    {BETTER, "f32[1,2,512,512]", "f32[1,2,25,25]", "f32[1,1,244,244]",
     "convolution(x, y), window={size=25x25 stride=2x2}, " CONV},
};
// Convolutions of few features and short windows are kernels; not of more features of complex
// numbers, nor padded ones of these, nor strided ones.
#define LINE "dim_labels=bf0_oi0->bf0"
static const struct contraction short_windows[] = {
    {NOT, "f64[3,1,2001]", "f64[1,1,11]", "f64[3,1,2001]",
     "convolution(x, y), window={size=11 pad=5_5}, " LINE},
    {NOT, "s64[16,2,8,8]", "s64[4,2,3,3]", "s64[16,4,8,8]",
     "convolution(x, y), window={size=3x3 pad=1_1x1_1}, " CONV},
    {NOT, "c64[1,1,8005]", "c64[1,1,5]", "c64[1,1,8001]",
     "convolution(x, y), window={size=5}, " LINE},
    {BETTER, "c64[1,1,8001]", "c64[1,1,5]", "c64[1,1,8001]",
     "convolution(x, y), window={size=5 pad=2_2}, " LINE},
    {BETTER, "c128[2,4,1503]", "c128[4,4,4]", "c128[2,4,1500]",
     "convolution(x, y), window={size=4}, " LINE},
    {BETTER, "f64[3,1,20001]", "f64[1,1,11]", "f64[3,1,6664]",
     "convolution(x, y), window={size=11 stride=3}, " LINE},
};
// Products of short integers: batches, whatever lies where; few columns, but not so few rows; small
// ones and windows are kernels'; sums that are not of 32 bits.
#define BATCHED                                                                                    \
    "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}"
static const struct contraction shorts[] = {
    {BETTER, "s8[64,128,128]", "s8[64,128,128]", "s32[64,128,128]", "dot(x, y), " BATCHED},
    {BETTER, "u8[64,128,128]", "s8[64,128,128]", "s32[64,128,128]", "dot(x, y), " BATCHED},
    {BETTER, "s16[64,128,128]", "s16[64,128,128]", "u32[64,128,128]", "dot(x, y), " BATCHED},
    {BETTER, "s8[64,128,128]", "s8[64,128,3]", "s32[64,128,3]", "dot(x, y), " BATCHED},
    {NOT, "s8[64,128,128]", "s8[64,128,8]", "s32[64,128,8]", "dot(x, y), " BATCHED},
    {NOT, "s8[64,8,512]", "s8[64,512,64]", "s32[64,8,64]", "dot(x, y), " BATCHED},
    {NOT, "u16[64,128,128]", "u16[64,128,128]", "s32[64,128,128]", "dot(x, y), " BATCHED},
    {NOT, "s8[64,128,128]", "s8[64,128,128]", "s8[64,128,128]", "dot(x, y), " BATCHED},
    {NOT, "s8[900,16,16]", "s8[900,16,16]", "s32[900,16,16]", "dot(x, y), " BATCHED},
    {NOT, "u8[1,32,28,28]", "u8[32,32,3,3]", "s32[1,32,28,28]",
     "convolution(x, y), window={size=3x3 pad=1_1x1_1}, " CONV},
};
static const struct contraction backward[] = {
    {BETTER, "f32[2,64,14,14]", "f32[64,64,3,3]", "f32[2,64,28,28]",
     "convolution(x, y), window={size=3x3 pad=2_1x2_1 " BACK},
    {BETTER, "f32[1,64,14,14]", "f32[64,32,4,4]", "f32[1,32,28,28]",
     "convolution(x, y), window={size=4x4 pad=2_2x2_2 " BACK},
    // Images: phases fill a block, three channels do not. Other types.
    {NOT, "f32[1,64,56,56]", "f32[64,3,7,7]", "f32[1,3,112,112]",
     "convolution(x, y), window={size=7x7 pad=4_3x4_3 " BACK},
    {NOT, "f32[1,8,14,14]", "f32[8,64,3,3]", "f32[1,64,28,28]",
     "convolution(x, y), window={size=3x3 pad=2_1x2_1 " BACK},
    {NOT, "f64[2,64,14,14]", "f64[64,64,3,3]", "f64[2,64,28,28]",
     "convolution(x, y), window={size=3x3 pad=2_1x2_1 " BACK},
    {NOT, "f32[2,64,14,14]", "f32[64,64,3,3]", "f32[2,64,31,31]",
     "convolution(x, y), window={size=3x3 pad=3_3x3_3 " BACK},
};

// Outputs of Winograd's tile a side; 0: the library sums.
#define SAME "window={size=3x3 pad=1_1x1_1}, " CONV
#define IMAGE(c, k, h)                                                                             \
    "f32[1," #c "," #h "," #h "]", "f32[" #k "," #c ",3,3]", "f32[1," #k "," #h "," #h "]"
static const struct winograd_case {
    int tile;
    const char *left, *right, *result, *op;
} winograds[] = {
    // ResNet and VGG: larger tiles but where weights would come from memory for few positions.
    {4, IMAGE(64, 64, 56), "convolution(x, y), " SAME},
    {4, IMAGE(128, 128, 28), "convolution(x, y), " SAME},
    {2, IMAGE(512, 512, 7), "convolution(x, y), " SAME},
    {4, IMAGE(512, 512, 28), "convolution(x, y), " SAME},
    {4, IMAGE(24, 40, 31), "convolution(x, y), " SAME},
    {0, IMAGE(64, 64, 56), "convolution(x, y), " SAME ", operand_precision={highest,highest}"},
    // Few channels; other windows, strides, groups, types.
    {0, IMAGE(3, 64, 56), "convolution(x, y), " SAME},
    {0, IMAGE(7, 64, 56), "convolution(x, y), " SAME},
    {0, "f32[1,64,56,56]", "f32[64,8,3,3]", "f32[1,64,56,56]",
     "convolution(x, y), " SAME ", feature_group_count=8"},
    {0, "f32[1,64,56,56]", "f32[64,64,3,3]", "f32[1,64,28,28]",
     "convolution(x, y), window={size=3x3 stride=2x2 pad=0_1x0_1}, " CONV},
    {0, "f32[1,64,56,56]", "f32[64,64,5,5]", "f32[1,64,56,56]",
     "convolution(x, y), window={size=5x5 pad=2_2x2_2}, " CONV},
    {0, "f32[1,64,56,56]", "f32[64,64,3,3]", "f32[1,64,56,56]",
     "convolution(x, y), window={size=3x3 pad=2_2x2_2 rhs_dilate=2x2}, " CONV},
    {0, "f64[1,64,56,56]", "f64[64,64,3,3]", "f64[1,64,56,56]", "convolution(x, y), " SAME},
};
// Convolutions of 8-bit integers that are better so than by f32.
#define BYTES(c, w, k, h)                                                                          \
    "u8[1," #c "," #h "," #h "]", "s8[" #k "," #c "," #w "," #w "]", "s32[1," #k "," #h "," #h "]"
static const struct contraction pairs[] = {
    {BETTER, BYTES(256, 1, 256, 14), "convolution(x, y), window={size=1x1}, " CONV},
    {BETTER, BYTES(64, 5, 64, 28), "convolution(x, y), window={size=5x5 pad=2_2x2_2}, " CONV},
    // Few terms; a filter for each channel; Winograd's tiles, but where sums are to be exact.
    {NOT, BYTES(24, 1, 24, 32), "convolution(x, y), window={size=1x1}, " CONV},
    {NOT, "u8[1,96,56,56]", "s8[96,1,3,3]", "s32[1,96,56,56]",
     "convolution(x, y), " SAME ", feature_group_count=96"},
    {NOT, BYTES(64, 3, 64, 28), "convolution(x, y), " SAME},
    {BETTER, BYTES(64, 3, 64, 28),
     "convolution(x, y), " SAME ", operand_precision={highest,highest}"},
};
// Rows that make a product ours, bound or not: of a right operand by terms or turned, near or far.
#define TURNED "lhs_contracting_dims={1}, rhs_contracting_dims={1}"
static const struct product_case {
    // wide: AVX-512, of a bound weight, and in a loop; halves: bound, without a wide data path.
    bool bound, other, wide, wide_kept, halves;
    const char *left, *right, *result, *dims;
} products[] = {
    {true, true, true, true, true, "f32[24,768]", "f32[768,768]", "f32[24,768]", DOT},
    {true, true, false, true, false, "f32[24,256]", "f32[256,512]", "f32[24,512]", DOT},
    {true, true, false, false, false, "f32[24,64]", "f32[64,128]", "f32[24,128]", DOT},
    {true, true, false, false, false, "f32[24,4096]", "f32[4096,32]", "f32[24,32]", DOT},
    {true, true, true, true, false, "f32[128,768]", "f32[768,3072]", "f32[128,3072]", DOT},
    {true, false, false, false, false, "f32[4,768]", "f32[768,3072]", "f32[4,3072]", DOT},
    {true, false, false, false, false, "f32[5,4096]", "f32[4096,1000]", "f32[5,1000]", DOT},
    {true, true, false, false, false, "f32[6,4096]", "f32[4096,1000]", "f32[6,1000]", DOT},
    {true, false, false, false, false, "f32[4,768]", "f32[768,768]", "f32[4,768]", DOT},
    {true, true, false, false, false, "f32[5,768]", "f32[768,768]", "f32[5,768]", DOT},
    {true, false, false, false, false, "f32[7,768]", "f32[768,768]", "f32[7,768]", TURNED},
    {true, true, false, false, false, "f32[8,768]", "f32[768,768]", "f32[8,768]", TURNED},
    {true, false, false, false, false, "f32[8,768]", "f32[3072,768]", "f32[8,3072]", TURNED},
    {true, true, false, false, false, "f32[12,768]", "f32[3072,768]", "f32[12,3072]", TURNED},
    {false, false, false, false, false, "f32[1,768]", "f32[768,3072]", "f32[1,3072]", DOT},
    {false, false, false, false, false, "f32[128,768]", "f32[768,2]", "f32[128,2]", DOT},
    {false, false, false, false, false, "f64[128,768]", "f64[768,768]", "f64[128,768]", DOT},
    {true, true, true, true, false, "f32[14,768]", "f32[768,768]", "f32[14,768]", DOT},
    {true, true, true, true, true, "f32[90,768]", "f32[768,768]", "f32[90,768]", DOT},
    {true, true, true, true, false, "f32[90,768]", "f32[768,3072]", "f32[90,3072]", DOT},
};

// Products that a kernel takes from libraries: with AVX-512 also one of few terms, rows and
// columns, but of few columns that fill no vector, of many terms and of other types.
#define LEFT_TURNED "lhs_contracting_dims={0}, rhs_contracting_dims={0}"
static const struct contraction small_wide[] = {
    {BETTER, "f32[4,4]", "f32[4,4]", "f32[4,4]", "dot(x, y), " LEFT_TURNED},
    {BETTER, "f32[8,32]", "f32[8,16]", "f32[32,16]", "dot(x, y), " LEFT_TURNED},
    {BETTER, "f32[12,30]", "f32[30,17]", "f32[12,17]", "dot(x, y), " DOT},
    {BETTER, "f32[12,30]", "f32[3,30]", "f32[12,3]", "dot(x, y), " TURNED},
    {NOT, "f32[30,43]", "f32[30,3]", "f32[43,3]", "dot(x, y), " LEFT_TURNED},
    {NOT, "f32[2,1000]", "f32[1000,8]", "f32[2,8]", "dot(x, y), " DOT},
    {NOT, "f32[64,64]", "f32[64,64]", "f32[64,64]", "dot(x, y), " DOT},
    {NOT, "bf16[12,30]", "bf16[30,17]", "bf16[12,17]", "dot(x, y), " DOT},
};

static struct hlo_module *module_of(const char *left, const char *right, const char *result,
                                    const char *op) {
    char text[1024];
    struct hlo_module *m = NULL;
    int n = snprintf(text, sizeof text,
                     "HloModule m\nENTRY e { x = %s parameter(0)\n y = %s parameter(1)\n"
                     " ROOT r = %s %s\n}\n",
                     left, right, result, op);
    status_t st = hlo_parse((struct str){text, (size_t)n}, NULL, &m);
    if (st) fail_msg("%s: %s", text, st_message(st));
    return m;
}
static void check(const struct contraction *c, bool (*better)(const struct hlo_instr *i)) {
    struct hlo_module *m = module_of(c->left, c->right, c->result, c->op);
    if (better(m->entry->root) != (c->want == BETTER))
        fail_msg("otherwise: %s by %s", c->left, c->right);
    hlo_module_free(m);
}
static void tiles_better(UNUSED void **state) {
    for (size_t k = 0; k < sizeof tiles / sizeof *tiles; k++)
        check(&tiles[k], cpu_tiles_better);
    for (size_t k = 0; k < sizeof windows / sizeof *windows; k++)
        if (cpu_target()->vector_bits == 256) check(&windows[k], cpu_tiles_better);
    for (size_t k = 0; k < sizeof filters / sizeof *filters; k++)
        check(&filters[k], cpu_tiles_better);
    for (size_t k = 0; k < sizeof wide_any / sizeof *wide_any; k++)
        if (cpu_target()->vector_bits == 512) check(&wide_any[k], cpu_tiles_better);
    for (size_t k = 0; k < sizeof wide_windows / sizeof *wide_windows; k++)
        if (cpu_has_wide_path()) check(&wide_windows[k], cpu_tiles_better);
    for (size_t k = 0; k < sizeof wide_dots / sizeof *wide_dots; k++)
        if (cpu_has_wide_path()) check(&wide_dots[k], cpu_tiles_better);
}
static void gemm_takes(UNUSED void **state) {
    for (size_t k = 0; k < sizeof shorts / sizeof *shorts; k++)
        check(&shorts[k], cpu_gemm_accepts);
    for (size_t k = 0; k < sizeof short_windows / sizeof *short_windows; k++)
        check(&short_windows[k], cpu_gemm_accepts);
}
static void small_products(UNUSED void **state) {
    for (size_t k = 0; k < sizeof small_wide / sizeof *small_wide; k++) {
        struct contraction c = small_wide[k];
        if (cpu_target()->vector_bits != 512) c.want = NOT;
        check(&c, cpu_small_dot);
    }
}
static void transposed_better(UNUSED void **state) {
    for (size_t k = 0; k < sizeof backward / sizeof *backward; k++)
        check(&backward[k], cpu_transposed_better);
}
static void ours(UNUSED void **state) {
    bool avx2 = cpu_target()->vector_bits == 256, any = cpu_target()->vector_bits >= 256;
    for (size_t k = 0; k < sizeof winograds / sizeof *winograds; k++) {
        const struct winograd_case *c = &winograds[k];
        struct hlo_module *m = module_of(c->left, c->right, c->result, c->op);
        int tile = cpu_winograd_tile(m->entry->root);
        if (tile != (any ? c->tile : 0)) fail_msg("%s by %s: %d", c->left, c->right, tile);
        hlo_module_free(m);
    }
    for (size_t k = 0; k < sizeof pairs / sizeof *pairs && avx2; k++)
        check(&pairs[k], cpu_pairs_better);
    for (size_t k = 0; k < sizeof products / sizeof *products; k++) {
        const struct product_case *c = &products[k];
        char op[128];
        snprintf(op, sizeof op, "dot(x, y), %s", c->dims);
        struct hlo_module *m = module_of(c->left, c->right, c->result, op);
        const struct hlo_instr *dot = m->entry->root;
        bool wide = any && !avx2, bound = cpu_has_wide_path() ? c->wide : c->halves;
        if (cpu_matmul_better(dot, true, false) != (avx2 ? c->bound : wide && bound) ||
            cpu_matmul_better(dot, false, true) != (avx2 ? c->bound : wide && c->wide_kept) ||
            cpu_matmul_better(dot, false, false) != (avx2 && c->other))
            fail_msg("otherwise: %s by %s", c->left, c->right);
        hlo_module_free(m);
    }
}

// As a CPU with AVX2 alone, and, in another process, as the machine is.
int main(void) {
    int status = 0;
    pid_t other = fork();
    if (other) setenv("HLOD_CPU_ISA", "avx2", 1); // what cpu_target says from now on
    const struct CMUnitTest tests[] = {cmocka_unit_test(tiles_better), cmocka_unit_test(gemm_takes),
                                       cmocka_unit_test(transposed_better), cmocka_unit_test(ours),
                                       cmocka_unit_test(small_products)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (other > 0) waitpid(other, &status, 0);
    return failed || status || other < 0;
}
