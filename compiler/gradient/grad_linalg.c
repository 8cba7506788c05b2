// SPDX-License-Identifier: Apache-2.0
// Rules of cholesky, triangular-solve and fft. Giles, "Collected matrix derivative results for
// forward and reverse mode algorithmic differentiation" (2008), with only the triangle that HLO
// reads as the operand.
#include "compiler/gradient/tape.h"

static hv swapped(struct tape *t, hv x) {
    int64_t perm[HLO_MAX_RANK];
    int rank = x->shape->rank;
    for (int k = 0; k < rank; k++)
        perm[k] = k;
    perm[rank - 1] = rank - 2, perm[rank - 2] = rank - 1;
    return hb_transpose(t->b, x, perm);
}
static hv product(struct tape *t, hv x, hv y) { // of matrices in the last two dimensions
    int64_t batch[HLO_MAX_RANK], rank = x->shape->rank, p = rank - 1, q = rank - 2;
    for (int k = 0; k < rank; k++)
        batch[k] = k;
    struct hlo_attr_dot a = {.lhs_batch_dims = {batch, (int32_t)rank - 2},
                             .rhs_batch_dims = {batch, (int32_t)rank - 2},
                             .lhs_contracting_dims = {&p, 1},
                             .rhs_contracting_dims = {&q, 1}};
    return hb_dot(t->b, x, y, &a);
}
// Where row - column compares so with 0.
static hv triangle(struct tape *t, hv x, enum cmp_direction dir) {
    const struct shape *s = shape_make(t->a, DT_S32, x->shape->dims, x->shape->rank);
    hv row = hb_iota(t->b, s, s->rank - 2), column = hb_iota(t->b, s, s->rank - 1);
    return hb_compare(t->b, row, column, dir);
}
static hv solve(struct tape *t, hv a, hv x, const struct hlo_attr_trisolve *how) {
    hv in[2] = {a, x};
    return hb_op(t->b, HLO_TRIANGULAR_SOLVE, NULL, in, 2, how);
}

// With L: S = L^-T P(L^T dL) L^-1, P the lower triangle with half the diagonal; an element of the
// triangle below the diagonal stands for two of the matrix.
void grad_cholesky(struct tape *t, hv i, hv const *d) {
    struct hb *b = t->b;
    hv x = i->operands[0];
    bool lower = HLO_ATTR(i, cholesky)->lower;
    if (dtype_is_complex(x->shape->dtype))
        return tape_refuse(t, i, "of complex numbers is not supported");
    hv l = lower ? i : swapped(t, i), by = lower ? d[0] : swapped(t, d[0]);
    l = tape_where(t, triangle(t, l, CMP_GE), l);
    by = tape_where(t, triangle(t, by, CMP_GE), by);
    hv p = product(t, swapped(t, l), by);
    p = hb_select(b, triangle(t, p, CMP_EQ), tape_mul_k(t, p, 0.5),
                  tape_where(t, triangle(t, p, CMP_GT), p));
    struct hlo_attr_trisolve left = {.left_side = true,
                                     .lower = true,
                                     .transpose_a = TRI_TRANSPOSE},
                             right = {.lower = true, .transpose_a = TRI_NO_TRANSPOSE};
    hv s = solve(t, l, solve(t, l, p, &left), &right);
    hv both = hb_add(b, s, swapped(t, s));
    hv r = hb_select(b, triangle(t, s, CMP_EQ), s, tape_where(t, triangle(t, s, CMP_GT), both));
    tape_give(t, x, lower ? r : swapped(t, r));
}

// With X = A^-1 B: dB is the solution of the transposed system, dA = -dB X^T within the triangle.
void grad_triangular_solve(struct tape *t, hv i, hv const *d) {
    struct hlo_attr_trisolve how = *HLO_ATTR(i, trisolve);
    hv a = i->operands[0];
    bool trans = how.transpose_a != TRI_NO_TRANSPOSE;
    if (how.transpose_a == TRI_ADJOINT && dtype_is_complex(a->shape->dtype))
        return tape_refuse(t, i, "of an adjoint of complex numbers is not supported");
    how.transpose_a = trans ? TRI_NO_TRANSPOSE : TRI_TRANSPOSE;
    hv by = solve(t, a, d[0], &how);
    tape_give(t, i->operands[1], by);
    if (!tape_wants(t, a) || !hb_ok(t->b)) return;
    hv x = swapped(t, i), da = how.left_side ? product(t, by, x) : product(t, x, by);
    if (trans) da = swapped(t, da);
    enum cmp_direction dir =
        how.unit_diagonal ? (how.lower ? CMP_GT : CMP_LT) : (how.lower ? CMP_GE : CMP_LE);
    tape_give(t, a, tape_neg(t, tape_where(t, triangle(t, da, dir), da)));
}

// ---- fft

static hv transform(struct tape *t, hv x, const struct shape *s, enum fft_type type,
                    struct i64s length) {
    struct hlo_attr_fft a = {.fft_type = type, .fft_length = length};
    return hb_op(t->b, HLO_FFT, s, &x, 1, &a);
}
// Of a real transform: the other half of the spectrum was not asked for.
static void by_rfft(struct tape *t, hv i, hv d) {
    struct i64s n = HLO_ATTR(i, fft)->fft_length;
    int last = d->shape->rank - 1;
    struct pad_dim p[HLO_MAX_RANK] = {{0, 0, 0}};
    p[last].high = n.v[n.n - 1] - d->shape->dims[last];
    hv whole = hb_pad(t->b, d, hb_const_f64(t->b, d->shape->dtype, 0), p);
    tape_give(t, i->operands[0], hb_unary(t->b, HLO_REAL, transform(t, whole, NULL, FFT_FFT, n)));
}
// Of its inverse: each frequency but the first and, of an even number, the last stands for two.
static void by_irfft(struct tape *t, hv i, hv d) {
    struct hb *b = t->b;
    struct i64s n = HLO_ATTR(i, fft)->fft_length;
    hv x = i->operands[0];
    int64_t last = x->shape->rank - 1, half = x->shape->dims[last], all = 1;
    for (int k = 0; k < n.n; k++)
        all *= n.v[k];
    struct literal *l = lit_new(t->a, shape_make(t->a, x->shape->dtype, &half, 1));
    for (int64_t k = 0; k < half; k++) {
        bool single = k == 0 || (n.v[n.n - 1] % 2 == 0 && k == half - 1);
        lit_set_c128(l, k, (single ? 1.0 : 2.0) / (double)(all ? all : 1), 0);
    }
    hv factor = hb_broadcast(b, hb_constant(b, l), x->shape->dims, x->shape->rank, &last);
    hv r = hb_mul(b, transform(t, d, NULL, FFT_RFFT, n), factor);
    hv im = tape_neg(t, hb_unary(b, HLO_IMAG, r));
    tape_give(t, x, hb_binary(b, HLO_COMPLEX, hb_unary(b, HLO_REAL, r), im));
}
void grad_fft(struct tape *t, hv i, hv const *d) {
    const struct hlo_attr_fft *a = HLO_ATTR(i, fft);
    if (!shape_elements(i->shape)) return;
    if (a->fft_type == FFT_RFFT)
        by_rfft(t, i, d[0]);
    else if (a->fft_type == FFT_IRFFT)
        by_irfft(t, i, d[0]);
    else
        tape_give(t, i->operands[0],
                  transform(t, d[0], NULL, a->fft_type, a->fft_length)); // symmetric matrices
}
