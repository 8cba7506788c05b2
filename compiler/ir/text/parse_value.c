// SPDX-License-Identifier: Apache-2.0
// Shapes, literals and attribute values from text.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "compiler/ir/text/parser.h"

// ---- shapes

static status_t p_layout(struct parser *p, struct cursor *c, struct shape *s) {
    struct layout l = {.tile_rank = 0};
    const char *at = c->p;
    int n = 0;
    bool seen[HLO_MAX_RANK] = {false};
    int64_t v;
    c->p++; // {
    while (p_i64(c, &v)) {
        if (v < 0 || v >= s->rank || seen[v])
            return p_error(p, at, "layout is not a permutation of the %d dimensions", s->rank);
        seen[v] = true;
        l.minor_to_major[n++] = (int8_t)v;
        if (!p_take(c, ",")) break;
    }
    if (n != s->rank && n != 0)
        return p_error(p, at, "layout has %d entries, the shape %d dimensions", n, s->rank);

    for (int k = 0; n == 0 && k < s->rank; k++)
        l.minor_to_major[k] = (int8_t)(s->rank - 1 - k);

    if (p_take(c, ":")) {
        const char *from = c->p;
        struct cursor t = *c;
        if (p_take(&t, "T(")) {
            int64_t dims[HLO_MAX_RANK];
            int k = 0;
            while (k < s->rank && p_i64(&t, &dims[k]) && dims[k] > 0 && dims[k] <= INT32_MAX) {
                k++;
                if (!p_take(&t, ",")) break;
            }
            // One plain tile; anything else stays text.
            if (k && p_take(&t, ")") && t.p < t.end && *t.p != '(') {
                l.tile_rank = (int8_t)k;
                for (int j = 0; j < k; j++)
                    l.tile[j] = (int32_t)dims[j];
                from = t.p;
            }
        }
        c->p = from;
        struct str rest = p_cut(c, "}");
        if (rest.n) {
            RETURN_IF_ERR(p_keep(p, STR("layout"), rest, &rest));
            l.rest = rest.p;
        }
    }

    if (!p_take(c, "}")) return p_error(p, at, "layout has no closing brace");
    if (!layout_is_default(&l, s->rank)) s->layout = arena_dup(p->m->arena, &l, sizeof l);
    return ST_OK;
}

// Shapes are larger in memory than in text.
static status_t count_shape(struct parser *p, const char *at) {
    int64_t most = p->limits.max_instrs ? 16 * p->limits.max_instrs : INT64_C(1) << 20;
    return ++p->n_shapes <= most ? ST_OK : p_error(p, at, "more than %lld shapes", (long long)most);
}

static status_t p_tuple_shape(struct parser *p, struct cursor *c, int depth,
                              const struct shape **out) {
    VEC(const struct shape *) elems = {0};
    RETURN_IF_ERR(count_shape(p, c->p));
    if (depth > p->limits.max_depth)
        return p_error(p, c->p, "shapes nest deeper than %d", p->limits.max_depth);
    while (!p_take(c, ")")) {
        const struct shape *e;
        if (elems.n && !p_take(c, ","))
            return p_error(p, c->p, "expected ',' or ')' in a tuple shape");
        RETURN_IF_ERR(p_shape(p, c, depth + 1, &e));
        avec_push(p->m->arena, &elems, e);
    }
    *out = shape_tuple(p->m->arena, elems.v, (int)elems.n);
    return ST_OK;
}

