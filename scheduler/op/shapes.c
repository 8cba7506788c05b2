// SPDX-License-Identifier: Apache-2.0
// The journal knows when an executable was last looked up on disk; one that memory holds is hotter
// than any that it does not, and memory counts each use.
#include "scheduler/op/shapes.h"

#include <stdlib.h>

#include "base/log.h"
#include "base/metrics.h"
#include "base/store/store.h"
#include "scheduler/loop.h"
#include "scheduler/records/journal.h"
#include "scheduler/sched_inside.h"

struct candidate {
    struct digest key;
    bool in_memory, last; // last: another's, too, of an owner who has enough
    int64_t used, bytes;
};
static int colder_first(const void *a, const void *b) {
    const struct candidate *x = a, *y = b;
    if (x->last != y->last) return x->last - y->last;
    if (x->in_memory != y->in_memory) return x->in_memory - y->in_memory;
    return x->used < y->used ? -1 : x->used > y->used;
}

struct removal {
    struct sched *s;
    size_t n;
    struct digest keys[];
};
static void remove_work(void *arg) {
    struct removal *r = arg;
    for (size_t i = 0; i < r->n; i++) { // a leftover does no harm: it is found again next time
        st_drop(store_remove(r->s->store, STORE_EXECUTABLE, r->keys[i]));
        st_drop(journal_remove(r->s->journal, JOURNAL_EXECUTABLE, r->keys[i]));
    }
}
static void removed(void *arg) {
    free(arg);
}

static void others_last(const struct sched *s, const char *owner, struct candidate *v, size_t n) {
    size_t theirs = 0;
    struct digest source;
    for (size_t i = 0; i < n; i++) {
        int own = owner && owners_knows(s->owners, owner, v[i].key, &source);
        v[i].last = owner && owners_count(s->owners, v[i].key) > own;
        theirs += v[i].last;
    }
    for (size_t i = 0; i < n && theirs > n - theirs; i++)
        v[i].last = false;
}

// How many there are, by the option, and how large, so that one program leaves most of the cache to
// others. What it is made of is told apart by size: a large one pushes out what it takes itself,
// not as many small ones as if these were as large.
struct extent {
    size_t n;
    int64_t bytes;
};
static bool too_much(const struct sched *s, struct extent e) {
    enum { PART = 4, LEAST = 32 };
    size_t max = (size_t)s->cfg.max_shapes;
    int64_t budget = s->cfg.cache_budget_bytes;
    return max && (e.n > max || (budget && e.n > LEAST && e.bytes > budget / PART));
}

void shapes_trim(struct sched *s, const char *owner, struct digest just_made,
                 const struct shape_use *all, size_t n) {
    struct extent now = {.n = n};
    size_t n_cold = 0;
    for (size_t i = 0; i < n; i++)
        now.bytes += all[i].bytes;
    if (!too_much(s, now)) return;
    struct candidate *cold = calloc(n, sizeof *cold);
    struct removal *r = calloc(1, sizeof *r + n * sizeof *r->keys);
    if (!cold || !r) abort();

    for (size_t i = 0; i < n; i++) {
        const struct exe *e = smap_get(&s->exes, digest_str(&all[i].key));
        if (digest_eq(all[i].key, just_made) || (e && e->record.refs > 1) ||
            store_pinned(s->store, STORE_EXECUTABLE, all[i].key))
            continue;
        cold[n_cold++] = (struct candidate){all[i].key, e != NULL, false,
                                            e ? e->record.used : all[i].used_ns, all[i].bytes};
    }
    others_last(s, owner, cold, n_cold);
    if (n_cold) qsort(cold, n_cold, sizeof *cold, colder_first);
    r->s = s;

    for (; r->n < n_cold && too_much(s, now); r->n++) {
        now.n--;
        now.bytes -= cold[r->n].bytes;
        r->keys[r->n] = cold[r->n].key;
        sched_forget_executable(s, cold[r->n].key);
        log_event(LOG_INFO, "shape.evicted", "key=%s", digest_to_hex(cold[r->n].key).z);
        metric_add(M_SHAPES_EVICTED, 1);
    }
    free(cold);
    loop_work(s->loop, remove_work, removed, r);
}
