// SPDX-License-Identifier: Apache-2.0
// pieces: a reply message as the spans that make its bytes: its large tensors where they lie, what
// is between them copied. So a result of any size is sent without a second copy of it, and without
// the loop touching its bytes. Thread: loop.
#pragma once
#include <protobuf-c/protobuf-c.h>

#include "base/span.h"

struct call;
struct pieces {
    const struct span *v; // all in the call's arena or its outputs: they live as long as the call
    size_t n;
    size_t bytes; // in all
};
enum { PIECES_LEAST = 4 << 10 }; // a tensor below that is copied
// `m` with the outputs of `c` in it (call_outputs_into, oip_outputs_into).
void pieces_of(struct call *c, const ProtobufCMessage *m, struct pieces *out);
