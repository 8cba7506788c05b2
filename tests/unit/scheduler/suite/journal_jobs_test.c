// SPDX-License-Identifier: Apache-2.0
// The journal of batch jobs: one result a job, keys, lists, retention; and a process that dies at
// each point of writing in turn: whatever was answered is there afterwards, whatever is there is
// whole. The source is included with fault points that end the process.
#ifndef HLOD_FAULTS
#define HLOD_FAULTS
#endif
#include "scheduler/suite/journal_jobs.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/scheduler/folder.h"

static int die_at;  // the how many-th fault point from now; 0 = none
static bool refuse; // an error instead
bool fault_hit(const char *point) {
    (void)point;
    if (!die_at || --die_at) return false;
    if (!refuse) _exit(42); // as kill -9: nothing is closed
    return true;
}

static char dir[64];
static int fresh(void **state) {
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/jobs-test-XXXXXX");
    die_at = 0;
    refuse = false;
    return mkdtemp(dir) ? 0 : -1;
}
static int gone(void **state) {
    (void)state;
    return folder_remove(dir);
}

static struct span text(const char *s) {
    return (struct span){(const uint8_t *)s, strlen(s)};
}
static struct journal_jobs *opened(void) {
    struct journal_jobs *j = NULL;
    assert_null(journal_jobs_open(dir, &j));
    return j;
}
static status_t add_suite(struct journal_jobs *j, const char *tenant, int key, const char *request,
                          uint32_t n, int64_t *out_id, bool *out_existed) {
    struct span briefs[16];
    for (uint32_t i = 0; i < n; i++)
        briefs[i] = text("brief");
    struct suite_record r = {
        .tenant = tenant, .request = text(request), .briefs = briefs, .n_jobs = n, .created_ns = 1};
    r.key.b[0] = (uint8_t)key;
    status_t st = journal_suite_add(j, &r, out_existed);
    *out_id = r.id;
    return st;
}
static status_t end_job(struct journal_jobs *j, int64_t suite, uint32_t n, const char *result,
                        bool *out_kept) {
    struct job_record r = {.suite = suite,
                           .n = n,
                           .brief = text("ended"),
                           .result = text(result),
                           .log = text("log"),
                           .finished_ns = 100 * suite + n};
    return journal_jobs_write(j, &r, 1, out_kept);
}
static void result_is(struct journal_jobs *j, int64_t suite, uint32_t n, const char *want) {
    struct arena a = {0};
    struct span s;
    bool ended;
    assert_null(journal_job_get(j, NULL, suite, n, JOB_PART_RESULT, &a, &s, &ended));
    assert_int_equal(ended, want != NULL);
    assert_int_equal(s.n, want ? strlen(want) : 0);
    if (want) assert_memory_equal(s.p, want, s.n);
    arena_done(&a);
}

static void one_result(void **state) {
    (void)state;
    struct journal_jobs *j = opened();
    int64_t id;
    bool existed, kept;
    assert_null(add_suite(j, "t", 0, "request", 3, &id, &existed));
    assert_false(existed);
    result_is(j, id, 1, NULL);
    assert_null(end_job(j, id, 1, "first", &kept));
    assert_false(kept);
    assert_null(end_job(j, id, 1, "second", &kept));
    assert_true(kept);
    result_is(j, id, 1, "first");
    struct job_record late = {.suite = id, .n = 1, .brief = text("late"), .log = text("late")};
    assert_null(journal_jobs_write(j, &late, 1, &kept)); // nor is the rest changed any more
    struct arena a = {0};
    struct span s;
    assert_null(journal_job_get(j, "t", id, 1, JOB_PART_BRIEF, &a, &s, &existed));
    assert_memory_equal(s.p, "ended", 5);
    status_t st = journal_job_get(j, "other", id, 1, JOB_PART_BRIEF, &a, &s, &existed);
    assert_int_equal(st_code(st), ST_NOT_FOUND); // another tenant's
    st_drop(st);
    arena_done(&a);
    journal_jobs_close(j);
    j = opened();
    result_is(j, id, 1, "first");
    result_is(j, id, 2, NULL);
    journal_jobs_close(j);
}

