// SPDX-License-Identifier: Apache-2.0
// One attempt at a job that trains: its way from job to job (training.h).
#include "scheduler/suite/training.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/metrics.h"
#include "proto/message.h"
#include "scheduler/job/key.h"
#include "scheduler/job/plan.h"
#include "scheduler/loop.h"
#include "scheduler/op/op.h"
#include "scheduler/sched_inside.h"
#include "scheduler/workers/memfds.h"

// A run takes so long; less while others' work was waiting lately.
enum { SLICE_MS = 250, BESIDE_MS = 50, BESIDE_FOR_MS = 1000 };
enum { LEASE_MS = 3600 * 1000, USUAL_BATCH = 32, USUAL_CHECKPOINT_S = 60 };
static struct sched *sched_of(const struct training *t) {
    return t->suite->s->sched;
}

// ---- its end

static void program_done(struct training_program *p) {
    memfd_unref(p->payload);
    if (p->values_fd >= 0) close(p->values_fd);
}
static void free_handle(struct training *t, const char *handle) {
    int64_t bytes;
    if (*handle)
        st_drop(buffers_free(sched_buffers(sched_of(t)), t->suite->tenant, handle, &bytes));
}
static void free_training(struct training *t) {
    const char *handles[] = {t->state, t->train.frozen_handle, t->train.rows_handle,
                             t->held.rows_handle};
    job_free(t->job);
    for (size_t k = 0; k < sizeof handles / sizeof *handles; k++)
        free_handle(t, handles[k]);
    program_done(&t->train);
    program_done(&t->held);
    t->suite->s->n_runs--;
    arena_done(&t->arena);
    arena_done(&t->slice);
    st_drop(t->st);
    st_drop(t->ending);
    suite_unref(t->suite);
    free(t);
}

static Hlod__V1__JobOutcome *outcome_of(struct training *t) {
    if (!t->outcome) t->outcome = message_new(&t->arena, &hlod__v1__job_outcome__descriptor);
    return t->outcome;
}
static void end(struct training *t, status_t st) {
    struct suite_job *j = t->j;
    Hlod__V1__JobOutcome *o = outcome_of(t);
    o->train = training_progress_dup(&t->arena, training_progress(t));
    if (!st) {
        o->state = arena_strdup(&t->arena, "passed");
        o->model = arena_strdup(&t->arena, digest_to_hex(t->model).z);
    }
    suite_trace_end(j, NULL, st_code(st), st_get_reason(st), st ? st_message(st) : NULL);
    if (st && t->kept_some) j->attempts = 1; // it came further: that was no vain attempt
    training_quiet(t);
    struct arena a = t->arena;
    t->arena = (struct arena){0};
    j->training = NULL;
    j->suite->s->job_done(j, o, &a, st);
    arena_done(&a);
    free_training(t);
}

// ---- from one piece of work to the next

static void take_handle(char to[TRAINING_HANDLE], const char *text) {
    snprintf(to, TRAINING_HANDLE, "%s", text);
}

static void go_on(void *arg) {
    struct training *t = arg;
    status_t st = t->st;
    t->busy = false;
    t->st = ST_OK;
    if (!t->j) {
        const struct job_result *x = t->running && t->job ? job_result(t->job) : NULL;
        if (!st && x && x->plan.tuple) take_handle(t->state, x->plan.tuple); // to be freed
        st_drop(st);
        free_training(t);
    } else if (st)
        end(t, st);
    else
        t->then(t);
}
static void go_on_soon(struct training *t) {
    t->busy = true;
    loop_post(sched_loop(sched_of(t)), go_on, t);
}
void training_fail(struct training *t, status_t st) {
    t->st = st;
    go_on_soon(t);
}

