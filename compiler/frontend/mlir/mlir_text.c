// SPDX-License-Identifier: Apache-2.0
// Modules, functions, regions, names of values, and operations in the generic form.
#include "compiler/frontend/mlir/mlir_text.h"

#include <string.h>

#include "compiler/frontend/mlir/mlir_parser.h"
#include "proto/hlod.pb-c.h"

// ---- names of values

status_t mt_new_value(struct mt *t, const struct mlir_type *type, uint32_t *out) {
    if (++t->values > t->limits.max_values)
        return st_exhausted("more than %lld values", (long long)t->limits.max_values);
    *out = mlir_new_value(t->m, t->f, type);
    return ST_OK;
}
status_t mt_bind(struct mt *t, struct str name, uint32_t first, int32_t n) {
    size_t hidden = (size_t)(uintptr_t)smap_get(&t->names, name);
    struct mt_name x = {name, first, n, hidden};
    avec_push(t->a, &t->bound, x);
    smap_put(&t->names, name, (void *)(uintptr_t)t->bound.n);
    return ST_OK;
}
// Names bound since there were `n` are gone, those that they hid are back.
static void unbind(struct mt *t, size_t n) {
    while (t->bound.n > n) {
        struct mt_name *x = &t->bound.v[--t->bound.n];
        if (x->hidden)
            smap_put(&t->names, x->name, (void *)(uintptr_t)x->hidden);
        else
            smap_del(&t->names, x->name);
    }
}
static bool value_name(struct mt *t, struct str *out) {
    if (!mt_take(t, "%")) return false;
    const char *from = t->p;
    while (t->p < t->end && ((*t->p >= 'a' && *t->p <= 'z') || (*t->p >= 'A' && *t->p <= 'Z') ||
                             (*t->p >= '0' && *t->p <= '9') || *t->p == '_' || *t->p == '$' ||
                             *t->p == '.' || *t->p == '-'))
        t->p++;
    *out = (struct str){from, (size_t)(t->p - from)};
    return out->n > 0;
}
status_t mt_value(struct mt *t, uint32_t *out) {
    struct str name;
    int64_t k = 0;
    if (!value_name(t, &name)) return mt_error(t, "a value was expected");
    if (t->p < t->end && *t->p == '#') {
        t->p++;
        if (!mt_int(t, &k)) return mt_error(t, "a number was expected");
    }
    size_t at = (size_t)(uintptr_t)smap_get(&t->names, name);
    if (!at) return mt_error(t, "%%%.*s is not defined before it", (int)name.n, name.p);
    const struct mt_name *x = &t->bound.v[at - 1];
    if (k < 0 || k >= x->n) return mt_error(t, "%%%.*s has %d values", (int)name.n, name.p, x->n);
    *out = x->first + (uint32_t)k;
    return ST_OK;
}
void mt_put(struct mt *t, struct mlir_op *op, const char *name, const struct mlir_attr *v) {
    struct mlir_named x = {str_of(name), v};
    avec_push(t->a, &op->attrs, x);
}

// ---- regions

// "%a: type, %b: type" up to close, each with what may stand behind it.
static status_t arguments(struct mt *t, const char *close, struct mlir_region *r) {
    for (bool first = true; !mt_take(t, close); first = false) {
        struct str name;
        const struct mlir_type *type;
        uint32_t v;
        if (!first) RETURN_IF_ERR(mt_want(t, ","));
        if (!value_name(t, &name)) return mt_error(t, "an argument was expected");
        RETURN_IF_ERR(mt_want(t, ":"));
        RETURN_IF_ERR(mt_type(t, &type));
        mt_loc(t);
        RETURN_IF_ERR(mt_new_value(t, type, &v));
        if (r->n_args++ == 0) r->args = v;
        RETURN_IF_ERR(mt_bind(t, name, v, 1));
    }
    return ST_OK;
}
static status_t block(struct mt *t, struct mlir_region *out) {
    if (mt_take(t, "^")) {
        struct str label;
        if (!mt_word(t, &label)) return mt_error(t, "a block's name was expected");
        if (mt_take(t, "(")) RETURN_IF_ERR(arguments(t, ")", out));
        RETURN_IF_ERR(mt_want(t, ":"));
    }
    while (!mt_take(t, "}")) {
        if (mt_at(t, "^")) return mt_error(t, "a region of several blocks is not taken");
        RETURN_IF_ERR(mt_op(t, out));
    }
    return ST_OK;
}
status_t mt_region(struct mt *t, const struct mt_arg *args, int32_t n_args,
                   struct mlir_region *out) {
    size_t outside = t->bound.n;
    RETURN_IF_ERR(mt_want(t, "{"));
    RETURN_IF_ERR(mt_enter(t));
    *out = (struct mlir_region){.first = (uint32_t)t->f->values.n, .n_args = n_args};
    for (int32_t k = 0; k < n_args; k++) {
        uint32_t v;
        RETURN_IF_ERR(mt_new_value(t, args[k].type, &v));
        if (k == 0) out->args = v;
        RETURN_IF_ERR(mt_bind(t, args[k].name, v, 1));
    }
    RETURN_IF_ERR(block(t, out));
    out->end = (uint32_t)t->f->values.n;
    unbind(t, outside);
    t->depth--;
    return ST_OK;
}

