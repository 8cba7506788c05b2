// SPDX-License-Identifier: Apache-2.0
// The operators of ai.onnx.ml but for trees (onnx_ml_tree.c). Texts are compared by their places
// (onnx_string.c).
#include <math.h>

#include "compiler/frontend/onnx/onnx_scope.h"
#include "compiler/frontend/onnx/onnx_tools.h"

enum { MAX_MAP_PLACES = 1 << 26 };

static hv float_vector(struct onnx_ctx *c, const float *v, size_t n) {
    return onnx_lit_f32s(c, v, (int64_t[]){(int64_t)n}, 1);
}
// x [..., n] with v along the last dimension; one element serves all.
static hv along_features(struct onnx_ctx *c, const char *name, hv x, float def) {
    const float *v;
    size_t n = onnx_at_floats(c, name, &v);
    int last = x->shape->rank - 1;
    if (n == 0) return onnx_splat_like(c, x, (double)def);
    if (n == 1) return onnx_splat_like(c, x, (double)v[0]);
    if (last < 0 || (int64_t)n != x->shape->dims[last])
        return onnx_fail(c, "%s has %zu values for %s", name, n, onnx_show(c, x)), x;
    return onnx_along(c, float_vector(c, v, n), x->shape, last);
}

ONNX_X(binarizer) {
    hv limit = onnx_splat_like(c, x, onnx_at_float(c, "threshold", 0));
    onnx_out_val(c, 0, hb_convert(b, hb_compare(b, x, limit, CMP_GT), x->shape->dtype));
}
ONNX(scaler) { // (x - offset) * scale
    hv x = hb_convert(b, onnx_in_val(c, 0), DT_F32);
    x = hb_sub(b, x, along_features(c, "offset", x, 0));
    onnx_out_val(c, 0, hb_mul(b, x, along_features(c, "scale", x, 1)));
}
ONNX(mlnormalizer) { // each row by its largest magnitude, sum of magnitudes, or length
    hv x = hb_convert(b, onnx_in_val(c, 0), DT_F32), a = hb_unary(b, HLO_ABS, x);
    struct str norm = onnx_at_str(c, "norm", "MAX");
    int64_t last = x->shape->rank - 1;
    if (last < 0) return onnx_fail(c, "a scalar has no rows");
    bool l1 = str_is(norm, "L1"), l2 = str_is(norm, "L2");
    hv n = l2 ? hb_unary(b, HLO_SQRT, onnx_reduce_keep(c, hb_mul(b, x, x), &last, 1, HLO_ADD, true))
              : onnx_reduce_keep(c, l1 ? a : x, &last, 1, l1 ? HLO_ADD : HLO_MAXIMUM, true);
    n = hb_select(b, onnx_compare_k(c, n, 0, CMP_EQ), onnx_splat_like(c, n, 1), n);
    onnx_out_val(c, 0, hb_div(b, x, hb_broadcast_numpy(b, n, x->shape->dims, x->shape->rank)));
}
ONNX_X(imputer) {
    hv fill, missing;
    const struct onnx_attr *ints = onnx_attr(c->n, "imputed_value_int64s");
    if (dtype_is_float(x->shape->dtype)) {
        double old = onnx_at_float(c, "replaced_value_float", 0);
        fill = hb_convert(b, along_features(c, "imputed_value_floats", hb_convert(b, x, DT_F32), 0),
                          x->shape->dtype);
        missing = isnan(old) ? hb_compare(b, x, x, CMP_NE) : onnx_compare_k(c, x, old, CMP_EQ);
    } else {
        int64_t n = ints ? (int64_t)ints->ints.n : 0, last = x->shape->rank - 1;
        if (n < 1 || (n > 1 && (last < 0 || n != x->shape->dims[last])))
            return onnx_fail(c, "imputed_value_int64s has %lld values", (long long)n);
        hv v = hb_convert(b, onnx_lit_s64s(c, ints->ints.v, &n, 1), x->shape->dtype);
        fill = n == 1 ? onnx_spread(c, hb_reshape(b, v, NULL, 0), x->shape)
                      : onnx_along(c, v, x->shape, last);
        hv old = hb_const_i64(b, x->shape->dtype, onnx_at_int(c, "replaced_value_int64", 0));
        missing = hb_compare(b, x, onnx_spread(c, old, x->shape), CMP_EQ);
    }
    onnx_out_val(c, 0, hb_select(b, missing, fill, x));
}
ONNX_X(arrayfeature) { // columns of the last dimension
    hv idx = onnx_in_val(c, 1);
    int64_t n = shape_elements(idx->shape), dims[2] = {1, 0};
    int rank = x->shape->rank;
    if (rank < 1) return onnx_fail(c, "a scalar has no features");
    hv y = onnx_take(c, x, hb_reshape(b, idx, &n, 1), rank - 1);
    dims[1] = n;
    onnx_out_val(c, 0, rank == 1 ? hb_reshape(b, y, dims, 2) : y);
}
ONNX(featurevectorizer) { // inputs side by side as f32, one row a sample
    hv all[64];
    size_t n = c->n->in.n;
    if (n > 64) return onnx_fail(c, "%zu inputs", n);
    for (size_t k = 0; k < n; k++) {
        hv x = hb_convert(b, onnx_in_val(c, k), DT_F32);
        int64_t rows = x->shape->rank > 1 ? x->shape->dims[0] : 1;
        int64_t dims[2] = {rows, rows ? shape_elements(x->shape) / rows : 0};
        all[k] = hb_reshape(b, x, dims, 2);
    }
    onnx_out_val(c, 0, hb_concat(b, all, (int)n, 1));
}
// A list of one type: a tensor, integers, floats, or texts as their places; NULL when there is
// none.
static const struct literal *label_list(struct onnx_ctx *c, const char *tensor, const char *ints,
                                        const char *floats, const char *texts) {
    const struct onnx_attr *t = onnx_attr(c->n, tensor), *i = onnx_attr(c->n, ints),
                           *f = onnx_attr(c->n, floats), *s = onnx_attr(c->n, texts);
    struct literal *l = NULL;
    if (t && t->t) {
        status_t st = t->t->data_type == ONNX_STRING ? onnx_string_literal(c, t->t, &l)
                                                     : onnx_tensor_literal(c->a, t->t, &l);
        if (st) hb_fail(&c->b, st);
        return l ? lit_clone(c->a, l) : NULL;
    }
    if (s) return onnx_string_list(c, s->strings.v, s->strings.n);
    int64_t n = i ? (int64_t)i->ints.n : f ? (int64_t)f->floats.n : -1;
    if (n < 0) return NULL;
    l = lit_new(c->a, shape_make(c->a, i ? DT_S64 : DT_F32, &n, 1));
    for (int64_t k = 0; k < n; k++)
        if (i)
            lit_set_i64(l, k, i->ints.v[k]);
        else
            lit_set_f64(l, k, (double)f->floats.v[k]);
    return l;
}
ONNX_X(onehotencoder) {
    bool text = onnx_in_any(c, 0) && onnx_in_any(c, 0)->text;
    const struct literal *cats =
        label_list(c, "", text ? "" : "cats_int64s", "", text ? "cats_strings" : "");
    int64_t n = cats ? shape_elements(cats->shape) : 0, dims[HLO_MAX_RANK], map[HLO_MAX_RANK];
    int rank = x->shape->rank;
    if (n < 1) return onnx_fail(c, "categories of %s are missing", text ? "text" : "numbers");
    if (rank == HLO_MAX_RANK) return onnx_fail(c, "rank %d", rank);
    for (int d = 0; d < rank; d++)
        map[d] = d, dims[d] = x->shape->dims[d];
    dims[rank] = n;
    x = hb_broadcast(b, hb_convert(b, x, DT_S64), dims, rank + 1, map);
    hv same = hb_compare(
        b, x,
        onnx_along(c, hb_convert(b, hb_constant(b, lit_clone(c->a, cats)), DT_S64), x->shape, rank),
        CMP_EQ);
    onnx_out_val(c, 0, hb_convert(b, same, DT_F32));
}

