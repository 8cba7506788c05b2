// SPDX-License-Identifier: Apache-2.0
// Lowering of a program: dimensions bound, inputs and weights as parameters, the entry inlined.
#include <string.h>

#include "compiler/eval.h"
#include "compiler/frontend/hlo/hlo_ingest.h"
#include "compiler/frontend/mlir/mlir_text.h"
#include "compiler/frontend/stablehlo/stablehlo.h"
#include "compiler/frontend/stablehlo/stablehlo_lower.h"
#include "compiler/ir/text/text.h"

// ---- parameters

// The elements that a request brings for input k, as a constant; NULL: they are not all bound.
static struct literal *bound_value(struct shl *l, const struct lower_request *req, int k,
                                   const struct shape *s) {
    struct literal *lit = lit_new(l->a, s);
    for (int64_t e = 0; e < shape_elements(s); e++) {
        struct sig_dim one = {-1, arena_printf(l->a, "=%d[%lld]", k, (long long)e), 0, false};
        int64_t v;
        if (!frontend_bound(req, &one, &v)) return NULL;
        lit_set_i64(lit, e, v);
    }
    return lit;
}
static status_t add_inputs(struct shl *l, const struct lower_request *req,
                           const struct signature *sig, hv *args) {
    struct strbuf missing = {0};
    status_t st = ST_OK;
    for (int k = 0; !st && k < sig->n_in; k++) {
        const struct sig_tensor *t = &sig->in[k];
        int64_t dims[HLO_MAX_RANK];
        for (int d = 0; d < t->rank; d++) {
            dims[d] = t->dims[d].size;
            if (dims[d] >= 0 || frontend_bound(req, &t->dims[d], &dims[d])) continue;
            strbuf_printf(&missing, "%s%s", missing.n ? ", " : "", t->dims[d].symbol);
            dims[d] = 1;
        }
        const struct shape *s = shape_make(l->a, t->dtype, dims, t->rank);
        st = st_note(shape_check(s, l->hlo->max_bytes), "input '%s'", t->name);
        if (st) break;
        args[k] = hlo_add_param(l->b.c, k, s, t->name);
        struct literal *known = t->by_value ? bound_value(l, req, k, s) : NULL;
        if (known) args[k] = hb_constant(&l->b, known); // the parameter stays, unused
    }
    if (!st && missing.n) st = st_invalid("dimensions are not bound: %s", missing.p);
    strbuf_done(&missing);
    return st;
}
static status_t add_weight(struct shl *l, const struct mlir_attr *t, int64_t *number) {
    const struct shape *s = shl_shape(l->a, t->type);
    if (!s || t->weight >= l->n_weights) return st_invalid("weight %d is out of range", t->weight);
    RETURN_IF_ERR(shape_check(s, l->hlo->max_bytes));
    hv *w = &l->weights[t->weight];
    if (*w && !shape_compatible((*w)->shape, s))
        return st_invalid("weight %d has two shapes", t->weight);
    if (*w) return ST_OK;
    *w = hlo_add_param(l->b.c, (*number)++, s, arena_printf(l->a, "w%d", t->weight));
    (*w)->param_kind = PARAM_WEIGHT;
    (*w)->param_index = t->weight;
    return ST_OK;
}
// Calls fn of each weight of the region and those in it.
static status_t each_weight(struct shl *l, const struct mlir_region *r, int64_t *number,
                            int32_t *most) {
    for (size_t k = 0; k < r->ops.n; k++) {
        const struct mlir_op *op = r->ops.v[k];
        for (size_t i = 0; i < op->attrs.n; i++) {
            const struct mlir_attr *t = op->attrs.v[i].attr;
            if (t->kind != MLIR_A_DENSE || t->weight < 0) continue;
            if (t->weight >= *most) *most = t->weight + 1;
            if (number) RETURN_IF_ERR(add_weight(l, t, number));
        }
        for (int32_t i = 0; i < op->n_regions; i++)
            RETURN_IF_ERR(each_weight(l, &op->regions[i], number, most));
    }
    return ST_OK;
}
static status_t add_weights(struct shl *l, int64_t number) {
    enum { MAX_WEIGHTS = 1 << 20 };
    int32_t n = 0;
    for (size_t k = 0; k < l->m->funcs.n; k++)
        RETURN_IF_ERR(each_weight(l, &l->m->funcs.v[k]->body, NULL, &n));
    if (n > MAX_WEIGHTS) return st_invalid("weight %d is out of range", n - 1);
    l->weights = arena_zarray(l->a, hv, n + 1);
    l->n_weights = n;
    for (size_t k = 0; k < l->m->funcs.n; k++)
        RETURN_IF_ERR(each_weight(l, &l->m->funcs.v[k]->body, &number, &n));
    return ST_OK;
}

// ---- attributes of arguments

