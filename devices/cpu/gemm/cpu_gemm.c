// SPDX-License-Identifier: Apache-2.0
// gemm: dots and convolutions of the types that the library has no kernels for (f64, c64, c128,
// 32- and 64-bit integers; s8, u8 and s16 into 32 bits, two terms in one operation), and f32
// filters of many taps and few channels, as a blocked product of matrices (Goto and van de Geijn,
// "Anatomy of high-performance matrix multiplication", 2008): blocks of both operands are packed
// into panels as wide as a tile of registers, whatever lies where in memory. Element (m, k) of the
// left matrix of group g lies at g_a[g] + m_a[m] + k_a[k] of its operand, and so on: tables made at
// load say so for any labels, batch and contracting dims, strides and dilations; a convolution's
// padding is made real in a copy of its input. Sums run along k in order, in blocks. A matrix by a
// vector of complex numbers is read where it lies (cpu_gemm_vector.c). Does not: epilogues, layouts
// other than row-major, one row or column of other types, convolutions of each channel alone
// (kernels take a tenth of the time).
#include "devices/cpu/gemm/cpu_gemm.h"

#include "devices/cpu/cpu.h"

enum {
    LEAST = 8192,   // products that a call is worth
    MOST = 1 << 22, // rows, columns, depth: what tables hold
    ALONE = 200000, // products of a thread's share: about 20 us
    // Rows and columns that packing short integers is worth, where kernels make tiles: of so many
    // columns on.
    SHORT_LEAST = 16,
    TILE_COLUMNS = 8
};

// ---- which instructions

