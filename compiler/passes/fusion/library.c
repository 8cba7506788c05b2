// SPDX-License-Identifier: Apache-2.0
// The steps. Each looks forward from a value: one user that is a known operation, or the small
// graph of a known activation.
#include "compiler/passes/fusion/library.h"

#include <math.h>
#include <string.h>

#include "compiler/ops/rules.h"
#include "compiler/passes/fusion/match.h"

static int channel_dim(const struct hlo_instr *hero) {
    return hero->op == HLO_CONVOLUTION ? HLO_ATTR(hero, conv)->dim_labels.out_feature
                                       : hero->shape->rank - 1;
}
// Is the result's channel the one dim of the right operand that a dot keeps? (A vector over it is
// one value a column of the library's matrix.)
static bool has_channel(const struct hlo_instr *hero) {
    if (hero->op == HLO_CONVOLUTION) return true;
    const struct hlo_attr_dot *d = HLO_ATTR(hero, dot);
    const struct shape *y = hero->operands[1]->shape;
    int64_t columns = 1;
    for (int k = 0; k < y->rank; k++)
        if (!i64s_has(d->rhs_batch_dims, k) && !i64s_has(d->rhs_contracting_dims, k))
            columns *= y->dims[k];
    int rank = hero->shape->rank;
    return y->rank > d->rhs_batch_dims.n + d->rhs_contracting_dims.n && rank > 0 &&
           hero->shape->dims[rank - 1] == columns;
}
static bool over_channel(const struct hlo_instr *hero, const struct hlo_instr *x) {
    return match_channel(x, channel_dim(hero)) && has_channel(hero);
}
static bool near(double a, double b) {
    return fabs(a - b) <= 1e-6 * fabs(b);
}
// sqrt(1/2) as models write it: as such, or by sqrt(2); or either as rounded to f16 or bf16, which
// is the same number in both, and off by less than anything those types can tell.
static bool is_sqrt_half(double v) {
    return near(v, 0.70710678118654752) || v == 0.70703125 || near(v, 1 / 1.4140625);
}
static bool of_bf16(const struct hlo_instr *hero) {
    return hero->operands[0]->shape->dtype == DT_BF16;
}
static bool is_root(const struct hlo_instr *i) {
    return i->parent->root == i;
}

static bool cover(struct lib_step *s, struct hlo_instr *i) {
    for (int k = 0; k < s->n; k++)
        if (s->covers[k] == i) return true;
    if (s->n == LIB_MAX_STEP) return false;
    s->covers[s->n++] = i;
    return true;
}
// Splats are covered with the operation that uses them, so that the fusion carries them as
// constants.
static void cover_splat(struct lib_step *s, struct hlo_instr *i) {
    if (i->op == HLO_BROADCAST) cover(s, i->operands[0]);
    cover(s, i);
}

// x * c -> erf -> + 1 -> * x -> * 0.5, or x*0.5 first. Gives the last instruction.
static struct hlo_instr *gelu(const struct hlo_instr *x, struct lib_step *s) {
    struct hlo_instr *scaled = NULL, *half = NULL, *prod = NULL;
    double v;

    for (size_t k = 0; k < x->users.n; k++) {
        struct hlo_instr *u = x->users.v[k];
        if (u->op != HLO_MULTIPLY) return NULL;
        if (match_with_splat(u, &v) == x) {
            if (is_sqrt_half(v))
                scaled = u;
            else if (v == 0.5)
                half = u;
            else
                return NULL;
        } else {
            prod = u;
        }
    }

    if (!scaled || scaled->users.n != 1 || (half != NULL) == (prod != NULL) || x->users.n != 2)
        return NULL;
    struct hlo_instr *erf = scaled->users.v[0];
    if (erf->op != HLO_ERF || erf->users.n != 1) return NULL;
    struct hlo_instr *plus = erf->users.v[0];
    if (plus->op != HLO_ADD || match_with_splat(plus, &v) != erf || v != 1 || plus->users.n != 1)
        return NULL;

    struct hlo_instr *last = plus->users.v[0];
    if (last->op != HLO_MULTIPLY || (half && half->users.n != 1)) return NULL;
    const struct hlo_instr *other = last->operands[last->operands[0] == plus];
    if (other != (half ? half : x)) return NULL;

