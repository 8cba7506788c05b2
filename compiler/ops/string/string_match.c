// SPDX-License-Identifier: Apache-2.0
// Pattern -> program, by recursive descent. Jumps are relative, so a piece of program can be moved
// and copied: a repeat wraps the piece that was emitted last.
//   a*  fork(1, end) a jump(fork)     a+  a fork(a, 1)     a?  fork(1, end) a     a|b  fork(1, b) a
//   jump(end) b
// Running it: the set of places where the program can stand moves over the string, one code point
// at a time.
#include "compiler/ops/string/string_match.h"

#include <stdlib.h>
#include <string.h>

#include "base/vec.h"

enum { MAX_CODE = 50000, MAX_DEPTH = 200, MAX_REPEAT = 1000, MAX_POINT = 0x10ffff };
enum { LOOK = 1024 }; // characters between two looks at cancel
enum code_op { OP_SET, OP_FORK, OP_JUMP, OP_ASSERT, OP_MATCH };
enum assertion { AT_BEGIN, AT_END, AT_LINE_BEGIN, AT_LINE_END, AT_WORD, NOT_AT_WORD };
struct code {
    uint8_t op;
    bool negated, fold;
    int32_t x, y; // set: ranges [x, y); fork, jump: relative places; assert: which
};
struct range {
    uint32_t lo, hi;
};
// Where a find begins: its byte, and how many characters were read before it.
struct begun {
    size_t byte;
    int64_t nth;
};
struct string_pattern {
    VEC(struct code) code;
    VEC(struct range) ranges;
    uint32_t *seen;                      // [code] the step that added a place
    int32_t *block, *now, *next, *stack; // block: where the three lie
    struct begun *began, *from,
        *next_from; // where the finds of a set's places begin; began: the block
    uint32_t step;
};
struct flags {
    bool fold, dot_all, lines;
};
struct parser {
    struct string_pattern *p;
    const char *at, *begin, *end;
    int depth;
    struct flags f;
};

uint32_t string_utf8(struct str s, size_t *at) {
    const uint8_t *p = (const uint8_t *)s.p + *at;
    size_t left = s.n - *at;
    int n = p[0] < 0x80 ? 1 : p[0] >= 0xc2 && p[0] < 0xe0 ? 2 : (p[0] & 0xf0) == 0xe0 ? 3 : 4;
    uint32_t u = n == 1 ? p[0] : p[0] & (0xff >> (n + 1));
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    bool good = p[0] < 0x80 || (p[0] >= 0xc2 && p[0] < 0xf5 && (size_t)n <= left);
    for (int k = 1; good && k < n; k++) {
        good = (p[k] & 0xc0) == 0x80;
        u = u << 6 | (p[k] & 0x3f);
    }
    good = good && u >= least[n] && u <= MAX_POINT && (u < 0xd800 || u > 0xdfff);
    *at += good ? (size_t)n : 1;
    return good ? u : 0xfffd;
}

int text_utf8_put(uint32_t u, char out[4]) {
    static const uint8_t lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    int n = u < 0x80 ? 1 : u < 0x800 ? 2 : u < 0x10000 ? 3 : 4;
    for (int k = n - 1; k > 0; k--, u >>= 6)
        out[k] = (char)(0x80 | (u & 0x3f));
    out[0] = (char)(lead[n] | u);
    return n;
}

struct case_run {
    uint32_t first, last, step;
    int32_t by;
};
#define NOTHING(...)
#define RUN(first, last, step, by) {first, last, step, by},
#define UPPER                      NOTHING
#define LOWER                      RUN
static const struct case_run to_lower[] = {
#include "compiler/ops/string/string_cases.def"
};
#undef LOWER
#undef UPPER
#define UPPER RUN
#define LOWER NOTHING
static const struct case_run to_upper[] = {
#include "compiler/ops/string/string_cases.def"
};
#undef LOWER
#undef UPPER

