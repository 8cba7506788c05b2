// SPDX-License-Identifier: Apache-2.0
// blobs: bytes by their digest in the store, and whose they are: a tenant reads what it put or what
// a job of its own kept, and nothing else, though the bytes are there once. Blocking. Thread: any;
// call it on the pool.
#pragma once
#include "base/hash.h"
#include "base/status.h"

struct arena;
struct journal;
struct journal_jobs;
struct store;
// *out_fresh, if not NULL: as store_write_end gives it.
status_t blob_store(struct store *s, struct span bytes, struct digest *out,
                    uint64_t *out_fresh) MUST_CHECK;
// The same, and makes them the tenant's.
status_t blob_put(struct store *s, struct journal *j, const char *tenant, struct span bytes,
                  struct digest *out) MUST_CHECK;
status_t blob_own(struct journal *j, const char *tenant, struct digest d) MUST_CHECK;
// Unless they are already.
status_t blob_keep_own(struct journal *j, const char *tenant, struct digest d) MUST_CHECK;
// Are its bytes those it is named by? Reads them, unless that was done and the file has not
// changed. A damaged one is quarantined, and logged: DATA_LOSS, as is one that was removed. With a
// journal, NOT_FOUND where no tenant ever had it; without one it must be there.
status_t blob_check(struct store *s, struct journal *j, struct digest d) MUST_CHECK;
// What the store said of a blob that must be there: logged where it is damage. Takes and returns
// st.
status_t blob_said(status_t st, struct digest d) MUST_CHECK;
// Bytes from..from+n of a blob that must be there; all of it is checked once (STORE_CHECK_ONCE).
status_t blob_read_part(struct store *s, struct digest d, int64_t from, void *to,
                        int64_t n) MUST_CHECK;
// NOT_FOUND, BLOB_NOT_FOUND: not there, or not the tenant's. The caller closes the descriptor.
status_t blob_open(struct store *s, struct journal *j, const char *tenant, struct digest d,
                   int *out_fd, int64_t *out_bytes) MUST_CHECK;

// ---- collection
struct unused_blob {
    struct digest digest, sidecar; // sidecar: of a model, goes with it; zero = none
    int64_t bytes;
    uint64_t file; // of this write alone (store_remove_file); 0 = whichever is there
};
struct unused_blobs {
    struct unused_blob *v;
    size_t n, cap;
};
// Blobs that no name of a model and no suite in the journal refers to, last opened before
// `before_ns` (wall clock). In a.
status_t blobs_unused(struct store *s, struct journal *j, struct journal_jobs *jobs,
                      int64_t before_ns, struct arena *a, struct unused_blobs *out) MUST_CHECK;
// The blob, what ingest found in it, and its owners' rows. Gone already is fine, and another write
// than b->file stays, with all of it.
void blob_remove(struct store *s, struct journal *j, const struct unused_blob *b);
