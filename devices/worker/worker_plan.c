// SPDX-License-Identifier: Apache-2.0
// RUN_PLAN: several executables in turn, values between them on the device. A result goes straight
// into the memory that is sent when nothing else needs it, else it becomes a buffer that lives
// until its last reader has run, which may take its memory. Only a plan that succeeds to its end
// leaves buffers behind.
#include <string.h>

#include "base/clock.h"
#include "compiler/results.h"
#include "devices/worker/worker_calls.h"
#include "devices/worker/worker_profile.h"

struct value { // an input of the plan, or a result of a step
    struct dev_tensor t;
    struct dev_buffer *buffer; // NULL: t.data is in the process's memory
    uint64_t id;               // of an input, in the table; 0 = none
    bool donate;               // an input's
    int uses, left;            // by steps: in all, still to come
    bool wanted;               // kept or sent as well
    int slot;                  // of what is sent, when it goes there directly; -1
};
struct step {
    const Hlod__Wire__PlanStep *q;
    struct dev_exe *x;
    struct dev_weights *w;
    const struct shape *root;
    struct value *results;
    int n_results;
    bool cut; // the run knows the sizes of some
    Hlod__Wire__StepReply *reply;
};
struct plan_run {
    struct worker_call *c;
    struct device *d;
    const Hlod__Wire__RunPlan *q;
    Hlod__Wire__RunPlanReply *reply;
    struct value *inputs;
    struct step *steps;
    struct worker_outputs out;
    int *slot;                // [results] place in out, -1 = kept
    int64_t **dims;           // [results] true ones, or NULL
    struct dev_buffer **kept; // [results]
    bool last;                // of the repeats
    int64_t begun_ns;
};

// ---- reading the call

static status_t read_input(struct plan_run *p, size_t k) {
    const Hlod__Wire__PlanInput *q = p->q->inputs[k];
    struct value *v = &p->inputs[k];
    v->id = q->buffer;
    v->donate = q->donate && q->buffer;
    if (v->id) {
        v->buffer = worker_buffer(v->id);
        if (!v->buffer) return worker_buffer_missing(v->id);
        const struct shape *s = v->buffer->shape;
        v->t = (struct dev_tensor){dtype_name(s->dtype), s->rank, s->dims, {NULL, 0}};
        v->t.data.n = (size_t)v->buffer->bytes;
        return ST_OK;
    }
    const Hlod__Wire__WireTensor *w = q->tensor;
    if (!w) return st_internal("a plan's input without a value");
    v->t = (struct dev_tensor){.dtype = w->dtype, .rank = (int32_t)w->n_dims, .dims = w->dims};
    RETURN_IF_ERR(worker_call_blob(p->c, w->data, &v->t.data));
    v->t.data.p = worker_align(p->c, w->dtype, v->t.data);
    return ST_OK;
}

static struct value *arg_value(struct plan_run *p, size_t step, const Hlod__Wire__PlanArg *a) {
    if (a->step == 0) return a->index < p->q->n_inputs ? &p->inputs[a->index] : NULL;
    if (a->step > step) return NULL;
    struct step *from = &p->steps[a->step - 1];
    return a->index < (uint32_t)from->n_results ? &from->results[a->index] : NULL;
}

static status_t read_step(struct plan_run *p, size_t k) {
    struct step *s = &p->steps[k];
    struct arena *a = &p->c->arena;
    s->q = p->q->steps[k];
    RETURN_IF_ERR(worker_resident(s->q->key, s->q->weights_digest, &s->x, &s->w));
    if (s->x->exe->replicas > 1)
        return st_unimplemented("step '%s': replicas in a plan", s->q->name);
    const struct hlo_module *m = s->x->exe->main;

    struct dynamic_result one[1];
    struct str texts; // their places are valid within one run only
    if (hlo_frontend(m, "hlod_text", &texts))
        return st_reason(st_invalid("step '%s': a program with text in a plan", s->q->name),
                         HLOD__V1__REASON__REASON_UNSUPPORTED_DTYPE);

    s->root = m->entry->root->shape;
    s->cut = results_dynamic(m, one, 1) > 0;
    s->n_results = shape_leaves(s->root);
    s->results = arena_zarray(a, struct value, s->n_results + 1);
    for (int i = 0; i < s->n_results; i++) {
        const struct shape *leaf = shape_leaf(s->root, i);
        s->results[i].t = (struct dev_tensor){dtype_name(leaf->dtype), leaf->rank, leaf->dims, {0}};
        s->results[i].t.data.n = (size_t)shape_bytes(leaf);
        s->results[i].slot = -1;
    }

    struct dev_tensor *in = arena_zarray(a, struct dev_tensor, s->q->n_args + 1);
    for (size_t i = 0; i < s->q->n_args; i++) {
        struct value *v = arg_value(p, k, s->q->args[i]);
        if (!v) return st_internal("step '%s': argument %zu names nothing", s->q->name, i);
        v->uses++;
        in[i] = v->t;
    }
    return st_note(dev_check_inputs(s->x, in, (int)s->q->n_args), "step '%s'", s->q->name);
}

