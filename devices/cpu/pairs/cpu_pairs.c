// SPDX-License-Identifier: Apache-2.0
// pairs: dots and convolutions of 8-bit integers (compiler/passes/layout/int8.c makes them), u8 or
// s8 times s8 into s32, with the post-operations of library.h, on CPUs with AVX2 and without VNNI.
// The sums are exact: the instruction that multiplies bytes there saturates sums of two products;
// weights for which it may are found when they are packed (cpu_pairs_pack.c) and multiplied as 16
// bits.
// Does not: batches of dots, kernels of integers that are not plain rows, groups of few channels (a
// filter for each channel among them), and convolutions that f32 runs faster (cpu_choice.c).
#include <string.h>

#include "base/span.h"
#include "devices/cpu/pairs/cpu_pairs.h"

enum { LEAST_DEPTH = 8, LEAST_COLS = 8, MAX_TERMS = 1 << 20 };
enum { SHARE_FLOPS = 1200000, LOOP_SHARE_FLOPS = 400000, BLOCK_BYTES = 128 << 10, MAX_BLOCK = 64 };

// ---- which products

static bool plain(const struct shape *s) {
    return !shape_is_tuple(s) && !s->dynamic && layout_is_default(s->layout, s->rank) &&
           shape_elements(s) > 0;
}
static bool last(const struct shape *s) {
    int block;
    return !shape_is_tuple(s) && s->rank >= 3 && s->rank <= 5 && !s->dynamic &&
           shape_elements(s) > 0 && lib_form_of(s->layout, s->rank, &block) == FORM_LAST;
}
static bool types_ok(const struct lib_call *c) {
    enum dtype x = c->hero->operands[0]->shape->dtype;
    return c->hero->shape->dtype == DT_S32 && (x == DT_U8 || x == DT_S8) &&
           c->hero->operands[1]->shape->dtype == DT_S8 && plain(c->hero->operands[1]->shape) &&
           shape_elements(c->hero->operands[1]->shape) <= INT32_MAX;
}
static bool posts_ok(const struct lib_call *c) {
    for (int k = 0; k < c->n_post; k++) {
        const struct lib_post *p = &c->post[k];
        if (p->kind == LIB_POST_BF16) return false;
        if (!p->operand) continue;
        const struct shape *s = p->operand->shape;
        bool whole = p->kind == LIB_POST_SUM; // lies as the result does
        if (whole ? s->dtype != DT_F32 || !layout_equal(s->layout, c->result->layout, s->rank)
                  : !plain(s))
            return false;
    }
    return true;
}
static bool dot_ok(const struct lib_call *c) {
    const struct hlo_attr_dot *d = HLO_ATTR(c->hero, dot);
    const struct shape *x = c->hero->operands[0]->shape, *w = c->hero->operands[1]->shape;
    if (d->lhs_batch_dims.n || d->lhs_contracting_dims.n != 1 || d->rhs_contracting_dims.n != 1 ||
        !plain(x) || !plain(c->result))
        return false;
    int64_t xc = d->lhs_contracting_dims.v[0], wc = d->rhs_contracting_dims.v[0];
    return (xc == x->rank - 1 || shape_elements(x) == x->dims[xc]) &&
           (wc == 0 || wc == w->rank - 1) && x->dims[xc] <= MAX_TERMS;
}
static bool groups_ok(const struct hlo_instr *h) {
    const struct hlo_attr_conv *a = HLO_ATTR(h, conv);
    const struct shape *w = h->operands[1]->shape;
    int64_t groups = a->feature_group_count, cols = w->dims[0] / groups;
    return groups == 1 || (w->dims[1] >= LEAST_DEPTH && cols >= LEAST_COLS);
}
static bool conv_ok(const struct lib_call *c) {
    const struct hlo_attr_conv *a = HLO_ATTR(c->hero, conv);
    const struct shape *x = c->hero->operands[0]->shape, *w = c->hero->operands[1]->shape;
    int n = a->dim_labels.n_spatial;
    int64_t taps = 1;
    if (n < 1 || n > PAIRS_AXES || a->window.n != n || a->batch_group_count != 1 ||
        !labels_in_order(&a->dim_labels, 0))
        return false;
    for (int d = 0; d < n; d++) {
        const struct window_dim *v = &a->window.v[d];
        if (v->base_dilation != 1 || v->reversal || v->pad_low < 0 || v->pad_high < 0 ||
            v->size < 1)
            return false;
        taps = v->size > PAIRS_TAPS ? PAIRS_TAPS + 1 : taps * v->size;
        if (taps > PAIRS_TAPS) return false;
    }
    return (plain(x) || last(x)) && (plain(c->result) || last(c->result)) && groups_ok(c->hero) &&
           taps * w->dims[1] <= MAX_TERMS && cpu_pairs_better(c->hero);
}
bool cpu_pairs_runs(const struct lib_call *c) {
    return cpu_has_pairs() && types_ok(c) && posts_ok(c) &&
           (c->hero->op == HLO_CONVOLUTION ? conv_ok(c) : dot_ok(c));
}
bool cpu_pairs_accepts(const struct hlo_instr *i) {
    struct lib_call c;
    return !shape_is_tuple(i->shape) && lib_match(i, &c) && cpu_pairs_runs(&c);
}
static bool pairs_accepts(UNUSED const struct cpu_exe *x, const struct hlo_instr *i,
                          const char **why) {
    *why = "not a product of 8-bit integers";
    return cpu_pairs_accepts(i);
}

