// SPDX-License-Identifier: Apache-2.0
// Text (docs/decisions/0008). A value of text is a tensor of s32 places in a table
// (compiler/strings.h) and is marked so; operators that move elements about work on the places and
// are listed here, with the inputs that must be text. Those that look inside a text are
// custom-calls (ops/string/string.h), which a run evaluates; of texts known at compile time
// they are evaluated at once, like all else.
#include <string.h>

#include <stdio.h>

#include "compiler/frontend/onnx/onnx_dynamic.h"
#include "compiler/ops/string/string.h"
#include "compiler/ops/string/string_match.h"
#include "compiler/strings.h"

enum {
    MAX_TEXTS = 1 << 20,
    MAX_PARTS = 1024,
    MAX_PART_PLACES = 1 << 24,
    MAX_TOKENS = 1 << 14,
    TOKEN_PLACES = 1 << 17
};

static hv text_const(struct onnx_ctx *c, struct str s) {
    return hb_const_i64(&c->b, DT_S32, onnx_string_place(c, s));
}

// ---- which operators take text

// FIRST: of the results the first is text; OWN: the function marks its results itself.
enum { TO_TEXT, FIRST, TO_NUMBERS, OWN };
static const struct {
    uint32_t in; // of TO_*: the inputs that are text; the others are not
    int kind;
    const char *ops;
} rules[] = {
    {1, TO_TEXT,
     "Compress Expand Flatten Gather GatherElements GatherND Identity Reshape ReverseSequence "
     "Slice Split Squeeze Tile Transpose Unsqueeze StringNormalizer "
     "ai.onnx.ml.ArrayFeatureExtractor"},
    {3, TO_TEXT, "StringConcat"},
    {4, TO_TEXT, "OneHot"},
    {5, TO_TEXT, "Scatter ScatterElements ScatterND"},
    {6, TO_TEXT, "Where"},
    {~0u, TO_TEXT, "Concat"},
    {1, FIRST, "Unique"},
    {1, TO_NUMBERS,
     "Shape Size RegexFullMatch TfIdfVectorizer com.microsoft.MurmurHash3 "
     "ai.onnx.ml.CategoryMapper ai.onnx.ml.OneHotEncoder"},
    {3, TO_NUMBERS, "Equal"},
    {1, OWN,
     "StringSplit com.microsoft.Tokenizer ai.onnx.ml.LabelEncoder ai.onnx.ml.DictVectorizer Cast "
     "CastLike"},
    // These take what is carried and captured as it is.
    {0, OWN,
     "If Loop Scan SequenceConstruct SequenceInsert SequenceErase SequenceAt SequenceLength "
     "SequenceMap ConcatFromSequence SplitToSequence Optional OptionalHasElement "
     "OptionalGetElement"}};
enum { N_RULES = sizeof rules / sizeof rules[0] };

bool onnx_has_text(struct onnx_ctx *c) {
    for (size_t k = 0; k < c->n->in.n; k++) {
        const struct onnx_val *v = onnx_in_any(c, k);
        if (v && (v->text || (v->list && v->list->text))) return true;
    }
    return false;
}

