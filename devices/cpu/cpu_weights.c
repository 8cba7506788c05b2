// SPDX-License-Identifier: Apache-2.0
// Weights of the CPU device: the prepare module is run, and each of its results is kept as the
// steps of main read it: packed by an implementation, as it is, or both. Packing is memory traffic
// and first touches of fresh pages, and no value needs another: so all of it is gathered first
// (which takes the memory) and then done by all threads, the largest first. What another executable
// of the same weights has already is taken from it (cpu_share.c); if that is all, nothing is run.
#include <stdatomic.h>
#include <stdlib.h>

#include "base/store/file.h"
#include "devices/cpu/cpu_pool.h"
#include "devices/cpu/cpu_weights.h"
#include "devices/cpu/cpu_work.h"
#include "devices/cpu/onednn/cpu_onednn.h"

enum {
    COPY_PIECE = 4 << 20,
    LARGE = 64 << 20,
    ALONE_BYTES = 256 << 10 // less is done before the other threads are awake
};

// One value in one form.
struct keep {
    struct cpu_step *step; // packs it; NULL: a copy
    struct cpu_hold *hold;
    const void *from;
    void *to; // in it
    int64_t bytes;
    int64_t read; // bytes at `from`
    enum dtype type;
    bool alone; // nothing else that is kept is made of any of them
};
struct keeping {
    struct cpu_exe *x;
    struct cpu_weights *w;
    struct arena *a;
    struct span made;   // what prepare's plan worked in: free for others once it is kept
    VEC(struct keep) v; // in `a`
    _Atomic size_t next;
    _Atomic bool failed, odd;
    bool swallowed;  // some step swallows NaN
    enum dtype type; // of the value that is added
    status_t st;     // of the thread that set `failed`
};

void cpu_release(struct dev_weights *base) {
    struct cpu_weights *w = (struct cpu_weights *)base;
    cpu_unshare(w);
    free(w->bound);
    free(w->packed);
    free(w->odd);
    free(w->values);
    free(w);
}

// What is handed to a called plan is read where that reads it.
bool cpu_read_plain(const struct cpu_plan *p, bool body, int bound) {
    for (int k = 0; k < p->plan->n_steps; k++) {
        const struct cpu_step *s = &p->steps[k];
        for (int c = 0; s->called && c < s->plan->instr->n_called; c++)
            if (cpu_read_plain(s->called[c], s->plan->instr->op == HLO_WHILE && c == 1, bound))
                return true;
        for (int e = 0; e < s->plan->n_in; e++) {
            const struct slice *in = &s->plan->in[e];
            if (in->where != SLICE_PARAM || p->bound[in->index] != bound || e == s->packed_in)
                continue;
            if (!s->called) return true;
            enum hlo_op op = s->plan->instr->op;
            bool handed_on = op == HLO_WHILE ? plan_unchanged(s->plan->called[1], e)
                                             : op != HLO_CONDITIONAL || e > 0;
            if (!handed_on) return true;
        }
    }
    for (int k = 0; k < p->plan->n_root; k++) {
        const struct slice *r = &p->plan->root[k];
        if (r->where == SLICE_PARAM && p->bound[r->index] == bound && !(body && r->index == k))
            return true;
    }
    return false;
}

// ---- what is to be kept

static bool swallows(const struct cpu_plan *p) {
    for (int k = 0; k < p->plan->n_steps; k++) {
        const struct cpu_step *s = &p->steps[k];
        if (s->swallows) return true;
        for (int c = 0; s->called && c < s->plan->instr->n_called; c++)
            if (swallows(s->called[c])) return true;
    }
    return false;
}

