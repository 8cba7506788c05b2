// SPDX-License-Identifier: Apache-2.0
// Weights through prepare, and runs: parameters to where kernels read them, the walk, results to
// where they are wanted.
#include <stdlib.h>

#include "base/clock.h"
#include "devices/queue/queue.h"

// ---- weights

void queue_release(struct dev_weights *base) {
    struct queue_weights *w = (struct queue_weights *)base;
    for (int k = 0; k < w->n_bound; k++)
        queue_give(queue_of(base->exe), &w->bound[k]);
    arena_done(&w->arena);
    free(w);
}
// What prepare needs beside its results: the weights as they came, and its working memory.
struct preparing {
    struct queue_memory *weights, memory;
    struct queue_place *params;
    int n;
};
static status_t send_weights(struct queue_exe *x, const struct span *weights, int n,
                             const _Atomic bool *cancel, struct preparing *p) {
    struct queue_device *d = queue_of(&x->base);
    const struct hlo_computation *c = x->exe->prepare->entry;
    for (size_t k = 0; k < c->params.n; k++) { // arrays, all of them
        const struct hlo_instr *q = c->params.v[k];
        const void *bytes;
        if (cancel && *cancel) return st_new(ST_CANCELLED, "the call was cancelled");
        RETURN_IF_ERR(dev_find_weight(q, weights, n, &bytes));
        RETURN_IF_ERR(queue_take(d, shape_bytes(q->shape), "weights", &p->weights[p->n]));
        p->params[p->n] = p->weights[p->n].place;
        x->stats.prepare_bytes += p->weights[p->n].bytes;
        RETURN_IF_ERR(queue_write(d, p->params[p->n++], bytes, shape_bytes(q->shape), false));
    }
    return ST_OK;
}
// A weight that prepare gives back as it came is kept where it lies.
static bool keep_as_it_is(const struct slice *s, struct preparing *p, struct queue_memory *out) {
    if (s->where != SLICE_PARAM || !p->weights[s->index].place.mem) return false;
    *out = p->weights[s->index];
    p->weights[s->index] = (struct queue_memory){0};
    return true;
}
static status_t keep_results(struct queue_exe *x, const struct queue_frame *f, struct preparing *p,
                             struct queue_weights *w) {
    struct queue_device *d = queue_of(&x->base);
    const struct plan *plan = x->prepare->plan;
    for (int k = 0; k < plan->n_root; k++) {
        const struct slice *s = &plan->root[k];
        struct queue_place from = queue_place_of(x->prepare, f, s);
        if (!keep_as_it_is(s, p, &w->bound[k])) {
            RETURN_IF_ERR(queue_take(d, s->size_bytes, "prepared weights", &w->bound[k]));
            RETURN_IF_ERR(queue_copy(d, w->bound[k].place, from, s->size_bytes));
        }
        w->base.bytes += w->bound[k].bytes;
    }
    return ST_OK;
}
static status_t bind_weights(struct queue_exe *x, const struct span *weights, int n,
                             const _Atomic bool *cancel, struct preparing *p,
                             struct queue_weights *w) {
    struct queue_device *d = queue_of(&x->base);
    const struct plan *plan = x->prepare->plan;
    struct queue_walk walk = {.x = x, .cancel = cancel};
    x->reference.texts = NULL;
    x->reference.cancel = cancel;
    x->stats.prepare_bytes = 0;
    status_t st = send_weights(x, weights, n, cancel, p);
    if (!st) st = queue_take(d, plan->arena_bytes, "preparing weights", &p->memory);
    struct queue_frame f = {p->params, p->memory.place};
    x->stats.prepare_bytes += p->memory.bytes;
    if (!st) st = queue_walk_plan(&walk, x->prepare, &f);
    if (!st) st = keep_results(x, &f, p, w);
    x->reference.cancel = NULL;
    return queue_walk_end(&walk, st);
}
status_t queue_prepare(struct dev_exe *base, const struct span *weights, int n,
                       const _Atomic bool *cancel, struct dev_weights **out) {
    struct queue_exe *x = (struct queue_exe *)base;
    struct queue_device *d = queue_of(base);
    RETURN_IF_ERR(queue_alive(d));
    struct queue_weights *w = calloc(1, sizeof *w);
    if (!w) return st_oom();
    w->base.exe = base;
    w->n_bound = x->prepare->plan->n_root;
    w->bound = arena_zarray(&w->arena, struct queue_memory, w->n_bound + 1);

    struct arena a = {0};
    int most = x->prepare->plan->n_params;
    struct preparing p = {.weights = arena_zarray(&a, struct queue_memory, most + 1),
                          .params = arena_zarray(&a, struct queue_place, most + 1)};
    status_t st = bind_weights(x, weights, n, cancel, &p, w);
    for (int k = 0; k < p.n; k++)
        queue_give(d, &p.weights[k]);
    queue_give(d, &p.memory);
    arena_done(&a);
    if (st)
        queue_release(&w->base);
    else
        *out = &w->base;
    return st;
}

