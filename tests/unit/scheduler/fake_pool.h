// SPDX-License-Identifier: Apache-2.0
// fake_pool: pool.h without processes, for tests of what stands on it. It takes the place of
// workers/pool.c and pool_state.c in the test's program: the test says how each worker stands, sees
// the calls that were made, and answers them, or loses the worker, when it likes.
//
//     fake_add(ROLE_DEVICE, "cpu", "cpu:0");
//     ... sched_new ...; a call is made ...
//     struct fake_call *c = fake_find(HLOD__WIRE__TYPE__TYPE_LOAD);
//     fake_reply(c, &reply.base);
#pragma once
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/vec.h"
#include "scheduler/sched_inside.h"
#include "scheduler/workers/memfds.h"
#include "scheduler/workers/pool.h"

enum { FAKE_WORKERS = 8, FAKE_REPLY = 40 }; // a reply's type is the request's and this
struct worker {
    struct place_worker place; // what pool_place tells
    Hlod__Wire__Hello hello;
    struct warm warm;
    struct footprint footprint;
    uint64_t epoch, began; // began: the call that its process was at
    int64_t flight_bytes;
    const char *why;       // it cannot be started
    int relieved, unknown; // calls of worker_relieve; work of unknown length that it has
    char given[80];        // to that tenant, the last time
};
struct fake_call {
    uint64_t id;
    struct worker *w;
    uint32_t type;
    struct span body; // owned
    int fds[FRAME_MAX_FDS], n_fds;
    pool_reply_fn fn;
    void *ctx;
    bool cancelled;
    struct charge of;
};
struct pool {
    struct pool_config cfg;
    struct worker w[FAKE_WORKERS];
    int n;
    VEC(struct fake_call *) calls; // under way, the oldest first
    uint64_t last_call;
    int made[128]; // calls by type, ever
    struct memfds *memfds;
};
static struct pool fake;

// ---- what the test does

static inline struct worker *fake_add(enum worker_role role, const char *kind, const char *name) {
    struct worker *w = &fake.w[fake.n];
    *w = (struct worker){.epoch = 1, .place = {.role = role, .kind = kind, .name = name}};
    w->place.ready = true;
    w->place.max_calls = 1;
    w->place.tenant = "";
    w->place.group = fake.n++;
    hlod__wire__hello__init(&w->hello);
    w->hello.device_kind = (char *)(uintptr_t)kind;
    w->hello.device_name = (char *)(uintptr_t)name;
    w->hello.target_id = w->hello.build_id = (char *)"fake";
    warm_init(&w->warm);
    return w;
}
static inline struct fake_call *fake_find(uint32_t type) { // the oldest; NULL if there is none
    for (size_t i = 0; i < fake.calls.n; i++)
        if (fake.calls.v[i]->type == type) return fake.calls.v[i];
    return NULL;
}
static inline void fake_tell(void) {
    if (fake.cfg.on_change) fake.cfg.on_change(fake.cfg.ctx);
}
static inline void fake_forget(struct fake_call *c) {
    size_t i = 0;
    while (fake.calls.v[i] != c)
        i++;
    memmove(&fake.calls.v[i], &fake.calls.v[i + 1], (--fake.calls.n - i) * sizeof(void *));
}
static inline void fake_free(struct fake_call *c) {
    for (int i = 0; i < c->n_fds; i++)
        close(c->fds[i]);
    free((void *)(uintptr_t)c->body.p);
    free(c);
}
static inline void fake_send(struct fake_call *c, uint32_t type, const ProtobufCMessage *m) {
    size_t n = protobuf_c_message_get_packed_size(m);
    uint8_t *bytes = malloc(n + 1);
    if (!bytes) abort();
    protobuf_c_message_pack(m, bytes);
    struct frame f = {.type = type, .call = c->id, .body = {bytes, n}};
    c->fn(c->ctx, &f, ST_OK);
    free(bytes);
}
static inline void fake_event(struct fake_call *c, uint32_t type, const ProtobufCMessage *m) {
    fake_send(c, type, m);
}
static inline void fake_reply(struct fake_call *c, const ProtobufCMessage *m) { // and frees c
    fake_forget(c);
    fake_send(c, c->type + FAKE_REPLY, m);
    fake_free(c);
}
static inline void fake_lose(struct worker *w) { // its process ends, and the next one is up
    w->epoch++;
    warm_done(&w->warm);
    for (size_t i = 0; i < fake.calls.n;) {
        struct fake_call *c = fake.calls.v[i];
        if (c->w != w) {
            i++;
            continue;
        }
        fake_forget(c);
        c->fn(c->ctx, NULL,
              st_reason(st_new(ST_UNAVAILABLE, "the worker was lost"),
                        HLOD__V1__REASON__REASON_WORKER_LOST));
        fake_free(c);
        i = 0;
    }
    fake_tell();
}

