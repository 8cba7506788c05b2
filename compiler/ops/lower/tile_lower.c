// SPDX-License-Identifier: Apache-2.0
// What dots and convolutions say of themselves as tiles (compiler/kernel/lower_tile.h). A dot's
// slab holds the operand whose dimension is the innermost of the result: a row of columns for each
// term. A convolution's holds the image with its padding, an image for each remainder of an input
// position by the stride (phase), so that one term of neighbouring outputs lies side by side
// whatever the stride; lines of outputs follow one another at the pitch of the slab's lines.
#include <stdlib.h>

#include "compiler/kernel/lower_tile.h"

// Cycles for an element of a slab: neighbours as neighbours, and not so.
#define COPY_COST 0.3
#define FAR_COST  40.0                 // of a line that lies in a page of its own, of too many
enum { FAR_ROWS = 8, MANY_ROWS = 16 }; // fewer do not repay it; more hide it
#define TURNED_COST 1.5

static struct kir_val *times(struct kir *k, struct kir_val *x, int64_t c) {
    return kir_idx_mul(k, x, c);
}
static struct kir_val *plus(struct kir *k, struct kir_val *x, int64_t c) {
    return kir_idx_add(k, x, kir_i64(k, c));
}

// lower_unflatten for v that is less than the product of dims.
static void unflatten(struct lower *lw, struct kir_val *v, const int64_t *dims, int rank,
                      struct kir_val **index) {
    int64_t stride = 1;
    for (int d = rank - 1; d >= 0; d--) {
        index[d] = kir_idx_divmod(&lw->k, v, stride, d ? dims[d] : 0);
        stride *= dims[d];
    }
}

// ---- two terms as one (K_PAIRS)

// Products of s16, whose terms are even in number, are made two at a time.
static void take_pairs(const struct lower *lw, struct lower_tile *t, enum dtype sums) {
    if (lw->policy->tiles != TILES_OF_WASM || sums != DT_S32 || !t->n_k || t->k[t->pair] % 2)
        return;
    for (int s = 0; s < 2; s++)
        if (t->i->operands[s]->shape->dtype != DT_S16) return;
    t->pairs = true;
    t->k[t->pair] /= 2;
}
// Of a dimension of terms: the place of value `half` of what is there one term; without pairs, the
// term's.
static struct kir_val *term_of(struct lower *lw, const struct lower_tile *t, int d,
                               struct kir_val *term, int half) {
    if (!t->pairs || d != t->pair) return term;
    return kir_idx_add(&lw->k, kir_idx_mul(&lw->k, term, 2), kir_i64(&lw->k, half));
}
// Two s16 that lie side by side, the first at an even place, as the s32 they are; NULL: they do
// not.
static struct kir_val *beside(struct kir *k, struct kir_val *const *v) {
    struct kir_val *low = v[0], *high = v[1];
    while (low->op == K_CAST && high->op == K_CAST)
        low = low->args[0], high = high->args[0];
    if (low->op != K_LOAD || high->op != K_LOAD || low->elem != DT_S16 || high->elem != DT_S16 ||
        low->imm_i != high->imm_i || low->imm_i < 0 || low->flags || high->flags)
        return NULL;
    struct kir_val *at = low->args[0], *half = kir_idx_divmod(k, at, 2, 0);
    if (kir_idx_add(k, at, kir_i64(k, 1)) != high->args[0] || kir_idx_mul(k, half, 2) != at)
        return NULL;
    return kir_load(k, (int)low->imm_i, DT_S32, half, 0);
}
// Two values as one term; without pairs, the first.
static struct kir_val *joined(struct lower *lw, const struct lower_tile *t,
                              struct kir_val *const *v) {
    struct kir *k = &lw->k;
    if (!t->pairs) return v[0];
    struct kir_val *whole = beside(k, v), *low = kir_cast(k, DT_S32, v[0]),
                   *high = kir_cast(k, DT_S32, v[1]);
    if (whole) return whole;
    low = kir_op(k, K_AND, low, kir_int(k, DT_S32, 0xffff), NULL);
    high = kir_op(k, K_SHL, high, kir_int(k, DT_S32, 16), NULL);
    return kir_op(k, K_OR, low, high, NULL);
}
// Of which type what a rule gives is.
static enum dtype value_type(const struct lower_tile *t, int s) {
    return t->pairs ? t->type : t->i->operands[s]->shape->dtype;
}
// ---- dots