// ---- operations

static status_t operands(struct mt *t, struct mlir_op *op) {
    mt_values v = {0};
    while (!mt_take(t, ")")) {
        uint32_t x;
        if (v.n) RETURN_IF_ERR(mt_want(t, ","));
        RETURN_IF_ERR(mt_value(t, &x));
        avec_push(t->a, &v, x);
    }
    op->operands = v.v;
    op->n_operands = (int32_t)v.n;
    return ST_OK;
}
static status_t regions(struct mt *t, struct mlir_op *op) {
    VEC(struct mlir_region) v = {0};
    struct mlir_region r;
    do {
        RETURN_IF_ERR(mt_region(t, NULL, 0, &r));
        avec_push(t->a, &v, r);
    } while (mt_take(t, ","));
    op->regions = v.v;
    op->n_regions = (int32_t)v.n;
    return mt_want(t, ")");
}
static status_t put_all(struct mt *t, struct mlir_op *op) {
    mt_named v = {0};
    RETURN_IF_ERR(mt_dict(t, &v));
    for (size_t k = 0; k < v.n; k++)
        avec_push(t->a, &op->attrs, v.v[k]);
    return ST_OK;
}
static status_t generic(struct mt *t, struct mlir_op *op) {
    mt_types in = {0}, out = {0};
    RETURN_IF_ERR(mt_want(t, "("));
    RETURN_IF_ERR(operands(t, op));
    if (mt_take(t, "[")) return mt_error(t, "successors are not taken");
    if (mt_take(t, "<")) {
        RETURN_IF_ERR(put_all(t, op));
        RETURN_IF_ERR(mt_want(t, ">"));
    }
    if (mt_take(t, "(")) RETURN_IF_ERR(regions(t, op));
    if (mt_at(t, "{")) RETURN_IF_ERR(put_all(t, op));
    RETURN_IF_ERR(mt_want(t, ":"));
    RETURN_IF_ERR(mt_function_type(t, &in, &out));
    if ((int32_t)in.n != op->n_operands)
        return mt_error(t, "%d operands, %zu types", op->n_operands, in.n);
    t->results.v = out.v;
    t->results.n = out.n;
    t->results.cap = out.cap;
    return ST_OK;
}
struct result_name {
    struct str name;
    int32_t n;
};
typedef VEC(struct result_name) result_names;
static status_t results_of(struct mt *t, result_names *out) {
    struct result_name x;
    int64_t n;
    if (!mt_at(t, "%")) return ST_OK;
    do {
        x.n = 1;
        if (!value_name(t, &x.name)) return mt_error(t, "a value was expected");
        if (mt_take(t, ":")) {
            if (!mt_int(t, &n) || n < 1 || n > 1 << 20) return mt_error(t, "a number was expected");
            x.n = (int32_t)n;
        }
        avec_push(t->a, out, x);
    } while (mt_take(t, ","));
    return mt_want(t, "=");
}
static status_t bind_results(struct mt *t, struct mlir_op *op, const result_names *names,
                             size_t n_types) {
    size_t named = 0;
    uint32_t v = 0;
    for (size_t k = 0; k < names->n; k++)
        named += (size_t)names->v[k].n;
    if (named && named != n_types) return mt_error(t, "%zu names for %zu results", named, n_types);
    op->n_results = (int32_t)n_types;
    for (size_t k = 0; k < n_types; k++) {
        RETURN_IF_ERR(mt_new_value(t, t->results.v[k], &v));
        if (k == 0) op->result = v;
    }
    v = op->result;
    for (size_t k = 0; k < names->n; k++) {
        RETURN_IF_ERR(mt_bind(t, names->v[k].name, v, names->v[k].n));
        v += (uint32_t)names->v[k].n;
    }
    return ST_OK;
}
// Terminators by one name each.
static struct str usual_name(struct mt *t, struct str name) {
    if (str_is(name, "return")) return t->depth > 1 ? STR("stablehlo.return") : STR("func.return");
    if (str_is(name, "call")) return STR("func.call");
    if (str_is(name, "mhlo.return")) return STR("stablehlo.return");
    return name;
}
// Operations whose results are their operands: they tell how a value is spread over devices.
static bool is_same_value(struct str name) {
    return str_is(name, "sdy.sharding_constraint") || str_is(name, "sdy.reshard") ||
           str_is(name, "sdy.propagation_barrier");
}
// Says that two values are spread alike, and gives none.
static bool is_nothing(struct str name) {
    return str_is(name, "sdy.sharding_group");
}
// sharding_constraint %0 <@mesh, [{"d"}, {}]> : type; sharding_group %0 group_id=1 : type
static status_t same_value(struct mt *t, struct mlir_op *op, bool quoted,
                           const result_names *names) {
    const struct mlir_type *type;
    uint32_t v;
    if (quoted) {
        RETURN_IF_ERR(generic(t, op));
        if (op->n_operands != 1) return mt_error(t, "%d operands, expected 1", op->n_operands);
        v = op->operands[0];
    } else {
        RETURN_IF_ERR(mt_value(t, &v));
        while (!mt_take(t, ":")) {
            if (t->p >= t->end) return mt_error(t, "':' is missing");
            if (*t->p++ == '<') RETURN_IF_ERR(mt_balanced(t, '>', NULL));
        }
        RETURN_IF_ERR(mt_type(t, &type));
    }
    mt_loc(t);
    if (is_nothing(op->name) && !names->n) return ST_OK;
    if (names->n != 1 || names->v[0].n != 1) return mt_error(t, "it has one result");
    return mt_bind(t, names->v[0].name, v, 1);
}
status_t mt_op(struct mt *t, struct mlir_region *into) {
    result_names names = {0};
    struct mlir_op *op = arena_new_of(t->a, struct mlir_op);
    if (++t->ops > t->limits.max_ops)
        return st_exhausted("more than %lld operations", (long long)t->limits.max_ops);
    RETURN_IF_ERR(results_of(t, &names));
    mt_skip(t);
    op->at = t->p - t->all.p; // a line once all is read
    t->results.v = NULL;
    t->results.n = t->results.cap = 0;
    bool quoted = mt_at(t, "\"");
    if (quoted)
        RETURN_IF_ERR(mt_string(t, &op->name));
    else if (!mt_word(t, &op->name))
        return mt_error(t, "an operation was expected");
    op->name = usual_name(t, op->name);
    if (is_same_value(op->name) || is_nothing(op->name)) return same_value(t, op, quoted, &names);
    if (str_is(op->name, "sdy.manual_computation"))
        return st_reason(mt_error(t, "sdy.manual_computation: what is spread over the devices of a "
                                     "mesh cannot run here"),
                         HLOD__V1__REASON__REASON_UNSUPPORTED_OP);
    RETURN_IF_ERR(quoted ? generic(t, op) : mt_pretty(t, op));
    mt_loc(t);
    RETURN_IF_ERR(bind_results(t, op, &names, t->results.n));
    avec_push(t->a, &into->ops, op);
    return ST_OK;
}

