// SPDX-License-Identifier: Apache-2.0
// See journal_jobs.h. Rows of a job: its brief (what lists show),
// its result, its log. `ended` of a suite counts its jobs with a result, so that unfinished suites
// and those to be removed are found without looking at jobs. `finished` of a suite that has jobs
// without a result, and is another node's by now, is no time but the text "moved to NODE": a
// journal of this schema had the column already, and nothing reads it as a time before all jobs
// have ended.
#include "scheduler/suite/journal_jobs.h"

#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "proto/reason.h"
#include "scheduler/records/journal_db.h"

enum { SCHEMA = 2 }; // 2: two files, sums
enum statement {
    S_FIND_KEY,
    S_ADD_SUITE,
    S_SEQUENCE,
    S_SET_SEQUENCE,
    S_SUM_SUITE,
    S_ADD_JOB,
    S_END_JOB,
    S_END_SUITE,
    S_UPDATE_JOB,
    S_OPEN_SUITES,
    S_SUITE_JOBS,
    S_SUITE,
    S_SUITE_ALL,
    S_GET,
    S_LIST,
    S_REQUESTS,
    S_BRIEFS,
    S_RESULTS,
    S_TOTALS,
    S_OLDEST,
    S_ENDED,
    S_MOVE,
    S_MOVED,
    S_REMOVE_JOBS,
    S_REMOVE_SUITE,
    STATEMENT_COUNT
};
// What is read has a last column that says whether the row is as it was written.
#define SOUND_SUITE                                                                                \
    "jdb_sum('suite', suite.id, tenant, key, request, jobs, ended, created, finished, bytes) IS "  \
    "suite.sum"
#define MOVED_TO  "CASE WHEN typeof(finished) = 'text' THEN substr(finished, 10) END"
#define SOUND_JOB "jdb_sum('job', job.suite, job.n, brief, result, log) IS job.sum"
static const char *const texts[] = {
    [S_FIND_KEY] = "SELECT id, request, jobs, " SOUND_SUITE " FROM suite WHERE key = ?1",
    [S_ADD_SUITE] = "INSERT INTO suite (id, tenant, key, request, jobs, ended, created, bytes) "
                    "VALUES (?7, ?1, ?2, ?3, ?4, 0, ?5, ?6)",
    // The last id of our own: SQLite counts on from the greatest, which may be a shared one.
    [S_SEQUENCE] = "SELECT max(coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'suite' AND "
                   "seq < 1 << 52), 0), coalesce((SELECT max(id) FROM suite WHERE id < 1 << 52), "
                   "0))",
    [S_SET_SEQUENCE] = "UPDATE sqlite_sequence SET seq = ?1 WHERE name = 'suite'",
    [S_SUM_SUITE] = "UPDATE suite SET sum = jdb_sum('suite', id, tenant, key, request, jobs, "
                    "ended, created, finished, bytes) WHERE id = ?1",
    [S_ADD_JOB] = "INSERT INTO job (suite, n, brief, sum) VALUES (?1, ?2, ?3, jdb_sum('job', ?1, "
                  "?2, ?3, NULL, NULL))",
    [S_END_JOB] = "UPDATE job SET brief = ?3, result = ?4, log = ?5, sum = jdb_sum('job', ?1, ?2, "
                  "?3, ?4, ?5) WHERE suite = ?1 AND n = ?2 AND result IS NULL",
    [S_END_SUITE] = "UPDATE suite SET ended = ended + 1, finished = ?2, bytes = bytes + ?3 "
                    "WHERE id = ?1",
    [S_UPDATE_JOB] = "UPDATE job SET brief = ?3, log = ?4, sum = jdb_sum('job', ?1, ?2, ?3, NULL, "
                     "?4) WHERE suite = ?1 AND n = ?2 AND result IS NULL",
    [S_OPEN_SUITES] = "SELECT id, tenant, request, jobs, created, " MOVED_TO ", " SOUND_SUITE
                      " FROM suite WHERE ended < jobs ORDER BY id",
    [S_SUITE_JOBS] = "SELECT n, brief, log, result IS NOT NULL, " SOUND_JOB
                     " FROM job WHERE suite = ?1 ORDER BY n",
    [S_SUITE] = "SELECT id, tenant, request, jobs, created, key, jobs - ended, " SOUND_SUITE
                " FROM suite WHERE id = ?1",
    [S_SUITE_ALL] = "SELECT n, brief, log, result, " SOUND_JOB " FROM job WHERE suite = ?1 ORDER "
                    "BY n",
    [S_GET] =
        "SELECT brief, result, log, " SOUND_JOB " FROM job JOIN suite ON suite.id = job.suite "
        "WHERE suite = ?1 AND n = ?2 AND (?3 IS NULL OR tenant = ?3)",
    [S_LIST] = "SELECT suite, n, brief, result IS NOT NULL, " SOUND_JOB " FROM job JOIN suite ON "
               "suite.id = job.suite WHERE (?1 IS NULL OR tenant = ?1) AND ((?2 = 0 AND "
               "typeof(finished) != 'text') OR suite = ?2) "
               "AND (?3 = 0 OR suite < ?3 OR (suite = ?3 AND n > ?4)) "
               "ORDER BY suite DESC, n LIMIT ?5",
    [S_REQUESTS] = "SELECT request, " SOUND_SUITE " FROM suite",
    [S_BRIEFS] = "SELECT brief, " SOUND_JOB " FROM job WHERE result IS NULL",
    [S_RESULTS] = "SELECT result, " SOUND_JOB " FROM job WHERE result IS NOT NULL",
    [S_TOTALS] = "SELECT total(jobs), total(bytes) FROM suite WHERE ended = jobs",
    [S_OLDEST] = "SELECT id, jobs, bytes, finished FROM suite WHERE ended = jobs "
                 "ORDER BY finished, id LIMIT 1",
    [S_ENDED] = "SELECT id FROM suite WHERE id >= 1 << 52 AND ended = jobs AND finished >= ?1",
    [S_MOVE] = "UPDATE suite SET finished = 'moved to ' || ?2 WHERE id = ?1 AND ended < jobs",
    [S_MOVED] = "SELECT id, " MOVED_TO ", " SOUND_SUITE
                " FROM suite WHERE ended < jobs AND typeof(finished) = 'text'",
    [S_REMOVE_JOBS] = "DELETE FROM job WHERE suite = ?1",
    [S_REMOVE_SUITE] = "DELETE FROM suite WHERE id = ?1",
};
#define SUITE_COLUMNS "id, tenant, key, request, jobs, ended, created, finished, bytes"
#define JOB_COLUMNS   "suite, n, brief, result, log"
static const struct jdb_table tables[] = {{"suite", SUITE_COLUMNS}, {"job", JOB_COLUMNS}};
struct journal_jobs {
    struct jdb *db;
};