struct dot_dims { // of one operand
    int64_t free[HLO_MAX_RANK], extent[HLO_MAX_RANK], all;
    int n;
};
struct dot_tile {
    struct dot_dims side[2];
    int64_t batch[HLO_MAX_RANK];
};
static const struct i64s *dot_batch(const struct hlo_attr_dot *a, int s) {
    return s ? &a->rhs_batch_dims : &a->lhs_batch_dims;
}
static const struct i64s *dot_terms(const struct hlo_attr_dot *a, int s) {
    return s ? &a->rhs_contracting_dims : &a->lhs_contracting_dims;
}
// An operand's value at (batch, row or position, term).
static status_t dot_value(struct lower *lw, const struct lower_tile *t, int s, struct kir_val *at,
                          struct kir_val *const *term, struct kir_val **out) {
    const struct dot_tile *d = t->ctx;
    const struct hlo_attr_dot *a = HLO_ATTR(t->i, dot);
    struct kir_val *index[HLO_MAX_RANK + 1], *part[HLO_MAX_RANK + 1];
    unflatten(lw, t->b, d->batch, dot_batch(a, s)->n, part);
    for (int n = 0; n < dot_batch(a, s)->n; n++)
        index[dot_batch(a, s)->v[n]] = part[n];
    unflatten(lw, at, d->side[s].extent, d->side[s].n, part);
    for (int n = 0; n < d->side[s].n; n++)
        index[d->side[s].free[n]] = part[n];
    struct kir_val *v[2];
    for (int half = 0; half <= t->pairs; half++) {
        for (int n = 0; n < dot_terms(a, s)->n; n++)
            index[dot_terms(a, s)->v[n]] = term_of(lw, t, n, term[n], half);
        RETURN_IF_ERR(lower_operand(lw, t->i, s, index, &v[half]));
    }
    *out = joined(lw, t, v);
    return ST_OK;
}
static void dot_lay_out(struct lower_tile *t) {
    t->pitch[0] = 1;
    t->slab = t->block;
    for (int d = 0; d < t->n_k; d++)
        t->slab *= t->k[d];
}
static struct kir_val *dot_place(struct lower *lw, const struct lower_tile *t,
                                 struct kir_val *const *k) {
    return times(&lw->k, lower_flatten(lw, k, t->k, t->n_k), t->block);
}
static status_t dot_fill(struct lower *lw, struct lower_tile *t) {
    struct kir *k = &lw->k;
    struct kir_loop *loops[TILE_DIMS];
    struct kir_val *term[TILE_DIMS], *v;
    int n = t->n_k;
    for (int d = 0; d < n; d++) {
        loops[d] = kir_for(k, kir_i64(k, 0), kir_i64(k, t->k[d]), t->k[d], NULL, 0);
        term[d] = loops[d]->var;
    }

    struct kir_val *end = kir_i64(k, t->block);
    if (t->pos[0] % t->block)
        end = kir_op(k, K_MIN, end, plus(k, times(k, t->first, -1), t->pos[0]), NULL);
    loops[n] = kir_for(k, kir_i64(k, 0), end, t->block, NULL, 0);
    loops[n]->vectorize = true;
    RETURN_IF_ERR(dot_value(lw, t, t->operand, kir_idx_add(k, t->first, loops[n]->var), term, &v));
    lower_tile_put(lw, t, kir_idx_add(k, dot_place(lw, t, term), loops[n]->var),
                   value_type(t, t->operand), v);
    for (int d = n; d >= 0; d--)
        kir_end(k, loops[d], NULL);
    return ST_OK;
}
static status_t dot_scalar(struct lower *lw, const struct lower_tile *t, struct kir_val *row,
                           struct kir_val *const *k, struct kir_val **out) {
    int s = 1 - t->operand;
    RETURN_IF_ERR(dot_value(lw, t, s, row, k, out));
    *out = kmath_convert(lw, t->type, value_type(t, s), *out);
    return ST_OK;
}
static void dot_index(struct lower *lw, const struct lower_tile *t, struct kir_val *row,
                      struct kir_val *const *pos, struct kir_val **index) {
    const struct dot_tile *d = t->ctx;
    int batch = HLO_ATTR(t->i, dot)->lhs_batch_dims.n;
    unflatten(lw, t->b, d->batch, batch, index);
    unflatten(lw, t->operand ? row : pos[0], d->side[0].extent, d->side[0].n, index + batch);
    unflatten(lw, t->operand ? pos[0] : row, d->side[1].extent, d->side[1].n,
              index + batch + d->side[0].n);
}
static void dot_find(struct lower *lw, struct lower_tile *t, struct kir_val *const *index,
                     struct kir_val **row, struct kir_val **pos) {
    const struct dot_tile *d = t->ctx;
    int batch = HLO_ATTR(t->i, dot)->lhs_batch_dims.n;
    struct kir_val *side[2];
    for (int s = 0, at = batch; s < 2; at += d->side[s++].n)
        side[s] = lower_flatten(lw, index + at, d->side[s].extent, d->side[s].n);
    t->b = lower_flatten(lw, index, d->batch, batch);
    t->g = kir_i64(&lw->k, 0);
    *row = side[1 - t->operand];
    pos[0] = side[t->operand];
}
static status_t dot_at(struct lower *lw, const struct lower_tile *t, struct kir_val *const *pos,
                       struct kir_val *const *k, struct kir_val **out) {
    return dot_value(lw, t, t->operand, pos[0], k, out);
}
static const struct tile_rule dot_rule = {.lay_out = dot_lay_out,
                                          .fill = dot_fill,
                                          .place = dot_place,
                                          .scalar = dot_scalar,
                                          .index = dot_index,
                                          .find = dot_find,
                                          .value = dot_at};

