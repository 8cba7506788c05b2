// SPDX-License-Identifier: Apache-2.0
// Opening the library's steps on other threads while an executable is loaded. What a step of the
// library costs at load is the code that the library generates for it, which it keeps in a cache of
// its own, by the call's description. So helpers open the steps from the last to the first and let
// go of them again, while the loading thread binds them from the first to the last and, where they
// meet, finds the code made. What is bound does not depend on it.
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "devices/cpu/cpu_ahead.h"
#include "devices/cpu/cpu_onednn.h"

enum { HELPERS = 3, FEW_STEPS = 6 }; // fewer steps are open before a thread has begun

struct cpu_ahead {
    struct cpu_exe of; // as it was at the start; for what opening adds a helper has a copy
    const struct plan *plan;
    int threads;      // that the library may use
    _Atomic int left; // steps that no helper has taken: the last of them is the next
    _Atomic int at;   // the step that is being bound
    pthread_t helper[HELPERS];
    int n;
};

static void open_one(const struct cpu_ahead *h, int k) {
    struct cpu_exe x = h->of;
    struct cpu_step s = {.plan = &h->plan->steps[k], .packed_in = -1};
    const struct cpu_impl *impl = cpu_choose(&x, s.plan->instr);
    if (impl != &cpu_impl_onednn && impl != &cpu_impl_int8) return;
    status_t st = impl->open(&x, &s);
    impl->close(&s);
    arena_done(&x.arena);
    st_drop(st); // who binds it is told the same
}
static void *help(void *arg) {
    struct cpu_ahead *h = arg;
    cpu_use_threads(h->threads); // part of the descriptions
    for (int k; (k = --h->left) > h->at;) {
        if (h->of.cancel && *h->of.cancel) break;
        open_one(h, k);
    }
    return NULL;
}

struct cpu_ahead *cpu_ahead_begin(const struct cpu_exe *x, const struct plan *plan,
                                  const int *bound) {
    int threads = cpu_threads(), n = threads - 1 < HELPERS ? threads - 1 : HELPERS;
    if (n < 1 || plan->n_steps < FEW_STEPS) return NULL;
    status_t st = onednn_start(); // once, before there are two threads
    struct cpu_ahead *h = st ? NULL : calloc(1, sizeof *h);
    st_drop(st);
    if (!h) return NULL;
    h->of = *x;
    h->of.bound = bound;
    h->of.arena = (struct arena){0};
    h->plan = plan;
    h->threads = threads;
    h->left = plan->n_steps;
    for (; h->n < n; h->n++)
        if (pthread_create(&h->helper[h->n], NULL, help, h)) break;
    return h;
}
void cpu_ahead_at(struct cpu_ahead *h, const struct plan *plan, int step) {
    if (h && h->plan == plan) h->at = step;
}
void cpu_ahead_end(struct cpu_ahead *h) {
    if (!h) return;
    h->at = h->plan->n_steps;
    for (int k = 0; k < h->n; k++)
        pthread_join(h->helper[k], NULL);
    free(h);
}
