// SPDX-License-Identifier: Apache-2.0
// Kernels of batch normalisation: inference element by element; training and its gradient with one
// unit a feature. Sums and what follows from them are f64, as the evaluator's.
#include "compiler/kernel/lower.h"
#include "compiler/ops/lower/lower_rules.h"

typedef struct kir_val *V;
static V two(struct kir *k, enum kop op, V x, V y) {
    return kir_op(k, op, x, y, NULL);
}
static status_t wide(struct lower *lw, const struct hlo_instr *i, int o, V const *index, V *out) {
    RETURN_IF_ERR(lower_operand(lw, i, o, index, out));
    *out = kir_cast(&lw->k, DT_F64, *out);
    return ST_OK;
}
static V narrow(struct lower *lw, const struct hlo_instr *i, V v) {
    return kmath_convert(lw, i->operands[0]->shape->dtype, DT_F64, v);
}
static V deviation(struct lower *lw, const struct hlo_instr *i, V var) {
    struct kir *k = &lw->k;
    V e = kir_f(k, DT_F64, (double)HLO_ATTR(i, batchnorm)->epsilon);
    return kir_op(k, K_SQRT, two(k, K_ADD, var, e), NULL, NULL);
}

LOWER(BATCH_NORM_INFERENCE) {
    struct kir *k = &lw->k;
    V x, p[4], f = index[HLO_ATTR(i, batchnorm)->feature_index];
    RETURN_IF_ERR(wide(lw, i, 0, index, &x));
    for (int o = 0; o < 4; o++)
        RETURN_IF_ERR(wide(lw, i, o + 1, &f, &p[o]));
    x = two(k, K_DIV, two(k, K_MUL, p[0], two(k, K_SUB, x, p[2])), deviation(lw, i, p[3]));
    *out = narrow(lw, i, two(k, K_ADD, x, p[1]));
    return ST_OK;
}

// Loops over the elements of a feature. Each pass adds up to two sums.
struct pass {
    const struct hlo_instr *i;
    V index[HLO_MAX_RANK + 1];
    struct kir_loop *loop[HLO_MAX_RANK + 1];
    int n;
};
static void open_pass(struct lower *lw, struct pass *p, V *sums, int n_sums) {
    struct kir *k = &lw->k;
    const struct shape *s = p->i->operands[0]->shape;
    int f = (int)HLO_ATTR(p->i, batchnorm)->feature_index;
    p->n = 0;
    for (int d = 0; d < s->rank; d++) {
        if (d == f) continue;
        struct kir_loop *l =
            kir_for(k, kir_i64(k, 0), kir_i64(k, s->dims[d]), s->dims[d], sums, n_sums);
        for (int c = 0; c < n_sums; c++)
            sums[c] = l->carry[c];
        p->index[d] = l->var;
        p->loop[p->n++] = l;
    }
    if (p->n) p->loop[p->n - 1]->vectorize = true;
}
static void close_pass(struct lower *lw, struct pass *p, V *sums, int n_sums) {
    while (p->n > 0) {
        struct kir_loop *l = p->loop[--p->n];
        kir_end(&lw->k, l, sums);
        for (int c = 0; c < n_sums; c++)
            sums[c] = l->result[c];
    }
}
static V sum(struct kir *k, V acc, V x) {
    return kir_flag(k, K_ADD, acc, x, KF_REASSOC);
}

static status_t begin_feature(struct lower *lw, struct pass *p, struct kir_loop **out_unit,
                              V *out_count) {
    struct kir *k = &lw->k;
    const struct shape *s = p->i->operands[0]->shape;
    int64_t f = HLO_ATTR(p->i, batchnorm)->feature_index, nf = s->dims[f];
    if (shape_elements(s) == 0) return lower_no(lw, "a batch normalisation of nothing");
    k->fn->extent = nf;
    *out_unit = kir_for(k, k->fn->begin, k->fn->end, nf, NULL, 0);
    p->index[f] = (*out_unit)->var;
    *out_count = kir_f(k, DT_F64, (double)shape_elements(s) / (double)nf);
    return ST_OK;
}

