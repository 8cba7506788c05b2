// SPDX-License-Identifier: Apache-2.0
// The walker, see json.h. Documents are read by jansson into a tree, then copied into the message;
// both directions switch over the field's type once.
#include "proto/json.h"

#include <ctype.h>
#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/message.h"
#include "proto/reason.h"
#include "proto/weigh.h"

#define T(x) PROTOBUF_C_TYPE_##x // a field's type

MUST_CHECK static status_t bad(const char *path, const char *why) {
    return st_because(ST_INVALID_ARGUMENT, BAD_JSON, "request field '%s': %s",
                      *path ? path : "(body)", why);
}

void json_field_name(const ProtobufCFieldDescriptor *f, struct strbuf *b) {
    for (const char *p = f->name; *p; p++) {
        if (*p == '_' && p[1])
            strbuf_putc(b, (char)toupper((unsigned char)*++p));
        else
            strbuf_putc(b, *p);
    }
}

// Does `key` name this field, as in the .proto or in lowerCamel?
static bool names(const ProtobufCFieldDescriptor *f, struct str key) {
    if (str_is(key, f->name)) return true;
    size_t i = 0;
    for (const char *p = f->name; *p; p++, i++) {
        char c = *p;
        if (c == '_' && p[1]) c = (char)toupper((unsigned char)*++p);
        if (i >= key.n || key.p[i] != c) return false;
    }
    return i == key.n;
}

const ProtobufCFieldDescriptor *json_field(const ProtobufCMessageDescriptor *d, struct str key) {
    for (unsigned i = 0; i < d->n_fields; i++)
        if (names(&d->fields[i], key)) return &d->fields[i];
    return NULL;
}

enum { OIP = 1 }; // dialect
bool json_is_map(const ProtobufCFieldDescriptor *f) {
    const ProtobufCMessageDescriptor *d = f->descriptor;
    size_t n = f->type == T(MESSAGE) ? strlen(d->short_name) : 0;
    return f->label == PROTOBUF_C_LABEL_REPEATED && n > 5 && d->n_fields == 2 &&
           !strcmp(d->short_name + n - 5, "Entry") && !strcmp(d->fields[0].name, "key") &&
           !strcmp(d->fields[1].name, "value") && d->fields[0].type == T(STRING);
}
static bool ends_in(const char *name, const char *end) {
    size_t n = strlen(name), k = strlen(end);
    return n > k && !strcmp(name + n - k, end);
}
bool json_is_choice(const ProtobufCMessageDescriptor *d) {
    return (ends_in(d->short_name, "Parameter") || !strcmp(d->short_name, "SettingValue")) &&
           d->n_fields > 1 && (d->fields[0].flags & PROTOBUF_C_FIELD_FLAG_ONEOF);
}

// How a type of the wire is held: as the type that stands for all of its kind, in so many bytes.
static const struct {
    ProtobufCType as;
    size_t size;
} held[] = {[T(INT32)] = {T(INT32), 4},
            [T(SINT32)] = {T(INT32), 4},
            [T(SFIXED32)] = {T(INT32), 4},
            [T(UINT32)] = {T(UINT32), 4},
            [T(FIXED32)] = {T(UINT32), 4},
            [T(INT64)] = {T(INT64), 8},
            [T(SINT64)] = {T(INT64), 8},
            [T(SFIXED64)] = {T(INT64), 8},
            [T(UINT64)] = {T(UINT64), 8},
            [T(FIXED64)] = {T(UINT64), 8},
            [T(FLOAT)] = {T(FLOAT), 4},
            [T(DOUBLE)] = {T(DOUBLE), 8},
            [T(BOOL)] = {T(BOOL), sizeof(protobuf_c_boolean)},
            [T(ENUM)] = {T(ENUM), 4},
            [T(STRING)] = {T(STRING), sizeof(char *)},
            [T(BYTES)] = {T(BYTES), sizeof(ProtobufCBinaryData)},
            [T(MESSAGE)] = {T(MESSAGE), sizeof(void *)}};

// ---- print

