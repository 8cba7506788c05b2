// SPDX-License-Identifier: Apache-2.0
// 1x1 convolutions by tiles on arrays (devices/cpu/panels/cpu_pointwise.h) against sums in f64,
// over families: one to five blocks of features, full or not, channels likewise, 7 to 60 pixels,
// few and many weights, the steps behind, one and two threads. What fills up a block is zero, of
// infinite elements too: whoever reads it multiplies it with zero.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "devices/cpu/cpu.h"
#include "devices/cpu/panels/cpu_pointwise.h"

enum { L = POINT_LANES };
static uint64_t state = 1;
static float next(void) { // [-1, 1)
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (float)(int32_t)(state >> 32) / 2147483648.0f;
}
static float *numbers(int64_t n) {
    float *p = aligned_alloc(64, (size_t)(n * 4 + 63) / 64 * 64);
    assert_non_null(p);
    for (int64_t k = 0; k < n; k++)
        p[k] = next();
    return p;
}
static int64_t place(const struct pointwise *p, int64_t channels, int64_t n, int64_t c, int64_t x) {
    return ((n * ((channels + L - 1) / L) + c / L) * p->pixels + x) * L + c % L;
}

struct data {
    float *image, *weights, *packed, *out, *bias, *sum;
};
static double expected(const struct pointwise *p, const struct data *d, int64_t n, int64_t f,
                       int64_t x) {
    double sum = 0;
    for (int64_t c = 0; c < p->channels; c++)
        sum += (double)d->image[place(p, p->channels, n, c, x)] *
               (double)d->weights[f * p->channels + c];
    for (int k = 0; k < p->n_post; k++) {
        const struct lib_post *o = &p->post[k];
        if (o->kind == LIB_POST_BIAS) sum += (double)d->bias[f];
        if (o->kind == LIB_POST_SUM) sum += (double)d->sum[place(p, p->features, n, f, x)];
        if (o->kind == LIB_POST_RELU && sum < 0) sum = 0;
        if (o->kind == LIB_POST_CLIP) sum = fmin(fmax(sum, (double)o->alpha), (double)o->beta);
        if (o->kind == LIB_POST_LOGISTIC) sum = 1 / (1 + exp(-sum));
    }
    return sum;
}
static void check(struct pointwise p, int threads, bool infinite) {
    int64_t in = p.images * ((p.channels + L - 1) / L) * L * p.pixels,
            out = p.images * ((p.features + L - 1) / L) * L * p.pixels;
    struct data d = {.image = numbers(in),
                     .weights = numbers(p.features * p.channels),
                     .packed = numbers(pointwise_packed_bytes(&p) / 4),
                     .out = numbers(out),
                     .bias = numbers(p.features),
                     .sum = numbers(out)};
    if (infinite) d.image[place(&p, p.channels, 0, 0, 3)] = INFINITY;
    pointwise_plan(&p, threads);
    pointwise_pack(&p, d.weights, d.packed);
    struct pointwise_run r = {.p = &p, .image = d.image, .weights = d.packed, .out = d.out};
    for (int k = 0; k < p.n_post; k++)
        r.operand[k] = p.post[k].kind == LIB_POST_BIAS ? d.bias : d.sum;
    pointwise_run(&r);

    for (int64_t n = 0; n < p.images; n++)
        for (int64_t f = 0; f < (p.features + L - 1) / L * L; f++)
            for (int64_t x = 0; x < p.pixels; x++) {
                float got = d.out[place(&p, p.features, n, f, x)];
                if (f >= p.features) {
                    assert_true(got == 0);
                    continue;
                }
                double want = expected(&p, &d, n, f, x);
                if (isfinite(want))
                    assert_true(fabs((double)got - want) <= 1e-6 * (double)p.channels + 1e-6);
                else
                    assert_true(got == (float)want);
            }
    free(d.image), free(d.weights), free(d.packed), free(d.out), free(d.bias), free(d.sum);
}

static void test_families(UNUSED void **s) {
    static const struct lib_post posts[][3] = {
        {{.kind = LIB_POST_BIAS}, {.kind = LIB_POST_RELU}, {.kind = LIB_POST_BF16}},
        {{.kind = LIB_POST_BIAS}, {.kind = LIB_POST_SUM}, {.kind = LIB_POST_RELU}},
        {{.kind = LIB_POST_CLIP, .alpha = .25f, .beta = 1}, {.kind = LIB_POST_BF16}},
        {{.kind = LIB_POST_SUM},
         {.kind = LIB_POST_CLIP, .alpha = -1, .beta = 1},
         {.kind = LIB_POST_LOGISTIC}},
    };
    static const int64_t channels[] = {1, 15, 16, 24, 70, 300},
                         features[] = {1, 16, 24, 33, 40, 48, 70, 80}, pixels[] = {7, 13, 28, 60};
    if (cpu_target()->vector_bits < 512) skip();
    int at = 0;
    for (size_t c = 0; c < sizeof channels / sizeof *channels; c++)
        for (size_t f = 0; f < sizeof features / sizeof *features; f++)
            for (size_t x = 0; x < sizeof pixels / sizeof *pixels; x++, at++) {
                const struct lib_post *q = posts[at % 4];
                struct pointwise p = {.images = 1 + at % 3,
                                      .channels = channels[c],
                                      .features = features[f],
                                      .pixels = pixels[x]};
                for (int k = 0; k < 3 && q[k].kind != LIB_POST_BF16; k++)
                    p.post[p.n_post++] = q[k];
                check(p, 1 + at % 2, at % 4 == 0);
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_families)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