// ---- sizes

static void read_dot(const struct lib_call *c, struct pairs_state *t) {
    const struct hlo_attr_dot *d = HLO_ATTR(c->hero, dot);
    const struct shape *x = c->hero->operands[0]->shape, *w = c->hero->operands[1]->shape;
    int64_t k = x->dims[d->lhs_contracting_dims.v[0]], rows = shape_elements(x) / k;
    for (int a = 0; a < PAIRS_AXES; a++)
        t->axis[a] = (struct pairs_axis){1, 1, 1, 1, 1, 0};
    t->axis[PAIRS_AXES - 1].in = t->axis[PAIRS_AXES - 1].out = rows;
    t->images = t->groups = 1;
    t->pixel = t->depth = k;
    t->cols = shape_elements(w) / k;
}
static void read_conv(const struct lib_call *c, struct pairs_state *t) {
    const struct hlo_attr_conv *a = HLO_ATTR(c->hero, conv);
    const struct shape *x = c->hero->operands[0]->shape, *w = c->hero->operands[1]->shape;
    for (int k = 0; k < PAIRS_AXES; k++) {
        int d = k - (PAIRS_AXES - a->window.n);
        const struct window_dim *v = d < 0 ? NULL : &a->window.v[d];
        t->axis[k] = v ? (struct pairs_axis){.in = x->dims[d + 2],
                                             .out = c->hero->shape->dims[d + 2],
                                             .taps = v->size,
                                             .stride = v->stride,
                                             .dilation = v->window_dilation,
                                             .low = v->pad_low}
                       : (struct pairs_axis){1, 1, 1, 1, 1, 0};
    }
    t->images = x->dims[0];
    t->pixel = x->dims[1];
    t->groups = a->feature_group_count;
    t->depth = w->dims[1];
    t->cols = w->dims[0] / t->groups;
    t->turn_x = !last(x);
    t->turn_out = !last(c->result);
}
// Where windows lie in memory: pixels side by side are one run.
static void find_runs(struct arena *arena, struct pairs_state *t) {
    const struct pairs_axis *a = t->axis;
    int64_t taps = a[0].taps * a[1].taps * a[2].taps;
    bool whole = t->groups == 1 && (a[2].dilation == 1 || a[2].taps == 1);
    t->across = whole ? a[2].taps : 1;
    t->run = t->across * t->depth;
    t->n_runs = taps / t->across;
    t->quads = t->n_runs * ((t->run + PAIRS_QUAD - 1) / PAIRS_QUAD);
    t->rows = t->images * a[0].out * a[1].out * a[2].out;
    t->panels = (t->cols + PAIRS_PANEL - 1) / PAIRS_PANEL;
    t->x_bytes = t->images * a[0].in * a[1].in * a[2].in * t->pixel;

    struct pairs_run *runs = arena_array(arena, struct pairs_run, t->n_runs);
    for (int64_t r = 0; r < t->n_runs; r++) {
        int64_t tap = r * t->across, at[PAIRS_AXES];
        for (int d = PAIRS_AXES - 1; d >= 0; tap /= a[d--].taps)
            at[d] = tap % a[d].taps * a[d].dilation;
        memcpy(runs[r].at, at, sizeof at);
        runs[r].offset = ((at[0] * a[1].in + at[1]) * a[2].in + at[2]) * t->pixel;
    }
    t->runs = runs;
}
// Weights: of a convolution [columns, depth, taps], of a dot [depth, columns] or the other way.
static void find_weights(struct arena *arena, const struct lib_call *c, struct pairs_state *t) {
    const struct pairs_axis *a = t->axis;
    const struct shape *w = c->hero->operands[1]->shape;
    bool conv = c->hero->op == HLO_CONVOLUTION;
    bool by_column = conv || HLO_ATTR(c->hero, dot)->rhs_contracting_dims.v[0] == w->rank - 1;
    int64_t taps = a[0].taps * a[1].taps * a[2].taps;
    t->column = by_column ? taps * t->depth : 1;
    t->from = arena_array(arena, int32_t, PAIRS_QUAD * t->quads);
    int32_t *to = t->from;
    for (int64_t r = 0; r < t->n_runs; r++) {
        for (int64_t k = 0; k < t->run; k++) {
            int64_t tap = r * t->across + k / t->depth, at = k % t->depth;
            *to++ = (int32_t)(conv ? at * taps + tap : by_column ? at : at * t->cols);
        }
        while ((to - t->from) % PAIRS_QUAD)
            *to++ = -1;
    }
}
// Shares: as many rows as stay in the second cache when they are packed, and columns where rows
// alone are too few.
static void share(struct pairs_state *t, int64_t least) {
    int64_t row = t->quads * PAIRS_QUAD, units = 4 * (int64_t)cpu_threads();
    int64_t block = BLOCK_BYTES / row / PAIRS_ROWS * PAIRS_ROWS;
    block = block < PAIRS_ROWS ? PAIRS_ROWS : block > MAX_BLOCK ? MAX_BLOCK : block;
    int64_t all = t->groups * t->panels, per_panel = 2 * t->n_runs * t->run * PAIRS_PANEL;
    t->block = block;
    int64_t blocks = (t->rows + block - 1) / block, chunks = 1;
    if (blocks < units) chunks = (units + blocks - 1) / blocks;
    t->chunk = (all + chunks - 1) / chunks;
    if (t->chunk < 4) t->chunk = all < 4 ? all : 4; // each share packs its rows
    chunks = (all + t->chunk - 1) / t->chunk;
    t->units = blocks * chunks;
    int64_t rows = block < t->rows ? block : t->rows;
    int64_t flops = per_panel * rows * t->chunk;
    t->grain = least / (flops + 1) + 1;
}

