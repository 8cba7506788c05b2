// SPDX-License-Identifier: Apache-2.0
// gemm: dots and convolutions of the types that the library has no kernels for (f64, c64, c128,
// 32- and 64-bit integers), and f32 filters of many taps and few channels, as a blocked product of
// matrices (Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", 2008):
// blocks of both operands are packed into panels as wide as a tile of registers, whatever lies
// where in memory. Element (m, k) of the left matrix of group g lies at g_a[g] + m_a[m] + k_a[k] of
// its operand, and so on: tables made at load say so for any labels, batch and contracting dims,
// strides and dilations; a convolution's padding is made real in a copy of its input. Sums run
// along k in order, in blocks. Does not: epilogues, layouts other than row-major, few rows or
// columns, batch groups.
#include "devices/cpu/routines/cpu_gemm.h"

#include "devices/cpu/cpu.h"

#define AVX2       __attribute__((target("avx2,fma")))
#define AVX512     __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl")))
#define GEMM(name) name##_f32_plain
#define GEMM_ELEM  float
#define GEMM_BYTES 16
#define GEMM_TARGET
#define GEMM_ROWS 4
#define GEMM_VECS 2
#include "devices/cpu/routines/cpu_gemm_body.h"
#define GEMM(name) name##_f64_plain
#define GEMM_ELEM  double
#define GEMM_BYTES 16
#define GEMM_TARGET
#define GEMM_ROWS 4
#define GEMM_VECS 2
#include "devices/cpu/routines/cpu_gemm_body.h"
#define GEMM(name) name##_u32_plain
#define GEMM_ELEM  uint32_t
#define GEMM_BYTES 16
#define GEMM_TARGET
#define GEMM_ROWS 4
#define GEMM_VECS 2
#include "devices/cpu/routines/cpu_gemm_body.h"
#define GEMM(name) name##_u64_plain
#define GEMM_ELEM  uint64_t
#define GEMM_BYTES 16
#define GEMM_TARGET
#define GEMM_ROWS 4
#define GEMM_VECS 2
#include "devices/cpu/routines/cpu_gemm_body.h"
#define GEMM(name)  name##_f32_avx2
#define GEMM_ELEM   float
#define GEMM_BYTES  32
#define GEMM_TARGET AVX2
#define GEMM_ROWS   4
#define GEMM_VECS   2
#include "devices/cpu/routines/cpu_gemm_body.h"
#define GEMM(name)  name##_f64_avx2
#define GEMM_ELEM   double
#define GEMM_BYTES  32
#define GEMM_TARGET AVX2
#define GEMM_ROWS   4
#define GEMM_VECS   2
#include "devices/cpu/routines/cpu_gemm_body.h"
#define GEMM(name)  name##_u32_avx2
#define GEMM_ELEM   uint32_t
#define GEMM_BYTES  32
#define GEMM_TARGET AVX2
#define GEMM_ROWS   4
#define GEMM_VECS   2
#include "devices/cpu/routines/cpu_gemm_body.h"
#define GEMM(name)  name##_u64_avx2
#define GEMM_ELEM   uint64_t
#define GEMM_BYTES  32
#define GEMM_TARGET AVX2
#define GEMM_ROWS   4
#define GEMM_VECS   2
#include "devices/cpu/routines/cpu_gemm_body.h"
#define GEMM(name)  name##_f32_avx512
#define GEMM_ELEM   float
#define GEMM_BYTES  64
#define GEMM_TARGET AVX512
#define GEMM_ROWS   8
#define GEMM_VECS   3
#include "devices/cpu/routines/cpu_gemm_body.h"
#define GEMM(name)  name##_f64_avx512
#define GEMM_ELEM   double
#define GEMM_BYTES  64
#define GEMM_TARGET AVX512
#define GEMM_ROWS   8
#define GEMM_VECS   3
#include "devices/cpu/routines/cpu_gemm_body.h"
#define GEMM(name)  name##_u32_avx512
#define GEMM_ELEM   uint32_t
#define GEMM_BYTES  64
#define GEMM_TARGET AVX512
#define GEMM_ROWS   8
#define GEMM_VECS   3
#include "devices/cpu/routines/cpu_gemm_body.h"
#define GEMM(name)  name##_u64_avx512
#define GEMM_ELEM   uint64_t
#define GEMM_BYTES  64
#define GEMM_TARGET AVX512
#define GEMM_ROWS   8
#define GEMM_VECS   3
#include "devices/cpu/routines/cpu_gemm_body.h"

