// SPDX-License-Identifier: Apache-2.0
// TUNE: the implementations of an executable's steps, measured on a device of its kind; and what a
// LOAD does with what was found. Beside the device's workers, in a compile worker: runs do not wait
// for it, and what they take of the machine meanwhile is in the times of all that is compared.
#include "base/clock.h"
#include "devices/worker/worker_calls.h"

static Hlod__V1__TunedStep *step_of(struct arena *a, const struct dev_tuned_step *s) {
    Hlod__V1__TunedStep *m = message_new(a, &hlod__v1__tuned_step__descriptor);
    m->n_instructions = (size_t)s->n_instrs;
    m->instructions = (char **)(uintptr_t)s->instrs;
    m->usual = (char *)(uintptr_t)s->candidates[0].impl;
    m->kept = (char *)(uintptr_t)s->candidates[s->kept].impl;
    m->usual_ms = clock_ms(s->candidates[0].ns);
    m->kept_ms = clock_ms(s->candidates[s->kept].ns);
    m->candidates = arena_array(a, Hlod__V1__TunedCandidate *, s->n_candidates + 1);
    for (; m->n_candidates < (size_t)s->n_candidates; m->n_candidates++) {
        const struct dev_candidate *from = &s->candidates[m->n_candidates];
        Hlod__V1__TunedCandidate *to = m->candidates[m->n_candidates] =
            message_new(a, &hlod__v1__tuned_candidate__descriptor);
        to->implementation = (char *)(uintptr_t)from->impl;
        to->ms = clock_ms(from->ns);
        to->why = (char *)(uintptr_t)from->why;
    }
    return m;
}
static Hlod__V1__Tuning *tuning_of(struct arena *a, const struct dev_tuning *t) {
    Hlod__V1__Tuning *m = message_new(a, &hlod__v1__tuning__descriptor);
    m->complete = t->complete;
    m->threads = t->threads;
    m->implementations = (char *)(uintptr_t)t->list;
    m->steps = arena_array(a, Hlod__V1__TunedStep *, t->n_steps + 1);
    for (; m->n_steps < (size_t)t->n_steps; m->n_steps++)
        m->steps[m->n_steps] = step_of(a, &t->steps[m->n_steps]);
    return m;
}

static status_t tune(struct worker_call *c, Hlod__Wire__TuneReply *out) {
    const Hlod__Wire__Tune *q = (const Hlod__Wire__Tune *)c->request;
    struct device *d = worker_compiles_for();
    struct executable *e;
    struct span bytes;
    struct dev_tuning found;
    struct dev_tune how = {.budget_ns = clock_of_ms((int64_t)q->budget_ms), .cancel = &c->cancel};
    if (!d->vt->tune)
        return st_new(ST_FAILED_PRECONDITION,
                      "nothing to tune: devices of kind %s do not choose who runs a step",
                      d->vt->kind);
    RETURN_IF_ERR(worker_call_blob(c, q->artifact, &bytes));
    RETURN_IF_ERR(executable_unpack(bytes, &e));
    RETURN_IF_ERR(d->vt->tune(d, e, &how, &c->arena, &found)); // takes e
    out->tuning = tuning_of(&c->arena, &found);
    return ST_OK;
}
WORKER_ANSWER(tune) {
    return tune(c, reply);
}

int worker_choose(struct executable *e, const Hlod__V1__Tuning *t) {
    struct arena a = {0};
    int n = 0;
    size_t most = 0;
    for (size_t k = 0; t && k < t->n_steps; k++)
        most += t->steps[k]->n_instructions;
    struct exe_choice *v = arena_array(&a, struct exe_choice, most + 1);
    for (size_t k = 0; t && k < t->n_steps; k++) {
        const Hlod__V1__TunedStep *s = t->steps[k];
        if (strcmp(s->kept, s->usual) == 0) continue;
        for (size_t i = 0; i < s->n_instructions; i++)
            v[n++] = (struct exe_choice){s->instructions[i], s->kept, s->usual,
                                         (int64_t)(s->kept_ms * 1e6), (int64_t)(s->usual_ms * 1e6)};
    }
    if (n) executable_choose(e, t->implementations, v, n);
    arena_done(&a);
    return n;
}
