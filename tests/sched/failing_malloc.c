// SPDX-License-Identifier: Apache-2.0
// failing_malloc: preloaded into a daemon (LD_PRELOAD), stands before glibc's allocator under
// server/reserve.c and lets allocations fail as the file named by FAILING_MALLOC says; the test
// that maps the same file turns it on and off and reads the counts. What is larger than `large`
// (what the reserve is for ends there) fails with a chance of one in `large_one_in`; what is
// smaller, large ones of it first, once in `small_every_ms` milliseconds at most, so that the
// reserve can be put aside again meanwhile. Whoever tries the same size again has it: as if the
// reserve had been given back (arena_free_spare). Processes that the daemon starts are left alone:
// the test's worker is not what is tested.
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

struct control { // tests/sched/memory.py knows it
    _Atomic uint32_t on, large, large_one_in, small_every_ms, seed, pid, large_failed, small_failed;
};
static struct control *control;
static _Atomic uint64_t state, last_small_ms;
static void *(*real_malloc)(size_t);
static void *(*real_calloc)(size_t, size_t);
static void *(*real_realloc)(void *, size_t);

__attribute__((constructor)) static void begin(void) {
    real_malloc = (void *(*)(size_t))dlsym(RTLD_NEXT, "__libc_malloc");
    real_calloc = (void *(*)(size_t, size_t))dlsym(RTLD_NEXT, "__libc_calloc");
    real_realloc = (void *(*)(void *, size_t))dlsym(RTLD_NEXT, "__libc_realloc");
    const char *path = getenv("FAILING_MALLOC");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0) return;
    struct control *c = mmap(NULL, sizeof *c, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    uint32_t none = 0; // the daemon is the first; its workers come later
    if (c != MAP_FAILED && atomic_compare_exchange_strong(&c->pid, &none, (uint32_t)getpid()))
        control = c;
}

static uint64_t now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}
static uint64_t next(uint64_t seed) { // splitmix64
    uint64_t z = seed + atomic_fetch_add(&state, 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}
static int fails(size_t n) {
    struct control *c = control;
    if (!c || !c->on) return 0;
    static _Thread_local size_t again;
    size_t tried = again;
    again = 0;
    if (tried == n) return 0;
    uint64_t r = next(c->seed);
    if (n > c->large) {
        if (!c->large_one_in || r % c->large_one_in) return 0;
        atomic_fetch_add(&c->large_failed, 1);
    } else {
        if (!c->small_every_ms || (n < 4096 && r % 64)) return 0;
        uint64_t last = last_small_ms, now = now_ms();
        if (now - last < c->small_every_ms) return 0;
        if (!atomic_compare_exchange_strong(&last_small_ms, &last, now)) return 0;
        atomic_fetch_add(&c->small_failed, 1);
    }
    again = n;
    return 1;
}

void *__libc_malloc(size_t n);
void *__libc_malloc(size_t n) {
    if (!real_malloc) begin();
    return fails(n) ? NULL : real_malloc(n);
}
void *__libc_calloc(size_t n, size_t each);
void *__libc_calloc(size_t n, size_t each) {
    static char early[4096]; // dlsym's own, before there is anything else
    static size_t used;
    if (!real_calloc) {
        size_t all = (n * each + 15) & ~(size_t)15;
        if (used + all > sizeof early) abort();
        return early + (used += all) - all;
    }
    return each && fails(n > SIZE_MAX / each ? SIZE_MAX : n * each) ? NULL : real_calloc(n, each);
}
void *__libc_realloc(void *p, size_t n);
void *__libc_realloc(void *p, size_t n) {
    if (!real_realloc) begin();
    return n && fails(n) ? NULL : real_realloc(p, n);
}