    for (int k = 0; k < 2; k++)
        cover_splat(s, match_splat(scaled->operands[k], &v) ? scaled->operands[k] : scaled);
    for (int k = 0; k < 2; k++)
        cover_splat(s, match_splat(plus->operands[k], &v) ? plus->operands[k] : erf);
    cover(s, plus);
    for (int k = 0; half && k < 2; k++)
        cover_splat(s, match_splat(half->operands[k], &v) ? half->operands[k] : half);
    cover(s, last);

    if (half) return last;
    if (last->users.n != 1 || is_root(last)) return NULL;
    struct hlo_instr *final = last->users.v[0];
    if (final->op != HLO_MULTIPLY || match_with_splat(final, &v) != last || v != 0.5) return NULL;
    cover_splat(s, final->operands[final->operands[0] == last]);
    cover(s, final);
    return final;
}

static bool two_users(const struct hlo_instr *x, struct lib_step *s) {
    struct hlo_instr *a = x->users.v[0], *b = x->users.v[1];
    if (b->op == HLO_LOGISTIC) { // order of users is not given
        struct hlo_instr *t = a;
        a = b;
        b = t;
    }
    if (a->op == HLO_LOGISTIC && a->users.n == 1 && a->users.v[0] == b && b->op == HLO_MULTIPLY) {
        s->post = (struct lib_post){.kind = LIB_POST_SWISH, .alpha = 1};
        return cover(s, a) && cover(s, b);
    }
    s->post = (struct lib_post){.kind = LIB_POST_GELU_ERF};
    return gelu(x, s) != NULL;
}

static bool one_user(const struct hlo_instr *hero, const struct hlo_instr *x, struct hlo_instr *u,
                     struct lib_step *s) {
    double lo, hi;
    struct hlo_instr *other = u->n_operands == 2 ? u->operands[u->operands[0] == x] : NULL;

    switch (u->op) {
    case HLO_ADD:
        if (over_channel(hero, other)) {
            s->post = (struct lib_post){.kind = LIB_POST_BIAS, .operand = other->operands[0]};
            cover(s, other);
        } else if (shape_compatible(other->shape, u->shape) && other->op != HLO_BROADCAST &&
                   other->op != HLO_CONSTANT) {
            s->post = (struct lib_post){.kind = LIB_POST_SUM, .operand = other};
            if (of_bf16(hero) && other->op == HLO_CONVERT &&
                other->operands[0]->shape->dtype == DT_BF16) {
                s->post.operand = other->operands[0];
                cover(s, other);
            }
        } else {
            return false;
        }
        break;
    case HLO_MULTIPLY:
        if (!match_splat(other, &lo)) return false;
        s->post = (struct lib_post){.kind = LIB_POST_SCALE, .alpha = (float)lo};
        cover_splat(s, other);
        break;
    case HLO_MAXIMUM:
        if (!match_splat(other, &lo) || lo != 0) return false;
        s->post = (struct lib_post){.kind = LIB_POST_RELU};
        cover_splat(s, other);
        break;
    case HLO_CLAMP:
        if (u->operands[1] != x || !match_splat(u->operands[0], &lo) ||
            !match_splat(u->operands[2], &hi))
            return false;
        s->post = (struct lib_post){.kind = LIB_POST_CLIP, .alpha = (float)lo, .beta = (float)hi};
        cover_splat(s, u->operands[0]);
        cover_splat(s, u->operands[2]);
        break;
    case HLO_LOGISTIC:
        s->post = (struct lib_post){.kind = LIB_POST_LOGISTIC};
        break;
    case HLO_TANH:
        s->post = (struct lib_post){.kind = LIB_POST_TANH};
        break;
    case HLO_CONVERT:
        if (!of_bf16(hero) || u->shape->dtype != DT_BF16) return false;
        s->post = (struct lib_post){.kind = LIB_POST_BF16};
        break;
    default:
        return false;
    }
    return cover(s, u);
}