static status_t read_results(struct plan_run *p) {
    size_t n = p->q->n_results;
    int64_t *bytes = arena_zarray(&p->c->arena, int64_t, n + 1);
    int sent = 0;
    p->slot = arena_zarray(&p->c->arena, int, n + 1);
    p->dims = arena_zarray(&p->c->arena, int64_t *, n + 1);
    p->kept = arena_zarray(&p->c->arena, struct dev_buffer *, n + 1);
    for (size_t r = 0; r < n; r++) {
        const Hlod__Wire__PlanResult *q = p->q->results[r];
        struct step *s = q->step && q->step <= p->q->n_steps ? &p->steps[q->step - 1] : NULL;
        if (!s || q->index >= (uint32_t)results_sent(s->x->exe->main))
            return st_internal("result %zu names nothing", r);
        struct value *v = &s->results[q->index];
        p->slot[r] = q->keep ? -1 : sent;
        if (!q->keep) bytes[sent++] = (int64_t)v->t.data.n;
        v->slot = v->wanted || v->uses ? -1 : p->slot[r];
        v->wanted = true;
    }
    return worker_outputs_make(p->c, bytes, sent, p->q->output_fd, &p->out);
}

static status_t read_plan(struct plan_run *p) {
    const Hlod__Wire__RunPlan *q = p->q;
    bool donates = false;
    p->inputs = arena_zarray(&p->c->arena, struct value, q->n_inputs + 1);
    p->steps = arena_zarray(&p->c->arena, struct step, q->n_steps + 1);
    for (size_t k = 0; k < q->n_inputs; k++) {
        RETURN_IF_ERR(read_input(p, k));
        donates |= p->inputs[k].donate;
    }
    if (q->repeat > RUN_MAX_REPEAT) return st_internal("a plan %u times", q->repeat);
    if (donates && q->repeat > 1) return st_internal("donations are for one run only");
    for (size_t k = 0; k < q->n_steps; k++)
        RETURN_IF_ERR(read_step(p, k));
    RETURN_IF_ERR(read_results(p));
    p->reply->steps = arena_array(&p->c->arena, Hlod__Wire__StepReply *, q->n_steps + 1);
    p->reply->consumed = arena_array(&p->c->arena, uint64_t, q->n_inputs + 1);
    for (size_t k = 0; k < q->n_steps; k++) {
        Hlod__Wire__StepReply *r = p->steps[k].reply = p->reply->steps[k] =
            arena_new_of(&p->c->arena, Hlod__Wire__StepReply);
        hlod__wire__step_reply__init(r);
        r->run_ms = arena_array(&p->c->arena, double, q->repeat + 1);
        p->reply->n_steps = k + 1;
    }
    return ST_OK;
}

// ---- one step

static void let_go(struct value *v) {
    dev_buffer_unref(v->buffer);
    v->buffer = NULL;
}

static void consume(struct plan_run *p, struct value *v) {
    p->reply->consumed[p->reply->n_consumed++] = v->id;
    worker_buffer_drop(v->id);
    v->buffer = NULL;
}

// May this step take the memory of v? It is the last to read it, and there is no other reference.
static bool gives(const struct plan_run *p, const struct step *s, const struct value *v) {
    int here = 0;
    for (size_t i = 0; i < s->q->n_args; i++)
        here += arg_value((struct plan_run *)(uintptr_t)p, p->q->n_steps, s->q->args[i]) == v;
    bool may = v->id ? v->donate : !v->wanted;
    return v->buffer && may && v->left == here && v->buffer->refs == 1;
}

