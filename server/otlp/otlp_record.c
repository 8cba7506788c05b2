// SPDX-License-Identifier: Apache-2.0
// A record, then, one behind the other: links, timings, a packed RunRecord with passes and steps
// where there are any, texts.
#include "server/otlp/otlp_record.h"

#include "proto/message.h"

enum text { DEVICE, EXECUTABLE, MODEL, STATE, MESSAGE, NAME, TENANT, JOB, TEXTS };
enum { MOST_TEXT = 1000, MOST_LINKS = 129 }; // one more than are told: so that it is seen
struct timing {
    const char *name; // always a literal (scheduler/job/job.c)
    double start_ms, ms;
};
struct record {
    struct trace_work w; // its pointers into other memory are void, but for static texts
    struct trace trace, run;
    bool has_record, has_run, cache_hit;
    uint64_t job;
    uint32_t n_links, n_timings, text[TEXTS]; // bytes, with the NUL; 0 = none
    size_t extra;                             // bytes
};
_Static_assert(sizeof(struct trace) % 8 == 0 && sizeof(struct timing) % 8 == 0 &&
                   sizeof(struct record) % 8 == 0,
               "what follows is aligned");

struct parts { // of a record that is to be written
    const char *text[TEXTS];
    Hlod__V1__RunRecord extra; // of passes and steps
};

static void look_at_job(const struct trace_work *w, const struct otlp_keep *keep, struct record *r,
                        struct parts *p) {
    const Hlod__V1__RunRecord *m = w->record;
    r->has_record = true;
    r->job = m->job;
    r->cache_hit = m->cache_hit;
    p->text[DEVICE] = m->device;
    p->text[EXECUTABLE] = m->executable;
    p->text[MODEL] = m->model;
    if (keep->detail < SPANS_PHASES) {
        r->w.work_ns = w->start_ns; // as if nothing had come before
        r->w.upload_ms = 0;
        return;
    }
    r->n_timings = (uint32_t)m->n_timings;
    bool passes = keep->detail >= SPANS_PASSES && m->n_passes && m->compiled,
         steps = keep->detail >= SPANS_STEPS && m->profile;
    if (passes) {
        p->extra.passes = m->passes;
        p->extra.n_passes = m->n_passes;
    }
    if (steps) p->extra.profile = m->profile;
    if (passes || steps) r->extra = protobuf_c_message_get_packed_size(&p->extra.base);
}
static size_t padded(size_t n) {
    return (n + 7) & ~(size_t)7;
}
static size_t size_up(struct record *r, struct parts *p) {
    size_t n = sizeof *r + r->n_links * sizeof(struct trace) +
               r->n_timings * sizeof(struct timing) + padded(r->extra);
    for (int k = 0; k < TEXTS; k++) {
        size_t length = p->text[k] ? strnlen(p->text[k], MOST_TEXT) : 0;
        r->text[k] = length ? (uint32_t)length + 1 : 0;
        n += r->text[k];
    }
    return n;
}
static void write_down(uint8_t *to, const struct trace_work *w, const struct record *r,
                       const struct parts *p) {
    memcpy(to, r, sizeof *r);
    to += sizeof *r;
    for (uint32_t k = 0; k < r->n_links; k++, to += sizeof(struct trace))
        memcpy(to, w->links[k], sizeof(struct trace));
    for (uint32_t k = 0; k < r->n_timings; k++, to += sizeof(struct timing)) {
        const Hlod__V1__Timing *t = w->record->timings[k];
        memcpy(to, &(struct timing){t->name, t->start_ms, t->ms}, sizeof(struct timing));
    }
    if (r->extra) protobuf_c_message_pack(&p->extra.base, to);
    to += padded(r->extra);
    for (int k = 0; k < TEXTS; k++) {
        if (!r->text[k]) continue;
        memcpy(to, p->text[k], r->text[k] - 1);
        to[r->text[k] - 1] = 0;
        to += r->text[k];
    }
}

