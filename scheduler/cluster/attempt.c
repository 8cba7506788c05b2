// SPDX-License-Identifier: Apache-2.0
#include "scheduler/cluster/attempt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/metrics.h"
#include "base/str.h"
#include "base/text.h"
#include "base/vec.h"
#include "proto/formats/cluster.pb-c.h"
#include "proto/json.h"
#include "proto/message.h"
#include "proto/reason.h"
#include "proto/tokens.h"
#include "proto/weigh.h"
#include "scheduler/cluster/nodes.h"
#include "scheduler/cluster/seal.h"
#include "scheduler/error.h"
#include "scheduler/remote/fetch.h"
#include "scheduler/remote/peers.h"
#include "scheduler/trace.h"

enum { CONNECT_MS = 1000, LEAST = 1 << 20, SHUN_MS = 10000 };
struct attempt {
    struct attempts *s;
    struct fetch *fetch;
    char *node;
    void (*done)(void *ctx, status_t st, struct arena *a, Hlod__V1__RunJobReply *m);
    void *ctx;
};
struct attempts {
    struct attempts_config cfg;
    VEC(struct attempt *) all;
    int64_t ok, failed, lost;
};

// ---- the end

static void drop(struct attempt *x) {
    struct attempts *s = x->s;
    for (size_t k = 0; k < s->all.n; k++)
        if (s->all.v[k] == x) {
            s->all.v[k] = s->all.v[--s->all.n];
            break;
        }
    fetch_cancel(x->fetch);
    free(x->node);
    free(x);
}
static void finish(struct attempt *x, status_t st, struct arena *a, Hlod__V1__RunJobReply *m) {
    void (*done)(void *, status_t, struct arena *, Hlod__V1__RunJobReply *) = x->done;
    void *ctx = x->ctx;
    x->s->ok += !st;
    x->s->failed += st != NULL;
    drop(x);
    done(ctx, st, a, m);
}
MUST_CHECK static status_t broken(const struct attempt *x, const char *why) {
    struct strbuf b = {0};
    text_show(&b, str_of(why), ""); // may hold what it said
    status_t st = st_new(ST_UNAVAILABLE, "node %s: %s", x->node, strbuf_cstr(&b));
    strbuf_done(&b);
    return st;
}
static status_t refusal(const struct attempt *x, const struct fetch_reply *r, struct arena *a) {
    char text[SEAL_TENANT + 8];
    ProtobufCMessage *m;
    struct str body = {(const char *)r->body.p, r->body.n};
    status_t bad = r->body.n ? json_parse(a, &hlod__v1__error__descriptor, body, &m)
                             : st_new(ST_UNKNOWN, "nothing");
    if (bad)
        snprintf(text, sizeof text, "HTTP %d", r->code);
    else
        snprintf(text, sizeof text, "node %s", x->node);
    status_t st = bad ? broken(x, text) : error_from((const Hlod__V1__Error *)m, text);
    st_drop(bad);
    return st;
}
static bool outcome_fits(const Hlod__V1__JobOutcome *o) {
    static const char *const ends[] = {"passed", "failed", "error"};
    for (size_t k = 0; o && k < sizeof ends / sizeof *ends; k++)
        if (!strcmp(o->state, ends[k])) return k < 2 || o->error;
    return false;
}
static void on_reply(void *ctx, struct fetch_reply *r) {
    struct attempt *x = ctx;
    struct arena a = {0};
    Hlod__V1__RunJobReply *m = NULL;
    x->fetch = NULL;
    status_t st = r->st && !r->code ? broken(x, st_message(r->st)) : ST_OK;
    if (!st && r->code != 200) st = refusal(x, r, &a);
    if (!st && r->st) st = broken(x, st_message(r->st));
    if (!st) m = weigh_unpack_in(&a, &hlod__v1__run_job_reply__descriptor, r->body);
    if (!st && (!m || !outcome_fits(m->outcome))) st = broken(x, "its answer is no result");
    if (st) // nothing goes there for a while
        nodes_shun(x->s->cfg.nodes, x->node, clock_ns() + SHUN_MS * CLOCK_MS);
    finish(x, st, &a, st ? NULL : m);
    arena_done(&a);
}

// ---- the call

