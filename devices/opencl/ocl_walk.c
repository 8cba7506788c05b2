// SPDX-License-Identifier: Apache-2.0
// The walk over a plan: kernels go to the queue, which runs them in order while the host goes on;
// control flow is the host's, which reads predicates back and waits for them; what has no kernel is
// read back, evaluated and written. At most some kernels are in the queue, so that a run that is
// cancelled ends soon.
#include "base/clock.h"
#include "compiler/ir/op.h"
#include "compiler/plan/in_place.h"
#include "devices/opencl/ocl_device.h"

enum { MARK_EVERY = 16 };

struct ocl_place ocl_place_of(const struct ocl_plan *p, const struct ocl_frame *f,
                              const struct slice *s) {
    switch (s->where) {
    case SLICE_PARAM:
        return f->params[s->index];
    case SLICE_CONST:
        return p->consts[s->index];
    case SLICE_ARENA:
        return (struct ocl_place){f->memory.mem, f->memory.at + s->offset};
    default:
        return (struct ocl_place){0};
    }
}

// ---- profile

static int begin_row(struct ocl_walk *w, const struct ocl_step *s, const char *impl) {
    struct profile *p = w->profile;
    const struct hlo_instr *i = s->plan->instr;
    if (!p || p->n >= (p->depth ? p->cap - p->cap / 4 : p->cap)) return -1;
    p->rows[p->n] = (struct profile_row){.name = i->name,
                                         .op = i->op_name ? i->op_name : hlo_op_name(i->op),
                                         .impl = impl,
                                         .flops = s->info ? s->info->flops : 0,
                                         .bytes = s->bytes,
                                         .instr = i,
                                         .depth = p->depth};
    return p->n++;
}
static void host_row(struct ocl_walk *w, const struct ocl_step *s, const char *impl,
                     int64_t start) {
    int row = begin_row(w, s, impl);
    if (row < 0) return;
    w->profile->rows[row].start_ns = start - w->profile->zero_ns;
    w->profile->rows[row].ns = clock_ns() - start;
}
static int64_t event_ns(const struct ocl_device *d, void *event, uint32_t what) {
    uint64_t v = 0;
    if (d->cl->GetEventProfilingInfo(event, what, sizeof v, &v, NULL)) return 0;
    return (int64_t)v;
}
// Kernels' times, once they are over: on the host's clock by the moment the first was given.
static void settle_rows(struct ocl_walk *w) {
    struct ocl_device *d = ocl_of(&w->x->base);
    for (size_t k = 0; k < w->waiting.n; k++) {
        const struct ocl_waiting *e = &w->waiting.v[k];
        int64_t start = event_ns(d, e->event, OCL_PROFILING_START),
                end = event_ns(d, e->event, OCL_PROFILING_END);
        if (!w->device_ns) w->device_ns = event_ns(d, e->event, OCL_PROFILING_QUEUED);
        struct profile_row *row = &w->profile->rows[e->row];
        row->ns = end > start ? end - start : 0;
        row->start_ns = start - w->device_ns + w->host_ns - w->profile->zero_ns;
        if (row->start_ns < 0) row->start_ns = 0;
        d->cl->ReleaseEvent(e->event);
    }
    w->waiting.n = 0;
}
status_t ocl_walk_end(struct ocl_walk *w, status_t st) {
    struct ocl_device *d = ocl_of(&w->x->base);
    status_t over = ocl_finish(d);
    settle_rows(w);
    vec_done(&w->waiting);
    if (w->mark) d->cl->ReleaseEvent(w->mark);
    w->mark = NULL;
    if (!st) return over;
    st_drop(over);
    return st;
}

// ---- kernels