// ---- open

static const char *statement(int i, UNUSED char buf[600]) {
    return texts[i];
}
static status_t make(sqlite3 *db, int from) {
    static const char *const create[] = {
        "CREATE TABLE IF NOT EXISTS suite (id INTEGER PRIMARY KEY AUTOINCREMENT, tenant TEXT NOT "
        "NULL, key BLOB UNIQUE, request BLOB NOT NULL, jobs INTEGER NOT NULL, ended INTEGER NOT "
        "NULL, created INTEGER NOT NULL, finished INTEGER, bytes INTEGER NOT NULL)",
        "CREATE TABLE IF NOT EXISTS job (suite INTEGER NOT NULL, n INTEGER NOT NULL, brief BLOB "
        "NOT NULL, result BLOB, log BLOB, PRIMARY KEY (suite, n)) WITHOUT ROWID",
        "CREATE INDEX IF NOT EXISTS suite_open ON suite (id) WHERE ended < jobs",
        "ALTER TABLE suite ADD COLUMN sum BLOB", "ALTER TABLE job ADD COLUMN sum BLOB"};
    struct jcopy c = {.db = db};
    (void)from; // 1 lacks the sums alone
    for (size_t i = 0; i < sizeof create / sizeof *create; i++)
        if (sqlite3_exec(db, create[i], NULL, NULL, NULL)) return jcopy_status(&c, create[i]);
    return ST_OK;
}
static const struct jdb_spec spec = {
    .name = "jobs",
    .at_a_loss = "batch jobs and results that were in neither",
    .version = SCHEMA,
    .full_sync = true,
    .make = make,
    .tables = tables,
    .n_tables = 2,
    .n_statements = STATEMENT_COUNT,
    .statement = statement,
    // Suites whose jobs are not all there cannot be run; the count of those that ended follows.
    .after_salvage =
        "DELETE FROM suite WHERE jobs != (SELECT count(*) FROM job WHERE suite = id);"
        "DELETE FROM job WHERE suite NOT IN (SELECT id FROM suite);"
        "UPDATE suite SET ended = (SELECT count(*) FROM job WHERE suite = id AND result IS NOT "
        "NULL);"
        "UPDATE suite SET sum = jdb_sum('suite', " SUITE_COLUMNS ")",
};