// Times are nanoseconds as milliseconds: six decimals, of at most 12 digits, so that %.12g writes
// these and nothing else, slower. False: it is no such number.
static bool print_millionths(struct strbuf *b, double v) {
    double all = fabs(v) * 1e6;
    if (!(all >= 100 && all < 1e12) || fabs(all - rint(all)) > all * 0x1p-51) return false;
    uint64_t n = (uint64_t)rint(all);
    char part[8] = ".";
    if (v < 0) strbuf_putc(b, '-');
    strbuf_u64(b, n / 1000000);
    for (uint64_t k = 6, rest = n % 1000000; k; k--, rest /= 10)
        part[k] = (char)('0' + rest % 10);
    size_t len = 7;
    while (part[len - 1] == '0')
        len--;
    if (len > 1) strbuf_add(b, part, len);
    return true;
}
static void print_double(struct strbuf *b, double v, int digits) {
    if (digits == 12 && print_millionths(b, v)) return;
    if (isnan(v))
        strbuf_puts(b, "\"NaN\"");
    else if (isinf(v))
        strbuf_puts(b, v > 0 ? "\"Infinity\"" : "\"-Infinity\"");
    else
        strbuf_printf(b, "%.*g", digits, v);
}

static void print_message(struct strbuf *b, const ProtobufCMessage *m, int dialect);

static void print_value(struct strbuf *b, const ProtobufCFieldDescriptor *f, const void *v,
                        int dialect) {
    switch ((int)held[f->type].as) {
    case T(INT32):
        strbuf_i64(b, *(const int32_t *)v);
        break;
    case T(UINT32):
        strbuf_u64(b, *(const uint32_t *)v);
        break;
    case T(INT64): {
        int64_t x = *(const int64_t *)v;
        bool plain = dialect == OIP || (x > -(1ll << 53) && x < 1ll << 53);
        if (!plain) strbuf_putc(b, '"');
        strbuf_i64(b, x);
        if (!plain) strbuf_putc(b, '"');
        break;
    }
    case T(UINT64): {
        uint64_t x = *(const uint64_t *)v;
        bool plain = dialect == OIP || x < 1ull << 53;
        if (!plain) strbuf_putc(b, '"');
        strbuf_u64(b, x);
        if (!plain) strbuf_putc(b, '"');
        break;
    }
    case T(FLOAT):
        print_double(b, (double)*(const float *)v, 9);
        break;
    case T(DOUBLE):
        print_double(b, *(const double *)v, 12);
        break;

    case T(BOOL):
        strbuf_puts(b, *(const protobuf_c_boolean *)v ? "true" : "false");
        break;
    case T(ENUM): {
        const ProtobufCEnumValue *e =
            protobuf_c_enum_descriptor_get_value(f->descriptor, *(const int *)v);
        if (e)
            strbuf_json_str(b, str_of(e->name));
        else
            strbuf_printf(b, "%d", *(const int *)v);
        break;
    }
    case T(STRING):
        strbuf_json_str(b, str_of(*(char *const *)v));
        break;
    case T(BYTES): {
        const ProtobufCBinaryData *d = v;
        strbuf_putc(b, '"');
        strbuf_base64(b, d->data, d->len);
        strbuf_putc(b, '"');
        break;
    }
    case T(MESSAGE):
        print_message(b, *(ProtobufCMessage *const *)v, dialect);
        break;
    }
}

// Is a singular field worth printing?
static bool present(const ProtobufCFieldDescriptor *f, const uint8_t *m) {
    const void *v = m + f->offset;
    if (f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF)
        return *(const uint32_t *)(m + f->quantifier_offset) == f->id;
    if (f->type == T(STRING)) return *(char *const *)v && **(char *const *)v;
    if (f->type == T(MESSAGE)) return *(void *const *)v != NULL;
    if (f->type == T(BYTES)) return ((const ProtobufCBinaryData *)v)->len > 0;
    static const uint8_t zero[8];
    return memcmp(v, zero, held[f->type].size) != 0;
}

static void print_map(struct strbuf *b, const ProtobufCFieldDescriptor *f,
                      ProtobufCMessage *const *entries, size_t n, int dialect) {
    const ProtobufCMessageDescriptor *d = f->descriptor;
    const ProtobufCFieldDescriptor *key = &d->fields[0], *value = &d->fields[1];
    strbuf_putc(b, '{');
    for (size_t k = 0; k < n; k++) {
        const uint8_t *e = (const uint8_t *)entries[k];
        if (k) strbuf_putc(b, ',');
        strbuf_json_str(b, str_of(*(char *const *)(e + key->offset)));
        strbuf_putc(b, ':');
        print_value(b, value, e + value->offset, dialect);
    }
    strbuf_putc(b, '}');
}

