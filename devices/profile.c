// SPDX-License-Identifier: Apache-2.0
// See profile.h.
#include "devices/profile.h"

#include <stdlib.h>

static int by_value(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}
static int64_t median(int64_t *v, int n) {
    qsort(v, (size_t)n, sizeof *v, by_value);
    return v[(n - 1) / 2];
}

void profile_begin(struct profile_runs *p, struct arena *a, int cap) {
    *p = (struct profile_runs){.arena = a, .cap = cap};
}

struct profile *profile_next(struct profile_runs *p, bool again, int64_t spent_ns) {
    int most = again ? PROFILE_RUNS : 1;
    if (p->n == most || (p->n == 1 && spent_ns > PROFILE_SLOW_NS) ||
        (p->n > 3 && spent_ns > PROFILE_ENOUGH_NS))
        return NULL;
    struct profile *r = &p->run[p->n++];
    *r = (struct profile){.rows = arena_array(p->arena, struct profile_row, p->cap),
                          .cap = p->cap};
    return r;
}

// Did it take the same steps?
static bool alike(const struct profile *a, const struct profile *b) {
    if (a->n != b->n) return false;
    for (int k = 0; k < a->n; k++)
        if (a->rows[k].instr != b->rows[k].instr || a->rows[k].depth != b->rows[k].depth)
            return false;
    return true;
}

// Where rows begin when one follows the other: those of a loop's body at the loop's own beginning,
// which covers them.
static void lay_out(struct profile *p) {
    enum { DEEP = 64 };
    int64_t at[DEEP + 2] = {p->n ? p->rows[0].start_ns : 0}, end[DEEP + 2] = {0};
    int open = 0; // deepest level that has rows since its parent's level last had one
    at[0] = at[0] > 0 && p->rows[0].depth == 0 ? at[0] : 0;
    for (int k = 0; k < p->n; k++) {
        struct profile_row *r = &p->rows[k];
        int d = r->depth < DEEP ? r->depth : DEEP;
        for (; open < d; open++) // the first row below: begins where the row above will
            at[open + 1] = end[open + 1] = at[open];
        int64_t inside = open > d ? end[d + 1] - at[d] : 0;
        if (r->ns < inside) r->ns = inside;
        r->start_ns = at[d];
        at[d] = end[d] = at[d] + r->ns;
        open = d;
    }
}

void profile_median(struct profile_runs *p, struct profile *out, int *out_runs) {
    int64_t ns[PROFILE_RUNS];
    int first = p->n > 1 ? 1 : 0, last = p->n - 1; // the first run touches what it needs
    *out = p->run[last];
    *out_runs = 1;
    if (last == first) return;
    const struct profile *used[PROFILE_RUNS];
    int n = 0;
    for (int r = first; r <= last; r++)
        if (alike(out, &p->run[r])) used[n++] = &p->run[r];
    for (int k = 0; k < out->n; k++) {
        for (int r = 0; r < n; r++)
            ns[r] = used[r]->rows[k].ns;
        out->rows[k].ns = median(ns, n);
    }
    *out_runs = n;
    lay_out(out);
}

int64_t profile_end(const struct profile *p) {
    int64_t end = 0;
    for (int k = 0; k < p->n; k++)
        if (p->rows[k].start_ns + p->rows[k].ns > end) end = p->rows[k].start_ns + p->rows[k].ns;
    return end;
}
