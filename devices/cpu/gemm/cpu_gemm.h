// SPDX-License-Identifier: Apache-2.0
// cpu_gemm: what cpu_gemm.c, its running (cpu_gemm_run.c) and its loops share.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "compiler/ir/module.h"
#include "devices/cpu/routines/cpu_turn.h"

enum {
    GEMM_DEPTH = 256,         // of a block
    GEMM_WIDTH_BYTES = 2048,  // of a row of a block of the right matrix
    GEMM_AHEAD = 16,          // depths that are fetched ahead: tables of depths go on so far
    GEMM_VECS = 3,            // of the widest tile
    GEMM_TILE_BYTES = 8 * 192 // of the largest tile: rows of vectors
};
// One tile: out[r][c] = sum over k of a[r * a_row + a_depth[k]] * b[b_depth[k] + c], or that added
// to out; offsets in elements, of which complex ones are pairs of numbers. Whole vectors of b and
// out are touched.
struct gemm_tile {
    const void *a, *b;
    int64_t a_row, k;
    const int64_t *a_depth, *b_depth;
    const void
        *next; // what is to come into the nearest cache meanwhile: a line of b for each depth
    const int64_t *next_depth;
    void *out;
    int64_t out_row;
    bool add;
};
typedef void (*gemm_tile_fn)(const struct gemm_tile *t);
// A matrix by a vector of complex numbers: sums[l] = sum over k of a[line[l] + depth[k]] * x[k].
// beside: as large as sums, for lines that are summed side by side.
struct gemm_vector {
    const void *a, *x;
    const int64_t *line, *depth;
    int64_t n, k;
    void *sums, *beside;
};
typedef void (*gemm_vector_fn)(const struct gemm_vector *v);
struct gemm_kernel {
    gemm_tile_fn tile[3][GEMM_VECS]; // by height and by vectors of a row - 1
    int rows[3];                     // of each height, the largest first
    int vecs;                        // of the widest
    int lanes;                       // elements of a vector
    // Of complex numbers: a matrix whose terms lie side by side, and one whose lines do.
    gemm_vector_fn along_terms, along_lines;
};
// A piece of a block that is packed: n lines, of which the next lies STEP elements on, side by side
// from TO on in a panel that is WIDE elements wide; one line: STEP 0.
struct gemm_piece {
    int64_t from, step, to;
    int n, wide;
    bool exact; // nothing behind its last element may be read
};
struct gemm_double_pair {
    double v[2];
};
// Writes up to a vector beyond a panel's end.
typedef void (*gemm_pack_fn)(const struct gemm_piece *pieces, int n, const void *from,
                             const int64_t *depth, int64_t k, void *to);
struct gemm_isa {
    // f32, f64, 32 bits, 64 bits, c64, c128, pairs of 16 bits
    const struct gemm_kernel *kernel[7];
    gemm_pack_fn pack[3]; // of elements of 4, 8, 16 bytes
    int vector;                          // bytes
};
const struct gemm_isa *cpu_gemm_isa(int vector_bits);
// Of s8, u8 or s16: two terms together, as a pair of s16 (cpu_gemm_short.c).
gemm_pack_fn cpu_gemm_pack_short(enum dtype t);

struct gemm_side {
    int64_t *group, *line, *depth; // offsets in elements
    int64_t elements;              // of the operand
    int64_t each;                  // bytes of one
    gemm_pack_fn pack;
};
struct gemm_state {
    struct gemm_side a, b; // of rows and of columns
    int64_t *g_out, *m_out, *n_out;
    int64_t groups, m, n, k;
    int64_t width, blocks;         // columns of a block, blocks of columns
    int64_t parts, tall;           // parts of the rows, rows of one
    int64_t *steps[2 * GEMM_VECS]; // depths of packed panels by height and by vectors of a row
    // Bytes of an element of the result and of packed panels; of a thread's scratch.
    int64_t each, packed_a, total;
    int together; // terms in an element of a packed panel: 1, or 2 that are multiplied as a pair
    const struct gemm_isa *isa;
    const struct gemm_kernel *kernel;
    enum dtype type; // of the result
    bool swapped;
    // The left matrix is one row, the right one is read where it lies, `width` columns a unit.
    bool vector, along_terms;
    // A convolution whose window passes the border: the padded input.
    bool pads;
    int rank;
    int64_t dims[HLO_MAX_RANK], stride[HLO_MAX_RANK]; // of the input; strides in the padded one
    int64_t low[HLO_MAX_RANK], high[HLO_MAX_RANK], base[HLO_MAX_RANK];
    int64_t padded, pad_each; // elements, bytes of one
    int threads;
};
struct gemm_call {
    const struct gemm_state *g;
    const void *a, *b;
    void *out;
    char *scratch;
};
// Work for cpu_parallel: units [begin, end) of groups x blocks x parts of a struct gemm_call.
void cpu_gemm_units(void *call, int64_t begin, int64_t end, int thread);
struct cpu_sizes;
// cpu_gemm_vector.c: the same where the state's `vector` is set.
bool cpu_gemm_vector_takes(const struct hlo_instr *i, const struct cpu_sizes *s);
void cpu_gemm_vector_divide(struct gemm_state *g);
void cpu_gemm_vector_units(void *call, int64_t begin, int64_t end, int thread);