static void print_choice(struct strbuf *b, const ProtobufCMessage *m, int dialect) {
    for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];
        if (!present(f, (const uint8_t *)m)) continue;
        print_value(b, f, (const uint8_t *)m + f->offset, dialect);
        return;
    }
    strbuf_puts(b, "null");
}

// A list that was asked for is there when it is empty, too: `jq '.models[]'`.
static bool is_list(const ProtobufCMessageDescriptor *d) {
    return !strncmp(d->name, "hlod.v1.List", 12);
}

static bool printed(const ProtobufCFieldDescriptor *f, const ProtobufCMessage *m, size_t n,
                    int dialect) {
    const uint8_t *base = (const uint8_t *)m;
    if (f->label == PROTOBUF_C_LABEL_REPEATED)
        return n > 0 || (dialect == OIP && !json_is_map(f)) || is_list(m->descriptor);
    if (present(f, base)) return true;
    return dialect == OIP && f->type != T(MESSAGE) && !(f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF);
}

static void print_message(struct strbuf *b, const ProtobufCMessage *m, int dialect) {
    const uint8_t *base = (const uint8_t *)m;
    const char *sep = "";
    if (json_is_choice(m->descriptor)) {
        print_choice(b, m, dialect);
        return;
    }

    strbuf_putc(b, '{');
    for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];
        bool repeated = f->label == PROTOBUF_C_LABEL_REPEATED;
        size_t n = repeated ? *(const size_t *)(base + f->quantifier_offset) : 1;
        if (!printed(f, m, n, dialect)) continue;
        strbuf_printf(b, "%s\"", sep);
        sep = ",";
        if (dialect == OIP)
            strbuf_puts(b, f->name);
        else
            json_field_name(f, b);
        strbuf_puts(b, "\":");

        const uint8_t *v =
            repeated ? *(const uint8_t *const *)(base + f->offset) : base + f->offset;
        if (json_is_map(f)) {
            print_map(b, f, (ProtobufCMessage *const *)(const void *)v, n, dialect);
            continue;
        }
        if (repeated) strbuf_putc(b, '[');
        for (size_t k = 0; k < n; k++) {
            if (k) strbuf_putc(b, ',');
            print_value(b, f, v + k * held[f->type].size, dialect);
        }
        if (repeated) strbuf_putc(b, ']');
    }
    strbuf_putc(b, '}');
}
void json_print(struct strbuf *b, const ProtobufCMessage *m) {
    print_message(b, m, 0);
}
void json_print_oip(struct strbuf *b, const ProtobufCMessage *m) {
    print_message(b, m, OIP);
}

// ---- parse

struct parser {
    struct arena *a;
    int depth, dialect;
    char path[160]; // of the value being read, for messages
};
// A field that is not there: the one that was meant, or all that are.
static status_t no_field(struct parser *p, const ProtobufCMessageDescriptor *d, const char *key) {
    enum { FEW = 12 };
    struct strbuf all = {0}, name = {0};
    bool like = false;
    for (unsigned i = 0; i < d->n_fields && !like; i++) {
        strbuf_clear(&name);
        json_field_name(&d->fields[i], &name);
        like = str_is_like(str_of(key), (struct str){strbuf_cstr(&name), name.n});
        strbuf_printf(&all, "%s%s", i ? ", " : "", strbuf_cstr(&name));
    }
    const char *why = "no such field";
    if (like)
        why = arena_printf(p->a, "no such field (did you mean '%s'?)", strbuf_cstr(&name));
    else if (d->n_fields && d->n_fields <= FEW)
        why = arena_printf(p->a, "no such field; there are %s", strbuf_cstr(&all));
    strbuf_done(&all);
    strbuf_done(&name);
    return bad(p->path, why);
}

static status_t parse_message(struct parser *p, const ProtobufCMessageDescriptor *d, json_t *j,
                              ProtobufCMessage **out) MUST_CHECK;

