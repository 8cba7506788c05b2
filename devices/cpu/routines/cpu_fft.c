// SPDX-License-Identifier: Apache-2.0
// fft: transforms in the precision of the type, of any length up to 2^17 and longer ones whose
// prime factors are at most 61.
// Lines lie across the lanes of vectors (the first n of each lane are one line), so rounds of any
// radix are vector code. Lines of real numbers of even length are transformed as half as many
// complex ones. A long line, or one of few, is n1 n2 (Bailey, "FFTs in external or hierarchical
// memory", 1990): n2 columns of n1, turned, then n1 rows of n2. Dimensions go one after the other.
// Does not: other lengths (a generated kernel's), layouts other than row-major.
#include "devices/cpu/routines/cpu_fft.h"

#include <math.h>

#include "devices/cpu/cpu.h"

#define AVX2      __attribute__((target("avx2,fma")))
#define AVX512    __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl")))
#define FFT(name) name##_f32_plain
#define FFT_ELEM  float
#define FFT_LANES 4
#define FFT_TARGET
#include "devices/cpu/routines/cpu_fft_body.h"
#define FFT(name) name##_f64_plain
#define FFT_ELEM  double
#define FFT_LANES 2
#define FFT_TARGET
#include "devices/cpu/routines/cpu_fft_body.h"
#define FFT(name)  name##_f32_avx2
#define FFT_ELEM   float
#define FFT_LANES  8
#define FFT_TARGET AVX2
#include "devices/cpu/routines/cpu_fft_body.h"
#define FFT(name)  name##_f64_avx2
#define FFT_ELEM   double
#define FFT_LANES  4
#define FFT_TARGET AVX2
#include "devices/cpu/routines/cpu_fft_body.h"
#define FFT(name)  name##_f32_avx512
#define FFT_ELEM   float
#define FFT_LANES  16
#define FFT_TARGET AVX512
#include "devices/cpu/routines/cpu_fft_body.h"
#define FFT(name)  name##_f64_avx512
#define FFT_ELEM   double
#define FFT_LANES  8
#define FFT_TARGET AVX512
#include "devices/cpu/routines/cpu_fft_body.h"

enum { MAX_LENGTH = 1 << 22, LONG = 4096, LONGEST = 1 << 16, LONGEST_CHIRP = 1 << 17 };
struct step { // one dimension
    enum fft_kind kind;
    struct fft_plan plan;          // of the line, or of its columns
    struct fft_plan rows;          // split: of its rows
    bool split;                    // n = columns' length times rows' length
    int64_t n, complex_n;          // numbers of a line; of the transform
    int64_t lines, inner, in, out; // in, out: numbers of a line of the array
    const void *half_turns, *turns;
};
struct fft_state {
    const struct fft_loops *loops;
    struct step step[3];
    int n_steps, size; // bytes of a real number
    bool inverse;
    int64_t lanes_bytes, middle_bytes, whole_bytes; // of a thread; of a split line; of the array
    int threads;
};

// ---- which instructions

static bool plain(const struct shape *s) {
    return !shape_is_tuple(s) && !s->dynamic && layout_is_default(s->layout, s->rank) &&
           shape_elements(s) > 0;
}
// Radices of n: 4 as often as it goes, 2, odd primes. Gives their number, -1 when one is too large.
static int factors_of(int64_t n, int *out) {
    int k = 0;
    for (; n % 4 == 0; n /= 4)
        out[k++] = 4;
    for (int p = 2; p <= FFT_MAX_RADIX; p++)
        for (; n % p == 0; n /= p)
            out[k++] = p;
    return n == 1 ? k : -1;
}
// The factor of n nearest below its root, made of its radices.
static int64_t split_of(int64_t n) {
    int64_t best = 1;
    for (int64_t d = 2; d * d <= n; d++)
        if (n % d == 0) best = d;
    return best;
}
// The length of the complex transform of a line of n.
static int64_t complex_length(enum fft_kind kind, int64_t n) {
    return kind != FFT_COMPLEX && n % 2 == 0 ? n / 2 : n;
}
static enum fft_kind kind_of(const struct hlo_instr *i, int d) {
    const struct hlo_attr_fft *t = HLO_ATTR(i, fft);
    if (d + 1 < t->fft_length.n) return FFT_COMPLEX;
    return t->fft_type == FFT_RFFT    ? FFT_FROM_REAL
           : t->fft_type == FFT_IRFFT ? FFT_TO_REAL
                                      : FFT_COMPLEX;
}
bool cpu_fft_accepts(const struct hlo_instr *i) {
    int factors[64];
    if (i->op != HLO_FFT || !plain(i->shape) || !plain(i->operands[0]->shape)) return false;
    const struct i64s length = HLO_ATTR(i, fft)->fft_length;
    if (length.n < 1 || length.n > 3) return false;
    for (int d = 0; d < length.n; d++) {
        int64_t n = length.v[d], m = complex_length(kind_of(i, d), n);
        bool chirp = factors_of(m, factors) < 0;
        if (n < 1 || n > MAX_LENGTH || (chirp && m > LONGEST_CHIRP)) return false;
        if (!chirp && m > LONGEST && (d + 1 < length.n || m / split_of(m) > LONGEST)) return false;
    }
    return true;
}
static bool fft_accepts(UNUSED const struct cpu_exe *x, const struct hlo_instr *i,
                        const char **why) {
    *why = "not a transform of rows, or one of a long line with large factors";
    return cpu_fft_accepts(i);
}

