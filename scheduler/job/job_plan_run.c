// SPDX-License-Identifier: Apache-2.0
// A plan's REPLY: its one call, what that holds, the reply's way into the job's result.
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/metrics.h"
#include "proto/message.h"
#include "proto/weigh.h"
#include "scheduler/job/job_call.h"
#include "scheduler/job/job_plan.h"
#include "scheduler/queue/aside.h"
#include "scheduler/workers/memfds.h"

// ---- the call

// The exact size, where the run does not have to be asked; else 0.
static int64_t kept_bytes(const struct pout *o) {
    const struct dtype_row *t = numbers_dtype(str_of(o->type->dtype));
    int64_t bytes = t ? t->bytes : 0;
    for (size_t d = 0; d < o->type->n_dims; d++)
        if (o->type->dims[d]->size < 0 || !sz_mul(bytes, o->type->dims[d]->size, &bytes)) return 0;
    return bytes;
}

// Nobody but this plan and the handle that is given away holds it: its memory may be reused.
static bool may_take(const struct plan_run *p, const struct buffer *b) {
    for (size_t k = 0; k < p->lent.n; k++)
        for (size_t i = 0; i < p->lent.v[k]->n; i++)
            if (p->lent.v[k]->leaf[i] == b) return b->refs == 2; // the handle's and ours
    return false;
}

static status_t take_hold(struct job *j, struct hold *h, Hlod__Wire__RunPlan *m) {
    struct plan_run *p = j->plan;
    int64_t credit = 0;
    for (size_t k = 0; k < p->values.n; k++) {
        Hlod__Wire__PlanInput *in = m->inputs[k] =
            message_new(&j->arena, &hlod__wire__plan_input__descriptor);
        m->n_inputs = k + 1;
        struct buffer *b = p->values.v[k].held;
        if (!b) {
            in->tensor = job_wire_input(j, &p->values.v[k].in);
            continue;
        }
        in->buffer = b->id;
        in->donate = may_take(p, b);
        if (in->donate) credit += b->bytes;
    }

    for (size_t k = 0; k < p->outs.n; k++) {
        struct buffer *b;
        if (!p->outs.v[k].keep) continue;
        RETURN_IF_ERR(buffers_reserve(sched_buffers(j->s), j->tenant->name, worker_index(j->slot.w),
                                      j->slot.epoch, device_memory(j->slot.w),
                                      kept_bytes(&p->outs.v[k]), credit, &b));
        vec_push(&h->made, b);
        m->results[k]->keep = b->id;
    }

    for (size_t k = 0; k < p->values.n; k++)
        if (p->values.v[k].held) vec_push(&h->held, buffer_ref(p->values.v[k].held));
    for (size_t k = 0; k < p->lent.n; k++) {
        buffers_lend(p->lent.v[k]);
        vec_push(&h->lent, p->lent.v[k]);
    }
    return ST_OK;
}

static Hlod__Wire__PlanStep *wire_step(struct job *j, const struct pstep *s, const int *number) {
    Hlod__Wire__PlanStep *m = message_new(&j->arena, &hlod__wire__plan_step__descriptor);
    m->name = (char *)(uintptr_t)s->spec->name;
    m->foreign_names = job_foreign_names(s->job);
    m->key = (ProtobufCBinaryData){32, s->job->key.digest.b};
    m->weights_digest = (ProtobufCBinaryData){32, s->job->weights->weights.b};
    m->args = arena_array(&j->arena, Hlod__Wire__PlanArg *, s->n_order + 1);
    for (; m->n_args < s->n_order; m->n_args++) {
        const struct parg *a = &s->args.v[s->order[m->n_args]];
        Hlod__Wire__PlanArg *x = m->args[m->n_args] =
            message_new(&j->arena, &hlod__wire__plan_arg__descriptor);
        x->step = a->step >= 0 ? (uint32_t)number[a->step] : 0;
        x->index = a->step >= 0 ? a->leaf : (uint32_t)a->value;
    }
    return m;
}

static void describe(struct job *j, Hlod__Wire__RunPlan *m) {
    struct plan_run *p = j->plan;
    struct arena *a = &j->arena;
    int number[PLAN_MAX_STEPS]; // from 1, in the order they run
    hlod__wire__run_plan__init(m);
    for (size_t n = 0; n < p->n_steps; n++)
        number[j->spec->plan.spec->order[n]] = (int)n + 1;
    m->inputs = arena_array(a, Hlod__Wire__PlanInput *, p->values.n + 1);
    m->steps = arena_array(a, Hlod__Wire__PlanStep *, p->n_steps + 1);
    for (; m->n_steps < p->n_steps; m->n_steps++)
        m->steps[m->n_steps] =
            wire_step(j, &p->steps[j->spec->plan.spec->order[m->n_steps]], number);
    m->results = arena_array(a, Hlod__Wire__PlanResult *, p->outs.n + 1);
    for (; m->n_results < p->outs.n; m->n_results++) {
        const struct pout *o = &p->outs.v[m->n_results];
        Hlod__Wire__PlanResult *r = m->results[m->n_results] =
            message_new(a, &hlod__wire__plan_result__descriptor);
        r->step = (uint32_t)number[o->step];
        r->index = o->leaf;
    }
    m->profile = j->spec->profile;
    m->repeat = j->spec->repeat;
}

