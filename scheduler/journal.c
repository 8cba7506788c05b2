// SPDX-License-Identifier: Apache-2.0
// See journal.h. Statements are prepared once and used under one lock; synchronous=NORMAL with WAL
// loses at most the last records on power failure, never consistency.
#include "scheduler/journal.h"

#include <protobuf-c/protobuf-c.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "scheduler/error.h"

enum { SCHEMA = 4 }; // 2: family; 3: model; 4: blob, pin
enum statement { S_PUT, S_GET, S_TOUCH, S_REMOVE, S_LIST, S_COUNT, S_FAMILY, STATEMENT_COUNT };
struct journal {
    sqlite3 *db;
    pthread_mutex_t lock;
    sqlite3_stmt *s[JOURNAL_TABLE_COUNT][STATEMENT_COUNT];
};
static const char *const tables[] = {"source", "executable", "model", "blob", "pin"};
// %s is the table's name. `used` orders by a clock that only this file reads.
static const char *const texts[] = {
    [S_PUT] = "INSERT OR REPLACE INTO %s (key, record, created, used, family) VALUES (?1, ?2, ?3, "
              "?4, ?5)",
    [S_GET] = "SELECT record FROM %s WHERE key = ?1",
    [S_TOUCH] = "UPDATE %s SET used = ?2 WHERE key = ?1",
    [S_REMOVE] = "DELETE FROM %s WHERE key = ?1",
    [S_LIST] = "SELECT key, record FROM %s ORDER BY used DESC, key LIMIT ?1",
    [S_COUNT] = "SELECT count(*) FROM %s",
    [S_FAMILY] = "SELECT key, used FROM %s WHERE family = ?1",
};

static status_t sql_status(struct journal *j, const char *what) MUST_CHECK;
static status_t sql_status(struct journal *j, const char *what) {
    int code = sqlite3_errcode(j->db) & 0xff;
    return error_of_store(st_new(code == SQLITE_FULL ? ST_RESOURCE_EXHAUSTED : ST_INTERNAL,
                                 "journal: %s: %s", what, sqlite3_errmsg(j->db)));
}

static void close_db(struct journal *j) {
    for (int t = 0; t < JOURNAL_TABLE_COUNT; t++)
        for (int s = 0; s < STATEMENT_COUNT; s++) {
            sqlite3_finalize(j->s[t][s]);
            j->s[t][s] = NULL;
        }
    sqlite3_close(j->db);
    j->db = NULL;
}

static status_t exec(struct journal *j, const char *sql) {
    return sqlite3_exec(j->db, sql, NULL, NULL, NULL) ? sql_status(j, sql) : ST_OK;
}

// Tables of an older schema gain what they lack; records from before have no family and are in
// none until they are written again.
static status_t make_tables(struct journal *j) {
    sqlite3_stmt *v;
    if (sqlite3_prepare_v2(j->db, "PRAGMA user_version", -1, &v, NULL))
        return sql_status(j, "version");
    int version = sqlite3_step(v) == SQLITE_ROW ? sqlite3_column_int(v, 0) : -1;
    sqlite3_finalize(v);
    if (version > SCHEMA)
        return st_new(ST_FAILED_PRECONDITION,
                      "journal has schema %d, this build knows %d: made by a newer hlod", version,
                      SCHEMA);
    static const char *const create[] = {
        "CREATE TABLE IF NOT EXISTS %s (key BLOB PRIMARY KEY, record BLOB NOT NULL, created "
        "INTEGER, used INTEGER, family BLOB) WITHOUT ROWID",
        "ALTER TABLE %s ADD COLUMN family BLOB",
        "CREATE INDEX IF NOT EXISTS %s_family ON %s (family)",
    };
    char text[200];
    for (int t = 0; t < JOURNAL_TABLE_COUNT; t++)
        for (int i = 0; i < 3; i++) {
            if (i == 1 && (version != 1 || t >= JOURNAL_MODEL)) continue;
            snprintf(text, sizeof text, create[i], tables[t], tables[t]); // NOLINT: see above
            RETURN_IF_ERR(exec(j, text));
        }
    snprintf(text, sizeof text, "PRAGMA user_version=%d", SCHEMA);
    return version == SCHEMA ? ST_OK : exec(j, text); // a full disk takes no write
}

// Other statements see a damaged page only when they come to it. What is found comes as a row, not
// as an error.
status_t journal_check_pages(sqlite3 *db) {
    sqlite3_stmt *s = NULL;
    int code = sqlite3_prepare_v2(db, "PRAGMA quick_check(1)", -1, &s, NULL);
    if (!code) code = sqlite3_step(s);
    const char *said = code == SQLITE_ROW ? (const char *)sqlite3_column_text(s, 0) : NULL;
    status_t st = said && !strcmp(said, "ok")
                      ? ST_OK
                      : st_new(ST_DATA_LOSS, "damaged: %s", said ? said : sqlite3_errmsg(db));
    sqlite3_finalize(s);
    return st;
}

