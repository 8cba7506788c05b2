// SPDX-License-Identifier: Apache-2.0
// cpu_fft: what cpu_fft.c and its loops share.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "devices/cpu/routines/cpu_turn.h"

enum { FFT_MAX_FACTORS = 24, FFT_MAX_RADIX = 61 };
// Transform of length n as rounds of radix r[0], r[1], ..., or, where a factor is too large for
// that, as a convolution with a chirp by transforms of length around->n (Bluestein, "A linear
// filtering approach to the computation of discrete Fourier transform", 1970).
struct fft_plan {
    int64_t n;
    const struct fft_plan *around; // or NULL
    const void *chirp;    // around: [n] of exp(-i pi k k / n), as (cos, sin)
    const void *spectrum; // around: [around->n] of the conjugate chirp's transform, over around->n
    int n_factors, radix[FFT_MAX_FACTORS];
    const void *turns[FFT_MAX_FACTORS]; // of a round: [n of it / radix][radix - 1] of (cos, sin)
    const void *roots[FFT_MAX_FACTORS]; // of a round: [radix] of (cos, sin)
};
enum fft_kind {
    FFT_COMPLEX,
    FFT_FROM_REAL, // reads n real numbers, or 2 n as n pairs, and gives the half spectrum
    FFT_TO_REAL    // the other way
};
// Lines that are transformed alike, as many together as a vector has lanes. Line l lies at
// l / inner * outer + l % inner, its elements `stride` apart; all in complex numbers of the array,
// reals in reals.
struct fft_lines {
    const struct fft_plan *plan;
    const void *from;
    void *to;
    int64_t lines, inner, outer_in, outer_out, stride_in, stride_out;
    enum fft_kind kind;
    bool even; // of real lines: pairs are one complex number, the plan is half as long
    bool swap_in,
        swap_out; // real and imaginary parts: a transform backwards is one of swapped ones
    double scale;
    const void *half_turns; // even: [n + 1] of (cos, sin) of -2 pi k / 2n
    const void *turns;      // or NULL: [group][n][2][lanes] what results are multiplied with
};
typedef void (*fft_group_fn)(const struct fft_lines *c, int64_t group, void *lanes);
// Between n pairs of reals, transformed as complex numbers, and the n + 1 of their half spectrum.
typedef void (*fft_pairs_fn)(const void *from, void *to, int64_t n, const void *half_turns);
struct fft_loops {
    fft_group_fn group;
    fft_pairs_fn unpair, pair_up;
    int lanes;
};