static uint32_t change_case(const struct case_run *v, size_t n, uint32_t u) {
    size_t lo = 0;
    while (lo < n) { // the first run that ends at u or behind
        size_t mid = lo + (n - lo) / 2;
        if (v[mid].last < u)
            lo = mid + 1;
        else
            n = mid;
    }
    const struct case_run *r = &v[lo];
    bool in = u >= r->first && u <= r->last && (u - r->first) % r->step == 0;
    return in ? (uint32_t)((int32_t)u + r->by) : u;
}
uint32_t text_lower(uint32_t u) {
    if (u < 0x80) return u >= 'A' && u <= 'Z' ? u + 32 : u;
    size_t n = sizeof to_lower / sizeof to_lower[0];
    return u > to_lower[n - 1].last ? u : change_case(to_lower, n, u);
}
uint32_t text_upper(uint32_t u) {
    if (u < 0x80) return u >= 'a' && u <= 'z' ? u - 32 : u;
    size_t n = sizeof to_upper / sizeof to_upper[0];
    return u > to_upper[n - 1].last ? u : change_case(to_upper, n, u);
}

// ---- emitting

static status_t error(const struct parser *q, const char *why) {
    return st_invalid("pattern, byte %zu: %s", (size_t)(q->at - q->begin), why);
}
static size_t here(const struct parser *q) {
    return q->p->code.n;
}
static status_t emit(struct parser *q, struct code c) {
    if (here(q) >= MAX_CODE)
        return st_exhausted("the pattern becomes more than %d steps", MAX_CODE);
    vec_push(&q->p->code, c);
    return ST_OK;
}
static status_t insert(struct parser *q, size_t at, struct code c) {
    RETURN_IF_ERR(emit(q, c));
    struct code *v = q->p->code.v;
    memmove(v + at + 1, v + at, sizeof *v * (q->p->code.n - 1 - at));
    v[at] = c;
    return ST_OK;
}
static void add_range(struct parser *q, uint32_t lo, uint32_t hi) {
    vec_push(&q->p->ranges, ((struct range){lo, hi}));
}
static status_t emit_set(struct parser *q, size_t from, bool negated) {
    return emit(q, (struct code){.op = OP_SET,
                                 .negated = negated,
                                 .fold = q->f.fold,
                                 .x = (int32_t)from,
                                 .y = (int32_t)q->p->ranges.n});
}
static status_t emit_char(struct parser *q, uint32_t c) {
    size_t from = q->p->ranges.n;
    add_range(q, c, c);
    return emit_set(q, from, false);
}
static status_t emit_assert(struct parser *q, enum assertion a) {
    return emit(q, (struct code){.op = OP_ASSERT, .x = a});
}

// ---- classes

static bool word_char(uint32_t c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || c == '_' || (c >= 'a' && c <= 'z');
}

static const struct {
    char letter;
    const char *name;
    struct range r[4];
    int n;
} classes[] = {{'d', "digit", {{'0', '9'}}, 1},
               {'w', "word", {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}, 4},
               {'s', NULL, {{'\t', '\n'}, {'\f', '\r'}, {' ', ' '}}, 3},
               {0, "space", {{'\t', '\r'}, {' ', ' '}}, 2},
               {0, "alnum", {{'0', '9'}, {'A', 'Z'}, {'a', 'z'}}, 3},
               {0, "alpha", {{'A', 'Z'}, {'a', 'z'}}, 2},
               {0, "ascii", {{0, 127}}, 1},
               {0, "blank", {{'\t', '\t'}, {' ', ' '}}, 2},
               {0, "cntrl", {{0, 31}, {127, 127}}, 2},
               {0, "graph", {{'!', '~'}}, 1},
               {0, "lower", {{'a', 'z'}}, 1},
               {0, "print", {{' ', '~'}}, 1},
               {0, "punct", {{'!', '/'}, {':', '@'}, {'[', '`'}, {'{', '~'}}, 4},
               {0, "upper", {{'A', 'Z'}}, 1},
               {0, "xdigit", {{'0', '9'}, {'A', 'F'}, {'a', 'f'}}, 3}};
enum { N_CLASSES = sizeof classes / sizeof classes[0] };

