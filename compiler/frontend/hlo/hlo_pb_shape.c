// SPDX-License-Identifier: Apache-2.0
// Shapes, layouts and literals of HloModuleProto. A shape is read by way of its text, so that the
// checks of the text parser hold; a literal moves element by element between our row-major order
// and the order of its layout.
#include "compiler/frontend/hlo/hlo_pb.h"

// ---- layouts

static void default_order(struct arena *a, const struct shape *s, Xla__LayoutProto *l) {
    l->n_minor_to_major = (size_t)s->rank;
    l->minor_to_major = arena_array(a, int64_t, s->rank ? s->rank : 1);
    for (int k = 0; k < s->rank; k++)
        l->minor_to_major[k] = s->layout ? s->layout->minor_to_major[k] : s->rank - 1 - k;
}
static Xla__TileProto *new_tile(struct arena *a, Xla__LayoutProto *l) {
    Xla__TileProto *t = message_new(a, &xla__tile_proto__descriptor);
    PB_PUSH(a, l, tiles, t);
    return t;
}

// "T(2,128)(4,1)L(8)E(16)S(1)M(4)": everything a layout has behind its order.
static bool layout_rest(struct arena *a, struct str text, Xla__LayoutProto *l) {
    struct cursor c = {text.p, text.p + text.n};
    while (!p_at_end(&c)) {
        int64_t v;
        if (p_take(&c, "T(")) {
            do {
                Xla__TileProto *t = new_tile(a, l);
                do {
                    v = INT64_MIN;
                    if (!p_take(&c, "*") && !p_i64(&c, &v)) return false;
                    PB_PUSH(a, t, dimensions, v);
                } while (p_take(&c, ","));
                if (!p_take(&c, ")")) return false;
            } while (p_take(&c, "("));
            continue;
        }
        int64_t *to = p_take(&c, "L(")   ? &l->tail_padding_alignment_in_elements
                      : p_take(&c, "E(") ? &l->element_size_in_bits
                      : p_take(&c, "S(") ? &l->memory_space
                      : p_take(&c, "M(") ? &l->dynamic_shape_metadata_prefix_bytes
                                         : NULL;
        if (!to || !p_i64(&c, to) || !p_take(&c, ")")) return false;
    }
    return true;
}

static status_t put_layout(struct arena *a, const struct shape *s, Xla__LayoutProto *l) {
    const struct layout *from = s->layout;
    default_order(a, s, l);
    l->tail_padding_alignment_in_elements = 1;
    if (!from) return ST_OK;
    if (from->tile_rank) {
        Xla__TileProto *t = new_tile(a, l);
        for (int k = 0; k < from->tile_rank; k++)
            PB_PUSH(a, t, dimensions, from->tile[k]);
    }
    if (from->rest && !layout_rest(a, str_of(from->rest), l))
        return st_invalid("layout '%s' has parts that a proto cannot hold", from->rest);
    return ST_OK;
}

static void layout_text(struct strbuf *b, const Xla__LayoutProto *l) {
    struct strbuf rest = {0};
    for (size_t k = 0; k < l->n_tiles; k++) {
        strbuf_puts(&rest, k ? "(" : "T(");
        for (size_t d = 0; d < l->tiles[k]->n_dimensions; d++) {
            int64_t v = l->tiles[k]->dimensions[d];
            if (v == INT64_MIN)
                strbuf_puts(&rest, d ? ",*" : "*");
            else
                strbuf_printf(&rest, "%s%lld", d ? "," : "", (long long)v);
        }
        strbuf_putc(&rest, ')');
    }
    if (l->tail_padding_alignment_in_elements > 1)
        strbuf_printf(&rest, "L(%lld)", (long long)l->tail_padding_alignment_in_elements);
    if (l->element_size_in_bits)
        strbuf_printf(&rest, "E(%lld)", (long long)l->element_size_in_bits);
    if (l->memory_space) strbuf_printf(&rest, "S(%lld)", (long long)l->memory_space);
    if (l->dynamic_shape_metadata_prefix_bytes)
        strbuf_printf(&rest, "M(%lld)", (long long)l->dynamic_shape_metadata_prefix_bytes);
    if (l->n_minor_to_major || rest.n) {
        strbuf_putc(b, '{');
        for (size_t k = 0; k < l->n_minor_to_major; k++)
            strbuf_printf(b, "%s%lld", k ? "," : "", (long long)l->minor_to_major[k]);
        if (rest.n) strbuf_printf(b, ":%s", rest.p);
        strbuf_putc(b, '}');
    }
    strbuf_done(&rest);
}

// ---- shapes

status_t pb_put_shape(struct arena *a, const struct shape *s, Xla__ShapeProto **out) {
    Xla__ShapeProto *p = message_new(a, &xla__shape_proto__descriptor);
    p->element_type = dtype_to_xla(s->dtype);
    for (int k = 0; k < s->n_elems; k++) {
        Xla__ShapeProto *e;
        RETURN_IF_ERR(pb_put_shape(a, s->elems[k], &e));
        PB_PUSH(a, p, tuple_shapes, e);
    }
    *out = p;
    if (dtype_size(s->dtype) == 0) return ST_OK; // tuples, tokens
    for (int k = 0; k < s->rank; k++) {
        bool open = s->unbounded >> k & 1;
        PB_PUSH(a, p, dimensions, open ? INT64_MIN : s->dims[k]);
        PB_PUSH(a, p, is_dynamic_dimension, s->dynamic && s->dynamic[k]);
    }
    p->layout = message_new(a, &xla__layout_proto__descriptor);
    return put_layout(a, s, p->layout);
}

