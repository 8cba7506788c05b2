// SPDX-License-Identifier: Apache-2.0
// See journal_jobs.h. One connection under one lock. Rows of a job: its brief (what lists show),
// its result, its log. `ended` of a suite counts its jobs with a result, so that unfinished suites
// and those to be removed are found without looking at jobs.
#include "scheduler/journal_jobs.h"

#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "proto/hlod.pb-c.h"
#include "scheduler/error.h"
#include "scheduler/journal.h"

enum { SCHEMA = 1 };
enum statement {
    S_BEGIN,
    S_COMMIT,
    S_ROLLBACK,
    S_FIND_KEY,
    S_ADD_SUITE,
    S_ADD_JOB,
    S_END_JOB,
    S_END_SUITE,
    S_UPDATE_JOB,
    S_OPEN_SUITES,
    S_SUITE_JOBS,
    S_GET,
    S_LIST,
    S_REQUESTS,
    S_RESULTS,
    S_TOTALS,
    S_OLDEST,
    S_REMOVE_JOBS,
    S_REMOVE_SUITE,
    STATEMENT_COUNT
};
static const char *const texts[] = {
    [S_BEGIN] = "BEGIN IMMEDIATE",
    [S_COMMIT] = "COMMIT",
    [S_ROLLBACK] = "ROLLBACK",
    [S_FIND_KEY] = "SELECT id, request, jobs FROM suite WHERE key = ?1",
    [S_ADD_SUITE] = "INSERT INTO suite (tenant, key, request, jobs, ended, created, bytes) "
                    "VALUES (?1, ?2, ?3, ?4, 0, ?5, ?6)",
    [S_ADD_JOB] = "INSERT INTO job (suite, n, brief) VALUES (?1, ?2, ?3)",
    [S_END_JOB] = "UPDATE job SET brief = ?3, result = ?4, log = ?5 "
                  "WHERE suite = ?1 AND n = ?2 AND result IS NULL",
    [S_END_SUITE] = "UPDATE suite SET ended = ended + 1, finished = ?2, bytes = bytes + ?3 "
                    "WHERE id = ?1",
    [S_UPDATE_JOB] = "UPDATE job SET brief = ?3, log = ?4 "
                     "WHERE suite = ?1 AND n = ?2 AND result IS NULL",
    [S_OPEN_SUITES] = "SELECT id, tenant, request, jobs, created FROM suite WHERE ended < jobs "
                      "ORDER BY id",
    [S_SUITE_JOBS] = "SELECT n, brief, log, result IS NOT NULL FROM job WHERE suite = ?1 "
                     "ORDER BY n",
    [S_GET] = "SELECT brief, result, log FROM job JOIN suite ON suite.id = job.suite "
              "WHERE suite = ?1 AND n = ?2 AND (?3 IS NULL OR tenant = ?3)",
    [S_LIST] = "SELECT suite, n, brief, result IS NOT NULL FROM job JOIN suite ON "
               "suite.id = job.suite WHERE (?1 IS NULL OR tenant = ?1) AND (?2 = 0 OR suite = ?2) "
               "AND (?3 = 0 OR suite < ?3 OR (suite = ?3 AND n > ?4)) "
               "ORDER BY suite DESC, n LIMIT ?5",
    [S_REQUESTS] = "SELECT request FROM suite",
    [S_RESULTS] = "SELECT result FROM job WHERE result IS NOT NULL",
    [S_TOTALS] = "SELECT total(jobs), total(bytes) FROM suite WHERE ended = jobs",
    [S_OLDEST] = "SELECT id, jobs, bytes, finished FROM suite WHERE ended = jobs "
                 "ORDER BY finished, id LIMIT 1",
    [S_REMOVE_JOBS] = "DELETE FROM job WHERE suite = ?1",
    [S_REMOVE_SUITE] = "DELETE FROM suite WHERE id = ?1",
};
struct journal_jobs {
    sqlite3 *db;
    pthread_mutex_t lock;
    sqlite3_stmt *s[STATEMENT_COUNT];
};

static status_t sql_status(struct journal_jobs *j, const char *what) MUST_CHECK;
static status_t sql_status(struct journal_jobs *j, const char *what) {
    int code = sqlite3_errcode(j->db) & 0xff;
    return error_of_store(st_new(code == SQLITE_FULL ? ST_RESOURCE_EXHAUSTED : ST_INTERNAL,
                                 "jobs.db: %s: %s", what, sqlite3_errmsg(j->db)));
}