bool json_base64(struct arena *a, struct str s, struct span *out) {
    while (s.n && s.p[s.n - 1] == '=')
        s.n--;
    uint8_t *data = arena_alloc(a, s.n / 4 * 3 + 4);
    size_t n = 0;
    uint32_t acc = 0;
    int bits = 0;
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i] == '-' ? '+' : s.p[i] == '_' ? '/' : s.p[i];
        const char *d = c ? strchr(str_base64_digits, c) : NULL;
        if (!d) return false;
        acc = acc << 6 | (uint32_t)(d - str_base64_digits);
        bits += 6;
        if (bits >= 8) data[n++] = (uint8_t)(acc >> (bits -= 8));
    }
    *out = (struct span){data, n};
    return true;
}

static status_t parse_integer(struct parser *p, json_t *j, int64_t lo, int64_t hi, int64_t *out) {
    int64_t v;
    double d = json_is_real(j) ? json_real_value(j) : 0.5;
    if (json_is_integer(j))
        v = json_integer_value(j);
    else if (d == floor(d) && fabs(d) < 9e15)
        v = (int64_t)d;
    else if (!json_is_string(j) ||
             !str_to_i64((struct str){json_string_value(j), json_string_length(j)}, &v))
        return bad(p->path, "expected an integer");
    if (v < lo || v > hi) return bad(p->path, "integer out of range");
    *out = v;
    return ST_OK;
}

static status_t parse_real(struct parser *p, json_t *j, double *out) {
    if (json_is_number(j))
        *out = json_number_value(j);
    else if (!json_is_string(j) ||
             !str_to_f64((struct str){json_string_value(j), json_string_length(j)}, out))
        return bad(p->path, "expected a number");
    return ST_OK;
}

static status_t parse_enum(struct parser *p, const ProtobufCFieldDescriptor *f, json_t *j,
                           int *out) {
    int64_t v;
    if (json_is_string(j)) {
        const ProtobufCEnumValue *e =
            protobuf_c_enum_descriptor_get_value_by_name(f->descriptor, json_string_value(j));
        if (!e) return bad(p->path, "no such enum value");
        v = e->value;
    } else
        RETURN_IF_ERR(parse_integer(p, j, INT32_MIN, INT32_MAX, &v));
    *out = (int)v;
    return ST_OK;
}

static status_t parse_value(struct parser *p, const ProtobufCFieldDescriptor *f, json_t *j,
                            void *v) {
    int64_t i = 0;
    double d = 0;
    struct span bytes;

    switch ((int)held[f->type].as) {
    case T(INT32):
        RETURN_IF_ERR(parse_integer(p, j, INT32_MIN, INT32_MAX, &i));
        *(int32_t *)v = (int32_t)i;
        return ST_OK;
    case T(UINT32):
        RETURN_IF_ERR(parse_integer(p, j, 0, UINT32_MAX, &i));
        *(uint32_t *)v = (uint32_t)i;
        return ST_OK;
    case T(INT64):
        return parse_integer(p, j, INT64_MIN, INT64_MAX, v);
    case T(UINT64):
        RETURN_IF_ERR(parse_integer(p, j, 0, INT64_MAX, &i));
        *(uint64_t *)v = (uint64_t)i;
        return ST_OK;
    case T(FLOAT):
        RETURN_IF_ERR(parse_real(p, j, &d));
        *(float *)v = (float)d;
        return ST_OK;
    case T(DOUBLE):
        return parse_real(p, j, v);

    case T(BOOL):
        if (!json_is_boolean(j)) return bad(p->path, "expected true or false");
        *(protobuf_c_boolean *)v = json_is_true(j);
        return ST_OK;
    case T(ENUM):
        return parse_enum(p, f, j, v);
    case T(STRING):
        if (!json_is_string(j)) return bad(p->path, "expected a string");
        if (strlen(json_string_value(j)) != json_string_length(j))
            return bad(p->path, "string with a NUL");
        *(char **)v = arena_strdup(p->a, json_string_value(j));
        return ST_OK;
    case T(BYTES):
        if (!json_is_string(j)) return bad(p->path, "expected a base64 string");
        if (!json_base64(p->a, (struct str){json_string_value(j), json_string_length(j)}, &bytes))
            return bad(p->path, "not base64");
        *(ProtobufCBinaryData *)v = (ProtobufCBinaryData){bytes.n, (uint8_t *)bytes.p};
        return ST_OK;
    case T(MESSAGE):
        return parse_message(p, f->descriptor, j, v);
    }
    return bad(p->path, "unknown field type");
}

