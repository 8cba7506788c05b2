// SPDX-License-Identifier: Apache-2.0
// bits: a product of rows with a matrix of 2-, 4- or 8-bit weights as one instruction, which a
// device may run on the packed bytes:
//     y f32[..., n] = custom-call(x f32[..., k], q u8[n, blocks, bytes], scales, zeros)
//     custom_call_target = hlod.bits.2 | hlod.bits.4 | hlod.bits.8
// A block has bytes * 8 / bits weights along k, lower bits of a byte first; the last block may
// reach beyond k. scales are f32[blocks, n], zeros the same or one scalar:
//     y[r, c] = sum over k of x[r, k] * (q[c, k] - zeros[b, c]) * scales[b, c]
// Thread: any.
#pragma once
#include "compiler/ir/build.h"

enum { BITS_X, BITS_Q, BITS_SCALES, BITS_ZEROS, BITS_OPERANDS };
enum { BITS_FEW_ROWS = 16 }; // of more, reading the weights is a small part of the work
struct bits {
    int bits;
    int64_t rows, k, n, blocks, block; // block: weights
    bool one_zero;                     // a scalar
};
bool bits_is(const struct hlo_instr *i);
// Checks the call's shapes. INVALID_ARGUMENT says what does not fit; a is scratch.
status_t bits_read(struct arena *a, const struct hlo_instr *i, struct bits *out) MUST_CHECK;
// The call. Operands as above; errors stick to b.
hv bits_call(struct hb *b, int bits, hv const *operands);
// The same as a dot with unpacked weights, for compilers that know no such call.
hv bits_as_dot(struct hb *b, int bits, hv const *operands);
