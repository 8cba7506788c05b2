// SPDX-License-Identifier: Apache-2.0
// OpenMP's entry points as Debian's oneDNN calls them, so that the library's parallel regions run
// on hlod's pool (docs/decisions/0020). The program's definitions come before libgomp's when the
// library is bound. A region goes to the pool only while its thread has the pool (cpu_pool_begin);
// all else is handed on to libgomp, as are the functions that are not named here.
#include <dlfcn.h>
#include <omp.h>
#include <stdatomic.h>

#include "devices/cpu/cpu_pool.h"

#define ENTRY __attribute__((visibility("default")))
ENTRY void GOMP_parallel(void (*fn)(void *), void *data, unsigned threads, unsigned flags);
ENTRY void GOMP_barrier(void);
ENTRY int omp_get_thread_num(void);
ENTRY int omp_get_num_threads(void);
ENTRY int omp_in_parallel(void);
ENTRY int omp_get_max_threads(void);

// Of the region that the thread is in; n = 0: none of ours.
struct team {
    int n, k;
};
static _Thread_local struct team here;
struct region {
    void (*fn)(void *);
    void *data;
    int n;
};
static struct {
    _Atomic uint32_t arrived, turn;
} barrier; // of the one region that goes on

// A pointer to a function, by way of its bytes: C knows no cast.
#define NEXT(type, name)                                                                           \
    static type next;                                                                              \
    type found = __atomic_load_n(&next, __ATOMIC_RELAXED);                                         \
    if (!found) {                                                                                  \
        void *at = dlsym(RTLD_NEXT, name);                                                         \
        __builtin_memcpy(&found, &at, sizeof at);                                                  \
        __atomic_store_n(&next, found, __ATOMIC_RELAXED);                                          \
    }
typedef void (*parallel_fn)(void (*)(void *), void *, unsigned, unsigned);
typedef void (*barrier_fn)(void);
typedef int (*count_fn)(void);

static _Atomic int threads_everywhere; // 0: as OpenMP has it, which keeps the number by thread
static _Thread_local bool told;

// What was set for this thread, wherever it is.
static int set_threads(void) {
    NEXT(count_fn, "omp_get_max_threads")
    if (threads_everywhere && !told) cpu_use_threads(threads_everywhere);
    return found();
}

static void share(void *ctx, int k) {
    const struct region *r = ctx;
    here = (struct team){r->n, k};
    r->fn(r->data);
    here = (struct team){0, 0};
}
// A region within a region, or one of a single thread: a team of one, as OpenMP has it.
static void alone(void (*fn)(void *), void *data) {
    struct team before = here;
    here = (struct team){cpu_pool_inside() ? 1 : 0, 0};
    fn(data);
    here = before;
}

void GOMP_parallel(void (*fn)(void *), void *data, unsigned threads, unsigned flags) {
    if (cpu_pool_inside() || (cpu_pool_is_mine() && threads == 1)) {
        alone(fn, data);
        return;
    }
    int n = threads ? (int)threads : set_threads();
    if (cpu_pool_is_mine() && n > 0 && n <= POOL_THREADS && cpu_pool_grow(n) >= n) {
        struct region r = {fn, data, n};
        if (n == 1)
            alone(fn, data);
        else
            cpu_pool_team(share, &r, n);
        return;
    }
    NEXT(parallel_fn, "GOMP_parallel")
    found(fn, data, threads, flags);
}

// Few primitives have one within a region.
static void wait_for_team(uint32_t n) {
    uint32_t turn = atomic_load(&barrier.turn);
    if (atomic_fetch_add(&barrier.arrived, 1) + 1 == n) {
        atomic_store(&barrier.arrived, 0);
        atomic_store(&barrier.turn, turn + 1);
        return;
    }
    cpu_pool_call();
    for (int k = 0; atomic_load(&barrier.turn) == turn; k++)
        if (k > 5000) sched_yield();
}
void GOMP_barrier(void) {
    if (here.n) {
        if (here.n > 1) wait_for_team((uint32_t)here.n);
        return;
    }
    NEXT(barrier_fn, "GOMP_barrier")
    found();
}
int omp_get_thread_num(void) {
    if (here.n) return here.k;
    NEXT(count_fn, "omp_get_thread_num")
    return found();
}
int omp_get_num_threads(void) {
    if (here.n) return here.n;
    NEXT(count_fn, "omp_get_num_threads")
    return found();
}
int omp_in_parallel(void) {
    if (cpu_pool_inside()) return 1;
    NEXT(count_fn, "omp_in_parallel")
    return found();
}

// Within a piece a region has one thread. The library asks so when a primitive is made, and some
// primitives add up what as many threads left (the compensation of 8-bit weights).
int omp_get_max_threads(void) {
    return cpu_pool_inside() ? 1 : set_threads();
}

// How many: OpenMP's own setting (OMP_NUM_THREADS; the library asks the same).
int cpu_threads(void) {
    int n = set_threads();
    return n < POOL_THREADS ? n : POOL_THREADS;
}

int cpu_use_threads(int n) {
    bool first = !told;
    told = true;
    int was = first && threads_everywhere ? threads_everywhere : set_threads();
    omp_set_num_threads(n);
    return was;
}
void cpu_threads_are(int n) {
    threads_everywhere = n;
    told = false;
}
