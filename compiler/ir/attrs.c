// SPDX-License-Identifier: Apache-2.0
// Clone, equality, hash and print of attribute records, one function per value kind; the records
// themselves are loops over attrs.def. Parsing is in parse_attr.c.
#include "compiler/ir/attrs.h"

#include "base/hash.h"

// ---- enumerated kinds: name tables from enums.def

#define V(name)             #name,
#define ENUMS(kind, values) const char *const hlo_enum_##kind[] = {values NULL};
#include "compiler/ir/enums.def"
#undef ENUMS
#undef V
// ORDER enums.def
_Static_assert(CMP_LT == 5 && CMPT_UNSIGNED == 4 && FUSION_CUSTOM == 3 && RNG_PHILOX == 2 &&
                   FFT_IRFFT == 3 && TRI_ADJOINT == 2,
               "attrs.h and enums.def disagree");
_Static_assert(CUSTOM_TYPED_FFI == 4, "attrs.h and enums.def disagree");

// ---- small helpers

struct i64s i64s_of(struct arena *a, const int64_t *v, int n) {
    return (struct i64s){n ? arena_dup_array(a, v, n) : NULL, n};
}
bool i64s_eq(struct i64s a, struct i64s b) {
    return a.n == b.n && (a.n == 0 || memcmp(a.v, b.v, sizeof *a.v * (size_t)a.n) == 0);
}
bool i64s_has(struct i64s a, int64_t x) {
    for (int k = 0; k < a.n; k++)
        if (a.v[k] == x) return true;
    return false;
}

// ---- clone: scalars are copied with the record, arrays follow

#define CLONE_NOTHING(a, x)    ((void)(a), (void)(x))
#define CLONE_ARRAY(a, x)      ((x)->v = (x)->n ? arena_dup_array((a), (x)->v, (x)->n) : NULL)
#define CLONE_i64              CLONE_NOTHING
#define CLONE_f32              CLONE_NOTHING
#define CLONE_flag             CLONE_NOTHING
#define CLONE_labels           CLONE_NOTHING
#define CLONE_i64s             CLONE_ARRAY
#define CLONE_window           CLONE_ARRAY
#define CLONE_padding          CLONE_ARRAY
#define CLONE_ranges           CLONE_ARRAY
#define CLONE_str(a, x)        ((x)->p = arena_strndup((a), (x)->p ? (x)->p : "", (x)->n))
#define CLONE_cmp_direction    CLONE_NOTHING
#define CLONE_cmp_type         CLONE_NOTHING
#define CLONE_fusion_kind      CLONE_NOTHING
#define CLONE_rng_distribution CLONE_NOTHING
#define CLONE_rng_algorithm    CLONE_NOTHING
#define CLONE_fft_type         CLONE_NOTHING
#define CLONE_transpose_a      CLONE_NOTHING
#define CLONE_custom_api       CLONE_NOTHING

// Defaults of a record that is not given: the third column of F.
enum { REQ = 0, OPT = 0, ALW = 0 };
#define SET_i64(x, d)        ((x) = (d))
#define SET_f32(x, d)        ((x) = (float)(d))
#define SET_flag(x, d)       ((x) = (d) != 0)
#define SET_OTHER(x, d)      ((void)(x), (void)(d))
#define SET_i64s             SET_OTHER
#define SET_str              SET_OTHER
#define SET_window           SET_OTHER
#define SET_labels           SET_OTHER
#define SET_padding          SET_OTHER
#define SET_ranges           SET_OTHER
#define SET_cmp_direction    SET_OTHER
#define SET_cmp_type         SET_OTHER
#define SET_fusion_kind      SET_OTHER
#define SET_rng_distribution SET_OTHER
#define SET_rng_algorithm    SET_OTHER
#define SET_fft_type         SET_OTHER
#define SET_transpose_a      SET_OTHER
#define SET_custom_api       SET_OTHER

#define F(kind, name, def, ...) SET_##kind(r->name, def);
#define ATTR(record, fields)                                                                       \
    static void defaults_##record(struct hlo_attr_##record *r) {                                   \
        (void)r;                                                                                   \
        fields                                                                                     \
    }
#include "compiler/ir/attrs.def"
#undef ATTR
#undef F

#define F(kind, name, def, ...) CLONE_##kind(a, &r->name);
#define ATTR(record, fields)                                                                       \
    static void *clone_##record(struct arena *a, const void *in) {                                 \
        struct hlo_attr_##record *r = arena_new_of(a, struct hlo_attr_##record);                   \
        if (in)                                                                                    \
            *r = *(const struct hlo_attr_##record *)in;                                            \
        else                                                                                       \
            defaults_##record(r);                                                                  \
        fields return r;                                                                           \
    }
