// SPDX-License-Identifier: Apache-2.0
// Signals: Fourier transforms, windows, mel filters. A transform of moderate length is a product
// with a constant matrix of sines and cosines, or two, which libraries and kernels of all targets
// run; a long one is HLO's fft.
#include <math.h>

#include "compiler/frontend/onnx/onnx_tools.h"

enum { MAX_MATRIX = 1 << 20, MAX_WINDOW = 1 << 24 };

// ---- DFT: [..., n, 1 or 2] -> [..., bins, 2], along the dimension before the last

// Cosine and sine of k of n parts of a turn, for each k.
static const double *parts_of_a_turn(struct onnx_ctx *c, int64_t n) {
    double *v = arena_array(c->a, double, 2 * n);
    for (int64_t k = 0; k < n; k++) {
        double w = 2 * M_PI * (double)k / (double)n;
        v[2 * k] = cos(w), v[2 * k + 1] = sin(w);
    }
    return v;
}
static hv dft_matrix(struct onnx_ctx *c, hv x, int64_t n, int64_t bins, bool inverse) {
    struct hb *b = &c->b;
    int rank = x->shape->rank;
    int64_t parts = x->shape->dims[rank - 1], dims[HLO_MAX_RANK], zero = 0, last = rank - 2;
    int64_t size[2] = {n * parts, bins * 2};
    double *m = arena_array(c->a, double, size[0] * size[1] + 1),
           scale = inverse ? 1.0 / (double)n : 1, way = inverse ? scale : -scale;
    const double *turn = parts_of_a_turn(c, n);
    for (int64_t t = 0; t < n; t++)
        for (int64_t f = 0, at = 0; f < bins; f++, at = at + t < n ? at + t : at + t - n) {
            double cosine = turn[2 * at] * scale, sine = turn[2 * at + 1] * way;
            double *re = m + t * parts * size[1] + 2 * f, *im = re + size[1];
            re[0] = cosine, re[1] = sine;
            if (parts == 2) im[0] = -sine, im[1] = cosine;
        }
    for (int d = 0; d < rank; d++)
        dims[d] = x->shape->dims[d];
    dims[rank - 2] = n * parts;
    x = hb_reshape(b, x, dims, rank - 1);
    x = hb_dot_over(b, x, onnx_lit_f64s(c, x->shape->dtype, m, size, 2), last, zero);
    dims[rank - 2] = bins, dims[rank - 1] = 2;
    return hb_reshape(b, x, dims, rank);
}
// n = a b, in two smaller products (Cooley and Tukey): with t = b t1 + t2 and f = f1 + a f2, first
// over t1 for each t2, then over t2 for each f1, whose matrix turns by t2 f1 / n as well.
//   [rows, t1, t2, parts] -> [rows t2, t1 parts] . first [t1 parts, f1 2] -> [f1, rows, t2 2]
//   . second [f1, t2 2, f2 2] -> [f1, rows, f2, 2] -> [rows, f2 f1, 2]
static hv dft_steps(struct onnx_ctx *c, hv x, int64_t a, int64_t n, int64_t bins, bool inverse) {
    struct hb *b = &c->b;
    int rank = x->shape->rank;
    int64_t parts = x->shape->dims[rank - 1], two = n / a, rows = 1, dims[HLO_MAX_RANK];
    double scale = inverse ? 1.0 / (double)n : 1, way = inverse ? 1 : -1;
    const double *turn = parts_of_a_turn(c, n);
    double *first = arena_array(c->a, double, a *parts *a * 2 + 1),
           *second = arena_array(c->a, double, n * 2 * two * 2 + 1);
    for (int d = 0; d < rank; d++)
        dims[d] = x->shape->dims[d], rows *= d < rank - 2 ? dims[d] : 1;

    for (int64_t t = 0; t < a; t++)
        for (int64_t f = 0; f < a; f++) {
            const double *w = turn + 2 * (t * f % a * two);
            double *re = first + t * parts * a * 2 + 2 * f, *im = re + 2 * a;
            re[0] = w[0], re[1] = w[1] * way;
            if (parts == 2) im[0] = -re[1], im[1] = re[0];
        }
    for (int64_t f1 = 0; f1 < a; f1++)
        for (int64_t t = 0; t < two; t++)
            for (int64_t f2 = 0; f2 < two; f2++) {
                const double *w = turn + 2 * (t * (f1 + a * f2) % n);
                double *re = second + ((f1 * two + t) * 2 * two + f2) * 2, *im = re + 2 * two;
                re[0] = w[0] * scale, re[1] = w[1] * way * scale;
                im[0] = -re[1], im[1] = re[0];
            }

    enum dtype type = x->shape->dtype;
    hv m = onnx_lit_f64s(c, type, first, (int64_t[]){a * parts, 2 * a}, 2),
       q = onnx_lit_f64s(c, type, second, (int64_t[]){1, a, 2 * two, 2 * two}, 4);
    x = hb_reshape(b, x, (int64_t[]){rows, a, two, parts}, 4);
    x = hb_reshape(b, onnx_swap_axes(c, x, 1, 2), (int64_t[]){rows * two, a * parts}, 2);
    x = hb_reshape(b, hb_dot_over(b, x, m, 1, 0), (int64_t[]){rows, two, a, 2}, 4);
    if (!hb_ok(b)) return x;
    x = hb_transpose(b, x, (int64_t[]){2, 0, 1, 3});
    x = onnx_batch_dot(c, hb_reshape(b, x, (int64_t[]){1, a, rows, 2 * two}, 4), q, false);
    x = hb_reshape(b, x, (int64_t[]){a, rows, two, 2}, 4);
    if (!hb_ok(b)) return x;
    x = hb_transpose(b, x, (int64_t[]){1, 2, 0, 3});
    dims[rank - 2] = n, dims[rank - 1] = 2;
    return onnx_part(c, hb_reshape(b, x, dims, rank), rank - 2, 0, bins);
}
// The factor of n that makes two products; 0: one of all costs less than four times as much.
static int64_t dft_factor(int64_t n, int64_t parts, int64_t bins) {
    int64_t best = 0, cost = parts * bins * 2 / 4;
    for (int64_t a = 2; a * 2 <= n && a <= 256; a++)
        if (n % a == 0 && a * parts * 2 + n / a * 4 < cost)
            best = a, cost = a * parts * 2 + n / a * 4;
    return best;
}
static hv dft_fft(struct onnx_ctx *c, hv x, int64_t n, int64_t bins, bool inverse) {
    struct hb *b = &c->b;
    int rank = x->shape->rank;
    enum dtype t = x->shape->dtype;
    hv re = onnx_row(c, x, rank - 1, 0);
    hv im = x->shape->dims[rank - 1] == 2 ? onnx_row(c, x, rank - 1, 1) : onnx_splat_like(c, re, 0);
    if (t != DT_F32 && t != DT_F64) re = hb_convert(b, re, DT_F32), im = hb_convert(b, im, DT_F32);
    hv z = hb_binary(b, HLO_COMPLEX, re, im);
    struct hlo_attr_fft a = {.fft_type = inverse ? FFT_IFFT : FFT_FFT, .fft_length = {&n, 1}};
    z = onnx_part(c, hb_op(b, HLO_FFT, NULL, &z, 1, &a), rank - 2, 0, bins);
    hv both[2] = {hb_unary(b, HLO_REAL, z), hb_unary(b, HLO_IMAG, z)};
    return hb_convert(b, onnx_stack_last(c, both, 2), t);
}
static hv dft(struct onnx_ctx *c, hv x, bool inverse, bool onesided) {
    int rank = x->shape->rank;
    int64_t n = x->shape->dims[rank - 2], parts = x->shape->dims[rank - 1];
    int64_t bins = onesided ? n / 2 + 1 : n;
    if (n < 1 || (parts != 1 && parts != 2)) return onnx_fail(c, "signal %s", onnx_show(c, x)), x;
    bool small = n <= MAX_MATRIX / (2 * bins * parts);
    int64_t a = small ? dft_factor(n, parts, bins) : 0;
    if (a) return dft_steps(c, x, a, n, bins, inverse);
    return small ? dft_matrix(c, x, n, bins, inverse) : dft_fft(c, x, n, bins, inverse);
}

