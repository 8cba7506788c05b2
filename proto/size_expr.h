// SPDX-License-Identifier: Apache-2.0
// size_expr: sizes of dimensions that are expressions over symbols, as jax.export writes them:
// "2*b + 1", "floordiv(b, 2)", "b*c - 1", "b^2". Integers of 64 bits, every step checked for
// overflow; floordiv and mod round down, as Python's do. Functions: floordiv, mod, max, min,
// non_negative. Text is hostile: at most SIZE_EXPR_MAX bytes, SIZE_EXPR_DEPTH levels. Thread: any.
#pragma once
#include "base/status.h"
#include "base/str.h"

enum { SIZE_EXPR_MAX = 1024, SIZE_EXPR_DEPTH = 32 };
enum size_form {
    SIZE_KNOWN,  // value
    SIZE_LINEAR, // factor * unknown + value, factor is not 0
    SIZE_OPEN,   // several symbols are not known, or one that is not just multiplied and added
};
struct size_expr {
    enum size_form form;
    int64_t value, factor;
    struct str unknown; // in the text
};
// The size of a symbol; false: it is not known.
typedef bool (*size_lookup)(void *ctx, struct str symbol, int64_t *out);
// INVALID_ARGUMENT, naming the byte: no such expression, overflow, division by zero.
status_t size_expr_read(struct str text, size_lookup lookup, void *ctx,
                        struct size_expr *out) MUST_CHECK;
// Is it more than a number or a name, and one that size_expr_read takes?
bool size_expr_is(struct str text);
// The unknown of a linear one whose size is `size`; false: no integer does.
bool size_expr_solve(const struct size_expr *x, int64_t size, int64_t *out);
