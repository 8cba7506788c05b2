// SPDX-License-Identifier: Apache-2.0
// See journal_db.h. Triggers keep `meta`: seq counts changes of rows, total is the sum of the rows'
// sums modulo 2^128. Both copies get the same statements, so that in step they have the same seq
// and total; a process that dies between the two commits leaves one ahead, which the next open
// brings to the other.
#include "scheduler/journal_db.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/metrics.h"
#include "scheduler/error.h"

enum { SUM = 16, COPIES = 2, PATH = 4096 };
// Between tries to make the second file again: until then one damage loses rows.
enum { RETRY_S = 1 };
struct place { // a file as it was last seen
    ino_t ino;
    off_t size;
    bool there;
};
struct file {
    struct jcopy c;
    char path[PATH];
    struct place db, wal;
    int64_t seq;
    uint8_t total[SUM];
    bool absent; // no file was there when it was opened
    int from;    // the version it had then
};
struct jdb {
    const struct jdb_spec *spec;
    pthread_mutex_t lock;
    struct file f[COPIES];
    int64_t retry_ns; // before that a copy that could not be made is not tried again
};

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
    sqlite3_result_blob(ctx, d.b, SUM, SQLITE_TRANSIENT);
}
// total - old + new, as numbers of 128 bits; NULL is zero.
static void mix(uint8_t total[SUM], const uint8_t *old, const uint8_t *new) {
    int carry = 0;
    for (int i = 0; i < SUM; i++) {
        int v = total[i] - (old ? old[i] : 0) + (new ? new[i] : 0) + carry;
        total[i] = (uint8_t)v;
        carry = v >> 8; // -1 to 1: negative numbers shift as gcc and clang define it
    }
}
static const uint8_t *sum_of(sqlite3_value *v) {
    return sqlite3_value_bytes(v) == SUM ? sqlite3_value_blob(v) : NULL;
}
static void sql_mix(sqlite3_context *ctx, int n, sqlite3_value **v) {
    uint8_t total[SUM] = {0};
    (void)n;
    if (sum_of(v[0])) memcpy(total, sum_of(v[0]), SUM);
    mix(total, sum_of(v[1]), sum_of(v[2]));
    sqlite3_result_blob(ctx, total, SUM, SQLITE_TRANSIENT);
}

// ---- statements

