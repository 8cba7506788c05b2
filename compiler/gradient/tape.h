// SPDX-License-Identifier: Apache-2.0
// tape: what the rules of gradient.c's walk share. A rule gets an instruction i, some of whose
// operands are wanted, and the derivatives d[k] by the leaves of its result (NULL = zero; at least
// one is not), and gives each wanted operand its own by tape_give.
#pragma once
#include "compiler/gradient/gradient.h"
#include "compiler/ir/ir.h"

struct tape {
    struct hb *b;
    struct arena *a;    // the module's
    struct pmap active; // instructions that depend on one of the xs
    struct pmap sums;   // instruction -> hv[leaves]: derivatives by its leaves so far
};
typedef void (*gradient_fn)(struct tape *t, hv i, hv const *d);

bool tape_wants(const struct tape *t, hv x);
// d more for the derivative by x, an array; converted to x's type.
void tape_give(struct tape *t, hv x, hv d);
void tape_give_leaf(struct tape *t, hv x, int leaf, hv d);
// What leaf `leaf` of x has been given so far, or NULL.
hv tape_sum(const struct tape *t, hv x, int leaf);
void tape_set_sum(struct tape *t, hv x, int leaf, hv d);
// UNIMPLEMENTED: "the derivative of <op> %name <why>".
void tape_refuse(struct tape *t, const struct hlo_instr *i, const char *why);

bool tape_differentiable(const struct shape *s); // an array of real or complex numbers
hv tape_zeros(struct tape *t, const struct shape *s);
hv tape_splat(struct tape *t, hv like, double k);
hv tape_add_k(struct tape *t, hv x, double k);
hv tape_mul_k(struct tape *t, hv x, double k);
hv tape_neg(struct tape *t, hv x);
hv tape_where(struct tape *t, hv pred, hv d);     // d where pred holds, zero elsewhere
hv tape_where_not(struct tape *t, hv pred, hv d); // zero where pred holds
hv tape_widen(struct tape *t, hv scalar, const struct shape *like); // an array as it is
hv tape_sum_over(struct tape *t, hv x, const int64_t *dims, int n);
hv tape_sum_all(struct tape *t, hv x);
// The result of a reduction over dims of `like`, as wide as it was.
hv tape_back_to(struct tape *t, hv x, const struct shape *like, const int64_t *dims, int n);

// The operation by which element k of n is joined by f: the root, or its element k, of parameters k
// and n + k. HLO_OP_COUNT: another function.
enum hlo_op tape_joined_by(const struct hlo_computation *f, int k, int n);
// grad_again.c: a reduce, or reduce-window, computed again from operations that have rules.
void tape_reduce_again(struct tape *t, hv i, hv const *d);
void tape_window_again(struct tape *t, hv i, hv const *d, const enum cmp_direction *keep);

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wredundant-decls"
#define OP(e, text, arity, traits, attrs, infer, eval, lower, batch, grad)                         \
    void grad_##grad(struct tape *t, hv i, hv const *d);
#include "compiler/ir/ops.def"
#undef OP
#pragma GCC diagnostic pop
