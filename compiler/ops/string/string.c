// SPDX-License-Identifier: Apache-2.0
#include "compiler/ops/string/string.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/ir/literal.h"
#include "compiler/ops/string/string_match.h"
#include "compiler/strings.h"
#include "proto/hlod.pb-c.h"

static status_t bad_call(struct hlo_eval *ev, const struct hlo_instr *i) MUST_CHECK;
static status_t bad_call(struct hlo_eval *ev, const struct hlo_instr *i) {
    struct strbuf b = {0};
    for (int k = 0; k < i->n_operands; k++)
        strbuf_printf(&b, "%s%s", k ? ", " : "", shape_text(ev->arena, i->operands[k]->shape));
    status_t st = st_invalid("instruction '%s': " STR_FMT " of (%s) gives %s", i->name,
                             STR_ARG(HLO_ATTR(i, custom)->custom_call_target), strbuf_cstr(&b),
                             shape_text(ev->arena, i->shape));
    strbuf_done(&b);
    return st;
}
// Is there a table, and are there n operands, the first `texts` of them places?
static status_t begin(struct hlo_eval *ev, const struct hlo_instr *i, int n, int texts) MUST_CHECK;
static status_t begin(struct hlo_eval *ev, const struct hlo_instr *i, int n, int texts) {
    if (!ev->texts)
        return st_unimplemented("instruction '%s': " STR_FMT " outside of a run that has texts",
                                i->name, STR_ARG(HLO_ATTR(i, custom)->custom_call_target));
    bool fit = i->n_operands == n;
    for (int k = 0; fit && k < n; k++)
        fit = !shape_is_tuple(i->operands[k]->shape) &&
              (k >= texts || i->operands[k]->shape->dtype == DT_S32);
    return fit ? ST_OK : bad_call(ev, i);
}
static bool is_scalar(const struct shape *s, enum dtype t) {
    return s->dtype == t && s->rank == 0;
}
static struct str text_of(struct hlo_eval *ev, const struct literal *l, int64_t k) {
    return strings_get(ev->texts, (int32_t)lit_get_i64(l, k));
}
// A compile keeps what it makes in the executable: 8 MiB of EVAL_COMPILE_WORK.
enum { WORK_OF_BYTE = 8 };
static status_t put_text(struct hlo_eval *ev, struct literal *l, int64_t k, struct str s) {
    int32_t place;
    RETURN_IF_ERR(hlo_eval_spend(ev, (int64_t)s.n * WORK_OF_BYTE));
    RETURN_IF_ERR(strings_add(ev->texts, s, &place));
    lit_set_i64(l, k, place);
    return ST_OK;
}

status_t hlo_string_concat(struct hlo_eval *ev, const struct hlo_instr *i,
                           struct literal *const *in, struct literal **out) {
    RETURN_IF_ERR(begin(ev, i, 2, 2));
    if (!shape_compatible(in[0]->shape, in[1]->shape) || !shape_compatible(in[0]->shape, i->shape))
        return bad_call(ev, i);
    RETURN_IF_ERR(hlo_eval_alloc(ev, i, out));
    struct strbuf b = {0};
    status_t st = ST_OK;
    for (int64_t k = 0, n = shape_elements(i->shape); k < n && !st; k++) {
        struct str x = text_of(ev, in[0], k), y = text_of(ev, in[1], k);
        strbuf_clear(&b);
        strbuf_add(&b, x.p, x.n);
        strbuf_add(&b, y.p, y.n);
        st = put_text(ev, *out, k, (struct str){b.p, b.n});
    }
    strbuf_done(&b);
    return st;
}

