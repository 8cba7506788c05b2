// SPDX-License-Identifier: Apache-2.0
// The binary forms: portable bytecode, and what jax.export serializes, which has one within.
#include <string.h>

#include "compiler/frontend/mlir/mlir_bytecode.h"
#include "compiler/frontend/stablehlo/jax_export.h"
#include "compiler/frontend/stablehlo/stablehlo.h"

bool stablehlo_bytecode_sniff(struct span head) {
    return head.n >= 4 && memcmp(head.p,
                                 "ML\xef"
                                 "R",
                                 4) == 0;
}
status_t stablehlo_bytecode_ingest(struct arena *a, struct span source,
                                   const struct frontend_limits *limits,
                                   struct ingest_result *out) {
    struct mlir_module m;
    struct mlir_limits l = stablehlo_limits(limits);
    RETURN_IF_ERR(mlir_read_bytecode(a, source, &l, &m));
    return stablehlo_ingest_tree(a, &m, source, "stablehlo-bytecode", limits, out);
}
status_t stablehlo_bytecode_lower(const struct lower_request *req, struct hlo_module **out) {
    return stablehlo_text_lower(req, out);
}

// ---- jax.export

// An export for several platforms asks for the platform's number first. It becomes a constant: the
// CPU's, or the first one, since what other platforms are given may be calls of their libraries.
static void fix_platform(struct arena *a, const struct jax_export *x, struct mlir_func *f) {
    const struct mlir_attr *attrs = f->arg_attrs && f->body.n_args ? f->arg_attrs[0] : NULL;
    const struct mlir_attr *is = mlir_dict_attr(attrs, "jax.global_constant");
    const struct mlir_type *t = f->body.n_args ? f->values.v[f->body.args] : NULL;
    if (!is || !str_is(is->s, "_platform_index") || t->kind != MLIR_TENSOR || t->rank ||
        (t->dtype != DT_S32 && t->dtype != DT_S64))
        return;
    int64_t at = 0;
    for (int32_t k = 0; k < x->n_platforms; k++)
        if (str_is(x->platforms[k], "cpu")) at = k;

    struct mlir_attr *value = arena_new_of(a, struct mlir_attr);
    *value = (struct mlir_attr){.kind = MLIR_A_DENSE,
                                .type = t,
                                .weight = -1,
                                .bytes = {arena_dup(a, &at, sizeof at), dtype_size(t->dtype)}};
    struct mlir_op *op = arena_new_of(a, struct mlir_op);
    *op = (struct mlir_op){
        .name = STR("stablehlo.constant"), .n_results = 1, .result = f->body.args, .at = f->at};
    avec_push(a, &op->attrs, ((struct mlir_named){STR("value"), value}));
    avec_push(a, &f->body.ops, op);
    memmove(f->body.ops.v + 1, f->body.ops.v, (f->body.ops.n - 1) * sizeof *f->body.ops.v);
    f->body.ops.v[0] = op;
    f->body.args++;
    f->body.n_args--;
    f->arg_attrs++;
}
static const struct mlir_attr *string(struct arena *a, struct str s) {
    struct mlir_attr *t = arena_new_of(a, struct mlir_attr);
    *t = (struct mlir_attr){.kind = MLIR_A_STRING, .s = s, .weight = -1};
    return t;
}
// The dimensions' names without their blanks: "2*b+1"; known sizes have none.
static const struct mlir_attr *dims_of(struct arena *a, const struct jax_value *v) {
    struct mlir_attr *t = arena_new_of(a, struct mlir_attr);
    *t = (struct mlir_attr){.kind = MLIR_A_ARRAY, .n = v->rank, .weight = -1};
    t->list = arena_zarray(a, const struct mlir_attr *, v->rank + 1);
    for (int32_t d = 0; d < v->rank; d++) {
        char *name = arena_strndup(a, v->dims[d].p, v->dims[d].n);
        size_t n = 0;
        for (size_t k = 0; k < v->dims[d].n; k++)
            if (name[k] > ' ' && name[k] <= '~' && name[k] != '=') name[n++] = name[k];
        bool number = n && name[0] >= '0' && name[0] <= '9' && strspn(name, "0123456789") >= n;
        t->list[d] = string(a, (struct str){name, number ? 0 : n});
    }
    return t;
}
// Adds to a dictionary what the export's tables say of a value.
static const struct mlir_attr *described(struct arena *a, const struct mlir_attr *dict,
                                         const struct jax_value *v, bool dims) {
    struct mlir_attr *t = arena_new_of(a, struct mlir_attr);
    int32_t n = dict ? dict->n : 0;
    *t = (struct mlir_attr){.kind = MLIR_A_DICT, .weight = -1};
    t->dict = arena_zarray(a, struct mlir_named, n + 2);
    for (int32_t k = 0; k < n; k++)
        if (!str_is(dict->dict[k].name, STABLEHLO_NAME) &&
            !str_is(dict->dict[k].name, STABLEHLO_DIMS))
            t->dict[t->n++] = dict->dict[k];
    if (*v->name)
        t->dict[t->n++] = (struct mlir_named){STR(STABLEHLO_NAME), string(a, str_of(v->name))};
    if (dims) t->dict[t->n++] = (struct mlir_named){STR(STABLEHLO_DIMS), dims_of(a, v)};
    mlir_sort_named(t->dict, (size_t)t->n);
    return t->n ? t : NULL;
}
static void describe(struct arena *a, const struct jax_export *x, struct mlir_func *f) {
    const struct mlir_attr **in = arena_zarray(a, const struct mlir_attr *, f->body.n_args + 1);
    const struct mlir_attr **out = arena_zarray(a, const struct mlir_attr *, f->n_results + 1);
    bool all = f->body.n_args == x->n_kept; // else there are tokens, which nobody can send
    for (int k = 0; all && k < f->body.n_args; k++) {
        const struct mlir_type *t = f->values.v[f->body.args + (uint32_t)k];
        bool open = false;
        for (int32_t d = 0; t->kind == MLIR_TENSOR && d < t->rank; d++)
            open |= t->dims[d] < 0;
        in[k] = described(a, f->arg_attrs ? f->arg_attrs[k] : NULL, &x->in.v[x->kept[k]], open);
    }
    for (int k = 0; k < f->n_results && f->n_results == x->out.n; k++)
        out[k] = described(a, f->result_attrs ? f->result_attrs[k] : NULL, &x->out.v[k], false);
    if (all) f->arg_attrs = in;
    if (f->n_results == x->out.n) f->result_attrs = out;
}
status_t jax_export_ingest(struct arena *a, struct span source,
                           const struct frontend_limits *limits, struct ingest_result *out) {
    struct jax_export x;
    struct mlir_module m;
    struct mlir_limits l = stablehlo_limits(limits);
    const struct mlir_func *entry;
    RETURN_IF_ERR(jax_export_read(a, source, &x));
    RETURN_IF_ERR(st_note(mlir_read_bytecode(a, x.module, &l, &m), "the export's module"));
    RETURN_IF_ERR(stablehlo_entry(&m, &entry));
    for (size_t k = 0; k < m.funcs.n; k++)
        if (m.funcs.v[k] == entry) {
            fix_platform(a, &x, m.funcs.v[k]);
            describe(a, &x, m.funcs.v[k]);
        }
    return stablehlo_ingest_tree(a, &m, source, "jax-export", limits, out);
}
status_t jax_export_lower(const struct lower_request *req, struct hlo_module **out) {
    return stablehlo_text_lower(req, out);
}
