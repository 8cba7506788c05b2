// SPDX-License-Identifier: Apache-2.0
// cpu_gemm_vector: products of a matrix and a vector of complex numbers for cpu_gemm.c. The matrix
// is read once, where it lies, from front to end: tiles would pack it. A unit is some lines of a
// group; loops in cpu_gemm_body.h.
#include "base/span.h"
#include "devices/cpu/cpu.h"
#include "devices/cpu/gemm/cpu_gemm.h"

// Bytes of a unit's part of what lies side by side, if these are lines: long runs in memory, whose
// sums stay near. LINES: of a unit else.
enum { LEAST = 8192, LEAST_SIDE = 16, RUN_BYTES = 16384, LEAST_RUN_BYTES = 2048, LINES = 64 };

bool cpu_gemm_vector_takes(const struct hlo_instr *i, const struct cpu_sizes *s) {
    if (i->op != HLO_DOT || !dtype_is_complex(i->shape->dtype) || (s->m == 1) == (s->n == 1))
        return false;
    const struct hlo_attr_dot *d = HLO_ATTR(i, dot);
    bool right = s->m == 1; // is the matrix
    const struct shape *a = i->operands[right]->shape;
    const struct i64s *batch = right ? &d->rhs_batch_dims : &d->lhs_batch_dims;
    return a->rank == batch->n + 2 && !i64s_has(*batch, a->rank - 1) && s->k >= LEAST_SIDE &&
           s->m * s->n >= LEAST_SIDE && (double)s->m * (double)s->n * (double)s->k >= LEAST;
}
// The vector becomes the left operand.
void cpu_gemm_vector_divide(struct gemm_state *g) {
    int64_t run = RUN_BYTES / g->each, share = g->n / (2 * g->threads);
    if (share < LEAST_RUN_BYTES / g->each) share = LEAST_RUN_BYTES / g->each;
    if (g->threads > 1 && share < run) run = share;
    g->along_terms = g->k < 2 || g->b.depth[1] - g->b.depth[0] == 1;
    g->width = g->along_terms ? LINES : run;
    if (g->width > g->n) g->width = g->n;
    g->blocks = ceil_div(g->n, g->width);
    g->parts = 1;
    g->packed_a = round_up(g->k * g->each, 64);
    g->total = g->packed_a + 2 * round_up(g->width * g->each, 64);
}
// Elements `at` of x side by side.
static const void *side_by_side(const struct gemm_state *g, const char *x, const int64_t *at,
                                int64_t n, char *room) {
    bool even = true;
    for (int64_t k = 1; k < n && even; k++)
        even = at[k] - at[k - 1] == 1;
    if (even) return x + at[0] * g->each;
    for (int64_t k = 0; k < n; k++)
        memcpy(room + k * g->each, x + at[k] * g->each, (size_t)g->each);
    return room;
}
void cpu_gemm_vector_units(void *call, int64_t begin, int64_t end, int thread) {
    const struct gemm_call *c = call;
    const struct gemm_state *g = c->g;
    char *own = c->scratch + thread * g->total;
    for (int64_t u = begin; u < end; u++) {
        int64_t group = u / g->blocks, from = u % g->blocks * g->width;
        const char *x = (const char *)c->a + (g->a.group[group] + g->a.line[0]) * g->each;
        struct gemm_vector v = {
            .a = (const char *)c->b + g->b.group[group] * g->each,
            .x = side_by_side(g, x, g->a.depth, g->k, own),
            .line = g->b.line + from,
            .depth = g->b.depth,
            .n = g->n - from < g->width ? g->n - from : g->width,
            .k = g->k,
            .sums = own + g->packed_a,
            .beside = own + g->packed_a + round_up(g->width * g->each, 64)};
        (g->along_terms ? g->kernel->along_terms : g->kernel->along_lines)(&v);
        char *out = (char *)c->out + (g->g_out[group] + g->m_out[0]) * g->each;
        for (int64_t l = 0; l < v.n; l++)
            memcpy(out + g->n_out[from + l] * g->each, (const char *)v.sums + l * g->each,
                   (size_t)g->each);
    }
}
