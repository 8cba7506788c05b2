// SPDX-License-Identifier: Apache-2.0
#include "scheduler/queue/history.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct run {
    double ns; // lately; of a target: for a unit of size
    int64_t n;
    char key[];
};

void history_init(struct history *h) {
    smap_seed_random(&h->runs);
    smap_seed_random(&h->works);
    smap_seed_random(&h->targets);
}
static void clear(struct smap *m) {
    struct str k;
    void *v;
    for (size_t i = 0; smap_next(m, &i, &k, &v);)
        free(v);
    smap_done(m);
    smap_seed_random(m);
}
void history_done(struct history *h) {
    struct smap *const all[] = {&h->runs, &h->works, &h->targets};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        clear(all[i]);
        smap_done(all[i]);
    }
}

static const char *key_of_run(struct digest work, const char *target, char out[400]) {
    digest_hex(work, out);
    snprintf(out + 64, 400 - 64, " %.300s", target);
    return out;
}
static const struct run *get(const struct smap *m, const char *key) {
    return smap_get(m, str_of(key));
}
// The last ones count most.
static void note(struct smap *m, const char *key, double ns) {
    struct run *r = smap_get(m, str_of(key));
    if (!r) {
        if (m->n >= HISTORY_MAX) clear(m); // learnt again soon
        r = calloc(1, sizeof *r + strlen(key) + 1);
        if (!r) return;
        memcpy(r->key, key, strlen(key) + 1);
        smap_put(m, str_of(r->key), r);
    }
    r->ns = r->n++ ? r->ns + (ns - r->ns) / 4 : ns;
}

void history_note(struct history *h, struct digest work, const char *target, int64_t ns,
                  int64_t size) {
    char key[400];
    if (ns <= 0) return;
    note(&h->runs, key_of_run(work, target, key), (double)ns);
    if (size <= 0) return;
    note(&h->works, key_of_run(work, "", key), (double)size);
    note(&h->targets, target, (double)ns / (double)size);
}

int history_choose(const struct history *h, struct digest work, const struct history_candidate *c,
                   int n, enum history_why *why) {
    char key[400];
    const struct run *size = get(&h->works, key_of_run(work, "", key));
    int64_t most = 0; // runs of this work on one target
    int best = 0;
    double best_ns = -1;
    *why = HISTORY_FIRST;
    for (int i = 0; i < n; i++) {
        const struct run *r = get(&h->runs, key_of_run(work, c[i].target, key)),
                         *speed = get(&h->targets, c[i].target);
        double ns = r ? r->ns : size && speed ? size->ns * speed->ns : -1;
        if (r && r->n > most) most = r->n;
        if (ns < 0) continue;
        ns *= 1 + c[i].calls;
        if (best_ns >= 0 && ns >= best_ns) continue;
        best_ns = ns;
        best = i;
        *why = r ? HISTORY_MEASURED : HISTORY_PLANNED;
    }
    for (int i = 0; i < n && most >= HISTORY_LEARN_RUNS; i++) {
        if (c[i].calls || get(&h->targets, c[i].target)) continue;
        *why = HISTORY_TRIED;
        return i;
    }
    return best;
}

const char *history_why_name(enum history_why why) {
    static const char *const names[] = {"first", "measured", "planned", "tried"};
    return names[why];
}