// x / scale -> round -> + zero point -> clamp to the type's range -> the type.
static bool quantise(struct hlo_instr *u, struct lib_step *s) {
    double scale, zero = 0, lo, hi;

    if (!match_splat(u->operands[1], &scale) || scale == 0 || u->users.n != 1) return false;
    struct hlo_instr *round = u->users.v[0], *at = round;
    if (round->op != HLO_ROUND_EVEN || round->users.n != 1) return false;
    struct hlo_instr *add = round->users.v[0]->op == HLO_ADD ? round->users.v[0] : NULL;
    if (add) {
        if (match_with_splat(add, &zero) != round || add->users.n != 1) return false;
        at = add;
    }

    struct hlo_instr *clamp = at->users.v[0];
    if (clamp->op != HLO_CLAMP || clamp->operands[1] != at || clamp->users.n != 1 ||
        !match_splat(clamp->operands[0], &lo) || !match_splat(clamp->operands[2], &hi))
        return false;

    struct hlo_instr *last = clamp->users.v[0];
    bool u8 = last->shape->dtype == DT_U8;
    if (last->op != HLO_CONVERT || (!u8 && last->shape->dtype != DT_S8) || lo != (u8 ? 0 : -128) ||
        hi != (u8 ? 255 : 127))
        return false;

    s->post =
        (struct lib_post){.kind = LIB_POST_QUANTISE, .alpha = (float)scale, .beta = (float)zero};
    cover_splat(s, u->operands[1]);
    cover(s, u);
    cover(s, round);
    if (add) cover_splat(s, add->operands[add->operands[0] == round]);
    if (add) cover(s, add);
    cover_splat(s, clamp->operands[0]);
    cover_splat(s, clamp->operands[2]);
    cover(s, clamp);
    return cover(s, last);
}
// Is it made f32 next, and only that? The library adds a bias of s32 as f32: integers beyond 2^24
// that stay integers would be rounded.
static bool becomes_f32(const struct hlo_instr *i) {
    return i->users.n == 1 && !is_root(i) && i->users.v[0]->op == HLO_CONVERT &&
           i->users.v[0]->shape->dtype == DT_F32;
}
// One value of the run for all: the scale of a dynamic quantisation.
static bool of_the_run(const struct hlo_instr *x) {
    return x->op == HLO_BROADCAST && x->operands[0]->shape->rank == 0 &&
           x->operands[0]->op != HLO_CONSTANT;
}
// Behind a product of 8-bit integers: what is special to it. Other steps are those of f32.
static bool int8_user(const struct hlo_instr *hero, const struct hlo_instr *x, struct hlo_instr *u,
                      struct lib_step *s) {
    struct hlo_instr *other = u->n_operands == 2 ? u->operands[u->operands[0] == x] : NULL;
    bool whole = x->shape->dtype == DT_S32, converted = !whole && x->op == HLO_CONVERT;
    bool channels = other && over_channel(hero, other);
    if (whole && u->op == HLO_CONVERT && u->shape->dtype == DT_F32) {
        s->post = (struct lib_post){.kind = LIB_POST_TO_F32};
        return cover(s, u);
    }
    if ((whole && u->op == HLO_ADD && channels && becomes_f32(u)) ||
        (converted && u->op == HLO_MULTIPLY && channels)) {
        s->post.kind = whole ? LIB_POST_BIAS_S32 : LIB_POST_CHANNEL_SCALE;
        s->post.operand = other->operands[0];
        cover(s, other);
        return cover(s, u);
    }
    if (whole) return false;
    if (u->op == HLO_DIVIDE && u->operands[0] == x) return quantise(u, s);
    if (u->op == HLO_MULTIPLY && !converted) return false;
    if (u->op == HLO_MULTIPLY && of_the_run(other)) {
        s->post = (struct lib_post){.kind = LIB_POST_CHANNEL_SCALE, .operand = other->operands[0]};
        return cover(s, other) && cover(s, u);
    }
    return one_user(hero, x, u, s);
}

bool lib_step(const struct hlo_instr *hero, const struct hlo_instr *from, struct lib_step *out) {
    *out = (struct lib_step){.n = 0};
    enum dtype t = from->shape->dtype;
    if (is_root(from)) return false;
    if (hero->shape->dtype == DT_S32 && from->users.n == 1)
        return (t == DT_S32 || t == DT_F32) && int8_user(hero, from, from->users.v[0], out);
    if (t != DT_F32) return false;
    if (from->users.n == 1) return one_user(hero, from, from->users.v[0], out);
    return from->users.n == 2 && two_users(from, out);
}

