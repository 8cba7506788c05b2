// SPDX-License-Identifier: Apache-2.0
// From a model's entry to the program that trains it. The model's entry becomes the front of the
// loop's body:
//   entry   state, frozen, data, label, seed, limit
//             -> while (state..., rest..., losses, accuracy, first, go) -> state, losses, accuracy
//   epoch   where rows are shuffled: a new order, and the loop over the epoch's steps
//   body    a batch, the model, the loss, its gradients, an update for each weight
#include <math.h>
#include <string.h>

#include "base/str.h"
#include "compiler/gradient/gradient.h"
#include "compiler/passes/control/graph.h"
#include "compiler/train/parts.h"

struct maker {
    struct hlo_module *m;
    struct arena *a;
    const struct train_spec *s;
    const struct ingest_result *r;
    struct hlo_computation *model; // its parameters are what the leaves stand for
    struct train_program p;
    VEC(struct train_leaf) leaves;
    int *leaf_of;                             // of each parameter of the model
    const struct shape *scores;               // of the result that the loss looks at
    const struct shape *label;                // of a batch; NULL = none
    int order, step, label_leaf, seed, limit; // leaves; -1 = there is none
    int scale, clean; // the loss's scale, steps since it changed; -1 = it does not change
};

// ---- what the parameters are