static void put_cased(struct strbuf *b, struct str s, bool upper) {
    char bytes[4];
    strbuf_clear(b);
    for (size_t at = 0; at < s.n;) {
        uint32_t u = string_utf8(s, &at);
        strbuf_add(b, bytes, (size_t)text_utf8_put(upper ? text_upper(u) : text_lower(u), bytes));
    }
}
static status_t is_stop_word(struct hlo_eval *ev, const struct literal *stop, struct str s,
                             struct strbuf *x, struct strbuf *y, bool any_case, bool *out) {
    *out = false;
    if (any_case) put_cased(x, s, false);
    for (int64_t k = 0, n = shape_elements(stop->shape); k < n && !*out; k++) {
        struct str w = text_of(ev, stop, k);
        RETURN_IF_ERR(hlo_eval_spend(ev, any_case ? (int64_t)w.n + 1 : 1));
        if (any_case) put_cased(y, w, false);
        *out = any_case ? str_eq((struct str){x->p, x->n}, (struct str){y->p, y->n}) : str_eq(s, w);
    }
    return ST_OK;
}
status_t hlo_string_normalize(struct hlo_eval *ev, const struct hlo_instr *i,
                              struct literal *const *in, struct literal **out) {
    RETURN_IF_ERR(begin(ev, i, 3, 3));
    int64_t n = shape_elements(in[0]->shape), kept = 0, flags;
    const struct shape *r = i->shape;
    if (in[0]->shape->rank != 1 || !is_scalar(in[2]->shape, DT_S32) || !shape_is_tuple(r) ||
        r->n_elems != 2 || r->elems[0]->dtype != DT_S32 || r->elems[0]->rank != 1 ||
        r->elems[0]->dims[0] != (n ? n : 1) || !is_scalar(r->elems[1], DT_S64))
        return bad_call(ev, i);
    RETURN_IF_ERR(hlo_eval_alloc(ev, i, out));
    flags = lit_get_i64(in[2], 0);
    struct strbuf x = {0}, y = {0};
    status_t st = ST_OK;
    for (int64_t k = 0; k < n && !st; k++) {
        struct str s = text_of(ev, in[0], k);
        bool stop;
        st = is_stop_word(ev, in[1], s, &x, &y, flags & STRING_ANY_CASE, &stop);
        if (st || stop) continue;
        if (flags & (STRING_LOWER | STRING_UPPER)) {
            put_cased(&x, s, flags & STRING_UPPER);
            s = (struct str){x.p, x.n};
        }
        st = put_text(ev, (*out)->elems[0], kept++, s);
    }
    lit_set_i64((*out)->elems[1], 0, kept ? kept : 1);
    strbuf_done(&x);
    strbuf_done(&y);
    return st;
}

// ---- split

static status_t no_room(const struct hlo_instr *i, int64_t k, int64_t bound) {
    return st_reason(st_new(ST_OUT_OF_RANGE,
                            "%s: text %lld has more than %lld parts, which are as many as this "
                            "program has room for",
                            i->op_name ? i->op_name : i->name, (long long)k, (long long)bound),
                     HLOD__V1__REASON__REASON_BAD_TENSOR_DATA);
}
static bool is_space(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}
static void skip_space(struct str *s) {
    while (s->n && is_space(*s->p)) {
        s->p++;
        s->n--;
    }
}
// Takes the next part off s; false when there is none. delimiter "": white space. last: all that is
// left is one part.
static bool next_part(struct str *s, struct str delimiter, bool last, bool *done, struct str *out) {
    if (*done) return false;
    if (!delimiter.n) {
        skip_space(s);
        if (!s->n) return false;
    }
    size_t n = 0, skip = delimiter.n;
    if (delimiter.n) {
        const char *at = last || !s->n ? NULL : memmem(s->p, s->n, delimiter.p, delimiter.n);
        *done = !at;
        n = at ? (size_t)(at - s->p) : s->n;
        if (!at) skip = 0;
    } else if (last) {
        n = s->n;
        *done = true;
    } else {
        while (n < s->n && !is_space(s->p[n]))
            n++;
    }
    *out = (struct str){s->p, n};
    s->p += n + skip;
    s->n -= n + skip;
    return true;
}
status_t hlo_string_split(struct hlo_eval *ev, const struct hlo_instr *i, struct literal *const *in,
                          struct literal **out) {
    RETURN_IF_ERR(begin(ev, i, 3, 2));

    const struct shape *x = in[0]->shape, *r = i->shape;
    if (!is_scalar(in[1]->shape, DT_S32) || !is_scalar(in[2]->shape, DT_S64) ||
        !shape_is_tuple(r) || r->n_elems != 3 || r->elems[0]->dtype != DT_S32 ||
        r->elems[0]->rank != x->rank + 1 || r->elems[1]->dtype != DT_S64 ||
        !shape_same_dims(r->elems[1], x) || !is_scalar(r->elems[2], DT_S64))
        return bad_call(ev, i);
    for (int d = 0; d < x->rank; d++)
        if (r->elems[0]->dims[d] != x->dims[d]) return bad_call(ev, i);

    RETURN_IF_ERR(hlo_eval_alloc(ev, i, out));
    struct str delimiter = text_of(ev, in[1], 0);
    int64_t most = lit_get_i64(in[2], 0), bound = r->elems[0]->dims[x->rank], longest = 0;

    for (int64_t k = 0, n = shape_elements(x); k < n; k++) {
        struct str s = text_of(ev, in[0], k), part;
        bool done = false;
        int64_t count = 0;
        for (; next_part(&s, delimiter, most >= 0 && count >= most, &done, &part); count++) {
            if (count >= bound) return no_room(i, k, bound);
            RETURN_IF_ERR(put_text(ev, (*out)->elems[0], k * bound + count, part));
        }
        lit_set_i64((*out)->elems[1], k, count);
        if (count > longest) longest = count;
    }

    lit_set_i64((*out)->elems[2], 0, longest);
    return ST_OK;
}