enum {
    DEPTH = 256,        // of a block
    WIDTH_BYTES = 4096, // of a row of a block of the right matrix
    HEIGHT = 96,        // of a block of the left matrix
    LEAST = 8192,       // products that a call is worth
    MOST = 1 << 22,     // rows, columns, depth: what tables hold
    ALONE = 200000      // products of a thread's share: about 20 us
};
struct gemm_side {
    int64_t *group, *line, *depth; // offsets in elements
};
struct gemm_state {
    struct gemm_side a, b; // of rows and of columns
    int64_t *g_out, *m_out, *n_out;
    int64_t groups, m, n, k;
    int64_t width, blocks, parts,
        tall; // columns of a block, blocks of columns, of rows; rows of one
    const struct gemm_kernel *kernel;
    int size; // bytes of a number: half of a complex element
    bool complex, swapped;
    enum dtype type;
    int64_t packed_a, packed_b, total; // bytes of a thread's scratch
    // A convolution whose window passes the border: the padded input.
    bool pads;
    int rank;
    int64_t dims[HLO_MAX_RANK], stride[HLO_MAX_RANK]; // of the input; strides in the padded one
    int64_t low[HLO_MAX_RANK], high[HLO_MAX_RANK], base[HLO_MAX_RANK];
    int64_t padded; // elements
    int threads;
};

// ---- which instructions

