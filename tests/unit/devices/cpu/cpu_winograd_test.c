// SPDX-License-Identifier: Apache-2.0
// Convolutions by Winograd's tiles on arrays (devices/cpu/panels/cpu_winograd.h) against sums in
// f64, over families: channels and features of 1 to 17 and of many blocks, images smaller and
// larger than a tile and not of whole ones, paddings of 0 to 3, both tiles, every step behind, one
// and two threads. The error bound of the header is held, channels that fill up a block are zero,
// and how tiles are divided among threads changes no bit.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "devices/cpu/cpu.h"
#include "devices/cpu/panels/cpu_winograd.h"

#define BOUND 1e-6 // of what magnitude_of says

static uint64_t state = 1;
static float next(void) { // [-1, 1)
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (float)(int32_t)(state >> 32) / 2147483648.0f;
}
static float *numbers(int64_t n, bool random) {
    float *p = aligned_alloc(64, (size_t)(n * 4 + 63) / 64 * 64);
    assert_non_null(p);
    for (int64_t k = 0; k < n; k++)
        p[k] = random ? next() : 0;
    return p;
}
static int bits(void) {
    return cpu_target()->vector_bits;
}
static int64_t blocked(int64_t channels, int lanes) {
    return (channels + lanes - 1) / lanes * lanes;
}
// Element (n, c, y, x) of an image in blocks.
static int64_t place(int64_t channels, int lanes, int64_t high, int64_t wide, int64_t n, int64_t c,
                     int64_t y, int64_t x) {
    int64_t blocks = blocked(channels, lanes) / lanes;
    return (((n * blocks + c / lanes) * high + y) * wide + x) * lanes + c % lanes;
}

