// SPDX-License-Identifier: Apache-2.0
// upload: a model's bytes on their way from a socket to the store, hashed as they go, in bounded
// memory: two buffers, one filled by the loop while the pool hashes and writes the other. When both
// are full the transport pauses its connection until `ready` fires. Thread: loop.
#pragma once
#include <stdbool.h>

#include "base/hash.h"
#include "base/status.h"

struct loop;
struct store;
struct upload;
enum { UPLOAD_BUFFER_BYTES = 1 << 20 };
// ready(ctx): room again, or, after upload_end, all is stored. Never fires from inside. NULL:
// no memory.
struct upload *upload_new(struct loop *l, struct store *s, void (*ready)(void *ctx), void *ctx);
size_t upload_add(struct upload *u, const void *p,
                  size_t n); // how much was taken; less than n: wait for ready
void upload_end(struct upload *u);
// After the ready that follows upload_end, and at any time for the error met so far (kept by u).
bool upload_finished(const struct upload *u);
status_t upload_result(struct upload *u, struct digest *out_digest, uint64_t *out_fresh) MUST_CHECK;
void upload_free(struct upload *u); // at any time; unfinished = abandoned, ready does not fire any
                                    // more. NULL is fine