static const char *source_name(const struct maker *k, const struct hlo_instr *p) {
    if (p->param_kind == PARAM_WEIGHT && k->r && p->param_index < k->r->n_weights)
        return k->r->weights[p->param_index].name;
    // Inputs stand first, in the order of the signature.
    int64_t inputs = 0;
    for (size_t j = 0; k->r && j < k->model->params.n; j++)
        inputs += k->model->params.v[j]->param_kind == PARAM_INPUT;
    return inputs && inputs == k->r->sig.n_in && p->param_number < inputs
               ? k->r->sig.in[p->param_number].name
               : p->name;
}
static hv behind(hv x) { // the parameter that x only moves or converts
    while (x->op == HLO_CONVERT || x->op == HLO_RESHAPE || x->op == HLO_COPY)
        x = x->operands[0];
    return x;
}
// How much of the running statistics a batch leaves where i normalises by the batch: the model says
// so (hlod_batch="0.9", as onnx_norm.c writes it) or the training; NAN where it does not.
static double statistics_kept(const struct train_spec *s, const struct hlo_instr *i) {
    struct str text;
    double kept;
    if (hlo_frontend_of(i, "hlod_batch", &text) && str_to_f64(text, &kept)) return kept;
    return s->batchnorm ? s->momentum_of_statistics : (double)NAN;
}
// The normalisation that p is a running statistic of, or NULL.
static const struct hlo_instr *normalised_by(const struct hlo_instr *p) {
    for (hv i = p->parent->first; i; i = i->next)
        if (i->op == HLO_BATCH_NORM_INFERENCE &&
            (behind(i->operands[3]) == p || behind(i->operands[4]) == p))
            return i;
    return NULL;
}
static enum train_role role_of(const struct maker *k, const struct hlo_instr *p) {
    const char *name = source_name(k, p);
    bool weight = p->param_kind == PARAM_WEIGHT;
    bool named = str_in_globs(k->s->trainable, name);
    const struct hlo_instr *by = weight ? normalised_by(p) : NULL;
    if (by) return isnan(statistics_kept(k->s, by)) ? TRAIN_FROZEN : TRAIN_STATISTIC;
    if (weight && k->r && k->r->weights[p->param_index].inner) return TRAIN_FROZEN;
    bool input = !weight && (k->r || strcmp(k->s->trainable, "*") == 0);
    if (input || (!named && !weight))
        return p->shape->rank == 0 || str_in_globs(k->s->whole, name) ? TRAIN_WHOLE : TRAIN_DATA;
    if (!named) return TRAIN_FROZEN;
    return dtype_is_float(p->shape->dtype) ? TRAIN_WEIGHT : TRAIN_FROZEN;
}
// Weights and what is kept of them are at least f32, so that small updates count.
static const struct shape *kept_shape(const struct maker *k, const struct shape *s) {
    enum dtype t = dtype_is_float(s->dtype) && dtype_bits(s->dtype) < 32 ? DT_F32 : s->dtype;
    return shape_with_dtype(k->a, shape_with_layout(k->a, s, NULL), t);
}
static int add_leaf(struct maker *k, enum train_role role, const struct hlo_instr *p,
                    const char *name, const struct shape *shape) {
    struct train_leaf l = {.role = role, .name = name, .weight = -1, .shape = shape};
    if (p) l.of = source_name(k, p);
    if (p && p->param_kind == PARAM_WEIGHT) l.weight = p->param_index;
    bool own = role == TRAIN_WEIGHT || role == TRAIN_STATISTIC || role == TRAIN_FROZEN;
    l.key = own ? l.of : arena_printf(k->a, "hlod.%s", name);
    avec_push(k->a, &k->leaves, l);
    return (int)k->leaves.n - 1;
}
static void add_weight(struct maker *k, const struct hlo_instr *p) {
    const struct optimizer_row *o = &optimizer_rows[k->s->optimizer];
    const struct shape *s = kept_shape(k, p->shape);
    k->leaf_of[p->param_number] = add_leaf(k, TRAIN_WEIGHT, p, p->name, s);
    if (k->s->evaluate) return;
    for (int j = 0; j < o->slots; j++) {
        int leaf = add_leaf(k, TRAIN_SLOT, p, arena_printf(k->a, "%s.slot%d", p->name, j), s);
        k->leaves.v[leaf].initial = o->initial;
    }
    if (k->s->ema > 0) add_leaf(k, TRAIN_MEAN, p, arena_printf(k->a, "%s.ema", p->name), s);
}
// s with all rows in place of a batch's. INVALID_ARGUMENT: too many.
static status_t all_rows(const struct maker *k, const struct shape *s, const struct shape **out) {
    int64_t dims[HLO_MAX_RANK];
    memcpy(dims, s->dims, sizeof *dims * (size_t)s->rank);
    dims[0] = k->s->rows;
    *out = shape_make(k->a, s->dtype, dims, s->rank);
    return shape_check(*out, 0);
}
static status_t add_data(struct maker *k, const struct hlo_instr *p) {
    const struct shape *s = p->shape, *all;
    if (shape_is_tuple(s) || !s->rank || s->dims[0] != k->s->batch)
        return st_invalid("input '%s' is %s: its first dimension is not the batch of %lld; an "
                          "input that is the same for all rows is given whole",
                          source_name(k, p), shape_text(k->a, s), (long long)k->s->batch);
    RETURN_IF_ERR(st_note(all_rows(k, s, &all), "input '%s'", p->name));
    k->leaf_of[p->param_number] = add_leaf(k, TRAIN_DATA, p, p->name, all);
    return ST_OK;
}
static status_t add_label(struct maker *k) {
    const struct shape *s = k->label, *all;
    if (!s) return ST_OK;
    if (!s->rank || s->dims[0] != k->s->batch)
        return st_invalid("loss %s: result %lld of the model is %s: its first dimension is not the "
                          "batch of %lld",
                          loss_rows[k->s->loss].name, (long long)k->s->output,
                          shape_text(k->a, k->scores), (long long)k->s->batch);
    RETURN_IF_ERR(st_note(all_rows(k, s, &all), "label"));
    k->label_leaf = add_leaf(k, TRAIN_LABEL, NULL, "label", all);
    return ST_OK;
}
static void add_all(struct maker *k, enum train_role role) {
    for (size_t j = 0; j < k->model->params.n; j++) {
        const struct hlo_instr *p = k->model->params.v[j];
        if (role_of(k, p) != role) continue;
        if (role == TRAIN_WEIGHT)
            add_weight(k, p);
        else
            k->leaf_of[j] = add_leaf(k, role, p, p->name,
                                     role == TRAIN_WHOLE ? p->shape : kept_shape(k, p->shape));
    }
}
// Changes of the loss's scale, as of Micikevicius et al., "Mixed precision training", 2018, section
// 3.2: halved by a step whose gradients overflow, doubled after so many that did not.
enum { SCALE_LEAST = 1, SCALE_FIRST = 1 << 16, SCALE_MOST = 1 << 24, SCALE_STEPS = 2000 };
static int add_scalar(struct maker *k, enum train_role role, const char *name) {
    return add_leaf(k, role, NULL, name, shape_scalar(k->a, DT_S32));
}
static void add_scale(struct maker *k) {
    k->scale = add_leaf(k, TRAIN_SLOT, NULL, "loss_scale", shape_scalar(k->a, DT_F32));
    k->leaves.v[k->scale].initial = SCALE_FIRST;
    k->clean = add_scalar(k, TRAIN_SLOT, "loss_scale.clean");
}
// Nothing to train: what is named and no real number, where there is such.
static status_t no_weights(const struct maker *k) {
    for (size_t j = 0; j < k->model->params.n; j++) {
        const struct hlo_instr *p = k->model->params.v[j];
        if (role_of(k, p) == TRAIN_FROZEN && str_in_globs(k->s->trainable, source_name(k, p)) &&
            !dtype_is_float(p->shape->dtype))
            return st_invalid("'trainable=%s' names no weights of real numbers ('%s' is %s): "
                              "nothing to train",
                              k->s->trainable, source_name(k, p), shape_text(k->a, p->shape));
    }
    return st_invalid("the model has no weights that 'trainable=%s' names: nothing to train",
                      k->s->trainable);
}
static status_t add_leaves(struct maker *k) {
    int64_t rows = k->s->rows;
    bool evaluate = k->s->evaluate;
    k->order = k->step = k->label_leaf = k->seed = k->limit = k->scale = k->clean = -1;
    add_all(k, TRAIN_WEIGHT);
    if (!k->leaves.n && !evaluate) return no_weights(k);
    add_all(k, TRAIN_STATISTIC);
    if (!evaluate && k->s->shuffle && rows > k->s->batch)
        k->order = add_leaf(k, TRAIN_ORDER, NULL, "order", shape_make(k->a, DT_S32, &rows, 1));
    if (!evaluate && k->s->loss_scale <= 0) add_scale(k);
    if (!evaluate) k->step = add_scalar(k, TRAIN_STEP, "step");
    k->p.n_state = evaluate ? 0 : (int32_t)k->leaves.n;
    add_all(k, TRAIN_FROZEN);
    add_all(k, TRAIN_WHOLE);
    for (size_t j = 0; j < k->model->params.n; j++)
        if (role_of(k, k->model->params.v[j]) == TRAIN_DATA)
            RETURN_IF_ERR(add_data(k, k->model->params.v[j]));
    RETURN_IF_ERR(add_label(k));
    if (!evaluate) k->seed = add_scalar(k, TRAIN_SEED, "seed");
    if (!evaluate) k->limit = add_scalar(k, TRAIN_LIMIT, "limit");
    return ST_OK;
}
// A loss that has the model's last step in it would take that step twice, and hardly learn.
static status_t check_last(const struct maker *k, hv y) {
    static const struct {
        const char *node;
        enum train_loss loss, right;
    } twice[] = {
        {"Softmax", TRAIN_LOSS_softmax_cross_entropy, TRAIN_LOSS_cross_entropy},
        {"Softmax", TRAIN_LOSS_nll, TRAIN_LOSS_cross_entropy},
        {"LogSoftmax", TRAIN_LOSS_softmax_cross_entropy, TRAIN_LOSS_nll},
        {"LogSoftmax", TRAIN_LOSS_cross_entropy, TRAIN_LOSS_nll},
        {"Sigmoid", TRAIN_LOSS_sigmoid_bce, TRAIN_LOSS_bce},
    };
    const char *node = behind(y)->op_type;
    for (size_t j = 0; node && j < sizeof twice / sizeof *twice; j++)
        if (k->s->loss == twice[j].loss && strcmp(node, twice[j].node) == 0)
            return st_invalid("result %lld of the model is that of a %s: its loss is %s, not %s",
                              (long long)k->s->output, node, loss_rows[twice[j].right].name,
                              loss_rows[k->s->loss].name);
    return ST_OK;
}
static status_t find_scores(struct maker *k) {
    const struct shape *root = k->model->root->shape;
    int n = shape_is_tuple(root) ? root->n_elems : 1;
    if (k->s->output >= n)
        return st_invalid("the model has %d results, there is no result %lld", n,
                          (long long)k->s->output);
    k->scores = shape_is_tuple(root) ? root->elems[k->s->output] : root;
    RETURN_IF_ERR(loss_label_shape(k->a, k->s, k->scores, &k->label));
    hv last = k->model->root;
    if (last->op == HLO_TUPLE) last = last->operands[k->s->output];
    RETURN_IF_ERR(check_last(k, last));
    const struct loss_row *row = &loss_rows[k->s->loss];
    if (row->target == LOSS_CLASSES) {
        int64_t axis = k->s->axis < 0 ? k->scores->rank + k->s->axis : k->s->axis;
        k->p.classes = k->scores->dims[axis];
    }
    k->p.accuracy = row->likelihood;
    return ST_OK;
}