static status_t set_arguments(struct ocl_device *d, const struct ocl_exe *x,
                              const struct ocl_step *s) {
    const struct kernel_info *k = s->info;
    uint32_t n = 0;
    ocl_code code = 0;
    for (int b = 0; b < k->n_bufs && !code; b++) {
        uint64_t at = (uint64_t)s->at[b].at;
        code = d->cl->SetKernelArg(s->kernel, n++, sizeof(void *), &s->at[b].mem);
        if (!code) code = d->cl->SetKernelArg(s->kernel, n++, sizeof at, &at);
    }
    for (int b = 0; b < k->n_sizes && !code; b++)
        code = d->cl->SetKernelArg(s->kernel, n++, sizeof(int64_t), &k->sizes[b]);
    uint64_t rest[] = {(uint64_t)k->extent, (uint64_t)s->per,
                       (uint64_t)ocl_aligned(k->scratch_bytes)};
    if (!code) code = d->cl->SetKernelArg(s->kernel, n++, 8, &rest[0]);
    if (s->scratch) {
        if (!code) code = d->cl->SetKernelArg(s->kernel, n++, 8, &rest[1]);
        if (!code) code = d->cl->SetKernelArg(s->kernel, n++, sizeof(void *), &x->scratch.mem);
        if (!code) code = d->cl->SetKernelArg(s->kernel, n, 8, &rest[2]);
    }
    return ocl_check(d, code, "clSetKernelArg");
}
// Waits for what was given a while ago, so that the queue stays short.
static status_t keep_short(struct ocl_walk *w, void *event) {
    struct ocl_device *d = ocl_of(&w->x->base);
    ocl_code code = w->mark ? d->cl->WaitForEvents(1, &w->mark) : 0;
    if (w->mark) d->cl->ReleaseEvent(w->mark);
    w->mark = event;
    if (code) d->lost = true; // it failed where it ran
    return code ? st_new(ST_UNAVAILABLE, "the OpenCL device is lost: a kernel ended with %s (%d)",
                         ocl_name_of(code), code)
                : ST_OK;
}
static status_t run_kernel(struct ocl_walk *w, const struct ocl_step *s) {
    struct ocl_device *d = ocl_of(&w->x->base);
    const struct plan_step *ps = s->plan;
    void *event = NULL;
    for (int e = 0; plan_updates_alone(ps->instr) && e < ps->n_out; e++)
        RETURN_IF_ERR(ocl_copy(d, s->at[ps->n_in + e], s->at[e], ps->out[e].size_bytes));
    if (s->items == 0) return ST_OK;
    RETURN_IF_ERR(set_arguments(d, w->x, s));

    bool mark = !w->profile && w->given % MARK_EVERY == 0;
    if (w->given++ == 0) w->host_ns = clock_ns();
    ocl_code code = d->cl->EnqueueNDRangeKernel(d->queue, s->kernel, 1, NULL, &s->items, &s->local,
                                                0, NULL, w->profile || mark ? &event : NULL);
    RETURN_IF_ERR(ocl_check(d, code, "clEnqueueNDRangeKernel"));
    if (mark) return keep_short(w, event);
    int row = event ? begin_row(w, s, "kernel") : -1;
    if (row >= 0)
        vec_push(&w->waiting, ((struct ocl_waiting){event, row}));
    else if (event)
        d->cl->ReleaseEvent(event);
    return ST_OK;
}

// ---- the reference evaluator

static status_t run_reference(struct ocl_walk *w, const struct ocl_step *s) {
    struct ocl_device *d = ocl_of(&w->x->base);
    const struct plan_step *ps = s->plan;
    struct arena a = {0};
    int n = ps->n_in + ps->n_out;
    void **bufs = arena_zarray(&a, void *, n + 1);
    status_t st = ST_OK;
    for (int e = 0; e < n && !st; e++) {
        int64_t bytes = e < ps->n_in ? ps->in[e].size_bytes : ps->out[e - ps->n_in].size_bytes;
        bufs[e] = arena_alloc_aligned(&a, (size_t)bytes + 64, 64);
        if (e < ps->n_in) st = ocl_read(d, bufs[e], s->at[e], bytes, true);
    }
    if (!st) st = dev_reference_run(&w->x->reference, ps->instr, bufs, ps->n_in);
    for (int e = 0; e < ps->n_out && !st; e++)
        st = ocl_write(d, s->at[ps->n_in + e], bufs[ps->n_in + e], ps->out[e].size_bytes, true);
    w->x->stats.reference_steps++;
    arena_done(&a);
    return st;
}

// ---- control flow

