// SPDX-License-Identifier: Apache-2.0
// Elementwise operations, and fusions in which a parameter reaches the result through elementwise
// operations only, read each element at the place they write: loops and activations, and the sum
// that a library adds into its destination, which is its first step behind the bias (behind others
// it reads the operand after it wrote partial sums). A parameter that also feeds a reduction, a
// movement or the contraction itself does not. A dynamic-update-slice keeps its operand but for the
// update, and so does a fusion that ends in one, which reads of it what it updates; a scatter reads
// its operand whole, at the places it writes, before it updates the first;
// a while keeps its state in its results anyway, and so does a fusion around one, but for what all
// lanes share. A branch's one result is copied behind its last step, and is often what it was
// given. Kernels that reduce short rows take them by blocks and some of the last block's
// twice (compiler/kernel/lower_rows.c): nothing lies over what they read.
#include "compiler/plan/in_place.h"

#include "compiler/ir/literal.h"
#include "compiler/ir/op.h"

static bool same_place(const struct shape *a, const struct shape *b) {
    return !shape_is_tuple(a) && !shape_is_tuple(b) && shape_same_dims(a, b) &&
           dtype_size(a->dtype) == dtype_size(b->dtype) &&
           layout_equal(a->layout, b->layout, a->rank);
}

// ---- fusions that end in an update

// An index in the body of a fusion `f`, as f's own computation has it; f NULL: as it is.
static const struct hlo_instr *outside(const struct hlo_instr *f, const struct hlo_instr *x) {
    for (size_t k = 0; f && k < f->called[0]->params.n; k++)
        if (f->called[0]->params.v[k] == x) return f->operands[k];
    return x;
}
static bool same_index(const struct hlo_instr *a, const struct hlo_instr *b) {
    if (a == b) return true;
    return a->op == HLO_CONSTANT && b->op == HLO_CONSTANT && !a->shape->rank && !b->shape->rank &&
           lit_get_start(a->literal, 0) == lit_get_start(b->literal, 0);
}
// Are the places that `part` reads of the array those that d writes?
static bool is_updated_part(const struct hlo_instr *part, const struct hlo_instr *f,
                            const struct hlo_instr *d) {
    int rank = d->shape->rank;
    bool dynamic = part->op == HLO_DYNAMIC_SLICE && part->n_operands == rank + 1;
    if ((part->op != HLO_SLICE && !dynamic) || !shape_same_dims(part->shape, d->operands[1]->shape))
        return false;
    for (int k = 0; k < rank; k++) {
        const struct hlo_instr *at = d->operands[k + 2];
        if (dynamic && same_index(outside(f, part->operands[k + 1]), at)) continue;
        if (dynamic || at->op != HLO_CONSTANT || at->shape->rank) return false;
        struct range r = HLO_ATTR(part, slice)->slice.v[k];
        if (lit_get_start(at->literal, 0) != r.start || r.stride != 1) return false;
    }
    return true;
}
// In the body of fusion f, or where d itself stands: does what is read of `old` reach the update
// element by element alone?
static bool keeps_updated(const struct hlo_computation *body, const struct hlo_instr *old,
                          const struct hlo_instr *f, const struct hlo_instr *d) {
    struct pmap reached = {0};
    bool ok = body->root != old;
    for (const struct hlo_instr *i = body->first; i && ok; i = i->next) {
        bool part = false, uses = false;
        for (int k = i == d ? 2 : 0; k < i->n_operands; k++) { // of d: where it begins
            part |= i->operands[k] == old;
            uses |= pmap_has_ptr(&reached, i->operands[k]);
        }
        if (!part && !uses) continue;
        ok = i != d &&
             (part ? i->operands[0] == old && is_updated_part(i, f, d)
                   : hlo_is_pointwise(i) && shape_same_dims(i->shape, d->operands[1]->shape));
        pmap_put_ptr(&reached, i, NULL);
    }
    pmap_done(&reached);
    return ok;
}
bool plan_may_end_in(const struct hlo_instr *up, const struct hlo_instr *d) {
    const struct hlo_instr *old = d->operands[0];
    for (int k = 0; k < up->n_operands; k++) {
        if (up->operands[k] != old) continue;
        if (up->op != HLO_FUSION) return false;
        const struct hlo_computation *body = up->called[0];
        if (!keeps_updated(body, body->params.v[k], up, d)) return false;
    }
    return true;
}
const struct hlo_instr *plan_last_update(const struct hlo_instr *i) {
    if (i->op != HLO_FUSION || HLO_ATTR(i, fusion)->kind != FUSION_LOOP) return NULL;
    const struct hlo_instr *d = hlo_root(i->called[0]);
    struct shape_phys p;
    if (d->op != HLO_DYNAMIC_UPDATE_SLICE || d->n_operands != d->shape->rank + 2 ||
        !i->called[0]->params.n || d->operands[0] != i->called[0]->params.v[0] ||
        d->operands[1] == d->operands[0] || !same_place(d->operands[0]->shape, i->shape) ||
        !same_place(d->shape, i->shape) || !shape_elements(d->operands[1]->shape))
        return NULL;
    shape_physical(i->shape, &p);
    return p.padded || !keeps_updated(i->called[0], d->operands[0], NULL, d) ? NULL : d;
}

