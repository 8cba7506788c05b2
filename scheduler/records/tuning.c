// SPDX-License-Identifier: Apache-2.0
#include "scheduler/records/tuning.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/metrics.h"
#include "base/vec.h"
#include "proto/weigh.h"

enum { MOST = 4096 };

struct kept {
    struct digest key;
    int64_t mtime;
};
struct all {
    VEC(struct kept) v;
};
static void add(void *ctx, UNUSED enum store_kind kind, struct digest key, UNUSED int64_t bytes,
                int64_t mtime, UNUSED bool pinned) {
    struct all *a = ctx;
    vec_push(&a->v, ((struct kept){key, mtime}));
}
static int oldest_first(const void *a, const void *b) {
    const struct kept *x = a, *y = b;
    return x->mtime < y->mtime ? -1 : x->mtime > y->mtime;
}
static void trim(struct store *s) {
    struct all a = {0};
    st_drop(store_list(s, STORE_TUNING, add, &a));
    if (a.v.n > MOST) qsort(a.v.v, a.v.n, sizeof *a.v.v, oldest_first);
    for (size_t k = 0; k + MOST < a.v.n; k++)
        st_drop(store_remove(s, STORE_TUNING, a.v.v[k].key)); // gone already is as good
    vec_done(&a.v);
}

status_t tuning_keep(struct store *s, struct digest key, const Hlod__V1__Tuning *t) {
    size_t n = hlod__v1__tuning__get_packed_size(t);
    uint8_t *bytes = malloc(n + 1);
    if (!bytes) return st_oom();
    hlod__v1__tuning__pack(t, bytes);
    status_t st = store_put(s, STORE_TUNING, key, bytes, n, false);
    free(bytes);
    if (!st) trim(s);
    return st;
}

bool tuning_holds(const Hlod__V1__Tuning *t, const Hlod__V1__ExecutableInfo *x) {
    return strcmp(t->target_id, x->target_id) == 0 &&
           strcmp(t->content_digest, x->content_digest) == 0;
}
static void ignored(struct digest key, const char *why) {
    metric_add(M_TUNINGS_IGNORED, 1);
    log_event(LOG_WARN, "tuning.ignored", "key=%s why=\"%s\"", digest_to_hex(key).z, why);
}
Hlod__V1__Tuning *tuning_read(struct store *s, struct digest key,
                              const Hlod__V1__ExecutableInfo *x) {
    struct arena a = {0};
    struct span bytes;
    Hlod__V1__Tuning *t = NULL;
    status_t st = store_read(s, STORE_TUNING, key, &a, &bytes);
    if (!st) {
        t = weigh_unpack_or_null(&hlod__v1__tuning__descriptor, bytes);
        if (!t) ignored(key, "unreadable");
    } else if (st_code(st) != ST_NOT_FOUND)
        ignored(key, st_message(st));
    st_drop(st);
    arena_done(&a);
    if (!t || tuning_holds(t, x)) return t;
    ignored(key, "it is of another target, or of what the executable was");
    hlod__v1__tuning__free_unpacked(t, NULL);
    return NULL;
}
