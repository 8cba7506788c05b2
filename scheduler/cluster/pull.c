// SPDX-License-Identifier: Apache-2.0
//   pull_get -> pool: is it here? (pull_find: it is not the tenant's) -> ask a node for a piece ->
//   pool: write it -> the next piece ...
//   -> pool: the end, its digest, its owner -> done
#include "scheduler/cluster/pull.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/store/store.h"
#include "base/str.h"
#include "base/text.h"
#include "base/vec.h"
#include "proto/message.h"
#include "proto/reason.h"
#include "proto/tokens.h"
#include "proto/weigh.h"
#include "scheduler/cluster/cluster.h"
#include "scheduler/cluster/nodes.h"
#include "scheduler/cluster/seal.h"
#include "scheduler/loop.h"
#include "scheduler/records/blobs.h"
#include "scheduler/remote/fetch.h"
#include "scheduler/remote/rendezvous.h"

// Of models that no name here says anything of: so many wait at most, so many are looked for at a
// time, and one that nobody has is looked for so often in a while: more than once, since who was
// told so sends it, to any node, and asks again.
enum { FINDS = 64, FINDS_AT_ONCE = 2, ABSENT = 64, ABSENT_MS = 3000, ABSENT_TIMES = 8 };
enum { PULLS = 4, PIECE = 4 << 20, CONNECT_MS = 2000, TOTAL_MS = 30000, WHY = 400 };
struct flight {
    struct pull *p;
    struct arena arena;
    const char *tenant, *first;
    struct digest digest;
    void (*done)(void *ctx, status_t st);
    void *ctx;
    bool on_pool;
    struct fetch *fetch;
    const char **nodes; // to be asked, in this order
    size_t n_nodes, at;
    const char *node; // that is asked
    // The pool's while it has it.
    struct store_writer *w;
    int64_t offset, total; // total 0: nobody has said it
    Hlod__V1__Blob *piece;
    bool whole, lied;
    bool unnamed, unsure; // pull_find; some node said neither yes nor no
    status_t st;
    char why[WHY]; // of nodes that did not give it
};
struct absent { // what no node had, so often
    struct digest digest;
    uint64_t tenant; // hash
    int64_t until_ns;
    int times;
};
struct pull {
    struct pull_config cfg;
    struct absent absent[ABSENT];
    size_t n_absent; // written, round and round
    VEC(struct flight *) under_way, waiting;
    bool stopping;
    int64_t pulled, bytes, failed, lied;
};

static void begin(struct flight *x);
static void next_node(struct flight *x);

// ---- the end

static void drop(struct flight *x) {
    if (x->piece) hlod__v1__blob__free_unpacked(x->piece, NULL);
    store_write_abort(x->w);
    arena_done(&x->arena);
    free(x);
}
// Who makes up digests, which nodes may be slow to answer for, holds up no model that is named.
static bool has_place(const struct pull *p, const struct flight *x) {
    size_t finds = 0;
    for (size_t k = 0; k < p->under_way.n; k++)
        finds += p->under_way.v[k]->unnamed;
    return p->under_way.n < PULLS && (!x->unnamed || finds < FINDS_AT_ONCE);
}
static void finish(struct flight *x, status_t st) { // takes st
    struct pull *p = x->p;
    for (size_t k = 0; k < p->under_way.n; k++)
        if (p->under_way.v[k] == x) {
            p->under_way.v[k] = p->under_way.v[--p->under_way.n];
            break;
        }
    p->failed += st && st_code(st) != ST_NOT_FOUND;
    if (!st) {
        p->pulled++;
        log_event(LOG_INFO, "model.pulled", "model=%s tenant=%s bytes=%lld node=%s",
                  digest_to_hex(x->digest).z, x->tenant, (long long)x->offset,
                  x->node ? x->node : "");
    }
    x->done(x->ctx, st);
    drop(x);
    if (p->stopping || !p->waiting.n || !has_place(p, p->waiting.v[0])) return;
    struct flight *next = p->waiting.v[0];
    memmove(p->waiting.v, p->waiting.v + 1, --p->waiting.n * sizeof *p->waiting.v);
    begin(next);
}
MUST_CHECK static status_t stops(void) {
    return st_because(ST_UNAVAILABLE, SHUTTING_DOWN, "the server is shutting down");
}

// ---- on the pool