// ---- the implementation

static int64_t all_panels(const struct pairs_state *t) {
    return t->groups * t->panels;
}
static int64_t pack_bytes(const struct pairs_state *t) {
    return all_panels(t) * cpu_pairs_panel_bytes(t);
}
static int64_t x_bytes(const struct pairs_state *t) { // channels last, where x is not
    return t->turn_x ? round_up(t->x_bytes, 64) : 0;
}
static int64_t out_bytes(const struct pairs_state *t) {
    return t->turn_out ? round_up(t->rows * t->groups * t->cols * dtype_size(t->result), 64) : 0;
}
static int64_t sum_bytes(const struct pairs_state *t) {
    return t->turn_out && t->sum >= 0
               ? round_up(t->rows * t->groups * t->cols * (int64_t)sizeof(float), 64)
               : 0;
}

struct packing {
    const struct pairs_state *t;
    const int8_t *from;
    char *to;
};
static void pack_part(void *ctx, int64_t begin, int64_t end, UNUSED int thread) {
    const struct packing *p = ctx;
    for (int64_t k = begin; k < end; k++)
        cpu_pairs_pack_panel(p->t, p->from, k, p->to);
}
// Planes of channels, and channels last.
static void turn(const struct pairs_state *t, int64_t size, const char *from, int64_t rows,
                 int64_t columns, char *to) {
    for (int64_t n = 0; n < t->images; n++)
        cpu_transpose_matrix(size, from + n * rows * columns * size, rows, columns,
                             to + n * rows * columns * size);
}
static status_t pairs_run(struct cpu_exe *x, struct cpu_step *s, void **bufs) {
    const struct pairs_state *t = s->state;
    const struct pairs_axis *a = t->axis;
    char *scratch = x->scratch, *in = bufs[t->x], *out = bufs[t->out], *w = bufs[t->w];
    if (s->packed_in < 0) {
        struct packing p = {t, bufs[t->w], scratch};
        cpu_parallel(pack_part, &p, all_panels(t), 1 + 20000 / (t->quads + 1));
        w = scratch;
        scratch += round_up(pack_bytes(t), 64);
    }
    if (t->turn_x) {
        turn(t, 1, in, t->pixel, a[0].in * a[1].in * a[2].in, scratch);
        in = scratch;
        scratch += x_bytes(t);
    }

    int64_t plane = t->rows / t->images, channels = t->groups * t->cols;
    const char *sum = t->sum < 0 ? NULL : bufs[t->sum];
    if (t->turn_out) out = scratch, scratch += out_bytes(t);
    if (sum_bytes(t)) {
        turn(t, sizeof(float), sum, channels, plane, scratch);
        sum = scratch;
        scratch += sum_bytes(t);
    }
    struct pairs_call c = {.t = t, .bufs = bufs, .x = in, .w = w, .out = out, .sum = sum};
    c.scratch = scratch;
    cpu_pairs_multiply(&c);
    if (t->turn_out) turn(t, dtype_size(t->result), out, plane, channels, bufs[t->out]);
    return ST_OK;
}
static void read_posts(const struct lib_call *c, struct pairs_state *t) {
    t->n_post = c->n_post;
    t->sum = -1;
    lib_copy_posts(c, t->post, t->leaf);
    for (int k = 0; k < c->n_post; k++)
        if (c->post[k].kind == LIB_POST_SUM) t->sum = t->leaf[k];
}
static status_t pairs_open(struct cpu_exe *x, struct cpu_step *s) {
    struct pairs_state *t = arena_new_of(&x->arena, struct pairs_state);
    const struct hlo_instr *i = s->plan->instr;
    struct lib_call c;
    if (!lib_match(i, &c)) return st_internal("accepted a product that does not match");
    t->activate = cpu_thin_activate();
    t->x = lib_operand(i, c.lhs), t->w = lib_operand(i, c.rhs), t->out = s->plan->n_in;
    t->result = c.result->dtype;
    t->sign = c.hero->operands[0]->shape->dtype == DT_S8;
    (c.hero->op == HLO_CONVOLUTION ? read_conv : read_dot)(&c, t);
    read_posts(&c, t);
    find_runs(&x->arena, t);
    find_weights(&x->arena, &c, t);
    cpu_pairs_order(t);
    share(t, x->in_loop ? LOOP_SHARE_FLOPS : SHARE_FLOPS);

    int64_t scratch =
        cpu_pairs_thread_bytes(t) * cpu_threads() + x_bytes(t) + out_bytes(t) + sum_bytes(t);
    if (cpu_is_bound(x, s, t->w)) {
        s->packed_in = t->w;
        s->pack_slot = x->n_packs++;
    } else {
        scratch += round_up(pack_bytes(t), 64);
    }
    if (scratch > x->scratch_bytes) x->scratch_bytes = scratch;
    s->flops = 2 * t->rows * t->groups * t->cols * t->n_runs * t->run;
    s->alone = t->units < 2 * t->grain;
    s->detail = "pairs:avx2";
    s->state = t;
    return ST_OK;
}
static int64_t pairs_pack_bytes(const struct cpu_step *s) {
    return pack_bytes(s->state);
}
static status_t pairs_pack(UNUSED struct cpu_exe *x, struct cpu_step *s, const void *plain_weights,
                           void *packed) {
    struct packing p = {s->state, plain_weights, packed};
    pack_part(&p, 0, all_panels(p.t), 0);
    return ST_OK;
}
static bool pairs_same_pack(const struct cpu_step *a, const struct cpu_step *b) {
    const struct pairs_state *s = a->state, *t = b->state;
    return s->quads == t->quads && s->sign == t->sign && s->cols == t->cols &&
           s->groups == t->groups && s->column == t->column &&
           memcmp(s->from, t->from, sizeof *s->from * PAIRS_QUAD * (size_t)s->quads) == 0;
}
const struct cpu_impl cpu_impl_pairs = {"pairs",   pairs_accepts,    pairs_open, NULL,
                                        pairs_run, pairs_pack_bytes, pairs_pack, pairs_same_pack};
