// SPDX-License-Identifier: Apache-2.0
// library: reads a convolution or dot, alone or as the hero of a kOutput fusion, as one library call: hero, operands, bias, and a chain of post-operations. The
// epilogue pass asks it "still a library call after fusing this?", the CPU device builds its primitives from the same answer, so the two cannot disagree.
// It only reads HLO; it knows no library.
#pragma once
#include "compiler/ir/ir.h"

enum lib_post_kind {
    LIB_POST_BIAS,     // + operand, one value per output channel (conv: feature dim; dot: last dim of the result)
    LIB_POST_SUM,      // + operand of the result's shape (may be done in place)
    LIB_POST_MUL,      // * operand: full shape, or broadcast from a subset of dims as `bcast` says
    LIB_POST_SCALE,    // * alpha (+ beta)
    LIB_POST_RELU,     // max(x, 0)
    LIB_POST_LEAKY,    // x > 0 ? x : alpha*x
    LIB_POST_CLIP,     // min(max(x, alpha), beta)
    LIB_POST_LOGISTIC,
    LIB_POST_TANH,
    LIB_POST_ELU,      // alpha
    LIB_POST_GELU_ERF, // 0.5*x*(1+erf(x/sqrt2))
    LIB_POST_GELU_TANH,
    LIB_POST_SWISH,    // x*logistic(alpha*x)
    LIB_POST_HARDSWISH,// x*clamp(x+3,0,6)/6
};
struct lib_post {
    enum lib_post_kind kind;
    float alpha, beta;
    int operand;      // index into the instruction's operands (fusion operands), -1 = none
    int64_t bcast[HLO_MAX_RANK]; // operand dims seen from the result: result's size or 1, per result dim
};
struct lib_call {
    const struct hlo_instr *hero;  // convolution or dot
    int lhs, rhs;                  // operand index of the hero's operands in the instruction
    // Transposes/reshapes between the operand and the hero are folded: the operand seen in the hero's dims, as a permutation; identity for none
    bool lhs_transposed, rhs_transposed; // dot only: the two minor dims of the operand are swapped
    const struct shape *result;    // of the instruction (after the epilogue)
    struct lib_post post[8];
    int n_post;
};
// True when `i` (convolution, dot, or kOutput fusion with one of them as hero) is one library call in this sense; fills *out. No allocation.
bool lib_match(const struct hlo_instr *i, struct lib_call *out);