static int rule_of(const struct onnx_node *n) {
    char name[128];
    int length = snprintf(name, sizeof name, STR_FMT "%s" STR_FMT, STR_ARG(n->domain),
                          n->domain.n ? "." : "", STR_ARG(n->op));
    for (int k = 0; k < N_RULES && length < (int)sizeof name; k++)
        if (str_listed(str_of(name), rules[k].ops)) return k;
    return -1;
}
// Each input is text where the rule says so, and nowhere else.
static bool inputs_fit(struct onnx_ctx *c, uint32_t mask) {
    for (size_t k = 0; k < c->n->in.n; k++) {
        const struct onnx_val *v = onnx_in_any(c, k);
        bool want = mask >> (k < 31 ? k : 31) & 1;
        if (!v || !v->v || v->text == want) continue;
        onnx_fail(c, want ? "input %zu is numbers where others are text" : "input %zu is text", k);
        return false;
    }
    return true;
}
void onnx_pass_text(struct onnx_ctx *c, onnx_fn fn) {
    int r = rule_of(c->n);
    struct str reduction = onnx_at_str(c, "reduction", "none");
    if (r < 0) {
        for (size_t k = 0; k < c->n->in.n; k++)
            if (onnx_in_any(c, k) && onnx_in_any(c, k)->text)
                return onnx_fail(
                    c, "input %zu is text, which this operator has no meaning for here", k);
        return onnx_fail(c, "a sequence of texts is nothing this operator takes");
    }
    if (rules[r].kind != OWN && !inputs_fit(c, rules[r].in)) return;
    if (!str_is(reduction, "none"))
        return onnx_fail(c, "texts have no " STR_FMT, STR_ARG(reduction));
    bool control = rules[r].kind == OWN && !rules[r].in &&
                   (str_is(c->n->op, "If") || str_is(c->n->op, "Loop") || str_is(c->n->op, "Scan"));
    c->text_ok = !control; // bodies lower nodes of their own
    if (onnx_has_dynamic(c))
        onnx_pass_dynamic(c, fn);
    else
        fn(c);
    c->text_ok = false;
    size_t marked = rules[r].kind == TO_TEXT ? c->n->out.n : rules[r].kind == FIRST;
    for (size_t k = 0; k < marked && k < c->n->out.n; k++) {
        struct onnx_val *o = c->n->out.v[k].n ? smap_get(&c->values, c->n->out.v[k]) : NULL;
        if (o && o->v) o->text = true;
    }
}

// ---- text functions

static hv text_call(struct onnx_ctx *c, const char *name, const struct shape *s, hv const *operands,
                    int n) {
    struct hlo_attr_custom attr = {.custom_call_target =
                                       str_of(arena_printf(c->a, "hlod.text.%s", name))};
    return hb_op(&c->b, HLO_CUSTOM_CALL, s, operands, n, &attr);
}
static bool all_text(struct onnx_ctx *c, size_t n) {
    for (size_t k = 0; k < n; k++)
        if (!onnx_in_any(c, k) || !onnx_in_any(c, k)->text) {
            onnx_fail(c, "input %zu is not text", k);
            return false;
        }
    return true;
}

hv onnx_text_ranks(struct onnx_ctx *c, hv x) {
    return text_call(c, "rank", x->shape, &x, 1);
}

ONNX(stringconcat) {
    if (!all_text(c, 2)) return;
    hv x[] = {onnx_in_val(c, 0), onnx_in_val(c, 1)};
    hb_numpy_pair(b, &x[0], &x[1]);
    if (!hb_ok(b)) return;
    onnx_out_val(c, 0, text_call(c, "concat", x[0]->shape, x, 2));
}

ONNX(regexfullmatch) {
    if (!all_text(c, 1)) return;
    struct str pattern = onnx_at_str(c, "pattern", "");
    struct string_pattern *p;
    status_t st = string_pattern_new(pattern, &p);
    if (st) return hb_fail(b, st);
    string_pattern_free(p);
    hv x[] = {onnx_in_val(c, 0), text_const(c, pattern)};
    onnx_out_val(c, 0, text_call(c, "match", shape_with_dtype(c->a, x[0]->shape, DT_PRED), x, 2));
}

