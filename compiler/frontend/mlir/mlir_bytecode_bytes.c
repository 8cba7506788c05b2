// SPDX-License-Identifier: Apache-2.0
// Numbers, strings and sections of MLIR's bytecode, and what is spent of the budget.
#include <stdio.h>
#include <string.h>

#include "compiler/frontend/mlir/mlir_bytecode_reader.h"

enum { PADDING = 0xCB };

status_t mb_error(const struct mb *b, const struct mb_cursor *c, const char *fmt, ...) {
    char text[300];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return st_invalid("byte %zu: %s", (size_t)(c->p - b->all.p), text);
}
status_t mb_byte(const struct mb *b, struct mb_cursor *c, uint8_t *out) {
    if (c->p == c->end) return mb_error(b, c, "the data ends too early");
    *out = *c->p++;
    return ST_OK;
}
// The number of zeros at the first byte's low end says how many bytes follow it.
status_t mb_int(const struct mb *b, struct mb_cursor *c, uint64_t *out) {
    if (c->p == c->end) return mb_error(b, c, "the data ends inside a number");
    int more = *c->p ? __builtin_ctz(*c->p) : 8;
    if (c->end - c->p <= more) return mb_error(b, c, "the data ends inside a number");
    uint64_t v = 0;
    if (more == 8) {
        memcpy(&v, c->p + 1, 8);
    } else {
        memcpy(&v, c->p, (size_t)more + 1);
        v >>= more + 1;
    }
    c->p += more + 1;
    *out = v;
    return ST_OK;
}
status_t mb_signed(const struct mb *b, struct mb_cursor *c, int64_t *out) {
    uint64_t v;
    RETURN_IF_ERR(mb_int(b, c, &v));
    *out = (int64_t)(v >> 1 ^ (~(v & 1) + 1));
    return ST_OK;
}
status_t mb_flagged(const struct mb *b, struct mb_cursor *c, uint64_t *out, bool *flag) {
    uint64_t v;
    RETURN_IF_ERR(mb_int(b, c, &v));
    *flag = v & 1;
    *out = v >> 1;
    return ST_OK;
}
status_t mb_check_index(const struct mb *b, const struct mb_cursor *c, uint64_t v, size_t n,
                        const char *what) {
    if (v >= n)
        return mb_error(b, c, "%s %llu of %zu is not there", what, (unsigned long long)v, n);
    return ST_OK;
}
status_t mb_index(const struct mb *b, struct mb_cursor *c, size_t n, const char *what,
                  size_t *out) {
    uint64_t v;
    RETURN_IF_ERR(mb_int(b, c, &v));
    RETURN_IF_ERR(mb_check_index(b, c, v, n, what));
    *out = (size_t)v;
    return ST_OK;
}
static status_t count_fits(struct mb *b, const struct mb_cursor *c, uint64_t v, size_t size) {
    if (v > (uint64_t)(c->end - c->p) || v > INT32_MAX)
        return mb_error(b, c, "%llu things in %zu bytes", (unsigned long long)v,
                        (size_t)(c->end - c->p));
    return mb_spend(b, (int64_t)(v * size));
}
status_t mb_count(struct mb *b, struct mb_cursor *c, size_t size, int32_t *out) {
    uint64_t v;
    RETURN_IF_ERR(mb_int(b, c, &v));
    RETURN_IF_ERR(count_fits(b, c, v, size));
    *out = (int32_t)v;
    return ST_OK;
}
status_t mb_bytes(const struct mb *b, struct mb_cursor *c, uint64_t n, struct span *out) {
    size_t left = (size_t)(c->end - c->p);
    if (n > left)
        return mb_error(b, c, "%llu bytes are said to follow, %zu do", (unsigned long long)n, left);
    *out = (struct span){c->p, (size_t)n};
    c->p += n;
    return ST_OK;
}
status_t mb_text(const struct mb *b, struct mb_cursor *c, struct str *out) {
    size_t k;
    RETURN_IF_ERR(mb_index(b, c, b->n_strings, "string", &k));
    *out = b->strings[k];
    return ST_OK;
}
status_t mb_section(const struct mb *b, struct mb_cursor *c, uint8_t *id, struct span *out) {
    uint64_t n, align = 1;
    uint8_t head = 0;
    RETURN_IF_ERR(mb_byte(b, c, &head));
    RETURN_IF_ERR(mb_int(b, c, &n));
    if (head & 0x80) {
        RETURN_IF_ERR(mb_int(b, c, &align));
        if (!align || align & (align - 1) || align > 1 << 20)
            return mb_error(b, c, "an alignment is not a power of two");
    }
    while ((uint64_t)(c->p - b->all.p) & (align - 1)) {
        uint8_t pad = 0;
        RETURN_IF_ERR(mb_byte(b, c, &pad));
        if (pad != PADDING) return mb_error(b, c, "a byte of padding is not 0xCB");
    }
    *id = head & 0x7f;
    return mb_bytes(b, c, n, out);
}
status_t mb_spend(struct mb *b, int64_t bytes) {
    b->attr_bytes += bytes;
    if (b->attr_bytes <= b->limits.max_attr_bytes) return ST_OK;
    return st_exhausted("attributes and types take more than %lld bytes",
                        (long long)b->limits.max_attr_bytes);
}
