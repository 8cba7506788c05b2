// SPDX-License-Identifier: Apache-2.0
// cpu_thin: what cpu_thin.c and its loops share.
#pragma once
#include "compiler/passes/library.h"

enum { THIN_ROWS = 4 }; // of one product
// w[k, c]; w[c, k]; packed, in f32 or as the f16 or bf16 that the values came from
enum thin_form { THIN_LINES, THIN_COLUMNS, THIN_PANELS, THIN_PANELS_F16, THIN_PANELS_BF16 };
// out[r, c] += sum over k of x[r, k] * w[k, c]; strides in elements. With panels `out` has room for
// whole ones.
struct thin_product {
    const float *x;
    const void *w; // f32 unless the form says otherwise
    float *out;
    int64_t x_stride, w_stride, out_stride;
    int64_t k, cols;
    int rows; // 1 to THIN_ROWS
    enum thin_form form;
};
