// SPDX-License-Identifier: Apache-2.0
// suite: batch jobs, which outlive the request that brought them and the daemon that runs them
// (D10). A suite is models x targets x inputs, one job each. Here is what memory keeps of suites
// with jobs that go on; what ended is in the journal alone.
//
//   suites_admit (after the journal has it)   suites_new (after a restart)
//        -> queued -> running -> ended, recorded -> told to watchers
//              ^--- waiting <---'  a failure that may pass, attempts left
//
// A job counts as ended when its result is on disk, not before: what is told is never taken back.
// Thread: loop, except where said.
#pragma once
#include "base/arena.h"
#include "base/status.h"
#include "proto/reason.h"
#include "scheduler/suite/journal_jobs.h"

struct asks;
struct attempts;
struct cluster;
struct journal;
struct registers;
struct sched;
struct store;
struct suites;
struct tickets;
struct trace;
struct use;
struct suites_config {
    int parallel;               // jobs of suites that run at a time
    struct jobs_retention keep; // before_ns is not used
    int64_t keep_ns;            // of ended suites; 0 = for ever
    int replicas;               // other nodes that keep what a suite needs; 0: suites do not move
    int64_t lease_ms;           // for how long their home may be lost before they do
};
// Reads the journal (blocks) and goes on with what is there.
status_t suites_new(struct sched *s, struct journal_jobs *journal, const struct suites_config *cfg,
                    struct suites **out) MUST_CHECK;
void suites_configure(struct suites *s, const struct suites_config *cfg); // from now on
void suites_stop(struct suites *s); // starts nothing more; what runs may end
void suites_free(struct suites *s); // NULL is fine; after sched_stop and a turn of the loop
struct journal_jobs *suites_journal(struct suites *s);

// "12" or "12.3"; *out_n 0 = all jobs of the suite.
bool suite_parse_id(const char *text, int64_t *out_suite, uint32_t *out_n);

// ---- submit

enum { SUITE_MAX_JOBS = 10000 };
// suite_check.c: what is wrong with a request, by itself and by what is in the store (models and
// blobs of the tenant). Names of models were replaced by digests before. Blocks: on the pool.
struct suite_checker {
    struct store *store;
    struct journal *journal;
    const char *tenant;
    bool by_tenant; // models must be the tenant's
};
status_t suite_check(const Hlod__V1__SubmitJobsRequest *q,
                     const struct suite_checker *k) MUST_CHECK;
struct suite_cell { // one job of the matrix, by index; input -1: compile only
    int model, target, input;
};
// Models outermost. At most SUITE_MAX_JOBS; the real number in any case.
size_t suite_expand(const Hlod__V1__SubmitJobsRequest *q, struct arena *a, struct suite_cell **out);
// The job as lists show it: names, state queued.
Hlod__V1__Job *suite_brief(struct arena *a, const Hlod__V1__SubmitJobsRequest *q,
                           const struct suite_cell *c, const char *tenant, int64_t created_ns);
// The journal has it now: r->id is set, r->request its packed form.
status_t suites_admit(struct suites *s, const struct suite_record *r) MUST_CHECK;
// A submit that failed after it was written in part: the journal may have it all the same.
void suites_doubt(struct suites *s, struct digest key);
// The journal had a suite of this key already: is it one that was not admitted?
bool suites_doubted(struct suites *s, struct digest key);

// ---- looking, waiting, ending

// Jobs that go on, filled over the brief that the journal has. False: it is not here.
bool suites_overlay(struct suites *s, int64_t suite, uint32_t n, struct arena *a,
                    Hlod__V1__Job *brief);
// The log so far of a job that goes on, borrowed. NULL: not here.
const struct strbuf *suites_log(struct suites *s, int64_t suite, uint32_t n);

// Calls `changed` for every change of a job (n 0: of all jobs of the suite) and at last `ended`,
// once, when none goes on, or (st, taken) when the daemon stops. NULL: nothing of it goes on here.
struct suite_watch;
struct suite_watch *suites_watch(struct suites *s, int64_t suite, uint32_t n,
                                 void (*changed)(void *ctx, const Hlod__V1__Job *j),
                                 void (*ended)(void *ctx, status_t st), void *ctx);
// The present state of each watched job, through `changed`, at once.
void suites_tell_all(struct suite_watch *w);
void suites_unwatch(struct suite_watch *w); // also from `changed`; not needed after `ended`

// Jobs of the suite (or one) that go on become cancelled. done(ctx, how many) when that is on
// disk; NULL is fine. NOT_FOUND is the caller's to say. SUITES_UNTOLD: the server stops before it
// is.
#define SUITES_UNTOLD UINT32_MAX
#define SUITES_MOVED  (UINT32_MAX - 1) // another node has it by now: ask again
void suites_cancel(struct suites *s, int64_t suite, uint32_t n,
                   void (*done)(void *ctx, uint32_t cancelled), void *ctx);

// ---- other nodes of the cluster

// Jobs that wait may go to them from now on, and theirs come here, where there is room: none waits
// here, and fewer than `parallel` run. Borrowed; NULL: no more.
void suites_join(struct suites *s, struct tickets *t, struct attempts *x, struct use *u);
int suites_away(const struct suites *s); // jobs of ours that others run now
// An attempt at another node's job, here. What it needs is fetched from its home.
struct suite_guest;
struct suite_guest_spec { // copied
    const char *home, *tenant;
    const char *job; // SUITE.N there
    uint32_t attempt;
    const struct trace *trace; // NULL: none
    struct span suite;         // SubmitJobsRequest of one job, packed
    // Once, never from inside suites_guest. OK: it ran; outcome and log borrowed. Else it did not;
    // st is taken.
    void (*done)(void *ctx, status_t st, const Hlod__V1__JobOutcome *o, struct str log);
    void *ctx;
};
struct suite_guest *suites_guest(struct suites *s, const struct suite_guest_spec *spec);
void suites_guest_cancel(struct suite_guest *g); // no done; NULL is fine

// ---- suites that move (docs/decisions/0050), where cfg.replicas is not 0

struct suites_fleet { // borrowed
    const struct cluster *cluster;
    struct registers *registers;
    struct asks *asks;
};
void suites_move(struct suites *s, const struct suites_fleet *f); // NULL: no more
bool suites_share_new(const struct suites *s); // are suites shared before they are accepted?
// Gives r an id, and what it needs to others: to be in the journal only after `done` says OK, and
// then to be admitted. r lasts until then; takes st. suites_share_ends in any case but where r->id
// is 0 then: it has none, and nothing was put.
void suites_share(struct suites *s, struct suite_record *r, void (*done)(void *ctx, status_t st),
                  void *ctx);
void suites_share_ends(struct suites *s, int64_t id); // it is admitted, or that failed
void suites_unshare(struct suites *s, int64_t id);    // it is not to be
bool suites_keeps(struct suites *s, int64_t suite);   // it goes on here
// A suite that does not go on here: which node to ask about it; borrowed. tenant NULL: any. `here`:
// the journal has it, and in it jobs that go on; then it is never NOT_FOUND, and this node's own
// name says that it ended meanwhile: read it again. NOT_FOUND, UNAVAILABLE. Once, never from
// inside; takes st.
void suites_seek(struct suites *s, int64_t suite, const char *tenant, bool here,
                 void (*done)(void *ctx, status_t st, const char *node), void *ctx);
// Whether it is ours: UNAVAILABLE where that was not looked at since it may have moved.
status_t suites_sure(struct suites *s, int64_t suite) MUST_CHECK;
