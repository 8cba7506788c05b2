// SPDX-License-Identifier: Apache-2.0
// What is told of a training while it goes on: its progress is part of the job's brief, which
// watchers get and the journal keeps.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "proto/message.h"
#include "scheduler/sched_inside.h"
#include "scheduler/suite/training.h"

enum { POINTS = 256, HEX = 65 };
struct progress { // with what its fields point to
    Hlod__V1__TrainProgress m;
    char checkpoint[HEX], best[HEX];
    Hlod__V1__TrainPoint points[POINTS], *curve[POINTS];
    int64_t per_point, in_last; // steps that a point stands for; that the last has so far
};

static void set_text(char **field, char to[HEX], const char *text) {
    snprintf(to, HEX, "%s", text);
    *field = to;
}
Hlod__V1__TrainProgress *training_progress_new(struct arena *a,
                                               const Hlod__V1__TrainProgress *was) {
    struct progress *p = arena_new_of(a, struct progress);
    memset(p, 0, sizeof *p);
    hlod__v1__train_progress__init(&p->m);
    if (was) p->m = *was;
    p->m.losses = p->m.accuracies = NULL;
    p->m.n_losses = p->m.n_accuracies = 0;
    p->m.curve = p->curve;
    p->m.n_curve = 0;
    p->per_point = 1;
    for (size_t k = 0; was && k < was->n_curve && k < POINTS; k++) {
        p->points[k] = *was->curve[k];
        if (k) p->per_point = p->points[k].step - p->points[k - 1].step;
        p->m.n_curve++;
    }
    if (p->per_point < 1) p->per_point = 1;
    p->in_last = p->per_point;
    for (size_t k = 0; k < POINTS; k++) {
        if (k >= p->m.n_curve) hlod__v1__train_point__init(&p->points[k]);
        p->curve[k] = &p->points[k];
    }
    set_text(&p->m.checkpoint, p->checkpoint, was ? was->checkpoint : "");
    set_text(&p->m.best, p->best, was ? was->best : "");
    return &p->m;
}
Hlod__V1__TrainProgress *training_progress_dup(struct arena *a, const Hlod__V1__TrainProgress *p) {
    return p ? training_progress_new(a, p) : NULL;
}
Hlod__V1__TrainProgress *training_progress(const struct training *t) {
    return t->j->brief->train;
}

// ---- the curve

// Each two points become one, of both their steps.
static void halve(struct progress *p) {
    size_t n = p->m.n_curve / 2;
    for (size_t k = 0; k < n; k++) {
        const Hlod__V1__TrainPoint *a = &p->points[2 * k], *b = &p->points[2 * k + 1];
        p->points[k].loss = (a->loss + b->loss) / 2;
        p->points[k].accuracy = (a->accuracy + b->accuracy) / 2;
        p->points[k].step = b->step;
    }
    p->m.n_curve = n;
    p->per_point *= 2;
    p->in_last = p->per_point;
}
static void add_step(struct progress *p, int64_t step, double loss, double accuracy) {
    if (p->in_last >= p->per_point) {
        if (p->m.n_curve == POINTS) halve(p);
        hlod__v1__train_point__init(&p->points[p->m.n_curve++]);
        p->in_last = 0;
    }
    Hlod__V1__TrainPoint *x = &p->points[p->m.n_curve - 1];
    double n = (double)p->in_last++;
    x->loss = (x->loss * n + loss) / (n + 1);
    x->accuracy = (x->accuracy * n + accuracy) / (n + 1);
    x->step = step;
}

void training_goes_back(struct training *t) {
    struct suite_job *j = t->j;
    if (t->own_checkpoint && digest_is_zero(t->from))
        j->brief->train = training_progress_new(&j->arena, NULL);
    struct progress *p = (struct progress *)(void *)j->brief->train;
    while (p->m.n_curve && p->points[p->m.n_curve - 1].step > t->step)
        p->m.n_curve--;
    p->in_last = p->per_point;
    p->m.step = t->step;
}

// ---- telling

static double mean(const float *v, size_t n) {
    double sum = 0;
    for (size_t k = 0; k < n; k++)
        sum += (double)v[k];
    return n ? sum / (double)n : 0;
}
void training_told(struct training *t, int64_t from) {
    Hlod__V1__TrainProgress *m = training_progress(t);
    struct progress *p = (struct progress *)(void *)m;
    size_t made = (size_t)(t->step - from);
    m->step = t->step;
    m->steps = t->end;
    m->steps_per_epoch = training_epoch(t);
    m->losses = t->losses;
    m->n_losses = made;
    m->accuracies = t->accuracies;
    m->n_accuracies = t->train.accuracy ? made : 0;
    m->loss = mean(t->losses, made);
    m->accuracy = mean(t->accuracies, m->n_accuracies);
    m->step_ms = t->step_ms;
    m->examples_per_s = t->step_ms > 0 ? (double)t->batch / t->step_ms * 1e3 : 0;
    for (size_t k = 0; k < made; k++)
        add_step(p, from + (int64_t)k + 1, (double)t->losses[k], (double)t->accuracies[k]);
    suite_tell(t->j);
    m->n_losses = m->n_accuracies = 0;
}
void training_set_checkpoint(struct training *t, bool best) {
    Hlod__V1__TrainProgress *m = training_progress(t);
    struct progress *p = (struct progress *)(void *)m;
    struct hex_digest hex = digest_to_hex(t->now.digest);
    if (best) set_text(&m->best, p->best, hex.z);
    set_text(&m->checkpoint, p->checkpoint, hex.z);
    m->checkpoint_step = t->step;
}
void training_quiet(struct training *t) {
    Hlod__V1__TrainProgress *m = training_progress(t);
    m->losses = m->accuracies = NULL;
    m->n_losses = m->n_accuracies = 0;
}

// ---- the jobs of an attempt

const struct trace *training_part(struct training *t) {
    const struct trace *all = t->j ? suite_trace(t->j) : NULL;
    if (!all) return NULL;
    trace_child(all, &t->part);
    return &t->part;
}
void training_part_ended(struct training *t, const struct job *job, status_t st) {
    const struct sched *s = t->suite->s->sched;
    const Hlod__V1__RunRecord *r = job_result(job)->record;
    if (!t->j || !suite_trace(t->j) || !r || job_result(job)->kind == JOB_PLAN) return;
    struct trace_work w = {.trace = &t->part,
                           .name = r->kind,
                           .start_ns = job_start_ns(job),
                           .end_ns = clock_ns(),
                           .code = (int)st_code(st),
                           .reason = st_get_reason(st),
                           .message = st ? st_message(st) : NULL,
                           .record = r,
                           .work_ns = job_start_ns(job)};
    s->told(s->told_ctx, &w);
}
