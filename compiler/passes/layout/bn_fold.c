// SPDX-License-Identifier: Apache-2.0
// A scale per output channel behind a convolution or dot goes into the weights: conv(x, w) * s[c]
// -> conv(x, w * s). With weights and scale known before any run, the product is prepared once, and
// conv + batch norm + relu is conv + bias + relu. Also conv(x,w)*s + t with a bias inside: (y +
// b)*s -> y*s + b*s first.
#include "compiler/passes/fusion/match.h"
#include "compiler/passes/pass.h"

static int channel_dim(const struct hlo_instr *hero) {
    return hero->op == HLO_CONVOLUTION ? HLO_ATTR(hero, conv)->dim_labels.out_feature
                                       : hero->shape->rank - 1;
}

// The weights' dimension that becomes the result's channel; -1 when there is none.
static int weight_dim(const struct hlo_instr *hero) {
    if (hero->op == HLO_CONVOLUTION) return HLO_ATTR(hero, conv)->dim_labels.k_out;
    const struct hlo_attr_dot *d = HLO_ATTR(hero, dot);
    const struct shape *w = hero->operands[1]->shape;
    for (int k = w->rank - 1; k >= 0; k--)
        if (!i64s_has(d->rhs_batch_dims, k) && !i64s_has(d->rhs_contracting_dims, k)) return k;
    return -1;
}

static struct hlo_instr *fold(struct hb *b, struct hlo_instr *hero, struct hlo_instr *scale) {
    int64_t d = weight_dim(hero);
    struct hlo_instr *w = hero->operands[1],
                     *s = hb_broadcast(b, scale, w->shape->dims, w->shape->rank, &d);
    const char *type = b->op_type, *name = b->op_name;
    w = hb_mul(b, w, s);
    b->op_type = hero->op_type; // it is still the node that it was
    b->op_name = hero->op_name;
    struct hlo_instr *r =
        hb_op(b, hero->op, hero->shape, (hv[]){hero->operands[0], w}, 2, hero->attr);
    if (hb_ok(b)) pass_ask_alike(r, hero);
    b->op_type = type;
    b->op_name = name;
    return r;
}

// y + t[c] with y the hero, alone: gives the hero and the vector.
static struct hlo_instr *biased_hero(struct hlo_instr *i, int channel, struct hlo_instr **t) {
    for (int k = 0; k < 2 && i->op == HLO_ADD && i->users.n == 1; k++)
        if (match_channel(i->operands[k], channel) && i->operands[k]->mark == 1) {
            *t = i->operands[k]->operands[0];
            return i->operands[1 - k];
        }
    *t = NULL;
    return i;
}

static bool is_hero(const struct hlo_instr *i) {
    bool kind =
        (i->op == HLO_CONVOLUTION && HLO_ATTR(i, conv)->batch_group_count == 1) || i->op == HLO_DOT;
    return kind && i->users.n == 1 && i->operands[1]->mark == 1 && weight_dim(i) >= 0 &&
           dtype_is_float(i->shape->dtype) && i->shape->rank > 0;
}

static bool try_fold(struct hb *b, struct hlo_instr *mul) {
    for (int k = 0; k < 2; k++) {
        struct hlo_instr *s = mul->operands[k], *y = mul->operands[1 - k], *t, *hero;
        int channel = y->op == HLO_ADD ? -1 : is_hero(y) ? channel_dim(y) : -1;
        if (y->op == HLO_ADD) // the channel is known from the hero below
            for (int j = 0; j < 2 && channel < 0; j++)
                if (is_hero(y->operands[j])) channel = channel_dim(y->operands[j]);
        if (channel < 0 || !match_channel(s, channel) || s->mark != 1) continue;
        hero = biased_hero(y, channel, &t);
        if (!is_hero(hero)) continue;
        struct hlo_instr *r = fold(b, hero, s->operands[0]);
        if (t) {
            int64_t d = channel;
            r = hb_add(b, r,
                       hb_broadcast(b, hb_mul(b, t, s->operands[0]), mul->shape->dims,
                                    mul->shape->rank, &d));
        }
        if (!hb_ok(b)) return false;
        hlo_replace_uses(mul, r);
        return true;
    }
    return false;
}

status_t pass_bn_fold(struct hlo_module *m, struct pass_ctx *p) {
    struct hlo_computation *c = m->entry;
    if (p->opt->precision == PRECISION_STRICT) return ST_OK; // reassociates products
    struct hb b = hb_begin(c);
    pass_mark_weights(c);
    HLO_EACH_INSTR(i, c) {
        if (i->op != HLO_MULTIPLY || i->mark == 1 || (i->users.n == 0 && i != c->root)) continue;
        struct hlo_instr *last = c->last;
        b.op_type = i->op_type;
        b.op_name = i->op_name;
        if (try_fold(&b, i)) {
            p->changed = true;
            for (struct hlo_instr *n = last->next; n; n = n->next)
                n->mark = 0;
            for (struct hlo_instr *n = last->next, *next; n; n = next) {
                next = n->next;
                bool only = n->n_operands > 0;
                for (int k = 0; k < n->n_operands; k++)
                    only &= n->operands[k]->mark == 1;
                n->mark = only;
                hlo_move_before(n, i);
            }
        }
    }
    RETURN_IF_ERR(hb_end(&b));
    hlo_remove_dead(c);
    return ST_OK;
}