static status_t run_called(struct ocl_walk *w, const struct ocl_plan *p, struct ocl_place memory,
                           const struct ocl_place *args, const struct ocl_place *out) {
    struct ocl_frame f = {args, memory};
    RETURN_IF_ERR(ocl_walk_plan(w, p, &f));
    for (int k = 0; k < p->plan->n_root; k++)
        RETURN_IF_ERR(ocl_copy(ocl_of(&w->x->base), out[k], ocl_place_of(p, &f, &p->plan->root[k]),
                               p->plan->root[k].size_bytes));
    return ST_OK;
}
// The results of a turn become the state; by way of the stage where they change places.
static status_t end_turn(struct ocl_walk *w, const struct ocl_step *s, const struct ocl_frame *f,
                         const struct ocl_place *out) {
    struct ocl_device *d = ocl_of(&w->x->base);
    const struct ocl_plan *body = s->called[1];
    const struct slice *root = body->plan->root;
    struct ocl_place at = {w->x->stage.mem, s->stage_at};
    for (int k = 0; k < s->plan->n_out; k++)
        if (plan_moves(body->plan, k)) {
            RETURN_IF_ERR(ocl_copy(d, at, out[root[k].index], root[k].size_bytes));
            at.at += ocl_aligned(root[k].size_bytes);
        }
    for (int k = 0; k < s->plan->n_out; k++)
        if (!plan_moves(body->plan, k))
            RETURN_IF_ERR(ocl_copy(d, out[k], ocl_place_of(body, f, &root[k]), root[k].size_bytes));
    at.at = s->stage_at;
    for (int k = 0; k < s->plan->n_out; k++)
        if (plan_moves(body->plan, k)) {
            RETURN_IF_ERR(ocl_copy(d, out[k], at, root[k].size_bytes));
            at.at += ocl_aligned(root[k].size_bytes);
        }
    return ST_OK;
}
static status_t run_while(struct ocl_walk *w, const struct ocl_step *s, struct ocl_place memory) {
    struct ocl_device *d = ocl_of(&w->x->base);
    const struct ocl_place *in = s->at, *out = s->at + s->plan->n_in;
    const struct ocl_plan *cond = s->called[0], *body = s->called[1];
    struct ocl_frame f = {out, memory};
    for (int k = 0; k < s->plan->n_out; k++)
        RETURN_IF_ERR(ocl_copy(d, out[k], in[k], s->plan->out[k].size_bytes));

    for (;;) {
        uint8_t go = 0;
        RETURN_IF_ERR(ocl_walk_plan(w, cond, &f));
        RETURN_IF_ERR(ocl_read(d, &go, ocl_place_of(cond, &f, &cond->plan->root[0]), 1, true));
        if (!go) return ST_OK;
        RETURN_IF_ERR(ocl_walk_plan(w, body, &f));
        RETURN_IF_ERR(end_turn(w, s, &f, out));
    }
}
static status_t run_control(struct ocl_walk *w, const struct ocl_step *s, struct ocl_place memory) {
    const struct hlo_instr *i = s->plan->instr;
    const struct ocl_place *in = s->at, *out = s->at + s->plan->n_in;
    memory.at += s->plan->scratch_offset;
    if (i->op == HLO_WHILE) return run_while(w, s, memory);
    if (i->op == HLO_CALL) return run_called(w, s->called[0], memory, in, out);
    bool pred = i->operands[0]->shape->dtype == DT_PRED;
    uint8_t yes = 0;
    int32_t k = 0;
    RETURN_IF_ERR(
        ocl_read(ocl_of(&w->x->base), pred ? (void *)&yes : (void *)&k, in[0], pred ? 1 : 4, true));
    if (pred) k = yes ? 0 : 1;
    if (k < 0 || k >= i->n_called) k = i->n_called - 1;
    return run_called(w, s->called[k], memory, in + plan_branch_leaf(s->plan, k), out);
}

// ---- the walk

static status_t run_step(struct ocl_walk *w, const struct ocl_plan *p, const struct ocl_frame *f,
                         const struct ocl_step *s) {
    const struct plan_step *ps = s->plan;
    for (int e = 0; e < ps->n_in; e++)
        s->at[e] = ocl_place_of(p, f, &ps->in[e]);
    for (int e = 0; e < ps->n_out; e++)
        s->at[ps->n_in + e] = ocl_place_of(p, f, &ps->out[e]);
    if (s->kernel) return run_kernel(w, s);

    int64_t start = clock_ns();
    if (w->profile && s->called) w->profile->depth++;
    status_t st = s->called ? run_control(w, s, f->memory) : run_reference(w, s);
    if (w->profile && s->called) {
        w->profile->depth--;
        if (!st) st = ocl_finish(ocl_of(&w->x->base)); // its row covers those of its steps
    }
    if (!st) host_row(w, s, s->called ? "control" : "reference", start);
    return st;
}
status_t ocl_walk_plan(struct ocl_walk *w, const struct ocl_plan *p, const struct ocl_frame *f) {
    for (int k = 0; k < p->plan->n_steps; k++) {
        if (w->cancel && *w->cancel) return st_new(ST_CANCELLED, "the call was cancelled");
        RETURN_IF_ERR(run_step(w, p, f, &p->steps[k]));
    }
    return ST_OK;
}
