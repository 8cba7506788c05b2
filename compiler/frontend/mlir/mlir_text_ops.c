// SPDX-License-Identifier: Apache-2.0
// The forms that dialects print their operations in. Most are one: values, words, lists by name and
// a dictionary in any order up to the colon, then types; a table says which attribute a name or a
// word is. The others have a function each.
#include <string.h>

#include "compiler/frontend/mlir/mlir_parser.h"

static struct str short_name(const struct mlir_op *op) {
    struct str s = op->name;
    const char *dot = memchr(s.p, '.', s.n);
    if (dot) s = (struct str){dot + 1, (size_t)(s.p + s.n - dot) - 1};
    return s;
}
static status_t more_attrs(struct mt *t, struct mlir_op *op) {
    mt_named v = {0};
    RETURN_IF_ERR(mt_dict(t, &v));
    for (size_t k = 0; k < v.n; k++)
        avec_push(t->a, &op->attrs, v.v[k]);
    return ST_OK;
}

// ---- types

// Behind the colon: a function type; or types of the results, one of which stands for all.
static status_t types(struct mt *t, const struct mlir_op *op) {
    mt_types in = {0}, out = {0};
    if (mt_at(t, "(")) {
        RETURN_IF_ERR(mt_function_type(t, &in, &out));
        if ((int32_t)in.n != op->n_operands)
            return mt_error(t, "%d operands, %zu types", op->n_operands, in.n);
    } else {
        const struct mlir_type *x;
        do {
            RETURN_IF_ERR(mt_type(t, &x));
            avec_push(t->a, &out, x);
        } while (mt_take(t, ","));

        if (mt_take(t, "->")) { // chlo: type of the operand -> types of the results
            out.n = 0;
            if (mt_take(t, "("))
                RETURN_IF_ERR(mt_type_list(t, ")", &out));
            else
                do {
                    RETURN_IF_ERR(mt_type(t, &x));
                    avec_push(t->a, &out, x);
                } while (mt_take(t, ","));
        } else if (str_is(op->name, "stablehlo.select") && out.n == 2) {
            out.v[0] = out.v[1]; // the predicate's stands first
            out.n = 1;
        }
    }
    t->results.v = out.v;
    t->results.n = out.n;
    t->results.cap = out.cap;
    return ST_OK;
}
static status_t colon_types(struct mt *t, struct mlir_op *op) {
    RETURN_IF_ERR(mt_want(t, ":"));
    return types(t, op);
}

// ---- the common form

