// SPDX-License-Identifier: Apache-2.0
// The table of peers, and how each is kept in view:
//
//   address known -> GetPeer -> up: again after 5 s; ours: that is ourselves
//                            -> failed three times (breaker.h): down, asked again by its pauses
//   name -> pool: its addresses -> new ones join, those that are gone leave
#include "scheduler/remote/peers.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "base/text.h"
#include "base/vec.h"
#include "proto/message.h"
#include "proto/weigh.h"
#include "scheduler/loop.h"
#include "scheduler/remote/breaker.h"
#include "scheduler/remote/rendezvous.h"

enum { PEERS_MAX = RENDEZVOUS_MAX, TARGETS_MAX = 64, ADDRESS = 64 };
enum { TICK_MS = 1000, MAX_REPLY = 1 << 20 };
static const int64_t ASK_NS = 5000000000, RESOLVE_NS = 5000000000;

struct peer {
    int refs;
    struct peers *all;
    const struct remote_spec *spec;
    char address[ADDRESS]; // HOST:PORT, as it is connected to
    bool listed;           // in the table; else it is gone, and only held
    struct breaker breaker;
    struct peer_flight *asking;
    int64_t asked_ns;
    bool known, self;
    char node[PEER_NAME_MAX + 1], life[PEER_NAME_MAX + 1], why[160];
    struct arena arena; // targets'
    struct peer_target *targets;
    size_t n_targets;
};
struct resolve { // of one name, on the pool
    struct peers *all;
    const struct remote_spec *spec;
    int64_t asked_ns;
    bool under_way;
    struct { // what it gave
        char v[PEERS_MAX][ADDRESS];
        size_t n;
        char why[100];
    } found;
};
struct peers {
    struct peers_config cfg;
    char life[17];
    struct fetch_auth *auth;
    VEC(struct peer *) v;
    struct resolve *names;
    size_t n_names;
    struct loop_timer *tick;
    bool stopping;
};

struct peer *peer_ref(struct peer *x) {
    if (x) x->refs++;
    return x;
}
struct peer *peer_unref(struct peer *x) {
    if (!x || --x->refs) return NULL;
    arena_done(&x->arena);
    free(x);
    return NULL;
}
bool peer_name_fits(const char *name) {
    size_t n = strnlen(name, PEER_NAME_MAX + 1);
    for (const char *p = name; n && *p; p++)
        if (!isalnum((unsigned char)*p) && !strchr("._-", *p)) return false;
    return n > 0 && n <= PEER_NAME_MAX;
}
const char *peer_name(const struct peer *x) {
    return *x->node ? x->node : x->address;
}
const char *peers_node(const struct peers *p) {
    return p->cfg.node;
}
const char *peers_life(const struct peers *p) {
    return p->life;
}
static bool is_up(const struct peer *x) {
    return x->listed && x->known && !x->self && !breaker_down(&x->breaker);
}

// ---- calls

