// SPDX-License-Identifier: Apache-2.0
// What was compiled here goes out, in the background: to the peer that others wait at, then to each
// prefix and store that takes it. A few at a time; a bundle is made once, on the pool, when its
// turn comes. What cannot be brought is counted and forgotten: it is a cache.
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "proto/message.h"
#include "scheduler/loop.h"
#include "scheduler/remote/exchange.h"
#include "scheduler/remote/remotes_inside.h"

enum { WAITING_MAX = 256, ACTIVE_MAX = 4, REPLY_BYTES = 64 << 10 };
struct bundle { // packed; counted, on the loop
    int refs;
    struct arena arena;
    struct span bytes;
    struct digest digest;
};
struct put {
    struct put *next; // in waiting or active
    struct puts *all;
    struct digest key;
    struct peer *holder; // counted; NULL: none, or it has it
    bool to_all;
    size_t at; // which remote
    bool on_pool;
    struct trust *trust; // while on the pool
    struct bundle *bundle;
    status_t st;
    struct fetch *fetch;
    struct peer_flight *flight;
};
struct puts {
    struct remotes *r;
    struct put *waiting, *active;
    int n_waiting, n_active;
    bool stopping;
};

static void forget_bundle(void *arg) {
    struct bundle *b = arg;
    if (!b || --b->refs) return;
    arena_done(&b->arena);
    free(b);
}
static void free_put(struct put *p) {
    forget_bundle(p->bundle);
    peer_unref(p->holder);
    trust_unref(p->trust);
    st_drop(p->st);
    free(p);
}
static void unlink_put(struct put **list, struct put *p) {
    while (*list && *list != p)
        list = &(*list)->next;
    if (*list) *list = p->next;
}

// ---- one

static void start(struct puts *all);
static void next_step(struct put *p);

static void over(struct put *p) {
    struct puts *all = p->all;
    unlink_put(&all->active, p);
    all->n_active--;
    free_put(p);
    start(all);
}
static void on_offered(void *ctx, struct fetch_reply *r) {
    struct put *p = ctx;
    struct remotes *all = p->all->r;
    bool taken = !r->st && r->code == 200;
    p->flight = NULL;
    for (size_t k = 0; k < all->n; k++) {
        if (!all->v[k].is_peers) continue;
        all->v[k].n.puts += taken;
        all->v[k].n.put_errors += !taken;
        all->v[k].n.bytes_out += r->sent;
    }
    if (!taken)
        log_event(LOG_WARN, "remote.put", "remote=\"peers\" peer=%s key=%s why=\"%s %.*s\"",
                  peer_name(p->holder), digest_to_hex(p->key).z, st_message(r->st),
                  (int)(r->body.n < 200 ? r->body.n : 200),
                  r->body.n ? (const char *)r->body.p : "");
    p->holder = peer_unref(p->holder);
    next_step(p);
}
static void on_put(void *ctx, struct fetch_reply *r) {
    struct put *p = ctx;
    struct remote *x = &p->all->r->v[p->at++];
    p->fetch = NULL;
    enum object_answer answer = object_answer(x, r);
    bool taken = answer == OBJECT_THERE;
    if (answer == OBJECT_ABSENT) // it may be read, and not be written to
        log_event(LOG_WARN, "remote.put", "remote=\"%s\" key=%s why=\"HTTP %d\"", x->name,
                  digest_to_hex(p->key).z, r->code);
    x->n.puts += taken;
    x->n.put_errors += !taken;
    x->n.bytes_out += r->sent;
    next_step(p);
}
static struct fetch_body body_of(struct bundle *b) {
    b->refs++;
    return (struct fetch_body){b->bytes, forget_bundle, b};
}
static void next_step(struct put *p) {
    struct remotes *r = p->all->r;
    if (p->holder) {
        p->flight = peer_call_start(p->holder, &(struct peer_call){.method = "OfferExecutable",
                                                                   .body = body_of(p->bundle),
                                                                   .max_bytes = REPLY_BYTES,
                                                                   .done = on_offered,
                                                                   .ctx = p});
        return;
    }
    for (; p->to_all && p->at < r->n; p->at++) {
        struct remote *x = &r->v[p->at];
        if (x->is_peers || r->cfg.specs[x->index].read_only) continue;
        if (breaker_down(&x->breaker)) {
            x->n.put_errors++;
            continue;
        }
        struct arena a = {0};
        const char *url = object_url(&a, x, p->key);
        p->fetch = object_put(x, url, body_of(p->bundle), p->bundle->digest, on_put, p);
        arena_done(&a);
        return;
    }
    over(p);
}