// ---- tokens

typedef VEC(struct str) texts;
struct tokens {
    struct hlo_eval *ev;
    struct string_pattern **by;
    int64_t n, least;
    bool between;
    texts now, next;
};
static int64_t characters(struct str s) {
    int64_t n = 0;
    for (size_t at = 0; at < s.n; n++)
        string_utf8(s, &at);
    return n;
}
static void keep(const struct tokens *t, texts *to, struct str s) {
    if (characters(s) >= t->least) vec_push(to, s);
}
// The next find in s from *at on, which moves behind it: of those that count, where finds are the
// tokens. An empty one is one character long.
static status_t next_find(struct tokens *t, struct string_pattern *p, struct str s, size_t *at,
                          struct str *find, bool *out) {
    RETURN_IF_ERR(hlo_eval_spend(t->ev, (int64_t)(s.n - *at + 1) * string_pattern_steps(p)));
    *out = string_pattern_find(p, s, *at, t->between ? 0 : t->least, find, t->ev->cancel);
    if (!*out) return hlo_eval_spend(t->ev, 0); // cancelled in it?
    *at = (size_t)(find->p - s.p);
    if (find->n)
        *at += find->n;
    else if (*at < s.n)
        string_utf8(s, at);
    return ST_OK;
}
static status_t find_all(struct tokens *t, struct string_pattern *p, struct str s) {
    struct str find;
    bool more = true;
    for (size_t at = 0; more && at < s.n;) {
        RETURN_IF_ERR(next_find(t, p, s, &at, &find, &more));
        if (more && find.n) vec_push(&t->next, find);
    }
    return ST_OK;
}
static status_t find_between(struct tokens *t, struct string_pattern *p, struct str s) {
    struct str find;
    size_t begin = 0, at = 0;
    for (bool more = true; more;) {
        RETURN_IF_ERR(next_find(t, p, s, &at, &find, &more));
        more = more && at > begin;
        size_t end = more ? (size_t)(find.p - s.p) : s.n;
        keep(t, &t->next, (struct str){s.p + begin, end - begin});
        begin = at;
    }
    return ST_OK;
}
static status_t tokens_of(struct tokens *t, struct str s) {
    t->now.n = 0;
    vec_push(&t->now, s);
    for (int64_t e = 0; e < t->n; e++) {
        t->next.n = 0;
        for (size_t k = 0; k < t->now.n; k++)
            RETURN_IF_ERR((t->between ? find_between : find_all)(t, t->by[e], t->now.v[k]));
        texts was = t->now;
        t->now = t->next;
        t->next = was;
    }
    return ST_OK;
}
static status_t put_tokens(struct tokens *t, const struct hlo_instr *i, struct literal *const *in,
                           struct literal *out, int64_t *longest) {
    int64_t bound = i->shape->elems[0]->dims[in[0]->shape->rank], pad = lit_get_i64(in[2], 0);
    bool marked = lit_get_i64(in[4], 0) & STRING_MARKED;
    for (int64_t k = 0, n = shape_elements(in[0]->shape); k < n; k++) {
        RETURN_IF_ERR(tokens_of(t, text_of(t->ev, in[0], k)));
        int64_t count = 0, all = (int64_t)t->now.n + 2 * marked;
        if (all > bound) return no_room(i, k, bound);
        if (marked) RETURN_IF_ERR(put_text(t->ev, out, k * bound + count++, STR("\2")));
        for (size_t e = 0; e < t->now.n; e++)
            RETURN_IF_ERR(put_text(t->ev, out, k * bound + count++, t->now.v[e]));
        if (marked) RETURN_IF_ERR(put_text(t->ev, out, k * bound + count++, STR("\3")));
        for (; count < bound; count++)
            lit_set_i64(out, k * bound + count, pad);
        if (t->now.n && all > *longest) *longest = all; // of texts without any, marks are not told
    }
    return ST_OK;
}
status_t hlo_string_tokens(struct hlo_eval *ev, const struct hlo_instr *i,
                           struct literal *const *in, struct literal **out) {
    RETURN_IF_ERR(begin(ev, i, 5, 3));
    const struct shape *x = in[0]->shape, *r = i->shape;
    if (in[1]->shape->rank != 1 || in[2]->shape->rank != 0 || !is_scalar(in[3]->shape, DT_S64) ||
        !is_scalar(in[4]->shape, DT_S32) || !shape_is_tuple(r) || r->n_elems != 2 ||
        r->elems[0]->dtype != DT_S32 || r->elems[0]->rank != x->rank + 1 ||
        !is_scalar(r->elems[1], DT_S64))
        return bad_call(ev, i);
    for (int d = 0; d < x->rank; d++)
        if (r->elems[0]->dims[d] != x->dims[d]) return bad_call(ev, i);
    RETURN_IF_ERR(hlo_eval_alloc(ev, i, out));

    int64_t longest = 0, n = in[1]->shape->dims[0];
    struct tokens t = {.ev = ev,
                       .by = arena_zarray(ev->arena, struct string_pattern *, n + 1),
                       .n = n,
                       .least = lit_get_i64(in[3], 0),
                       .between = lit_get_i64(in[4], 0) & STRING_BETWEEN};
    status_t st = ST_OK;
    for (int64_t e = 0; e < n && !st; e++)
        st = string_pattern_new(text_of(ev, in[1], e), &t.by[e]);
    if (!st) st = put_tokens(&t, i, in, (*out)->elems[0], &longest);
    if (!st) lit_set_i64((*out)->elems[1], 0, longest);
    for (int64_t e = 0; e < n; e++)
        string_pattern_free(t.by[e]);
    vec_done(&t.now);
    vec_done(&t.next);
    return st;
}

