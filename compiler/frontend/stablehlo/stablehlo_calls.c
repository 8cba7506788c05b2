// SPDX-License-Identifier: Apache-2.0
// Functions called by name, composites, custom calls, and operations between devices.
#include <string.h>

#include "compiler/frontend/stablehlo/stablehlo_lower.h"
#include "proto/hlod.pb-c.h"

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

// ---- custom calls

// Calls that say something of the one value they give back, or of where it lies.
static bool gives_operand(struct str target) {
    static const char *const names[] = {
        "Sharding",   "SPMDFullToShardShape", "SPMDShardToFullShape", "annotate_device_placement",
        "MoveToHost", "MoveToDevice",         "LayoutConstraint",     "xla.sdy.FuncResultSharding"};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        if (str_is(target, names[k])) return true;
    return false;
}
// Operations that a dialect keeps as calls of their name: "mhlo.topk" with mhlo.attributes.
static const struct shl_row *kept_operation(struct str target) {
    static const char *const names[][2] = {
        {"mhlo.topk", "chlo.top_k"}, {"mhlo.erf", "chlo.erf"},     {"mhlo.asin", "chlo.asin"},
        {"mhlo.acos", "chlo.acos"},  {"mhlo.sinh", "chlo.sinh"},   {"mhlo.cosh", "chlo.cosh"},
        {"mhlo.tan", "tan"},         {"mhlo.asinh", "chlo.asinh"}, {"mhlo.acosh", "chlo.acosh"},
        {"mhlo.atanh", "chlo.atanh"}};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        if (str_is(target, names[k][0])) return shl_row_of(str_of(names[k][1]));
    return NULL;
}
// A condition on dimensions: true, or the request is refused with the message, whose {0}, {1}, ...
// are the other operands.
static status_t shape_assertion(struct shl *l, const struct mlir_op *op, hv const *in) {
    const struct mlir_attr *t = mlir_op_attr(op, "error_message");
    struct literal *ok = op->n_operands ? shl_known(l, in[0]) : NULL;
    struct strbuf b = {0};
    if (!ok) return st_unimplemented("shape_assertion of what only a run knows");
    if (lit_get_i64(ok, 0)) return ST_OK;
    struct str s = t && t->kind == MLIR_A_STRING ? t->s : str_of("a shape assertion fails");
    for (size_t k = 0; k < s.n; k++) {
        int at = k + 2 < s.n && s.p[k] == '{' && s.p[k + 2] == '}' ? s.p[k + 1] - '0' : -1;
        struct literal *v =
            at >= 0 && at + 1 < op->n_operands && at < 10 ? shl_known(l, in[at + 1]) : NULL;
        if (v) {
            strbuf_i64(&b, lit_get_i64(v, 0));
            k += 2;
        } else {
            strbuf_putc(&b, s.p[k]);
        }
    }
    status_t st = st_invalid("%s", strbuf_cstr(&b));
    strbuf_done(&b);
    return st;
}
// dynamic_top_k(x, k): k is known here.
static status_t dynamic_top_k(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    struct i64s k;
    if (op->n_operands != 2 || op->n_results != 2) return st_invalid("it takes x and k");
    RETURN_IF_ERR(shl_known_ints(l, op, 1, in[1], &k));
    if (k.n != 1) return st_invalid("k must be one number");
    hv r =
        hb_op(&l->b, HLO_TOPK, NULL, in, 1, &(struct hlo_attr_topk){.k = k.v[0], .largest = true});
    out[0] = hb_gte(&l->b, r, 0);
    out[1] = hb_gte(&l->b, r, 1);
    return ST_OK;
}
static void set_config(hv call, const struct mlir_attr *t) {
    struct strbuf b = {0};
    if (!t || (t->kind == MLIR_A_STRING && !t->s.n)) return;
    if (t->kind == MLIR_A_STRING)
        hlo_quote(&b, t->s);
    else
        mlir_print_attr(&b, t);
    hlo_set_extra(call, "backend_config", strbuf_cstr(&b));
    strbuf_done(&b);
}
static status_t as_kept(struct shl *l, const struct mlir_op *op, const struct shl_row *row,
                        hv const *in, hv *out) {
    struct mlir_op as = *op;
    const struct mlir_attr *attrs = mlir_op_attr(op, "mhlo.attributes");
    as.name = str_of(row->name);
    as.attrs.v = NULL;
    as.attrs.n = as.attrs.cap = 0;
    for (int32_t k = 0; attrs && attrs->kind == MLIR_A_DICT && k < attrs->n; k++)
        avec_push(l->a, &as.attrs, attrs->dict[k]);
    return shl_run(l, row, &as, in, out);
}
status_t shl_custom_call(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    struct str target = shl_word(op, "call_target_name");
    const struct shl_row *row = kept_operation(target);
    if (!target.n) return st_invalid("attribute 'call_target_name' is missing");
    if (row) return as_kept(l, op, row, in, out);
    if (str_is(target, "shape_assertion")) return shape_assertion(l, op, in);
    if (str_is(target, "stablehlo.dynamic_top_k")) return dynamic_top_k(l, op, in, out);
    if (gives_operand(target) && op->n_operands == 1 && op->n_results == 1) {
        out[0] = in[0];
        return ST_OK;
    }

    struct hlo_attr_custom a = {
        .custom_call_target = {arena_strndup(l->a, target.p, target.n), target.n},
        .custom_call_has_side_effect = shl_flag(op, "has_side_effect")};
    int64_t version = shl_int(op, "api_version", 1);
    if (version >= 0 && version <= CUSTOM_TYPED_FFI) a.api_version = (enum custom_api)version;
    if (version == 1) a.api_version = CUSTOM_UNSPECIFIED;
    const struct mlir_attr *config = mlir_op_attr(op, "backend_config");
    if (!config) config = mlir_op_attr(op, "mhlo.backend_config");
    for (int k = 0; k < op->n_results; k++)
        if (!shl_shape(l->a, shl_result_type(l, op, k)))
            return st_unimplemented("a custom call of @%.*s with a dynamic shape", (int)target.n,
                                    target.p);
    hv unused, *to = op->n_results ? out : &unused;
    RETURN_IF_ERR(shl_emit(l, op, HLO_CUSTOM_CALL, in, op->n_operands, &a, NULL, 0, to));
    if (!hb_ok(&l->b)) return ST_OK;
    hv call = op->n_results == 1 ? out[0] : l->b.c->last;
    while (call && call->op != HLO_CUSTOM_CALL)
        call = call->prev;
    if (call) set_config(call, config);
    return ST_OK;
}

