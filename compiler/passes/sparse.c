// SPDX-License-Identifier: Apache-2.0
// JAX's calls of products of compressed sparse rows (compiler/ops/linalg/csr.h) as a scatter of
// ones at the rows' first elements, whose running sum says each element's row, a gather of the
// dense operand's rows, a product and a sum by rows.
#include "compiler/ops/linalg/csr.h"

#include "compiler/passes/pass.h"

// Adds updates[n] or [n, m] to rows of x, which are places[n, 1]; those out of range are left out.
static hv add_rows(struct hb *b, hv x, hv places, hv updates) {
    int64_t zero = 0, window = 1;
    bool matrix = updates->shape->rank == 2;
    struct hlo_attr_scatter s = {.update_window_dims = {&window, matrix},
                                 .inserted_window_dims = {&zero, 1},
                                 .scatter_dims_to_operand_dims = {&zero, 1},
                                 .index_vector_dim = 1};
    struct hlo_computation *f = hb_reducer_for(b, HLO_ADD, x->shape->dtype);
    return hb_call(b, HLO_SCATTER, NULL, (hv[]){x, places, updates}, 3, &s, &f, 1);
}
static hv column_of(struct hb *b, hv v) {
    return hb_reshape(b, v, (int64_t[]){v->shape->dims[0], 1}, 2);
}
static hv not_negative(struct hb *b, hv x) {
    return dtype_class(x->shape->dtype) == DC_SIGNED ? hb_max(b, x, hb_splat(b, x->shape, 0)) : x;
}
// row, or -1 where the column is not one of n: a gather would take the nearest.
static hv in_columns(struct hb *b, hv row, hv column, int64_t n) {
    if (dtype_bits(column->shape->dtype) < 32) column = hb_convert(b, column, DT_S32);
    hv near = not_negative(b, column);
    if ((double)(n - 1) < dtype_highest(column->shape->dtype))
        near = hb_min(b, near, hb_splat(b, column->shape, (double)(n - 1)));
    return hb_select(b, hb_compare(b, near, column, CMP_EQ), row, hb_splat(b, row->shape, -1));
}
// For each of n elements its row, counted from 1; 0 before the first row's.
static hv rows_of(struct hb *b, hv first, int64_t n) {
    struct arena *a = b->c->module->arena;
    struct window_dim w = {n, 1, n - 1, 0, 1, 1, false};
    const struct shape *s = shape_make(a, DT_S32, &n, 1),
                       *each = shape_with_dtype(a, first->shape, DT_S32);
    first = not_negative(b, first);
    hv begins = add_rows(b, hb_splat(b, s, 0), column_of(b, first), hb_splat(b, each, 1));
    return hb_reduce_window(b, begins, hb_const_i64(b, DT_S32, 0), &(struct window){&w, 1},
                            HLO_ADD);
}
static hv dense_rows(struct hb *b, hv dense, hv column) {
    int64_t zero = 0, window = 1, sizes[2] = {1, 0};
    bool matrix = dense->shape->rank == 2;
    if (matrix) sizes[1] = dense->shape->dims[1];
    struct hlo_attr_gather g = {.offset_dims = {&window, matrix},
                                .collapsed_slice_dims = {&zero, 1},
                                .start_index_map = {&zero, 1},
                                .index_vector_dim = 1,
                                .slice_sizes = {sizes, 1 + matrix}};
    return hb_gather(b, dense, column_of(b, column), &g);
}
static struct hlo_instr *rewrite(struct hb *b, struct hlo_instr *i,
                                 UNUSED const struct pass_ctx *p) {
    if (!csr_is(i)) return NULL;
    hv data = i->operands[CSR_DATA], dense = i->operands[CSR_DENSE];
    int64_t n = data->shape->dims[0], zero = 0;
    hv none = hb_splat(b, i->shape, 0);
    if (n == 0 || dense->shape->dims[0] == 0 || shape_elements(i->shape) == 0) return none;

    hv row = rows_of(b, i->operands[CSR_FIRST], n);
    row = hb_sub(b, row, hb_splat(b, row->shape, 1));
    row = in_columns(b, row, i->operands[CSR_COLUMN], dense->shape->dims[0]);
    hv rows = dense_rows(b, dense, i->operands[CSR_COLUMN]);
    data = hb_broadcast(b, data, rows->shape->dims, rows->shape->rank, &zero);
    return add_rows(b, none, column_of(b, row), hb_mul(b, data, rows));
}
status_t pass_sparse(struct hlo_module *m, struct pass_ctx *p) {
    return pass_rewrite(m, p, rewrite);
}
