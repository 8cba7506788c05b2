// SPDX-License-Identifier: Apache-2.0
// The three functions below stand before glibc's in every library of the process; all else of the
// allocator (free, aligned memory) is glibc's, whose memory this is.
#include "server/reserve.h"

#include <malloc.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>

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
void reserve_make(void) {
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

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && defined(__GLIBC__)
static bool let_go(void) {
    struct kept *k = atomic_exchange(&kept, NULL);
    return k && munmap(k, k->bytes) == 0;
}

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t each);
void *__libc_realloc(void *p, size_t n);
#define OURS __attribute__((visibility("default")))
// Only for what is small: who asks for much has a way to fail (arena.h's guard, strbuf_room), and
// would leave nothing for those who have none.
enum { SMALL = 64 << 10 };
OURS void *malloc(size_t n) {
    void *p = __libc_malloc(n);
    return p || n > SMALL || !let_go() ? p : __libc_malloc(n);
}
OURS void *calloc(size_t n, size_t each) {
    void *p = __libc_calloc(n, each);
    if (p || (each && n > SMALL / each) || !let_go()) return p;
    return __libc_calloc(n, each);
}
OURS void *realloc(void *old, size_t n) {
    void *p = __libc_realloc(old, n);
    return p || n == 0 || n > SMALL || !let_go() ? p : __libc_realloc(old, n);
}
#endif
