// SPDX-License-Identifier: Apache-2.0
// Movements of channels around library convolutions as one step each, so that values in blocks of
// channels stay in blocks: a shuffle between grouped convolutions, halves of a split, branches
// whose channels do not fill whole blocks. What is read only by movements comes into them, and is
// never in memory by itself; a chain of shuffles is cut behind each, or a late one would gather
// from all layers in front of it. What it does not take: movements with no convolution beside
// them, which kernels do, and concatenations of whole blocks, which are copies of runs as they are.
#include "compiler/passes/layout/channels.h"

#include "compiler/passes/fusion/fusion.h"

static bool image(const struct shape *s) {
    return !shape_is_tuple(s) && !s->dynamic && s->rank >= 3 && s->rank <= 5;
}
static bool same_places(const struct shape *a, const struct shape *b) { // but for the channels
    if (!image(a) || a->rank != b->rank || a->dtype != b->dtype) return false;
    for (int d = 0; d < a->rank; d++)
        if (d != 1 && a->dims[d] != b->dims[d]) return false;
    return true;
}

// ---- shuffles: z[n, f', ...] = reshape(transpose(reshape(x)))

// The split of the channels: factors of x, as the transpose's dims [first, first + n) have them.
struct shuffle {
    const struct hlo_instr *x;
    struct i64s perm;
    const int64_t *dims; // of what is transposed
    int first, n;
};
static bool shuffle_of(const struct hlo_instr *merge, struct shuffle *s) {
    const struct hlo_instr *t = merge->op == HLO_RESHAPE ? merge->operands[0] : NULL;
    const struct hlo_instr *split = t && t->op == HLO_TRANSPOSE ? t->operands[0] : NULL;
    if (!split || split->op != HLO_RESHAPE || !image(merge->shape)) return false;
    const struct shape *to = merge->shape, *by = split->shape;
    int64_t channels = 1;
    *s = (struct shuffle){
        .x = split->operands[0], .perm = HLO_ATTR(t, dims)->dimensions, .dims = by->dims};
    if (!same_places(s->x->shape, to) || s->x->shape->dims[1] != to->dims[1]) return false;
    if (shape_elements(to) < 1) return false;
    if (by->rank && by->dims[0] == to->dims[0] && s->perm.v[0] == 0)
        s->first = 1;
    else if (to->dims[0] != 1)
        return false;
    for (int d = s->first; d < by->rank && channels < to->dims[1]; d++, s->n++)
        channels *= by->dims[d];
    for (int d = s->first; d < by->rank; d++) {
        bool inside = s->perm.v[d] >= s->first && s->perm.v[d] < s->first + s->n;
        if (d < s->first + s->n ? !inside : s->perm.v[d] != d) return false;
    }
    return channels == to->dims[1];
}
static int64_t shuffled_from(const struct shuffle *s, int64_t at) {
    int64_t index[HLO_MAX_RANK], from = 0;
    for (int d = s->first + s->n - 1; d >= s->first; d--) {
        int64_t size = s->dims[s->perm.v[d]];
        index[s->perm.v[d]] = at % size;
        at /= size;
    }
    for (int d = s->first; d < s->first + s->n; d++)
        from = from * s->dims[d] + index[d];
    return from;
}

// ---- what moves channels

static bool moves(const struct hlo_instr *i) {
    struct shuffle s;
    if (!image(i->shape) || i->control_preds.n) return false;
    switch (i->op) {
    case HLO_CONCATENATE:
        return HLO_ATTR(i, dims)->dimensions.v[0] == 1;
    case HLO_REVERSE:
        return HLO_ATTR(i, dims)->dimensions.n == 1 && HLO_ATTR(i, dims)->dimensions.v[0] == 1;
    case HLO_SLICE:
        return same_places(i->operands[0]->shape, i->shape);
    case HLO_RESHAPE:
        return shuffle_of(i, &s);
    default:
        return false;
    }
}
// A step from channel *at of i towards the operands.
static const struct hlo_instr *step(const struct hlo_instr *i, int64_t *at) {
    struct shuffle s;
    int k = 0;
    switch (i->op) {
    case HLO_CONCATENATE:
        for (; k < i->n_operands - 1 && *at >= i->operands[k]->shape->dims[1]; k++)
            *at -= i->operands[k]->shape->dims[1];
        return i->operands[k];
    case HLO_REVERSE:
        *at = i->shape->dims[1] - 1 - *at;
        return i->operands[0];
    case HLO_SLICE: {
        const struct range *r = &HLO_ATTR(i, slice)->slice.v[1];
        *at = r->start + *at * r->stride;
        return i->operands[0];
    }
    default:
        if (!shuffle_of(i, &s)) return NULL;
        *at = shuffled_from(&s, *at);
        return s.x;
    }
}