struct peer_flight {
    struct peer *peer;
    struct peer_call c;
    struct fetch *fetch;
    struct arena arena;
};
static void free_flight(void *arg) {
    struct peer_flight *f = arg;
    if (f->c.body.free) f->c.body.free(f->c.body.owner);
    peer_unref(f->peer);
    arena_done(&f->arena);
    free(f);
}
static void left(struct peer *x) {
    if (*x->life && !x->self) x->all->cfg.gone(x->all->cfg.ctx, x->life);
}
static void failed(struct peer *x, const char *why, int64_t retry_after_ms, bool sure) {
    bool was = breaker_down(&x->breaker);
    struct strbuf b = strbuf_over(x->why, sizeof x->why);
    text_show(&b, str_of(why), ""); // may hold what the peer said
    breaker_failed(&x->breaker, clock_ns(), retry_after_ms, sure || !x->known);
    if (was || !breaker_down(&x->breaker)) return;
    log_event(LOG_WARN, "peer.down", "peer=%s address=%s why=\"%s\"", peer_name(x), x->address,
              x->why);
    left(x);
}
static void refused(struct peer *x, const struct fetch_reply *r) {
    char why[160];
    int n = (int)(r->body.n < 120 ? r->body.n : 120);
    snprintf(why, sizeof why, "HTTP %d: %.*s", r->code, n, n ? (const char *)r->body.p : "");
    failed(x, why, r->retry_after_ms, true);
}
// Any answer that is not about the peer's own state shows that it is well.
static void judge(struct peer *x, const struct fetch_reply *r) {
    if (r->st)
        failed(x, st_message(r->st), 0, false);
    else if (r->code == 401 || r->code == 403 || r->code >= 500)
        refused(x, r);
    else if (!breaker_down(&x->breaker))
        breaker_ok(&x->breaker);
}
static void on_peer(void *ctx, struct fetch_reply *r);
static void on_reply(void *ctx, struct fetch_reply *r) {
    struct peer_flight *f = ctx;
    if (f->c.done != on_peer) judge(f->peer, r);
    f->fetch = NULL;
    f->c.done(f->c.ctx, r);
}
struct peer_flight *peer_call_start(struct peer *x, const struct peer_call *c) {
    struct peer_flight *f = arena_must_calloc(1, sizeof *f);
    const struct peers_config *cfg = &x->all->cfg;
    const struct remote_spec *s = x->spec;
    f->peer = peer_ref(x);
    f->c = *c;
    static const char *const headers[] = {"Content-Type: application/x-protobuf",
                                          "Accept: application/x-protobuf", NULL};
    // free_flight: when nobody reads the request any more.
    struct fetch_request q = {
        .method = "POST",
        .url = arena_printf(&f->arena,
                            strchr(s->host, ':') ? "http%s://[%s]:%u/hlod.v1.Hlod/%s"
                                                 : "http%s://%s:%u/hlod.v1.Hlod/%s",
                            s->tls ? "s" : "", s->host, s->port, c->method),
        .address = s->kind == REMOTE_DNS ? x->address : NULL,
        .headers = headers,
        .body = {c->request ? message_pack(&f->arena, c->request) : c->body.bytes, free_flight, f},
        .auth = x->all->auth,
        .connect_ms = cfg->connect_ms,
        .total_ms = cfg->total_ms + c->wait_ms,
        .max_bytes = c->max_bytes};
    fetch_start(cfg->fetcher, &q, on_reply, f, &f->fetch);
    return f;
}
void peer_call_cancel(struct peer_flight *f) {
    if (f) fetch_cancel(f->fetch);
}

// ---- who they are

static void take_targets(struct peer *x, const Hlod__V1__Peer *m) {
    arena_reset(&x->arena);
    x->n_targets = 0;
    size_t n = m->n_targets < TARGETS_MAX ? m->n_targets : TARGETS_MAX;
    x->targets = arena_zarray(&x->arena, struct peer_target, n + 1);
    for (size_t k = 0; k < n; k++)
        x->targets[x->n_targets++] = (struct peer_target){
            arena_strdup(&x->arena, m->targets[k]->target_id),
            arena_strdup(&x->arena, m->targets[k]->build_id), m->targets[k]->kernel_abi};
}
static void met(struct peer *x, const Hlod__V1__Peer *m) {
    bool another = strcmp(x->life, m->life) != 0, down = breaker_down(&x->breaker);
    if (another) left(x); // whatever that process was doing
    snprintf(x->node, sizeof x->node, "%s", m->node);
    snprintf(x->life, sizeof x->life, "%s", m->life);
    x->self = !strcmp(m->life, x->all->life);
    take_targets(x, m);
    breaker_ok(&x->breaker);
    *x->why = 0;
    if ((!x->known || down) && !x->self)
        log_event(LOG_INFO, "peer.up", "peer=%s address=%s targets=%zu", x->node, x->address,
                  x->n_targets);
    x->known = true;
}
static void on_peer(void *ctx, struct fetch_reply *r) {
    struct peer *x = ctx;
    x->asking = NULL;
    if (r->st)
        failed(x, st_message(r->st), 0, false);
    else if (r->code != 200)
        refused(x, r);
    if (r->st || r->code != 200) return;
    Hlod__V1__Peer *m = weigh_unpack_or_null(&hlod__v1__peer__descriptor, r->body);
    bool fits = m && peer_name_fits(m->node) && peer_name_fits(m->life);
    if (fits)
        met(x, m);
    else
        failed(x, "it does not say who it is", 0, true);
    if (m) hlod__v1__peer__free_unpacked(m, NULL);
}
static void ask(struct peer *x) {
    Hlod__V1__GetPeerRequest m = HLOD__V1__GET_PEER_REQUEST__INIT;
    x->asked_ns = clock_ns();
    x->asking = peer_call_start(x, &(struct peer_call){.method = "GetPeer",
                                                       .request = &m.base,
                                                       .max_bytes = MAX_REPLY,
                                                       .done = on_peer,
                                                       .ctx = x});
}