// ---- functions

static status_t dict_behind(struct mt *t, const struct mlir_attr **out) {
    mt_named v = {0};
    *out = NULL;
    if (!mt_at(t, "{")) return ST_OK;
    RETURN_IF_ERR(mt_dict(t, &v));
    *out = mt_list_attr(t, MLIR_A_DICT, v.v, v.n);
    return ST_OK;
}
typedef VEC(const struct mlir_attr *) attr_list;
static status_t func_args(struct mt *t, struct mlir_func *f, attr_list *attrs) {
    RETURN_IF_ERR(mt_want(t, "("));
    for (bool first = true; !mt_take(t, ")"); first = false) {
        struct str name = {"", 0};
        const struct mlir_type *type;
        const struct mlir_attr *dict;
        uint32_t v;
        if (!first) RETURN_IF_ERR(mt_want(t, ","));
        if (value_name(t, &name)) RETURN_IF_ERR(mt_want(t, ":"));
        RETURN_IF_ERR(mt_type(t, &type));
        RETURN_IF_ERR(dict_behind(t, &dict));
        mt_loc(t);
        avec_push(t->a, attrs, dict);
        RETURN_IF_ERR(mt_new_value(t, type, &v));
        f->body.n_args++;
        if (name.n) RETURN_IF_ERR(mt_bind(t, name, v, 1));
    }
    return ST_OK;
}
static status_t func_results(struct mt *t, mt_types *types, attr_list *attrs) {
    const struct mlir_type *type;
    const struct mlir_attr *dict;
    if (!mt_take(t, "->")) return ST_OK;
    if (!mt_take(t, "(")) {
        RETURN_IF_ERR(mt_type(t, &type));
        avec_push(t->a, types, type);
        avec_push(t->a, attrs, NULL);
        return ST_OK;
    }
    for (bool first = true; !mt_take(t, ")"); first = false) {
        if (!first) RETURN_IF_ERR(mt_want(t, ","));
        RETURN_IF_ERR(mt_type(t, &type));
        RETURN_IF_ERR(dict_behind(t, &dict));
        avec_push(t->a, types, type);
        avec_push(t->a, attrs, dict);
    }
    return ST_OK;
}
static struct mlir_func *begin_func(struct mt *t) {
    struct mlir_func *f = arena_new_of(t->a, struct mlir_func);
    f->is_public = true;
    f->at = t->p - t->all.p;
    t->f = f;
    return f;
}
static status_t end_func(struct mt *t) {
    struct mlir_func *f = t->f;
    if (mlir_find_func(t->m, f->name))
        return mt_error(t, "@%.*s is there twice", (int)f->name.n, f->name.p);
    unbind(t, 0);
    avec_push(t->a, &t->m->funcs, f);
    t->f = NULL;
    return ST_OK;
}
static status_t symbol_name(struct mt *t, struct str *out) {
    RETURN_IF_ERR(mt_want(t, "@"));
    if (mt_at(t, "\"")) return mt_string(t, out);
    return mt_word(t, out) ? ST_OK : mt_error(t, "a name was expected");
}
static status_t func(struct mt *t) {
    struct mlir_func *f = begin_func(t);
    attr_list in = {0}, out = {0};
    mt_types types = {0};
    mt_named extra = {0};
    if (mt_take_word(t, "private") || mt_take_word(t, "nested"))
        f->is_public = false;
    else
        mt_take_word(t, "public");
    RETURN_IF_ERR(symbol_name(t, &f->name));
    RETURN_IF_ERR(func_args(t, f, &in));
    RETURN_IF_ERR(func_results(t, &types, &out));
    if (mt_take_word(t, "attributes")) RETURN_IF_ERR(mt_dict(t, &extra));
    f->results = types.v;
    f->n_results = (int32_t)types.n;
    f->arg_attrs = in.v;
    f->result_attrs = out.v;

    if (mt_take(t, "{")) {
        RETURN_IF_ERR(mt_enter(t));
        RETURN_IF_ERR(block(t, &f->body));
        t->depth--;
    }
    f->body.end = (uint32_t)f->values.n;
    mt_loc(t);
    return end_func(t);
}
// Dictionaries of arguments or results, from the attribute of a generic function.
static const struct mlir_attr **dicts_of(struct mt *t, const struct mlir_attr *x, int32_t n) {
    const struct mlir_attr **v = arena_zarray(t->a, const struct mlir_attr *, n + 1);
    for (int32_t k = 0; x && x->kind == MLIR_A_ARRAY && k < n && k < x->n; k++)
        v[k] = x->list[k]->kind == MLIR_A_DICT ? x->list[k] : NULL;
    return v;
}
// "func.func"() <{function_type = ..., sym_name = "main"}> ({ ... }) : () -> ()
static status_t generic_func(struct mt *t) {
    struct mlir_func *f = begin_func(t);
    struct mlir_op op = {0};
    RETURN_IF_ERR(mt_enter(t));
    RETURN_IF_ERR(generic(t, &op));
    t->depth--;
    const struct mlir_attr *name = mlir_op_attr(&op, "sym_name");
    const struct mlir_attr *type = mlir_op_attr(&op, "function_type");
    const struct mlir_attr *visible = mlir_op_attr(&op, "sym_visibility");
    if (!name || name->kind != MLIR_A_STRING || !type || type->kind != MLIR_A_TYPE ||
        type->type->kind != MLIR_FUNCTION || op.n_regions != 1)
        return mt_error(t, "a function must have sym_name, function_type and a region");
    f->name = name->s;
    f->is_public = !visible || str_is(visible->s, "public");
    f->body = op.regions[0];
    f->n_results = type->type->n_elems - type->type->n_in;
    f->results = type->type->elems + type->type->n_in;
    f->arg_attrs = dicts_of(t, mlir_op_attr(&op, "arg_attrs"), f->body.n_args);
    f->result_attrs = dicts_of(t, mlir_op_attr(&op, "res_attrs"), f->n_results);
    mt_loc(t);
    return end_func(t);
}

