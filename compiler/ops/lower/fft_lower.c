// SPDX-License-Identifier: Apache-2.0
// Kernel of fft: a unit transforms one value of the leading dimensions, in c128, held in scratch.
// A line of n = 2^p m elements (m odd) is transformed as in linalg.c, without recursion: blocks of
// m by the defining sum, read in bit-reversed order, then p rounds of butterflies (Cooley and
// Tukey, 1965). Lengths are constants, so every round is a counted nest.
#include <math.h>

#include "compiler/kernel/lower.h"
#include "compiler/ops/lower/lower_rules.h"

enum { MAX_LENGTH = 1 << 16, MAX_VOLUME = 1 << 18 }; // scratch of a thread: 16 bytes an element

typedef struct kir_val *V;

struct fft {
    const struct hlo_instr *i;
    struct lower *lw;
    int rank;              // transformed dimensions, the last ones of the operand
    int64_t dims[3], half; // their lengths; of the last one in a half spectrum, else its length
    bool inverse;
    int64_t volume, line; // scratch, in elements
};

static V sum(struct kir *k, V x, V y) {
    return kir_idx_add(k, x, y);
}
static V load(struct fft *f, int64_t base, V at) {
    struct kir *k = &f->lw->k;
    return kir_load(k, KIR_SCRATCH, DT_C128, sum(k, at, kir_i64(k, base)), KF_PINNED);
}
static void store(struct fft *f, int64_t base, V at, V v) {
    struct kir *k = &f->lw->k;
    kir_store(k, KIR_SCRATCH, DT_C128, sum(k, at, kir_i64(k, base)), v);
}
static V arith(struct fft *f, enum kfn fn, V x, V y) {
    return kmath(f->lw, fn, DT_C128, x, y);
}
static V conjugate(struct kir *k, V x) {
    return kir_complex(k, kir_re(k, x), kir_op(k, K_NEG, kir_im(k, x), NULL, NULL));
}
static struct kir_loop *count(struct fft *f, int64_t n) {
    struct kir *k = &f->lw->k;
    return kir_for(k, kir_i64(k, 0), kir_i64(k, n), n, NULL, 0);
}
static void end(struct fft *f, struct kir_loop *l) {
    kir_end(&f->lw->k, l, NULL);
}

// Powers of exp(+-2 pi i / n), and where each block of a line starts: p bits reversed.
static int root_table(struct fft *f, int64_t n) {
    double *t = arena_array(f->lw->arena, double, 2 * n);
    for (int64_t e = 0; e < n; e++) {
        double angle = (f->inverse ? 2 : -2) * M_PI * (double)e / (double)n;
        t[2 * e] = cos(angle);
        t[2 * e + 1] = sin(angle);
    }
    return kir_add_table(&f->lw->k, DT_F64, 2 * n, t);
}
static V root(struct fft *f, int table, V at) {
    struct kir *k = &f->lw->k;
    V two = kir_idx_mul(k, at, 2);
    return kir_complex(k, kir_table(k, table, two),
                       kir_table(k, table, kir_idx_add(k, two, kir_i64(k, 1))));
}
static V block_start(struct fft *f, int64_t blocks, V block) {
    struct kir *k = &f->lw->k;
    int32_t *t = arena_array(f->lw->arena, int32_t, blocks);
    t[0] = 0;
    for (int64_t e = 1; e < blocks; e++)
        t[e] = t[e / 2] / 2 + (e % 2 ? (int32_t)(blocks / 2) : 0);
    V v = kir_cast(k, DT_S64, kir_table(k, kir_add_table(k, DT_S32, blocks, t), block));
    if (v->op == K_CONST) return v;
    v->lo = 0;
    v->hi = blocks - 1;
    return v;
}