static void on_done(void *ctx, struct job *job, status_t st) {
    struct training *t = ctx;
    training_part_ended(t, job, st);
    training_fail(t, st);
}
void training_job(struct training *t, struct job_spec *spec, void (*then)(struct training *)) {
    const Hlod__V1__SubmitJobsRequest *q = t->suite->q;
    job_free(t->job);
    spec->format = "";
    spec->device = t->device;
    spec->tenant = t->suite->tenant;
    spec->priority = suite_priority(t->suite);
    spec->options = q->models[t->j->cell.model]->options;
    spec->trace = spec->kind == JOB_PLAN ? NULL : training_part(t); // of slices there are thousands
    spec->on_done = on_done;
    spec->ctx = t;
    t->then = then;
    t->job = job_start(sched_of(t), spec);
}

static void do_work(void *arg) {
    struct training *t = arg;
    t->st = t->work(t);
}
void training_work(struct training *t, status_t (*work)(struct training *),
                   void (*then)(struct training *)) {
    t->work = work;
    t->then = then;
    t->busy = true;
    loop_work(sched_loop(sched_of(t)), do_work, go_on, t);
}

// ---- a program: made, compiled, its values on the device

static void make_program(struct training *t);
static void next_slice(struct training *t);
static void put_next(struct training *t);

static struct job_spec no_payload(enum job_kind kind) {
    return (struct job_spec){.kind = kind, .payload_fd = -1, .quiet = true};
}
static void made(struct training *t) { // all that is needed is on the device
    struct training_program *p = t->at;
    if (!p->evaluates && t->held.n_rows) {
        t->at = &t->held;
        make_program(t);
        return;
    }
    t->saved_ns = clock_ns();
    t->saved_step = t->step;
    t->now = t->last;
    next_slice(t);
}

static void has_state(struct training *t) {
    const struct job_result *x = job_result(t->job);
    take_handle(t->state, x->put.tuple);
    if (x->device) t->device = arena_strdup(&t->arena, x->device); // the others go there too
    put_next(t);
}
static void has_frozen(struct training *t) {
    take_handle(t->at->frozen_handle, job_result(t->job)->put.tuple);
    put_next(t);
}
static void take_rows(struct training *t, struct training_program *p) {
    take_handle(p->rows_handle, job_result(t->job)->put.tuple);
    job_free(t->job);
    t->job = NULL;
    memfd_unref(p->payload);
    p->payload = NULL;
}
static void has_rows(struct training *t) {
    take_rows(t, t->at);
    made(t);
}
static void put_rows(struct training *t, struct training_program *p,
                     void (*then)(struct training *)) {
    struct job_spec spec = no_payload(JOB_PUT);
    spec.inputs = p->row_input;
    spec.n_inputs = p->n_row_input;
    spec.payload = p->payload;
    spec.payload_fd = memfd_fd(p->payload);
    spec.put.tuple = true;
    spec.put.lease_ms = LEASE_MS;
    training_job(t, &spec, then);
}

static struct job_input leaf_input(const Hlod__Wire__TrainLeaf *l) {
    struct job_input in = {.name = l->key,
                           .dtype = numbers_dtype(str_of(l->dtype)),
                           .rank = (int32_t)l->n_dims,
                           .dims = l->dims,
                           .offset = (int64_t)l->offset,
                           .size = (int64_t)l->size,
                           .elements = 1};
    for (size_t d = 0; d < l->n_dims; d++)
        in.elements *= l->dims[d]; // check_leaf has seen them
    return in;
}
static bool is_frozen(const Hlod__Wire__TrainLeaf *l) {
    return !strcmp(l->role, "frozen");
}
static void put_leaves(struct training *t, bool frozen, void (*then)(struct training *)) {
    struct training_program *p = t->at;
    struct job_input *in = arena_zarray(&t->arena, struct job_input, p->n_leaves + 1);
    struct job_spec spec = no_payload(JOB_PUT);
    for (size_t k = 0; k < p->n_leaves; k++)
        if (frozen ? is_frozen(p->leaves[k]) : k < p->n_state)
            in[spec.n_inputs++] = leaf_input(p->leaves[k]);
    spec.inputs = in;
    spec.payload_fd = p->values_fd;
    spec.put.tuple = true;
    spec.put.lease_ms = LEASE_MS;
    training_job(t, &spec, then);
}
static void put_next(struct training *t) {
    struct training_program *p = t->at;
    if (!p->evaluates && !*t->state) {
        put_leaves(t, false, has_state);
        return;
    }
    if (!p->evaluates && p->n_frozen && !*p->frozen_handle) {
        put_leaves(t, true, has_frozen);
        return;
    }
    put_rows(t, p, has_rows);
}

