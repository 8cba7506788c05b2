// SPDX-License-Identifier: Apache-2.0
// map: two open-addressing hash maps. smap: text or bytes -> pointer (keys copied into the map,
// unless it borrows them).
// pmap: 64-bit integer or pointer -> pointer. Malloc-backed; x_done frees. Iteration order is
// unspecified but the same for the same insertions (hash seed is fixed per process kind; see
// smap_seed for maps keyed by outside text). NULL values are allowed: use _has to tell absence.
#pragma once
#include "base/span.h"

struct smap {
    struct smap_slot *slots;
    size_t n, cap;
    uint64_t seed;
    bool borrows; // set before the first put: keys stay the caller's, and must outlive the map
}; // zero-initialise
struct pmap {
    struct pmap_slot *slots;
    size_t n, cap;
}; // zero-initialise
struct smap_slot {
    char *key;
    uint32_t key_n;
    uint32_t used;
    uint64_t hash;
    void *val;
};
struct pmap_slot {
    uint64_t key;
    uint32_t used;
    uint32_t pad;
    void *val;
};

void smap_done(struct smap *m);
void smap_seed_random(struct smap *m); // for keys chosen by clients; call before the first put
void *smap_put(struct smap *m, struct str key, void *val); // returns the old value or NULL
void *smap_get(const struct smap *m, struct str key);      // NULL if absent
bool smap_has(const struct smap *m, struct str key);
void *smap_del(struct smap *m, struct str key); // returns the removed value or NULL

void pmap_done(struct pmap *m);
void *pmap_put(struct pmap *m, uint64_t key, void *val);
void *pmap_get(const struct pmap *m, uint64_t key);
bool pmap_has(const struct pmap *m, uint64_t key);
void *pmap_del(struct pmap *m, uint64_t key);
static inline void *pmap_put_ptr(struct pmap *m, const void *key, void *val) {
    return pmap_put(m, (uint64_t)(uintptr_t)key, val);
}
static inline void *pmap_get_ptr(const struct pmap *m, const void *key) {
    return pmap_get(m, (uint64_t)(uintptr_t)key);
}
static inline bool pmap_has_ptr(const struct pmap *m, const void *key) {
    return pmap_has(m, (uint64_t)(uintptr_t)key);
}

// for (size_t i = 0; smap_next(m, &i, &key, &val);) { ... }   The map must not change meanwhile.
bool smap_next(const struct smap *m, size_t *i, struct str *key, void **val);
