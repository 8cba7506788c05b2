// SPDX-License-Identifier: Apache-2.0
// Bytes decide what a file is, not its name.
#include "client/files/input.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/store/file.h"
#include "client/files/npy_text.h"
#include "proto/numbers.h"

static const struct {
    const char *descr, *datatype;
} types[] = {{"|b1", "BOOL"},   {"|i1", "INT8"},  {"|u1", "UINT8"},   {"<i2", "INT16"},
             {"<u2", "UINT16"}, {"<i4", "INT32"}, {"<u4", "UINT32"},  {"<i8", "INT64"},
             {"<u8", "UINT64"}, {"<f2", "FP16"},  {"<f4", "FP32"},    {"<f8", "FP64"},
             {"<c8", "c64"},    {"<c16", "c128"}, {NPY_TEXT, "BYTES"}};
enum { N_TYPES = sizeof types / sizeof types[0] };
#define MAX_FILE ((size_t)1 << 40)

const char *input_datatype(const char *descr) {
    for (int k = 0; k < N_TYPES; k++)
        if (!strcmp(types[k].descr, descr)) return types[k].datatype;
    return NULL;
}
const char *input_type(const struct npy *x) {
    return x->type ? x->type : input_datatype(x->descr);
}
bool input_set_type(struct npy *x, const char *datatype) {
    const struct dtype_row *t = numbers_dtype(str_of(datatype));
    const char *descr = NULL;
    for (int k = 0; k < N_TYPES; k++)
        if (!strcmp(types[k].datatype, datatype) ||
            (t && t->oip && !strcmp(types[k].datatype, t->oip)))
            descr = types[k].descr;
    if (!descr && (!t || t->bytes < 1 || t->bytes > 2)) return false;
    x->type = descr ? NULL : t->oip ? t->oip : t->name;
    snprintf(x->descr, sizeof x->descr, "%s", descr ? descr : t->bytes == 2 ? "<V2" : "|V1");
    return true;
}
status_t input_sendable(const struct npy *x) {
    if (input_type(x)) return ST_OK;
    if (npy_item_size(x->descr) && npy_item_size(x->descr) <= 2)
        return st_new(ST_INVALID_ARGUMENT,
                      "input '%s': NumPy does not say which type of %c byte%s a file of dtype %s "
                      "holds; say it: -i %s=%s=@FILE",
                      x->name, x->descr[2], x->descr[2] == '1' ? "" : "s", x->descr, x->name,
                      x->descr[2] == '1' ? "f8e4m3fn" : "bf16");
    return st_new(ST_INVALID_ARGUMENT, "input '%s' has dtype %s, which cannot be sent", x->name,
                  x->descr);
}

status_t input_file(struct arena *a, const char *path, struct span *out) {
    struct str s;
    RETURN_IF_ERR(file_read(a, path, MAX_FILE, NULL, &s));
    *out = (struct span){(const uint8_t *)s.p, s.n};
    return ST_OK;
}

// "1x3x224x224xf32", "f32" (a scalar) or "1x3": dims and type, *out NULL where no type is given.
// False: not of this form.
static bool parse_type(struct str text, struct npy *x, const struct dtype_row **out) {
    struct str part;
    bool typed = false;
    x->rank = 0;
    *out = NULL;
    while (!typed && str_cut(&text, 'x', &part)) {
        int64_t d;
        if (str_to_i64(part, &d)) {
            if (d < 0 || x->rank == NPY_MAX_RANK) return false;
            x->dims[x->rank++] = d;
        } else {
            *out = numbers_dtype(part);
            if (!*out || !input_set_type(x, (*out)->oip ? (*out)->oip : (*out)->name)) return false;
            typed = true;
        }
    }
    return (typed || x->rank) && text.n == 0;
}