void pb_shape_text(struct strbuf *b, const Xla__ShapeProto *s) {
    enum dtype t = dtype_from_xla(s->element_type);
    if (t == DT_TUPLE) {
        for (size_t k = 0; k < s->n_tuple_shapes; k++) {
            strbuf_puts(b, k ? ", " : "(");
            pb_shape_text(b, s->tuple_shapes[k]);
        }
        strbuf_puts(b, s->n_tuple_shapes ? ")" : "()");
        return;
    }
    if (t == DT_INVALID)
        strbuf_printf(b, "type-%d[", s->element_type);
    else
        strbuf_printf(b, "%s[", dtype_name(t));
    for (size_t k = 0; k < s->n_dimensions; k++) {
        bool dynamic = k < s->n_is_dynamic_dimension && s->is_dynamic_dimension[k];
        if (k) strbuf_putc(b, ',');
        if (s->dimensions[k] == INT64_MIN)
            strbuf_putc(b, '?');
        else
            strbuf_printf(b, "%s%lld", dynamic ? "<=" : "", (long long)s->dimensions[k]);
    }
    strbuf_putc(b, ']');
    if (s->layout) layout_text(b, s->layout);
}

status_t pb_get_shape(struct parser *p, const Xla__ShapeProto *s, const struct shape **out) {
    struct strbuf b = {0};
    if (!s) return st_invalid("the shape is missing");
    pb_shape_text(&b, s);
    struct cursor c = {strbuf_cstr(&b), strbuf_cstr(&b) + b.n};
    p->start = c.p;
    p->c = c;
    status_t st = p_shape(p, &c, 0, out);
    if (!st && !p_at_end(&c)) st = p_error(p, c.p, "more text than a shape");
    if (st) st = st_note(st, "shape '%.100s'", strbuf_cstr(&b));
    p->c = (struct cursor){0};
    p->start = NULL;
    strbuf_done(&b);
    return st;
}

// ---- literals

// Bytes-typed fields, one a type.
#define BYTE_FIELDS                                                                                \
    X(U8, u8s)                                                                                     \
    X(S8, s8s)                                                                                     \
    X(U16, u16s)                                                                                   \
    X(S16, s16s)                                                                                   \
    X(F16, f16s)                                                                                   \
    X(BF16, bf16s)                                                                                 \
    X(S2, s2s)                                                                                     \
    X(U2, u2s)                                                                                     \
    X(F4E2M1FN, f4e2m1fns)                                                                         \
    X(F8E8M0FNU, f8e8m0fnus)                                                                       \
    X(S4, s4s)                                                                                     \
    X(U4, u4s)                                                                                     \
    X(F8E5M2, f8e5m2s)                                                                             \
    X(F8E4M3FN, f8e4m3fns)                                                                         \
    X(F8E4M3B11FNUZ, f8e4m3b11fnuzs)                                                               \
    X(F8E5M2FNUZ, f8e5m2fnuzs)                                                                     \
    X(F8E4M3FNUZ, f8e4m3fnuzs)                                                                     \
    X(F8E4M3, f8e4m3s)                                                                             \
    X(F8E3M4, f8e3m4s)
#define ARRAY_FIELDS                                                                               \
    X(S32, s32s, 1)                                                                                \
    X(S64, s64s, 1)                                                                                \
    X(U32, u32s, 1)                                                                                \
    X(U64, u64s, 1)                                                                                \
    X(F32, f32s, 1)                                                                                \
    X(F64, f64s, 1)                                                                                \
    X(C64, c64s, 2)                                                                                \
    X(C128, c128s, 2)