static bool plain(const struct shape *s) {
    return !shape_is_tuple(s) && !s->dynamic && layout_is_default(s->layout, s->rank);
}
static bool type_ok(enum dtype t) {
    return t == DT_F64 || t == DT_C64 || t == DT_C128 || t == DT_S32 || t == DT_U32 ||
           t == DT_S64 || t == DT_U64;
}
struct sizes {
    int64_t groups, m, n, k;
};
static struct sizes dot_sizes(const struct hlo_instr *i) {
    const struct hlo_attr_dot *d = HLO_ATTR(i, dot);
    const struct shape *x = i->operands[0]->shape, *y = i->operands[1]->shape;
    struct sizes s = {1, 1, 1, 1};
    for (int k = 0; k < d->lhs_batch_dims.n; k++)
        s.groups *= x->dims[d->lhs_batch_dims.v[k]];
    for (int k = 0; k < d->lhs_contracting_dims.n; k++)
        s.k *= x->dims[d->lhs_contracting_dims.v[k]];
    for (int k = 0; k < x->rank; k++)
        if (!i64s_has(d->lhs_batch_dims, k) && !i64s_has(d->lhs_contracting_dims, k))
            s.m *= x->dims[k];
    for (int k = 0; k < y->rank; k++)
        if (!i64s_has(d->rhs_batch_dims, k) && !i64s_has(d->rhs_contracting_dims, k))
            s.n *= y->dims[k];
    return s;
}
static struct sizes conv_sizes(const struct hlo_instr *i) {
    const struct hlo_attr_conv *c = HLO_ATTR(i, conv);
    const struct labels *l = &c->dim_labels;
    const struct shape *w = i->operands[1]->shape;
    int64_t groups = c->feature_group_count;
    struct sizes s = {groups, w->dims[l->k_out] / groups, i->shape->dims[l->out_batch],
                      w->dims[l->k_in]};
    for (int d = 0; d < l->n_spatial; d++) {
        s.n *= i->shape->dims[l->out_spatial[d]];
        s.k *= w->dims[l->k_spatial[d]];
    }
    return s;
}
static bool conv_ok(const struct hlo_instr *i) {
    const struct hlo_attr_conv *c = HLO_ATTR(i, conv);
    int64_t padded = 1, plain_size = 1;
    if (c->batch_group_count > 1 || c->feature_group_count < 1 ||
        c->window.n != c->dim_labels.n_spatial)
        return false;
    for (int d = 0; d < c->window.n; d++) {
        const struct window_dim *w = &c->window.v[d];
        int64_t size = i->operands[0]->shape->dims[c->dim_labels.in_spatial[d]], wide;
        if (!sz_mul(size - 1, w->base_dilation, &wide) || !sz_add(wide, 1, &wide) ||
            !sz_add(wide, w->pad_low, &wide) || !sz_add(wide, w->pad_high, &wide) || wide < 1 ||
            !sz_mul(padded, wide, &padded))
            return false;
        plain_size *= size;
    }
    return padded <= 8 * plain_size + 65536; // memory of the copy
}
// Filters of signals and images: many taps, few channels. The library makes code for each tap.
bool cpu_gemm_filter(const struct hlo_instr *i) {
    enum { TAPS = 128, CHANNELS = 2 };
    if (i->op != HLO_CONVOLUTION || i->shape->dtype != DT_F32) return false;
    const struct hlo_attr_conv *c = HLO_ATTR(i, conv);
    const struct shape *w = i->operands[1]->shape;
    const struct labels *l = &c->dim_labels;
    int64_t taps = 1;
    for (int d = 0; d < l->n_spatial; d++)
        if (!sz_mul(taps, w->dims[l->k_spatial[d]], &taps)) return false;
    return c->feature_group_count == 1 && w->dims[l->k_in] <= CHANNELS &&
           w->dims[l->k_out] <= CHANNELS && taps >= TAPS;
}
static bool gemm_takes(const struct hlo_instr *i) {
    if ((i->op != HLO_DOT && i->op != HLO_CONVOLUTION) || !plain(i->shape) ||
        (!type_ok(i->shape->dtype) && !cpu_gemm_filter(i)) || shape_elements(i->shape) == 0)
        return false;
    for (int k = 0; k < 2; k++)
        if (!plain(i->operands[k]->shape) || i->operands[k]->shape->dtype != i->shape->dtype ||
            shape_elements(i->operands[k]->shape) == 0)
            return false;
    if (i->op == HLO_CONVOLUTION && !conv_ok(i)) return false;
    struct sizes s = i->op == HLO_DOT ? dot_sizes(i) : conv_sizes(i);
    if (s.m > MOST || s.n > MOST || s.k > MOST || s.groups > MOST) return false;
    const char *forced = cpu_forced_impl(); // for tests: small ones too
    if (forced && strcmp(forced, "gemm") == 0) return true;
    return (s.m >= 2 || i->op == HLO_CONVOLUTION) && s.n >= 2 && s.k >= 2 &&
           (double)s.m * (double)s.n * (double)s.k >= LEAST;
}
bool cpu_gemm_accepts(const struct hlo_instr *i) {
    return gemm_takes(i);
}
static bool gemm_accepts(UNUSED const struct cpu_exe *x, const struct hlo_instr *i,
                         const char **why) {
    *why = "not a product of matrices that has no kernel in the library";
    return gemm_takes(i);
}

// ---- tables

