// SPDX-License-Identifier: Apache-2.0
#include "client/files/onnx_tensor.h"

#include <string.h>

#include "proto/formats/onnx_tensor.pb-c.h"

enum list { FLOATS, INT32S, INT64S, DOUBLES, UINT64S };
// ONNX's numbers of types, as NumPy has them, and the field that carries elements that are not raw.
static const struct {
    int32_t type;
    const char *descr;
    enum list list;
} types[] = {{1, "<f4", FLOATS},  {2, "|u1", INT32S},   {3, "|i1", INT32S},   {4, "<u2", INT32S},
             {5, "<i2", INT32S},  {6, "<i4", INT32S},   {7, "<i8", INT64S},   {9, "|b1", INT32S},
             {10, "<f2", INT32S}, {11, "<f8", DOUBLES}, {12, "<u4", UINT64S}, {13, "<u8", UINT64S}};

// Element i of the lists as `size` bytes, little-endian.
static void put(const Onnx__TensorProto *t, enum list list, size_t i, size_t size, uint8_t *out) {
    uint64_t v = 0;
    switch (list) {
    case FLOATS:
        memcpy(out, &t->float_data[i], size);
        return;
    case DOUBLES:
        memcpy(out, &t->double_data[i], size);
        return;
    case INT32S:
        v = (uint64_t)t->int32_data[i];
        break;
    case INT64S:
        v = (uint64_t)t->int64_data[i];
        break;
    case UINT64S:
        v = t->uint64_data[i];
        break;
    }
    memcpy(out, &v, size);
}

static status_t convert(struct arena *a, const Onnx__TensorProto *t, const char *what,
                        struct npy *out) {
    size_t k = 0, n_types = sizeof types / sizeof *types;
    while (k < n_types && types[k].type != t->data_type)
        k++;
    if (k == n_types)
        return st_new(ST_INVALID_ARGUMENT, "%s: type %d of ONNX is not supported", what,
                      t->data_type);

    struct npy x = {.name = arena_strdup(a, t->name), .rank = (int)t->n_dims};
    memcpy(x.descr, types[k].descr, 4);
    int64_t n = 1, size = npy_item_size(x.descr), bytes;
    if (t->n_dims > NPY_MAX_RANK) return st_new(ST_INVALID_ARGUMENT, "%s: too many dims", what);
    for (size_t d = 0; d < t->n_dims; d++) {
        x.dims[d] = t->dims[d];
        if (!sz_mul(n, t->dims[d], &n)) n = -1;
    }
    if (n < 0 || !sz_mul(n, size, &bytes))
        return st_new(ST_INVALID_ARGUMENT, "%s: absurd dims", what);

    const size_t lists[] = {t->n_float_data, t->n_int32_data, t->n_int64_data, t->n_double_data,
                            t->n_uint64_data};
    bool raw = t->raw_data.len || !lists[types[k].list];
    if (raw ? (int64_t)t->raw_data.len != bytes : (int64_t)lists[types[k].list] != n)
        return st_new(ST_INVALID_ARGUMENT, "%s: %zu %s, its dims say %lld", what,
                      raw ? t->raw_data.len : lists[types[k].list], raw ? "bytes" : "elements",
                      (long long)(raw ? bytes : n));

    uint8_t *p = arena_alloc(a, (size_t)bytes + 1);
    x.data = p;
    x.size_bytes = (size_t)bytes;
    if (raw && bytes) memcpy(p, t->raw_data.data, (size_t)bytes);
    for (int64_t i = 0; !raw && i < n; i++)
        put(t, types[k].list, (size_t)i, (size_t)size, p + i * size);
    *out = x;
    return ST_OK;
}

status_t onnx_tensor_parse(struct arena *a, struct span bytes, const char *what, struct npy *out) {
    Onnx__TensorProto *t = onnx__tensor_proto__unpack(NULL, bytes.n, bytes.p);
    if (!t) return st_new(ST_INVALID_ARGUMENT, "%s is not a tensor of ONNX", what);
    status_t st = convert(a, t, what, out);
    onnx__tensor_proto__free_unpacked(t, NULL);
    return st;
}
