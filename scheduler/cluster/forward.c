// SPDX-License-Identifier: Apache-2.0
// A reply is a stream of frames, each four bytes of length, little-endian, and an Event of hlod.v1;
// an error before the first of them is a status with an Error as JSON.
#include "scheduler/cluster/forward.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/str.h"
#include "base/text.h"
#include "base/vec.h"
#include "proto/json.h"
#include "proto/message.h"
#include "proto/reason.h"
#include "proto/weigh.h"
#include "scheduler/cluster/cluster.h"
#include "scheduler/cluster/nodes.h"
#include "scheduler/cluster/seal.h"
#include "scheduler/error.h"
#include "scheduler/remote/fetch.h"
#include "scheduler/trace.h"

enum { CONNECT_MS = 1000, LATE_MS = 1000, HEAD = 4, LEAST = 64 << 10 };
struct body { // of the request, as long as somebody may read it
    int refs;
    struct span bytes;
};
struct forward_call {
    struct forward *f;
    struct forward_spec spec;
    struct arena arena; // copies of its texts
    struct body *body;
    struct fetch *fetch;
    const char *tried[FORWARD_NODES];
    int n_tried;          // the last is the one that is asked
    const char *life;     // its; NULL: it did not take the run
    struct strbuf frames; // not yet whole
    bool began;           // it tells of the run
    bool telling, over;   // events are told, by which it may end: freed when that is done
    Hlod__V1__Event *result;
    status_t error; // that the node told in the stream
};
struct forward {
    struct forward_config cfg;
    VEC(struct forward_call *) calls;
    bool stopping;
    int64_t ok, failed, passed;
};

static void unref_body(void *owner) {
    struct body *b = owner;
    if (--b->refs) return;
    free((void *)(uintptr_t)b->bytes.p);
    free(b);
}

// ---- which node

static bool was_tried(const struct forward_call *c, const char *node) {
    for (int k = 0; c && k < c->n_tried; k++)
        if (!strcmp(c->tried[k], node)) return true;
    return false;
}
static bool names_kind(const Hlod__V1__Node *m, const char *device) {
    bool any = !*device || !strcmp(device, "auto");
    for (size_t k = 0; k < m->n_device_kinds; k++)
        any = any || !strcmp(m->device_kinds[k], device);
    return any;
}
static bool has_kind(const Hlod__V1__Node *m, const char *device) {
    return names_kind(m, device) && m->devices_up > 0;
}
// What it has free, less what waits for that; INT64_MIN: it takes no more.
static int64_t room_of(const struct node *n) {
    const Hlod__V1__Node *m = n->m;
    bool there = m->proved && !n->lost && !n->gone && !strcmp(m->state, "serving");
    int64_t waits = (int64_t)m->queued + (n->sent > m->places ? n->sent - m->places : 0);
    if (!there || (m->places <= n->sent && waits >= m->max_queue)) return INT64_MIN;
    return (int64_t)m->places - m->queued - n->sent;
}
static struct node *choose(const struct forward *f, const char *device,
                           const struct forward_call *c) {
    const struct nodes *all = cluster_nodes(f->cfg.cluster);
    struct node *best = NULL;
    int64_t most = INT64_MIN;
    for (size_t k = 0; k < all->v.n && !f->stopping; k++) {
        struct node *n = all->v.v[k];
        int64_t room = room_of(n);
        if (room <= most || !has_kind(n->m, device) || was_tried(c, n->m->node)) continue;
        most = room;
        best = n;
    }
    return best;
}
bool forward_may(struct forward *f, const char *device) {
    return choose(f, device, NULL) != NULL;
}
bool forward_knows(const struct forward *f, const char *device) {
    const struct nodes *all = cluster_nodes(f->cfg.cluster);
    bool any = !cluster_settled(f->cfg.cluster);
    for (size_t k = 0; k < all->v.n; k++) {
        const Hlod__V1__Node *m = all->v.v[k]->m;
        bool half = !strcmp(m->state, "starting") || m->devices_up < m->devices;
        any = any || (m->proved && (half || names_kind(m, device)));
    }
    return any;
}

// ---- the end