// Donated arguments, as HLO says it: input_output_alias of those that name a result, buffer_donor
// of the others.
static void put_donors(struct shl *l, const struct mlir_func *f) {
    struct strbuf alias = {0}, donor = {0};
    for (int k = 0; f->arg_attrs && k < f->body.n_args; k++) {
        const struct mlir_attr *to = mlir_dict_attr(f->arg_attrs[k], "tf.aliasing_output");
        const struct mlir_attr *gives = mlir_dict_attr(f->arg_attrs[k], "jax.buffer_donor");
        if (to && to->kind == MLIR_A_INT && to->i >= 0 && to->i < f->n_results)
            strbuf_printf(&alias, "%s {%lld}: (%d, {}, may-alias)", alias.n ? "," : "{",
                          (long long)to->i, k);
        else if (gives && (gives->kind == MLIR_A_UNIT || gives->i))
            strbuf_printf(&donor, "%s (%d, {})", donor.n ? "," : "{", k);
    }
    if (alias.n) {
        strbuf_puts(&alias, " }");
        hlo_set_module_extra(l->hlo, "input_output_alias", (struct str){alias.p, alias.n});
    }
    if (donor.n) {
        strbuf_puts(&donor, " }");
        hlo_set_module_extra(l->hlo, "buffer_donor", (struct str){donor.p, donor.n});
    }
    strbuf_done(&alias);
    strbuf_done(&donor);
}
static void put_shardings(const struct mlir_func *f, hv *args) {
    for (int k = 0; f->arg_attrs && k < f->body.n_args; k++) {
        const struct mlir_attr *t = mlir_dict_attr(f->arg_attrs[k], "mhlo.sharding");
        if (!t || t->kind != MLIR_A_STRING || t->s.n < 2 || t->s.p[0] != '{') continue;
        char *text = arena_strndup(args[k]->parent->module->arena, t->s.p, t->s.n);
        hlo_set_extra(args[k], "sharding", text);
    }
}

// ---- the module

// Parameters of weights that nothing uses, and computations that nothing calls.
static void drop_unused(struct hlo_computation *comp) {
    size_t kept = 0;
    hlo_remove_dead(comp);
    for (size_t k = 0; k < comp->params.n; k++) {
        struct hlo_instr *p = comp->params.v[k];
        if (p->param_kind == PARAM_WEIGHT && p->users.n == 0) {
            hlo_remove_instr(p);
            continue;
        }
        p->param_number = (int64_t)kept;
        comp->params.v[kept++] = p;
    }
    comp->params.n = kept;
}
static status_t lower_entry(struct shl *l, const struct lower_request *req) {
    const struct mlir_func *f;
    struct signature sig;
    RETURN_IF_ERR(stablehlo_entry(l->m, &f));
    RETURN_IF_ERR(stablehlo_signature(l->a, l->m, f, &sig));
    hv *args = arena_array(l->a, hv, f->body.n_args + 1);
    hv *out = arena_zarray(l->a, hv, f->n_results + 1);
    RETURN_IF_ERR(add_inputs(l, req, &sig, args));
    RETURN_IF_ERR(add_weights(l, f->body.n_args));
    put_shardings(f, args);
    put_donors(l, f);
    RETURN_IF_ERR(shl_inline_call(l, f->name, args, f->body.n_args, out, f->n_results));
    l->b.op_type = l->b.op_name = NULL;
    hlo_set_root(l->b.c, hb_tuple(&l->b, out, f->n_results));
    RETURN_IF_ERR(hb_end(&l->b));
    drop_unused(l->b.c);
    RETURN_IF_ERR(hlo_ingest_calls(l->hlo, false));
    RETURN_IF_ERR(hlo_ingest_check_runs(l->hlo));
    return hlo_verify(l->hlo);
}
status_t stablehlo_lower_tree(const struct mlir_module *m, const struct lower_request *req,
                              struct hlo_module **out) {
    struct hlo_module *mod = hlo_module_new(req->entry_name ? req->entry_name : "main");
    struct hlo_computation *comp = hlo_computation_add(mod, "main");
    mod->entry = comp;
    mod->max_bytes = req->limits.max_tensor_bytes;
    struct shl l = {.m = m,
                    .hlo = mod,
                    .a = mod->arena,
                    .b = hb_begin(comp),
                    .ops_left = req->limits.max_nodes ? req->limits.max_nodes : 200000,
                    .folding_left = EVAL_COMPILE_WORK,
                    .cancel = req->cancel};
    status_t st = lower_entry(&l, req);
    st_drop(hb_end(&l.b));
    if (st)
        hlo_module_free(mod);
    else
        *out = mod;
    return st;
}
status_t stablehlo_text_lower(const struct lower_request *req, struct hlo_module **out) {
    struct arena tmp = {0};
    struct mlir_module m;
    status_t st = mlir_read_text(&tmp, req->program, &mlir_default_limits, &m);
    if (!st) st = mlir_normal(&m);
    if (!st) st = stablehlo_lower_tree(&m, req, out);
    arena_done(&tmp);
    return st;
}