status_t p_shape(struct parser *p, struct cursor *c, int depth, const struct shape **out) {
    if (p_take(c, "(")) return p_tuple_shape(p, c, depth, out);

    const char *at = c->p;
    struct str word = p_word(c);
    enum dtype t = dtype_from_name(word);
    RETURN_IF_ERR(count_shape(p, at));
    if (t == DT_INVALID || t == DT_TUPLE || !p_take(c, "["))
        return p_error(p, at, "expected a shape such as f32[2,3], found '" STR_FMT "'",
                       STR_ARG(word));

    int64_t dims[HLO_MAX_RANK];
    bool dynamic[HLO_MAX_RANK], any = false;
    int rank = 0;
    uint16_t unbounded = 0;
    while (!p_take(c, "]")) {
        if (rank && !p_take(c, ",")) return p_error(p, c->p, "expected ',' or ']' in a shape");
        if (rank == HLO_MAX_RANK) return p_error(p, at, "more than %d dimensions", HLO_MAX_RANK);
        bool open = p_take(c, "?");
        any |= dynamic[rank] = open || p_take(c, "<=");
        unbounded |= (uint16_t)(open << rank);
        dims[rank] = 0;
        if (!open && (!p_i64(c, &dims[rank]) || dims[rank] < 0))
            return p_error(p, c->p, "expected a dimension");
        rank++;
    }

    struct shape *s = (struct shape *)(uintptr_t)shape_make(p->m->arena, t, dims, rank);
    if (any) s->dynamic = arena_dup_array(p->m->arena, dynamic, rank);
    s->unbounded = unbounded;
    if (c->p < c->end && *c->p == '{' && c->p + 1 < c->end &&
        (c->p[1] == '}' || c->p[1] == ':' || (c->p[1] >= '0' && c->p[1] <= '9')))
        RETURN_IF_ERR(p_layout(p, c, s));

    RETURN_IF_ERR(st_note(shape_check(s, 0), "shape"));
    *out = s;
    return ST_OK;
}

// ---- literals

static bool real_value(struct str w, double *out) {
    bool neg = w.n && w.p[0] == '-';
    struct str u = neg ? (struct str){w.p + 1, w.n - 1} : w;
    if (str_starts(u, "nan"))
        *out = neg ? -(double)NAN : (double)NAN;
    else if (str_is(u, "inf"))
        *out = neg ? -(double)INFINITY : (double)INFINITY;
    else
        return str_to_f64(w, out);
    return true;
}

static struct str number_word(struct cursor *c) {
    p_space(c);
    const char *from = c->p;
    while (c->p < c->end && !strchr(", \n\t\r{}()", *c->p))
        c->p++;
    if (c->p < c->end && *c->p == '(' && c->p - from >= 3 &&
        memcmp(c->p - 3, "nan", 3) == 0) { // nan(0x...)
        while (c->p < c->end && *c->p != ')')
            c->p++;
        if (c->p < c->end) c->p++;
    }
    return (struct str){from, (size_t)(c->p - from)};
}

// nan(0x400001): the mantissa bits of a NaN, where the word has them.
static bool nan_bits(struct literal *l, int64_t part, struct str w) {
    bool negative = w.p[0] == '-';
    size_t open = negative ? 4 : 3;
    uint64_t payload = 0;
    if (w.n <= open || w.p[open] != '(') return true;
    if (w.n < open + 5 || memcmp(w.p + open, "(0x", 3) != 0 || w.p[w.n - 1] != ')') return false;
    for (const char *p = w.p + open + 3; p < w.p + w.n - 1; p++) {
        const char *hex = "0123456789abcdef", *at = strchr(hex, *p | 0x20);
        if (!*p || !at || payload >> 60) return false;
        payload = payload << 4 | (uint64_t)(at - hex);
    }
    return lit_set_nan(l, part, negative, payload);
}
static status_t bad_nan(struct parser *p, const char *at, enum dtype t, struct str w) {
    return p_error(p, at, "'" STR_FMT "' is not a NaN of type %s", STR_ARG(w), dtype_name(t));
}
static status_t p_complex(struct parser *p, struct cursor *c, struct literal *l, int64_t i,
                          const char *at) {
    double v[2] = {0};
    struct str w[2];
    for (int k = 0; k < 2; k++) {
        w[k] = number_word(c);
        if (!real_value(w[k], &v[k]) || !p_take(c, k ? ")" : ","))
            return p_error(p, at, "expected a complex number such as (1, 2)");
    }
    lit_set_c128(l, i, v[0], v[1]);
    for (int k = 0; k < 2; k++)
        if (isnan(v[k]) && !nan_bits(l, 2 * i + k, w[k]))
            return bad_nan(p, at, l->shape->dtype, w[k]);
    return ST_OK;
}

