// SPDX-License-Identifier: Apache-2.0
// PLAN jobs. Each step has a job of its own (JOB_STEP) that finds, binds and compiles what the step
// needs, in the order in which shapes become known; then the plan takes one slot, in the worker
// that holds its buffers where it has any, has everything prepared there, and is one call:
//
//   handles -> steps compiled -> types checked -> slot -> weights prepared -> RUN_PLAN -> handles
//
// They are rows of the plan (job_table.c), and each step has rows of its own.
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/metrics.h"
#include "scheduler/job/job_call.h"
#include "scheduler/job/job_plan.h"
#include "scheduler/loop.h"
#include "scheduler/queue/aside.h"
#include "scheduler/workers/memfds.h"

static status_t step_note(const struct job *j, const struct pstep *s, status_t st) {
    return j->spec->plan.spec->single ? st : st_note(st, "step '%s'", s->spec->name);
}

// ---- inputs and handles

static int add_held(struct plan_run *p, const struct job_input *given, struct buffer *b) {
    for (size_t k = 0; k < p->values.n; k++)
        if (p->values.v[k].held == b) return (int)k; // under two names: one value
    struct pvalue v = {.held = buffer_ref(b)};
    v.in = (struct job_input){.name = given->name,
                              .dtype = b->dtype,
                              .rank = b->rank,
                              .dims = b->dims,
                              .size = b->bytes,
                              .elements = b->dtype->bytes ? b->bytes / b->dtype->bytes : 0,
                              .handle = given->handle,
                              .resident = true};
    vec_push(&p->values, v);
    return (int)p->values.n - 1;
}

static status_t add_handle(struct job *j, const struct job_input *in, struct pinput *out) {
    struct plan_run *p = j->plan;
    struct handle *h;
    int leaf;
    RETURN_IF_ERR(
        buffers_find(sched_buffers(j->s), j->tenant->name, in->handle, clock_ns(), &h, &leaf));
    if (in->donate && leaf >= 0)
        return st_invalid("buffer %s: an element is donated with its tuple: donate that",
                          in->handle);
    out->tuple = h->tuple && leaf < 0;
    out->n = out->tuple ? h->n : 1;
    out->values = arena_array(&j->arena, int, out->n + 1);
    for (size_t k = 0; k < out->n; k++)
        out->values[k] = add_held(p, in, h->leaf[leaf >= 0 ? leaf : (int)k]);
    if (!in->donate) return ST_OK;
    for (size_t k = 0; k < p->lent.n; k++)
        if (p->lent.v[k] == h) return ST_OK;
    vec_push(&p->lent, h);
    return ST_OK;
}

// Everything that is held must lie in one worker, and in the device that was asked for.
static status_t find_worker(struct job *j) {
    struct plan_run *p = j->plan;
    const struct pvalue *first = NULL;
    for (size_t k = 0; k < p->values.n; k++) {
        const struct pvalue *v = &p->values.v[k];
        if (!v->held) continue;
        if (!first) first = v;
        if (v->held->worker == first->held->worker) continue;
        return st_because(ST_FAILED_PRECONDITION, BUFFERS_APART,
                          "buffers %s and %s lie in different devices: %s and %s", first->in.handle,
                          v->in.handle,
                          pool_place(pool_worker(j->s->pool, first->held->worker)).name,
                          pool_place(pool_worker(j->s->pool, v->held->worker)).name);
    }
    p->device = j->device ? j->device : "";
    if (!first) return ST_OK;
    struct place_worker w = pool_place(pool_worker(j->s->pool, first->held->worker));
    if (*p->device && strcmp(p->device, w.kind) != 0 && strcmp(p->device, w.name) != 0)
        return st_because(ST_FAILED_PRECONDITION, BUFFERS_APART,
                          "buffer %s lies in device %s, not in %s", first->in.handle, w.name,
                          p->device);
    p->pinned = first->held->worker + 1;
    p->device = arena_strdup(&j->arena, w.name);
    return ST_OK;
}