// ---- tables

static void put(void *to, int size, int64_t at, double v) {
    if (size == 4)
        ((float *)to)[at] = (float)v;
    else
        ((double *)to)[at] = v;
}
// exp(-2 pi i k / n) at place `at`.
static void put_root(void *to, int size, int64_t at, int64_t k, int64_t n) {
    double angle = -2 * M_PI * (double)(k % n) / (double)n;
    put(to, size, 2 * at, cos(angle));
    put(to, size, 2 * at + 1, sin(angle));
}
static void *room(struct arena *a, int64_t n, int size) {
    return arena_alloc_aligned(a, (size_t)(n * size + 64), 64);
}
static void rounds_of(struct arena *a, int64_t n, int size, struct fft_plan *p) {
    *p = (struct fft_plan){.n = n};
    p->n_factors = factors_of(n, p->radix);
    for (int k = 0; k < p->n_factors; k++) {
        int r = p->radix[k];
        int64_t m = n / r;
        void *turns = room(a, 2 * m * (r - 1), size), *roots = room(a, 2 * r, size);
        for (int64_t e = 0; e < m; e++)
            for (int64_t j = 1; j < r; j++)
                put_root(turns, size, e * (r - 1) + j - 1, e * j, n);
        for (int j = 0; j < r; j++)
            put_root(roots, size, j, j, r);
        p->turns[k] = turns;
        p->roots[k] = roots;
        n = m;
    }
}
// Room of a group of lines.
static int64_t group_bytes(const struct fft_plan *p, int64_t lanes, int size) {
    return 4 * (p->around ? p->around->n : p->n + 1) * lanes * size;
}
// Of the conjugate chirp, which runs from -n to n, in f64.
static void spectrum_of(struct fft_plan *p, int size, void *spectrum) {
    const struct fft_loops *l = &loops_f64_plain;
    int64_t n = p->n, length = p->around->n;
    struct arena a = {0};
    struct fft_plan wide;
    rounds_of(&a, length, 8, &wide);
    double *b = room(&a, 2 * length, 8), *out = room(&a, 2 * length, 8);
    memset(b, 0, (size_t)(2 * length) * sizeof *b);
    for (int64_t k = 0; k < n; k++) {
        int64_t back = (length - k) % length;
        put_root(b, 8, k, k * k % (2 * n), 2 * n);
        b[2 * k + 1] = -b[2 * k + 1];
        memcpy(b + 2 * back, b + 2 * k, 2 * sizeof *b);
    }
    struct fft_lines one = {.plan = &wide,
                            .from = b,
                            .to = out,
                            .lines = 1,
                            .inner = 1,
                            .stride_in = 1,
                            .stride_out = 1,
                            .scale = 1 / (double)length};
    l->group(&one, 0, room(&a, group_bytes(&wide, l->lanes, 8), 1));
    for (int64_t k = 0; k < 2 * length; k++)
        put(spectrum, size, k, out[k]);
    arena_done(&a);
}
// The least length of factors 2, 3 and 5 that holds a line and its chirp.
static int64_t length_around(int64_t n) {
    int64_t best = INT64_MAX;
    for (int64_t five = 1; five < 4 * n; five *= 5)
        for (int64_t three = five; three < 4 * n; three *= 3) {
            int64_t all = three;
            while (all < 2 * n - 1)
                all *= 2;
            if (all < best) best = all;
        }
    return best;
}
static void plan_of(struct arena *a, int64_t n, int size, struct fft_plan *p) {
    int factors[64];
    if (factors_of(n, factors) >= 0) {
        rounds_of(a, n, size, p);
        return;
    }
    struct fft_plan *around = arena_new_of(a, struct fft_plan);
    rounds_of(a, length_around(n), size, around);
    void *chirp = room(a, 2 * n, size), *spectrum = room(a, 2 * around->n, size);
    for (int64_t k = 0; k < n; k++)
        put_root(chirp, size, k, k * k % (2 * n), 2 * n);
    *p = (struct fft_plan){.n = n, .around = around, .chirp = chirp, .spectrum = spectrum};
    spectrum_of(p, size, spectrum);
}
// Between columns and rows: by the group of columns, the place in the column, and the lane.
static void *split_turns(struct cpu_exe *x, const struct step *s, int lanes, int size) {
    int64_t n1 = s->plan.n, n2 = s->rows.n, groups = (n2 + lanes - 1) / lanes;
    char *to = room(&x->arena, groups * n1 * 2 * lanes, size);
    for (int64_t g = 0; g < groups; g++)
        for (int64_t k = 0; k < n1; k++)
            for (int64_t l = 0; l < lanes; l++) {
                double angle = -2 * M_PI * (double)((g * lanes + l) % n2 * k) / (double)(n1 * n2);
                int64_t at = (g * n1 + k) * 2 * lanes + l;
                put(to, size, at, cos(angle));
                put(to, size, at + lanes, sin(angle));
            }
    return to;
}

