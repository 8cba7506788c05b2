// SPDX-License-Identifier: Apache-2.0
// trees: decision trees as one instruction, which a device may walk as it likes:
//     scores[rows, targets] = custom-call(x, nodes, split, roots, values)
//     custom_call_target = hlod.trees.sum | hlod.trees.min | hlod.trees.max
// x is f32 or f64 [rows, features], split [n] and values [leaves, width] are of its type; nodes is
// s32 [n, 4]: feature, node where the comparison x[feature] OP split holds, node where it does not,
// kind: enum tree_mode, + TREE_MISSING where NaN counts as holding. A leaf's second column is its
// row of values. width is that of the result; or it is 1, and a leaf's first column says which
// target its value belongs to. roots is s32 [trees]. The score of a target is the sum (least,
// largest) over the trees of what the leaf that the row comes to has for it. Nodes may share
// children; a cycle, a link out of the table or more than TREES_MAX_DEPTH steps are refused.
// Thread: any.
#pragma once
#include "compiler/ir/build.h"

enum tree_mode { TREE_LEQ, TREE_LT, TREE_GTE, TREE_GT, TREE_EQ, TREE_NEQ, TREE_MEMBER, TREE_LEAF };
enum { TREE_FEATURE, TREE_YES, TREE_NO, TREE_KIND, TREE_COLUMNS };
enum { TREE_MISSING = 8, TREES_MAX_DEPTH = 512 };

struct trees {
    enum hlo_op how; // HLO_ADD, HLO_MINIMUM, HLO_MAXIMUM
    enum dtype type;
    int64_t rows, features, nodes, roots, leaves, targets, width;
    const int32_t (*node)[TREE_COLUMNS];
    const int32_t *root;
    const struct literal *split, *values;
    int depth; // comparisons on the longest way
};
static inline double tree_number(const struct literal *l, enum dtype t, int64_t k) {
    return t == DT_F64 ? ((const double *)l->data)[k] : (double)((const float *)l->data)[k];
}
bool trees_is(const struct hlo_instr *i);
// Are the operands behind x constants in row-major order, which trees_read takes from the module?
bool trees_are_constant(const struct hlo_instr *i);
// Reads and checks the call; `in` are its operands' values, NULL for constants. INVALID_ARGUMENT
// says what does not fit. Scratch in a; the result points into the values.
status_t trees_read(struct arena *a, const struct hlo_instr *i, struct literal *const *in,
                    struct trees *out) MUST_CHECK;
// The longest way from a root to a leaf, -1 for cycles, bad links and absurd depth; each root's own
// in by_root, which may be NULL.
int trees_heights(struct arena *a, const int32_t (*node)[TREE_COLUMNS], int64_t n,
                  const int32_t *root, int64_t n_roots, int *by_root);
// The same as gathers, a level a step, for compilers that know no such call; i's own module.
hv trees_as_gathers(struct hb *b, const struct hlo_instr *i, const struct trees *t);
