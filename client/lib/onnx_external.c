// SPDX-License-Identifier: Apache-2.0
// One walk over the fields that can hold a tensor:
//
//   ModelProto.graph -> GraphProto.initializer -> TensorProto
//                       GraphProto.node -> AttributeProto.t | .tensors | .g | .graphs -> ...
//
// A message without external data below it stays one span of the file; around one that has, tags
// and lengths are written anew. Lengths are counted before they are written: a rope of spans with
// its total.
#include "client/lib/onnx_external.h"

#include <libgen.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/store/file.h"
#include "base/str.h"
#include "base/vec.h"

enum { MAX_FILES = 4096, MAX_DEPTH = 304 }; // three a graph: more than the server takes
struct rope {
    struct span *v;
    size_t n, cap;
    uint64_t bytes;
};
struct walk {
    struct arena *a;
    const char *folder;
    struct smap files; // location -> struct span
    VEC(const char *) paths;
    bool found;
    const char *tensor; // being read, for messages
};
enum message { MODEL, GRAPH, NODE, ATTRIBUTE, TENSOR };
// Fields that lead to tensors.
static const struct {
    enum message in;
    uint32_t field;
    enum message to;
} paths[] = {{MODEL, 7, GRAPH},       {GRAPH, 1, NODE},       {GRAPH, 5, TENSOR},
             {NODE, 5, ATTRIBUTE},    {ATTRIBUTE, 5, TENSOR}, {ATTRIBUTE, 6, GRAPH},
             {ATTRIBUTE, 10, TENSOR}, {ATTRIBUTE, 11, GRAPH}};

static void add(struct walk *w, struct rope *r, const void *p, size_t n) {
    struct span s = {p, n};
    r->bytes += n;
    if (r->n && r->v[r->n - 1].p + r->v[r->n - 1].n == s.p)
        r->v[r->n - 1].n += n; // goes on where the last ended
    else if (n)
        avec_push(w->a, r, s);
}
static void add_varint(struct walk *w, struct rope *r, uint64_t v) {
    uint8_t b[10];
    size_t n = 0;
    for (; v >= 0x80; v >>= 7)
        b[n++] = (uint8_t)(v | 0x80);
    b[n++] = (uint8_t)v;
    add(w, r, arena_dup(w->a, b, n), n);
}
static void add_rope(struct walk *w, struct rope *r, const struct rope *x) {
    for (size_t i = 0; i < x->n; i++)
        add(w, r, x->v[i].p, x->v[i].n);
}

static bool varint(struct span *s, uint64_t *out) {
    *out = 0;
    for (unsigned shift = 0; s->n && shift < 64; shift += 7) {
        uint8_t b = *s->p++;
        s->n--;
        *out |= (uint64_t)(b & 0x7f) << shift;
        if (!(b & 0x80)) return true;
    }
    return false;
}
struct field {
    uint32_t number;
    struct span whole, body; // body of length-delimited ones
    uint64_t value;          // of varints
};
// False at the end, and where the bytes are no message (*bad).
static bool next_field(struct span *s, struct field *f, bool *bad) {
    uint64_t tag, n;
    const uint8_t *start = s->p;
    if (s->n == 0) return false;
    *bad = true;
    if (!varint(s, &tag)) return false;
    *f = (struct field){.number = (uint32_t)(tag >> 3)};

    switch (tag & 7) {
    case 0:
        if (!varint(s, &f->value)) return false;
        n = 0;
        break;
    case 1:
        n = 8;
        break;
    case 2:
        if (!varint(s, &n) || n > s->n) return false;
        f->body = (struct span){s->p, (size_t)n};
        break;
    case 5:
        n = 4;
        break;
    default:
        return false;
    }

    if (n > s->n) return false;
    s->p += n;
    s->n -= (size_t)n;
    f->whole = (struct span){start, (size_t)(s->p - start)};
    *bad = false;
    return true;
}

// ---- files

static bool stays_below(struct str location) {
    struct str rest = location, part;
    if (location.n == 0 || location.p[0] == '/' || memchr(location.p, 0, location.n)) return false;
    while (str_cut(&rest, '/', &part))
        if (str_is(part, "..")) return false;
    return true;
}
static status_t data_file(struct walk *w, struct str location, struct span *out) {
    struct span *known = smap_get(&w->files, location);
    if (known) {
        *out = *known;
        return ST_OK;
    }
    if (!stays_below(location))
        return st_new(ST_INVALID_ARGUMENT,
                      "external data at '" STR_FMT "', outside the model's folder",
                      STR_ARG(location));
    if (w->files.n >= MAX_FILES)
        return st_new(ST_INVALID_ARGUMENT, "more than %d data files", MAX_FILES);
    const char *path = arena_printf(w->a, "%s/" STR_FMT, w->folder, STR_ARG(location));
    RETURN_IF_ERR(st_note(file_map(w->a, path, out), "external data"));
    smap_put(&w->files, location, arena_dup(w->a, out, sizeof *out));
    avec_push(w->a, &w->paths, path);
    return ST_OK;
}

// ---- tensors

static struct str text(struct span s) {
    return (struct str){(const char *)s.p, s.n};
}
static status_t entry(struct span s, struct str *location, int64_t *offset, int64_t *length) {
    struct field f;
    struct str key = {0}, value = {0};
    bool bad = false;
    while (next_field(&s, &f, &bad))
        if (f.number == 1)
            key = text(f.body);
        else if (f.number == 2)
            value = text(f.body);
    if (str_is(key, "location")) *location = value;
    int64_t *number = str_is(key, "offset") ? offset : str_is(key, "length") ? length : NULL;
    if (bad || (number && (!str_to_i64(value, number) || *number < 0)))
        return st_new(ST_INVALID_ARGUMENT, "unreadable external_data");
    return ST_OK;
}

