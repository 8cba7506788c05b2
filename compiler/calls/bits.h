// SPDX-License-Identifier: Apache-2.0
// bits: a product of rows with a matrix of 2-, 4- or 8-bit weights as one instruction, which a
// device may run on the packed bytes:
//     y f32[..., n] = custom-call(x f32[..., k], q u8[n, blocks, bytes], scales, zeros)
//     custom_call_target = hlod.bits.2 | hlod.bits.4 | hlod.bits.8, each also with .level4 or .x8
// A block has bytes * 8 / bits weights along k, lower bits of a byte first; the last block may
// reach beyond k. scales are f32[blocks, n], zeros the same or one scalar:
//     y[r, c] = sum over k of x[r, k] * (q[c, k] - zeros[b, c]) * scales[b, c]
// .level4: whoever wrote the model lets x be rounded to 8 bits (`accuracy_level` 4 of MatMulNBits),
// which makes it .x8 unless precision is `strict`: x of each block is step * n, step = the largest
// |x| / 127, n = x * (127 / the largest |x|) to the nearest integer, ties to even, as ONNX Runtime
// has it. A row with a block whose largest is not finite, or below BITS_LEAST and not 0, stays as
// it is. So does x for a device without products of 8 bits, which is more exact.
// Thread: any.
#pragma once
#include "compiler/ir/build.h"

enum { BITS_X, BITS_Q, BITS_SCALES, BITS_ZEROS, BITS_OPERANDS };
enum bits_x { BITS_X_F32, BITS_X_LEVEL4, BITS_X_8 };
#define BITS_LEAST 0x1p-100f
enum { BITS_FEW_ROWS = 16 }; // of more, reading the weights is a small part of the work
struct bits {
    int bits;
    int64_t rows, k, n, blocks, block; // block: weights
    bool one_zero;                     // a scalar
    enum bits_x rounding;
};
bool bits_is(const struct hlo_instr *i);
enum bits_x bits_rounding(const struct hlo_instr *i); // of a call
// Checks the call's shapes. INVALID_ARGUMENT says what does not fit; a is scratch.
status_t bits_read(struct arena *a, const struct hlo_instr *i, struct bits *out) MUST_CHECK;
// The call. Operands as above; errors stick to b.
hv bits_call(struct hb *b, int bits, enum bits_x rounding, hv const *operands);
// The same as a dot with unpacked weights, for compilers that know no such call; x as it is.
hv bits_as_dot(struct hb *b, int bits, hv const *operands);