static int64_t *table(struct cpu_exe *x, int64_t n) {
    return arena_zarray(&x->arena, int64_t, n);
}
// Row-major positions of `dims` as offsets by `stride`, added to what is there.
static void add_offsets(int64_t *to, int n, const int64_t *dims, const int64_t *stride) {
    int64_t at[2 * HLO_MAX_RANK + 1] = {0}, total = 1, offset = 0;
    for (int d = 0; d < n; d++)
        total *= dims[d];
    for (int64_t e = 0; e < total; e++) {
        to[e] += offset;
        for (int d = n - 1; d >= 0; d--) {
            offset += stride[d];
            if (++at[d] < dims[d]) break;
            offset -= stride[d] * dims[d];
            at[d] = 0;
        }
    }
}
static void strides_of(const struct shape *s, int64_t *out) {
    int64_t n = 1;
    for (int d = s->rank - 1; d >= 0; d--) {
        out[d] = n;
        n *= s->dims[d];
    }
}
static void dims_table(int64_t *to, const struct shape *s, const int64_t *which, int n) {
    int64_t all[HLO_MAX_RANK], dims[HLO_MAX_RANK], stride[HLO_MAX_RANK];
    strides_of(s, all);
    for (int k = 0; k < n; k++) {
        dims[k] = s->dims[which[k]];
        stride[k] = all[which[k]];
    }
    add_offsets(to, n, dims, stride);
}
static int free_dims(const struct shape *s, struct i64s batch, struct i64s contract, int64_t *out) {
    int n = 0;
    for (int k = 0; k < s->rank; k++)
        if (!i64s_has(batch, k) && !i64s_has(contract, k)) out[n++] = k;
    return n;
}
static void dot_tables(struct gemm_state *g, const struct hlo_instr *i) {
    const struct hlo_attr_dot *d = HLO_ATTR(i, dot);
    const struct shape *x = i->operands[0]->shape, *y = i->operands[1]->shape;
    int64_t fx[HLO_MAX_RANK], fy[HLO_MAX_RANK];
    int nx = free_dims(x, d->lhs_batch_dims, d->lhs_contracting_dims, fx),
        ny = free_dims(y, d->rhs_batch_dims, d->rhs_contracting_dims, fy);
    dims_table(g->a.group, x, d->lhs_batch_dims.v, d->lhs_batch_dims.n);
    dims_table(g->a.line, x, fx, nx);
    dims_table(g->a.depth, x, d->lhs_contracting_dims.v, d->lhs_contracting_dims.n);
    dims_table(g->b.group, y, d->rhs_batch_dims.v, d->rhs_batch_dims.n);
    dims_table(g->b.line, y, fy, ny);
    dims_table(g->b.depth, y, d->rhs_contracting_dims.v, d->rhs_contracting_dims.n);
    // The result's dims: batch, the left's free ones, the right's.
    int64_t which[HLO_MAX_RANK];
    for (int k = 0; k < i->shape->rank; k++)
        which[k] = k;
    int nb = d->lhs_batch_dims.n;
    dims_table(g->g_out, i->shape, which, nb);
    dims_table(g->m_out, i->shape, which + nb, nx);
    dims_table(g->n_out, i->shape, which + nb + nx, ny);
}
// Rows are output features, columns output positions of all images, depth input features and taps.
static void conv_tables(struct gemm_state *g, const struct hlo_instr *i) {
    const struct hlo_attr_conv *c = HLO_ATTR(i, conv);
    const struct labels *l = &c->dim_labels;
    const struct shape *x = i->operands[0]->shape, *w = i->operands[1]->shape, *o = i->shape;
    int64_t sw[HLO_MAX_RANK], so[HLO_MAX_RANK], dims[HLO_MAX_RANK + 1], by[HLO_MAX_RANK + 1];
    int64_t taps[HLO_MAX_RANK + 1], images[HLO_MAX_RANK + 1], start = 0;
    int n = l->n_spatial;
    strides_of(w, sw);
    strides_of(o, so);
    g->rank = x->rank;
    for (int d = 0; d < x->rank; d++)
        g->dims[d] = x->dims[d], g->base[d] = 1;
    for (int d = 0; d < n; d++) {
        const struct window_dim *v = &c->window.v[d];
        int at = l->in_spatial[d];
        g->low[at] = v->pad_low, g->high[at] = v->pad_high, g->base[at] = v->base_dilation;
        g->pads |= v->pad_low || v->pad_high || v->base_dilation != 1;
    }
    g->padded = 1;
    for (int d = x->rank - 1; d >= 0; d--) {
        g->stride[d] = g->padded;
        g->padded *= (g->dims[d] - 1) * g->base[d] + 1 + g->low[d] + g->high[d];
    }
    for (int64_t e = 0; e < g->groups; e++) {
        g->a.group[e] = e * g->m * sw[l->k_out];
        g->b.group[e] = e * w->dims[l->k_in] * g->stride[l->in_feature];
        g->g_out[e] = e * g->m * so[l->out_feature];
    }
    for (int64_t e = 0; e < g->m; e++) {
        g->a.line[e] = e * sw[l->k_out];
        g->m_out[e] = e * so[l->out_feature];
    }
    dims[0] = w->dims[l->k_in], by[0] = sw[l->k_in], taps[0] = g->stride[l->in_feature];
    for (int d = 0; d < n; d++) {
        const struct window_dim *v = &c->window.v[d];
        int64_t step = v->window_dilation * g->stride[l->in_spatial[d]];
        dims[d + 1] = w->dims[l->k_spatial[d]];
        by[d + 1] = sw[l->k_spatial[d]];
        taps[d + 1] = v->reversal ? -step : step;
        if (v->reversal) start += step * (dims[d + 1] - 1);
    }
    add_offsets(g->a.depth, n + 1, dims, by);
    add_offsets(g->b.depth, n + 1, dims, taps);
    for (int64_t e = 0; e < g->k; e++)
        g->b.depth[e] += start;
    dims[0] = o->dims[l->out_batch], by[0] = so[l->out_batch], images[0] = g->stride[l->in_batch];
    for (int d = 0; d < n; d++) {
        dims[d + 1] = o->dims[l->out_spatial[d]];
        by[d + 1] = so[l->out_spatial[d]];
        images[d + 1] = c->window.v[d].stride * g->stride[l->in_spatial[d]];
    }
    add_offsets(g->n_out, n + 1, dims, by);
    add_offsets(g->b.line, n + 1, dims, images);
}