unsigned otlp_record_put(struct otlp_queue *q, const struct trace_work *w,
                         const struct otlp_keep *keep) {
    struct record r = {.w = *w, .trace = *w->trace};
    struct parts p = {.extra = HLOD__V1__RUN_RECORD__INIT};
    p.text[STATE] = w->trace->state;
    p.text[JOB] = w->job;
    if (keep->names) {
        p.text[MESSAGE] = w->message;
        p.text[NAME] = w->model;
        p.text[TENANT] = w->tenant;
    }
    if (w->run) r.run = *w->run;
    r.has_run = w->run != NULL;
    r.n_links = (uint32_t)(w->n_links < MOST_LINKS ? w->n_links : MOST_LINKS);
    if (w->record) look_at_job(w, keep, &r, &p);

    unsigned all = 1 + (w->record ? (unsigned)spans_count(w->record, keep->detail) : 0),
             spans = all;
    uint8_t *to = otlp_queue_room(q, size_up(&r, &p));
    if (!to && r.extra) {
        r.extra = 0;
        spans = 1 + r.n_timings;
        to = otlp_queue_room(q, size_up(&r, &p));
    }
    if (!to) return all;
    write_down(to, w, &r, &p);
    otlp_queue_put(q, spans);
    return all - spans;
}

// ---- again as work

static const uint8_t *read_timings(const uint8_t *at, const struct record *r, struct arena *a,
                                   Hlod__V1__RunRecord *m) {
    Hlod__V1__Timing *t = arena_array(a, Hlod__V1__Timing, r->n_timings + 1);
    m->timings = arena_array(a, Hlod__V1__Timing *, r->n_timings + 1);
    for (; m->n_timings < r->n_timings; m->n_timings++, at += sizeof(struct timing)) {
        struct timing x;
        memcpy(&x, at, sizeof x);
        hlod__v1__timing__init(&t[m->n_timings]);
        t[m->n_timings].name = (char *)(uintptr_t)x.name;
        t[m->n_timings].start_ms = x.start_ms;
        t[m->n_timings].ms = x.ms;
        m->timings[m->n_timings] = &t[m->n_timings];
    }
    return at;
}
static void free_extra(void *m) {
    hlod__v1__run_record__free_unpacked(m, NULL);
}
static void read_extra(const uint8_t *at, size_t n, struct arena *a, Hlod__V1__RunRecord *m) {
    Hlod__V1__RunRecord *extra = n ? hlod__v1__run_record__unpack(NULL, n, at) : NULL;
    if (!extra) return;
    arena_link(a, free_extra, extra);
    m->passes = extra->passes;
    m->n_passes = extra->n_passes;
    m->profile = extra->profile;
}

void otlp_record_get(const void *record, struct arena *a, struct trace_work *out) {
    const struct record *r = record;
    const uint8_t *at = (const uint8_t *)(r + 1);
    const char *text[TEXTS];
    Hlod__V1__RunRecord *m = message_new(a, &hlod__v1__run_record__descriptor);
    struct trace *t = arena_dup(a, &r->trace, sizeof *t);
    const struct trace **links = arena_array(a, const struct trace *, r->n_links + 1);
    for (uint32_t k = 0; k < r->n_links; k++, at += sizeof(struct trace))
        links[k] = (const struct trace *)(const void *)at;
    at = read_timings(at, r, a, m);
    read_extra(at, r->extra, a, m);
    at += padded(r->extra);
    for (int k = 0; k < TEXTS; at += r->text[k], k++)
        text[k] = r->text[k] ? (const char *)at : NULL;

    *out = r->w;
    t->state = text[STATE] ? text[STATE] : "";
    out->trace = t;
    out->run = r->has_run ? &r->run : NULL;
    out->links = links;
    out->n_links = r->n_links;
    out->message = text[MESSAGE];
    out->model = text[NAME];
    out->tenant = text[TENANT];
    out->job = text[JOB];
    out->record = r->has_record ? m : NULL;
    m->job = r->job;
    m->cache_hit = r->cache_hit;
    m->compiled = m->n_passes > 0;
    if (text[DEVICE]) m->device = (char *)(uintptr_t)text[DEVICE];
    if (text[EXECUTABLE]) m->executable = (char *)(uintptr_t)text[EXECUTABLE];
    if (text[MODEL]) m->model = (char *)(uintptr_t)text[MODEL];
}
