// SPDX-License-Identifier: Apache-2.0
// Loops of small steps: where every buffer of a turn lies is the same in all turns, so addresses
// are found once a loop, kernels that one thread runs are called without asking how many threads
// there are, and what a turn copies is a list. Without a profile only. Does not: bodies whose steps
// the plan put side by side, which go the usual way (cpu_device.c).
#include "compiler/codegen/abi.h"
#include "devices/cpu/cpu_weights.h"

struct loop_step {
    struct cpu_step *s;
    void **bufs;
    struct cpu_direct direct; // code NULL: by the implementation
};
struct loop_copy {
    char *to, *stage; // stage: by way of it, where results change places; or NULL
    const char *from;
    size_t n;
};
struct cpu_loop {
    struct loop_step *steps; // of the condition, then of the body
    struct loop_copy *copies;
    int n_copies;
};

static bool fill(struct cpu_exe *x, struct cpu_plan *p, struct loop_step *to) {
    for (int k = 0; k < p->plan->n_steps; k++) {
        struct cpu_step *s = &p->steps[k];
        if (s->beside_below) return false;
        to[k].s = s;
        to[k].bufs = arena_zarray(&x->arena, void *, s->plan->n_in + s->plan->n_out + 1);
        cpu_direct_of(s, &to[k].direct);
    }
    return true;
}
struct cpu_loop *cpu_loop_of(struct cpu_exe *x, struct cpu_step *s) {
    struct cpu_plan *cond = s->called[0], *body = s->called[1];
    struct cpu_loop *l = arena_new_of(&x->arena, struct cpu_loop);
    *l = (struct cpu_loop){0};
    l->steps = arena_zarray(&x->arena, struct loop_step, cond->plan->n_steps + body->plan->n_steps);
    l->copies = arena_zarray(&x->arena, struct loop_copy, body->plan->n_root + 1);
    bool ok = cond->plan->n_root == 1 && fill(x, cond, l->steps) &&
              fill(x, body, l->steps + cond->plan->n_steps);
    return ok ? l : NULL;
}

static void place(const struct cpu_plan *p, const struct cpu_frame *f, struct loop_step *l) {
    for (int k = 0; k < p->plan->n_steps; k++, l++) {
        const struct plan_step *ps = l->s->plan;
        for (int e = 0; e < ps->n_in; e++)
            l->bufs[e] = cpu_address(p, f, &ps->in[e]);
        for (int e = 0; e < ps->n_out; e++)
            l->bufs[ps->n_in + e] = cpu_address(p, f, &ps->out[e]);
        l->bufs[ps->n_in + ps->n_out] = f->memory + ps->scratch_offset;
        if (l->s->packed_in >= 0) l->bufs[l->s->packed_in] = f->weights->packed[l->s->pack_slot]->p;
    }
}
static void place_copies(struct cpu_loop *l, const struct cpu_step *s, const struct cpu_frame *f,
                         void *const *out) {
    const struct cpu_plan *body = s->called[1];
    char *stage = s->stage;
    l->n_copies = 0;
    for (int k = 0; k < body->plan->n_root; k++) {
        const struct slice *root = &body->plan->root[k];
        char *from = cpu_address(body, f, root);
        if (from == out[k] || !root->size_bytes) continue;
        bool moves = root->where == SLICE_PARAM; // from another element of the state
        l->copies[l->n_copies++] = (struct loop_copy){.to = out[k],
                                                      .from = from,
                                                      .stage = moves ? stage : NULL,
                                                      .n = (size_t)root->size_bytes};
        if (moves) stage += (root->size_bytes + 63) / 64 * 64;
    }
}
static inline void copy_bytes(char *to, const char *from, size_t n) {
    if (n == 4)
        memcpy(to, from, 4);
    else if (n == 8)
        memcpy(to, from, 8);
    else
        memmove(to, from, n);
}
static status_t run_steps(struct cpu_exe *x, const struct cpu_plan *p, const struct cpu_frame *f,
                          const struct loop_step *l) {
    for (const struct loop_step *end = l + p->plan->n_steps; l < end; l++) {
        struct cpu_step *s = l->s;
        if (s->called) {
            RETURN_IF_ERR(cpu_run_step(x, p, f, s));
            continue;
        }
        for (int e = 0; s->views && e < s->plan->n_in; e++)
            if (s->views[e]) l->bufs[e] = s->views[e]->view;
        const struct cpu_direct *d = &l->direct;
        if (d->code)
            hlod_kernel_call(d->code, d->n_bufs, l->bufs, 0, d->extent,
                             (char *)x->scratch + s->own_at, d->sizes);
        else
            RETURN_IF_ERR(s->impl->run(x, s, l->bufs));
    }
    return ST_OK;
}
status_t cpu_loop_run(struct cpu_exe *x, const struct cpu_step *s, const struct cpu_frame *f,
                      void *const *out) {
    struct cpu_loop *l = s->loop;
    const struct cpu_plan *cond = s->called[0], *body = s->called[1];
    struct loop_step *first = l->steps + cond->plan->n_steps;
    place(cond, f, l->steps);
    place(body, f, first);
    place_copies(l, s, f, out);
    const volatile uint8_t *go = cpu_address(cond, f, &cond->plan->root[0]);
    for (;;) {
        if (x->cancel && *x->cancel) return cpu_cancelled();
        RETURN_IF_ERR(run_steps(x, cond, f, l->steps));
        if (!*go) return ST_OK;
        RETURN_IF_ERR(run_steps(x, body, f, first));
        const struct loop_copy *c = l->copies, *end = c + l->n_copies;
        for (; c < end; c++)
            if (c->stage) copy_bytes(c->stage, c->from, c->n);
        for (c = l->copies; c < end; c++)
            if (!c->stage) copy_bytes(c->to, c->from, c->n);
        for (c = l->copies; c < end; c++)
            if (c->stage) copy_bytes(c->to, c->stage, c->n);
    }
}