static status_t p_element(struct parser *p, struct cursor *c, struct literal *l, int64_t i) {
    enum dtype t = l->shape->dtype;
    p_space(c);
    const char *at = c->p;
    double re;

    if (dtype_is_complex(t) && p_take(c, "(")) return p_complex(p, c, l, i, at);

    struct str w = number_word(c);
    if (t == DT_PRED && (str_is(w, "true") || str_is(w, "false"))) {
        lit_set_i64(l, i, w.p[0] == 't');
        return ST_OK;
    }

    if (dtype_is_int(t) || t == DT_PRED) {
        int64_t v;
        uint64_t u;
        bool ok = dtype_class(t) == DC_UNSIGNED
                      ? str_to_u64(w, &u) || (str_to_i64(w, &v) && (u = (uint64_t)v, true))
                      : str_to_i64(w, &v) && (u = (uint64_t)v, true);
        if (!ok)
            return p_error(p, at, "expected a number of type %s, found '" STR_FMT "'",
                           dtype_name(t), STR_ARG(w));
        lit_set_i64(l, i, (int64_t)u);
        if (dtype_class(t) == DC_SIGNED ? lit_get_i64(l, i) != (int64_t)u
                                        : w.p[0] != '-' && (uint64_t)lit_get_i64(l, i) != u)
            return p_error(p, at, "value " STR_FMT " is out of the range of %s", STR_ARG(w),
                           dtype_name(t));
        return ST_OK;
    }

    if (!real_value(w, &re))
        return p_error(p, at, "expected a number of type %s, found '" STR_FMT "'", dtype_name(t),
                       STR_ARG(w));
    lit_set_c128(l, i, re, 0);
    if (isnan(re) && !nan_bits(l, dtype_is_complex(t) ? 2 * i : i, w)) return bad_nan(p, at, t, w);
    return ST_OK;
}

static status_t p_level(struct parser *p, struct cursor *c, struct literal *l, int d, int64_t *i) {
    if (d == l->shape->rank) return p_element(p, c, l, (*i)++);
    if (!p_take(c, "{")) return p_error(p, c->p, "expected '{' at dimension %d of a literal", d);
    for (int64_t k = 0; k < l->shape->dims[d]; k++) {
        if (k && !p_take(c, ","))
            return p_error(p, c->p, "expected %lld elements in dimension %d, found %lld",
                           (long long)l->shape->dims[d], d, (long long)k);
        RETURN_IF_ERR(p_level(p, c, l, d + 1, i));
    }
    if (!p_take(c, "}"))
        return p_error(p, c->p, "expected '}' after %lld elements of dimension %d",
                       (long long)l->shape->dims[d], d);
    return ST_OK;
}

// {@OFFSET}: the bytes lie beside the text.
static status_t p_beside(struct parser *p, struct cursor *c, const struct shape *s,
                         struct literal **out) {
    struct span all = p->limits.constants;
    const char *at = c->p;
    int64_t from, n;
    if (!p_i64(c, &from) || !p_take(c, "}")) return p_error(p, at, "expected {@OFFSET}");
    if (from < 0 || from % 64 || !sz_mul(shape_elements(s), dtype_size(s->dtype), &n) || n < 1 ||
        (uint64_t)from > all.n || (uint64_t)n > all.n - (uint64_t)from)
        return p_error(p, at, "%s does not lie at %lld of %zu bytes of constants",
                       shape_text(p->m->arena, s), (long long)from, all.n);
    *out = lit_borrow(p->m->arena, s, all.p + from);
    return ST_OK;
}