// Do the lines that a unit gathers lie in more pages than a processor has the places of at hand?
static bool is_far(const struct lower_tile *t, enum dtype type) {
    enum { PAGE = 4096, PAGES = 3072 };
    int64_t line = t->pos[0] * dtype_size(type), all = 1;
    for (int n = 0; n < t->n_k; n++)
        all *= t->k[n];
    return all > PAGES * PAGE / (line < PAGE ? line : PAGE);
}
int hlo_tile_least(const struct lower *lw, enum dtype t) {
    enum { LEAST = 8, LEAST_WIDE = 4 };
    return t == DT_F64 && lw->policy->tiles == TILES_OF_CPU ? LEAST_WIDE : LEAST;
}
// Rows whose terms lie side by side meet in few places of the nearest cache where they are a
// multiple of much of a page; it keeps 8 lines in each at least.
static void find_crowded(struct lower_tile *t, const struct hlo_instr *i) {
    enum { KEPT = 8, PAGE = 4096, MANY = 4 };
    const struct shape *x = i->operands[1 - t->operand]->shape;
    int64_t step = dtype_size(x->dtype);
    struct shape_phys p;
    shape_physical(x, &p);
    if (!p.rank || !i64s_has(*dot_terms(HLO_ATTR(i, dot), 1 - t->operand), p.of[p.rank - 1]))
        return;
    for (int n = 0; n < t->n_k; n++)
        step *= t->k[n];
    for (int places = 1; places < MANY && !t->least_crowded; places *= 2)
        if (step && places * step % PAGE == 0) t->least_crowded = KEPT * places + 1;
}
status_t hlo_tile_dot(struct lower *lw, const struct hlo_instr *i, int minor,
                      struct lower_tile *t) {
    const struct hlo_attr_dot *a = HLO_ATTR(i, dot);
    struct dot_tile *d = arena_new_of(lw->arena, struct dot_tile);
    t->ctx = d;
    t->rule = &dot_rule;
    t->batch = t->groups = 1;
    for (int s = 0; s < 2; s++) {
        const struct shape *x = i->operands[s]->shape;
        struct dot_dims *f = &d->side[s];
        f->all = 1;
        for (int n = 0; n < x->rank; n++) {
            if (i64s_has(*dot_batch(a, s), n) || i64s_has(*dot_terms(a, s), n)) continue;
            f->free[f->n] = n;
            f->extent[f->n++] = x->dims[n];
            f->all *= x->dims[n];
        }
    }

    const struct shape *x = i->operands[0]->shape;
    for (int n = 0; n < a->lhs_batch_dims.n; n++)
        t->batch *= d->batch[n] = x->dims[a->lhs_batch_dims.v[n]];
    t->n_k = a->lhs_contracting_dims.n;
    for (int n = 0; n < t->n_k; n++)
        t->k[n] = x->dims[a->lhs_contracting_dims.v[n]];
    t->pair = t->n_k - 1;

    t->operand = minor >= a->lhs_batch_dims.n + d->side[0].n;
    t->rows_minor = d->side[t->operand].all < hlo_tile_least(lw, i->shape->dtype);
    if (t->rows_minor) t->operand = 1 - t->operand;
    t->n_pos = 1;
    t->pos[0] = d->side[t->operand].all;
    t->rows = d->side[1 - t->operand].all;
    struct shape_phys p;
    find_crowded(t, i);
    shape_physical(i->operands[t->operand]->shape, &p);
    int innermost = p.rank ? p.of[p.rank - 1] : 0;
    bool turns = p.rank && i64s_has(*dot_terms(a, t->operand), innermost);
    t->gather = turns ? TURNED_COST : COPY_COST;
    bool far = is_far(t, i->operands[t->operand]->shape->dtype);
    t->lines = p.rank && !turns && !i64s_has(*dot_batch(a, t->operand), innermost) &&
               (!far || t->rows >= FAR_ROWS);
    t->gather_line = far && t->rows < MANY_ROWS ? FAR_COST : 0;
    take_pairs(lw, t, i->shape->dtype);
    return ST_OK;
}

// ---- convolutions: terms are the input features of a group and the window's places