#include "compiler/ir/attrs.def"
#undef ATTR
#undef F

void *attr_clone(struct arena *a, enum hlo_attr_kind k, const void *attr) {
    switch (k) {
#define ATTR(record, fields)                                                                       \
    case ATTR_##record:                                                                            \
        return clone_##record(a, attr);
#include "compiler/ir/attrs.def"
#undef ATTR
    case ATTR_KIND_COUNT:
        break;
    }
    return NULL;
}

// ---- equality and hash: over a canonical byte stream of the fields

struct sink {
    struct strbuf b;
};
static void put(struct sink *s, const void *p, size_t n) {
    strbuf_add(&s->b, p, n);
}
static void put_i64(struct sink *s, int64_t v) {
    put(s, &v, sizeof v);
}
#define WRITE_i64(x)              put_i64(s, x)
#define WRITE_f32(x)              put(s, &(x), sizeof(x))
#define WRITE_flag(x)             put_i64(s, x)
#define WRITE_i64s(x)             (put_i64(s, (x).n), put(s, (x).v, sizeof *(x).v * (size_t)(x).n))
#define WRITE_str(x)              (put_i64(s, (int64_t)(x).n), put(s, (x).p, (x).n))
#define WRITE_window(x)           write_window(s, &(x))
#define WRITE_labels(x)           write_labels(s, &(x))
#define WRITE_padding(x)          (put_i64(s, (x).n), put(s, (x).v, sizeof *(x).v * (size_t)(x).n))
#define WRITE_ranges(x)           (put_i64(s, (x).n), put(s, (x).v, sizeof *(x).v * (size_t)(x).n))
#define WRITE_cmp_direction(x)    put_i64(s, (int64_t)(x))
#define WRITE_cmp_type(x)         put_i64(s, (int64_t)(x))
#define WRITE_fusion_kind(x)      put_i64(s, (int64_t)(x))
#define WRITE_rng_distribution(x) put_i64(s, (int64_t)(x))
#define WRITE_rng_algorithm(x)    put_i64(s, (int64_t)(x))
#define WRITE_fft_type(x)         put_i64(s, (int64_t)(x))
#define WRITE_transpose_a(x)      put_i64(s, (int64_t)(x))
#define WRITE_custom_api(x)       put_i64(s, (int64_t)(x))

static void write_window(struct sink *s, const struct window *w) {
    put_i64(s, w->n);
    for (int k = 0; k < w->n; k++) { // field by field: the struct has padding
        const struct window_dim *d = &w->v[k];
        put(s,
            (int64_t[]){d->size, d->stride, d->pad_low, d->pad_high, d->base_dilation,
                        d->window_dilation, d->reversal},
            7 * sizeof(int64_t));
    }
}
static void write_labels(struct sink *s, const struct labels *l) {
    put(s,
        (int32_t[]){l->n_spatial, l->in_batch, l->in_feature, l->k_in, l->k_out, l->out_batch,
                    l->out_feature},
        7 * sizeof(int32_t));
    size_t n = sizeof(int32_t) * (size_t)l->n_spatial;
    put(s, l->in_spatial, n);
    put(s, l->k_spatial, n);
    put(s, l->out_spatial, n);
}

#define F(kind, name, def, ...) WRITE_##kind(r->name);
#define ATTR(record, fields)                                                                       \
    static void rec_write_##record(struct sink *s, const struct hlo_attr_##record *r) {            \
        (void)s, (void)r;                                                                          \
        fields                                                                                     \
    }
#include "compiler/ir/attrs.def"
#undef ATTR
#undef F

static void write_attr(struct sink *s, enum hlo_attr_kind k, const void *attr) {
    if (!attr) return;
    switch (k) {
#define ATTR(record, fields)                                                                       \
    case ATTR_##record:                                                                            \
        rec_write_##record(s, attr);                                                               \
        break;
#include "compiler/ir/attrs.def"
#undef ATTR
    case ATTR_KIND_COUNT:
        break;
    }
}

bool attr_equal(enum hlo_attr_kind k, const void *a, const void *b) {
    if (a == b) return true;
    struct sink x = {0}, y = {0};
    write_attr(&x, k, a);
    write_attr(&y, k, b);
    bool same = x.b.n == y.b.n && (x.b.n == 0 || memcmp(x.b.p, y.b.p, x.b.n) == 0);
    strbuf_done(&x.b);
    strbuf_done(&y.b);
    return same;
}
uint64_t attr_hash(enum hlo_attr_kind k, const void *attr) {
    struct sink s = {0};
    write_attr(&s, k, attr);
    uint64_t h = hash64(s.b.p, s.b.n, (uint64_t)k);
    strbuf_done(&s.b);
    return h;
}

