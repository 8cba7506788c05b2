// SPDX-License-Identifier: Apache-2.0
// The remotes' life.
#include "scheduler/remote/remotes.h"

#include <stdlib.h>

#include "base/clock.h"
#include "scheduler/loop.h"
#include "scheduler/remote/remotes_inside.h"

static void peer_left(void *ctx, const char *life) {
    struct remotes *r = ctx;
    claims_end_of(&r->claims, life);
}
static void add_remotes(struct remotes *r) {
    bool peers = false;
    r->v = arena_must_calloc(r->cfg.n_specs + 1, sizeof *r->v);
    for (size_t k = 0; k < r->cfg.n_specs; k++) {
        const struct remote_spec *s = &r->cfg.specs[k];
        bool is_peer = s->kind == REMOTE_PEER || s->kind == REMOTE_DNS;
        if (is_peer && peers) continue;
        peers = peers || is_peer;
        r->v[r->n++] = (struct remote){
            .all = r, .index = k, .is_peers = is_peer, .name = is_peer ? "peers" : s->name};
    }
    if (!peers) return;
    struct peers_config pc = {.loop = r->loop,
                              .fetcher = r->fetcher,
                              .specs = r->cfg.specs,
                              .n_specs = r->cfg.n_specs,
                              .node = r->cfg.node,
                              .connect_ms = r->cfg.connect_ms,
                              .total_ms = r->cfg.total_ms,
                              .gone = peer_left,
                              .ctx = r};
    r->peers = peers_new(&pc);
}
status_t remotes_new(struct loop *l, struct store *store, struct journal *journal,
                     const struct remotes_config *cfg, struct trust *trust, struct remotes **out) {
    struct fetcher *f;
    RETURN_IF_ERR(fetcher_new(l, &f));
    struct remotes *r = arena_must_calloc(1, sizeof *r);
    r->loop = l;
    r->store = store;
    r->journal = journal;
    r->trust = trust_ref(trust);
    r->cfg = *cfg;
    r->fetcher = f;
    claims_init(&r->claims);
    smap_seed_random(&r->held);
    r->tick = loop_timer_new(l, remotes_tick, r);
    r->puts = puts_new(r);
    add_remotes(r);
    *out = r;
    return ST_OK;
}
void remotes_stop(struct remotes *r) {
    if (!r) return;
    r->stopping = true;
    loop_timer_free(r->tick);
    r->tick = NULL;
    looks_stop(r);
    puts_stop(r->puts);
    peers_stop(r->peers);
    fetcher_stop(r->fetcher);
}
void remotes_quiesce(struct remotes *r) {
    claims_end_of(&r->claims, NULL);
}
void remotes_free(struct remotes *r) {
    if (!r) return;
    struct str k;
    void *v;
    for (size_t i = 0; smap_next(&r->held, &i, &k, &v);) {
        peer_unref(((struct held *)v)->by);
        free(v);
    }
    smap_done(&r->held);
    claims_done(&r->claims);
    puts_free(r->puts);
    peers_free(r->peers);
    fetcher_free(r->fetcher);
    remote_secrets_free(r->secrets);
    trust_unref(r->trust);
    free(r->v);
    free(r);
}
void remotes_set_trust(struct remotes *r, struct trust *t) {
    trust_ref(t);
    trust_unref(r->trust);
    r->trust = t;
}
void remotes_set_secrets(struct remotes *r, struct remote_secrets *x) {
    remote_secrets_free(r->secrets);
    r->secrets = x;
    if (r->peers) peers_set_auth(r->peers, x->peers);
}
bool remotes_may_give(const struct remotes *r) {
    return trust_signs(r->trust) || !trust_asks(r->trust);
}
int remotes_busy(const struct remotes *r) {
    return puts_busy(r->puts);
}
struct peers *remotes_peers(struct remotes *r) {
    return r->peers;
}

// ---- claims of peers

bool remotes_claim(struct remotes *r, struct digest key, const char *node, const char *life,
                   const char **out_node) {
    return claims_take(&r->claims, key, node, life, clock_ns(), clock_of_ms((double)r->cfg.wait_ms),
                       out_node);
}
void remotes_wait(struct remotes *r, struct digest key, struct claim_wait *w) {
    claims_wait(&r->claims, key, w);
}
void remotes_claim_ends(struct remotes *r, struct digest key, const char *life) {
    claims_end(&r->claims, key, life);
}
