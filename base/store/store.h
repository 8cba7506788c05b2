// SPDX-License-Identifier: Apache-2.0
// store: content-addressed files under a folder: DIR/<kind>/<aa>/<64 hex>. Two kinds of key: blobs
// are named by the SHA-256 of their own bytes; entries (executables, tunings, packages) are named
// by a key chosen by the caller and carry a header with the SHA-256 of the payload. Writes go to
// DIR/tmp, then rename: a reader sees a whole file or none. Blobs, which nobody can make again, are
// on the disk when a write ends; entries, which can be, are the kernel's to write: one that a power
// failure cut short is found by its digest. Every entry read checks the digest; a damaged one moves
// to DIR/quarantine and reads as DATA_LOSS once, NOT_FOUND after. Blocking file I/O: call from the
// thread pool, or where blocking is fine. Thread compatible: one store object may be used by
// several threads; two processes on one folder are kept apart by a lock file (store_open fails with
// FAILED_PRECONDITION).
#pragma once
#include "base/arena.h"
#include "base/hash.h"
#include "base/status.h"

struct store;
// TUNING: what was measured of the executable of the same key. PACKAGE: what an export gave.
enum store_kind {
    STORE_BLOB,
    STORE_PROGRAM,
    STORE_EXECUTABLE,
    STORE_TUNING,
    STORE_PACKAGE,
    STORE_KIND_COUNT
};

// Where hlod's data lies by default: $XDG_DATA_HOME/hlod, or under the home folder.
const char *store_default_dir(struct arena *a);

// budget_bytes: soft cap over all kinds that may be evicted (executables), 0 = none. Makes the
// folder (0700), takes the lock, checks the schema version.
status_t store_open(const char *dir, int64_t budget_bytes, struct store **out) MUST_CHECK;
void store_close(struct store *s);

// Streaming write of a blob whose digest is not known yet. One writer, one thread at a time.
struct store_writer;
status_t store_write_begin(struct store *s, enum store_kind kind,
                           struct store_writer **out) MUST_CHECK;
status_t store_write(struct store_writer *w, const void *p,
                     size_t n) MUST_CHECK; // all or nothing; RESOURCE_EXHAUSTED on ENOSPC
// Fsync and rename to its digest (already there = fine). Takes w, also on failure. *out_fresh, if
// not NULL: 0 if it was there before, else the number of the file, for store_remove_file.
status_t store_write_end(struct store_writer *w, struct digest *out_digest,
                         uint64_t *out_fresh) MUST_CHECK;
void store_write_abort(struct store_writer *w); // NULL is fine
// A writer whose file, uploads/NAME, outlives the store: begun anew, or continued after its first
// `bytes` bytes, which must have the digest *prefix (else DATA_LOSS; NOT_FOUND: no such file).
status_t store_write_named(struct store *s, enum store_kind kind, const char *name, int64_t bytes,
                           const struct digest *prefix, struct store_writer **out) MUST_CHECK;
// What was written is on the disk; the digest of all of it so far.
status_t store_write_sync(struct store_writer *w, struct digest *out_prefix) MUST_CHECK;
void store_write_leave(struct store_writer *w); // to go on later; NULL is fine
void store_upload_remove(struct store *s, const char *name);
void store_uploads_keep(struct store *s, bool (*known)(void *ctx, const char *name), void *ctx);

// Whole entry under a key. Payload copied to the file with its digest in front. `lasts`: it is on
// the disk when this returns, as blobs are; for entries that we did not make.
status_t store_put(struct store *s, enum store_kind kind, struct digest key, const void *p,
                   size_t n, bool lasts) MUST_CHECK;
// Opens read-only. Blobs and programs, named by their own digest: the file itself, checked as
// `check` says. Entries: payload starts at *out_offset, digest always checked; it covers the key,
// so that no entry stands in for another. Caller closes the fd. NOT_FOUND, DATA_LOSS (quarantined).
enum store_check {
    STORE_TRUST,      // not
    STORE_CHECK,      // all of it
    STORE_CHECK_ONCE, // all of it, unless that was done and the file has not changed since
    STORE_COPY        // all of it, and the descriptor is of a copy (of up to 64 MiB), which a disk
                      // that changes while it is read does not reach
};
status_t store_open_fd(struct store *s, enum store_kind kind, struct digest key,
                       enum store_check check, int *out_fd, int64_t *out_offset,
                       int64_t *out_size) MUST_CHECK;
// All of it, checked, in a.
status_t store_read(struct store *s, enum store_kind kind, struct digest key, struct arena *a,
                    struct span *out) MUST_CHECK;
// The same where the caller wants it; one of another size is damaged.
status_t store_read_into(struct store *s, enum store_kind kind, struct digest key, uint8_t *to,
                         int64_t bytes) MUST_CHECK;
bool store_has(struct store *s, enum store_kind kind, struct digest key);
int64_t store_size(struct store *s, enum store_kind kind, struct digest key); // of its file, or 0
status_t store_remove(struct store *s, enum store_kind kind, struct digest key) MUST_CHECK;
// Is the blob still the file of that write, and did nobody write the same bytes since? If so it is
// removed. `only_ask`: it stays.
bool store_remove_file(struct store *s, enum store_kind kind, struct digest key, uint64_t file,
                       bool only_ask);
void store_pin(struct store *s, enum store_kind kind, struct digest key, bool pinned);
bool store_pinned(struct store *s, enum store_kind kind, struct digest key);
// Removes least recently used, unpinned executables until the budget holds. store_put does too.
status_t store_evict(struct store *s, int64_t *out_freed_bytes) MUST_CHECK;
// Told of each before it goes, on the thread that evicts.
typedef void (*store_evicted_fn)(void *ctx, struct digest key);
void store_on_evict(struct store *s, store_evicted_fn fn, void *ctx);
// What store_open found damaged and made whole, of the folder itself; "".
const char *store_mended(const struct store *s);
// The same look at the folder later on; what cannot be mended is said too. "": all is well.
void store_check_folder(struct store *s, char said[200]);
int64_t store_bytes(struct store *s);
enum { STORE_LITTLE = 1 << 20 };           // with less free nothing of size can be kept
int64_t store_free_bytes(struct store *s); // of its file system; much, if not known
typedef void (*store_list_fn)(void *ctx, enum store_kind kind, struct digest key, int64_t bytes,
                              int64_t mtime_wall_ns, bool pinned);
status_t store_list(struct store *s, enum store_kind kind, store_list_fn fn, void *ctx) MUST_CHECK;
