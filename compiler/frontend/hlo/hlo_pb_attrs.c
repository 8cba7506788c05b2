// SPDX-License-Identifier: Apache-2.0
// The attribute records of attrs.def in HloInstructionProto. Each field is written and read by the
// codec, message and field of its row; a row without them does not compile. What comes from
// outside is checked as the text parser checks it.
#include "compiler/frontend/hlo/hlo_pb.h"

// ---- windows, labels, padding, slices

Xla__Window *pb_put_window(struct arena *a, const struct window *w) {
    Xla__Window *p = message_new(a, &xla__window__descriptor);
    for (int k = 0; k < w->n; k++) {
        const struct window_dim *d = &w->v[k];
        Xla__WindowDimension *q = message_new(a, &xla__window_dimension__descriptor);
        q->size = d->size;
        q->stride = d->stride;
        q->padding_low = d->pad_low;
        q->padding_high = d->pad_high;
        q->window_dilation = d->window_dilation;
        q->base_dilation = d->base_dilation;
        q->window_reversal = d->reversal;
        PB_PUSH(a, p, dimensions, q);
    }
    return p;
}
status_t pb_get_window(struct arena *a, const Xla__Window *p, struct window *out) {
    int n = p ? (int)p->n_dimensions : 0;
    if (n > HLO_MAX_RANK) return st_invalid("a window of %d dimensions", n);
    *out = (struct window){n ? arena_zarray(a, struct window_dim, n) : NULL, n};
    for (int k = 0; k < n; k++) {
        const Xla__WindowDimension *q = p->dimensions[k];
        if (q->size < 0 || q->stride < 1 || q->window_dilation < 1 || q->base_dilation < 1)
            return st_invalid("dimension %d of the window is not positive", k);
        out->v[k] = (struct window_dim){.size = q->size,
                                        .stride = q->stride,
                                        .pad_low = q->padding_low,
                                        .pad_high = q->padding_high,
                                        .base_dilation = q->base_dilation,
                                        .window_dilation = q->window_dilation,
                                        .reversal = q->window_reversal != 0};
    }
    return ST_OK;
}

Xla__ConvolutionDimensionNumbers *pb_put_labels(struct arena *a, const struct labels *l) {
    Xla__ConvolutionDimensionNumbers *p =
        message_new(a, &xla__convolution_dimension_numbers__descriptor);
    p->input_batch_dimension = l->in_batch;
    p->input_feature_dimension = l->in_feature;
    p->kernel_input_feature_dimension = l->k_in;
    p->kernel_output_feature_dimension = l->k_out;
    p->output_batch_dimension = l->out_batch;
    p->output_feature_dimension = l->out_feature;
    for (int k = 0; k < l->n_spatial; k++) {
        PB_PUSH(a, p, input_spatial_dimensions, l->in_spatial[k]);
        PB_PUSH(a, p, kernel_spatial_dimensions, l->k_spatial[k]);
        PB_PUSH(a, p, output_spatial_dimensions, l->out_spatial[k]);
    }
    return p;
}
// The two roles and the spatial dimensions are the numbers 0 to n+1, each once.
static bool get_group(int64_t first, int64_t second, const int64_t *spatial, size_t n,
                      int32_t *out_first, int32_t *out_second, int32_t *out_spatial) {
    bool seen[HLO_MAX_RANK] = {false};
    for (size_t k = 0; k < n + 2; k++) {
        int64_t v = k == 0 ? first : k == 1 ? second : spatial[k - 2];
        if (v < 0 || v >= (int64_t)n + 2 || seen[v]) return false;
        seen[v] = true;
        *(k == 0 ? out_first : k == 1 ? out_second : &out_spatial[k - 2]) = (int32_t)v;
    }
    return true;
}
status_t pb_get_labels(const Xla__ConvolutionDimensionNumbers *p, struct labels *l) {
    size_t n = p ? p->n_input_spatial_dimensions : 0;
    bool ok =
        p && n <= 9 && p->n_kernel_spatial_dimensions == n && p->n_output_spatial_dimensions == n &&
        get_group(p->input_batch_dimension, p->input_feature_dimension, p->input_spatial_dimensions,
                  n, &l->in_batch, &l->in_feature, l->in_spatial) &&
        get_group(p->kernel_input_feature_dimension, p->kernel_output_feature_dimension,
                  p->kernel_spatial_dimensions, n, &l->k_in, &l->k_out, l->k_spatial) &&
        get_group(p->output_batch_dimension, p->output_feature_dimension,
                  p->output_spatial_dimensions, n, &l->out_batch, &l->out_feature, l->out_spatial);
    l->n_spatial = (int32_t)n;
    return ok ? ST_OK : st_invalid("convolution_dimension_numbers are not permutations");
}