// ---- pool.h

status_t pool_new(struct loop *l, const struct pool_config *cfg, struct pool **out) {
    (void)l;
    fake.cfg = *cfg;
    fake.memfds = memfds_new(FAKE_WORKERS, 0);
    *out = &fake;
    return ST_OK;
}
void pool_stop(struct pool *p) {
    p->cfg.on_change = NULL;
    for (int i = 0; i < p->n; i++)
        fake_lose(&p->w[i]);
}
void pool_free(struct pool *p) {
    for (int i = 0; i < p->n; i++) {
        warm_done(&p->w[i].warm);
        footprint_done(&p->w[i].footprint);
    }
    vec_done(&p->calls);
    memfds_free(p->memfds);
    *p = (struct pool){0};
}
void pool_set_grace(struct pool *p, int64_t ms) {
    p->cfg.kill_grace_ms = ms;
}
int pool_size(const struct pool *p) {
    return p->n;
}
struct worker *pool_worker(struct pool *p, int i) {
    return &p->w[i];
}
enum worker_role worker_role(const struct worker *w) {
    return w->place.role;
}
struct place_worker pool_place(const struct worker *w) {
    struct place_worker v = w->place;
    v.planned_bytes = w->footprint.bytes;
    return v;
}
void worker_give(struct worker *w, const char *tenant) {
    snprintf(w->given, sizeof w->given, "%s", tenant);
    w->place.tenant = w->given;
    w->place.spare = false;
}
void worker_relieve(struct worker *w) {
    w->relieved++;
}
struct warm *worker_warm(struct worker *w) {
    return &w->warm;
}
struct footprint *worker_footprint(struct worker *w) {
    return &w->footprint;
}
void pool_wake(struct pool *p, const char *kind) {
    (void)p, (void)kind;
}
void pool_devices(const struct pool *p, struct strbuf *out) {
    for (int i = 0; i < p->n; i++)
        if (p->w[i].place.role == ROLE_DEVICE) strbuf_puts(out, p->w[i].place.name);
}
const char *pool_why(const struct pool *p, enum worker_role role, const char *device) {
    struct place_want want = {.role = role, .device = device};
    for (int i = 0; i < p->n; i++)
        if (p->w[i].why && place_matches(&want, &p->w[i].place)) return p->w[i].why;
    return "";
}
struct memfds *pool_memfds(struct pool *p) {
    return p->memfds;
}
int worker_index(const struct worker *w) {
    return (int)(w - fake.w);
}
void worker_flight(struct worker *w, int64_t bytes) {
    w->flight_bytes += bytes;
}
bool worker_ready(const struct worker *w) {
    return w->place.ready;
}
const Hlod__Wire__Hello *worker_hello(const struct worker *w) {
    return &w->hello;
}
uint64_t worker_epoch(const struct worker *w) {
    return w->epoch;
}
uint64_t pool_call(struct worker *w, uint32_t type, const ProtobufCMessage *m, const int *fds,
                   int n_fds, pool_reply_fn fn, void *ctx) {
    struct fake_call *c = calloc(1, sizeof *c);
    size_t n = protobuf_c_message_get_packed_size(m);
    uint8_t *bytes = malloc(n + 1);
    if (!c || !bytes) abort();
    protobuf_c_message_pack(m, bytes);
    *c = (struct fake_call){.id = ++fake.last_call,
                            .w = w,
                            .type = type,
                            .body = {bytes, n},
                            .n_fds = n_fds,
                            .fn = fn,
                            .ctx = ctx};
    for (int i = 0; i < n_fds; i++)
        c->fds[i] = dup(fds[i]);
    vec_push(&fake.calls, c);
    fake.made[type]++;
    return c->id;
}
void worker_charge(struct worker *w, uint64_t call, const struct charge *of) {
    (void)w;
    for (size_t i = 0; i < fake.calls.n; i++)
        if (fake.calls.v[i]->id == call) fake.calls.v[i]->of = *of;
}
void pool_cancel(struct worker *w, uint64_t call) {
    (void)w;
    for (size_t i = 0; i < fake.calls.n; i++)
        if (fake.calls.v[i]->id == call) fake.calls.v[i]->cancelled = true;
}
void worker_take(struct worker *w, bool unknown) {
    w->place.calls++;
    w->unknown += unknown;
}
bool worker_began(const struct worker *w, uint64_t call) {
    return w->began == call;
}
void worker_expect(struct worker *w, int64_t ns) {
    w->place.expected_ns += ns;
}
void worker_release(struct worker *w, bool unknown) {
    w->place.calls--;
    w->unknown -= unknown;
    fake_tell();
}
status_t wire_status(const Hlod__Wire__Status *s) {
    return s && s->code ? st_reason(st_new((enum status_code)s->code, "%s", s->message), s->reason)
                        : ST_OK;
}
