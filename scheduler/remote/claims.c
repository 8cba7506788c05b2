// SPDX-License-Identifier: Apache-2.0
#include "scheduler/remote/claims.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

struct claim {
    struct digest key;
    char node[CLAIM_NAME], life[CLAIM_NAME];
    int64_t until_ns;
    struct claim *older, *newer;
    struct claim_wait *first;
};
static struct str name_of(const struct digest *key) {
    return (struct str){(const char *)key->b, sizeof key->b};
}
void claims_init(struct claims *c) {
    *c = (struct claims){0};
    smap_seed_random(&c->by_key);
}
static void end(struct claims *c, struct claim *x) {
    smap_del(&c->by_key, name_of(&x->key));
    *(x->older ? &x->older->newer : &c->oldest) = x->newer;
    *(x->newer ? &x->newer->older : &c->newest) = x->older;
    while (x->first) { // who is told may ask again, and claim it
        struct claim_wait *w = x->first;
        claims_leave(w);
        w->ended(w->ctx);
    }
    free(x);
}
void claims_done(struct claims *c) {
    struct str key;
    void *v;
    for (size_t i = 0; smap_next(&c->by_key, &i, &key, &v);) {
        struct claim *x = v;
        while (x->first)
            claims_leave(x->first);
        free(x);
    }
    smap_done(&c->by_key);
}

static void end_those_over(struct claims *c, int64_t now_ns) {
    for (size_t most = c->by_key.n; most && c->oldest && now_ns >= c->oldest->until_ns; most--)
        end(c, c->oldest);
}
bool claims_take(struct claims *c, struct digest key, const char *node, const char *life,
                 int64_t now_ns, int64_t hold_ns, const char **out_node) {
    end_those_over(c, now_ns); // one who had waited may have the key now
    struct claim *x = smap_get(&c->by_key, name_of(&key));
    if (x && !strcmp(x->life, life)) return true;
    if (x) {
        *out_node = x->node;
        return false;
    }
    if (c->by_key.n >= CLAIMS_MAX) return true; // nobody remembers
    x = arena_must_calloc(1, sizeof *x);
    x->key = key;
    snprintf(x->node, sizeof x->node, "%s", node);
    snprintf(x->life, sizeof x->life, "%s", life);
    x->until_ns = now_ns + hold_ns;
    x->older = c->newest;
    *(x->older ? &x->older->newer : &c->oldest) = x;
    c->newest = x;
    smap_put(&c->by_key, name_of(&key), x);
    return true;
}
void claims_wait(struct claims *c, struct digest key, struct claim_wait *w) {
    struct claim *x = smap_get(&c->by_key, name_of(&key));
    w->claim = x;
    w->prev = NULL;
    w->next = x->first;
    if (x->first) x->first->prev = w;
    x->first = w;
}
void claims_leave(struct claim_wait *w) {
    if (!w->claim) return;
    *(w->prev ? &w->prev->next : &w->claim->first) = w->next;
    if (w->next) w->next->prev = w->prev;
    w->claim = NULL;
}
void claims_end(struct claims *c, struct digest key, const char *life) {
    struct claim *x = smap_get(&c->by_key, name_of(&key));
    if (x && (!life || !strcmp(x->life, life))) end(c, x);
}

// Ends one of those meant; false: there is none. The map may be another after each.
static bool end_one(struct claims *c, const char *life) {
    struct str key;
    void *v;
    for (size_t i = 0; smap_next(&c->by_key, &i, &key, &v);) {
        struct claim *x = v;
        if (life && strcmp(x->life, life) != 0) continue;
        end(c, x);
        return true;
    }
    return false;
}
void claims_end_of(struct claims *c, const char *life) {
    int most = life ? CLAIMS_MAX : (int)c->by_key.n; // who is told may claim again
    while (most-- > 0 && end_one(c, life)) {
    }
}
