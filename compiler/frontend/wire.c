// SPDX-License-Identifier: Apache-2.0
// Varints and fields. Groups (wire types 3 and 4) are not part of any format read here and are
// refused.
#include "compiler/frontend/wire.h"

static status_t bad(const struct wire *w, const uint8_t *at, const char *why) {
    return st_invalid("byte %zu: %s", (size_t)(at - w->start), why);
}

status_t wire_varint(struct wire *w, uint64_t *out) {
    uint64_t v = 0;
    const uint8_t *at = w->p;
    for (int shift = 0; shift < 70; shift += 7) {
        if (w->p == w->end) return bad(w, at, "the data ends inside a number");
        uint8_t b = *w->p++;
        if (shift == 63 && b > 1) return bad(w, at, "a number has more than 64 bits");
        v |= (uint64_t)(b & 0x7f) << shift;
        if (b < 0x80) {
            *out = v;
            return ST_OK;
        }
    }
    return bad(w, at, "a number has more than 10 bytes");
}

static status_t read_field(struct wire *w, struct wire_field *f, bool *got) {
    uint64_t tag, n;
    *got = w->p < w->end;
    if (!*got) return ST_OK;

    *f = (struct wire_field){.at = w->p};
    RETURN_IF_ERR(wire_varint(w, &tag));
    f->number = (uint32_t)(tag >> 3);
    f->type = (enum wire_type)(tag & 7);
    if (tag >> 32 || f->number == 0) return bad(w, f->at, "a field number is not valid");

    size_t left = (size_t)(w->end - w->p);
    switch (tag & 7) {
    case WIRE_VARINT:
        RETURN_IF_ERR(wire_varint(w, &f->value));
        break;
    case WIRE_I64:
    case WIRE_I32: {
        size_t size = f->type == WIRE_I64 ? 8 : 4;
        if (left < size) return bad(w, f->at, "the data ends inside a fixed-size number");
        memcpy(&f->value, w->p, size);
        w->p += size;
        break;
    }
    case WIRE_LEN:
        RETURN_IF_ERR(wire_varint(w, &n));
        left = (size_t)(w->end - w->p);
        if (n > left)
            return st_invalid("byte %zu: field %u has a length of %llu bytes, %zu are left",
                              (size_t)(f->at - w->start), f->number, (unsigned long long)n, left);
        f->bytes = (struct span){w->p, (size_t)n};
        w->p += n;
        break;
    default:
        return bad(w, f->at, "wire type is not valid");
    }

    f->after = w->p;
    return ST_OK;
}

bool wire_next(struct wire *w, struct wire_field *f, status_t *st) {
    bool got = false;
    if (!*st) *st = read_field(w, f, &got);
    return !*st && got;
}

status_t wire_find(const uint8_t *file, struct span s, uint32_t number, struct wire_field *out,
                   bool *got) {
    struct wire w = wire_open(file, s);
    struct wire_field f;
    status_t st = ST_OK;
    *got = false;
    while (wire_next(&w, &f, &st))
        if (f.number == number) *out = f, *got = true;
    return st;
}

static void put_varint(struct strbuf *b, uint64_t v) {
    for (; v >= 0x80; v >>= 7)
        strbuf_putc(b, (char)(v | 0x80));
    strbuf_putc(b, (char)v);
}
void wire_put_int(struct strbuf *b, uint32_t field, uint64_t v) {
    put_varint(b, field << 3 | WIRE_VARINT);
    put_varint(b, v);
}
void wire_put_bytes(struct strbuf *b, uint32_t field, const void *p, size_t n) {
    put_varint(b, field << 3 | WIRE_LEN);
    put_varint(b, n);
    strbuf_add(b, p, n);
}
