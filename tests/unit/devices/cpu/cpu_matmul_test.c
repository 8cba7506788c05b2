// SPDX-License-Identifier: Apache-2.0
// Products by panels on arrays (devices/cpu/panels/cpu_matmul.h) against sums in f64, over
// families: rows, columns and terms that fill no tile, panel or block, batches, right operands as
// rows, as columns and with gaps, packed (from where they lie unaligned) or not, every step behind,
// the result where the sum's operand is, one and two threads (the same bits).
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "devices/cpu/cpu.h"
#include "devices/cpu/panels/cpu_matmul.h"

static uint64_t state = 1;
static float next(void) { // [-1, 1)
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (float)(int32_t)(state >> 32) / 2147483648.0f;
}
static float *numbers(int64_t n) {
    float *p = aligned_alloc(64, (size_t)(n * 4 + 64) / 64 * 64);
    assert_non_null(p);
    for (int64_t k = 0; k < n; k++)
        p[k] = next();
    return p;
}

enum { GAP = 3 };
enum lies { ROWS, COLUMNS, GAPS }; // of the right operand
struct data {
    struct matmul m;
    int64_t matrices;
    float *left, *right, *packed, *out, *bias, *sum;
};
static double step(const struct data *d, const struct lib_post *p, int64_t c, int64_t at,
                   double x) {
    switch (p->kind) {
    case LIB_POST_BIAS:
        return x + (double)d->bias[c];
    case LIB_POST_SUM:
        return x + (double)d->sum[at];
    case LIB_POST_RELU:
        return x < 0 ? 0 : x;
    case LIB_POST_CLIP:
        return fmin(fmax(x, (double)p->alpha), (double)p->beta);
    case LIB_POST_LOGISTIC:
        return 1 / (1 + exp(-x));
    case LIB_POST_TANH:
        return tanh(x);
    case LIB_POST_SCALE:
        return x * (double)p->alpha;
    case LIB_POST_GELU_ERF:
        return .5 * x * (1 + erf(x * sqrt(.5)));
    default:
        return x / (1 + exp(-(double)p->alpha * x));
    }
}
static void check_row(const struct data *d, const float *out, int64_t matrix, int64_t r) {
    const struct matmul *m = &d->m;
    const float *a = d->left + matrix * m->rows * m->left_row + r * m->left_row;
    const float *b = d->right + (m->n_batch ? matrix * m->right_batch[0] : 0);
    for (int64_t c = 0; c < m->columns; c++) {
        double sum = 0, bound = 0;
        for (int64_t k = 0; k < m->depth; k++) {
            double v = (double)a[k] * (double)b[k * m->right_term + c * m->right_column];
            sum += v;
            bound += fabs(v);
        }
        bound *= 3e-7;
        int64_t at = (matrix * m->rows + r) * m->columns + c;
        for (int k = 0; k < m->n_post; k++) {
            sum = step(d, &m->post[k], c, at, sum);
            if (m->post[k].kind == LIB_POST_SCALE) bound *= fabs((double)m->post[k].alpha);
            bound = 1.2 * bound + 6e-7 * fabs(sum) + 3e-7;
        }
        if (!(fabs((double)out[at] - sum) <= bound + 1e-30))
            fail_msg("%lldx%lld by %lld, row %lld column %lld: %g for %g", (long long)m->rows,
                     (long long)m->depth, (long long)m->columns, (long long)r, (long long)c,
                     (double)out[at], sum);
    }
}
static void run(struct data *d, float *out, int threads, bool over) {
    struct matmul *m = &d->m;
    int before = cpu_use_threads(threads);
    assert_true(matmul_plan(m, cpu_target()->vector_bits, threads));
    if (m->packed && !d->packed) {
        int64_t n = m->right_term * m->depth + m->right_column * m->columns;
        char *apart = malloc((size_t)n * 4 + 1); // lies unaligned
        memcpy(apart + 1, d->right, (size_t)n * 4);
        d->packed = numbers(matmul_packed_bytes(m) / 4);
        for (int64_t k = 0; k < matmul_pack_parts(m); k++)
            matmul_pack(m, apart + 1, k, d->packed);
        free(apart);
    }
    float *scratch = numbers(matmul_scratch_bytes(m, threads) / 4);
    struct matmul_run r = {.m = m,
                           .left = d->left,
                           .right = m->packed ? d->packed : d->right,
                           .out = out,
                           .scratch = scratch};
    for (int k = 0; k < m->n_post; k++)
        r.operand[k] = m->post[k].kind == LIB_POST_BIAS ? d->bias : over ? out : d->sum;
    matmul_run(&r);
    free(scratch);
    cpu_use_threads(before);
}
static void check(struct matmul m, int64_t matrices, enum lies shape, bool packed) {
    struct data d = {.m = m, .matrices = matrices};
    if (!cpu_panel_isa(cpu_target()->vector_bits)) return;
    int64_t lines = shape == COLUMNS ? m.columns : m.depth,
            line = (shape == COLUMNS ? m.depth : m.columns) + (shape == GAPS ? GAP : 0);
    d.m.packed = packed;
    d.m.left_row = m.depth + (shape == GAPS ? GAP : 0);
    d.m.right_term = shape == COLUMNS ? 1 : line;
    d.m.right_column = shape == COLUMNS ? line : 1;
    if (!packed) {
        d.m.n_batch = 1;
        d.m.batch[0] = matrices;
        d.m.left_batch[0] = m.rows * d.m.left_row;
        d.m.right_batch[0] = lines * line;
    }

    int64_t out = matrices * m.rows * m.columns;
    d.left = numbers(matrices * m.rows * d.m.left_row);
    d.right = numbers(matrices * lines * line + line + lines);
    d.bias = numbers(m.columns);
    d.sum = numbers(out);
    float *one = numbers(out), *two = numbers(out);
    run(&d, one, 1, false);
    for (int64_t b = 0; b < matrices; b++)
        for (int64_t r = 0; r < m.rows; r++)
            check_row(&d, one, b, r);
    run(&d, two, 2, false);
    assert_memory_equal(one, two, (size_t)out * sizeof *one);
    memcpy(two, d.sum, (size_t)out * sizeof *two);
    run(&d, two, 2, true);
    assert_memory_equal(one, two, (size_t)out * sizeof *one);

    free(d.left), free(d.right), free(d.packed), free(d.bias), free(d.sum), free(one), free(two);
}
static struct matmul sizes(int64_t rows, int64_t depth, int64_t columns) {
    return (struct matmul){.rows = rows, .depth = depth, .columns = columns};
}

