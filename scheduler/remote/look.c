// SPDX-License-Identifier: Apache-2.0
// One look for an executable: the remotes in turn, until one gives what holds.
//
//   prefix, store:  GET -> pool: checks, keeps -> found
//   peers:  the one that keeps the key in mind (rendezvous): give it, or let me compile, or wait
//             -> gave it -> pool: checks, keeps -> found
//             -> ours: the next two are asked whether they have it all the same
//             -> another compiles it: wait, up to the bound
//
// A claim that was granted is held (remotes.held) until remotes_made or remotes_given_up.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "proto/message.h"
#include "proto/weigh.h"
#include "scheduler/loop.h"
#include "scheduler/remote/exchange.h"
#include "scheduler/remote/remotes_inside.h"

enum { ASKED = 3, SLICE_MS = 10000, REPLY_BYTES = 64 << 10 };
enum phase { CLAIMING, ASKING }; // of the peers' part
struct look {
    struct look *prev, *next;
    struct remotes *r;
    struct look_spec q;
    struct arena arena;
    size_t at; // which remote
    int64_t begun_ns;
    // What is under way: one of them.
    struct fetch *fetch;
    struct peer_flight *flight;
    struct claim_wait wait; // on this daemon's own list
    struct loop_timer *timer;
    bool held; // a post or pool work has it
    bool gone; // cancelled meanwhile
    // The peers' part.
    struct peer *order[ASKED]; // NULL: this daemon; counted
    size_t n_order, turn;
    enum phase phase;
    int64_t until_ns; // for what another compiles
    bool told_waits;
    // What came, and what it came to; while the pool checks it.
    uint8_t *bytes;
    size_t n_bytes;
    struct trust *trust; // counted
    bool of_peer;
    Hlod__V1__ExecutableInfo *found;
    status_t st;
    bool granted;
    char compiles[CLAIM_NAME];
};
static void step(struct look *l);

// ---- life

static struct str key_str(const struct look *l) {
    return (struct str){(const char *)l->q.key.b, sizeof l->q.key.b};
}
static void leave_order(struct look *l) {
    while (l->n_order)
        peer_unref(l->order[--l->n_order]);
    l->turn = 0;
}
static void stop(struct look *l) {
    fetch_cancel(l->fetch);
    peer_call_cancel(l->flight);
    claims_leave(&l->wait);
    l->fetch = NULL;
    l->flight = NULL;
}
static void free_look(struct look *l) {
    *(l->prev ? &l->prev->next : &l->r->looks) = l->next;
    if (l->next) l->next->prev = l->prev;
    leave_order(l);
    loop_timer_free(l->timer);
    trust_unref(l->trust);
    st_drop(l->st);
    if (l->found) hlod__v1__executable_info__free_unpacked(l->found, NULL);
    free(l->bytes);
    arena_done(&l->arena);
    free(l);
}
static void on_step(void *arg) {
    struct look *l = arg;
    l->held = false;
    if (l->gone)
        free_look(l);
    else
        step(l);
}
struct look *remotes_look(struct remotes *r, const struct look_spec *q) {
    struct look *l = arena_must_calloc(1, sizeof *l);
    l->r = r;
    l->q = *q;
    l->q.target_id = arena_strdup(&l->arena, q->target_id);
    l->q.build_id = arena_strdup(&l->arena, q->build_id);
    l->q.claim = q->claim && remotes_may_give(r); // else nobody could be given it
    l->next = r->looks;
    if (l->next) l->next->prev = l;
    r->looks = l;
    l->held = true;
    loop_post(r->loop, on_step, l);
    return l;
}
void look_cancel(struct look *l) {
    if (!l) return;
    stop(l);
    remotes_given_up(l->r, l->q.key);
    l->gone = true;
    if (!l->held) free_look(l);
}
void looks_stop(struct remotes *r) {
    for (struct look *l = r->looks, *next; l; l = next) {
        next = l->next;
        stop(l);
        l->gone = true;
        if (!l->held) free_look(l);
    }
}

static void settle(struct remotes *r, struct digest key, bool made, bool to_all);
static void finish(struct look *l, const char *remote, bool here) {
    Hlod__V1__ExecutableInfo *found = l->found;
    l->found = NULL;
    // Whoever waits for it, since this one was to compile it, gets it.
    if (found) settle(l->r, l->q.key, true, false);
    l->q.done(l->q.ctx, found, remote, here);
    free_look(l);
}

// ---- answers

static struct remote *remote_of(const struct look *l) {
    return &l->r->v[l->at];
}
static void tell(struct look *l, const char *outcome, const char *why, size_t bytes) {
    Hlod__V1__RemoteAnswer a = HLOD__V1__REMOTE_ANSWER__INIT;
    a.remote = (char *)(uintptr_t)remote_of(l)->name;
    a.outcome = (char *)(uintptr_t)outcome;
    a.why = (char *)(uintptr_t)why;
    a.ms = clock_ms_since(l->begun_ns);
    a.bytes = (int64_t)bytes;
    if (l->q.tell) l->q.tell(l->q.ctx, &a);
}
// This remote has said its last: on to the next.
static void answered(struct look *l, const char *outcome, const char *why) {
    struct remote *x = remote_of(l);
    x->n.ns += clock_ns() - l->begun_ns;
    tell(l, outcome, why, 0);
    leave_order(l);
    l->at++;
    l->begun_ns = 0;
    step(l);
}