// The field of m that holds elements of type t, and its size; pred apart.
static struct span field_of(const Xla__LiteralProto *m, enum dtype t) {
    switch (t) {
#define X(e, f)                                                                                    \
    case DT_##e:                                                                                   \
        return (struct span){m->f.data, m->f.len};
        BYTE_FIELDS
#undef X
#define X(e, f, per)                                                                               \
    case DT_##e:                                                                                   \
        return (struct span){(const uint8_t *)m->f, m->n_##f * sizeof *m->f};
        ARRAY_FIELDS
#undef X
    default:
        return (struct span){0};
    }
}
static void set_field(Xla__LiteralProto *m, enum dtype t, void *data, size_t n, size_t size) {
    switch (t) {
#define X(e, f)                                                                                    \
    case DT_##e:                                                                                   \
        m->f = (ProtobufCBinaryData){n * size, data};                                              \
        break;
        BYTE_FIELDS
#undef X
#define X(e, f, per)                                                                               \
    case DT_##e:                                                                                   \
        m->f = data;                                                                               \
        m->n_##f = n * per;                                                                        \
        break;
        ARRAY_FIELDS
#undef X
    default:
        break;
    }
}

// Copies n elements of `size` bytes between row-major order (rows) and the order of s's layout.
static void reorder(const struct shape *s, char *rows, char *laid, size_t size, bool to_rows) {
    int64_t n = shape_elements(s), stride[HLO_MAX_RANK], idx[HLO_MAX_RANK] = {0};
    bool plain = true;
    for (int k = 0; s->layout && k < s->rank; k++)
        plain &= s->layout->minor_to_major[k] == s->rank - 1 - k;
    if (plain) {
        if (n) memcpy(to_rows ? rows : laid, to_rows ? laid : rows, (size_t)n * size);
        return;
    }
    shape_strides(s, stride);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = 0;
        for (int d = 0; d < s->rank; d++)
            at += idx[d] * stride[d];
        if (to_rows)
            memcpy(rows + (size_t)i * size, laid + (size_t)at * size, size);
        else
            memcpy(laid + (size_t)at * size, rows + (size_t)i * size, size);
        for (int d = s->rank - 1; d >= 0 && ++idx[d] == s->dims[d]; d--)
            idx[d] = 0;
    }
}

status_t pb_put_literal(struct arena *a, const struct literal *l, const struct shape *s,
                        Xla__LiteralProto **out) {
    Xla__LiteralProto *m = message_new(a, &xla__literal_proto__descriptor);
    if (lit_missing(l)) return st_invalid("%s", lit_missing(l));
    RETURN_IF_ERR(pb_put_shape(a, s, &m->shape));
    *out = m;
    for (int k = 0; k < s->n_elems; k++) {
        Xla__LiteralProto *e;
        RETURN_IF_ERR(pb_put_literal(a, l->elems[k], s->elems[k], &e));
        PB_PUSH(a, m, tuple_literals, e);
    }
    if (shape_is_tuple(s)) return ST_OK;
    size_t n = (size_t)shape_elements(s), size = (size_t)dtype_size(s->dtype);
    char *data = arena_alloc_aligned(a, n * size + 1, 16);
    reorder(s, l->data, data, size, false);
    if (s->dtype == DT_PRED) {
        m->preds = arena_array(a, protobuf_c_boolean, n + 1);
        for (size_t k = 0; k < n; k++)
            m->preds[k] = data[k] != 0;
        m->n_preds = n;
        return ST_OK;
    }
    int bits = dtype_bits(s->dtype);
    for (size_t k = 0; k < n && bits < 8; k++)
        data[k] = (char)(data[k] & ((1 << bits) - 1));
    set_field(m, s->dtype, data, n, size);
    return ST_OK;
}

static status_t get_tuple(struct parser *p, const Xla__LiteralProto *m, const struct shape *s,
                          struct literal **out) {
    struct literal **e = arena_array(p->m->arena, struct literal *, s->n_elems ? s->n_elems : 1);
    if (m->n_tuple_literals != (size_t)s->n_elems)
        return st_invalid("a tuple literal of %zu elements, the shape has %d", m->n_tuple_literals,
                          s->n_elems);
    for (int k = 0; k < s->n_elems; k++) {
        RETURN_IF_ERR(pb_get_literal(p, m->tuple_literals[k], &e[k]));
        if (!shape_compatible(e[k]->shape, s->elems[k]))
            return st_invalid("element %d of a tuple literal has another shape", k);
    }
    *out = lit_tuple(p->m->arena, s, e);
    return ST_OK;
}

status_t pb_get_literal(struct parser *p, const Xla__LiteralProto *m, struct literal **out) {
    const struct shape *s;
    RETURN_IF_ERR(st_note(pb_get_shape(p, m->shape, &s), "literal"));
    if (shape_is_tuple(s)) return get_tuple(p, m, s, out);
    size_t n = (size_t)shape_elements(s), size = (size_t)dtype_size(s->dtype);
    struct span from = field_of(m, s->dtype);
    if (s->dtype == DT_PRED) { // one byte each
        uint8_t *bytes = arena_alloc(p->m->arena, m->n_preds + 1);
        for (size_t k = 0; k < m->n_preds; k++)
            bytes[k] = m->preds[k] != 0;
        from = (struct span){bytes, m->n_preds};
    }
    // The elements are there, so memory is bounded by the message.
    if (size == 0 || from.n / size != n || from.n % size)
        return st_invalid("a literal of %zu bytes for %s", from.n, shape_text(p->m->arena, s));
    struct literal *l = lit_new(p->m->arena, s);
    reorder(s, l->data, (char *)(uintptr_t)from.p, size, true);
    int bits = dtype_bits(s->dtype), half = 1 << (bits < 8 ? bits - 1 : 0);
    bool negative = dtype_class(s->dtype) == DC_SIGNED;
    for (size_t k = 0; k < n && bits < 8 && s->dtype != DT_PRED; k++) {
        int v = ((int8_t *)l->data)[k] & (2 * half - 1);
        ((int8_t *)l->data)[k] = (int8_t)(negative ? (v ^ half) - half : v);
    }
    *out = l;
    return ST_OK;
}