// The handle of a buffer that is gone says why.
status_t plan_lost_buffers(const struct job *j) {
    struct handle *h;
    int leaf;
    for (size_t k = 0; k < j->plan->values.n; k++) {
        const struct pvalue *v = &j->plan->values.v[k];
        if (!v->held || buffer_alive(j->s, v->held)) continue;
        RETURN_IF_ERR(buffers_find(sched_buffers(j->s), j->tenant->name, v->in.handle, clock_ns(),
                                   &h, &leaf));
        return st_because(ST_UNAVAILABLE, BUFFER_LOST, "buffer %s was lost with its worker",
                          v->in.handle);
    }
    return ST_OK;
}

static status_t begin(struct job *j) {
    const struct plan_spec *spec = j->spec->plan.spec;
    struct plan_run *p = j->plan;
    p->inputs = arena_zarray(&j->arena, struct pinput, j->spec->n_inputs + 1);
    p->steps = arena_zarray(&j->arena, struct pstep, spec->n_steps + 1);
    p->n_steps = spec->n_steps;
    for (size_t k = 0; k < spec->n_steps; k++)
        p->steps[k].spec = &spec->steps[k];
    for (size_t i = 0; i < j->spec->n_inputs; i++) {
        const struct job_input *in = &j->inputs[i];
        if (in->handle && *in->handle) {
            RETURN_IF_ERR(add_handle(j, in, &p->inputs[i]));
            continue;
        }
        p->inputs[i].n = 1;
        p->inputs[i].values = arena_array(&j->arena, int, 1);
        p->inputs[i].values[0] = (int)p->values.n;
        vec_push(&p->values, ((struct pvalue){.in = *in}));
    }
    if (p->lent.n && j->spec->repeat > 1)
        return st_because(ST_INVALID_ARGUMENT, BAD_OPTION,
                          "donated buffers can be run with only once");
    sched_watch_leases(j->s);
    return find_worker(j);
}

// ---- steps

// Of a compiled step: its output's place and type.
static status_t find_output(struct job *j, const struct pstep *s, const char *output,
                            uint32_t *out_leaf) {
    const Hlod__V1__Signature *names = job_names(s->job);
    size_t i = *output ? key_index(names->outputs, names->n_outputs, output) : 0;
    if (i == names->n_outputs)
        return step_note(j, s, key_no_such("output", output, names->outputs, names->n_outputs));
    if (!*output && names->n_outputs != 1)
        return st_reason(
            step_note(j, s, st_invalid("it has %zu outputs: say which is meant", names->n_outputs)),
            HLOD__V1__REASON__REASON_BAD_PLAN);
    *out_leaf = (uint32_t)i;
    return ST_OK;
}

// The type of another step's output, as an input of this one.
static status_t from_step(struct job *j, const struct pstep *s, struct parg *a,
                          struct job_input *in) {
    const struct pstep *from = &j->plan->steps[a->step];
    RETURN_IF_ERR(find_output(j, from, a->output, &a->leaf));
    const Hlod__V1__TensorSpec *t = job_names(from->job)->outputs[a->leaf];
    int64_t *dims = arena_array(&j->arena, int64_t, t->n_dims + 1);
    *in = (struct job_input){.name = a->name,
                             .dtype = numbers_dtype(str_of(t->dtype)),
                             .rank = (int32_t)t->n_dims,
                             .dims = dims,
                             .elements = 1,
                             .resident = true};
    bool known = in->dtype && in->dtype->bytes;
    for (size_t d = 0; d < t->n_dims && known; d++) {
        dims[d] = t->dims[d]->size;
        known = dims[d] >= 0 && sz_mul(in->elements, dims[d], &in->elements);
    }
    if (!known || !sz_mul(in->elements, in->dtype->bytes, &in->size))
        return st_reason(
            step_note(j, s,
                      st_invalid("input '%s': output '%s' of step '%s' has a size that only the "
                                 "run knows",
                                 a->name, t->name, from->spec->name)),
            HLOD__V1__REASON__REASON_BAD_PLAN);
    return ST_OK;
}