// Element `at` of the line along dimension d: from[at * stride + base]. The other half of a half
// spectrum is its conjugate, read backwards.
struct line {
    V base;
    int64_t stride, n, have;
};
static V line_load(struct fft *f, const struct line *l, V at) {
    struct kir *k = &f->lw->k;
    V direct = at, far = NULL, mirrored = NULL;
    if (l->have < l->n) {
        far = kir_cmp(k, CMP_GE, at, kir_i64(k, l->have));
        mirrored = kir_op(k, K_SUB, kir_i64(k, l->n), at, NULL);
        direct = kir_select(k, far, mirrored, at);
    }
    V v = load(f, f->volume, sum(k, l->base, kir_idx_mul(k, direct, l->stride)));
    return far ? kir_select(k, far, conjugate(k, v), v) : v;
}

// The sum that defines element e of a block of m elements, `blocks` apart from `start` on.
static V defining_sum(struct fft *f, const struct line *l, int roots, V start, int64_t blocks,
                      V e) {
    struct kir *k = &f->lw->k;
    int64_t m = l->n / blocks;
    if (m == 1) return line_load(f, l, start);
    V flat[2] = {kir_f(k, DT_F64, 0), kir_f(k, DT_F64, 0)};
    struct kir_loop *j = kir_for(k, kir_i64(k, 0), kir_i64(k, m), m, flat, 2);
    V turn = kir_op(k, K_REM, kir_op(k, K_MUL, j->var, e, NULL), kir_i64(k, m), NULL);
    V x = line_load(f, l, sum(k, start, kir_idx_mul(k, j->var, blocks)));
    V w = root(f, roots, kir_op(k, K_MUL, turn, kir_i64(k, blocks), NULL));
    V acc = arith(f, KFN_ADD, kir_complex(k, j->carry[0], j->carry[1]), arith(f, KFN_MUL, x, w));
    flat[0] = kir_re(k, acc);
    flat[1] = kir_im(k, acc);
    kir_end(k, j, flat);
    return kir_complex(k, j->result[0], j->result[1]);
}
// One line into f->line, transformed.
static void transform(struct fft *f, const struct line *l, int roots) {
    struct kir *k = &f->lw->k;
    int64_t m = l->n, blocks = 1;
    while (m % 2 == 0)
        m /= 2, blocks *= 2;
    struct kir_loop *b = count(f, blocks), *e = count(f, m);
    V start = block_start(f, blocks, b->var);
    store(f, f->line, sum(k, kir_idx_mul(k, b->var, m), e->var),
          defining_sum(f, l, roots, start, blocks, e->var));
    end(f, e);
    end(f, b);
    for (int64_t h = m; h < l->n; h *= 2) {
        struct kir_loop *block = count(f, l->n / (2 * h)), *at = count(f, h);
        V x = sum(k, kir_idx_mul(k, block->var, 2 * h), at->var), y = sum(k, x, kir_i64(k, h));
        V w = root(f, roots, kir_idx_mul(k, at->var, l->n / (2 * h)));
        V even = load(f, f->line, x), odd = arith(f, KFN_MUL, load(f, f->line, y), w);
        store(f, f->line, x, arith(f, KFN_ADD, even, odd));
        store(f, f->line, y, arith(f, KFN_SUB, even, odd));
        at->vectorize = true;
        end(f, at);
        end(f, block);
    }
}

// Transforms all lines along dimension d, in place.
static void along(struct fft *f, int d, bool half) {
    struct kir *k = &f->lw->k;
    struct kir_loop *loops[3];
    struct line l = {.base = kir_i64(k, 0), .stride = 1, .n = f->dims[d], .have = f->dims[d]};
    int n = 0, last = f->rank - 1, roots = root_table(f, l.n);
    if (half && d == last) l.have = f->half;
    int64_t stride = 1;
    for (int e = last; e >= 0; stride *= f->dims[e--]) {
        if (e == d) {
            l.stride = stride;
            continue;
        }
        loops[n] = count(f, half && e == last ? f->half : f->dims[e]);
        l.base = sum(k, l.base, kir_idx_mul(k, loops[n++]->var, stride));
    }
    transform(f, &l, roots);
    struct kir_loop *back = count(f, l.n);
    V v = load(f, f->line, back->var);
    if (f->inverse) {
        V by = kir_f(k, DT_F64, (double)l.n);
        v = kir_complex(k, kir_op(k, K_DIV, kir_re(k, v), by, NULL),
                        kir_op(k, K_DIV, kir_im(k, v), by, NULL));
    }
    store(f, f->volume, sum(k, l.base, kir_idx_mul(k, back->var, l.stride)), v);
    end(f, back);
    while (n > 0)
        end(f, loops[--n]);
}