static void add_class(struct parser *q, int k, bool negated) {
    uint32_t from = 0;
    for (int i = 0; i < classes[k].n; i++) { // in order, apart
        if (!negated)
            add_range(q, classes[k].r[i].lo, classes[k].r[i].hi);
        else if (classes[k].r[i].lo > from)
            add_range(q, from, classes[k].r[i].lo - 1);
        from = classes[k].r[i].hi + 1;
    }
    if (negated) add_range(q, from, MAX_POINT);
}
static int class_of_letter(char c) {
    for (int k = 0; k < N_CLASSES; k++)
        if (classes[k].letter && classes[k].letter == (c | 32)) return k;
    return -1;
}

static int hex_digit(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}
// The character that the escape behind a backslash stands for.
static status_t escaped_char(struct parser *q, uint32_t *out) {
    static const char from[] = "tnrfva", to[] = "\t\n\r\f\v\a";
    char c = *q->at;
    const char *known = c ? strchr(from, c) : NULL;
    uint32_t v = 0;

    if (known) {
        v = (uint32_t)to[known - from];
        q->at++;
    } else if (c == 'x') {
        bool braces = q->at + 1 < q->end && q->at[1] == '{';
        int n = 0;
        for (q->at += 1 + braces; q->at < q->end && hex_digit(*q->at) >= 0 && n < (braces ? 8 : 2);
             q->at++, n++)
            v = v << 4 | (uint32_t)hex_digit(*q->at);
        if (n == 0 || (!braces && n != 2) || v > MAX_POINT) return error(q, "not a code point");
        if (braces && (q->at >= q->end || *q->at++ != '}')) return error(q, "'}' is missing");
    } else if (c == '0' ||
               (c >= '1' && c <= '7' && q->at + 1 < q->end && q->at[1] >= '0' && q->at[1] <= '7')) {
        for (int n = 0; n < 3 && q->at < q->end && *q->at >= '0' && *q->at <= '7'; n++)
            v = v << 3 | (uint32_t)(*q->at++ - '0');
    } else if ((uint8_t)c >= 0x80 ||
               (c > 0x20 && c < 0x7f && (!word_char((uint32_t)c) || c == '_')) || c == ' ') {
        size_t at = 0;
        v = string_utf8((struct str){q->at, (size_t)(q->end - q->at)}, &at);
        q->at += at;
    } else {
        return error(q, "this escape is not known here");
    }

    *out = v;
    return ST_OK;
}

// One end of a range inside brackets, or a whole class (*single false).
static status_t bracket_item(struct parser *q, uint32_t *out, bool *single) {
    *single = true;
    if (*q->at == '\\' && q->at + 1 < q->end) {
        q->at++;
        int k = class_of_letter(*q->at);
        if (k < 0) return escaped_char(q, out);
        add_class(q, k, *q->at < 'a');
        q->at++;
        *single = false;
        return ST_OK;
    }
    if (*q->at == '[' && q->at + 1 < q->end && q->at[1] == ':') {
        const char *name = q->at + 2, *close = memmem(name, (size_t)(q->end - name), ":]", 2);
        bool negated = name < q->end && *name == '^';
        name += negated;
        for (int k = 0; close && k < N_CLASSES; k++)
            if (classes[k].name && strlen(classes[k].name) == (size_t)(close - name) &&
                !memcmp(classes[k].name, name, (size_t)(close - name))) {
                add_class(q, k, negated);
                q->at = close + 2;
                *single = false;
                return ST_OK;
            }
        if (close) return error(q, "a class of this name is not known");
    }
    size_t at = 0;
    *out = string_utf8((struct str){q->at, (size_t)(q->end - q->at)}, &at);
    q->at += at;
    return ST_OK;
}
static status_t bracket(struct parser *q) {
    size_t from = q->p->ranges.n;
    bool negated = q->at < q->end && *q->at == '^', first = true, single;
    q->at += negated;
    for (; q->at < q->end && (first || *q->at != ']'); first = false) {
        uint32_t lo, hi;
        RETURN_IF_ERR(bracket_item(q, &lo, &single));
        if (!single) continue;
        hi = lo;
        if (q->end - q->at > 1 && q->at[0] == '-' && q->at[1] != ']') {
            q->at++;
            RETURN_IF_ERR(bracket_item(q, &hi, &single));
            if (!single || hi < lo) return error(q, "a range from higher to lower");
        }
        add_range(q, lo, hi);
    }
    if (q->at >= q->end) return error(q, "']' is missing");
    q->at++;
    return emit_set(q, from, negated);
}

