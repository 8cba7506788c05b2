// SPDX-License-Identifier: Apache-2.0
// Attributes but for dense elements.
#include <string.h>

#include "compiler/frontend/mlir/mlir_parser.h"
#include "compiler/ir/literal.h"

struct mlir_attr *mt_new_attr(struct mt *t, enum mlir_attr_kind kind) {
    struct mlir_attr *x = arena_new_of(t->a, struct mlir_attr);
    x->kind = kind;
    x->weight = -1;
    return x;
}
const struct mlir_attr *mt_int_attr(struct mt *t, int64_t v) {
    struct mlir_attr *x = mt_new_attr(t, MLIR_A_INT);
    x->i = v;
    return x;
}
const struct mlir_attr *mt_text_attr(struct mt *t, enum mlir_attr_kind kind, struct str s) {
    struct mlir_attr *x = mt_new_attr(t, kind);
    x->s = s;
    return x;
}
const struct mlir_attr *mt_list_attr(struct mt *t, enum mlir_attr_kind kind,
                                     const struct mlir_named *v, size_t n) {
    struct mlir_attr *x = mt_new_attr(t, kind);
    x->n = (int32_t)n;
    x->dict = n ? arena_dup_array(t->a, v, n) : NULL;
    mlir_sort_named(x->dict, n);
    return x;
}

// ---- lists

status_t mt_int_list(struct mt *t, const struct mlir_attr **out) {
    VEC(int64_t) v = {0};
    int64_t i;
    RETURN_IF_ERR(mt_want(t, "["));
    while (!mt_take(t, "]")) {
        if (v.n) RETURN_IF_ERR(mt_want(t, ","));
        if (mt_take_word(t, "true"))
            i = 1;
        else if (mt_take_word(t, "false"))
            i = 0;
        else if (!mt_int(t, &i))
            return mt_error(t, "an integer was expected");
        RETURN_IF_ERR(mt_spend(t, 8));
        avec_push(t->a, &v, i);
    }
    struct mlir_attr *x = mt_new_attr(t, MLIR_A_INTS);
    x->ints = v.v;
    x->n = (int32_t)v.n;
    *out = x;
    return ST_OK;
}
// Behind "array<": i64: 1, 2>
static status_t array(struct mt *t, const struct mlir_attr **out) {
    const struct mlir_type *type;
    VEC(int64_t) v = {0};
    int64_t i;
    RETURN_IF_ERR(mt_type(t, &type));
    bool first = true;
    for (bool colon = mt_take(t, ":"); colon && !mt_at(t, ">"); first = false) {
        if (!first) RETURN_IF_ERR(mt_want(t, ","));
        if (mt_take_word(t, "true"))
            i = 1;
        else if (mt_take_word(t, "false"))
            i = 0;
        else if (!mt_int(t, &i))
            return mt_error(t, "an integer was expected");
        RETURN_IF_ERR(mt_spend(t, 8));
        avec_push(t->a, &v, i);
    }
    struct mlir_attr *x = mt_new_attr(t, MLIR_A_INTS);
    x->type = type;
    x->ints = v.v;
    x->n = (int32_t)v.n;
    *out = x;
    return mt_want(t, ">");
}
static status_t list(struct mt *t, const struct mlir_attr **out) {
    VEC(const struct mlir_attr *) v = {0};
    const struct mlir_attr *one;
    while (!mt_take(t, "]")) {
        if (v.n) RETURN_IF_ERR(mt_want(t, ","));
        RETURN_IF_ERR(mt_attr(t, &one));
        avec_push(t->a, &v, one);
    }
    struct mlir_attr *x = mt_new_attr(t, MLIR_A_ARRAY);
    x->list = v.v;
    x->n = (int32_t)v.n;
    *out = x;
    return ST_OK;
}
static status_t name_of(struct mt *t, struct str *out) {
    if (mt_at(t, "\"")) return mt_string(t, out);
    return mt_word(t, out) ? ST_OK : mt_error(t, "a name was expected");
}
status_t mt_dict(struct mt *t, mt_named *out) {
    RETURN_IF_ERR(mt_want(t, "{"));
    for (bool first = true; !mt_take(t, "}"); first = false) {
        struct mlir_named x;
        if (!first) RETURN_IF_ERR(mt_want(t, ","));
        RETURN_IF_ERR(mt_spend(t, sizeof(struct mlir_attr)));
        RETURN_IF_ERR(name_of(t, &x.name));
        if (mt_take(t, "="))
            RETURN_IF_ERR(mt_attr(t, &x.attr));
        else
            x.attr = mt_new_attr(t, MLIR_A_UNIT);
        avec_push(t->a, out, x);
    }
    return ST_OK;
}

// ---- StableHLO's own