static const struct window_dim *window_of(const struct lower_tile *t, int d) {
    return &HLO_ATTR(t->i, conv)->window.v[d];
}
static int64_t phases(const struct lower_tile *t, int d) {
    const struct window_dim *w = window_of(t, d);
    return w->size > 1 ? w->stride : 1;
}
static int64_t all_phases(const struct lower_tile *t) {
    int64_t n = 1;
    for (int d = 0; d < t->n_pos; d++)
        n *= phases(t, d);
    return n;
}
// Lines of the slab in dimension d.
static int64_t extent(const struct lower_tile *t, int d) {
    const struct window_dim *w = window_of(t, d);
    return (d ? t->pos[d] : t->block) + (w->size - 1) * w->window_dilation / w->stride;
}
static int64_t image(const struct lower_tile *t) {
    return t->pitch[0] * extent(t, 0);
}
static void conv_lay_out(struct lower_tile *t) {
    t->pitch[t->n_pos - 1] = 1;
    for (int d = t->n_pos - 2; d >= 0; d--)
        t->pitch[d] = t->pitch[d + 1] * extent(t, d + 1);
    t->slab = t->k[0] * all_phases(t) * image(t);
}
static struct kir_val *conv_place(struct lower *lw, const struct lower_tile *t,
                                  struct kir_val *const *term) {
    struct kir *k = &lw->k;
    struct kir_val *phase = kir_i64(k, 0), *at = phase;
    for (int d = 0; d < t->n_pos; d++) {
        const struct window_dim *w = window_of(t, d);
        struct kir_val *p = times(k, term[1 + d], w->window_dilation);
        phase = kir_idx_add(k, times(k, phase, phases(t, d)), kir_idx_divmod(k, p, 1, w->stride));
        at = kir_idx_add(k, at, times(k, kir_idx_divmod(k, p, w->stride, 0), t->pitch[d]));
    }
    phase = kir_idx_add(k, phase, times(k, term[0], all_phases(t)));
    return kir_idx_add(k, at, times(k, phase, image(t)));
}
static status_t conv_scalar(struct lower *lw, const struct lower_tile *t, struct kir_val *row,
                            struct kir_val *const *term, struct kir_val **out) {
    const struct labels *l = &HLO_ATTR(t->i, conv)->dim_labels;
    struct kir *k = &lw->k;
    struct kir_val *index[HLO_MAX_RANK + 1], *v[2];
    index[l->k_out] = kir_idx_add(k, times(k, t->g, t->rows), row);
    for (int d = 0; d < t->n_pos; d++) {
        const struct window_dim *w = window_of(t, d);
        index[l->k_spatial[d]] =
            w->reversal ? plus(k, times(k, term[1 + d], -1), w->size - 1) : term[1 + d];
    }
    for (int half = 0; half <= t->pairs; half++) {
        index[l->k_in] = term_of(lw, t, 0, term[0], half);
        RETURN_IF_ERR(lower_operand(lw, t->i, 1, index, &v[half]));
    }
    *out = kmath_convert(lw, t->type, value_type(t, 1), joined(lw, t, v));
    return ST_OK;
}
static void conv_index(struct lower *lw, const struct lower_tile *t, struct kir_val *row,
                       struct kir_val *const *pos, struct kir_val **index) {
    const struct labels *l = &HLO_ATTR(t->i, conv)->dim_labels;
    index[l->out_batch] = t->b;
    index[l->out_feature] = kir_idx_add(&lw->k, times(&lw->k, t->g, t->rows), row);
    for (int d = 0; d < t->n_pos; d++)
        index[l->out_spatial[d]] = pos[d];
}

static void conv_find(struct lower *lw, struct lower_tile *t, struct kir_val *const *index,
                      struct kir_val **row, struct kir_val **pos) {
    const struct labels *l = &HLO_ATTR(t->i, conv)->dim_labels;
    struct kir *k = &lw->k;
    struct kir_val *feature = index[l->out_feature];
    t->b = index[l->out_batch];
    t->g = t->groups > 1 ? kir_idx_divmod(k, feature, t->rows, 0) : kir_i64(k, 0);
    *row = t->groups > 1 ? kir_idx_divmod(k, feature, 1, t->rows) : feature;
    for (int d = 0; d < t->n_pos; d++)
        pos[d] = index[l->out_spatial[d]];
}