// ---- the table

static void add(struct peers *p, const struct remote_spec *s, const char *address) {
    if (p->v.n == PEERS_MAX) return;
    struct peer *x = arena_must_calloc(1, sizeof *x);
    x->refs = 1;
    x->all = p;
    x->spec = s;
    x->listed = true;
    snprintf(x->address, sizeof x->address, "%s", address);
    vec_push(&p->v, x);
    ask(x);
}
static void drop(struct peers *p, size_t at) {
    struct peer *x = p->v.v[at];
    memmove(p->v.v + at, p->v.v + at + 1, (--p->v.n - at) * sizeof *p->v.v);
    x->listed = false;
    peer_call_cancel(x->asking);
    left(x);
    log_event(LOG_INFO, "peer.gone", "peer=%s address=%s", peer_name(x), x->address);
    peer_unref(x);
}

static void resolve_work(void *arg) {
    struct resolve *r = arg;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *all;
    char port[8];
    snprintf(port, sizeof port, "%u", r->spec->port);
    r->found.n = 0;
    *r->found.why = 0;
    int rc = getaddrinfo(r->spec->host, port, &hints, &all);
    if (rc) {
        snprintf(r->found.why, sizeof r->found.why, "%s", gai_strerror(rc));
        return;
    }
    for (const struct addrinfo *i = all; i && r->found.n < PEERS_MAX; i = i->ai_next) {
        char host[48];
        if (getnameinfo(i->ai_addr, i->ai_addrlen, host, sizeof host, NULL, 0, NI_NUMERICHOST))
            continue;
        snprintf(r->found.v[r->found.n++], ADDRESS, strchr(host, ':') ? "[%s]:%u" : "%s:%u", host,
                 r->spec->port);
    }
    freeaddrinfo(all);
}
static void resolved(void *arg) {
    struct resolve *r = arg;
    struct peers *p = r->all;
    r->under_way = false;
    if (p->stopping) return;
    if (*r->found.why) { // those that are known stay
        log_event(LOG_WARN, "peer.name", "name=%s why=\"%s\"", r->spec->host, r->found.why);
        return;
    }
    for (size_t k = p->v.n; k-- > 0;) {
        bool still = p->v.v[k]->spec != r->spec;
        for (size_t i = 0; i < r->found.n; i++)
            still = still || !strcmp(p->v.v[k]->address, r->found.v[i]);
        if (!still) drop(p, k);
    }
    for (size_t i = 0; i < r->found.n; i++) {
        bool there = false;
        for (size_t k = 0; k < p->v.n; k++)
            there =
                there || (p->v.v[k]->spec == r->spec && !strcmp(p->v.v[k]->address, r->found.v[i]));
        if (!there) add(p, r->spec, r->found.v[i]);
    }
}

static void on_tick(void *arg) {
    struct peers *p = arg;
    int64_t now = clock_ns();
    for (size_t k = 0; k < p->n_names; k++) {
        struct resolve *r = &p->names[k];
        if (r->under_way || (r->asked_ns && now - r->asked_ns < RESOLVE_NS)) continue;
        r->asked_ns = now;
        r->under_way = true;
        loop_work(p->cfg.loop, resolve_work, resolved, r);
    }
    for (size_t k = 0; k < p->v.n; k++) {
        struct peer *x = p->v.v[k];
        if (x->asking) continue;
        bool down = breaker_down(&x->breaker);
        if (down ? breaker_probe(&x->breaker, now) : now - x->asked_ns >= ASK_NS) ask(x);
    }
    loop_timer_start(p->tick, TICK_MS);
}