// Loops over the volume as `last` elements of the last dimension; *out_at is the place in scratch.
static void open_volume(struct fft *f, int64_t last, struct kir_loop **loops, V *index, V *out_at) {
    struct kir *k = &f->lw->k;
    *out_at = kir_i64(k, 0);
    for (int d = 0; d < f->rank; d++) {
        loops[d] = count(f, d == f->rank - 1 ? last : f->dims[d]);
        index[d] = loops[d]->var;
        *out_at = sum(k, kir_idx_mul(k, *out_at, f->dims[d]), index[d]);
    }
}
static void close_volume(struct fft *f, struct kir_loop **loops) {
    for (int d = f->rank - 1; d >= 0; d--)
        end(f, loops[d]);
}

WHOLE(FFT) {
    const struct hlo_attr_fft *t = HLO_ATTR(i, fft);
    const struct shape *in = i->operands[0]->shape, *out = i->shape;
    struct kir *k = &lw->k;
    struct fft f = {.i = i, .lw = lw, .rank = t->fft_length.n};
    int64_t units = 1, volume = 1, longest = 1;
    int lead = in->rank - f.rank;
    bool to_half = t->fft_type == FFT_RFFT, from_half = t->fft_type == FFT_IRFFT;
    f.inverse = t->fft_type == FFT_IFFT || from_half;
    for (int d = 0; d < lead; d++)
        units *= in->dims[d];
    for (int d = 0; d < f.rank; d++) {
        f.dims[d] = t->fft_length.v[d];
        if (f.dims[d] < 1 || f.dims[d] > MAX_LENGTH) return lower_no(lw, "a length of fft");
        volume *= f.dims[d];
        if (volume > MAX_VOLUME) return lower_no(lw, "the lengths of fft together");
        if (f.dims[d] > longest) longest = f.dims[d];
    }
    f.half = to_half || from_half ? f.dims[f.rank - 1] / 2 + 1 : f.dims[f.rank - 1];
    f.volume = lower_scratch(lw, DT_C128, volume) / dtype_size(DT_C128);
    f.line = lower_scratch(lw, DT_C128, longest) / dtype_size(DT_C128);
    k->fn->extent = units;
    struct kir_loop *unit = kir_for(k, k->fn->begin, k->fn->end, units, NULL, 0), *loops[3];
    V index[HLO_MAX_RANK + 1], at, v;
    lower_unflatten(lw, unit->var, in->dims, lead, index);

    open_volume(&f, from_half ? f.half : f.dims[f.rank - 1], loops, index + lead, &at);
    RETURN_IF_ERR(lower_operand(lw, i, 0, index, &v));
    store(&f, f.volume, at, kmath_convert(lw, DT_C128, in->dtype, v));
    close_volume(&f, loops);
    if (!from_half) along(&f, f.rank - 1, false);
    for (int d = f.rank - 2; d >= 0; d--)
        along(&f, d, to_half || from_half);
    if (from_half) along(&f, f.rank - 1, true);
    open_volume(&f, to_half ? f.half : f.dims[f.rank - 1], loops, index + lead, &at);
    v = load(&f, f.volume, at);
    lower_put(lw, i, 0, index, kmath_convert(lw, out->dtype, DT_C128, v));
    close_volume(&f, loops);
    kir_end(k, unit, NULL);
    return ST_OK;
}
