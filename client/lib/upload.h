// SPDX-License-Identifier: Apache-2.0
// upload: a large model to the server in pieces, so that an upload that broke goes on where it
// stopped. Thread: as the connection.
#pragma once
#include "client/hlod_jobs.h"
#include "client/lib/wire.h"

// Smaller models go with the request that compiles them: one round trip.
enum { UPLOAD_IN_PIECES = 64 << 20 };
// As hlod_upload.
status_t upload_parts(struct hlod *h, const struct span *parts, size_t n_parts,
                      hlod_upload_fn on_progress, void *ctx, char out_hex[65]) MUST_CHECK;