static Xla__PaddingConfig *put_padding(struct arena *a, const struct padding *v) {
    Xla__PaddingConfig *p = message_new(a, &xla__padding_config__descriptor);
    for (int k = 0; k < v->n; k++) {
        Xla__PaddingConfig__Dimension *d =
            message_new(a, &xla__padding_config__dimension__descriptor);
        d->edge_padding_low = v->v[k].low;
        d->edge_padding_high = v->v[k].high;
        d->interior_padding = v->v[k].interior;
        PB_PUSH(a, p, dimensions, d);
    }
    return p;
}
static status_t get_padding(struct arena *a, const Xla__PaddingConfig *p, struct padding *out) {
    int n = p ? (int)p->n_dimensions : 0;
    if (n > HLO_MAX_RANK) return st_invalid("padding of %d dimensions", n);
    *out = (struct padding){arena_zarray(a, struct pad_dim, n + 1), n};
    for (int k = 0; k < n; k++)
        out->v[k] = (struct pad_dim){p->dimensions[k]->edge_padding_low,
                                     p->dimensions[k]->edge_padding_high,
                                     p->dimensions[k]->interior_padding};
    return ST_OK;
}
static void put_slices(struct arena *a, const struct ranges *v, Xla__HloInstructionProto *p) {
    for (int k = 0; k < v->n; k++) {
        Xla__HloInstructionProto__SliceDimensions *d =
            message_new(a, &xla__hlo_instruction_proto__slice_dimensions__descriptor);
        d->start = v->v[k].start;
        d->limit = v->v[k].limit;
        d->stride = v->v[k].stride;
        PB_PUSH(a, p, slice_dimensions, d);
    }
}
static status_t get_slices(struct arena *a, const Xla__HloInstructionProto *p, struct ranges *out) {
    int n = (int)p->n_slice_dimensions;
    if (p->n_slice_dimensions > HLO_MAX_RANK)
        return st_invalid("slices of %zu dimensions", p->n_slice_dimensions);
    *out = (struct ranges){arena_zarray(a, struct range, n + 1), n};
    for (int k = 0; k < n; k++)
        out->v[k] = (struct range){p->slice_dimensions[k]->start, p->slice_dimensions[k]->limit,
                                   p->slice_dimensions[k]->stride};
    return ST_OK;
}

// ---- the messages that fields lie in: made when the first field is written, NULL if not sent

#define MESSAGE(T, name)                                                                           \
    static Xla__##T *put_in_##name(struct arena *a, Xla__HloInstructionProto *p) {                 \
        if (!p->name) p->name = message_new(a, &xla__##name##__descriptor);                        \
        return p->name;                                                                            \
    }                                                                                              \
    static const Xla__##T *get_in_##name(const Xla__HloInstructionProto *p) {                      \
        return p->name;                                                                            \
    }
MESSAGE(DotDimensionNumbers, dot_dimension_numbers)
MESSAGE(RaggedDotDimensionNumbers, ragged_dot_dimension_numbers)
MESSAGE(GatherDimensionNumbers, gather_dimension_numbers)
MESSAGE(ScatterDimensionNumbers, scatter_dimension_numbers)
MESSAGE(TriangularSolveOptions, triangular_solve_options)
MESSAGE(CholeskyOptions, cholesky_options)
#undef MESSAGE