// On a full disk there is no room for the shared index of the write-ahead log; alone, SQLite keeps
// it in memory. (The data folder's lock keeps other daemons away in any case.)
status_t journal_alone(sqlite3 *db) {
    return sqlite3_exec(db, "PRAGMA locking_mode=EXCLUSIVE", NULL, NULL, NULL)
               ? st_new(ST_INTERNAL, "%s", sqlite3_errmsg(db))
               : ST_OK;
}
bool journal_needs_room(sqlite3 *db) {
    int code = sqlite3_errcode(db) & 0xff;
    return code == SQLITE_FULL || code == SQLITE_IOERR || code == SQLITE_CANTOPEN;
}

static status_t open_db(struct journal *j, const char *path, bool alone) {
    if (sqlite3_open_v2(path, &j->db,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL))
        return sql_status(j, "open");
    sqlite3_busy_timeout(j->db, 2000);
    if (alone) RETURN_IF_ERR(journal_alone(j->db));
    static const char *const setup[] = {"PRAGMA journal_mode=WAL", "PRAGMA synchronous=NORMAL"};
    for (size_t i = 0; i < sizeof setup / sizeof *setup; i++)
        RETURN_IF_ERR(exec(j, setup[i]));
    RETURN_IF_ERR(journal_check_pages(j->db));
    RETURN_IF_ERR(make_tables(j));
    for (int t = 0; t < JOURNAL_TABLE_COUNT; t++)
        for (int s = 0; s < STATEMENT_COUNT; s++) {
            char text[200];
            snprintf(text, sizeof text, texts[s],
                     tables[t]); // NOLINT: the formats are the table above
            if (sqlite3_prepare_v3(j->db, text, -1, SQLITE_PREPARE_PERSISTENT, &j->s[t][s], NULL))
                return sql_status(j, text);
        }
    return ST_OK;
}

status_t journal_open(const char *dir, struct journal **out) {
    struct journal *j = calloc(1, sizeof *j);
    if (!j) return st_oom();
    pthread_mutex_init(&j->lock, NULL);
    char path[4096], aside[4200];
    snprintf(path, sizeof path, "%s/journal.db", dir);
    status_t st = open_db(j, path, false);
    if (st && journal_needs_room(j->db)) {
        log_event(LOG_WARN, "journal.full", "file=\"%s\" why=\"%s\"", path, st_message(st));
        st_drop(st);
        close_db(j);
        st = open_db(j, path, true);
    }
    int code = st ? sqlite3_errcode(j->db) & 0xff : 0;
    if (st_code(st) == ST_DATA_LOSS || code == SQLITE_CORRUPT || code == SQLITE_NOTADB) {
        close_db(j);
        snprintf(aside, sizeof aside, "%s.damaged", path);
        log_event(LOG_ERROR, "journal.damaged",
                  "file=\"%s\" aside=\"%s\" why=\"%s\" lost=\"names of models; what was uploaded "
                  "is found again when it is sent or compiled again\"",
                  path, aside, st_message(st));
        st_drop(st);
        rename(path, aside);
        snprintf(aside, sizeof aside, "%s-wal", path);
        remove(aside);
        st = open_db(j, path, false);
    }
    if (st) {
        journal_close(j);
        return st;
    }
    *out = j;
    return ST_OK;
}

void journal_close(struct journal *j) {
    if (!j) return;
    close_db(j);
    pthread_mutex_destroy(&j->lock);
    free(j);
}

// Runs a statement that gives no rows. Needs the lock.
static status_t run(struct journal *j, sqlite3_stmt *s, const char *what) {
    int code = sqlite3_step(s);
    status_t st = code == SQLITE_DONE ? ST_OK : sql_status(j, what);
    sqlite3_reset(s);
    sqlite3_clear_bindings(s);
    return st;
}

status_t journal_put(struct journal *j, enum journal_table t, struct digest key,
                     struct digest family, struct span record, int64_t wall_ns) {
    pthread_mutex_lock(&j->lock);
    sqlite3_stmt *s = j->s[t][S_PUT];
    sqlite3_bind_blob(s, 1, key.b, sizeof key.b, SQLITE_STATIC);
    sqlite3_bind_blob64(s, 2, record.p, record.n, SQLITE_STATIC);
    sqlite3_bind_int64(s, 3, wall_ns);
    sqlite3_bind_int64(s, 4, clock_wall_ns());
    sqlite3_bind_blob(s, 5, family.b, sizeof family.b, SQLITE_STATIC);
    status_t st = run(j, s, "put");
    pthread_mutex_unlock(&j->lock);
    return st;
}

