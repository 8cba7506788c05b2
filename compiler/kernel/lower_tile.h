// SPDX-License-Identifier: Apache-2.0
// lower_tile: dots and convolutions as tiles (lower_tile.c). A contraction is seen as
//   result(batch, group, row, position) = sum over terms k of scalar(row, k) * slab(k, position)
// Positions lie side by side in the lanes of vectors. The values of one operand that a unit of work
// needs are gathered first into the slab, in scratch, so that the term k of neighbouring positions
// are neighbours there; the other operand's values are read one by one.
#pragma once
#include "compiler/kernel/lower.h"

enum { TILE_DIMS = HLO_MAX_RANK + 1 };
struct lower_tile;
// What a kind of contraction says of itself.
struct tile_rule {
    // Sets pitch[] and slab for units of `block` positions of pos[0].
    void (*lay_out)(struct lower_tile *t);
    // Gathers the slab of group t->g of batch t->b, from position t->first of pos[0] on.
    status_t (*fill)(struct lower *lw, struct lower_tile *t);
    // Behind the slab, what the rows from `row` on need; NULL: nothing.
    status_t (*begin)(struct lower *lw, struct lower_tile *t, struct kir_val *row);
    // Element of the slab that holds term k of position 0.
    struct kir_val *(*place)(struct lower *lw, const struct lower_tile *t,
                             struct kir_val *const *k);
    status_t (*scalar)(struct lower *lw, const struct lower_tile *t, struct kir_val *row,
                       struct kir_val *const *k, struct kir_val **out);
    // Index of the result.
    void (*index)(struct lower *lw, const struct lower_tile *t, struct kir_val *row,
                  struct kir_val *const *pos, struct kir_val **index);
    // And back: sets t->b and t->g too.
    void (*find)(struct lower *lw, struct lower_tile *t, struct kir_val *const *index,
                 struct kir_val **row, struct kir_val **pos);
    // Without a slab: the value of a term at a position, and whether it is one of the operand's
    // (NULL: always); where it is not, any element.
    status_t (*value)(struct lower *lw, const struct lower_tile *t, struct kir_val *const *pos,
                      struct kir_val *const *k, struct kir_val **out);
    struct kir_val *(*inside)(struct lower *lw, const struct lower_tile *t,
                              struct kir_val *const *pos, struct kir_val *const *k);
    // Does the slab have zeros of its own, with which products may be NaN? `suspect` gives 1 where
    // they may, in rows from..to; then `exact` computes single results without them. All NULL:
    // never.
    bool (*padded)(const struct lower_tile *t);
    status_t (*suspect)(struct lower *lw, const struct lower_tile *t, struct kir_val *from,
                        struct kir_val *to, struct kir_val **out);
    status_t (*exact)(struct lower *lw, const struct hlo_instr *i, struct kir_val *const *index,
                      struct kir_val **out);
};
struct lower_tile {
    const struct hlo_instr *i;
    const struct tile_rule *rule;
    enum dtype type;             // of the sums
    int64_t batch, groups, rows; // rows of a group
    int64_t per;                 // rows that a tile has no others beside, dividing them
    int n_pos, n_k;              // positions of a row; terms
    int64_t pos[TILE_DIMS], k[TILE_DIMS];
    double gather, gather_beside; // cycles an element of the slab takes, about; one behind it
    double gather_line;           // a line beside its elements
    int operand;                  // whose values are in the slab
    int least_crowded; // rows of a tile that are read from more lines than a cache keeps; 0: none
    bool lines;        // a dot's: neighbours there are neighbours in memory
    bool rows_minor;   // rows are the innermost of the result, not positions
    int pair;          // the dimension of terms that are taken two at a time, if `pairs`
    bool pairs;        // two s16 are one s32 (K_PAIRS); k[pair] is half of what it was
    bool edges;        // not every term of every position is inside
    bool few;          // no slab: the sums of a unit are one vector a row, in KIR_OWN
    int64_t turns[2];  // then: distances between a unit's rows, and positions
    const void *ctx;   // of the rule

    // The schedule: `block` positions of pos[0] and `chunk` tiles of rows a unit; a tile is
    // `height` rows by `vectors` of `lanes` positions; the last `unrolled` dimensions of terms are
    // written out.
    int64_t block, chunk;
    int height, vectors, lanes, unrolled;
    int order[TILE_DIMS];           // loops over terms, the outermost first
    int64_t k_block;                // of the innermost: so many before all tiles have the next
    int64_t pitch[TILE_DIMS], slab; // between neighbours in the slab; its elements
    int64_t beside;                 // elements that `begin` gathers

    // While the kernel is built: where the unit lies; elements of scratch.
    struct kir_val *b, *g, *first;
    struct kir_val *k_from, *k_to; // block of terms, or NULL
    struct kir_val *sums;          // where the tile's begin, behind sums_at
    int64_t slab_at, beside_at, sums_at;
    int64_t spoilt_at;                     // a vector: zero, or NaN where some sum was
    int64_t known_at;                      // s32: what is known of the weights
    struct kir_val *index[TILE_DIMS], *at; // the sum that may be read, and where it is
};
// Positions that tiles are worth: half of the lanes of CPUs' vectors of f64, 8 of other types.
int hlo_tile_least(const struct lower *lw, enum dtype t);
status_t hlo_tile_dot(struct lower *lw, const struct hlo_instr *i, int minor,
                      struct lower_tile *t) MUST_CHECK;
status_t hlo_tile_convolution(struct lower *lw, const struct hlo_instr *i, int minor,
                              struct lower_tile *t) MUST_CHECK;
// The convolution `t` with features as positions, where outputs are few (gradients of filters).
bool hlo_tile_turned(struct lower *lw, const struct lower_tile *t, struct lower_tile *out);
// One result of a convolution as a loop over its terms.
status_t hlo_convolution_at(struct lower *lw, const struct hlo_instr *i,
                            struct kir_val *const *index, struct kir_val **out) MUST_CHECK;
// A value of the slab: element `at`, converted.
void lower_tile_put(struct lower *lw, const struct lower_tile *t, struct kir_val *at,
                    enum dtype from, struct kir_val *v);
// The contraction's sum at an index; UNIMPLEMENTED where the tile that is built is another.
status_t lower_tile_get(struct lower *lw, struct kir_val *const *index,
                        struct kir_val **out) MUST_CHECK;

// ---- products of many small matrices (small_dot_lower.c)

// [batch, m, n] of [batch, m, k] or [batch, k, m] and [batch, k, n] or [batch, n, k] (turned); the
// batch may also lie between the other two dimensions of an operand
struct small_dot {
    const struct hlo_instr *i;
    int x, y; // buffers of the operands
    int64_t batch, m, k, n;
    int64_t row, term;      // elements between rows, and between terms, of the left operand
    int64_t line;           // between lines of the right one: of a term's columns, or turned
    int64_t x_next, y_next; // from a matrix to the next one
    bool turned;
    bool swapped;    // of the operands: the product is turned
    int lanes, sums; // of a vector; vectors that registers hold at most
};
// Is `i` one, of operands that lie in memory as they are?
bool hlo_small_dot(struct lower *lw, const struct hlo_instr *i, int vector_bits,
                   struct small_dot *out);
// Its kernel, with what follows it in the fusion; false: that is not made of its sums as they lie.
struct lower_outputs;
bool hlo_small_dot_build(struct lower *lw, const struct small_dot *s, const struct lower_outputs *o,
                         const struct shape *first, int n_in, status_t *st);