bool channels_match(const struct hlo_instr *i) {
    if (!image(i->shape)) return false;
    if (i->op == HLO_COPY) return same_places(i->operands[0]->shape, i->shape);
    if (i->op != HLO_FUSION || HLO_ATTR(i, fusion)->kind != FUSION_LOOP) return false;
    const struct hlo_instr *root = i->called[0]->root;
    HLO_EACH_INSTR(k, i->called[0]) {
        // Parts of a shuffle are used by nothing else.
        bool part = k->op == HLO_TRANSPOSE || (k->op == HLO_RESHAPE && !moves(k));
        if (part && (k == root || k->users.n != 1)) return false;
        if (part && k->op == HLO_TRANSPOSE ? !moves(k->users.v[0])
                                           : part && k->users.v[0]->op != HLO_TRANSPOSE)
            return false;
        if (!part && k->op != HLO_PARAMETER && !moves(k)) return false;
        if (!part && !same_places(k->shape, i->shape)) return false;
    }
    return root->op != HLO_PARAMETER;
}
void channels_source(const struct hlo_instr *i, int64_t at, int *operand, int64_t *channel) {
    const struct hlo_instr *x = i->op == HLO_FUSION ? i->called[0]->root : i->operands[0];
    while (i->op == HLO_FUSION && x->op != HLO_PARAMETER)
        x = step(x, &at);
    *operand = lib_operand(i, x);
    *channel = at;
}

// ---- the pass

static bool is_conv(const struct target *t, const struct hlo_instr *i) {
    enum conv_form in, out;
    return (i->op == HLO_CONVOLUTION || i->op == HLO_FUSION) && t->wants_form(t, i, &in, &out);
}
// Only movements read it: in the computation, or in fusions made before.
static bool only_moved(const struct hlo_instr *i) {
    for (size_t k = 0; k < i->users.n; k++) {
        const struct hlo_instr *u = i->users.v[k];
        bool part = u->op == HLO_TRANSPOSE || (u->op == HLO_RESHAPE && u->users.n == 1 &&
                                               u->users.v[0]->op == HLO_TRANSPOSE);
        if (!part && !moves(u) && !(u->op == HLO_FUSION && channels_match(u))) return false;
    }
    return i->parent->root != i;
}
static bool has_shuffle(const struct fusion_group *g) {
    for (int k = 0; k < g->n; k++)
        if (g->v[k]->op == HLO_TRANSPOSE) return true;
    return false;
}
static const char *keeps_out(const struct fusion_group *g, const struct hlo_instr *p) {
    struct shuffle s;
    for (int k = 0; k < g->n; k++) // what a shuffle consists of
        if (shuffle_of(g->v[k], &s) &&
            (p == g->v[k]->operands[0] || p == g->v[k]->operands[0]->operands[0]))
            return NULL;
    if (!moves(p)) return "it is no movement of channels";
    if (!same_places(p->shape, g->v[0]->shape)) return "its images are others";
    if (!only_moved(p)) return "it is read by more than movements of channels";
    if (p->op != HLO_CONCATENATE && has_shuffle(g)) return "a shuffle reads what lies in memory";
    return NULL;
}

// A concatenation by whole blocks is copies of runs already.
static bool by_blocks(const struct hlo_instr *i, int block) {
    for (int k = 0; i->op == HLO_CONCATENATE && k < i->n_operands; k++)
        if (i->operands[k]->shape->dims[1] % block) return false;
    return i->op == HLO_CONCATENATE;
}
// Slices and reversals become part of what computes with them, where that is a kernel.
static bool pays(const struct fusion_group *g, const struct target *t) {
    const struct hlo_instr *root = g->v[0];
    bool near = false, kernels = false;
    if (dtype_bits(root->shape->dtype) != 32 || (g->n == 1 && by_blocks(root, t->conv_block)))
        return false;
    for (size_t k = 0; k < root->users.n; k++) {
        const struct hlo_instr *u = root->users.v[k];
        near |= is_conv(t, u);
        kernels |= !is_conv(t, u) && !lib_pool(u) && !moves(u) && !channels_match(u);
    }
    for (int k = 0; k < g->n; k++)
        for (int j = 0; j < g->v[k]->n_operands; j++)
            near |= is_conv(t, g->v[k]->operands[j]);
    return near && (!kernels || root->op == HLO_CONCATENATE || has_shuffle(g));
}

status_t pass_channels(struct hlo_module *m, struct pass_ctx *p) {
    const struct target *t = p->target;
    if (!t || !t->wants_form || !t->library_channels || !t->conv_block) return ST_OK;
    HLO_EACH_COMPUTATION(c, m) {
        if (c->fusion) continue;
        hlo_number_list(c);
        for (struct hlo_instr *i = c->last, *prev; i; i = prev) {
            struct fusion_group g = {
                .v = {i}, .n = 1, .max = FUSION_MAX_MEMBERS, .keeps_out = keeps_out, .ctx = t};
            prev = i->prev;
            if ((!i->users.n && i != c->root) || !moves(i)) continue;
            fusion_grow(&g);
            if (g.n == g.max || !pays(&g, t)) continue; // full: perhaps half a shuffle
            fusion_tell(p, &g);
            RETURN_IF_ERR(fusion_take(&g, FUSION_LOOP, &prev));
            p->changed = true;
        }
    }
    return ST_OK;
}
