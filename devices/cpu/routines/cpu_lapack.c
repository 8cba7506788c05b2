// SPDX-License-Identifier: Apache-2.0
// lapack: Cholesky decompositions and triangular solves by OpenBLAS, where it is installed. Its
// routines (Fortran's names and calls) read matrices by columns: one that lies by rows is its
// transpose to them, which changes the triangle and the side and copies nothing. Small matrices
// stay with the generated kernels, and all of them where the library is not there.
//
// The variant of one thread: it starts none of its own; the matrices of a stack are shared among
// the worker's threads (cpu_lapack_memory.c). Opened with the device, before a worker's filter
// closes files: 2 ms, 0.2 MB until the first call.
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "devices/cpu/cpu.h"
#include "devices/cpu/routines/cpu_lapack.h"

// Debian's package libopenblas0-serial; HLOD_CPU_LAPACK names another, empty = none.
#define LIBRARY "/usr/lib/x86_64-linux-gnu/openblas-serial/libopenblas.so.0"
enum { LEAST = 16 };              // rows, below which a generated kernel is as fast
enum { GRAIN_PRODUCTS = 200000 }; // multiplications that a thread takes at least
static const char types[] = {'s', 'd', 'c', 'z'};

typedef void (*potrf_fn)(const char *uplo, const int *n, void *a, const int *lda, int *info);
typedef void (*trsm_fn)(const char *side, const char *uplo, const char *trans, const char *diag,
                        const int *m, const int *n, const void *alpha, const void *a,
                        const int *lda, void *b, const int *ldb);
static struct {
    potrf_fn potrf[sizeof types];
    trsm_fn trsm[sizeof types];
    void *library;
    bool there;
} blas;

void *cpu_lapack_routine(int type, const char *name) {
    char symbol[16];
    snprintf(symbol, sizeof symbol, "%c%s_", types[type], name);
    return blas.library ? dlsym(blas.library, symbol) : NULL;
}
static void factor_one(void) {
    double one = 1;
    int n = 1, info = 0;
    blas.potrf[1]("L", &n, &one, &n, &info);
}
static void open_library(void) {
    const char *named = getenv("HLOD_CPU_LAPACK");
    if (named && !*named) return;
    blas.library = dlopen(named ? named : LIBRARY, RTLD_LAZY | RTLD_LOCAL);
    blas.there = blas.library != NULL;
    for (int k = 0; k < (int)sizeof types; k++) {
        *(void **)&blas.potrf[k] = cpu_lapack_routine(k, "potrf");
        *(void **)&blas.trsm[k] = cpu_lapack_routine(k, "trsm");
        blas.there = blas.there && blas.potrf[k] && blas.trsm[k];
    }
    if (blas.there) factor_one();
    cpu_lapack_decide();
}
bool cpu_lapack_open(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_library);
    return blas.there;
}

int cpu_lapack_type(enum dtype t) {
    return t == DT_F32 ? 0 : t == DT_F64 ? 1 : t == DT_C64 ? 2 : t == DT_C128 ? 3 : -1;
}
static bool by_rows(const struct shape *s) {
    return !shape_is_tuple(s) && s->rank >= 2 && layout_is_default(s->layout, s->rank) &&
           s->dims[s->rank - 1] <= INT32_MAX && s->dims[s->rank - 2] <= INT32_MAX;
}
bool cpu_lapack_accepts(const struct hlo_instr *i) {
    if ((i->op != HLO_CHOLESKY && i->op != HLO_TRIANGULAR_SOLVE) || !cpu_lapack_open())
        return false;
    for (int k = 0; k < i->n_operands; k++)
        if (!by_rows(i->operands[k]->shape)) return false;
    const struct shape *a = i->operands[0]->shape;
    return by_rows(i->shape) && cpu_lapack_type(i->shape->dtype) >= 0 &&
           shape_elements(i->shape) > 0 && a->dims[a->rank - 1] >= LEAST;
}
static bool lapack_accepts(UNUSED const struct cpu_exe *x, const struct hlo_instr *i,
                           const char **why) {
    bool missing = i->op == HLO_CHOLESKY || i->op == HLO_TRIANGULAR_SOLVE;
    missing = missing && !cpu_lapack_open();
    *why = missing ? CPU_LAPACK_PACKAGE : "not a decomposition of matrices that OpenBLAS does";
    return cpu_lapack_accepts(i);
}

