// SPDX-License-Identifier: Apache-2.0
// cpu_thin: what cpu_thin.c and its loops share.
#pragma once
#include "compiler/passes/library.h"

enum { THIN_ROWS = 4 }; // of one product
enum thin_form { THIN_LINES, THIN_COLUMNS, THIN_PANELS }; // w[k, c]; w[c, k]; packed
// out[r, c] += sum over k of x[r, k] * w[k, c]; strides in elements. With panels `out` has room for
// whole ones.
struct thin_product {
    const float *x, *w;
    float *out;
    int64_t x_stride, w_stride, out_stride;
    int64_t k, cols;
    int rows; // 1 to THIN_ROWS
    enum thin_form form;
};
