// SPDX-License-Identifier: Apache-2.0
// The attempts of a batch job are parts of the trace of the request that brought it: its brief
// keeps that request's span, so that they find it after a restart too. An attempt is told when it
// ends; one that a kill of the daemon cut off is not.
#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "scheduler/job/job.h"
#include "scheduler/sched_inside.h"
#include "scheduler/suite/suite_inside.h"

void suite_trace_begin(struct suite_job *j) {
    const Hlod__V1__Job *b = j->brief;
    j->began_ns = clock_ns();
    j->traced = j->suite->s->sched->told && trace_parse(b->traceparent, &j->trace) &&
                trace_sampled(&j->trace);
    j->trace.remote = false; // the request was this daemon's
    j->trace.state = b->tracestate;
}
const struct trace *suite_trace(const struct suite_job *j) {
    return j->traced ? &j->trace : NULL;
}

void suite_trace_end(struct suite_job *j, const struct job *job, enum status_code code, int reason,
                     const char *message) {
    const struct sched *s = j->suite->s->sched;
    char id[48];
    if (!j->traced) return;
    j->traced = false;
    if (j->suite->guest) return; // the call is its span
    snprintf(id, sizeof id, "%" PRId64 ".%u", j->suite->id, j->n);
    struct trace_work w = {.trace = &j->trace,
                           .name = j->suite->q->train ? "training" : "batch job",
                           .start_ns = j->began_ns,
                           .end_ns = clock_ns(),
                           .code = (int)code,
                           .reason = reason,
                           .message = message,
                           .model = j->brief->model,
                           .tenant = j->suite->tenant,
                           .job = id,
                           .attempt = j->attempts};
    w.work_ns = w.start_ns;
    if (job) {
        w.record = job_result(job)->record;
        w.work_ns = job_start_ns(job);
    }
    s->told(s->told_ctx, &w);
}
