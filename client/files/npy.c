// SPDX-License-Identifier: Apache-2.0
// The header of a .npy is a Python dict literal with three keys; only that form is read. A .npz is
// a ZIP file: the central directory is used to find members (sizes in local headers may be
// missing), data is inflated with zlib. ZIP64 is not written; archives that need it are refused.
#include "client/files/npy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <zlib.h>

#include "base/str.h"
#include "client/files/npy_text.h"

enum { NPY_MAX_HEADER = 1 << 16 };
static const int64_t npy_max_bytes = INT64_C(1) << 40;

int npy_item_size(const char *descr) {
    static const char *const known = "?b1 i1 u1 i2 u2 f2 i4 u4 f4 i8 u8 f8 c8 c16 V1 V2 f1";
    if (!descr[0] || !strchr("<|=", descr[0]) || strlen(descr) < 3) return 0;
    char pat[sizeof((struct npy){0}.descr)];
    int n = snprintf(pat, sizeof pat, "%s", descr + 1);
    const char *at = strstr(known, pat);
    if (!at || (at[n] && at[n] != ' ')) return 0;
    int64_t size = 0;
    return str_to_i64(str_of(descr + 2), &size) ? (int)size : 0;
}

static status_t bad(const char *what, const char *why) {
    return st_new(ST_INVALID_ARGUMENT, "%s: not a usable .npy: %s", what, why);
}

// Finds "'key':" in the header dict and gives what follows.
static struct str dict_value(struct str h, const char *key) {
    size_t n = strlen(key);
    for (size_t i = 0; i + n + 2 < h.n; i++)
        if ((h.p[i] == '\'' || h.p[i] == '"') && memcmp(h.p + i + 1, key, n) == 0 &&
            h.p[i + n + 1] == h.p[i]) {
            struct str rest = {h.p + i + n + 2, h.n - i - n - 2}, head;
            return str_cut(&rest, ':', &head) ? str_trim(rest) : (struct str){NULL, 0};
        }
    return (struct str){NULL, 0};
}

static status_t parse_shape(struct str v, const char *what, struct npy *x) {
    if (v.n < 2 || v.p[0] != '(') return bad(what, "no shape");
    v.p++, v.n--;
    struct str body, item;
    if (!memchr(v.p, ')', v.n) || !str_cut(&v, ')', &body)) return bad(what, "shape has no end");
    while (str_cut(&body, ',', &item)) {
        item = str_trim(item);
        if (item.n == 0) continue;
        if (x->rank == NPY_MAX_RANK) return bad(what, "more than 16 dimensions");
        if (!str_to_i64(item, &x->dims[x->rank]) || x->dims[x->rank] < 0)
            return bad(what, "bad dimension");
        x->rank++;
    }
    return ST_OK;
}

// Fortran order to row-major, element by element.
static void *to_row_major(struct arena *a, const struct npy *x, const uint8_t *src, int64_t item) {
    uint8_t *dst = arena_alloc(a, x->size_bytes ? x->size_bytes : 1);
    int64_t index[NPY_MAX_RANK] = {0}, n = item ? (int64_t)x->size_bytes / item : 0;
    for (int64_t k = 0; k < n; k++) {
        int64_t off = 0;
        for (int d = x->rank - 1; d >= 0; d--)
            off = off * x->dims[d] + index[d];
        memcpy(dst + k * item, src + off * item, (size_t)item);
        for (int d = x->rank - 1; d >= 0 && ++index[d] == x->dims[d]; d--)
            index[d] = 0;
    }
    return dst;
}

status_t npy_parse(struct arena *a, struct span b, const char *what, struct npy *out) {
    if (b.n < 10 || memcmp(b.p, "\x93NUMPY", 6) != 0) return bad(what, "wrong magic");
    if (b.p[6] < 1 || b.p[6] > 3) return bad(what, "unknown version");
    size_t head = b.p[6] == 1 ? 10 : 12, len = b.p[8] | (size_t)b.p[9] << 8;
    if (b.p[6] > 1) {
        if (b.n < 12) return bad(what, "truncated");
        len |= (size_t)b.p[10] << 16 | (size_t)b.p[11] << 24;
    }
    if (len > NPY_MAX_HEADER || b.n - head < len) return bad(what, "truncated header");

    struct str h = {(const char *)b.p + head, len};
    struct npy x = {.rank = 0};
    struct str d = dict_value(h, "descr"), f = dict_value(h, "fortran_order");
    if (d.n < 5 || (d.p[0] != '\'' && d.p[0] != '"'))
        return bad(what, "no plain descr (structured or object arrays are not taken)");
    size_t dn = 0;
    while (dn + 1 < d.n && d.p[dn + 1] != d.p[0])
        dn++;
    if (dn >= sizeof x.descr) return bad(what, "unknown dtype");
    memcpy(x.descr, d.p + 1, dn);

    bool wide;
    int64_t text = npy_text_item(x.descr, &wide), item = text >= 0 ? text : npy_item_size(x.descr);
    if (item == 0 && text < 0)
        return st_new(ST_INVALID_ARGUMENT,
                      "%s: dtype '%s' is not taken (little-endian numbers, bool, U and S are)",
                      what, x.descr);
    RETURN_IF_ERR(parse_shape(dict_value(h, "shape"), what, &x));

    int64_t bytes = item;
    for (int k = 0; k < x.rank; k++)
        if (!sz_mul(bytes, x.dims[k], &bytes) || bytes > npy_max_bytes)
            return bad(what, "size overflows");
    if ((int64_t)(b.n - head - len) < bytes)
        return bad(what, "data is shorter than the shape says");
    x.size_bytes = (size_t)bytes;

    const uint8_t *data = b.p + head + len;
    x.data = str_starts(f, "True") && x.rank > 1 ? to_row_major(a, &x, data, item)
                                                 : arena_dup(a, data, x.size_bytes);
    if (text >= 0) RETURN_IF_ERR(st_note(npy_text_read(a, &x, text, wide), "%s", what));
    *out = x;
    return ST_OK;
}