// A line of the slab: the image's part of it, between zeros.
struct line {
    struct kir_val *index[HLO_MAX_RANK + 1], *at; // of the image; of the slab
    struct kir_val *valid;                        // the line lies in the image
    struct kir_val *feature[2];                   // two with pairs
    struct kir_val *phase;                        // of the last dimension
};
static status_t conv_part(struct lower *lw, struct lower_tile *t, struct line *n,
                          struct kir_val *lo, struct kir_val *hi, bool zero) {
    const struct labels *l = &HLO_ATTR(t->i, conv)->dim_labels;
    struct kir *k = &lw->k;
    int last = t->n_pos - 1;
    const struct window_dim *w = window_of(t, last);
    const struct shape *x = t->i->operands[0]->shape;
    struct kir_loop *loop = kir_for(k, lo, hi, extent(t, last), NULL, 0);
    loop->vectorize = true;
    loop->var->hi = extent(t, last) - 1;
    struct kir_val *v = kir_zero(k, value_type(t, 0)), *at = kir_idx_add(k, n->at, loop->var);

    if (!zero) {
        struct kir_val *o = last ? loop->var : kir_idx_add(k, t->first, loop->var),
                       *p = plus(k, kir_idx_add(k, times(k, o, w->stride), n->phase), -w->pad_low),
                       *ok = n->valid;
        if (w->base_dilation > 1) {
            int64_t end = (x->dims[l->in_spatial[last]] - 1) * w->base_dilation;
            struct kir_val *in = kir_op(k, K_AND, kir_cmp(k, CMP_GE, p, kir_i64(k, 0)),
                                        kir_cmp(k, CMP_LE, p, kir_i64(k, end)), NULL);
            p = kir_idx_clamp(k, p, 0, end);
            ok = kir_op(
                k, K_AND, kir_op(k, K_AND, ok, in, NULL),
                kir_cmp(k, CMP_EQ, kir_idx_divmod(k, p, 1, w->base_dilation), kir_i64(k, 0)), NULL);
            p = kir_idx_divmod(k, p, w->base_dilation, 0);
        }
        n->index[l->in_spatial[last]] = p;
        struct kir_val *value[2];
        for (int half = 0; half <= t->pairs; half++) {
            n->index[l->in_feature] = n->feature[half];
            RETURN_IF_ERR(lower_operand(lw, t->i, 0, n->index, &value[half]));
        }
        value[0] = joined(lw, t, value);
        v = w->base_dilation > 1 ? kir_select(k, ok, value[0], v) : value[0];
    }
    lower_tile_put(lw, t, at, value_type(t, 0), v);
    kir_end(k, loop, NULL);
    return ST_OK;
}
// Turns of dimension d in which the image is read: from the first input position at or behind
// `least`.
static struct kir_val *turn_of(struct lower *lw, const struct lower_tile *t, int d,
                               struct kir_val *phase, int64_t least) {
    struct kir *k = &lw->k;
    const struct window_dim *w = window_of(t, d);
    int64_t far = llabs(least + w->pad_low) / w->stride + 2; // keeps the dividend positive
    struct kir_val *x =
        plus(k, times(k, phase, -1), least + w->pad_low + w->stride - 1 + far * w->stride);
    x = plus(k, kir_idx_divmod(k, x, w->stride, 0), -far);
    if (!d) x = kir_idx_add(k, x, times(k, t->first, -1));
    return kir_idx_clamp(k, x, 0, extent(t, d));
}
// The first and the end of them; none where the line is not valid.
static void turns_inside(struct lower *lw, const struct lower_tile *t, const struct line *n, int d,
                         struct kir_val *phase, struct kir_val **lo, struct kir_val **hi) {
    const struct labels *l = &HLO_ATTR(t->i, conv)->dim_labels;
    struct kir *k = &lw->k;
    struct kir_val *all = kir_i64(k, extent(t, d));
    *lo = turn_of(lw, t, d, phase, 0);
    *hi = turn_of(lw, t, d, phase, t->i->operands[0]->shape->dims[l->in_spatial[d]]);
    *lo = kir_select(k, n->valid, *lo, all);
    *hi = kir_select(k, n->valid, *hi, all);
    *hi = kir_op(k, K_MAX, *lo, *hi, NULL);
}
static status_t conv_line(struct lower *lw, struct lower_tile *t, struct line *n) {
    struct kir *k = &lw->k;
    int last = t->n_pos - 1;
    struct kir_val *none = kir_i64(k, 0), *all = kir_i64(k, extent(t, last)), *lo, *hi;
    if (window_of(t, last)->base_dilation > 1) return conv_part(lw, t, n, none, all, false);
    turns_inside(lw, t, n, last, n->phase, &lo, &hi);
    RETURN_IF_ERR(conv_part(lw, t, n, none, lo, true));
    RETURN_IF_ERR(conv_part(lw, t, n, lo, hi, false));
    return conv_part(lw, t, n, hi, all, true);
}
// Zeros in turns from..to of dimension d: all of their lines, which lie behind each other.
static void zero_lines(struct lower *lw, struct lower_tile *t, const struct line *n, int d,
                       struct kir_val *from, struct kir_val *to) {
    struct kir *k = &lw->k;
    int64_t all = extent(t, d) * t->pitch[d], f, e;
    if (kir_is_const(from, &f) && kir_is_const(to, &e) && f >= e) return;
    struct kir_loop *loop =
        kir_for(k, times(k, from, t->pitch[d]), times(k, to, t->pitch[d]), all, NULL, 0);
    loop->vectorize = true;
    loop->var->hi = all - 1;
    lower_tile_put(lw, t, kir_idx_add(k, n->at, loop->var), value_type(t, 0),
                   kir_zero(k, value_type(t, 0)));
    kir_end(k, loop, NULL);
}
// Lines of dimension d and those inside.
static status_t conv_lines(struct lower *lw, struct lower_tile *t, struct line *n, int d,
                           struct kir_val *const *phase) {
    const struct labels *l = &HLO_ATTR(t->i, conv)->dim_labels;
    struct kir *k = &lw->k;
    const struct window_dim *w = window_of(t, d);
    if (d == t->n_pos - 1) {
        n->phase = phase[d];
        return conv_line(lw, t, n);
    }
    int64_t turns = extent(t, d),
            end = (t->i->operands[0]->shape->dims[l->in_spatial[d]] - 1) * w->base_dilation;
    bool spread = w->base_dilation > 1;
    struct line in = *n;
    struct kir_val *none = kir_i64(k, 0), *all = kir_i64(k, turns), *lo = none, *hi = all;
    if (!spread) {
        turns_inside(lw, t, n, d, phase[d], &lo, &hi);
        in.valid = kir_int(k, DT_PRED, 1);
        zero_lines(lw, t, n, d, none, lo);
    }
    struct kir_loop *loop = kir_for(k, lo, hi, turns, NULL, 0);
    loop->var->hi = turns - 1;
    struct kir_val *o = d ? loop->var : kir_idx_add(k, t->first, loop->var),
                   *p = plus(k, kir_idx_add(k, times(k, o, w->stride), phase[d]), -w->pad_low);

    if (spread) {
        struct kir_val *inside = kir_op(k, K_AND, kir_cmp(k, CMP_GE, p, kir_i64(k, 0)),
                                        kir_cmp(k, CMP_LE, p, kir_i64(k, end)), NULL);
        p = kir_idx_clamp(k, p, 0, end);
        inside = kir_op(
            k, K_AND, inside,
            kir_cmp(k, CMP_EQ, kir_idx_divmod(k, p, 1, w->base_dilation), kir_i64(k, 0)), NULL);
        p = kir_idx_divmod(k, p, w->base_dilation, 0);
        in.valid = kir_op(k, K_AND, n->valid, inside, NULL);
    }
    in.index[l->in_spatial[d]] = p;
    in.at = kir_idx_add(k, n->at, times(k, loop->var, t->pitch[d]));
    RETURN_IF_ERR(conv_lines(lw, t, &in, d + 1, phase));
    kir_end(k, loop, NULL);
    if (!spread) zero_lines(lw, t, n, d, hi, all);
    return ST_OK;
}
static status_t conv_fill(struct lower *lw, struct lower_tile *t) {
    const struct hlo_attr_conv *a = HLO_ATTR(t->i, conv);
    const struct labels *l = &a->dim_labels;
    struct kir *k = &lw->k;
    struct line n = {.valid = kir_int(k, DT_PRED, 1)};
    struct kir_loop *loops[TILE_DIMS + 1];
    struct kir_val *phase[TILE_DIMS], *at = kir_i64(k, 0);

    loops[0] = kir_for(k, kir_i64(k, 0), kir_i64(k, t->k[0]), t->k[0], NULL, 0);
    at = loops[0]->var;
    for (int d = 0; d < t->n_pos; d++) {
        int64_t turns = phases(t, d);
        phase[d] = kir_i64(k, 0);
        loops[1 + d] = NULL;
        if (turns == 1) continue;
        loops[1 + d] = kir_for(k, kir_i64(k, 0), kir_i64(k, turns), turns, NULL, 0);
        phase[d] = loops[1 + d]->var;
        at = kir_idx_add(k, times(k, at, turns), phase[d]);
    }

    n.at = times(k, at, image(t));
    n.index[l->in_batch] = t->b;
    for (int half = 0; half <= t->pairs; half++) {
        n.feature[half] = term_of(lw, t, 0, loops[0]->var, half);
        if (a->feature_group_count > 1)
            n.feature[half] =
                kir_idx_add(k, n.feature[half], times(k, t->g, t->k[0] * (1 + t->pairs)));
    }
    if (a->batch_group_count > 1)
        n.index[l->in_batch] = kir_idx_add(k, t->b, times(k, t->g, t->batch));
    RETURN_IF_ERR(conv_lines(lw, t, &n, 0, phase));
    for (int d = t->n_pos; d >= 0; d--)
        if (loops[d]) kir_end(k, loops[d], NULL);
    return ST_OK;
}
static bool has_zeros(const struct window_dim *w) {
    return w->pad_low > 0 || w->pad_high > 0 || w->base_dilation > 1;
}
static bool conv_padded(const struct lower_tile *t) {
    const struct hlo_attr_conv *a = HLO_ATTR(t->i, conv);
    bool zeros = false;
    for (int d = 0; d < a->window.n; d++) {
        zeros |= has_zeros(&a->window.v[d]);
    }
    return zeros && dtype_is_float(t->type) && dtype_is_float(t->i->operands[1]->shape->dtype);
}
// Products of the slab's zeros with infinite or NaN weights. Looked at are the rows where they lie
// together, else all weights.
static status_t conv_suspect(struct lower *lw, const struct lower_tile *t, struct kir_val *from,
                             struct kir_val *to, struct kir_val **out) {
    const struct hlo_attr_conv *a = HLO_ATTR(t->i, conv);
    const struct hlo_instr *w = t->i->operands[1];
    struct kir *k = &lw->k;
    struct shape_phys p;
    shape_physical(w->shape, &p);
    int64_t each = 1, all = 1;
    for (int d = 0; d < p.rank; d++)
        all *= p.dims[d], each *= d ? p.dims[d] : 1;
    struct kir_val *lo = kir_i64(k, 0), *hi = kir_i64(k, all), *row = times(k, t->g, t->rows);
    if (p.of[0] == a->dim_labels.k_out && p.step[0] == 1) {
        lo = times(k, kir_idx_add(k, row, from), each);
        hi = times(k, kir_idx_add(k, row, to), each);
    }

    struct kir_val *zero = kir_zero(k, t->type), *sum = zero, *v;
    struct kir_loop *l = kir_for(k, lo, hi, all, &sum, 1);
    l->vectorize = true;
    l->var->hi = all - 1;
    RETURN_IF_ERR(lower_physical(lw, w, l->var, &v));
    v = kir_op(k, K_MUL, kmath_convert(lw, t->type, w->shape->dtype, v), zero, NULL);
    sum = kir_flag(k, K_ADD, l->carry[0], v, KF_REASSOC);
    kir_end(k, l, &sum);
    *out =
        kir_select(k, kir_cmp(k, CMP_NE, l->result[0], l->result[0]), kir_i64(k, 1), kir_i64(k, 0));
    return ST_OK;
}
// Where term k of a position lies in dimension d of the image, some place if it lies outside.
static struct kir_val *conv_source(struct lower *lw, const struct lower_tile *t, int d,
                                   struct kir_val *const *pos, struct kir_val *const *term,
                                   struct kir_val **inside) {
    const struct labels *l = &HLO_ATTR(t->i, conv)->dim_labels;
    const struct window_dim *w = window_of(t, d);
    struct kir *k = &lw->k;
    int64_t last = (t->i->operands[0]->shape->dims[l->in_spatial[d]] - 1) * w->base_dilation;
    struct kir_val *at =
        kir_idx_add(k, times(k, pos[d], w->stride), times(k, term[1 + d], w->window_dilation));
    at = plus(k, at, -w->pad_low);
    *inside = kir_op(k, K_AND, kir_cmp(k, CMP_GE, at, kir_i64(k, 0)),
                     kir_cmp(k, CMP_LE, at, kir_i64(k, last)), NULL);
    at = kir_idx_clamp(k, at, 0, last);
    if (w->base_dilation == 1) return at;
    struct kir_val *rest = kir_idx_divmod(k, at, 1, w->base_dilation);
    *inside = kir_op(k, K_AND, *inside, kir_cmp(k, CMP_EQ, rest, kir_i64(k, 0)), NULL);
    return kir_idx_divmod(k, at, w->base_dilation, 0);
}
static status_t conv_value(struct lower *lw, const struct lower_tile *t, struct kir_val *const *pos,
                           struct kir_val *const *term, struct kir_val **out) {
    const struct hlo_attr_conv *a = HLO_ATTR(t->i, conv);
    const struct labels *l = &a->dim_labels;
    struct kir *k = &lw->k;
    struct kir_val *index[HLO_MAX_RANK + 1], *inside;
    index[l->in_batch] = t->b;
    index[l->in_feature] = term[0];
    if (a->feature_group_count > 1)
        index[l->in_feature] = kir_idx_add(k, term[0], times(k, t->g, t->k[0]));
    if (a->batch_group_count > 1)
        index[l->in_batch] = kir_idx_add(k, t->b, times(k, t->g, t->batch));
    for (int d = 0; d < t->n_pos; d++)
        index[l->in_spatial[d]] = conv_source(lw, t, d, pos, term, &inside);
    return lower_operand(lw, t->i, 0, index, out);
}
static struct kir_val *conv_inside(struct lower *lw, const struct lower_tile *t,
                                   struct kir_val *const *pos, struct kir_val *const *term) {
    struct kir_val *all = kir_int(&lw->k, DT_PRED, 1), *one;
    for (int d = 0; d < t->n_pos; d++) {
        conv_source(lw, t, d, pos, term, &one);
        all = kir_op(&lw->k, K_AND, all, one, NULL);
    }
    return all;
}
static const struct tile_rule conv_rule = {.lay_out = conv_lay_out,
                                           .fill = conv_fill,
                                           .place = conv_place,
                                           .scalar = conv_scalar,
                                           .index = conv_index,
                                           .find = conv_find,
                                           .value = conv_value,
                                           .inside = conv_inside,
                                           .padded = conv_padded,
                                           .suspect = conv_suspect,
                                           .exact = hlo_convolution_at};