static void compiled(struct training *t) {
    struct training_program *p = t->at;
    const struct job_result *x = job_result(t->job);
    const Hlod__V1__Signature *sig = x->exe->signature;
    if (!digest_parse(str_of(x->exe->digest), &p->exe) || !sig ||
        sig->n_outputs < p->n_state + 1 + p->accuracy) {
        training_fail(t, st_internal("the program's results are others than its model's"));
        return;
    }
    if (!*t->device) // its values and its runs go to devices of that kind
        t->device = arena_strdup(&t->arena, job_compiled_for(t->job));
    p->names = arena_array(&t->arena, char *, sig->n_outputs + 1);
    for (; p->n_names < sig->n_outputs; p->n_names++)
        p->names[p->n_names] = arena_strdup(&t->arena, sig->outputs[p->n_names]->name);
    if (!p->evaluates) {
        const Hlod__V1__Counts *counts = key_counts(x->exe);
        Hlod__V1__JobOutcome *o = outcome_of(t);
        o->executable = arena_strdup(&t->arena, x->exe->digest);
        o->cache_hit = x->cache_hit;
        o->compile_ms = x->exe->compile_ms;
        o->peak_bytes = x->exe->peak_bytes;
        if (counts) o->counts = arena_dup(&t->arena, counts, sizeof *counts);
        suite_log(t->j, "one executable of %" PRId64 " instructions, %s in %.1f ms",
                  counts ? counts->total : 0,
                  x->cache_hit ? "from the cache, compiled" : "compiled", x->exe->compile_ms);
    }
    put_next(t);
}
static void stored(struct training *t) {
    struct job_spec spec = no_payload(JOB_COMPILE);
    spec.model = t->at->source;
    training_job(t, &spec, compiled);
}

