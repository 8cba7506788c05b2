// SPDX-License-Identifier: Apache-2.0
// Costs are those of protobuf-c 1.4 and jansson 2.14 on 64 bits, with malloc's 16 bytes an item;
// tables that grow by doubling count with their older half.
#include "proto/weigh.h"

#include <stdlib.h>

#include "proto/reason.h"

enum { ITEM = 16, UNKNOWN = 40 };
enum { MARK = 64 }; // protobuf-c's note of a field that it met, until its message is built
// What any request may come to, and what more for each of its bytes; what our own processes and
// records say may be denser.
enum { FREE = 64 << 20, TIMES = 4, OWN_FREE = 256 << 20, OWN_TIMES = 16 };

int64_t weigh_limit(size_t n) {
    return FREE + (int64_t)n * TIMES;
}
status_t weigh_check(int64_t weight, size_t n) {
    if (weight <= weigh_limit(n)) return ST_OK;
    return st_because(ST_INVALID_ARGUMENT, BODY_TOO_LARGE,
                      "the body's %zu bytes are %lld when parsed, at most %lld: too many "
                      "values; tensors travel in binary form",
                      n, (long long)weight, (long long)weigh_limit(n));
}

// ---- protobuf

static bool varint(struct span *s, uint64_t *out) {
    *out = 0;
    for (unsigned shift = 0; shift < 64 && s->n; shift += 7) {
        uint8_t b = *s->p++;
        s->n--;
        *out |= (uint64_t)(b & 0x7f) << shift;
        if (!(b & 0x80)) return true;
    }
    return false;
}

static int64_t packed(const ProtobufCFieldDescriptor *f, struct span s) {
    switch (f->type) {
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_SFIXED32:
    case PROTOBUF_C_TYPE_FLOAT:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_DOUBLE:
        return (int64_t)s.n;
    default:
        break;
    }
    int64_t values = 0; // each ends in a byte below 128
    for (size_t i = 0; i < s.n; i++)
        values += s.p[i] < 0x80;
    return values * 8;
}

static int64_t weigh(const ProtobufCMessageDescriptor *d, struct span s, int depth,
                     int64_t *out_marks);

// *marks: of the messages inside, the most of one; they come one after the other.
static int64_t weigh_bytes(const ProtobufCFieldDescriptor *f, struct span s, int depth,
                           int64_t *marks) {
    if (!f) return UNKNOWN + ITEM + (int64_t)s.n;
    if (f->type == PROTOBUF_C_TYPE_MESSAGE) {
        int64_t inner, sum = weigh(f->descriptor, s, depth + 1, &inner);
        if (inner > *marks) *marks = inner;
        return sum;
    }
    if (f->type == PROTOBUF_C_TYPE_STRING || f->type == PROTOBUF_C_TYPE_BYTES)
        return ITEM + 1 + (int64_t)s.n;
    return packed(f, s);
}
static int64_t weigh(const ProtobufCMessageDescriptor *d, struct span s, int depth,
                     int64_t *out_marks) {
    int64_t sum = ITEM + (int64_t)d->sizeof_message, marks = 0, inner = 0;
    *out_marks = 0;
    if (depth > WEIGH_MAX_DEPTH) return -1;
    const ProtobufCFieldDescriptor *f = NULL;
    uint64_t last = 0;

    while (s.n) {
        uint64_t tag, n = 0;
        if (!varint(&s, &tag) || tag >> 3 > UINT32_MAX) return -1;
        if (tag != last) f = protobuf_c_message_descriptor_get_field(d, (unsigned)(tag >> 3));
        last = tag;
        marks += MARK;
        if (!f || f->label == PROTOBUF_C_LABEL_REPEATED)
            sum += f ? sizeof(ProtobufCBinaryData) : UNKNOWN + ITEM; // its place in the list

        switch (tag & 7) {
        case PROTOBUF_C_WIRE_TYPE_VARINT:
            if (!varint(&s, &n)) return -1;
            continue;
        case PROTOBUF_C_WIRE_TYPE_64BIT:
            n = 8;
            break;
        case PROTOBUF_C_WIRE_TYPE_32BIT:
            n = 4;
            break;
        case PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED:
            if (!varint(&s, &n) || n > s.n) return -1;
            int64_t inside = weigh_bytes(f, (struct span){s.p, (size_t)n}, depth, &inner);
            if (inside < 0) return -1;
            sum += inside;
            break;
        default:
            return -1;
        }

        if (n > s.n) return -1;
        s.p += n;
        s.n -= (size_t)n;
    }
    *out_marks = marks + inner;
    return sum;
}
int64_t weigh_message(const ProtobufCMessageDescriptor *d, struct span bytes) {
    int64_t marks, sum = weigh(d, bytes, 0, &marks);
    return sum < 0 ? -1 : sum + marks;
}