// Makes buffers of true sizes of what the device left in memory, for steps and the table.
static status_t take_cut(struct plan_run *p, struct step *s, void *const *out) {
    int64_t **dims = results_cut_all(&p->c->arena, s->x->exe->main, out);
    for (int k = 0; k < s->n_results; k++) {
        struct value *v = &s->results[k];
        const struct shape *leaf = shape_leaf(s->root, k);
        struct shape cut = {.dtype = leaf->dtype, .rank = leaf->rank, .dims = leaf->dims};
        if (dims[k]) cut.dims = dims[k];
        if (dims[k] && v->uses)
            return st_invalid("a step reads a result whose size only the run knows");
        if (!v->uses && !v->wanted) continue;
        RETURN_IF_ERR(dev_put(s->x->dev, &cut, out[k], &v->buffer));
    }
    return ST_OK;
}

static status_t run_on_device(struct plan_run *p, struct step *s, struct profile *profile,
                              struct dev_buffer **kept, void **out) {
    struct arena *a = &p->c->arena;
    size_t n = s->q->n_args;
    const void **in = arena_zarray(a, const void *, n + 1);
    struct dev_buffer **buffers = arena_zarray(a, struct dev_buffer *, n + 1);
    bool *donate = arena_zarray(a, bool, n + 1);

    for (size_t i = 0; i < n; i++) {
        const struct value *v = arg_value(p, p->q->n_steps, s->q->args[i]);
        in[i] = v->t.data.p;
        buffers[i] = v->buffer;
        donate[i] = gives(p, s, v);
    }

    for (int k = 0; k < s->n_results; k++)
        if (s->cut)
            out[k] = arena_alloc_aligned(a, s->results[k].t.data.n + 64, 64);
        else if (s->results[k].slot >= 0)
            out[k] = p->out.p[s->results[k].slot];

    struct dev_run r = {.in = in,
                        .out = out,
                        .in_buffers = buffers,
                        .donate = donate,
                        .kept = kept,
                        .profile = profile,
                        .cancel = &p->c->cancel};

    status_t st;
    bool again = true;
    do {
        st = dev_run(s->x, s->w, &r);
        for (size_t i = 0; i < n; i++)
            again &= !donate[i] || !buffers[i]->spent;
    } while (again && worker_make_room(&st));
    return st;
}

// Results where they are wanted: into what is sent, into what is kept.
static status_t collect(struct plan_run *p, size_t step) {
    for (size_t r = 0; p->last && r < p->q->n_results; r++) {
        const Hlod__Wire__PlanResult *q = p->q->results[r];
        if (q->step != step + 1) continue;
        const struct value *v = &p->steps[step].results[q->index];
        if (!v->buffer) continue; // went where it is sent from
        p->dims[r] = arena_dup_array(&p->c->arena, v->buffer->shape->dims, v->t.rank);
        if (q->keep)
            p->kept[r] = dev_buffer_ref(v->buffer);
        else
            RETURN_IF_ERR(dev_get(v->buffer, 0, v->buffer->bytes, p->out.p[p->slot[r]]));
    }
    return ST_OK;
}

// The step's arguments have been read: what is not needed any more goes.
static void release_args(struct plan_run *p, struct step *s) {
    for (size_t i = 0; i < s->q->n_args; i++) {
        struct value *v = arg_value(p, p->q->n_steps, s->q->args[i]);
        if (--v->left > 0) continue;
        if (!v->id)
            let_go(v);
        else if (v->donate)
            consume(p, v);
    }
}
// After a step that failed: what the device took of the table's is gone all the same.
static void drop_spent(struct plan_run *p, struct step *s) {
    for (size_t i = 0; i < s->q->n_args; i++) {
        struct value *v = arg_value(p, p->q->n_steps, s->q->args[i]);
        if (v->id && v->donate && v->buffer && v->buffer->spent) consume(p, v);
    }
}

