// SPDX-License-Identifier: Apache-2.0
#include "scheduler/workers/blame.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void blames_done(struct blames *b) {
    vec_done(&b->rows);
}

static bool forgotten(const struct blame *x, int64_t now_ns) {
    int64_t from = x->until_ns > x->last_ns ? x->until_ns : x->last_ns;
    return now_ns - from > BLAME_FORGET_NS;
}
static void drop(struct blames *b, size_t i) {
    memmove(b->rows.v + i, b->rows.v + i + 1, (--b->rows.n - i) * sizeof *b->rows.v);
}
static struct blame *find(const struct blames *b, const struct charge *of) {
    for (size_t i = 0; i < b->rows.n; i++) {
        struct blame *x = &b->rows.v[i];
        if (digest_eq(x->of.work, of->work) && !strcmp(x->of.step, of->step) &&
            !strcmp(x->of.tenant, of->tenant))
            return x;
    }
    return NULL;
}

// The rows lie by the time of their last death.
const struct blame *blames_add(struct blames *b, const struct charge *of, const char *why,
                               int64_t now_ns) {
    struct blame *old = find(b, of), x = {.of = *of};
    if (old) {
        if (!forgotten(old, now_ns)) x.deaths = old->deaths;
        drop(b, (size_t)(old - b->rows.v));
    }
    while (b->rows.n && (b->rows.n >= BLAME_MAX || forgotten(&b->rows.v[0], now_ns)))
        drop(b, 0);
    x.last_ns = now_ns;
    snprintf(x.why, sizeof x.why, "%s", why);
    if (++x.deaths >= BLAME_DEATHS) {
        int more = x.deaths - BLAME_DEATHS;
        int64_t aside = BLAME_FIRST_NS << (more < 8 ? more : 8);
        x.until_ns = now_ns + (aside < BLAME_MOST_NS ? aside : BLAME_MOST_NS);
    }
    vec_push(&b->rows, x);
    return &b->rows.v[b->rows.n - 1];
}

const struct blame *blames_find(const struct blames *b, const struct charge *of, int64_t now_ns) {
    const struct blame *x = b->rows.n ? find(b, of) : NULL;
    return x && x->until_ns > now_ns ? x : NULL;
}

int blames_lift(struct blames *b, const struct digest *work, int64_t now_ns) {
    int n = 0;
    for (size_t i = b->rows.n; i-- > 0;) {
        const struct blame *x = &b->rows.v[i];
        if (x->until_ns <= now_ns || (work && !digest_eq(x->of.work, *work))) continue;
        drop(b, i);
        n++;
    }
    return n;
}
