// SPDX-License-Identifier: Apache-2.0
// numbers: tensor elements, numbers and strings, between JSON and little-endian bytes, without a
// tree (D18.11: a general parser took most of a small request's time). Nested or flat arrays are
// read alike, in row-major order; the shape says their number, not their nesting. Thread: any.
#pragma once
#include "base/status.h"
#include "base/str.h"

enum number_class {
    NUM_PRED,
    NUM_S4,
    NUM_S8,
    NUM_S16,
    NUM_S32,
    NUM_S64,
    NUM_U4,
    NUM_U8,
    NUM_U16,
    NUM_U32,
    NUM_U64,
    NUM_F8, // the format is the row's name
    NUM_F16,
    NUM_BF16,
    NUM_F32,
    NUM_F64,
    NUM_STRING, // bytes 0: each element has its own length
    NUM_RAW
};
enum { NUM_CLASSES = NUM_RAW + 1 };
struct dtype_row {
    const char *name, *oip; // oip NULL = none
    int32_t bytes;
    enum number_class cls; // NUM_RAW: has no JSON form
};
const struct dtype_row *numbers_dtype(struct str name); // by either name; NULL if unknown

// Scans text (one JSON value: an array, nested at will, or a number) into out[0..n * bytes).
// Exactly n elements are required. Integers out of range, fractions for integer types, junk:
// INVALID_ARGUMENT, REASON_BAD_TENSOR_DATA, with the element's index and byte offset. "NaN",
// "Infinity", "-Infinity" (strings or bare) are read for floats; true and false for pred.
status_t numbers_scan(struct str text, const struct dtype_row *t, int64_t n, void *out) MUST_CHECK;
// Prints n elements as one flat JSON array, shortest text that reads back the same; non-finite
// values as strings.
void numbers_print(struct strbuf *b, const struct dtype_row *t, int64_t n, const void *in);

// String tensors (OIP's BYTES) travel as they do there: for each element 4 bytes of length,
// little-endian, and that many bytes. What the bytes mean is between model and client (ONNX:
// UTF-8). Reads JSON strings, nested arrays of them or a single one; out NULL: only the size.
status_t numbers_scan_strings(struct str text, int64_t n, void *out, int64_t *out_bytes) MUST_CHECK;
// Are these exactly n elements? INVALID_ARGUMENT, REASON_BAD_TENSOR_DATA.
status_t numbers_check_strings(struct span data, int64_t n) MUST_CHECK;
// Takes the first element off `rest`; false when there is none that is whole.
bool numbers_next_string(struct span *rest, struct str *out);
// One flat JSON array; what is not UTF-8 becomes U+FFFD.
void numbers_print_strings(struct strbuf *b, int64_t n, struct span data);

// The element of 1 to 8 bytes at p: integers with their sign, of four bits without what else is in
// their byte; pred as 0 or 1; others as their bits.
int64_t numbers_bits(const struct dtype_row *t, const void *p);
// Element i as a number: exact for every class but NUM_RAW, which gives its first
// byte, and NUM_STRING, which is no number.
long double numbers_at(const struct dtype_row *t, const void *p, int64_t i);
// Sets element i to v, rounded to what a real type has; false: v is no integer of that type, beyond
// the largest real number of it, or the type is none of 8 to 64 bits with numbers as we know them.
bool numbers_put(const struct dtype_row *t, void *p, int64_t i, long double v);
