// SPDX-License-Identifier: Apache-2.0
// journal: the index that outlives the daemon (D13, D16): source digest -> what ingest found (a
// packed hlod.wire.IngestReply without its blobs), and executable key -> its
// hlod.v1.ExecutableInfo, so that the same bytes are ingested once, also after a restart; names of
// models and whose content is. DIR/journal.db and its copy (journal_db.h); names of models also in
// DIR/names.log (journal_names.h). Blocking. Thread: any
// (one lock); call it on the pool.
#pragma once
#include "base/arena.h"
#include "base/hash.h"
#include "base/status.h"

struct journal;
struct ProtobufCMessage;
static inline struct str digest_str(const struct digest *d) { // its bytes, as a map's key
    return (struct str){(const char *)d->b, sizeof d->b};
}
status_t journal_open(const char *dir, struct journal **out) MUST_CHECK;
void journal_close(struct journal *j); // NULL is fine
// Reads both files; what is damaged is made again and told of. found on this thread.
status_t journal_verify(struct journal *j,
                        void (*found)(void *ctx, const char *file, const char *why),
                        void *ctx) MUST_CHECK;

// One of its two files cannot be made again: writes are refused. Does not wait.
bool journal_alone(const struct journal *j);
status_t journal_backup(struct journal *j, const char *dir) MUST_CHECK; // DIR/journal.db, as it is

enum journal_table {
    JOURNAL_SOURCE,
    JOURNAL_EXECUTABLE,
    JOURNAL_MODEL,
    JOURNAL_BLOB,
    JOURNAL_PIN,
    JOURNAL_UPLOAD,
    JOURNAL_TABLE_COUNT
};
// Replaces an older record of the same key. wall_ns: creation time for people. family: the program
// it belongs to, for journal_family.
status_t journal_put(struct journal *j, enum journal_table t, struct digest key,
                     struct digest family, struct span record, int64_t wall_ns) MUST_CHECK;
// The same for a message, packed, created now.
status_t journal_put_message(struct journal *j, enum journal_table t, struct digest key,
                             struct digest family, const struct ProtobufCMessage *m) MUST_CHECK;
// All records of a family, with the wall-clock time of their last use. fn on this thread.
status_t journal_family(struct journal *j, enum journal_table t, struct digest family,
                        void (*fn)(void *ctx, struct digest key, int64_t used_ns),
                        void *ctx) MUST_CHECK;
// The record in `a`, and marks it used now. NOT_FOUND.
status_t journal_get(struct journal *j, enum journal_table t, struct digest key, struct arena *a,
                     struct span *out) MUST_CHECK;
status_t journal_remove(struct journal *j, enum journal_table t,
                        struct digest key) MUST_CHECK; // absent is fine
// Newest use first. fn on this thread; `record` is valid during the call.
status_t journal_list(struct journal *j, enum journal_table t, int64_t limit,
                      void (*fn)(void *ctx, struct digest key, struct span record),
                      void *ctx) MUST_CHECK;
// Each record with the family it is in, those of one family together.
status_t journal_families(struct journal *j, enum journal_table t,
                          void (*fn)(void *ctx, struct digest family, struct span record),
                          void *ctx) MUST_CHECK;
int64_t journal_count(struct journal *j, enum journal_table t);
