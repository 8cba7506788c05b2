// SPDX-License-Identifier: Apache-2.0
// What suite.c (states), suite_run.c and training.c (one attempt) and suite_save.c (the way to the
// journal) share; for no other file. Thread: loop, except the work functions.
#pragma once
#include "base/map.h"
#include "base/str.h"
#include "base/vec.h"
#include "scheduler/suite/suite.h"
#include "scheduler/trace.h"

struct job;
struct loop_timer;
struct suite;
struct suite_away;
struct suite_run;
struct training;
enum job_state { J_QUEUED, J_RUNNING, J_WAITING, J_ENDING, J_ENDED }; // ENDING: being recorded
struct suite_job {
    struct suite *suite;
    uint32_t n; // from 1
    struct suite_cell cell;
    enum job_state state;
    uint32_t attempts;         // begun, not counting those that a restart cut off
    int64_t not_before_ns;     // J_WAITING
    struct suite_run *run;     // J_RUNNING; or
    struct training *training; // of a suite that trains; or
    struct suite_away *away;   // at another node
    char *ack;                 // of the ticket that brought it there, until that is settled
    int64_t ticket_ns;         // when a ticket was last put for it; 0: none is there
    uint32_t given;            // times that it went to others
    int in_vain;               // of those, that it did not come to an end there
    struct arena arena;        // brief
    Hlod__V1__Job *brief;
    Hlod__V1__JobOutcome *outcome; // once ENDING
    struct arena outcome_arena;
    struct strbuf log;
    bool dirty;                                 // in suites.dirty
    enum { P_NONE, P_UNDER_WAY, P_FAILED } put; // its result, of a suite that moves
    // Of the attempt under way: its span, below the one of the request that brought the job.
    struct trace trace;
    bool traced;
    int64_t began_ns;
};
struct suite {
    struct suites *s;
    struct suite *next;
    int refs; // the list's, and one a run
    int64_t id;
    char *tenant;
    Hlod__V1__SubmitJobsRequest *q; // owned
    struct suite_job *jobs;         // [n_jobs]
    uint32_t n_jobs, n_left;        // left: not ENDED
    uint32_t n_idle, n_ending;      // QUEUED or WAITING; ENDING
    int n_running;
    struct suite_guest *guest; // it is another node's, and not in the list
    bool held;                 // it may be another node's: nothing of it begins
    bool unsure;               // it is of an earlier process, and nobody was asked since
    bool moved;                // it is, and not in the list
};
struct suite_watch {
    struct suite_watch *next;
    struct suite *suite;
    uint32_t n;
    void (*changed)(void *ctx, const Hlod__V1__Job *j);
    void (*ended)(void *ctx, status_t st);
    void *ctx;
    bool gone;
};
struct save_done { // after everything saved before it
    void (*fn)(void *ctx, uint32_t n);
    void *ctx;
    uint32_t n;
};
struct suite_end {
    int64_t id, at_ns;
};
struct suite_moved { // rows are here
    int64_t id;
    char *node; // owned
};
struct save_batch;
struct suites {
    struct sched *sched;
    struct journal_jobs *journal;
    struct suites_config cfg;
    struct suite *first;       // by id
    int n_running, n_training; // of suites that train; each kind has cfg.parallel places
    int n_runs;                // objects of suite_run.c and training.c, also of cancelled jobs
    struct tickets *tickets;   // NULL: there are no others, as for
    struct attempts *attempts;
    struct use *use;
    int n_away, n_guests;         // jobs that others run; of others, here
    struct suites_fleet fleet;    // registers NULL: none
    struct move *move;            // the same
    struct suite_cancel *cancels; // that wait for results to be put
    size_t n_listed;              // heads that JetStream has, of all nodes
    VEC(int64_t) sharing;         // ids of suites that are shared and not admitted yet
    VEC(struct suite_end) ends;   // of such suites here, that suite_move.c has not seen yet
    VEC(struct suite_moved) away; // the same, of those that moved in an earlier process
    bool stopping, pump_posted;
    struct loop_timer *timer; // the next waiting job
    struct suite_watch *watches;
    VEC(struct suite_job *) dirty; // to be written; a job is in it once
    VEC(struct save_done) dones;
    struct save_batch *saving;     // the pool's
    struct loop_timer *save_timer; // after a failed write
    int64_t trimmed_ns;
    // suite.c's. The run is over: outcome->state says how; or (st) it may be tried again. Takes st,
    // and the arena that the outcome lies in.
    void (*job_done)(struct suite_job *j, Hlod__V1__JobOutcome *outcome, struct arena *a,
                     status_t st);
    void (*job_saved)(struct suite_job *j); // its result is on disk
    void (*lost)(struct suite *x);          // it is another node's now
    // It is ours now; jobs that have no result go on.
    void (*found)(struct suites *s, const struct suite_record *r, const struct job_record *ended,
                  size_t n_ended);
    struct smap doubtful; // keys of suites that may be on disk though their submit failed
};