// The array of a NumPy file as type t: its bytes where it is of that type, or of that size and of
// none that NumPy knows, else its numbers rounded.
static status_t converted(struct arena *a, struct npy *from, const struct dtype_row *t,
                          struct npy *x) {
    const char *datatype = input_type(from);
    const struct dtype_row *f = datatype ? numbers_dtype(str_of(datatype)) : NULL;
    int64_t n = 1;
    for (int d = 0; d < from->rank; d++)
        n *= from->dims[d]; // was checked when it was read
    x->rank = from->rank;
    memcpy(x->dims, from->dims, sizeof x->dims);

    bool nameless = !f && npy_item_size(from->descr) == t->bytes;
    if (f == t || nameless) {
        uint8_t *p = x->data = from->data;
        x->size_bytes = from->size_bytes;
        for (size_t k = 0; k < x->size_bytes && t->cls == NUM_S4; k++)
            p[k] = (uint8_t)(((p[k] & 15) ^ 8) - 8); // files hold four bits, the rest says nothing
        for (size_t k = 0; k < x->size_bytes && t->cls == NUM_U4; k++)
            p[k] &= 15;
        return ST_OK;
    }

    if (!f || f->cls == NUM_STRING || f->cls == NUM_RAW || t->cls == NUM_STRING ||
        t->cls == NUM_RAW)
        return st_new(ST_INVALID_ARGUMENT, "an array of dtype %s does not become %s", from->descr,
                      t->name);

    struct strbuf b = {0};
    numbers_print(&b, f, n, from->data);
    x->size_bytes = (size_t)(n * t->bytes);
    x->data = arena_alloc(a, x->size_bytes + 1);
    status_t st = numbers_scan((struct str){strbuf_cstr(&b), b.n}, t, n, x->data);
    strbuf_done(&b);
    return st;
}
static bool same_dims(const struct npy *x, const struct npy *y) {
    return x->rank == y->rank && memcmp(x->dims, y->dims, sizeof *x->dims * (size_t)x->rank) == 0;
}

// n texts between commas; a single one may hold them.
static status_t comma_texts(struct arena *a, const char *text, int64_t n, struct npy *x) {
    struct strbuf b = {0};
    int64_t k = 0;
    for (const char *p = text, *comma; p && (n || *p); p = comma ? comma + 1 : NULL, k++) {
        comma = n == 1 ? NULL : strchr(p, ',');
        uint32_t size = (uint32_t)(comma ? (size_t)(comma - p) : strlen(p)); // little-endian
        strbuf_add(&b, &size, sizeof size);
        strbuf_add(&b, p, size);
    }
    x->data = arena_dup(a, strbuf_cstr(&b), b.n);
    x->size_bytes = b.n;
    strbuf_done(&b);
    if (k == n) return ST_OK;
    return st_new(ST_INVALID_ARGUMENT, "%lld texts between commas, the shape has %lld",
                  (long long)k, (long long)n);
}

void input_random(struct arena *a, struct npy *x) {
    uint64_t state = 0x9e3779b97f4a7c15u;
    size_t item = (size_t)npy_item_size(x->descr), n = item ? x->size_bytes / item : 0;
    uint8_t *p = arena_alloc(a, x->size_bytes + 1);
    for (size_t k = 0; k < n; k++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        uint32_t r = (uint32_t)(state >> 33);
        float f = (float)((double)(r % 1000000) / 1e6); // the nearest: prints in six digits
        double d = (double)(r % 1000000) / 1e6;
        uint64_t small = x->descr[1] == 'b' ? r & 1 : r % 100;
        if (x->descr[1] == 'f' && item == 4)
            memcpy(p + k * item, &f, 4);
        else if (x->descr[1] == 'f' && item == 8)
            memcpy(p + k * item, &d, 8);
        else if (x->descr[1] == 'V') { // bf16: as below; one byte: a small code of any format
            uint16_t h = (uint16_t)(item == 2 ? 0x3f80 | (r & 0x7f) : r % 8);
            memcpy(p + k * item, &h, item);
        } else if (x->descr[1] == 'f') { // half: 1 + fraction, all its bits are numbers
            uint16_t h = (uint16_t)(0x3c00 | (r & 0x3ff));
            memcpy(p + k * item, &h, 2);
        } else
            memcpy(p + k * item, &small, item);
    }
    x->data = p;
}

