// SPDX-License-Identifier: Apache-2.0
// Kernels of Cholesky decomposition and triangular solve, with the steps of their evaluation
// (linalg.c): sums in f64 or c128, each element rounded when it is stored. A unit is one matrix
// (cholesky; triangular-solve of real numbers with several right sides that lie side by side, which
// are a vector) or one right side; columns and rows depend on those before.
#include <math.h>

#include "compiler/kernel/lower.h"
#include "compiler/ops/lower/lower_rules.h"

typedef struct kir_val *V;

static enum dtype wide_of(enum dtype t) {
    return dtype_is_complex(t) ? DT_C128 : DT_F64;
}
static V conjugate(struct kir *k, enum dtype wide, V x) {
    if (!dtype_is_complex(wide)) return x;
    return kir_complex(k, kir_re(k, x), kir_op(k, K_NEG, kir_im(k, x), NULL, NULL));
}
static V positive(struct kir *k, V x) { // NaN is not
    return kir_cmp(k, CMP_GT, kir_re(k, x), kir_f(k, DT_F64, 0));
}

// init - sum of x * y over a counted loop; the values of x and y are made between open and close.
struct sum {
    struct kir_loop *loop;
    enum dtype wide;
};
static V open_sum(struct lower *lw, struct sum *s, enum dtype wide, V init, V count, int64_t most) {
    struct kir *k = &lw->k;
    bool complex = dtype_is_complex(wide);
    V flat[2] = {kir_re(k, init), complex ? kir_im(k, init) : NULL};
    *s = (struct sum){.wide = wide,
                      .loop = kir_for(k, kir_i64(k, 0), count, most, flat, complex ? 2 : 1)};
    return s->loop->var;
}
static V close_sum(struct lower *lw, struct sum *s, V x, V y) {
    struct kir *k = &lw->k;
    struct kir_loop *l = s->loop;
    bool complex = dtype_is_complex(s->wide);
    V acc = complex ? kir_complex(k, l->carry[0], l->carry[1]) : l->carry[0];
    x = kmath(lw, KFN_MUL, s->wide, x, y);
    acc = complex ? kmath(lw, KFN_SUB, s->wide, acc, x)
                  : kir_flag(k, K_SUB, acc, x, lower_contract(lw));
    V flat[2] = {kir_re(k, acc), complex ? kir_im(k, acc) : NULL};
    kir_end(k, l, flat);
    return complex ? kir_complex(k, l->result[0], l->result[1]) : l->result[0];
}

// Matrices of a stack: element (row, col) of result or operand, widened.
struct stack {
    const struct hlo_instr *i;
    V index[HLO_MAX_RANK + 1];
    int rank;
    enum dtype wide;
    bool flip; // (row, col) stands for the element at (col, row)
};
static void point(struct stack *s, V row, V col) {
    s->index[s->rank - 2] = s->flip ? col : row;
    s->index[s->rank - 1] = s->flip ? row : col;
}
static V result_at(struct lower *lw, struct stack *s, V row, V col) {
    point(s, row, col);
    return kmath_convert(lw, s->wide, s->i->shape->dtype, lower_get(lw, s->i, 0, s->index));
}
static void put_at(struct lower *lw, struct stack *s, V row, V col, V v) {
    point(s, row, col);
    lower_put(lw, s->i, 0, s->index, kmath_convert(lw, s->i->shape->dtype, s->wide, v));
}
static status_t operand_at(struct lower *lw, struct stack *s, int o, V row, V col, V *out) {
    point(s, row, col);
    RETURN_IF_ERR(lower_operand(lw, s->i, o, s->index, out));
    *out = kmath_convert(lw, s->wide, s->i->operands[o]->shape->dtype, *out);
    return ST_OK;
}
// The loop over units: `each` for every matrix of the stack.
static struct kir_loop *open_units(struct lower *lw, struct stack *s, int64_t each, V *out_within) {
    struct kir *k = &lw->k;
    const struct shape *sh = s->i->shape;
    int64_t matrices = 1;
    s->rank = sh->rank;
    for (int d = 0; d < s->rank - 2; d++)
        matrices *= sh->dims[d];
    k->fn->extent = shape_elements(sh) ? matrices * each : 0;
    struct kir_loop *unit = kir_for(k, k->fn->begin, k->fn->end, matrices * each, NULL, 0);
    lower_unflatten(lw, kir_idx_divmod(k, unit->var, each, 0), sh->dims, s->rank - 2, s->index);
    *out_within = kir_idx_divmod(k, unit->var, 1, each);
    return unit;
}