static uint32_t le32(const uint8_t *p) {
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}
static uint16_t le16(const uint8_t *p) {
    return (uint16_t)(p[0] | p[1] << 8);
}

// Data of one member whose central directory record is at `c`; deflated ones are inflated into the
// arena.
static status_t zip_member(struct arena *a, struct span z, const uint8_t *c, const char *path,
                           struct span *out) {
    uint32_t method = le16(c + 10), packed = le32(c + 20), size = le32(c + 24), at = le32(c + 42);
    if (packed == UINT32_MAX || size == UINT32_MAX || at == UINT32_MAX)
        return st_new(ST_INVALID_ARGUMENT,
                      "%s: ZIP64 archives are not taken; save the arrays as single .npy files",
                      path);
    if (at > z.n || z.n - at < 30) return st_new(ST_INVALID_ARGUMENT, "%s: damaged archive", path);

    size_t data = (size_t)at + 30 + le16(z.p + at + 26) + le16(z.p + at + 28);
    if (data > z.n || z.n - data < packed)
        return st_new(ST_INVALID_ARGUMENT, "%s: damaged archive", path);

    if (method == 0) {
        *out = (struct span){z.p + data, packed};
        return ST_OK;
    }

    // Deflate expands at most 1032 times: a larger claim is false.
    if (method != 8 || size / 1032 > packed)
        return st_new(ST_INVALID_ARGUMENT, "%s: compression method %u is not taken", path, method);
    uint8_t *p = arena_alloc(a, size ? size : 1);
    z_stream s = {.next_in = (Bytef *)(uintptr_t)(z.p + data),
                  .avail_in = packed,
                  .next_out = p,
                  .avail_out = size};
    if (inflateInit2(&s, -MAX_WBITS) != Z_OK) return st_oom();

    int rc = inflate(&s, Z_FINISH);
    inflateEnd(&s);
    if (rc != Z_STREAM_END || s.total_out != size)
        return st_new(ST_INVALID_ARGUMENT, "%s: damaged member", path);
    *out = (struct span){p, size};
    return ST_OK;
}

static status_t npz_parse(struct arena *a, struct span z, const char *path, struct npy **out,
                          int *n_out) {
    size_t end = z.n >= 22 ? z.n - 22 : 0, low = end > 65535 ? end - 65535 : 0;
    while (end > low && le32(z.p + end) != 0x06054b50)
        end--;
    if (z.n < 22 || le32(z.p + end) != 0x06054b50)
        return st_new(ST_INVALID_ARGUMENT, "%s: no end of central directory: truncated .npz", path);
    int n = le16(z.p + end + 10);
    size_t at = le32(z.p + end + 16);
    struct npy *x = arena_zarray(a, struct npy, n ? n : 1);
    for (int k = 0; k < n; k++) {
        if (at > z.n || z.n - at < 46 || le32(z.p + at) != 0x02014b50)
            return st_new(ST_INVALID_ARGUMENT, "%s: damaged directory", path);
        const uint8_t *c = z.p + at;
        size_t name_n = le16(c + 28), skip = 46 + name_n + le16(c + 30) + le16(c + 32);
        if (z.n - at < skip) return st_new(ST_INVALID_ARGUMENT, "%s: damaged directory", path);
        struct span data;
        RETURN_IF_ERR(zip_member(a, z, c, path, &data));
        char *name = arena_strndup(a, (const char *)c + 46, name_n);
        if (name_n > 4 && memcmp(name + name_n - 4, ".npy", 4) == 0) name[name_n - 4] = 0;
        RETURN_IF_ERR(npy_parse(a, data, name, &x[k]));
        x[k].name = name;
        at += skip;
    }
    *out = x;
    *n_out = n;
    return ST_OK;
}