// ---- open

static status_t exec(struct journal_jobs *j, const char *sql) {
    return sqlite3_exec(j->db, sql, NULL, NULL, NULL) ? sql_status(j, sql) : ST_OK;
}

static int first_int(struct journal_jobs *j, const char *sql) {
    sqlite3_stmt *s;
    if (sqlite3_prepare_v2(j->db, sql, -1, &s, NULL)) return -1;
    int v = sqlite3_step(s) == SQLITE_ROW ? sqlite3_column_int(s, 0) : -1;
    sqlite3_finalize(s);
    return v;
}

static status_t open_db(struct journal_jobs *j, const char *path, bool alone) {
    if (sqlite3_open_v2(path, &j->db,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL))
        return sql_status(j, "open");
    sqlite3_busy_timeout(j->db, 2000);
    if (alone) RETURN_IF_ERR(journal_alone(j->db));
    static const char *const setup[] = {
        "PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL",
        "CREATE TABLE IF NOT EXISTS suite (id INTEGER PRIMARY KEY AUTOINCREMENT, tenant TEXT NOT "
        "NULL, key BLOB UNIQUE, request BLOB NOT NULL, jobs INTEGER NOT NULL, ended INTEGER NOT "
        "NULL, created INTEGER NOT NULL, finished INTEGER, bytes INTEGER NOT NULL)",
        "CREATE TABLE IF NOT EXISTS job (suite INTEGER NOT NULL, n INTEGER NOT NULL, brief BLOB "
        "NOT NULL, result BLOB, log BLOB, PRIMARY KEY (suite, n)) WITHOUT ROWID",
        "CREATE INDEX IF NOT EXISTS suite_open ON suite (id) WHERE ended < jobs"};
    for (size_t i = 0; i < sizeof setup / sizeof *setup; i++)
        RETURN_IF_ERR(exec(j, setup[i]));
    RETURN_IF_ERR(journal_check_pages(j->db));
    int version = first_int(j, "PRAGMA user_version");
    if (version > SCHEMA || version < 0)
        return st_new(ST_FAILED_PRECONDITION,
                      "jobs.db has schema %d, this build knows %d: made by a newer hlod", version,
                      SCHEMA);
    char text[60];
    snprintf(text, sizeof text, "PRAGMA user_version=%d", SCHEMA);
    if (version < SCHEMA) RETURN_IF_ERR(exec(j, text));
    for (int s = 0; s < STATEMENT_COUNT; s++)
        if (sqlite3_prepare_v3(j->db, texts[s], -1, SQLITE_PREPARE_PERSISTENT, &j->s[s], NULL))
            return sql_status(j, texts[s]);
    return ST_OK;
}

status_t journal_jobs_open(const char *dir, struct journal_jobs **out) {
    struct journal_jobs *j = calloc(1, sizeof *j);
    if (!j) return st_oom();
    pthread_mutex_init(&j->lock, NULL);
    char path[4096];
    snprintf(path, sizeof path, "%s/jobs.db", dir);
    status_t st = open_db(j, path, false);
    if (st && journal_needs_room(j->db)) {
        st_drop(st);
        sqlite3_close(j->db);
        st = open_db(j, path, true);
    }
    if (st) {
        int code = sqlite3_errcode(j->db) & 0xff;
        if (st_code(st) == ST_DATA_LOSS || code == SQLITE_CORRUPT || code == SQLITE_NOTADB)
            st = st_note(st,
                         "%s is damaged: bring it back from a copy, or move it away and lose the "
                         "batch jobs in it",
                         path);
        journal_jobs_close(j);
        return st;
    }
    *out = j;
    return ST_OK;
}

void journal_jobs_close(struct journal_jobs *j) {
    if (!j) return;
    for (int s = 0; s < STATEMENT_COUNT; s++)
        sqlite3_finalize(j->s[s]);
    sqlite3_close(j->db);
    pthread_mutex_destroy(&j->lock);
    free(j);
}

// ---- statements