static void drop(struct forward_call *c) {
    struct forward *f = c->f;
    if (c->life) nodes_ended(cluster_nodes(f->cfg.cluster), c->tried[c->n_tried - 1], c->life);
    c->life = NULL;
    for (size_t k = 0; k < f->calls.n; k++)
        if (f->calls.v[k] == c) {
            f->calls.v[k] = f->calls.v[--f->calls.n];
            break;
        }
    fetch_cancel(c->fetch);
    c->fetch = NULL;
    c->over = true;
    if (c->telling) return;
    unref_body(c->body);
    strbuf_done(&c->frames);
    if (c->result) hlod__v1__event__free_unpacked(c->result, NULL);
    st_drop(c->error);
    arena_done(&c->arena);
    free(c);
}
static void finish(struct forward_call *c, status_t st) { // takes st
    struct forward_spec s = c->spec;
    Hlod__V1__Event *result = st ? NULL : c->result;
    char node[SEAL_TENANT];
    snprintf(node, sizeof node, "%s", c->tried[c->n_tried - 1]);
    if (result) c->result = NULL;
    c->f->ok += result != NULL;
    c->f->failed += st != NULL;
    drop(c);
    s.done(s.ctx, st, result, node);
}
// A run that a node did not begin may go to the next one.
static bool passes_over(status_t st) {
    switch (st_get_reason(st)) {
    case HLOD__V1__REASON__REASON_QUEUE_FULL:
    case HLOD__V1__REASON__REASON_NO_WORKER:
    case HLOD__V1__REASON__REASON_SHUTTING_DOWN:
    case HLOD__V1__REASON__REASON_MODEL_NOT_FOUND:
    case HLOD__V1__REASON__REASON_RECEIVE_BUDGET:
        return true;
    default:
        return st_code(st) == ST_UNAUTHENTICATED || st_code(st) == ST_PERMISSION_DENIED;
    }
}
static void ask(struct forward_call *c, struct node *n);
static void next_node(struct forward_call *c, status_t st) { // takes st
    log_event(LOG_WARN, "run.passed", "node=%s why=\"%s\"", c->tried[c->n_tried - 1],
              st_message(st));
    st_drop(st);
    c->f->passed++;
    c->life = NULL; // what it was sent counts on: it has less room than its beat says
    strbuf_clear(&c->frames);
    struct node *n = c->n_tried < FORWARD_NODES ? choose(c->f, c->spec.device, c) : NULL;
    if (n)
        ask(c, n);
    else
        finish(c, ST_OK);
}

// ---- what it answers

MUST_CHECK static status_t told_error(const struct forward_call *c, const Hlod__V1__Error *e) {
    char from[SEAL_TENANT + 8];
    snprintf(from, sizeof from, "node %s", c->tried[c->n_tried - 1]);
    return error_from(e, from);
}
MUST_CHECK static status_t broken(const struct forward_call *c, const char *why) {
    return st_new(ST_UNAVAILABLE, "node %s, to which the run was forwarded: %s",
                  c->tried[c->n_tried - 1], why);
}
static status_t take_event(struct forward_call *c, struct span bytes) {
    Hlod__V1__Event *e = weigh_unpack_or_null(&hlod__v1__event__descriptor, bytes);
    if (!e) return broken(c, "it sends what is no event");
    if (e->kind_case == HLOD__V1__EVENT__KIND_RESULT && e->result && !c->result) {
        c->result = e;
        return ST_OK;
    }
    if (e->kind_case == HLOD__V1__EVENT__KIND_ERROR && !c->error) {
        c->error = told_error(c, e->error);
    } else if (e->kind_case != HLOD__V1__EVENT__KIND_DONE &&
               e->kind_case != HLOD__V1__EVENT__KIND__NOT_SET &&
               e->kind_case != HLOD__V1__EVENT__KIND_RESULT) {
        c->began = c->began || e->kind_case == HLOD__V1__EVENT__KIND_RUNNING;
        c->spec.event(c->spec.ctx, e);
    }
    hlod__v1__event__free_unpacked(e, NULL);
    return ST_OK;
}
static status_t take_frames(struct forward_call *c) {
    size_t at = 0;
    status_t st = ST_OK;
    while (!st && !c->over && c->frames.n - at >= HEAD) {
        const uint8_t *p = (const uint8_t *)c->frames.p + at;
        size_t n = p[0] | (size_t)p[1] << 8 | (size_t)p[2] << 16 | (size_t)p[3] << 24;
        if ((int64_t)n > c->f->cfg.max_bytes) return broken(c, "it sends too much");
        if (c->frames.n - at - HEAD < n) break;
        st = take_event(c, (struct span){p + HEAD, n});
        at += HEAD + n;
    }
    size_t left = c->frames.n - at;
    if (at && left) memmove(c->frames.p, c->frames.p + at, left);
    c->frames.n = left;
    return st;
}
// The events go to others, who may cancel the call from there.
static void on_data(void *ctx, struct span bytes) {
    struct forward_call *c = ctx;
    strbuf_add(&c->frames, bytes.p, bytes.n);
    c->telling = true;
    status_t st = take_frames(c);
    c->telling = false;
    if (c->over) {
        st_drop(st);
        drop(c);
    } else if (st)
        finish(c, st);
}
static status_t refusal(const struct forward_call *c, const struct fetch_reply *r) {
    struct arena a = {0};
    ProtobufCMessage *m;
    struct str text = {(const char *)r->body.p, r->body.n};
    status_t bad = r->body.n ? json_parse(&a, &hlod__v1__error__descriptor, text, &m)
                             : st_new(ST_UNKNOWN, "nothing");
    char why[40];
    snprintf(why, sizeof why, "HTTP %d", r->code);
    status_t st = bad ? broken(c, why) : told_error(c, (const Hlod__V1__Error *)m);
    st_drop(bad);
    arena_done(&a);
    return st;
}
static void on_reply(void *ctx, struct fetch_reply *r) {
    struct forward_call *c = ctx;
    c->fetch = NULL;
    status_t st = c->error;
    c->error = ST_OK;
    if (!st && r->st && !r->code && !c->began) { // not reached: nobody runs it
        next_node(c, st_copy(r->st));
        return;
    }
    if (!st && !r->st && r->code != 200) st = refusal(c, r);
    if (!st && r->st) st = broken(c, st_message(r->st));
    if (!st && !c->result) st = broken(c, "it breaks off");
    if (st && !c->began && passes_over(st))
        next_node(c, st);
    else
        finish(c, st);
}