// The first half of a spectrum [..., bins, 1 or 2] back to the real signal [..., n, 1]: every bin
// but the first, and the last of an even length, stands for its mirror image, too. What those have
// as imaginary part has no place in a real signal and is dropped.
static hv dft_real_matrix(struct onnx_ctx *c, hv x, int64_t n) {
    int rank = x->shape->rank;
    int64_t bins = x->shape->dims[rank - 2], parts = x->shape->dims[rank - 1], zero = 0,
            last = rank - 2, dims[HLO_MAX_RANK], size[2] = {bins * parts, n};
    double *m = arena_zarray(c->a, double, size[0] * n + 1);
    const double *turn = parts_of_a_turn(c, n);
    for (int64_t f = 0; f < bins; f++) {
        bool alone = f == 0 || 2 * f == n;
        double scale = (alone ? 1.0 : 2.0) / (double)n, *re = m + f * parts * n;
        for (int64_t t = 0, at = 0; t < n; t++, at = at + f < n ? at + f : at + f - n) {
            re[t] = turn[2 * at] * scale;
            if (parts == 2 && !alone) re[n + t] = -turn[2 * at + 1] * scale;
        }
    }
    for (int d = 0; d < rank; d++)
        dims[d] = x->shape->dims[d];
    dims[rank - 2] = bins * parts;
    x = hb_reshape(&c->b, x, dims, rank - 1);
    x = hb_dot_over(&c->b, x, onnx_lit_f64s(c, x->shape->dtype, m, size, 2), last, zero);
    return onnx_add_axis(c, x, rank - 1);
}
static hv dft_real(struct onnx_ctx *c, hv x, int64_t n) {
    struct hb *b = &c->b;
    int rank = x->shape->rank;
    int64_t bins = n / 2 + 1, have = x->shape->dims[rank - 2], parts = x->shape->dims[rank - 1];
    enum dtype t = x->shape->dtype;
    if (n < 1 || have < 1 || (parts != 1 && parts != 2))
        return onnx_fail(c, "spectrum %s for %lld values", onnx_show(c, x), (long long)n), x;
    x = have > bins ? onnx_part(c, x, rank - 2, 0, bins)
                    : onnx_pad_axis(c, x, rank - 2, 0, bins - have, 0);
    if (n <= MAX_MATRIX / (bins * parts)) return dft_real_matrix(c, x, n);
    hv re = onnx_row(c, x, rank - 1, 0);
    hv im = parts == 2 ? onnx_row(c, x, rank - 1, 1) : onnx_splat_like(c, re, 0);
    if (t != DT_F32 && t != DT_F64) re = hb_convert(b, re, DT_F32), im = hb_convert(b, im, DT_F32);
    hv z = hb_binary(b, HLO_COMPLEX, re, im);
    struct hlo_attr_fft a = {.fft_type = FFT_IRFFT, .fft_length = {&n, 1}};
    return hb_convert(b, onnx_add_axis(c, hb_op(b, HLO_FFT, NULL, &z, 1, &a), rank - 1), t);
}