// ---- opening

static const struct gemm_kernel *kernel_of(enum dtype t, int bits) {
    static const struct gemm_kernel *const all[4][3] = {
        {kernels_f32_plain, kernels_f32_avx2, kernels_f32_avx512},
        {kernels_f64_plain, kernels_f64_avx2, kernels_f64_avx512},
        {kernels_u32_plain, kernels_u32_avx2, kernels_u32_avx512},
        {kernels_u64_plain, kernels_u64_avx2, kernels_u64_avx512}};
    int type = t == DT_C64 || t == DT_F32    ? 0
               : t == DT_F64 || t == DT_C128 ? 1
               : t == DT_S32 || t == DT_U32  ? 2
                                             : 3;
    return &all[type][bits == 512 ? 2 : bits == 256 ? 1 : 0][dtype_is_complex(t)];
}
static int64_t round_up(int64_t n, int64_t to) {
    return (n + to - 1) / to * to;
}
static void divide(struct gemm_state *g) {
    int64_t each = g->size * (g->complex ? 2 : 1), want = 2 * g->threads;
    g->width = round_up(WIDTH_BYTES / each, g->kernel->cols);
    if (g->width > g->n) g->width = round_up(g->n, g->kernel->cols);
    g->blocks = (g->n + g->width - 1) / g->width;
    g->parts = 1;
    if (g->threads > 1 && g->groups * g->blocks < want) {
        g->parts = (want + g->groups * g->blocks - 1) / (g->groups * g->blocks);
        int64_t most = g->m / (4 * g->kernel->rows);
        if (g->parts > most) g->parts = most < 1 ? 1 : most;
    }
    g->tall = round_up((g->m + g->parts - 1) / g->parts, g->kernel->rows);
    g->parts = (g->m + g->tall - 1) / g->tall;
    int64_t depth = g->k < DEPTH ? g->k : DEPTH;
    g->packed_a =
        round_up(round_up(g->tall < HEIGHT ? g->tall : HEIGHT, g->kernel->rows) * depth * each, 64);
    g->packed_b = round_up(g->width * depth * each, 64);
    g->total = g->packed_a + g->packed_b;
}
static status_t gemm_open(struct cpu_exe *x, struct cpu_step *s) {
    struct gemm_state *g = arena_new_of(&x->arena, struct gemm_state);
    const struct hlo_instr *i = s->plan->instr;
    struct sizes z = i->op == HLO_DOT ? dot_sizes(i) : conv_sizes(i);
    *g = (struct gemm_state){.threads = cpu_threads()};
    int bits = cpu_target()->vector_bits;
    g->groups = z.groups, g->m = z.m, g->n = z.n, g->k = z.k;
    g->type = i->shape->dtype;
    g->complex = dtype_is_complex(g->type);
    g->size = (int)dtype_size(g->type) / (g->complex ? 2 : 1);
    g->kernel = kernel_of(g->type, bits);
    g->a = (struct gemm_side){table(x, z.groups), table(x, z.m), table(x, z.k)};
    g->b = (struct gemm_side){table(x, z.groups), table(x, z.n), table(x, z.k)};
    g->g_out = table(x, z.groups), g->m_out = table(x, z.m), g->n_out = table(x, z.n);
    if (i->op == HLO_DOT)
        dot_tables(g, i);
    else
        conv_tables(g, i);
    if (g->n < g->kernel->cols && g->m > g->n) { // the longer side along vectors
        struct gemm_side side = g->a;
        int64_t *out = g->m_out, m = g->m;
        g->a = g->b, g->b = side;
        g->m_out = g->n_out, g->n_out = out;
        g->m = g->n, g->n = m;
        g->swapped = true;
    }
    divide(g);
    int64_t need =
        g->total * g->threads + (g->pads ? round_up(g->padded * dtype_size(g->type), 64) : 0);
    if (need > x->scratch_bytes) x->scratch_bytes = need;
    s->flops = 2 * z.groups * z.m * z.n * z.k * (g->complex ? 4 : 1);
    s->alone = s->flops < 4 * ALONE;
    s->detail = bits == 512 ? "gemm:avx512" : bits == 256 ? "gemm:avx2" : "gemm:plain";
    s->state = g;
    return ST_OK;
}