static void copy_leaves(struct training *t, const Hlod__Wire__TrainReply *r) {
    struct training_program *p = t->at;
    struct arena *a = &t->arena;
    p->leaves = arena_array(a, Hlod__Wire__TrainLeaf *, r->n_leaves + 1);
    for (; p->n_leaves < r->n_leaves; p->n_leaves++) {
        const Hlod__Wire__TrainLeaf *from = r->leaves[p->n_leaves];
        Hlod__Wire__TrainLeaf *l = p->leaves[p->n_leaves] = arena_dup(a, from, sizeof *from);
        l->name = arena_strdup(a, from->name);
        l->role = arena_strdup(a, from->role);
        l->of = arena_strdup(a, from->of);
        l->key = arena_strdup(a, from->key);
        l->dtype = arena_strdup(a, from->dtype);
        l->dims = arena_dup_array(a, from->dims, from->n_dims);
        p->n_frozen += is_frozen(l);
    }
    p->accuracy = r->accuracy;
    p->steps_per_epoch = r->steps_per_epoch;
    p->classes = r->classes;
}
static bool check_leaf(const struct training_program *p, size_t k, const Hlod__Wire__TrainLeaf *l,
                       uint64_t bytes) {
    const struct dtype_row *type = numbers_dtype(str_of(l->dtype));
    int64_t size = type ? type->bytes : -1;
    for (size_t d = 0; d < l->n_dims && size >= 0; d++)
        if (!sz_mul(size, l->dims[d], &size)) size = -1;
    bool has_value = !p->evaluates && (k < p->n_state || is_frozen(l));
    return size >= 0 && (!has_value || (l->size == (uint64_t)size && l->offset <= bytes &&
                                        l->size <= bytes - l->offset));
}
static void tell_weights(struct training *t) {
    const struct training_program *p = &t->train;
    int64_t weights = 0, numbers = 0;
    for (size_t k = 0; k < p->n_state; k++) {
        if (strcmp(p->leaves[k]->role, "weight") != 0) continue;
        weights++, numbers += leaf_input(p->leaves[k]).elements;
        if (p->leaves[k]->still)
            suite_log(t->j, "the loss does not depend on '%s'", p->leaves[k]->of);
    }
    suite_log(t->j, "%" PRId64 " weights of %" PRId64 " numbers are trained, %zu are not", weights,
              numbers, p->n_frozen);
}
static status_t take_program(struct training *t) {
    struct training_program *p = t->at;
    const struct job_result *x = job_result(t->job);
    const Hlod__Wire__TrainReply *r = x->train.program;
    uint32_t fd = r->values ? r->values->fd : 0;
    bool good = fd >= 1 && fd <= (uint32_t)x->n_fds && r->n_state <= r->n_leaves &&
                (p->evaluates || (r->n_state && r->steps_per_epoch >= 1 && r->step >= 0));
    p->n_state = r->n_state;
    for (size_t k = 0; k < r->n_leaves && good; k++)
        good = check_leaf(p, k, r->leaves[k], r->values->size);
    if (!good) return st_internal("the worker's reply is no training program");
    p->values_fd = fcntl(x->fds[fd - 1], F_DUPFD_CLOEXEC, 0);
    if (p->values_fd < 0) return st_internal("no descriptor is left");
    copy_leaves(t, r);
    if (p->evaluates) return ST_OK;
    t->step = r->step;
    t->end = (int64_t)t->q->steps;
    if (!t->end && !sz_mul(t->q->epochs ? t->q->epochs : 1, training_epoch(t), &t->end))
        t->end = INT64_MAX;
    if (t->end > INT32_MAX)
        return st_because(ST_INVALID_ARGUMENT, BAD_OPTION, "more than 2147483647 steps");
    training_goes_back(t);
    tell_weights(t);
    suite_log(t->j, "begins at step %" PRId64 " of %" PRId64, t->step, t->end);
    return ST_OK;
}
static void got_program(struct training *t) {
    status_t st = take_program(t);
    if (st)
        training_fail(t, st);
    else
        training_work(t, training_program_work, stored);
}
static void make_program(struct training *t) {
    struct training_program *p = t->at;
    struct job_spec spec = no_payload(JOB_TRAIN);
    const Hlod__V1__JobModel *m = t->suite->q->models[t->j->cell.model];
    size_t n = p->n_rows + t->q->n_whole;
    spec.train.rows = arena_array(&t->arena, Hlod__Wire__TrainRows *, n + 1);
    for (size_t k = 0; k < n; k++) {
        const Hlod__V1__JobTensor *x = k < p->n_rows ? p->given[k] : t->q->whole[k - p->n_rows];
        Hlod__Wire__TrainRows *r = spec.train.rows[spec.train.n_rows++] =
            message_new(&t->arena, &hlod__wire__train_rows__descriptor);
        r->name = x->name;
        r->dims = x->shape;
        r->n_dims = x->n_shape;
    }
    spec.train.spec = p->spec;
    if (!p->evaluates) spec.train.state = t->from;
    if (!digest_parse(str_of(m->model), &spec.model))
        training_fail(t, st_internal("unreadable suite"));
    else
        training_job(t, &spec, got_program);
}

// ---- runs