status_t journal_jobs_open(const char *dir, struct journal_jobs **out) {
    struct journal_jobs *j = calloc(1, sizeof *j);
    if (!j) return st_oom();
    status_t st = jdb_open(dir, &spec, &j->db);
    if (st)
        free(j);
    else
        *out = j;
    return st;
}
void journal_jobs_close(struct journal_jobs *j) {
    if (!j) return;
    jdb_close(j->db);
    free(j);
}
status_t journal_jobs_verify(struct journal_jobs *j,
                             void (*found)(void *ctx, const char *file, const char *why),
                             void *ctx) {
    return jdb_verify(j->db, found, ctx);
}
bool journal_jobs_alone(const struct journal_jobs *j) {
    return jdb_alone(j->db);
}
status_t journal_jobs_backup(struct journal_jobs *j, const char *dir) {
    return jdb_backup(j->db, dir);
}

// ---- statements

static void bind_span(sqlite3_stmt *s, int at, struct span v) {
    sqlite3_bind_blob64(s, at, v.n ? (const void *)v.p : "", v.n, SQLITE_STATIC);
}
static struct span column(sqlite3_stmt *s, int at) {
    return (struct span){sqlite3_column_blob(s, at), (size_t)sqlite3_column_bytes(s, at)};
}
static void bind_tenant(sqlite3_stmt *s, int at, const char *tenant) {
    if (tenant) sqlite3_bind_text(s, at, tenant, -1, SQLITE_STATIC);
}
// The sum of a suite's row as it is now.
static status_t sum_suite(struct jcopy *c, int64_t id) {
    sqlite3_bind_int64(c->s[S_SUM_SUITE], 1, id);
    return jcopy_run(c, S_SUM_SUITE);
}
// The next row of a statement whose last column says that it is sound.
static bool next_row(struct jcopy *c, int i, status_t *st) {
    return jcopy_next(c, i, sqlite3_column_count(c->s[i]) - 1, st);
}

// ---- writing

struct add {
    struct suite_record *r;
    bool existed;
};
static status_t find_key(struct jcopy *c, struct add *q) {
    struct suite_record *r = q->r;
    if (digest_is_zero(r->key)) return ST_OK;
    sqlite3_stmt *s = c->s[S_FIND_KEY];
    sqlite3_bind_blob(s, 1, r->key.b, sizeof r->key.b, SQLITE_STATIC);
    status_t st = ST_OK;
    if (next_row(c, S_FIND_KEY, &st)) {
        struct span old = column(s, 1);
        if (old.n == r->request.n && !memcmp(old.p, r->request.p, old.n)) {
            r->id = sqlite3_column_int64(s, 0);
            r->n_jobs = (uint32_t)sqlite3_column_int64(s, 2);
            q->existed = true;
        } else
            st = st_because(ST_ALREADY_EXISTS, KEY_REUSED,
                            "the idempotency key was used for another suite (%lld)",
                            (long long)sqlite3_column_int64(s, 0));
    }
    jcopy_reset(c, S_FIND_KEY);
    return st;
}