// a[row][col] less what the columns before give: of the upper form, its conjugate transpose.
static status_t remainder_at(struct lower *lw, struct stack *s, V row, V col, int64_t n, V *out) {
    struct kir *k = &lw->k;
    struct sum sum;
    V a;
    RETURN_IF_ERR(operand_at(lw, s, 0, row, col, &a));
    V e = open_sum(lw, &sum, s->wide, s->flip ? conjugate(k, s->wide, a) : a, col, n);
    V x = result_at(lw, s, row, e), y = result_at(lw, s, col, e);
    if (s->flip)
        x = conjugate(k, s->wide, x);
    else
        y = conjugate(k, s->wide, y);
    *out = close_sum(lw, &sum, x, y);
    return ST_OK;
}

WHOLE(CHOLESKY) {
    struct kir *k = &lw->k;
    const struct shape *sh = i->shape;
    int64_t n = sh->dims[sh->rank - 1];
    struct stack s = {.i = i, .wide = wide_of(sh->dtype), .flip = !HLO_ATTR(i, cholesky)->lower};
    V within, v, zero = kir_i64(k, 0), size = kir_i64(k, n), nothing = kir_zero(k, s.wide);
    struct kir_loop *unit = open_units(lw, &s, 1, &within);
    struct kir_loop *r = kir_for(k, zero, size, n, NULL, 0),
                    *c = kir_for(k, zero, size, n, NULL, 0);
    put_at(lw, &s, r->var, c->var, nothing);
    kir_end(k, c, NULL);
    kir_end(k, r, NULL);

    V fine = kir_int(k, DT_PRED, 1);
    struct kir_loop *col = kir_for(k, zero, size, n, &fine, 1);
    RETURN_IF_ERR(remainder_at(lw, &s, col->var, col->var, n, &v));
    fine = kir_op(k, K_AND, col->carry[0], positive(k, v), NULL);
    V root = kir_op(k, K_SQRT, kir_re(k, v), NULL, NULL);
    put_at(lw, &s, col->var, col->var, kmath_convert(lw, s.wide, DT_F64, root));
    V diagonal = kir_re(k, result_at(lw, &s, col->var, col->var));
    struct kir_loop *row = kir_for(k, kir_idx_add(k, col->var, kir_i64(k, 1)), size, n, NULL, 0);
    RETURN_IF_ERR(remainder_at(lw, &s, row->var, col->var, n, &v));
    V re = kir_op(k, K_DIV, kir_re(k, v), diagonal, NULL), im = NULL;
    if (dtype_is_complex(s.wide)) {
        im = kir_op(k, K_DIV, kir_im(k, v), diagonal, NULL);
        if (s.flip) im = kir_op(k, K_NEG, im, NULL, NULL);
        re = kir_complex(k, re, im);
    }
    put_at(lw, &s, row->var, col->var, re);
    kir_end(k, row, NULL);
    kir_end(k, col, &fine);

    // Not positive definite: all of the matrix is NaN.
    V bad = kir_select(k, col->result[0], zero, size);
    r = kir_for(k, zero, bad, n, NULL, 0);
    c = kir_for(k, zero, bad, n, NULL, 0);
    V nan = kir_f(k, DT_F64, (double)NAN);
    put_at(lw, &s, r->var, c->var,
           dtype_is_complex(s.wide) ? kir_complex(k, nan, kir_f(k, DT_F64, 0)) : nan);
    kir_end(k, c, NULL);
    kir_end(k, r, NULL);
    kir_end(k, unit, NULL);
    return ST_OK;
}

// A triangular solve: x, its right sides, and the matrix, whose element (row, col) is that of the
// form that is solved.
struct solve {
    const struct hlo_attr_trisolve *t;
    struct stack x, a;
    int64_t n, sides;
    bool lower;
};
static V column_of(struct lower *lw, const struct solve *s, V e) { // the e-th that is known
    struct kir *k = &lw->k;
    return s->lower ? e : kir_idx_add(k, kir_i64(k, s->n - 1), kir_idx_mul(k, e, -1));
}
static status_t factor_at(struct lower *lw, struct solve *s, V row, V col, V *out) {
    RETURN_IF_ERR(operand_at(lw, &s->a, 0, row, col, out));
    if (s->t->transpose_a == TRI_ADJOINT) *out = conjugate(&lw->k, s->a.wide, *out);
    return ST_OK;
}
static status_t by_diagonal(struct lower *lw, struct solve *s, V row, V *v) {
    V diagonal;
    if (s->t->unit_diagonal) return ST_OK;
    RETURN_IF_ERR(factor_at(lw, s, row, row, &diagonal));
    *v = kmath(lw, KFN_DIV, s->x.wide, *v, diagonal);
    return ST_OK;
}
// One right side, an element after the other.
static status_t one_side(struct lower *lw, struct solve *s, V side) {
    struct kir *k = &lw->k;
    struct sum sum;
    V v, m;
    struct kir_loop *step = kir_for(k, kir_i64(k, 0), kir_i64(k, s->n), s->n, NULL, 0);
    V row = column_of(lw, s, step->var);
    RETURN_IF_ERR(operand_at(lw, &s->x, 1, row, side, &v));
    V col = column_of(lw, s, open_sum(lw, &sum, s->x.wide, v, step->var, s->n));
    RETURN_IF_ERR(factor_at(lw, s, row, col, &m));
    v = close_sum(lw, &sum, m, result_at(lw, &s->x, col, side));
    RETURN_IF_ERR(by_diagonal(lw, s, row, &v));
    put_at(lw, &s->x, row, side, v);
    kir_end(k, step, NULL);
    return ST_OK;
}

