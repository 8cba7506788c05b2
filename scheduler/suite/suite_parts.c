// SPDX-License-Identifier: Apache-2.0
// What an attempt and the journal need of a batch job: its log, its watchers, its brief, its
// budget, its priority.
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "scheduler/suite/suite_inside.h"

enum { BEHIND = 1000 };

Hlod__V1__JobBudget suite_budget(const struct suite_job *j) {
    Hlod__V1__JobBudget b = HLOD__V1__JOB_BUDGET__INIT;
    const Hlod__V1__SubmitJobsRequest *q = j->suite->q;
    if (q->budget) b = *q->budget;
    const Hlod__V1__JobBudget *own = q->models[j->cell.model]->budget;
    if (own && own->run_ms != 0) b.run_ms = own->run_ms;
    if (own && own->compile_ms != 0) b.compile_ms = own->compile_ms;
    if (own && own->instructions) b.instructions = own->instructions;
    if (own && own->peak_bytes) b.peak_bytes = own->peak_bytes;
    return b;
}

void suite_log(struct suite_job *j, const char *fmt, ...) {
    char now[32];
    va_list ap;
    clock_wall_text(clock_wall_ns(), now);
    strbuf_printf(&j->log, "%s ", now);
    va_start(ap, fmt);
    strbuf_vprintf(&j->log, fmt, ap);
    va_end(ap);
    strbuf_putc(&j->log, '\n');
}

int32_t suite_priority(const struct suite *x) {
    int32_t most = BEHIND - 1, p = x->q->priority;
    return (p > most ? most : p < -most ? -most : p) - BEHIND;
}

void suite_tell(struct suite_job *j) {
    struct suites *s = j->suite->s;
    for (struct suite_watch *w = s->watches; w; w = w->next)
        if (!w->gone && w->suite == j->suite && (!w->n || w->n == j->n))
            w->changed(w->ctx, j->brief);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}
double suite_median(struct arena *a, const double *v, size_t n) {
    if (!n) return 0;
    double *t = arena_dup_array(a, v, n);
    qsort(t, n, sizeof *t, by_value);
    return t[n / 2];
}

void suite_ended_brief(struct suite_job *j, Hlod__V1__Job *b) {
    const Hlod__V1__JobOutcome *o = j->outcome;
    b->state = o->state;
    b->error = o->error;
    b->finished = o->finished;
    b->node = o->node;
    if (o->train) b->train = o->train;
    b->run_ms = suite_median(&j->arena, o->run_ms, o->n_run_ms);
    b->instructions = o->counts ? o->counts->entry : 0;
    b->fusions = o->counts ? o->counts->fusions : 0;
}

void suite_unref(struct suite *x) {
    if (--x->refs) return;
    for (uint32_t i = 0; i < x->n_jobs; i++) {
        strbuf_done(&x->jobs[i].log);
        free(x->jobs[i].ack);
        arena_done(&x->jobs[i].arena);
        arena_done(&x->jobs[i].outcome_arena);
    }
    hlod__v1__submit_jobs_request__free_unpacked(x->q, NULL);
    free(x->jobs);
    free(x->tenant);
    free(x);
}
