// SPDX-License-Identifier: Apache-2.0
#include "proto/json.h"

#include <string.h>

#include "proto/message.h"

enum { DEPTH = 8, ENTRIES = 16, DIGITS = 15 };
struct quick {
    const char *p, *end;
    struct arena *a;
    bool oip;
    int depth;
    bool null_met; // under a name that is no field: a second one could be its double
};

static bool message(struct quick *q, const ProtobufCMessageDescriptor *d, ProtobufCMessage **out);

static char next(struct quick *q) { // behind space; 0: the end
    while (q->p < q->end && (*q->p == ' ' || *q->p == '\n' || *q->p == '\r' || *q->p == '\t'))
        q->p++;
    return q->p < q->end ? *q->p : 0;
}
static bool take(struct quick *q, char c) {
    if (next(q) != c) return false;
    q->p++;
    return true;
}
static bool word(struct quick *q, const char *z) {
    size_t n = strlen(z);
    if (next(q) != *z || (size_t)(q->end - q->p) < n || memcmp(q->p, z, n) != 0) return false;
    q->p += n;
    return true;
}

static bool text(struct quick *q, struct str *out) {
    if (!take(q, '"')) return false;
    const char *p = q->p;
    while (p < q->end && *p != '"' && *p != '\\' && *p >= ' ' && *p < 0x7f)
        p++;
    if (p == q->end || *p != '"') return false;
    *out = (struct str){q->p, (size_t)(p - q->p)};
    q->p = p + 1;
    return true;
}

static bool whole(struct quick *q, int64_t *out) {
    char c = next(q);
    bool minus = c == '-';
    q->p += minus;
    const char *p = q->p;
    int64_t v = 0;
    while (p < q->end && *p >= '0' && *p <= '9' && p - q->p <= DIGITS)
        v = 10 * v + (*p++ - '0');
    int64_t n = p - q->p;
    if (!n || n > DIGITS || (*q->p == '0' && (n > 1 || minus))) return false;
    if (p < q->end && (*p == '.' || *p == 'e' || *p == 'E')) return false;
    *out = minus ? -v : v;
    q->p = p;
    return true;
}

static bool name_of(struct quick *q, const ProtobufCFieldDescriptor *f, int *out) {
    struct str s;
    if (!text(q, &s)) return false;
    const ProtobufCEnumValue *e =
        protobuf_c_enum_descriptor_get_value_by_name(f->descriptor, arena_strndup(q->a, s.p, s.n));
    if (e) *out = e->value;
    return e != NULL;
}

// A value that is no list, to its place.
static bool value(struct quick *q, const ProtobufCFieldDescriptor *f, void *v) {
    int64_t i;
    struct str s;
    switch ((int)f->type) {
    case PROTOBUF_C_TYPE_INT32:
        if (!whole(q, &i) || i < INT32_MIN || i > INT32_MAX) return false;
        *(int32_t *)v = (int32_t)i;
        return true;
    case PROTOBUF_C_TYPE_UINT32:
        if (!whole(q, &i) || i < 0 || i > UINT32_MAX) return false;
        *(uint32_t *)v = (uint32_t)i;
        return true;
    case PROTOBUF_C_TYPE_INT64:
        return whole(q, v);
    case PROTOBUF_C_TYPE_UINT64:
        if (!whole(q, &i) || i < 0) return false;
        *(uint64_t *)v = (uint64_t)i;
        return true;

    case PROTOBUF_C_TYPE_BOOL:
        *(protobuf_c_boolean *)v = word(q, "true");
        return *(protobuf_c_boolean *)v || word(q, "false");
    case PROTOBUF_C_TYPE_ENUM:
        return name_of(q, f, v);
    case PROTOBUF_C_TYPE_STRING:
        if (!text(q, &s)) return false;
        *(char **)v = arena_strndup(q->a, s.p, s.n);
        return true;
    case PROTOBUF_C_TYPE_MESSAGE:
        return message(q, f->descriptor, v);
    default:
        return false;
    }
}