static bool type_ok(enum dtype t) {
    return t == DT_F64 || t == DT_C64 || t == DT_C128 || t == DT_S32 || t == DT_U32 ||
           t == DT_S64 || t == DT_U64;
}
// Operands that are pairs of s16 when they are packed.
static bool is_short(const struct hlo_instr *i) {
    enum dtype t = i->shape->dtype;
    for (int k = 0; k < 2; k++)
        if (!cpu_gemm_pack_short(i->operands[k]->shape->dtype)) return false;
    return t == DT_S32 || t == DT_U32;
}
// Kernels convert a window's terms one by one, once for all rows: those are left to them.
static bool short_pays(const struct hlo_instr *i, const struct cpu_sizes *s) {
    return i->op == HLO_DOT && s->m >= SHORT_LEAST && (s->n >= SHORT_LEAST || s->n < TILE_COLUMNS);
}
static bool conv_ok(const struct hlo_instr *i) {
    const struct hlo_attr_conv *c = HLO_ATTR(i, conv);
    int64_t padded = 1, plain_size = 1;
    if (c->batch_group_count < 1 || c->feature_group_count < 1 ||
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
// Filters of signals and images: many taps, few channels. The library makes code for each tap. Not
// over a dilated input, of which each phase has few taps (compiler/passes/layout/conv_phases.c).
bool cpu_gemm_filter(const struct hlo_instr *i) {
    enum { TAPS = 128, CHANNELS = 2 };
    if (i->op != HLO_CONVOLUTION || i->shape->dtype != DT_F32) return false;
    const struct hlo_attr_conv *c = HLO_ATTR(i, conv);
    const struct shape *w = i->operands[1]->shape;
    const struct labels *l = &c->dim_labels;
    int64_t taps = 1;
    for (int d = 0; d < l->n_spatial; d++)
        if (!sz_mul(taps, w->dims[l->k_spatial[d]], &taps)) return false;
    for (int d = 0; d < c->window.n; d++)
        if (c->window.v[d].base_dilation != 1) return false;
    return c->feature_group_count == 1 && w->dims[l->k_in] <= CHANNELS &&
           w->dims[l->k_out] <= CHANNELS && taps >= TAPS;
}
// Weight gradients of convolutions of groups, which the library does not know.
static bool batch_groups(const struct hlo_instr *i) {
    return i->op == HLO_CONVOLUTION && i->shape->dtype == DT_F32 &&
           HLO_ATTR(i, conv)->batch_group_count > 1;
}
// Convolutions of few features and terms, of which kernels read the windows where they lie.
// Measured on Zen 4, 130 of 1 to 8 features and 3 to 40 terms in one and two dimensions, f64, s32,
// s64, c64 and c128: they are 2 to 13 times as fast up to these bounds, of complex numbers 1.3 to 4
// where no element of a window is a choice between the image and its padding.
static bool short_windows(const struct hlo_instr *i, const struct cpu_sizes *s) {
    enum { ROWS = 8, SHARED = 1 << 17, WRITTEN_OUT = 12 };
    enum { COMPLEX_ROWS = 3, COMPLEX_TERMS = 16, COMPLEX_ALONE = 32 };
    if (i->op != HLO_CONVOLUTION || s->groups != 1 || !type_ok(i->shape->dtype)) return false;
    const struct hlo_attr_conv *c = HLO_ATTR(i, conv);
    bool padded = false;
    for (int d = 0; d < c->window.n; d++) {
        const struct window_dim *w = &c->window.v[d];
        if (w->stride != 1 || w->base_dilation != 1) return false;
        padded |= w->pad_low != 0 || w->pad_high != 0;
    }

    if (dtype_is_complex(i->shape->dtype))
        return !padded &&
               (s->m == 1 ? s->k <= COMPLEX_ALONE : s->m <= COMPLEX_ROWS && s->k <= COMPLEX_TERMS);
    if (s->m == 1 && s->k <= WRITTEN_OUT) return true;
    return s->m <= ROWS && (double)s->m * (double)s->n * (double)s->k < SHARED;
}
static bool gemm_takes(const struct hlo_instr *i) {
    if ((i->op != HLO_DOT && i->op != HLO_CONVOLUTION) || !shape_in_order(i->shape) ||
        (!type_ok(i->shape->dtype) && !cpu_gemm_filter(i) && !batch_groups(i)) ||
        shape_elements(i->shape) == 0 || cpu_tiles_better(i) || cpu_small_dot(i))
        return false;
    for (int k = 0; k < 2; k++)
        if (!shape_in_order(i->operands[k]->shape) ||
            (i->operands[k]->shape->dtype != i->shape->dtype && !is_short(i)) ||
            shape_elements(i->operands[k]->shape) == 0)
            return false;
    if (i->op == HLO_CONVOLUTION && !conv_ok(i)) return false;
    struct cpu_sizes s = cpu_sizes_of(i);
    s.n *= s.images;
    if (s.m > MOST || s.n > MOST || s.k > MOST || s.groups > MOST) return false;
    const char *forced = cpu_forced_impl(); // for tests: small ones too
    if (forced && strcmp(forced, "gemm") == 0) return true;
    if (short_windows(i, &s)) return false;
    if (is_short(i) && !short_pays(i, &s)) return false;
    if (cpu_gemm_vector_takes(i, &s)) return true;
    bool rows = s.m >= 2 || (i->op == HLO_CONVOLUTION && s.groups == 1); // or each channel alone
    if (!rows || s.n < 2 || s.k < 2) return false;
    if (i->op == HLO_DOT && dtype_is_complex(i->shape->dtype)) return cpu_complex_pays(&s);
    return (double)s.m * (double)s.n * (double)s.k >= LEAST;
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
static void to_end(int n, int64_t *v) {
    int64_t first = v[0];
    memmove(v, v + 1, (size_t)(n - 1) * sizeof *v);
    v[n - 1] = first;
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
        g->b.group[e] =
            e * (c->batch_group_count > 1 ? o->dims[l->out_batch] * g->stride[l->in_batch]
                                          : w->dims[l->k_in] * g->stride[l->in_feature]);
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
    if (taps[0] == 1 && n) // channels last: along memory
        to_end(n + 1, dims), to_end(n + 1, by), to_end(n + 1, taps);
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

static bool together(const int64_t *line, int64_t n) {
    return n < 2 || line[1] - line[0] == 1;
}
// Vector operations that a product takes: products, packing, sums to memory.
static double cost(const struct gemm_state *g, bool swapped) {
    const struct gemm_side *a = swapped ? &g->b : &g->a, *b = swapped ? &g->a : &g->b;
    const int64_t *out = swapped ? g->m_out : g->n_out;
    int64_t m = swapped ? g->n : g->m, n = swapped ? g->m : g->n;
    const int *heights = g->kernel->rows;
    int64_t tall = m >= heights[1] ? round_up(m, heights[1]) : round_up(m, heights[2]);
    double wide = (double)round_up(n, g->kernel->lanes) / g->kernel->lanes, k = (double)g->k;
    double products = (double)tall * wide * k;
    double packing = together(b->line, n) ? wide * k : (double)n * k / 2;
    packing += together(a->line, m) ? (double)m / g->kernel->lanes * k : (double)m * k / 2;
    double sums = together(out, n) ? (double)m * wide : (double)m * (double)n;
    return products + packing + 2 * sums;
}
static void swap(struct gemm_state *g) {
    struct gemm_side side = g->a;
    int64_t *out = g->m_out, m = g->m;
    g->a = g->b, g->b = side;
    g->m_out = g->n_out, g->n_out = out;
    g->m = g->n, g->n = m;
    g->swapped = true;
}
static void divide(struct gemm_state *g) {
    int64_t columns = (int64_t)g->kernel->lanes * g->kernel->vecs, want = 2 * g->threads;
    g->width = round_up(GEMM_WIDTH_BYTES / g->each, columns);
    g->blocks = (g->n + g->width - 1) / g->width;
    g->width = round_up((g->n + g->blocks - 1) / g->blocks, columns);
    g->blocks = (g->n + g->width - 1) / g->width;
    g->parts = 1;
    int rows = g->kernel->rows[0];
    if (g->threads > 1 && g->groups * g->blocks < want) {
        g->parts = (want + g->groups * g->blocks - 1) / (g->groups * g->blocks);
        int64_t most = g->m / (4 * rows);
        if (g->parts > most) g->parts = most < 1 ? 1 : most;
    }
    g->tall = round_up((g->m + g->parts - 1) / g->parts, rows);
    g->parts = (g->m + g->tall - 1) / g->tall;
    int64_t depth = g->k < GEMM_DEPTH ? g->k : GEMM_DEPTH, vector = g->isa->vector;
    int64_t panels = g->width / g->kernel->lanes;
    g->packed_a = round_up(rows * depth * g->each + vector, 64);
    g->total = round_up(g->packed_a + g->width * depth * g->each + panels * vector, 64);
}
static void kernel_of(struct gemm_state *g, const struct hlo_instr *i) {
    bool dot = i->op == HLO_DOT;
    enum dtype t = g->type;
    g->isa = cpu_gemm_isa(cpu_target()->vector_bits);
    g->each = dtype_size(t);
    g->together = 1;
    if (is_short(i)) {
        g->together = 2;
        g->kernel = g->isa->kernel[6];
        g->a.pack = cpu_gemm_pack_short(i->operands[!dot]->shape->dtype);
        g->b.pack = cpu_gemm_pack_short(i->operands[dot]->shape->dtype);
        return;
    }
    g->kernel = g->isa->kernel[t == DT_F32    ? 0
                               : t == DT_F64  ? 1
                               : t == DT_C64  ? 4
                               : t == DT_C128 ? 5
                               : g->each == 4 ? 2
                                              : 3];
    g->a.pack = g->b.pack = g->isa->pack[g->each == 4 ? 0 : g->each == 8 ? 1 : 2];
}
// Depths of packed panels: of each height of a tile and of each width.
static void steps_of(struct cpu_exe *x, struct gemm_state *g) {
    int64_t depth = g->k < GEMM_DEPTH ? g->k : GEMM_DEPTH;
    for (int e = 0; e < 2 * GEMM_VECS; e++) {
        int64_t *to = g->steps[e] = table(x, depth + GEMM_AHEAD);
        int64_t step =
            e < GEMM_VECS ? g->kernel->rows[e] : (int64_t)(e - GEMM_VECS + 1) * g->kernel->lanes;
        for (int64_t d = 0; d < depth + GEMM_AHEAD; d++)
            to[d] = d * step;
    }
}
static struct gemm_side side_of(struct cpu_exe *x, const struct shape *s, int64_t groups,
                                int64_t lines, int64_t k) {
    return (struct gemm_side){.group = table(x, groups),
                              .line = table(x, lines),
                              .depth = table(x, k + GEMM_AHEAD),
                              .elements = shape_elements(s),
                              .each = dtype_size(s->dtype)};
}
static status_t gemm_open(struct cpu_exe *x, struct cpu_step *s) {
    struct gemm_state *g = arena_new_of(&x->arena, struct gemm_state);
    const struct hlo_instr *i = s->plan->instr;
    bool dot = i->op == HLO_DOT;
    struct cpu_sizes z = cpu_sizes_of(i);
    z.n *= z.images;
    *g = (struct gemm_state){.threads = cpu_threads(), .type = i->shape->dtype};
    g->groups = z.groups, g->m = z.m, g->n = z.n, g->k = z.k;
    g->a = side_of(x, i->operands[!dot]->shape, z.groups, z.m, z.k);
    g->b = side_of(x, i->operands[dot]->shape, z.groups, z.n, z.k);
    kernel_of(g, i);
    g->g_out = table(x, z.groups), g->m_out = table(x, z.m), g->n_out = table(x, z.n);
    if (dot)
        dot_tables(g, i);
    else
        conv_tables(g, i);
    if (g->pads) g->b.elements = g->padded;
    g->pad_each = g->b.each;
    g->vector = cpu_gemm_vector_takes(i, &z);
    if (g->vector ? g->n == 1 : cost(g, true) < cost(g, false)) swap(g);
    if (g->vector) {
        cpu_gemm_vector_divide(g);
    } else {
        divide(g);
        steps_of(x, g);
    }

    int64_t need = g->total * g->threads + (g->pads ? round_up(g->padded * g->pad_each, 64) : 0);
    if (need > x->scratch_bytes) x->scratch_bytes = need;
    s->flops = 2 * z.groups * z.m * z.n * z.k * (dtype_is_complex(g->type) ? 4 : 1);
    s->alone = s->flops < 4 * ALONE;
    s->detail = g->isa->vector == 64   ? "gemm:avx512"
                : g->isa->vector == 32 ? "gemm:avx2"
                                       : "gemm:plain";
    s->state = g;
    return ST_OK;
}

// ---- running

// The input with its padding and the zeros of its dilation.
static void pad_line(const struct gemm_state *g, const char *from, char *to, int d) {
    int64_t each = g->pad_each, inner = each;
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
            memset(to, 0, (size_t)(g->padded * g->pad_each));
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
    int64_t grain = ALONE / (each > 0 ? each : 1) + 1;
    cpu_parallel(g->vector ? cpu_gemm_vector_units : cpu_gemm_units, &c, units, grain);
    return ST_OK;
}
const struct cpu_impl cpu_impl_gemm = {"gemm",   gemm_accepts, gemm_open, NULL,
                                       gemm_run, NULL,         NULL,      NULL};
