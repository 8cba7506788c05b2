// SPDX-License-Identifier: Apache-2.0
// See journal.h. synchronous=NORMAL with a write-ahead log loses at most the last records on power
// failure, never consistency.
#include "scheduler/records/journal.h"

#include <protobuf-c/protobuf-c.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/map.h"
#include "base/metrics.h"
#include "base/vec.h"
#include "scheduler/records/journal_db.h"
#include "scheduler/records/journal_names.h"

enum { SCHEMA = 5 }; // 2: family; 3: model; 4: blob, pin; 5: two files, sums
enum statement {
    S_PUT,
    S_GET,
    S_TOUCH,
    S_REMOVE,
    S_LIST,
    S_FAMILIES,
    S_COUNT,
    S_FAMILY,
    STATEMENT_COUNT
};
struct journal {
    struct jdb *db;
    pthread_mutex_t lock; // of a change of a name in the journal and in their log
    struct names_log *names;
    size_t changes, kept; // lines of the log; rows when the two were last compared
    bool agreed;          // they were
};
#define COLUMNS "key, record, created, family"
static const struct jdb_table tables[] = {
    {"source", COLUMNS}, {"executable", COLUMNS}, {"model", COLUMNS},
    {"blob", COLUMNS},   {"pin", COLUMNS},        {"upload", COLUMNS},
};
// %1$s is the table's name. `used` orders by a clock that only this file reads; as a hint it is in
// no sum, and only where it is read.
static const char *const texts[] = {
    [S_PUT] = "INSERT INTO %1$s (key, record, created, used, family, sum) VALUES (?1, ?2, ?3, ?4, "
              "?5, jdb_sum('%1$s', ?1, ?2, ?3, ?5)) ON CONFLICT (key) DO UPDATE SET record = "
              "excluded.record, created = excluded.created, used = excluded.used, family = "
              "excluded.family, sum = excluded.sum",
    [S_GET] = "SELECT record, jdb_sum('%1$s', key, record, created, family) IS sum FROM %1$s WHERE "
              "key = ?1",
    [S_TOUCH] = "UPDATE %1$s SET used = ?2 WHERE key = ?1",
    [S_REMOVE] = "DELETE FROM %1$s WHERE key = ?1",
    [S_LIST] = "SELECT key, record, jdb_sum('%1$s', key, record, created, family) IS sum, family, "
               "created FROM %1$s ORDER BY used DESC, key LIMIT ?1",
    [S_FAMILIES] =
        "SELECT family, record, jdb_sum('%1$s', key, record, created, family) IS sum FROM "
        "%1$s ORDER BY family",
    [S_COUNT] = "SELECT count(*) FROM %1$s",
    [S_FAMILY] = "SELECT key, used, jdb_sum('%1$s', key, record, created, family) IS sum FROM %1$s "
                 "WHERE family = ?1",
};
static int at(enum journal_table t, enum statement s) {
    return (int)t * STATEMENT_COUNT + (int)s;
}
static const char *statement(int i, char buf[600]) {
    snprintf(buf, 600, texts[i % STATEMENT_COUNT],
             tables[i / STATEMENT_COUNT].name); // NOLINT: the formats are the table above
    return buf;
}

// Tables of an older schema gain what they lack; records from before have no family and are in
// none until they are written again.
static status_t make(sqlite3 *db, int from) {
    static const char *const create[] = {
        "CREATE TABLE IF NOT EXISTS %1$s (key BLOB PRIMARY KEY, record BLOB NOT NULL, created "
        "INTEGER, used INTEGER, family BLOB) WITHOUT ROWID",
        "ALTER TABLE %1$s ADD COLUMN family BLOB",
        "ALTER TABLE %1$s ADD COLUMN sum BLOB",
        "CREATE INDEX IF NOT EXISTS %1$s_family ON %1$s (family)",
    };
    struct jcopy c = {.db = db};
    char text[300];
    for (int t = 0; t < JOURNAL_TABLE_COUNT; t++)
        for (int i = 0; i < 4; i++) {
            if (i == 1 && (from != 1 || t >= JOURNAL_MODEL)) continue;
            snprintf(text, sizeof text, create[i], tables[t].name); // NOLINT: see above
            if (sqlite3_exec(db, text, NULL, NULL, NULL)) return jcopy_status(&c, text);
        }
    return ST_OK;
}
static const struct jdb_spec spec = {
    .name = "journal",
    .at_a_loss =
        "whose uploads in neither were; names come back from names.log, what was uploaded is "
        "found again when it is sent or compiled again",
    .version = SCHEMA,
    .make = make,
    .tables = tables,
    .n_tables = JOURNAL_TABLE_COUNT,
    .n_statements = JOURNAL_TABLE_COUNT * STATEMENT_COUNT,
    .statement = statement,
};