status_t p_literal(struct parser *p, struct cursor *c, const struct shape *s,
                   struct literal **out) {
    if (shape_is_tuple(s)) {
        struct literal **e =
            arena_array(p->m->arena, struct literal *, s->n_elems ? s->n_elems : 1);
        if (!p_take(c, "(")) return p_error(p, c->p, "expected '(' of a tuple literal");
        for (int k = 0; k < s->n_elems; k++) {
            if (k && !p_take(c, ",")) return p_error(p, c->p, "expected ',' in a tuple literal");
            RETURN_IF_ERR(p_literal(p, c, s->elems[k], &e[k]));
        }
        if (!p_take(c, ")")) return p_error(p, c->p, "expected ')' of a tuple literal");
        *out = lit_tuple(p->m->arena, s, e);
        return ST_OK;
    }

    if (p->limits.constants.p && p_take(c, "{@")) return p_beside(p, c, s, out);
    // An element takes two characters of text at the least, unless some dimension is zero: this
    // bounds memory by the input's length.
    int64_t n = shape_elements(s), bytes;
    bool elided = p_take(c, "{...}");
    if (dtype_size(s->dtype) == 0)
        return p_error(p, c->p, "a literal of type %s", dtype_name(s->dtype));
    if (!elided && n > (c->end - c->p) + 1)
        return p_error(p, c->p, "the literal is too short for %lld elements", (long long)n);

    if (!sz_mul(n, dtype_size(s->dtype), &bytes) ||
        bytes > p->limits.max_literal_bytes - p->literal_bytes)
        return p_error(p, c->p, "literals above the limit of %lld bytes",
                       (long long)p->limits.max_literal_bytes);
    p->literal_bytes += bytes;

    struct literal *l = lit_new(p->m->arena, s);
    l->elided = elided;
    if (elided) {
        *out = l;
        return ST_OK;
    }

    int64_t i = 0;
    p_space(c);
    if (n == 0 && c->p < c->end && *c->p == '{') {
        struct str skipped = p_cut(c, ","); // an empty literal: its braces say nothing
        (void)skipped;
    } else {
        RETURN_IF_ERR(p_level(p, c, l, 0, &i));
    }
    *out = l;
    return ST_OK;
}

// ---- attribute values, one function per field kind

static status_t bad_value(struct parser *p, const struct attr_text *t, const char *want) {
    return p_error(p, t->value.p, "%.*s: expected %s, found '%.*s'", (int)t->name.n, t->name.p,
                   want, (int)(t->value.n > 60 ? 60 : t->value.n), t->value.p);
}
static struct cursor over(struct str s) {
    return (struct cursor){s.p, s.p + s.n};
}

static status_t read_i64(struct parser *p, const struct attr_text *t, int64_t *out) {
    return str_to_i64(t->value, out) ? ST_OK : bad_value(p, t, "an integer");
}
static status_t read_f32(struct parser *p, const struct attr_text *t, float *out) {
    double v;
    if (!real_value(t->value, &v)) return bad_value(p, t, "a number");
    *out = (float)v;
    return ST_OK;
}
static status_t read_flag(struct parser *p, const struct attr_text *t, bool *out) {
    bool yes = str_is(t->value, "true") || str_is(t->value, "1");
    if (!yes && !str_is(t->value, "false") && !str_is(t->value, "0"))
        return bad_value(p, t, "true or false");
    *out = yes;
    return ST_OK;
}
static status_t read_i64s(struct parser *p, const struct attr_text *t, struct i64s *out) {
    struct cursor c = over(t->value);
    VEC(int64_t) v = {0};
    int64_t x;
    bool braces = p_take(&c, "{");
    while (p_i64(&c, &x)) {
        avec_push(p->m->arena, &v, x);
        if (!p_take(&c, ",")) break;
    }
    if ((braces && !p_take(&c, "}")) || !p_at_end(&c))
        return bad_value(p, t, "a list such as {0,1}");
    *out = (struct i64s){v.v, (int32_t)v.n};
    return ST_OK;
}
static status_t read_str(struct parser *p, const struct attr_text *t, struct str *out) {
    struct str v = t->value;
    if (p_is_string(v)) {
        *out = p_unescape(p->m->arena, v);
        return ST_OK;
    }
    struct cursor c = over(v); // API_VERSION_ORIGINAL
    if (p_word(&c).n != v.n) return bad_value(p, t, "a word or a \"string\"");
    *out = (struct str){arena_strndup(p->m->arena, v.p, v.n), v.n};
    return ST_OK;
}

static int window_slot(struct str name, const struct window_dim *d, const int64_t **out) {
    static const char *const names[] = {"size", "stride", "lhs_dilate", "rhs_dilate"};
    const int64_t *slots[] = {&d->size, &d->stride, &d->base_dilation, &d->window_dilation};
    for (int k = 0; k < 4; k++)
        if (str_is(name, names[k])) {
            *out = slots[k];
            return 1;
        }
    return 0;
}

