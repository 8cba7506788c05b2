// SPDX-License-Identifier: Apache-2.0
// lower_priv: shared by the lower*.c of this folder, and by ../ops/lower's small_dot_lower.c and
// sort_lower.c, only.
#pragma once
#include "compiler/kernel/lower.h"

// A row of values in scratch: an instruction at an index in which the row's variable is canonical.
struct lower_kept {
    const struct hlo_instr *i;
    struct kir_val *index[HLO_MAX_RANK + 1];
    int rank;
    struct kir_block *block;       // around the row's loops
    struct kir_val *begin, *end;   // of the row's loop
    int64_t at[LOWER_MAX_RESULTS]; // bytes in scratch
    const struct kir_val *filler;  // variable of the loop that stores a cached value; else NULL
    bool ready;                    // what fills it stands before whatever is built from now on
};
void lower_begin(struct lower *lw, int n_in, int n_out); // a kernel of so many buffers
void lower_forget(struct lower *lw); // what was built, so that it may be built again
struct lower_space *lower_space(struct lower *lw, const void *owner, int64_t total);
void lower_track(struct lower *lw, struct kir_val *var, struct lower_space *sp, int64_t stride);
struct kir_val *lower_canon(struct lower *lw, const struct lower_row *row);
struct lower_kept *lower_find_kept(struct lower *lw, const struct hlo_instr *i,
                                   struct kir_val *const *index, int rank,
                                   const struct lower_row *row);
struct lower_kept *lower_keep(struct lower *lw, const struct hlo_instr *i,
                              struct kir_val *const *index, int rank, const struct lower_row *row);
// The loop over `var` is closed: loops that are placed from now on come after it.
void lower_kept_ready(struct lower *lw, const struct kir_val *var);
enum dtype lower_scratch_type(enum dtype t);
struct kir_val *lower_scratch_index(struct lower *lw, enum dtype t, int64_t at, struct kir_val *i);
// Elements that a turn of the innermost loop makes.
static inline int64_t lower_width(const struct lower_space *s) {
    return s->minor ? s->minor : 1;
}
// lower_loops.c. Notes the edges that what was built shows; true: there are new ones.
bool lower_edges_find(struct lower *lw);
// Where the kernel became large by them: leaves those out that the longest part of the innermost
// loop does without, then all; true: it is to be built again.
bool lower_edges_fewer(struct lower *lw);
// Where the parts of a loop begin, in order: begin has LOWER_MAX_EDGES + 1 places; how many.
int lower_parts(const struct lower *lw, const struct lower_space *s, int64_t stride, int64_t extent,
                bool innermost, int64_t *begin);
struct kir_loop *lower_row_loop(struct lower *lw, const struct lower_row *row,
                                struct kir_val **out_at);

struct lower_outputs {
    int n;
    const struct hlo_instr *root[LOWER_MAX_RESULTS]; // one value each, or root[0] gives all
    bool together;
    bool beside; // they are parts of one result, one behind the other
};
// Stores all results at a logical index; `first` is the shape of the first.
status_t lower_store(struct lower *lw, const struct lower_outputs *o, const struct shape *first,
                     struct kir_val *const *index) MUST_CHECK;
// The same at a position of the first's physical view; padding is stored as zero.
status_t lower_store_all(struct lower *lw, const struct lower_outputs *o, const struct shape *first,
                         struct kir_val *v) MUST_CHECK;
// lower_rows.c: kernels that reduce short rows, with the rows' elements turned in scratch.
enum { LOWER_MAX_TURNED = 8 };
struct lower_turned {
    const struct hlo_instr *i;
    int buf;                    // of what comes from outside
    int64_t at;                 // in scratch
    const struct hlo_instr *by; // the reduction that fills it
    bool ready;
};
struct lower_rows {
    int64_t n, row, block;     // how many, elements of each, rows of a block
    int64_t size;              // bytes of the largest value
    struct kir_val *first;     // of the block
    struct lower_space *space; // of the loops over a block's rows
    struct lower_turned leaf[LOWER_MAX_TURNED], kept[LOWER_MAX_TURNED];
    int64_t out[LOWER_MAX_RESULTS]; // results in scratch
    int n_leaves, n_kept;
    const struct hlo_instr *filling; // the reduction whose loops are being built
    bool whole;                      // results have all elements of the rows, not one of each
    bool making;                     // a value of rows is being made
    bool failed;                     // an element was asked for that is not the row's
};
// Is the kernel such a one, and worth it? Then lw->rows is set.
bool lower_rows_fit(struct lower *lw, const struct lower_outputs *o, const struct shape *first);
status_t lower_rows_build(struct lower *lw, const struct lower_outputs *o,
                          const struct shape *first) MUST_CHECK;
bool lower_rows_failed(const struct lower *lw); // what was built is not as it should be
// The element of what is turned; false: i is not.
bool lower_rows_leaf(struct lower *lw, const struct hlo_instr *i, struct kir_val *const *index,
                     struct kir_val **out);
// The value if it is one to keep: made, or loaded.
status_t lower_rows_kept(struct lower *lw, const struct hlo_instr *i, struct kir_val *const *index,
                         bool *done, struct kir_val **out) MUST_CHECK;
// Around the loops of a reduction: what it fills may be read behind them.
const struct hlo_instr *lower_rows_fill(struct lower *lw, const struct hlo_instr *reduction);
void lower_rows_filled(struct lower *lw, const struct hlo_instr *reduction,
                       const struct hlo_instr *before);
// Stores result r's element; false: results are not turned.
bool lower_rows_store(struct lower *lw, int r, const struct shape *s, struct kir_val *const *index,
                      struct kir_val *x);
// lower_tile.c. False: the kernel is no contraction that is worth tiles; else *st says whether it
// was built, or, if lw->sums is set, what its elements will read by lw->tile.
bool lower_in_tiles(struct lower *lw, const struct lower_outputs *o, const struct shape *first,
                    int n_in, status_t *st);
// lower_turns.c. The kernel of lw->instr, a fusion around the loop w.
status_t lower_turns(struct lower *lw, const struct hlo_instr *w, int n_in, int n_out) MUST_CHECK;
// lower_loops.c. How many vectors a loop over b should take side by side; 0: as the generator
// likes.
uint8_t lower_side_by_side(const struct lower *lw, const struct kir_block *b);
// The same for a loop of any kind with `trip` turns at most: 0 where the body or the loop is short.
uint8_t lower_long_body(const struct lower *lw, const struct kir_block *b, int64_t trip);