// The arguments with tuples in their elements.
static void expand(struct job *j, struct pstep *s) {
    struct plan_run *p = j->plan;
    for (size_t k = 0; k < s->spec->n_args; k++) {
        const struct plan_arg *a = &s->spec->args[k];
        if (a->from_step >= 0) {
            struct parg x = {
                .name = a->name, .value = -1, .step = a->from_step, .output = a->output};
            avec_push(&j->arena, &s->args, x);
            continue;
        }
        const struct pinput *in = &p->inputs[a->from_input];
        for (size_t e = 0; e < in->n; e++) {
            struct parg x = {.name = a->name, .value = in->values[e], .step = -1};
            if (in->tuple && *a->name) x.name = arena_printf(&j->arena, "%s[%zu]", a->name, e);
            avec_push(&j->arena, &s->args, x);
        }
    }
}

static void on_step_done(void *ctx, struct job *child, status_t st);

static status_t start_step(struct job *j, struct pstep *s) {
    expand(j, s);
    struct job_input *in = arena_zarray(&j->arena, struct job_input, s->args.n + 1);
    for (size_t k = 0; k < s->args.n; k++) {
        struct parg *a = &s->args.v[k];
        if (a->step >= 0) {
            RETURN_IF_ERR(from_step(j, s, a, &in[k]));
            continue;
        }
        in[k] = j->plan->values.v[a->value].in;
        in[k].name = a->name;
    }

    struct job_spec spec = {.kind = JOB_STEP,
                            .model = s->spec->model,
                            .has_weights = s->spec->has_weights,
                            .weights = s->spec->weights,
                            .inputs = in,
                            .n_inputs = s->args.n,
                            .payload_fd = j->spec->payload_fd,
                            .payload_bytes = j->spec->payload_bytes,
                            .options = j->spec->options,
                            .device = j->plan->device,
                            .tenant = j->spec->tenant,
                            .sees_all = j->spec->sees_all,
                            .priority = j->spec->priority,
                            .trace = j->spec->trace,
                            .no_compile = j->spec->no_compile,
                            .on_done = on_step_done,
                            .ctx = j};
    s->inputs = in;
    s->job = job_start(j->s, &spec);
    return ST_OK;
}

static const struct pstep *step_of(const struct job *child) {
    const struct plan_run *p = child->parent->plan;
    for (size_t k = 0; k < p->n_steps; k++)
        if (p->steps[k].job == child) return &p->steps[k];
    return NULL;
}
void plan_step_event(struct job *child, Hlod__V1__Event *e) {
    struct job *j = child->parent;
    if (!j->spec->plan.spec->single) e->step = (char *)(uintptr_t)step_of(child)->spec->name;
    job_event(j, e);
}
// Only failures come here: a step that has what it needs waits for its plan.
static void on_step_done(void *ctx, struct job *child, status_t st) {
    struct job *j = ctx;
    job_finish(j, step_note(j, step_of(child), st));
}
// The plan looks at its steps again where it waits for them.
void plan_step_ready(struct job *step) {
    struct job *j = step->parent;
    if ((j->at == ROW_STEPS || j->at == ROW_PREPARED) && !j->plan->placing) job_advance(j);
}

// Starts steps whose inputs are known.
status_t plan_start(struct job *j, bool *later) {
    if (!j->plan->steps) RETURN_IF_ERR(begin(j));
    struct plan_run *p = j->plan;
    for (size_t n = 0; n < p->n_steps; n++) {
        struct pstep *s = &p->steps[j->spec->plan.spec->order[n]];
        bool ready = true;
        for (size_t k = 0; k < s->spec->n_args; k++) {
            int from = s->spec->args[k].from_step;
            ready &=
                from < 0 || (p->steps[from].job && job_has(p->steps[from].job, ROW_EXECUTABLE));
        }
        if (!s->job && ready) RETURN_IF_ERR(start_step(j, s));
        *later |= !s->job || !job_has(s->job, ROW_CHECKED);
    }
    if (*later) return ST_OK;
    p->compiled_ns = clock_ns();
    job_deliver(j, ROW_STEPS, &(struct delivery){0});
    return ST_OK;
}