static status_t last_id(struct jcopy *c, int64_t *out) {
    status_t st = ST_OK;
    while (jcopy_next(c, S_SEQUENCE, -1, &st))
        *out = sqlite3_column_int64(c->s[S_SEQUENCE], 0);
    return st;
}
// r->id: 0, or what the other copy gave it, or a shared one, which the sequence forgets.
static status_t add(struct jcopy *c, struct suite_record *r) {
    sqlite3_stmt *s = c->s[S_ADD_SUITE];
    int64_t last = 0, bytes = (int64_t)r->request.n;
    RETURN_IF_ERR(last_id(c, &last));
    for (uint32_t i = 0; i < r->n_jobs; i++)
        bytes += (int64_t)r->briefs[i].n;
    sqlite3_bind_text(s, 1, r->tenant, -1, SQLITE_STATIC);
    if (!digest_is_zero(r->key)) sqlite3_bind_blob(s, 2, r->key.b, sizeof r->key.b, SQLITE_STATIC);
    bind_span(s, 3, r->request);
    sqlite3_bind_int64(s, 4, r->n_jobs);
    sqlite3_bind_int64(s, 5, r->created_ns);
    sqlite3_bind_int64(s, 6, bytes);
    int64_t id = r->id ? r->id : last + 1;
    sqlite3_bind_int64(s, 7, id);
    RETURN_IF_ERR(jcopy_run(c, S_ADD_SUITE));

    if (id >= SUITE_SHARED) {
        sqlite3_bind_int64(c->s[S_SET_SEQUENCE], 1, last);
        RETURN_IF_ERR(jcopy_run(c, S_SET_SEQUENCE));
    }
    RETURN_IF_ERR(sum_suite(c, id));
    for (uint32_t i = 0; i < r->n_jobs; i++) {
        if (FAULT("jobs.add")) return st_internal("jobs.db: add (injected)");
        s = c->s[S_ADD_JOB];
        sqlite3_bind_int64(s, 1, id);
        sqlite3_bind_int64(s, 2, i + 1);
        bind_span(s, 3, r->briefs[i]);
        RETURN_IF_ERR(jcopy_run(c, S_ADD_JOB));
    }
    r->id = id;
    return ST_OK;
}
static status_t find_or_add(struct jcopy *c, void *arg) {
    struct add *q = arg;
    q->existed = false;
    RETURN_IF_ERR(find_key(c, q));
    return q->existed ? ST_OK : add(c, q->r);
}

status_t journal_suite_add(struct journal_jobs *j, struct suite_record *r, bool *out_existed) {
    struct add q = {.r = r};
    if (r->id < SUITE_SHARED) r->id = 0;
    RETURN_IF_ERR(jdb_write(j->db, find_or_add, &q));
    *out_existed = q.existed;
    return ST_OK;
}
static status_t find(struct jcopy *c, void *arg) {
    struct add *q = arg;
    q->existed = false;
    return find_key(c, q);
}
status_t journal_suite_find(struct journal_jobs *j, struct suite_record *r, bool *out_existed) {
    struct add q = {.r = r};
    RETURN_IF_ERR(jdb_read(j->db, find, &q));
    *out_existed = q.existed;
    return ST_OK;
}

static status_t write_one(struct jcopy *c, const struct job_record *r, bool *out_kept) {
    enum statement which = r->result.n ? S_END_JOB : S_UPDATE_JOB;
    sqlite3_stmt *s = c->s[which];
    if (FAULT("jobs.write")) return st_internal("jobs.db: write (injected)");
    sqlite3_bind_int64(s, 1, r->suite);
    sqlite3_bind_int64(s, 2, r->n);
    bind_span(s, 3, r->brief);
    if (which == S_END_JOB) bind_span(s, 4, r->result);
    bind_span(s, which == S_END_JOB ? 5 : 4, r->log);
    RETURN_IF_ERR(jcopy_run(c, (int)which));
    *out_kept = sqlite3_changes(c->db) == 0;
    if (*out_kept || which != S_END_JOB) return ST_OK;
    s = c->s[S_END_SUITE];
    sqlite3_bind_int64(s, 1, r->suite);
    sqlite3_bind_int64(s, 2, r->finished_ns);
    sqlite3_bind_int64(s, 3, (int64_t)(r->result.n + r->log.n));
    RETURN_IF_ERR(jcopy_run(c, S_END_SUITE));
    return sum_suite(c, r->suite);
}

struct write {
    const struct job_record *r;
    size_t n;
    bool *kept;
};
static status_t write_all(struct jcopy *c, void *arg) {
    const struct write *q = arg;
    for (size_t i = 0; i < q->n; i++)
        RETURN_IF_ERR(write_one(c, &q->r[i], &q->kept[i]));
    return ST_OK;
}
status_t journal_jobs_write(struct journal_jobs *j, const struct job_record *r, size_t n,
                            bool *out_kept) {
    struct write q = {r, n, out_kept};
    return jdb_write(j->db, write_all, &q);
}

// ---- reading. What is told through a function cannot be taken back: its rows are looked at
// before.

