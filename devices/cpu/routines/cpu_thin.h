// SPDX-License-Identifier: Apache-2.0
// cpu_thin: what cpu_thin.c, its loops and cpu_thin8.c share.
#pragma once
#include "compiler/passes/fusion/library.h"

struct cpu_exe;
struct cpu_step;

enum { THIN_ROWS = 6 }; // of one product
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
// p of any number of rows, taken together as registers hold their sums; p.rows is not read.
// THIN_LINES and THIN_COLUMNS only.
void cpu_thin_product(int vector_bits, struct thin_product p, int64_t rows);
// Post-operation `kind` on v[n], f32, with room for whole vectors; for this CPU.
typedef void (*thin_activate_fn)(enum lib_post_kind kind, float alpha, float beta, float *v,
                                 int64_t n);
thin_activate_fn cpu_thin_activate(void);
// Would thin keep this bound right operand of dot h in half the bytes: as the f16 or bf16 that its
// values came from? While binding only.
bool cpu_thin_halves(const struct cpu_exe *x, const struct cpu_step *s, const struct hlo_instr *h,
                     int leaf);