static status_t run_step(struct plan_run *p, size_t k) {
    struct step *s = &p->steps[k];
    struct arena *a = &p->c->arena;
    struct profile profile = {0};
    void **out = arena_zarray(a, void *, s->n_results + 1);
    struct dev_buffer **kept = arena_zarray(a, struct dev_buffer *, s->n_results + 1);
    bool rows = p->q->profile && p->last;
    if (rows)
        profile = (struct profile){.rows = arena_zarray(a, struct profile_row, MAX_ROWS),
                                   .cap = MAX_ROWS};

    int64_t start = clock_ns();
    if (rows) dev_peak(p->d); // measures it, the first time
    double peak_ms = clock_ms_since(start);
    start = clock_ns();
    status_t st = run_on_device(p, s, rows ? &profile : NULL, kept, out);
    if (st) drop_spent(p, s);
    RETURN_IF_ERR(st);
    double ms = clock_ms_since(start);

    s->reply->run_ms[s->reply->n_run_ms++] = ms;
    s->reply->peak_bytes = dev_stats(s->x).arena_bytes;
    s->reply->prepared_bytes = s->w->bytes;
    if (rows) {
        s->reply->profile = worker_profile(a, p->d, &profile, 1, ms, !s->q->foreign_names);
        s->reply->profile->start_ms = clock_ms(start - p->begun_ns) - peak_ms;
        p->reply->peak_ms += peak_ms;
    }

    for (int i = 0; i < s->n_results; i++)
        s->results[i].buffer = kept[i];
    release_args(p, s);
    if (s->cut) RETURN_IF_ERR(take_cut(p, s, out));
    RETURN_IF_ERR(collect(p, k));
    for (int i = 0; i < s->n_results; i++)
        if (!s->results[i].left) let_go(&s->results[i]);
    Hlod__Wire__StepDone done = HLOD__WIRE__STEP_DONE__INIT;
    done.step = (uint32_t)k + 1;
    done.ms = ms;
    if (p->last) worker_call_event(p->c, HLOD__WIRE__TYPE__TYPE_STEP, &done.base);
    return ST_OK;
}

// ---- the plan

static status_t run_once(struct plan_run *p) {
    for (size_t k = 0; k < p->q->n_inputs; k++)
        p->inputs[k].left = p->inputs[k].uses;
    for (size_t k = 0; k < p->q->n_steps; k++)
        for (int i = 0; i < p->steps[k].n_results; i++)
            p->steps[k].results[i].left = p->steps[k].results[i].uses;
    for (size_t k = 0; k < p->q->n_steps; k++)
        RETURN_IF_ERR(st_note(run_step(p, k), "step '%s'", p->q->steps[k]->name));
    return ST_OK;
}

static void answer(struct plan_run *p) {
    Hlod__Wire__RunPlanReply *out = p->reply;
    struct arena *a = &p->c->arena;
    out->outputs = arena_array(a, Hlod__Wire__WireTensor *, p->q->n_results + 1);
    for (size_t r = 0; r < p->q->n_results; r++) {
        const Hlod__Wire__PlanResult *q = p->q->results[r];
        const struct step *s = &p->steps[q->step - 1];
        const struct shape *leaf = shape_leaf(s->root, (int)q->index);
        Hlod__Wire__WireTensor *t = worker_tensor(a, leaf, p->dims[r], NULL);
        int64_t bytes = dtype_size(leaf->dtype);
        for (int d = 0; d < leaf->rank; d++)
            bytes *= t->dims[d];
        if (q->keep) {
            worker_buffer_keep(q->keep, p->kept[r]);
            p->kept[r] = NULL;
        } else
            t->data = worker_outputs_blob(p->c, &p->out, p->slot[r], bytes);
        out->outputs[out->n_outputs++] = t;
    }
}

static status_t run_plan(struct worker_call *c, struct device *d, Hlod__Wire__RunPlanReply *reply) {
    struct plan_run p = {.c = c,
                         .d = d,
                         .q = (const Hlod__Wire__RunPlan *)c->request,
                         .reply = reply,
                         .begun_ns = clock_ns()};
    status_t st = read_plan(&p);
    uint32_t repeat = p.q->repeat > 1 ? p.q->repeat : 1;
    for (uint32_t k = 0; k < repeat && !st; k++) {
        p.last = k + 1 == repeat;
        st = run_once(&p);
    }
    if (!st) answer(&p);
    for (size_t k = 0; p.steps && k < p.q->n_steps; k++)
        for (int i = 0; i < p.steps[k].n_results; i++)
            let_go(&p.steps[k].results[i]);
    for (size_t r = 0; p.kept && r < p.q->n_results; r++)
        dev_buffer_unref(p.kept[r]);
    frame_unmap(p.out.base, p.out.base_bytes);
    return st;
}
WORKER_ANSWER(run_plan) {
    worker_call_event(c, HLOD__WIRE__TYPE__TYPE_RUNNING, NULL);
    status_t st = run_plan(c, d, reply);
    worker_unpin();
    return st;
}
