// SPDX-License-Identifier: Apache-2.0
// windows: largest and smallest values and sums of f32 over windows, in one to three dimensions,
// strided, dilated, padded. First the lines of a window, a line of an image at a time as it lies in
// memory, then along that line, so that k x k places take 2 k operations for each vector; windows
// along a line that are long by doubling them. A unit of work is a few lines of results; an image's
// part that holds a NaN, which vectors' maxima lose, goes one by one. Where values of other
// dimensions lie beside each other at each place (blocks of channels, channels last) kernels and
// the library fill their vectors with these.
#include <math.h>
#include <string.h>

#include "compiler/ops/rules.h"
#include "compiler/passes/fusion/library.h"
#include "devices/cpu/routines/cpu_windows.h"

// ---- which instructions

static bool trivial(const struct window_dim *v) {
    return v->size == 1 && v->stride == 1 && v->pad_low == 0 && v->pad_high == 0;
}
static bool kind_of(const struct hlo_instr *i, enum windows_kind *out) {
    enum hlo_op op;
    const struct hlo_instr *init = i->operands[1];
    if (!hlo_reducer_op(i->called[0], &op)) return false;
    *out = op == HLO_MAXIMUM ? WINDOWS_MAX : op == HLO_MINIMUM ? WINDOWS_MIN : WINDOWS_ADD;
    if (op == HLO_MAXIMUM || op == HLO_MINIMUM) return true;
    return op == HLO_ADD && init->op == HLO_CONSTANT && lit_get_f64(init->literal, 0) == 0;
}
// The dimensions in the order of memory: outer ones, three of windows.
static bool dims_of(const struct hlo_instr *i, struct windows *w) {
    static const struct window_dim none = {
        .size = 1, .stride = 1, .window_dilation = 1, .base_dilation = 1};
    const struct window *all = &HLO_ATTR(i, window)->window;
    struct shape_phys from, to;
    shape_physical(i->operands[0]->shape, &from);
    shape_physical(i->shape, &to);
    if (to.rank != from.rank || to.padded || from.padded || all->n != i->shape->rank) return false;
    const struct window_dim *of[2 * HLO_MAX_RANK];
    int first = to.rank, end = 0;
    for (int k = 0; k < to.rank; k++) {
        if (from.of[k] != to.of[k]) return false;
        of[k] = &all->v[to.of[k]];
        if (trivial(of[k])) continue;
        for (int e = 0; e < to.rank; e++)
            if (e != k && to.of[e] == to.of[k]) return false; // a tiled one
        if (first > k) first = k;
        end = k + 1;
    }
    if (end <= first || end < to.rank || end - first > WINDOWS_DIMS) return false;

    w->outer = 1;
    for (int k = 0; k < first; k++)
        w->outer *= to.dims[k];
    for (int d = 0; d < WINDOWS_DIMS; d++) {
        int k = end - WINDOWS_DIMS + d;
        const struct window_dim *v = k >= first ? of[k] : &none;
        w->in[d] = k >= first ? from.dims[k] : 1;
        w->out[d] = k >= first ? to.dims[k] : 1;
        w->size[d] = v->size;
        w->stride[d] = v->stride;
        w->step[d] = v->window_dilation;
        w->low[d] = v->pad_low;
        if (v->base_dilation != 1 || v->reversal || v->pad_low < 0 || v->pad_high < 0) return false;
    }
    return true;
}
// How a unit's share is cut: its lines stay in the nearest cache while they are looked at and used.
static void cut(struct windows *w) {
    enum { NEAR = 8192, RESULTS = 1024, SPAN = 4096, NS = 20000, EACH_NS = 32, LINES = 8 };
    int64_t wide = w->in[2], reach = (w->size[2] - 1) * w->step[2] + 1;
    w->band = NEAR / (wide * w->stride[1]) + 1;
    if (w->band > w->out[1]) w->band = w->out[1];
    w->bands = ceil_div(w->out[1], w->band);
    w->block = SPAN / w->stride[2] < RESULTS ? SPAN / w->stride[2] + 1 : RESULTS;
    if (w->block > w->out[2]) w->block = w->out[2];
    w->part = w->out[0] * w->out[1] == 1 ? w->block : w->out[2];
    w->parts = ceil_div(w->out[2], w->part);
    int64_t line = (w->block - 1) * w->stride[2] + reach;
    w->half = w->stride[2] == 2 ? (line / 2 / WINDOWS_SLACK + 4) * WINDOWS_SLACK : 0;
    w->places = w->half ? 2 * w->half : (line / WINDOWS_SLACK + 3) * WINDOWS_SLACK;
    w->lines = w->band < LINES ? w->band : LINES;

    w->close = w->parts == 1 && (w->size[2] == 2 || w->size[2] == 3) && w->step[2] == 1 &&
               w->stride[2] <= 2 && w->low[2] <= 1;

    double lines = (double)(w->size[0] * w->size[1]), across = (double)w->size[2];
    double terms = lines * (double)w->stride[2] + across;
    double ns = (double)(w->band * w->part) * (terms + 2) / EACH_NS;
    w->grain = (int64_t)(NS / ns) + 1;
}
// Is it sooner than kernels, which go through the array once for each dimension, all values in
// vectors, or than the library? Each line of results costs it some 7 ns, each line that a window
// meets 0.4 and 0.5 for each vector. Zen 5, 450 random ones of f32 in two and three dimensions,
// times over those of the sooner of both: always the routine 1.7, never 1.6, so 1.25.
static bool pays(const struct hlo_instr *i, const struct windows *w) {
    enum { FEW_RESULTS = 8, LONG_LINE = 64 };
    const double line_ns = 7, met_ns = 0.4, vector_ns = 0.52, across_ns = 0.14, tap_ns = 1.1;
    if (cpu_forced_impl()) return true;
    if (w->out[2] < FEW_RESULTS) return false;
    int64_t met = w->size[0] * w->size[1];
    if (met == 1) return w->out[2] >= LONG_LINE;
    if (lib_pool(i)) return true;

    int lanes = cpu_target()->vector_bits / 32;
    bool near = (w->size[2] == 2 || w->size[2] == 3) && w->step[2] == 1;
    double each = line_ns + (double)met * (met_ns + vector_ns * (double)ceil_div(w->in[2], lanes));
    if (!near) each += line_ns / 2 + across_ns * (double)(w->size[2] * ceil_div(w->out[2], lanes));
    double taps = 0, so_far = (double)(w->in[0] * w->in[1]) * (double)w->in[2];
    for (int d = 0; d < WINDOWS_DIMS; d++) {
        so_far *= (double)w->out[d] / (double)w->in[d];
        if (w->size[d] > 1 || w->stride[d] > 1) taps += so_far * (double)w->size[d];
    }
    double kernels = taps * tap_ns / lanes;
    if (w->stride[2] > 1) kernels *= 2.5; // lanes are put together
    if (w->low[2] > 0) kernels *= 1.6;
    return (double)(w->out[0] * w->out[1]) * each < kernels;
}
// Small ones and sums of a few elements are left to kernels, which take neighbours in, windows
// along a line alone, but for those that are doubled, and large strides, too.
static bool windows_of(const struct hlo_instr *i, struct windows *w) {
    enum { LEAST = 1 << 15, REACH = 1 << 14, FEW = 4, MOST_STRIDE = 2 };
    if (i->op != HLO_REDUCE_WINDOW || i->n_operands != 2 || i->shape->dtype != DT_F32 ||
        i->operands[0]->shape->dtype != DT_F32 || i->shape->dynamic ||
        i->operands[0]->shape->dynamic || rule_running_window(i, NULL) || !kind_of(i, &w->kind) ||
        !shape_elements(i->shape) || !shape_elements(i->operands[0]->shape) || !dims_of(i, w))
        return false;
    double taps = (double)(w->size[0] * w->size[1]) * (double)w->size[2];
    if (w->kind == WINDOWS_ADD && taps <= FEW) return false;
    int64_t lines = w->size[0] * w->size[1];
    bool doubled = w->kind != WINDOWS_ADD && w->stride[2] == 1 && w->size[2] >= WINDOWS_LONG;
    if (lines > WINDOWS_LINES || w->size[2] * w->step[2] > REACH || w->stride[2] > MOST_STRIDE ||
        (lines == 1 && !doubled))
        return false;
    return (double)shape_elements(i->shape) * taps >= LEAST && pays(i, w);
}
bool cpu_windows_accepts(const struct hlo_instr *i) {
    struct windows w;
    const char *forced = cpu_forced_impl();
    return (!forced || strcmp(forced, cpu_impl_windows.name) == 0) && windows_of(i, &w);
}
static bool windows_accepts(UNUSED const struct cpu_exe *x, const struct hlo_instr *i,
                            const char **why) {
    struct windows w;
    *why = "not windows of f32";
    return windows_of(i, &w);
}

