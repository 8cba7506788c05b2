// SPDX-License-Identifier: Apache-2.0
// Values of class G that a linear scan left in memory, because their intervals are long (buffers,
// whose places all of a kernel reads), are held in registers through loops that read them and leave
// a register free: live ranges split at loops. A loop reads such a value from its slot when it
// begins; what is in the slot stays.
#include <stdlib.h>

#include "compiler/codegen/x86/x86_plan.h"

enum { MOST_STEPS = 1 << 22 }; // loops by homes: larger kernels stay as they are

static int by_weight(const void *a, const void *b) {
    const struct x86_home *x = *(struct x86_home *const *)a, *y = *(struct x86_home *const *)b;
    if (x->weight != y->weight) return x->weight > y->weight ? -1 : 1;
    return x->slot < y->slot ? -1 : x->slot > y->slot;
}
// Is h read at a position of the loop's body? Positions of reads only grow.
static bool reads_in(const struct x86_loop *x, const struct x86_home *h) {
    size_t lo = 0, hi = h->reads.n;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (h->reads.v[mid] <= x->start + 1)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < h->reads.n && h->reads.v[lo] < x->end;
}
static bool meet(const struct x86_loop *x, int32_t first, int32_t last) {
    return first <= x->end && last >= x->start;
}
// Registers of `usable` that no home has in any part of the loop.
static uint32_t free_in(const struct x86_plan *p, const struct x86_loop *x, uint32_t usable) {
    for (size_t k = 0; k < p->homes.n && usable; k++) {
        const struct x86_home *h = p->homes.v[k];
        if (h->class == CLASS_G && h->reg >= 0 && meet(x, h->first, h->last))
            usable &= ~(1u << h->reg);
    }
    return usable;
}
static void hold(struct x86_plan *p, struct x86_loop *x, struct x86_home *h) {
    int reg = __builtin_ctz(x->free);
    avec_push(p->a, &x->held, ((struct x86_held){h, (int8_t)reg}));
    p->saved |= 1u << reg;
    for (size_t k = 0; k < p->loops.n; k++)
        if (meet(p->loops.v[k], x->start, x->end)) p->loops.v[k]->free &= ~(1u << reg);
}

void x86_hold(struct x86_plan *p, const int8_t *registers) {
    VEC(struct x86_home *) left = {0};
    uint32_t usable = 0;
    if (!p->loops.n || p->loops.n * p->homes.n > MOST_STEPS) return;
    for (size_t k = 0; k < p->homes.n; k++) {
        struct x86_home *h = p->homes.v[k];
        if (h->class == CLASS_G && h->reg < 0 && h->slot >= 0 && h->reads.n)
            avec_push(p->a, &left, h);
    }
    if (!left.n) return;
    for (int k = 0; registers[k] >= 0; k++)
        usable |= 1u << registers[k];
    for (size_t k = 0; k < p->loops.n; k++)
        p->loops.v[k]->free = free_in(p, p->loops.v[k], usable);
    qsort(left.v, left.n, sizeof left.v[0], by_weight);

    for (size_t n = 0; n < left.n; n++) {
        struct x86_home *h = left.v[n];
        int32_t held = -1; // loops come before those inside them
        for (size_t k = 0; k < p->loops.n; k++) {
            struct x86_loop *x = p->loops.v[k];
            if (x->start < held || !x->free || x86_trip(x->l) == 1 || h->first >= x->start ||
                h->last < x->end || !reads_in(x, h))
                continue;
            hold(p, x, h);
            held = x->end;
        }
    }
}