status_t hlo_tile_convolution(struct lower *lw, const struct hlo_instr *i, int minor,
                              struct lower_tile *t) {
    const struct hlo_attr_conv *a = HLO_ATTR(i, conv);
    const struct labels *l = &a->dim_labels;
    const struct shape *x = i->operands[0]->shape, *w = i->operands[1]->shape;
    if (!l->n_spatial || a->window.n != l->n_spatial || shape_elements(x) == 0)
        return lower_no(lw, "a convolution without a window");
    t->rule = &conv_rule;
    t->groups = a->feature_group_count > 1 ? a->feature_group_count : 1;
    if (a->batch_group_count > 1) t->groups = a->batch_group_count;
    t->batch = i->shape->dims[l->out_batch];
    t->rows = w->dims[l->k_out] / t->groups;
    t->n_pos = l->n_spatial;
    t->n_k = 1 + l->n_spatial;
    t->k[0] = w->dims[l->k_in];
    t->rows_minor = minor == l->out_feature;
    t->gather = a->window.v[t->n_pos - 1].stride == 1 ? COPY_COST : TURNED_COST;
    for (int d = 0; d < t->n_pos; d++) {
        t->pos[d] = i->shape->dims[l->out_spatial[d]];
        t->k[1 + d] = a->window.v[d].size;
        t->edges |= has_zeros(&a->window.v[d]);
    }
    take_pairs(lw, t, i->shape->dtype);
    return ST_OK;
}