static status_t typed_value(struct arena *a, const struct dtype_row *t, const char *text,
                            struct npy *x) {
    int64_t n = 1, bytes;
    for (int d = 0; d < x->rank; d++)
        if (!sz_mul(n, x->dims[d], &n)) return st_new(ST_INVALID_ARGUMENT, "the shape overflows");
    if (!sz_mul(n, t->bytes, &bytes) || bytes > 1ll << 40)
        return st_new(ST_INVALID_ARGUMENT, "the shape is too large");
    if (t->cls == NUM_STRING && *text != '@') return comma_texts(a, text, n, x);
    x->size_bytes = (size_t)bytes;

    if (strcmp(text, "random") == 0) {
        input_random(a, x);
        return ST_OK;
    }

    if (*text == '@') {
        struct span b;
        RETURN_IF_ERR(input_file(a, text + 1, &b));
        if (b.n > 6 && memcmp(b.p, "\x93NUMPY", 6) == 0) {
            struct npy file, given = *x;
            RETURN_IF_ERR(npy_parse(a, b, text + 1, &file));
            if (x->rank && !same_dims(&file, &given))
                return st_new(ST_INVALID_ARGUMENT, "%s has another shape", text + 1);
            return converted(a, &file, t, x);
        }
        if (t->cls == NUM_STRING)
            x->size_bytes = b.n; // as texts travel
        else if (b.n != x->size_bytes)
            return st_new(ST_INVALID_ARGUMENT, "%s has %zu bytes, its shape %zu", text + 1, b.n,
                          x->size_bytes);
        x->data = (void *)b.p;
        return ST_OK;
    }

    x->data = arena_alloc(a, x->size_bytes + 1);
    const char *list = arena_printf(a, "[%s]", text);
    return numbers_scan(str_of(list), t, n, x->data);
}

// Sizes of [[1,2,3],[4,5,6]]: 2x3. False: its parts differ in length or depth. What is no list of
// numbers otherwise, numbers_scan finds.
static bool nested_dims(const char *text, struct npy *x) {
    int64_t commas[NPY_MAX_RANK + 1] = {0}, n;
    int depth = 0;
    char last = 0;
    for (x->rank = 0; *text; text++) {
        if (*text == ' ') continue;
        if (*text == '[') {
            if (depth == NPY_MAX_RANK || (x->rank && depth == x->rank)) return false;
            commas[++depth] = 0;
        } else if (*text == ']') {
            if (!depth) return false;
            if (!x->rank)
                for (x->rank = depth, n = 0; n < depth; n++)
                    x->dims[n] = -1;
            n = last == '[' ? 0 : commas[depth] + 1;
            if (x->dims[--depth] >= 0 && x->dims[depth] != n) return false;
            x->dims[depth] = n;
        } else if (*text == ',')
            commas[depth]++;
        else if (last && strchr("[,", last) && x->rank && depth != x->rank)
            return false;
        last = *text;
    }
    return x->rank > 0 && !depth;
}
static status_t ragged(void) MUST_CHECK;
static status_t ragged(void) {
    return st_new(ST_INVALID_ARGUMENT, "the lists in it are not all of one length and depth");
}
// Numbers without a type; dims where they were given.
static status_t plain_numbers(struct arena *a, const char *text, struct npy *x) {
    if (*text == '[' && !nested_dims(text, x)) return ragged();
    if (*text != '[') {
        x->rank = 1;
        x->dims[0] = 1;
        for (const char *p = text; *p; p++)
            x->dims[0] += *p == ',';
    }
    memcpy(x->descr, "<f4", 4);
    return st_note(typed_value(a, numbers_dtype(STR("f32")), text, x),
                   "'%.100s' is neither @file nor numbers", text);
}