bool plan_updates_alone(const struct hlo_instr *i) {
    if (i->op == HLO_FUSION) return plan_last_update(i) != NULL;
    bool ok = i->op == HLO_SCATTER;
    for (int k = 0; ok && k < i->n_operands / 2; k++)
        ok = same_place(i->operands[k]->shape, shape_leaf(i->shape, k));
    return ok;
}
static bool has_short_rows(const struct hlo_computation *body) {
    for (const struct hlo_instr *i = body->first; i; i = i->next) {
        if (i->op != HLO_REDUCE) continue;
        const struct shape *s = i->operands[0]->shape;
        struct i64s d = HLO_ATTR(i, dims)->dimensions;
        int64_t row = 1, rows = 1;
        for (int k = 0; k < s->rank; k++)
            *(i64s_has(d, k) ? &row : &rows) *= s->dims[k];
        if (row <= PLAN_MOST_SHORT_ROW && rows >= PLAN_LEAST_SHORT_ROWS) return true;
    }
    return false;
}
static bool fusion_keeps_place(const struct hlo_computation *body, const struct hlo_instr *param) {
    struct pmap reached = {0};
    bool ok = body->root != param && !has_short_rows(body);
    pmap_put_ptr(&reached, param, NULL);
    for (const struct hlo_instr *i = body->first; i && ok; i = i->next) {
        bool uses = false;
        for (int k = 0; k < i->n_operands; k++)
            uses |= pmap_has_ptr(&reached, i->operands[k]);
        if (!uses) continue;
        ok = hlo_is_pointwise(i) && shape_same_dims(i->shape, param->shape);
        pmap_put_ptr(&reached, i, NULL);
    }
    pmap_done(&reached);
    return ok;
}

// In a contraction's fusion: added to the contraction itself, or to that and its bias.
static bool added_first(const struct hlo_instr *param) {
    if (param->users.n != 1 || param->users.v[0]->op != HLO_ADD) return false;
    const struct hlo_instr *add = param->users.v[0],
                           *other = add->operands[add->operands[0] == param];
    for (int k = 0; k < 2 && other->op == HLO_ADD; k++)
        if (other->operands[1 - k]->op == HLO_BROADCAST) {
            other = other->operands[k];
            break;
        }
    return other->op == HLO_CONVOLUTION || other->op == HLO_DOT;
}

// A loop that is one kernel reads what an array of its lanes begins with before it writes what that
// becomes, lane by lane; what all lanes share, a few elements, is read by all of them.
static bool turns_keep_place(const struct hlo_instr *i, int in, int out) {
    enum { SHARED = 16 }; // LANES_REST of compiler/ops/while.h
    const struct hlo_instr *param = i->called[0]->params.v[in], *root = i->called[0]->root, *w;
    const struct hlo_instr *x = root->op == HLO_TUPLE ? root->operands[out] : root;
    if (x->op != HLO_GET_TUPLE_ELEMENT || x->operands[0]->op != HLO_WHILE) return false;
    w = x->operands[0];
    int64_t k = HLO_ATTR(x, gte)->index;
    return w->operands[0]->op == HLO_TUPLE && w->operands[0]->operands[k] == param &&
           param->users.n == 1 && shape_elements(param->shape) > SHARED &&
           same_place(param->shape, x->shape);
}

bool plan_may_share(const struct hlo_instr *i, int in, int out) {
    if (i->op == HLO_WHILE) return in == out;
    if (i->op == HLO_FUSION && turns_keep_place(i, in, out)) return true;
    if (shape_is_tuple(i->shape)) return false;
    if (i->op == HLO_CONDITIONAL) return true;
    for (int k = 0; k < i->n_operands; k++)
        if (shape_is_tuple(i->operands[k]->shape)) return false; // leaves are operands then
    if (!same_place(i->operands[in]->shape, i->shape)) return false;
    if (i->op == HLO_DYNAMIC_UPDATE_SLICE || i->op == HLO_SCATTER) return in == 0;
    if (i->op == HLO_FUSION) {
        const struct hlo_instr *param = i->called[0]->params.v[in];
        if (hlo_root(i->called[0])->op == HLO_DYNAMIC_UPDATE_SLICE && plan_last_update(i))
            return in == 0;
        if (HLO_ATTR(i, fusion)->kind == FUSION_OUTPUT && !added_first(param)) return false;
        return fusion_keeps_place(i->called[0], param);
    }
    return hlo_is_pointwise(i);
}

static bool take_number(struct str *s, char end, int64_t *out) {
    struct str head;
    return str_cut(s, end, &head) && str_to_i64(str_trim(head), out);
}
// `{0}: (2, {}, may-alias), ...`: arrays only, so the path of a result has one number, or none
// where the root is no tuple, and that of a parameter none.
int32_t *plan_donated(struct arena *a, const struct hlo_computation *entry) {
    struct str text = hlo_module_extra(entry->module, "input_output_alias"), head;
    const struct shape *root = entry->root->shape;
    int n = shape_is_tuple(root) ? root->n_elems : 1;
    if (!text.n || shape_leaves(root) != n) return NULL;
    int32_t *over = arena_array(a, int32_t, n + 1);
    for (int k = 0; k < n; k++)
        over[k] = -1;
    for (size_t k = 0; k < entry->params.n; k++)
        if (shape_is_tuple(entry->params.v[k]->shape)) return NULL;

    text.p++, text.n--; // the list's own brace
    while (str_cut(&text, '{', &head)) {
        int64_t result = 0, parameter = -1;
        struct str path;
        if (!str_cut(&text, '}', &path)) return over;
        if (str_trim(path).n && !str_to_i64(str_trim(path), &result)) result = -1;
        if (!str_cut(&text, '(', &head) || !take_number(&text, ',', &parameter) ||
            !str_cut(&text, '{', &head) || !str_cut(&text, '}', &path))
            return over;
        if (result >= 0 && result < n && parameter >= 0 && parameter < (int64_t)entry->params.n &&
            entry->params.v[parameter]->param_kind == PARAM_INPUT && !str_trim(path).n)
            over[result] = (int32_t)parameter;
    }
    return over;
}