// ---- print: ", name=value"

static void print_i64s(struct strbuf *b, struct i64s v) {
    strbuf_putc(b, '{');
    for (int k = 0; k < v.n; k++) {
        if (k) strbuf_putc(b, ',');
        strbuf_i64(b, v.v[k]);
    }
    strbuf_putc(b, '}');
}

// One window attribute, "stride=2x2", when some dimension differs from `plain`.
static void window_field(struct strbuf *b, const struct window *w, const char *name, size_t offset,
                         int64_t plain) {
    bool all_plain = true;
    for (int k = 0; k < w->n; k++)
        all_plain &= *(const int64_t *)((const char *)&w->v[k] + offset) == plain;
    if (all_plain) return;
    strbuf_putc(b, ' ');
    strbuf_puts(b, name);
    strbuf_putc(b, '=');
    for (int k = 0; k < w->n; k++) {
        if (k) strbuf_putc(b, 'x');
        strbuf_i64(b, *(const int64_t *)((const char *)&w->v[k] + offset));
    }
}

static void print_window(struct strbuf *b, const struct window *w) {
    strbuf_puts(b, "{size=");
    bool pads = false, reversed = false;
    for (int k = 0; k < w->n; k++) {
        if (k) strbuf_putc(b, 'x');
        strbuf_i64(b, w->v[k].size);
        pads |= w->v[k].pad_low || w->v[k].pad_high;
        reversed |= w->v[k].reversal;
    }
    window_field(b, w, "stride", offsetof(struct window_dim, stride), 1);
    if (pads) {
        strbuf_puts(b, " pad=");
        for (int k = 0; k < w->n; k++) {
            if (k) strbuf_putc(b, 'x');
            strbuf_i64(b, w->v[k].pad_low);
            strbuf_putc(b, '_');
            strbuf_i64(b, w->v[k].pad_high);
        }
    }
    window_field(b, w, "lhs_dilate", offsetof(struct window_dim, base_dilation), 1);
    window_field(b, w, "rhs_dilate", offsetof(struct window_dim, window_dilation), 1);
    if (reversed) {
        strbuf_puts(b, " rhs_reversal=");
        for (int k = 0; k < w->n; k++)
            strbuf_printf(b, "%s%d", k ? "x" : "", w->v[k].reversal);
    }
    strbuf_putc(b, '}');
}

static void label_group(struct strbuf *b, int n, int first, char c1, int second, char c2,
                        const int32_t *spatial) {
    char t[HLO_MAX_RANK + 2] = {0};
    t[first] = c1;
    t[second] = c2;
    for (int k = 0; k < n; k++)
        t[spatial[k]] = (char)('0' + k);
    strbuf_add(b, t, (size_t)n + 2);
}
static void print_labels(struct strbuf *b, const struct labels *l) {
    label_group(b, l->n_spatial, l->in_batch, 'b', l->in_feature, 'f', l->in_spatial);
    strbuf_putc(b, '_');
    label_group(b, l->n_spatial, l->k_in, 'i', l->k_out, 'o', l->k_spatial);
    strbuf_puts(b, "->");
    label_group(b, l->n_spatial, l->out_batch, 'b', l->out_feature, 'f', l->out_spatial);
}
static void print_padding(struct strbuf *b, const struct padding *p) {
    for (int k = 0; k < p->n; k++) {
        strbuf_printf(b, "%s%lld_%lld", k ? "x" : "", (long long)p->v[k].low,
                      (long long)p->v[k].high);
        if (p->v[k].interior) strbuf_printf(b, "_%lld", (long long)p->v[k].interior);
    }
}
static void print_ranges(struct strbuf *b, const struct ranges *r) {
    strbuf_putc(b, '{');
    for (int k = 0; k < r->n; k++) {
        strbuf_printf(b, "%s[%lld:%lld", k ? ", " : "", (long long)r->v[k].start,
                      (long long)r->v[k].limit);
        if (r->v[k].stride != 1) strbuf_printf(b, ":%lld", (long long)r->v[k].stride);
        strbuf_putc(b, ']');
    }
    strbuf_putc(b, '}');
}

