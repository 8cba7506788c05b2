// SPDX-License-Identifier: Apache-2.0
// JAX's calls of LAPACK, for which HLO has operations, as those (compiler/ops/linalg/lapack.h).
// potrf also gives a number a matrix: 0, or something else where it was not positive definite; then
// cholesky gives NaN everywhere, which the first element shows.
#include "compiler/ops/linalg/lapack.h"

#include "compiler/passes/pass.h"

static struct hlo_instr *info_of(struct hb *b, hv r, const struct shape *s) {
    int64_t dims[HLO_MAX_RANK];
    struct range cut[HLO_MAX_RANK];
    hv zero = hb_broadcast(b, hb_const_i64(b, DT_S32, 0), s->dims, s->rank, NULL),
       one = hb_broadcast(b, hb_const_i64(b, DT_S32, 1), s->dims, s->rank, NULL);
    int rank = r->shape->rank;
    if (r->shape->dims[rank - 1] == 0) return zero;
    for (int d = 0; d < rank; d++) {
        dims[d] = d < rank - 2 ? s->dims[d] : 1;
        cut[d] = (struct range){0, dims[d], 1};
    }
    hv first = hb_reshape(b, hb_slice(b, r, cut), dims, rank - 2);
    if (dtype_is_complex(first->shape->dtype)) {
        enum dtype part = first->shape->dtype == DT_C64 ? DT_F32 : DT_F64;
        const struct shape *real = shape_with_dtype(b->c->module->arena, first->shape, part);
        first = hb_op(b, HLO_REAL, real, &first, 1, NULL);
    }
    return hb_select(b, hb_compare(b, first, first, CMP_NE), one, zero);
}
static struct hlo_instr *rewrite(struct hb *b, struct hlo_instr *i,
                                 UNUSED const struct pass_ctx *p) {
    struct lapack_call c;
    if (!lapack_read(i, &c) || (c.kind != LAPACK_TRSM && c.kind != LAPACK_POTRF)) return NULL;
    if (c.kind == LAPACK_TRSM)
        return hb_op(b, HLO_TRIANGULAR_SOLVE, i->shape, i->operands, 2, &c.trisolve);
    hv r = hb_op(b, HLO_CHOLESKY, i->shape->elems[0], i->operands, 1, &c.cholesky);
    return hb_tuple(b, (hv[]){r, info_of(b, r, i->shape->elems[1])}, 2);
}
status_t pass_lapack(struct hlo_module *m, struct pass_ctx *p) {
    return pass_rewrite(m, p, rewrite);
}