static void to_pool(struct flight *x, void (*work)(void *), void (*then)(void *)) {
    x->on_pool = true;
    loop_work(x->p->cfg.loop, work, then, x);
}
// Back from it: true, and it goes on.
static bool goes_on(struct flight *x) {
    status_t st = x->st;
    x->on_pool = false;
    x->st = ST_OK;
    if (!st && x->p->stopping) st = stops();
    if (st) finish(x, st);
    return !st;
}
// The fleet says that the tenant has it, which it showed where it named it.
static status_t own(const struct flight *x) {
    return blob_keep_own(x->p->cfg.journal, x->tenant, x->digest);
}
static void look_work(void *arg) {
    struct flight *x = arg;
    int fd;
    int64_t offset, bytes;
    // Opened, so that it counts as used now: collected no earlier than one that is fetched.
    status_t st =
        store_open_fd(x->p->cfg.store, STORE_BLOB, x->digest, STORE_TRUST, &fd, &offset, &bytes);
    x->whole = !st;
    st_drop(st);
    if (!x->whole) return;
    close(fd);
    x->st = own(x);
}
static status_t write_piece(struct flight *x) {
    struct digest found;
    if (!x->w) RETURN_IF_ERR(store_write_begin(x->p->cfg.store, STORE_BLOB, &x->w));
    RETURN_IF_ERR(store_write(x->w, x->piece->data.data, x->piece->data.len));
    x->offset += (int64_t)x->piece->data.len;
    if (x->offset < x->total) return ST_OK;

    struct digest have = {0};
    RETURN_IF_ERR(store_write_sync(x->w, &have));
    if (!digest_eq(have, x->digest)) { // nothing is kept of it
        store_write_abort(x->w);
        x->w = NULL;
        x->lied = true;
        return ST_OK;
    }
    struct store_writer *w = x->w;
    x->w = NULL;
    RETURN_IF_ERR(store_write_end(w, &found, NULL));
    x->whole = true;
    return own(x);
}
static void write_work(void *arg) {
    struct flight *x = arg;
    x->st = write_piece(x);
}

// ---- nodes