// ---- what came is checked

static void take_peer(struct look *l, const struct exchange *x, const struct arrival *how) {
    ProtobufCMessage *m = NULL;
    l->st = weigh_unpack(&hlod__v1__fetch_executable_reply__descriptor,
                         (struct span){l->bytes, l->n_bytes}, &m);
    if (l->st) return;
    const Hlod__V1__FetchExecutableReply *r = (const Hlod__V1__FetchExecutableReply *)m;
    l->granted = r->granted;
    snprintf(l->compiles, sizeof l->compiles, "%s", r->compiles);
    if (*r->compiles && !peer_name_fits(r->compiles))
        l->st = st_invalid("who compiles it is no node's name");
    else if (r->bundle) l->st = exchange_take_own(x, how, r->bundle, &l->found);
    protobuf_c_message_free_unpacked(m, NULL);
}
static void take_work(void *arg) {
    struct look *l = arg;
    const struct exchange x = {l->r->store, l->r->journal, l->trust};
    const struct arrival how = {.from = remote_of(l)->name,
                                .wanted = &l->q.key,
                                .source = l->q.source,
                                .weights = l->q.weights,
                                .weights_bytes = l->q.weights_bytes};
    if (l->of_peer)
        take_peer(l, &x, &how);
    else
        l->st = exchange_take_bytes(&x, &how, (struct span){l->bytes, l->n_bytes}, &l->found);
}
static void peer_said(struct look *l);
static void taken(void *arg) {
    struct look *l = arg;
    struct remote *x = remote_of(l);
    size_t n = l->n_bytes;
    l->held = false;
    free(l->bytes);
    l->bytes = NULL;
    l->trust = trust_unref(l->trust);
    if (l->gone) {
        free_look(l);
        return;
    }
    x->n.bytes_in += (int64_t)n;
    if (l->found) {
        x->n.hits++;
        x->n.ns += clock_ns() - l->begun_ns;
        tell(l, "hit", "", n);
        finish(l, x->name, false);
        return;
    }

    status_t st = l->st;
    l->st = ST_OK;
    bool refused = st_get_reason(st) == HLOD__V1__REASON__REASON_IMPORT_REFUSED ||
                   st_code(st) == ST_INVALID_ARGUMENT;
    if (refused)
        remote_refused(x, l->q.key, st);
    else if (st)
        x->n.errors++;
    if (st)
        answered(l, refused ? "refused" : "error", st_message(st));
    else
        peer_said(l);
    st_drop(st);
}
static void take(struct look *l, struct fetch_reply *r, bool of_peer) {
    l->bytes = (uint8_t *)(uintptr_t)r->body.p;
    l->n_bytes = r->body.n;
    r->body = (struct span){0};
    l->of_peer = of_peer;
    l->trust = trust_ref(l->r->trust);
    l->held = true;
    loop_work(l->r->loop, take_work, taken, l);
}

// ---- prefixes and stores

static void on_object(void *ctx, struct fetch_reply *r) {
    struct look *l = ctx;
    struct remote *x = remote_of(l);
    l->fetch = NULL;
    enum object_answer said = object_answer(x, r);
    if (said == OBJECT_THERE) {
        take(l, r, false);
        return;
    }
    x->n.misses += said == OBJECT_ABSENT;
    x->n.errors += said == OBJECT_FAILED;
    answered(l, said == OBJECT_ABSENT ? "miss" : "error", said == OBJECT_ABSENT ? "" : x->why);
}
static void object_step(struct look *l) {
    struct remote *x = remote_of(l);
    if (breaker_down(&x->breaker)) {
        x->n.skipped++;
        answered(l, "skipped", x->why);
        return;
    }
    const char *url = object_url(&l->arena, x, l->q.key);
    l->fetch = object_get(x, url, l->r->cfg.max_bytes, on_object, l);
}

// ---- peers

static void peers_step(struct look *l);

static void hold(struct look *l, struct peer *by) {
    struct held *h = arena_must_calloc(1, sizeof *h);
    *h = (struct held){l->q.key, peer_ref(by)};
    struct held *old = smap_put(&l->r->held, key_str(l), h);
    if (old) peer_unref(old->by);
    free(old);
    l->phase = ASKING;
    l->turn++;
    peers_step(l);
}
static void waits_for(struct look *l, const char *node) {
    if (!l->told_waits) tell(l, "waits", node, 0);
    l->told_waits = true;
}