// ---- atoms

static status_t alternatives(struct parser *q);

// Behind "(": options, a name, or nothing. *group: an expression and ")" follow.
static status_t group_head(struct parser *q, struct flags *f, bool *group) {
    *group = true;
    if (q->at >= q->end || *q->at != '?') return ST_OK;
    q->at++;
    if (q->end - q->at > 1 && (*q->at == 'P' || *q->at == '<')) {
        q->at += *q->at == 'P';
        const char *close = *q->at == '<' ? memchr(q->at, '>', (size_t)(q->end - q->at)) : NULL;
        if (!close || close == q->at + 1 || q->at[1] == '=' || q->at[1] == '!')
            return error(q, "not a named group");
        q->at = close + 1;
        return ST_OK;
    }
    bool on = true;
    for (; q->at < q->end && *q->at != ')' && *q->at != ':'; q->at++) {
        if (*q->at == '-' && on)
            on = false;
        else if (*q->at == 'i')
            f->fold = on;
        else if (*q->at == 's')
            f->dot_all = on;
        else if (*q->at == 'm')
            f->lines = on;
        else if (*q->at != 'U') // greed: a whole match does not tell
            return error(q, "not an option");
    }
    if (q->at >= q->end) return error(q, "')' is missing");
    *group = *q->at++ == ':';
    return ST_OK;
}
static status_t group(struct parser *q) {
    struct flags inside = q->f, outside = q->f;
    bool body;
    RETURN_IF_ERR(group_head(q, &inside, &body));
    q->f = inside;
    if (!body) return ST_OK; // options for the rest of the group around
    if (++q->depth > MAX_DEPTH) return error(q, "groups nest too deeply");
    RETURN_IF_ERR(alternatives(q));
    q->depth--;
    if (q->at >= q->end) return error(q, "')' is missing");
    q->at++;
    q->f = outside;
    return ST_OK;
}
static status_t quoted(struct parser *q) { // \Q...\E: the last of it is what a repeat is about
    while (q->at < q->end) {
        if (q->end - q->at > 1 && q->at[0] == '\\' && q->at[1] == 'E') {
            q->at += 2;
            return ST_OK;
        }
        size_t at = 0;
        RETURN_IF_ERR(
            emit_char(q, string_utf8((struct str){q->at, (size_t)(q->end - q->at)}, &at)));
        q->at += at;
    }
    return ST_OK;
}
static status_t escape(struct parser *q) {
    uint32_t c;
    if (q->at >= q->end) return error(q, "a backslash at the end");
    int k = class_of_letter(*q->at);
    size_t from = q->p->ranges.n;
    if (k >= 0) {
        add_class(q, k, *q->at++ < 'a');
        return emit_set(q, from, false);
    }
    switch (*q->at++) {
    case 'b':
        return emit_assert(q, AT_WORD);
    case 'B':
        return emit_assert(q, NOT_AT_WORD);
    case 'A':
        return emit_assert(q, AT_BEGIN);
    case 'z':
        return emit_assert(q, AT_END);
    case 'Q':
        return quoted(q);
    default:
        q->at--;
    }
    RETURN_IF_ERR(escaped_char(q, &c));
    return emit_char(q, c);
}
static status_t any_char(struct parser *q) {
    size_t from = q->p->ranges.n;
    if (!q->f.dot_all) add_range(q, '\n', '\n');
    return emit_set(q, from, true);
}
static status_t atom(struct parser *q) {
    switch (*q->at) {
    case '(':
        q->at++;
        return group(q);
    case '[':
        q->at++;
        return bracket(q);
    case '\\':
        q->at++;
        return escape(q);
    case '.':
        q->at++;
        return any_char(q);
    case '^':
        q->at++;
        return emit_assert(q, q->f.lines ? AT_LINE_BEGIN : AT_BEGIN);
    case '$':
        q->at++;
        return emit_assert(q, q->f.lines ? AT_LINE_END : AT_END);
    case '*':
    case '+':
    case '?':
        return error(q, "nothing to repeat");
    default:
        break;
    }

    size_t at = 0;
    uint32_t c = string_utf8((struct str){q->at, (size_t)(q->end - q->at)}, &at);
    q->at += at;
    return emit_char(q, c);
}