// A field's value: integers in brackets, a number, a flag, a type or a word.
static status_t field(struct mt *t, const struct mlir_attr **out) {
    int64_t i;
    struct str w;
    if (mt_at(t, "[")) {
        const char *was = t->p;
        status_t st = mt_int_list(t, out);
        if (!st) return ST_OK;
        st_drop(st);
        t->p = was;
        return mt_attr(t, out);
    }

    if (mt_int(t, &i)) {
        *out = mt_int_attr(t, i);
        if (mt_take(t, ":")) {
            const struct mlir_type *type;
            return mt_type(t, &type);
        }
        return ST_OK;
    }

    mt_skip(t);
    if (t->p < t->end && *t->p >= '0' && *t->p <= '9') return mt_attr(t, out); // a float
    const char *was = t->p;
    if (mt_word(t, &w) && (str_is(w, "true") || str_is(w, "false"))) {
        struct mlir_attr *x = mt_new_attr(t, MLIR_A_BOOL);
        x->i = str_is(w, "true");
        *out = x;
        return ST_OK;
    }
    t->p = was;
    if (mt_at(t, "#") || mt_at(t, "\"") || mt_at(t, "@") || mt_at(t, "{")) return mt_attr(t, out);
    if (w.n && w.p[0] >= 'A' && w.p[0] <= 'Z') { // an enumerator
        mt_word(t, &w);
        *out = mt_text_attr(t, MLIR_A_ENUM, w);
        return ST_OK;
    }
    struct mlir_attr *x = mt_new_attr(t, MLIR_A_TYPE);
    *out = x;
    return mt_type(t, &x->type);
}
// (1)2, a part of a mesh's axis: sizes before and of it.
static status_t sub_axis(struct mt *t, const struct mlir_attr **out) {
    int64_t before, size;
    RETURN_IF_ERR(mt_want(t, "("));
    if (!mt_int(t, &before)) return mt_error(t, "the size before a part of an axis was expected");
    RETURN_IF_ERR(mt_want(t, ")"));
    if (!mt_int(t, &size)) return mt_error(t, "the size of a part of an axis was expected");
    struct mlir_named v[] = {{STR("pre_size"), mt_int_attr(t, before)},
                             {STR("size"), mt_int_attr(t, size)}};
    *out = mt_list_attr(t, MLIR_A_DICT, v, 2);
    return ST_OK;
}
static status_t named_field(struct mt *t, struct str name, const struct mlir_attr **out) {
    if (str_is(name, "sub_axis_info")) return sub_axis(t, out);
    RETURN_IF_ERR(field(t, out));
    if (str_is(name, "mesh") && (*out)->kind == MLIR_A_SYMBOL) // a string in VHLO
        *out = mt_text_attr(t, MLIR_A_STRING, (*out)->s);
    return ST_OK;
}
// Names that the text has for what VHLO calls otherwise.
static struct str vhlo_name(struct str s) {
    if (str_is(s, "handle")) return STR("channel_id");
    if (str_is(s, "type")) return STR("channel_type");
    return s;
}
status_t mt_fields(struct mt *t, const char *close, const struct mlir_attr **out) {
    mt_named v = {0};
    while (!mt_take(t, close)) {
        struct mlir_named x;
        if (v.n) RETURN_IF_ERR(mt_want(t, ","));
        if (v.n && mt_take(t, close)) break; // a comma may stand behind the last one
        if (!mt_word(t, &x.name)) return mt_error(t, "the name of a field was expected");
        RETURN_IF_ERR(mt_spend(t, sizeof(struct mlir_attr)));
        x.name = vhlo_name(x.name);
        if (mt_take(t, "="))
            RETURN_IF_ERR(named_field(t, x.name, &x.attr));
        else
            x.attr = mt_new_attr(t, MLIR_A_UNIT);
        avec_push(t->a, &v, x);
    }
    *out = mt_list_attr(t, MLIR_A_DICT, v.v, v.n);
    return ST_OK;
}
// [b, 0, 1, f]: places of two letters and of the numbers.
static status_t labels(struct mt *t, const char *first, const char *second, const char *names[3],
                       mt_named *out) {
    int64_t at[2] = {-1, -1}, spatial[HLO_MAX_RANK], n_spatial = 0, d, place = 0;
    RETURN_IF_ERR(mt_want(t, "["));
    for (; !mt_take(t, "]"); place++) {
        if (place) RETURN_IF_ERR(mt_want(t, ","));
        if (mt_take_word(t, first)) {
            at[0] = place;
        } else if (mt_take_word(t, second)) {
            at[1] = place;
        } else if (mt_take(t, "?")) {
            continue;
        } else if (mt_int(t, &d) && d >= 0 && d < HLO_MAX_RANK) {
            spatial[d] = place;
            n_spatial = d >= n_spatial ? d + 1 : n_spatial;
        } else {
            return mt_error(t, "'%s', '%s' or the number of a dimension was expected", first,
                            second);
        }
        if (place >= HLO_MAX_RANK) return mt_error(t, "too many dimensions");
    }

    if (at[0] < 0 || at[1] < 0 || n_spatial + 2 > place)
        return mt_error(t, "dimensions '%s', '%s' and numbers from 0 must be there", first, second);
    struct mlir_attr *s = mt_new_attr(t, MLIR_A_INTS);
    s->n = (int32_t)n_spatial;
    s->ints = arena_dup(t->a, spatial, sizeof *spatial * (size_t)(n_spatial + 1));
    struct mlir_named v[3] = {{str_of(names[0]), mt_int_attr(t, at[0])},
                              {str_of(names[1]), mt_int_attr(t, at[1])},
                              {str_of(names[2]), s}};
    for (int k = 0; k < 3; k++)
        avec_push(t->a, out, v[k]);
    return ST_OK;
}
status_t mt_conv_labels(struct mt *t, const struct mlir_attr **out) {
    mt_named v = {0};
    RETURN_IF_ERR(labels(t, "b", "f",
                         (const char *[]){"input_batch_dimension", "input_feature_dimension",
                                          "input_spatial_dimensions"},
                         &v));
    RETURN_IF_ERR(mt_want(t, "x"));
    RETURN_IF_ERR(
        labels(t, "i", "o",
               (const char *[]){"kernel_input_feature_dimension", "kernel_output_feature_dimension",
                                "kernel_spatial_dimensions"},
               &v));
    RETURN_IF_ERR(mt_want(t, "->"));
    RETURN_IF_ERR(labels(t, "b", "f",
                         (const char *[]){"output_batch_dimension", "output_feature_dimension",
                                          "output_spatial_dimensions"},
                         &v));
    *out = mt_list_attr(t, MLIR_A_DICT, v.v, v.n);
    return ST_OK;
}
// Those of StableHLO's structures that operations here have; others travel as their text.
static bool structure(struct str name) {
    static const char *const names[] = {"dot",
                                        "gather",
                                        "scatter",
                                        "conv",
                                        "channel_handle",
                                        "dot_algorithm",
                                        "ragged_dot",
                                        "result_accuracy",
                                        "output_operand_alias",
                                        "result_accuracy_mode",
                                        "replica_group_mesh_axes",
                                        "axis_ref"};
    const char *dot = memchr(name.p, '.', name.n);
    if (!dot) return true; // an enumerator
    struct str s = {dot + 1, (size_t)(name.p + name.n - dot) - 1};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        if (str_is(s, names[k])) return true;
    return false;
}
// Behind "#": an alias, an enumerator, a structure, or another dialect's text.
static status_t dialect_attr(struct mt *t, const struct mlir_attr **out) {
    const char *from = t->p - 1;
    struct str name;
    if (!mt_word(t, &name)) return mt_error(t, "the name of an attribute was expected");
    bool ours =
        str_starts(name, "stablehlo") || str_starts(name, "chlo") || str_starts(name, "mhlo");
    ours = ours && structure(name);
    if (t->p < t->end && *t->p == '<' && ours) {
        t->p++;
        bool mode = str_is(name, "stablehlo.result_accuracy_mode"); // #stablehlo.family<VALUE>
        if (mode || !memchr(name.p, '.', name.n)) {                 // #stablehlo<family VALUE>
            struct mlir_attr *x = mt_new_attr(t, MLIR_A_ENUM);
            if ((!mode && !mt_word(t, &x->of)) || !mt_word(t, &x->s))
                return mt_error(t, "an enumerator was expected");
            *out = x;
            return mt_want(t, ">");
        }
        if (str_is(name, "stablehlo.conv") || str_is(name, "mhlo.conv")) {
            RETURN_IF_ERR(mt_conv_labels(t, out));
            return mt_want(t, ">");
        }
        return mt_fields(t, ">", out);
    }

    if (t->p < t->end && *t->p == '<') {
        t->p++;
        RETURN_IF_ERR(mt_balanced(t, '>', NULL));
    } else if ((*out = smap_get(&t->attr_aliases, name))) {
        return ST_OK;
    }
    *out = mt_text_attr(t, MLIR_A_OTHER, (struct str){from, (size_t)(t->p - from)});
    return ST_OK;
}

