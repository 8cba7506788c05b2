// SPDX-License-Identifier: Apache-2.0
#include "client/hlod_train.h"

#include <string.h>

#include "client/lib/jobs.h"
#include "proto/message.h"

static char *text(const char *z) {
    return (char *)(uintptr_t)(z ? z : "");
}

// ---- requests

static Hlod__V1__Training *training(struct arena *a, const struct hlod_training *t) {
    Hlod__V1__Training *m = message_new(a, &hlod__v1__training__descriptor);
    m->loss = text(t->loss);
    m->optimizer = text(t->optimizer);
    m->schedule = text(t->schedule);
    m->batch = t->batch;
    m->epochs = t->epochs;
    m->steps = t->steps;
    m->seed = t->seed;
    m->in_order = t->in_order;
    m->settings = (char **)(uintptr_t)t->settings;
    m->n_settings = t->n_settings;
    m->validation = jobs_tensors(a, t->validation, t->n_validation);
    m->n_validation = t->n_validation;
    m->patience = t->patience;
    m->checkpoint_steps = t->checkpoint_steps;
    m->checkpoint_s = t->checkpoint_s;
    m->resume = text(t->resume);
    m->window = t->window;
    m->whole = jobs_tensors(a, t->whole, t->n_whole);
    m->n_whole = t->n_whole;
    return m;
}

enum hlod_code hlod_train(struct hlod *h, const struct hlod_training *given,
                          struct hlod_submitted **out) {
    struct hlod_training t = HLOD_TRAINING;
    struct arena a = {0};
    struct wire_request q;
    memcpy(&t, given, given->size < sizeof t ? given->size : sizeof t);

    Hlod__V1__TrainRequest *m = message_new(&a, &hlod__v1__train_request__descriptor);
    Hlod__V1__RetryPolicy *retry = message_new(&a, &hlod__v1__retry_policy__descriptor);
    retry->max_attempts = t.max_attempts;
    m->model = text(t.model);
    m->data = jobs_tensors(&a, t.data, t.n_data);
    m->n_data = t.n_data;
    m->train = training(&a, &t);
    m->device = text(t.device);
    m->retry = retry;
    m->timeout_ms = t.timeout_ms;
    m->priority = t.priority;
    m->idempotency_key = text(t.idempotency_key);
    m->name = text(t.name);
    m->options = message_new(&a, &hlod__v1__compile_options__descriptor);
    m->options->precision = text(t.precision);

    wire_call(&a, h->grpc != NULL, "Train", &m->base, &hlod__v1__submit_jobs_reply__descriptor, &q);
    void *got = jobs_call(h, &a, &q, jobs_submitted);
    if (got) *out = got;
    return h->error.code;
}

// ---- progress

typedef double curve_point[3]; // step, loss, accuracy
static curve_point *curve_of(struct arena *a, const Hlod__V1__TrainProgress *t) {
    curve_point *curve = arena_alloc(a, (t->n_curve + 1) * sizeof *curve);
    for (size_t k = 0; k < t->n_curve; k++) {
        curve[k][0] = (double)t->curve[k]->step;
        curve[k][1] = t->curve[k]->loss;
        curve[k][2] = t->curve[k]->accuracy;
    }
    return curve;
}

struct watch {
    hlod_train_fn fn;
    void *ctx;
};
static bool on_message(void *ctx, const Hlod__V1__Event *event) {
    const struct watch *w = ctx;
    static const Hlod__V1__Error no_error = HLOD__V1__ERROR__INIT;
    static const Hlod__V1__TrainProgress none = HLOD__V1__TRAIN_PROGRESS__INIT;
    if (event->kind_case != HLOD__V1__EVENT__KIND_JOB) return true;

    const Hlod__V1__Job *j = event->job;
    const Hlod__V1__TrainProgress *t = j->train ? j->train : &none;
    const Hlod__V1__Error *e = j->error ? j->error : &no_error;
    struct arena a = {0};
    struct hlod_train_progress p = {.curve = curve_of(&a, t),
                                    .n_curve = t->n_curve,
                                    .job = j->id,
                                    .state = j->state,
                                    .ended = *j->finished,
                                    .step = t->step,
                                    .steps = t->steps,
                                    .steps_per_epoch = t->steps_per_epoch,
                                    .losses = t->losses,
                                    .accuracies = t->accuracies,
                                    .n_losses = t->n_losses,
                                    .n_accuracies = t->n_accuracies,
                                    .examples_per_s = t->examples_per_s,
                                    .step_ms = t->step_ms,
                                    .checkpoint = t->checkpoint,
                                    .checkpoint_step = t->checkpoint_step,
                                    .validation_step = t->validation_step,
                                    .validation_loss = t->validation_loss,
                                    .validation_accuracy = t->validation_accuracy,
                                    .error_code = e->code,
                                    .error_reason = e->reason,
                                    .error = e->message};
    bool goes_on = w->fn(w->ctx, &p);
    arena_done(&a);
    return goes_on;
}
enum hlod_code hlod_train_watch(struct hlod *h, const char *job, hlod_train_fn fn, void *ctx) {
    struct arena a = {0};
    struct wire_request q;
    struct watch w = {fn, ctx};
    Hlod__V1__WatchJobRequest m = HLOD__V1__WATCH_JOB_REQUEST__INIT;
    m.job = text(job);
    wire_call(&a, h->grpc != NULL, "WatchJob", &m.base, NULL, &q);
    q.any_end = true;
    q.on_message = on_message;
    q.ctx = &w;
    jobs_call(h, &a, &q, jobs_nothing);
    return h->error.code;
}

// ---- the end

static status_t trained(struct wire_reader *r, void **out) {
    static const Hlod__V1__Error no_error = HLOD__V1__ERROR__INIT;
    static const Hlod__V1__TrainProgress none = HLOD__V1__TRAIN_PROGRESS__INIT;
    struct arena *a;
    struct hlod_trained *x = wire_result_new(sizeof *x, &a);
    const Hlod__V1__JobOutcome *m = (const Hlod__V1__JobOutcome *)r->reply;
    const Hlod__V1__TrainProgress *t = m->train ? m->train : &none;
    const Hlod__V1__Error *e = m->error ? m->error : &no_error;
    wire_keep(a, r->reply);

    *x = (struct hlod_trained){.job = m->job,
                               .state = m->state,
                               .error_code = e->code,
                               .error_reason = e->reason,
                               .error = e->message,
                               .model = m->model,
                               .checkpoint = t->checkpoint,
                               .executable = m->executable,
                               .device = m->device,
                               .step = t->step,
                               .loss = t->loss,
                               .accuracy = t->accuracy,
                               .validation_loss = t->validation_loss,
                               .validation_accuracy = t->validation_accuracy,
                               .curve = curve_of(a, t),
                               .n_curve = t->n_curve};
    *out = x;
    return ST_OK;
}
enum hlod_code hlod_train_result(struct hlod *h, const char *job, struct hlod_trained **out) {
    struct arena a = {0};
    struct wire_request q;
    Hlod__V1__JobResultRequest m = HLOD__V1__JOB_RESULT_REQUEST__INIT;
    m.job = text(job);
    wire_call(&a, h->grpc != NULL, "JobResult", &m.base, &hlod__v1__job_outcome__descriptor, &q);
    void *got = jobs_call(h, &a, &q, trained);
    if (got) *out = got;
    return h->error.code;
}
void hlod_trained_free(struct hlod_trained *t) {
    wire_result_free(t);
}