static void reset(sqlite3_stmt *s) {
    sqlite3_reset(s);
    sqlite3_clear_bindings(s);
}
// Runs a statement that gives no rows.
static status_t run(struct journal_jobs *j, enum statement which) {
    sqlite3_stmt *s = j->s[which];
    int code = sqlite3_step(s);
    status_t st = code == SQLITE_DONE ? ST_OK : sql_status(j, texts[which]);
    reset(s);
    return st;
}
static void bind_span(sqlite3_stmt *s, int at, struct span v) {
    sqlite3_bind_blob64(s, at, v.n ? (const void *)v.p : "", v.n, SQLITE_STATIC);
}
static struct span column(sqlite3_stmt *s, int at) {
    return (struct span){sqlite3_column_blob(s, at), (size_t)sqlite3_column_bytes(s, at)};
}
static void bind_tenant(sqlite3_stmt *s, int at, const char *tenant) {
    if (tenant) sqlite3_bind_text(s, at, tenant, -1, SQLITE_STATIC);
}

// Ends a transaction: takes st. Needs the lock.
static status_t end(struct journal_jobs *j, status_t st) {
    if (!st && FAULT("jobs.commit")) st = st_new(ST_INTERNAL, "jobs.db: commit (injected)");
    if (!st) st = run(j, S_COMMIT);
    if (st) st_drop(run(j, S_ROLLBACK)); // it may have been rolled back already
    return st;
}

// ---- writing

static status_t find_key(struct journal_jobs *j, struct suite_record *r, bool *out_existed) {
    if (digest_is_zero(r->key)) return ST_OK;
    sqlite3_stmt *s = j->s[S_FIND_KEY];
    sqlite3_bind_blob(s, 1, r->key.b, sizeof r->key.b, SQLITE_STATIC);
    int code = sqlite3_step(s);
    status_t st = ST_OK;
    if (code == SQLITE_ROW) {
        struct span old = column(s, 1);
        if (old.n == r->request.n && !memcmp(old.p, r->request.p, old.n)) {
            r->id = sqlite3_column_int64(s, 0);
            r->n_jobs = (uint32_t)sqlite3_column_int64(s, 2);
            *out_existed = true;
        } else
            st = st_reason(st_new(ST_ALREADY_EXISTS,
                                  "the idempotency key was used for another suite (%lld)",
                                  (long long)sqlite3_column_int64(s, 0)),
                           HLOD__V1__REASON__REASON_KEY_REUSED);
    } else if (code != SQLITE_DONE)
        st = sql_status(j, "key");
    reset(s);
    return st;
}

static status_t add(struct journal_jobs *j, struct suite_record *r) {
    sqlite3_stmt *s = j->s[S_ADD_SUITE];
    int64_t bytes = (int64_t)r->request.n;
    for (uint32_t i = 0; i < r->n_jobs; i++)
        bytes += (int64_t)r->briefs[i].n;
    sqlite3_bind_text(s, 1, r->tenant, -1, SQLITE_STATIC);
    if (!digest_is_zero(r->key)) sqlite3_bind_blob(s, 2, r->key.b, sizeof r->key.b, SQLITE_STATIC);
    bind_span(s, 3, r->request);
    sqlite3_bind_int64(s, 4, r->n_jobs);
    sqlite3_bind_int64(s, 5, r->created_ns);
    sqlite3_bind_int64(s, 6, bytes);
    RETURN_IF_ERR(run(j, S_ADD_SUITE));
    int64_t id = sqlite3_last_insert_rowid(j->db);
    for (uint32_t i = 0; i < r->n_jobs; i++) {
        if (FAULT("jobs.add")) return st_new(ST_INTERNAL, "jobs.db: add (injected)");
        s = j->s[S_ADD_JOB];
        sqlite3_bind_int64(s, 1, id);
        sqlite3_bind_int64(s, 2, i + 1);
        bind_span(s, 3, r->briefs[i]);
        RETURN_IF_ERR(run(j, S_ADD_JOB));
    }
    r->id = id;
    return ST_OK;
}

status_t journal_suite_add(struct journal_jobs *j, struct suite_record *r, bool *out_existed) {
    bool existed = false;
    pthread_mutex_lock(&j->lock);
    status_t st = run(j, S_BEGIN);
    if (!st) {
        st = find_key(j, r, &existed);
        if (!st && !existed) st = add(j, r);
        st = end(j, st);
    }
    pthread_mutex_unlock(&j->lock);
    if (!st) *out_existed = existed;
    return st;
}

