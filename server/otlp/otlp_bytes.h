// SPDX-License-Identifier: Apache-2.0
// otlp_bytes: a protobuf message written field by field into one growing piece of memory. For
// messages of which thousands are written a second: protobuf-c would build each as a tree, weigh it
// and then pack it. Aborts on out of memory, so its user bounds what it writes. Thread: one.
#pragma once
#include <string.h>

#include "base/arena.h"
#include "base/span.h"

struct otlp_bytes { // zero-initialise; free(p) ends it
    uint8_t *p;
    size_t n, cap;
};
static inline uint8_t *otlp_room(struct otlp_bytes *b, size_t n) {
    if (b->cap - b->n < n) {
        b->cap = (b->cap + n) * 2;
        b->p = arena_must_realloc(b->p, b->cap);
    }
    return b->p + b->n;
}
static inline size_t otlp_varint_bytes(uint64_t v) {
    return (size_t)(70 - __builtin_clzll(v | 1)) / 7;
}
static inline uint8_t *otlp_varint_at(uint8_t *to, uint64_t v) {
    while (v >= 0x80) {
        *to++ = (uint8_t)v | 0x80;
        v >>= 7;
    }
    *to++ = (uint8_t)v;
    return to;
}
enum otlp_wire { OTLP_VARINT = 0, OTLP_FIXED64 = 1, OTLP_BYTES = 2, OTLP_FIXED32 = 5 };
static inline uint8_t *otlp_tag_at(uint8_t *to, uint32_t field, enum otlp_wire wire) {
    return otlp_varint_at(to, field << 3 | (uint32_t)wire);
}

// ---- fields; what is at its default is left out by the caller

static inline void otlp_put_varint(struct otlp_bytes *b, uint32_t field, uint64_t v) {
    uint8_t *p = otlp_tag_at(otlp_room(b, 20), field, OTLP_VARINT);
    b->n = (size_t)(otlp_varint_at(p, v) - b->p);
}
static inline void otlp_put_fixed64(struct otlp_bytes *b, uint32_t field, uint64_t v) {
    uint8_t *p = otlp_tag_at(otlp_room(b, 20), field, OTLP_FIXED64);
    for (int k = 0; k < 8; k++)
        *p++ = (uint8_t)(v >> 8 * k);
    b->n = (size_t)(p - b->p);
}
static inline void otlp_put_double(struct otlp_bytes *b, uint32_t field, double v) {
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    otlp_put_fixed64(b, field, bits);
}
static inline void otlp_put_fixed32(struct otlp_bytes *b, uint32_t field, uint32_t v) {
    uint8_t *p = otlp_tag_at(otlp_room(b, 20), field, OTLP_FIXED32);
    for (int k = 0; k < 4; k++)
        *p++ = (uint8_t)(v >> 8 * k);
    b->n = (size_t)(p - b->p);
}
static inline void otlp_put_bytes(struct otlp_bytes *b, uint32_t field, const void *v, size_t n) {
    uint8_t *p = otlp_tag_at(otlp_room(b, n + 20), field, OTLP_BYTES);
    p = otlp_varint_at(p, n);
    if (n) memcpy(p, v, n);
    b->n = (size_t)(p + n - b->p);
}
static inline void otlp_put_raw(struct otlp_bytes *b, const void *v, size_t n) { // whole fields
    if (n) memcpy(otlp_room(b, n), v, n);
    b->n += n;
}

// A message inside: what is put until otlp_close is its contents.
static inline size_t otlp_open(struct otlp_bytes *b, uint32_t field) {
    uint8_t *p = otlp_tag_at(otlp_room(b, 8), field, OTLP_BYTES);
    b->n = (size_t)(p - b->p) + 1; // one byte for its length; more are made at the end
    return b->n;
}
static inline void otlp_close(struct otlp_bytes *b, size_t open) {
    size_t n = b->n - open, more = otlp_varint_bytes(n) - 1;
    if (more) {
        otlp_room(b, more);
        memmove(b->p + open + more, b->p + open, n);
        b->n += more;
    }
    otlp_varint_at(b->p + open - 1, n);
}