// malloc, which notes that there was no memory: the library says only that it did not unpack.
static void *noting_alloc(void *ctx, size_t n) {
    void *p = malloc(n);
    if (!p) *(bool *)ctx = true;
    return p;
}
static void plain_free(UNUSED void *ctx, void *p) {
    free(p);
}
// What is our own is not taken for unreadable because memory is short: a record that keeps a blob
// from being collected is one of them.
static void *must_alloc(UNUSED void *ctx, size_t n) {
    return arena_must_realloc(NULL, n);
}
status_t weigh_unpack(const ProtobufCMessageDescriptor *d, struct span bytes,
                      ProtobufCMessage **out) {
    int64_t weight = weigh_message(d, bytes);
    if (weight >= 0) RETURN_IF_ERR(weigh_check(weight, bytes.n));
    bool short_of = false;
    ProtobufCAllocator memory = {noting_alloc, plain_free, &short_of};
    *out = weight < 0 ? NULL : protobuf_c_message_unpack(d, &memory, bytes.n, bytes.p);
    if (short_of) return st_oom();
    return *out ? ST_OK : st_invalid("the body is not a %s", d->name);
}
void *weigh_unpack_or_null(const ProtobufCMessageDescriptor *d, struct span bytes) {
    int64_t weight = weigh_message(d, bytes);
    bool fits = weight >= 0 && weight <= OWN_FREE + (int64_t)bytes.n * OWN_TIMES;
    ProtobufCAllocator memory = {must_alloc, plain_free, NULL};
    return fits ? protobuf_c_message_unpack(d, &memory, bytes.n, bytes.p) : NULL;
}
static void free_message(void *m) {
    protobuf_c_message_free_unpacked(m, NULL);
}
void *weigh_unpack_in(struct arena *a, const ProtobufCMessageDescriptor *d, struct span bytes) {
    void *m = weigh_unpack_or_null(d, bytes);
    if (m) arena_link(a, free_message, m);
    return m;
}

// ---- JSON

// The largest message under d, itself included.
static size_t largest(const ProtobufCMessageDescriptor *d, int depth) {
    size_t most = d->sizeof_message;
    for (unsigned i = 0; i < d->n_fields && depth < 8; i++) {
        if (d->fields[i].type != PROTOBUF_C_TYPE_MESSAGE) continue;
        size_t n = largest(d->fields[i].descriptor, depth + 1);
        if (n > most) most = n;
    }
    return most;
}

int64_t weigh_json(const ProtobufCMessageDescriptor *d, struct str text) {
    // An object: its table of 8 buckets, and the message. An array: its table of 8. A string may be
    // a key (an entry of the table and, in a map, a message) and is copied twice. The last: numbers
    // and words, which may become a message of their own (a choice).
    enum { OBJECT = 256, ARRAY = 160, STRING = 320, COPIES = 3, SCALAR = 160 };
    int64_t sum = 0, message = (int64_t)largest(d, 0);
    bool in_word = false;
    for (const char *p = text.p, *end = p + text.n; p < end; p++) {
        char c = *p;
        bool word = false;
        if (c == '"') {
            const char *from = p;
            for (p++; p < end && *p != '"'; p++)
                p += *p == '\\' && p + 1 < end;
            sum += STRING + (p - from) * COPIES;
        } else if (c == '{')
            sum += OBJECT + message;
        else if (c == '[')
            sum += ARRAY;
        else if (c != ' ' && c != '\n' && c != '\r' && c != '\t' && c != ',' && c != ':' &&
                 c != '}' && c != ']') {
            word = true;
            if (!in_word) sum += SCALAR;
        }
        in_word = word;
    }
    return sum;
}
