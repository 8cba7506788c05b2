// SPDX-License-Identifier: Apache-2.0
// A block that is too small for who joins grows by a quarter more than is asked for, so that a
// cache that is longer by one with each token finds it large enough most times; one that is a third
// larger than anyone left needs goes back. Its contents are never carried over.
#include "devices/cpu/cpu_work.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/fault.h"
#include "base/vec.h"
#if defined __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(p, n)   ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#endif

enum { PAGE = 4096 };
struct block {
    char *p;
    int64_t bytes;
    bool busy;
};
struct user {
    const struct cpu_exe *x;
    int64_t bytes;
    int nth; // of the runs that go on at once, from 0
};
struct cpu_work {
    pthread_mutex_t mutex;
    VEC(struct block) blocks;
    VEC(struct user) users;
};

void cpu_work_open(struct cpu_work **out) {
    *out = arena_must_calloc(1, sizeof **out);
    pthread_mutex_init(&(*out)->mutex, NULL);
}
void cpu_work_close(struct cpu_work *w) {
    for (size_t k = 0; k < w->blocks.n; k++)
        free(w->blocks.v[k].p);
    vec_done(&w->blocks);
    vec_done(&w->users);
    pthread_mutex_destroy(&w->mutex);
    free(w);
}

static int64_t scratch_at(const struct cpu_exe *x) {
    return (x->memory_bytes + PAGE - 1) / PAGE * PAGE;
}
static int64_t needs(const struct cpu_exe *x) {
    return x->scratch_bytes ? scratch_at(x) + x->scratch_bytes : x->memory_bytes;
}

// ---- blocks; under the mutex

static bool fill(struct block *b, int64_t bytes) {
    b->p = cpu_memory(bytes);
    b->bytes = b->p ? bytes : 0;
    if (b->p) ASAN_POISON_MEMORY_REGION(b->p, (size_t)bytes);
    return b->p != NULL;
}
static struct block *smallest_idle(struct cpu_work *w, int64_t bytes) {
    struct block *found = NULL;
    for (size_t k = 0; k < w->blocks.n; k++) {
        struct block *b = &w->blocks.v[k];
        if (!b->busy && b->bytes >= bytes && (!found || b->bytes < found->bytes)) found = b;
    }
    return found;
}
static struct block *largest_idle_below(struct cpu_work *w, int64_t bytes) {
    struct block *found = NULL;
    for (size_t k = 0; k < w->blocks.n; k++) {
        struct block *b = &w->blocks.v[k];
        if (!b->busy && b->bytes < bytes && (!found || b->bytes > found->bytes)) found = b;
    }
    return found;
}
// One more block of so many bytes: a smaller one grows, or a new one. NULL: no memory.
static struct block *one_more(struct cpu_work *w, int64_t bytes, bool grow) {
    struct block *b = grow ? largest_idle_below(w, bytes) : NULL;
    if (!b) {
        vec_push(&w->blocks, ((struct block){0}));
        b = &w->blocks.v[w->blocks.n - 1];
        if (fill(b, bytes)) return b;
    } else {
        free(b->p);
        if (fill(b, bytes + bytes / 4) || fill(b, bytes)) return b;
    }
    *b = vec_pop(&w->blocks);
    return NULL;
}
static int count(const struct cpu_work *w, int64_t bytes) {
    int n = 0;
    for (size_t k = 0; k < w->blocks.n; k++)
        n += w->blocks.v[k].bytes >= bytes;
    return n;
}
// Blocks of so many bytes for `n` runs at once. One that grows serves all whom it served before.
static bool provide(struct cpu_work *w, int64_t bytes, int n) {
    while (count(w, bytes) < n)
        if (!one_more(w, bytes, (int)w->blocks.n >= n)) return false;
    return true;
}

// ---- users

static struct user *find(struct cpu_work *w, const struct cpu_exe *x) {
    for (size_t k = 0; k < w->users.n; k++)
        if (w->users.v[k].x == x) return &w->users.v[k];
    return NULL;
}
static int streams_of(const struct cpu_work *w, const struct cpu_exe *of) {
    int n = 0;
    for (size_t k = 0; k < w->users.n; k++)
        n += of && w->users.v[k].x->of == of;
    return n;
}
status_t cpu_work_join(struct cpu_exe *x) {
    struct cpu_work *w = cpu_work_of(x->base.dev);
    pthread_mutex_lock(&w->mutex);
    struct user *u = find(w, x);
    int nth = u ? u->nth : streams_of(w, x->of);
    bool there = provide(w, needs(x), nth + 1);
    if (there && u)
        u->bytes = needs(x);
    else if (there)
        vec_push(&w->users, ((struct user){x, needs(x), nth}));
    pthread_mutex_unlock(&w->mutex);
    return there ? ST_OK
                 : st_exhausted("no memory for a working set of %lld bytes", (long long)needs(x));
}

// The most that anyone needs who runs beside n others.
static int64_t needed(const struct cpu_work *w, size_t n) {
    int64_t most = -1;
    for (size_t k = 0; k < w->users.n; k++)
        if ((size_t)w->users.v[k].nth >= n && w->users.v[k].bytes > most)
            most = w->users.v[k].bytes;
    return most;
}
static int larger_first(const void *a, const void *b) {
    const struct block *x = a, *y = b;
    return x->bytes < y->bytes ? 1 : -(x->bytes > y->bytes);
}
static void trim(struct cpu_work *w) {
    if (w->blocks.n) qsort(w->blocks.v, w->blocks.n, sizeof *w->blocks.v, larger_first);
    for (size_t k = w->blocks.n; k-- > 0;) {
        struct block *b = &w->blocks.v[k];
        int64_t most = needed(w, k);
        if (b->busy || most >= b->bytes - b->bytes / 4) continue;
        free(b->p);
        if (most < 0 || !fill(b, most)) // if not, who takes one asks again
            *b = vec_pop(&w->blocks);
    }
}
void cpu_work_leave(struct cpu_exe *x) {
    struct cpu_work *w = cpu_work_of(x->base.dev);
    pthread_mutex_lock(&w->mutex);
    struct user *u = find(w, x);
    if (u) {
        *u = vec_pop(&w->users);
        trim(w);
    }
    pthread_mutex_unlock(&w->mutex);
}

// ---- runs

status_t cpu_work_take(struct cpu_exe *x) {
    struct cpu_work *w = cpu_work_of(x->base.dev);
    int64_t bytes = needs(x);
    pthread_mutex_lock(&w->mutex);
    struct block *b = smallest_idle(w, bytes);
    if (!b) b = one_more(w, bytes, true);
    char *p = b ? b->p : NULL;
    if (b) b->busy = true;
    pthread_mutex_unlock(&w->mutex);
    if (!p) return st_exhausted("no memory for a working set of %lld bytes", (long long)bytes);
    ASAN_UNPOISON_MEMORY_REGION(p, (size_t)bytes);
    if (FAULT("cpu.work")) memset(p, 0xff, (size_t)bytes);
    x->memory = p;
    x->scratch = p + (x->scratch_bytes ? scratch_at(x) : 0);
    return ST_OK;
}
void cpu_work_give(struct cpu_exe *x) {
    struct cpu_work *w = cpu_work_of(x->base.dev);
    pthread_mutex_lock(&w->mutex);
    for (size_t k = 0; k < w->blocks.n; k++) {
        struct block *b = &w->blocks.v[k];
        if (b->p != x->memory) continue;
        ASAN_POISON_MEMORY_REGION(b->p, (size_t)b->bytes);
        b->busy = false;
    }
    pthread_mutex_unlock(&w->mutex);
    x->memory = x->scratch = NULL;
}
