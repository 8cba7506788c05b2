// SPDX-License-Identifier: Apache-2.0
// Functions called by name, composites, and operations between devices.
#include <string.h>

#include "compiler/frontend/stablehlo/stablehlo_lower.h"

status_t shl_call(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    return shl_inline_call(l, shl_word(op, "callee"), in, op->n_operands, out, op->n_results);
}
// By its name where the operation is one of the table, else by its decomposition.
status_t shl_composite(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    struct str name = shl_word(op, "name");
    const struct mlir_attr *attrs = mlir_op_attr(op, "composite_attributes");
    const struct shl_row *row = str_starts(name, "chlo.") ? shl_row_of(name) : NULL;
    if (!row)
        return shl_inline_call(l, shl_word(op, "decomposition"), in, op->n_operands, out,
                               op->n_results);
    struct mlir_op as = *op;
    as.name = name;
    as.attrs.n = 0;
    as.attrs.v = NULL;
    as.attrs.cap = 0;
    for (int32_t k = 0; attrs && attrs->kind == MLIR_A_DICT && k < attrs->n; k++)
        avec_push(l->a, &as.attrs, attrs->dict[k]);
    return shl_run(l, row, &as, in, out);
}

// ---- between devices

status_t shl_matrix(struct shl *l, const struct mlir_attr *t, const char *name, struct i64s *out) {
    if (!t || t->kind != MLIR_A_DENSE || t->type->rank != 2 || t->weight >= 0 ||
        t->type->dtype != DT_S64)
        return st_invalid("attribute '%s' must be a matrix of integers", name);
    int64_t n = mlir_type_elements(t->type), held = (int64_t)t->bytes.n / 8;
    if (n < 0 || n > INT32_MAX || (n && held < (t->splat ? 1 : n)))
        return st_invalid("attribute '%s' has too few elements", name);
    *out = (struct i64s){arena_zarray(l->a, int64_t, n + 1), (int32_t)n};
    for (int64_t k = 0; k < n; k++)
        memcpy(&out->v[k], t->bytes.p + (t->splat ? 0 : (size_t)k * 8), 8);
    return ST_OK;
}
static status_t groups_text(struct shl *l, const struct mlir_op *op, const char *name,
                            struct strbuf *b) {
    const struct mlir_attr *t = mlir_op_attr(op, name);
    struct i64s v;
    RETURN_IF_ERR(shl_matrix(l, t, name, &v));
    int64_t rows = t->type->dims[0], columns = t->type->dims[1];
    strbuf_putc(b, '{');
    for (int64_t r = 0; r < rows; r++) {
        bool first = true;
        strbuf_puts(b, r ? ",{" : "{");
        for (int64_t c = 0; c < columns; c++) {
            int64_t x = v.v[r * columns + c];
            if (x < 0) continue; // a group that is shorter than the others
            if (!first) strbuf_putc(b, ',');
            strbuf_i64(b, x);
            first = false;
        }
        strbuf_putc(b, '}');
    }
    strbuf_putc(b, '}');
    return ST_OK;
}
static status_t pairs_text(struct shl *l, const struct mlir_op *op, struct strbuf *b) {
    struct i64s v;
    RETURN_IF_ERR(shl_ints(l, op, "source_target_pairs", -1, 0, &v));
    if (v.n % 2) return st_invalid("attribute 'source_target_pairs' must be pairs");
    strbuf_putc(b, '{');
    for (int32_t k = 0; k < v.n; k += 2)
        strbuf_printf(b, "%s{%lld,%lld}", k ? "," : "", (long long)v.v[k], (long long)v.v[k + 1]);
    strbuf_putc(b, '}');
    return ST_OK;
}
status_t shl_collective(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    enum hlo_op hlo = shl_row_of(op->name)->hlo;
    bool permute = hlo == HLO_COLLECTIVE_PERMUTE, region = op->n_regions > 0;
    int64_t dim = shl_int(op, "all_gather_dim",
                          shl_int(op, "scatter_dimension", shl_int(op, "split_dimension", -1)));
    struct hlo_attr_collective a = {.channel_id = shl_int(op, "channel_id", 0),
                                    .use_global_device_ids = shl_flag(op, "use_global_device_ids")};
    struct hlo_computation *f = NULL;
    struct strbuf b = {0};
    if (l->process) return st_unimplemented("in a region or a call of a program of run_parallel");
    if (dim >= 0) a.dimensions = (struct i64s){&dim, 1};
    if (region) RETURN_IF_ERR(shl_scalar_region(l, op, 0, &f));
    const char *name = permute ? "source_target_pairs" : "replica_groups";
    status_t st = permute ? pairs_text(l, op, &b) : groups_text(l, op, name, &b);
    if (!st)
        st = shl_emit(l, op, hlo, in, op->n_operands, &a, region ? &f : NULL, region ? 1 : 0, out);
    hv i = l->b.c->last;
    while (i && i->op != hlo)
        i = i->prev;
    if (!st && i && b.n) hlo_set_extra(i, name, strbuf_cstr(&b));
    strbuf_done(&b);
    return st;
}
// partition_id, replica_id.
status_t shl_device_id(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    if (!l->process) return shl_each(l, op, in, out);
    bool replica = shl_row_of(op->name)->hlo == HLO_REPLICA_ID;
    *out = hb_const_i64(&l->b, DT_U32, replica ? l->process->replica : l->process->partition);
    return ST_OK;
}