// A plan of one step: the program with these arguments, by position.
static void run_program(struct training *t, struct training_program *p, struct job_input *in,
                        size_t n, bool keeps, void (*then)(struct training *)) {
    struct arena *a = &t->slice;
    struct plan_spec *plan = arena_new_of(a, struct plan_spec);
    struct job_plan_step *s = arena_new_of(a, struct job_plan_step);
    *s = (struct job_plan_step){.name = "train", .model = p->exe};
    s->args = arena_zarray(a, struct plan_arg, n + 1);
    for (; s->n_args < n; s->n_args++)
        s->args[s->n_args] = (struct plan_arg){.name = "",
                                               .input = in[s->n_args].name,
                                               .step = "",
                                               .from_input = (int)s->n_args,
                                               .from_step = -1};
    *plan = (struct plan_spec){.steps = s, .n_steps = 1, .n_results = 1, .single = true};
    plan->results = arena_new_of(a, struct plan_result);
    *plan->results = (struct plan_result){.name = "", .step = s->name, .output = ""};
    if (keeps) plan->keep = p->names, plan->n_keep = p->n_state;

    struct job_spec spec = no_payload(JOB_PLAN);
    spec.model = p->exe;
    spec.inputs = in;
    spec.n_inputs = n;
    spec.payload_bytes = (struct span){(const uint8_t *)t->numbers, sizeof t->numbers};
    spec.plan.spec = plan;
    spec.plan.tuple = keeps;
    spec.plan.lease_ms = LEASE_MS;
    training_job(t, &spec, then);
}
static struct job_input by_handle(struct arena *a, const char *name, const char *handle, int leaf) {
    const char *text = leaf < 0 ? arena_strdup(a, handle) : arena_printf(a, "%s.%d", handle, leaf);
    return (struct job_input){.name = name, .handle = text};
}
static void new_run(struct training *t) {
    job_free(t->job);
    t->job = NULL;
    arena_done(&t->slice);
    t->run_ns = clock_ns();
}
static status_t take_floats(const struct training *t, size_t output, float *to, size_t most) {
    const struct job_result *x = job_result(t->job);
    struct span data;
    void *base;
    size_t bytes;
    if (output >= x->reply->n_outputs) return st_internal("the program gave too few results");
    RETURN_IF_ERR(
        blob_map(x->reply->outputs[output]->data, x->fds, x->n_fds, &data, &base, &bytes));
    bool fits = data.n / sizeof *to <= most;
    if (fits && data.n) memcpy(to, data.p, data.n);
    frame_unmap(base, bytes);
    return fits ? ST_OK : st_internal("the program gave too large results");
}

// ---- rows held back

static void validated(struct training *t) {
    Hlod__V1__TrainProgress *m = training_progress(t);
    float loss = 0, accuracy = 0;
    status_t st = take_floats(t, 0, &loss, 1);
    if (!st && t->held.accuracy) st = take_floats(t, 1, &accuracy, 1);
    if (st) {
        training_fail(t, st);
        return;
    }
    t->validated = true;
    m->validation_step = t->step;
    m->validation_loss = (double)loss;
    m->validation_accuracy = (double)accuracy;
    suite_log(t->j, "step %" PRId64 ": loss %.6g; held back: loss %.6g%s%.4g", t->step, m->loss,
              m->validation_loss, t->held.accuracy ? ", accuracy " : ", accuracy not known ",
              m->validation_accuracy);
    suite_tell(t->j);
    if (t->q->patience) {
        t->is_best = !*m->best || (double)loss < m->best_loss;
        m->worse = t->is_best ? 0 : m->worse + 1;
        if (t->is_best) m->best_loss = (double)loss;
    }
    next_slice(t);
}
static void validate(struct training *t) {
    const struct training_program *p = &t->train;
    struct training_program *v = &t->held;
    new_run(t);
    struct job_input *in = arena_zarray(&t->slice, struct job_input, v->n_leaves + 1);
    for (size_t k = 0, row = 0; k < v->n_leaves; k++) {
        const Hlod__Wire__TrainLeaf *l = v->leaves[k];
        if (training_is_given(l)) {
            in[k] = by_handle(&t->slice, l->name, v->rows_handle, (int)row++);
            continue;
        }
        for (size_t i = 0, frozen = 0; i < p->n_leaves && !in[k].handle; i++) {
            bool same = !strcmp(p->leaves[i]->key, l->key);
            if (same && i < p->n_state)
                in[k] = by_handle(&t->slice, l->name, t->state, (int)i);
            else if (same && is_frozen(p->leaves[i]))
                in[k] = by_handle(&t->slice, l->name, p->frozen_handle, (int)frozen);
            frozen += is_frozen(p->leaves[i]);
        }
        if (in[k].handle) continue;
        training_fail(t, st_internal("nothing is known of '%s'", l->key));
        return;
    }
    run_program(t, v, in, v->n_leaves, false, validated);
}