// As for a run: memory of ours, kept from call to call, for what is sent.
static void give_output_memory(struct job *j, struct run_call *c) {
    const struct plan_run *p = j->plan;
    int64_t total = 64;
    for (size_t k = 0; k < p->outs.n && total; k++)
        if (!p->outs.v[k].keep) total = job_add_output_bytes(total, p->outs.v[k].type);
    c->flight_bytes += total;
    if (total > RUN_INLINE_BYTES)
        st_drop(memfds_take(pool_memfds(j->s->pool), worker_index(c->w), 0, total, &c->out));
}

static void tell_times(struct job *j) {
    struct plan_run *p = j->plan;
    bool compiled = false;
    for (size_t k = 0; k < p->n_steps; k++)
        compiled |= !p->steps[k].job->r.cache_hit;
    if (compiled) job_timing(j, "compile", p->compiled_ns - j->start_ns);
    if (p->prepared_some) job_timing(j, "prepare", clock_ns() - p->prepare_ns);
}

static void on_plan(void *ctx, struct frame *f, status_t lost);

status_t plan_send(struct job *j) {
    Hlod__Wire__RunPlan m;
    RETURN_IF_ERR(plan_lost_buffers(j));
    tell_times(j);
    struct run_call *c = job_call_new(j);
    c->hold = hold_new(j);
    describe(j, &m);
    status_t st = take_hold(j, c->hold, &m);
    if (st) {
        hold_settle(c->hold, false, NULL, 0);
        job_call_drop(c);
        return st;
    }
    int fds[2], n_fds = 0;
    for (size_t k = 0; k < j->plan->values.n; k++)
        if (!j->plan->values.v[k].held) c->flight_bytes += j->plan->values.v[k].in.size;
    metric_add(M_DEVICE_BYTES_IN, c->flight_bytes);
    if (j->spec->payload_fd >= 0) fds[n_fds++] = j->spec->payload_fd;
    give_output_memory(j, c);
    if (c->out) {
        fds[n_fds++] = memfd_fd(c->out);
        m.output_fd = (uint32_t)n_fds;
    }
    job_call_send(c, HLOD__WIRE__TYPE__TYPE_RUN_PLAN, &m.base, fds, n_fds, on_plan);
    sched_charge(c->w, c->id, j->tenant, "plan", plan_work(j));
    return ST_OK;
}

// ---- the reply

static void on_event(struct run_call *c, const struct frame *f) {
    struct job *j = c->j;
    Hlod__V1__Event e = HLOD__V1__EVENT__INIT;
    Hlod__V1__StepEvent step = HLOD__V1__STEP_EVENT__INIT;
    if (f->type == HLOD__WIRE__TYPE__TYPE_RUNNING) {
        job_call_running(c);
        return;
    }
    Hlod__Wire__StepDone *d = weigh_unpack_or_null(&hlod__wire__step_done__descriptor, f->body);
    if (d && j && !j->spec->plan.spec->single && d->step >= 1 && d->step <= j->plan->n_steps) {
        const struct pstep *s = &j->plan->steps[j->spec->plan.spec->order[d->step - 1]];
        step.name = (char *)(uintptr_t)s->spec->name;
        step.ms = d->ms;
        e.kind_case = HLOD__V1__EVENT__KIND_PLAN_STEP;
        e.plan_step = &step;
        job_event(j, &e);
    }
    if (d) hlod__wire__step_done__free_unpacked(d, NULL);
}

static status_t check_reply(const struct job *j, const Hlod__Wire__RunPlanReply *r) {
    const struct plan_run *p = j->plan;
    bool good = r->n_outputs == p->outs.n && r->n_steps == p->n_steps;
    for (size_t k = 0; k < r->n_outputs && good; k++)
        good = numbers_dtype(str_of(r->outputs[k]->dtype)) &&
               (p->outs.v[k].keep || r->outputs[k]->data);
    return good ? ST_OK : st_internal("the worker's reply does not fit the plan");
}