bool lib_post_taken(const struct lib_post *posts, int n, const struct lib_post *p) {
    if (p->kind != LIB_POST_SUM && p->kind != LIB_POST_SCALE && p->kind != LIB_POST_CLIP &&
        p->kind != LIB_POST_CHANNEL_SCALE && p->kind != LIB_POST_BIAS_S32)
        return false;
    for (int k = 0; k < n; k++)
        if (posts[k].kind == p->kind) return true;
    return false;
}

int lib_operand(const struct hlo_instr *i, const struct hlo_instr *x) {
    if (i->op == HLO_FUSION)
        return x->op == HLO_PARAMETER && x->parent == i->called[0] ? (int)x->param_number : -1;
    for (int k = 0; k < i->n_operands; k++)
        if (i->operands[k] == x) return k;
    return -1;
}

void lib_copy_posts(const struct lib_call *c, struct lib_post *post, int *leaf) {
    for (int k = 0; k < c->n_post; k++) {
        post[k] = c->post[k];
        leaf[k] = post[k].operand ? lib_operand(c->instr, post[k].operand) : -1;
    }
}

static bool is_hero(const struct hlo_instr *i) {
    return i->op == HLO_CONVOLUTION || i->op == HLO_DOT;
}

bool lib_match(const struct hlo_instr *i, struct lib_call *out) {
    struct lib_call c = {.instr = i, .hero = i, .result = i->shape};
    if (i->op == HLO_FUSION && HLO_ATTR(i, fusion)->kind == FUSION_OUTPUT) {
        c.hero = NULL;
        for (const struct hlo_instr *x = i->called[0]->first; x; x = x->next) {
            if (!is_hero(x)) continue;
            if (c.hero) return false;
            c.hero = x;
        }
    }
    if (!c.hero || !is_hero(c.hero) || shape_is_tuple(i->shape)) return false;
    c.lhs = c.hero->operands[0];
    c.rhs = c.hero->operands[1];
    if (i->op == HLO_FUSION) {
        const struct hlo_instr *at = c.hero;
        while (at != i->called[0]->root) {
            struct lib_step s;
            if (c.n_post == LIB_MAX_POST || !lib_step(c.hero, at, &s)) return false;
            if (s.post.operand && lib_operand(i, s.post.operand) < 0) return false;
            if (lib_post_taken(c.post, c.n_post, &s.post)) return false;
            c.post[c.n_post++] = s.post;
            at = s.covers[s.n - 1];
        }
        if (lib_operand(i, c.lhs) < 0 || lib_operand(i, c.rhs) < 0) return false;
    }
    *out = c;
    return true;
}

bool lib_sums_as_written(const struct hlo_instr *i) {
    size_t n;
    const char *v = hlo_extra(i, "operand_precision", &n);
    return v && memmem(v, n, "highest", 7);
}

bool lib_reads_bf16(const struct hlo_instr *i) {
    static const char given[] = "algorithm=\"" LIB_BF16 "\"";
    size_t n;
    const char *v = hlo_extra(i, i->op == HLO_DOT ? "algorithm" : "frontend_attributes", &n);
    if (!v || i->op == HLO_DOT) return v && n == strlen(LIB_BF16) && !memcmp(v, LIB_BF16, n);
    return memmem(v, n, given, sizeof given - 1);
}

bool lib_was_bf16(const struct hlo_instr *x) {
    return x->op == HLO_CONVERT && x->operands[0]->shape->dtype == DT_BF16;
}

bool lib_rows_together(const struct shape *s, struct i64s batch, struct i64s contract) {
    int64_t strides[HLO_MAX_RANK], below = -1; // where the next free dim's stride must be
    shape_strides(s, strides);
    for (int d = s->rank - 1; d >= 0; d--) {
        if (s->dims[d] == 1 || i64s_has(batch, d) || i64s_has(contract, d)) continue;
        if (below >= 0 && strides[d] != below) return false;
        below = strides[d] * s->dims[d];
    }
    return true;
}

bool lib_rows_or_columns(const struct shape *s, struct i64s batch) {
    int inner = s->rank - 1;
    int64_t rest = 1;
    for (int d = 0; d < s->rank; d++)
        if (!i64s_has(batch, d)) rest *= s->dims[d];
    while (inner > 0 && s->dims[inner] == 1)
        inner--;
    return rest == 1 || inner < 0 || !i64s_has(batch, inner);
}

#define TILED(block, rank1, ...)                                                                   \
    {.minor_to_major = {__VA_ARGS__}, .tile_rank = rank1, .tile = {block, 1, 1, 1}}