static struct kir_loop *each_side(struct lower *lw, const struct solve *s) {
    struct kir *k = &lw->k;
    struct kir_loop *l = kir_for(k, kir_i64(k, 0), kir_i64(k, s->sides), s->sides, NULL, 0);
    l->vectorize = true;
    return l;
}
static V sum_at(struct lower *lw, int64_t base, V side) {
    V at = kir_idx_add(&lw->k, side, kir_i64(&lw->k, base));
    return kir_load(&lw->k, KIR_SCRATCH, DT_F64, at, KF_PINNED);
}
static void put_sum(struct lower *lw, int64_t base, V side, V v) {
    kir_store(&lw->k, KIR_SCRATCH, DT_F64, kir_idx_add(&lw->k, side, kir_i64(&lw->k, base)), v);
}
// All right sides of a matrix: the same sums in the same order, a row of them in scratch.
static status_t all_sides(struct lower *lw, struct solve *s) {
    struct kir *k = &lw->k;
    int64_t base = lower_scratch(lw, DT_F64, s->sides) / dtype_size(DT_F64);
    V v, m;
    struct kir_loop *step = kir_for(k, kir_i64(k, 0), kir_i64(k, s->n), s->n, NULL, 0);
    V row = column_of(lw, s, step->var);
    struct kir_loop *l = each_side(lw, s);
    RETURN_IF_ERR(operand_at(lw, &s->x, 1, row, l->var, &v));
    put_sum(lw, base, l->var, v);
    kir_end(k, l, NULL);

    struct kir_loop *e = kir_for(k, kir_i64(k, 0), step->var, s->n, NULL, 0);
    V col = column_of(lw, s, e->var);
    l = each_side(lw, s);
    RETURN_IF_ERR(factor_at(lw, s, row, col, &m));
    v = kmath(lw, KFN_MUL, DT_F64, m, result_at(lw, &s->x, col, l->var));
    v = kir_flag(k, K_SUB, sum_at(lw, base, l->var), v, lower_contract(lw));
    put_sum(lw, base, l->var, v);
    kir_end(k, l, NULL);
    kir_end(k, e, NULL);

    l = each_side(lw, s);
    v = sum_at(lw, base, l->var);
    RETURN_IF_ERR(by_diagonal(lw, s, row, &v));
    put_at(lw, &s->x, row, l->var, v);
    kir_end(k, l, NULL);
    kir_end(k, step, NULL);
    return ST_OK;
}
// Measured with AVX-512, f32 and f64, matrices of 3 to 15: 4 sides are 5 times as fast so, 8 to 100
// 1.2 to 13 times, 5 take 1.3 times as long.
static bool worth_a_vector(int64_t sides) {
    return sides == 4 || sides >= 8;
}
WHOLE(TRIANGULAR_SOLVE) {
    const struct hlo_attr_trisolve *t = HLO_ATTR(i, trisolve);
    const struct shape *sh = i->shape;
    int64_t rows = sh->dims[sh->rank - 2], cols = sh->dims[sh->rank - 1];

    // x op(a) = b is op(a)^T x^T = b^T.
    bool flip = (t->transpose_a != TRI_NO_TRANSPOSE) != !t->left_side;
    enum dtype wide = wide_of(sh->dtype);
    struct solve s = {.t = t,
                      .x = {.i = i, .wide = wide, .flip = !t->left_side},
                      .n = t->left_side ? rows : cols,
                      .sides = t->left_side ? cols : rows,
                      .lower = t->lower != flip};
    bool together = t->left_side && wide == DT_F64 && worth_a_vector(s.sides) &&
                    shape_in_order(sh) && lw->policy->tiles == TILES_OF_CPU && !lw->elements &&
                    lw->policy->has_scratch;
    V side;
    struct kir_loop *unit = open_units(lw, &s.x, together ? 1 : s.sides, &side);
    s.a = s.x;
    s.a.flip = flip;
    RETURN_IF_ERR(together ? all_sides(lw, &s) : one_side(lw, &s, side));
    kir_end(&lw->k, unit, NULL);
    return ST_OK;
}