// ---- packing

// One panel: `lines` of them side by side, `wide` with zeros, depth by depth. CONTIGUOUS lines are
// copied whole.
#define PACK(NAME, TYPE)                                                                           \
    static void pack_##NAME(const TYPE *from, const int64_t *line, const int64_t *depth,           \
                            int lines, int wide, int64_t k, TYPE *to) {                            \
        bool together = true;                                                                      \
        for (int e = 1; e < lines && together; e++)                                                \
            together = line[e] - line[e - 1] == 1;                                                 \
        for (int64_t d = 0; d < k; d++, to += wide) {                                              \
            const TYPE *at = from + depth[d];                                                      \
            if (together)                                                                          \
                memcpy(to, at + line[0], (size_t)lines * sizeof *to);                              \
            else                                                                                   \
                for (int e = 0; e < lines; e++)                                                    \
                    to[e] = at[line[e]];                                                           \
            for (int e = lines; e < wide; e++)                                                     \
                to[e] = 0;                                                                         \
        }                                                                                          \
    }
#define PACK_PAIRS(NAME, TYPE)                                                                     \
    static void pack_pairs_##NAME(const TYPE *from, const int64_t *line, const int64_t *depth,     \
                                  int lines, int wide, int64_t k, TYPE *to) {                      \
        for (int64_t d = 0; d < k; d++, to += 2 * wide) {                                          \
            const TYPE *at = from + 2 * depth[d];                                                  \
            for (int e = 0; e < lines; e++) {                                                      \
                to[e] = at[2 * line[e]];                                                           \
                to[wide + e] = at[2 * line[e] + 1];                                                \
            }                                                                                      \
            for (int e = lines; e < wide; e++)                                                     \
                to[e] = to[wide + e] = 0;                                                          \
        }                                                                                          \
    }
