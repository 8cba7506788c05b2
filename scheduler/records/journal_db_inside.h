// SPDX-License-Identifier: Apache-2.0
// What journal_db.c and journal_check.c share: the two files as they are open.
#pragma once
#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "scheduler/records/journal_db.h"

enum { JDB_SUM = 16, JDB_COPIES = 2, JDB_PATH = 4096 };
struct jdb_place { // a file as it was last seen
    ino_t ino;
    off_t size;
    bool there;
};
struct jdb_file {
    struct jcopy c;
    char path[JDB_PATH];
    struct jdb_place db, wal;
    int64_t seq; // as it was opened
    uint8_t total[JDB_SUM];
    bool absent; // no file was there when it was opened
    int from;    // the version it had then
};
struct jdb {
    const struct jdb_spec *spec;
    pthread_mutex_t lock;
    struct jdb_file f[JDB_COPIES];
    // While one cannot be made again.
    int64_t retry_ns; // before that it is not tried
    bool full;        // for want of room
    char why[200];
    atomic_bool alone;
    atomic_bool lost; // since it was opened: made of what was left, or anew
};

// ---- journal_check.c

// jdb_sum and jdb_mix.
void jdb_functions(sqlite3 *db);
status_t jcopy_exec(struct jcopy *c, const char *sql) MUST_CHECK;
status_t jcopy_prepare(struct jcopy *c, const char *sql, sqlite3_stmt **out) MUST_CHECK;
// What a transaction changed is in the log, not committed: the commit needs hardly any room then.
status_t jcopy_flush(struct jcopy *c) MUST_CHECK;
// The pages; what is damaged is DATA_LOSS. Other statements see a damaged page only when they come
// to it.
status_t jcopy_check_pages(struct jcopy *c) MUST_CHECK;
// The sum of how tables, indices and triggers were made.
status_t jcopy_shape(struct jcopy *c, uint8_t out[JDB_SUM]) MUST_CHECK;
// Each row has its digest, all come to the total; gives f its count and total.
status_t jdb_check_rows(const struct jdb *j, struct jdb_file *f) MUST_CHECK;

const char *jdb_wal_of(const struct jdb_file *f, char out[JDB_PATH + 8]);
struct jdb_place jdb_look(const char *path);
// As they are now, unless something happened to them since they were last seen: that is for
// jdb_check_place to find.
void jdb_remember(struct jdb_file *f);
// Since we last wrote. Neither file shrinks or is made anew while it is open.
status_t jdb_check_place(const struct jdb_file *f) MUST_CHECK;