// ---- opening

static void open_step(struct cpu_exe *x, struct fft_state *f, struct step *s) {
    int64_t m = s->complex_n = complex_length(s->kind, s->n), lanes = f->loops->lanes;
    int factors[64];
    int64_t n1 = split_of(m);
    bool odd_reals = s->kind != FFT_COMPLEX && m == s->n, chirp = factors_of(m, factors) < 0;
    s->split = !odd_reals && !chirp && s->inner == 1 && (m > LONG || s->lines < lanes) && n1 > 3;
    plan_of(&x->arena, s->split ? n1 : m, f->size, &s->plan);
    if (s->split) {
        plan_of(&x->arena, m / n1, f->size, &s->rows);
        s->turns = split_turns(x, s, (int)lanes, f->size);
        // Lines of reals: the pairs besides, with their transform in or out.
        int64_t bytes = (s->kind == FFT_COMPLEX ? 2 : 4) * m * f->size;
        if (bytes > f->middle_bytes) f->middle_bytes = bytes;
    }
    if (s->kind != FFT_COMPLEX && m < s->n) {
        void *w = room(&x->arena, 2 * (m + 1), f->size);
        for (int64_t k = 0; k <= m; k++)
            put_root(w, f->size, k, k, s->n);
        s->half_turns = w;
    }
    int64_t bytes = group_bytes(s->split ? &s->rows : &s->plan, lanes, f->size);
    if (bytes > f->lanes_bytes) f->lanes_bytes = bytes;
}
static status_t fft_open(struct cpu_exe *x, struct cpu_step *step) {
    static const struct fft_loops *const all[2][3] = {
        {&loops_f32_plain, &loops_f32_avx2, &loops_f32_avx512},
        {&loops_f64_plain, &loops_f64_avx2, &loops_f64_avx512}};
    struct fft_state *f = arena_new_of(&x->arena, struct fft_state);
    const struct hlo_instr *i = step->plan->instr;
    const struct hlo_attr_fft *t = HLO_ATTR(i, fft);
    const struct shape *in = i->operands[0]->shape, *out = i->shape;
    enum dtype type = dtype_is_complex(in->dtype) ? in->dtype : out->dtype;
    int bits = cpu_target()->vector_bits, rank = t->fft_length.n, lead = in->rank - rank;
    bool wide = type == DT_C128;
    *f = (struct fft_state){.size = wide ? 8 : 4, .threads = cpu_threads(), .n_steps = rank};
    f->loops = all[wide][bits == 512 ? 2 : bits == 256 ? 1 : 0];
    f->inverse = t->fft_type == FFT_IFFT || t->fft_type == FFT_IRFFT;
    // The half spectrum is what the other dimensions run over: it is made first, or used last.
    const struct shape *half = t->fft_type == FFT_RFFT ? out : in;
    for (int k = 0; k < rank; k++) {
        int d = t->fft_type == FFT_IRFFT ? k : rank - 1 - k;
        struct step *s = &f->step[k];
        s->kind = kind_of(i, d);
        s->n = t->fft_length.v[d];
        s->in = s->kind == FFT_COMPLEX ? s->n : in->dims[lead + d];
        s->out = s->kind == FFT_COMPLEX ? s->n : out->dims[lead + d];
        s->inner = s->lines = 1;
        for (int e = 0; e < in->rank; e++) {
            if (e > lead + d) s->inner *= half->dims[e];
            if (e != lead + d) s->lines *= half->dims[e];
        }
        open_step(x, f, s);
    }
    f->lanes_bytes = (f->lanes_bytes + 63) / 64 * 64;
    f->middle_bytes = (f->middle_bytes + 63) / 64 * 64;
    if (t->fft_type == FFT_IRFFT && rank > 1) f->whole_bytes = shape_elements(in) * 2 * f->size;
    int64_t need = f->lanes_bytes * f->threads + f->middle_bytes + f->whole_bytes;
    if (need > x->scratch_bytes) x->scratch_bytes = need;
    step->detail = "fft";
    step->state = f;
    return ST_OK;
}