// ---- checkpoints

static bool is_now(const struct training *t, const struct training_kept *k) {
    return digest_eq(k->digest, t->now.digest);
}
static void was_kept(struct training *t) {
    bool best = t->is_best, last_is_best = digest_eq(t->last.digest, t->best.digest);
    const struct training_kept *old[] = {best && !last_is_best ? &t->best : NULL,
                                         best || !last_is_best ? &t->last : NULL};
    struct training_kept drop[2] = {0};
    for (int k = 0; k < 2; k++)
        if (old[k] && !is_now(t, old[k])) drop[k] = *old[k];
    if (!t->now.file && is_now(t, &t->last)) t->now.file = t->last.file;
    t->last = t->now;
    if (best) t->best = t->now;
    t->is_best = false;
    t->kept_some = true;
    t->saved_step = t->step;
    t->saved_ns = clock_ns();
    t->keep_ns = t->saved_ns - t->run_ns;
    training_set_checkpoint(t, best);
    suite_log(t->j, "checkpoint of step %" PRId64, t->step);
    suite_tell(t->j);
    suite_save(t->j);
    for (int k = 0; k < 2; k++)
        if (drop[k].file) training_drop(t->suite->s, &drop[k]); // once the new one is recorded
    job_free(t->job);
    t->job = NULL;
    next_slice(t);
}
static void got_state(struct training *t) {
    training_work(t, training_keep_work, was_kept);
}
static void keep(struct training *t) {
    t->run_ns = clock_ns();
    struct job_spec spec = no_payload(JOB_GET);
    spec.get.handle = t->state;
    training_job(t, &spec, got_state);
}
// As often as it is said; else each minute, but no twentieth of the time is given to it.
static int64_t keep_every_ns(const struct training *t) {
    if (t->q->checkpoint_s) return t->q->checkpoint_s * 1000000000ll;
    int64_t usual = USUAL_CHECKPOINT_S * 1000000000ll;
    return 20 * t->keep_ns > usual ? 20 * t->keep_ns : usual;
}
static bool keep_due(const struct training *t) {
    if (t->is_best) return true;
    if (t->step == t->saved_step) return false;
    if (t->ending || t->step >= t->end) return true;
    if (t->q->checkpoint_steps && t->step >= t->saved_step + (int64_t)t->q->checkpoint_steps)
        return true;
    return clock_ns() - t->saved_ns >= keep_every_ns(t);
}

// ---- slices

static void model_stored(struct training *t) {
    suite_log(t->j, "the trained model is %s", digest_to_hex(t->model).z);
    end(t, ST_OK);
}
static void got_model(struct training *t) {
    training_work(t, training_model_work, model_stored);
}
static void make_model(struct training *t) {
    struct job_spec spec = no_payload(JOB_TRAIN);
    const Hlod__V1__TrainProgress *m = training_progress(t);
    const char *from = *m->best ? m->best : m->checkpoint;
    if (!digest_parse(str_of(t->suite->q->models[t->j->cell.model]->model), &spec.model) ||
        !digest_parse(str_of(from), &spec.train.state))
        training_fail(t, st_internal("no state was kept"));
    else
        training_job(t, &spec, got_model);
}