static void edges(void **unused) {
    (void)unused;
    for (int64_t n = 1; n <= 35; n++)
        for (enum lies s = ROWS; s <= GAPS; s++) {
            check(sizes(n, 36 - n, 17), 1, s, true);
            check(sizes(13, n, n), 3, s, false);
            check(sizes(7, 19, n), 1, s, n % 2 == 0);
        }
}
static void blocks(void **unused) {
    (void)unused;
    for (enum lies s = ROWS; s <= GAPS; s++) {
        check(sizes(131, 100, 70), 1, s, true); // rows of two blocks, columns of two chunks
        check(sizes(9, 1601, 40), 1, s, true);  // terms of three
        check(sizes(130, 770, 33), 2, s, false);
        check(sizes(5, 4099, 259), 2, s, false); // more than is packed at once
    }
}
// Each schedule has its blocks, and the results are those of any other.
static void schedules(void **unused) {
    (void)unused;
    for (int k = 0; matmul_schedules[k]; k++)
        for (enum lies s = ROWS; s <= GAPS; s++) {
            struct matmul m = sizes(270, 1601, 150);
            m.schedule = k;
            check(m, 1, s, true);
            m = sizes(131, 100, 70);
            m.schedule = k;
            check(m, 2, s, false);
        }
}
static void steps(void **unused) {
    (void)unused;
    const struct lib_post posts[] = {{.kind = LIB_POST_BIAS},
                                     {.kind = LIB_POST_SUM},
                                     {.kind = LIB_POST_RELU},
                                     {.kind = LIB_POST_CLIP, .alpha = .1f, .beta = .7f},
                                     {.kind = LIB_POST_LOGISTIC},
                                     {.kind = LIB_POST_TANH},
                                     {.kind = LIB_POST_SCALE, .alpha = -2.5f},
                                     {.kind = LIB_POST_GELU_ERF},
                                     {.kind = LIB_POST_SWISH, .alpha = 1}};
    static const struct lib_post none;
    enum { N = sizeof posts / sizeof posts[0] };
    for (int a = 0; a < N; a++)
        for (int b = -1; b < N; b++) {
            struct matmul m = sizes(8, 12, 21);
            m.post[m.n_post++] = posts[a];
            if (b >= 0 && b != a) m.post[m.n_post++] = posts[b];
            for (int k = 0; k < m.n_post; k++) // anything that is not NULL
                if (m.post[k].kind <= LIB_POST_SUM)
                    m.post[k].operand = (const struct hlo_instr *)(const void *)&none;
            check(m, 1, ROWS, true);
            m.columns = 16;
            check(m, 2, COLUMNS, false);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(edges), cmocka_unit_test(blocks),
                                       cmocka_unit_test(schedules), cmocka_unit_test(steps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
