// SPDX-License-Identifier: Apache-2.0
#include "server/spans.h"

#include <string.h>

#define TOTAL "total"

static int last_of(const Hlod__V1__RunRecord *r, const char *name) {
    for (size_t k = r->n_timings; k-- > 0;)
        if (!strcmp(r->timings[k]->name, name)) return (int)k;
    return -1;
}
const Hlod__V1__Timing *spans_timing(const Hlod__V1__RunRecord *r, const char *name) {
    int k = last_of(r, name);
    return k < 0 ? NULL : r->timings[k];
}

size_t spans_count(const Hlod__V1__RunRecord *r, enum spans_detail detail) {
    size_t n = detail >= SPANS_PHASES ? r->n_timings : 0;
    if (detail >= SPANS_PASSES) n += r->n_passes;
    if (detail >= SPANS_STEPS && r->profile) n += 1 + r->profile->n_rows;
    return n;
}

// `transfer` is a part of the run before it.
static void put_phases(struct spans *s, const Hlod__V1__RunRecord *r) {
    int run = -1;
    for (size_t k = 0; k < r->n_timings; k++) {
        const Hlod__V1__Timing *t = r->timings[k];
        if (!strcmp(t->name, TOTAL)) continue;
        bool carried = !strcmp(t->name, "transfer");
        if (!strcmp(t->name, "run")) run = (int)s->n;
        s->v[s->n++] = (struct spans_one){.kind = SPAN_PHASE,
                                          .name = t->name,
                                          .parent = carried ? run : -1,
                                          .start_ms = t->start_ms,
                                          .ms = t->ms};
    }
}
static int phase(const struct spans *s, const char *name) {
    for (size_t k = s->n; k-- > 0;)
        if (s->v[k].kind == SPAN_PHASE && !strcmp(s->v[k].name, name)) return (int)k;
    return -1;
}

// A compile's passes come without a start: they follow one another, so they are laid end to end.
// Those that were done ahead (devices/worker/worker_lowered.c) take longer than the compile and end
// with it.
static void put_passes(struct spans *s, const Hlod__V1__RunRecord *r) {
    const Hlod__V1__Timing *compile = r->n_passes ? spans_timing(r, "compile") : NULL;
    if (!compile) return;
    int parent = phase(s, "compile");
    double at = compile->start_ms, all = 0;
    for (size_t k = 0; k < r->n_passes; k++)
        all += r->passes[k]->ms;
    if (all > compile->ms) at = compile->start_ms + compile->ms - all;
    if (at < 0) at = 0;
    for (size_t k = 0; k < r->n_passes; k++) {
        const Hlod__V1__PassStat *p = r->passes[k];
        s->v[s->n++] = (struct spans_one){.kind = SPAN_PASS,
                                          .name = p->name,
                                          .parent = parent,
                                          .start_ms = at,
                                          .ms = p->ms,
                                          .pass = p};
        at += p->ms;
    }
}

// Rows count from the start of the run on the device, which lies somewhere inside the request's
// `run`: what went into carrying is taken to be half before and half after, or less before where
// the device's time would not end in it. A row of a loop, call or branch comes behind those inside.
static void put_steps(struct spans *s, const Hlod__V1__RunRecord *r) {
    enum { DEPTHS = 16 };
    const Hlod__V1__Profile *p = r->profile;
    const Hlod__V1__Timing *run = p ? spans_timing(r, "run") : NULL;
    if (!run) return;
    const Hlod__V1__Timing *carried = spans_timing(r, "transfer");
    double at = run->start_ms + (carried ? carried->ms / 2 : 0) + p->start_ms,
           latest = run->start_ms + run->ms - p->total_ms;
    if (at > latest) at = latest > run->start_ms ? latest : run->start_ms;

    int device = (int)s->n, parent = phase(s, "run");
    s->v[s->n++] = (struct spans_one){.kind = SPAN_DEVICE,
                                      .name = "run on the device",
                                      .parent = parent,
                                      .start_ms = at,
                                      .ms = p->total_ms};
    int outer[DEPTHS + 1];
    struct spans_one *first = s->v + s->n;
    for (int d = 0; d <= DEPTHS; d++)
        outer[d] = device;
    for (size_t k = p->n_rows; k-- > 0;) {
        const Hlod__V1__ProfileRow *row = p->rows[k];
        int d = row->depth < 0 ? 0 : row->depth > DEPTHS - 1 ? DEPTHS - 1 : row->depth;
        first[k] = (struct spans_one){.kind = SPAN_STEP,
                                      .name = row->name,
                                      .parent = outer[d],
                                      .start_ms = at + row->start_ms,
                                      .ms = row->ms,
                                      .row = row};
        outer[d + 1] = (int)(s->n + k);
    }
    s->n += p->n_rows;
}

struct spans spans_of(struct arena *a, const Hlod__V1__RunRecord *r, enum spans_detail detail) {
    struct spans s = {.v = arena_array(a, struct spans_one, spans_count(r, detail) + 1)};
    if (detail >= SPANS_PHASES) put_phases(&s, r);
    if (detail >= SPANS_PASSES) put_passes(&s, r);
    if (detail >= SPANS_STEPS) put_steps(&s, r);
    return s;
}