const struct layout *lib_layout(enum conv_form form, int rank, int block) {
    static const struct layout last[3] = {{.minor_to_major = {1, 2, 0}},
                                          {.minor_to_major = {1, 3, 2, 0}},
                                          {.minor_to_major = {1, 4, 3, 2, 0}}},
                               by16[3] = {TILED(16, 2, 2, 1, 0), TILED(16, 3, 3, 2, 1, 0),
                                          TILED(16, 4, 4, 3, 2, 1, 0)},
                               by8[3] = {TILED(8, 2, 2, 1, 0), TILED(8, 3, 3, 2, 1, 0),
                                         TILED(8, 4, 4, 3, 2, 1, 0)};
    if (rank < 3 || rank > 5) return NULL;
    return form == FORM_LAST                     ? &last[rank - 3]
           : form == FORM_BLOCKED && block == 16 ? &by16[rank - 3]
           : form == FORM_BLOCKED && block == 8  ? &by8[rank - 3]
                                                 : NULL;
}
enum conv_form lib_form_of(const struct layout *l, int rank, int *block) {
    *block = 0;
    if (layout_is_default(l, rank)) return FORM_ROWS;
    if (l->rest || rank < 3 || rank > 5) return FORM_OTHER;
    if (layout_equal(l, lib_layout(FORM_LAST, rank, 0), rank)) return FORM_LAST;
    if (!l->tile_rank || (l->tile[0] != 8 && l->tile[0] != 16)) return FORM_OTHER;
    *block = l->tile[0];
    return layout_equal(l, lib_layout(FORM_BLOCKED, rank, *block), rank) ? FORM_BLOCKED
                                                                         : FORM_OTHER;
}

bool lib_pool(const struct hlo_instr *i) {
    if (i->op != HLO_REDUCE_WINDOW || i->n_operands != 2 || i->shape->rank < 4 ||
        i->shape->rank > 5)
        return false;
    const struct hlo_instr *f = i->called[0]->root, *init = i->operands[1];
    const struct window *w = &HLO_ATTR(i, window)->window;
    bool sum = f->op == HLO_ADD && i->shape->dtype == DT_F32;
    int64_t elements = 1;
    if (rule_running_window(i, NULL)) return false;
    if ((f->op != HLO_MAXIMUM && !sum) || f->operands[0]->op != HLO_PARAMETER ||
        f->operands[1]->op != HLO_PARAMETER || f->operands[0] == f->operands[1] ||
        init->op != HLO_CONSTANT)
        return false;
    double neutral = lit_get_f64(init->literal, 0);
    if (sum ? neutral != 0 : !(neutral <= -3e38)) return false; // nor NaN
    for (int d = 0; d < i->shape->rank; d++) {
        const struct window_dim *v = &w->v[d];
        if (v->base_dilation != 1 || v->window_dilation != 1 || v->pad_low < 0 || v->pad_high < 0)
            return false;
        if (d < 2 && (v->size != 1 || v->stride != 1 || v->pad_low || v->pad_high)) return false;
        if (v->pad_low >= v->size || v->pad_high >= v->size) return false;
        elements *= v->size;
    }
    return !sum || elements > 4;
}

