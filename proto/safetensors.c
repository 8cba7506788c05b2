// SPDX-License-Identifier: Apache-2.0
#include "proto/safetensors.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/map.h"
#include "base/store/file.h"
#include "base/str.h"
#include "base/vec.h"

static const struct type {
    const char *ours, *theirs;
    int bytes;
} types[] = {
    {"pred", "BOOL", 1},        {"s8", "I8", 1},   {"s16", "I16", 2},        {"s32", "I32", 4},
    {"s64", "I64", 8},          {"u8", "U8", 1},   {"u16", "U16", 2},        {"u32", "U32", 4},
    {"u64", "U64", 8},          {"f16", "F16", 2}, {"bf16", "BF16", 2},      {"f32", "F32", 4},
    {"f8e4m3fn", "F8_E4M3", 1}, {"f64", "F64", 8}, {"f8e5m2", "F8_E5M2", 1},
};
static const struct type *find(const char *name, bool ours) {
    for (size_t k = 0; name && k < sizeof types / sizeof *types; k++)
        if (strcmp(name, ours ? types[k].ours : types[k].theirs) == 0) return &types[k];
    return NULL;
}

// ---- reading

struct range {
    uint64_t begin, end;
};
static bool whole(const json_t *j, uint64_t *out) {
    json_int_t v = json_integer_value(j);
    *out = (uint64_t)v;
    return json_is_integer(j) && v >= 0;
}
static status_t read_entry(struct arena *a, const char *name, const json_t *j, struct span data,
                           struct safetensor *out, struct range *at) {
    const json_t *shape = json_object_get(j, "shape"),
                 *offsets = json_object_get(j, "data_offsets");
    const char *dtype = json_string_value(json_object_get(j, "dtype"));
    const struct type *t = find(dtype, false);
    size_t rank = json_array_size(shape), k;
    const json_t *d;
    if (!t)
        return st_invalid("tensor '%s': element type '%s' is not known", name, dtype ? dtype : "");
    if (!json_is_array(shape) || rank > SAFETENSORS_MAX_RANK)
        return st_invalid("tensor '%s': shape is no list of at most %d sizes", name,
                          SAFETENSORS_MAX_RANK);

    int64_t *dims = arena_zarray(a, int64_t, rank + 1), bytes = t->bytes;
    json_array_foreach(shape, k, d) {
        uint64_t v;
        if (!whole(d, &v) || !sz_mul(bytes, (int64_t)v, &bytes))
            return st_invalid("tensor '%s': size %zu is no size", name, k);
        dims[k] = (int64_t)v;
    }

    if (json_array_size(offsets) != 2 || !whole(json_array_get(offsets, 0), &at->begin) ||
        !whole(json_array_get(offsets, 1), &at->end) || at->begin > at->end || at->end > data.n)
        return st_invalid("tensor '%s': data_offsets are not within the %zu bytes of data", name,
                          data.n);
    if (at->end - at->begin != (uint64_t)bytes)
        return st_invalid("tensor '%s': %llu bytes of data, its shape needs %lld", name,
                          (unsigned long long)(at->end - at->begin), (long long)bytes);
    *out = (struct safetensor){
        arena_strdup(a, name), t->ours, (int32_t)rank, dims, {data.p + at->begin, (size_t)bytes}};
    return ST_OK;
}
static int by_place(const void *x, const void *y) {
    const struct safetensor *p = x, *q = y;
    if (p->data.p != q->data.p) return p->data.p < q->data.p ? -1 : 1;
    return (p->data.n > q->data.n) - (p->data.n < q->data.n);
}
static status_t read_metadata(struct arena *a, const json_t *j, const char *const **out) {
    const char *key;
    json_t *value;
    VEC(const char *) v = {0};
    json_object_foreach((json_t *)(uintptr_t)j, key, value) {
        if (!json_is_string(value)) return st_invalid("metadata '%s' is no text", key);
        avec_push(a, &v, arena_strdup(a, key));
        avec_push(a, &v, arena_strdup(a, json_string_value(value)));
    }
    avec_push(a, &v, NULL);
    *out = v.v;
    return ST_OK;
}
static status_t read_header(struct arena *a, json_t *head, struct span data,
                            struct safetensor **out, size_t *n, const char *const **metadata) {
    const char *name;
    json_t *j;
    struct range at;
    VEC(struct safetensor) v = {0};
    const char *const *texts = arena_zarray(a, const char *, 1);
    json_object_foreach(head, name, j) {
        if (strcmp(name, "__metadata__") == 0) {
            RETURN_IF_ERR(read_metadata(a, j, &texts));
            continue;
        }
        struct safetensor one;
        RETURN_IF_ERR(read_entry(a, name, j, data, &one, &at));
        avec_push(a, &v, one);
    }
    if (v.n) qsort(v.v, v.n, sizeof *v.v, by_place);
    const uint8_t *end = data.p;
    for (size_t k = 0; k < v.n; end = v.v[k].data.p + v.v[k].data.n, k++)
        if (v.v[k].data.p != end)
            return st_invalid("tensor '%s': its bytes do not follow those before", v.v[k].name);
    if (end != data.p + data.n)
        return st_invalid("%zu bytes behind the last tensor", (size_t)(data.p + data.n - end));
    *out = v.v, *n = v.n;
    if (metadata) *metadata = texts;
    return ST_OK;
}
status_t safetensors_read(struct arena *a, struct span file, struct safetensor **out, size_t *n,
                          const char *const **metadata) {
    uint64_t length = 0;
    json_error_t e;
    if (file.n < 8) return st_invalid("not a safetensors file: %zu bytes", file.n);
    for (int k = 7; k >= 0; k--)
        length = length << 8 | file.p[k];
    if (length > file.n - 8 || length > SAFETENSORS_MAX_HEADER)
        return st_invalid("not a safetensors file: a header of %llu bytes in a file of %zu",
                          (unsigned long long)length, file.n);
    json_t *head = json_loadb((const char *)file.p + 8, (size_t)length, JSON_REJECT_DUPLICATES, &e);
    struct span data = {file.p + 8 + length, file.n - 8 - (size_t)length};
    status_t st = json_is_object(head) ? read_header(a, head, data, out, n, metadata)
                  : head               ? st_invalid("the header is no JSON object")
                         : st_invalid("the header is no JSON: %s at byte %d", e.text, e.position);
    json_decref(head);
    return st_note(st, "safetensors");
}

