// SPDX-License-Identifier: Apache-2.0
#include "compiler/ops/linalg/csr.h"

#include "base/str.h"

static bool is_vector(const struct shape *s) {
    return !shape_is_tuple(s) && s->rank == 1;
}
bool csr_is(const struct hlo_instr *i) {
    if (i->op != HLO_CUSTOM_CALL || i->n_operands != 4 || shape_is_tuple(i->shape) ||
        !str_is(HLO_ATTR(i, custom)->custom_call_target, "cpu_csr_sparse_dense_ffi"))
        return false;
    const struct shape *s[4], *r = i->shape;
    for (int k = 0; k < 4; k++)
        s[k] = i->operands[k]->shape;
    for (int k = 0; k < 3; k++)
        if (!is_vector(s[k]) || (k != CSR_DATA && !dtype_is_int(s[k]->dtype))) return false;
    const struct shape *x = s[CSR_DENSE];
    enum dtype t = s[CSR_DATA]->dtype;
    return !shape_is_tuple(x) && (x->rank == 1 || x->rank == 2) && r->rank == x->rank &&
           x->dtype == t && r->dtype == t && t != DT_PRED &&
           s[CSR_COLUMN]->dims[0] == s[CSR_DATA]->dims[0] &&
           s[CSR_FIRST]->dims[0] == r->dims[0] + 1 && (x->rank == 1 || x->dims[1] == r->dims[1]);
}
static int64_t index_at(const struct literal *l, int64_t k) {
    int64_t v = lit_get_i64(l, k);
    return v < 0 && dtype_class(l->shape->dtype) == DC_UNSIGNED ? INT64_MAX : v;
}
void csr_run(struct literal *const *in, struct literal *out) {
    const struct shape *r = out->shape, *x = in[CSR_DENSE]->shape;
    int64_t n = in[CSR_DATA]->shape->dims[0], m = r->rank == 2 ? r->dims[1] : 1;
    bool whole = dtype_is_int(r->dtype);
    for (int64_t row = 0; row < r->dims[0]; row++) {
        int64_t from = index_at(in[CSR_FIRST], row), to = index_at(in[CSR_FIRST], row + 1);
        for (int64_t p = from < 0 ? 0 : from; p < to && p < n; p++) {
            int64_t k = index_at(in[CSR_COLUMN], p);
            for (int64_t c = 0; c < m && k >= 0 && k < x->dims[0]; c++) {
                int64_t at = row * m + c;
                double v[2], d[2], sum[2];
                if (whole) {
                    uint64_t y = (uint64_t)lit_get_i64(in[CSR_DATA], p) *
                                 (uint64_t)lit_get_i64(in[CSR_DENSE], k * m + c);
                    lit_set_i64(out, at, (int64_t)((uint64_t)lit_get_i64(out, at) + y));
                    continue;
                }
                lit_get_c128(in[CSR_DATA], p, v);
                lit_get_c128(in[CSR_DENSE], k * m + c, d);
                lit_get_c128(out, at, sum);
                lit_set_c128(out, at, v[0] * d[0] - v[1] * d[1], v[0] * d[1] + v[1] * d[0]);
                lit_get_c128(out, at, d); // rounded
                lit_set_c128(out, at, sum[0] + d[0], sum[1] + d[1]);
            }
        }
    }
}