// [n] or [1, n]; what is left after the stop words are taken out, or one empty text.
ONNX(stringnormalizer) {
    if (!all_text(c, 1)) return;
    hv x = onnx_in_val(c, 0);
    const struct onnx_attr *stop = onnx_attr(c->n, "stopwords");
    struct str change = onnx_at_str(c, "case_change_action", "NONE"),
               locale = onnx_at_str(c, "locale", "");
    bool flat = x->shape->rank == 1, sensitive = onnx_at_int(c, "is_case_sensitive", 0) != 0;

    if (!flat && (x->shape->rank != 2 || x->shape->dims[0] != 1))
        return onnx_fail(c, "texts of %s, expected [n] or [1, n]", onnx_show(c, x));
    if (str_starts(locale, "tr") || str_starts(locale, "az") || str_starts(locale, "lt"))
        return onnx_fail(c, "letters' cases of the locale '" STR_FMT "' are not supported",
                         STR_ARG(locale));

    int64_t n = shape_elements(x->shape), bound = n ? n : 1,
            flags = sensitive ? 0 : STRING_ANY_CASE;
    if (str_is(change, "LOWER"))
        flags |= STRING_LOWER;
    else if (str_is(change, "UPPER"))
        flags |= STRING_UPPER;
    else if (!str_is(change, "NONE"))
        return onnx_fail(c, "case_change_action '" STR_FMT "'", STR_ARG(change));
    if (!stop || !stop->strings.n) flags &= ~STRING_ANY_CASE;

    struct literal *words =
        onnx_string_list(c, stop ? stop->strings.v : NULL, stop ? stop->strings.n : 0);
    hv operands[] = {hb_reshape(b, x, &n, 1), hb_constant(b, words),
                     hb_const_i64(b, DT_S32, flags)};
    const struct shape *s[] = {shape_make(c->a, DT_S32, &bound, 1), shape_scalar(c->a, DT_S64)};

    hv r = text_call(c, "normalize", shape_tuple(c->a, s, 2), operands, 3);
    hv kept = hb_gte(b, r, 0), count = hb_gte(b, r, 1);
    if (!hb_ok(b)) return;
    if (!flat) kept = hb_reshape(b, kept, (int64_t[]){1, bound}, 2);
    if (!(flags & STRING_ANY_CASE) && (!stop || !stop->strings.n) && n)
        return onnx_out_val(c, 0, kept); // all are kept
    onnx_out_any(c, 0, onnx_dynamic_val(c, kept, count, flat ? 0 : 1));
}

// MurmurHash3_x86_32 of each element's bytes; numbers have one or two words of 32 bits.
static hv hash_rotate(struct hb *b, hv x, int64_t by) {
    hv left = hb_splat(b, x->shape, (double)by), right = hb_splat(b, x->shape, (double)(32 - by));
    return hb_binary(b, HLO_OR, hb_binary(b, HLO_SHIFT_LEFT, x, left),
                     hb_binary(b, HLO_SHIFT_RIGHT_LOGICAL, x, right));
}
static hv hash_mixed(struct hb *b, hv h, int64_t by, int64_t times) {
    hv far = hb_binary(b, HLO_SHIFT_RIGHT_LOGICAL, h, hb_splat(b, h->shape, (double)by));
    hv x = hb_binary(b, HLO_XOR, h, far);
    return hb_mul(b, x, hb_splat(b, x->shape, (double)times));
}
static hv hash_numbers(struct onnx_ctx *c, hv x, int64_t seed) {
    struct hb *b = &c->b;
    int64_t dims[HLO_MAX_RANK], n = dtype_size(x->shape->dtype);
    int rank = x->shape->rank;
    if ((n != 4 && n != 8) || rank == HLO_MAX_RANK)
        return onnx_fail(c, "numbers of other sizes"), x;
    for (int d = 0; d < rank; d++)
        dims[d] = x->shape->dims[d];
    dims[rank] = n / 4;
    const struct shape *s = shape_make(c->a, DT_U32, dims, rank + (n == 8));
    hv words = hb_op(b, HLO_BITCAST_CONVERT, s, &x, 1, NULL), h = NULL;
    for (int64_t w = 0; w < n / 4 && hb_ok(b); w++) {
        hv k = n == 4 ? words : onnx_row(c, words, rank, w);
        if (!h) h = hb_splat(b, k->shape, (double)seed);
        k = hb_mul(b, k, hb_splat(b, k->shape, 0xcc9e2d51));
        k = hb_mul(b, hash_rotate(b, k, 15), hb_splat(b, k->shape, 0x1b873593));
        h = hash_rotate(b, hb_binary(b, HLO_XOR, h, k), 13);
        h = hb_mul(b, h, hb_splat(b, h->shape, 5));
        h = hb_add(b, h, hb_splat(b, h->shape, 0xe6546b64));
    }
    h = hb_binary(b, HLO_XOR, h, hb_splat(b, h->shape, (double)n));
    h = hash_mixed(b, hash_mixed(b, h, 16, 0x85ebca6b), 13, 0xc2b2ae35);
    return hash_mixed(b, h, 16, 1);
}
ONNX(murmurhash3) {
    const struct onnx_val *v = onnx_in_any(c, 0);
    int64_t seed = onnx_at_int(c, "seed", 0) & 0xffffffff;
    hv x = onnx_in_val(c, 0), h;
    if (!v || !hb_ok(b)) return;
    if (v->text) {
        hv operands[] = {x, hb_const_i64(b, DT_U32, seed)};
        h = text_call(c, "hash", shape_with_dtype(c->a, x->shape, DT_U32), operands, 2);
    } else {
        h = hash_numbers(c, x, seed);
    }
    if (onnx_at_int(c, "positive", 1) == 0 && hb_ok(b))
        h = hb_op(b, HLO_BITCAST_CONVERT, shape_with_dtype(c->a, h->shape, DT_S32), &h, 1, NULL);
    onnx_out_val(c, 0, h);
}

