// SPDX-License-Identifier: Apache-2.0
// Literals: making, reading and writing single elements with HLO's conversions, comparing, hashing.
// Data may be unaligned, so elements move by memcpy.
#include "compiler/ir/literal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/hash.h"

struct literal *lit_borrow(struct arena *a, const struct shape *s, const void *data) {
    struct literal *l = arena_new_of(a, struct literal);
    l->shape = layout_is_default(s->layout, s->rank) ? s : shape_with_layout(a, s, NULL);
    l->data = (void *)(uintptr_t)data;
    l->size_bytes = (size_t)(shape_elements(s) * dtype_size(s->dtype));
    return l;
}

const char *lit_missing(const struct literal *l) {
    for (int k = 0; k < l->shape->n_elems; k++)
        if (lit_missing(l->elems[k])) return lit_missing(l->elems[k]);
    return l->elided ? "its value was left out of the text ({...}): print the module with its "
                       "large constants (print_large_constants)"
                     : NULL;
}
struct literal *lit_new(struct arena *a, const struct shape *s) {
    if (!shape_is_tuple(s)) {
        size_t n = (size_t)(shape_elements(s) * dtype_size(s->dtype));
        return lit_borrow(a, s, memset(arena_alloc_aligned(a, n ? n : 1, 64), 0, n));
    }
    struct literal **e = arena_array(a, struct literal *, s->n_elems ? s->n_elems : 1);
    for (int k = 0; k < s->n_elems; k++)
        e[k] = lit_new(a, s->elems[k]);
    struct literal *l = arena_new_of(a, struct literal);
    *l = (struct literal){.shape = s, .elems = e};
    return l;
}

struct literal *lit_tuple(struct arena *a, const struct shape *s, struct literal *const *elems) {
    struct literal *l = arena_new_of(a, struct literal);
    *l = (struct literal){.shape = s,
                          .elems = s->n_elems ? arena_dup_array(a, elems, s->n_elems) : NULL};
    return l;
}

struct literal *lit_leaf(struct literal *l, int k) {
    if (!shape_is_tuple(l->shape)) return l;
    int e = shape_element_of(l->shape, k);
    return e < 0 ? NULL : lit_leaf(l->elems[e], k - shape_first_leaf(l->shape, e));
}

struct literal *lit_scalar_f64(struct arena *a, enum dtype t, double v) {
    struct literal *l = lit_new(a, shape_scalar(a, t));
    lit_set_f64(l, 0, v);
    return l;
}
struct literal *lit_scalar_i64(struct arena *a, enum dtype t, int64_t v) {
    struct literal *l = lit_new(a, shape_scalar(a, t));
    lit_set_i64(l, 0, v);
    return l;
}

// ---- elements

#define GET(type)                                                                                  \
    ({                                                                                             \
        type v_;                                                                                   \
        memcpy(&v_, (const char *)l->data + i * (int64_t)sizeof(type), sizeof v_);                 \
        v_;                                                                                        \
    })
#define PUT(type, x)                                                                               \
    ({                                                                                             \
        type v_ = (type)(x);                                                                       \
        memcpy((char *)l->data + i * (int64_t)sizeof(type), &v_, sizeof v_);                       \
    })

int64_t lit_get_i64(const struct literal *l, int64_t i) {
    switch (l->shape->dtype) {
    case DT_PRED:
        return GET(uint8_t) != 0;
    case DT_S2:
    case DT_S4:
    case DT_S8:
        return GET(int8_t);
    case DT_S16:
        return GET(int16_t);
    case DT_S32:
        return GET(int32_t);
    case DT_S64:
        return GET(int64_t);

    case DT_U2:
    case DT_U4:
    case DT_U8:
        return GET(uint8_t);
    case DT_U16:
        return GET(uint16_t);
    case DT_U32:
        return GET(uint32_t);
    case DT_U64:
        return (int64_t)GET(uint64_t);
    default: {
        double v = lit_get_f64(l, i);
        if (isnan(v)) return 0;
        return v >= 0x1p63 ? INT64_MAX : v < -0x1p63 ? INT64_MIN : (int64_t)v;
    }
    }
}

double lit_get_f64(const struct literal *l, int64_t i) {
    switch (l->shape->dtype) {
    case DT_F16:
        return (double)f16_to_f32(GET(uint16_t));
    case DT_BF16:
        return (double)bf16_to_f32(GET(uint16_t));
    case DT_F32:
    case DT_C64:
        i *= l->shape->dtype == DT_C64 ? 2 : 1;
        return (double)GET(float);
    case DT_F64:
    case DT_C128:
        i *= l->shape->dtype == DT_C128 ? 2 : 1;
        return GET(double);
    case DT_U64:
        return (double)GET(uint64_t);
    default:
        break;
    }
    if (dtype_class(l->shape->dtype) == DC_FLOAT) return f8_to_f64(l->shape->dtype, GET(uint8_t));
    return (double)lit_get_i64(l, i);
}