// ---- convolutions of few outputs: a slab of filters, rows are the outputs of each image, which
// lies behind the slab as other convolutions have it; where these are too few for a tile, those of
// several images

struct turned {
    struct lower_tile image;
    int64_t places; // outputs of an image
    int images;     // that lie behind the slab
};
static void turned_lay_out(struct lower_tile *t) {
    const struct turned *u = t->ctx;
    dot_lay_out(t);
    t->beside = u->images * u->image.slab;
}
static status_t turned_fill(struct lower *lw, struct lower_tile *t) {
    struct turned *u = (struct turned *)(uintptr_t)t->ctx;
    struct kir *k = &lw->k;
    struct kir_loop *loops[TILE_DIMS + 1];
    struct kir_val *term[TILE_DIMS], *v, *end = kir_i64(k, t->block);
    int n = t->n_k;
    u->image.g = t->g;
    u->image.first = kir_i64(k, 0);
    for (int d = 0; d < n; d++) {
        loops[d] = kir_for(k, kir_i64(k, 0), kir_i64(k, t->k[d]), t->k[d], NULL, 0);
        term[d] = loops[d]->var;
    }

    if (t->pos[0] % t->block)
        end = kir_op(k, K_MIN, end, plus(k, times(k, t->first, -1), t->pos[0]), NULL);
    loops[n] = kir_for(k, kir_i64(k, 0), end, t->block, NULL, 0);
    loops[n]->vectorize = true;
    RETURN_IF_ERR(conv_scalar(lw, &u->image, kir_idx_add(k, t->first, loops[n]->var), term, &v));
    lower_tile_put(lw, t, kir_idx_add(k, dot_place(lw, t, term), loops[n]->var), t->type, v);
    for (int d = n; d >= 0; d--)
        kir_end(k, loops[d], NULL);
    return ST_OK;
}
static status_t turned_begin(struct lower *lw, struct lower_tile *t, struct kir_val *row) {
    struct turned *u = (struct turned *)(uintptr_t)t->ctx;
    struct kir *k = &lw->k;
    struct kir_val *first = times(k, kir_idx_divmod(k, row, u->places * u->images, 0), u->images);
    for (int n = 0; n < u->images; n++) {
        u->image.b = plus(k, first, n);
        u->image.slab_at = t->beside_at + n * u->image.slab;
        RETURN_IF_ERR(conv_fill(lw, &u->image));
    }
    return ST_OK;
}
// Output positions of a row.
static void outputs_of(struct lower *lw, const struct turned *u, struct kir_val *row,
                       struct kir_val **pos) {
    unflatten(lw, kir_idx_divmod(&lw->k, row, 1, u->places), u->image.pos, u->image.n_pos, pos);
}
static status_t turned_scalar(struct lower *lw, const struct lower_tile *t, struct kir_val *row,
                              struct kir_val *const *term, struct kir_val **out) {
    const struct turned *u = t->ctx;
    struct kir *k = &lw->k;
    struct kir_val *pos[TILE_DIMS], *at = conv_place(lw, &u->image, term);
    outputs_of(lw, u, row, pos);
    if (u->images > 1)
        at = kir_idx_add(k, at,
                         times(k, kir_idx_divmod(k, row, u->places, u->images), u->image.slab));
    for (int d = 0; d < u->image.n_pos; d++)
        at = kir_idx_add(k, at, times(k, pos[d], u->image.pitch[d]));
    *out = kir_load(k, KIR_SCRATCH, kir_type(t->type), plus(k, at, t->beside_at), KF_PINNED);
    return ST_OK;
}
static void turned_index(struct lower *lw, const struct lower_tile *t, struct kir_val *row,
                         struct kir_val *const *pos, struct kir_val **index) {
    const struct turned *u = t->ctx;
    struct lower_tile image = u->image;
    struct kir_val *place[TILE_DIMS];
    outputs_of(lw, u, row, place);
    image.b = kir_idx_divmod(&lw->k, row, u->places, 0);
    conv_index(lw, &image, pos[0], place, index);
}
static status_t turned_suspect(struct lower *lw, const struct lower_tile *t,
                               UNUSED struct kir_val *from, UNUSED struct kir_val *to,
                               struct kir_val **out) {
    const struct turned *u = t->ctx;
    struct kir *k = &lw->k;
    struct kir_val *end =
        kir_op(k, K_MIN, plus(k, t->first, t->block), kir_i64(k, t->pos[0]), NULL);
    return conv_suspect(lw, &u->image, t->first, end, out);
}
static const struct tile_rule turned_rule = {.lay_out = turned_lay_out,
                                             .fill = turned_fill,
                                             .begin = turned_begin,
                                             .place = dot_place,
                                             .scalar = turned_scalar,
                                             .index = turned_index,
                                             .padded = conv_padded,
                                             .suspect = turned_suspect,
                                             .exact = hlo_convolution_at};

