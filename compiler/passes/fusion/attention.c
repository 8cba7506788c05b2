// SPDX-License-Identifier: Apache-2.0
// Attention as one step: softmax(Q K^T) V, where the square of rows and keys is large. The three
// instructions become one kCustom fusion around a row fusion; a device computes it for some rows at
// a time, whose part of the square stays in its cache (the blocking by rows of Dao et al.,
// "FlashAttention", 2022; whole rows of scores are kept, so the softmax needs no running maximum as
// in Milakov & Gimelshein 2018 and any mask, scale or softcap is the row fusion's own affair).
// What it does not take: scores that somebody else reads, too, a mask of the scores' own
// shape that the product's call adds, and other types than f32.
#include "compiler/passes/fusion/attention.h"

#include "compiler/passes/fusion/fusion.h"
#include "compiler/passes/control/graph.h"

enum { MOST_DEPTH = 512 };

static bool plain(const struct hlo_instr *i) {
    return !shape_is_tuple(i->shape) && i->shape->dtype == DT_F32 && !i->shape->dynamic &&
           layout_is_default(i->shape->layout, i->shape->rank) && !i->control_preds.n;
}
// The same elements in the same order under other dims.
static bool is_view(const struct hlo_instr *i) {
    return (i->op == HLO_RESHAPE || i->op == HLO_BITCAST) && plain(i) && plain(i->operands[0]);
}
static const struct hlo_instr *behind_views(const struct hlo_instr *i) {
    while (is_view(i) && i->users.n == 1)
        i = i->operands[0];
    return i;
}

static int64_t product_of(const struct shape *s, int from, int to) {
    int64_t n = 1;
    for (int d = from; d < to; d++)
        n *= s->dims[d];
    return n;
}
static bool batch_leads(const struct hlo_attr_dot *d) {
    for (int k = 0; k < d->lhs_batch_dims.n; k++)
        if (d->lhs_batch_dims.v[k] != k) return false;
    return true;
}
static bool canonical(const struct hlo_instr *dot) {
    const struct hlo_attr_dot *d = HLO_ATTR(dot, dot);
    return d->lhs_contracting_dims.n == 1 && dot->operands[0]->shape->dtype == DT_F32 &&
           dot->operands[1]->shape->dtype == DT_F32;
}

// A dot, or a dot with a scale behind it, that only `user` reads.
static bool is_scores(const struct hlo_instr *i, struct lib_call *out) {
    if (i->users.n != 1 || !plain(i) || !lib_match(i, out)) return false;
    if (out->hero->op != HLO_DOT) return false;
    const struct hlo_attr_dot *d = HLO_ATTR(out->hero, dot);
    const struct shape *right = out->hero->operands[1]->shape;
    bool scaled = out->n_post == 1 && out->post[0].kind == LIB_POST_SCALE;
    return (out->n_post == 0 || scaled) && canonical(out->hero) &&
           right->rank == d->rhs_batch_dims.n + 2; // the keys are one dim, the last of the result
}
// Works on rows as long as a row of keys, and nothing else: a unit of its kernel is a row.
static bool is_row_fusion(const struct hlo_instr *i) {
    if (i->op != HLO_FUSION || HLO_ATTR(i, fusion)->kind != FUSION_CUSTOM || i->users.n != 1 ||
        !plain(i) || i->called[0]->root->op == HLO_DOT)
        return false;
    int64_t row = i->shape->rank ? i->shape->dims[i->shape->rank - 1] : 0;
    int folds = 0;
    for (const struct hlo_instr *x = i->called[0]->first; x; x = x->next) {
        if (x->op == HLO_FUSION || x->op == HLO_DOT) return false;
        if (x->op != HLO_REDUCE) continue;
        struct i64s d = HLO_ATTR(x, dims)->dimensions;
        const struct shape *s = x->operands[0]->shape;
        if (d.n != 1 || d.v[0] != s->rank - 1 || s->dims[s->rank - 1] != row) return false;
        folds++;
    }
    return folds > 0;
}
// The operand of the row fusion that is the square.
static bool find_scores(const struct hlo_instr *rows, struct attention_call *c) {
    int found = 0;
    for (int k = 0; k < rows->n_operands; k++) {
        const struct hlo_instr *x = behind_views(rows->operands[k]);
        if (shape_is_tuple(rows->operands[k]->shape)) return false;
        if (shape_elements(x->shape) != shape_elements(rows->shape) || !is_scores(x, &c->first))
            continue;
        c->scores = x;
        found++;
    }
    return found == 1 && is_scores(c->scores, &c->first);
}
static bool match(const struct hlo_instr *product, struct attention_call *c) {
    if (product->op != HLO_DOT || !plain(product) || !canonical(product)) return false;
    const struct hlo_attr_dot *d = HLO_ATTR(product, dot);
    const struct shape *left = product->operands[0]->shape, *right = product->operands[1]->shape;
    *c = (struct attention_call){.product = product, .rows = behind_views(product->operands[0])};
    if (!batch_leads(d) || d->lhs_contracting_dims.v[0] != left->rank - 1) return false;
    if (right->rank != d->rhs_batch_dims.n + 2 ||
        !is_row_fusion(c->rows) || !find_scores(c->rows, c))
        return false;
    const struct shape *s = c->scores->shape, *r = c->rows->shape;
    int batch = HLO_ATTR(c->first.hero, dot)->lhs_batch_dims.n;
    c->heads = product_of(s, 0, batch);
    c->n_rows = product_of(s, batch, s->rank - 1);
    c->n_keys = s->dims[s->rank - 1];
    return c->n_keys == left->dims[left->rank - 1] && c->n_keys == r->dims[r->rank - 1] &&
           c->heads == product_of(left, 0, d->lhs_batch_dims.n) &&
           shape_elements(s) == shape_elements(left) && c->n_rows >= ATTENTION_MIN_ROWS;
}