// Fills what was made; the handles, if somebody waits for them.
static void keep_results(struct job *j, struct hold *h, const Hlod__Wire__RunPlanReply *r) {
    const struct plan_run *p = j->plan;
    int64_t lease_ms = j->spec->plan.lease_ms;
    bool tuple = j->spec->plan.tuple;
    struct job_result done = j->r;
    const char **handles = arena_zarray(&j->arena, const char *, p->outs.n + 1);
    for (size_t k = 0, i = 0; k < p->outs.n; k++) {
        const Hlod__Wire__WireTensor *t = r->outputs[k];
        if (!p->outs.v[k].keep) continue;
        struct buffer *x = h->made.v[i];
        buffer_fill(x, p->outs.v[k].name, numbers_dtype(str_of(t->dtype)), (int32_t)t->n_dims,
                    t->dims);
        if (!tuple) handles[k] = job_handle(j, &x, 1, false, lease_ms);
        i++;
    }
    if (tuple && h->made.n) {
        done.plan.tuple = job_handle(j, h->made.v, h->made.n, true, lease_ms);
        for (size_t k = 0, i = 0; k < p->outs.n; k++)
            if (p->outs.v[k].keep)
                handles[k] = arena_printf(&j->arena, "%s.%zu", done.plan.tuple, i++);
    }
    done.plan.handles = handles;
    job_answer(j, &done);
    sched_watch_leases(j->s);
}

static void measure(struct job *j, const Hlod__Wire__RunPlanReply *r) {
    int64_t used_ns = 0;
    for (size_t n = 0; n < r->n_steps; n++) {
        struct exe *e = j->plan->steps[j->spec->plan.spec->order[n]].job->exe;
        used_ns += exe_measured(e, r->steps[n]->run_ms, r->steps[n]->n_run_ms,
                                clock_ns() - j->sent_ns - used_ns);
    }
    job_used(j, used_ns);
    job_count_out(j, r->outputs, r->n_outputs);
    int64_t carried_ns = clock_ns() - j->sent_ns - used_ns - clock_of_ms(r->peak_ms);
    if (carried_ns > 0) job_timing(j, "transfer", carried_ns);
}

// In the form of a run's result.
static void make_result(struct job *j, const Hlod__Wire__RunPlanReply *r) {
    const struct plan_run *p = j->plan;
    struct job_result done = j->r;
    Hlod__Wire__RunReply *run = arena_new_of(&j->arena, Hlod__Wire__RunReply);
    struct job_step_result *steps = arena_zarray(&j->arena, struct job_step_result, p->n_steps + 1);
    const char **names = arena_array(&j->arena, const char *, p->outs.n + 1);
    for (size_t k = 0; k < p->outs.n; k++)
        names[k] = p->outs.v[k].name;
    job_name_outputs(j, names, p->outs.n, &done);
    hlod__wire__run_reply__init(run);
    run->outputs = r->outputs;
    run->n_outputs = r->n_outputs;
    done.reply = run;

    done.cache_hit = true;
    done.steps = steps;
    done.n_steps = p->n_steps;
    for (size_t n = 0; n < p->n_steps; n++) {
        const struct pstep *s = &p->steps[j->spec->plan.spec->order[n]];
        steps[n] = (struct job_step_result){s->spec->name, s->job->exe->info, s->job->r.cache_hit,
                                            r->steps[n]};
        done.cache_hit &= s->job->r.cache_hit;
        sz_sum(&run->prepared_bytes, r->steps[n]->prepared_bytes);
        if (r->steps[n]->peak_bytes > run->peak_bytes) run->peak_bytes = r->steps[n]->peak_bytes;
    }
    if (j->spec->plan.spec->single) {
        run->run_ms = r->steps[0]->run_ms;
        run->n_run_ms = r->steps[0]->n_run_ms;
        run->profile = r->steps[0]->profile;
        done.exe = steps[0].exe;
    }
    job_answer(j, &done);
}

static void on_plan(void *ctx, struct frame *f, status_t lost) {
    struct run_call *c = ctx;
    if (f && f->type != HLOD__WIRE__TYPE__TYPE_RUN_PLAN_REPLY) {
        on_event(c, f);
        return;
    }
    status_t st = lost;
    Hlod__Wire__RunPlanReply *r = wire_reply(&hlod__wire__run_plan_reply__descriptor, f, &st);
    bool is_lost = lost != NULL, began = c->began || (lost && worker_began(c->w, c->id));
    if (!st && c->j) st = check_reply(c->j, r);
    hold_settle(c->hold, !st, r ? r->consumed : NULL, r ? r->n_consumed : 0);
    if (!st && !c->j) hold_abandon(c->hold);
    if (!st && c->j) keep_results(c->j, c->hold, r);
    struct job *j = job_call_ended(c, f, st);
    if (!j || st) hlod__wire__run_plan_reply__free_unpacked(r, NULL);
    if (!j) return;

    if (st && job_call_again(j, st, is_lost, began)) return;
    if (!st) job_deliver(j, ROW_REPLY, &(struct delivery){.reply = &r->base});
    job_timing(j, "run", clock_ns() - j->sent_ns);
    if (!st) measure(j, r);
    metric_add(st ? M_RUN_ERRORS : M_RUNS, 1);
    metric_observe_ns(M_RUN_TIME, clock_ns() - j->sent_ns);
    if (!st) make_result(j, r);
    job_finish(j, st);
}
