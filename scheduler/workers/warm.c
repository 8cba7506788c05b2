// SPDX-License-Identifier: Apache-2.0
#include "scheduler/workers/warm.h"

#include "base/vec.h"

struct pair {
    struct digest key, weights;
};
static struct str pair_str(const struct pair *p, bool prepared) {
    return (struct str){(const char *)p, prepared ? sizeof *p : sizeof p->key};
}

void warm_init(struct warm *w) {
    *w = (struct warm){0};
    smap_seed_random(&w->held);
}
void warm_done(struct warm *w) {
    smap_done(&w->held);
    warm_init(w);
}
void warm_add_executable(struct warm *w, struct digest key) {
    struct pair p = {.key = key};
    smap_put(&w->held, pair_str(&p, false), NULL);
}
void warm_add_prepared(struct warm *w, struct digest key, struct digest weights) {
    struct pair p = {key, weights};
    smap_put(&w->held, pair_str(&p, true), NULL);
}
bool warm_has_executable(const struct warm *w, struct digest key) {
    struct pair p = {.key = key};
    return smap_has(&w->held, pair_str(&p, false));
}
bool warm_has_prepared(const struct warm *w, struct digest key, struct digest weights) {
    struct pair p = {key, weights};
    return smap_has(&w->held, pair_str(&p, true));
}
void warm_forget(struct warm *w, struct digest key) {
    VEC(struct pair) gone = {0};
    struct str k;
    void *v;
    for (size_t i = 0; smap_next(&w->held, &i, &k, &v);) {
        struct pair p = {0};
        memcpy(&p, k.p, k.n);
        if (k.n == sizeof p && digest_eq(p.key, key)) vec_push(&gone, p);
    }
    for (size_t i = 0; i < gone.n; i++)
        smap_del(&w->held, pair_str(&gone.v[i], true));
    vec_done(&gone);
    struct pair p = {.key = key};
    smap_del(&w->held, pair_str(&p, false));
}