// Required fields are always printed; others when they differ from their default.
#define SHOW_i64(x, d, must)     ((must) || (x) != (d))
#define SHOW_f32(x, d, must)     (1)
#define SHOW_flag(x, d, must)    (x)
#define SHOW_i64s(x, d, must)    ((must) || (x).n)
#define SHOW_str(x, d, must)     ((must) || (x).n)
#define SHOW_window(x, d, must)  ((x).n)
#define SHOW_labels(x, d, must)  (1)
#define SHOW_padding(x, d, must) (1)
#define SHOW_ranges(x, d, must)  (1)
#define SHOW_ENUM(x, d, must)    ((must) || (int)(x) != 0)
#define SHOW_cmp_direction       SHOW_ENUM
#define SHOW_cmp_type            SHOW_ENUM
#define SHOW_fusion_kind         SHOW_ENUM
#define SHOW_rng_distribution    SHOW_ENUM
#define SHOW_rng_algorithm       SHOW_ENUM
#define SHOW_fft_type            SHOW_ENUM
#define SHOW_transpose_a         SHOW_ENUM
#define SHOW_custom_api          SHOW_ENUM

#define PRINT_i64(x)              strbuf_i64(b, x)
#define PRINT_f32(x)              attr_print_f32(b, x)
#define PRINT_flag(x)             strbuf_puts(b, (x) ? "true" : "false")
#define PRINT_i64s(x)             print_i64s(b, x)
#define PRINT_str(x)              hlo_quote(b, x)
#define PRINT_window(x)           print_window(b, &(x))
#define PRINT_labels(x)           print_labels(b, &(x))
#define PRINT_padding(x)          print_padding(b, &(x))
#define PRINT_ranges(x)           print_ranges(b, &(x))
#define PRINT_cmp_direction(x)    strbuf_puts(b, hlo_enum_cmp_direction[x])
#define PRINT_cmp_type(x)         strbuf_puts(b, hlo_enum_cmp_type[x])
#define PRINT_fusion_kind(x)      strbuf_puts(b, hlo_enum_fusion_kind[x])
#define PRINT_rng_distribution(x) strbuf_puts(b, hlo_enum_rng_distribution[x])
#define PRINT_rng_algorithm(x)    strbuf_puts(b, hlo_enum_rng_algorithm[x])
#define PRINT_fft_type(x)         strbuf_puts(b, hlo_enum_fft_type[x])
#define PRINT_transpose_a(x)      strbuf_puts(b, hlo_enum_transpose_a[x])
#define PRINT_custom_api(x)       strbuf_puts(b, hlo_enum_custom_api[x])

static void attr_print_f32(struct strbuf *b, float v) {
    struct strbuf t = {0};
    for (int digits = 1; digits <= 9; digits++) {
        double back = 0;
        strbuf_clear(&t);
        strbuf_printf(&t, "%.*g", digits, (double)v);
        if (str_to_f64((struct str){t.p, t.n}, &back) && (float)back == v) break;
    }
    strbuf_add(b, t.p, t.n);
    strbuf_done(&t);
}

#define MUST_REQ 1
#define MUST_OPT 0
#define MUST_ALW 1
#define MUST_1   0
#define F(kind, name, def, ...)                                                                    \
    if (SHOW_##kind(r->name, def, MUST_##def)) {                                                   \
        strbuf_puts(b, ", " #name "=");                                                            \
        PRINT_##kind(r->name);                                                                     \
    }
#define ATTR(record, fields)                                                                       \
    static void rec_print_##record(struct strbuf *b, const struct hlo_attr_##record *r) {          \
        (void)b, (void)r;                                                                          \
        fields                                                                                     \
    }
#include "compiler/ir/attrs.def"
#undef ATTR
#undef F

void attr_print(struct strbuf *b, enum hlo_attr_kind k, const void *attr) {
    if (!attr) return;
    switch (k) {
#define ATTR(record, fields)                                                                       \
    case ATTR_##record:                                                                            \
        rec_print_##record(b, attr);                                                               \
        break;
#include "compiler/ir/attrs.def"
#undef ATTR
    case ATTR_KIND_COUNT:
        break;
    }
}

bool attr_has_field(enum hlo_attr_kind k, struct str name) {
    switch (k) {
#define F(kind, field, def, ...) || str_is(name, #field)
#define ATTR(record, fields)                                                                       \
    case ATTR_##record:                                                                            \
        return false fields;
#include "compiler/ir/attrs.def"
#undef ATTR
#undef F
    case ATTR_KIND_COUNT:
        break;
    }
    return false;
}

bool labels_in_order(const struct labels *l, int k_out) {
    for (int d = 0; d < l->n_spatial; d++)
        if (l->in_spatial[d] != d + 2 || l->k_spatial[d] != d + 2 || l->out_spatial[d] != d + 2)
            return false;
    return l->in_batch == 0 && l->in_feature == 1 && l->out_batch == 0 && l->out_feature == 1 &&
           l->k_out == k_out && l->k_in == 1 - k_out;
}