static bool is_damage(int extended) {
    int code = extended & 0xff;
    return code == SQLITE_CORRUPT || code == SQLITE_NOTADB || code == SQLITE_SCHEMA ||
           extended == SQLITE_IOERR_SHORT_READ || extended == SQLITE_IOERR_READ ||
           extended == SQLITE_IOERR_DATA || extended == SQLITE_IOERR_CORRUPTFS;
}
static bool is_full(sqlite3 *db) {
    int code = sqlite3_errcode(db) & 0xff, os = sqlite3_system_errno(db);
    return code == SQLITE_FULL ||
           (code == SQLITE_IOERR && (os == ENOSPC || os == EFBIG || os == EDQUOT));
}
status_t jcopy_status(const struct jcopy *c, const char *what) {
    const char *file = sqlite3_db_filename(c->db, "main"), *name = file ? strrchr(file, '/') : NULL;
    enum status_code code = is_full(c->db)                               ? ST_RESOURCE_EXHAUSTED
                            : is_damage(sqlite3_extended_errcode(c->db)) ? ST_DATA_LOSS
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
status_t jcopy_sound(struct jcopy *c, int i, int at) {
    if (sqlite3_column_int(c->s[i], at)) return ST_OK;
    return st_new(ST_DATA_LOSS, "a row has not the digest it was written with");
}
static status_t exec(struct jcopy *c, const char *sql) {
    return sqlite3_exec(c->db, sql, NULL, NULL, NULL) ? jcopy_status(c, sql) : ST_OK;
}
static status_t prepare(struct jcopy *c, const char *sql, sqlite3_stmt **out) {
    return sqlite3_prepare_v2(c->db, sql, -1, out, NULL) ? jcopy_status(c, sql) : ST_OK;
}

// ---- is it as it was?

// Other statements see a damaged page only when they come to it. What is found comes as a row, not
// as an error.
static status_t check_pages(struct jcopy *c) {
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

// The sum of how tables, indices and triggers were made.
static status_t sum_shape(struct jcopy *c, uint8_t out[SUM]) {
    sqlite3_stmt *s = NULL;
    memset(out, 0, SUM);
    RETURN_IF_ERR(prepare(c, "SELECT jdb_sum(type, name, tbl_name, sql) FROM sqlite_master", &s));
    int code;
    while ((code = sqlite3_step(s)) == SQLITE_ROW)
        mix(out, NULL, sqlite3_column_blob(s, 0));
    status_t st = code == SQLITE_DONE ? ST_OK : jcopy_status(c, "shape");
    sqlite3_finalize(s);
    return st;
}

static status_t check_meta(const struct jdb *j, struct file *f) {
    sqlite3_stmt *s = NULL;
    uint8_t shape[SUM];
    RETURN_IF_ERR(sum_shape(&f->c, shape));
    RETURN_IF_ERR(prepare(&f->c, "SELECT name, seq, total, shape FROM meta", &s));
    status_t st = ST_OK;
    const char *name =
        sqlite3_step(s) == SQLITE_ROW ? (const char *)sqlite3_column_text(s, 0) : NULL;
    if (!name || strcmp(name, j->spec->name) != 0)
        st = st_new(ST_DATA_LOSS, "it holds '%.40s'", name ? name : "nothing");
    else if (sqlite3_column_bytes(s, 2) != SUM || sqlite3_column_bytes(s, 3) != SUM)
        st = st_new(ST_DATA_LOSS, "no sum of what it holds");
    else if (memcmp(sqlite3_column_blob(s, 3), shape, SUM) != 0)
        st = st_new(ST_DATA_LOSS, "its tables are not as they were made");
    else {
        f->seq = sqlite3_column_int64(s, 1);
        memcpy(f->total, sqlite3_column_blob(s, 2), SUM);
    }
    sqlite3_finalize(s);
    return st;
}

static status_t check_table(struct file *f, const struct jdb_table *t, uint8_t total[SUM]) {
    char sql[400];
    sqlite3_stmt *s = NULL;
    snprintf(sql, sizeof sql, "SELECT sum, jdb_sum('%s', %s) IS sum FROM %s", t->name, t->columns,
             t->name);
    RETURN_IF_ERR(prepare(&f->c, sql, &s));
    status_t st = ST_OK;
    int code = SQLITE_DONE;
    while (!st && (code = sqlite3_step(s)) == SQLITE_ROW) {
        if (!sqlite3_column_int(s, 1) || sqlite3_column_bytes(s, 0) != SUM)
            st = st_new(ST_DATA_LOSS, "a row of '%s' has not the digest it was written with",
                        t->name);
        else
            mix(total, NULL, sqlite3_column_blob(s, 0));
    }
    if (!st && code != SQLITE_DONE) st = jcopy_status(&f->c, sql);
    sqlite3_finalize(s);
    return st;
}

static status_t check_rows(const struct jdb *j, struct file *f) {
    uint8_t total[SUM] = {0};
    RETURN_IF_ERR(check_meta(j, f));
    for (int t = 0; t < j->spec->n_tables; t++)
        RETURN_IF_ERR(check_table(f, &j->spec->tables[t], total));
    return memcmp(total, f->total, SUM)
               ? st_new(ST_DATA_LOSS, "rows are missing, or are not of this file")
               : ST_OK;
}

// ---- its files

static struct place look(const char *path) {
    struct stat sb;
    if (lstat(path, &sb)) return (struct place){0};
    return (struct place){sb.st_ino, S_ISREG(sb.st_mode) ? sb.st_size : -1, true};
}
static const char *wal_of(const struct file *f, char out[PATH + 8]) {
    snprintf(out, PATH + 8, "%s-wal", f->path);
    return out;
}
static const char *moved(const struct place *was, struct place is) {
    return !was->there           ? NULL
           : !is.there           ? "was removed"
           : is.ino != was->ino  ? "is another file"
           : is.size < was->size ? "is shorter than it was"
                                 : NULL;
}
// As they are now, unless something happened to them since they were last seen: that is for
// check_place to find.
static void remember(struct file *f) {
    char wal[PATH + 8];
    struct place db = look(f->path), log = look(wal_of(f, wal));
    if (!moved(&f->db, db)) f->db = db;
    if (!moved(&f->wal, log)) f->wal = log;
}
// Since we last wrote. Neither file shrinks or is made anew while it is open.
static status_t check_place(const struct file *f) {
    char wal[PATH + 8];
    const char *why = moved(&f->db, look(f->path));
    if (why) return st_new(ST_DATA_LOSS, "the file %s", why);
    why = moved(&f->wal, look(wal_of(f, wal)));
    return why ? st_new(ST_DATA_LOSS, "its log (-wal) %s", why) : ST_OK;
}

// ---- open

static void close_file(const struct jdb *j, struct file *f) {
    for (int i = 0; f->c.s && i < j->spec->n_statements; i++)
        sqlite3_finalize(f->c.s[i]);
    free(f->c.s);
    sqlite3_close(f->c.db);
    f->c = (struct jcopy){0};
}

static status_t make(const struct jdb *j, struct file *f, int from) {
    char sql[400];
    struct jcopy *c = &f->c;
    RETURN_IF_ERR(j->spec->make(c->db, from));
    RETURN_IF_ERR(exec(c, "CREATE TABLE meta (name TEXT, seq INTEGER, total BLOB, shape BLOB)"));
    snprintf(sql, sizeof sql, "INSERT INTO meta VALUES ('%s', 0, zeroblob(%d), NULL)",
             j->spec->name, SUM);
    RETURN_IF_ERR(exec(c, sql));
    static const struct {
        const char *name, *when, *old, *new;
    } triggers[] = {{"add", "INSERT", "NULL", "new.sum"},
                    {"set", "UPDATE OF sum", "old.sum", "new.sum"},
                    {"end", "DELETE", "old.sum", "NULL"}};
    for (int t = 0; t < j->spec->n_tables; t++) {
        const struct jdb_table *table = &j->spec->tables[t];
        for (int i = 0; i < 3; i++) {
            snprintf(sql, sizeof sql,
                     "CREATE TRIGGER %s_%s AFTER %s ON %s BEGIN UPDATE meta SET seq = seq + 1, "
                     "total = jdb_mix(total, %s, %s); END",
                     table->name, triggers[i].name, triggers[i].when, table->name, triggers[i].old,
                     triggers[i].new);
            RETURN_IF_ERR(exec(c, sql));
        }
        snprintf(sql, sizeof sql, "UPDATE %s SET sum = jdb_sum('%s', %s)", table->name, table->name,
                 table->columns);
        RETURN_IF_ERR(exec(c, sql));
    }
    uint8_t shape[SUM];
    sqlite3_stmt *s = NULL;
    RETURN_IF_ERR(sum_shape(c, shape));
    RETURN_IF_ERR(prepare(c, "UPDATE meta SET shape = ?1", &s));
    sqlite3_bind_blob(s, 1, shape, SUM, SQLITE_STATIC);
    status_t st = sqlite3_step(s) == SQLITE_DONE ? ST_OK : jcopy_status(c, "shape");
    sqlite3_finalize(s);
    RETURN_IF_ERR(st);
    snprintf(sql, sizeof sql, "PRAGMA user_version=%d", j->spec->version);
    return exec(c, sql);
}
static status_t upgrade(const struct jdb *j, struct file *f) {
    sqlite3_stmt *s = NULL;
    RETURN_IF_ERR(prepare(&f->c, "PRAGMA user_version", &s));
    f->from = sqlite3_step(s) == SQLITE_ROW ? sqlite3_column_int(s, 0) : -1;
    sqlite3_finalize(s);
    if (f->from == j->spec->version) return ST_OK; // a full disk takes no write
    if (f->from > j->spec->version)
        return st_new(ST_FAILED_PRECONDITION,
                      "%s.db has schema %d, this build knows %d: made by a newer hlod",
                      j->spec->name, f->from, j->spec->version);
    RETURN_IF_ERR(exec(&f->c, "BEGIN IMMEDIATE"));
    status_t st = make(j, f, f->from);
    if (!st) st = exec(&f->c, "COMMIT");
    if (st) st_drop(exec(&f->c, "ROLLBACK"));
    return st;
}

static status_t set_up(struct jcopy *c, bool full_sync) {
    sqlite3_busy_timeout(c->db, 2000);
    sqlite3_create_function(c->db, "jdb_sum", -1, SQLITE_UTF8 | SQLITE_DETERMINISTIC, NULL, sql_sum,
                            NULL, NULL);
    sqlite3_create_function(c->db, "jdb_mix", 3, SQLITE_UTF8 | SQLITE_DETERMINISTIC, NULL, sql_mix,
                            NULL, NULL);
    RETURN_IF_ERR(exec(c, "PRAGMA locking_mode=EXCLUSIVE"));
    RETURN_IF_ERR(exec(c, "PRAGMA journal_mode=WAL"));
    return exec(c, full_sync ? "PRAGMA synchronous=FULL" : "PRAGMA synchronous=NORMAL");
}

// A file that is empty beside a log would lose the log without a word.
static status_t check_before(struct file *f) {
    char wal[PATH + 8];
    struct place db = look(f->path), log = look(wal_of(f, wal));
    f->absent = !db.there && !(log.there && log.size);
    if (log.there && log.size && (!db.there || !db.size))
        return st_new(ST_DATA_LOSS, "it is empty, its log is not");
    if (db.there && db.size < 0) return st_new(ST_DATA_LOSS, "no regular file");
    if (db.there && !db.size) return st_new(ST_DATA_LOSS, "it is empty");
    return ST_OK;
}

// A file that is not there stays so, unless it is to be made.
static status_t open_file(const struct jdb *j, struct file *f, bool create) {
    f->db = f->wal = (struct place){0};
    RETURN_IF_ERR(check_before(f));
    if (f->absent && !create) return ST_OK;
    struct jcopy *c = &f->c;
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | (create ? SQLITE_OPEN_CREATE : 0);
    status_t st = ST_OK;
    if (sqlite3_open_v2(f->path, &c->db, flags, NULL)) st = jcopy_status(c, "open");
    if (!st) st = set_up(c, j->spec->full_sync);
    if (!st) st = check_pages(c);
    if (!st) st = upgrade(j, f);
    if (!st && !(c->s = calloc((size_t)j->spec->n_statements, sizeof *c->s))) st = st_oom();
    for (int i = 0; i < j->spec->n_statements && !st; i++) {
        char buf[600];
        const char *text = j->spec->statement(i, buf);
        if (sqlite3_prepare_v3(c->db, text, -1, SQLITE_PREPARE_PERSISTENT, &c->s[i], NULL))
            st = st_new(ST_DATA_LOSS, "%s: %s", text, sqlite3_errmsg(c->db)); // another's tables
    }
    if (!st) st = check_rows(j, f);
    if (st)
        close_file(j, f);
    else
        remember(f);
    return st;
}

// ---- mend

static void aside(const struct file *f) {
    static const char *const parts[] = {"", "-wal"};
    char from[PATH + 8], to[PATH + 24];
    for (int i = 0; i < 2; i++) {
        snprintf(from, sizeof from, "%s%s", f->path, parts[i]);
        snprintf(to, sizeof to, "%s.damaged%s", f->path, parts[i]);
        if (rename(from, to) && errno != ENOENT) unlink(from);
    }
}
static status_t sync_folder(const char *path) {
    char dir[PATH];
    snprintf(dir, sizeof dir, "%.*s", (int)(strrchr(path, '/') - path), path);
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return st_errno(errno, dir);
    int bad = fsync(fd);
    close(fd);
    return bad ? st_errno(errno, dir) : ST_OK;
}
static status_t copy_to(struct file *from, const char *path) {
    struct jcopy to = {0};
    status_t st = ST_OK;
    if (sqlite3_open_v2(path, &to.db,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_CREATE, NULL))
        st = jcopy_status(&to, "open");
    sqlite3_backup *b = st ? NULL : sqlite3_backup_init(to.db, "main", from->c.db, "main");
    if (!st && !b) st = jcopy_status(&to, "copy");
    if (b) {
        sqlite3_backup_step(b, -1);
        if (sqlite3_backup_finish(b)) st = jcopy_status(&to, "copy");
    }
    if (sqlite3_close(to.db) && !st) st = st_new(ST_INTERNAL, "%s: close", path);
    return st;
}
// Makes f again from a whole one. What stands in its place is put aside.
static status_t rebuild(const struct jdb *j, struct file *f, struct file *from) {
    char path[PATH + 8];
    snprintf(path, sizeof path, "%s.new", f->path);
    unlink(path);
    status_t st = copy_to(from, path);
    if (f->c.db && f != from) close_file(j, f);
    if (!st) {
        aside(f);
        if (rename(path, f->path)) st = st_errno(errno, f->path);
    }
    if (!st) st = sync_folder(f->path);
    if (!st && f == from) close_file(j, f);
    if (!st) st = open_file(j, f, false);
    if (st) unlink(path);
    return st;
}

static void salvage_table(struct file *to, struct file *from, const struct jdb_table *t,
                          int64_t *rows) {
    char sql[600], marks[60] = "?";
    sqlite3_stmt *in = NULL, *out = NULL;
    int columns = 1;
    for (const char *p = t->columns; (p = strchr(p, ',')); p++, columns++)
        strncat(marks, ",?", sizeof marks - strlen(marks) - 1);
    snprintf(sql, sizeof sql, "SELECT %s, sum FROM %s WHERE jdb_sum('%s', %s) IS sum", t->columns,
             t->name, t->name, t->columns);
    status_t st = prepare(&from->c, sql, &in);
    snprintf(sql, sizeof sql, "INSERT OR IGNORE INTO %s (%s, sum) VALUES (%s,?)", t->name,
             t->columns, marks);
    if (!st) st = prepare(&to->c, sql, &out);
    while (!st && sqlite3_step(in) == SQLITE_ROW) {
        for (int i = 0; i <= columns; i++)
            sqlite3_bind_value(out, i + 1, sqlite3_column_value(in, i));
        if (sqlite3_step(out) == SQLITE_DONE) *rows += sqlite3_changes(to->c.db);
        sqlite3_reset(out);
    }
    sqlite3_finalize(in);
    sqlite3_finalize(out);
    st_drop(st);
}
// Neither is whole: every row of either that has its digest, in a new first file.
static status_t salvage(struct jdb *j) {
    struct file *made = calloc(1, sizeof *made), *old = calloc(1, sizeof *old);
    int64_t rows = 0;
    char path[PATH + 24];
    status_t st = made && old ? ST_OK : st_oom();
    if (!st) {
        snprintf(made->path, PATH, "%.4000s.new", j->f[0].path);
        unlink(made->path);
        st = open_file(j, made, true);
    }
    for (int k = 0; k < COPIES; k++) {
        close_file(j, &j->f[k]);
        aside(&j->f[k]);
        if (st) continue;
        snprintf(path, sizeof path, "%s.damaged", j->f[k].path);
        if (!sqlite3_open_v2(path, &old->c.db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL) &&
            !(st = set_up(&old->c, false)))
            for (int t = 0; t < j->spec->n_tables; t++)
                salvage_table(made, old, &j->spec->tables[t], &rows);
        st_drop(st);
        st = ST_OK;
        sqlite3_close(old->c.db);
        old->c.db = NULL;
    }
    if (!st && j->spec->after_salvage) st = exec(&made->c, j->spec->after_salvage);
    if (made) close_file(j, made);
    if (!st && rename(made->path, j->f[0].path)) st = st_errno(errno, j->f[0].path);
    if (!st) st = open_file(j, &j->f[0], false);
    log_event(LOG_ERROR, "journal.salvaged", "file=\"%s\" rows=%lld lost=\"%s\"", j->f[0].path,
              (long long)rows, j->spec->at_a_loss);
    free(made);
    free(old);
    return st;
}

static void say_damaged(const struct file *f, const char *why) {
    metric_add(M_CACHE_QUARANTINED, 1);
    log_event(LOG_ERROR, "journal.damaged", "file=\"%s\" aside=\"%s.damaged\" why=\"%s\"", f->path,
              f->path, why);
}
// One that is not whole lets go of its file; st says why, and is dropped.
static void give_up(const struct jdb *j, struct file *f, status_t st) {
    if (st_code(st) == ST_DATA_LOSS)
        say_damaged(f, st_message(st));
    else
        log_event(LOG_WARN, "journal.behind", "file=\"%s\" why=\"%s\"", f->path, st_message(st));
    st_drop(st);
    close_file(j, f);
}

// Both there and in step, if that can be: from the one that is whole (checked before it is
// believed), or from what is left of both.
static status_t mend(struct jdb *j) {
    struct file *a = &j->f[0], *b = &j->f[1];
    if ((a->c.db || b->c.db) && j->retry_ns && clock_ns() < j->retry_ns) return ST_OK;
    for (int k = 0; k < COPIES; k++) {
        struct file *f = &j->f[k];
        if (!f->c.db || (a->c.db && b->c.db)) continue;
        status_t st = check_pages(&f->c);
        if (!st) st = check_rows(j, f);
        if (st_code(st) == ST_DATA_LOSS)
            give_up(j, f, st);
        else
            RETURN_IF_ERR(st);
    }
    if (!a->c.db && !b->c.db) RETURN_IF_ERR(salvage(j));
    if (a->c.db && b->c.db) return ST_OK;
    status_t st = a->c.db ? rebuild(j, b, a) : rebuild(j, a, b);
    j->retry_ns = 0;
    if (st) { // one will do meanwhile
        log_event(LOG_WARN, "journal.alone", "file=\"%s\" why=\"%s\"", a->c.db ? b->path : a->path,
                  st_message(st));
        st_drop(st);
        j->retry_ns = clock_ns() + RETRY_S * INT64_C(1000000000);
    }
    return ST_OK;
}

// The one that is behind is made again; of two that differ the second.
static status_t in_step(struct jdb *j) {
    struct file *a = &j->f[0], *b = &j->f[1];
    if (!a->c.db || !b->c.db || (a->seq == b->seq && !memcmp(a->total, b->total, SUM)))
        return ST_OK;
    struct file *old = b->seq > a->seq ? a : b;
    log_event(LOG_WARN, "journal.behind",
              "file=\"%s\" changes=%lld other=%lld why=\"an older version, or the daemon died "
              "between the two\"",
              old->path, (long long)old->seq, (long long)(old == a ? b : a)->seq);
    close_file(j, old);
    return mend(j);
}

status_t jdb_open(const char *dir, const struct jdb_spec *spec, struct jdb **out) {
    struct jdb *j = calloc(1, sizeof *j);
    if (!j) return st_oom();
    j->spec = spec;
    pthread_mutex_init(&j->lock, NULL);
    status_t st = ST_OK;
    struct file *a = &j->f[0], *b = &j->f[1];
    for (int k = 0; k < COPIES && st_code(st) != ST_FAILED_PRECONDITION; k++) {
        snprintf(j->f[k].path, PATH, "%.3900s/%s%s.db", dir, spec->name, k ? ".copy" : "");
        status_t one = open_file(j, &j->f[k], false);
        if (st_code(one) == ST_DATA_LOSS) {
            give_up(j, &j->f[k], one);
        } else if (one) { // no room to open it, say: the other may do
            st_drop(st);
            st = one;
        }
    }
    if (st && st_code(st) != ST_FAILED_PRECONDITION && (a->c.db || b->c.db)) {
        log_event(LOG_WARN, "journal.alone", "file=\"%s\" why=\"%s\"", a->c.db ? b->path : a->path,
                  st_message(st));
        st_drop(st);
        st = ST_OK;
        j->retry_ns = clock_ns() + RETRY_S * INT64_C(1000000000);
    }
    if (!st && a->absent && b->absent) // a new folder
        st = open_file(j, a, true);
    else if (!st && (a->absent || b->absent) && (a->absent || a->from == spec->version))
        say_damaged(a->absent ? a : b, "it was removed"); // else there was one from before
    if (!st) st = a->c.db && b->c.db ? in_step(j) : mend(j);
    if (st) {
        jdb_close(j);
        return st;
    }
    *out = j;
    return ST_OK;
}
void jdb_close(struct jdb *j) {
    if (!j) return;
    for (int k = 0; k < COPIES; k++)
        close_file(j, &j->f[k]);
    pthread_mutex_destroy(&j->lock);
    free(j);
}

// ---- use

// Whose files are no more what they were. What is open still holds its contents: where both are
// gone, the first is made again from itself.
static status_t check_places(struct jdb *j) {
    status_t st[COPIES] = {ST_OK, ST_OK};
    for (int k = 0; k < COPIES; k++)
        if (j->f[k].c.db) st[k] = check_place(&j->f[k]);
    bool other = !st[1] && j->f[1].c.db;
    if (st[0] && !other) {
        say_damaged(&j->f[0], st_message(st[0]));
        st_drop(st[0]);
        st[0] = rebuild(j, &j->f[0], &j->f[0]);
        if (st[0]) give_up(j, &j->f[0], st[0]);
        st[0] = ST_OK;
    }
    for (int k = 0; k < COPIES; k++)
        if (st[k]) give_up(j, &j->f[k], st[k]);
    return j->f[0].c.db && j->f[1].c.db ? ST_OK : mend(j);
}

static status_t write_both(struct jdb *j, jdb_fn fn, void *arg) {
    status_t st = ST_OK;
    int n = 0;
    for (int k = 0; k < COPIES && !st; k++) {
        struct file *f = &j->f[k];
        if (!f->c.db) continue;
        st = exec(&f->c, "BEGIN IMMEDIATE");
        if (!st) st = fn(&f->c, arg);
        if (st_code(st) != ST_DATA_LOSS) continue;
        give_up(j, f, st);
        st = ST_OK;
    }
    for (int k = 0; k < COPIES; k++) {
        struct file *f = &j->f[k];
        if (!f->c.db) continue;
        status_t one = st                        ? st_new(ST_ABORTED, "not whole")
                       : FAULT("journal.commit") ? st_new(ST_INTERNAL, "commit (injected)")
                                                 : exec(&f->c, "COMMIT");
        if (!one) {
            n++;
            remember(f);
            continue;
        }
        if (!sqlite3_get_autocommit(f->c.db)) st_drop(exec(&f->c, "ROLLBACK"));
        if (st)
            st_drop(one);
        else if (n || st_code(one) == ST_DATA_LOSS)
            give_up(j, f, one); // it is behind the other
        else
            st = one;
    }
    if (!st && !n) st = st_new(ST_DATA_LOSS, "%s.db: neither file can be written", j->spec->name);
    return st;
}
status_t jdb_write(struct jdb *j, jdb_fn fn, void *arg) {
    pthread_mutex_lock(&j->lock);
    status_t st = check_places(j);
    if (!st) st = write_both(j, fn, arg);
    if (st_code(st) == ST_DATA_LOSS) { // on what mending made of them
        st_drop(st);
        st = mend(j);
        if (!st) st = write_both(j, fn, arg);
    }
    if (!j->f[0].c.db || !j->f[1].c.db) st_drop(mend(j));
    pthread_mutex_unlock(&j->lock);
    return st;
}
status_t jdb_read(struct jdb *j, jdb_fn fn, void *arg) {
    pthread_mutex_lock(&j->lock);
    status_t st = ST_OK;
    for (int tries = 0; tries < 3; tries++) {
        struct file *f = j->f[0].c.db ? &j->f[0] : &j->f[1];
        st = f->c.db ? fn(&f->c, arg)
                     : st_new(ST_DATA_LOSS, "%s.db: no file to read", j->spec->name);
        if (st_code(st) != ST_DATA_LOSS) break;
        give_up(j, f, st);
        if ((st = mend(j))) break;
    }
    pthread_mutex_unlock(&j->lock);
    return st;
}

status_t jdb_verify(struct jdb *j, void (*found)(void *ctx, const char *file, const char *why),
                    void *ctx) {
    pthread_mutex_lock(&j->lock);
    for (int k = 0; k < COPIES; k++) {
        struct file *f = &j->f[k];
        const char *name = strrchr(f->path, '/') + 1;
        if (!f->c.db) {
            found(ctx, name, "it could not be made again yet");
            continue;
        }
        sqlite3_db_release_memory(f->c.db); // what the disk has, not what it had
        status_t moved = check_place(f), st = moved ? ST_OK : check_pages(&f->c);
        if (!moved && !st) st = check_rows(j, f);
        if (moved || st) found(ctx, name, st_message(moved ? moved : st));
        st_drop(moved); // seen to below, while the contents are still open
        if (st_code(st) == ST_DATA_LOSS)
            give_up(j, f, st);
        else
            st_drop(st);
    }
    status_t st = check_places(j);
    pthread_mutex_unlock(&j->lock);
    return st;
}

// From one that is found whole; what is not is mended, and tried again.
static status_t back_up(struct jdb *j, const char *made) {
    struct file *f = j->f[0].c.db ? &j->f[0] : &j->f[1];
    if (!f->c.db) return st_new(ST_DATA_LOSS, "%s.db: no file to read", j->spec->name);
    status_t st = check_pages(&f->c);
    if (!st) st = check_rows(j, f);
    if (st_code(st) == ST_DATA_LOSS) give_up(j, f, st_new(ST_DATA_LOSS, "%s", st_message(st)));
    return st ? st : copy_to(f, made);
}
status_t jdb_backup(struct jdb *j, const char *dir) {
    char path[PATH], made[PATH + 8];
    if ((size_t)snprintf(path, sizeof path, "%s/%s.db", dir, j->spec->name) >= sizeof path)
        return st_new(ST_INVALID_ARGUMENT, "%s: too long", dir);
    snprintf(made, sizeof made, "%s.new", path);
    pthread_mutex_lock(&j->lock);
    status_t st = check_places(j);
    for (int tries = 0; tries < 3 && !st; tries++) {
        unlink(made);
        st = back_up(j, made);
        if (st_code(st) != ST_DATA_LOSS || tries == 2) break;
        st_drop(st);
        st = mend(j);
    }
    pthread_mutex_unlock(&j->lock);
    if (!st && rename(made, path)) st = st_errno(errno, path);
    if (!st) st = sync_folder(path);
    if (st) unlink(made);
    return st;
}