// ---- the module

// "#name = attribute" or "!name = type"; locations are not kept.
static status_t alias(struct mt *t) {
    bool type = *t->p++ == '!';
    struct str name;
    const struct mlir_type *ty;
    const struct mlir_attr *at;
    if (!mt_word(t, &name)) return mt_error(t, "a name was expected");
    RETURN_IF_ERR(mt_want(t, "="));
    if (type) {
        RETURN_IF_ERR(mt_type(t, &ty));
        smap_put(&t->type_aliases, name, (void *)(uintptr_t)ty);
        return ST_OK;
    }
    RETURN_IF_ERR(mt_attr(t, &at));
    smap_put(&t->attr_aliases, name, (void *)(uintptr_t)at);
    return ST_OK;
}
static status_t module_head(struct mt *t) {
    mt_named v = {0};
    if (mt_at(t, "@")) RETURN_IF_ERR(symbol_name(t, &t->m->name));
    if (mt_take_word(t, "attributes")) RETURN_IF_ERR(mt_dict(t, &v));
    for (size_t k = 0; k < v.n; k++)
        avec_push(t->a, &t->m->attrs, v.v[k]);
    return mt_want(t, "{");
}
// Operations that stand beside functions and mean nothing on one device: sdy.mesh @mesh = <...>, or
// "sdy.mesh"() <{...}> : () -> ().
static status_t pass_over(struct mt *t, bool quoted) {
    struct str name;
    mt_named v = {0};
    if (quoted)
        RETURN_IF_ERR(mt_want(t, "\"()"));
    else
        RETURN_IF_ERR(symbol_name(t, &name));
    if (!quoted) RETURN_IF_ERR(mt_want(t, "="));
    if (mt_take(t, "<")) RETURN_IF_ERR(mt_balanced(t, '>', NULL));
    if (mt_at(t, "{")) RETURN_IF_ERR(mt_dict(t, &v));
    if (quoted) RETURN_IF_ERR(mt_want(t, ": () -> ()"));
    mt_loc(t);
    return ST_OK;
}
static status_t other(struct mt *t) {
    struct str w = {0};
    const char *was = t->p;
    bool quoted = mt_take(t, "\"");
    if (mt_word(t, &w) && str_starts(w, "sdy.")) return pass_over(t, quoted);
    t->p = was;
    if (str_starts(w, "vhlo."))
        return mt_error(t, "the text is of VHLO, the dialect inside portable artefacts: send the "
                           "artefact's bytes, or StableHLO text (stablehlo-translate "
                           "--deserialize)");
    return mt_error(t, "a function was expected");
}
static status_t top(struct mt *t) {
    int inside = 0; // modules that are open
    bool generic_module = false;
    for (mt_skip(t); t->p < t->end; mt_skip(t)) {
        if (*t->p == '#' || *t->p == '!') {
            RETURN_IF_ERR(alias(t));
        } else if (!inside && mt_take_word(t, "module")) {
            RETURN_IF_ERR(module_head(t));
            inside++;
        } else if (!inside && mt_take(t, "\"builtin.module\"")) {
            mt_named v = {0};
            RETURN_IF_ERR(mt_want(t, "()"));
            if (mt_take(t, "<")) {
                RETURN_IF_ERR(mt_dict(t, &v));
                RETURN_IF_ERR(mt_want(t, ">"));
            }
            RETURN_IF_ERR(mt_want(t, "({"));
            generic_module = true;
            inside++;
        } else if (mt_take(t, "\"func.func\"")) {
            RETURN_IF_ERR(generic_func(t));
        } else if (mt_take_word(t, "func.func") || mt_take_word(t, "func")) {
            RETURN_IF_ERR(func(t));

        } else if (inside && mt_take(t, "}")) {
            mt_named v = {0};
            inside--;
            if (!generic_module) {
                mt_loc(t);
                continue;
            }
            RETURN_IF_ERR(mt_want(t, ")"));
            if (mt_at(t, "{")) RETURN_IF_ERR(mt_dict(t, &v));
            for (size_t k = 0; k < v.n; k++)
                avec_push(t->a, &t->m->attrs, v.v[k]);
            RETURN_IF_ERR(mt_want(t, ": () -> ()"));
            mt_loc(t);
        } else {
            RETURN_IF_ERR(other(t));
        }
    }
    return inside ? mt_error(t, "the module does not end") : ST_OK;
}