// Bits of an element of TensorProto.DataType, 0 where it has no fixed size.
static int element_bits(uint64_t data_type) {
    static const uint8_t bits[] = {0,  32,  8,  8, 16, 16, 32, 64, 0, 8, 16, 64, 32, 64,
                                   64, 128, 16, 8, 8,  8,  8,  4,  4, 4, 8,  2,  2};
    return data_type < sizeof bits ? bits[data_type] : 0;
}
// TensorProto.dims, one each or packed.
static bool times_dims(const struct field *f, int64_t *elements) {
    struct span packed = f->body;
    uint64_t d = f->value;
    if (!packed.p)
        return d <= INT64_MAX && !__builtin_mul_overflow(*elements, (int64_t)d, elements);
    while (packed.n)
        if (!varint(&packed, &d) || d > INT64_MAX ||
            __builtin_mul_overflow(*elements, (int64_t)d, elements))
            return false;
    return true;
}

static status_t tensor(struct walk *w, struct span s, struct rope *out) {
    struct span whole = s, data;
    struct field f;
    struct str location = {0}, name = {0};
    int64_t offset = 0, length = -1, elements = 1, size;
    bool bad = false, external = false, sized = true;
    uint64_t data_type = 0;

    while (next_field(&s, &f, &bad))
        if (f.number == 14)
            external = f.value == 1;
        else if (f.number == 8)
            name = text(f.body);
        else if (f.number == 1)
            sized &= times_dims(&f, &elements);
        else if (f.number == 2)
            data_type = f.value;
    if (bad || !external) {
        add(w, out, whole.p, whole.n);
        return ST_OK;
    }

    w->found = true;
    w->tensor = arena_printf(w->a, "tensor '" STR_FMT "'", STR_ARG(name));
    for (s = whole; next_field(&s, &f, &bad);)
        if (f.number == 13)
            RETURN_IF_ERR(entry(f.body, &location, &offset, &length));
        else if (f.number != 14)
            add(w, out, f.whole.p, f.whole.n);

    RETURN_IF_ERR(data_file(w, location, &data));
    if (length < 0) length = (int64_t)data.n - offset;
    if (length < 0 || offset > (int64_t)data.n || length > (int64_t)data.n - offset)
        return st_new(ST_INVALID_ARGUMENT, "external data beyond the end of '" STR_FMT "'",
                      STR_ARG(location));

    // Found here, not after gigabytes were sent.
    int bits = element_bits(data_type);
    sized &= bits && !__builtin_mul_overflow(elements, bits, &size);
    if (sized && length != size / 8 + (size % 8 != 0))
        return st_new(ST_INVALID_ARGUMENT,
                      "external data of %lld bytes at '" STR_FMT "', its %lld elements have %lld",
                      (long long)length, STR_ARG(location), (long long)elements,
                      (long long)(size / 8 + (size % 8 != 0)));

    add_varint(w, out, 9 << 3 | 2); // raw_data
    add_varint(w, out, (uint64_t)length);
    add(w, out, data.p + offset, (size_t)length);
    return ST_OK;
}

static status_t message(struct walk *w, enum message m, struct span s, int depth,
                        struct rope *out) {
    if (m == TENSOR) return tensor(w, s, out);
    if (depth > MAX_DEPTH) return st_new(ST_INVALID_ARGUMENT, "graphs nested too deeply");
    struct field f;
    const uint8_t *end = s.p + s.n, *done = s.p;
    bool bad = false;
    for (; next_field(&s, &f, &bad); done = s.p) {
        int to = -1;
        for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
            if (paths[i].in == m && paths[i].field == f.number && f.body.p) to = (int)paths[i].to;
        struct rope inner = {0};
        if (to >= 0) RETURN_IF_ERR(message(w, (enum message)to, f.body, depth + 1, &inner));
        if (to < 0 || (inner.n <= 1 && inner.bytes == f.body.n)) {
            add(w, out, f.whole.p, f.whole.n);
            continue;
        }
        add_varint(w, out, (uint64_t)f.number << 3 | 2);
        add_varint(w, out, inner.bytes);
        add_rope(w, out, &inner);
    }
    if (bad) add(w, out, done, (size_t)(end - done)); // the server says what is wrong with it
    return ST_OK;
}

status_t onnx_external_files(struct arena *a, const char *path, struct span **out_parts,
                             size_t *out_n, const char *const **out_paths, size_t *out_n_paths) {
    struct walk w = {.a = a};
    struct span model;
    struct rope r = {0};
    RETURN_IF_ERR(file_map(a, path, &model));
    avec_push(a, &w.paths, path);
    w.folder = dirname(arena_strdup(a, path));
    status_t st = message(&w, MODEL, model, 0, &r);
    smap_done(&w.files);
    if (st) return w.tensor ? st_note(st, "%s: %s", path, w.tensor) : st_note(st, "%s", path);
    *out_parts = r.v;
    *out_n = w.found ? r.n : 0;
    *out_paths = w.paths.v;
    *out_n_paths = w.paths.n;
    return ST_OK;
}
status_t onnx_external_inline(struct arena *a, const char *path, struct span **out_parts,
                              size_t *out_n) {
    const char *const *files;
    size_t n_files;
    return onnx_external_files(a, path, out_parts, out_n, &files, &n_files);
}
