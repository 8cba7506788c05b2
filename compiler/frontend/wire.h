// SPDX-License-Identifier: Apache-2.0
// wire: a reader of protobuf's wire format over borrowed bytes (protobuf.dev, "Encoding").
// Nothing is copied, nothing recurses: a nested message is a span that the caller opens as another
// reader. Every length is checked against what is left.
#pragma once
#include "base/span.h"
#include "base/status.h"
#include "base/str.h"

enum wire_type { WIRE_VARINT = 0, WIRE_I64 = 1, WIRE_LEN = 2, WIRE_I32 = 5 };
struct wire {
    const uint8_t *start, *p, *end;
}; // start: of the whole file, for offsets in messages
struct wire_field {
    uint32_t number;
    enum wire_type type;
    uint64_t value;    // varint, or the bits of i32 and i64
    struct span bytes; // LEN payload
    const uint8_t *at; // where the field begins (its tag)
    const uint8_t *after;
};
static inline struct wire wire_open(const uint8_t *file, struct span s) {
    return (struct wire){file, s.p, s.n ? s.p + s.n : s.p}; // a null span stays null
}
// The next field of a walk `while (wire_next(&w, &f, &st))`. False at the end and on an error: one
// that *st is already, or INVALID_ARGUMENT with the byte offset.
bool wire_next(struct wire *w, struct wire_field *f, status_t *st) MUST_CHECK;
// The last field of that number in message s (`file` for offsets); *got false when there is none.
status_t wire_find(const uint8_t *file, struct span s, uint32_t number, struct wire_field *out,
                   bool *got) MUST_CHECK;
// Appends a field: a varint, or bytes.
void wire_put_int(struct strbuf *b, uint32_t field, uint64_t v);
void wire_put_bytes(struct strbuf *b, uint32_t field, const void *p, size_t n);
// One varint from w (packed fields).
status_t wire_varint(struct wire *w, uint64_t *out) MUST_CHECK;