// ---- LabelEncoder: a table from keys to values, the default where no key fits

// Is the list that an attribute holds, as a tensor or by itself, one of texts?
static bool holds_text(const struct onnx_ctx *c, const char *tensor, const char *texts) {
    const struct onnx_attr *t = onnx_attr(c->n, tensor);
    return t && t->t ? t->t->data_type == ONNX_STRING : onnx_attr(c->n, texts) != NULL;
}
static const struct literal *label_default(struct onnx_ctx *c, enum dtype t, bool text) {
    const struct onnx_attr *a = onnx_attr(c->n, "default_tensor");
    struct literal *l = NULL;
    if (a && a->t && text == (a->t->data_type == ONNX_STRING)) {
        status_t st = text ? onnx_string_literal(c, a->t, &l) : onnx_tensor_literal(c->a, a->t, &l);
        if (st) return hb_fail(&c->b, st), NULL;
        return lit_scalar_f64(c->a, t, shape_elements(l->shape) ? lit_get_f64(l, 0) : 0);
    }
    if (text) {
        struct str s = onnx_at_str(c, "default_string", "_Unused");
        return onnx_string_list(c, &s, 1);
    }
    if (dtype_is_float(t)) return lit_scalar_f64(c->a, t, onnx_at_float(c, "default_float", -0.0));
    return lit_scalar_i64(c->a, t, onnx_at_int(c, "default_int64", -1));
}
// values[k] of the first key k that equals the element; `other` (one element) where none does. NaN
// equals NaN.
static hv by_table(struct onnx_ctx *c, hv x, const struct literal *keys,
                   const struct literal *values, const struct literal *other) {
    struct hb *b = &c->b;
    int64_t n = shape_elements(keys->shape), dims[HLO_MAX_RANK], map[HLO_MAX_RANK];
    int rank = x->shape->rank;

    if (n != shape_elements(values->shape) || n > 1 << 16 || rank == HLO_MAX_RANK)
        return onnx_fail(c, "%lld keys for %lld values", (long long)n,
                         (long long)shape_elements(values->shape)),
               x;
    if (keys->shape->dtype != x->shape->dtype)
        return onnx_fail(c, "keys of %s for an input of %s", dtype_name(keys->shape->dtype),
                         dtype_name(x->shape->dtype)),
               x;

    for (int d = 0; d < rank; d++)
        map[d] = d, dims[d] = x->shape->dims[d];
    dims[rank] = n;
    hv k = hb_reshape(b, hb_constant(b, lit_clone(c->a, keys)), &n, 1);
    hv v = hb_reshape(b, hb_constant(b, lit_clone(c->a, values)), &n, 1);
    hv wide = hb_broadcast(b, x, dims, rank + 1, map), key = onnx_along(c, k, wide->shape, rank);

    hv same = hb_compare(b, wide, key, CMP_EQ);
    if (dtype_is_float(x->shape->dtype))
        same = hb_binary(
            b, HLO_OR, same,
            onnx_and(c, hb_compare(b, wide, wide, CMP_NE), hb_compare(b, key, key, CMP_NE)));

    hv pos = onnx_index_along(c, wide->shape, DT_S64, rank);
    int64_t last = rank;
    pos = hb_select(b, same, pos, onnx_splat_like(c, pos, (double)n));
    pos = onnx_reduce_keep(c, pos, &last, 1, HLO_MINIMUM, false);

    hv rest = hb_constant(b, lit_clone(c->a, other));
    v = hb_concat(b, (hv[]){v, hb_reshape(b, rest, (int64_t[]){1}, 1)}, 2, 0);
    return onnx_take(c, v, pos, 0);
}
static void out_label(struct onnx_ctx *c, hv y, bool text) {
    if (!hb_ok(&c->b)) return;
    onnx_out_any(c, 0, text ? onnx_string_val(c, y) : onnx_tensor_val(c, y));
}
// A map as its keys and values, both [n]: a row of the vocabulary's values, 0 or "" where it has
// none.
ONNX_X(dictvectorizer) {
    hv v = onnx_in_val(c, 1);
    bool text = onnx_in_any(c, 0) && onnx_in_any(c, 0)->text,
         to_text = onnx_in_any(c, 1) && onnx_in_any(c, 1)->text;
    const struct literal *words = label_list(c, "", text ? "" : "int64_vocabulary", "",
                                             text ? "string_vocabulary" : "");
    if (!hb_ok(b)) return;
    if (!words || x->shape->rank != 1 || !shape_same_dims(x->shape, v->shape))
        return onnx_fail(c, "%s, keys %s, values %s", words ? "a vocabulary" : "no vocabulary",
                         onnx_show(c, x), onnx_show(c, v));
    int64_t dims[2] = {shape_elements(words->shape), x->shape->dims[0]}, last = 1;
    if (dims[1] > MAX_MAP_PLACES / (dims[0] + 1))
        return onnx_fail(c, "%lld words for %lld keys", (long long)dims[0], (long long)dims[1]);

    hv key = hb_broadcast(b, hb_convert(b, x, DT_S64), dims, 2, &last);
    hv word = hb_convert(b, hb_constant(b, lit_clone(c->a, words)), DT_S64);
    v = hb_broadcast(b, v, dims, 2, &last);
    v = hb_select(b, hb_compare(b, key, onnx_along(c, word, key->shape, 0), CMP_EQ), v,
                  onnx_splat_like(c, v, 0));
    v = onnx_reduce_keep(c, v, &last, 1, to_text ? HLO_MAXIMUM : HLO_ADD, false);
    out_label(c, hb_reshape(b, v, (int64_t[]){1, dims[0]}, 2), to_text);
}
ONNX_X(labelencoder) {
    bool text = onnx_in_any(c, 0) && onnx_in_any(c, 0)->text;
    bool from = holds_text(c, "keys_tensor", "keys_strings"),
         to = holds_text(c, "values_tensor", "values_strings");
    if (onnx_attr(c->n, "classes_strings")) // version 1: a text's number or a number's text
        from = text, to = !text;
    int64_t n = 0;
    const struct literal *keys, *values;
    if (onnx_attr(c->n, "classes_strings")) {
        const struct literal *classes = label_list(c, "", "", "", "classes_strings");
        n = shape_elements(classes->shape);
        struct literal *numbers = lit_new(c->a, shape_make(c->a, DT_S64, &n, 1));
        for (int64_t k = 0; k < n; k++)
            lit_set_i64(numbers, k, k);
        keys = text ? classes : numbers;
        values = text ? numbers : classes;
    } else {
        keys = label_list(c, "keys_tensor", "keys_int64s", "keys_floats", "keys_strings");
        values = label_list(c, "values_tensor", "values_int64s", "values_floats", "values_strings");
    }
    if (!hb_ok(b)) return;
    if (!keys || !values) return onnx_fail(c, "keys or values are missing");
    if (from != text) return onnx_fail(c, "keys of %s", from ? "text" : "numbers");
    const struct literal *other = label_default(c, values->shape->dtype, to);
    if (other) out_label(c, by_table(c, x, keys, values, other), to);
}
ONNX_X(categorymapper) { // a text's number, or a number's text
    bool text = onnx_in_any(c, 0) && onnx_in_any(c, 0)->text;
    const struct literal *numbers = label_list(c, "", "cats_int64s", "", ""),
                         *texts = label_list(c, "", "", "", "cats_strings");
    if (!hb_ok(b)) return;
    if (!numbers || !texts) return onnx_fail(c, "cats_int64s or cats_strings is missing");
    const struct literal *other = label_default(c, text ? DT_S64 : DT_S32, !text);
    if (!other) return;
    out_label(c, by_table(c, x, text ? texts : numbers, text ? numbers : texts, other), !text);
}

