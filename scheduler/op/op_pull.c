// SPDX-License-Identifier: Apache-2.0
// A model that lies on another node of the cluster, named here or not, is fetched from there
// (cluster/pull.h); then the job looks for it again.
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "scheduler/cluster/pull.h"
#include "scheduler/job/job_inside.h"
#include "scheduler/records/models.h"

static void pulled(void *ctx, status_t st) {
    struct op *op = ctx;
    for (size_t i = 0; i < op->waiters.n; i++)
        job_timing(op->waiters.v[i], "pull", clock_ns() - op->start_ns);
    op_end(op, st);
}
bool op_pull_start(struct job *j) {
    if (!j->s->pull || j->s->stopping) return false;
    const struct named_model *x = models_naming(j->s->names, j->owner, j->subject);
    const char *own = j->spec->tenant ? j->spec->tenant : MODELS_DEFAULT;
    const char *tenant = x ? x->tenant : own;
    char name[400];
    struct op *op;
    if (!job_invalidate(j, ROW_MODEL)) return false;

    snprintf(name, sizeof name, "%s/%s/%.100s", x ? "pull" : "find", digest_to_hex(j->subject).z,
             tenant);
    if (!op_wait(j, OP_PULL, name, &op)) return true;
    if (x) {
        pull_get(j->s->pull, tenant, j->subject, x->writer, pulled, op);
        return true;
    }
    status_t st = pull_find(j->s->pull, tenant, j->subject, pulled, op);
    if (st) op_end(op, st);
    return true;
}