static const char *attr_name(const struct mlir_op *op, struct str key) {
    static const struct {
        const char *op, *key, *name;
    } rows[] = {{"broadcast_in_dim", "dims", "broadcast_dimensions"},
                {"dynamic_broadcast_in_dim", "dims", "broadcast_dimensions"},
                {"transpose", "dims", "permutation"},
                {"reverse", "dims", "dimensions"},
                {"map", "dims", "dimensions"},
                {"concatenate", "dim", "dimension"},
                {"get_dimension_size", "dim", "dimension"},
                {"set_dimension_size", "dim", "dimension"},
                {"iota", "dim", "iota_dimension"},
                {"dynamic_iota", "dim", "iota_dimension"},
                {"broadcast", "sizes", "broadcast_sizes"},
                {"dynamic_slice", "sizes", "slice_sizes"},
                {"pad", "low", "edge_padding_low"},
                {"pad", "high", "edge_padding_high"},
                {"pad", "interior", "interior_padding"},
                {"fft", "type", "fft_type"},
                {"fft", "length", "fft_length"},
                {"rng", "distribution", "rng_distribution"},
                {"rng_bit_generator", "algorithm", "rng_algorithm"},
                {"dot", "precision", "precision_config"},
                {"dot_general", "precision", "precision_config"},
                {"einsum", "config", "einsum_config"},
                {"unary_einsum", "config", "einsum_config"}};

    struct str name = short_name(op);
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
        if (str_is(name, rows[k].op) && str_is(key, rows[k].key)) return rows[k].name;
    return NULL;
}
// Words of compare: its direction, then the type of comparison.
static status_t bare_word(struct mt *t, struct mlir_op *op, struct str w) {
    bool compare = str_is(short_name(op), "compare");
    if (!compare) return mt_error(t, "'%.*s' was not expected", (int)w.n, w.p);
    struct mlir_attr *x = mt_new_attr(t, MLIR_A_ENUM);
    bool direction = !mlir_op_attr(op, "comparison_direction");
    x->of = direction ? STR("comparison_direction") : STR("comparison_type");
    x->s = w;
    mt_put(t, op, direction ? "comparison_direction" : "compare_type", x);
    return ST_OK;
}
static status_t words_list(struct mt *t, const struct mlir_attr **out) {
    VEC(const struct mlir_attr *) v = {0};
    struct str w;
    RETURN_IF_ERR(mt_want(t, "["));
    while (!mt_take(t, "]")) {
        if (v.n) RETURN_IF_ERR(mt_want(t, ","));
        if (!mt_word(t, &w)) return mt_error(t, "an enumerator was expected");
        struct mlir_attr *x = mt_new_attr(t, MLIR_A_ENUM);
        x->of = STR("precision");
        x->s = w;
        avec_push(t->a, &v, x);
    }
    struct mlir_attr *x = mt_new_attr(t, MLIR_A_ARRAY);
    x->list = v.v;
    x->n = (int32_t)v.n;
    *out = x;
    return ST_OK;
}
// A pair of lists: batching_dims = [0] x [0], contracting_dims = [2] x [1].
static status_t pair_of_dims(struct mt *t, struct mlir_op *op, bool batching) {
    const struct mlir_attr *x, *y;
    RETURN_IF_ERR(mt_int_list(t, &x));
    RETURN_IF_ERR(mt_want(t, "x"));
    RETURN_IF_ERR(mt_int_list(t, &y));
    mt_put(t, op, batching ? "lhs_batching_dimensions" : "lhs_contracting_dimensions", x);
    mt_put(t, op, batching ? "rhs_batching_dimensions" : "rhs_contracting_dimensions", y);
    return ST_OK;
}
// e8m7: bits of exponent and mantissa.
static status_t format(struct mt *t, struct mlir_op *op) {
    struct str w;
    int64_t e, m;
    const char *mark = NULL;
    if (mt_word(t, &w) && w.n > 3 && w.p[0] == 'e') mark = memchr(w.p, 'm', w.n);
    if (!mark || !str_to_i64((struct str){w.p + 1, (size_t)(mark - w.p) - 1}, &e) ||
        !str_to_i64((struct str){mark + 1, (size_t)(w.p + w.n - mark) - 1}, &m))
        return mt_error(t, "a format such as e8m7 was expected");
    mt_put(t, op, "exponent_bits", mt_int_attr(t, e));
    mt_put(t, op, "mantissa_bits", mt_int_attr(t, m));
    return ST_OK;
}
static status_t key_value(struct mt *t, struct mlir_op *op, struct str key) {
    const char *name = attr_name(op, key);
    const struct mlir_attr *v;
    struct str w;
    int64_t i;
    if (str_is(key, "batching_dims") || str_is(key, "contracting_dims"))
        return pair_of_dims(t, op, str_is(key, "batching_dims"));
    if (str_is(key, "format")) return format(t, op);
    if (str_is(key, "precision")) {
        RETURN_IF_ERR(words_list(t, &v));
    } else if (str_is(key, "algorithm") && mt_take(t, "<")) {
        RETURN_IF_ERR(mt_fields(t, ">", &v));
    } else if (mt_at(t, "[")) {
        RETURN_IF_ERR(mt_int_list(t, &v));
    } else if (mt_int(t, &i)) { // the colon behind it is the types'
        v = mt_int_attr(t, i);
    } else {
        const char *was = t->p;
        mt_skip(t);
        bool upper = t->p < t->end && *t->p >= 'A' && *t->p <= 'Z';
        if (upper && mt_word(t, &w)) {
            v = mt_text_attr(t, MLIR_A_ENUM, w);
        } else {
            t->p = was;
            RETURN_IF_ERR(mt_attr(t, &v));
        }
    }
    mt_put(t, op, name ? name : arena_strndup(t->a, key.p, key.n), v);
    return ST_OK;
}
// slice: [0:2, 1:8:3] behind its operand.
static status_t slice_ranges(struct mt *t, struct mlir_op *op) {
    static const char *const names[] = {"start_indices", "limit_indices", "strides"};
    VEC(int64_t) v[3] = {{0}, {0}, {0}};
    for (bool first = true; !mt_take(t, "]"); first = false) {
        int64_t r[3] = {0, 0, 1};
        if (!first) RETURN_IF_ERR(mt_want(t, ","));
        for (int k = 0; k < 3; k++) {
            if (k && !mt_take(t, ":")) {
                if (k == 2) break;
                return mt_error(t, "':' was expected");
            }
            if (!mt_int(t, &r[k])) return mt_error(t, "a number was expected");
        }
        for (int k = 0; k < 3; k++)
            avec_push(t->a, &v[k], r[k]);
    }
    for (int k = 0; k < 3; k++) {
        struct mlir_attr *x = mt_new_attr(t, MLIR_A_INTS);
        x->ints = v[k].v;
        x->n = (int32_t)v[k].n;
        mt_put(t, op, names[k], x);
    }
    return ST_OK;
}
static status_t in_brackets(struct mt *t, struct mlir_op *op) {
    int64_t i;
    if (str_is(short_name(op), "slice")) return slice_ranges(t, op);
    if (!mt_int(t, &i)) return mt_error(t, "a number was expected");
    mt_put(t, op, "index", mt_int_attr(t, i));
    return mt_want(t, "]");
}
// Items up to `close`: values are operands.
static status_t items(struct mt *t, struct mlir_op *op, const char *close, mt_values *v) {
    uint32_t x;
    struct str w;
    while (!mt_take(t, close)) {
        if (t->p >= t->end) return mt_error(t, "'%s' is missing", close);
        if (mt_at(t, "%")) {
            RETURN_IF_ERR(mt_value(t, &x));
            avec_push(t->a, v, x);
        } else if (mt_at(t, "{")) {
            RETURN_IF_ERR(more_attrs(t, op));
        } else if (mt_take(t, "[")) {
            RETURN_IF_ERR(in_brackets(t, op));
        } else if (mt_take(t, "(")) {
            RETURN_IF_ERR(items(t, op, ")", v));
        } else if (mt_at(t, "dense<")) { // check.expect_eq_const: its type ends the operation
            const struct mlir_attr *value;
            RETURN_IF_ERR(mt_attr(t, &value));
            mt_put(t, op, "value", value);
            return ST_OK;
        } else if (mt_word(t, &w)) {
            RETURN_IF_ERR(mt_take(t, "=") ? key_value(t, op, w) : bare_word(t, op, w));
        } else {
            return mt_error(t, "a value or an attribute was expected");
        }
        if (mt_take(t, ",")) mt_take(t, ","); // no starts of a scalar's slice: %x, , sizes = []
    }
    return ST_OK;
}
static void set_operands(struct mlir_op *op, const mt_values *v) {
    op->operands = v->v;
    op->n_operands = (int32_t)v->n;
}
static status_t common(struct mt *t, struct mlir_op *op) {
    mt_values v = {0};
    RETURN_IF_ERR(items(t, op, ":", &v));
    set_operands(op, &v);
    if (str_starts(op->name, "check.")) { // types of operands, no result
        mt_types ignored = {0};
        const struct mlir_type *x;
        if (mlir_op_attr(op, "value")) return ST_OK;
        do {
            RETURN_IF_ERR(mt_type(t, &x));
            avec_push(t->a, &ignored, x);
        } while (mt_take(t, ","));
        return ST_OK;
    }
    return types(t, op);
}

