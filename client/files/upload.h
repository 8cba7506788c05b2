// SPDX-License-Identifier: Apache-2.0
// upload: a large model to the server in pieces, so that an upload that broke goes on where it
// stopped.
#pragma once
#include "client/cli/hlo.h"

// Smaller models go as the body of the request that compiles them: one round trip.
enum { UPLOAD_IN_PIECES = 64 << 20 };
// parts    the model's bytes, one after the other
// out_hex  its digest, as the server stored it and as it was read here
// Gives 0, or an exit code already reported.
int upload_pieces(struct hlo *h, const struct span *parts, size_t n_parts, char out_hex[65]);