// ---- a call

static void ask(struct forward_call *c, struct node *n) {
    const struct forward_config *f = &c->f->cfg;
    struct arena a = {0};
    char parent[TRACE_PARENT_TEXT];
    const char *headers[8], *self = cluster_node(f->cluster);
    int64_t left_ms = c->spec.deadline_ns ? clock_ms_left(c->spec.deadline_ns) : 0;
    int k = 0;
    c->tried[c->n_tried++] = arena_strdup(&c->arena, n->m->node);
    c->life = arena_strdup(&c->arena, n->m->life);
    n->sent++;
    headers[k++] = "Content-Type: application/x-protobuf";
    headers[k++] = "Accept: application/x-protobuf-stream";
    headers[k++] = arena_printf(&a, "Hlod-Forwarded: %s", self);
    headers[k++] =
        arena_printf(&a, "Authorization: %s",
                     seal_pass(f->seal, &a, self, n->m->life, c->spec.tenant, c->spec.scopes));
    if (left_ms > 0) headers[k++] = arena_printf(&a, "Hlod-Timeout-Ms: %lld", (long long)left_ms);
    if (c->spec.trace) {
        trace_write(c->spec.trace, parent);
        headers[k++] = arena_printf(&a, "traceparent: %s", parent);
        if (*c->spec.trace->state)
            headers[k++] = arena_printf(&a, "tracestate: %s", c->spec.trace->state);
    }
    headers[k] = NULL;

    c->body->refs++;
    struct fetch_request q = {.method = "POST",
                              .url = arena_printf(&a, "%s/hlod.v1.Hlod/Run", n->m->address),
                              .headers = headers,
                              .body = {c->body->bytes, unref_body, c->body},
                              .auth = f->auth,
                              .connect_ms = CONNECT_MS,
                              // The run's own deadline ends it, with its code; this is for none.
                              .total_ms = left_ms > 0 ? left_ms + LATE_MS : 0,
                              .max_bytes = f->max_bytes + LEAST,
                              .data = on_data};
    fetch_start(f->fetcher, &q, on_reply, c, &c->fetch);
    arena_done(&a);
}
struct forward_call *forward_start(struct forward *f, const struct forward_spec *spec) {
    struct node *n = choose(f, spec->device, NULL);
    if (!n) {
        free((void *)(uintptr_t)spec->body.p);
        return NULL;
    }
    struct forward_call *c = arena_must_calloc(1, sizeof *c);
    c->f = f;
    c->spec = *spec;
    c->spec.device = arena_strdup(&c->arena, spec->device);
    c->spec.tenant = arena_strdup(&c->arena, spec->tenant);
    c->body = arena_must_calloc(1, sizeof *c->body);
    *c->body = (struct body){1, spec->body};
    vec_push(&f->calls, c);
    ask(c, n);
    return c;
}
void forward_cancel(struct forward_call *c) {
    if (c) drop(c);
}
void forward_lost(struct forward *f, const char *node) {
    for (size_t k = f->calls.n; k-- > 0;) {
        if (k >= f->calls.n) continue; // one that ended took others along
        struct forward_call *c = f->calls.v[k];
        if (!strcmp(c->tried[c->n_tried - 1], node)) finish(c, broken(c, "it is lost"));
    }
}

// ---- life

struct forward *forward_new(const struct forward_config *cfg) {
    struct forward *f = arena_must_calloc(1, sizeof *f);
    f->cfg = *cfg;
    fetch_auth_ref(f->cfg.auth);
    return f;
}
void forward_stop(struct forward *f) {
    if (!f) return;
    f->stopping = true;
    while (f->calls.n)
        finish(f->calls.v[0],
               st_because(ST_UNAVAILABLE, SHUTTING_DOWN, "the server is shutting down"));
}
void forward_free(struct forward *f) {
    if (!f) return;
    vec_done(&f->calls);
    fetch_auth_unref(f->cfg.auth);
    free(f);
}
void forward_metrics(const struct forward *f, struct strbuf *b) {
    const struct metric_count all[] = {{"ok", f->ok}, {"failed", f->failed}, {"passed", f->passed}};
    metrics_counts(b, "hlod_cluster_forwards_total",
                   "runs that other nodes did, that failed there, and times that a node did not "
                   "take one",
                   "outcome", all, sizeof all / sizeof *all);
}