static status_t add_packs(struct keeping *k, const struct cpu_plan *p, int bound, const void *value,
                          int64_t bytes) {
    struct cpu_weights *w = k->w;
    for (int i = 0; i < p->plan->n_steps; i++) {
        struct cpu_step *s = &p->steps[i];
        for (int c = 0; s->called && c < s->plan->instr->n_called; c++)
            RETURN_IF_ERR(add_packs(k, s->called[c], bound, value, bytes));
        const struct slice *in = s->packed_in >= 0 ? &s->plan->in[s->packed_in] : NULL;
        if (!in || in->where != SLICE_PARAM || p->bound[in->index] != bound) continue;
        struct cpu_hold **slot = &w->packed[s->pack_slot];
        if (*slot && (*slot)->counts != w) continue; // another's: cpu_adopt
        w->odd[s->pack_slot] |= s->swallows;         // if it holds any: keep_one
        if (*slot) continue;                         // shared
        int64_t n = s->impl->pack_bytes(s);
        *slot = cpu_hold_new(w, n);
        if (!*slot)
            return st_exhausted("no memory for %lld bytes of prepared weights", (long long)n);
        (*slot)->looked = k->swallowed;
        avec_push(k->a, &k->v,
                  ((struct keep){s, *slot, value, (*slot)->p, n, bytes, k->type, false}));
    }
    return ST_OK;
}
static status_t add_bound(struct keeping *k, int bound, const void *value, int64_t bytes) {
    const struct cpu_plan *p = k->x->main;
    k->type = shape_leaf(k->x->exe->prepare->entry->root->shape, bound)->dtype;
    RETURN_IF_ERR(add_packs(k, p, bound, value, bytes));
    struct cpu_hold *h = k->w->bound[bound];
    if (h || !cpu_read_plain(p, false, bound)) return ST_OK;
    h = k->w->bound[bound] = cpu_hold_new(k->w, bytes);
    if (!h) return st_exhausted("no memory for %lld bytes of weights", (long long)bytes);
    h->looked = k->swallowed;
    for (int64_t at = 0; at < bytes; at += COPY_PIECE) {
        int64_t n = bytes - at < COPY_PIECE ? bytes - at : COPY_PIECE;
        const char *from = (const char *)value + at;
        avec_push(k->a, &k->v,
                  ((struct keep){NULL, h, from, (char *)h->p + at, n, n, k->type, false}));
    }
    return ST_OK;
}

static int by_place(const void *a, const void *b) {
    const struct keep *x = a, *y = b;
    return (uintptr_t)x->from<(uintptr_t)y->from ? -1 : (uintptr_t)x->from>(uintptr_t) y->from;
}
static void mark_alone(struct keep *v, size_t n) {
    uintptr_t end = 0; // of all before
    if (n) qsort(v, n, sizeof *v, by_place);
    for (size_t k = 0; k < n; k++) {
        uintptr_t own = (uintptr_t)v[k].from + (uintptr_t)v[k].read;
        v[k].alone = (uintptr_t)v[k].from >= end;
        if (own > end) end = own;
        if (k + 1 < n && (uintptr_t)v[k + 1].from < end) v[k].alone = false;
    }
}

// ---- keeping it

static int largest_first(const void *a, const void *b) {
    const struct keep *x = a, *y = b;
    return x->bytes < y->bytes ? 1 : -(x->bytes > y->bytes);
}
// By pieces, or a large one would be in memory as a whole beside what is made of it; others are
// soon read again, and finding pages takes longer than the look.
static bool is_odd(const struct cpu_exe *x, const struct keep *e) {
    bool odd = false;
    for (int64_t at = 0; at < e->read && !odd; at += COPY_PIECE) {
        int64_t n = e->read - at < COPY_PIECE ? e->read - at : COPY_PIECE;
        odd = cpu_not_finite_of(e->type, (const char *)e->from + at, n);
        if (e->read > LARGE) cpu_has_read(x, (const char *)e->from + at, n);
    }
    return odd;
}
static status_t keep_one(struct keeping *k, const struct keep *e) {
    if (k->x->cancel && *k->x->cancel) return cpu_cancelled();
    bool odd = k->swallowed && is_odd(k->x, e);
    if (odd) k->odd = e->hold->odd = true;
    if (!e->step) {
        memcpy(e->to, e->from, (size_t)e->bytes);
        return ST_OK;
    }
    k->w->odd[e->step->pack_slot] &= odd;
    return e->step->impl->pack(k->x, e->step, e->from, e->to);
}
static void let_go(const struct keeping *k, const struct keep *e) {
    cpu_has_read(k->x, e->from, e->read);
    uintptr_t at = (uintptr_t)e->from, made = (uintptr_t)k->made.p;
    if (e->alone && at >= made && at - made < k->made.n)
        file_forget((struct span){e->from, (size_t)e->read});
}
static void keep_some(void *ctx, UNUSED int64_t begin, UNUSED int64_t end, UNUSED int thread) {
    struct keeping *k = ctx;
    for (size_t i; !k->failed && (i = k->next++) < k->v.n;) {
        status_t st = keep_one(k, &k->v.v[i]);
        let_go(k, &k->v.v[i]);
        if (!st) continue;
        if (atomic_exchange(&k->failed, true))
            st_drop(st);
        else
            k->st = st;
    }
    onednn_packed();
}
static status_t keep_all(struct keeping *k) {
    int64_t bytes = 0;
    for (size_t i = 0; i < k->v.n; i++)
        bytes += k->v.v[i].bytes;
    mark_alone(k->v.v, k->v.n);
    if (k->v.n) qsort(k->v.v, k->v.n, sizeof *k->v.v, largest_first);
    if (bytes < ALONE_BYTES || k->v.n < 2)
        keep_some(k, 0, 1, 0);
    else
        cpu_parallel(keep_some, k, cpu_threads(), 1);
    return k->st;
}