// ---- writing

static status_t put_header(struct strbuf *b, const struct safetensor *v, size_t n,
                           const char *const *metadata) {
    size_t at = 0;
    const char *sep = "";
    strbuf_putc(b, '{');
    if (metadata && *metadata) {
        strbuf_puts(b, "\"__metadata__\":{");
        for (; *metadata; metadata += 2, sep = ",") {
            strbuf_puts(b, sep);
            strbuf_json_str(b, str_of(metadata[0]));
            strbuf_putc(b, ':');
            strbuf_json_str(b, str_of(metadata[1]));
        }
        strbuf_putc(b, '}');
    }

    for (size_t k = 0; k < n; k++, sep = ",") {
        const struct type *t = find(v[k].dtype, true);
        if (!t)
            return st_invalid("safetensors has no element type %s (tensor '%s')", v[k].dtype,
                              v[k].name);
        strbuf_puts(b, sep);
        strbuf_json_str(b, str_of(v[k].name));
        strbuf_printf(b, ":{\"dtype\":\"%s\",\"shape\":[", t->theirs);
        for (int d = 0; d < v[k].rank; d++)
            strbuf_printf(b, "%s%lld", d ? "," : "", (long long)v[k].dims[d]);
        strbuf_printf(b, "],\"data_offsets\":[%zu,%zu]}", at, at + v[k].data.n);
        at += v[k].data.n;
    }

    strbuf_putc(b, '}');
    while (b->n % 8)
        strbuf_putc(b, ' ');
    return ST_OK;
}
status_t safetensors_head(struct strbuf *b, const struct safetensor *v, size_t n,
                          const char *const *metadata) {
    struct strbuf head = {0};
    status_t st = put_header(&head, v, n, metadata);
    for (int k = 0; k < 8 && !st; k++)
        strbuf_putc(b, (char)((uint64_t)head.n >> 8 * k));
    if (!st) strbuf_add(b, head.p, head.n);
    strbuf_done(&head);
    return st;
}
status_t safetensors_write(int fd, const char *path, const struct safetensor *v, size_t n,
                           const char *const *metadata) {
    struct strbuf b = {0};
    status_t st = safetensors_head(&b, v, n, metadata);
    if (!st) st = file_write(fd, b.p, b.n, path);
    for (size_t k = 0; k < n && !st; k++)
        if (v[k].data.n) st = file_write(fd, v[k].data.p, v[k].data.n, path);
    strbuf_done(&b);
    return st;
}
