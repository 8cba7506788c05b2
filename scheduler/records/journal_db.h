// SPDX-License-Identifier: Apache-2.0
// journal_db: a SQLite database in two files, DIR/NAME.db and DIR/NAME.copy.db, so that a disk that
// changes, loses or replaces one of them costs nothing. What shows damage: each row has a digest of
// its values (`sum`), and one row says what the sums of all come to and how many changes there
// were, so that lost, changed, foreign and older contents are seen whichever bytes did it. A copy
// that is not as it was is put aside as FILE.damaged, logged, and made again from the other; where
// neither is whole, from every row that still has its digest, those of the newer first. Bytes that
// hold nothing (free pages, frames of the log that were written back) are not covered.
//
// What jdb_write says is written is in both files. While there is one alone, because the disk has
// no room for the other, nothing is written: RESOURCE_EXHAUSTED (or UNAVAILABLE), until it is there
// again, which is tried at every use, some times a second.
//
// Each file is held alone (nobody else reads it while the daemon runs), which keeps SQLite's shared
// index in memory: a mapped file that shrinks would end the process. Blocking. Thread: any (one
// lock).
#pragma once
#include <sqlite3.h>
#include <stdbool.h>

#include "base/status.h"

struct jdb_table {
    const char *name;
    const char *columns; // that `sum` covers, in the order of jdb_sum's arguments
};
struct jdb_spec {
    const char *name;      // of the files
    const char *at_a_loss; // for the log: what is gone where neither file is whole
    int version;           // of the schema; version 0: nothing is there
    bool full_sync;        // a commit has reached the disk when it returns
    // Tables as of `version`, or what the version that is there lacks, in a transaction; each has a
    // column `sum BLOB`. Rows without one get it afterwards.
    status_t (*make)(sqlite3 *db, int from_version);
    const struct jdb_table *tables;
    int n_tables;
    int n_statements;
    const char *(*statement)(int i, char buf[600]); // its text
    const char *after_salvage;                      // SQL, or NULL
};
// One of the two, as statements see it.
struct jcopy {
    sqlite3 *db;      // NULL: not there
    sqlite3_stmt **s; // [n_statements]
};
struct jdb;

// SQL functions: jdb_sum(TABLE, VALUES...) is the digest of a row.
status_t jdb_open(const char *dir, const struct jdb_spec *spec, struct jdb **out) MUST_CHECK;
void jdb_close(struct jdb *j); // NULL is fine

// One of the two could not be made again yet. Does not wait.
bool jdb_alone(const struct jdb *j);
// Neither file was whole, or none was there, since it was opened: rows may be lost.
bool jdb_lost(const struct jdb *j);

// fn runs in a transaction on each copy, maybe more than once: what it gives must come out the
// same. Statements of its own are left reset. After an error that says so it may stand in one.
typedef status_t (*jdb_fn)(struct jcopy *c, void *arg);
status_t jdb_write(struct jdb *j, jdb_fn fn, void *arg) MUST_CHECK;
// On one that is whole; again on the other where fn comes to damage (DATA_LOSS).
status_t jdb_read(struct jdb *j, jdb_fn fn, void *arg) MUST_CHECK;
// Reads both files; what is found is mended. found on this thread.
status_t jdb_verify(struct jdb *j, void (*found)(void *ctx, const char *file, const char *why),
                    void *ctx) MUST_CHECK;
// DIR/NAME.db as it is now, whole: made beside, then put in place of an older one. What it is made
// from is read and compared with its digests first.
status_t jdb_backup(struct jdb *j, const char *dir) MUST_CHECK;

// For fn. The last error of the copy; damage is DATA_LOSS, a full disk RESOURCE_EXHAUSTED.
status_t jcopy_status(const struct jcopy *c, const char *what) MUST_CHECK;
// Runs statement i, which gives no rows, and resets it.
status_t jcopy_run(struct jcopy *c, int i) MUST_CHECK;
void jcopy_reset(struct jcopy *c, int i);
// The next row of statement i, whose column `at` says that its sum is what it should be
// (jdb_sum(...) IS sum; -1: none does). False: there is no other, or *st says why; it is reset
// then.
bool jcopy_next(struct jcopy *c, int i, int at, status_t *st);