// ---- numbers and the rest

static status_t number(struct mt *t, const struct mlir_attr **out) {
    const char *from = t->p;
    bool is_float = false, hex = mt_at(t, "0x");
    while (t->p < t->end &&
           ((*t->p >= '0' && *t->p <= '9') || *t->p == '-' || *t->p == '+' || *t->p == '.' ||
            (*t->p >= 'a' && *t->p <= 'f') || *t->p == 'x' || (*t->p >= 'A' && *t->p <= 'F'))) {
        is_float |= !hex && (*t->p == '.' || *t->p == 'e' || *t->p == 'E');
        t->p++;
    }

    struct str s = {from, (size_t)(t->p - from)};
    struct mlir_attr *x = mt_new_attr(t, is_float ? MLIR_A_FLOAT : MLIR_A_INT);
    uint64_t bits = 0;
    for (size_t k = 2; hex && k < s.n; k++)
        bits = bits << 4 | (uint64_t)(s.p[k] <= '9' ? s.p[k] - '0' : (s.p[k] | 0x20) - 'a' + 10);
    bool ok = hex ? s.n > 2 && s.n <= 18 : is_float ? str_to_f64(s, &x->f) : str_to_i64(s, &x->i);
    if (!ok && !hex && !is_float) { // beyond s64: an unsigned one
        ok = str_to_u64(s, &bits);
        x->i = (int64_t)bits;
    }
    if (!ok) return mt_error(t, "'%.*s' is no number", (int)(s.n < 40 ? s.n : 40), s.p);
    if (mt_take(t, ":")) RETURN_IF_ERR(mt_type(t, &x->type));
    *out = x;
    enum dtype type = x->type ? x->type->dtype : is_float ? DT_F64 : DT_S64;
    if (hex) x->i = (int64_t)bits;
    if (!dtype_is_float(type) || !(hex || is_float)) return ST_OK;
    struct literal lit = {shape_scalar(t->a, type), &bits, 8, NULL, false};
    if (is_float) lit_set_f64(&lit, 0, x->f); // rounded to its type
    x->kind = MLIR_A_FLOAT;
    x->f = lit_get_f64(&lit, 0);
    return ST_OK;
}
static status_t symbol(struct mt *t, const struct mlir_attr **out) {
    struct str s;
    do {
        RETURN_IF_ERR(name_of(t, &s));
    } while (mt_take(t, "::@"));
    *out = mt_text_attr(t, MLIR_A_SYMBOL, s);
    return ST_OK;
}
static status_t word_attr(struct mt *t, const struct mlir_attr **out) {
    if (mt_take_word(t, "true") || mt_at(t, "false")) {
        struct mlir_attr *x = mt_new_attr(t, MLIR_A_BOOL);
        x->i = !mt_take_word(t, "false");
        *out = x;
        return ST_OK;
    }
    if (mt_take_word(t, "unit")) {
        *out = mt_new_attr(t, MLIR_A_UNIT);
        return ST_OK;
    }
    if (mt_take(t, "dense<") || mt_at(t, "dense_resource<")) return mt_dense(t, out);
    if (mt_take(t, "array<")) return array(t, out);
    if (mt_at(t, "loc(")) {
        mt_loc(t);
        *out = mt_new_attr(t, MLIR_A_MISSING);
        return ST_OK;
    }
    if (mt_take(t, "affine_map<")) {
        struct str s;
        RETURN_IF_ERR(mt_balanced(t, '>', &s));
        *out = mt_text_attr(t, MLIR_A_OTHER, (struct str){s.p - 11, s.n + 12});
        return ST_OK;
    }
    struct mlir_attr *x = mt_new_attr(t, MLIR_A_TYPE);
    *out = x;
    RETURN_IF_ERR(mt_type(t, &x->type));
    if (x->type->kind == MLIR_NONE) x->kind = MLIR_A_MISSING;
    return ST_OK;
}
status_t mt_attr(struct mt *t, const struct mlir_attr **out) {
    status_t st;
    RETURN_IF_ERR(mt_enter(t));
    RETURN_IF_ERR(mt_spend(t, sizeof(struct mlir_attr)));
    mt_skip(t);
    char c = t->p < t->end ? *t->p : 0;

    if (c == '"') {
        struct str s;
        st = mt_string(t, &s);
        if (!st) *out = mt_text_attr(t, MLIR_A_STRING, s);
    } else if (c == '@') {
        t->p++;
        st = symbol(t, out);
    } else if (c == '[') {
        t->p++;
        st = list(t, out);
    } else if (c == '{') {
        mt_named v = {0};
        st = mt_dict(t, &v);
        if (!st) *out = mt_list_attr(t, MLIR_A_DICT, v.v, v.n);
    } else if (c == '#') {
        t->p++;
        st = dialect_attr(t, out);
    } else if ((c >= '0' && c <= '9') || c == '-') {
        st = number(t, out);
    } else {
        st = word_attr(t, out);
    }
    t->depth--;
    return st;
}