struct data {
    struct winograd w;
    bool anew;
    float *image, *weights, *packed, *out, *bias, *sum;
};
static double step(const struct data *d, const struct lib_post *p, int64_t f, int64_t at,
                   double x) {
    switch (p->kind) {
    case LIB_POST_BIAS:
        return x + (double)d->bias[f];
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
// What an error is relative to: over all channels, the largest input of the tile times the sum of
// the filter's magnitudes. A tile's points mix all of its inputs, so a sum that the image's border
// cuts short has its neighbours' errors.
static double magnitude_of(const struct data *d, int64_t n, int64_t f, int64_t y, int64_t x) {
    const struct winograd *w = &d->w;
    int64_t y0 = y / w->m * w->m - w->top, x0 = x / w->m * w->m - w->left;
    double all = 0;
    for (int64_t c = 0; c < w->channels; c++) {
        double most = 0, filter = 0;
        for (int64_t k = 0; k < w->points; k++) {
            int64_t iy = y0 + k / (w->m + 2), ix = x0 + k % (w->m + 2);
            if (iy < 0 || ix < 0 || iy >= w->height || ix >= w->width) continue;
            int64_t at = place(w->channels, w->panel->lanes, w->height, w->width, n, c, iy, ix);
            if (isfinite(d->image[at])) most = fmax(most, fabs((double)d->image[at]));
        }
        for (int64_t k = 0; k < 9; k++)
            if (isfinite(d->weights[(f * w->channels + c) * 9 + k]))
                filter += fabs((double)d->weights[(f * w->channels + c) * 9 + k]);
        all += most * filter;
    }
    return all;
}
static void check_element(const struct data *d, int64_t n, int64_t f, int64_t y, int64_t x) {
    const struct winograd *w = &d->w;
    int lanes = w->panel->lanes;
    double sum = 0;
    for (int64_t c = 0; c < w->channels; c++)
        for (int64_t k = 0; k < 9; k++) {
            int64_t iy = y + k / 3 - w->top, ix = x + k % 3 - w->left;
            if (iy < 0 || ix < 0 || iy >= w->height || ix >= w->width) continue;
            sum += (double)d->image[place(w->channels, lanes, w->height, w->width, n, c, iy, ix)] *
                   (double)d->weights[(f * w->channels + c) * 9 + k];
        }

    int64_t at = place(w->features, lanes, w->out_height, w->out_width, n, f, y, x);
    double bound = BOUND * magnitude_of(d, n, f, y, x) + 1e-30;
    for (int k = 0; k < w->n_post; k++) {
        sum = step(d, &w->post[k], f, at, sum);
        if (w->post[k].kind == LIB_POST_SCALE) bound *= fabs((double)w->post[k].alpha);
        bound = 1.2 * bound + 6e-7 * fabs(sum) + (w->post[k].kind >= LIB_POST_LOGISTIC ? 2e-7 : 0);
    }
    bool same = isfinite(sum) ? fabs((double)d->out[at] - sum) <= bound
                : isnan(sum)  ? isnan(d->out[at])
                              : (double)d->out[at] == sum;
    if (!same)
        fail_msg("m %d, %lld to %lld at %lldx%lld, image %lld feature %lld at %lld,%lld: %g for %g",
                 w->m, (long long)w->channels, (long long)w->features, (long long)w->height,
                 (long long)w->width, (long long)n, (long long)f, (long long)y, (long long)x,
                 (double)d->out[at], sum);
}
static void run(struct data *d, int threads) {
    struct winograd *w = &d->w;
    int before = cpu_use_threads(threads);
    assert_true(winograd_plan(w, bits(), threads));
    w->anew = d->anew;
    if (!d->packed) {
        d->packed = numbers(winograd_packed_bytes(w) / 4, false);
        winograd_pack(w, d->weights, d->packed);
    }
    float *scratch = numbers(winograd_scratch_bytes(w, threads) / 4, true);
    struct winograd_run r = {
        .w = w, .image = d->image, .weights = d->packed, .out = d->out, .scratch = scratch};
    if (w->anew) r.weights = d->weights;
    for (int k = 0; k < w->n_post; k++)
        r.operand[k] = w->post[k].kind == LIB_POST_BIAS ? d->bias : d->sum;
    winograd_run(&r);
    free(scratch);
    cpu_use_threads(before);
}
static void check(struct winograd w) {
    struct data d = {.w = w};
    if (!winograd_plan(&d.w, bits(), 1)) return; // no vectors
    int lanes = d.w.panel->lanes;
    int64_t in = w.batch * blocked(w.channels, lanes) * w.height * w.width,
            out = w.batch * blocked(w.features, lanes) * w.out_height * w.out_width;
    d.image = numbers(in, true);
    for (int64_t k = 0; k < in; k++) // as producers leave it
        if (k / lanes / (w.height * w.width) % (blocked(w.channels, lanes) / lanes) * lanes +
                k % lanes >=
            w.channels)
            d.image[k] = 0;
    d.weights = numbers(w.features * w.channels * 9, true);
    d.bias = numbers(w.features, true);
    d.sum = numbers(out, true);
    d.out = numbers(out, true);

    run(&d, 1);
    for (int64_t n = 0; n < w.batch; n++)
        for (int64_t f = 0; f < w.features; f++)
            for (int64_t y = 0; y < w.out_height; y++)
                for (int64_t x = 0; x < w.out_width; x++)
                    check_element(&d, n, f, y, x);
    for (int64_t f = w.features; f < blocked(w.features, lanes); f++)
        assert_true(d.out[place(w.features, lanes, w.out_height, w.out_width, 0, f, 0, 0)] == 0);
    float *alone = d.out;
    d.out = numbers(out, true);
    run(&d, 2);
    assert_memory_equal(alone, d.out, (size_t)out * sizeof *alone);
    d.anew = true;
    run(&d, 2);
    assert_memory_equal(alone, d.out, (size_t)out * sizeof *alone);

    free(alone), free(d.image), free(d.weights), free(d.packed), free(d.out), free(d.bias);
    free(d.sum);
}
static struct winograd sizes(int m, int64_t channels, int64_t features, int64_t height,
                             int64_t width, int64_t pad) {
    return (struct winograd){.batch = 1,
                             .channels = channels,
                             .features = features,
                             .height = height,
                             .width = width,
                             .out_height = height + 2 * pad - 2,
                             .out_width = width + 2 * pad - 2,
                             .top = pad,
                             .left = pad,
                             .m = m};
}

static void channels(void **unused) {
    (void)unused;
    for (int64_t c = 1; c <= 17; c++)
        for (int m = 2; m <= 4; m += 2) {
            check(sizes(m, c, 18 - c, 7, 9, 1));
            check(sizes(m, c, c, 5, 6, 1));
        }
    check(sizes(4, 64, 40, 9, 9, 1));
    check(sizes(4, 1024, 8, 6, 6, 1)); // the bound's channels
    check(sizes(2, 1024, 8, 6, 6, 1));
}
static void images(void **unused) {
    (void)unused;
    for (int64_t high = 1; high <= 14; high++)
        for (int64_t pad = 0; pad <= 3; pad++)
            for (int m = 2; m <= 4; m += 2) {
                struct winograd w = sizes(m, 9, 5, high, 15 - high, pad);
                if (w.out_height < 1 || w.out_width < 1) continue;
                w.batch = 1 + high % 2;
                check(w);
                w.left = 0, w.out_width = w.width + pad - 2; // one side alone
                if (w.out_width > 0) check(w);
            }
    check(sizes(4, 16, 16, 61, 63, 1)); // several blocks of tiles
    check(sizes(2, 8, 24, 61, 63, 1));
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
    enum { N = sizeof posts / sizeof posts[0] };
    for (int a = 0; a < N; a++)
        for (int b = -1; b < N; b++)
            for (int m = 2; m <= 4; m += 2) {
                struct winograd w = sizes(m, 3, 11, 6, 7, 1);
                w.post[w.n_post++] = posts[a];
                if (b >= 0 && b != a) w.post[w.n_post++] = posts[b];
                check(w);
            }
}
// A result with an infinity or NaN among its inputs or weights is what the sum as it is written is;
// all others are as if that were not there.
static void not_finite(void **unused) {
    (void)unused;
    const float values[] = {NAN, INFINITY, -INFINITY};
    for (int n = 0; n < 60; n++) {
        struct data d = {.w = sizes(n % 2 ? 4 : 2, 1 + n % 19, 1 + n % 23, 9, 10, n % 3)};
        struct winograd *w = &d.w;
        if (!winograd_plan(w, bits(), 1)) return;
        int lanes = w->panel->lanes;
        int64_t in = blocked(w->channels, lanes) * w->height * w->width,
                out = blocked(w->features, lanes) * w->out_height * w->out_width;
        d.image = numbers(in, true), d.out = numbers(out, true);
        d.weights = numbers(w->features * w->channels * 9, true);
        for (int64_t k = 0; k < w->features * w->channels * 9; k += 7)
            d.weights[k] = 0;
        for (int k = 0; k <= n % 4; k++) {
            int64_t at = (int64_t)fabsf(next() * 4), c = (int64_t)fabsf(next() * w->channels);
            at = place(w->channels, lanes, w->height, w->width, 0, c, at + k, 9 - at);
            d.image[at] = values[(n + k) % 3];
        }
        for (int k = 0; k < n % 3; k++) {
            int64_t at = (int64_t)fabsf(next() * (float)(w->features * w->channels * 9));
            d.weights[at] = values[(n + k) % 3];
        }
        run(&d, 1);
        for (int64_t f = 0; f < w->features; f++)
            for (int64_t y = 0; y < w->out_height; y++)
                for (int64_t x = 0; x < w->out_width; x++)
                    check_element(&d, 0, f, y, x);
        free(d.image), free(d.out), free(d.weights), free(d.packed);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(channels), cmocka_unit_test(images),
                                       cmocka_unit_test(steps), cmocka_unit_test(not_finite)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