// suite.c
void suites_pump(struct suites *s);       // posts
void suite_put_back(struct suite_job *j); // its attempt at another node was none
bool suites_give(struct suites *s, const char *kind, struct suite_job **out); // begins an attempt
bool suites_wait(struct suites *s); // does a job wait that could run here?
bool suite_not_begun(status_t st);  // refused before anything was tried

// suite_away.c: attempts at other nodes, and what they are told of waiting jobs.
const char *suite_kind(const struct suite_job *j); // of device, where others may run it; NULL
bool suite_may_go(const struct suite_job *j, const char *kind);
bool suite_may_stay(const struct suite_job *j); // or only others have its device
void suite_away_cancel(struct suite_job *j);    // no job_done comes
void suite_away_settle(struct suite_job *j);    // its ticket is used up
void suites_put_tickets(struct suites *s, bool lost);

// suite_guest.c
void suite_guest_done(struct suite_job *j, Hlod__V1__JobOutcome *o, struct arena *a, status_t st);

// suite_parts.c
void suite_log(struct suite_job *j, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void suite_tell(struct suite_job *j);          // those who watch it
int32_t suite_priority(const struct suite *x); // of its jobs: behind those that are waited for
void suite_unref(struct suite *x);
void suite_ended_brief(struct suite_job *j, Hlod__V1__Job *b);   // what its outcome adds to it
double suite_median(struct arena *a, const double *v, size_t n); // 0 of none
Hlod__V1__JobBudget suite_budget(const struct suite_job *j);     // the model's over the suite's

// suite_trace.c: attempts as spans, which nobody needs to wait for.
void suite_trace_begin(struct suite_job *j);
const struct trace *suite_trace(const struct suite_job *j); // of the attempt; NULL: none
// It has ended: job is what it ran, or NULL.
void suite_trace_end(struct suite_job *j, const struct job *job, enum status_code code, int reason,
                     const char *message);

// suite_run.c: one attempt. Ends in suites.job_done, never from inside.
void suite_run_start(struct suite_job *j);
void suite_run_cancel(struct suite_job *j); // no job_done comes

// training.c: the same for one that trains.
void training_start(struct suite_job *j);
void training_cancel(struct suite_job *j);

// suite_share.c: what makes a suite one that can move, by records in JetStream.
static inline bool suite_is_shared(const struct suite *x) {
    return x->id >= SUITE_SHARED && x->s->cfg.replicas;
}
void suite_put(struct suite_job *j); // its result; then suite_save. What another node put counts
struct share_blobs {
    struct digest *v;
    size_t n, cap;
};
bool share_blobs(const Hlod__V1__SubmitJobsRequest *q, struct share_blobs *out);     // each once
const char *share_key(struct arena *a, const char *what, int64_t suite, uint32_t n); // 0: none
uint32_t share_job(const char *key, uint32_t jobs); // its n, of so many jobs; 0: it is none
// All that the journal has of it, as records; `done` with those that were not put.
void share_again(struct suites *s, int64_t suite, bool with_head,
                 void (*done)(void *ctx, int64_t suite, int failed), void *ctx);
void share_forget(struct suites *s, int64_t id); // its records

// suite_leave.c: it is node HOME's now. The list's reference goes with it.
void suite_leave(struct suite *x, const char *home);

// suite_save.c
void suite_save(struct suite_job *j);
void suite_save_then(struct suites *s, void (*fn)(void *ctx, uint32_t n), void *ctx, uint32_t n);
void suite_save_free(struct suites *s);