static void on_released(UNUSED void *ctx, UNUSED struct fetch_reply *r) {}
void puts_release(struct puts *all, struct digest key, struct peer *holder) {
    Hlod__V1__ReleaseExecutableRequest m = HLOD__V1__RELEASE_EXECUTABLE_REQUEST__INIT;
    struct hex_digest hex = digest_to_hex(key);
    if (all->stopping) return;
    m.digest = hex.z;
    m.node = (char *)(uintptr_t)peers_node(all->r->peers);
    m.life = (char *)(uintptr_t)peers_life(all->r->peers);
    // Nobody waits for the answer: should it be lost, the claim runs out.
    peer_call_start(holder, &(struct peer_call){.method = "ReleaseExecutable",
                                                .request = &m.base,
                                                .max_bytes = REPLY_BYTES,
                                                .done = on_released});
}

static void pack_work(void *arg) {
    struct put *p = arg;
    const struct exchange x = {p->all->r->store, p->all->r->journal, p->trust};
    struct bundle *b = arena_must_calloc(1, sizeof *b);
    Hlod__V1__ExecutableBundle *m;
    b->refs = 1;
    p->bundle = b;
    p->st = exchange_give(&x, &b->arena, p->key, &m);
    if (p->st) return;
    b->bytes = message_pack(&b->arena, &m->base);
    b->digest = sha256_of(b->bytes.p, b->bytes.n);
}
static void packed(void *arg) {
    struct put *p = arg;
    p->on_pool = false;
    p->trust = trust_unref(p->trust);
    if (p->all->stopping) {
        free_put(p);
        return;
    }
    if (p->st) // evicted meanwhile, or damaged
        log_event(LOG_DEBUG, "remote.put", "key=%s why=\"%s\"", digest_to_hex(p->key).z,
                  st_message(p->st));
    if (p->st && p->holder) puts_release(p->all, p->key, p->holder);
    if (p->st)
        over(p);
    else
        next_step(p);
}

// ---- all

static void start(struct puts *all) {
    while (all->waiting && all->n_active < ACTIVE_MAX) {
        struct put *p = all->waiting;
        all->waiting = p->next;
        all->n_waiting--;
        p->next = all->active;
        all->active = p;
        all->n_active++;
        p->on_pool = true;
        p->trust = trust_ref(all->r->trust);
        loop_work(all->r->loop, pack_work, packed, p);
    }
}
void puts_add(struct puts *all, struct digest key, struct peer *holder, bool to_all) {
    if (all->stopping || (all->n_waiting >= WAITING_MAX && !holder)) return;
    struct put *p = arena_must_calloc(1, sizeof *p), **at = &all->waiting;
    p->all = all;
    p->key = key;
    p->holder = peer_ref(holder);
    p->to_all = to_all;
    while (*at && (!holder || (*at)->holder)) // what others wait for goes first
        at = &(*at)->next;
    p->next = *at;
    *at = p;
    all->n_waiting++;
    start(all);
}

struct puts *puts_new(struct remotes *r) {
    struct puts *p = arena_must_calloc(1, sizeof *p);
    p->r = r;
    return p;
}
void puts_stop(struct puts *all) {
    all->stopping = true;
    for (struct put *p = all->active, *next; p; p = next) {
        next = p->next;
        fetch_cancel(p->fetch);
        peer_call_cancel(p->flight);
        if (!p->on_pool) free_put(p); // else when it comes back
    }
    for (struct put *p = all->waiting, *next; p; p = next) {
        next = p->next;
        free_put(p);
    }
    all->active = all->waiting = NULL;
    all->n_active = all->n_waiting = 0;
}
void puts_free(struct puts *p) {
    free(p);
}
int puts_busy(const struct puts *p) {
    return p->n_active + p->n_waiting;
}