static status_t read_jobs(struct jcopy *c, int64_t suite, const struct journal_jobs_reader *r) {
    sqlite3_stmt *s = c->s[S_SUITE_JOBS];
    sqlite3_bind_int64(s, 1, suite);
    status_t st = ST_OK;
    while (next_row(c, S_SUITE_JOBS, &st)) {
        if (!r) continue;
        struct job_record x = {.suite = suite,
                               .n = (uint32_t)sqlite3_column_int64(s, 0),
                               .brief = column(s, 1),
                               .log = column(s, 2),
                               .finished_ns = sqlite3_column_int(s, 3)};
        r->job(r->ctx, &x);
    }
    return st;
}
static status_t read_suites(struct jcopy *c, const struct journal_jobs_reader *r) {
    sqlite3_stmt *s = c->s[S_OPEN_SUITES];
    status_t st = ST_OK;
    while (next_row(c, S_OPEN_SUITES, &st)) {
        struct suite_record x = {.id = sqlite3_column_int64(s, 0),
                                 .tenant = (const char *)sqlite3_column_text(s, 1),
                                 .request = column(s, 2),
                                 .n_jobs = (uint32_t)sqlite3_column_int64(s, 3),
                                 .created_ns = sqlite3_column_int64(s, 4),
                                 .moved_to = (const char *)sqlite3_column_text(s, 5)};
        if (r) r->suite(r->ctx, &x);
        st = read_jobs(c, x.id, r);
    }
    return st;
}
static status_t unfinished(struct jcopy *c, void *arg) {
    RETURN_IF_ERR(read_suites(c, NULL));
    return read_suites(c, *(const struct journal_jobs_reader **)arg);
}
status_t journal_jobs_unfinished(struct journal_jobs *j, const struct journal_jobs_reader *r) {
    return jdb_read(j->db, unfinished, &r);
}

struct read_one {
    int64_t id, open;
    const struct journal_jobs_reader *r;
};
static status_t read_one(struct jcopy *c, void *arg) {
    struct read_one *q = arg;
    sqlite3_stmt *s = c->s[S_SUITE], *jobs = c->s[S_SUITE_ALL];
    status_t st = ST_OK;
    q->open = -1;
    sqlite3_bind_int64(s, 1, q->id);
    while (next_row(c, S_SUITE, &st)) {
        struct span key = column(s, 5);
        struct suite_record x = {.id = q->id,
                                 .tenant = (const char *)sqlite3_column_text(s, 1),
                                 .request = column(s, 2),
                                 .n_jobs = (uint32_t)sqlite3_column_int64(s, 3),
                                 .created_ns = sqlite3_column_int64(s, 4)};
        if (key.n == sizeof x.key.b) memcpy(x.key.b, key.p, key.n);
        q->open = sqlite3_column_int64(s, 6);
        q->r->suite(q->r->ctx, &x);
    }
    if (st || q->open < 0) return st;
    sqlite3_bind_int64(jobs, 1, q->id);
    while (next_row(c, S_SUITE_ALL, &st)) {
        struct job_record x = {.suite = q->id,
                               .n = (uint32_t)sqlite3_column_int64(jobs, 0),
                               .brief = column(jobs, 1),
                               .log = column(jobs, 2),
                               .result = column(jobs, 3)};
        q->r->job(q->r->ctx, &x);
    }
    return st;
}
status_t journal_suite_read(struct journal_jobs *j, int64_t id, const struct journal_jobs_reader *r,
                            int64_t *out_open) {
    struct read_one q = {.id = id, .r = r};
    RETURN_IF_ERR(jdb_read(j->db, read_one, &q));
    *out_open = q.open;
    return ST_OK;
}

struct get {
    const char *tenant;
    int64_t suite;
    uint32_t n;
    enum journal_job_part part;
    struct arena *a;
    struct span *out;
    bool *ended;
};
static status_t get(struct jcopy *c, void *arg) {
    const struct get *q = arg;
    sqlite3_stmt *s = c->s[S_GET];
    sqlite3_bind_int64(s, 1, q->suite);
    sqlite3_bind_int64(s, 2, q->n);
    bind_tenant(s, 3, q->tenant);
    status_t st = ST_OK;
    if (next_row(c, S_GET, &st)) {
        struct span v = column(s, (int)q->part);
        *q->out = (struct span){arena_dup(q->a, v.n ? (const void *)v.p : "", v.n), v.n};
        *q->ended = sqlite3_column_type(s, JOB_PART_RESULT) != SQLITE_NULL;
    } else if (!st)
        st = st_because(ST_NOT_FOUND, JOB_NOT_FOUND, "no job %lld.%u here", (long long)q->suite,
                        q->n);
    jcopy_reset(c, S_GET);
    return st;
}
status_t journal_job_get(struct journal_jobs *j, const char *tenant, int64_t suite, uint32_t n,
                         enum journal_job_part part, struct arena *a, struct span *out,
                         bool *out_ended) {
    struct get q = {tenant, suite, n, part, a, out, out_ended};
    return jdb_read(j->db, get, &q);
}