status_t hlo_string_match(struct hlo_eval *ev, const struct hlo_instr *i, struct literal *const *in,
                          struct literal **out) {
    RETURN_IF_ERR(begin(ev, i, 2, 2));
    if (in[1]->shape->rank != 0 || i->shape->dtype != DT_PRED ||
        !shape_same_dims(i->shape, in[0]->shape))
        return bad_call(ev, i);
    RETURN_IF_ERR(hlo_eval_alloc(ev, i, out));
    struct string_pattern *p;
    RETURN_IF_ERR(string_pattern_new(text_of(ev, in[1], 0), &p));
    status_t st = ST_OK;
    for (int64_t k = 0, n = shape_elements(i->shape); k < n && !st; k++) {
        struct str s = text_of(ev, in[0], k);
        st = hlo_eval_spend(ev, (int64_t)s.n * string_pattern_steps(p));
        if (!st) lit_set_i64(*out, k, string_pattern_matches(p, s, ev->cancel));
    }
    if (!st) st = hlo_eval_spend(ev, 0); // cancelled in the last one?
    string_pattern_free(p);
    return st;
}

// ---- hashes

// MurmurHash3_x86_32 (Appleby, SMHasher), by bytes in little-endian order.
static uint32_t rotate(uint32_t x, int by) {
    return x << by | x >> (32 - by);
}
static uint32_t scramble(uint32_t word) {
    return rotate(word * 0xcc9e2d51u, 15) * 0x1b873593u;
}
static uint32_t hash_text(struct str s, uint32_t seed) {
    const uint8_t *p = (const uint8_t *)s.p;
    uint32_t h = seed, word = 0;
    size_t at = 0;
    for (; s.n - at >= 4; at += 4) {
        word = (uint32_t)p[at] | (uint32_t)p[at + 1] << 8 | (uint32_t)p[at + 2] << 16 |
               (uint32_t)p[at + 3] << 24;
        h = rotate(h ^ scramble(word), 13) * 5 + 0xe6546b64u;
    }
    word = 0;
    for (size_t k = s.n; k > at; k--)
        word = word << 8 | p[k - 1];
    h ^= scramble(word); // of no bytes: 0
    h ^= (uint32_t)s.n;
    h = (h ^ h >> 16) * 0x85ebca6bu;
    h = (h ^ h >> 13) * 0xc2b2ae35u;
    return h ^ h >> 16;
}
status_t hlo_string_hash(struct hlo_eval *ev, const struct hlo_instr *i, struct literal *const *in,
                         struct literal **out) {
    RETURN_IF_ERR(begin(ev, i, 2, 1));
    if (!is_scalar(in[1]->shape, DT_U32) || i->shape->dtype != DT_U32 ||
        !shape_same_dims(i->shape, in[0]->shape))
        return bad_call(ev, i);
    RETURN_IF_ERR(hlo_eval_alloc(ev, i, out));
    uint32_t seed = (uint32_t)lit_get_i64(in[1], 0);
    for (int64_t k = 0, n = shape_elements(i->shape); k < n; k++)
        lit_set_i64(*out, k, hash_text(text_of(ev, in[0], k), seed));
    return ST_OK;
}

