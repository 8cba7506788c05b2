// SPDX-License-Identifier: Apache-2.0
// Blocks grow from 4 KiB to 1 MiB; an item larger than half a block gets a block of its own. With
// ARENA_DEBUG every item is a block.
#include "base/arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MIN_BLOCK = 4096, MAX_BLOCK = 1 << 20, ALIGN = 16 };
struct arena_block {
    struct arena_block *next;
    size_t size; // of the data behind the header
};
struct arena_link {
    struct arena_link *next;
    void (*fn)(void *obj);
    void *obj;
};
_Static_assert(sizeof(struct arena_block) % ALIGN == 0, "block data must stay aligned");

void arena_guard(struct arena *a, struct arena_guard *g) {
    g->outer = a->guard;
    a->guard = g;
}
void arena_unguard(struct arena *a, struct arena_guard *g) {
    a->guard = g->outer;
}

void (*arena_out_of_memory)(size_t n);
void (*arena_free_spare)(void);

void *arena_must_realloc(void *old, size_t n) {
    void *p = realloc(old, n);
    if (!p && arena_free_spare) {
        arena_free_spare();
        p = realloc(old, n);
    }
    if (p) return p;
    if (arena_out_of_memory) arena_out_of_memory(n);
    fprintf(stderr, "lvl=error ev=oom bytes=%zu\n", n);
    abort();
}
void *arena_must_calloc(size_t n, size_t size) {
    void *p = calloc(n, size);
    size_t bytes = n > PTRDIFF_MAX / size ? PTRDIFF_MAX : n * size; // too large
    return p ? p : memset(arena_must_realloc(NULL, bytes), 0, bytes);
}

void arena_init(struct arena *a) {
    memset(a, 0, sizeof *a);
}

static void run_links(struct arena *a) {
    while (a->links) {
        struct arena_link *l = a->links;
        a->links = l->next;
        l->fn(l->obj);
    }
}

void arena_done(struct arena *a) {
    if (!a) return;
    run_links(a);
    for (struct arena_block *b = a->head, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    arena_init(a);
}

void arena_reset(struct arena *a) {
    run_links(a);
    struct arena_block *keep = a->head;
    if (keep) {
        struct arena_block *rest = keep->next;
        keep->next = NULL;
        for (struct arena_block *next; rest; rest = next) {
            next = rest->next;
            free(rest);
        }
    }
    arena_init(a);
#ifdef ARENA_DEBUG
    free(keep);
#else
    if (keep) {
        a->head = keep;
        a->cur = (char *)(keep + 1);
        a->end = a->cur + keep->size;
    }
#endif
}

struct arena *arena_new(void) {
    return arena_must_calloc(1, sizeof(struct arena));
}
void arena_free(struct arena *a) {
    arena_done(a);
    free(a);
}

// least: what will do where memory is short.
static struct arena_block *add_block(struct arena *a, size_t size, size_t least) {
    size_t header = sizeof(struct arena_block);
    struct arena_block *b = size > SIZE_MAX - header ? NULL : malloc(header + size);
    if (!b && a->guard) longjmp(a->guard->place, 1);
    if (!b && least < size) b = malloc(header + (size = least));
    if (!b) b = arena_must_realloc(NULL, size > SIZE_MAX - header ? size : header + size);
    b->size = size;
    b->next = a->head;
    a->head = b;
    return b;
}

void *arena_alloc_aligned(struct arena *a, size_t n, size_t align) {
    if (align < ALIGN) align = ALIGN;
    a->used_bytes += n;
#ifdef ARENA_DEBUG
    // The item ends where the malloc block does (up to alignment): a sanitizer sees an overrun.
    struct arena_block *b = add_block(a, n + (align > ALIGN ? align : 0), SIZE_MAX);
    uintptr_t p = (uintptr_t)(b + 1);
    return (void *)((p + align - 1) & ~(uintptr_t)(align - 1));
#else
    uintptr_t p = ((uintptr_t)a->cur + align - 1) & ~(uintptr_t)(align - 1);
    if (a->cur && p <= (uintptr_t)a->end && n <= (uintptr_t)a->end - p) {
        a->cur = (char *)(p + n);
        return (void *)p;
    }

    size_t block = a->head ? a->head->size * 2 : MIN_BLOCK;
    if (block > MAX_BLOCK) block = MAX_BLOCK;
    if (n > block / 2) { // its own block, behind the current one, which stays in use
        if (n > SIZE_MAX - 2 * align && a->guard) longjmp(a->guard->place, 1);
        if (n > SIZE_MAX - 2 * align) n = SIZE_MAX - 2 * align; // too large
        struct arena_block *head = a->head, *big = add_block(a, n + align, SIZE_MAX);
        if (head) {
            a->head = head;
            big->next = head->next;
            head->next = big;
        } else {
            a->cur = a->end = NULL;
        }
        p = ((uintptr_t)(big + 1) + align - 1) & ~(uintptr_t)(align - 1);
        return (void *)p;
    }

    struct arena_block *b = add_block(a, block, n + align);
    p = ((uintptr_t)(b + 1) + align - 1) & ~(uintptr_t)(align - 1);
    a->cur = (char *)(p + n);
    a->end = (char *)(b + 1) + b->size;
    return (void *)p;
#endif
}

void *arena_alloc(struct arena *a, size_t n) {
    return arena_alloc_aligned(a, n, ALIGN);
}
void *arena_zalloc(struct arena *a, size_t n) {
    return memset(arena_alloc(a, n), 0, n);
}
void *arena_dup(struct arena *a, const void *p, size_t n) {
    void *q = arena_alloc(a, n);
    if (n) memcpy(q, p, n);
    return q;
}
char *arena_strndup(struct arena *a, const char *s, size_t n) {
    char *p = arena_alloc(a, n + 1);
    if (n) memcpy(p, s, n);
    p[n] = 0;
    return p;
}
char *arena_strdup(struct arena *a, const char *s) {
    return arena_strndup(a, s, strlen(s));
}
char *arena_printf(struct arena *a, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *p = arena_alloc(a, (size_t)(n < 0 ? 0 : n) + 1);
    va_start(ap, fmt);
    vsnprintf(p, (size_t)(n < 0 ? 0 : n) + 1, fmt, ap);
    va_end(ap);
    return p;
}
void arena_link(struct arena *a, void (*fn)(void *obj), void *obj) {
    struct arena_link *l = arena_new_of(a, struct arena_link);
    *l = (struct arena_link){a->links, fn, obj};
    a->links = l;
}