// How many parts there may be is not known before the run: there is room for `room`, fewer where
// there are many texts; texts known here say it.
static int64_t room_for_parts(struct onnx_ctx *c, hv x, int64_t room, int64_t most) {
    const struct literal *known = onnx_in_any(c, 0)->known;
    int64_t n = shape_elements(x->shape), longest = 1;
    for (int64_t k = 0; known && k < n; k++) {
        int64_t size = (int64_t)strings_get(c->texts->table, (int32_t)lit_get_i64(known, k)).n + 1;
        if (size > longest) longest = size;
    }
    if (known && longest < room) room = longest;
    if (most >= 0 && most < room) room = most + 1;
    while (room > 1 && n * room > MAX_PART_PLACES)
        room /= 2;
    return room;
}
ONNX(stringsplit) {
    if (!all_text(c, 1)) return;
    hv x = onnx_in_val(c, 0);
    int rank = x->shape->rank;
    int64_t dims[HLO_MAX_RANK], most = onnx_at_int(c, "maxsplit", -1);
    if (rank == HLO_MAX_RANK || !hb_ok(b)) return onnx_fail(c, "rank %d", rank);
    if (most < -1) return onnx_fail(c, "maxsplit %lld", (long long)most);
    for (int d = 0; d < rank; d++)
        dims[d] = x->shape->dims[d];
    dims[rank] = room_for_parts(c, x, MAX_PARTS, most);
    hv operands[] = {x, text_const(c, onnx_at_str(c, "delimiter", "")),
                     hb_const_i64(b, DT_S64, most)};
    const struct shape *s[] = {shape_make(c->a, DT_S32, dims, rank + 1),
                               shape_with_dtype(c->a, x->shape, DT_S64),
                               shape_scalar(c->a, DT_S64)};
    hv r = text_call(c, "split", shape_tuple(c->a, s, 3), operands, 3);
    hv parts = hb_gte(b, r, 0), counts = hb_gte(b, r, 1), longest = hb_gte(b, r, 2);
    if (!hb_ok(b)) return;
    struct onnx_val *o = onnx_dynamic_val(c, parts, longest, rank);
    o->text = true;
    onnx_out_any(c, 0, o);
    onnx_out_val(c, 1, counts);
}