static status_t names_agree(struct journal *j, const char **out_why) MUST_CHECK;
status_t journal_open(const char *dir, struct journal **out) {
    struct journal *j = calloc(1, sizeof *j);
    const char *why;
    if (!j || !(j->names = names_log_new(dir))) {
        free(j);
        return st_oom();
    }
    pthread_mutex_init(&j->lock, NULL);
    status_t st = jdb_open(dir, &spec, &j->db);
    if (!st) st = names_agree(j, &why);
    if (st)
        journal_close(j);
    else
        *out = j;
    return st;
}
void journal_close(struct journal *j) {
    if (!j) return;
    jdb_close(j->db);
    names_log_free(j->names);
    pthread_mutex_destroy(&j->lock);
    free(j);
}
status_t journal_verify(struct journal *j,
                        void (*found)(void *ctx, const char *file, const char *why), void *ctx) {
    const char *why = NULL;
    RETURN_IF_ERR(jdb_verify(j->db, found, ctx));
    pthread_mutex_lock(&j->lock);
    status_t st = names_agree(j, &why);
    pthread_mutex_unlock(&j->lock);
    if (why) found(ctx, strrchr(names_log_path(j->names), '/') + 1, why);
    return st;
}
bool journal_alone(const struct journal *j) {
    return jdb_alone(j->db);
}
status_t journal_backup(struct journal *j, const char *dir) {
    return jdb_backup(j->db, dir);
}

static void say_names(const struct journal *j, const char *why) {
    bool absent = !j->agreed && !strcmp(why, NAMES_LOG_ABSENT); // from before there was one, too
    if (!absent) metric_add(M_CACHE_QUARANTINED, 1);
    log_event(absent ? LOG_WARN : LOG_ERROR, absent ? "journal.behind" : "journal.damaged",
              "file=\"%s\" why=\"%s; it is made again\"", names_log_path(j->names), why);
}
enum { MORE_LINES = 1000 };
// The journal has it. Where the log is not what it was, or long, it is made anew, which has it too.
static void add_name(struct journal *j, const struct name_row *r) {
    const char *why = names_log_moved(j->names);
    bool longer = j->changes > 2 * j->kept + MORE_LINES;
    status_t st = why || longer ? names_agree(j, &why) : names_log_add(j->names, r);
    j->changes++;
    if (st) log_event(LOG_WARN, "journal.names", "why=\"%s\"", st_message(st));
    st_drop(st); // it is made anew at the next change, look or start
}

// ---- what is asked: one struct for all

struct ask {
    enum journal_table t;
    struct digest key, family;
    struct span record;
    int64_t wall_ns, used_ns, limit;
    struct arena *a;
    struct span *out;
    void (*on_record)(void *, struct digest, struct span);
    void (*on_key)(void *, struct digest, int64_t);
    void (*on_row)(void *, const struct name_row *);
    void *ctx;
};
static void bind_digest(sqlite3_stmt *s, int i, const struct digest *d) {
    sqlite3_bind_blob(s, i, d->b, sizeof d->b, SQLITE_STATIC);
}

static status_t put(struct jcopy *c, void *arg) {
    const struct ask *q = arg;
    sqlite3_stmt *s = c->s[at(q->t, S_PUT)];
    bind_digest(s, 1, &q->key);
    sqlite3_bind_blob64(s, 2, q->record.n ? (const void *)q->record.p : "", q->record.n,
                        SQLITE_STATIC);
    sqlite3_bind_int64(s, 3, q->wall_ns);
    sqlite3_bind_int64(s, 4, q->used_ns);
    bind_digest(s, 5, &q->family);
    return jcopy_run(c, at(q->t, S_PUT));
}
MUST_CHECK static status_t put_row(struct journal *j, enum journal_table t, struct digest key,
                                   struct digest family, struct span record, int64_t wall_ns) {
    struct ask q = {.t = t,
                    .key = key,
                    .family = family,
                    .record = record,
                    .wall_ns = wall_ns,
                    .used_ns = clock_wall_ns()};
    return jdb_write(j->db, put, &q);
}

