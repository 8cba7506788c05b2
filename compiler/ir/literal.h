// SPDX-License-Identifier: Apache-2.0
// literal: a value on the host, dense in LOGICAL row-major order whatever the shape's layout says,
// or a tuple of literals. Data may be borrowed (a mapped model file) or owned by an arena. Element
// access goes through doubles, int64 or complex for code that need not be fast (the evaluator,
// folding, printing).
#pragma once
#include "compiler/ir/shape.h"

struct literal {
    const struct shape *shape;
    void *data; // [shape_elements * dtype_size]; NULL for tuples. May be unaligned when borrowed:
                // use lit_* accessors or memcpy
    size_t size_bytes;
    struct literal **elems; // tuples
    bool elided; // the text had {...}: the elements are zeros that stand for unknown values
};
struct literal *
lit_new(struct arena *a,
        const struct shape *s); // zeroed; size checked before by the caller (shape_check)
struct literal *lit_borrow(struct arena *a, const struct shape *s, const void *data);
struct literal *lit_tuple(struct arena *a, const struct shape *s, struct literal *const *elems);
// Leaf k in depth-first order, as shape_leaf counts them; l itself for an array.
struct literal *lit_leaf(struct literal *l, int k);
struct literal *lit_scalar_f64(struct arena *a, enum dtype t,
                               double v); // any numeric dtype, XLA's conversion rules
struct literal *lit_scalar_i64(struct arena *a, enum dtype t, int64_t v);
// i = linear logical index. Conversions as HLO convert (round to nearest even into small floats;
// float to int saturates, NaN -> 0).
double lit_get_f64(const struct literal *l, int64_t i);
int64_t lit_get_i64(const struct literal *l, int64_t i);
int64_t lit_get_start(const struct literal *l,
                      int64_t i); // as a start index: u64 saturates instead of going negative
void lit_get_c128(const struct literal *l, int64_t i, double out[2]);
void lit_set_f64(struct literal *l, int64_t i, double v);
void lit_set_i64(struct literal *l, int64_t i, int64_t v);
void lit_set_c128(struct literal *l, int64_t i, double re, double im);
// Part `part` (of a complex element two) becomes the NaN of this sign and these mantissa bits;
// false: the type has none such.
bool lit_set_nan(struct literal *l, int64_t part, bool negative, uint64_t payload);
bool lit_equal(const struct literal *a,
               const struct literal *b); // shape-compatible and the same bits
bool lit_all_equal_f64(const struct literal *l,
                       double v); // every element is v; false for tuples and empty
uint64_t lit_hash(const struct literal *l);
struct literal *lit_clone(struct arena *a, const struct literal *l);
struct literal *lit_convert(struct arena *a, const struct literal *l, enum dtype t);
// Why the values of `l` are not known (text that left them out), or NULL.
const char *lit_missing(const struct literal *l);
void lit_print(
    struct strbuf *b,
    const struct literal *l); // "{ {1, 2}, {3, 4} }", shortest text that parses to the same bits

// Scalar conversions of the small float types, bits in the low end. Round to nearest even; overflow
// as the format says (inf or NaN).
// A float of at most 16 bits: exponent and mantissa bits, bias, and what the top codes mean.
enum float_special {
    FLOAT_IEEE,
    FLOAT_FN,   // no infinity, NaN is all ones
    FLOAT_FNUZ, // no infinity, no -0, whose code is NaN
    FLOAT_FIN,  // finite values alone: what is larger becomes the largest, NaN -0
    FLOAT_POW,  // powers of two without sign and 0; all ones is NaN
};
struct float_format {
    int e, m, bias;
    enum float_special special;
};
struct float_format float_format(enum dtype t); // f16's for a type that has none
int float_least(enum dtype t);                  // its smallest normal number is 2 to this
float f16_to_f32(uint16_t h);
uint16_t f32_to_f16(float f);
float bf16_to_f32(uint16_t h);
uint16_t f32_to_bf16(float f);
double f8_to_f64(enum dtype t, uint8_t b);
uint8_t f64_to_f8(enum dtype t, double v);
uint16_t f64_to_f16(double v); // single rounding
uint16_t f64_to_bf16(double v);