// ---- types, outputs

static status_t order_args(struct job *j, struct pstep *s) {
    const Hlod__V1__Signature *sig = s->job->exe->info->signature;
    const struct job_input **in =
        arena_array(&j->arena, const struct job_input *, sig->n_inputs + 1);
    if (job_replicas(s->job) > 1)
        return st_because(ST_INVALID_ARGUMENT, BAD_OPTION,
                          "an executable of several replicas cannot be run with resident "
                          "buffers or in a plan");
    RETURN_IF_ERR(job_check_weights(s->job)); // before their names are taken
    RETURN_IF_ERR(job_order_inputs(s->job, s->job->inputs, sig, in));
    s->order = arena_array(&j->arena, uint32_t, sig->n_inputs + 1);
    s->n_order = sig->n_inputs;
    for (size_t i = 0; i < sig->n_inputs; i++)
        s->order[i] = (uint32_t)(in[i] - s->job->inputs);
    return ST_OK;
}

static bool is_kept(const struct plan_spec *p, const char *name) {
    for (size_t k = 0; k < p->n_keep; k++)
        if (!strcmp(p->keep[k], name) || !strcmp(p->keep[k], "*")) return true;
    return false;
}

static status_t add_outputs(struct job *j, const struct plan_result *r) {
    struct plan_run *p = j->plan;
    const struct pstep *s = &p->steps[r->from_step];
    const Hlod__V1__Signature *names = job_names(s->job);
    uint32_t from = 0, to = (uint32_t)names->n_outputs;
    if (*r->output) {
        RETURN_IF_ERR(find_output(j, s, r->output, &from));
        to = from + 1;
    }
    for (uint32_t k = from; k < to; k++) {
        const Hlod__V1__TensorSpec *t = names->outputs[k];
        const char *name = *r->name && to == from + 1 ? r->name : t->name;
        struct pout o = {.name = name,
                         .step = r->from_step,
                         .leaf = k,
                         .keep = r->keep || is_kept(j->spec->plan.spec, name),
                         .type = t};
        for (size_t i = 0; i < p->outs.n; i++)
            if (!strcmp(p->outs.v[i].name, name))
                return st_because(ST_INVALID_ARGUMENT, BAD_PLAN,
                                  "two outputs are called '%s': give one another name", name);
        avec_push(&j->arena, &p->outs, o);
    }
    return ST_OK;
}

static status_t check_keep(const struct job *j) {
    const struct plan_spec *spec = j->spec->plan.spec;
    for (size_t k = 0; k < spec->n_keep; k++) {
        bool found = !strcmp(spec->keep[k], "*");
        for (size_t i = 0; i < j->plan->outs.n && !found; i++)
            found = !strcmp(spec->keep[k], j->plan->outs.v[i].name);
        if (!found)
            return st_because(ST_INVALID_ARGUMENT, UNKNOWN_OUTPUT, "keep: there is no output '%s'",
                              spec->keep[k]);
    }
    return ST_OK;
}

status_t plan_check(struct job *j, UNUSED struct delivery *d) {
    struct plan_run *p = j->plan;
    for (size_t k = 0; k < p->n_steps; k++) {
        struct pstep *s = &p->steps[k];
        RETURN_IF_ERR(step_note(j, s, order_args(j, s)));
        if (strcmp(s->job->key.device_kind, p->steps[0].job->key.device_kind) != 0)
            return st_because(ST_INVALID_ARGUMENT, BAD_PLAN,
                              "step '%s' is compiled for device kind %s, step '%s' for %s",
                              s->spec->name, s->job->key.device_kind, p->steps[0].spec->name,
                              p->steps[0].job->key.device_kind);
    }
    p->outs.n = 0;
    for (size_t r = 0; r < j->spec->plan.spec->n_results; r++)
        RETURN_IF_ERR(add_outputs(j, &j->spec->plan.spec->results[r]));
    RETURN_IF_ERR(check_keep(j));
    return plan_lost_buffers(j);
}

