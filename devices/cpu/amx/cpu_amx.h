// SPDX-License-Identifier: Apache-2.0
// cpu_amx: products of bf16 matrices with sums in f32 by AMX's tiles, with the post-operations of
// library.h: out[r, c] = sum over k of left[r, k] * right[k, c], out dense. A tile holds 16 rows of
// 64 bytes: of the left operand 16 rows by 32 terms, of the right one, packed at PREPARE, 16 pairs
// of terms by 16 columns (Intel 64 and IA-32 Architectures Software Developer's Manual, TDPBF16PS).
// A block of 32 rows and 32 columns stays in four tiles over all terms, and a panel of 32 columns
// lies in memory as it is read, from front to end: with few rows that reading is what a product
// takes. Thread: any.
#pragma once
#include "base/span.h"
#include "compiler/passes/fusion/library.h"
#include "devices/cpu/panels/cpu_panels.h"
#include "devices/cpu/routines/cpu_thin.h"

enum {
    AMX_ROWS = 16, // of a tile, and columns of a sum's
    AMX_TERMS = 32,
    AMX_TILE = 1024,         // bytes
    AMX_BLOCK = 2 * AMX_ROWS // rows, and columns, of a block
};
// out[r, c] of one block, rows AMX_BLOCK floats apart; what is past `rows` is not written.
struct amx_block {
    const char *left;  // its first row; each 64 bytes a row and step
    int64_t left_row;  // bytes from a row to the next one
    int64_t left_tile; // from the first 16 rows to the others
    int64_t left_step; // from 32 terms to the next ones
    const char *right; // two tiles a step
    int64_t steps;
    int rows;
    float *out;
    const char *next; // fetched meanwhile, next_lines lines of a cache a step
    int next_lines;
};
struct amx_isa {
    void (*begin)(int rows); // before blocks of so many rows
    void (*multiply)(const struct amx_block *b);
    void (*end)(void);
    // Adds n values of bf16 to `to`; n values as bf16.
    void (*add_bf16)(float *to, const uint16_t *from, int64_t n);
    void (*to_bf16)(uint16_t *to, const float *from, int64_t n);
};
// NULL: this process has no AMX. HLOD_CPU_AMX=emulated: something runs the instructions for it, as
// tests/precision/amx_emulator.c does.
const struct amx_isa *cpu_amx_isa(void);

struct amx {
    // Set by the caller; strides in elements.
    int64_t rows, columns, depth;
    int64_t left_row; // terms of a row lie together
    int64_t right_term, right_column;
    bool bf16; // the result is
    int n_post;
    struct lib_post post[LIB_MAX_POST];
    // amx_plan's.
    const struct amx_isa *isa;
    const struct panel_isa *panel; // whose additions of f32 are taken
    thin_activate_fn activate;
    int64_t steps, panels, row_chunk, row_chunks;
    bool pack_left; // rows are copied first: their last terms do not fill a tile, or they lie so
                    // that the first cache holds few of them
    int64_t units, grain;
};
struct amx_run {
    const struct amx *m;
    const void *left, *right; // right: packed
    void *out, *scratch;
    const void *operand[LIB_MAX_POST]; // of post-operations that have one
    bool operand_bf16[LIB_MAX_POST];
};
void amx_plan(struct amx *m, const struct amx_isa *isa, int threads);
int64_t amx_packed_bytes(const struct amx *m);
int64_t amx_scratch_bytes(const struct amx *m);
// Packs a part of a right operand, which may lie unaligned: of amx_pack_parts, in any order. Gives
// what was read of it, which no other part reads.
int64_t amx_pack_parts(const struct amx *m);
struct span amx_pack(const struct amx *m, const void *right, int64_t part, char *packed);
void amx_multiply(const struct amx_run *r);