void onnx_text_cast(struct onnx_ctx *c, enum dtype to, bool to_text) {
    struct onnx_val *v = onnx_in_any(c, 0);
    hv x = onnx_in_val(c, 0);
    if (!v || !hb_ok(&c->b)) return;
    if (v->text && to_text) return onnx_out_any(c, 0, v);
    bool truth = (v->text ? to : x->shape->dtype) == DT_PRED; // by numbers: 0 is false
    if (truth && v->text) to = DT_S64;
    if (truth && !v->text) x = hb_convert(&c->b, x, DT_U8);
    enum dtype number = v->text ? to : x->shape->dtype;
    if (!dtype_is_float(number) && !dtype_is_int(number))
        return onnx_fail(c, "between text and %s", dtype_name(number));
    if (v->text) {
        hv y = text_call(c, "parse", shape_with_dtype(c->a, x->shape, to), &x, 1);
        return onnx_out_val(c, 0, truth ? onnx_compare_k(c, y, 0, CMP_NE) : y);
    }
    const struct shape *s = shape_with_dtype(c->a, x->shape, DT_S32);
    onnx_out_any(c, 0, onnx_string_val(c, text_call(c, "print", s, &x, 1)));
}

// com.microsoft: tokens of texts [n] or [n, m], along a new last dimension. Either what `tokenexp`
// finds, or what lies between `separators`; one empty separator: each character.
static bool expressions(struct onnx_ctx *c, bool *between, const struct str **out, int64_t *n) {
    struct str *one = arena_new_of(c->a, struct str), found = onnx_at_str(c, "tokenexp", "");
    const struct onnx_attr *separators = onnx_attr(c->n, "separators");
    *one = found;
    *between = separators && separators->strings.n > 0;
    if (*between == (found.n > 0)) {
        onnx_fail(c, "one of separators and tokenexp is expected");
        return false;
    }
    *out = *between ? separators->strings.v : one;
    *n = *between ? (int64_t)separators->strings.n : 1;
    if (*between && *n == 1 && !separators->strings.v[0].n) {
        *between = false;
        *one = STR("(?s:.)");
        *out = one;
    }
    return true;
}
ONNX(tokenizer) {
    if (!all_text(c, 1)) return;
    hv x = onnx_in_val(c, 0);
    int rank = x->shape->rank;
    int64_t dims[HLO_MAX_RANK], n, least = onnx_at_int(c, "mincharnum", 1),
                                   marked = onnx_at_int(c, "mark", 0) != 0;
    const struct str *by;
    bool between;
    if (rank < 1 || rank > 2) return onnx_fail(c, "input %s", onnx_show(c, x));
    if (least < 1) return onnx_fail(c, "mincharnum %lld", (long long)least);
    if (!expressions(c, &between, &by, &n)) return;

    for (int64_t k = 0; k < n; k++) {
        struct string_pattern *p = NULL;
        status_t st = string_pattern_new(by[k], &p);
        if (st) return hb_fail(b, st);
        string_pattern_free(p);
    }

    int64_t texts = shape_elements(x->shape), room = TOKEN_PLACES / (texts ? texts : 1);
    room = room > MAX_TOKENS ? MAX_TOKENS : room < MAX_PARTS ? MAX_PARTS : room;
    for (int d = 0; d < rank; d++)
        dims[d] = x->shape->dims[d];
    dims[rank] = room_for_parts(c, x, room, -1) + 2 * marked;
    hv operands[] = {
        x, hb_constant(b, onnx_string_list(c, by, (size_t)n)),
        text_const(c, onnx_at_str(c, "pad_value", "")), hb_const_i64(b, DT_S64, least),
        hb_const_i64(b, DT_S32, (between ? STRING_BETWEEN : 0) | (marked ? STRING_MARKED : 0))};
    const struct shape *s[] = {shape_make(c->a, DT_S32, dims, rank + 1),
                               shape_scalar(c->a, DT_S64)};

    hv r = text_call(c, "tokens", shape_tuple(c->a, s, 2), operands, 5);
    hv tokens = hb_gte(b, r, 0), longest = hb_gte(b, r, 1);
    if (!hb_ok(b)) return;
    struct onnx_val *o = onnx_dynamic_val(c, tokens, longest, rank);
    o->text = true;
    onnx_out_any(c, 0, o);
}