static bool follows(const struct training *t, const char *setting) {
    for (size_t k = 0; k < t->q->n_settings; k++)
        if (!strcmp(t->q->settings[k], setting)) return true;
    return false;
}
static void ran(struct training *t) {
    const struct job_result *x = job_result(t->job);
    int64_t from = t->step, to = t->numbers[1], made = to - from;
    double ms = clock_ms_since(t->run_ns);
    t->running = false;
    take_handle(t->state, x->plan.tuple);
    status_t st = take_floats(t, t->train.n_state, t->losses, TRAINING_SLICE);
    if (!st && t->train.accuracy)
        st = take_floats(t, t->train.n_state + 1, t->accuracies, TRAINING_SLICE);
    if (st) {
        training_fail(t, st);
        return;
    }
    bool goes_on = follows(t, "nan=skip") || follows(t, "nan=ignore");
    int64_t good = made;
    for (int64_t k = made - 1; k >= 0 && !goes_on; k--)
        if (!isfinite((double)t->losses[k])) good = k;
    if (good < made)
        t->ending =
            st_new(ST_FAILED_PRECONDITION,
                   "the loss of step %" PRId64 ", or the norm of its gradients, is %g: nothing was "
                   "updated by it; the setting nan=skip leaves such steps out, a smaller rate or "
                   "clip=1 may avoid them%s",
                   from + good + 1, fabs((double)t->losses[good]), t->odd);
    t->step = from + good;
    t->step_ms = ms / (double)made;
    t->validated = false;
    training_told(t, from);
    next_slice(t);
}
// The last step of the next run: about a quarter of a second away, nearer beside others' work, not
// past the rows that are there or a checkpoint.
static int64_t next_stop(struct training *t) {
    if (sched_active(sched_of(t)) > 0) t->others_ns = clock_ns(); // our own last one has ended
    bool beside = t->others_ns && clock_ns() - t->others_ns < BESIDE_FOR_MS * 1000000ll;
    int64_t most = t->step_ms > 0 ? (int64_t)((beside ? BESIDE_MS : SLICE_MS) / t->step_ms) : 1;
    if (most < 1) most = 1;
    if (most > TRAINING_SLICE) most = TRAINING_SLICE;
    int64_t to = t->step + most, per = t->train.steps_per_epoch;
    int64_t part = (t->step / per + 1) * per, every = (int64_t)t->q->checkpoint_steps;
    if (to > part) to = part;
    if (every && to > t->saved_step + every) to = t->saved_step + every;
    return to < t->end ? to : t->end;
}
static void run_slice(struct training *t) {
    const struct training_program *p = &t->train;
    static const int64_t none[1];
    struct job_input in[5];
    size_t n = 0;
    new_run(t);
    in[n] = by_handle(&t->slice, "state", t->state, -1);
    in[n++].donate = true;
    if (p->n_frozen) in[n++] = by_handle(&t->slice, "frozen", p->frozen_handle, -1);
    in[n++] = by_handle(&t->slice, "rows", p->rows_handle, -1);
    t->numbers[0] = t->q->seed;
    t->numbers[1] = (int32_t)next_stop(t);
    for (int k = 0; k < 2; k++)
        in[n++] = (struct job_input){.name = k ? "limit" : "seed",
                                     .dtype = numbers_dtype(str_of("s32")),
                                     .dims = none,
                                     .offset = k * (int64_t)sizeof *t->numbers,
                                     .size = sizeof *t->numbers,
                                     .elements = 1};
    t->running = true;
    run_program(t, &t->train, arena_dup_array(&t->slice, in, n), n, true, ran);
}

// ---- rows that come in parts

static void has_part(struct training *t) {
    take_rows(t, &t->train);
    next_slice(t);
}
static void read_part(struct training *t) {
    put_rows(t, &t->train, has_part);
}
// The rows of the next step to the device, where those of an earlier part make room.
static void next_part(struct training *t, int64_t part) {
    free_handle(t, t->train.rows_handle);
    *t->train.rows_handle = 0;
    t->at = &t->train;
    t->train.part = part;
    training_work(t, training_rows_work, read_part);
}

// ---- the next thing to do

static void look_at_clock(struct training *t) {
    int64_t limit_ms = t->suite->q->timeout_ms;
    if (t->ending) return;
    if (t->suite->s->stopping)
        t->ending = st_because(ST_UNAVAILABLE, SHUTTING_DOWN, "the server is shutting down");
    else if (limit_ms && clock_ns() - t->begin_ns > clock_of_ms((double)limit_ms))
        t->ending = st_because(ST_DEADLINE_EXCEEDED, DEADLINE,
                               "the training took longer than %" PRId64 " ms", limit_ms);
}
// What is next, after each run, validation and checkpoint.
static void next_slice(struct training *t) {
    bool nothing_kept = !*training_progress(t)->checkpoint;
    bool patient = !t->q->patience || training_progress(t)->worse < t->q->patience;
    bool epoch = t->step % training_epoch(t) == 0 || t->step >= t->end;
    int64_t part = t->step / t->train.steps_per_epoch % t->train.parts;
    look_at_clock(t);
    if (!t->ending && t->held.n_rows && epoch && t->step > t->saved_step && !t->validated)
        validate(t);
    else if (keep_due(t))
        keep(t);
    else if (t->ending) {
        status_t st = t->ending;
        t->ending = ST_OK;
        end(t, st);
    } else if (t->step < t->end && patient && part != t->train.part)
        next_part(t, part);
    else if (t->step < t->end && patient)
        run_slice(t);
    else if (nothing_kept) // it began at its end
        keep(t);
    else
        make_model(t);
}