// ---- between devices

static status_t groups_text(const struct mlir_op *op, const char *name, struct strbuf *b) {
    const struct mlir_attr *t = mlir_op_attr(op, name);
    if (!t || t->kind != MLIR_A_DENSE || t->type->rank != 2 || t->weight >= 0 ||
        t->type->dtype != DT_S64)
        return st_invalid("attribute '%s' must be a matrix of integers", name);
    int64_t rows = t->type->dims[0], columns = t->type->dims[1];
    int64_t held = (int64_t)t->bytes.n / 8;
    if (mlir_type_elements(t->type) < 0 ||
        (rows && columns && held < (t->splat ? 1 : rows * columns)))
        return st_invalid("attribute '%s' has too few elements", name);
    strbuf_putc(b, '{');
    for (int64_t r = 0; r < rows; r++) {
        bool first = true;
        strbuf_puts(b, r ? ",{" : "{");
        for (int64_t c = 0; c < columns; c++) {
            int64_t v;
            memcpy(&v, t->bytes.p + (t->splat ? 0 : (size_t)(r * columns + c) * 8), 8);
            if (v < 0) continue; // a group that is shorter than the others
            if (!first) strbuf_putc(b, ',');
            strbuf_i64(b, v);
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
    if (dim >= 0) a.dimensions = (struct i64s){&dim, 1};
    if (region) RETURN_IF_ERR(shl_scalar_region(l, op, 0, &f));
    const char *name = permute ? "source_target_pairs" : "replica_groups";
    status_t st = permute ? pairs_text(l, op, &b) : groups_text(op, name, &b);
    if (!st)
        st = shl_emit(l, op, hlo, in, op->n_operands, &a, region ? &f : NULL, region ? 1 : 0, out);
    hv i = l->b.c->last;
    while (i && i->op != hlo)
        i = i->prev;
    if (!st && i && b.n) hlo_set_extra(i, name, strbuf_cstr(&b));
    strbuf_done(&b);
    return st;
}
