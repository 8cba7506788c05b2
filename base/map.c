// SPDX-License-Identifier: Apache-2.0
// Linear probing at a load of at most 3/4; deletion shifts the following run back: no tombstones.
#include "base/map.h"

#include <stdlib.h>
#include <sys/random.h>

#include "base/arena.h"
#include "base/hash.h"

// ---- text keys

static size_t smap_find(const struct smap *m, struct str key, uint64_t h) {
    size_t mask = m->cap - 1, i = h & mask;
    while (m->slots[i].used) {
        const struct smap_slot *s = &m->slots[i];
        if (s->hash == h && s->key_n == key.n && (key.n == 0 || memcmp(s->key, key.p, key.n) == 0))
            break;
        i = (i + 1) & mask;
    }
    return i;
}

static void smap_grow(struct smap *m) {
    size_t old_cap = m->cap;
    struct smap_slot *old = m->slots;
    m->cap = old_cap ? old_cap * 2 : 16;
    m->slots = arena_must_calloc(m->cap, sizeof *m->slots);
    for (size_t k = 0; k < old_cap; k++) {
        if (!old[k].used) continue;
        size_t i = old[k].hash & (m->cap - 1);
        while (m->slots[i].used)
            i = (i + 1) & (m->cap - 1);
        m->slots[i] = old[k];
    }
    free(old);
}

void smap_done(struct smap *m) {
    for (size_t i = 0; i < m->cap && !m->borrows; i++)
        if (m->slots[i].used) free(m->slots[i].key);
    free(m->slots);
    *m = (struct smap){0};
}

void smap_seed_random(struct smap *m) {
    if (getrandom(&m->seed, sizeof m->seed, GRND_NONBLOCK) != (ssize_t)sizeof m->seed)
        m->seed ^= (uint64_t)(uintptr_t)m * 0x9e3779b97f4a7c15u;
}

void *smap_put(struct smap *m, struct str key, void *val) {
    if ((m->n + 1) * 4 > m->cap * 3) smap_grow(m);
    uint64_t h = hash64(key.p, key.n, m->seed);
    struct smap_slot *s = &m->slots[smap_find(m, key, h)];
    if (s->used) {
        void *was = s->val;
        s->val = val;
        return was;
    }
    char *own = m->borrows ? (char *)(uintptr_t)key.p : arena_must_calloc(key.n + 1, 1);
    if (!m->borrows && key.n) memcpy(own, key.p, key.n);
    *s = (struct smap_slot){own, (uint32_t)key.n, 1, h, val};
    m->n++;
    return NULL;
}

static const struct smap_slot *smap_slot_of(const struct smap *m, struct str key) {
    if (m->n == 0) return NULL;
    const struct smap_slot *s = &m->slots[smap_find(m, key, hash64(key.p, key.n, m->seed))];
    return s->used ? s : NULL;
}
void *smap_get(const struct smap *m, struct str key) {
    const struct smap_slot *s = smap_slot_of(m, key);
    return s ? s->val : NULL;
}
bool smap_has(const struct smap *m, struct str key) {
    return smap_slot_of(m, key) != NULL;
}

void *smap_del(struct smap *m, struct str key) {
    const struct smap_slot *found = smap_slot_of(m, key);
    if (!found) return NULL;
    size_t mask = m->cap - 1, hole = (size_t)(found - m->slots);
    void *was = found->val;
    if (!m->borrows) free(m->slots[hole].key);
    for (size_t i = (hole + 1) & mask; m->slots[i].used; i = (i + 1) & mask) {
        size_t home = m->slots[i].hash & mask;
        if (((i - home) & mask) >= ((i - hole) & mask)) {
            m->slots[hole] = m->slots[i];
            hole = i;
        }
    }
    m->slots[hole] = (struct smap_slot){0};
    m->n--;
    return was;
}

bool smap_next(const struct smap *m, size_t *i, struct str *key, void **val) {
    for (; *i < m->cap; (*i)++) {
        const struct smap_slot *s = &m->slots[*i];
        if (!s->used) continue;
        if (key) *key = (struct str){s->key, s->key_n};
        if (val) *val = s->val;
        (*i)++;
        return true;
    }
    return false;
}

// ---- integer and pointer keys

static uint64_t mix(uint64_t k) {
    k ^= k >> 32;
    k *= 0xd6e8feb86659fd93u;
    k ^= k >> 32;
    return k;
}

static size_t pmap_find(const struct pmap *m, uint64_t key) {
    size_t mask = m->cap - 1, i = mix(key) & mask;
    while (m->slots[i].used && m->slots[i].key != key)
        i = (i + 1) & mask;
    return i;
}

void pmap_done(struct pmap *m) {
    free(m->slots);
    *m = (struct pmap){0};
}

void *pmap_put(struct pmap *m, uint64_t key, void *val) {
    if ((m->n + 1) * 4 > m->cap * 3) {
        struct pmap bigger = {.cap = m->cap ? m->cap * 2 : 16, .n = m->n};
        bigger.slots = arena_must_calloc(bigger.cap, sizeof *bigger.slots);
        for (size_t k = 0; k < m->cap; k++)
            if (m->slots[k].used) bigger.slots[pmap_find(&bigger, m->slots[k].key)] = m->slots[k];
        free(m->slots);
        *m = bigger;
    }
    struct pmap_slot *s = &m->slots[pmap_find(m, key)];
    void *was = s->used ? s->val : NULL;
    m->n += !s->used;
    *s = (struct pmap_slot){.key = key, .used = 1, .val = val};
    return was;
}

void *pmap_get(const struct pmap *m, uint64_t key) {
    if (m->n == 0) return NULL;
    const struct pmap_slot *s = &m->slots[pmap_find(m, key)];
    return s->used ? s->val : NULL;
}
bool pmap_has(const struct pmap *m, uint64_t key) {
    return m->n > 0 && m->slots[pmap_find(m, key)].used;
}

void *pmap_del(struct pmap *m, uint64_t key) {
    if (!pmap_has(m, key)) return NULL;
    size_t mask = m->cap - 1, hole = pmap_find(m, key);
    void *was = m->slots[hole].val;
    for (size_t i = (hole + 1) & mask; m->slots[i].used; i = (i + 1) & mask) {
        size_t home = mix(m->slots[i].key) & mask;
        if (((i - home) & mask) >= ((i - hole) & mask)) {
            m->slots[hole] = m->slots[i];
            hole = i;
        }
    }
    m->slots[hole] = (struct pmap_slot){0};
    m->n--;
    return was;
}