static struct span pack_request(struct attempts *s, struct arena *a,
                                const struct attempt_spec *spec) {
    struct digest d = sha256_of(spec->suite.p, spec->suite.n);
    Hlod__Cluster__Body b = HLOD__CLUSTER__BODY__INIT;
    Hlod__Cluster__Grant g = HLOD__CLUSTER__GRANT__INIT;
    Hlod__V1__RunJobRequest q = HLOD__V1__RUN_JOB_REQUEST__INIT;
    g.offer = spec->offer;
    g.home = (char *)(uintptr_t)s->cfg.node;
    g.to = (char *)(uintptr_t)spec->life;
    g.tenant = (char *)(uintptr_t)spec->tenant;
    g.job = (char *)(uintptr_t)spec->job;
    g.attempt = spec->number;
    g.suite = (ProtobufCBinaryData){sizeof d.b, d.b};
    b.grant = &g;
    struct span grant = seal_message(s->cfg.seal, a, &b);
    q.grant = (ProtobufCBinaryData){grant.n, (uint8_t *)(uintptr_t)grant.p};
    q.suite = (ProtobufCBinaryData){spec->suite.n, (uint8_t *)(uintptr_t)spec->suite.p};
    size_t n = protobuf_c_message_get_packed_size(&q.base);
    uint8_t *bytes = malloc(n + 1); // a fetch that is cancelled may read it for a while
    if (!bytes) abort();
    return (struct span){bytes, protobuf_c_message_pack(&q.base, bytes)};
}
static void call(struct attempt *x, const struct attempt_spec *spec, const char *address) {
    const struct attempts_config *c = &x->s->cfg;
    struct arena a = {0};
    char parent[TRACE_PARENT_TEXT];
    const char *headers[6];
    int k = 0;
    struct span body = pack_request(x->s, &a, spec);
    headers[k++] = "Content-Type: application/x-protobuf";
    headers[k++] = "Accept: application/x-protobuf";
    headers[k++] =
        arena_printf(&a, "Authorization: %s",
                     seal_pass(c->seal, &a, c->node, spec->life, spec->tenant, SCOPE_JOBS));
    if (spec->trace) {
        trace_write(spec->trace, parent);
        headers[k++] = arena_printf(&a, "traceparent: %s", parent);
    }
    headers[k] = NULL;
    struct fetch_request q = {.method = "POST",
                              .url = arena_printf(&a, "%s/hlod.v1.Hlod/RunJob", address),
                              .headers = headers,
                              .body = {body, free, (void *)(uintptr_t)body.p},
                              .auth = c->auth,
                              .connect_ms = CONNECT_MS,
                              .max_bytes = c->max_bytes + LEAST};
    fetch_start(c->fetcher, &q, on_reply, x, &x->fetch);
    arena_done(&a);
}
struct attempt *attempt_start(struct attempts *s, const struct attempt_spec *spec) {
    struct attempt *x = arena_must_calloc(1, sizeof *x);
    const struct node *n = nodes_find(s->cfg.nodes, spec->node);
    *x = (struct attempt){.s = s, .node = strdup(spec->node), .done = spec->done, .ctx = spec->ctx};
    if (!x->node) abort();
    vec_push(&s->all, x);
    call(x, spec, n->m->address); // who offers is there
    return x;
}
void attempt_cancel(struct attempt *x) {
    if (x) drop(x);
}
void attempts_lost(struct attempts *s, const char *node) {
    for (size_t k = s->all.n; k-- > 0;) {
        if (k >= s->all.n || strcmp(s->all.v[k]->node, node) != 0) continue;
        struct arena none = {0};
        s->lost++;
        finish(s->all.v[k], broken(s->all.v[k], "it is lost"), &none, NULL);
    }
}

// ---- the node that is called

Hlod__Cluster__Grant *attempt_grant(const struct seal *s, struct arena *a,
                                    const Hlod__V1__RunJobRequest *q, const char *life,
                                    const char **out_why) {
    Hlod__Cluster__Body *b = seal_open(s, a, (struct span){q->grant.data, q->grant.len}, out_why);
    if (!b) return NULL;
    Hlod__Cluster__Grant *g = b->grant;
    struct digest d = sha256_of(q->suite.data, q->suite.len);
    *out_why = "the grant is another message";
    if (!g) return NULL;
    *out_why = "the grant is for another process";
    if (strcmp(g->to, life) != 0) return NULL;
    *out_why = "the grant is for another job";
    if (g->suite.len != sizeof d.b || memcmp(g->suite.data, d.b, sizeof d.b) != 0) return NULL;
    *out_why = "the grant names nobody";
    bool fits = peer_name_fits(g->home) && text_is_name(str_of(g->tenant), SEAL_TENANT);
    return fits ? g : NULL;
}

// ---- life

struct attempts *attempts_new(const struct attempts_config *cfg) {
    struct attempts *s = arena_must_calloc(1, sizeof *s);
    s->cfg = *cfg;
    fetch_auth_ref(s->cfg.auth);
    return s;
}
void attempts_stop(struct attempts *s) {
    while (s && s->all.n) {
        struct arena none = {0};
        finish(s->all.v[0],
               st_because(ST_UNAVAILABLE, SHUTTING_DOWN, "the server is shutting down"), &none,
               NULL);
    }
}
void attempts_free(struct attempts *s) {
    if (!s) return;
    vec_done(&s->all);
    fetch_auth_unref(s->cfg.auth);
    free(s);
}
void attempts_metrics(const struct attempts *s, struct strbuf *b) {
    const struct metric_count all[] = {{"ok", s->ok}, {"failed", s->failed}, {"lost", s->lost}};
    metrics_counts(b, "hlod_cluster_attempts_total",
                   "attempts at batch jobs of this node that others ended, that they did not, and "
                   "of those by nodes that were lost",
                   "outcome", all, sizeof all / sizeof *all);
}
