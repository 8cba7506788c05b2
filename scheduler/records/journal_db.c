// SPDX-License-Identifier: Apache-2.0
// See journal_db.h. Triggers keep `meta`: seq counts changes of rows, total is the sum of the rows'
// sums modulo 2^128. Both copies get the same statements, so that in step they have the same seq
// and total; a process that dies between the two commits leaves one ahead, which the next open
// brings to the other. Where one is made again from the other, the count leaps: an older version
// of the lost one, whatever it had counted, is behind from then on.
//
// A write is answered only when both files have it. While one of the two cannot be made again (the
// disk is full) every write is refused, so that whatever was answered stands in two files, or has
// stood in two files and one of them was damaged since.
#include "scheduler/records/journal_db.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/metrics.h"
#include "scheduler/error.h"
#include "scheduler/records/journal_db_inside.h"

enum {
    LEAP = 1 << 20,
    RETRY_NS = 100000000, // between tries to make the second file again; or ten times what one took
    ROOM = 256 << 10      // that a copy needs besides its pages
};

// ---- open

static void close_file(const struct jdb *j, struct jdb_file *f) {
    for (int i = 0; f->c.s && i < j->spec->n_statements; i++)
        sqlite3_finalize(f->c.s[i]);
    free(f->c.s);
    sqlite3_close(f->c.db);
    f->c = (struct jcopy){0};
}

static status_t make(const struct jdb *j, struct jdb_file *f, int from) {
    char sql[400];
    struct jcopy *c = &f->c;
    RETURN_IF_ERR(j->spec->make(c->db, from));
    RETURN_IF_ERR(
        jcopy_exec(c, "CREATE TABLE meta (name TEXT, seq INTEGER, total BLOB, shape BLOB)"));
    snprintf(sql, sizeof sql, "INSERT INTO meta VALUES ('%s', 0, zeroblob(%d), NULL)",
             j->spec->name, JDB_SUM);
    RETURN_IF_ERR(jcopy_exec(c, sql));

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
            RETURN_IF_ERR(jcopy_exec(c, sql));
        }
        snprintf(sql, sizeof sql, "UPDATE %s SET sum = jdb_sum('%s', %s)", table->name, table->name,
                 table->columns);
        RETURN_IF_ERR(jcopy_exec(c, sql));
    }

    uint8_t shape[JDB_SUM];
    sqlite3_stmt *s = NULL;
    RETURN_IF_ERR(jcopy_shape(c, shape));
    RETURN_IF_ERR(jcopy_prepare(c, "UPDATE meta SET shape = ?1", &s));
    sqlite3_bind_blob(s, 1, shape, JDB_SUM, SQLITE_STATIC);
    status_t st = sqlite3_step(s) == SQLITE_DONE ? ST_OK : jcopy_status(c, "shape");
    sqlite3_finalize(s);
    RETURN_IF_ERR(st);
    snprintf(sql, sizeof sql, "PRAGMA user_version=%d", j->spec->version);
    return jcopy_exec(c, sql);
}
static status_t upgrade(const struct jdb *j, struct jdb_file *f) {
    sqlite3_stmt *s = NULL;
    RETURN_IF_ERR(jcopy_prepare(&f->c, "PRAGMA user_version", &s));
    f->from = sqlite3_step(s) == SQLITE_ROW ? sqlite3_column_int(s, 0) : -1;
    sqlite3_finalize(s);
    if (f->from == j->spec->version) return ST_OK; // a full disk takes no write
    if (f->from > j->spec->version)
        return st_new(ST_FAILED_PRECONDITION,
                      "%s.db has schema %d, this build knows %d: made by a newer hlod",
                      j->spec->name, f->from, j->spec->version);
    RETURN_IF_ERR(jcopy_exec(&f->c, "BEGIN IMMEDIATE"));
    status_t st = make(j, f, f->from);
    if (!st) st = jcopy_exec(&f->c, "COMMIT");
    if (st) st_drop(jcopy_exec(&f->c, "ROLLBACK"));
    return st;
}