static void note_why(struct flight *x, const char *why) {
    struct strbuf b = {0};
    strbuf_printf(&b, "%s%s%s: ", x->why, *x->why ? "; " : "", x->node);
    text_show(&b, str_of(why), ""); // may hold what the node said
    snprintf(x->why, sizeof x->why, "%s", strbuf_cstr(&b));
    strbuf_done(&b);
}
static void ask(struct flight *x, const struct node *n);
static const struct node *node_now(const struct flight *x) {
    const struct node *n = nodes_find(cluster_nodes(x->p->cfg.cluster), x->node);
    return n && n->m->proved && !n->lost && !n->gone ? n : NULL;
}
static void written(void *arg) {
    struct flight *x = arg;
    x->p->bytes += (int64_t)x->piece->data.len;
    hlod__v1__blob__free_unpacked(x->piece, NULL);
    x->piece = NULL;
    if (!goes_on(x)) return;
    if (x->lied) {
        x->p->lied++;
        log_event(LOG_WARN, "model.lied", "model=%s node=%s why=\"its bytes have another digest\"",
                  digest_to_hex(x->digest).z, x->node);
        note_why(x, "its bytes have another digest");
        x->lied = false;
        x->offset = x->total = 0;
        next_node(x);
        return;
    }
    const struct node *n = node_now(x);
    if (x->whole)
        finish(x, ST_OK);
    else if (n)
        ask(x, n);
    else
        next_node(x);
}
static const char *fault(const struct flight *x, const Hlod__V1__Blob *m) {
    struct digest d;
    if (!m || !digest_parse(str_of(m->digest), &d) || !digest_eq(d, x->digest))
        return "it answers with something else";
    if (m->bytes < 1 || m->bytes > x->p->cfg.max_bytes)
        return "its model is empty, or longer than models may be here (max_model_bytes)";
    if (m->offset != x->offset || !m->data.len || (int64_t)m->data.len > m->bytes - m->offset ||
        (x->total && x->total != m->bytes))
        return "it answers with another part";
    return NULL;
}
static void on_reply(void *ctx, struct fetch_reply *r) {
    struct flight *x = ctx;
    char text[160];
    x->fetch = NULL;
    if (r->st || r->code != 200) {
        x->unsure = x->unsure || r->code != 404;
        int n = (int)(r->body.n < 120 ? r->body.n : 120);
        snprintf(text, sizeof text, "HTTP %d: %.*s", r->code, n, n ? (const char *)r->body.p : "");
        note_why(x, r->st ? st_message(r->st) : text);
        next_node(x);
        return;
    }
    Hlod__V1__Blob *m = weigh_unpack_or_null(&hlod__v1__blob__descriptor, r->body);
    const char *why = fault(x, m);
    if (why) {
        x->unsure = true;
        if (m) hlod__v1__blob__free_unpacked(m, NULL);
        note_why(x, why);
        next_node(x);
        return;
    }
    x->piece = m;
    x->total = m->bytes;
    to_pool(x, write_work, written);
}
static void ask(struct flight *x, const struct node *n) {
    const struct pull_config *c = &x->p->cfg;
    struct arena a = {0};
    char hex[65];
    digest_hex(x->digest, hex);
    Hlod__V1__GetBlobRequest m = HLOD__V1__GET_BLOB_REQUEST__INIT;
    m.digest = hex;
    m.offset = x->offset;
    m.length = PIECE;
    size_t bytes = protobuf_c_message_get_packed_size(&m.base);
    uint8_t *body = malloc(bytes + 1); // a fetch that is cancelled may read it for a while
    if (!body) abort();
    protobuf_c_message_pack(&m.base, body);
    const char *pass =
        seal_pass(c->seal, &a, cluster_node(c->cluster), n->m->life, x->tenant, SCOPE_JOBS);
    const char *headers[] = {"Content-Type: application/x-protobuf",
                             "Accept: application/x-protobuf",
                             arena_printf(&a, "Authorization: %s", pass), NULL};
    struct fetch_request q = {.method = "POST",
                              .url = arena_printf(&a, "%s/hlod.v1.Hlod/GetBlob", n->m->address),
                              .headers = headers,
                              .body = {{body, bytes}, free, body},
                              .auth = c->auth,
                              .connect_ms = CONNECT_MS,
                              .total_ms = TOTAL_MS,
                              .max_bytes = PIECE + 4096};
    fetch_start(c->fetcher, &q, on_reply, x, &x->fetch);
    arena_done(&a);
}
static uint64_t hash_of(const char *tenant) {
    return hash64(tenant, strlen(tenant), 0);
}
static struct absent *absent_now(struct pull *p, struct digest d, const char *tenant) {
    int64_t now = clock_ns();
    uint64_t hash = hash_of(tenant);
    for (size_t k = 0; k < ABSENT; k++) {
        struct absent *x = &p->absent[k];
        if (x->until_ns > now && x->tenant == hash && digest_eq(x->digest, d)) return x;
    }
    return NULL;
}
static void nobody_has_it(struct flight *x) {
    struct pull *p = x->p;
    struct absent *known = absent_now(p, x->digest, x->tenant);
    if (known)
        known->times++;
    else
        p->absent[p->n_absent++ % ABSENT] =
            (struct absent){x->digest, hash_of(x->tenant), clock_ns() + ABSENT_MS * CLOCK_MS, 1};
    finish(x, st_because(ST_NOT_FOUND, MODEL_NOT_FOUND, "no model or executable %s here%s",
                         digest_to_hex(x->digest).z,
                         x->n_nodes ? ", nor on the other nodes of the cluster" : ""));
}
static void next_node(struct flight *x) {
    while (x->at < x->n_nodes) {
        x->node = x->nodes[x->at++];
        const struct node *n = node_now(x);
        if (n) {
            ask(x, n);
            return;
        }
        note_why(x, "it is not there");
        x->unsure = true;
    }
    if (x->unnamed && !x->unsure)
        nobody_has_it(x);
    else
        finish(x, st_new(ST_UNAVAILABLE, "the model %s is %s, and none of its nodes gave it (%s)",
                         digest_to_hex(x->digest).z,
                         x->unnamed ? "not here but maybe in the cluster" : "named in the cluster",
                         *x->why ? x->why : "no other node is known"));
}
// The writer of its name, then the others, in an order of this model's own.
static void choose_nodes(struct flight *x) {
    const struct nodes *all = cluster_nodes(x->p->cfg.cluster);
    const char *names[RENDEZVOUS_MAX];
    size_t n = 0, order[RENDEZVOUS_MAX];
    x->nodes = arena_zarray(&x->arena, const char *, RENDEZVOUS_MAX + 1);
    for (size_t k = 0; k < all->v.n && n < RENDEZVOUS_MAX; k++) {
        const struct node *y = all->v.v[k];
        if (!y->m->proved || y->lost || y->gone || !strcmp(y->m->node, x->first)) continue;
        if (x->unnamed && !strcmp(y->m->state, "draining")) continue; // it takes nothing new
        names[n++] = y->m->node;
    }
    if (nodes_find(all, x->first)) x->nodes[x->n_nodes++] = x->first;
    n = rendezvous(x->digest, names, n, order, n);
    for (size_t k = 0; k < n; k++)
        x->nodes[x->n_nodes++] = arena_strdup(&x->arena, names[order[k]]);
}
static void looked(void *arg) {
    struct flight *x = arg;
    if (!goes_on(x)) return;
    if (x->whole) {
        finish(x, ST_OK);
        return;
    }
    choose_nodes(x);
    next_node(x);
}