static void keys(void **state) {
    (void)state;
    struct journal_jobs *j = opened();
    int64_t a, b, c;
    bool existed;
    assert_null(add_suite(j, "t", 1, "request", 2, &a, &existed));
    assert_null(add_suite(j, "t", 1, "request", 2, &b, &existed));
    assert_true(existed);
    assert_int_equal(a, b);
    status_t st = add_suite(j, "t", 1, "another", 2, &b, &existed);
    assert_int_equal(st_code(st), ST_ALREADY_EXISTS);
    assert_int_equal(st_get_reason(st), HLOD__V1__REASON__REASON_KEY_REUSED);
    st_drop(st);
    assert_null(add_suite(j, "t", 2, "request", 2, &b, &existed));
    assert_null(add_suite(j, "t", 0, "request", 2, &c, &existed)); // no key: always new
    assert_true(a < b && b < c);
    journal_jobs_close(j);
}

static void note(void *ctx, const struct job_record *r) {
    char *out = ctx, one[40];
    snprintf(one, sizeof one, "%lld.%u%s ", (long long)r->suite, r->n, r->finished_ns ? "!" : "");
    strncat(out, one, 200);
}
static void lists(void **state) {
    (void)state;
    struct journal_jobs *j = opened();
    int64_t id;
    bool existed, kept;
    assert_null(add_suite(j, "a", 0, "r", 2, &id, &existed));
    assert_null(add_suite(j, "b", 0, "r", 2, &id, &existed));
    assert_null(add_suite(j, "a", 0, "r", 3, &id, &existed));
    assert_null(end_job(j, 1, 2, "x", &kept));
    static const struct {
        struct jobs_query q;
        const char *want;
    } cases[] = {
        {{.limit = 99}, "3.1 3.2 3.3 2.1 2.2 1.1 1.2! "},
        {{.tenant = "a", .limit = 99}, "3.1 3.2 3.3 1.1 1.2! "},
        {{.suite = 2, .limit = 99}, "2.1 2.2 "},
        {{.tenant = "a", .suite = 2, .limit = 99}, ""},
        {{.after_suite = 3, .after_n = 2, .limit = 3}, "3.3 2.1 2.2 "},
        {{.after_suite = 1, .after_n = 2, .limit = 3}, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char got[400] = "";
        assert_null(journal_jobs_list(j, &cases[i].q, note, got));
        assert_string_equal(got, cases[i].want);
    }
    journal_jobs_close(j);
}

static void end_all(struct journal_jobs *j, int64_t suite, uint32_t n) {
    bool kept;
    for (uint32_t i = 1; i <= n; i++)
        assert_null(end_job(j, suite, i, "r", &kept));
}
static void retention(void **state) {
    (void)state;
    struct journal_jobs *j = opened();
    int64_t id, removed;
    bool existed;
    for (int i = 0; i < 5; i++)
        assert_null(add_suite(j, "a", 0, "r", 2, &id, &existed));
    end_all(j, 2, 2);
    end_all(j, 1, 2); // finished: 101, 102 and 201, 202
    end_all(j, 4, 2);
    assert_null(journal_jobs_trim(j, &(struct jobs_retention){.jobs = 6}, &removed));
    assert_int_equal(removed, 0);
    assert_null(journal_jobs_trim(j, &(struct jobs_retention){.jobs = 5}, &removed));
    assert_int_equal(removed, 2); // whole suites, the one that ended first: 1
    char got[400] = "";
    assert_null(journal_jobs_list(j, &(struct jobs_query){.limit = 99}, note, got));
    assert_string_equal(got, "5.1 5.2 4.1! 4.2! 3.1 3.2 2.1! 2.2! ");
    assert_null(journal_jobs_trim(j, &(struct jobs_retention){.before_ns = 300}, &removed));
    assert_int_equal(removed, 2); // 2 by age
    assert_null(journal_jobs_trim(j, &(struct jobs_retention){.bytes = 1}, &removed));
    assert_int_equal(removed, 2); // 4 by bytes; what goes on stays whatever the bounds
    got[0] = 0;
    assert_null(journal_jobs_list(j, &(struct jobs_query){.limit = 99}, note, got));
    assert_string_equal(got, "5.1 5.2 3.1 3.2 ");
    assert_null(add_suite(j, "a", 0, "r", 1, &id, &existed));
    assert_int_equal(id, 6);
    journal_jobs_close(j);
}

// ---- dying

struct seen {
    int suites, jobs, ended;
};
static void see_suite(void *ctx, const struct suite_record *r) {
    struct seen *s = ctx;
    s->suites++;
    assert_int_equal(r->n_jobs, 4);
    assert_memory_equal(r->request.p, "request", 7);
}
static void see_job(void *ctx, const struct job_record *r) {
    struct seen *s = ctx;
    s->jobs++;
    s->ended += r->finished_ns != 0;
}

// In a process of its own: submit, then end two jobs at once, then a third. Each answer is told
// through the pipe after it was given.
static void worker(int point, int fd) {
    struct journal_jobs *j;
    int64_t id;
    bool existed, kept[2];
    if (journal_jobs_open(dir, &j)) _exit(1);
    die_at = point;
    if (add_suite(j, "t", 1, "request", 4, &id, &existed)) _exit(1);
    if (write(fd, "s", 1) != 1) _exit(1);
    struct job_record r[2] = {{.suite = id,
                               .n = 1,
                               .brief = text("b"),
                               .result = text("one"),
                               .log = text(""),
                               .finished_ns = 5},
                              {.suite = id,
                               .n = 2,
                               .brief = text("b"),
                               .result = text("two"),
                               .log = text(""),
                               .finished_ns = 6}};
    if (journal_jobs_write(j, r, 2, kept)) _exit(1);
    if (write(fd, "12", 2) != 2) _exit(1);
    if (end_job(j, id, 3, "three", kept)) _exit(1);
    if (write(fd, "3", 1) != 1) _exit(1);
    _exit(0);
}
static void dies_at_each_point(void **state) {
    (void)state;
    int points = 0;
    for (int point = 1;; point++) {
        int pipe_fds[2], code;
        char told[8] = "";
        assert_int_equal(pipe(pipe_fds), 0);
        pid_t pid = fork();
        if (pid == 0) worker(point, pipe_fds[1]);
        close(pipe_fds[1]);
        ssize_t n = 0, k;
        while ((k = read(pipe_fds[0], told + n, sizeof told - 1 - (size_t)n)) > 0)
            n += k;
        close(pipe_fds[0]);
        assert_int_equal(waitpid(pid, &code, 0), pid);
        assert_true(WIFEXITED(code) && (WEXITSTATUS(code) == 42 || WEXITSTATUS(code) == 0));
        bool died = WEXITSTATUS(code) == 42;
        struct journal_jobs *j = opened();
        struct seen seen = {0};
        struct journal_jobs_reader r = {see_suite, see_job, &seen};
        assert_null(journal_jobs_unfinished(j, &r));
        bool submitted = strchr(told, 's') != NULL;
        assert_true(seen.suites == 1 || (!submitted && seen.suites == 0));
        assert_int_equal(seen.jobs, 4 * seen.suites); // whole or not at all
        assert_true(seen.ended >= (int)n - (int)submitted);
        assert_true(seen.ended == 0 || seen.ended == 2 ||
                    seen.ended == 3); // 1 and 2 were written together
        if (strchr(told, '2')) result_is(j, 1, 2, "two");
        if (strchr(told, '3')) result_is(j, 1, 3, "three");
        // Going on: the client asks again, every job ends once.
        int64_t id;
        bool existed, kept;
        assert_null(add_suite(j, "t", 1, "request", 4, &id, &existed));
        assert_int_equal(existed, seen.suites == 1);
        for (uint32_t i = 1; i <= 4; i++)
            assert_null(end_job(j, id, i, "later", &kept));
        if (strchr(told, '2')) result_is(j, 1, 2, "two");
        result_is(j, id, 4, "later");
        seen = (struct seen){0};
        assert_null(journal_jobs_unfinished(j, &r));
        assert_int_equal(seen.suites, 0);
        journal_jobs_close(j);
        assert_int_equal(gone(NULL), 0);
        assert_int_equal(fresh(NULL), 0);
        if (!died) break;
        points++;
    }
    assert_true(points >= 9); // 4 jobs and commit, 2 results and commit, 1 and commit
}

static void refuses_whole(void **state) {
    (void)state;
    struct journal_jobs *j = opened();
    int64_t id;
    bool existed;
    refuse = true;
    for (int point = 1; point <= 4; point++) { // three jobs, commit
        die_at = point;
        status_t st = add_suite(j, "t", 1, "request", 3, &id, &existed);
        assert_non_null(st);
        st_drop(st);
        char got[400] = "";
        assert_null(journal_jobs_list(j, &(struct jobs_query){.limit = 99}, note, got));
        assert_string_equal(got, "");
    }
    die_at = 0;
    assert_null(add_suite(j, "t", 1, "request", 3, &id, &existed));
    assert_false(existed);
    journal_jobs_close(j);
}

// Three suites of four jobs, one of which has ended.
static void some_jobs(void) {
    struct journal_jobs *j = opened();
    int64_t id;
    bool existed, kept;
    for (int k = 0; k < 3; k++)
        assert_null(add_suite(j, "t", k + 1, "request", 4, &id, &existed));
    assert_null(end_job(j, 2, 3, "a result", &kept));
    journal_jobs_close(j);
}
static void all_there(void) {
    struct journal_jobs *j = opened();
    struct seen seen = {0};
    struct journal_jobs_reader r = {see_suite, see_job, &seen};
    assert_null(journal_jobs_unfinished(j, &r));
    assert_int_equal(seen.suites, 3);
    assert_int_equal(seen.jobs, 12);
    assert_int_equal(seen.ended, 1);
    result_is(j, 2, 3, "a result");
    int64_t id;
    bool existed = false;
    assert_null(add_suite(j, "t", 2, "request", 4, &id, &existed));
    assert_true(existed && id == 2);
    journal_jobs_close(j);
}
static void damaged(void **state) {
    (void)state;
    static const char *const files[] = {"jobs.db", "jobs.copy.db"};
    some_jobs();
    for (int k = 0; k < 2; k++)
        for (int how = 0; how < 3; how++) {
            char path[200], page[4096];
            memset(page, 0xee, sizeof page);
            snprintf(path, sizeof path, "%s/%s", dir, files[k]);
            int fd = open(path, how ? O_WRONLY : O_WRONLY | O_TRUNC);
            off_t end = lseek(fd, 0, SEEK_END);
            if (how == 0) assert_int_equal(write(fd, page, 56), 56);
            if (how == 1) assert_int_equal(pwrite(fd, page, sizeof page, end - 4096), 4096);
            if (how == 2) unlink(path);
            close(fd);
            all_there();
            all_there();
        }
}

// A bit in a different suite of each file: no suite is whole in neither.
static void flip_first(const char *file, const char *what, int nth) {
    static char all[1 << 18];
    char path[200];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    int fd = open(path, O_RDWR);
    ssize_t n = read(fd, all, sizeof all);
    for (ssize_t i = 0; i < n - 8; i++)
        if (!memcmp(all + i, what, strlen(what)) && nth-- == 0) {
            all[i] ^= 4;
            assert_int_equal(pwrite(fd, all + i, 1, i), 1);
            break;
        }
    assert_true(nth < 0);
    close(fd);
}
static void both_damaged(void **state) {
    (void)state;
    some_jobs();
    flip_first("jobs.db", "request", 1);
    flip_first("jobs.copy.db", "request", 2);
    all_there();
}

// A file of the schema before this one keeps its jobs.
static void upgrade(void **state) {
    (void)state;
    char path[200];
    snprintf(path, sizeof path, "%s/jobs.db", dir);
    sqlite3 *db;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(
        sqlite3_exec(
            db,
            "CREATE TABLE suite (id INTEGER PRIMARY KEY AUTOINCREMENT, tenant TEXT NOT NULL, key "
            "BLOB UNIQUE, request BLOB NOT NULL, jobs INTEGER NOT NULL, ended INTEGER NOT NULL, "
            "created INTEGER NOT NULL, finished INTEGER, bytes INTEGER NOT NULL);"
            "CREATE TABLE job (suite INTEGER NOT NULL, n INTEGER NOT NULL, brief BLOB NOT NULL, "
            "result BLOB, log BLOB, PRIMARY KEY (suite, n)) WITHOUT ROWID;"
            "CREATE INDEX suite_open ON suite (id) WHERE ended < jobs;"
            "INSERT INTO suite VALUES (7, 't', NULL, cast('request' AS BLOB), 4, 0, 1, NULL, 5);"
            "INSERT INTO job VALUES (7, 1, x'62', NULL, NULL), (7, 2, x'62', NULL, NULL), (7, 3, "
            "x'62', NULL, NULL), (7, 4, x'62', NULL, NULL);"
            "PRAGMA user_version=1",
            NULL, NULL, NULL),
        SQLITE_OK);
    sqlite3_close(db);
    for (int k = 0; k < 2; k++) {
        struct journal_jobs *j = opened();
        struct seen seen = {0};
        struct journal_jobs_reader r = {see_suite, see_job, &seen};
        assert_null(journal_jobs_unfinished(j, &r));
        assert_int_equal(seen.suites, 1);
        assert_int_equal(seen.jobs, 4);
        journal_jobs_close(j);
        if (k == 0) unlink(path); // the copy has it too
    }
}

// Suites whose ids others gave: they come and go whole, and the ids of this journal count on from
// its own, also those of a journal whose last suite was a shared one, and which is opened again.
struct count {
    int64_t suites, jobs, results;
    struct digest key;
};
static void count_suite(void *ctx, const struct suite_record *r) {
    struct count *c = ctx;
    c->suites++;
    c->key = r->key;
    assert_int_equal(r->n_jobs, 2);
}
static void count_job(void *ctx, const struct job_record *r) {
    struct count *c = ctx;
    c->jobs++;
    c->results += r->result.n != 0;
}
static void note_id(void *ctx, int64_t id) {
    *(int64_t *)ctx = id;
}
static void shared_ids(void **state) {
    (void)state;
    struct journal_jobs *j = opened();
    struct span briefs[] = {text("a"), text("b")};
    const int64_t shared = SUITE_SHARED + 77;
    struct suite_record r = {.id = shared,
                             .tenant = "t",
                             .request = text("shared"),
                             .briefs = briefs,
                             .n_jobs = 2,
                             .created_ns = 1};
    int64_t id = 0, open = 9;
    bool existed = false, kept = false;
    r.key.b[0] = 9;
    assert_null(add_suite(j, "t", 0, "own", 2, &id, &existed));
    assert_int_equal(id, 1);
    assert_null(journal_suite_add(j, &r, &existed));
    assert_false(existed);
    assert_int_equal(r.id, shared);
    assert_null(add_suite(j, "t", 0, "own", 2, &id, &existed));
    assert_int_equal(id, 2);
    journal_jobs_close(j);
    j = opened();
    assert_null(add_suite(j, "t", 0, "own", 2, &id, &existed));
    assert_int_equal(id, 3);

    struct job_record one = {.suite = shared,
                             .n = 2,
                             .brief = text("b2"),
                             .result = text("r"),
                             .log = text("l"),
                             .finished_ns = 5};
    assert_null(journal_jobs_write(j, &one, 1, &kept));
    struct count c = {0};
    struct journal_jobs_reader read = {count_suite, count_job, &c};
    assert_null(journal_suite_read(j, shared, &read, &open));
    assert_int_equal(open, 1);
    assert_true(c.suites == 1 && c.jobs == 2 && c.results == 1 && c.key.b[0] == 9);

    // Its key is known before anything is added.
    struct suite_record again = {.tenant = "t", .request = text("shared"), .key = r.key};
    assert_null(journal_suite_find(j, &again, &existed));
    assert_true(existed && again.id == shared && again.n_jobs == 2);

    // Another node's results take the place of what is there, all at once; where its key is another
    // suite's here, without it.
    assert_null(add_suite(j, "t", 0, "own", 2, &id, &existed));
    assert_int_equal(id, 4);
    struct job_record all[] = {one, one};
    struct suite_record moved = {.id = shared,
                                 .tenant = "t",
                                 .request = text("shared"),
                                 .briefs = briefs,
                                 .n_jobs = 2,
                                 .key = r.key};
    all[0].n = 1;
    all[1].n = 2;
    for (size_t n = 0; n <= 2; n++) {
        c = (struct count){0};
        assert_null(journal_suite_replace(j, &moved, all, n));
        assert_null(journal_suite_read(j, shared, &read, &open));
        assert_true(open == 2 - (int64_t)n && c.suites == 1 && c.jobs == 2);
        assert_true((size_t)c.results == n && c.key.b[0] == 9);
    }
    int64_t seen = 0;
    assert_null(journal_suites_ended(j, 5, note_id, &seen));
    assert_int_equal(seen, shared);
    seen = 0;
    assert_null(journal_suites_ended(j, 6, note_id, &seen));
    assert_int_equal(seen, 0);
    moved.id = shared + 1;
    assert_null(journal_suite_replace(j, &moved, all, 0));
    assert_null(journal_suite_read(j, shared + 1, &read, &open));
    assert_true(open == 2 && digest_is_zero(c.key) && moved.id == shared + 1);
    journal_jobs_close(j);
}

// A suite that moved says so, in a file of the schema that had no such word: it is in no list of
// all, its jobs can be asked for, and it is as any other once its copy is there.
static void find_moved(void *ctx, int64_t id, const char *node) {
    char *out = ctx;
    snprintf(out, 80, "%lld at %s", (long long)(id - SUITE_SHARED), node);
}
static void note_suite(void *ctx, const struct suite_record *r) {
    char *out = ctx, one[60];
    snprintf(one, sizeof one, "%lld:%s ", (long long)(r->id % 1000),
             r->moved_to ? r->moved_to : "-");
    strncat(out, one, 100);
}
static void skip_job(void *ctx, const struct job_record *r) {
    (void)ctx;
    (void)r;
}
static void moves(void **state) {
    (void)state;
    struct journal_jobs *j = opened();
    struct span briefs[] = {text("a"), text("b")};
    struct suite_record r = {.id = SUITE_SHARED + 9,
                             .tenant = "t",
                             .request = text("shared"),
                             .briefs = briefs,
                             .n_jobs = 2,
                             .created_ns = 1};
    bool existed, kept;
    int64_t id, open = 0, seen = 0;
    char got[400] = "", all[400] = "", where[80] = "";
    struct jobs_query every = {.limit = 99}, one = {.suite = r.id, .limit = 99};
    assert_null(add_suite(j, "t", 0, "own", 1, &id, &existed));
    assert_null(journal_suite_add(j, &r, &existed));
    assert_null(end_job(j, r.id, 2, "told", &kept));
    assert_null(journal_suite_move(j, r.id, "12"));
    journal_jobs_close(j);
    j = opened(); // whole: both files, and their sums
    struct journal_jobs_reader read = {note_suite, skip_job, all};
    assert_null(journal_jobs_unfinished(j, &read));
    char want[60];
    snprintf(want, sizeof want, "1:- %lld:12 ", (long long)(r.id % 1000));
    assert_string_equal(all, want);
    assert_null(journal_suites_moved(j, find_moved, where));
    assert_string_equal(where, "9 at 12");
    assert_null(journal_jobs_list(j, &every, note, got));
    assert_string_equal(got, "1.1 ");
    got[0] = 0;
    assert_null(journal_jobs_list(j, &one, note, got));
    assert_int_equal(strlen(got), 2 * strlen("4503599627370505.1 ") + 1);
    result_is(j, r.id, 2, "told");
    struct jobs_retention keep = {.before_ns = INT64_MAX};
    assert_null(journal_jobs_trim(j, &keep, &seen));
    assert_int_equal(seen, 0);

    struct job_record last[] = {
        {.suite = r.id, .n = 1, .brief = text("a"), .result = text("x"), .finished_ns = 5},
        {.suite = r.id, .n = 2, .brief = text("b"), .result = text("told"), .finished_ns = 6}};
    assert_null(journal_suite_replace(j, &r, last, 2));
    assert_null(journal_suite_move(j, r.id, "n1")); // too late: all of it is here
    where[0] = got[0] = 0;
    assert_null(journal_suites_moved(j, find_moved, where));
    assert_string_equal(where, "");
    assert_null(journal_jobs_list(j, &every, note, got));
    assert_int_equal(strlen(got), strlen("1.1 ") + 2 * strlen("4503599627370505.1! "));
    assert_null(journal_suites_ended(j, 6, note_id, &seen));
    assert_int_equal(seen, r.id);
    struct count c = {0};
    struct journal_jobs_reader both = {count_suite, count_job, &c};
    assert_null(journal_suite_read(j, r.id, &both, &open));
    assert_true(open == 0 && c.results == 2);
    journal_jobs_close(j);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(shared_ids, fresh, gone),
        cmocka_unit_test_setup_teardown(moves, fresh, gone),
        cmocka_unit_test_setup_teardown(one_result, fresh, gone),
        cmocka_unit_test_setup_teardown(keys, fresh, gone),
        cmocka_unit_test_setup_teardown(lists, fresh, gone),
        cmocka_unit_test_setup_teardown(retention, fresh, gone),
        cmocka_unit_test_setup_teardown(dies_at_each_point, fresh, gone),
        cmocka_unit_test_setup_teardown(refuses_whole, fresh, gone),
        cmocka_unit_test_setup_teardown(damaged, fresh, gone),
        cmocka_unit_test_setup_teardown(both_damaged, fresh, gone),
        cmocka_unit_test_setup_teardown(upgrade, fresh, gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