static status_t read_window(struct parser *p, const struct attr_text *t, struct window *out) {
    struct cursor c = over(t->value);
    struct window_dim dims[HLO_MAX_RANK];
    int n = -1;

    if (!p_take(&c, "{")) return bad_value(p, t, "{size=...}");
    for (int k = 0; k < HLO_MAX_RANK; k++)
        dims[k] = (struct window_dim){1, 1, 0, 0, 1, 1, false};

    while (!p_take(&c, "}")) {
        struct str name = p_word(&c);
        if (!name.n || !p_take(&c, "=")) return bad_value(p, t, "name=AxB fields");
        int k = 0;
        do {
            int64_t a, b = 0;
            const int64_t *slot = NULL;
            if (k == HLO_MAX_RANK || !p_i64(&c, &a))
                return bad_value(p, t, "numbers joined by 'x'");
            if (str_is(name, "pad")) {
                if (!p_take(&c, "_") || !p_i64(&c, &b)) return bad_value(p, t, "pad=LOW_HIGH");
                dims[k].pad_low = a;
                dims[k].pad_high = b;
            } else if (str_is(name, "rhs_reversal")) {
                dims[k].reversal = a != 0;
            } else if (window_slot(name, &dims[k], &slot)) {
                *(int64_t *)(uintptr_t)slot = a;
                if (a < 1 && !(slot == &dims[k].size && a == 0))
                    return bad_value(p, t, "positive sizes");
            } else {
                return bad_value(p, t, "size, stride, pad, lhs_dilate, rhs_dilate or rhs_reversal");
            }
            k++;
        } while (c.p < c.end && *c.p == 'x' && c.p++);

        // Reversal may be given for the leading dimensions alone.
        if (n >= 0 && (str_is(name, "rhs_reversal") ? k > n : k != n))
            return bad_value(p, t, "the same number of dimensions in each field");
        n = n > k ? n : k;
    }

    out->n = n < 0 ? 0 : n;
    out->v = out->n ? arena_dup_array(p->m->arena, dims, out->n) : NULL;
    return ST_OK;
}