// ---- life

static void chosen(void *arg) {
    struct flight *x = arg;
    if (!goes_on(x)) return;
    choose_nodes(x);
    next_node(x);
}
static void no_work(UNUSED void *arg) {}
static void begin(struct flight *x) {
    vec_push(&x->p->under_way, x);
    if (x->unnamed) // `done` is not called from inside
        to_pool(x, no_work, chosen);
    else
        to_pool(x, look_work, looked);
}
static void start(struct pull *p, const char *tenant, struct digest d, const char *first,
                  bool unnamed, void (*done)(void *ctx, status_t st), void *ctx) {
    struct flight *x = arena_must_calloc(1, sizeof *x);
    x->p = p;
    x->unnamed = unnamed;
    x->tenant = arena_strdup(&x->arena, tenant);
    x->first = arena_strdup(&x->arena, first);
    x->digest = d;
    x->done = done;
    x->ctx = ctx;
    if (has_place(p, x) || p->stopping) // which ends it as it comes back
        begin(x);
    else {
        vec_push(&p->waiting, x);
        for (size_t k = p->waiting.n - 1; !unnamed && k && p->waiting.v[k - 1]->unnamed; k--) {
            p->waiting.v[k] = p->waiting.v[k - 1]; // who made up a digest holds nobody up
            p->waiting.v[k - 1] = x;
        }
    }
}
void pull_get(struct pull *p, const char *tenant, struct digest d, const char *first,
              void (*done)(void *ctx, status_t st), void *ctx) {
    start(p, tenant, d, first, false, done, ctx);
}
status_t pull_find(struct pull *p, const char *tenant, struct digest d,
                   void (*done)(void *ctx, status_t st), void *ctx) {
    const struct absent *known = absent_now(p, d, tenant);
    if (!cluster_nodes(p->cfg.cluster)->v.n)
        return st_because(ST_NOT_FOUND, MODEL_NOT_FOUND, "no model or executable %s here",
                          digest_to_hex(d).z);
    if (known && known->times >= ABSENT_TIMES)
        return st_retry_after(st_new(ST_UNAVAILABLE,
                                     "the model %s is not here, nor was it on the other nodes a "
                                     "moment ago, which were asked often enough",
                                     digest_to_hex(d).z),
                              clock_ms_left(known->until_ns));
    if (p->waiting.n >= FINDS)
        return st_retry_after(st_new(ST_UNAVAILABLE,
                                     "the model %s is not here, and too many are looked for on the "
                                     "other nodes",
                                     digest_to_hex(d).z),
                              1000);
    start(p, tenant, d, "", true, done, ctx);
    return ST_OK;
}
struct pull *pull_new(const struct pull_config *cfg) {
    struct pull *p = arena_must_calloc(1, sizeof *p);
    p->cfg = *cfg;
    fetch_auth_ref(p->cfg.auth);
    return p;
}
void pull_lost(struct pull *p, const char *node) {
    for (size_t k = p->under_way.n; k-- > 0;) {
        if (k >= p->under_way.n) continue; // one that ended took others along
        struct flight *x = p->under_way.v[k];
        if (!x->fetch || strcmp(x->node, node) != 0) continue;
        fetch_cancel(x->fetch);
        x->fetch = NULL;
        x->unsure = true;
        note_why(x, "it is lost");
        next_node(x);
    }
}
void pull_stop(struct pull *p) {
    if (!p || p->stopping) return;
    p->stopping = true;
    for (size_t k = p->under_way.n; k-- > 0;) {
        struct flight *x = p->under_way.v[k];
        if (x->on_pool) continue;
        fetch_cancel(x->fetch);
        finish(x, stops());
    }
    while (p->waiting.n)
        finish(vec_pop(&p->waiting), stops());
}
void pull_free(struct pull *p) {
    if (!p) return;
    vec_done(&p->under_way);
    vec_done(&p->waiting);
    fetch_auth_unref(p->cfg.auth);
    free(p);
}
void pull_metrics(const struct pull *p, struct strbuf *b) {
    const struct metric_count all[] = {{"ok", p->pulled}, {"failed", p->failed}, {"lied", p->lied}};
    metrics_counts(b, "hlod_cluster_pulls_total",
                   "models fetched from other nodes, those that none gave, and times that the "
                   "bytes were others",
                   "outcome", all, sizeof all / sizeof *all);
    strbuf_printf(b,
                  "# HELP hlod_cluster_pulled_bytes_total of them\n"
                  "# TYPE hlod_cluster_pulled_bytes_total counter\n"
                  "hlod_cluster_pulled_bytes_total %lld\n",
                  (long long)p->bytes);
}