// ---- repeats

static bool count(const char **p, const char *end, int *out) {
    int n = 0, digits = 0;
    for (; *p < end && **p >= '0' && **p <= '9'; ++*p, digits++)
        if (n <= MAX_REPEAT) n = n * 10 + (**p - '0');
    *out = n;
    return digits > 0;
}
// {n}, {n,}, {n,m}; anything else stands for itself. most -1: no end.
static bool counted(struct parser *q, int *least, int *most) {
    const char *p = q->at + 1;
    if (*q->at != '{' || !count(&p, q->end, least)) return false;
    *most = *least;
    if (p < q->end && *p == ',') {
        p++;
        if (!count(&p, q->end, most)) *most = -1;
    }
    if (p >= q->end || *p != '}') return false;
    q->at = p + 1;
    return true;
}
static status_t copy(struct parser *q, size_t from, size_t n) {
    for (size_t k = 0; k < n; k++)
        RETURN_IF_ERR(emit(q, q->p->code.v[from + k]));
    return ST_OK;
}
// The piece [s, end of the program) zero or more times; zero or one.
static status_t star(struct parser *q, size_t s) {
    int32_t n = (int32_t)(here(q) - s);
    RETURN_IF_ERR(insert(q, s, (struct code){.op = OP_FORK, .x = 1, .y = n + 2}));
    return emit(q, (struct code){.op = OP_JUMP, .x = -(n + 1)});
}
static status_t maybe(struct parser *q, size_t s) {
    return insert(q, s, (struct code){.op = OP_FORK, .x = 1, .y = (int32_t)(here(q) - s) + 1});
}
static status_t repeat(struct parser *q, size_t s, int least, int most) {
    size_t n = here(q) - s;
    if (least > MAX_REPEAT || most > MAX_REPEAT || (most >= 0 && most < least))
        return error(q, "not a number of repeats");
    for (int k = 1; k < least; k++)
        RETURN_IF_ERR(copy(q, s, n));
    if (most < 0) {
        if (least == 0) return star(q, s);
        return emit(q, (struct code){.op = OP_FORK, .x = -(int32_t)n, .y = 1});
    }
    // The first copy is there already: if it may be missing, the others may too.
    for (int k = least > 0 ? least : 1; k < most; k++) {
        size_t at = here(q);
        RETURN_IF_ERR(copy(q, s, n));
        RETURN_IF_ERR(maybe(q, at));
    }
    if (least == 0 && most > 0) return maybe(q, s);
    if (most == 0) q->p->code.n = s;
    return ST_OK;
}
static status_t piece(struct parser *q) {
    const char *text = q->at;
    size_t s = here(q);
    int least, most;
    RETURN_IF_ERR(atom(q));
    if (q->at - text > 2 && text[0] == '\\' && text[1] == 'Q' && here(q) > s) s = here(q) - 1;
    if (q->at >= q->end) return ST_OK;
    if (*q->at == '*' || *q->at == '+' || *q->at == '?') {
        least = *q->at == '+';
        most = *q->at == '?' ? 1 : -1;
        q->at++;
    } else if (!counted(q, &least, &most)) {
        return ST_OK;
    }
    RETURN_IF_ERR(repeat(q, s, least, most));
    if (q->at < q->end && *q->at == '?') q->at++; // lazy
    if (q->at < q->end && (*q->at == '*' || *q->at == '+' || *q->at == '?' ||
                           (*q->at == '{' && counted(q, &least, &most))))
        return error(q, "a repeat of a repeat");
    return ST_OK;
}
static status_t alternatives(struct parser *q) {
    VEC(size_t) jumps = {0};
    status_t st = ST_OK;
    size_t s = here(q);
    while (!st && q->at < q->end && *q->at != ')') {
        if (*q->at != '|') {
            st = piece(q);
            continue;
        }
        q->at++;
        st = insert(q, s, (struct code){.op = OP_FORK, .x = 1, .y = (int32_t)(here(q) - s) + 2});
        if (st) break;
        vec_push(&jumps, here(q));
        st = emit(q, (struct code){.op = OP_JUMP});
        s = here(q);
    }
    for (size_t k = 0; k < jumps.n; k++)
        q->p->code.v[jumps.v[k]].x = (int32_t)(here(q) - jumps.v[k]);
    vec_done(&jumps);
    return st;
}

