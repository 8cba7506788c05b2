// SPDX-License-Identifier: Apache-2.0
// arena: memory that belongs to a lifetime (request, module, pass scratch, executable). A bump
// allocator over blocks; nothing is freed singly. Allocation never returns NULL: it aborts the
// process with a message, so every size that comes from outside must be checked first (base/span.h
// sz_mul), or leaves for the guard where one stands. With -DARENA_DEBUG (sanitizer builds) each
// item is one malloc, so ASan sees overruns. Not thread safe: one arena, one thread at a time.
#pragma once
#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena_guard {
    jmp_buf place;
    struct arena_guard *outer;
};
struct arena {
    struct arena_block *head; // newest block
    char *cur, *end;          // free space in it
    struct arena_link *links; // destructors, newest first
    size_t used_bytes;        // sum of what was asked for
    struct arena_guard *guard;
};

void arena_init(struct arena *a);  // or zero-initialise
void arena_done(struct arena *a);  // runs links, frees all; NULL and zeroed are fine
void arena_reset(struct arena *a); // as done, keeps one block for reuse
struct arena *arena_new(void);     // heap object
void arena_free(struct arena *a);  // NULL is fine

void *arena_alloc(struct arena *a, size_t n)
    __attribute__((returns_nonnull, malloc, alloc_size(2))); // 16-byte aligned, uninitialised
void *arena_zalloc(struct arena *a, size_t n)
    __attribute__((returns_nonnull, malloc, alloc_size(2))); // zeroed
void *arena_alloc_aligned(struct arena *a, size_t n, size_t align)
    __attribute__((returns_nonnull)); // align: power of two
void *arena_dup(struct arena *a, const void *p, size_t n) __attribute__((returns_nonnull));
char *arena_strdup(struct arena *a, const char *s) __attribute__((returns_nonnull));
char *arena_strndup(struct arena *a, const char *s, size_t n) __attribute__((returns_nonnull));
char *arena_printf(struct arena *a, const char *fmt, ...)
    __attribute__((format(printf, 2, 3), returns_nonnull));
// Ties a destructor to the arena's life: fn(obj) at done or reset, newest first.
void arena_link(struct arena *a, void (*fn)(void *obj), void *obj);

#define arena_new_of(a, T)       ((T *)arena_zalloc((a), sizeof(T)))
#define arena_array(a, T, n)     ((T *)arena_alloc((a), sizeof(T) * (size_t)(n)))
#define arena_zarray(a, T, n)    ((T *)arena_zalloc((a), sizeof(T) * (size_t)(n)))
#define arena_dup_array(a, p, n) arena_dup((a), (p), sizeof((p)[0]) * (size_t)(n))

// Where memory runs out and no guard stands: told before the process is aborted, or instead of it
// if fn does not return. Set once, at start; NULL: nothing is told but a line on stderr.
extern void (*arena_out_of_memory)(size_t n);
// Asked where memory runs out and nobody can be refused: no guard stands, or a text, array or map
// grows. It frees what was put aside for that, if there is any; then the allocation is tried once
// more. Set once, at start; NULL: there is nothing. Thread: any.
extern void (*arena_free_spare)(void);
// realloc and calloc that end the process where memory runs out in spite of it.
void *arena_must_realloc(void *old, size_t n) __attribute__((returns_nonnull));
void *arena_must_calloc(size_t n, size_t size) __attribute__((returns_nonnull));

// A guard stands between what comes from outside and the end of the process: where memory runs out,
// ARENA_GUARD is false the second time it is seen. What lies in the arena stays in it; what was
// taken elsewhere since then is lost, so a guarded scope takes nothing elsewhere. After the scope,
// either way: arena_unguard.
//
//     struct arena_guard g;
//     status_t st = ARENA_GUARD(a, &g) ? build(a) : st_oom();
//     arena_unguard(a, &g);
void arena_guard(struct arena *a, struct arena_guard *g); // ARENA_GUARD's
void arena_unguard(struct arena *a, struct arena_guard *g);
#define ARENA_GUARD(a, g) (arena_guard((a), (g)), setjmp((g)->place) == 0)
