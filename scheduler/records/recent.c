// SPDX-License-Identifier: Apache-2.0
#include "scheduler/records/recent.h"

#include <stdlib.h>

enum { RINGS = 2, LENGTH_PLAIN = 256, LENGTH_LONG = 64, LONG_BYTES = 32 << 20 };
struct entry {
    uint64_t job, order; // order: of arrival, from 1
    uint8_t *bytes;
    size_t n, cap;
};
struct ring {
    struct entry *v;
    size_t length, next, bytes; // bytes: of all entries
};
struct recent {
    struct ring rings[RINGS];
    uint64_t order;
};

struct recent *recent_new(void) {
    static const size_t lengths[RINGS] = {LENGTH_PLAIN, LENGTH_LONG};
    struct recent *r = calloc(1, sizeof *r);
    for (int k = 0; r && k < RINGS; k++) {
        r->rings[k].length = lengths[k];
        r->rings[k].v = calloc(lengths[k], sizeof(struct entry));
        if (r->rings[k].v) continue;
        recent_free(r);
        r = NULL;
    }
    return r;
}

void recent_free(struct recent *r) {
    if (!r) return;
    for (int k = 0; k < RINGS; k++) {
        for (size_t i = 0; r->rings[k].v && i < r->rings[k].length; i++)
            free(r->rings[k].v[i].bytes);
        free(r->rings[k].v);
    }
    free(r);
}

static void drop(struct ring *g, struct entry *s) {
    g->bytes -= s->cap;
    free(s->bytes);
    *s = (struct entry){0};
}

void recent_add(struct recent *r, const Hlod__V1__RunRecord *m, bool keep_long) {
    struct ring *g = &r->rings[keep_long];
    struct entry *s = &g->v[g->next];
    size_t n = hlod__v1__run_record__get_packed_size(m);
    if (n > s->cap || n < s->cap / 16) { // the memory of an entry is used again
        drop(g, s);
        s->bytes = malloc(n + 1);
        if (!s->bytes) return; // a record less
        s->cap = n + 1;
        g->bytes += s->cap;
    }
    s->n = hlod__v1__run_record__pack(m, s->bytes);
    s->job = m->job;
    s->order = ++r->order;
    g->next = (g->next + 1) % g->length;
    for (size_t k = 0; k + 1 < g->length && g->bytes > LONG_BYTES; k++)
        drop(g, &g->v[(g->next + k) % g->length]); // the oldest first, never the one just added
}

// The k-th newest of a ring, NULL beyond what it holds.
static const struct entry *newest(const struct ring *g, size_t k) {
    if (k >= g->length) return NULL;
    const struct entry *s = &g->v[(g->next + g->length - 1 - k) % g->length];
    return s->order ? s : NULL;
}

size_t recent_list(const struct recent *r, size_t limit, struct span *out) {
    size_t at[RINGS] = {0}, n = 0;
    while (n < limit) {
        const struct entry *a = newest(&r->rings[0], at[0]), *b = newest(&r->rings[1], at[1]);
        if (!a && !b) break;
        bool first = a && (!b || a->order > b->order);
        const struct entry *s = first ? a : b;
        at[first ? 0 : 1]++;
        out[n++] = (struct span){s->bytes, s->n};
    }
    return n;
}

struct span recent_find(const struct recent *r, uint64_t job) {
    for (int k = 0; k < RINGS; k++)
        for (size_t i = 0; i < r->rings[k].length; i++)
            if (r->rings[k].v[i].order && r->rings[k].v[i].job == job)
                return (struct span){r->rings[k].v[i].bytes, r->rings[k].v[i].n};
    return (struct span){NULL, 0};
}
