// SPDX-License-Identifier: Apache-2.0
// The compute pool: the threads that generated kernels and the library's primitives (cpu_omp.c) are
// shared out to. Its owner, the thread of a run, posts a region; each thread has a slot with chunks
// of the work, takes those first and then what others have not begun. So a thread whose CPU has
// other work delays a region by the chunk that it is in, not by its whole share, and the owner does
// what a sleeping thread has not woken up for. Chunks are parts of the region by number: which
// thread takes one changes no result.
// Waiting threads look for a while and then sleep (docs/decisions/0020).
#include "devices/cpu/cpu_pool.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"

enum {
    CHUNKS = 4,           // of a slot, where the work is ours to divide
    LOOK_TURNS = 256,     // between two looks at the clock: some 10 us
    TAKEN_NS = 400000,    // a gap between those: the CPU has other work
    LEAST_TURNS = 50,     // of looking, where it has
    SPIN_TURNS = 5000,    // of looking, where it has not: some 0.2 ms
    MOVE_NS = 2000000,    // a thread moves no sooner again
    WATCH_NS = 10000000,  // where the owner works alone, others look so often whether it can
    CANNOT_NS = 2000000000, // so long not alone where it could not
    LEFT_BITS = 20,       // of a slot's word: chunks left; then
    LIMIT_BITS = 12       // threads below this one may take them; then the region's number
};

struct slot {
    _Alignas(64) _Atomic uint64_t word;
    _Atomic int cpu;  // of its thread while that is awake; -1 = asleep
    int patience;     // its thread's, in turns
    int64_t moved_ns; // its thread's last move
};
static struct {
    struct slot slot[POOL_THREADS];
    _Atomic int threads;     // that exist, the owner's among them
    _Atomic bool taken;      // has an owner
    _Atomic uint32_t posted; // a futex: regions so far
    _Atomic int sleepers;    // on it
    _Atomic uint32_t open;   // a futex: chunks of the region that have not ended
    _Atomic bool waiting;    // the owner sleeps on it
    int spin_turns;
    _Atomic uint64_t region; // its number
    _Atomic bool alone;      // the owner does all of it, and woke no other
    _Atomic bool rescued;    // another thread came all the same
    struct cpu_pace pace;    // the owner's, and what follows
    _Atomic bool watched;    // others know that it works alone, and none sleeps without a limit
    int64_t together_until_ns;
    // Of the region: read by threads that hold a chunk of it.
    void (*part)(void *ctx, int64_t begin, int64_t end, int thread);
    void (*team)(void *ctx, int k); // or this
    void *ctx;
    int64_t extent;
    int n, chunks; // slots; chunks of each
} pool = {.threads = 1};
static _Thread_local int depth;   // of cpu_pool_begin, by the owner
static _Thread_local bool inside; // a chunk: what it divides it does alone

