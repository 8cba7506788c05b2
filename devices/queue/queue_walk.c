// SPDX-License-Identifier: Apache-2.0
// The walk over a plan: kernels go to the queue, which runs them in order while the host goes on;
// control flow is the host's, which reads predicates back and waits for them; what has no kernel is
// read back, evaluated and written. At most some kernels are in the queue, so that a run that is
// cancelled ends soon.
#include "base/clock.h"
#include "compiler/ir/op.h"
#include "compiler/plan/in_place.h"
#include "devices/queue/queue.h"

struct queue_place queue_place_of(const struct queue_plan *p, const struct queue_frame *f,
                                  const struct slice *s) {
    switch (s->where) {
    case SLICE_PARAM:
        return f->params[s->index];
    case SLICE_CONST:
        return p->consts[s->index];
    case SLICE_ARENA:
        return (struct queue_place){f->memory.mem, f->memory.at + s->offset};
    default:
        return (struct queue_place){0};
    }
}

// ---- profile

int queue_begin_row(struct queue_walk *w, const struct queue_step *s, const char *impl) {
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
void queue_host_row(struct queue_walk *w, const struct queue_step *s, const char *impl,
                    int64_t start) {
    int row = queue_begin_row(w, s, impl);
    if (row < 0) return;
    w->profile->rows[row].start_ns = start - w->profile->zero_ns;
    w->profile->rows[row].ns = clock_ns() - start;
}
status_t queue_walk_end(struct queue_walk *w, status_t st) {
    struct queue_device *d = queue_of(&w->x->base);
    status_t over = queue_finish(d);
    if (d->driver->settle) d->driver->settle(w);
    if (!st) return over;
    st_drop(over);
    return st;
}

// ---- kernels

static status_t run_kernel(struct queue_walk *w, const struct queue_step *s) {
    struct queue_device *d = queue_of(&w->x->base);
    const struct plan_step *ps = s->plan;
    for (int e = 0; plan_updates_alone(ps->instr) && e < ps->n_out; e++)
        RETURN_IF_ERR(queue_copy(d, s->at[ps->n_in + e], s->at[e], ps->out[e].size_bytes));
    return s->info->extent ? d->driver->run(w, s) : ST_OK;
}

// ---- the reference evaluator

static status_t run_reference(struct queue_walk *w, const struct queue_step *s) {
    struct queue_device *d = queue_of(&w->x->base);
    const struct plan_step *ps = s->plan;
    struct arena a = {0};
    int n = ps->n_in + ps->n_out;
    void **bufs = arena_zarray(&a, void *, n + 1);
    status_t st = ST_OK;
    for (int e = 0; e < n && !st; e++) {
        int64_t bytes = e < ps->n_in ? ps->in[e].size_bytes : ps->out[e - ps->n_in].size_bytes;
        bufs[e] = arena_alloc_aligned(&a, (size_t)bytes + 64, 64);
        if (e < ps->n_in) st = queue_read(d, bufs[e], s->at[e], bytes, true);
    }
    if (!st) st = dev_reference_run(&w->x->reference, ps->instr, bufs, ps->n_in);
    for (int e = 0; e < ps->n_out && !st; e++)
        st = queue_write(d, s->at[ps->n_in + e], bufs[ps->n_in + e], ps->out[e].size_bytes, true);
    w->x->stats.reference_steps++;
    arena_done(&a);
    return st;
}

// ---- control flow

static status_t run_called(struct queue_walk *w, const struct queue_plan *p,
                           struct queue_place memory, const struct queue_place *args,
                           const struct queue_place *out) {
    struct queue_frame f = {args, memory};
    RETURN_IF_ERR(queue_walk_plan(w, p, &f));
    for (int k = 0; k < p->plan->n_root; k++)
        RETURN_IF_ERR(queue_copy(queue_of(&w->x->base), out[k],
                                 queue_place_of(p, &f, &p->plan->root[k]),
                                 p->plan->root[k].size_bytes));
    return ST_OK;
}
// The results of a turn become the state; by way of the stage where they change places.
static status_t end_turn(struct queue_walk *w, const struct queue_step *s,
                         const struct queue_frame *f, const struct queue_place *out) {
    struct queue_device *d = queue_of(&w->x->base);
    const struct queue_plan *body = s->called[1];
    const struct slice *root = body->plan->root;
    struct queue_place at = {w->x->stage.place.mem, w->x->stage.place.at + s->stage_at};
    for (int k = 0; k < s->plan->n_out; k++)
        if (plan_moves(body->plan, k)) {
            RETURN_IF_ERR(queue_copy(d, at, out[root[k].index], root[k].size_bytes));
            at.at += queue_aligned(root[k].size_bytes);
        }
    for (int k = 0; k < s->plan->n_out; k++)
        if (!plan_moves(body->plan, k))
            RETURN_IF_ERR(
                queue_copy(d, out[k], queue_place_of(body, f, &root[k]), root[k].size_bytes));
    at.at = w->x->stage.place.at + s->stage_at;
    for (int k = 0; k < s->plan->n_out; k++)
        if (plan_moves(body->plan, k)) {
            RETURN_IF_ERR(queue_copy(d, out[k], at, root[k].size_bytes));
            at.at += queue_aligned(root[k].size_bytes);
        }
    return ST_OK;
}
static status_t run_while(struct queue_walk *w, const struct queue_step *s,
                          struct queue_place memory) {
    struct queue_device *d = queue_of(&w->x->base);
    const struct queue_place *in = s->at, *out = s->at + s->plan->n_in;
    const struct queue_plan *cond = s->called[0], *body = s->called[1];
    struct queue_frame f = {out, memory};
    for (int k = 0; k < s->plan->n_out; k++)
        RETURN_IF_ERR(queue_copy(d, out[k], in[k], s->plan->out[k].size_bytes));

    for (;;) {
        uint8_t go = 0;
        RETURN_IF_ERR(queue_walk_plan(w, cond, &f));
        RETURN_IF_ERR(queue_read(d, &go, queue_place_of(cond, &f, &cond->plan->root[0]), 1, true));
        if (!go) return ST_OK;
        RETURN_IF_ERR(queue_walk_plan(w, body, &f));
        RETURN_IF_ERR(end_turn(w, s, &f, out));
    }
}
static status_t run_control(struct queue_walk *w, const struct queue_step *s,
                            struct queue_place memory) {
    const struct hlo_instr *i = s->plan->instr;
    const struct queue_place *in = s->at, *out = s->at + s->plan->n_in;
    memory.at += s->plan->scratch_offset;
    if (i->op == HLO_WHILE) return run_while(w, s, memory);
    if (i->op == HLO_CALL) return run_called(w, s->called[0], memory, in, out);
    bool pred = i->operands[0]->shape->dtype == DT_PRED;
    uint8_t yes = 0;
    int32_t k = 0;
    RETURN_IF_ERR(queue_read(queue_of(&w->x->base), pred ? (void *)&yes : (void *)&k, in[0],
                             pred ? 1 : 4, true));
    if (pred) k = yes ? 0 : 1;
    if (k < 0 || k >= i->n_called) k = i->n_called - 1;
    return run_called(w, s->called[k], memory, in + plan_branch_leaf(s->plan, k), out);
}

// ---- the walk

static status_t run_step(struct queue_walk *w, const struct queue_plan *p,
                         const struct queue_frame *f, const struct queue_step *s) {
    const struct plan_step *ps = s->plan;
    for (int e = 0; e < ps->n_in; e++)
        s->at[e] = queue_place_of(p, f, &ps->in[e]);
    for (int e = 0; e < ps->n_out; e++)
        s->at[ps->n_in + e] = queue_place_of(p, f, &ps->out[e]);
    if (s->kernel) return run_kernel(w, s);

    int64_t start = clock_ns();
    if (w->profile && s->called) w->profile->depth++;
    status_t st = s->called ? run_control(w, s, f->memory) : run_reference(w, s);
    if (w->profile && s->called) {
        w->profile->depth--;
        if (!st) st = queue_finish(queue_of(&w->x->base)); // its row covers those of its steps
    }
    if (!st) queue_host_row(w, s, s->called ? "control" : "reference", start);
    return st;
}
status_t queue_walk_plan(struct queue_walk *w, const struct queue_plan *p,
                         const struct queue_frame *f) {
    for (int k = 0; k < p->plan->n_steps; k++) {
        if (w->cancel && *w->cancel) return st_new(ST_CANCELLED, "the call was cancelled");
        RETURN_IF_ERR(run_step(w, p, f, &p->steps[k]));
    }
    return ST_OK;
}
