// SPDX-License-Identifier: Apache-2.0
// An answer is compared with the one that would be right, byte by byte: there is nothing to parse.
#include "devices/web/web_wire.h"

#include "base/span.h"
#include "base/str.h"

enum { COUNT_BYTES = 8, NAME_BYTES = 16, OUTPUT_BYTES = NAME_BYTES + 16 };

void web_put32(uint8_t *p, uint32_t v) {
    for (int k = 0; k < 4; k++)
        p[k] = (uint8_t)(v >> 8 * k);
}
static void put64(uint8_t *p, uint64_t v) {
    web_put32(p, (uint32_t)v);
    web_put32(p + 4, (uint32_t)(v >> 32));
}
static uint32_t get32(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}
void web_head(uint8_t out[WEB_HEAD_BYTES], enum web_type type, uint32_t number) {
    web_put32(out, type);
    web_put32(out + 4, number);
}
bool web_read_head(struct span m, enum web_type *out_type, uint32_t *out_number) {
    if (m.n < WEB_HEAD_BYTES) return false;
    *out_type = (enum web_type)get32(m.p);
    *out_number = get32(m.p + 4);
    return true;
}

static uint8_t *put_output(uint8_t *p, const struct shape *s) {
    const char *name = dtype_name(s->dtype);
    memcpy(p, name, strlen(name) < NAME_BYTES ? strlen(name) : NAME_BYTES); // zeros behind it
    web_put32(p + NAME_BYTES, (uint32_t)s->rank);
    put64(p + NAME_BYTES + 8, (uint64_t)shape_bytes(s));
    p += OUTPUT_BYTES;
    for (int d = 0; d < s->rank; d++, p += 8)
        put64(p, (uint64_t)s->dims[d]);
    return p;
}
status_t web_result_make(struct arena *a, const struct shape *const *shapes, int n, uint32_t run,
                         struct web_result *out) {
    int64_t head = WEB_HEAD_BYTES + COUNT_BYTES, bytes, *at = arena_zarray(a, int64_t, n + 1);
    for (int k = 0; k < n; k++)
        head += OUTPUT_BYTES + 8 * shapes[k]->rank;
    bytes = head;
    for (int k = 0; k < n; k++) {
        at[k] = bytes;
        if (!sz_add(bytes, shape_bytes(shapes[k]), &bytes) || bytes > INT64_MAX - WEB_PAD)
            return st_invalid("the results are too large");
        bytes = round_up(bytes, WEB_PAD);
    }

    uint8_t *p = arena_zarray(a, uint8_t, head), *to = p + WEB_HEAD_BYTES + COUNT_BYTES;
    web_head(p, WEB_RESULT, run);
    web_put32(p + WEB_HEAD_BYTES, (uint32_t)n);
    for (int k = 0; k < n; k++)
        to = put_output(to, shapes[k]);
    *out = (struct web_result){{p, (size_t)head}, bytes, at, shapes, n};
    return ST_OK;
}

// Elements below a byte, and truth values, have a byte each, most of whose values are none of
// theirs.
static bool has_elements(enum dtype t, const uint8_t *p, int64_t n) {
    int bits = t == DT_PRED ? 1 : dtype_bits(t);
    if (bits >= 8) return true;
    bool is_signed = t == DT_S2 || t == DT_S4;
    int most = is_signed ? (1 << (bits - 1)) - 1 : (1 << bits) - 1,
        least = is_signed ? -most - 1 : 0;
    for (int64_t k = 0; k < n; k++) {
        int v = is_signed ? (int8_t)p[k] : p[k];
        if (v < least || v > most) return false;
    }
    return true;
}
const char *web_result_fault(const struct web_result *r, struct span m) {
    if (m.n < r->head.n || memcmp(m.p, r->head.p, r->head.n) != 0)
        return "its results are not of the number, types and shapes that were asked for";
    if ((int64_t)m.n != r->bytes) return "its results have another size";
    for (int k = 0; k < r->n; k++)
        if (!has_elements(r->shapes[k]->dtype, m.p + r->at[k], shape_bytes(r->shapes[k])))
            return "an element of its results is none of its type";
    return NULL;
}

void web_text(struct span m, char *out, size_t room) {
    size_t n = m.n < room - 1 ? m.n : room - 1;
    for (size_t k = 0; k < n; k++)
        out[k] = (char)(m.p[k] >= ' ' && m.p[k] < 0x7f ? m.p[k] : '?');
    out[n] = 0;
}