// ---- order

struct placed_text {
    struct str s;
    int64_t at; // which element
};
static int by_bytes(const void *a, const void *b) {
    struct str x = ((const struct placed_text *)a)->s, y = ((const struct placed_text *)b)->s;
    int first = memcmp(x.p, y.p, x.n < y.n ? x.n : y.n);
    return first ? first : (x.n > y.n) - (x.n < y.n);
}
status_t hlo_string_rank(struct hlo_eval *ev, const struct hlo_instr *i, struct literal *const *in,
                         struct literal **out) {
    RETURN_IF_ERR(begin(ev, i, 1, 1));
    if (i->shape->dtype != DT_S32 || !shape_same_dims(i->shape, in[0]->shape))
        return bad_call(ev, i);
    RETURN_IF_ERR(hlo_eval_alloc(ev, i, out));
    int64_t n = shape_elements(i->shape), rank = 0;
    RETURN_IF_ERR(hlo_eval_spend(ev, n * (int64_t)sizeof(struct placed_text)));
    struct placed_text *all = arena_array(ev->arena, struct placed_text, n + 1);

    for (int64_t k = 0; k < n; k++)
        all[k] = (struct placed_text){text_of(ev, in[0], k), k};
    qsort(all, (size_t)n, sizeof *all, by_bytes);
    for (int64_t k = 0; k < n; k++) {
        rank += k > 0 && !str_eq(all[k - 1].s, all[k].s);
        lit_set_i64(*out, all[k].at, rank);
    }
    return ST_OK;
}

// ---- numbers