static status_t parse_map(struct parser *p, const ProtobufCFieldDescriptor *f, json_t *j,
                          uint8_t *m) {
    if (!json_is_object(j)) return bad(p->path, "expected an object");
    const ProtobufCMessageDescriptor *d = f->descriptor;
    const ProtobufCFieldDescriptor *kf = &d->fields[0], *vf = &d->fields[1];
    size_t n = 0, at = strlen(p->path);
    ProtobufCMessage **v = arena_array(p->a, ProtobufCMessage *, json_object_size(j) + 1);
    const char *key;
    json_t *val;
    json_object_foreach(j, key, val) {
        snprintf(p->path + at, sizeof p->path - at, ".%.64s", key);
        ProtobufCMessage *e = message_new(p->a, d);
        *(char **)((uint8_t *)e + kf->offset) = arena_strdup(p->a, key);
        RETURN_IF_ERR(parse_value(p, vf, val, (uint8_t *)e + vf->offset));
        v[n++] = e;
        p->path[at] = 0;
    }
    *(size_t *)(m + f->quantifier_offset) = n;
    *(void **)(m + f->offset) = v;
    return ST_OK;
}

// The field of the choice that fits the scalar; values of other types leave it empty.
static status_t parse_choice(struct parser *p, json_t *j, ProtobufCMessage *m) {
    ProtobufCType want = json_is_boolean(j)   ? T(BOOL)
                         : json_is_integer(j) ? T(INT64)
                         : json_is_real(j)    ? T(DOUBLE)
                                              : T(STRING);
    for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];
        bool fits = f->type == want || // a choice has one kind of integer at least
                    (want == T(INT64) && f->type == T(UINT32));
        if (!fits || (want == T(STRING) && !json_is_string(j))) continue;
        *(uint32_t *)((uint8_t *)m + f->quantifier_offset) = f->id;
        return parse_value(p, f, j, (uint8_t *)m + f->offset);
    }
    return ST_OK;
}

static status_t parse_field(struct parser *p, const ProtobufCFieldDescriptor *f, json_t *j,
                            uint8_t *m) {
    if (json_is_null(j)) return ST_OK; // proto3 JSON: null is the default value
    if (f->label != PROTOBUF_C_LABEL_REPEATED) {
        if (f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) *(uint32_t *)(m + f->quantifier_offset) = f->id;
        return parse_value(p, f, j, m + f->offset);
    }
    if (json_is_map(f)) return parse_map(p, f, j, m);
    if (!json_is_array(j)) return bad(p->path, "expected an array");
    size_t n = json_array_size(j), size = held[f->type].size, at = strlen(p->path);
    uint8_t *v = arena_zalloc(p->a, n * size + 1);
    for (size_t i = 0; i < n; i++) {
        snprintf(p->path + at, sizeof p->path - at, "[%zu]", i);
        RETURN_IF_ERR(parse_value(p, f, json_array_get(j, i), v + i * size));
    }
    p->path[at] = 0;
    *(size_t *)(m + f->quantifier_offset) = n;
    *(void **)(m + f->offset) = v;
    return ST_OK;
}

static status_t parse_message(struct parser *p, const ProtobufCMessageDescriptor *d, json_t *j,
                              ProtobufCMessage **out) {
    ProtobufCMessage *m = message_new(p->a, d);
    if (json_is_choice(d)) {
        *out = m;
        return parse_choice(p, j, m);
    }
    if (!json_is_object(j)) return bad(p->path, "expected an object");
    if (++p->depth > JSON_MAX_DEPTH) return bad(p->path, "nested too deeply");
    size_t at = strlen(p->path);
    const char *key;
    json_t *val;
    json_object_foreach(j, key, val) {
        snprintf(p->path + at, sizeof p->path - at, "%s%.64s", at ? "." : "", key);
        const ProtobufCFieldDescriptor *f = json_field(d, str_of(key));
        if (!f && p->dialect != OIP) return no_field(p, d, key);
        if (f) RETURN_IF_ERR(parse_field(p, f, val, (uint8_t *)m));
        p->path[at] = 0;
    }
    p->depth--;
    *out = m;
    return ST_OK;
}

