// SPDX-License-Identifier: Apache-2.0
// Two generations: what is used moves to the young one; when that is full it becomes the old one,
// and what was old is freed.
#include "compiler/codegen/code_cache.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/map.h"

enum { GENERATION_BYTES = 24 << 20 };

struct object {
    size_t n;
    uint8_t bytes[];
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct smap young, old;
static size_t young_bytes;

static struct str key_text(const struct digest *key) {
    return (struct str){(const char *)key->b, sizeof key->b};
}

static void retire(void) {
    struct str key;
    void *o;
    for (size_t i = 0; smap_next(&old, &i, &key, &o);)
        free(o);
    smap_done(&old);
    old = young;
    young = (struct smap){0};
    young_bytes = 0;
}

static void add(const struct digest *key, struct object *o) {
    if (young_bytes + o->n > GENERATION_BYTES) retire();
    young_bytes += o->n;
    free(smap_put(&young, key_text(key), o));
}

struct span code_cache_get(struct arena *a, struct digest key) {
    struct span found = {NULL, 0};
    pthread_mutex_lock(&lock);
    struct object *o = smap_get(&young, key_text(&key));
    if (!o && (o = smap_del(&old, key_text(&key)))) add(&key, o);
    if (o) found = (struct span){arena_dup(a, o->bytes, o->n), o->n};
    pthread_mutex_unlock(&lock);
    return found;
}

void code_cache_put(struct digest key, struct span object) {
    struct object *o = malloc(sizeof *o + object.n);
    if (!o) return;
    o->n = object.n;
    memcpy(o->bytes, object.p, object.n);
    pthread_mutex_lock(&lock);
    add(&key, o);
    pthread_mutex_unlock(&lock);
}
