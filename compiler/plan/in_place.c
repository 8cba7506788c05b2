// SPDX-License-Identifier: Apache-2.0
// Elementwise operations, and fusions in which a parameter reaches the result through elementwise
// operations only, read each element at the place they write: loops and activations, and the sum
// that a library adds into its destination, which is its first step behind the bias (behind others
// it reads the operand after it wrote partial sums). A parameter that also feeds a reduction, a
// movement or the contraction itself does not. A dynamic-update-slice keeps its operand but for the
// update; a scatter reads its operand whole, at the places it writes, before it updates the first;
// a while keeps its state in its results anyway, and so does a fusion around one, but for what all
// lanes share. A branch's one result is copied behind its last step, and is often what it was
// given. Kernels that reduce short rows take them by blocks and some of the last block's
// twice (compiler/kernel/lower_rows.c): nothing lies over what they read.
#include "compiler/plan/in_place.h"

#include "compiler/ir/op.h"

static bool same_place(const struct shape *a, const struct shape *b) {
    return !shape_is_tuple(a) && !shape_is_tuple(b) && shape_same_dims(a, b) &&
           dtype_size(a->dtype) == dtype_size(b->dtype) &&
           layout_equal(a->layout, b->layout, a->rank);
}
bool plan_updates_alone(const struct hlo_instr *i) {
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