// Is it held in eight bytes, as what is listed in requests is?
static bool wide(const ProtobufCFieldDescriptor *f) {
    return f->type == PROTOBUF_C_TYPE_INT64 || f->type == PROTOBUF_C_TYPE_UINT64 ||
           f->type == PROTOBUF_C_TYPE_STRING || f->type == PROTOBUF_C_TYPE_MESSAGE;
}
// Behind a value: is there another one (1), is it the end (0), or neither (-1)?
static int more(struct quick *q, char end) {
    char c = next(q);
    q->p += c == ',' || c == end;
    return c == ',' ? 1 : c == end ? 0 : -1;
}
static bool list(struct quick *q, const ProtobufCFieldDescriptor *f, uint8_t *m) {
    size_t n = 0;
    if (!wide(f) || !take(q, '[')) return false;
    uint8_t *v = arena_zalloc(q->a, ENTRIES * 8);
    int on = next(q) == ']' ? more(q, ']') : 1;
    for (; on == 1; on = more(q, ']'))
        if (n == ENTRIES || !value(q, f, v + 8 * n++)) return false;
    *(size_t *)(void *)(m + f->quantifier_offset) = n;
    *(void **)(void *)(m + f->offset) = v;
    return on == 0;
}

static bool same_key(const ProtobufCFieldDescriptor *key, const ProtobufCMessage *x,
                     const ProtobufCMessage *y) {
    const char *const *a = (const void *)((const char *)x + key->offset);
    const char *const *b = (const void *)((const char *)y + key->offset);
    return !strcmp(*a, *b);
}
static bool map(struct quick *q, const ProtobufCFieldDescriptor *f, uint8_t *m) {
    const ProtobufCMessageDescriptor *d = f->descriptor;
    const ProtobufCFieldDescriptor *key = &d->fields[0], *val = &d->fields[1];
    ProtobufCMessage *v[ENTRIES];
    size_t n = 0;
    if (!take(q, '{')) return false;
    int on = next(q) == '}' ? more(q, '}') : 1;
    for (; on == 1; on = more(q, '}'), n++) {
        struct str name;
        if (n == ENTRIES || !text(q, &name) || !take(q, ':')) return false;
        uint8_t *e = message_new(q->a, d);
        v[n] = (ProtobufCMessage *)(void *)e;
        *(char **)(void *)(e + key->offset) = arena_strndup(q->a, name.p, name.n);
        if (!value(q, val, e + val->offset)) return false;
        for (size_t i = 0; i < n; i++)
            if (same_key(key, v[i], v[n])) return false;
    }
    *(size_t *)(void *)(m + f->quantifier_offset) = n;
    *(void **)(void *)(m + f->offset) = arena_dup(q->a, v, n * sizeof *v);
    return on == 0;
}

// The bare scalar of a choice.
static bool choice(struct quick *q, ProtobufCMessage *m) {
    char c = next(q);
    ProtobufCType want = c == 't' || c == 'f' ? PROTOBUF_C_TYPE_BOOL
                         : c == '"'           ? PROTOBUF_C_TYPE_STRING
                                              : PROTOBUF_C_TYPE_INT64;
    for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];
        if (f->type != want) continue;
        *(uint32_t *)(void *)((uint8_t *)m + f->quantifier_offset) = f->id;
        return value(q, f, (uint8_t *)m + f->offset);
    }
    return false;
}

static bool field(struct quick *q, const ProtobufCFieldDescriptor *f, uint8_t *m) {
    if (next(q) == 'n') return word(q, "null");
    if (f->label != PROTOBUF_C_LABEL_REPEATED) {
        if (f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) return false;
        return value(q, f, m + f->offset);
    }
    return json_is_map(f) ? map(q, f, m) : list(q, f, m);
}

static bool message(struct quick *q, const ProtobufCMessageDescriptor *d, ProtobufCMessage **out) {
    ProtobufCMessage *m = message_new(q->a, d);
    uint64_t seen = 0;
    *out = m;
    if (json_is_choice(d)) return choice(q, m);
    if (d->n_fields > 64 || q->depth == DEPTH || !take(q, '{')) return false;

    q->depth++;
    int on = next(q) == '}' ? more(q, '}') : 1;
    for (; on == 1; on = more(q, '}')) {
        struct str name;
        if (!text(q, &name) || !take(q, ':')) return false;
        const ProtobufCFieldDescriptor *f = json_field(d, name);
        uint64_t bit = f ? 1ull << (f - d->fields) : 0;
        if (!f && (!q->oip || q->null_met || !word(q, "null"))) return false;
        q->null_met |= !f;
        if (f && ((seen & bit) || !field(q, f, (uint8_t *)m))) return false;
        seen |= bit;
    }
    q->depth--;
    return on == 0;
}

bool json_quick(struct arena *a, const ProtobufCMessageDescriptor *d, struct str body, bool oip,
                ProtobufCMessage **out) {
    struct quick q = {.p = body.p, .end = body.p + body.n, .a = a, .oip = oip};
    ProtobufCMessage *m;
    if (body.n > JSON_QUICK_BYTES || !message(&q, d, &m) || next(&q)) return false;
    if (q.p != q.end) return false; // at a NUL
    *out = m;
    return true;
}
