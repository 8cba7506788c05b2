// SPDX-License-Identifier: Apache-2.0
// What shows damage in one file of a journal: the SQL functions that make and add up the rows'
// sums, the look at pages, rows, counts and shape, and at whether the file is still the one it was.
#include "scheduler/records/journal_db_inside.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/hash.h"
#include "scheduler/error.h"

// ---- functions of SQL

static void sql_sum(sqlite3_context *ctx, int n, sqlite3_value **v) {
    struct sha256 h;
    sha256_init(&h);
    for (int i = 0; i < n; i++) {
        int type = sqlite3_value_type(v[i]);
        int64_t number = type == SQLITE_INTEGER ? sqlite3_value_int64(v[i]) : 0;
        const void *p = type == SQLITE_INTEGER ? &number
                        : type == SQLITE_NULL  ? NULL
                                               : sqlite3_value_blob(v[i]);
        int64_t bytes = type == SQLITE_INTEGER ? 8
                        : type == SQLITE_NULL  ? 0
                                               : sqlite3_value_bytes(v[i]);
        uint8_t head[9] = {(uint8_t)type};
        memcpy(head + 1, &bytes, sizeof bytes);
        sha256_add(&h, head, sizeof head);
        sha256_add(&h, p ? p : "", p ? (size_t)bytes : 0);
    }
    struct digest d = sha256_end(&h);
    sqlite3_result_blob(ctx, d.b, JDB_SUM, SQLITE_TRANSIENT);
}
// total - old + new, as numbers of 128 bits; NULL is zero.
static void mix(uint8_t total[JDB_SUM], const uint8_t *old, const uint8_t *new) {
    int carry = 0;
    for (int i = 0; i < JDB_SUM; i++) {
        int v = total[i] - (old ? old[i] : 0) + (new ? new[i] : 0) + carry;
        total[i] = (uint8_t)v;
        carry = v >> 8; // -1 to 1: negative numbers shift as gcc and clang define it
    }
}
static const uint8_t *sum_of(sqlite3_value *v) {
    return sqlite3_value_bytes(v) == JDB_SUM ? sqlite3_value_blob(v) : NULL;
}
static void sql_mix(sqlite3_context *ctx, UNUSED int n, sqlite3_value **v) {
    uint8_t total[JDB_SUM] = {0};
    if (sum_of(v[0])) memcpy(total, sum_of(v[0]), JDB_SUM);
    mix(total, sum_of(v[1]), sum_of(v[2]));
    sqlite3_result_blob(ctx, total, JDB_SUM, SQLITE_TRANSIENT);
}

void jdb_functions(sqlite3 *db) {
    sqlite3_create_function(db, "jdb_sum", -1, SQLITE_UTF8 | SQLITE_DETERMINISTIC, NULL, sql_sum,
                            NULL, NULL);
    sqlite3_create_function(db, "jdb_mix", 3, SQLITE_UTF8 | SQLITE_DETERMINISTIC, NULL, sql_mix,
                            NULL, NULL);
}

// ---- statements