status_t journal_put_message(struct journal *j, enum journal_table t, struct digest key,
                             struct digest family, const struct ProtobufCMessage *m) {
    size_t n = protobuf_c_message_get_packed_size(m);
    uint8_t *packed = malloc(n + 1);
    if (!packed) return st_oom();
    protobuf_c_message_pack(m, packed);
    status_t st = journal_put(j, t, key, family, (struct span){packed, n}, clock_wall_ns());
    free(packed);
    return st;
}

status_t journal_get(struct journal *j, enum journal_table t, struct digest key, struct arena *a,
                     struct span *out) {
    pthread_mutex_lock(&j->lock);
    sqlite3_stmt *s = j->s[t][S_GET];
    sqlite3_bind_blob(s, 1, key.b, sizeof key.b, SQLITE_STATIC);
    status_t st = ST_OK;
    int code = sqlite3_step(s);
    if (code == SQLITE_ROW) {
        size_t n = (size_t)sqlite3_column_bytes(s, 0);
        *out = (struct span){arena_dup(a, sqlite3_column_blob(s, 0), n), n};
    } else
        st = code == SQLITE_DONE ? st_new(ST_NOT_FOUND, "journal: no such %s", tables[t])
                                 : sql_status(j, "get");
    sqlite3_reset(s);
    sqlite3_clear_bindings(s);
    if (!st) {
        s = j->s[t][S_TOUCH];
        sqlite3_bind_blob(s, 1, key.b, sizeof key.b, SQLITE_STATIC);
        sqlite3_bind_int64(s, 2, clock_wall_ns());
        st_drop(run(j, s, "touch")); // the order of use is only a hint
    }
    pthread_mutex_unlock(&j->lock);
    return st;
}

status_t journal_remove(struct journal *j, enum journal_table t, struct digest key) {
    pthread_mutex_lock(&j->lock);
    sqlite3_stmt *s = j->s[t][S_REMOVE];
    sqlite3_bind_blob(s, 1, key.b, sizeof key.b, SQLITE_STATIC);
    status_t st = run(j, s, "remove");
    pthread_mutex_unlock(&j->lock);
    return st;
}

status_t journal_list(struct journal *j, enum journal_table t, int64_t limit,
                      void (*fn)(void *, struct digest, struct span), void *ctx) {
    pthread_mutex_lock(&j->lock);
    sqlite3_stmt *s = j->s[t][S_LIST];
    sqlite3_bind_int64(s, 1, limit > 0 ? limit : -1);
    int code;
    while ((code = sqlite3_step(s)) == SQLITE_ROW) {
        struct digest d;
        if (sqlite3_column_bytes(s, 0) != sizeof d.b) continue;
        memcpy(d.b, sqlite3_column_blob(s, 0), sizeof d.b);
        fn(ctx, d, (struct span){sqlite3_column_blob(s, 1), (size_t)sqlite3_column_bytes(s, 1)});
    }
    status_t st = code == SQLITE_DONE ? ST_OK : sql_status(j, "list");
    sqlite3_reset(s);
    pthread_mutex_unlock(&j->lock);
    return st;
}

status_t journal_family(struct journal *j, enum journal_table t, struct digest family,
                        void (*fn)(void *, struct digest, int64_t), void *ctx) {
    pthread_mutex_lock(&j->lock);
    sqlite3_stmt *s = j->s[t][S_FAMILY];
    sqlite3_bind_blob(s, 1, family.b, sizeof family.b, SQLITE_STATIC);
    int code;
    while ((code = sqlite3_step(s)) == SQLITE_ROW) {
        struct digest d;
        if (sqlite3_column_bytes(s, 0) != sizeof d.b) continue;
        memcpy(d.b, sqlite3_column_blob(s, 0), sizeof d.b);
        fn(ctx, d, sqlite3_column_int64(s, 1));
    }
    status_t st = code == SQLITE_DONE ? ST_OK : sql_status(j, "family");
    sqlite3_reset(s);
    sqlite3_clear_bindings(s);
    pthread_mutex_unlock(&j->lock);
    return st;
}

int64_t journal_count(struct journal *j, enum journal_table t) {
    pthread_mutex_lock(&j->lock);
    sqlite3_stmt *s = j->s[t][S_COUNT];
    int64_t n = sqlite3_step(s) == SQLITE_ROW ? sqlite3_column_int64(s, 0) : 0;
    sqlite3_reset(s);
    pthread_mutex_unlock(&j->lock);
    return n;
}