// ---- a slot, weights

struct digest plan_work(const struct job *j) {
    struct sha256 h;
    sha256_init(&h);
    for (size_t k = 0; k < j->plan->n_steps; k++) {
        struct digest key = j->plan->steps[j->spec->plan.spec->order[k]].job->key.digest;
        sha256_add(&h, key.b, sizeof key.b);
    }
    return sha256_end(&h);
}

status_t plan_want(const struct job *j, struct task *t) {
    const struct plan_run *p = j->plan;
    RETURN_IF_ERR(sched_aside(j->s, j->tenant, "plan", plan_work(j)));
    const struct job *first = p->steps[j->spec->plan.spec->order[0]].job;
    int64_t expected = 0;
    t->plan.key = first->key.digest;
    for (size_t k = 0; k < p->n_steps; k++) {
        const struct exe *e = p->steps[k].job->exe;
        int64_t prepare_bytes = job_plan_bytes(e->info->prepare_bytes);
        t->plan.resident_bytes = job_plan_bytes(t->plan.resident_bytes + exe_resident_bytes(e));
        if (prepare_bytes > t->plan.prepare_bytes) t->plan.prepare_bytes = prepare_bytes;
        expected += e->run_ns * (j->spec->repeat > 1 ? j->spec->repeat : 1);
    }
    for (size_t k = 0; k < p->values.n; k++)
        sz_sum(&t->plan.tensor_bytes, p->values.v[k].in.size);
    t->plan.tensor_bytes = job_plan_bytes(t->plan.tensor_bytes);
    t->want.device = *p->device ? p->device : first->key.device_kind;
    t->want.alone = sched_alone(j->s, expected);
    t->want.pinned = p->pinned;
    t->has_key = true;
    t->weights = first->weights->weights;
    t->cost_ns = expected;
    return ST_OK;
}

// Each step gets the plan's place, and has its executable and weights brought there.
status_t plan_prepare(struct job *j, bool *later) {
    struct plan_run *p = j->plan;
    struct delivery slot = {.slot = &(struct slot){.w = j->slot.w, .epoch = j->slot.epoch}};
    RETURN_IF_ERR(plan_lost_buffers(j));
    if (!p->prepare_ns) p->prepare_ns = clock_ns();
    p->placing = true;
    for (size_t k = 0; k < p->n_steps; k++) {
        struct job *c = p->steps[k].job;
        if (job_has(c, ROW_CHECKED) && !job_has(c, ROW_SLOT)) {
            job_deliver(c, ROW_SLOT, &slot);
            job_advance(c);
            p->prepared_some |= c->op != NULL;
        }
        *later |= !job_has(c, ROW_PREPARED);
    }
    p->placing = false;
    if (!*later) job_deliver(j, ROW_PREPARED, &(struct delivery){0});
    return ST_OK;
}

void plan_unprepare(struct job *j) {
    for (size_t k = 0; k < j->plan->n_steps; k++)
        job_repeat(j->plan->steps[k].job, ROW_SLOT);
    j->plan->prepare_ns = 0;
}
void plan_evicted(struct job *j) {
    for (size_t k = 0; k < j->plan->n_steps; k++)
        warm_forget(worker_warm(j->slot.w), j->plan->steps[k].job->key.digest);
}

// ---- the end

void plan_detach(struct job *j) {
    for (size_t k = 0; k < j->plan->n_steps; k++)
        if (j->plan->steps[k].job) job_retire(j->plan->steps[k].job);
}

void plan_free(struct job *j) {
    struct plan_run *p = j->plan;
    for (size_t k = 0; k < p->n_steps; k++)
        job_free(p->steps[k].job);
    for (size_t k = 0; k < p->values.n; k++)
        buffer_unref(p->values.v[k].held);
    vec_done(&p->values);
    vec_done(&p->lent);
}