// ---- running

struct windows_state {
    struct windows w;
    const struct windows_isa *isa;
    int64_t scratch; // bytes of a thread
};
static status_t windows_open(struct cpu_exe *x, struct cpu_step *s) {
    struct windows_state *st = arena_new_of(&x->arena, struct windows_state);
    if (!windows_of(s->plan->instr, &st->w)) return st_internal("not windows of f32");
    int bits = cpu_target()->vector_bits;
    st->isa = bits == 512   ? &windows_avx512_isa
              : bits == 256 ? &windows_avx2_isa
                            : &windows_plain_isa;
    cut(&st->w);
    st->scratch =
        ceil_div((st->w.lines * st->w.places + WINDOWS_SLACK) * (int64_t)sizeof(float), 64) * 64;
    int64_t need = st->scratch * cpu_threads();
    if (need > x->scratch_bytes) x->scratch_bytes = need;
    s->alone = st->w.outer * st->w.out[0] * st->w.bands * st->w.parts < 2 * st->w.grain;
    s->detail = "windows";
    s->state = st;
    return ST_OK;
}
// The places of a dimension that windows [from, to) reach: [*a, *b).
static void reached(const struct windows *w, int d, int64_t from, int64_t to, int64_t *a,
                    int64_t *b) {
    int64_t low = from * w->stride[d] - w->low[d],
            high = (to - 1) * w->stride[d] - w->low[d] + (w->size[d] - 1) * w->step[d] + 1;
    *a = low < 0 ? 0 : low;
    *b = high > w->in[d] ? w->in[d] : high;
}
static bool meets_nan(const struct windows_state *st, const struct windows_unit *u) {
    const struct windows *w = &st->w;
    int64_t d0, d1, h0, h1, x0, x1;
    if (w->kind == WINDOWS_ADD) return false;
    if (isnan(u->first)) return true;
    reached(w, 0, u->plane, u->plane + 1, &d0, &d1);
    reached(w, 1, u->from, u->to, &h0, &h1);
    reached(w, 2, u->begin, u->end, &x0, &x1);
    if (w->parts == 1) x0 = 0, x1 = w->in[2];
    bool whole = x0 == 0 && x1 == w->in[2];
    int64_t wide = w->in[2];
    for (int64_t d = d0; d < d1; d++) {
        const float *plane = u->image + d * w->in[1] * wide;
        if (whole && h1 > h0 && st->isa->nan(plane + h0 * wide, (h1 - h0) * wide)) return true;
        for (int64_t h = h0; !whole && h < h1; h++)
            if (x1 > x0 && st->isa->nan(plane + h * wide + x0, x1 - x0)) return true;
    }
    return false;
}
static float larger(enum windows_kind kind, float a, float b) {
    if (isnan(a) || isnan(b)) return isnan(a) ? a : b;
    return (kind == WINDOWS_MAX ? b > a : b < a) ? b : a;
}
static float one(const struct windows *w, const struct windows_unit *u, int64_t y, int64_t x) {
    const int64_t at[WINDOWS_DIMS] = {u->plane, y, x};
    float r = u->first;
    int64_t n = w->size[0] * w->size[1] * w->size[2];
    for (int64_t t = 0; t < n; t++) {
        int64_t rest = t, place = 0, unit = 1;
        bool in = true;
        for (int d = WINDOWS_DIMS - 1; d >= 0; rest /= w->size[d--]) {
            int64_t p = at[d] * w->stride[d] - w->low[d] + rest % w->size[d] * w->step[d];
            in &= p >= 0 && p < w->in[d];
            place += p * unit;
            unit *= w->in[d];
        }
        if (in) r = larger(w->kind, r, u->image[place]);
    }
    return r;
}
static void one_by_one(const struct windows *w, const struct windows_unit *u) {
    for (int64_t y = u->from; y < u->to; y++)
        for (int64_t x = u->begin; x < u->end; x++)
            u->out[y * w->out[2] + x] = one(w, u, y, x);
}
struct windows_call {
    const struct windows_state *st;
    void **bufs;
    char *scratch;
};
static void part(void *ctx, int64_t begin, int64_t end, int thread) {
    const struct windows_call *c = ctx;
    const struct windows *w = &c->st->w;
    int64_t image = w->in[0] * w->in[1] * w->in[2], plane = w->out[1] * w->out[2];
    struct windows_unit u = {.first = *(const float *)c->bufs[1],
                             .scratch = (void *)(c->scratch + thread * c->st->scratch)};
    for (int64_t k = begin; k < end; k++) {
        int64_t part = k % w->parts, line = k / w->parts, band = line % w->bands,
                at = line / w->bands;
        u.plane = at % w->out[0];
        u.image = (const float *)c->bufs[0] + at / w->out[0] * image;
        u.out = (float *)c->bufs[2] + at * plane;
        u.from = band * w->band;
        u.to = u.from + w->band < w->out[1] ? u.from + w->band : w->out[1];
        u.begin = part * w->part;
        u.end = u.begin + w->part < w->out[2] ? u.begin + w->part : w->out[2];
        if (meets_nan(c->st, &u))
            one_by_one(w, &u);
        else
            c->st->isa->lines(w, &u);
    }
}
static status_t windows_run(struct cpu_exe *x, struct cpu_step *s, void **bufs) {
    const struct windows_state *st = s->state;
    const struct windows *w = &st->w;
    struct windows_call c = {st, bufs, x->scratch};
    cpu_parallel(part, &c, w->outer * w->out[0] * w->bands * w->parts, w->grain);
    return ST_OK;
}
const struct cpu_impl cpu_impl_windows = {
    "windows", windows_accepts, windows_open, NULL, windows_run, NULL, NULL, NULL};