static status_t write_one(struct journal_jobs *j, const struct job_record *r, bool *out_kept) {
    enum statement which = r->result.n ? S_END_JOB : S_UPDATE_JOB;
    sqlite3_stmt *s = j->s[which];
    if (FAULT("jobs.write")) return st_new(ST_INTERNAL, "jobs.db: write (injected)");
    sqlite3_bind_int64(s, 1, r->suite);
    sqlite3_bind_int64(s, 2, r->n);
    bind_span(s, 3, r->brief);
    if (which == S_END_JOB) bind_span(s, 4, r->result);
    bind_span(s, which == S_END_JOB ? 5 : 4, r->log);
    RETURN_IF_ERR(run(j, which));
    *out_kept = sqlite3_changes(j->db) == 0;
    if (*out_kept || which != S_END_JOB) return ST_OK;
    s = j->s[S_END_SUITE];
    sqlite3_bind_int64(s, 1, r->suite);
    sqlite3_bind_int64(s, 2, r->finished_ns);
    sqlite3_bind_int64(s, 3, (int64_t)(r->result.n + r->log.n));
    return run(j, S_END_SUITE);
}

status_t journal_jobs_write(struct journal_jobs *j, const struct job_record *r, size_t n,
                            bool *out_kept) {
    pthread_mutex_lock(&j->lock);
    status_t st = run(j, S_BEGIN);
    if (!st) {
        for (size_t i = 0; i < n && !st; i++)
            st = write_one(j, &r[i], &out_kept[i]);
        st = end(j, st);
    }
    pthread_mutex_unlock(&j->lock);
    return st;
}

// ---- reading

static status_t read_jobs(struct journal_jobs *j, int64_t suite,
                          const struct journal_jobs_reader *r) {
    sqlite3_stmt *s = j->s[S_SUITE_JOBS];
    sqlite3_bind_int64(s, 1, suite);
    int code;
    while ((code = sqlite3_step(s)) == SQLITE_ROW) {
        struct job_record x = {.suite = suite,
                               .n = (uint32_t)sqlite3_column_int64(s, 0),
                               .brief = column(s, 1),
                               .log = column(s, 2),
                               .finished_ns = sqlite3_column_int(s, 3)};
        r->job(r->ctx, &x);
    }
    status_t st = code == SQLITE_DONE ? ST_OK : sql_status(j, "jobs");
    reset(s);
    return st;
}

status_t journal_jobs_unfinished(struct journal_jobs *j, const struct journal_jobs_reader *r) {
    pthread_mutex_lock(&j->lock);
    sqlite3_stmt *s = j->s[S_OPEN_SUITES];
    int code = SQLITE_DONE;
    status_t st = ST_OK;
    while (!st && (code = sqlite3_step(s)) == SQLITE_ROW) {
        struct suite_record x = {.id = sqlite3_column_int64(s, 0),
                                 .tenant = (const char *)sqlite3_column_text(s, 1),
                                 .request = column(s, 2),
                                 .n_jobs = (uint32_t)sqlite3_column_int64(s, 3),
                                 .created_ns = sqlite3_column_int64(s, 4)};
        r->suite(r->ctx, &x);
        st = read_jobs(j, x.id, r);
    }
    if (!st && code != SQLITE_DONE) st = sql_status(j, "suites");
    reset(s);
    pthread_mutex_unlock(&j->lock);
    return st;
}

status_t journal_job_get(struct journal_jobs *j, const char *tenant, int64_t suite, uint32_t n,
                         enum journal_job_part part, struct arena *a, struct span *out,
                         bool *out_ended) {
    pthread_mutex_lock(&j->lock);
    sqlite3_stmt *s = j->s[S_GET];
    sqlite3_bind_int64(s, 1, suite);
    sqlite3_bind_int64(s, 2, n);
    bind_tenant(s, 3, tenant);
    status_t st = ST_OK;
    int code = sqlite3_step(s);
    if (code == SQLITE_ROW) {
        struct span v = column(s, (int)part);
        *out = (struct span){arena_dup(a, v.n ? (const void *)v.p : "", v.n), v.n};
        *out_ended = sqlite3_column_type(s, JOB_PART_RESULT) != SQLITE_NULL;
    } else
        st = code == SQLITE_DONE
                 ? st_reason(st_new(ST_NOT_FOUND, "no job %lld.%u here", (long long)suite, n),
                             HLOD__V1__REASON__REASON_JOB_NOT_FOUND)
                 : sql_status(j, "get");
    reset(s);
    pthread_mutex_unlock(&j->lock);
    return st;
}

