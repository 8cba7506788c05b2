// SPDX-License-Identifier: Apache-2.0
#include "scheduler/cluster/attempt.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/metrics.h"
#include "base/text.h"
#include "base/vec.h"
#include "proto/formats/cluster.pb-c.h"
#include "proto/message.h"
#include "proto/reason.h"
#include "proto/tokens.h"
#include "scheduler/cluster/ask.h"
#include "scheduler/cluster/nodes.h"
#include "scheduler/cluster/seal.h"
#include "scheduler/remote/peers.h"
#include "scheduler/trace.h"

enum { SHUN_MS = 10000 };
struct attempt {
    struct attempts *s;
    struct ask *ask;
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
    ask_cancel(x->ask);
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
static bool outcome_fits(const Hlod__V1__JobOutcome *o) {
    static const char *const ends[] = {"passed", "failed", "error"};
    for (size_t k = 0; o && k < sizeof ends / sizeof *ends; k++)
        if (!strcmp(o->state, ends[k])) return k < 2 || o->error;
    return false;
}
static void on_done(void *ctx, status_t st, struct arena *a, ProtobufCMessage *reply) {
    struct attempt *x = ctx;
    Hlod__V1__RunJobReply *m = (Hlod__V1__RunJobReply *)reply;
    x->ask = NULL;
    if (!st && !outcome_fits(m->outcome)) st = ask_broken(x->node, "its answer is no result");
    if (st) // nothing goes there for a while
        nodes_shun(x->s->cfg.nodes, x->node, clock_ns() + SHUN_MS * CLOCK_MS);
    finish(x, st, a, st ? NULL : m);
}

// ---- the call

static void set_request(struct attempts *s, struct arena *a, const struct attempt_spec *spec,
                        Hlod__V1__RunJobRequest *q) {
    struct digest d = sha256_of(spec->suite.p, spec->suite.n);
    Hlod__Cluster__Body b = HLOD__CLUSTER__BODY__INIT;
    Hlod__Cluster__Grant g = HLOD__CLUSTER__GRANT__INIT;
    g.offer = spec->offer;
    g.home = (char *)(uintptr_t)asks_node(s->cfg.asks);
    g.to = (char *)(uintptr_t)spec->life;
    g.tenant = (char *)(uintptr_t)spec->tenant;
    g.job = (char *)(uintptr_t)spec->job;
    g.attempt = spec->number;
    g.suite = (ProtobufCBinaryData){sizeof d.b, d.b};
    b.grant = &g;
    struct span grant = seal_message(asks_seal(s->cfg.asks), a, &b);
    hlod__v1__run_job_request__init(q);
    q->grant = (ProtobufCBinaryData){grant.n, (uint8_t *)(uintptr_t)grant.p};
    q->suite = (ProtobufCBinaryData){spec->suite.n, (uint8_t *)(uintptr_t)spec->suite.p};
}
struct attempt *attempt_start(struct attempts *s, const struct attempt_spec *spec) {
    struct attempt *x = arena_must_calloc(1, sizeof *x);
    struct arena a = {0};
    Hlod__V1__RunJobRequest q;
    *x = (struct attempt){.s = s, .node = strdup(spec->node), .done = spec->done, .ctx = spec->ctx};
    if (!x->node) abort();
    vec_push(&s->all, x);
    set_request(s, &a, spec, &q);
    x->ask =
        ask_start(s->cfg.asks, &(struct ask_spec){.node = spec->node,
                                                  .life = spec->life, // who offers is there
                                                  .method = "RunJob",
                                                  .tenant = spec->tenant,
                                                  .scopes = SCOPE_JOBS,
                                                  .request = &q.base,
                                                  .reply = &hlod__v1__run_job_reply__descriptor,
                                                  .trace = spec->trace,
                                                  .done = on_done,
                                                  .ctx = x});
    arena_done(&a);
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
        finish(s->all.v[k], ask_broken(node, "it is lost"), &none, NULL);
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
    free(s);
}
void attempts_metrics(const struct attempts *s, struct strbuf *b) {
    const struct metric_count all[] = {{"ok", s->ok}, {"failed", s->failed}, {"lost", s->lost}};
    metrics_counts(b, "hlod_cluster_attempts_total",
                   "attempts at batch jobs of this node that others ended, that they did not, and "
                   "of those by nodes that were lost",
                   "outcome", all, sizeof all / sizeof *all);
}