static status_t set_up(struct jcopy *c, bool full_sync) {
    sqlite3_busy_timeout(c->db, 2000);
    jdb_functions(c->db);
    RETURN_IF_ERR(jcopy_exec(c, "PRAGMA locking_mode=EXCLUSIVE"));
    RETURN_IF_ERR(jcopy_exec(c, "PRAGMA journal_mode=WAL"));
    return jcopy_exec(c, full_sync ? "PRAGMA synchronous=FULL" : "PRAGMA synchronous=NORMAL");
}

// A file that is empty beside a log would lose the log, and nothing would show it.
static status_t check_before(struct jdb_file *f) {
    char wal[JDB_PATH + 8];
    struct jdb_place db = jdb_look(f->path), log = jdb_look(jdb_wal_of(f, wal));
    f->absent = !db.there && !(log.there && log.size);
    if (log.there && log.size && (!db.there || !db.size))
        return st_new(ST_DATA_LOSS, "it is empty, its log is not");
    if (db.there && db.size < 0) return st_new(ST_DATA_LOSS, "no regular file");
    if (db.there && !db.size) return st_new(ST_DATA_LOSS, "it is empty");
    return ST_OK;
}

// A file that is not there stays so, unless it is to be made.
static status_t open_file(const struct jdb *j, struct jdb_file *f, bool create) {
    f->db = f->wal = (struct jdb_place){0};
    RETURN_IF_ERR(check_before(f));
    if (f->absent && !create) return ST_OK;
    struct jcopy *c = &f->c;
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | (create ? SQLITE_OPEN_CREATE : 0);
    status_t st = ST_OK;
    if (sqlite3_open_v2(f->path, &c->db, flags, NULL)) st = jcopy_status(c, "open");
    if (!st) st = set_up(c, j->spec->full_sync);
    if (!st) st = jcopy_check_pages(c);
    if (!st) st = upgrade(j, f);
    if (!st && !(c->s = calloc((size_t)j->spec->n_statements, sizeof *c->s))) st = st_oom();
    for (int i = 0; i < j->spec->n_statements && !st; i++) {
        char buf[600];
        const char *text = j->spec->statement(i, buf);
        if (sqlite3_prepare_v3(c->db, text, -1, SQLITE_PREPARE_PERSISTENT, &c->s[i], NULL))
            st = st_new(ST_DATA_LOSS, "%s: %s", text, sqlite3_errmsg(c->db)); // another's tables
    }
    if (!st) st = jdb_check_rows(j, f);
    if (st)
        close_file(j, f);
    else
        jdb_remember(f);
    return st;
}

// ---- mend

