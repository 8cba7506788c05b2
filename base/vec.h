// SPDX-License-Identifier: Apache-2.0
// vec: typed growing arrays. VEC(T) declares the struct; elements are v[0..n). Two families: vec_*
// is malloc-backed (vec_done frees), avec_* grows in an arena (nothing to free). Never mix the two
// on one object. Aborts on out of memory.
#pragma once
#include "base/arena.h"
#include <stddef.h>

#define VEC(T)                                                                                     \
    struct {                                                                                       \
        T *v;                                                                                      \
        size_t n, cap;                                                                             \
    }
#define vec_push(vec, x)                                                                           \
    (vec_grow_((void **)&(vec)->v, (vec)->n, &(vec)->cap, sizeof *(vec)->v),                       \
     (vec)->v[(vec)->n++] = (x))
#define vec_done(vec) (vec_free_((void **)&(vec)->v), (vec)->n = (vec)->cap = 0)
#define avec_push(a, vec, x)                                                                       \
    (avec_grow_((a), (void **)&(vec)->v, (vec)->n, &(vec)->cap, sizeof *(vec)->v),                 \
     (vec)->v[(vec)->n++] = (x))
#define vec_pop(vec) ((vec)->v[--(vec)->n])
void vec_grow_(void **v, size_t n, size_t *cap, size_t elem);
void vec_free_(void **v);
void avec_grow_(struct arena *a, void **v, size_t n, size_t *cap, size_t elem);