// ---- the body

struct body {
    struct maker *k;
    struct hb b;
    hv *in, *out; // the loop's state, before and after a turn: leaves, then these
    int losses, accuracy, first, go, n;
    hv loss, correct, rate;
    hv told; // what the row of losses gets
};
// The model's value for the values of its parameters, at the end of b's computation.
static hv run_model(struct hb *b, struct maker *k, hv const *args) {
    hv end = hb_const_i64(b, DT_S32, 0);
    hv root = graph_inline(end, k->model, args);
    if (!shape_is_tuple(root->shape)) return root;
    return root->op == HLO_TUPLE ? root->operands[k->s->output] : hb_gte(b, root, k->s->output);
}
// Batches of a turn, and the model's own types.
static void arguments(struct body *y, hv order, hv at, hv *args) {
    struct maker *k = y->k;
    for (size_t j = 0; j < k->model->params.n; j++) {
        const struct hlo_instr *p = k->model->params.v[j];
        const struct train_leaf *l = &k->leaves.v[k->leaf_of[j]];
        hv x = y->in[k->leaf_of[j]];
        args[j] = l->role == TRAIN_DATA ? batch_rows(&y->b, x, order, at, k->s->batch)
                                        : hb_convert(&y->b, x, p->shape->dtype);
    }
}
// Normalisation by the batch in place of that by kept statistics, which follow the batch's.
static void train_batchnorm(struct body *y) {
    struct hb *b = &y->b;
    struct maker *k = y->k;
    for (hv i = b->c->first, next; i && hb_ok(b); i = next) {
        next = i->next;
        if (i->op != HLO_BATCH_NORM_INFERENCE) continue;
        double keep = statistics_kept(k->s, i);
        if (isnan(keep)) continue;
        hv before = b->c->last,
           all = hb_op(b, HLO_BATCH_NORM_TRAINING, NULL, i->operands, 3, i->attr);
        hv value = hb_gte(b, all, 0);
        for (int j = 3; j < 5; j++) {
            hv now = hb_gte(b, all, j - 2), old = behind(i->operands[j]);
            for (int leaf = 0; leaf < k->p.n_state; leaf++)
                if (y->in[leaf] == old && k->leaves.v[leaf].role == TRAIN_STATISTIC)
                    y->out[leaf] =
                        hb_add(b, part_mul(b, old, keep),
                               part_mul(b, hb_convert(b, now, old->shape->dtype), 1 - keep));
        }
        for (hv j = before->next, after; j && hb_ok(b); j = after) {
            after = j->next;
            hlo_move_before(j, i);
        }
        hlo_replace_uses(i, value);
        hlo_remove_instr(i);
    }
}
static hv mean_of(struct hb *b, hv x) {
    return part_mul(b, part_sum(b, x), 1 / (double)shape_elements(x->shape));
}
// Which weights the loss does not depend on; with none that it does, nothing would be learnt.
static void note_still(struct body *y, hv *const *all, const int *leaf, int n) {
    int still = 0;
    for (int j = 0; j < n && hb_ok(&y->b); j++)
        still += y->k->leaves.v[leaf[j]].still = !all[j][0];
    if (still == n && hb_ok(&y->b))
        hb_fail(&y->b, st_invalid("the loss depends on none of the %d weights that are trained, or "
                                  "only through what has no derivative (integers, ArgMax, "
                                  "roundings): %s%s",
                                  n, y->k->leaves.v[leaf[0]].of, n > 1 ? ", ..." : ""));
}
// Gradients by the weights, in order; zeros where the loss does not depend on one.
static void differentiate(struct body *y, hv const *weights, const int *leaf, int n, hv *out) {
    struct hb *b = &y->b;
    const struct maker *k = y->k;
    hv by = k->scale < 0 ? NULL : y->in[k->scale], **all;
    hv seed = by ? part_wide(b, by, y->loss) : part_like(b, y->loss, k->s->loss_scale);
    hv last = b->c->last; // of the forward pass
    if (!hb_ok(b)) return;
    all = arena_zarray(k->a, hv *, n + 1);
    gradient_of(b, y->loss, &seed, weights, n, all);
    note_still(y, all, leaf, n);
    int32_t first = k->s->remat_first;
    if (k->s->remat) y->k->p.segments = remat_segments(b, last, first ? first : INT32_MAX);
    for (int j = 0; j < n && hb_ok(b); j++) {
        out[j] = all[j][0] ? all[j][0] : part_like(b, weights[j], 0);
        if (by && hb_ok(b))
            out[j] = hb_div(b, out[j], part_wide(b, by, out[j]));
        else if (!by && (k->s->loss_scale < 1 || k->s->loss_scale > 1))
            out[j] = part_mul(b, out[j], 1 / k->s->loss_scale);
    }
}
// The largest norm that the gradients may have together is kept; NULL: nobody asks for the norm.
static hv clip(struct body *y, hv *g, int n) {
    struct hb *b = &y->b;
    const struct train_spec *s = y->k->s;
    bool asked = s->clip > 0 || s->nan == TRAIN_NAN_SKIP || y->k->scale >= 0;
    if (!hb_ok(b) || !asked) return NULL;
    hv sum = hb_const_f64(b, DT_F32, 0);
    for (int j = 0; j < n; j++)
        sum = hb_add(b, sum, hb_convert(b, part_sum(b, hb_mul(b, g[j], g[j])), DT_F32));
    hv norm = hb_unary(b, HLO_SQRT, sum);
    if (s->clip <= 0) return norm;
    hv most = part_like(b, norm, s->clip), within = hb_compare(b, norm, most, CMP_LT);
    hv scale = hb_select(b, within, part_like(b, norm, 1), hb_div(b, most, norm));
    for (int j = 0; j < n && hb_ok(b); j++)
        g[j] = hb_mul(b, g[j], part_wide(b, scale, g[j]));
    return norm;
}
static bool decays(const struct maker *k, const struct train_leaf *l) {
    return strcmp(k->s->decayed, "matrices") == 0 ? l->shape->rank >= 2
                                                  : str_in_globs(k->s->decayed, l->of);
}
static void update_weight(struct body *y, int leaf, hv gradient, hv good) {
    struct hb *b = &y->b;
    struct maker *k = y->k;
    int slots = optimizer_rows[k->s->optimizer].slots;
    hv w = y->in[leaf], count = part_add(b, y->in[k->step], 1);
    struct update u = {.b = b,
                       .s = k->s,
                       .weight = w,
                       .gradient = gradient,
                       .rate = y->rate,
                       .step = hb_convert(b, count, DT_F32),
                       .good = good,
                       .decays = decays(k, &k->leaves.v[leaf])};
    for (int j = 0; j < slots; j++)
        u.slots[j] = y->in[leaf + 1 + j];
    if (k->s->ema > 0) u.mean = y->in[leaf + 1 + slots];
    y->out[leaf] = optimizer_step(&u);
    for (int j = 0; j < slots; j++)
        y->out[leaf + 1 + j] = u.next[j];
    if (k->s->ema > 0) y->out[leaf + 1 + slots] = u.next_mean;
}
// A new value of state only where the step counts.
static void keep_old(struct body *y, hv good, int leaf) {
    struct hb *b = &y->b;
    if (y->out[leaf] == y->in[leaf] || !hb_ok(b)) return;
    const struct shape *s = shape_with_dtype(y->k->a, y->in[leaf]->shape, DT_PRED);
    hv wide = s->rank ? hb_broadcast(b, good, s->dims, s->rank, NULL) : good;
    y->out[leaf] = hb_select(b, wide, y->out[leaf], y->in[leaf]);
}
// The later of g and of what reads w.
static hv last_before(hv w, hv g) {
    hv last = g;
    for (size_t u = 0; u < w->users.n; u++)
        if (w->users.v[u]->mark > last->mark) last = w->users.v[u];
    return last;
}
// What stands behind `before` moves behind `to`, so that a gradient ends where it is used.
static void move_up(struct hb *b, hv before, hv to) {
    hv at = to->next;
    for (hv i = before->next, next; i && hb_ok(b) && at && at != i; i = next) {
        next = i->next;
        hlo_move_before(i, at);
    }
}
struct gradients {
    hv *w, *g;
    int *leaf, n;
};
static void update_each(struct body *y, const struct gradients *all, hv good, bool early) {
    struct maker *k = y->k;
    struct hb *b = &y->b;
    hv *to = arena_zarray(k->a, hv, all->n + 1);
    uint32_t at = 0;
    for (hv i = b->c->first; i; i = i->next)
        i->mark = at++;
    for (int j = 0; j < all->n; j++)
        to[j] = last_before(all->w[j], all->g[j]);
    for (int j = 0; j < all->n && hb_ok(b); j++) {
        hv before = b->c->last;
        update_weight(y, all->leaf[j], all->g[j], k->s->nan == TRAIN_NAN_IGNORE ? NULL : good);
        if (early) move_up(b, before, to[j]);
    }
}
// The next scale. Where it was above the least one, a step that overflowed is left out, and `goes`,
// whether the loss is a number, says whether the training goes on; else the step counts as one
// whose loss is no number.
static hv change_scale(struct body *y, hv goes, hv finite) {
    struct maker *k = y->k;
    struct hb *b = &y->b;
    hv scale = y->in[k->scale], clean = part_add(b, y->in[k->clean], 1);
    hv above = hb_compare(b, scale, part_like(b, scale, SCALE_LEAST), CMP_GT);
    hv due = hb_compare(b, clean, part_like(b, clean, SCALE_STEPS), CMP_GE);
    hv more = hb_min(b, part_mul(b, scale, 2), part_like(b, scale, SCALE_MOST));
    hv less = hb_max(b, part_mul(b, scale, 0.5), part_like(b, scale, SCALE_LEAST));
    hv none = part_like(b, clean, 0);
    y->out[k->scale] = hb_select(b, finite, hb_select(b, due, more, scale), less);
    y->out[k->clean] = hb_select(b, finite, hb_select(b, due, none, clean), none);
    for (int j = 0; j < 2; j++) // a loss that is no number says nothing of the scale
        keep_old(y, goes, j ? k->clean : k->scale);
    return hb_binary(b, HLO_AND, goes, hb_binary(b, HLO_OR, finite, above));
}
// What else a step that is not good leaves as it was; goes: the training does not end by it.
static void keep_or_stop(struct body *y, hv good, hv goes, hv norm) {
    struct maker *k = y->k;
    struct hb *b = &y->b;
    enum train_nan nan = k->s->nan;
    y->told = y->loss;
    y->out[k->step] = part_add(b, y->in[k->step], 1);
    if (nan == TRAIN_NAN_IGNORE) return;
    for (int j = 0; j < k->p.n_state; j++)
        if (k->leaves.v[j].role == TRAIN_STATISTIC) keep_old(y, good, j);
    if (nan == TRAIN_NAN_SKIP) return;

    keep_old(y, goes, k->step);
    y->out[y->go] = goes;
    // A step that ends it shows so in the row of losses, also where only its gradients overflowed.
    if (norm && hb_ok(b)) {
        hv number = hb_unary(b, HLO_IS_FINITE, y->loss);
        hv why = hb_select(b, number, hb_convert(b, norm, y->loss->shape->dtype), y->loss);
        y->told = hb_select(b, goes, y->loss, why);
    }
}
static void update_all(struct body *y) {
    struct maker *k = y->k;
    struct hb *b = &y->b;
    int most = k->p.n_state + 1;
    struct gradients all = {.w = arena_zarray(k->a, hv, most),
                            .g = arena_zarray(k->a, hv, most),
                            .leaf = arena_zarray(k->a, int, most)};
    for (int j = 0; j < k->p.n_state; j++)
        if (k->leaves.v[j].role == TRAIN_WEIGHT) all.leaf[all.n] = j, all.w[all.n++] = y->in[j];

    hv good = hb_unary(b, HLO_IS_FINITE, y->loss);
    differentiate(y, all.w, all.leaf, all.n, all.g);
    if (!hb_ok(b)) return;
    hv norm = clip(y, all.g, all.n), finite = norm ? hb_unary(b, HLO_IS_FINITE, norm) : NULL;
    hv goes = good;
    if (norm) good = hb_binary(b, HLO_AND, good, finite);
    update_each(y, &all, good, !norm);
    if (!hb_ok(b)) return;
    if (k->scale >= 0)
        goes = change_scale(y, goes, finite);
    else
        goes = good;
    keep_or_stop(y, good, goes, norm);
}
static hv put(struct hb *b, hv row, hv value, hv at) {
    const int64_t one = 1;
    hv x = hb_reshape(b, hb_convert(b, value, DT_F32), &one, 1);
    return hb_op(b, HLO_DYNAMIC_UPDATE_SLICE, NULL, (hv[]){row, x, at}, 3, NULL);
}
// Numbers drawn inside a loop or a branch would be others when the derivative computes it again.
static void refuse_inner_rng(struct body *y) {
    HLO_EACH_COMPUTATION(c, y->k->m) {
        if (c == y->b.c || c == y->k->model) continue;
        HLO_EACH_INSTR(i, c)
        if (i->op == HLO_RNG && hb_ok(&y->b))
            return hb_fail(
                &y->b, st_unimplemented("%s '%s' draws random numbers inside a loop or a branch",
                                        i->op_type ? i->op_type : "rng",
                                        i->op_name ? i->op_name : i->name));
    }
}
// The model on one batch: its scores, with what training changes in it.
static hv forward(struct body *y, hv order, hv at) {
    struct maker *k = y->k;
    struct hb *b = &y->b;
    hv *args = arena_zarray(k->a, hv, k->model->params.n + 1);
    arguments(y, order, at, args);
    if (!hb_ok(b)) return y->in[0];
    hv scores = run_model(b, k, args), kept = hb_tuple(b, &scores, 1); // one name through edits
    if (!k->s->evaluate) train_batchnorm(y);
    hv seed = k->seed >= 0 ? y->in[k->seed] : hb_const_i64(b, DT_S32, 0);
    batch_seed_rng(b, seed, k->seed >= 0 ? y->in[k->step] : at);
    refuse_inner_rng(y);
    return hb_ok(b) ? kept->operands[0] : scores;
}
static hv label_of(struct body *y, hv order, hv at) {
    struct maker *k = y->k;
    if (k->label_leaf < 0) return NULL;
    return batch_rows(&y->b, y->in[k->label_leaf], order, at, k->s->batch);
}
static void train_step(struct body *y) {
    struct maker *k = y->k;
    struct hb *b = &y->b;
    hv step = y->in[k->step], order = NULL;
    hv place = hb_binary(b, HLO_REMAINDER, step, part_like(b, step, (double)k->p.steps_per_epoch));
    if (k->order >= 0) order = y->in[k->order];
    hv label = label_of(y, order, place), scores = forward(y, order, place);
    struct loss l = loss_of(b, k->s, scores, label);
    if (!hb_ok(b)) return;
    y->loss = mean_of(b, l.each);
    y->rate = schedule_rate(b, k->s, step);
    hv at = hb_sub(b, step, y->in[y->first]);
    if (l.correct) y->out[y->accuracy] = put(b, y->in[y->accuracy], mean_of(b, l.correct), at);
    update_all(y);
    if (hb_ok(b)) y->out[y->losses] = put(b, y->in[y->losses], y->told, at);
}
// Sums over the rows of batch `first` that no batch before it had: the last one is moved up to
// where it is whole.
static hv sum_of_new(struct body *y, hv x) {
    struct hb *b = &y->b;
    const struct train_spec *s = y->k->s;
    x = hb_convert(b, x, DT_F32);
    if (!hb_ok(b) || !x->shape->rank) return x;
    const struct shape *places = shape_with_dtype(y->k->a, x->shape, DT_S32);
    hv from = part_mul(b, y->in[y->first], (double)s->batch);
    hv moved = hb_min(b, from, part_like(b, from, (double)(s->rows - s->batch)));
    hv row = hb_iota(b, places, 0);
    row = hb_add(b, row, part_wide(b, moved, row));
    hv is_new = hb_compare(b, row, part_wide(b, from, row), CMP_GE);
    return part_sum(b, hb_select(b, is_new, x, part_like(b, x, 0)));
}
static void evaluate_batch(struct body *y) {
    struct maker *k = y->k;
    struct hb *b = &y->b;
    hv at = y->in[y->first], label = label_of(y, NULL, at);
    struct loss l = loss_of(b, k->s, forward(y, NULL, at), label);
    if (!hb_ok(b)) return;
    int64_t each = shape_elements(l.each->shape), batches = k->s->rows / k->s->batch;
    double n = l.each->shape->rank ? (double)(each / k->s->batch * k->s->rows) : (double)batches;
    y->out[y->losses] = hb_add(b, y->in[y->losses], part_mul(b, sum_of_new(y, l.each), 1 / n));
    if (l.correct)
        y->out[y->accuracy] =
            hb_add(b, y->in[y->accuracy], part_mul(b, sum_of_new(y, l.correct), 1 / n));
    y->out[y->first] = part_add(b, at, 1);
}