// ---- entry

// Aliases may stand behind what uses them (locations do always): those of attributes and types
// are read first.
static status_t aliases_first(struct mt *t) {
    const char *was = t->p;
    for (const char *p = t->p; p && p < t->end;) {
        if (*p == '#' || *p == '!') {
            t->p = p;
            bool loc = t->end - p > 4 && memcmp(p, "#loc", 4) == 0;
            if (!loc) RETURN_IF_ERR(alias(t));
        }
        p = memchr(p, '\n', (size_t)(t->end - p));
        if (p) p++;
    }
    t->p = was;
    return ST_OK;
}
struct lines { // counts on from the last place asked for
    const char *p;
    int64_t line;
};
static void put_lines(const struct mt *t, struct lines *l, const struct mlir_region *r) {
    for (size_t k = 0; k < r->ops.n; k++) {
        struct mlir_op *op = r->ops.v[k];
        for (const char *to = t->all.p + op->at; l->p < to; l->p++)
            l->line += *l->p == '\n';
        op->at = l->line;
        for (int32_t i = 0; i < op->n_regions; i++)
            put_lines(t, l, &op->regions[i]);
    }
}
status_t mlir_read_text(struct arena *a, struct span source, const struct mlir_limits *limits,
                        struct mlir_module *out) {
    struct str all = {(const char *)source.p, source.n};
    struct mlir_module m = {.arena = a, .source = source, .where = "line"};
    struct mt t = {
        .all = all, .p = all.p, .end = all.p + all.n, .a = a, .m = &m, .limits = *limits};
    smap_seed_random(&t.names);
    smap_seed_random(&t.attr_aliases);
    smap_seed_random(&t.type_aliases);
    bool binary = memchr(all.p, 0, all.n) != NULL;
    status_t st = binary ? st_invalid("the text has a byte 0") : aliases_first(&t);
    if (!st) st = top(&t);
    if (!st && !m.funcs.n) st = st_invalid("the text has no function");
    struct lines l = {all.p, 1};
    for (size_t k = 0; !st && k < m.funcs.n; k++)
        put_lines(&t, &l, &m.funcs.v[k]->body);
    smap_done(&t.names);
    smap_done(&t.attr_aliases);
    smap_done(&t.type_aliases);
    if (!st) *out = m;
    return st;
}