// What would be a list of maps from label to probability is the tensor of probabilities itself: its
// columns are in the order of the labels.
ONNX(zipmap) {
    const struct onnx_attr *labels = onnx_ml_labels(c, "classlabels_int64s", "classlabels_strings");
    hv x = onnx_in_val(c, 0);
    int64_t n = labels ? (int64_t)(labels->ints.n + labels->strings.n) : 0;
    if (x->shape->rank < 1 || x->shape->rank > 2 || x->shape->dims[x->shape->rank - 1] != n)
        return onnx_fail(c, "%lld labels for %s", (long long)n, onnx_show(c, x));
    onnx_out_val(c, 0, x);
}

// ---- linear models

// sqrt 2 times the inverse of erf at 2x - 1, by Winitzki's formula with ONNX Runtime's constants
// ("A handy approximation for the error function and its inverse", 2008); NaN outside of 0 to 1.
static hv probit(struct onnx_ctx *c, hv x) {
    struct hb *b = &c->b;
    const double a = 0.147, pi = 3.14159;
    hv y = onnx_add_k(c, onnx_mul_k(c, x, 2), -1);
    hv squares = hb_mul(b, onnx_add_k(c, hb_unary(b, HLO_NEGATE, y), 1), onnx_add_k(c, y, 1));
    hv log = hb_unary(b, HLO_LOG, squares);
    hv v = onnx_add_k(c, onnx_mul_k(c, log, 0.5), 2 / (pi * a));
    hv root = hb_unary(b, HLO_SQRT, hb_sub(b, hb_mul(b, v, v), onnx_mul_k(c, log, 1 / a)));
    hv size = onnx_mul_k(c, hb_unary(b, HLO_SQRT, hb_sub(b, root, v)), 1.41421356);
    hv below = onnx_compare_k(c, y, 0, CMP_LT);
    return hb_select(b, below, hb_unary(b, HLO_NEGATE, size), size);
}
hv onnx_ml_post_transform(struct onnx_ctx *c, hv x, struct str how) {
    struct hb *b = &c->b;
    int64_t last = x->shape->rank - 1;
    if (str_is(how, "NONE") || !hb_ok(b)) return x;
    if (str_is(how, "LOGISTIC")) return hb_unary(b, HLO_LOGISTIC, x);
    if (str_is(how, "PROBIT")) return probit(c, x);
    bool keep_zero = str_is(how, "SOFTMAX_ZERO");
    if (!str_is(how, "SOFTMAX") && !keep_zero)
        return onnx_fail(c, "post_transform '" STR_FMT "' is not supported", STR_ARG(how)), x;
    hv m = onnx_reduce_keep(c, x, &last, 1, HLO_MAXIMUM, false), zero = onnx_splat_like(c, x, 0);
    hv e = hb_unary(b, HLO_EXP, hb_sub(b, x, onnx_back_to(c, m, x->shape, &last, 1)));
    hv on = hb_compare(b, x, zero, CMP_NE);
    if (keep_zero) e = hb_select(b, on, e, zero);
    hv sum = onnx_reduce_keep(c, e, &last, 1, HLO_ADD, false);
    return hb_div(b, e, onnx_back_to(c, sum, x->shape, &last, 1));
}
// Of regressors: ONNX Runtime transforms a single target by PROBIT alone.
hv onnx_ml_post_targets(struct onnx_ctx *c, hv y, struct str how) {
    bool single = hb_ok(&c->b) && y->shape->rank == 2 && y->shape->dims[1] == 1;
    static const char *const kept[] = {"LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"};
    for (int k = 0; single && k < 3; k++)
        if (str_is(how, kept[k])) return y;
    return onnx_ml_post_transform(c, y, how);
}
// x [n, features] times coefficients [outputs, features], plus intercepts.
static hv linear(struct onnx_ctx *c, hv x, int64_t outputs) {
    struct hb *b = &c->b;
    const float *k, *bias;
    size_t n = onnx_at_floats(c, "coefficients", &k), m = onnx_at_floats(c, "intercepts", &bias);
    int64_t one = 1, features = x->shape->rank == 2 ? x->shape->dims[1] : 0;
    if (features < 1 || (int64_t)n != outputs * features || (m && (int64_t)m != outputs))
        return onnx_fail(c, "%zu coefficients, %zu intercepts for %s", n, m, onnx_show(c, x)), x;
    hv w = hb_reshape(b, float_vector(c, k, n), (int64_t[]){outputs, features}, 2);
    hv y = hb_dot_over(b, hb_convert(b, x, DT_F32), w, one, one);
    return m ? hb_add(b, y, onnx_along(c, float_vector(c, bias, m), y->shape, 1)) : y;
}
ONNX(linearregressor) {
    hv y = linear(c, onnx_in_val(c, 0), onnx_at_int(c, "targets", 1));
    onnx_out_val(c, 0, onnx_ml_post_targets(c, y, onnx_at_str(c, "post_transform", "NONE")));
}
// The list of labels that a classifier has: integers or texts.
const struct onnx_attr *onnx_ml_labels(struct onnx_ctx *c, const char *ints, const char *texts) {
    const struct onnx_attr *a = onnx_attr(c->n, ints), *s = onnx_attr(c->n, texts);
    return s && s->strings.n ? s : a;
}
void onnx_ml_label_at(struct onnx_ctx *c, hv pos, const struct onnx_attr *labels) {
    bool text = labels->strings.n != 0;
    int64_t n = (int64_t)(text ? labels->strings.n : labels->ints.n);
    hv names = text ? hb_constant(&c->b, onnx_string_list(c, labels->strings.v, (size_t)n))
                    : onnx_lit_s64s(c, labels->ints.v, &n, 1);
    out_label(c, onnx_take(c, names, pos, 0), text);
}
// The label of the first largest score; NaN exceeds nothing and nothing exceeds it, as in a loop
// that starts from the first score and moves on where another is larger.
void onnx_ml_label(struct onnx_ctx *c, hv scores, const struct onnx_attr *labels) {
    struct hb *b = &c->b;
    int64_t n = scores->shape->dims[1], last = 1;
    const struct shape *s = scores->shape;
    if (dtype_is_float(s->dtype)) {
        hv number = hb_compare(b, scores, scores, CMP_EQ);
        hv first =
            onnx_and(c, hb_unary(b, HLO_NOT, number),
                     hb_compare(b, onnx_index_along(c, s, DT_S64, 1),
                                hb_splat(b, shape_make(c->a, DT_S64, s->dims, 2), 0), CMP_EQ));
        scores = hb_select(b, number, scores, onnx_splat_like(c, scores, -INFINITY));
        scores = hb_select(b, first, onnx_splat_like(c, scores, INFINITY), scores);
    }
    hv best =
        onnx_back_to(c, onnx_reduce_keep(c, scores, &last, 1, HLO_MAXIMUM, false), s, &last, 1);
    hv pos = onnx_index_along(c, s, DT_S64, 1);
    pos =
        hb_select(b, hb_compare(b, scores, best, CMP_EQ), pos, onnx_splat_like(c, pos, (double)n));
    onnx_ml_label_at(c, onnx_reduce_keep(c, pos, &last, 1, HLO_MINIMUM, false), labels);
}
void onnx_ml_classify(struct onnx_ctx *c, hv scores, const struct onnx_attr *labels,
                      struct str post) {
    if (!hb_ok(&c->b)) return;
    onnx_ml_label(c, scores, labels);
    onnx_out_val(c, 1, onnx_ml_post_transform(c, scores, post));
}
hv onnx_ml_two_scores(struct onnx_ctx *c, hv score, bool chance, struct str post) {
    struct hb *b = &c->b;
    hv other = hb_unary(b, HLO_NEGATE, score);
    if (str_is(post, "PROBIT")) return onnx_ml_post_transform(c, score, post);
    if (str_is(post, "LOGISTIC")) {
        score = hb_unary(b, HLO_LOGISTIC, score), other = hb_unary(b, HLO_LOGISTIC, other);
    } else if (chance) {
        other = onnx_add_k(c, other, 1);
    }
    return hb_concat(b, (hv[]){other, score}, 2, 1);
}
void onnx_ml_classify_two(struct onnx_ctx *c, hv score, const struct onnx_attr *labels,
                          double limit, bool chance, struct str post) {
    struct hb *b = &c->b;
    if (!hb_ok(b)) return;
    hv second = onnx_compare_k(c, score, limit, CMP_GT);
    hv pos = hb_convert(b, hb_reshape(b, second, score->shape->dims, 1), DT_S64);
    onnx_ml_label_at(c, pos, labels);
    onnx_out_val(c, 1, onnx_ml_two_scores(c, score, chance, post));
}
ONNX(linearclassifier) {
    const struct onnx_attr *labels = onnx_ml_labels(c, "classlabels_ints", "classlabels_strings");
    int64_t n = labels ? (int64_t)(labels->ints.n + labels->strings.n) : 0;
    if (n < 2) return onnx_fail(c, "%lld labels", (long long)n);
    const float *bias;
    size_t outputs = onnx_at_floats(c, "intercepts", &bias);
    if (outputs == 1 && n == 2)
        return onnx_ml_classify_two(c, linear(c, onnx_in_val(c, 0), 1), labels, 0, true,
                                    onnx_at_str(c, "post_transform", "NONE"));
    if (outputs && (int64_t)outputs != n)
        return onnx_fail(c, "%zu intercepts for %lld labels", outputs, (long long)n);
    hv y = linear(c, onnx_in_val(c, 0), n);
    if (hb_ok(b)) onnx_ml_classify(c, y, labels, onnx_at_str(c, "post_transform", "NONE"));
}