// ---- the loop

static const struct shape *loop_shape(struct body *y) {
    struct maker *k = y->k;
    const struct shape **v = arena_array(k->a, const struct shape *, y->n);
    for (size_t j = 0; j < k->leaves.n; j++)
        v[j] = k->leaves.v[j].shape;
    const struct shape *row =
        k->s->evaluate ? shape_scalar(k->a, DT_F32) : shape_make(k->a, DT_F32, &k->s->slice, 1);
    v[y->losses] = row;
    if (k->p.accuracy) v[y->accuracy] = row;
    v[y->first] = shape_scalar(k->a, DT_S32);
    v[y->go] = shape_scalar(k->a, DT_PRED);
    return shape_tuple(k->a, v, y->n);
}
static status_t make_body(struct body *y, const struct shape *state) {
    struct hb *b = &y->b;
    hv p = hlo_add_param(b->c, 0, state, "state");
    for (int j = 0; j < y->n; j++)
        y->in[j] = y->out[j] = hb_gte(b, p, j);
    if (y->k->s->evaluate)
        evaluate_batch(y);
    else
        train_step(y);
    hv root = hb_tuple(b, y->out, y->n);
    RETURN_IF_ERR(hb_end(b));
    hlo_set_root(b->c, root);
    RETURN_IF_ERR(hlo_sort_instrs(b->c));
    hlo_remove_dead(b->c);
    return ST_OK;
}
// Batches there are: all rows, or for a loss that is the model's own all whole batches.
static int64_t batches_of(const struct maker *k) {
    const struct train_spec *s = k->s;
    bool whole = loss_rows[s->loss].target == LOSS_NONE;
    return whole ? s->rows / s->batch : (s->rows + s->batch - 1) / s->batch;
}
static status_t make_condition(struct body *y, struct hlo_computation *c,
                               const struct shape *state) {
    struct maker *k = y->k;
    struct hb b = hb_begin(c);
    hv p = hlo_add_param(c, 0, state, "state"), goes;
    if (k->s->evaluate) {
        goes = hb_compare(&b, hb_gte(&b, p, y->first), hb_const_i64(&b, DT_S32, batches_of(k)),
                          CMP_LT);
    } else {
        goes = hb_compare(&b, hb_gte(&b, p, k->step), hb_gte(&b, p, k->limit), CMP_LT);
        if (k->s->nan == TRAIN_NAN_STOP) goes = hb_binary(&b, HLO_AND, goes, hb_gte(&b, p, y->go));
    }
    RETURN_IF_ERR(hb_end(&b));
    hlo_set_root(c, goes);
    return ST_OK;
}