// ---- its beginning

// How many rows there are, and how many of them at a time.
MUST_CHECK static status_t count_rows(struct training *t) {
    struct training_program *p = &t->train, *v = &t->held;
    const int64_t window = t->q->window;
    RETURN_IF_ERR(training_count(p->given, p->n_rows, &p->all_rows));
    if (v->n_rows)
        RETURN_IF_ERR(st_note(training_count(v->given, v->n_rows, &v->all_rows), "validation"));
    t->batch = t->q->batch ? t->q->batch : p->all_rows < USUAL_BATCH ? p->all_rows : USUAL_BATCH;
    if (v->n_rows && v->all_rows < t->batch)
        return st_because(ST_INVALID_ARGUMENT, SHAPE_MISMATCH,
                          "validation: %" PRId64 " rows are fewer than a batch of %" PRId64,
                          v->all_rows, t->batch);
    p->rows = window && window < p->all_rows ? window : p->all_rows;
    p->parts = (p->all_rows + p->rows - 1) / p->rows;
    v->rows = v->all_rows;
    v->parts = 1;
    return ST_OK;
}
static void begin(struct training *t) {
    const Hlod__V1__Training *q = t->q;
    Hlod__V1__TrainProgress *m = training_progress(t);
    status_t st = count_rows(t);
    if (st) {
        training_fail(t, st);
        return;
    }
    t->train.spec = training_spec(&t->arena, q, t->batch, &t->train);
    t->held.spec = training_spec(&t->arena, q, t->batch, &t->held);
    t->at = &t->train;
    t->own_checkpoint = *m->checkpoint != 0;
    const char *from = t->own_checkpoint ? m->checkpoint : q->resume;
    if (*from && !digest_parse(str_of(from), &t->from))
        training_fail(t, st_internal("unreadable suite"));
    else if (*from) {
        t->last.digest = t->from;
        (void)digest_parse(str_of(m->best), &t->best.digest);
        training_work(t, training_from_work, make_program);
    } else
        make_program(t);
}

void training_start(struct suite_job *j) {
    struct training *t = arena_must_calloc(1, sizeof *t);
    const Hlod__V1__SubmitJobsRequest *q = j->suite->q;
    const Hlod__V1__JobTarget *target = q->n_targets ? q->targets[j->cell.target] : NULL;
    const Hlod__V1__JobInput *in = q->inputs[j->cell.input];
    t->j = j;
    t->suite = j->suite;
    t->suite->refs++;
    t->suite->s->n_runs++;
    t->q = q->train;
    t->begin_ns = clock_ns();
    t->device = target ? target->device : "";
    t->train.given = in->inputs;
    t->train.n_rows = in->n_inputs;
    t->held.given = q->train->validation;
    t->held.n_rows = q->train->n_validation;
    t->held.evaluates = true;
    t->train.values_fd = t->held.values_fd = -1;
    if (!j->brief->train) j->brief->train = training_progress_new(&j->arena, NULL);
    j->training = t;
    t->then = begin;
    go_on_soon(t);
}

void training_cancel(struct suite_job *j) {
    struct training *t = j->training;
    training_quiet(t);
    t->j = NULL;
    j->training = NULL;
    if (t->running) return; // it ends soon, and then the state has a handle to be freed by
    if (t->job) job_cancel(t->job);
    if (!t->busy) free_training(t);
}
