// SPDX-License-Identifier: Apache-2.0
// coding: the content codings of HTTP bodies, gzip and zlib ("deflate" on HTTP), in memory. What a
// request may grow to is the caller's to say. Thread: any; large ones on the pool.
#pragma once
#include "base/status.h"
#include "base/str.h"

enum coding { CODING_NONE, CODING_GZIP, CODING_DEFLATE };
// Of a request: "gzip", "deflate"; NONE for none and "identity". False: another one.
bool coding_of(const char *content_encoding, enum coding *out);
// The first of ours that a client accepts (Accept-Encoding, "" if absent), by its own weights.
enum coding coding_accepted(const char *accept_encoding);
const char *coding_name(enum coding c);

// What n compressed bytes may come to: deflate makes at most 1032 of one. No more than max_bytes.
int64_t coding_most(int64_t n, int64_t max_bytes);
// Appends to out. INVALID_ARGUMENT: damaged, cut short, or followed by other bytes;
// REASON_BODY_TOO_LARGE beyond max_bytes. RESOURCE_EXHAUSTED.
status_t coding_undo(struct str in, int64_t max_bytes, struct strbuf *out) MUST_CHECK;
// The parts, one after the other, appended to out; fast rather than small.
void coding_do(enum coding c, const struct span *parts, size_t n, struct strbuf *out);