// ---- an epoch

// An epoch's order of rows is made where it begins, in a loop over epochs around that over steps:
// there it is read, and not state that each turn hands on.
static hv new_order(struct maker *k, struct hb *b, hv order, hv seed, hv epoch, hv begins) {
    struct hlo_computation *f[2] = {hb_callee(k->m, "shuffle"), hb_callee(k->m, "keep_order")};
    const struct shape *s = shape_scalar(k->a, DT_S32), *parts[3] = {order->shape, s, s};
    const struct shape *in = shape_tuple(k->a, parts, 3);
    for (int j = 0; j < 2; j++) {
        struct hb fb = hb_begin(f[j]);
        hv p = hlo_add_param(f[j], 0, in, "p");
        hlo_set_root(f[j], j ? hb_gte(&fb, p, 0)
                             : batch_order(&fb, hb_gte(&fb, p, 1), hb_gte(&fb, p, 2),
                                           order->shape->dims[0]));
        status_t st = hb_end(&fb);
        if (st) hb_fail(b, st);
    }
    hv arg = hb_tuple(b, (hv[]){order, seed, epoch}, 3);
    return hb_call(b, HLO_CONDITIONAL, order->shape, (hv[]){begins, arg, arg}, 3, NULL, f, 2);
}
static status_t make_epoch(struct body *y, struct hlo_computation *c,
                           struct hlo_computation *const *steps, const struct shape *state) {
    struct maker *k = y->k;
    struct hb b = hb_begin(c);
    hv p = hlo_add_param(c, 0, state, "state"), *v = arena_zarray(k->a, hv, y->n);
    for (int j = 0; j < y->n; j++)
        v[j] = hb_gte(&b, p, j);
    hv step = v[k->step], limit = v[k->limit];
    hv per = part_like(&b, step, (double)k->p.steps_per_epoch);
    hv epoch = hb_div(&b, step, per), begin = hb_mul(&b, epoch, per);
    hv begins = hb_compare(&b, step, begin, CMP_EQ);
    v[k->order] = new_order(k, &b, v[k->order], v[k->seed], epoch, begins);
    v[k->limit] = hb_min(&b, limit, hb_add(&b, begin, per));

    hv init = hb_tuple(&b, v, y->n);
    hv w = hb_call(&b, HLO_WHILE, state, &init, 1, NULL, steps, 2);
    for (int j = 0; j < y->n; j++)
        v[j] = j == k->limit ? limit : hb_gte(&b, w, j);
    hv root = hb_tuple(&b, v, y->n);
    RETURN_IF_ERR(hb_end(&b));
    hlo_set_root(c, root);
    return ST_OK;
}