static long futex(_Atomic uint32_t *at, int op, uint32_t value) {
    return syscall(SYS_futex, at, op, value, NULL, NULL, 0);
}
static void pause_briefly(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

// ---- waiting

// On a CPU that another of the pool is on already: go where none is.
static void part_ways(int t) {
    struct slot *s = &pool.slot[t];
    int own = sched_getcpu(), used[POOL_THREADS], n = atomic_load(&pool.threads);
    bool shared = false;
    for (int k = 0; k < n; k++) {
        used[k] = k == t ? -1 : atomic_load_explicit(&pool.slot[k].cpu, memory_order_relaxed);
        shared |= used[k] == own;
    }
    if (shared && clock_ns() - s->moved_ns > MOVE_NS) {
        cpu_set_t allowed, to;
        if (!sched_getaffinity(0, sizeof allowed, &allowed) &&
            cpu_place_choose(own, &allowed, used, n, &to) && cpu_place_move(&to))
            own = sched_getcpu();
        s->moved_ns = clock_ns();
    }
    atomic_store_explicit(&s->cpu, own, memory_order_relaxed);
}

// Does a thread that the owner waits for want the owner's CPU?
static bool in_the_way(void) {
    int own = sched_getcpu(), n = atomic_load(&pool.threads);
    for (int k = 1; k < n; k++)
        if (atomic_load_explicit(&pool.slot[k].cpu, memory_order_relaxed) == own) return true;
    return false;
}

// Looks at *at until it is no longer `old` (true) or thread t's patience ends. What was taken away
// for long while looking is a CPU that has other work: less of it next time.
static bool look(int t, _Atomic uint32_t *at, uint32_t old) {
    struct slot *s = &pool.slot[t];
    int64_t last = 0;
    for (int k = 0; k < s->patience; k++) {
        if (atomic_load_explicit(at, memory_order_acquire) != old) {
            s->patience = s->patience * 2 + 1 < pool.spin_turns ? s->patience * 2 + 1
                                                                : pool.spin_turns;
            return true;
        }
        pause_briefly();
        if (k % LOOK_TURNS != LOOK_TURNS - 1) continue;
        int64_t now = clock_ns();
        if (last && now - last > TAKEN_NS) {
            s->patience = s->patience / 4 > LEAST_TURNS ? s->patience / 4 : LEAST_TURNS;
            return false;
        }
        last = now;
        if (t)
            part_ways(t);
        else if (in_the_way())
            return false;
    }
    s->patience += s->patience / 8 + 1;
    if (s->patience > pool.spin_turns) s->patience = pool.spin_turns;
    return false;
}

// ---- chunks

static bool take(int t, int *out_slot, int *out_chunk) {
    int n = atomic_load_explicit(&pool.threads, memory_order_relaxed);
    for (int k = 0, s = t; k < n; k++, s = s + 1 < n ? s + 1 : 0) {
        _Atomic uint64_t *at = &pool.slot[s].word;
        uint64_t w = atomic_load_explicit(at, memory_order_relaxed), left, limit;
        do {
            left = w & ((1u << LEFT_BITS) - 1);
            limit = w >> LEFT_BITS & ((1u << LIMIT_BITS) - 1);
        } while (left && (uint64_t)t < limit &&
                 !atomic_compare_exchange_weak_explicit(at, &w, w - 1, memory_order_acquire,
                                                        memory_order_relaxed));
        if (!left || (uint64_t)t >= limit) continue;
        *out_slot = s;
        *out_chunk = pool.chunks - (int)left;
        return true;
    }
    return false;
}
static int work(int t) {
    int s, c;
    uint32_t ended = 0;
    while (take(t, &s, &c)) {
        inside = true;
        if (pool.team) {
            pool.team(pool.ctx, s);
        } else {
            int64_t all = (int64_t)pool.n * pool.chunks, k = (int64_t)s * pool.chunks + c;
            int64_t begin = pool.extent * k / all, end = pool.extent * (k + 1) / all;
            if (begin < end) pool.part(pool.ctx, begin, end, t);
        }
        ended++;
        inside = false;
    }
    if (ended && atomic_fetch_sub(&pool.open, ended) == ended && atomic_load(&pool.waiting))
        futex(&pool.open, FUTEX_WAKE_PRIVATE, 1);
    return (int)ended;
}

// Sleeps until more is posted, or until an owner that works alone does not get on: shares of the
// library's regions may wait for one another, which an owner cannot know. True: there is work.
static bool rest(uint32_t seen) {
    bool watch = atomic_load(&pool.alone) && atomic_load(&pool.taken);
    uint64_t region = atomic_load(&pool.region);
    struct timespec limit = {.tv_nsec = WATCH_NS};
    atomic_fetch_add(&pool.sleepers, 1);
    long r = syscall(SYS_futex, &pool.posted, FUTEX_WAIT_PRIVATE, seen, watch ? &limit : NULL, NULL,
                     0);
    bool late = r && errno == ETIMEDOUT;
    atomic_fetch_sub(&pool.sleepers, 1);
    if (!late) return true;
    if (atomic_load(&pool.region) != region || !atomic_load(&pool.open)) return false;
    atomic_store(&pool.rescued, true);
    atomic_store(&pool.alone, false);
    atomic_store(&pool.watched, false);
    return true;
}

static void *helper(void *arg) {
    int t = (int)(intptr_t)arg;
    struct slot *s = &pool.slot[t];
    (void)cpu_place_bind(t);
    for (;;) {
        uint32_t seen = atomic_load(&pool.posted);
        part_ways(t);
        if (!atomic_load(&pool.alone)) work(t);
        if (look(t, &pool.posted, seen)) continue;
        atomic_store_explicit(&s->cpu, -1, memory_order_relaxed);
        while (!rest(seen))
            ;
    }
    return NULL;
}

static void wake(int n) {
    atomic_fetch_add(&pool.posted, 1);
    if (atomic_load(&pool.sleepers)) futex(&pool.posted, FUTEX_WAKE_PRIVATE, (uint32_t)n);
}

// The region's fields are set: n slots of `chunks`, for the threads below `limit`.
static void post(int limit, bool alone) {
    uint64_t word = (atomic_load(&pool.region) + 1) << (LEFT_BITS + LIMIT_BITS) |
                    (uint64_t)limit << LEFT_BITS | (uint64_t)pool.chunks;
    atomic_store_explicit(&pool.slot[0].cpu, sched_getcpu(), memory_order_relaxed);
    atomic_store(&pool.waiting, false);
    atomic_store(&pool.alone, alone);
    atomic_fetch_add(&pool.region, 1);
    atomic_store(&pool.open, (uint32_t)(pool.n * pool.chunks));
    for (int k = 0; k < pool.n; k++)
        atomic_store_explicit(&pool.slot[k].word, word, memory_order_release);
    if (!alone) wake(limit < atomic_load(&pool.threads) ? POOL_THREADS : pool.n - 1);
    if (alone && !atomic_load(&pool.watched)) wake(POOL_THREADS);
    atomic_store(&pool.watched, alone);
}
static void wait_for_others(void) {
    for (uint32_t open; (open = atomic_load(&pool.open));) {
        if (look(0, &pool.open, open)) continue;
        atomic_store(&pool.waiting, true);
        if (atomic_load(&pool.open) == open) futex(&pool.open, FUTEX_WAIT_PRIVATE, open);
    }
}
static bool better_alone(int64_t now) {
    return cpu_pace_alone(&pool.pace, now) && now > pool.together_until_ns;
}
static void run_region(int limit) {
    int64_t start = clock_ns();
    bool alone = better_alone(start);
    post(limit, alone);
    int mine = work(0), others = pool.n * pool.chunks - mine;
    int64_t worked = clock_ns(), end = worked;
    if (others) {
        wait_for_others();
        end = clock_ns();
    }
    if (!alone) cpu_pace_saw(&pool.pace, end, mine, others, worked - start, end - worked);
    if (atomic_exchange(&pool.rescued, false)) pool.together_until_ns = end + CANNOT_NS;
}

void cpu_pool_alone(int64_t ns) {
    pool.pace.alone_until_ns = clock_ns() + ns;
    pool.together_until_ns = 0;
}
void cpu_pool_call(void) {
    if (!atomic_exchange(&pool.alone, false)) return;
    atomic_store(&pool.watched, false); // who goes to sleep from now on looks for nobody
    wake(POOL_THREADS);
}

// ---- the owner's

static void forget_threads(void) { // in the child of a fork
    memset(&pool.slot, 0, sizeof pool.slot);
    atomic_store(&pool.threads, 1);
    atomic_store(&pool.taken, false);
    atomic_store(&pool.sleepers, 0);
    depth = 0;
}
static void set_up(void) {
    const char *turns = getenv("GOMP_SPINCOUNT"), *policy = getenv("OMP_WAIT_POLICY");
    long n = turns ? strtol(turns, NULL, 10) : SPIN_TURNS;
    if (!turns && policy) n = strcasecmp(policy, "passive") == 0 ? 0 : 1000000;
    pool.spin_turns = n < 0 ? 0 : n > 1000000000 ? 1000000000 : (int)n;
    pthread_atfork(NULL, NULL, forget_threads);
}

int cpu_pool_grow(int n) {
    int have = atomic_load(&pool.threads);
    for (; have < n && have < POOL_THREADS; have++) {
        pthread_t t;
        pool.slot[have].patience = pool.spin_turns;
        atomic_store(&pool.slot[have].cpu, -1);
        if (pthread_create(&t, NULL, helper, (void *)(intptr_t)have)) break;
        pthread_detach(t);
        atomic_store(&pool.threads, have + 1);
    }
    return have;
}

bool cpu_pool_begin(bool rouse) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (depth) return depth++;
    pthread_once(&once, set_up);
    if (atomic_exchange(&pool.taken, true)) return false;
    depth = 1;
    pool.slot[0].patience = pool.spin_turns;
    atomic_store_explicit(&pool.slot[0].cpu, sched_getcpu(), memory_order_relaxed);
    atomic_store(&pool.watched, false);
    if (rouse && !better_alone(clock_ns())) wake(cpu_pool_grow(cpu_threads()));
    return true;
}
void cpu_pool_end(void) {
    if (!depth || --depth) return;
    atomic_store_explicit(&pool.slot[0].cpu, -1, memory_order_relaxed);
    atomic_store(&pool.taken, false);
}
bool cpu_pool_is_mine(void) {
    return depth > 0;
}
bool cpu_pool_inside(void) {
    return inside;
}

void cpu_pool_team(void (*fn)(void *ctx, int k), void *ctx, int n) {
    pool.part = NULL;
    pool.team = fn;
    pool.ctx = ctx;
    pool.n = n;
    pool.chunks = 1;
    run_region(atomic_load(&pool.threads));
}

void cpu_parallel(void (*fn)(void *ctx, int64_t begin, int64_t end, int thread), void *ctx,
                  int64_t extent, int64_t grain) {
    int64_t pieces = extent / (grain > 0 ? grain : 1);
    int limit = cpu_threads(), n = pieces < limit ? (int)pieces : limit;
    if (n < 2 || inside || !cpu_pool_begin(false)) {
        fn(ctx, 0, extent, 0);
        return;
    }
    if (better_alone(clock_ns())) {
        inside = true;
        fn(ctx, 0, extent, 0);
        inside = false;
        cpu_pool_end();
        return;
    }
    int have = cpu_pool_grow(limit);
    if (n > have) n = have;
    pool.part = fn;
    pool.team = NULL;
    pool.ctx = ctx;
    pool.extent = extent;
    pool.n = n;
    pool.chunks = (int)(pieces / n < CHUNKS ? pieces / n : CHUNKS);
    run_region(limit);
    cpu_pool_end();
}