int64_t lit_get_start(const struct literal *l, int64_t i) {
    int64_t v = lit_get_i64(l, i);
    return l->shape->dtype == DT_U64 && v < 0 ? INT64_MAX : v;
}

void lit_get_c128(const struct literal *l, int64_t i, double out[2]) {
    out[0] = lit_get_f64(l, i);
    out[1] = 0;
    if (l->shape->dtype == DT_C64) {
        i = 2 * i + 1;
        out[1] = (double)GET(float);
    } else if (l->shape->dtype == DT_C128) {
        i = 2 * i + 1;
        out[1] = GET(double);
    }
}

// Saturating conversion of a double to a signed or unsigned width.
static int64_t saturate(double v, enum dtype t) {
    int bits = dtype_bits(t);
    bool is_signed = dtype_class(t) == DC_SIGNED;
    if (isnan(v)) return 0;
    double lo = is_signed ? -ldexp(1, bits - 1) : 0, hi = ldexp(1, is_signed ? bits - 1 : bits);
    if (v < lo) return is_signed ? INT64_MIN >> (64 - bits) : 0;
    if (v >= hi)
        return is_signed ? (int64_t)(UINT64_MAX >> (65 - bits))
                         : (int64_t)(UINT64_MAX >> (64 - bits));
    return is_signed ? (int64_t)v : (int64_t)(uint64_t)v;
}

void lit_set_i64(struct literal *l, int64_t i, int64_t v) {
    switch (l->shape->dtype) {
    case DT_PRED:
        PUT(uint8_t, v != 0);
        break;
    case DT_S2:
        PUT(int8_t, (int8_t)((v & 3) ^ 2) - 2);
        break;
    case DT_U2:
        PUT(uint8_t, v & 3);
        break;
    case DT_S4:
        PUT(int8_t, (int8_t)((v & 15) ^ 8) - 8);
        break;
    case DT_U4:
        PUT(uint8_t, v & 15);
        break;

    case DT_S8:
    case DT_U8:
        PUT(uint8_t, v);
        break;
    case DT_S16:
    case DT_U16:
        PUT(uint16_t, v);
        break;
    case DT_S32:
    case DT_U32:
        PUT(uint32_t, v);
        break;
    case DT_S64:
    case DT_U64:
        PUT(uint64_t, v);
        break;
    case DT_F32:
        PUT(float, v);
        break;
    default:
        lit_set_f64(l, i, (double)v);
        break;
    }
}

void lit_set_f64(struct literal *l, int64_t i, double v) {
    enum dtype t = l->shape->dtype;
    switch (t) {
    case DT_PRED:
        PUT(uint8_t, v != 0);
        return;
    case DT_F16:
        PUT(uint16_t, f64_to_f16(v));
        return;
    case DT_BF16:
        PUT(uint16_t, f64_to_bf16(v));
        return;
    case DT_F32:
        PUT(float, v);
        return;
    case DT_F64:
        PUT(double, v);
        return;
    case DT_C64:
    case DT_C128:
        lit_set_c128(l, i, v, 0);
        return;
    default:
        break;
    }
    if (dtype_is_float(t))
        PUT(uint8_t, f64_to_f8(t, v));
    else if (dtype_is_int(t))
        lit_set_i64(l, i, saturate(v, t));
}

void lit_set_c128(struct literal *l, int64_t i, double re, double im) {
    if (l->shape->dtype == DT_C64) {
        i *= 2;
        PUT(float, re);
        i++;
        PUT(float, im);
    } else if (l->shape->dtype == DT_C128) {
        i *= 2;
        PUT(double, re);
        i++;
        PUT(double, im);
    } else {
        lit_set_f64(l, i, re);
    }
}

// ---- wholes

bool lit_equal(const struct literal *a, const struct literal *b) {
    if (!shape_compatible(a->shape, b->shape)) return false;
    if (shape_is_tuple(a->shape)) {
        for (int k = 0; k < a->shape->n_elems; k++)
            if (!lit_equal(a->elems[k], b->elems[k])) return false;
        return true;
    }
    return a->size_bytes == 0 || memcmp(a->data, b->data, a->size_bytes) == 0;
}