bool attention_match(const struct hlo_instr *i, struct attention_call *out) {
    return i->op == HLO_FUSION && HLO_ATTR(i, fusion)->kind == FUSION_CUSTOM &&
           match(i->called[0]->root, out);
}

// ---- the pass

// From the list's view: the members, views among them.
static int members(const struct attention_call *c, struct hlo_instr **v, int most) {
    int n = 0;
    const struct hlo_instr *at = c->product;
    v[n++] = (struct hlo_instr *)(uintptr_t)at;
    for (at = at->operands[0]; at != c->rows && n < most; at = at->operands[0])
        v[n++] = (struct hlo_instr *)(uintptr_t)at;
    v[n++] = (struct hlo_instr *)(uintptr_t)c->rows;
    for (int k = 0; k < c->rows->n_operands; k++) {
        if (behind_views(c->rows->operands[k]) != c->scores) continue;
        for (at = c->rows->operands[k]; at != c->scores && n < most; at = at->operands[0])
            v[n++] = (struct hlo_instr *)(uintptr_t)at;
    }
    v[n++] = (struct hlo_instr *)(uintptr_t)c->scores;
    return n;
}
static bool pays(const struct attention_call *c, const struct target *t) {
    const struct shape *s = c->scores->shape;
    int64_t depth = c->first.hero->operands[0]
                        ->shape->dims[HLO_ATTR(c->first.hero, dot)->lhs_contracting_dims.v[0]];
    return shape_bytes(s) >= ATTENTION_LEAST_BYTES && depth <= MOST_DEPTH &&
           t->library_accepts(t, c->scores) && t->library_accepts(t, c->product);
}
// Bodies of the fusions inside stand in front of the new one, and are theirs.
static void take_bodies(struct hlo_instr *f) {
    for (struct hlo_instr *x = f->called[0]->first; x; x = x->next) {
        if (x->op != HLO_FUSION) continue;
        graph_move_before(x->called[0], f->called[0]);
        hlo_mark_fused(x);
    }
}
status_t pass_attention(struct hlo_module *m, struct pass_ctx *p) {
    enum { MOST = 16 };
    const struct target *t = p->target;
    if (!t || !t->library_accepts || !t->library_attention) return ST_OK;
    HLO_EACH_COMPUTATION(comp, m) {
        if (comp->fusion) continue;
        hlo_number_list(comp);
        for (struct hlo_instr *i = comp->first, *next; i; i = next) {
            struct attention_call c;
            struct hlo_instr *v[MOST + 2], *f;
            next = i->next;
            if (!match(i, &c) || !pays(&c, t)) continue;
            int n = members(&c, v, MOST);
            if (n > MOST) continue;
            fusion_in_list_order(v, n);
            RETURN_IF_ERR(fusion_make(v, n, FUSION_CUSTOM, i, &f));
            take_bodies(f);
            pass_tell_fusion(p, c.scores, i, NULL);
            hlo_remove_dead(comp);
            p->changed = true;
        }
    }
    return ST_OK;
}
