// SPDX-License-Identifier: Apache-2.0
#include "client/files/npy_text.h"

#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "proto/numbers.h"

static const int64_t max_bytes = INT64_C(1) << 32;

int64_t npy_text_item(const char *descr, bool *wide) {
    int64_t n;
    if (!descr[0] || !strchr("<|", descr[0]) || (descr[1] != 'U' && descr[1] != 'S')) return -1;
    if (!str_to_i64(str_of(descr + 2), &n) || n < 0 || n > 1 << 24) return -1;
    *wide = descr[1] == 'U';
    return *wide ? 4 * n : n;
}

static int put_utf8(uint32_t u, uint8_t *o) {
    static const uint8_t lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    int n = u < 0x80 ? 1 : u < 0x800 ? 2 : u < 0x10000 ? 3 : 4;
    for (int k = n - 1; k > 0; k--, u >>= 6)
        o[k] = (uint8_t)(0x80 | (u & 0x3f));
    o[0] = (uint8_t)(lead[n] | u);
    return n;
}
static status_t put_item(struct strbuf *b, const uint8_t *p, int64_t item, bool wide) {
    int64_t n = item;
    while (n > 0 && p[n - 1] == 0)
        n--;
    if (wide) n = (n + 3) / 4 * 4;
    size_t head = b->n;
    strbuf_add(b, "\0\0\0\0", 4);
    if (!wide) strbuf_add(b, p, (size_t)n);
    for (int64_t k = 0; wide && k < n; k += 4) {
        uint32_t u =
            p[k] | (uint32_t)p[k + 1] << 8 | (uint32_t)p[k + 2] << 16 | (uint32_t)p[k + 3] << 24;
        uint8_t o[4];
        if (u > 0x10ffff || (u >= 0xd800 && u < 0xe000))
            return st_new(ST_INVALID_ARGUMENT, "a text holds %08x, which is no code point", u);
        strbuf_add(b, o, (size_t)put_utf8(u, o));
    }
    uint32_t size = (uint32_t)(b->n - head - 4); // little-endian
    memcpy(b->p + head, &size, sizeof size);
    return ST_OK;
}
status_t npy_text_read(struct arena *a, struct npy *x, int64_t item, bool wide) {
    struct strbuf b = {0};
    int64_t n = 1;
    status_t st = ST_OK;
    for (int d = 0; d < x->rank; d++)
        if (!sz_mul(n, x->dims[d], &n) || n > max_bytes / 4)
            return st_new(ST_INVALID_ARGUMENT, "too many texts");
    for (int64_t k = 0; k < n && !st; k++)
        st = b.n > (size_t)max_bytes
                 ? st_new(ST_INVALID_ARGUMENT, "more than 4 GiB of texts")
                 : put_item(&b, (const uint8_t *)x->data + k * item, item, wide);
    if (!st) {
        memcpy(x->descr, NPY_TEXT, sizeof NPY_TEXT);
        x->data = arena_dup(a, strbuf_cstr(&b), b.n);
        x->size_bytes = b.n;
    }
    strbuf_done(&b);
    return st;
}

// The next code point of valid UTF-8; false otherwise.
static bool take_utf8(struct str *s, uint32_t *u) {
    const uint8_t *p = (const uint8_t *)s->p;
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t n = p[0] < 0x80   ? 1
               : p[0] < 0xc2 ? 0
               : p[0] < 0xe0 ? 2
               : p[0] < 0xf0 ? 3
               : p[0] < 0xf5 ? 4
                             : 0;
    if (n == 0 || n > s->n) return false;
    *u = n == 1 ? p[0] : p[0] & (0xffu >> (n + 1));
    for (size_t k = 1; k < n; k++) {
        if ((p[k] & 0xc0) != 0x80) return false;
        *u = *u << 6 | (p[k] & 0x3f);
    }
    s->p += n;
    s->n -= n;
    return *u >= least[n] && *u <= 0x10ffff && (*u < 0xd800 || *u > 0xdfff);
}
status_t npy_text_write(struct arena *a, const struct npy *x, struct npy *out) {
    struct span rest = {x->data, x->size_bytes};
    struct str s;
    int64_t n = 0, bytes = 1, points = 1, total; // at least one: NumPy has no items of width 0
    uint32_t u;
    bool wide = true;
    for (; numbers_next_string(&rest, &s); n++) {
        int64_t count = 0;
        if ((int64_t)s.n > bytes) bytes = (int64_t)s.n;
        for (; wide && s.n; count++)
            wide = take_utf8(&s, &u);
        if (count > points) points = count;
    }
    int64_t width = wide ? points : bytes, item = wide ? 4 * width : width;
    if (rest.n || !sz_mul(n, item, &total) || total > max_bytes)
        return st_new(ST_INVALID_ARGUMENT, "texts as a NumPy array would take more than 4 GiB");
    struct span data = {x->data, x->size_bytes};
    *out = *x; // which may be x
    snprintf(out->descr, sizeof out->descr, wide ? "<U%d" : "|S%d", (int)width);
    out->size_bytes = (size_t)total;
    uint8_t *p = out->data = arena_zalloc(a, (size_t)total + 1);
    for (; numbers_next_string(&data, &s); p += item) {
        if (!wide) memcpy(p, s.p, s.n);
        for (uint8_t *o = p; wide && s.n && take_utf8(&s, &u); o += 4)
            memcpy(o, &u, 4); // little-endian
    }
    return ST_OK;
}
