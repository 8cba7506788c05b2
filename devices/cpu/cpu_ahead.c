// SPDX-License-Identifier: Apache-2.0
// Opening the library's steps on other threads while an executable is loaded. What such a step
// costs at load is the library's choice among its implementations and the code that it generates.
// So helpers open the steps from the last to the first, each on a copy of the executable that
// gathers what opening adds, while the loading thread binds them from the first to the last, takes
// what is open already, and waits for the one step that a helper is at where they meet. What is
// bound does not depend on it.
#include <pthread.h>
#include <stdlib.h>

#include "devices/cpu/cpu_ahead.h"
#include "devices/cpu/cpu_onednn.h"

enum { HELPERS = 3, FEW_STEPS = 6 }; // fewer steps are open before a thread has begun

enum state { FREE, HELPED, OPEN, TAKEN }; // OPEN: by a helper, or given up: step.impl is NULL then
struct ahead_step {
    enum state state; // under the lock
    struct cpu_step step;
    int64_t scratch_bytes;
};
struct helper {
    struct cpu_ahead *of;
    pthread_t thread;
    struct arena arena; // states of its steps
};
struct cpu_ahead {
    struct cpu_exe exe; // as it was at the start
    const struct plan *plan;
    int threads; // that the library may use
    pthread_mutex_t lock;
    pthread_cond_t opened;
    struct ahead_step *steps;
    int left; // under the lock: the first steps that no helper has looked at
    struct helper helper[HELPERS];
    int n;
};

// The last step that nobody has begun; NULL: there is none.
static struct ahead_step *next(struct cpu_ahead *h) {
    struct ahead_step *found = NULL;
    pthread_mutex_lock(&h->lock);
    while (h->left && !found)
        if (h->steps[--h->left].state == FREE) found = &h->steps[h->left];
    if (found) found->state = HELPED;
    pthread_mutex_unlock(&h->lock);
    return found;
}
static void open_one(struct helper *w, struct ahead_step *a) {
    static const struct cpu_impl *const library[] = {&cpu_impl_onednn, &cpu_impl_int8, NULL};
    struct cpu_exe x = w->of->exe;
    x.arena = w->arena;
    x.scratch_bytes = 0;
    a->step = (struct cpu_step){.plan = &w->of->plan->steps[a - w->of->steps], .packed_in = -1};
    status_t st = cpu_open_step(&x, &a->step, library);
    w->arena = x.arena;
    a->scratch_bytes = x.scratch_bytes;
    if (!st) return;
    if (a->step.impl) a->step.impl->close(&a->step);
    a->step.impl = NULL;
    st_drop(st); // who binds it is told the same
}
static void *help(void *arg) {
    struct helper *w = arg;
    struct cpu_ahead *h = w->of;
    cpu_use_threads(h->threads); // part of the descriptions
    for (struct ahead_step *a; (a = next(h));) {
        if (!h->exe.cancel || !*h->exe.cancel) open_one(w, a);
        pthread_mutex_lock(&h->lock);
        a->state = OPEN;
        pthread_cond_signal(&h->opened); // one waits at most: the loading thread
        pthread_mutex_unlock(&h->lock);
    }
    return NULL;
}

static void done(struct cpu_ahead *h) {
    pthread_cond_destroy(&h->opened);
    pthread_mutex_destroy(&h->lock);
    free(h->steps);
    free(h);
}
struct cpu_ahead *cpu_ahead_begin(const struct cpu_exe *x, const struct plan *plan,
                                  const int *bound) {
    int threads = cpu_threads(), n = threads - 1 < HELPERS ? threads - 1 : HELPERS;
    if (n < 1 || plan->n_steps < FEW_STEPS) return NULL;
    status_t st = onednn_start(); // once, before there are two threads
    struct cpu_ahead *h = st ? NULL : calloc(1, sizeof *h);
    st_drop(st);
    if (!h) return NULL;
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->opened, NULL);
    h->exe = *x;
    h->exe.bound = bound;
    h->plan = plan;
    h->threads = threads;
    h->left = plan->n_steps;
    h->steps = calloc((size_t)plan->n_steps, sizeof *h->steps);
    for (; h->steps && h->n < n; h->n++) {
        h->helper[h->n].of = h;
        if (pthread_create(&h->helper[h->n].thread, NULL, help, &h->helper[h->n])) break;
    }
    if (h->n) return h;
    done(h);
    return NULL;
}

bool cpu_ahead_take(struct cpu_ahead *h, const struct plan *plan, int k, struct cpu_exe *x,
                    struct cpu_step *s) {
    if (!h || h->plan != plan) return false;
    struct ahead_step *a = &h->steps[k];
    pthread_mutex_lock(&h->lock);
    while (a->state == HELPED)
        pthread_cond_wait(&h->opened, &h->lock);
    bool open = a->state == OPEN && a->step.impl;
    a->state = TAKEN;
    pthread_mutex_unlock(&h->lock);
    if (!open) return false;
    *s = a->step;
    if (s->packed_in >= 0) s->pack_slot = x->n_packs++;
    if (a->scratch_bytes > x->scratch_bytes) x->scratch_bytes = a->scratch_bytes;
    return true;
}

static void free_arena(void *arg) {
    arena_done(arg);
}
// What was opened in `from` goes with `to`.
static void hand_over(struct arena *from, struct arena *to) {
    struct arena *kept = arena_new_of(to, struct arena);
    *kept = *from;
    arena_link(to, free_arena, kept);
}
void cpu_ahead_end(struct cpu_ahead *h, struct cpu_exe *x) {
    if (!h) return;
    pthread_mutex_lock(&h->lock);
    h->left = 0;
    pthread_mutex_unlock(&h->lock);
    for (int k = 0; k < h->n; k++)
        pthread_join(h->helper[k].thread, NULL);
    for (int k = 0; k < h->plan->n_steps; k++) {
        struct ahead_step *a = &h->steps[k];
        if (a->state == OPEN && a->step.impl) a->step.impl->close(&a->step);
    }
    for (int k = 0; k < h->n; k++)
        hand_over(&h->helper[k].arena, &x->arena);
    done(h);
}