// ---- the entry

// The names that the model's parameters have are those of the program.
static void take_names(struct maker *k, hv const *params) {
    for (size_t j = 0; j < k->model->params.n; j++) {
        hv old = k->model->params.v[j], now = params[k->leaf_of[j]];
        const char *name = old->name;
        old->name = now->name;
        now->name = name;
    }
    for (size_t j = 0; j < k->leaves.n; j++)
        k->leaves.v[j].name = params[j]->name;
}
static status_t make_entry(struct body *y, struct hlo_computation *e,
                           struct hlo_computation *const *loop, const struct shape *state) {
    struct maker *k = y->k;
    struct hb b = hb_begin(e);
    hv *v = arena_zarray(k->a, hv, y->n), *out = arena_zarray(k->a, hv, y->n);
    int n = 0;
    for (size_t j = 0; j < k->leaves.n; j++)
        v[j] = hlo_add_param(e, (int64_t)j, k->leaves.v[j].shape, k->leaves.v[j].name);
    take_names(k, v);
    for (int j = (int)k->leaves.n; j < y->n; j++)
        v[j] = hb_splat(&b, state->elems[j], j == y->go);
    if (!k->s->evaluate) {
        hv most = part_add(&b, v[k->step], (double)k->s->slice);
        v[y->first] = v[k->step];
        v[k->limit] = hb_min(&b, v[k->limit], most);
    }
    hv init = hb_tuple(&b, v, y->n);
    hv w = hb_call(&b, HLO_WHILE, state, &init, 1, NULL, loop, 2);
    for (int j = 0; j < k->p.n_state; j++)
        out[n++] = hb_gte(&b, w, j);
    out[n++] = hb_gte(&b, w, y->losses);
    if (k->p.accuracy) out[n++] = hb_gte(&b, w, y->accuracy);
    hv root = hb_tuple(&b, out, n);
    RETURN_IF_ERR(hb_end(&b));
    hlo_set_root(e, root);
    return ST_OK;
}
// State goes out where it came in.
static void alias_state(struct maker *k) {
    struct strbuf b = {0};
    hlo_drop_donors(k->m);
    for (int j = 0; j < k->p.n_state; j++)
        strbuf_printf(&b, "%s{%d}: (%d, {}, may-alias)", j ? ", " : "{ ", j, j);
    if (b.n) strbuf_puts(&b, " }");
    if (b.n) hlo_set_module_extra(k->m, "input_output_alias", (struct str){b.p, b.n});
    strbuf_done(&b);
}
static status_t make_program(struct maker *k) {
    struct hlo_module *m = k->m;
    int n = (int)k->leaves.n;
    struct body y = {.k = k, .losses = n, .accuracy = n + 1};
    y.first = n + 1 + k->p.accuracy, y.go = y.first + 1, y.n = y.go + 1;
    y.in = arena_zarray(k->a, hv, y.n), y.out = arena_zarray(k->a, hv, y.n);
    struct hlo_computation *loop[2] = {hlo_computation_add(m, "go_on"),
                                       hlo_computation_add(m, k->s->evaluate ? "batch" : "turn")};
    const struct shape *state = loop_shape(&y);
    y.b = hb_begin(loop[1]);
    RETURN_IF_ERR(make_condition(&y, loop[0], state));
    RETURN_IF_ERR(make_body(&y, state));
    if (k->order >= 0) {
        struct hlo_computation *epochs[2] = {hlo_computation_add(m, "go_on_behind"),
                                             hlo_computation_add(m, "epoch")};
        RETURN_IF_ERR(make_condition(&y, epochs[0], state));
        RETURN_IF_ERR(make_epoch(&y, epochs[1], loop, state));
        memcpy(loop, epochs, sizeof loop);
    }
    m->entry = hlo_computation_add(m, "train");
    RETURN_IF_ERR(make_entry(&y, m->entry, loop, state));
    m->entry_layout = NULL;
    hlo_computation_remove(k->model);
    alias_state(k);
    return ST_OK;
}

status_t train_module(struct hlo_module *m, const struct ingest_result *r,
                      const struct train_spec *spec, struct train_program *out) {
    struct maker k = {.m = m, .a = m->arena, .s = spec, .r = r, .model = m->entry};
    k.p.steps_per_epoch = spec->rows / spec->batch;
    k.leaf_of = arena_zarray(k.a, int, m->entry->params.n + 1);
    RETURN_IF_ERR(st_note(find_scores(&k), "training"));
    RETURN_IF_ERR(st_note(add_leaves(&k), "training"));
    RETURN_IF_ERR(st_note(make_program(&k), "training"));
    k.p.leaves = k.leaves.v;
    k.p.n_leaves = (int32_t)k.leaves.n;
    *out = k.p;
    return ST_OK;
}