// jansson 2.14 does not look whether the text of a value could grow: where memory was short it goes
// on without the bytes, and only its allocator shows it.
static _Thread_local bool short_of_memory;
static void *noting_alloc(size_t n) {
    void *p = malloc(n);
    if (!p) short_of_memory = true;
    return p;
}
static void note_memory(void) {
    json_set_alloc_funcs(noting_alloc, free);
}
// NULL where short_of_memory is set, or the text is not JSON.
static json_t *load_noting(struct str text, json_error_t *e) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, note_memory);
    short_of_memory = false;
    json_t *j = json_loadb(text.p, text.n, JSON_REJECT_DUPLICATES, e);
    if (!short_of_memory) return j;
    json_decref(j);
    return NULL;
}

// By its byte order mark, or since its first character is of ASCII.
static bool is_wide(struct str text) {
    if (text.n < 2) return false;
    uint8_t a = (uint8_t)text.p[0], b = (uint8_t)text.p[1];
    return !a || !b || (a == 0xff && b == 0xfe) || (a == 0xfe && b == 0xff);
}
static status_t parse_text(struct arena *a, const ProtobufCMessageDescriptor *d, struct str text,
                           int dialect, ProtobufCMessage **out) {
    json_error_t e;
    struct arena_guard guard;
    text = json_after_mark(text);
    if (text.n == 0) text = STR("{}");
    bool done = ARENA_GUARD(a, &guard) && json_quick(a, d, text, dialect == OIP, out);
    arena_unguard(a, &guard);
    if (done) return ST_OK;

    RETURN_IF_ERR(weigh_check(weigh_json(d, text), text.n));
    json_t *j = load_noting(text, &e); // not the arena's
    if (short_of_memory) return st_oom();
    if (!j && is_wide(text))
        return st_because(ST_INVALID_ARGUMENT, BAD_JSON,
                          "request body is UTF-16 or UTF-32: JSON is sent as UTF-8");
    if (!j)
        return st_because(ST_INVALID_ARGUMENT, BAD_JSON,
                          "request body is not JSON: line %d, column %d: %s", e.line, e.column,
                          e.text);
    struct parser p = {.a = a, .dialect = dialect};
    status_t st = ARENA_GUARD(a, &guard) ? parse_message(&p, d, j, out) : st_oom();
    arena_unguard(a, &guard);
    json_decref(j);
    return st;
}
status_t json_parse(struct arena *a, const ProtobufCMessageDescriptor *d, struct str text,
                    ProtobufCMessage **out) {
    return parse_text(a, d, text, 0, out);
}
status_t json_parse_oip(struct arena *a, const ProtobufCMessageDescriptor *d, struct str text,
                        ProtobufCMessage **out) {
    return parse_text(a, d, text, OIP, out);
}

status_t json_set_text(struct arena *a, ProtobufCMessage *m, struct str name, struct str value) {
    struct parser p = {.a = a};
    snprintf(p.path, sizeof p.path, "%.*s", (int)(name.n < 64 ? name.n : 64), name.p);
    const ProtobufCFieldDescriptor *f = json_field(m->descriptor, name);
    if (!f || f->type == T(MESSAGE)) return bad(p.path, "no such parameter");
    json_t *j;
    if (f->type == T(BOOL))
        j = str_is(value, "1") || str_is(value, "true")    ? json_true()
            : str_is(value, "0") || str_is(value, "false") ? json_false()
                                                           : NULL;
    else
        j = json_stringn(value.p, value.n);
    if (!j) return bad(p.path, f->type == T(BOOL) ? "expected 0, 1, true or false" : "not UTF-8");
    status_t st;
    if (f->label == PROTOBUF_C_LABEL_REPEATED) {
        uint8_t *base = (uint8_t *)m, **v = (uint8_t **)(base + f->offset);
        size_t *n = (size_t *)(base + f->quantifier_offset), size = held[f->type].size;
        uint8_t *grown = arena_zalloc(a, (*n + 1) * size);
        if (*n) memcpy(grown, *v, *n * size);
        st = parse_value(&p, f, j, grown + *n * size);
        if (!st) *v = grown, ++*n;
    } else
        st = parse_field(&p, f, j, (uint8_t *)m);
    json_decref(j);
    return st;
}
