// SPDX-License-Identifier: Apache-2.0
// lapack_memory: the working memory of OpenBLAS's routines. Its variant of one thread keeps a list
// of rooms without a lock (Debian's 0.3.21), so two calls at once may get one room and spoil each
// other's results. A program that exports the two functions below gives each thread rooms of its
// own in their place: the loader binds the library's calls to the program's functions. Where it
// does not (a program that exports none, a library that is bound to itself), calls take turns.
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "devices/cpu/cpu.h"
#include "devices/cpu/routines/cpu_lapack.h"

// The library's names.
#define EXPORT __attribute__((visibility("default")))
EXPORT void *blas_memory_alloc(int position);
EXPORT void blas_memory_free(void *room);

// No call holds more than two. The library cuts its blocks to 128 MB (x86-64). Address space, of
// which pages are taken as the library touches them: some MB; shared, so that it does not count as
// data of the process, which has a bound.
enum { ROOMS = 4, ROOM_BYTES = 1 << 28 };
static _Thread_local struct {
    void *at;
    bool taken;
} rooms[ROOMS];
static _Atomic bool asked, turns;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void *blas_memory_alloc(UNUSED int position) {
    atomic_store_explicit(&asked, true, memory_order_relaxed);
    for (int k = 0; k < ROOMS; k++) {
        if (rooms[k].taken) continue;
        if (!rooms[k].at) {
            void *at = mmap(NULL, ROOM_BYTES, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            if (at == MAP_FAILED) break;
            rooms[k].at = at;
        }
        rooms[k].taken = true;
        return rooms[k].at;
    }
    abort(); // the library does not look whether it got one
}
void blas_memory_free(void *room) {
    for (int k = 0; k < ROOMS; k++)
        if (rooms[k].at == room) rooms[k].taken = false;
}

void cpu_lapack_decide(void) {
    atomic_store(&turns, !atomic_load(&asked));
}
bool cpu_lapack_turns(void) {
    return atomic_load_explicit(&turns, memory_order_relaxed);
}
void cpu_lapack_begin(void) {
    if (cpu_lapack_turns()) pthread_mutex_lock(&lock);
}
void cpu_lapack_end(void) {
    if (cpu_lapack_turns()) pthread_mutex_unlock(&lock);
}
