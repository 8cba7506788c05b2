// SPDX-License-Identifier: Apache-2.0
#include "scheduler/cluster/forward.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/metrics.h"
#include "base/vec.h"
#include "proto/reason.h"
#include "scheduler/cluster/ask.h"
#include "scheduler/cluster/cluster.h"
#include "scheduler/cluster/nodes.h"
#include "scheduler/cluster/seal.h"

struct body { // of the request, as long as somebody may read it
    int refs;
    struct span bytes;
};
struct forward_call {
    struct forward *f;
    struct forward_spec spec;
    struct arena arena; // copies of its texts
    struct body *body;
    struct ask *ask;
    const char *tried[FORWARD_NODES];
    int n_tried;      // the last is the one that is asked
    const char *life; // its; NULL: it did not take the run
    bool began;       // it tells of the run
    Hlod__V1__Event *result;
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
    ask_cancel(c->ask);
    unref_body(c->body);
    if (c->result) hlod__v1__event__free_unpacked(c->result, NULL);
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
    struct node *n = c->n_tried < FORWARD_NODES ? choose(c->f, c->spec.device, c) : NULL;
    if (n)
        ask(c, n);
    else
        finish(c, ST_OK);
}

// ---- what it answers

static bool on_event(void *ctx, Hlod__V1__Event *e) {
    struct forward_call *c = ctx;
    if (e->kind_case == HLOD__V1__EVENT__KIND_RESULT) {
        if (!e->result || c->result) return false;
        c->result = e;
        return true;
    }
    c->began = c->began || e->kind_case == HLOD__V1__EVENT__KIND_RUNNING;
    c->spec.event(c->spec.ctx, e); // by which the call may end
    return false;
}
static void on_missed(void *ctx, status_t st) { // not reached: nobody runs it
    struct forward_call *c = ctx;
    c->ask = NULL;
    next_node(c, st);
}
static void on_done(void *ctx, status_t st, UNUSED struct arena *a, UNUSED ProtobufCMessage *m) {
    struct forward_call *c = ctx;
    c->ask = NULL;
    if (!st && !c->result) st = ask_broken(c->tried[c->n_tried - 1], "it breaks off");
    if (st && !c->began && passes_over(st))
        next_node(c, st);
    else
        finish(c, st);
}

// ---- a call

static void ask(struct forward_call *c, struct node *n) {
    c->tried[c->n_tried++] = arena_strdup(&c->arena, n->m->node);
    c->life = arena_strdup(&c->arena, n->m->life);
    n->sent++;
    c->body->refs++;
    c->ask =
        ask_start(c->f->cfg.asks, &(struct ask_spec){.node = n->m->node,
                                                     .life = c->life,
                                                     .method = "Run",
                                                     .tenant = c->spec.tenant,
                                                     .scopes = c->spec.scopes,
                                                     .body = {c->body->bytes, unref_body, c->body},
                                                     .deadline_ns = c->spec.deadline_ns,
                                                     .trace = c->spec.trace,
                                                     .event = on_event,
                                                     .missed = on_missed,
                                                     .done = on_done,
                                                     .ctx = c});
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
// ---- life

struct forward *forward_new(const struct forward_config *cfg) {
    struct forward *f = arena_must_calloc(1, sizeof *f);
    f->cfg = *cfg;
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
    free(f);
}
void forward_metrics(const struct forward *f, struct strbuf *b) {
    const struct metric_count all[] = {{"ok", f->ok}, {"failed", f->failed}, {"passed", f->passed}};
    metrics_counts(b, "hlod_cluster_forwards_total",
                   "runs that other nodes did, that failed there, and times that a node did not "
                   "take one",
                   "outcome", all, sizeof all / sizeof *all);
}
