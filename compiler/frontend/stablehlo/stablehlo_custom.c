// SPDX-License-Identifier: Apache-2.0
// Custom calls: operations that dialects keep as calls of their name, those with dimensions that
// operands give, and calls of libraries.
#include <string.h>

#include "compiler/eval.h"
#include "compiler/frontend/stablehlo/stablehlo_lower.h"

// A call with what decides shapes known: operands that say dimensions taken away.
struct call {
    const struct mlir_op *op;
    hv *in;
    int n;
    const struct shape **results; // [op->n_results]; NULL: dynamic
};
// Elements of operands [from, from + n), all known.
static status_t known(struct shl *l, const struct call *c, int from, int n, struct i64s *out) {
    for (int k = 0; k < n; k++)
        RETURN_IF_ERR(shl_known_ints(l, c->op, from + k, c->in[from + k], &out[k]));
    return ST_OK;
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
static status_t dynamic_top_k(struct shl *l, const struct call *c, hv *out) {
    struct i64s k;
    if (c->n != 2 || c->op->n_results != 2) return st_invalid("it takes x and k");
    RETURN_IF_ERR(known(l, c, 1, 1, &k));
    if (k.n != 1) return st_invalid("k must be one number");
    struct hlo_attr_topk a = {.k = k.v[0], .largest = true};
    hv r = hb_op(&l->b, HLO_TOPK, NULL, c->in, 1, &a);
    out[0] = hb_gte(&l->b, r, 0);
    out[1] = hb_gte(&l->b, r, 1);
    return ST_OK;
}
static status_t called_function(struct shl *l, const struct mlir_op *op,
                                struct hlo_computation **out) {
    const struct mlir_attr *called = mlir_op_attr(op, "called_computations");
    if (!called || called->kind != MLIR_A_ARRAY || called->n != 1 ||
        called->list[0]->kind != MLIR_A_SYMBOL)
        return st_invalid("attribute 'called_computations' must name one function");
    return shl_scalar_function(l, called->list[0]->s, out);
}
// dynamic_reduce_window(arrays, initial values, sizes, strides, base dilations, window dilations,
// padding)
static status_t dynamic_reduce_window(struct shl *l, const struct call *c, hv *out) {
    struct i64s v[5];
    int n = c->op->n_results, rank = c->n ? c->in[0]->shape->rank : 0;
    if (n < 1 || c->n != 2 * n + 5) return st_invalid("it has %d operands", c->n);
    RETURN_IF_ERR(known(l, c, 2 * n, 5, v));
    for (int k = 0; k < 5; k++)
        if (v[k].n != (k == 4 ? 2 * rank : rank)) return st_invalid("its window has another rank");
    struct hlo_attr_window a = {.window = {arena_zarray(l->a, struct window_dim, rank + 1), rank}};
    for (int d = 0; d < rank; d++)
        a.window.v[d] = (struct window_dim){v[0].v[d], v[1].v[d], v[4].v[2 * d], v[4].v[2 * d + 1],
                                            v[2].v[d], v[3].v[d], false};
    struct hlo_computation *f;
    RETURN_IF_ERR(called_function(l, c->op, &f));
    hv r = hb_call(&l->b, HLO_REDUCE_WINDOW, NULL, c->in, 2 * n, &a, &f, 1);
    for (int k = 0; k < n; k++)
        out[k] = n == 1 ? r : hb_gte(&l->b, r, k);
    return ST_OK;
}
// dynamic_rng_bit_generator(state, dimensions)
static status_t dynamic_rng_bits(struct shl *l, const struct call *c, hv *out) {
    struct i64s dims;
    if (c->n != 2 || c->op->n_results != 2) return st_invalid("it takes a state and dimensions");
    RETURN_IF_ERR(known(l, c, 1, 1, &dims));
    const struct shape *v[2] = {c->in[0]->shape, shl_result_shape(l, c->op, 1, dims.v, dims.n)};
    RETURN_IF_ERR(shape_check(v[1], l->hlo->max_bytes));
    struct hlo_attr_rngbits a = {.algorithm = shl_rng_algorithm(c->op)};
    hv r = hb_op(&l->b, HLO_RNG_BIT_GENERATOR, shape_tuple(l->a, v, 2), c->in, 1, &a);
    out[0] = hb_gte(&l->b, r, 0);
    out[1] = hb_gte(&l->b, r, 1);
    return ST_OK;
}
// ApproxTopK(arrays, initial values): the first of each along a dimension by the comparator, so
// many as the result has; dynamic_approx_top_k: as its last operand says. Computed exactly, as XLA
// does on a CPU.
static status_t approx_top_k(struct shl *l, const struct call *c, hv *out) {
    const struct mlir_attr *config = mlir_op_attr(c->op, "mhlo.backend_config");
    const struct mlir_attr *at =
        config && config->kind == MLIR_A_DICT ? mlir_dict_attr(config, "reduction_dim") : NULL;
    int n = c->op->n_results, rank = c->n ? c->in[0]->shape->rank : 0;
    if (n < 1 || c->n < 2 * n || c->n > 2 * n + 1 || !at || at->kind != MLIR_A_INT || at->i < 0 ||
        at->i >= rank)
        return st_invalid("its operands or attributes do not fit");
    int64_t dim = at->i, most = c->in[0]->shape->dims[dim];
    struct i64s k = {&(int64_t){-1}, 1};
    if (c->n > 2 * n)
        RETURN_IF_ERR(known(l, c, 2 * n, 1, &k));
    else if (c->results[0] && c->results[0]->rank == rank)
        k.v = &c->results[0]->dims[dim];
    if (k.n != 1 || k.v[0] < 0 || k.v[0] > most)
        return st_invalid("its result does not fit its operands");

    struct hlo_computation *f;
    RETURN_IF_ERR(called_function(l, c->op, &f));
    struct hlo_attr_sort a = {.dimensions = {&dim, 1}, .is_stable = true};
    hv sorted = hb_call(&l->b, HLO_SORT, NULL, c->in, n, &a, &f, 1);
    struct range r[HLO_MAX_RANK];
    for (int d = 0; d < rank; d++)
        r[d] = (struct range){0, d == dim ? k.v[0] : c->in[0]->shape->dims[d], 1};
    for (int i = 0; i < n; i++)
        out[i] = hb_slice(&l->b, n == 1 ? sorted : hb_gte(&l->b, sorted, i), r);
    return ST_OK;
}

// ---- calls

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
// indices_of_shape_operands: the operands that say each result's dimensions, behind the others.
static status_t call_of(struct shl *l, const struct mlir_op *op, hv const *in, struct call *c) {
    struct i64s at, dims;
    RETURN_IF_ERR(shl_ints(l, op, "indices_of_shape_operands", -1, 0, &at));
    *c = (struct call){op, arena_dup_array(l->a, in, op->n_operands), op->n_operands, NULL};
    c->results = arena_zarray(l->a, const struct shape *, op->n_results + 1);
    if (at.n && (at.n != op->n_results || at.n > c->n))
        return st_invalid("indices_of_shape_operands must have one for each result");
    for (int k = 0; k < op->n_results; k++)
        c->results[k] = shl_shape(l->a, shl_result_type(l, op, k));
    for (int k = 0; k < at.n; k++) {
        if (at.v[k] != c->n - at.n + k) return st_invalid("operands of shapes must be the last");
        RETURN_IF_ERR(known(l, c, (int)at.v[k], 1, &dims));
        c->results[k] = shl_result_shape(l, op, k, dims.v, dims.n);
        RETURN_IF_ERR(shape_check(c->results[k], l->hlo->max_bytes));
    }
    c->n -= at.n;
    return ST_OK;
}
static status_t library_call(struct shl *l, const struct call *c, struct str target, hv *out) {
    const struct mlir_op *op = c->op;
    struct hlo_attr_custom a = {
        .custom_call_target = {arena_strndup(l->a, target.p, target.n), target.n},
        .custom_call_has_side_effect = shl_flag(op, "has_side_effect")};
    int64_t version = shl_int(op, "api_version", 1);
    if (version >= 0 && version <= CUSTOM_TYPED_FFI) a.api_version = (enum custom_api)version;
    if (version == 1) a.api_version = CUSTOM_UNSPECIFIED;
    const struct mlir_attr *config = mlir_op_attr(op, "backend_config");
    if (!config) config = mlir_op_attr(op, "mhlo.backend_config");
    for (int k = 0; k < op->n_results; k++)
        if (!c->results[k])
            return st_unimplemented("a custom call of @%.*s with a dynamic shape", (int)target.n,
                                    target.p);

    const struct shape *s =
        op->n_results == 1 ? c->results[0] : shape_tuple(l->a, c->results, op->n_results);
    RETURN_IF_ERR(shape_check(s, l->hlo->max_bytes));
    hv call = hb_call(&l->b, HLO_CUSTOM_CALL, s, c->in, c->n, &a, NULL, 0);
    if (!hb_ok(&l->b)) return ST_OK;
    set_config(call, config);
    for (int k = 0; k < op->n_results; k++)
        out[k] = op->n_results == 1 ? call : hb_gte(&l->b, call, k);
    return ST_OK;
}
status_t shl_custom_call(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    static const struct {
        const char *target;
        status_t (*lower)(struct shl *l, const struct call *c, hv *out);
    } rows[] = {{"ApproxTopK", approx_top_k},
                {"stablehlo.dynamic_approx_top_k", approx_top_k},
                {"stablehlo.dynamic_reduce_window", dynamic_reduce_window},
                {"stablehlo.dynamic_rng_bit_generator", dynamic_rng_bits},
                {"stablehlo.dynamic_top_k", dynamic_top_k}};
    struct str target = shl_word(op, "call_target_name");
    const struct shl_row *row = kept_operation(target);
    struct call c;
    if (!target.n) return st_invalid("attribute 'call_target_name' is missing");
    if (row) return as_kept(l, op, row, in, out);
    if (str_is(target, "shape_assertion")) return shape_assertion(l, op, in);
    RETURN_IF_ERR(call_of(l, op, in, &c));
    if (hlo_eval_gives_operand(target) && c.n == 1 && op->n_results == 1) {
        out[0] = in[0];
        return ST_OK;
    }
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
        if (str_is(target, rows[k].target)) return rows[k].lower(l, &c, out);
    return library_call(l, &c, target, out);
}