static Xla__HloInstructionProto *put_in_self(UNUSED struct arena *a, Xla__HloInstructionProto *p) {
    return p;
}
static const Xla__HloInstructionProto *get_in_self(const Xla__HloInstructionProto *p) {
    return p;
}
static Xla__DotDimensionNumbers *put_in_ragged_dot_s_dot(struct arena *a,
                                                         Xla__HloInstructionProto *p) {
    Xla__RaggedDotDimensionNumbers *r = put_in_ragged_dot_dimension_numbers(a, p);
    if (!r->dot_dimension_numbers)
        r->dot_dimension_numbers = message_new(a, &xla__dot_dimension_numbers__descriptor);
    return r->dot_dimension_numbers;
}
static const Xla__DotDimensionNumbers *get_in_ragged_dot_s_dot(const Xla__HloInstructionProto *p) {
    const Xla__RaggedDotDimensionNumbers *r = get_in_ragged_dot_dimension_numbers(p);
    return r ? r->dot_dimension_numbers : NULL;
}

// ---- codecs: PUT writes x to field f of message m, GET reads it. `kind` names x's enumerated
// type, `def` its row's default.

// May the field be missing? By a row's default.
enum { MISSING_REQ = 0, MISSING_OPT = 1, MISSING_ALW = 1 };
// What an integer is when missing: REQ, OPT and ALW stand for 0.
enum { REQ = 0, OPT = 0, ALW = 0 };

#define PUT_i64(kind, x, def, m, f)        ((m)->f = (__typeof__((m)->f))(x))
#define PUT_f32(kind, x, def, m, f)        ((m)->f = (x))
#define PUT_flag(kind, x, def, m, f)       ((m)->f = (x))
#define PUT_one_or_two(kind, x, def, m, f) ((m)->f = (x) ? 1 : 2)
#define PUT_first(kind, x, def, m, f)      PB_PUSH(a, m, f, x)
#define PUT_i64s(kind, x, def, m, f)       ((m)->n_##f = (size_t)(x).n, (m)->f = (x).v)
#define PUT_chars(kind, x, def, m, f)      ((m)->f = arena_strndup(a, (x).p ? (x).p : "", (x).n))
#define PUT_bytes(kind, x, def, m, f)                                                              \
    ((m)->f = (ProtobufCBinaryData){(x).n, (uint8_t *)(uintptr_t)(x).p})