WHOLE(BATCH_NORM_TRAINING) {
    struct kir *k = &lw->k;
    struct pass p = {.i = i};
    struct kir_loop *unit;
    V count, x, mean = kir_f(k, DT_F64, 0), var = mean, scale, offset;
    RETURN_IF_ERR(begin_feature(lw, &p, &unit, &count));
    open_pass(lw, &p, &mean, 1);
    RETURN_IF_ERR(wide(lw, i, 0, p.index, &x));
    mean = sum(k, mean, x);
    close_pass(lw, &p, &mean, 1);
    mean = two(k, K_DIV, mean, count);
    open_pass(lw, &p, &var, 1);
    RETURN_IF_ERR(wide(lw, i, 0, p.index, &x));
    x = two(k, K_SUB, x, mean);
    var = sum(k, var, two(k, K_MUL, x, x));
    close_pass(lw, &p, &var, 1);
    var = two(k, K_DIV, var, count);
    V root = deviation(lw, i, var);
    RETURN_IF_ERR(wide(lw, i, 1, &unit->var, &scale));
    RETURN_IF_ERR(wide(lw, i, 2, &unit->var, &offset));
    lower_put(lw, i, 1, &unit->var, narrow(lw, i, mean));
    lower_put(lw, i, 2, &unit->var, narrow(lw, i, var));
    open_pass(lw, &p, NULL, 0);
    RETURN_IF_ERR(wide(lw, i, 0, p.index, &x));
    x = two(k, K_DIV, two(k, K_SUB, x, mean), root);
    lower_put(lw, i, 0, p.index, narrow(lw, i, two(k, K_ADD, two(k, K_MUL, scale, x), offset)));
    close_pass(lw, &p, NULL, 0);
    kir_end(k, unit, NULL);
    return ST_OK;
}

// Operands x, scale, mean, variance, dy; results dx, dscale, doffset.
WHOLE(BATCH_NORM_GRAD) {
    struct kir *k = &lw->k;
    struct pass p = {.i = i};
    struct kir_loop *unit;
    V count, x, dy, sums[2], scale, mean, var;

    RETURN_IF_ERR(begin_feature(lw, &p, &unit, &count));
    RETURN_IF_ERR(wide(lw, i, 1, &unit->var, &scale));
    RETURN_IF_ERR(wide(lw, i, 2, &unit->var, &mean));
    RETURN_IF_ERR(wide(lw, i, 3, &unit->var, &var));

    sums[0] = sums[1] = kir_f(k, DT_F64, 0);
    open_pass(lw, &p, sums, 2);
    RETURN_IF_ERR(wide(lw, i, 0, p.index, &x));
    RETURN_IF_ERR(wide(lw, i, 4, p.index, &dy));
    sums[0] = sum(k, sums[0], dy);
    sums[1] = sum(k, sums[1], two(k, K_MUL, dy, two(k, K_SUB, x, mean)));
    close_pass(lw, &p, sums, 2);

    V root = deviation(lw, i, var);
    lower_put(lw, i, 1, &unit->var, narrow(lw, i, two(k, K_DIV, sums[1], root)));
    lower_put(lw, i, 2, &unit->var, narrow(lw, i, sums[0]));

    V each = two(k, K_DIV, sums[0], count);
    V slope = two(k, K_DIV, sums[1], two(k, K_MUL, count, two(k, K_MUL, root, root)));
    V factor = two(k, K_DIV, scale, root);

    open_pass(lw, &p, NULL, 0);
    RETURN_IF_ERR(wide(lw, i, 0, p.index, &x));
    RETURN_IF_ERR(wide(lw, i, 4, p.index, &dy));
    dy = two(k, K_SUB, two(k, K_SUB, dy, each), two(k, K_MUL, two(k, K_SUB, x, mean), slope));
    lower_put(lw, i, 0, p.index, narrow(lw, i, two(k, K_MUL, factor, dy)));

    close_pass(lw, &p, NULL, 0);
    kir_end(k, unit, NULL);
    return ST_OK;
}
