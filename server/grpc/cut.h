// SPDX-License-Identifier: Apache-2.0
// cut: takes the large byte fields out of a protobuf message that came in pieces, so that they are
// copied once, from the pieces to where they belong, and never through the unpacker. Pure.
// Thread: any.
#pragma once
#include "base/arena.h"
#include "base/span.h"
#include "base/status.h"

struct cut {          // the field's bytes
    size_t offset, n; // in the message
    uint32_t parent; // which occurrence of the outer field, from 0 (one level: of the field itself)
};
struct cuts {
    struct cut *v;
    size_t n, cap;
    struct span rest; // the message without them, in one piece
};
enum { CUT_MAX = 1 << 16 }; // cuts of one message
// outer.inner is the field: inner 0 = `outer` itself is the bytes field; else `outer` is a message
// and `inner` its bytes field. False: not protobuf, or more than CUT_MAX of
// them.
bool cut_fields(struct arena *a, const struct span *pieces, size_t n_pieces, uint32_t outer,
                uint32_t inner, struct cuts *out);
// The bytes of a cut, piece by piece.
status_t cut_each(const struct span *pieces, size_t n_pieces, const struct cut *c,
                  status_t (*fn)(void *ctx, size_t at, struct span part), void *ctx) MUST_CHECK;