// "b01f": letters name roles, digits spatial dimensions. Gives positions; false on anything else.
static bool label_group(struct str g, char c1, int32_t *first, char c2, int32_t *second,
                        int32_t *spatial, int *n_spatial) {
    int n = (int)g.n - 2, seen = 0;
    if (n < 0 || n > 9) return false;
    *first = *second = -1;
    for (int k = 0; k < n; k++)
        spatial[k] = -1;
    for (int k = 0; k < (int)g.n; k++) {
        char x = g.p[k];
        if (x == c1 && *first < 0)
            *first = k;
        else if (x == c2 && *second < 0)
            *second = k;
        else if (x >= '0' && x < '0' + n && spatial[x - '0'] < 0)
            spatial[x - '0'] = k, seen++;
        else
            return false;
    }
    *n_spatial = n;
    return seen == n && *first >= 0 && *second >= 0;
}
static status_t read_labels(struct parser *p, const struct attr_text *t, struct labels *out) {
    struct str v = t->value, in, k;
    int n[3];
    memset(out, 0, sizeof *out);
    bool ok = str_cut(&v, '_', &in) && str_cut(&v, '-', &k) && v.n && v.p[0] == '>';
    if (ok) v.p++, v.n--;
    ok = ok &&
         label_group(in, 'b', &out->in_batch, 'f', &out->in_feature, out->in_spatial, &n[0]) &&
         label_group(k, 'i', &out->k_in, 'o', &out->k_out, out->k_spatial, &n[1]) &&
         label_group(v, 'b', &out->out_batch, 'f', &out->out_feature, out->out_spatial, &n[2]) &&
         n[0] == n[1] && n[1] == n[2];
    if (!ok) return bad_value(p, t, "labels such as b01f_01io->b01f");
    out->n_spatial = n[0];
    return ST_OK;
}
static status_t read_padding(struct parser *p, const struct attr_text *t, struct padding *out) {
    struct cursor c = over(t->value);
    struct pad_dim d[HLO_MAX_RANK];
    int n = 0;
    while (!p_at_end(&c)) {
        if (n == HLO_MAX_RANK || !p_i64(&c, &d[n].low) || !p_take(&c, "_") ||
            !p_i64(&c, &d[n].high))
            return bad_value(p, t, "LOW_HIGH[_INTERIOR] joined by 'x'");
        d[n].interior = 0;
        if (p_take(&c, "_") && !p_i64(&c, &d[n].interior))
            return bad_value(p, t, "LOW_HIGH[_INTERIOR]");
        n++;
        if (!p_take(&c, "x") && !p_at_end(&c))
            return bad_value(p, t, "LOW_HIGH[_INTERIOR] joined by 'x'");
    }
    *out = (struct padding){n ? arena_dup_array(p->m->arena, d, n) : NULL, n};
    return ST_OK;
}
static status_t read_ranges(struct parser *p, const struct attr_text *t, struct ranges *out) {
    struct cursor c = over(t->value);
    struct range r[HLO_MAX_RANK];
    int n = 0;
    if (!p_take(&c, "{")) return bad_value(p, t, "{[start:limit:stride],...}");
    while (!p_take(&c, "}")) {
        if ((n && !p_take(&c, ",")) || n == HLO_MAX_RANK || !p_take(&c, "[") ||
            !p_i64(&c, &r[n].start) || !p_take(&c, ":") || !p_i64(&c, &r[n].limit))
            return bad_value(p, t, "{[start:limit:stride],...}");
        r[n].stride = 1;
        if (p_take(&c, ":") && !p_i64(&c, &r[n].stride))
            return bad_value(p, t, "{[start:limit:stride],...}");
        if (!p_take(&c, "]")) return bad_value(p, t, "{[start:limit:stride],...}");
        n++;
    }
    *out = (struct ranges){n ? arena_dup_array(p->m->arena, r, n) : NULL, n};
    return ST_OK;
}
static status_t read_enum(struct parser *p, const struct attr_text *t, const char *const *names,
                          int *out) {
    for (int k = 0; names[k]; k++)
        if (str_is(t->value, names[k])) {
            *out = k;
            return ST_OK;
        }
    return bad_value(p, t, names[0]);
}
#define ENUMS(kind, values)                                                                        \
    static status_t read_##kind(struct parser *p, const struct attr_text *t, enum kind *out) {     \
        int k = 0;                                                                                 \
        RETURN_IF_ERR(read_enum(p, t, hlo_enum_##kind, &k));                                       \
        *out = (enum kind)k;                                                                       \
        return ST_OK;                                                                              \
    }
#include "compiler/ir/enums.def"
#undef ENUMS

enum need { NEED_OPT, NEED_REQ, NEED_ALW = NEED_OPT, NEED_1 = NEED_OPT };

#define F(kind, field, def, ...)                                                                   \
    t = p_attr_find(attrs, n, #field);                                                             \
    if (t)                                                                                         \
        RETURN_IF_ERR(read_##kind(p, t, &r->field));                                               \
    else if (NEED_##def == NEED_REQ)                                                               \
        return p_error(p, at, "attribute " #field " is missing");
#define ATTR(record, fields)                                                                       \
    static status_t read_record_##record(struct parser *p, struct attr_text *attrs, int n,         \
                                         const char *at, struct hlo_attr_##record *r) {            \
        struct attr_text *t = NULL;                                                                \
        (void)p, (void)attrs, (void)n, (void)at, (void)r, (void)t;                                 \
        fields return ST_OK;                                                                       \
    }
#include "compiler/ir/attrs.def"
#undef ATTR
#undef F

status_t p_attr_record(struct parser *p, enum hlo_attr_kind k, struct attr_text *attrs, int n,
                       const char *at, void **out) {
    void *r = attr_clone(p->m->arena, k, NULL);
    switch (k) {
#define ATTR(record, fields)                                                                       \
    case ATTR_##record:                                                                            \
        RETURN_IF_ERR(read_record_##record(p, attrs, n, at, r));                                   \
        break;
#include "compiler/ir/attrs.def"
#undef ATTR
    case ATTR_KIND_COUNT:
        break;
    }
    *out = r;
    return ST_OK;
}