ONNX_X(dft) {
    int rank = x->shape->rank, n;
    int64_t axis = c->opset >= 20 ? -2 : onnx_at_int(c, "axis", 1), length;
    bool onesided = onnx_at_int(c, "onesided", 0) != 0, inverse = onnx_at_int(c, "inverse", 0) != 0;
    if (rank < 2) return onnx_fail(c, "signal %s", onnx_show(c, x));
    if (c->opset >= 20 && onnx_in_has(c, 2) && (!onnx_in_ints(c, 2, &axis, 1, &n) || n != 1))
        return;
    axis = onnx_axis_of(c, axis, rank);
    if (!hb_ok(b)) return;
    if (axis == rank - 1) return onnx_fail(c, "the last dimension holds real and imaginary parts");
    bool to_real = inverse && onesided;
    length = to_real ? 2 * (x->shape->dims[axis] - 1) : x->shape->dims[axis];
    if (onnx_in_has(c, 1) && (!onnx_in_ints(c, 1, &length, 1, &n) || n != 1 || length < 1))
        return onnx_fail(c, "dft_length must be one positive number");
    if (to_real)
        return onnx_out_val(
            c, 0,
            onnx_swap_axes(c, dft_real(c, onnx_swap_axes(c, x, axis, rank - 2), length), axis,
                           rank - 2));
    if (length < x->shape->dims[axis])
        x = onnx_part(c, x, axis, 0, length);
    else
        x = onnx_pad_axis(c, x, axis, 0, length - x->shape->dims[axis], 0);
    onnx_out_val(c, 0,
                 onnx_swap_axes(c, dft(c, onnx_swap_axes(c, x, axis, rank - 2), inverse, onesided),
                                axis, rank - 2));
}

