// SPDX-License-Identifier: Apache-2.0
// A segment tree over the steps (J. Bentley, 1977): a life is made up of O(log n) nodes, each
// whole, and reaches into those above them. A node keeps two sets of pieces of the arena: what is
// taken during all of its steps by lives that have it as a part, and what is during any. Buffers
// are given the lowest places, so pieces grow together and sets stay small.
#include "compiler/plan/room.h"

#include <stdbool.h>
#include <string.h>

struct piece {
    int64_t from, to;
};
struct pieces { // ascending, with bytes between them
    struct piece *v;
    int n, cap;
};
struct node {
    struct pieces all, any;
};
struct room {
    struct arena *a;
    int leaves; // a power of two; node k has 2k and 2k + 1
    struct node *nodes;
};
enum { MOST_NODES = 4 * 32 };
struct asked {
    const struct pieces *v[MOST_NODES];
    int n;
};

struct room *room_new(struct arena *a, int steps) {
    struct room *r = arena_new_of(a, struct room);
    r->a = a;
    for (r->leaves = 1; r->leaves < steps;)
        r->leaves *= 2;
    r->nodes = arena_zarray(a, struct node, 2 * (size_t)r->leaves);
    return r;
}

// The first piece that ends behind `at`.
static int first_behind(const struct pieces *s, int64_t at) {
    int low = 0, high = s->n;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (s->v[middle].to > at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}
static void add(struct arena *a, struct pieces *s, int64_t from, int64_t to) {
    int k = first_behind(s, from - 1), end = k; // what it meets or touches
    for (; end < s->n && s->v[end].from <= to; end++) {
        if (s->v[end].from < from) from = s->v[end].from;
        if (s->v[end].to > to) to = s->v[end].to;
    }
    if (end == k && s->n == s->cap) {
        struct piece *old = s->v;
        s->cap = s->cap ? 2 * s->cap : 2;
        s->v = arena_array(a, struct piece, (size_t)s->cap);
        if (s->n) memcpy(s->v, old, sizeof *old * (size_t)s->n);
    }
    memmove(&s->v[k + 1], &s->v[end], sizeof *s->v * (size_t)(s->n - end));
    s->v[k] = (struct piece){from, to};
    s->n += 1 - (end - k);
}

// The sets that say what is taken during any of the steps: of the nodes that make them up what any
// of their steps takes, and of those above what all do.
static void sets_of(const struct room *r, int first, int last, struct asked *q) {
    int low = first + r->leaves, high = last + r->leaves;
    q->n = 0;
    for (int above_low = low / 2, above_high = high / 2; above_low;
         above_low /= 2, above_high /= 2) {
        q->v[q->n++] = &r->nodes[above_low].all;
        if (above_high != above_low) q->v[q->n++] = &r->nodes[above_high].all;
    }
    for (high++; low < high; low /= 2, high /= 2) {
        if (low & 1) q->v[q->n++] = &r->nodes[low++].any;
        if (high & 1) q->v[q->n++] = &r->nodes[--high].any;
    }
}
static int64_t lowest(const struct asked *q, int64_t size) {
    int64_t at = 0;
    for (int free_in = 0, k = 0; free_in < q->n; k = (k + 1) % q->n) {
        const struct pieces *s = q->v[k];
        int p = first_behind(s, at);
        for (free_in++; p < s->n && s->v[p].from < at + size; p++, free_in = 1)
            at = s->v[p].to;
    }
    return at;
}
static void take(struct room *r, int first, int last, int64_t from, int64_t to) {
    int low = first + r->leaves, high = last + r->leaves;
    for (int l = low / 2, h = high / 2; l; l /= 2, h /= 2) {
        add(r->a, &r->nodes[l].any, from, to);
        if (h != l) add(r->a, &r->nodes[h].any, from, to);
    }
    for (high++; low < high; low /= 2, high /= 2) {
        struct node *of[2] = {low & 1 ? &r->nodes[low++] : NULL,
                              high & 1 ? &r->nodes[--high] : NULL};
        for (int k = 0; k < 2; k++) {
            if (!of[k]) continue;
            add(r->a, &of[k]->all, from, to);
            add(r->a, &of[k]->any, from, to);
        }
    }
}

int64_t room_take(struct room *r, int first, int last, int64_t size) {
    struct asked q;
    sets_of(r, first, last, &q);
    int64_t at = lowest(&q, size);
    if (size) take(r, first, last, at, at + size);
    return at;
}