status_t journal_put(struct journal *j, enum journal_table t, struct digest key,
                     struct digest family, struct span record, int64_t wall_ns) {
    if (t != JOURNAL_MODEL) return put_row(j, t, key, family, record, wall_ns);
    const struct name_row r = {key, family, wall_ns, record};
    pthread_mutex_lock(&j->lock);
    status_t st = put_row(j, t, key, family, record, wall_ns);
    if (!st) add_name(j, &r);
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

static status_t get(struct jcopy *c, void *arg) {
    struct ask *q = arg;
    int which = at(q->t, S_GET);
    sqlite3_stmt *s = c->s[which];
    status_t st = ST_OK;
    bind_digest(s, 1, &q->key);
    if (!jcopy_next(c, which, 1, &st))
        return st ? st : st_new(ST_NOT_FOUND, "journal: no such %s", tables[q->t].name);
    size_t n = (size_t)sqlite3_column_bytes(s, 0);
    *q->out = (struct span){arena_dup(q->a, n ? sqlite3_column_blob(s, 0) : "", n), n};
    jcopy_reset(c, which);

    s = c->s[at(q->t, S_TOUCH)];
    bind_digest(s, 1, &q->key);
    sqlite3_bind_int64(s, 2, clock_wall_ns());
    st_drop(jcopy_run(c, at(q->t, S_TOUCH))); // the order of use is only a hint
    return ST_OK;
}
status_t journal_get(struct journal *j, enum journal_table t, struct digest key, struct arena *a,
                     struct span *out) {
    struct ask q = {.t = t, .key = key, .a = a, .out = out};
    return jdb_read(j->db, get, &q);
}

static status_t drop(struct jcopy *c, void *arg) {
    const struct ask *q = arg;
    bind_digest(c->s[at(q->t, S_REMOVE)], 1, &q->key);
    return jcopy_run(c, at(q->t, S_REMOVE));
}
status_t journal_remove(struct journal *j, enum journal_table t, struct digest key) {
    struct ask q = {.t = t, .key = key};
    if (t != JOURNAL_MODEL) return jdb_write(j->db, drop, &q);
    const struct name_row r = {.key = key, .wall_ns = clock_wall_ns()};
    pthread_mutex_lock(&j->lock);
    status_t st = jdb_write(j->db, drop, &q);
    if (!st) add_name(j, &r);
    pthread_mutex_unlock(&j->lock);
    return st;
}

static void tell_row(const struct ask *q, sqlite3_stmt *s, struct digest key, struct span record) {
    struct name_row r = {.key = key, .record = record, .wall_ns = sqlite3_column_int64(s, 4)};
    if (sqlite3_column_bytes(s, 3) == sizeof r.family.b)
        memcpy(r.family.b, sqlite3_column_blob(s, 3), sizeof r.family.b);
    q->on_row(q->ctx, &r);
}
// Rows of a statement whose first column is a key; `sound` says which is the sum's. Looked at
// before any is told of, since what was told cannot be taken back.
static status_t rows(struct jcopy *c, struct ask *q, enum statement which) {
    int i = at(q->t, which);
    sqlite3_stmt *s = c->s[i];
    status_t st = ST_OK;
    for (int pass = 0; pass < 2 && !st; pass++) {
        if (which == S_LIST)
            sqlite3_bind_int64(s, 1, q->limit > 0 ? q->limit : -1);
        else if (which == S_FAMILY)
            bind_digest(s, 1, &q->family);
        while (jcopy_next(c, i, 2, &st)) {
            struct digest d;
            if (!pass || sqlite3_column_bytes(s, 0) != sizeof d.b) continue;
            memcpy(d.b, sqlite3_column_blob(s, 0), sizeof d.b);
            struct span record = {sqlite3_column_blob(s, 1), (size_t)sqlite3_column_bytes(s, 1)};
            if (which == S_FAMILY)
                q->on_key(q->ctx, d, sqlite3_column_int64(s, 1));
            else if (q->on_row)
                tell_row(q, s, d, record);
            else
                q->on_record(q->ctx, d, record);
        }
    }
    return st;
}
static status_t list(struct jcopy *c, void *arg) {
    return rows(c, arg, S_LIST);
}
status_t journal_list(struct journal *j, enum journal_table t, int64_t limit,
                      void (*fn)(void *, struct digest, struct span), void *ctx) {
    struct ask q = {.t = t, .limit = limit, .on_record = fn, .ctx = ctx};
    return jdb_read(j->db, list, &q);
}
static status_t families(struct jcopy *c, void *arg) {
    return rows(c, arg, S_FAMILIES);
}
status_t journal_families(struct journal *j, enum journal_table t,
                          void (*fn)(void *, struct digest, struct span), void *ctx) {
    struct ask q = {.t = t, .on_record = fn, .ctx = ctx};
    return jdb_read(j->db, families, &q);
}
static status_t family_rows(struct jcopy *c, void *arg) {
    return rows(c, arg, S_FAMILY);
}
status_t journal_family(struct journal *j, enum journal_table t, struct digest family,
                        void (*fn)(void *, struct digest, int64_t), void *ctx) {
    struct ask q = {.t = t, .family = family, .on_key = fn, .ctx = ctx};
    return jdb_read(j->db, family_rows, &q);
}

static status_t count(struct jcopy *c, void *arg) {
    struct ask *q = arg;
    int i = at(q->t, S_COUNT);
    status_t st = ST_OK;
    while (jcopy_next(c, i, -1, &st)) // one row
        q->limit = sqlite3_column_int64(c->s[i], 0);
    return st;
}
int64_t journal_count(struct journal *j, enum journal_table t) {
    struct ask q = {.t = t};
    st_drop(jdb_read(j->db, count, &q));
    return q.limit;
}

// ---- names and their log

struct agree {
    struct arena *a;
    struct name_rows rows;       // the journal's
    struct smap at;              // of a key in them, from 1
    size_t live, same, restored; // keys of the log; with the journal's record; brought back
};
static void add_row(void *ctx, const struct name_row *r) {
    struct agree *g = ctx;
    struct name_row own = *r;
    own.record = (struct span){arena_dup(g->a, r->record.p, r->record.n), r->record.n};
    avec_push(g->a, &g->rows, own);
    smap_put(&g->at, digest_str(&r->key), (void *)(uintptr_t)g->rows.n);
}
static bool same_record(const struct name_row *a, const struct name_row *b) {
    return a->record.n == b->record.n && !memcmp(a->record.p, b->record.p, a->record.n);
}
// A change that the log has and the journal has not, or has an older one of: lost with both of its
// files. (Between the two writes of one change a process may die: that was not answered, whichever
// of them has it.)
static status_t restore_one(struct journal *j, struct agree *g, const struct name_row *r) {
    size_t k = (size_t)(uintptr_t)smap_get(&g->at, digest_str(&r->key));
    struct name_row *own = k ? &g->rows.v[k - 1] : NULL;
    if (own && r->wall_ns <= own->wall_ns) return ST_OK;
    if (!own && !r->record.n) return ST_OK;
    g->restored++;
    if (!r->record.n) {
        struct ask q = {.t = JOURNAL_MODEL, .key = r->key};
        own->record.n = 0;
        return jdb_write(j->db, drop, &q);
    }
    if (own)
        *own = *r;
    else
        add_row(g, r);
    return put_row(j, JOURNAL_MODEL, r->key, r->family, r->record, r->wall_ns);
}
static status_t restore(struct journal *j, struct agree *g, const struct name_rows *log) {
    for (size_t i = 0; i < log->n; i++) {
        const struct name_row *r = &log->v[i];
        size_t k = (size_t)(uintptr_t)smap_get(&g->at, digest_str(&r->key));
        g->live += r->record.n > 0;
        g->same += k && r->record.n && same_record(r, &g->rows.v[k - 1]);
    }
    status_t st = ST_OK;
    for (size_t i = 0; i < log->n && !st && (!log->why || jdb_lost(j->db)); i++)
        st = restore_one(j, g, &log->v[i]);
    if (g->restored)
        log_event(LOG_WARN, "journal.names", "restored=%zu file=\"%s\"", g->restored,
                  names_log_path(j->names));
    return st;
}
// *out_why: what was wrong with the log, which was told; or NULL. An error: the journal's.
static status_t names_agree(struct journal *j, const char **out_why) {
    struct arena a = {0};
    struct agree g = {.a = &a};
    struct name_rows log;
    struct ask q = {.t = JOURNAL_MODEL, .limit = -1, .on_row = add_row, .ctx = &g};
    const char *why = j->agreed ? names_log_moved(j->names) : NULL;
    status_t st = jdb_read(j->db, list, &q), unread = names_log_read(j->names, &a, &log);
    size_t had = g.rows.n;

    if (unread) log.why = "it cannot be read";
    if (log.why) why = log.why;
    if (!st) st = restore(j, &g, &log);
    if (!why && had > g.same + 1) why = "it lacks names that the journal has";
    if (!had && !j->agreed && log.why && !strcmp(log.why, NAMES_LOG_ABSENT))
        why = NULL; // a new folder
    if (why) say_names(j, why);

    bool fine = !why && !log.why && !g.restored && g.same == had && g.live == had;
    if (!st && (!fine || log.changes > 2 * had + MORE_LINES)) {
        status_t written = names_log_write(j->names, &g.rows);
        if (written) log_event(LOG_WARN, "journal.names", "why=\"%s\"", st_message(written));
        st_drop(written);
        log.changes = had;
    }

    j->changes = log.changes;
    j->kept = had;
    j->agreed = true;
    *out_why = why;
    st_drop(unread);
    smap_done(&g.at);
    arena_done(&a);
    return st;
}
