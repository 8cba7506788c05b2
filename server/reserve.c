// SPDX-License-Identifier: Apache-2.0
// The three functions below stand before glibc's in every library of the process; all else of the
// allocator (free, aligned memory) is glibc's, whose memory this is.
#include "server/reserve.h"

#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/limits.h"

enum { RESERVE = 48 << 20, LEAST = 3 << 20 };
struct kept { // lies in front of what is kept
    size_t bytes;
};
static _Atomic(struct kept *) kept;
static atomic_bool wanted;

static struct kept *put_aside(size_t bytes) {
    struct kept *k = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (k == MAP_FAILED) return NULL;
    k->bytes = bytes;
    return k;
}
// Who comes second waits until the first has given it back: then there is memory for both.
static void let_go(void) {
    static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&one);
    struct kept *k = atomic_exchange(&kept, NULL);
    if (k) munmap(k, k->bytes);
    pthread_mutex_unlock(&one);
}
void reserve_make(void) {
    arena_free_spare = let_go;
    atomic_store(&wanted, true);
    atomic_store(&kept, put_aside(RESERVE));
}
// What was freed may still be the allocator's: it is asked for it, and less has to do.
bool reserve_there(void) {
    if (!atomic_load(&wanted) || atomic_load(&kept)) return true;
#ifdef __GLIBC__
    malloc_trim(0);
#endif
    struct kept *k = NULL, *none = NULL;
    for (size_t n = RESERVE; !k && n >= LEAST; n /= 2)
        k = put_aside(n);
    if (k && !atomic_compare_exchange_strong(&kept, &none, k)) munmap(k, k->bytes);
    return k;
}

static void lower(int64_t *least, int64_t most, int64_t taken) {
    int64_t left = most > taken ? most - taken : 0;
    if (most >= 0 && left < *least) *least = left;
}
int64_t reserve_resident_bytes(void) {
    FILE *f = fopen("/proc/self/statm", "re");
    long size = 0, resident = 0;
    if (f && fscanf(f, "%ld %ld", &size, &resident) != 2) resident = 0;
    if (f) fclose(f);
    return resident * sysconf(_SC_PAGESIZE);
}
int64_t reserve_spare_bytes(void) {
    struct rlimit r;
    int64_t page = sysconf(_SC_PAGESIZE), least = sysconf(_SC_PHYS_PAGES) * page,
            size = limits_number_in("/proc/self/statm") * page;
    if (!getrlimit(RLIMIT_AS, &r) && r.rlim_cur != RLIM_INFINITY)
        lower(&least, (int64_t)r.rlim_cur, size);
    if (!getrlimit(RLIMIT_DATA, &r) && r.rlim_cur != RLIM_INFINITY)
        lower(&least, (int64_t)r.rlim_cur, 0);
    lower(&least, limits_here().memory_left, 0);
    return least;
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && defined(__GLIBC__)

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t each);
void *__libc_realloc(void *p, size_t n);
#define OURS __attribute__((visibility("default")))
// Only for what is small, what gRPC reads into (64 KiB and a header) with it: who asks for much has
// a way to fail (arena.h's guard, strbuf_room) or asks for the reserve (arena_free_spare), and
// would leave nothing for those who have neither.
enum { SMALL = 128 << 10 };
OURS void *malloc(size_t n) {
    void *p = __libc_malloc(n);
    if (p || n > SMALL) return p;
    let_go();
    return __libc_malloc(n);
}
OURS void *calloc(size_t n, size_t each) {
    void *p = __libc_calloc(n, each);
    if (p || (each && n > SMALL / each)) return p;
    let_go();
    return __libc_calloc(n, each);
}
OURS void *realloc(void *old, size_t n) {
    void *p = __libc_realloc(old, n);
    if (p || n == 0 || n > SMALL) return p;
    let_go();
    return __libc_realloc(old, n);
}
#endif