ONNX_X(stft) { // signal [batch, n, 1 or 2], step, window, length
    hv window = onnx_in_opt(c, 2);
    int64_t step, length = window && window->shape->rank == 1 ? window->shape->dims[0] : 0,
                  from = 0;
    int n;
    if (!onnx_in_ints(c, 1, &step, 1, &n) || n != 1) return;
    if (onnx_in_has(c, 3) && (!onnx_in_ints(c, 3, &length, 1, &n) || n != 1)) return;
    if (x->shape->rank == 2) x = onnx_add_axis(c, x, 2);
    if (x->shape->rank != 3 || step < 1 || length < 1 || length > x->shape->dims[1] ||
        (window && (window->shape->rank != 1 || window->shape->dims[0] > length)))
        return onnx_fail(c, "signal %s, frames of %lld every %lld", onnx_show(c, x),
                         (long long)length, (long long)step);
    int64_t frames = (x->shape->dims[1] - length) / step + 1, dims[2] = {frames, length};
    if (frames > MAX_WINDOW / length) return onnx_fail(c, "%lld frames", (long long)frames);
    int64_t *at = arena_array(c->a, int64_t, frames *length + 1);
    for (int64_t f = 0; f < frames; f++)
        for (int64_t k = 0; k < length; k++)
            at[f * length + k] = f * step + k;
    hv y = onnx_take(c, x, onnx_lit_s64s(c, at, dims, 2), 1); // [batch, frames, length, parts]
    if (window) { // shorter than the frame: in its middle
        from = (length - window->shape->dims[0]) / 2;
        window = onnx_pad_axis(c, window, 0, from, length - from - window->shape->dims[0], 0);
        y = hb_mul(b, y, onnx_along(c, window, y->shape, 2));
    }
    if (hb_ok(b)) onnx_out_val(c, 0, dft(c, y, false, onnx_at_int(c, "onesided", 1) != 0));
}

// ---- tables

ONNX(window) { // a0 - a1 cos(2 pi n / N) + a2 cos(4 pi n / N), N one less when not periodic
    static const double a[][3] = {{0.5, 0.5, 0}, {25.0 / 46, 21.0 / 46, 0}, {0.42, 0.5, 0.08}};
    const double *k = a[onnx_op_arg(c)];
    int64_t size;
    int n;
    if (!onnx_in_ints(c, 0, &size, 1, &n)) return;
    if (n != 1 || size < 0 || size > MAX_WINDOW) return onnx_fail(c, "size %lld", (long long)size);
    double *v = arena_array(c->a, double, size + 1),
           period = (double)(onnx_at_int(c, "periodic", 1) ? size : size - 1);
    for (int64_t i = 0; i < size; i++) {
        double w = 2 * M_PI * (double)i / period;
        v[i] = period == 0 ? 1 : k[0] - k[1] * cos(w) + k[2] * cos(2 * w);
    }
    onnx_out_val(c, 0,
                 onnx_lit_f64s(c, onnx_attr_dtype(c, "output_datatype", DT_F32), v, &size, 1));
}

static double hertz_to_mel(double f) {
    return 2595 * log10(1 + f / 700);
}
// Triangles over the bins of a spectrum, their corners evenly apart in mel.
ONNX(melweights) {
    int64_t mels, length, rate;
    int n;
    const struct literal *lo = onnx_in_known(c, 3), *hi = onnx_in_known(c, 4);
    if (!lo || !hi || !onnx_in_ints(c, 0, &mels, 1, &n) || !onnx_in_ints(c, 1, &length, 1, &n) ||
        !onnx_in_ints(c, 2, &rate, 1, &n))
        return;
    double from = hertz_to_mel(lit_get_f64(lo, 0)), to = hertz_to_mel(lit_get_f64(hi, 0));
    int64_t bins = length / 2 + 1, dims[2] = {bins, mels};
    if (mels < 1 || length < 1 || rate < 1 || mels > 1 << 16 || length > MAX_WINDOW / mels)
        return onnx_fail(c, "%lld mels over %lld points", (long long)mels, (long long)length);
    double *m = arena_zarray(c->a, double, bins *mels + 1), step = (to - from) / (double)(mels + 2);
    int64_t *corner = arena_array(c->a, int64_t, mels + 2);
    for (int64_t k = 0; k < mels + 2; k++) {
        double f = 700 * (pow(10, ((double)k * step + from) / 2595) - 1);
        corner[k] = (int64_t)floor((double)(length + 1) * f / (double)rate);
        if (corner[k] < 0 || corner[k] >= bins)
            return onnx_fail(c, "mel %lld lies outside the spectrum", (long long)k);
    }
    for (int64_t i = 0; i < mels; i++) {
        int64_t left = corner[i], mid = corner[i + 1], right = corner[i + 2];
        if (left == mid) m[mid * mels + i] = 1;
        for (int64_t j = left; j <= mid && left != mid; j++)
            m[j * mels + i] = (double)(j - left) / (double)(mid - left);
        for (int64_t j = mid; j < right; j++)
            m[j * mels + i] = (double)(right - j) / (double)(right - mid);
    }
    onnx_out_val(c, 0, onnx_lit_f64s(c, onnx_attr_dtype(c, "output_datatype", DT_F32), m, dims, 2));
}