// In place of what was put there before: two incidents' parts do not belong together.
static void aside(const struct jdb_file *f) {
    static const char *const parts[] = {"", "-wal"};
    char from[JDB_PATH + 8], to[JDB_PATH + 24];
    if (!jdb_look(f->path).there && !jdb_look(jdb_wal_of(f, from)).there) return; // it was already
    for (int i = 0; i < 2; i++) {
        snprintf(from, sizeof from, "%s%s", f->path, parts[i]);
        snprintf(to, sizeof to, "%s.damaged%s", f->path, parts[i]);
        if (rename(from, to) == 0) continue;
        if (errno != ENOENT) unlink(from);
        unlink(to);
    }
}
static void remove_parts(const struct jdb_file *f) {
    static const char *const parts[] = {"", "-wal", "-journal"};
    char path[JDB_PATH + 16];
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s%s", f->path, parts[i]);
        unlink(path);
    }
}
static void folder_of(const char *path, char dir[JDB_PATH]) {
    snprintf(dir, JDB_PATH, "%.*s", (int)(strrchr(path, '/') - path), path);
}
static status_t sync_folder(const char *path) {
    char dir[JDB_PATH];
    folder_of(path, dir);
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return st_errno(errno, dir);
    int bad = fsync(fd);
    close(fd);
    return bad ? st_errno(errno, dir) : ST_OK;
}
static status_t copy_to(struct jdb_file *from, const char *path) {
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
    if (sqlite3_close(to.db) && !st) st = st_internal("%s: close", path);
    return st;
}
static bool both_open(const struct jdb *j) {
    return j->f[0].c.db && j->f[1].c.db;
}
// A copy that fails for want of room costs time, and room that others may use meanwhile.
static status_t check_room(struct jdb_file *from) {
    sqlite3_stmt *s = NULL;
    struct statvfs v;
    RETURN_IF_ERR(jcopy_prepare(
        &from->c, "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size", &s));
    int64_t bytes = sqlite3_step(s) == SQLITE_ROW ? sqlite3_column_int64(s, 0) : 0;
    sqlite3_finalize(s);
    char dir[JDB_PATH];
    folder_of(from->path, dir);
    int64_t room = statvfs(dir, &v) ? INT64_MAX : (int64_t)v.f_bavail * (int64_t)v.f_frsize;
    if (FAULT("journal.room")) room = 0;
    if (room >= bytes + ROOM) return ST_OK;
    return error_of_store(st_exhausted("a copy needs %lld bytes, the disk has %lld left",
                                       (long long)bytes + ROOM, (long long)room));
}
static status_t leap(struct jdb_file *f) {
    char sql[80];
    snprintf(sql, sizeof sql, "UPDATE meta SET seq = seq + %d", LEAP);
    return jcopy_exec(&f->c, sql);
}
// Makes f again from a whole one. What stands in its place is put aside.
static status_t rebuild(const struct jdb *j, struct jdb_file *f, struct jdb_file *from) {
    char path[JDB_PATH + 8];
    snprintf(path, sizeof path, "%s.new", f->path);
    unlink(path);
    status_t st = check_room(from);
    if (!st && f != from) st = leap(from);
    if (!st) st = copy_to(from, path);
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

static status_t salvage_table(struct jdb_file *to, struct jdb_file *from, const struct jdb_table *t,
                              int64_t *rows) {
    char sql[600], marks[60] = "?";
    sqlite3_stmt *in = NULL, *out = NULL;
    int columns = 1;
    for (const char *p = t->columns; (p = strchr(p, ',')); p++, columns++)
        strncat(marks, ",?", sizeof marks - strlen(marks) - 1);
    snprintf(sql, sizeof sql, "INSERT OR IGNORE INTO %s (%s, sum) VALUES (%s,?)", t->name,
             t->columns, marks);
    RETURN_IF_ERR(jcopy_prepare(&to->c, sql, &out));
    snprintf(sql, sizeof sql, "SELECT %s, sum FROM %s WHERE jdb_sum('%s', %s) IS sum", t->columns,
             t->name, t->name, t->columns);
    status_t st = ST_OK, unreadable = jcopy_prepare(&from->c, sql, &in); // its head is damaged
    while (!st && !unreadable && sqlite3_step(in) == SQLITE_ROW) {
        for (int i = 0; i <= columns; i++)
            sqlite3_bind_value(out, i + 1, sqlite3_column_value(in, i));
        if (sqlite3_step(out) == SQLITE_DONE)
            *rows += sqlite3_changes(to->c.db);
        else
            st = jcopy_status(&to->c, "salvage");
        sqlite3_reset(out);
    }
    sqlite3_finalize(in);
    sqlite3_finalize(out);
    st_drop(unreadable);
    return st;
}
static void open_damaged(const struct jdb_file *f, struct jdb_file *out) {
    char path[JDB_PATH + 16];
    sqlite3_stmt *s = NULL;
    snprintf(path, sizeof path, "%s.damaged", f->path);
    out->seq = -1;
    status_t st = ST_OK;
    if (sqlite3_open_v2(path, &out->c.db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL) ||
        (st = set_up(&out->c, false))) {
        sqlite3_close(out->c.db);
        out->c.db = NULL;
    }
    st_drop(st);
    st = out->c.db ? jcopy_prepare(&out->c, "SELECT seq FROM meta", &s) : ST_OK;
    if (!st && s && sqlite3_step(s) == SQLITE_ROW) out->seq = sqlite3_column_int64(s, 0);
    sqlite3_finalize(s);
    st_drop(st);
}
// Rows of what was put aside, those of the file that counted more changes first.
static status_t salvage_rows(const struct jdb *j, struct jdb_file *made, struct jdb_file old[],
                             int64_t *rows) {
    char sql[100];
    for (int k = 0; k < JDB_COPIES; k++)
        open_damaged(&j->f[k], &old[k]);
    int first = old[1].seq > old[0].seq;
    status_t st = jcopy_exec(&made->c, "BEGIN");
    for (int i = 0; i < JDB_COPIES; i++)
        for (int t = 0; t < j->spec->n_tables && !st; t++)
            if (old[i ^ first].c.db)
                st = salvage_table(made, &old[i ^ first], &j->spec->tables[t], rows);
    if (!st && j->spec->after_salvage) st = jcopy_exec(&made->c, j->spec->after_salvage);
    int64_t most = old[first].seq > 0 && old[first].seq < INT64_MAX / 2 ? old[first].seq : 0;
    snprintf(sql, sizeof sql, "UPDATE meta SET seq = seq + %lld", (long long)most + LEAP);
    if (!st) st = jcopy_exec(&made->c, sql);
    if (!st) st = jcopy_exec(&made->c, "COMMIT");
    for (int k = 0; k < JDB_COPIES; k++)
        sqlite3_close(old[k].c.db);
    return st;
}
// Neither is whole, both were put aside: every row of either that has its digest, in a new first
// file.
static status_t salvage(struct jdb *j) {
    struct jdb_file *f = calloc(1 + JDB_COPIES, sizeof *f);
    int64_t rows = 0;
    if (!f) return st_oom();
    atomic_store(&j->lost, true);
    struct jdb_file *made = &f[0];
    snprintf(made->path, JDB_PATH, "%.4000s.new", j->f[0].path);
    remove_parts(made);
    status_t st = open_file(j, made, true);
    if (!st) st = salvage_rows(j, made, f + 1, &rows);
    close_file(j, made);
    if (!st && rename(made->path, j->f[0].path)) st = st_errno(errno, j->f[0].path);
    if (st) remove_parts(made);
    if (!st) st = open_file(j, &j->f[0], false);
    if (!st)
        log_event(LOG_ERROR, "journal.salvaged", "file=\"%s\" rows=%lld lost=\"%s\"", j->f[0].path,
                  (long long)rows, j->spec->at_a_loss);
    free(f);
    return st;
}

static void say_damaged(const struct jdb_file *f, const char *why) {
    metric_add(M_CACHE_QUARANTINED, 1);
    log_event(LOG_ERROR, "journal.damaged", "file=\"%s\" aside=\"%s.damaged\" why=\"%s\"", f->path,
              f->path, why);
}
// One that is not whole lets go of its file; st says why, and is dropped. What is damaged does not
// stay in its place, where it might be an older version that looks whole.
static void give_up(const struct jdb *j, struct jdb_file *f, status_t st) {
    bool damaged = st_code(st) == ST_DATA_LOSS;
    if (damaged)
        say_damaged(f, st_message(st));
    else
        log_event(LOG_WARN, "journal.behind", "file=\"%s\" why=\"%s\"", f->path, st_message(st));
    st_drop(st);
    close_file(j, f);
    if (damaged) aside(f);
}

// One of the two, or both, cannot be opened or made for now; st says why, and is dropped.
static void stay_alone(struct jdb *j, int64_t since_ns, status_t st) {
    const struct jdb_file *gone = j->f[0].c.db ? &j->f[1] : &j->f[0];
    int64_t now = clock_ns(), took = now - since_ns;
    j->retry_ns = now + (took > RETRY_NS / 10 ? 10 * took : RETRY_NS);
    j->full = st_code(st) == ST_RESOURCE_EXHAUSTED;
    snprintf(j->why, sizeof j->why, "%s", st_message(st));
    if (!atomic_exchange(&j->alone, true))
        log_event(LOG_WARN, "journal.alone", "file=\"%s\" why=\"%s\"", gone->path, j->why);
    st_drop(st);
}
static void both_again(struct jdb *j) {
    j->retry_ns = 0;
    if (atomic_exchange(&j->alone, false))
        log_event(LOG_INFO, "journal.mended", "name=%s", j->spec->name);
}
static status_t refused(const struct jdb *j) {
    bool one = j->f[0].c.db || j->f[1].c.db;
    return error_of_store(
        st_new(j->full ? ST_RESOURCE_EXHAUSTED : ST_UNAVAILABLE, "%s.db: %s (%s)", j->spec->name,
               one ? "nothing is written while one of its two files cannot be made again"
                   : "neither of its two files can be opened or made again",
               j->why));
}

static bool differ(const struct jdb *j) {
    const struct jdb_file *a = &j->f[0], *b = &j->f[1];
    return a->seq != b->seq || memcmp(a->total, b->total, JDB_SUM) != 0;
}
// What is damaged is put aside. OK also where neither is open: then both are damaged, or not there.
static status_t open_both(struct jdb *j) {
    int64_t start = clock_ns();
    status_t one[JDB_COPIES], st = ST_OK;
    for (int k = 0; k < JDB_COPIES; k++)
        one[k] = open_file(j, &j->f[k], false);
    for (int k = 0; k < JDB_COPIES; k++) {
        // A version of which nothing is known yet, in one of the two alone, is damage.
        if (st_code(one[k]) == ST_FAILED_PRECONDITION && j->f[!k].c.db) {
            status_t damage = st_new(ST_DATA_LOSS, "%s", st_message(one[k]));
            st_drop(one[k]);
            one[k] = damage;
        }
        if (st_code(one[k]) == ST_DATA_LOSS) {
            give_up(j, &j->f[k], one[k]);
        } else if (one[k]) { // no room to open it, say: the other may do
            st_drop(st);
            st = one[k];
        }
    }
    if (!st || st_code(st) == ST_FAILED_PRECONDITION || (!j->f[0].c.db && !j->f[1].c.db)) return st;
    stay_alone(j, start, st);
    return ST_OK;
}

static status_t in_step(struct jdb *j) MUST_CHECK;
// The missing one from the other, which is found whole first: as it lies there, if nothing was
// written since it was closed, or as a copy.
static status_t make_other(struct jdb *j, struct jdb_file *from, struct jdb_file *gone) {
    RETURN_IF_ERR(jcopy_check_pages(&from->c));
    RETURN_IF_ERR(jdb_check_rows(j, from));
    status_t st = open_file(j, gone, false);
    if (!st && gone->c.db && !differ(j)) return ST_OK;
    if (st_code(st) == ST_DATA_LOSS)
        give_up(j, gone, st);
    else
        st_drop(st);
    close_file(j, gone);
    return rebuild(j, gone, from);
}
// Both there and in step, if that can be: from the one that is whole, or from what is left of
// both. OK also while there is one alone; an error: there is none.
static status_t mend(struct jdb *j, bool at_once) {
    struct jdb_file *a = &j->f[0], *b = &j->f[1];
    int64_t start = clock_ns();
    if (both_open(j)) return ST_OK;
    if (!at_once && start < j->retry_ns) return a->c.db || b->c.db ? ST_OK : refused(j);
    for (int tries = 0; tries < 3 && !both_open(j); tries++) {
        if (!a->c.db && !b->c.db) {
            status_t st = open_both(j);
            if (!st && !a->c.db && !b->c.db) st = salvage(j);
            if (st) {
                stay_alone(j, start, st);
                return refused(j);
            }
            if (both_open(j)) return in_step(j);
        }
        struct jdb_file *from = a->c.db ? a : b;
        status_t st = make_other(j, from, from == a ? b : a);
        if (st_code(st) == ST_DATA_LOSS) {
            give_up(j, from, st);
        } else if (st) {
            stay_alone(j, start, st);
            return ST_OK;
        }
    }
    if (both_open(j)) both_again(j);
    return a->c.db || b->c.db ? ST_OK : refused(j);
}

// The one that is behind is made again; of two that differ the second. It is put aside: how far
// it is behind is not known.
static status_t in_step(struct jdb *j) {
    struct jdb_file *a = &j->f[0], *b = &j->f[1];
    if (!both_open(j)) return ST_OK;
    if (!differ(j)) {
        both_again(j);
        return ST_OK;
    }
    struct jdb_file *old = b->seq > a->seq ? a : b;
    log_event(LOG_WARN, "journal.behind",
              "file=\"%s\" changes=%lld other=%lld why=\"an older version, or the daemon died "
              "between the two\"",
              old->path, (long long)old->seq, (long long)(old == a ? b : a)->seq);
    close_file(j, old);
    aside(old);
    return mend(j, true);
}

// Neither file is there: a new folder, unless something was put aside.
static status_t begin(struct jdb *j) {
    char path[JDB_PATH + 16];
    for (int k = 0; k < JDB_COPIES; k++) {
        snprintf(path, sizeof path, "%s.damaged", j->f[k].path);
        if (access(path, F_OK) == 0) return salvage(j);
    }
    atomic_store(&j->lost, true);
    return open_file(j, &j->f[0], true);
}
status_t jdb_open(const char *dir, const struct jdb_spec *spec, struct jdb **out) {
    struct jdb *j = calloc(1, sizeof *j);
    if (!j) return st_oom();
    j->spec = spec;
    pthread_mutex_init(&j->lock, NULL);
    struct jdb_file *a = &j->f[0], *b = &j->f[1];
    for (int k = 0; k < JDB_COPIES; k++)
        snprintf(j->f[k].path, JDB_PATH, "%.3900s/%s%s.db", dir, spec->name, k ? ".copy" : "");
    status_t st = open_both(j);
    if (!st && a->absent && b->absent)
        st = begin(j);
    else if (!st && (a->absent || b->absent) && (a->absent || a->from == spec->version))
        say_damaged(a->absent ? a : b, "it was removed"); // else there was one from before
    if (!st) st = both_open(j) ? in_step(j) : mend(j, !atomic_load(&j->alone));
    if (st) {
        jdb_close(j);
        return st;
    }
    *out = j;
    return ST_OK;
}
void jdb_close(struct jdb *j) {
    if (!j) return;
    for (int k = 0; k < JDB_COPIES; k++)
        close_file(j, &j->f[k]);
    pthread_mutex_destroy(&j->lock);
    free(j);
}
bool jdb_alone(const struct jdb *j) {
    return atomic_load(&j->alone);
}

bool jdb_lost(const struct jdb *j) {
    return atomic_load(&j->lost);
}

// ---- use

// Whose files are no more what they were. What is open still holds its contents: where no other
// has them, the file is made again from itself.
static status_t check_places(struct jdb *j) {
    int64_t start = clock_ns();
    status_t st[JDB_COPIES] = {ST_OK, ST_OK};
    int sound = 0, keep = -1;
    for (int k = 0; k < JDB_COPIES; k++) {
        if (j->f[k].c.db) st[k] = jdb_check_place(&j->f[k]);
        sound += j->f[k].c.db && !st[k];
    }
    for (int k = JDB_COPIES; k-- > 0 && !sound;)
        if (st[k]) keep = k;
    for (int k = 0; k < JDB_COPIES; k++)
        if (st[k] && k != keep) give_up(j, &j->f[k], st[k]);
    if (keep >= 0 && start >= j->retry_ns) {
        struct jdb_file *f = &j->f[keep];
        if (!jdb_alone(j)) say_damaged(f, st_message(st[keep]));
        status_t made = rebuild(j, f, f);
        if (made) stay_alone(j, start, made);
    }
    if (keep >= 0) st_drop(st[keep]);
    return both_open(j) ? ST_OK : mend(j, false);
}

static status_t write_one(struct jdb_file *f, jdb_fn fn, void *arg) {
    RETURN_IF_ERR(jcopy_exec(&f->c, "BEGIN IMMEDIATE"));
    RETURN_IF_ERR(fn(&f->c, arg));
    if (FAULT("journal.flush")) return st_exhausted("flush (injected)");
    return jcopy_flush(&f->c);
}
// On those that are open. OK: it is in both.
static status_t write_both(struct jdb *j, jdb_fn fn, void *arg) {
    status_t st = ST_OK;
    int n = 0;
    for (int k = 0; k < JDB_COPIES && !st; k++) {
        struct jdb_file *f = &j->f[k];
        if (!f->c.db) continue;
        st = write_one(f, fn, arg);
        if (st_code(st) != ST_DATA_LOSS) continue;
        give_up(j, f, st);
        st = ST_OK;
    }

    for (int k = 0; k < JDB_COPIES; k++) {
        struct jdb_file *f = &j->f[k];
        if (!f->c.db) continue;
        status_t one = st                        ? st_new(ST_ABORTED, "not whole")
                       : FAULT("journal.commit") ? st_internal("commit (injected)")
                                                 : jcopy_exec(&f->c, "COMMIT");
        if (!one) {
            n++;
            jdb_remember(f);
            continue;
        }
        if (!sqlite3_get_autocommit(f->c.db)) st_drop(jcopy_exec(&f->c, "ROLLBACK"));
        if (st)
            st_drop(one);
        else if (n || st_code(one) == ST_DATA_LOSS)
            give_up(j, f, one); // it is behind the other
        else
            st = one;
    }

    if (!st && !n) st = st_new(ST_DATA_LOSS, "%s.db: neither file can be written", j->spec->name);
    if (st || n == JDB_COPIES) return st;
    RETURN_IF_ERR(mend(j, true));
    return both_open(j) ? ST_OK : st_note(refused(j), "it may have been written, in one file");
}
static status_t write_if_both(struct jdb *j, jdb_fn fn, void *arg) {
    return both_open(j) ? write_both(j, fn, arg) : refused(j);
}
status_t jdb_write(struct jdb *j, jdb_fn fn, void *arg) {
    pthread_mutex_lock(&j->lock);
    status_t st = check_places(j);
    if (!st) st = write_if_both(j, fn, arg);
    if (st_code(st) == ST_DATA_LOSS) { // on what mending made of them
        st_drop(st);
        st = mend(j, true);
        if (!st) st = write_if_both(j, fn, arg);
    }
    if (!both_open(j)) st_drop(mend(j, false));
    pthread_mutex_unlock(&j->lock);
    return st;
}
status_t jdb_read(struct jdb *j, jdb_fn fn, void *arg) {
    pthread_mutex_lock(&j->lock);
    status_t st = both_open(j) ? ST_OK : mend(j, false);
    for (int tries = 0; tries < 3 && !st; tries++) {
        struct jdb_file *f = j->f[0].c.db ? &j->f[0] : &j->f[1];
        st = fn(&f->c, arg);
        if (st_code(st) != ST_DATA_LOSS) break;
        give_up(j, f, st);
        st = mend(j, true);
    }
    pthread_mutex_unlock(&j->lock);
    return st;
}

struct finder {
    void (*found)(void *ctx, const char *file, const char *why);
    void *ctx;
};
static void tell(const struct finder *t, const struct jdb_file *f, const char *why) {
    t->found(t->ctx, strrchr(f->path, '/') + 1, why);
}
// As the next start would find it: its log goes into it, and it is opened anew. Where that cannot
// be (no room, or it is the only one), as it is open.
static void look_again(struct jdb *j, struct jdb_file *f, const struct finder *t) {
    int64_t start = clock_ns();
    status_t st;
    if (both_open(j) &&
        !sqlite3_wal_checkpoint_v2(f->c.db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL)) {
        close_file(j, f);
        st = open_file(j, f, false);
        if (!st && !f->c.db) st = st_new(ST_DATA_LOSS, "it was removed");
    } else {
        sqlite3_db_release_memory(f->c.db); // what the disk has, not what it had
        st = jcopy_check_pages(&f->c);
        if (!st) st = jdb_check_rows(j, f);
    }
    if (st_code(st) == ST_DATA_LOSS) {
        tell(t, f, st_message(st));
        give_up(j, f, st);
    } else if (st && !f->c.db) {
        stay_alone(j, start, st);
    } else {
        st_drop(st);
    }
}
status_t jdb_verify(struct jdb *j, void (*found)(void *ctx, const char *file, const char *why),
                    void *ctx) {
    const struct finder t = {found, ctx};
    pthread_mutex_lock(&j->lock);
    for (int k = 0; k < JDB_COPIES; k++) {
        struct jdb_file *f = &j->f[k];
        status_t st = f->c.db ? jdb_check_place(f) : st_new(ST_UNAVAILABLE, "not made again yet");
        if (st) tell(&t, f, st_message(st));
        st_drop(st);
    }
    status_t st = check_places(j);
    for (int k = 0; k < JDB_COPIES && !st; k++)
        if (j->f[k].c.db) look_again(j, &j->f[k], &t);
    if (!st && both_open(j) && differ(j)) {
        tell(&t, &j->f[j->f[1].seq <= j->f[0].seq], "it is not what the other file is");
        st = in_step(j);
    }
    if (!st && !both_open(j)) st = mend(j, true);
    pthread_mutex_unlock(&j->lock);
    return st;
}

// From one that is found whole; what is not is mended, and tried again.
static status_t back_up(struct jdb *j, const char *made) {
    struct jdb_file *f = j->f[0].c.db ? &j->f[0] : &j->f[1];
    if (!f->c.db) return st_new(ST_DATA_LOSS, "%s.db: no file to read", j->spec->name);
    status_t st = jcopy_check_pages(&f->c);
    if (!st) st = jdb_check_rows(j, f);
    if (st_code(st) == ST_DATA_LOSS) give_up(j, f, st_new(ST_DATA_LOSS, "%s", st_message(st)));
    return st ? st : copy_to(f, made);
}
status_t jdb_backup(struct jdb *j, const char *dir) {
    char path[JDB_PATH], made[JDB_PATH + 8];
    if ((size_t)snprintf(path, sizeof path, "%s/%s.db", dir, j->spec->name) >= sizeof path)
        return st_invalid("%s: too long", dir);
    snprintf(made, sizeof made, "%s.new", path);
    pthread_mutex_lock(&j->lock);
    status_t st = check_places(j);
    for (int tries = 0; tries < 3 && !st; tries++) {
        unlink(made);
        st = back_up(j, made);
        if (st_code(st) != ST_DATA_LOSS || tries == 2) break;
        st_drop(st);
        st = mend(j, true);
    }
    pthread_mutex_unlock(&j->lock);
    if (!st && rename(made, path)) st = st_errno(errno, path);
    if (!st) st = sync_folder(path);
    if (st) unlink(made);
    return st;
}