bool lit_all_equal_f64(const struct literal *l, double v) {
    int64_t n = shape_elements(l->shape);
    if (n == 0) return false;
    bool integer = dtype_is_int(l->shape->dtype);
    for (int64_t i = 0; i < n; i++) {
        double x[2];
        lit_get_c128(l, i, x);
        if (!(x[0] == v) || signbit(x[0]) != signbit(v) || x[1] != 0) return false;
        if (integer && lit_get_i64(l, i) != (int64_t)v) return false;
    }
    return true;
}

enum { LARGE = 65536 };
uint64_t lit_hash(const struct literal *l) {
    uint64_t h = (uint64_t)l->shape->dtype;
    if (!shape_is_tuple(l->shape) && l->size_bytes <= LARGE)
        return hash64(l->data, l->size_bytes, h);
    if (!shape_is_tuple(l->shape)) { // of a large one parts, the last reaching its end
        size_t step = (l->size_bytes - LARGE / 16) / 15;
        for (size_t k = 0; k < 16; k++)
            h = hash64((const char *)l->data + (k < 15 ? k * step : l->size_bytes - LARGE / 16),
                       LARGE / 16, h);
        return h ^ l->size_bytes;
    }
    h = 1;
    for (int k = 0; k < l->shape->n_elems; k++) {
        uint64_t e = lit_hash(l->elems[k]);
        h = hash64(&e, sizeof e, h);
    }
    return h;
}

// A shape that may outlive the arena of the original.
static const struct shape *own_shape(struct arena *a, const struct shape *s) {
    struct shape *r = arena_dup(a, s, sizeof *s);
    r->dims = s->rank ? arena_dup_array(a, s->dims, s->rank) : NULL;
    r->dynamic = s->dynamic ? arena_dup_array(a, s->dynamic, s->rank) : NULL;
    r->layout = s->layout ? arena_dup(a, s->layout, sizeof *s->layout) : NULL;
    if (s->n_elems) r->elems = arena_array(a, const struct shape *, s->n_elems);
    for (int k = 0; k < s->n_elems; k++)
        r->elems[k] = own_shape(a, s->elems[k]);
    return r;
}
struct literal *lit_clone(struct arena *a, const struct literal *l) {
    struct literal *r = lit_new(a, own_shape(a, l->shape));
    r->elided = l->elided;
    for (int k = 0; k < l->shape->n_elems; k++)
        r->elems[k] = lit_clone(a, l->elems[k]);
    if (!shape_is_tuple(l->shape) && l->size_bytes) memcpy(r->data, l->data, l->size_bytes);
    return r;
}

// Bytes to 32 bits, as weights of 8-bit networks are; false: other types.
static bool convert_bytes(const struct literal *l, struct literal *r, int64_t n) {
    enum dtype from = l->shape->dtype, t = r->shape->dtype;
    const int8_t *s8 = l->data;
    const uint8_t *u8 = l->data;
    int32_t *s32 = r->data;
    float *f32 = r->data;
    if ((from != DT_S8 && from != DT_U8) || (t != DT_S32 && t != DT_F32)) return false;
    for (int64_t i = 0; i < n; i++) {
        int32_t v = from == DT_S8 ? s8[i] : u8[i];
        if (t == DT_S32)
            s32[i] = v;
        else
            f32[i] = (float)v;
    }
    return true;
}
struct literal *lit_convert(struct arena *a, const struct literal *l, enum dtype t) {
    enum dtype from = l->shape->dtype;
    struct literal *r = lit_new(a, shape_with_dtype(a, l->shape, t));
    if (convert_bytes(l, r, shape_elements(l->shape))) return r;
    bool ints = (dtype_is_int(from) || from == DT_PRED) && (dtype_is_int(t) || t == DT_PRED);
    for (int64_t i = 0, n = shape_elements(l->shape); i < n; i++) {
        double c[2];
        if (ints) {
            lit_set_i64(r, i, lit_get_i64(l, i));
        } else {
            lit_get_c128(l, i, c);
            lit_set_c128(r, i, c[0], c[1]);
        }
    }
    return r;
}

// ---- text