#define ADD(NAME, TYPE)                                                                            \
    static void add_##NAME(TYPE *to, const int64_t *row, int rows, const int64_t *col, int cols,   \
                           const TYPE *tile, int wide, int step, bool first) {                     \
        bool together = step == 1;                                                                 \
        for (int e = 1; e < cols && together; e++)                                                 \
            together = col[e] - col[e - 1] == 1;                                                   \
        for (int r = 0; r < rows; r++, tile += wide) {                                             \
            TYPE *at = to + step * row[r];                                                         \
            if (together && first)                                                                 \
                memcpy(at + col[0], tile, (size_t)cols * sizeof *at);                              \
            else if (together)                                                                     \
                for (int c = 0; c < cols; c++)                                                     \
                    at[col[0] + c] += tile[c];                                                     \
            else                                                                                   \
                for (int c = 0; c < cols; c++)                                                     \
                    at[step * col[c]] = first ? tile[c] : at[step * col[c]] + tile[c];             \
        }                                                                                          \
    }
PACK(u32, uint32_t)
PACK(u64, uint64_t)
PACK_PAIRS(f32, float)
PACK_PAIRS(f64, double)
ADD(f32, float)
ADD(f64, double)
ADD(u32, uint32_t)
ADD(u64, uint64_t)

static void pack(const struct gemm_state *g, const void *from, const struct gemm_side *s,
                 int64_t group, int64_t line, int lines, int wide, int64_t depth, int64_t k,
                 void *to) {
    int64_t step = g->complex ? 2 : 1;
    const char *base = (const char *)from + s->group[group] * step * g->size;
    const int64_t *l = s->line + line, *d = s->depth + depth;
    if (g->type == DT_C64)
        pack_pairs_f32((const float *)base, l, d, lines, wide, k, to);
    else if (g->type == DT_C128)
        pack_pairs_f64((const double *)base, l, d, lines, wide, k, to);
    else if (g->size == 4) // bits, whatever they mean
        pack_u32((const uint32_t *)base, l, d, lines, wide, k, to);
    else
        pack_u64((const uint64_t *)base, l, d, lines, wide, k, to);
}
static void add_tile(const struct gemm_state *g, void *out, int64_t group, int64_t row, int rows,
                     int64_t col, int cols, const void *tile, bool first) {
    int wide = g->kernel->cols, step = g->complex ? 2 : 1;
    char *to = (char *)out + g->g_out[group] * step * g->size;
    const int64_t *m = g->m_out + row, *n = g->n_out + col;
    for (int part = 0; part < step; part++, to += g->size) {
        const char *t = (const char *)tile +
                        (size_t)part * (size_t)g->kernel->rows * (size_t)wide * (size_t)g->size;
        if (g->type == DT_C64 || g->type == DT_F32)
            add_f32((float *)to, m, rows, n, cols, (const float *)t, wide, step, first);
        else if (g->type == DT_F64 || g->type == DT_C128)
            add_f64((double *)to, m, rows, n, cols, (const double *)t, wide, step, first);
        else if (g->size == 4)
            add_u32((uint32_t *)to, m, rows, n, cols, (const uint32_t *)t, wide, step, first);
        else
            add_u64((uint64_t *)to, m, rows, n, cols, (const uint64_t *)t, wide, step, first);
    }
}

// ---- running