bool lib_transposed(const struct hlo_instr *i) {
    const struct hlo_attr_conv *a = i->op == HLO_CONVOLUTION ? HLO_ATTR(i, conv) : NULL;
    if (!a || a->batch_group_count != 1 || a->feature_group_count != 1 ||
        a->window.n != a->dim_labels.n_spatial)
        return false;
    bool ok = labels_in_order(&a->dim_labels, 1), dilated = false;
    for (int d = 0; d < a->window.n; d++) {
        const struct window_dim *w = &a->window.v[d];
        ok &= w->reversal && w->stride == 1 && w->window_dilation == 1;
        dilated |= w->base_dilation != 1;
    }
    return ok && dilated;
}
bool lib_direct(const struct hlo_instr *i) {
    enum { TERMS = 512, GROUP = 4, WRITTEN = 12 };
    const struct hlo_attr_conv *a = i->op == HLO_CONVOLUTION ? HLO_ATTR(i, conv) : NULL;
    if (!a || i->shape->dtype != DT_F32 || a->batch_group_count != 1 ||
        a->window.n != a->dim_labels.n_spatial)
        return false;
    int64_t each = i->operands[1]->shape->dims[1], taps = 1;
    bool ordered = labels_in_order(&a->dim_labels, 0);
    for (int d = 0; d < a->window.n; d++) {
        const struct window_dim *w = &a->window.v[d];
        ordered &= w->base_dilation == 1 && !w->reversal;
        taps *= w->size <= TERMS ? w->size : TERMS + 1;
        if (taps > TERMS) return false;
    }
    if (a->feature_group_count == 1)
        return ordered && i->operands[1]->shape->dims[0] == 1 && each * taps <= WRITTEN;
    return ordered && each * taps <= TERMS &&
           (taps == 1 ? each <= GROUP : a->window.n == 1 && each <= 2);
}
bool lib_reaches_far(const struct shape *x, int64_t feature, const struct window_dim *last) {
    enum { NEIGHBOURS = 28, CHANNELS = 16 };
    return x->dtype == DT_F32 && x->dims[feature] < CHANNELS && last->window_dilation == 1 &&
           last->base_dilation == 1 && (last->pad_low > NEIGHBOURS || last->pad_high > NEIGHBOURS);
}
bool lib_table(const struct hlo_instr *i) {
    if (i->op != HLO_GATHER) return false;
    const struct hlo_attr_gather *g = HLO_ATTR(i, gather);
    const struct shape *t = i->operands[0]->shape, *x = i->operands[1]->shape;
    return t->rank == 1 && t->dims[0] == 256 && dtype_bits(t->dtype) == 8 && x->dtype == DT_U8 &&
           g->index_vector_dim == x->rank && !g->offset_dims.n && g->collapsed_slice_dims.n == 1 &&
           g->slice_sizes.v[0] == 1 && !x->dynamic && shape_elements(x) > 0;
}
// Is slice i a part of each row (its dims from d on) of an array that lies in order?
static bool part_of_rows(const struct hlo_instr *i, int64_t d) {
    if (i->op != HLO_SLICE || i->shape->dynamic || i->operands[0]->shape->dynamic) return false;
    const struct shape *s = i->operands[0]->shape;
    const struct range *r = HLO_ATTR(i, slice)->slice.v;
    for (int k = 0; k < s->rank; k++)
        if (r[k].stride != 1 || (k != d && i->shape->dims[k] != s->dims[k])) return false;
    return layout_is_default(s->layout, s->rank) && shape_elements(i->shape) > 0;
}
// Measured on Zen 5, 200,000 elements. Of one array: rows of 9 to 15 elements of 1 to 8 bytes take
// a quarter to a half of a kernel's time, of 8 of 8 bytes 0.6; of others 1.3 to 4 times as much. Of
// several arrays: a kernel looks for each element's.
bool lib_joins_rows(const struct hlo_instr *i) {
    enum { MOST_PARTS = 4, LEAST = 8, MOST = 16, WORD = 8, SEVERAL = 6, LONG = 16 };
    if (i->op != HLO_CONCATENATE || i->n_operands > MOST_PARTS || shape_is_tuple(i->shape) ||
        i->shape->dynamic || !layout_is_default(i->shape->layout, i->shape->rank))
        return false;
    int64_t d = HLO_ATTR(i, dims)->dimensions.v[0], run = 1, least = INT64_MAX;
    bool one = true;
    for (int k = 0; k < i->n_operands; k++) {
        if (!part_of_rows(i->operands[k], d)) return false;
        int64_t n = i->operands[k]->shape->dims[d];
        if (n < least) least = n;
        one &= i->operands[k]->operands[0] == i->operands[0]->operands[0];
    }
    for (int64_t k = d; k < i->shape->rank; k++)
        run *= i->shape->dims[k];
    int64_t inner = run / i->shape->dims[d], size = dtype_size(i->shape->dtype);
    if (inner > 1 || run == shape_elements(i->shape)) return run >= SEVERAL;
    if (!one) return run >= SEVERAL && least < LONG;
    return (run > LEAST && run < MOST) || (run == LEAST && size == WORD);
}
bool lib_of_ours(const struct hlo_instr *i) {
    return lib_direct(i) || (i->op == HLO_CONVOLUTION && i->shape->dtype != DT_F32 &&
                             HLO_ATTR(i, conv)->feature_group_count > 1 &&
                             dtype_bits(i->operands[0]->shape->dtype) >= 32);
}