static status_t from_file(struct arena *a, const char *path, const char *name,
                          const struct image_options *o, struct npy *x) {
    struct span b;
    struct npy *all;
    int n, pick = 0;
    RETURN_IF_ERR(input_file(a, path, &b));
    if (image_sniff(b)) return image_tensor(a, b, path, o, x);
    RETURN_IF_ERR(npy_read(a, b, path, &all, &n));
    for (int k = 0; k < n; k++)
        if (all[k].name && !strcmp(all[k].name, name)) pick = k;
    if (n == 0) return st_new(ST_INVALID_ARGUMENT, "%s has no arrays", path);
    *x = all[pick];
    return ST_OK;
}

// NAME, and the value behind it, *out_type the dims and type between them (empty: none).
static const char *split_word(const char *word, struct str *out_name, struct str *out_type) {
    const char *eq = strchr(word, '='), *value = eq ? eq + 1 : "",
               *second = *value == '@' ? NULL : strchr(value, '=');
    *out_name = (struct str){word, eq ? (size_t)(eq - word) : 0};
    *out_type = (struct str){value, second ? (size_t)(second - value) : 0};
    return second ? second + 1 : value;
}

status_t input_parse(struct arena *a, const char *word, const struct image_options *o,
                     struct npy *out) {
    struct str named, type;
    const char *value = split_word(word, &named, &type);
    if (!named.n) return st_new(ST_INVALID_ARGUMENT, "-i takes NAME=VALUE");
    char *name = arena_strndup(a, named.p, named.n);
    struct npy x = {0};
    const struct dtype_row *t;
    status_t st;
    if (value != type.p) {
        if (!parse_type(type, &x, &t))
            return st_new(ST_INVALID_ARGUMENT,
                          "input '%s': expected dims, type or both as in 1x3xf32", name);
        if (!t) memcpy(x.descr, "<f4", 4);
        st = typed_value(a, t ? t : numbers_dtype(STR("f32")), value, &x);
    } else if (*value == '@')
        st = from_file(a, value + 1, name, o, &x);
    else
        st = plain_numbers(a, value, &x);
    if (!st && !x.type && strcmp(x.descr, "<V2") == 0) x.type = "BF16"; // there is no other
    x.name = name;
    if (!st) *out = x;
    return st_note(st, "input '%s'", name);
}

bool input_untyped(struct arena *a, const char *word, struct npy *out) {
    struct str name, text;
    const struct dtype_row *t = NULL;
    const char *value = split_word(word, &name, &text);
    *out = (struct npy){.rank = 0};
    if (!name.n || (value == text.p && *value == '@')) return false;
    if (value != text.p && (!parse_type(text, out, &t) || t)) return false;
    out->name = arena_strndup(a, name.p, name.n);
    return true;
}

// The open sizes of x, -1 each, from the number of elements: one that is left over the others, of
// two or more the first, a batch, being 1.
static bool close_dims(struct npy *x, int64_t n) {
    int open = 0, last = -1;
    int64_t known = 1;
    for (int d = 0; d < x->rank; d++)
        if (x->dims[d] < 0) {
            open++;
            last = d;
        } else if (!sz_mul(known, x->dims[d], &known))
            return false;
    if (!open) return known == n;
    if (open > 2 || (open == 2 && x->dims[0] >= 0) || !known || n % known) return false;
    if (open == 2) x->dims[0] = 1;
    x->dims[last] = n / known;
    return true;
}

static status_t misfit(struct arena *a, const char *name, int64_t n,
                       const struct npy *shape) MUST_CHECK;
