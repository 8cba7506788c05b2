// SPDX-License-Identifier: Apache-2.0
#include "scheduler/cluster/nodes.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

static const int64_t KEEP_NS = 600000000000; // one that was lost or is gone is still listed

static void drop(struct node *x) {
    arena_free(x->arena);
    free(x);
}
// The place of a name: where it is, or would be.
static size_t place(const struct nodes *t, const char *name, bool *out_there) {
    size_t low = 0, high = t->v.n;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (strcmp(t->v.v[mid]->m->node, name) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    *out_there = low < t->v.n && !strcmp(t->v.v[low]->m->node, name);
    return low;
}
static void take_out(struct nodes *t, size_t at) {
    drop(t->v.v[at]);
    memmove(t->v.v + at, t->v.v + at + 1, (--t->v.n - at) * sizeof *t->v.v);
}
const struct node *nodes_find(const struct nodes *t, const char *name) {
    bool there;
    size_t at = place(t, name, &there);
    return there ? t->v.v[at] : NULL;
}
void nodes_ended(const struct nodes *t, const char *name, const char *life) {
    bool there;
    size_t at = place(t, name, &there);
    if (there && !strcmp(t->v.v[at]->m->life, life)) t->v.v[at]->sent--;
}
void nodes_shun(const struct nodes *t, const char *name, int64_t until_ns) {
    bool there;
    size_t at = place(t, name, &there);
    if (there) t->v.v[at]->shun_ns = until_ns;
}
// Room for one more: of those that are not there any more the one not heard for longest leaves.
static bool make_room(struct nodes *t) {
    size_t out = t->v.n;
    if (t->v.n < NODES_MAX) return true;
    for (size_t k = 0; k < t->v.n; k++) {
        const struct node *x = t->v.v[k];
        if ((x->lost || x->gone) && (out == t->v.n || x->heard_ns < t->v.v[out]->heard_ns)) out = k;
    }
    if (out == t->v.n) return false;
    take_out(t, out);
    return true;
}
static enum nodes_news add(struct nodes *t, struct arena *a, const Hlod__V1__Node *m,
                           int64_t now_ns) {
    bool there;
    if (!strcmp(m->state, "gone")) {
        arena_free(a);
        return NODES_STRANGER;
    }
    if (!make_room(t)) {
        arena_free(a);
        return NODES_FULL;
    }
    size_t at = place(t, m->node, &there);
    struct node *x = arena_must_calloc(1, sizeof *x);
    *x = (struct node){.arena = a, .m = m, .heard_ns = now_ns};
    vec_push(&t->v, x);
    memmove(t->v.v + at + 1, t->v.v + at, (t->v.n - 1 - at) * sizeof *t->v.v);
    t->v.v[at] = x;
    return NODES_NEW;
}
enum nodes_news nodes_hear(struct nodes *t, struct arena *a, const Hlod__V1__Node *m,
                           int64_t now_ns) {
    bool there, gone = !strcmp(m->state, "gone");
    size_t at = place(t, m->node, &there);
    if (!there) return add(t, a, m, now_ns);
    struct node *x = t->v.v[at];
    bool another = strcmp(x->m->life, m->life) != 0;
    if (another && gone) {
        arena_free(a);
        return NODES_STRANGER;
    }

    enum nodes_news news = another || x->gone              ? NODES_NEW
                           : x->lost                       ? NODES_BACK
                           : strcmp(x->m->state, m->state) ? NODES_STATE
                                                           : NODES_SAME;
    arena_free(x->arena);
    *x = (struct node){
        .arena = a, .m = m, .heard_ns = now_ns, .shun_ns = another ? 0 : x->shun_ns, .gone = gone};
    return gone ? NODES_GONE : news;
}

void nodes_age(struct nodes *t, int64_t now_ns, void (*lost)(void *ctx, const struct node *x),
               void *ctx) {
    for (size_t k = t->v.n; k-- > 0;) {
        struct node *x = t->v.v[k];
        int64_t quiet_ns = now_ns - x->heard_ns;
        if ((x->lost || x->gone) && quiet_ns > KEEP_NS) {
            take_out(t, k);
        } else if (!x->lost && !x->gone && quiet_ns > NODES_BEATS * CLOCK_MS * x->m->beat_ms) {
            x->lost = true;
            lost(ctx, x);
        }
    }
}
void nodes_excuse(struct nodes *t, int64_t now_ns) {
    for (size_t k = 0; k < t->v.n; k++)
        if (!t->v.v[k]->lost && !t->v.v[k]->gone) t->v.v[k]->heard_ns = now_ns;
}
const char *node_state(const struct node *x) {
    return x->lost ? "lost" : x->m->incompatible && !x->gone ? "incompatible" : x->m->state;
}
void nodes_done(struct nodes *t) {
    for (size_t k = 0; k < t->v.n; k++)
        drop(t->v.v[k]);
    vec_done(&t->v);
}
