// SPDX-License-Identifier: Apache-2.0
// cpu_panels: products of f32 whose right matrix is packed in panels of two vectors of columns,
// [term, column]: the register tile that the implementations of this folder share. A tile of rows
// by one panel stays in registers over all terms; left elements are read where they lie, one for
// each row and term, which meets both vectors (Goto & van de Geijn, "Anatomy of High-Performance
// Matrix Multiplication", 2008; the tile's shape as in BLIS, Van Zee & van de Geijn 2015).
// Thread: any.
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum { PANEL_VECTORS = 2 };
// out[r, c] = sum over k of a[r, k] * b[k, c], rows by a panel's columns, `depth` terms that lie
// together in a row. Strides in floats.
struct panel_product {
    const float *a, *b;
    float *out;
    int64_t rows, depth;
    int64_t a_row;
    int64_t b_term;              // from a term's columns to the next one's
    int64_t out_row, out_vector; // from a row to the next; from its first vector to its second
    const float *next;           // fetched meanwhile: as much as b; NULL: nothing
    int64_t next_term;           // of it, where it is not packed
    bool single;                 // only the first vector of columns is wanted
    bool add;                    // to what is in `out`
    const float *bias;           // of the columns, added last; or NULL
    bool relu;                   // then what is negative becomes 0; NaN stays
};
// Panels of a matrix [k, c], one after the other: `depth` lines of each, of `columns` and then
// zeros, from elements k_step and column_step floats apart, which may lie unaligned.
struct panel_source {
    const void *from;
    int64_t k_step, column_step;
    int64_t depth, columns;
    int64_t panel_step; // floats from a panel to the next
};
struct panel_isa {
    int lanes; // floats of a vector
    const char *name;
    void (*multiply)(const struct panel_product *p);
    void (*pack)(const struct panel_source *s, float *to);
    void (*add)(float *to, const float *from, int64_t n); // to[k] += from[k]
};
// For a target's vectors: 256 or 512 bits; NULL: none.
const struct panel_isa *cpu_panel_isa(int vector_bits);
