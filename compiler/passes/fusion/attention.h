// SPDX-License-Identifier: Apache-2.0
// attention: reads a product, rows of it (softmax with mask and scale) and a product with those as
// one call, so that the square between them is never whole in memory. The pass makes a kCustom
// fusion of the three where that square is large; the device reads it back by attention_match.
#pragma once
#include "compiler/passes/fusion/library.h"

// Smaller squares stay in the cache as they are.
enum { ATTENTION_MIN_ROWS = 16, ATTENTION_LEAST_BYTES = 4 << 20 };
struct attention_call {
    const struct hlo_instr *scores, *rows, *product; // rows: a row fusion
    struct lib_call first;                           // of scores: a dot, and perhaps a scale
    int64_t heads, n_rows, n_keys; // batch of both products; rows of each; columns of the square
};
// True when fusion `i` is such a call; fills *out with instructions of its body. No allocation.
bool attention_match(const struct hlo_instr *i, struct attention_call *out);
