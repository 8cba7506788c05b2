// SPDX-License-Identifier: Apache-2.0
// inflate: a compressed body, gzip or zlib ("deflate" on HTTP), in memory. What it may grow to is
// the caller's to say. Thread: any; large ones on the pool.
#pragma once
#include "base/status.h"
#include "base/str.h"

// Appends to out. INVALID_ARGUMENT: damaged, cut short, or followed by other bytes;
// REASON_BODY_TOO_LARGE beyond max_bytes.
status_t inflate_body(struct str in, int64_t max_bytes, struct strbuf *out) MUST_CHECK;