// ---- run

struct running {
    struct queue_exe *x;
    const struct dev_run *r;
    struct queue_place *params;  // [n_params]
    struct queue_memory *copies; // [n_root] of inputs that the plan writes results over
    struct queue_buffer **donor; // [n_root] or the input itself, which was given away
    struct queue_memory *made;   // [n_root] results that stay
    int n_bound;
};
static struct queue_buffer *buffer_in(const struct running *t, int input) {
    return t->r->in_buffers ? (struct queue_buffer *)t->r->in_buffers[input] : NULL;
}
static status_t send_inputs(struct running *t, const struct queue_weights *w) {
    struct queue_exe *x = t->x;
    struct queue_device *d = queue_of(&x->base);
    const struct plan *plan = x->main->plan;
    t->n_bound = w ? w->n_bound : 0;
    for (int k = 0; k < plan->n_params; k++) {
        int input = k - t->n_bound;
        const struct queue_buffer *b = input >= 0 ? buffer_in(t, input) : NULL;
        if (input < 0 || b) {
            t->params[k] = b ? b->memory.place : w->bound[k].place;
            continue;
        }
        int64_t bytes = plan->params[k].size_bytes;
        if (!x->inputs[k].place.mem) {
            RETURN_IF_ERR(queue_take(d, bytes, "inputs", &x->inputs[k]));
            x->stats.arena_bytes += x->inputs[k].bytes;
        }
        t->params[k] = x->inputs[k].place;
        RETURN_IF_ERR(queue_write(d, t->params[k], t->r->in[input], bytes, false));
    }
    return ST_OK;
}
// May a result be written over this parameter where it lies? It is a donated buffer that no other
// parameter of the run is too.
static bool is_own(const struct running *t, int leaf, int input) {
    if (input < 0 || !t->r->donate || !t->r->donate[input] || !buffer_in(t, input)) return false;
    for (int k = 0; k < t->x->main->plan->n_params; k++)
        if (k != leaf && queue_same(t->params[k], t->params[leaf])) return false;
    return true;
}
// Memory for the parameters that the plan writes results over: a donated input's own, which is then
// spent, or a copy.
static status_t place_over(struct running *t) {
    struct queue_device *d = queue_of(&t->x->base);
    const struct plan *plan = t->x->main->plan;
    for (int k = 0; plan->over && k < plan->n_root; k++) {
        int leaf = plan->over[k];
        if (leaf < 0) continue;
        if (is_own(t, leaf, leaf - t->n_bound)) {
            t->donor[k] = buffer_in(t, leaf - t->n_bound);
            t->donor[k]->base.spent = true;
            continue;
        }
        int64_t bytes = plan->params[leaf].size_bytes;
        RETURN_IF_ERR(queue_take(d, bytes, "a result over its input", &t->copies[k]));
        RETURN_IF_ERR(queue_copy(d, t->copies[k].place, t->params[leaf], bytes));
        t->params[leaf] = t->copies[k].place;
    }
    return ST_OK;
}
// Results to the host, or to memory that stays.
static status_t deliver(struct running *t, const struct queue_frame *f) {
    struct queue_device *d = queue_of(&t->x->base);
    const struct plan *plan = t->x->main->plan;
    for (int k = 0; k < plan->n_root; k++) {
        const struct slice *s = &plan->root[k];
        struct queue_place from = queue_place_of(t->x->main, f, s);
        if (t->r->out[k]) {
            RETURN_IF_ERR(queue_read(d, t->r->out[k], from, s->size_bytes, false));
            continue;
        }
        if (t->donor[k] && queue_same(from, t->donor[k]->memory.place)) continue;
        t->donor[k] = NULL;
        if (t->copies[k].place.mem && queue_same(from, t->copies[k].place)) {
            t->made[k] = t->copies[k];
            t->copies[k] = (struct queue_memory){0};
            continue;
        }
        RETURN_IF_ERR(queue_take(d, s->size_bytes, "results that stay", &t->made[k]));
        RETURN_IF_ERR(queue_copy(d, t->made[k].place, from, s->size_bytes));
    }
    return ST_OK;
}
// All is over and went well: what stays belongs to the caller.
static void hand_over(struct running *t) {
    const struct plan *plan = t->x->main->plan;
    const struct shape *root = t->x->exe->main->entry->root->shape;
    for (int k = 0; k < plan->n_root; k++) {
        if (t->r->out[k]) continue;
        struct queue_memory *from = t->donor[k] ? &t->donor[k]->memory : &t->made[k];
        t->r->kept[k] = queue_buffer_of(queue_of(&t->x->base), shape_leaf(root, k), *from);
        *from = (struct queue_memory){0};
    }
}
static status_t run_main(struct running *t, const struct queue_weights *w) {
    struct queue_exe *x = t->x;
    struct queue_walk walk = {.x = x, .cancel = t->r->cancel, .profile = t->r->profile};
    struct queue_frame f = {t->params, x->memory.place};
    x->reference.texts = t->r->texts;
    x->reference.cancel = t->r->cancel;
    status_t st = send_inputs(t, w);
    if (!st) st = place_over(t);
    if (!st) st = queue_walk_plan(&walk, x->main, &f);
    if (!st) st = deliver(t, &f);
    st = queue_walk_end(&walk, st);
    if (!st) hand_over(t);
    x->reference.texts = NULL;
    x->reference.cancel = NULL;
    return st;
}
status_t queue_run(struct dev_exe *base, struct dev_weights *wbase, const struct dev_run *r) {
    struct queue_exe *x = (struct queue_exe *)base;
    struct queue_device *d = queue_of(base);
    const struct plan *plan = x->main->plan;
    RETURN_IF_ERR(queue_alive(d));
    struct arena a = {0};
    struct running t = {.x = x,
                        .r = r,
                        .params = arena_zarray(&a, struct queue_place, plan->n_params + 1),
                        .copies = arena_zarray(&a, struct queue_memory, plan->n_root + 1),
                        .made = arena_zarray(&a, struct queue_memory, plan->n_root + 1),
                        .donor = arena_zarray(&a, struct queue_buffer *, plan->n_root + 1)};

    int64_t start = clock_ns();
    if (r->profile) r->profile->zero_ns = start;
    status_t st = run_main(&t, (struct queue_weights *)wbase);
    for (int k = 0; k < plan->n_root; k++) {
        queue_give(d, &t.copies[k]);
        queue_give(d, &t.made[k]);
    }
    arena_done(&a);
    RETURN_IF_ERR(st);
    x->stats.runs++;
    x->stats.busy_ns += clock_ns() - start;
    return ST_OK;
}