static status_t misfit(struct arena *a, const char *name, int64_t n, const struct npy *shape) {
    const char *dims = "", *one = ""; // one: open sizes being 1
    bool open = false;
    for (int d = 0; d < shape->rank; d++) {
        const char *size = arena_printf(a, "%lld", (long long)shape->dims[d]);
        dims = arena_printf(a, "%s%s%s", dims, d ? "x" : "", shape->dims[d] < 0 ? "?" : size);
        one = arena_printf(a, "%s%s%s", one, d ? "x" : "", shape->dims[d] < 0 ? "1" : size);
        open |= shape->dims[d] < 0;
    }
    return st_new(
        ST_INVALID_ARGUMENT, "input '%s': %lld value%s given, its shape is %s%s", name,
        (long long)n, n == 1 ? " was" : "s were", *dims ? dims : "that of a scalar",
        open ? arena_printf(a, "; a shape goes before the values: -i %s=%s=...", name, one) : "");
}

status_t input_fit(struct arena *a, const char *word, const char *dtype, const struct npy *shape,
                   struct npy *out) {
    struct str name, text;
    const struct dtype_row *t = numbers_dtype(str_of(dtype)), *none;
    const char *value = split_word(word, &name, &text);
    struct npy x = {.name = out->name};
    if (!t || !input_set_type(&x, t->oip ? t->oip : t->name))
        return st_new(ST_INVALID_ARGUMENT, "input '%s' has type %s: say it with its shape", x.name,
                      dtype);
    if (value != text.p)
        parse_type(text, &x, &none); // input_untyped saw that it is one
    else {
        bool list = *value == '[' && t->cls != NUM_STRING;
        if (list && !nested_dims(value, &x)) return st_note(ragged(), "input '%s'", x.name);
        int64_t n = 1;
        for (const char *p = value; *p && !list; p++)
            n += *p == ',';
        if (list && x.rank == 1) n = x.dims[0];
        if (!list || x.rank == 1) {
            x.rank = shape ? shape->rank : 1;
            memcpy(x.dims, shape ? shape->dims : &n, sizeof *x.dims * (size_t)x.rank);
            if (!close_dims(&x, n)) return misfit(a, x.name, n, shape);
        }
    }
    status_t st = typed_value(a, t, value, &x);
    if (!st) *out = x;
    return st_note(st, "input '%s'", x.name);
}

status_t input_size(const char *text, struct image_options *o) {
    struct str all = str_of(text), h, w;
    int64_t height, width;
    if (!str_cut(&all, 'x', &h) || !str_cut(&all, 'x', &w) || all.n || !str_to_i64(h, &height) ||
        !str_to_i64(w, &width) || height < 1 || width < 1 || height > 32768 || width > 32768)
        return st_new(ST_INVALID_ARGUMENT, "size '%s': expected HEIGHTxWIDTH", text);
    o->height = (int32_t)height;
    o->width = (int32_t)width;
    return ST_OK;
}

status_t input_channels(const char *text, double out[3]) {
    struct str all = str_of(text), one;
    int n = 0;
    for (; n < 3 && str_cut(&all, ',', &one); n++)
        if (!str_to_f64(str_trim(one), &out[n])) n = 3;
    if (all.n || (n != 1 && n != 3))
        return st_new(ST_INVALID_ARGUMENT, "'%s': expected one number, or one a channel", text);
    if (n == 1) out[1] = out[2] = out[0];
    return ST_OK;
}

status_t input_scale(struct image_options *o, bool *out_scaled) {
    double mean = 0, std = 0, least = 1e300;
    for (int c = 0; c < 3; c++) {
        mean = fmax(mean, fabs(o->mean[c]));
        std = fmax(std, fabs(o->std[c]));
        least = fmin(least, fabs(o->std[c]));
    }
    *out_scaled = std < 1;
    if ((std < 1 && mean > 1) || (std > 1 && (least < 1 || (mean > 0 && mean <= 1))))
        return st_new(ST_INVALID_ARGUMENT,
                      "--mean and --std: one is of values from 0 to 1, the other of 0 to 255");
    for (int c = 0; c < 3 && *out_scaled; c++) {
        o->mean[c] *= 255;
        o->std[c] *= 255;
    }
    return ST_OK;
}