struct list {
    const struct jobs_query *q;
    void (*fn)(void *, const struct job_record *);
    void *ctx;
};
static status_t list(struct jcopy *c, void *arg) {
    const struct list *l = arg;
    sqlite3_stmt *s = c->s[S_LIST];
    status_t st = ST_OK;
    for (int pass = 0; pass < 2 && !st; pass++) {
        bind_tenant(s, 1, l->q->tenant);
        sqlite3_bind_int64(s, 2, l->q->suite);
        sqlite3_bind_int64(s, 3, l->q->after_suite);
        sqlite3_bind_int64(s, 4, l->q->after_n);
        sqlite3_bind_int64(s, 5, l->q->limit);
        while (next_row(c, S_LIST, &st)) {
            if (!pass) continue;
            struct job_record x = {.suite = sqlite3_column_int64(s, 0),
                                   .n = (uint32_t)sqlite3_column_int64(s, 1),
                                   .brief = column(s, 2),
                                   .finished_ns = sqlite3_column_int(s, 3)};
            l->fn(l->ctx, &x);
        }
    }
    return st;
}
status_t journal_jobs_list(struct journal_jobs *j, const struct jobs_query *q,
                           void (*fn)(void *, const struct job_record *), void *ctx) {
    struct list l = {q, fn, ctx};
    return jdb_read(j->db, list, &l);
}

static status_t each_row(struct jcopy *c, int which, void (*fn)(void *, struct span), void *ctx) {
    status_t st = ST_OK;
    while (next_row(c, which, &st))
        if (fn) fn(ctx, column(c->s[which], 0));
    return st;
}
static status_t contents(struct jcopy *c, void *arg) {
    const struct journal_jobs_contents *f = *(const struct journal_jobs_contents **)arg;
    RETURN_IF_ERR(each_row(c, S_REQUESTS, NULL, NULL));
    RETURN_IF_ERR(each_row(c, S_BRIEFS, NULL, NULL));
    RETURN_IF_ERR(each_row(c, S_RESULTS, NULL, NULL));
    RETURN_IF_ERR(each_row(c, S_REQUESTS, f->request, f->ctx));
    RETURN_IF_ERR(each_row(c, S_BRIEFS, f->brief, f->ctx));
    return each_row(c, S_RESULTS, f->result, f->ctx);
}
status_t journal_jobs_contents(struct journal_jobs *j, const struct journal_jobs_contents *fns) {
    return jdb_read(j->db, contents, &fns);
}

// ---- removal

struct oldest {
    int64_t id, jobs, bytes, finished;
};
static status_t oldest_ended(struct jcopy *c, struct oldest *out) { // id 0: none
    sqlite3_stmt *s = c->s[S_OLDEST];
    status_t st = ST_OK;
    *out = (struct oldest){0};
    while (jcopy_next(c, S_OLDEST, -1, &st))
        *out = (struct oldest){sqlite3_column_int64(s, 0), sqlite3_column_int64(s, 1),
                               sqlite3_column_int64(s, 2), sqlite3_column_int64(s, 3)};
    return st;
}