status_t string_pattern_new(struct str pattern, struct string_pattern **out) {
    struct string_pattern *p = calloc(1, sizeof *p);
    if (!p) return st_oom();
    struct parser q = {.p = p, .at = pattern.p, .begin = pattern.p, .end = pattern.p + pattern.n};
    status_t st = alternatives(&q);
    if (!st && q.at < q.end) st = error(&q, "')' without '('");
    if (!st) st = emit(&q, (struct code){.op = OP_MATCH});
    if (!st) {
        p->seen = calloc(p->code.n, sizeof *p->seen);
        p->block = calloc(p->code.n, 4 * sizeof *p->block); // the stack is twice as long
        p->began = calloc(p->code.n, 2 * sizeof *p->began);
        if (!p->seen || !p->block || !p->began) st = st_oom();
    }
    if (st) {
        string_pattern_free(p);
        return st;
    }
    p->now = p->block;
    p->next = p->now + p->code.n;
    p->stack = p->next + p->code.n;
    p->from = p->began;
    p->next_from = p->from + p->code.n;
    *out = p;
    return ST_OK;
}
void string_pattern_free(struct string_pattern *p) {
    if (!p) return;
    vec_done(&p->code);
    vec_done(&p->ranges);
    free(p->seen);
    free(p->block);
    free(p->began);
    free(p);
}

// ---- running

struct text_place { // between two code points
    bool begin, end;
    uint32_t before, after;
};
static bool holds(enum assertion a, const struct text_place *x) {
    bool word = (!x->begin && word_char(x->before)) != (!x->end && word_char(x->after));
    switch (a) {
    case AT_BEGIN:
        return x->begin;
    case AT_END:
        return x->end;
    case AT_LINE_BEGIN:
        return x->begin || x->before == '\n';
    case AT_LINE_END:
        return x->end || x->after == '\n';
    case AT_WORD:
        return word;
    case NOT_AT_WORD:
        return !word;
    }
    return false;
}
// Adds `from` and all that it leads to without a character. Each place is added once a step, and
// pushes at most two.
static int add(struct string_pattern *p, int32_t from, const struct text_place *x, int32_t *set,
               int n) {
    int top = 0;
    p->stack[top++] = from;
    while (top) {
        int32_t k = p->stack[--top];
        const struct code *c = &p->code.v[k];
        if (p->seen[k] == p->step) continue;
        p->seen[k] = p->step;
        if (c->op == OP_FORK) {
            if (p->seen[k + c->y] != p->step) p->stack[top++] = k + c->y;
            if (p->seen[k + c->x] != p->step) p->stack[top++] = k + c->x;
        } else if (c->op == OP_JUMP) {
            p->stack[top++] = k + c->x;
        } else if (c->op == OP_ASSERT) {
            if (holds((enum assertion)c->x, x)) p->stack[top++] = k + 1;
        } else {
            set[n++] = k;
        }
    }
    return n;
}
static bool in_ranges(const struct string_pattern *p, const struct code *c, uint32_t u) {
    for (int32_t k = c->x; k < c->y; k++)
        if (u >= p->ranges.v[k].lo && u <= p->ranges.v[k].hi) return true;
    return false;
}
static bool takes(const struct string_pattern *p, const struct code *c, uint32_t u) {
    bool in = in_ranges(p, c, u);
    if (!in && c->fold) in = in_ranges(p, c, text_lower(u)) || in_ranges(p, c, text_upper(u));
    return in != c->negated;
}