// ---- life

struct peers *peers_new(const struct peers_config *cfg) {
    struct peers *p = arena_must_calloc(1, sizeof *p);
    uint8_t drawn[8];
    p->cfg = *cfg;
    if (getrandom(drawn, sizeof drawn, 0) != sizeof drawn) abort();
    str_put_hex(p->life, drawn, sizeof drawn);
    p->names = arena_must_calloc(cfg->n_specs + 1, sizeof *p->names);
    for (size_t k = 0; k < cfg->n_specs; k++) {
        const struct remote_spec *s = &cfg->specs[k];
        if (s->kind == REMOTE_DNS) p->names[p->n_names++] = (struct resolve){.all = p, .spec = s};
    }
    p->tick = loop_timer_new(cfg->loop, on_tick, p);
    return p;
}
// The first call starts to ask: with credentials.
void peers_set_auth(struct peers *p, struct fetch_auth *auth) {
    bool first = !p->auth && !p->v.n;
    fetch_auth_ref(auth);
    fetch_auth_unref(p->auth);
    p->auth = auth;
    for (size_t k = 0; first && k < p->cfg.n_specs; k++) {
        const struct remote_spec *s = &p->cfg.specs[k];
        char address[ADDRESS];
        snprintf(address, sizeof address, "%.50s:%u", s->host, s->port);
        if (s->kind == REMOTE_PEER) add(p, s, address);
    }
    if (p->tick) loop_timer_start(p->tick, 0);
}
void peers_stop(struct peers *p) {
    if (!p) return;
    p->stopping = true;
    loop_timer_free(p->tick);
    p->tick = NULL;
    for (size_t k = 0; k < p->v.n; k++)
        peer_call_cancel(p->v.v[k]->asking);
}
void peers_free(struct peers *p) {
    if (!p) return;
    for (size_t k = 0; k < p->v.n; k++)
        peer_unref(p->v.v[k]);
    vec_done(&p->v);
    fetch_auth_unref(p->auth);
    free(p->names);
    free(p);
}

// ---- choice

static bool serves(const struct peer *x, const struct peer_target *t) {
    for (size_t k = 0; k < x->n_targets; k++)
        if (x->targets[k].kernel_abi == t->kernel_abi &&
            !strcmp(x->targets[k].build_id, t->build_id) &&
            !strcmp(x->targets[k].target_id, t->target_id))
            return true;
    return false;
}
size_t peers_rank(const struct peers *p, struct digest key, const struct peer_target *t, bool self,
                  struct peer **out, size_t most) {
    struct peer *all[RENDEZVOUS_MAX];
    const char *names[RENDEZVOUS_MAX];
    size_t n = 0, order[RENDEZVOUS_MAX];
    if (self) {
        names[n] = p->cfg.node;
        all[n++] = NULL;
    }
    for (size_t k = 0; k < p->v.n && n < RENDEZVOUS_MAX; k++) {
        struct peer *x = p->v.v[k];
        if (!is_up(x) || !serves(x, t)) continue;
        names[n] = x->node;
        all[n++] = x;
    }
    n = rendezvous(key, names, n, order, most);
    for (size_t k = 0; k < n; k++)
        out[k] = all[order[k]];
    return n;
}

void peers_describe(const struct peers *p, struct arena *a, Hlod__V1__RemoteState *out) {
    out->peers = arena_zarray(a, Hlod__V1__PeerState *, p->v.n + 1);
    for (size_t k = 0; k < p->v.n; k++) {
        const struct peer *x = p->v.v[k];
        Hlod__V1__PeerState *m = message_new(a, &hlod__v1__peer_state__descriptor);
        m->address = arena_strdup(a, x->address);
        m->node = arena_strdup(a, x->node);
        m->state = (char *)(x->self ? "self" : is_up(x) ? "up" : "down");
        m->why = arena_strdup(a, x->why);
        m->targets = (int32_t)x->n_targets;
        out->peers[out->n_peers++] = m;
    }
}
