// SPDX-License-Identifier: Apache-2.0
// An executable that is not here is looked for elsewhere (remote/remotes.h) before it is compiled:
// what each remote says goes to the waiters as it comes, and into the record of the compile that
// follows.
#include <string.h>

#include "base/clock.h"
#include "scheduler/job/job_inside.h"
#include "scheduler/remote/remotes.h"
#include "scheduler/workers/pool.h"

enum { LOOKS_MAX = 4, ANSWERS_MAX = 64 };

static void tell(void *ctx, const Hlod__V1__RemoteAnswer *a) {
    struct op *op = ctx;
    struct hex_digest hex = digest_to_hex(op->digest);
    Hlod__V1__RemoteEvent of = HLOD__V1__REMOTE_EVENT__INIT;
    of.digest = hex.z;
    of.answer = (Hlod__V1__RemoteAnswer *)(uintptr_t)a;
    Hlod__V1__Event e = HLOD__V1__EVENT__INIT;
    e.kind_case = HLOD__V1__EVENT__KIND_REMOTE;
    e.remote = &of;
    op_tell(op, &e);
    if (!strcmp(a->outcome, "waits") || op->answers.n == ANSWERS_MAX) return;
    Hlod__V1__RemoteAnswer *kept = arena_dup(&op->arena, a, sizeof *a);
    kept->remote = arena_strdup(&op->arena, a->remote);
    kept->outcome = arena_strdup(&op->arena, a->outcome);
    kept->why = arena_strdup(&op->arena, a->why);
    avec_push(&op->arena, &op->answers, kept);
}
static void looked(void *ctx, Hlod__V1__ExecutableInfo *found, const char *remote, bool here) {
    struct op *op = ctx;
    op->look = NULL;
    op->claimed = !found && !here;
    if (found || here) op->remote = remote;
    op->remote_then(op, found, here);
}

// Stops asking; whoever waits for this one to compile does no longer.
static void leave(struct op *op) {
    look_cancel(op->look);
    if (op->claimed) remotes_given_up(op->s->cfg.remotes, op->digest);
    op->look = NULL;
    op->claimed = false;
}

// A device here runs what is compiled for this target.
static bool serves(const struct op *op) {
    for (int i = 0; i < pool_size(op->s->pool); i++) {
        const struct worker *w = pool_worker(op->s->pool, i);
        const Hlod__Wire__Hello *h = worker_hello(w);
        if (h && pool_place(w).role == ROLE_DEVICE && !strcmp(h->target_id, op->target_id))
            return true;
    }
    return false;
}
bool op_remote_start(struct op *op,
                     void (*then)(struct op *op, Hlod__V1__ExecutableInfo *found, bool here)) {
    struct remotes *r = op->s->cfg.remotes;
    if (!r || op->looks == LOOKS_MAX || op->s->stopping) return false;
    bool compiles = false;
    for (size_t i = 0; i < op->waiters.n; i++)
        compiles = compiles || !op->waiters.v[i]->spec->no_compile;
    op->looks++;
    op->remote_then = then;
    op->remote_leave = leave;
    op->look = remotes_look(r, &(struct look_spec){.key = op->digest,
                                                   .target_id = op->target_id,
                                                   .build_id = op->build_id,
                                                   .kernel_abi = op->kernel_abi,
                                                   .serves = serves(op),
                                                   .claim = compiles && op->looks < LOOKS_MAX,
                                                   .source = op->model->source,
                                                   .weights = op->model->weights,
                                                   .weights_bytes = model_weights(op->model),
                                                   .tell = tell,
                                                   .done = looked,
                                                   .ctx = op});
    return true;
}