// Two or three images whose outputs fill tiles of six rows.
static int images_together(int64_t places, int64_t images) {
    enum { ROWS = 6 };
    for (int n = 2; n <= ROWS / 2; n++)
        if (places * n == ROWS && images % n == 0) return n;
    return 1;
}
bool hlo_tile_turned(struct lower *lw, const struct lower_tile *t, struct lower_tile *out) {
    enum { PLACES = 128, FEATURES = 8 };
    struct turned *u = arena_new_of(lw->arena, struct turned);
    u->image = *t;
    u->image.block = t->pos[0];
    conv_lay_out(&u->image);
    u->places = 1;
    for (int d = 0; d < t->n_pos; d++)
        u->places *= t->pos[d];
    if (u->places > PLACES || t->rows < FEATURES) return false;
    out->rule = &turned_rule;
    out->ctx = u;
    out->batch = 1;
    out->gather = TURNED_COST;
    out->gather_beside = t->gather;
    out->groups = t->groups;
    bool six = lw->policy->tiles == TILES_OF_CPU; // rows of a tile
    u->images = six ? images_together(u->places, t->batch) : 1;
    out->per = u->places * u->images;
    out->rows = t->batch * u->places;
    out->n_pos = 1;
    out->pos[0] = t->rows;
    out->n_k = t->n_k;
    out->pairs = t->pairs;
    memcpy(out->k, t->k, sizeof t->k);
    return true;
}