// Another was to compile it here, and it is over: it is here, or it is to be compiled after all.
static void claim_ended(void *ctx) {
    struct look *l = ctx;
    loop_timer_stop(l->timer);
    l->wait.claim = NULL;
    l->r->v[l->at].n.ns += clock_ns() - l->begun_ns;
    // Who asks looks here again; and comes back when it is not.
    finish(l, remote_of(l)->name, true);
}
static void waited_long(void *ctx) {
    struct look *l = ctx;
    claims_leave(&l->wait);
    answered(l, "waited", "another server did not bring it in time");
}
static void claim_here(struct look *l) {
    struct remotes *r = l->r;
    const char *node;
    if (claims_take(&r->claims, l->q.key, r->cfg.node, peers_life(r->peers), clock_ns(),
                    clock_of_ms((double)r->cfg.wait_ms), &node)) {
        hold(l, NULL);
        return;
    }
    waits_for(l, node);
    l->wait = (struct claim_wait){.ended = claim_ended, .ctx = l};
    claims_wait(&r->claims, l->q.key, &l->wait);
    if (!l->timer) l->timer = loop_timer_new(r->loop, waited_long, l);
    loop_timer_at(l->timer, l->until_ns);
}

static void on_peer(void *ctx, struct fetch_reply *r) {
    struct look *l = ctx;
    l->flight = NULL;
    if (!r->st && r->code == 200) {
        take(l, r, true);
        return;
    }
    remote_of(l)->n.errors++;
    l->turn++; // the next best of them keeps it in mind then
    peers_step(l);
}
// A peer's answer without an executable.
static void peer_said(struct look *l) {
    bool keeps_claims = l->granted || *l->compiles; // a server without peers of its own does not
    if (l->phase == ASKING || !l->q.claim || !keeps_claims) {
        l->turn++;
        peers_step(l);
    } else if (l->granted)
        hold(l, l->order[l->turn]);
    else {
        waits_for(l, l->compiles);
        peers_step(l);
    }
}
static void ask_peer(struct look *l, struct peer *x) {
    struct remotes *r = l->r;
    Hlod__V1__FetchExecutableRequest m = HLOD__V1__FETCH_EXECUTABLE_REQUEST__INIT;
    struct hex_digest hex = digest_to_hex(l->q.key);
    int64_t wait_ms = 0;
    m.digest = hex.z;
    if (l->phase == CLAIMING && l->q.claim) {
        m.node = (char *)(uintptr_t)r->cfg.node;
        m.life = (char *)(uintptr_t)peers_life(r->peers);
        // At first it is only asked who compiles it: to be told.
        if (l->told_waits) wait_ms = (l->until_ns - clock_ns()) / 1000000 + 1;
        if (wait_ms > SLICE_MS) wait_ms = SLICE_MS;
        m.wait_ms = (uint32_t)wait_ms;
    }
    l->flight = peer_call_start(x, &(struct peer_call){.method = "FetchExecutable",
                                                       .request = &m.base,
                                                       .wait_ms = wait_ms,
                                                       .max_bytes = r->cfg.max_bytes + REPLY_BYTES,
                                                       .done = on_peer,
                                                       .ctx = l});
}
static void peers_begin(struct look *l) {
    struct remotes *r = l->r;
    const struct peer_target t = {l->q.target_id, l->q.build_id, l->q.kernel_abi};
    l->n_order = peers_rank(r->peers, l->q.key, &t, l->q.serves, l->order, ASKED);
    for (size_t k = 0; k < l->n_order; k++)
        peer_ref(l->order[k]);
    l->phase = CLAIMING;
    l->until_ns = clock_ns() + clock_of_ms((double)r->cfg.wait_ms);
}
static void peers_step(struct look *l) {
    bool claims = l->phase == CLAIMING && l->q.claim;
    if (l->turn == l->n_order) {
        struct remote *x = remote_of(l);
        x->n.misses++;
        answered(l, "miss", l->n_order ? "" : "no server that is up serves the target");
    } else if (claims && l->told_waits && clock_ns() >= l->until_ns)
        answered(l, "waited", "another server did not bring it in time");
    else if (l->order[l->turn])
        ask_peer(l, l->order[l->turn]);
    else if (claims)
        claim_here(l);
    else {
        l->turn++;
        peers_step(l);
    }
}

// ---- in turn

static void step(struct look *l) {
    if (l->at == l->r->n) {
        finish(l, "", false);
        return;
    }
    l->begun_ns = clock_ns();
    if (!remote_of(l)->is_peers) {
        object_step(l);
        return;
    }
    peers_begin(l);
    peers_step(l);
}

// ---- afterwards

static void settle(struct remotes *r, struct digest key, bool made, bool to_all) {
    struct held *h = smap_del(&r->held, (struct str){(const char *)key.b, sizeof key.b});
    struct peer *by = h ? h->by : NULL;
    if (h && !by) claims_end(&r->claims, key, peers_life(r->peers));
    if (made && (by || to_all) && remotes_may_give(r))
        puts_add(r->puts, key, by, to_all);
    else if (by)
        puts_release(r->puts, key, by);
    peer_unref(by);
    free(h);
}
void remotes_made(struct remotes *r, struct digest key) {
    settle(r, key, true, true);
}
void remotes_given_up(struct remotes *r, struct digest key) {
    settle(r, key, false, false);
}