status_t journal_jobs_list(struct journal_jobs *j, const struct jobs_query *q,
                           void (*fn)(void *, const struct job_record *), void *ctx) {
    pthread_mutex_lock(&j->lock);
    sqlite3_stmt *s = j->s[S_LIST];
    bind_tenant(s, 1, q->tenant);
    sqlite3_bind_int64(s, 2, q->suite);
    sqlite3_bind_int64(s, 3, q->after_suite);
    sqlite3_bind_int64(s, 4, q->after_n);
    sqlite3_bind_int64(s, 5, q->limit);
    int code;
    while ((code = sqlite3_step(s)) == SQLITE_ROW) {
        struct job_record x = {.suite = sqlite3_column_int64(s, 0),
                               .n = (uint32_t)sqlite3_column_int64(s, 1),
                               .brief = column(s, 2),
                               .finished_ns = sqlite3_column_int(s, 3)};
        fn(ctx, &x);
    }
    status_t st = code == SQLITE_DONE ? ST_OK : sql_status(j, "list");
    reset(s);
    pthread_mutex_unlock(&j->lock);
    return st;
}

static status_t each_row(struct journal_jobs *j, enum statement which,
                         void (*fn)(void *, struct span), void *ctx) {
    int code;
    while ((code = sqlite3_step(j->s[which])) == SQLITE_ROW)
        fn(ctx, column(j->s[which], 0));
    status_t st = code == SQLITE_DONE ? ST_OK : sql_status(j, "contents");
    reset(j->s[which]);
    return st;
}
status_t journal_jobs_contents(struct journal_jobs *j, void (*request)(void *, struct span),
                               void (*result)(void *, struct span), void *ctx) {
    pthread_mutex_lock(&j->lock);
    status_t st = each_row(j, S_REQUESTS, request, ctx);
    if (!st) st = each_row(j, S_RESULTS, result, ctx);
    pthread_mutex_unlock(&j->lock);
    return st;
}

// ---- removal

struct oldest {
    int64_t id, jobs, bytes, finished;
};
static status_t oldest_ended(struct journal_jobs *j, struct oldest *out) { // id 0: none
    sqlite3_stmt *s = j->s[S_OLDEST];
    int code = sqlite3_step(s);
    *out = (struct oldest){0};
    if (code == SQLITE_ROW)
        *out = (struct oldest){sqlite3_column_int64(s, 0), sqlite3_column_int64(s, 1),
                               sqlite3_column_int64(s, 2), sqlite3_column_int64(s, 3)};
    status_t st = code == SQLITE_ROW || code == SQLITE_DONE ? ST_OK : sql_status(j, "oldest");
    reset(s);
    return st;
}

static status_t trim(struct journal_jobs *j, const struct jobs_retention *keep, int64_t *removed) {
    sqlite3_stmt *s = j->s[S_TOTALS];
    int64_t jobs = 0, bytes = 0;
    if (sqlite3_step(s) == SQLITE_ROW) {
        jobs = sqlite3_column_int64(s, 0);
        bytes = sqlite3_column_int64(s, 1);
    }
    reset(s);
    for (;;) {
        struct oldest o;
        RETURN_IF_ERR(oldest_ended(j, &o));
        bool over = (keep->jobs && jobs > keep->jobs) || (keep->bytes && bytes > keep->bytes) ||
                    (keep->before_ns && o.finished < keep->before_ns);
        if (!o.id || !over) return ST_OK;
        static const enum statement both[] = {S_REMOVE_JOBS, S_REMOVE_SUITE};
        for (int i = 0; i < 2; i++) {
            sqlite3_bind_int64(j->s[both[i]], 1, o.id);
            RETURN_IF_ERR(run(j, both[i]));
        }
        jobs -= o.jobs;
        bytes -= o.bytes;
        *removed += o.jobs;
    }
}

status_t journal_jobs_trim(struct journal_jobs *j, const struct jobs_retention *keep,
                           int64_t *out_removed) {
    int64_t removed = 0;
    pthread_mutex_lock(&j->lock);
    status_t st = run(j, S_BEGIN);
    if (!st) st = end(j, trim(j, keep, &removed));
    pthread_mutex_unlock(&j->lock);
    if (!st) *out_removed = removed;
    return st;
}