// ---- forms of their own

// return %a, %b : t, t; nothing behind a bare one.
static status_t ret(struct mt *t, struct mlir_op *op) {
    mt_values v = {0};
    mt_types ignored = {0};
    const struct mlir_type *x;
    uint32_t one;
    if (mt_at(t, "{")) RETURN_IF_ERR(more_attrs(t, op));
    if (!mt_at(t, "%")) return ST_OK;
    do {
        RETURN_IF_ERR(mt_value(t, &one));
        avec_push(t->a, &v, one);
    } while (mt_take(t, ","));
    set_operands(op, &v);
    RETURN_IF_ERR(mt_want(t, ":"));
    do {
        RETURN_IF_ERR(mt_type(t, &x));
        avec_push(t->a, &ignored, x);
    } while (mt_take(t, ","));
    return ST_OK;
}
// constant {attrs} dense<...> : type; the type of the value is the result's.
static status_t constant(struct mt *t, struct mlir_op *op) {
    const struct mlir_attr *v;
    if (mt_at(t, "{")) RETURN_IF_ERR(more_attrs(t, op));
    if (mt_take(t, "(")) { // ( ) : () -> type, as a quantised one is printed
        RETURN_IF_ERR(mt_want(t, ")"));
        RETURN_IF_ERR(more_attrs(t, op));
        return colon_types(t, op);
    }
    const char *was = t->p;
    RETURN_IF_ERR(mt_attr(t, &v));
    mt_put(t, op, "value", v);
    const struct mlir_type *type = v->type;
    if (v->kind == MLIR_A_DENSE && mt_take(t, "->")) RETURN_IF_ERR(mt_type(t, &type));
    if (!type) {
        t->p = was;
        return mt_error(t, "a dense value was expected");
    }
    avec_push(t->a, &t->results, type);
    return ST_OK;
}
static status_t call(struct mt *t, struct mlir_op *op, const char *name) {
    const struct mlir_attr *callee;
    mt_values v = {0};
    if (!mt_at(t, "@")) return mt_error(t, "a name was expected");
    RETURN_IF_ERR(mt_attr(t, &callee));
    if (str_is(op->name, "stablehlo.custom_call")) // where the generic form has a string
        callee = mt_text_attr(t, MLIR_A_STRING, callee->s);
    mt_put(t, op, name, callee);
    RETURN_IF_ERR(mt_want(t, "("));
    RETURN_IF_ERR(items(t, op, ")", &v));
    set_operands(op, &v);
    if (mt_at(t, "{")) RETURN_IF_ERR(more_attrs(t, op));
    return colon_types(t, op);
}
// composite "name" %a, %b {composite_attributes = {...}, decomposition = @f} : (..) -> ..
static status_t composite(struct mt *t, struct mlir_op *op) {
    struct str s;
    RETURN_IF_ERR(mt_string(t, &s));
    mt_put(t, op, "name", mt_text_attr(t, MLIR_A_STRING, s));
    return common(t, op);
}
// Pairs of a list: pad = [[1, 2], [0, 0]] as one list.
static status_t flat_list(struct mt *t, const struct mlir_attr **out) {
    VEC(int64_t) v = {0};
    const struct mlir_attr *row;
    RETURN_IF_ERR(mt_want(t, "["));
    for (bool first = true; !mt_take(t, "]"); first = false) {
        if (!first) RETURN_IF_ERR(mt_want(t, ","));
        RETURN_IF_ERR(mt_int_list(t, &row));
        for (int32_t k = 0; k < row->n; k++)
            avec_push(t->a, &v, row->ints[k]);
    }
    struct mlir_attr *x = mt_new_attr(t, MLIR_A_INTS);
    x->ints = v.v;
    x->n = (int32_t)v.n;
    *out = x;
    return ST_OK;
}
static status_t conv_window(struct mt *t, struct mlir_op *op) {
    static const char *const names[][2] = {{"stride", "window_strides"},
                                           {"lhs_dilate", "lhs_dilation"},
                                           {"rhs_dilate", "rhs_dilation"},
                                           {"reverse", "window_reversal"},
                                           {"pad", "padding"}};
    const struct mlir_attr *v;
    struct str w;
    RETURN_IF_ERR(mt_want(t, "{"));
    for (bool first = true; !mt_take(t, "}"); first = false) {
        int k = 0;
        if (!first) RETURN_IF_ERR(mt_want(t, ","));
        if (!mt_word(t, &w)) return mt_error(t, "a name was expected");
        while (k < 5 && !str_is(w, names[k][0]))
            k++;
        if (k == 5) return mt_error(t, "'%.*s' is not known in a window", (int)w.n, w.p);
        RETURN_IF_ERR(mt_want(t, "="));
        RETURN_IF_ERR(k == 4 ? flat_list(t, &v) : mt_int_list(t, &v));
        mt_put(t, op, names[k][1], v);
    }
    return ST_OK;
}
static status_t convolution(struct mt *t, struct mlir_op *op) {
    const struct mlir_attr *labels;
    mt_values v = {0};
    RETURN_IF_ERR(mt_want(t, "("));
    RETURN_IF_ERR(items(t, op, ")", &v));
    set_operands(op, &v);
    while (!mt_at(t, ":")) {
        if (mt_take_word(t, "dim_numbers")) {
            RETURN_IF_ERR(mt_want(t, "="));
            RETURN_IF_ERR(mt_conv_labels(t, &labels));
            mt_put(t, op, "dimension_numbers", labels);
        } else if (mt_take_word(t, "window")) {
            RETURN_IF_ERR(mt_want(t, "="));
            RETURN_IF_ERR(conv_window(t, op));
        } else if (mt_at(t, "{")) {
            RETURN_IF_ERR(more_attrs(t, op));
        } else {
            return mt_error(t, "dim_numbers, window or attributes were expected");
        }
        mt_take(t, ",");
    }
    return colon_types(t, op);
}