struct gemm_call {
    const struct gemm_state *g;
    const void *a, *b;
    void *out;
    char *scratch;
};
static int least(int64_t a, int b) {
    return a < b ? (int)a : b;
}
// Rows [row, row + rows) against a packed block of columns.
static void rows_of(const struct gemm_call *c, int64_t group, int64_t row, int64_t rows,
                    int64_t col, int64_t cols, int64_t at, int64_t k, char *pa, const char *pb) {
    const struct gemm_state *g = c->g;
    const struct gemm_kernel *t = g->kernel;
    char tile[GEMM_MAX_TILE * 8] __attribute__((aligned(64)));
    int64_t each = g->size * (g->complex ? 2 : 1);
    for (int64_t r = 0; r < rows; r += t->rows)
        pack(g, c->a, &g->a, group, row + r, least(rows - r, t->rows), t->rows, at, k,
             pa + r * k * each);
    for (int64_t n = 0; n < cols; n += t->cols)
        for (int64_t r = 0; r < rows; r += t->rows) {
            t->tile(pa + r * k * each, pb + n * k * each, k, tile);
            add_tile(g, c->out, group, row + r, least(rows - r, t->rows), col + n,
                     least(cols - n, t->cols), tile, at == 0);
        }
}
static void unit(const struct gemm_call *c, int64_t u, char *scratch) {
    const struct gemm_state *g = c->g;
    const struct gemm_kernel *t = g->kernel;
    int64_t part = u % g->parts, block = u / g->parts % g->blocks, group = u / g->parts / g->blocks;
    int64_t from = part * g->tall, to = from + g->tall < g->m ? from + g->tall : g->m;
    int64_t col = block * g->width, cols = g->n - col < g->width ? g->n - col : g->width;
    int64_t each = g->size * (g->complex ? 2 : 1);
    char *pa = scratch, *pb = scratch + g->packed_a;
    for (int64_t at = 0; at < g->k; at += DEPTH) {
        int64_t k = g->k - at < DEPTH ? g->k - at : DEPTH;
        for (int64_t n = 0; n < cols; n += t->cols)
            pack(g, c->b, &g->b, group, col + n, least(cols - n, t->cols), t->cols, at, k,
                 pb + n * k * each);
        for (int64_t row = from; row < to; row += HEIGHT)
            rows_of(c, group, row, least(to - row, HEIGHT), col, cols, at, k, pa, pb);
    }
}
static void some(void *ctx, int64_t begin, int64_t end, int thread) {
    const struct gemm_call *c = ctx;
    for (int64_t u = begin; u < end; u++)
        unit(c, u, c->scratch + thread * c->g->total);
}

// The input with its padding and the zeros of its dilation.
static void pad_line(const struct gemm_state *g, const char *from, char *to, int d) {
    int64_t each = dtype_size(g->type), inner = each;
    for (int e = d + 1; e < g->rank; e++)
        inner *= g->dims[e];
    int64_t wide = (g->dims[d] - 1) * g->base[d] + 1 + g->low[d] + g->high[d];
    bool last = true; // nothing is padded below: whole lines
    for (int e = d + 1; e < g->rank; e++)
        last = last && !g->low[e] && !g->high[e] && g->base[e] == 1;
    for (int64_t k = 0; k < g->dims[d]; k++) {
        int64_t at = k * g->base[d] + g->low[d];
        if (at < 0 || at >= wide) continue;
        char *line = to + at * g->stride[d] * each;
        if (last)
            memcpy(line, from + k * inner, (size_t)inner);
        else
            pad_line(g, from + k * inner, line, d + 1);
    }
}
static status_t gemm_run(struct cpu_exe *x, struct cpu_step *s, void **bufs) {
    const struct gemm_state *g = s->state;
    struct gemm_call c = {g, bufs[0], bufs[1], bufs[s->plan->n_in], x->scratch};
    if (s->plan->instr->op == HLO_CONVOLUTION) {
        const void *image = bufs[0];
        if (g->pads) {
            char *to = (char *)x->scratch + g->total * g->threads;
            memset(to, 0, (size_t)(g->padded * dtype_size(g->type)));
            pad_line(g, image, to, 0);
            image = to;
        }
        c.a = bufs[1], c.b = image;
    }
    if (g->swapped) {
        const void *t = c.a;
        c.a = c.b, c.b = t;
    }
    int64_t units = g->groups * g->blocks * g->parts, each = s->flops / 2 / units;
    cpu_parallel(some, &c, units, ALONE / (each > 0 ? each : 1) + 1);
    return ST_OK;
}
const struct cpu_impl cpu_impl_gemm = {"gemm", gemm_accepts, gemm_open, NULL, gemm_run, NULL, NULL,
                                       NULL};