static bool is_damage(int extended) {
    int code = extended & 0xff;
    return code == SQLITE_CORRUPT || code == SQLITE_NOTADB || code == SQLITE_SCHEMA ||
           extended == SQLITE_IOERR_SHORT_READ || extended == SQLITE_IOERR_READ ||
           extended == SQLITE_IOERR_DATA || extended == SQLITE_IOERR_CORRUPTFS;
}
static bool means_full(int code, int os) {
    return (code & 0xff) == SQLITE_FULL ||
           ((code & 0xff) == SQLITE_IOERR && (os == ENOSPC || os == EFBIG || os == EDQUOT));
}
static bool is_full(sqlite3 *db) {
    return means_full(sqlite3_errcode(db), sqlite3_system_errno(db));
}
status_t jcopy_status(const struct jcopy *c, const char *what) {
    const char *file = sqlite3_db_filename(c->db, "main"), *name = file ? strrchr(file, '/') : NULL;
    enum status_code code = is_full(c->db)                               ? ST_RESOURCE_EXHAUSTED
                            : is_damage(sqlite3_extended_errcode(c->db)) ? ST_DATA_LOSS
                            : sqlite3_errcode(c->db) == SQLITE_NOMEM     ? ST_UNAVAILABLE
                                                                         : ST_INTERNAL;
    return error_of_store(
        st_new(code, "%s: %.100s: %s", name ? name + 1 : "journal", what, sqlite3_errmsg(c->db)));
}
void jcopy_reset(struct jcopy *c, int i) {
    sqlite3_reset(c->s[i]);
    sqlite3_clear_bindings(c->s[i]);
}
status_t jcopy_run(struct jcopy *c, int i) {
    status_t st =
        sqlite3_step(c->s[i]) == SQLITE_DONE ? ST_OK : jcopy_status(c, sqlite3_sql(c->s[i]));
    jcopy_reset(c, i);
    return st;
}
bool jcopy_next(struct jcopy *c, int i, int at, status_t *st) {
    int code = *st ? SQLITE_DONE : sqlite3_step(c->s[i]);
    if (code == SQLITE_ROW && at >= 0 && !sqlite3_column_int(c->s[i], at))
        *st = st_new(ST_DATA_LOSS, "a row has not the digest it was written with");
    else if (code == SQLITE_ROW)
        return true;
    else if (code != SQLITE_DONE)
        *st = jcopy_status(c, sqlite3_sql(c->s[i]));
    jcopy_reset(c, i);
    return false;
}
status_t jcopy_exec(struct jcopy *c, const char *sql) {
    return sqlite3_exec(c->db, sql, NULL, NULL, NULL) ? jcopy_status(c, sql) : ST_OK;
}
status_t jcopy_flush(struct jcopy *c) {
    errno = 0;
    int code = sqlite3_db_cacheflush(c->db); // sets no error of the connection
    if (!code) return ST_OK;
    return error_of_store(st_new(means_full(code, errno) ? ST_RESOURCE_EXHAUSTED
                                 : is_damage(code)       ? ST_DATA_LOSS
                                                         : ST_INTERNAL,
                                 "journal: %s", sqlite3_errstr(code)));
}
status_t jcopy_prepare(struct jcopy *c, const char *sql, sqlite3_stmt **out) {
    return sqlite3_prepare_v2(c->db, sql, -1, out, NULL) ? jcopy_status(c, sql) : ST_OK;
}

// ---- is it as it was?

// What is found comes as a row, not as an error.
status_t jcopy_check_pages(struct jcopy *c) {
    sqlite3_stmt *s = NULL;
    int code = sqlite3_prepare_v2(c->db, "PRAGMA integrity_check(1)", -1, &s, NULL);
    if (!code) code = sqlite3_step(s);
    const char *said = code == SQLITE_ROW ? (const char *)sqlite3_column_text(s, 0) : NULL;
    status_t st = ST_OK;
    if (!said && is_full(c->db)) // no room for the log
        st = jcopy_status(c, "integrity_check");
    else if (!said || strcmp(said, "ok") != 0)
        st = st_new(ST_DATA_LOSS, "damaged: %s", said ? said : sqlite3_errmsg(c->db));
    sqlite3_finalize(s);
    return st;
}

status_t jcopy_shape(struct jcopy *c, uint8_t out[JDB_SUM]) {
    sqlite3_stmt *s = NULL;
    memset(out, 0, JDB_SUM);
    RETURN_IF_ERR(
        jcopy_prepare(c, "SELECT jdb_sum(type, name, tbl_name, sql) FROM sqlite_master", &s));
    int code;
    while ((code = sqlite3_step(s)) == SQLITE_ROW)
        mix(out, NULL, sqlite3_column_blob(s, 0));
    status_t st = code == SQLITE_DONE ? ST_OK : jcopy_status(c, "shape");
    sqlite3_finalize(s);
    return st;
}