status_t npy_read(struct arena *a, struct span b, const char *path, struct npy **out, int *n_out) {
    if (b.n >= 4 && memcmp(b.p, "PK", 2) == 0) return npz_parse(a, b, path, out, n_out);
    struct npy *x = arena_new_of(a, struct npy);
    RETURN_IF_ERR(npy_parse(a, b, path, x));
    *out = x;
    *n_out = 1;
    return ST_OK;
}

// Header text padded so that data starts on a 64-byte border, as NumPy writes it.
static void npy_header(struct strbuf *b, const struct npy *x) {
    struct strbuf d = {0};
    strbuf_printf(&d, "{'descr': '%s', 'fortran_order': False, 'shape': (", x->descr);
    for (int k = 0; k < x->rank; k++)
        strbuf_printf(&d, x->rank == 1 ? "%lld," : k ? ", %lld" : "%lld", (long long)x->dims[k]);
    strbuf_puts(&d, "), }");
    while ((10 + d.n + 1) % 64)
        strbuf_putc(&d, ' ');
    strbuf_putc(&d, '\n');
    uint8_t head[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (uint8_t)d.n, (uint8_t)(d.n >> 8)};
    strbuf_add(b, head, sizeof head);
    strbuf_add(b, d.p, d.n);
    strbuf_done(&d);
}

static status_t finish(FILE *f, const char *path, bool ok) {
    int err = errno;
    if (fclose(f) != 0 && ok) ok = false, err = errno;
    if (ok) return ST_OK;
    unlink(path);
    return st_errno(err, path);
}

status_t npy_write_file(const char *path, const struct npy *x) {
    FILE *f = fopen(path, "wbe");
    if (!f) return st_errno(errno, path);
    struct strbuf h = {0};
    npy_header(&h, x);
    bool ok =
        fwrite(h.p, 1, h.n, f) == h.n && fwrite(x->data, 1, x->size_bytes, f) == x->size_bytes;
    strbuf_done(&h);
    return finish(f, path, ok);
}

static void put16(struct strbuf *b, unsigned v) {
    strbuf_putc(b, (char)v), strbuf_putc(b, (char)(v >> 8));
}
static void put32(struct strbuf *b, uint32_t v) {
    put16(b, v & 0xffff), put16(b, v >> 16);
}

// The fields that local and central headers share: version, flags, method 0, time, date
// (1980-01-01), crc, sizes, name length, extra length.
static void zip_common(struct strbuf *b, uint32_t crc, uint32_t size, size_t name_n) {
    put16(b, 20), put16(b, 0), put16(b, 0), put16(b, 0), put16(b, 0x21);
    put32(b, crc), put32(b, size), put32(b, size), put16(b, (unsigned)name_n), put16(b, 0);
}

status_t npz_write_file(const char *path, const struct npy *x, int n) {
    int64_t total = 0;
    for (int k = 0; k < n; k++)
        total += (int64_t)x[k].size_bytes + 1024;
    if (total >= UINT32_MAX)
        return st_new(ST_OUT_OF_RANGE, "%s: more than 4 GiB; write single .npy files", path);

    FILE *f = fopen(path, "wbe");
    if (!f) return st_errno(errno, path);
    struct strbuf dir = {0}, h = {0};
    uint32_t at = 0;
    bool ok = true;

    for (int k = 0; ok && k < n; k++) {
        struct strbuf head = {0}, name = {0};
        strbuf_printf(&name, "%s.npy", x[k].name);
        npy_header(&head, &x[k]);
        uint32_t size = (uint32_t)(head.n + x[k].size_bytes);
        uLong crc = crc32(0, (const Bytef *)head.p, (uInt)head.n);
        crc = crc32_z(crc, x[k].data, x[k].size_bytes);

        strbuf_clear(&h);
        put32(&h, 0x04034b50);
        zip_common(&h, (uint32_t)crc, size, name.n);
        strbuf_add(&h, name.p, name.n);
        ok = fwrite(h.p, 1, h.n, f) == h.n && fwrite(head.p, 1, head.n, f) == head.n &&
             fwrite(x[k].data, 1, x[k].size_bytes, f) == x[k].size_bytes;

        put32(&dir, 0x02014b50);
        put16(&dir, 20);
        zip_common(&dir, (uint32_t)crc, size, name.n);
        put16(&dir, 0), put16(&dir, 0), put16(&dir, 0), put32(&dir, 0), put32(&dir, at);
        strbuf_add(&dir, name.p, name.n);
        at += (uint32_t)h.n + size;
        strbuf_done(&head), strbuf_done(&name);
    }

    uint32_t dir_n = (uint32_t)dir.n;
    put32(&dir, 0x06054b50);
    put16(&dir, 0), put16(&dir, 0), put16(&dir, (unsigned)n), put16(&dir, (unsigned)n),
        put32(&dir, dir_n), put32(&dir, at), put16(&dir, 0);
    ok = ok && fwrite(dir.p, 1, dir.n, f) == dir.n;
    strbuf_done(&dir), strbuf_done(&h);
    return finish(f, path, ok);
}
