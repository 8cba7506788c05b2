// SPDX-License-Identifier: Apache-2.0
// journal_jobs: what batch jobs leave on disk, in DIR/jobs.db and its copy (journal_db.h), apart
// from journal.db because nothing else can make it again: a submit is answered after its commit
// reached the disk (synchronous=FULL). A suite is its request, its jobs are rows that end once: a
// second result for a job is refused here, whatever the scheduler believes. Blocking. Thread: any
// (one lock); call it on the pool.
#pragma once
#include "base/arena.h"
#include "base/hash.h"
#include "base/status.h"

struct journal_jobs;
status_t journal_jobs_open(const char *dir, struct journal_jobs **out) MUST_CHECK;
void journal_jobs_close(struct journal_jobs *j); // NULL is fine
// Reads both files; what is damaged is made again and told of. found on this thread.
status_t journal_jobs_verify(struct journal_jobs *j,
                             void (*found)(void *ctx, const char *file, const char *why),
                             void *ctx) MUST_CHECK;
// As journal_alone.
bool journal_jobs_alone(const struct journal_jobs *j);
status_t journal_jobs_backup(struct journal_jobs *j, const char *dir) MUST_CHECK; // DIR/jobs.db

// Ids from here on were given by who submits, and are the same on all nodes that ever have the
// suite; those below count the suites of this journal.
#define SUITE_SHARED ((int64_t)1 << 52)
struct suite_record {
    int64_t id; // given by journal_suite_add, never used twice; or one of SUITE_SHARED
    const char *tenant;
    struct digest key;         // of tenant and idempotency key; zero = none
    struct span request;       // packed hlod.v1.SubmitJobsRequest
    const struct span *briefs; // [n_jobs], packed hlod.v1.Job; their ids are the row's
    uint32_t n_jobs;
    int64_t created_ns;                   // wall clock
    const char *traceparent, *tracestate; // that the briefs have; NULL where they are read
    const char *moved_to; // a node; NULL: it is this one's. Of journal_jobs_unfinished alone
};
// One transaction. A key that is there with the same request: *out_existed, its id and number of
// jobs; with another: ALREADY_EXISTS, KEY_REUSED.
status_t journal_suite_add(struct journal_jobs *j, struct suite_record *r,
                           bool *out_existed) MUST_CHECK;
// The suite of r->key, if there is one: as above, but none is added.
status_t journal_suite_find(struct journal_jobs *j, struct suite_record *r,
                            bool *out_existed) MUST_CHECK;

struct job_record {
    int64_t suite;
    uint32_t n;          // from 1
    struct span brief;   // hlod.v1.Job
    struct span result;  // hlod.v1.JobOutcome; empty: it goes on
    struct span log;     // text, all of it
    int64_t finished_ns; // 0: it goes on
};
// All of them in one transaction. A job that has a result keeps it: out_kept[i] is true then.
status_t journal_jobs_write(struct journal_jobs *j, const struct job_record *r, size_t n,
                            bool *out_kept) MUST_CHECK;

// Suites with jobs that go on, oldest first, each followed by all its jobs (result left out).
struct journal_jobs_reader {
    void (*suite)(void *ctx, const struct suite_record *r);
    void (*job)(void *ctx, const struct job_record *r);
    void *ctx;
};
status_t journal_jobs_unfinished(struct journal_jobs *j,
                                 const struct journal_jobs_reader *r) MUST_CHECK;

// One suite with all its jobs, and their results; *out_open: jobs that go on, -1: it is not there.
status_t journal_suite_read(struct journal_jobs *j, int64_t id, const struct journal_jobs_reader *r,
                            int64_t *out_open) MUST_CHECK;
// What is there of suite r->id, if anything, goes; r is there then with those results, in one
// transaction. A key that is another suite's stays that one's: r goes without.
status_t journal_suite_replace(struct journal_jobs *j, const struct suite_record *r,
                               const struct job_record *ended, size_t n) MUST_CHECK;
// That suite is NODE's from now on, until it is replaced; one whose jobs have all ended stays as it
// is. Then those of which this was said: `fn` on this thread.
status_t journal_suite_move(struct journal_jobs *j, int64_t id, const char *node) MUST_CHECK;
status_t journal_suites_moved(struct journal_jobs *j,
                              void (*fn)(void *ctx, int64_t id, const char *node),
                              void *ctx) MUST_CHECK;
// Suites of SUITE_SHARED that have ended, the last one since then; `fn` on this thread.
status_t journal_suites_ended(struct journal_jobs *j, int64_t since_ns,
                              void (*fn)(void *ctx, int64_t id), void *ctx) MUST_CHECK;

enum journal_job_part { JOB_PART_BRIEF, JOB_PART_RESULT, JOB_PART_LOG };
// A part of one job in `a`; *out_ended. tenant NULL = any. NOT_FOUND, JOB_NOT_FOUND.
status_t journal_job_get(struct journal_jobs *j, const char *tenant, int64_t suite, uint32_t n,
                         enum journal_job_part part, struct arena *a, struct span *out,
                         bool *out_ended) MUST_CHECK;
// The packed request of every suite, brief of every job that goes on, and result of every ended
// one. On this thread.
struct journal_jobs_contents {
    void (*request)(void *ctx, struct span r), (*brief)(void *ctx, struct span r),
        (*result)(void *ctx, struct span r);
    void *ctx;
};
status_t journal_jobs_contents(struct journal_jobs *j,
                               const struct journal_jobs_contents *fns) MUST_CHECK;
struct jobs_query {
    const char *tenant;  // NULL = all
    int64_t suite;       // 0 = all but those that moved
    int64_t after_suite; // page: newest suite first, then by number; 0 = from the start
    uint32_t after_n;
    int64_t limit;
};
// `fn` on this thread; the record (without result and log) is valid during the call.
status_t journal_jobs_list(struct journal_jobs *j, const struct jobs_query *q,
                           void (*fn)(void *ctx, const struct job_record *r), void *ctx) MUST_CHECK;
// Removes the oldest ended suites until at most `jobs` jobs and `bytes` bytes of ended ones are
// kept and none ended before `before_ns`. 0 = no bound.
struct jobs_retention {
    int64_t jobs, bytes, before_ns;
};
status_t journal_jobs_trim(struct journal_jobs *j, const struct jobs_retention *keep,
                           int64_t *out_removed) MUST_CHECK;