struct lapack_state {
    const struct hlo_instr *instr;
    int type, n, rows, cols; // of the triangle; of the result
    int64_t a_bytes, bytes, matrices, grain;
};
static status_t lapack_open(struct cpu_exe *x, struct cpu_step *s) {
    struct lapack_state *t = arena_new_of(&x->arena, struct lapack_state);
    const struct hlo_instr *i = s->plan->instr;
    const struct shape *a = i->operands[0]->shape, *r = i->shape;
    t->instr = i;
    t->type = cpu_lapack_type(r->dtype);
    t->n = (int)a->dims[a->rank - 1];
    t->rows = (int)r->dims[r->rank - 2], t->cols = (int)r->dims[r->rank - 1];
    int64_t each = (int64_t)t->rows * t->cols;
    t->matrices = shape_elements(r) / each;
    t->bytes = each * dtype_size(r->dtype);
    t->a_bytes = (int64_t)t->n * t->n * dtype_size(r->dtype);
    t->grain = cpu_lapack_turns() ? t->matrices : GRAIN_PRODUCTS / (each * t->n) + 1;
    s->detail = i->op == HLO_CHOLESKY ? "lapack:potrf" : "lapack:trsm";
    s->state = t;
    return ST_OK;
}

// Row by row: what the other triangle held, or all of it, becomes `value` (one element).
static void clear_triangle(const struct lapack_state *t, bool lower, char *m, bool whole,
                           const void *value) {
    int64_t size = t->bytes / t->n / t->n;
    for (int64_t r = 0; r < t->n; r++) {
        int64_t begin = whole || !lower ? 0 : r + 1, end = whole || lower ? t->n : r;
        cpu_fill(m + (r * t->n + begin) * size, value, size, end - begin);
    }
}
static bool positive_diagonal(const struct lapack_state *t, const char *m) {
    int64_t step = (t->bytes / t->n / t->n) * (t->n + 1);
    for (int64_t k = 0; k < t->n; k++, m += step)
        if (t->type % 2 ? !(*(const double *)m > 0) : !(*(const float *)m > 0)) return false;
    return true;
}
// NaN on the diagonal is no error to the library; HLO has NaN everywhere then.
static void cholesky(const struct lapack_state *t, const void *a, void *out) {
    static const float nan32[2] = {(float)NAN, 0}, zero[4] = {0};
    static const double nan64[2] = {(double)NAN, 0};
    bool lower = HLO_ATTR(t->instr, cholesky)->lower;
    int info = 0;
    if (a != out) memcpy(out, a, (size_t)t->bytes);
    cpu_lapack_begin();
    blas.potrf[t->type](lower ? "U" : "L", &t->n, out, &t->n, &info);
    cpu_lapack_end();
    if (info == 0 && positive_diagonal(t, out))
        clear_triangle(t, lower, out, false, zero);
    else
        clear_triangle(t, lower, out, true,
                       t->type % 2 ? (const void *)nan64 : (const void *)nan32);
}
// op(a) x = b of rows is x^T op(a)^T = b^T: the other side, the other triangle, the same op.
static void solve(const struct lapack_state *t, const void *a, const void *b, void *out) {
    static const float one32[2] = {1, 0};
    static const double one64[2] = {1, 0};
    const struct hlo_attr_trisolve *c = HLO_ATTR(t->instr, trisolve);
    const char *trans = c->transpose_a == TRI_NO_TRANSPOSE ? "N"
                        : c->transpose_a == TRI_TRANSPOSE  ? "T"
                                                           : "C";
    if (b != out) memcpy(out, b, (size_t)t->bytes);
    cpu_lapack_begin();
    blas.trsm[t->type](c->left_side ? "R" : "L", c->lower ? "U" : "L", trans,
                       c->unit_diagonal ? "U" : "N", &t->cols, &t->rows,
                       t->type % 2 ? (const void *)one64 : (const void *)one32, a, &t->n, out,
                       &t->cols);
    cpu_lapack_end();
}
struct lapack_run {
    const struct cpu_exe *x;
    const struct lapack_state *t;
    void **bufs;
};
static void part(void *ctx, int64_t begin, int64_t end, UNUSED int thread) {
    const struct lapack_run *c = ctx;
    const struct lapack_state *t = c->t;
    for (int64_t k = begin; k < end && !(c->x->cancel && *c->x->cancel); k++) {
        const char *a = (const char *)c->bufs[0] + k * t->a_bytes;
        if (t->instr->op == HLO_CHOLESKY)
            cholesky(t, a, (char *)c->bufs[1] + k * t->bytes);
        else
            solve(t, a, (const char *)c->bufs[1] + k * t->bytes, (char *)c->bufs[2] + k * t->bytes);
    }
}
static status_t lapack_run(struct cpu_exe *x, struct cpu_step *s, void **bufs) {
    const struct lapack_state *t = s->state;
    cpu_parallel(part, &(struct lapack_run){x, t, bufs}, t->matrices, t->grain);
    return x->cancel && *x->cancel ? cpu_cancelled() : ST_OK;
}
const struct cpu_impl cpu_impl_lapack = {"lapack",   lapack_accepts, lapack_open, NULL,
                                         lapack_run, NULL,           NULL,        NULL};