#define PUT_name(kind, x, def, m, f)                                                               \
    if ((x) || !MISSING_##def) (m)->f = (char *)(uintptr_t)hlo_enum_##kind[x]
#define PUT_number(kind, x, def, m, f)  ((m)->f = (int32_t)(x))
#define PUT_ordinal(kind, x, def, m, f) ((m)->f = (int32_t)(x) + 1)
// XLA's text says nothing of the original version, its messages do.
#define PUT_api(kind, x, def, m, f)     ((m)->f = (int32_t)((x) ? (x) : CUSTOM_ORIGINAL))
#define PUT_window(kind, x, def, m, f)  ((m)->f = pb_put_window(a, &(x)))
#define PUT_labels(kind, x, def, m, f)  ((m)->f = pb_put_labels(a, &(x)))
#define PUT_padding(kind, x, def, m, f) ((m)->f = put_padding(a, &(x)))
#define PUT_ranges(kind, x, def, m, f)  put_slices(a, &(x), m)

// An enumerated value by number or by name; `what` is the field's name in the message.
static status_t get_number(int64_t v, const char *const *names, const char *what, int *out) {
    for (int k = 0; names[k]; k++)
        if (v == k) {
            *out = k;
            return ST_OK;
        }
    return st_invalid("%s has the unknown value %lld", what, (long long)v);
}
static status_t get_name(const char *v, const char *const *names, const char *what, int *out) {
    for (int k = 0; names[k]; k++)
        if (strcmp(v, names[k]) == 0) {
            *out = k;
            return ST_OK;
        }
    return st_invalid("%s has the unknown value '%.40s'", what, v);
}
static struct str get_chars(struct arena *a, const char *s) {
    return (struct str){arena_strdup(a, s), strlen(s)};
}
static struct str get_bytes(struct arena *a, ProtobufCBinaryData d) {
    return (struct str){arena_strndup(a, d.len ? (const char *)d.data : "", d.len), d.len};
}

#define GET_i64(kind, x, def, m, f)        ((x) = (m)->f ? (m)->f : (def))
#define GET_f32(kind, x, def, m, f)        ((x) = (m)->f)
#define GET_flag(kind, x, def, m, f)       ((x) = (m)->f != 0)
#define GET_one_or_two(kind, x, def, m, f) ((x) = (m)->f == 1)
#define GET_first(kind, x, def, m, f)                                                              \
    if ((m)->n_##f) (x) = (m)->f[0]
#define GET_i64s(kind, x, def, m, f)  ((x) = i64s_of(a, (m)->f, (int)(m)->n_##f))
#define GET_chars(kind, x, def, m, f) ((x) = get_chars(a, (m)->f))
#define GET_bytes(kind, x, def, m, f) ((x) = get_bytes(a, (m)->f))
#define GET_ENUM(kind, x, get)                                                                     \
    do {                                                                                           \
        int v_ = 0;                                                                                \
        RETURN_IF_ERR(get);                                                                        \
        (x) = (enum kind)v_;                                                                       \
    } while (0)
#define GET_name(kind, x, def, m, f)                                                               \
    if ((m)->f[0] || !MISSING_##def) GET_ENUM(kind, x, get_name((m)->f, hlo_enum_##kind, #f, &v_))
#define GET_number(kind, x, def, m, f)                                                             \
    GET_ENUM(kind, x, get_number((m)->f, hlo_enum_##kind, #f, &v_))
#define GET_ordinal(kind, x, def, m, f)                                                            \
    GET_ENUM(kind, x, get_number((m)->f ? (m)->f - INT64_C(1) : 0, hlo_enum_##kind, #f, &v_))
#define GET_api(kind, x, def, m, f)                                                                \
    GET_number(kind, x, def, m, f);                                                                \
    if ((x) == CUSTOM_ORIGINAL) (x) = CUSTOM_UNSPECIFIED
#define GET_window(kind, x, def, m, f)  RETURN_IF_ERR(pb_get_window(a, (m)->f, &(x)))
#define GET_labels(kind, x, def, m, f)  RETURN_IF_ERR(pb_get_labels((m)->f, &(x)))
#define GET_padding(kind, x, def, m, f) RETURN_IF_ERR(get_padding(a, (m)->f, &(x)))
#define GET_ranges(kind, x, def, m, f)  RETURN_IF_ERR(get_slices(a, m, &(x)))

// ---- records

#define F(kind, name, def, codec, message, field)                                                  \
    {                                                                                              \
        __auto_type m = put_in_##message(a, p);                                                    \
        PUT_##codec(kind, t->name, def, m, field);                                                 \
    }
#define ATTR(record, fields)                                                                       \
    static void put_##record(struct arena *a, const struct hlo_attr_##record *t,                   \
                             Xla__HloInstructionProto *p) {                                        \
        (void)a, (void)t, (void)p;                                                                 \
        fields                                                                                     \
    }
#include "compiler/ir/attrs.def"
#undef ATTR
#undef F

#define F(kind, name, def, codec, message, field)                                                  \
    {                                                                                              \
        __auto_type m = get_in_##message(p);                                                       \
        if (m) {                                                                                   \
            GET_##codec(kind, t->name, def, m, field);                                             \
        }                                                                                          \
    }
#define ATTR(record, fields)                                                                       \
    static status_t get_##record(struct arena *a, const Xla__HloInstructionProto *p,               \
                                 struct hlo_attr_##record *t) {                                    \
        (void)a, (void)p, (void)t;                                                                 \
        fields return ST_OK;                                                                       \
    }
#include "compiler/ir/attrs.def"
#undef ATTR
#undef F

void pb_put_attrs(struct arena *a, const struct hlo_instr *i, Xla__HloInstructionProto *p) {
    switch (hlo_op_info(i->op)->attrs) {
#define ATTR(record, fields)                                                                       \
    case ATTR_##record:                                                                            \
        put_##record(a, i->attr, p);                                                               \
        break;
#include "compiler/ir/attrs.def"
#undef ATTR
    case ATTR_KIND_COUNT:
        break;
    }
}

status_t pb_get_attrs(struct arena *a, enum hlo_op op, const Xla__HloInstructionProto *p,
                      void **out) {
    enum hlo_attr_kind k = hlo_op_info(op)->attrs;
    *out = attr_clone(a, k, NULL);
    switch (k) {
#define ATTR(record, fields)                                                                       \
    case ATTR_##record:                                                                            \
        return get_##record(a, p, *out);
#include "compiler/ir/attrs.def"
#undef ATTR
    case ATTR_KIND_COUNT:
        break;
    }
    return ST_OK;
}