int64_t string_pattern_steps(const struct string_pattern *p) {
    return (int64_t)p->code.n;
}

bool string_pattern_matches(struct string_pattern *p, struct str text, const _Atomic bool *cancel) {
    size_t at = 0;
    struct text_place x = {.begin = true, .end = text.n == 0};
    if (text.n) x.after = string_utf8(text, &at);
    p->step++;
    int n = add(p, 0, &x, p->now, 0);
    while (!x.end && n) {
        int m = 0;
        if (cancel && p->step % LOOK == 0 && *cancel) return false;
        x = (struct text_place){.before = x.after, .end = at >= text.n};
        if (!x.end) x.after = string_utf8(text, &at);
        p->step++;
        for (int k = 0; k < n; k++) {
            const struct code *c = &p->code.v[p->now[k]];
            if (c->op == OP_SET && takes(p, c, x.before)) m = add(p, p->now[k] + 1, &x, p->next, m);
        }
        int32_t *t = p->now;
        p->now = p->next;
        p->next = t;
        n = m;
    }
    for (int k = 0; k < n; k++)
        if (p->code.v[p->now[k]].op == OP_MATCH) return true;
    return false;
}

// Adds the place `at` of a set, begun at `from`.
static int add_from(struct string_pattern *p, int32_t at, struct begun from,
                    const struct text_place *x, int n) {
    int m = add(p, at, x, p->next, n);
    for (; n < m; n++)
        p->next_from[n] = from;
    return m;
}
static void turn(struct string_pattern *p) {
    int32_t *set = p->now;
    struct begun *from = p->from;
    p->now = p->next;
    p->next = set;
    p->from = p->next_from;
    p->next_from = from;
}
// Whether the find of a place of the set ends at `end` and has `least` characters. What began
// behind it goes: a find that begins before it may come yet, or a longer one. Where two finds come
// to the same place, the set keeps the one that began first: it is the longer one too, so that no
// find is missed of those that are long enough.
static bool take_match(const struct string_pattern *p, struct str text, struct begun end,
                       int64_t least, int *n, struct str *out) {
    for (int k = 0; k < *n; k++) {
        if (p->code.v[p->now[k]].op != OP_MATCH) continue;
        if (end.nth - p->from[k].nth < least) continue;
        *out = (struct str){text.p + p->from[k].byte, end.byte - p->from[k].byte};
        for (int i = k; i < *n; i++) // they stand in the order in which they began
            if (p->from[i].byte > p->from[k].byte) *n = i;
        return true;
    }
    return false;
}
bool string_pattern_find(struct string_pattern *p, struct str text, size_t begin, int64_t least,
                         struct str *out, const _Atomic bool *cancel) {
    struct begun here = {begin, 0};
    size_t at = begin, back = begin;
    struct text_place x = {.begin = begin == 0, .end = begin >= text.n};
    bool found = false;

    if (back) {
        do
            back--;
        while (back && begin - back < 4 && ((uint8_t)text.p[back] & 0xc0) == 0x80);
        x.before = string_utf8(text, &back);
    }
    if (!x.end) x.after = string_utf8(text, &at);

    for (int n = 0;;) {
        int m = 0;
        p->step++;
        for (int k = 0; k < n; k++) {
            const struct code *c = &p->code.v[p->now[k]];
            if (c->op == OP_SET && takes(p, c, x.before))
                m = add_from(p, p->now[k] + 1, p->from[k], &x, m);
        }
        if (!found) m = add_from(p, 0, here, &x, m);
        turn(p);
        n = m;
        found |= take_match(p, text, here, least, &n, out);
        if (x.end || (found && !n) || (cancel && p->step % LOOK == 0 && *cancel)) return found;
        here = (struct begun){at, here.nth + 1};
        x = (struct text_place){.before = x.after, .end = at >= text.n};
        if (!x.end) x.after = string_utf8(text, &at);
    }
}