static bool adopt_all(struct keeping *k) {
    bool all = true;
    for (int i = 0; i < k->x->prepare->plan->n_root; i++)
        all = cpu_adopt(k->w, i, k->swallowed) && all;
    return all;
}
static status_t run_prepare(struct cpu_exe *x, const struct span *weights, int n,
                            struct cpu_weights *w) {
    const struct plan *p = x->prepare->plan;
    struct arena a = {0};
    struct keeping all = {.x = x, .w = w, .a = &a, .swallowed = swallows(x->main)};
    if (adopt_all(&all)) return ST_OK;
    const void **params = arena_zarray(&a, const void *, p->n_params + 1);
    x->stats.prepare_bytes = p->arena_bytes;
    void *memory = cpu_memory(p->arena_bytes);
    status_t st = memory ? ST_OK
                         : st_exhausted("no memory for %lld bytes while preparing weights",
                                        (long long)p->arena_bytes);
    for (int k = 0; k < p->n_params && !st; k++)
        st = dev_find_weight(x->exe->prepare->entry->params.v[k], weights, n, &params[k]);
    struct cpu_frame f = {.params = params, .memory = memory};
    if (!st) st = cpu_run_plan(x, x->prepare, &f);
    for (int k = 0; k < n; k++)
        cpu_has_read(x, weights[k].p, (int64_t)weights[k].n);
    all.made = (struct span){memory, (size_t)p->arena_bytes};
    for (int k = 0; k < p->n_root && !st; k++)
        st = add_bound(&all, k, cpu_address(x->prepare, &f, &p->root[k]), p->root[k].size_bytes);
    if (!st) st = keep_all(&all);
    w->any_odd |= all.odd;
    free(memory);
    arena_done(&a);
    return st;
}

status_t cpu_prepare(struct dev_exe *base, const struct span *weights, int n,
                     const _Atomic bool *cancel, struct dev_weights **out) {
    struct cpu_exe *x = (struct cpu_exe *)base;
    struct cpu_weights *w = calloc(1, sizeof *w);
    if (!w) return st_oom();
    w->base.exe = base;
    w->n_bound = x->prepare->plan->n_root;
    w->n_packed = x->n_packs;
    w->bound = calloc((size_t)w->n_bound + 1, sizeof *w->bound);
    w->packed = calloc((size_t)w->n_packed + 1, sizeof *w->packed);
    w->odd = calloc((size_t)w->n_packed + 1, sizeof *w->odd);
    x->cancel = cancel;

    bool mine = cpu_pool_begin(false), there = w->bound && w->packed && w->odd;
    if (there) cpu_name_values(w, base->which);
    status_t st = there ? cpu_work_take(x) : st_oom();
    if (!st) {
        st = run_prepare(x, weights, n, w);
        cpu_work_give(x);
    }
    if (mine) cpu_pool_end();
    x->cancel = NULL;
    if (st) {
        cpu_release(&w->base);
        return st;
    }
    for (int k = 0; k < w->n_bound; k++)
        w->base.needs += w->bound[k] ? w->bound[k]->bytes : 0;
    for (int k = 0; k < w->n_packed; k++)
        w->base.needs += w->packed[k] ? w->packed[k]->bytes : 0;
    cpu_share(w);
    *out = &w->base;
    return ST_OK;
}