// ---- reduce and while

// A region of one operation over its arguments: `applies stablehlo.add`.
static status_t applied(struct mt *t, struct mlir_op *op, struct str name, mt_values *in) {
    struct mlir_region *r = arena_new_of(t->a, struct mlir_region);
    const struct mlir_type *whole = t->f->values.v[in->v[in->n / 2]];
    const struct mlir_type *one = mlir_scalar_type(t->a, whole);
    uint32_t v[3];
    r->first = (uint32_t)t->f->values.n;
    for (int k = 0; k < 3; k++)
        RETURN_IF_ERR(mt_new_value(t, one, &v[k]));
    r->args = v[0];
    r->n_args = 2;
    r->end = (uint32_t)t->f->values.n;
    struct mlir_op *does = arena_new_of(t->a, struct mlir_op), *end;
    end = arena_new_of(t->a, struct mlir_op);
    *does = (struct mlir_op){.name = name, .n_operands = 2, .n_results = 1, .at = op->at};
    does->operands = arena_dup_array(t->a, v, 2);
    does->result = v[2];
    *end = (struct mlir_op){.name = STR("stablehlo.return"), .n_operands = 1, .at = op->at};
    end->operands = arena_dup_array(t->a, v + 2, 1);
    t->ops += 2;
    avec_push(t->a, &r->ops, does);
    avec_push(t->a, &r->ops, end);
    op->regions = r;
    op->n_regions = 1;
    return ST_OK;
}
typedef VEC(struct mt_arg) arg_list;
// reducer(%a: t, %b: t) (%c: t, %d: t) { ... }: pairs of an accumulator and an element.
static status_t reducer(struct mt *t, struct mlir_op *op) {
    arg_list first = {0}, second = {0};
    struct mt_arg x[2];
    while (mt_take(t, "(")) {
        for (int k = 0; k < 2; k++) {
            if (k) RETURN_IF_ERR(mt_want(t, ","));
            RETURN_IF_ERR(mt_want(t, "%"));
            mt_skip(t);
            const char *from = t->p;
            while (t->p < t->end && *t->p != ':' && *t->p != ' ')
                t->p++;
            x[k].name = (struct str){from, (size_t)(t->p - from)};
            RETURN_IF_ERR(mt_want(t, ":"));
            RETURN_IF_ERR(mt_type(t, &x[k].type));
            mt_loc(t);
        }
        RETURN_IF_ERR(mt_want(t, ")"));
        avec_push(t->a, &first, x[0]);
        avec_push(t->a, &second, x[1]);
    }
    for (size_t k = 0; k < second.n; k++)
        avec_push(t->a, &first, second.v[k]);
    op->regions = arena_new_of(t->a, struct mlir_region);
    op->n_regions = 1;
    return mt_region(t, first.v, (int32_t)first.n, op->regions);
}
static status_t reduce(struct mt *t, struct mlir_op *op) {
    mt_values in = {0}, inits = {0};
    const struct mlir_attr *dims;
    uint32_t v;
    struct str name = {0};
    RETURN_IF_ERR(mt_want(t, "("));
    do {
        if (in.n) RETURN_IF_ERR(mt_want(t, "("));
        RETURN_IF_ERR(mt_value(t, &v));
        avec_push(t->a, &in, v);
        if (!mt_take_word(t, "init")) return mt_error(t, "'init' was expected");
        RETURN_IF_ERR(mt_want(t, ":"));
        RETURN_IF_ERR(mt_value(t, &v));
        avec_push(t->a, &inits, v);
        RETURN_IF_ERR(mt_want(t, ")"));
    } while (mt_take(t, ","));
    for (size_t k = 0; k < inits.n; k++)
        avec_push(t->a, &in, inits.v[k]);
    set_operands(op, &in);

    bool applies = mt_take_word(t, "applies");
    if (applies && !mt_word(t, &name)) return mt_error(t, "an operation was expected");
    if (!mt_take_word(t, "across") || !mt_take_word(t, "dimensions"))
        return mt_error(t, "'across dimensions' was expected");
    RETURN_IF_ERR(mt_want(t, "="));
    RETURN_IF_ERR(mt_int_list(t, &dims));
    mt_put(t, op, "dimensions", dims);
    if (mt_at(t, "{")) RETURN_IF_ERR(more_attrs(t, op));
    RETURN_IF_ERR(colon_types(t, op));
    mt_types results = {t->results.v, t->results.n, t->results.cap};
    if (applies) return applied(t, op, name, &in);
    if (!mt_take_word(t, "reducer")) return mt_error(t, "'reducer' was expected");
    RETURN_IF_ERR(reducer(t, op));
    t->results.v = results.v; // operations of the region had theirs
    t->results.n = results.n;
    t->results.cap = results.cap;
    return ST_OK;
}
// while(%a = %x, %b = %y) : t, t attributes {...} cond { ... } do { ... }
static status_t loop(struct mt *t, struct mlir_op *op) {
    mt_values in = {0};
    arg_list args = {0};
    uint32_t v;
    RETURN_IF_ERR(mt_want(t, "("));
    while (!mt_take(t, ")")) {
        struct mt_arg x = {0};
        if (in.n) RETURN_IF_ERR(mt_want(t, ","));
        RETURN_IF_ERR(mt_want(t, "%"));
        const char *from = t->p;
        while (t->p < t->end && *t->p != ' ' && *t->p != '=')
            t->p++;
        x.name = (struct str){from, (size_t)(t->p - from)};
        RETURN_IF_ERR(mt_want(t, "="));
        RETURN_IF_ERR(mt_value(t, &v));
        avec_push(t->a, &in, v);
        avec_push(t->a, &args, x);
    }

    set_operands(op, &in);
    mt_types results = {0};
    for (size_t k = 0; mt_take(t, k ? "," : ":"); k++) {
        const struct mlir_type *x;
        RETURN_IF_ERR(mt_type(t, &x));
        avec_push(t->a, &results, x);
        if (k < args.n) args.v[k].type = x;
    }
    if (results.n != in.n) return mt_error(t, "%zu values, %zu types", in.n, results.n);
    if (mt_take_word(t, "attributes")) RETURN_IF_ERR(more_attrs(t, op));
    op->regions = arena_zarray(t->a, struct mlir_region, 2);
    op->n_regions = 2;
    for (int k = 0; k < 2; k++) {
        if (!mt_take_word(t, k ? "do" : "cond"))
            return mt_error(t, "'%s' was expected", k ? "do" : "cond");
        RETURN_IF_ERR(mt_region(t, args.v, (int32_t)args.n, &op->regions[k]));
    }
    t->results.v = results.v;
    t->results.n = results.n;
    t->results.cap = results.cap;
    return ST_OK;
}
// scan (%a, %b) inits (%c) dimension=0 attributes {...} { region } : types. The region's operations
// come before the types.
static status_t scan(struct mt *t, struct mlir_op *op) {
    mt_values v = {0};
    int64_t dim, sizes[2];
    RETURN_IF_ERR(mt_want(t, "("));
    RETURN_IF_ERR(items(t, op, ")", &v));
    sizes[0] = (int64_t)v.n;
    if (!mt_take_word(t, "inits")) return mt_error(t, "'inits' was expected");
    RETURN_IF_ERR(mt_want(t, "("));
    RETURN_IF_ERR(items(t, op, ")", &v));
    sizes[1] = (int64_t)v.n - sizes[0];
    set_operands(op, &v);
    if (!mt_take_word(t, "dimension")) return mt_error(t, "'dimension' was expected");
    RETURN_IF_ERR(mt_want(t, "="));
    if (!mt_int(t, &dim)) return mt_error(t, "a number was expected");
    mt_put(t, op, "dimension", mt_int_attr(t, dim));
    struct mlir_attr *segments = mt_new_attr(t, MLIR_A_INTS);
    segments->ints = arena_dup_array(t->a, sizes, 2);
    segments->n = 2;
    mt_put(t, op, "operandSegmentSizes", segments);
    if (mt_take_word(t, "attributes")) RETURN_IF_ERR(more_attrs(t, op));
    op->regions = arena_new_of(t->a, struct mlir_region);
    op->n_regions = 1;
    RETURN_IF_ERR(mt_region(t, NULL, 0, op->regions));
    return colon_types(t, op);
}

status_t mt_pretty(struct mt *t, struct mlir_op *op) {
    struct str s = op->name;
    if (str_is(s, "func.return") || str_is(s, "stablehlo.return")) return ret(t, op);
    if (str_is(s, "stablehlo.constant") || str_is(s, "chlo.constant")) return constant(t, op);
    if (str_is(s, "func.call")) return call(t, op, "callee");
    if (str_is(s, "stablehlo.custom_call")) return call(t, op, "call_target_name");
    if (str_is(s, "stablehlo.composite")) return composite(t, op);
    if (str_is(s, "stablehlo.convolution")) return convolution(t, op);
    if (str_is(s, "stablehlo.reduce")) return reduce(t, op);
    if (str_is(s, "stablehlo.while")) return loop(t, op);
    if (str_is(s, "chlo.scan")) return scan(t, op);
    return common(t, op);
}