// ---- running

struct fft_call {
    const struct fft_state *f;
    const struct fft_lines *lines;
    char *scratch;
};
static void part(void *ctx, int64_t begin, int64_t end, int thread) {
    const struct fft_call *c = ctx;
    for (int64_t g = begin; g < end; g++)
        c->f->loops->group(c->lines, g, c->scratch + thread * c->f->lanes_bytes);
}
static void run_lines(const struct fft_state *f, const struct fft_lines *l, char *scratch) {
    struct fft_call c = {f, l, scratch};
    int64_t lanes = f->loops->lanes;
    cpu_parallel(part, &c, (l->lines + lanes - 1) / lanes, 20000 / (l->plan->n * lanes) + 1);
}
// One line of complex numbers.
static void run_split(const struct fft_state *f, const struct step *s, const char *from, char *to,
                      char *scratch) {
    char *middle = scratch + f->lanes_bytes * f->threads;
    int64_t n1 = s->plan.n, n2 = s->rows.n;
    struct fft_lines columns = {.plan = &s->plan,
                                .from = from,
                                .to = middle,
                                .lines = n2,
                                .inner = n2,
                                .stride_in = n2,
                                .stride_out = n2,
                                .swap_in = f->inverse,
                                .scale = 1,
                                .turns = s->turns};
    struct fft_lines rows = {.plan = &s->rows,
                             .from = middle,
                             .to = to,
                             .lines = n1,
                             .inner = 1,
                             .outer_in = n2,
                             .outer_out = 1,
                             .stride_in = 1,
                             .stride_out = n1,
                             .swap_out = f->inverse,
                             .scale = f->inverse ? 1 / (double)s->n : 1};
    run_lines(f, &columns, scratch);
    run_lines(f, &rows, scratch);
}
static void run_splits(const struct fft_state *f, const struct step *s, const char *from, char *to,
                       char *scratch) {
    int64_t m = s->complex_n, pairs_bytes = 2 * m * f->size;
    int64_t in = s->kind == FFT_FROM_REAL ? s->in * f->size : 2 * s->in * f->size,
            out = s->kind == FFT_TO_REAL ? s->out * f->size : 2 * s->out * f->size;
    char *pairs = scratch + f->lanes_bytes * f->threads + pairs_bytes;

    for (int64_t line = 0; line < s->lines; line++, from += in, to += out) {
        if (s->kind == FFT_FROM_REAL) {
            run_split(f, s, from, pairs, scratch);
            f->loops->unpair(pairs, to, m, s->half_turns);
        } else if (s->kind == FFT_TO_REAL) {
            f->loops->pair_up(from, pairs, m, s->half_turns);
            run_split(f, s, pairs, to, scratch);
        } else {
            run_split(f, s, from, to, scratch);
        }
    }
}
static void run_step(const struct fft_state *f, const struct step *s, const char *from, char *to,
                     char *scratch) {
    bool even = s->complex_n < s->n;
    if (s->split) {
        run_splits(f, s, from, to, scratch);
        return;
    }
    // Even lines of reals count in pairs.
    int64_t in = even && s->kind == FFT_FROM_REAL ? s->in / 2 : s->in,
            out = even && s->kind == FFT_TO_REAL ? s->out / 2 : s->out;
    // Pairing up made it twice as large where the line is half as long.
    struct fft_lines l = {.plan = &s->plan,
                          .from = from,
                          .to = to,
                          .lines = s->lines,
                          .inner = s->inner,
                          .outer_in = in * s->inner,
                          .outer_out = out * s->inner,
                          .stride_in = s->inner,
                          .stride_out = s->inner,
                          .kind = s->kind,
                          .even = even,
                          .swap_in = f->inverse,
                          .swap_out = f->inverse,
                          .scale = f->inverse ? 1 / (double)s->n : 1,
                          .half_turns = s->half_turns};
    run_lines(f, &l, scratch);
}
static status_t fft_run(struct cpu_exe *x, struct cpu_step *step, void **bufs) {
    const struct fft_state *f = step->state;
    char *scratch = x->scratch, *out = bufs[1];
    const char *from = bufs[0];
    char *whole = scratch + f->lanes_bytes * f->threads + f->middle_bytes;
    for (int k = 0; k < f->n_steps; k++) {
        char *to = f->whole_bytes && k + 1 < f->n_steps ? whole : out;
        run_step(f, &f->step[k], from, to, scratch);
        from = to;
    }
    return ST_OK;
}
const struct cpu_impl cpu_impl_fft = {"fft",   fft_accepts, fft_open, NULL,
                                      fft_run, NULL,        NULL,     NULL};