static status_t remove_suite(struct jcopy *c, void *arg) {
    static const enum statement both[] = {S_REMOVE_JOBS, S_REMOVE_SUITE};
    for (int i = 0; i < 2; i++) {
        sqlite3_bind_int64(c->s[both[i]], 1, *(const int64_t *)arg);
        RETURN_IF_ERR(jcopy_run(c, (int)both[i]));
    }
    return ST_OK;
}
struct replace {
    const struct suite_record *r;
    const struct job_record *ended;
    size_t n;
};
static status_t replace(struct jcopy *c, void *arg) {
    const struct replace *q = arg;
    struct suite_record found = *q->r, r = *q->r;
    struct add k = {.r = &found};
    bool kept;
    RETURN_IF_ERR(remove_suite(c, &r.id));
    status_t st = find_key(c, &k);
    if (st && st_get_reason(st) != HLOD__V1__REASON__REASON_KEY_REUSED) return st;
    if (st || k.existed) memset(&r.key, 0, sizeof r.key);
    st_drop(st);
    RETURN_IF_ERR(add(c, &r));
    for (size_t i = 0; i < q->n; i++)
        RETURN_IF_ERR(write_one(c, &q->ended[i], &kept));
    return ST_OK;
}
status_t journal_suite_replace(struct journal_jobs *j, const struct suite_record *r,
                               const struct job_record *ended, size_t n) {
    struct replace q = {r, ended, n};
    return jdb_write(j->db, replace, &q);
}
struct moved {
    int64_t id;
    const char *node;
    void (*fn)(void *, int64_t, const char *);
    void *ctx;
};
static status_t move(struct jcopy *c, void *arg) {
    const struct moved *q = arg;
    sqlite3_stmt *s = c->s[S_MOVE];
    sqlite3_bind_int64(s, 1, q->id);
    sqlite3_bind_text(s, 2, q->node, -1, SQLITE_STATIC);
    RETURN_IF_ERR(jcopy_run(c, S_MOVE));
    return sum_suite(c, q->id);
}
status_t journal_suite_move(struct journal_jobs *j, int64_t id, const char *node) {
    struct moved q = {.id = id, .node = node};
    return jdb_write(j->db, move, &q);
}
static status_t moved(struct jcopy *c, void *arg) {
    const struct moved *q = arg;
    status_t st = ST_OK;
    for (int pass = 0; pass < 2 && !st; pass++)
        while (next_row(c, S_MOVED, &st))
            if (pass)
                q->fn(q->ctx, sqlite3_column_int64(c->s[S_MOVED], 0),
                      (const char *)sqlite3_column_text(c->s[S_MOVED], 1));
    return st;
}
status_t journal_suites_moved(struct journal_jobs *j,
                              void (*fn)(void *ctx, int64_t id, const char *node), void *ctx) {
    struct moved q = {.fn = fn, .ctx = ctx};
    return jdb_read(j->db, moved, &q);
}
struct ended {
    int64_t since_ns;
    void (*fn)(void *, int64_t);
    void *ctx;
};
static status_t ended(struct jcopy *c, void *arg) {
    const struct ended *q = arg;
    status_t st = ST_OK;
    sqlite3_bind_int64(c->s[S_ENDED], 1, q->since_ns);
    while (jcopy_next(c, S_ENDED, -1, &st))
        q->fn(q->ctx, sqlite3_column_int64(c->s[S_ENDED], 0));
    return st;
}
status_t journal_suites_ended(struct journal_jobs *j, int64_t since_ns, void (*fn)(void *, int64_t),
                              void *ctx) {
    struct ended q = {since_ns, fn, ctx};
    return jdb_read(j->db, ended, &q);
}
struct trim {
    const struct jobs_retention *keep;
    int64_t removed;
};
static status_t trim(struct jcopy *c, void *arg) {
    struct trim *q = arg;
    const struct jobs_retention *keep = q->keep;
    sqlite3_stmt *s = c->s[S_TOTALS];
    int64_t jobs = 0, bytes = 0;
    status_t st = ST_OK;
    q->removed = 0;
    while (jcopy_next(c, S_TOTALS, -1, &st)) {
        jobs = sqlite3_column_int64(s, 0);
        bytes = sqlite3_column_int64(s, 1);
    }
    while (!st) {
        struct oldest o;
        RETURN_IF_ERR(oldest_ended(c, &o));
        bool over = (keep->jobs && jobs > keep->jobs) || (keep->bytes && bytes > keep->bytes) ||
                    (keep->before_ns && o.finished < keep->before_ns);
        if (!o.id || !over) return ST_OK;
        RETURN_IF_ERR(remove_suite(c, &o.id));
        jobs -= o.jobs;
        bytes -= o.bytes;
        q->removed += o.jobs;
    }
    return st;
}

status_t journal_jobs_trim(struct journal_jobs *j, const struct jobs_retention *keep,
                           int64_t *out_removed) {
    struct trim q = {.keep = keep};
    RETURN_IF_ERR(jdb_write(j->db, trim, &q));
    *out_removed = q.removed;
    return ST_OK;
}
