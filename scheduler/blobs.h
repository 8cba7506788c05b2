// SPDX-License-Identifier: Apache-2.0
// blobs: bytes by their digest in the store, and whose they are: a tenant reads what it put or what
// a job of its own kept, and nothing else, though the bytes are there once. Blocking. Thread: any;
// call it on the pool.
#pragma once
#include "base/hash.h"
#include "base/status.h"

struct journal;
struct store;
status_t blob_store(struct store *s, struct span bytes, struct digest *out) MUST_CHECK;
// The same, and makes them the tenant's.
status_t blob_put(struct store *s, struct journal *j, const char *tenant, struct span bytes,
                  struct digest *out) MUST_CHECK;
status_t blob_own(struct journal *j, const char *tenant, struct digest d) MUST_CHECK;
// NOT_FOUND, BLOB_NOT_FOUND: not there, or not the tenant's. The caller closes the descriptor.
status_t blob_open(struct store *s, struct journal *j, const char *tenant, struct digest d,
                   int *out_fd, int64_t *out_bytes) MUST_CHECK;