static bool parse_float(struct str s, double *out) {
    char text[512], *end;
    if (s.n == 0 || s.n >= sizeof text) return false;
    memcpy(text, s.p, s.n);
    text[s.n] = 0;
    *out = strtod(text, &end);
    return end == text + s.n; // also NaN, INF, +INF, -INF in any case
}
static bool parse_int(struct str s, enum dtype t, struct literal *out, int64_t k) {
    bool plus = s.n > 1 && s.p[0] == '+' && s.p[1] != '-' && s.p[1] != '+';
    int64_t v;
    uint64_t u;
    if (plus) s = (struct str){s.p + 1, s.n - 1};
    if (dtype_class(t) == DC_UNSIGNED && str_to_u64(s, &u)) {
        lit_set_i64(out, k, (int64_t)u);
        return (uint64_t)lit_get_i64(out, k) == u;
    }
    if (!str_to_i64(s, &v) || (v < 0 && dtype_class(t) == DC_UNSIGNED)) return false;
    lit_set_i64(out, k, v);
    return lit_get_i64(out, k) == v;
}
status_t hlo_string_parse(struct hlo_eval *ev, const struct hlo_instr *i, struct literal *const *in,
                          struct literal **out) {
    RETURN_IF_ERR(begin(ev, i, 1, 1));
    enum dtype t = i->shape->dtype;
    if (!shape_same_dims(i->shape, in[0]->shape) || shape_is_tuple(i->shape) ||
        !(dtype_is_float(t) || dtype_is_int(t)))
        return bad_call(ev, i);
    RETURN_IF_ERR(hlo_eval_alloc(ev, i, out));
    for (int64_t k = 0, n = shape_elements(i->shape); k < n; k++) {
        struct str all = text_of(ev, in[0], k), s = str_trim(all);
        double d;
        bool fine = dtype_is_float(t) ? parse_float(s, &d) : parse_int(s, t, *out, k);
        if (!fine)
            return st_reason(st_invalid("%s: element %lld, '%.*s', is not a number of %s",
                                        i->op_name ? i->op_name : i->name, (long long)k,
                                        all.n > 80 ? 80 : (int)all.n, all.p, dtype_name(t)),
                             HLOD__V1__REASON__REASON_BAD_TENSOR_DATA);
        if (dtype_is_float(t)) lit_set_f64(*out, k, d);
    }
    return ST_OK;
}

// As ONNX Runtime writes numbers of every type: 8 digits, without zeros behind the last.
static void print_float(struct strbuf *b, const struct literal *l, int64_t k) {
    double x = lit_get_f64(l, k);
    strbuf_clear(b);
    if (isnan(x) || isinf(x))
        strbuf_puts(b, isnan(x) ? "NaN" : x > 0 ? "INF" : "-INF");
    else
        strbuf_printf(b, "%.8g", x);
}
status_t hlo_string_print(struct hlo_eval *ev, const struct hlo_instr *i, struct literal *const *in,
                          struct literal **out) {
    RETURN_IF_ERR(begin(ev, i, 1, 0));
    enum dtype t = in[0]->shape->dtype;
    if (i->shape->dtype != DT_S32 || !shape_same_dims(i->shape, in[0]->shape) ||
        !(dtype_is_float(t) || dtype_is_int(t)))
        return bad_call(ev, i);
    RETURN_IF_ERR(hlo_eval_alloc(ev, i, out));
    struct strbuf b = {0};
    status_t st = ST_OK;
    for (int64_t k = 0, n = shape_elements(i->shape); k < n && !st; k++) {
        if (dtype_is_float(t)) {
            print_float(&b, in[0], k);
        } else {
            strbuf_clear(&b);
            int64_t v = lit_get_i64(in[0], k);
            if (dtype_class(t) == DC_UNSIGNED)
                strbuf_printf(&b, "%" PRIu64, (uint64_t)v);
            else
                strbuf_printf(&b, "%" PRId64, v);
        }
        st = put_text(ev, *out, k, (struct str){b.p, b.n});
    }
    strbuf_done(&b);
    return st;
}