static status_t check_meta(const struct jdb *j, struct jdb_file *f) {
    sqlite3_stmt *s = NULL;
    uint8_t shape[JDB_SUM];
    RETURN_IF_ERR(jcopy_shape(&f->c, shape));
    RETURN_IF_ERR(jcopy_prepare(&f->c, "SELECT name, seq, total, shape FROM meta", &s));
    status_t st = ST_OK;
    const char *name =
        sqlite3_step(s) == SQLITE_ROW ? (const char *)sqlite3_column_text(s, 0) : NULL;
    if (!name || strcmp(name, j->spec->name) != 0)
        st = st_new(ST_DATA_LOSS, "it holds '%.40s'", name ? name : "nothing");
    else if (sqlite3_column_bytes(s, 2) != JDB_SUM || sqlite3_column_bytes(s, 3) != JDB_SUM)
        st = st_new(ST_DATA_LOSS, "no sum of what it holds");
    else if (memcmp(sqlite3_column_blob(s, 3), shape, JDB_SUM) != 0)
        st = st_new(ST_DATA_LOSS, "its tables are not as they were made");
    else {
        f->seq = sqlite3_column_int64(s, 1);
        memcpy(f->total, sqlite3_column_blob(s, 2), JDB_SUM);
    }
    sqlite3_finalize(s);
    return st;
}

static status_t check_table(struct jdb_file *f, const struct jdb_table *t, uint8_t total[JDB_SUM]) {
    char sql[400];
    sqlite3_stmt *s = NULL;
    snprintf(sql, sizeof sql, "SELECT sum, jdb_sum('%s', %s) IS sum FROM %s", t->name, t->columns,
             t->name);
    RETURN_IF_ERR(jcopy_prepare(&f->c, sql, &s));
    status_t st = ST_OK;
    int code = SQLITE_DONE;
    while (!st && (code = sqlite3_step(s)) == SQLITE_ROW) {
        if (!sqlite3_column_int(s, 1) || sqlite3_column_bytes(s, 0) != JDB_SUM)
            st = st_new(ST_DATA_LOSS, "a row of '%s' has not the digest it was written with",
                        t->name);
        else
            mix(total, NULL, sqlite3_column_blob(s, 0));
    }
    if (!st && code != SQLITE_DONE) st = jcopy_status(&f->c, sql);
    sqlite3_finalize(s);
    return st;
}

status_t jdb_check_rows(const struct jdb *j, struct jdb_file *f) {
    uint8_t total[JDB_SUM] = {0};
    RETURN_IF_ERR(check_meta(j, f));
    for (int t = 0; t < j->spec->n_tables; t++)
        RETURN_IF_ERR(check_table(f, &j->spec->tables[t], total));
    return memcmp(total, f->total, JDB_SUM)
               ? st_new(ST_DATA_LOSS, "rows are missing, or are not of this file")
               : ST_OK;
}

// ---- its files

struct jdb_place jdb_look(const char *path) {
    struct stat sb;
    if (lstat(path, &sb)) return (struct jdb_place){0};
    return (struct jdb_place){sb.st_ino, S_ISREG(sb.st_mode) ? sb.st_size : -1, true};
}
const char *jdb_wal_of(const struct jdb_file *f, char out[JDB_PATH + 8]) {
    snprintf(out, JDB_PATH + 8, "%s-wal", f->path);
    return out;
}
static const char *moved(const struct jdb_place *was, struct jdb_place is) {
    return !was->there           ? NULL
           : !is.there           ? "was removed"
           : is.ino != was->ino  ? "is another file"
           : is.size < was->size ? "is shorter than it was"
                                 : NULL;
}
void jdb_remember(struct jdb_file *f) {
    char wal[JDB_PATH + 8];
    struct jdb_place db = jdb_look(f->path), log = jdb_look(jdb_wal_of(f, wal));
    if (!moved(&f->db, db)) f->db = db;
    if (!moved(&f->wal, log)) f->wal = log;
}
status_t jdb_check_place(const struct jdb_file *f) {
    char wal[JDB_PATH + 8];
    const char *why = moved(&f->db, jdb_look(f->path));
    if (why) return st_new(ST_DATA_LOSS, "the file %s", why);
    why = moved(&f->wal, jdb_look(jdb_wal_of(f, wal)));
    return why ? st_new(ST_DATA_LOSS, "its log (-wal) %s", why) : ST_OK;
}
