// SPDX-License-Identifier: Apache-2.0
// view: a dynamic-slice of whole lines from what a loop leaves as it is (the inputs of one time
// step out of those of all) is no copy: the steps that read it read it where it lies. Only steps of
// the same body read it, and it lies on a multiple of 64 bytes, as every buffer does.
#include "devices/cpu/cpu.h"

struct view_state {
    int rank;
    int64_t most[HLO_MAX_RANK], stride[HLO_MAX_RANK]; // largest start; bytes
};

static bool lines(const struct shape *from, const struct shape *to, struct view_state *v) {
    bool whole = true;
    int64_t stride = dtype_size(from->dtype);
    v->rank = from->rank;
    for (int d = from->rank - 1; d >= 0; d--) {
        v->most[d] = from->dims[d] - to->dims[d];
        v->stride[d] = stride;
        if (!whole && to->dims[d] != 1) return false;
        if (v->most[d] && stride % 64) return false;
        whole = whole && v->most[d] == 0;
        stride *= from->dims[d];
    }
    return true;
}
// The step of p that is i; NULL: none.
static struct cpu_step *step_of(const struct cpu_plan *p, const struct hlo_instr *i) {
    for (int k = 0; k < p->plan->n_steps; k++)
        if (p->steps[k].plan->instr == i) return &p->steps[k];
    return NULL;
}
// Tells every step that reads i, itself or reshaped, that view makes it; false: not all are steps
// that can be told. With `tell` false none is told yet.
static bool readers(struct cpu_exe *x, const struct cpu_plan *p, const struct hlo_instr *i,
                    struct cpu_step *view, bool tell) {
    if (p->plan->comp->root == i || !i->users.n) return false;
    for (size_t k = 0; k < i->users.n; k++) {
        const struct hlo_instr *u = i->users.v[k];
        struct cpu_step *s = step_of(p, u);
        bool reshaped = u->op == HLO_RESHAPE || u->op == HLO_BITCAST;
        if (!s && (!reshaped || !shape_in_order(u->shape) || !readers(x, p, u, view, tell)))
            return false;
        if (!s) continue;
        if (s->plan->called || s->plan->n_in != u->n_operands) return false;
        if (!tell) continue;
        if (!s->views) s->views = arena_zarray(&x->arena, const struct cpu_step *, s->plan->n_in);
        for (int e = 0; e < u->n_operands; e++)
            if (u->operands[e] == i) s->views[e] = view;
    }
    return true;
}
static status_t view_run(UNUSED struct cpu_exe *x, struct cpu_step *s, void **bufs) {
    const struct view_state *v = s->state;
    const struct hlo_instr *i = s->plan->instr;
    s->view = bufs[0];
    for (int d = 0; d < v->rank; d++) {
        if (!v->most[d]) continue;
        struct literal l = {.shape = i->operands[d + 1]->shape, .data = bufs[d + 1]};
        int64_t start = lit_get_start(&l, 0);
        start = start < 0 ? 0 : start > v->most[d] ? v->most[d] : start;
        s->view += start * v->stride[d];
    }
    return ST_OK;
}
static const struct cpu_impl view = {"view", NULL, NULL, NULL, view_run, NULL, NULL, NULL};

void cpu_mark_views(struct cpu_exe *x, const struct cpu_plan *p) {
    for (int k = 0; k < p->plan->n_steps; k++) {
        struct cpu_step *s = &p->steps[k];
        const struct hlo_instr *i = s->plan->instr;
        struct view_state v = {0};
        if (i->op != HLO_DYNAMIC_SLICE || i->n_operands != i->shape->rank + 1 ||
            s->impl != &cpu_impl_kernel || !shape_in_order(i->shape) ||
            !shape_in_order(i->operands[0]->shape))
            continue;
        const struct slice *from = &s->plan->in[0];
        if (from->where != SLICE_PARAM || !plan_unchanged(p->plan, from->index) ||
            !lines(i->operands[0]->shape, i->shape, &v) || !readers(x, p, i, s, false))
            continue;
        (void)readers(x, p, i, s, true);
        if (s->impl->close) s->impl->close(s);
        s->state = arena_dup(&x->arena, &v, sizeof v);
        s->impl = &view;
        s->detail = "view";
        s->flops = s->bytes = 0;
        s->alone = s->apart = true;
    }
}