// Mantissa bits of a type (of a part of a complex one) whose NaN has a sign and a payload; 0:
// others.
static int nan_digits(enum dtype t) {
    if (t == DT_F64 || t == DT_C128) return 52;
    if (t == DT_F32 || t == DT_C64) return 23;
    return float_format(t).special == FLOAT_IEEE ? float_format(t).m : 0;
}
bool lit_set_nan(struct literal *l, int64_t part, bool negative, uint64_t payload) {
    enum dtype t = l->shape->dtype;
    size_t size = (size_t)dtype_size(t) >> dtype_is_complex(t);
    int m = nan_digits(t), bits = 8 * (int)size;
    if (!m || !payload || payload >> m) return false;
    uint64_t exp = ((UINT64_C(1) << (bits - 1 - m)) - 1) << m,
             v = (uint64_t)negative << (bits - 1) | exp | payload;
    memcpy((char *)l->data + part * (int64_t)size, &v, size); // little-endian, as all of it
    return true;
}
// As XLA writes it: nan, -nan, and nan(0x1) where its bits are not those alone that say it is
// quiet.
static void print_nan(struct strbuf *b, const struct literal *l, int64_t part, bool negative) {
    enum dtype t = l->shape->dtype;
    size_t size = (size_t)dtype_size(t) >> dtype_is_complex(t);
    int m = nan_digits(t);
    uint64_t v = 0;
    memcpy(&v, (const char *)l->data + part * (int64_t)size, size);
    v &= (UINT64_C(1) << m) - 1;
    strbuf_puts(b, negative ? "-nan" : "nan");
    if (m && v != UINT64_C(1) << (m - 1)) strbuf_printf(b, "(0x%" PRIx64 ")", v);
}
static void print_real(struct strbuf *b, const struct literal *l, int64_t part, double v) {
    enum dtype t = l->shape->dtype;
    if (isnan(v))
        print_nan(b, l, part, signbit(v));
    else if (isinf(v))
        strbuf_puts(b, v < 0 ? "-inf" : "inf");
    else if (t != DT_F64 && t != DT_C128)
        strbuf_f32(b, (float)v);
    else
        strbuf_f64(b, v);
}

static void print_element(struct strbuf *b, const struct literal *l, int64_t i) {
    enum dtype t = l->shape->dtype;
    double c[2];
    switch (dtype_class(t)) {
    case DC_PRED:
        strbuf_puts(b, lit_get_i64(l, i) ? "true" : "false");
        break;
    case DC_SIGNED:
        strbuf_i64(b, lit_get_i64(l, i));
        break;
    case DC_UNSIGNED:
        strbuf_u64(b, (uint64_t)lit_get_i64(l, i));
        break;

    case DC_FLOAT:
        c[0] = lit_get_f64(l, i);
        if (fabs(c[0]) < 100000 && c[0] == (double)(int64_t)c[0] && !signbit(c[0]))
            strbuf_i64(b, (int64_t)c[0]); // as %g writes it
        else
            print_real(b, l, i, c[0]);
        break;
    case DC_COMPLEX:
        lit_get_c128(l, i, c);
        strbuf_putc(b, '(');
        print_real(b, l, 2 * i, c[0]);
        strbuf_puts(b, ", ");
        print_real(b, l, 2 * i + 1, c[1]);
        strbuf_putc(b, ')');
        break;
    case DC_NONE:
        break;
    }
}

static void print_level(struct strbuf *b, const struct literal *l, int d, int64_t *i) {
    if (d == l->shape->rank) {
        print_element(b, l, (*i)++);
        return;
    }
    strbuf_putc(b, '{');
    if (d + 1 < l->shape->rank) strbuf_putc(b, ' ');
    for (int64_t k = 0; k < l->shape->dims[d]; k++) {
        if (k) strbuf_puts(b, ", ");
        print_level(b, l, d + 1, i);
    }
    if (d + 1 < l->shape->rank && l->shape->dims[d]) strbuf_putc(b, ' ');
    strbuf_putc(b, '}');
}

// How many empty braces a literal without elements has: the dimensions before the first zero.
static int64_t empty_braces(const struct shape *s) {
    int64_t n = 1;
    for (int d = 0; d < s->rank && s->dims[d] && n <= 4096; d++)
        if (!sz_mul(n, s->dims[d], &n)) return INT64_MAX;
    return n;
}

void lit_print(struct strbuf *b, const struct literal *l) {
    int64_t i = 0;
    if (l->elided) {
        strbuf_puts(b, "{...}");
        return;
    }
    if (!shape_is_tuple(l->shape)) {
        if (shape_elements(l->shape) == 0 && empty_braces(l->shape) > 4096)
            strbuf_puts(b, "{}");
        else
            print_level(b, l, 0, &i);
        return;
    }
    strbuf_puts(b, "( ");
    for (int k = 0; k < l->shape->n_elems; k++) {
        if (k) strbuf_puts(b, ", ");
        lit_print(b, l->elems[k]);
    }
    strbuf_puts(b, " )");
}
