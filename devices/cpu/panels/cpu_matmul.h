// SPDX-License-Identifier: Apache-2.0
// cpu_matmul: products of f32 matrices by panels (cpu_panels.h), with the post-operations of
// library.h, on arrays: out[b, r, c] = sum over k of left[b, r, k] * right[b, k, c], out dense.
// Blocks as Goto & van de Geijn have them: a block of the left operand stays in the second cache
// while it passes the panels of a chunk of columns. A right operand that is a bound weight is
// packed at PREPARE; another is packed by all threads first, so many chunks at a time as SCRATCH
// holds.
#pragma once
#include "compiler/passes/fusion/library.h"
#include "devices/cpu/panels/cpu_panels.h"
#include "devices/cpu/routines/cpu_thin.h"

enum { MATMUL_BATCH = 4 };
// Schedules, by number: the first is what the caches of most CPUs ask for, others are for tuning
// (`hlo tune`). Names: at most so many terms, rows and columns of a block. NULL at the end.
extern const char *const matmul_schedules[];
struct matmul {
    // Set by the caller. Strides in floats; those of the batch by dimension.
    int64_t rows, columns, depth;
    int64_t left_row; // terms of a row lie together
    int64_t right_term, right_column;
    int n_batch;
    int64_t batch[MATMUL_BATCH], left_batch[MATMUL_BATCH], right_batch[MATMUL_BATCH];
    bool packed; // the right operand is; then there is no batch
    int schedule;
    int n_post;
    struct lib_post post[LIB_MAX_POST];
    // matmul_plan's.
    const struct panel_isa *panel;
    thin_activate_fn activate;
    int64_t panels;      // of a matrix
    int64_t depth_block; // terms
    int64_t row_block, row_blocks;
    int64_t chunk, chunks; // panels of one, chunks of a matrix
    int64_t all_chunks;    // of all matrices
    bool direct;           // the right operand is read where it lies
    int64_t tall;          // row blocks of a unit
    bool bias, relu;       // the first steps, which tiles do in registers
    int first_step;        // behind these
    int64_t units, grain;
};
struct matmul_run {
    const struct matmul *m;
    const float *left, *right; // right: packed or as it is
    float *out, *scratch;
    const float *operand[LIB_MAX_POST]; // of post-operations that have one
};
// threads: that will run it. False: there are no panels for such vectors.
bool matmul_plan(struct matmul *m, int vector_bits, int threads);
// Do a and b, planned for one product, run alike whatever their schedules?
bool matmul_same_blocks(const struct matmul *a, const struct matmul *b);
int64_t matmul_packed_bytes(const struct matmul *m);               // of a bound right operand
int64_t matmul_scratch_bytes(const struct matmul *m, int threads); // of another
// Packs a part of a bound right operand: of matmul_pack_parts, in any order. Gives what was read of
// it, which no other part reads.
int64_t matmul_pack_parts(const struct matmul *m);
struct span matmul_pack(const struct matmul *m, const void *right, int64_t part, float *packed);
void matmul_run(const struct matmul_run *r);
double matmul_products(const struct matmul *m); // operations of a run
