// SPDX-License-Identifier: Apache-2.0
// Changes of jobs on their way to the journal: gathered while a write is under way, written
// together in one transaction. A write that fails is tried again until it succeeds: until then the
// jobs have not ended.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/log.h"
#include "proto/message.h"
#include "scheduler/job/job.h"
#include "scheduler/loop.h"
#include "scheduler/suite/suite_inside.h"

enum { RETRY_MS = 1000, TRIM_EVERY_S = 60 };
struct save_batch {
    struct suites *s;
    struct arena arena;
    struct suite_job **jobs;
    struct job_record *records;
    bool *kept;
    size_t n;
    VEC(struct save_done) dones;
    struct jobs_retention keep;
    bool trim;
    int64_t removed;
    status_t st;
};

static void save_work(void *arg) {
    struct save_batch *b = arg;
    if (b->n) b->st = journal_jobs_write(b->s->journal, b->records, b->n, b->kept);
    if (!b->st && b->trim) b->st = journal_jobs_trim(b->s->journal, &b->keep, &b->removed);
}

static void save_next(struct suites *s);
static void save_again(void *arg) {
    struct suites *s = arg;
    loop_timer_free(s->save_timer);
    s->save_timer = NULL;
    save_next(s);
}

static void free_batch(struct save_batch *b) {
    vec_done(&b->dones);
    arena_done(&b->arena);
    free(b);
}

static void saved(void *arg) {
    struct save_batch *b = arg;
    struct suites *s = b->s;
    s->saving = NULL;
    if (b->st) {
        log_event(LOG_ERROR, "jobs.save", "jobs=%zu why=\"%s\"", b->n, st_message(b->st));
        st_drop(b->st);
        s->save_timer = loop_timer_new(sched_loop(s->sched), save_again, s);
        loop_timer_start(s->save_timer, RETRY_MS);
        for (size_t i = 0; i < b->n; i++)
            suite_save(b->jobs[i]);
        for (size_t i = 0; i < b->dones.n; i++)
            vec_push(&s->dones, b->dones.v[i]);
        free_batch(b);
        return;
    }

    if (b->trim) s->trimmed_ns = clock_ns();
    if (b->removed) log_event(LOG_INFO, "jobs.trim", "removed=%" PRId64, b->removed);
    for (size_t i = 0; i < b->n; i++) {
        if (b->records[i].result.n) {
            if (b->kept[i]) // cannot be: only we write
                log_event(LOG_ERROR, "jobs.twice", "job=%" PRId64 ".%u", b->records[i].suite,
                          b->records[i].n);
            s->job_saved(b->jobs[i]);
        }
    }

    for (size_t i = 0; i < b->dones.n; i++)
        if (b->dones.v[i].fn) b->dones.v[i].fn(b->dones.v[i].ctx, b->dones.v[i].n);
    free_batch(b);
    save_next(s);
}

static void save_next(struct suites *s) {
    if (s->saving || s->save_timer || (!s->dirty.n && !s->dones.n)) return;
    struct save_batch *b = arena_must_calloc(1, sizeof *b);
    b->s = s;
    b->n = s->dirty.n;
    b->jobs = arena_array(&b->arena, struct suite_job *, b->n + 1);
    b->records = arena_zarray(&b->arena, struct job_record, b->n + 1);
    b->kept = arena_zarray(&b->arena, bool, b->n + 1);
    for (size_t i = 0; i < b->n; i++) {
        struct suite_job *j = b->jobs[i] = s->dirty.v[i];
        j->dirty = false;
        struct job_record *r = &b->records[i];
        r->suite = j->suite->id;
        r->n = j->n;
        Hlod__V1__Job brief = *j->brief;
        bool ends = j->outcome && j->put == P_NONE; // else its result is not a record yet
        if (ends) suite_ended_brief(j, &brief);
        r->brief = message_pack(&b->arena, &brief.base);
        r->log = (struct span){arena_dup(&b->arena, strbuf_cstr(&j->log), j->log.n), j->log.n};
        if (!ends) continue;
        r->result = message_pack(&b->arena, &j->outcome->base);
        r->finished_ns = clock_wall_ns();
    }

    s->dirty.n = 0;
    for (size_t i = 0; i < s->dones.n; i++)
        vec_push(&b->dones, s->dones.v[i]);
    s->dones.n = 0;
    b->trim = !s->trimmed_ns || clock_ns() - s->trimmed_ns > TRIM_EVERY_S * 1000000000ll;
    b->keep = s->cfg.keep;
    b->keep.before_ns = s->cfg.keep_ns ? clock_wall_ns() - s->cfg.keep_ns : 0;

    s->saving = b;
    loop_work(sched_loop(s->sched), save_work, saved, b);
}

void suite_save(struct suite_job *j) {
    struct suites *s = j->suite->s;
    if (!j->dirty) vec_push(&s->dirty, j);
    j->dirty = true;
    save_next(s);
}

void suite_save_then(struct suites *s, void (*fn)(void *, uint32_t), void *ctx, uint32_t n) {
    vec_push(&s->dones, ((struct save_done){fn, ctx, n}));
    save_next(s);
}

// What is under way reaches the disk first, unless writing fails.
void suite_save_free(struct suites *s) {
    while (s->saving && !s->save_timer)
        loop_turn(sched_loop(s->sched));
    loop_timer_free(s->save_timer);
    vec_done(&s->dirty);
    vec_done(&s->dones);
}
