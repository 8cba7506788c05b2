// SPDX-License-Identifier: Apache-2.0
// What stablehlo_out.c, which writes functions and operations, and stablehlo_out_ops.c, which knows
// each operation's attributes, share.
#pragma once
#include "compiler/ir/module.h"

struct out_value { // the leaves of a value, by their numbers in the text
    uint32_t *v;
    int32_t n;
};
struct out_op {
    const struct hlo_instr *i;
    const char *name;
    struct strbuf attrs; // "a = b, c = d"
    struct out_value in; // its operands' leaves
    const struct shape **types;
    struct hlo_computation *const *regions;
    int32_t n_regions;
    bool outer;            // the regions have no arguments of their own, but the operands' values
    const char *then_call; // name of the function that is called, else NULL
};
struct out {
    struct arena a;
    struct strbuf *b;
    const struct hlo_module *m;
    struct out_value *of; // by an instruction's id
    uint32_t next;        // number of the next value
    int depth;
    VEC(const struct hlo_computation *) calls; // to be written as functions
    struct strbuf why;                         // what no operation says, one line each
};
// The row of stablehlo_out.def; NULL fn: StableHLO has nothing for it.
struct out_row {
    const char *name;
    status_t (*fn)(struct out *o, struct out_op *op);
};
struct out_row out_row_of(enum hlo_op op);
// A type of MLIR's for an array or a token.
void out_type(struct strbuf *b, const struct shape *s);
// A value that HLO has no instruction for: a constant of s64, its number returned.
uint32_t out_indices(struct out *o, const int64_t *v, int n);
void out_literal(struct strbuf *b, const struct literal *l);
