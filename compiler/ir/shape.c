// SPDX-License-Identifier: Apache-2.0
// Element types and shapes. All arithmetic on sizes that a foreign module chose is checked once, in
// shape_check; the rest relies on it.
#include "compiler/ir/shape.h"

#include <math.h>
#include <string.h>

struct dtype_row {
    const char *name, *numpy;
    int bits, size, xla, onnx;
    enum dtype_class cls;
};
static const struct dtype_row rows[DT_COUNT] = {
    [DT_INVALID] = {"invalid", "", 0, 0, 0, 0, DC_NONE},
#define DTYPE(e, text, bits, cls, size, xla, onnx, np)                                             \
    [DT_##e] = {text, np, bits, size, xla, onnx, DC_##cls},
#include "compiler/ir/dtype.def"
#undef DTYPE
};

static const struct dtype_row *row(enum dtype t) {
    return &rows[(unsigned)t < DT_COUNT ? t : DT_INVALID];
}
const char *dtype_name(enum dtype t) {
    return row(t)->name;
}
int dtype_size(enum dtype t) {
    return row(t)->size;
}
int dtype_bits(enum dtype t) {
    return row(t)->bits;
}
double dtype_lowest(enum dtype t) {
    if (dtype_is_float(t)) return -(double)INFINITY;
    return dtype_class(t) == DC_SIGNED ? -ldexp(1, dtype_bits(t) - 1) : 0;
}
double dtype_highest(enum dtype t) {
    if (dtype_is_float(t)) return (double)INFINITY;
    return ldexp(1, dtype_bits(t) - (dtype_class(t) == DC_SIGNED)) - 1;
}
int dtype_to_onnx(enum dtype t) {
    return row(t)->onnx;
}
int dtype_to_xla(enum dtype t) {
    return row(t)->xla;
}
enum dtype_class dtype_class(enum dtype t) {
    return row(t)->cls;
}
bool dtype_same_codes(enum dtype x, enum dtype y) {
    bool narrow = dtype_bits(x) < 8 || dtype_bits(y) < 8;
    bool is_signed = dtype_class(x) == DC_SIGNED || dtype_class(y) == DC_SIGNED;
    return !narrow || (dtype_bits(x) == dtype_bits(y) && !is_signed);
}

static uint8_t whole_code(uint8_t code, uint8_t mask, uint8_t sign) {
    return (uint8_t)(((code & mask) ^ sign) - sign);
}
// Has a byte bits beyond `mask` that are not as they should be: like the sign, which is mask's
// highest, or 0?
static bool has_strange(struct span bytes, uint8_t mask, bool is_signed) {
    const uint64_t beyond = (uint8_t)~mask * UINT64_C(0x0101010101010101);
    uint64_t wrong = 0, w;
    size_t k = 0;
    for (; bytes.n - k >= sizeof w; k += sizeof w) { // each bit beyond beside the one below it
        memcpy(&w, bytes.p + k, sizeof w);
        wrong |= is_signed ? w ^ w << 1 : w;
    }
    for (; k < bytes.n; k++)
        wrong |= is_signed ? (uint64_t)(bytes.p[k] ^ bytes.p[k] << 1) : bytes.p[k];
    return wrong & beyond;
}
struct span dtype_whole_codes(struct arena *a, enum dtype t, struct span bytes) {
    int unused = t == DT_PRED ? 7 : dtype_size(t) == 1 ? 8 - dtype_bits(t) : 0;
    uint8_t mask = (uint8_t)(0xFF >> unused);
    bool is_signed = dtype_class(t) == DC_SIGNED;
    uint8_t sign = is_signed ? (uint8_t)((mask >> 1) + 1) : 0;
    if (!unused || !has_strange(bytes, mask, is_signed)) return bytes;

    uint8_t *to = arena_alloc_aligned(a, bytes.n + 64, 64);
    for (size_t k = 0; k < bytes.n; k++)
        to[k] = t == DT_PRED ? bytes.p[k] != 0 : whole_code(bytes.p[k], mask, sign);
    return (struct span){to, bytes.n};
}

enum dtype dtype_from_name(struct str name) {
    for (int t = 1; t < DT_COUNT; t++)
        if (str_is(name, rows[t].name)) return (enum dtype)t;
    return DT_INVALID;
}
enum dtype dtype_from_onnx(int code) {
    for (int t = 1; t < DT_COUNT; t++)
        if (code && rows[t].onnx == code) return (enum dtype)t;
    return DT_INVALID;
}
enum dtype dtype_from_xla(int code) {
    for (int t = 1; t < DT_COUNT; t++)
        if (code && rows[t].xla == code) return (enum dtype)t;
    return DT_INVALID;
}

// ---- construction

const struct shape *shape_make(struct arena *a, enum dtype t, const int64_t *dims, int rank) {
    struct shape *s = arena_new_of(a, struct shape);
    s->dtype = t;
    s->rank = rank;
    s->dims = rank ? arena_dup_array(a, dims, rank) : NULL;
    return s;
}
const struct shape *shape_scalar(struct arena *a, enum dtype t) {
    return shape_make(a, t, NULL, 0);
}

const struct shape *shape_tuple(struct arena *a, const struct shape *const *elems, int n) {
    struct shape *s = arena_new_of(a, struct shape);
    s->dtype = DT_TUPLE;
    s->n_elems = n;
    s->n_nodes = 1;
    for (int k = 0; k < n && s->n_nodes <= SHAPE_MAX_NODES; k++) {
        const struct shape *e = elems[k];
        s->n_nodes += shape_is_tuple(e) ? e->n_nodes : 1; // each at most twice the bound
        s->n_leaves += shape_leaves(e);
        if (e->n_levels > s->n_levels) s->n_levels = e->n_levels;
    }
    if (s->n_levels <= SHAPE_MAX_LEVELS) s->n_levels++;
    s->elems = n ? (const struct shape **)arena_dup(a, elems, sizeof *elems * (size_t)n) : NULL;
    if (s->n_leaves == n && s->n_nodes == n + 1) return s; // arrays alone
    s->first_leaf = arena_array(a, int32_t, n + 1);
    for (int k = 0, leaves = 0; k < n; k++) {
        s->first_leaf[k] = leaves;
        if (leaves <= SHAPE_MAX_NODES) leaves += shape_leaves(elems[k]);
    }
    return s;
}
const struct shape *shape_with_dtype(struct arena *a, const struct shape *s, enum dtype t) {
    if (s->dtype == t) return s;
    struct shape *r = arena_dup(a, s, sizeof *s);
    r->dtype = t;
    return r;
}
const struct shape *shape_with_layout(struct arena *a, const struct shape *s,
                                      const struct layout *l) {
    if (layout_equal(s->layout, l, s->rank)) return s;
    struct shape *r = arena_dup(a, s, sizeof *s);
    r->layout = l ? arena_dup(a, l, sizeof *l) : NULL;
    return r;
}

status_t shape_check(const struct shape *s, int64_t max_bytes) {
    if (shape_is_tuple(s)) {
        if (s->n_nodes > SHAPE_MAX_NODES || s->n_levels > SHAPE_MAX_LEVELS)
            return st_exhausted("a tuple of more than %d elements, or nested deeper than %d",
                                SHAPE_MAX_NODES, SHAPE_MAX_LEVELS);
        for (int k = 0; k < s->n_elems; k++)
            RETURN_IF_ERR(shape_check(s->elems[k], max_bytes));
        return ST_OK;
    }
    if (s->rank < 0 || s->rank > HLO_MAX_RANK)
        return st_invalid("rank %d is above %d", s->rank, HLO_MAX_RANK);
    // Zeros are left out of the product, so that a zero cannot hide an overflow of the strides.
    // Twice the size allows for tile padding.
    int64_t n = dtype_size(s->dtype) > 0 ? dtype_size(s->dtype) : 1;
    for (int d = 0; d < s->rank; d++) {
        if (s->dims[d] < 0) return st_invalid("dimension %d is negative", d);
        int64_t f = s->dims[d] ? s->dims[d] : 1;
        if (!sz_mul(n, f, &n))
            return st_invalid("the size of dimension product overflows 64 bits at dimension %d", d);
    }
    if (n > INT64_MAX / 64) return st_invalid("the value would take %lld bytes", (long long)n);
    if (max_bytes && n > max_bytes)
        return st_exhausted("the value would take %lld bytes, the budget is %lld", (long long)n,
                            (long long)max_bytes);
    return ST_OK;
}

// ---- questions

int64_t shape_elements(const struct shape *s) {
    if (shape_is_tuple(s)) return 0;
    int64_t n = 1;
    for (int d = 0; d < s->rank; d++)
        n *= s->dims[d];
    return n;
}

int64_t shape_bytes(const struct shape *s) {
    if (shape_is_tuple(s)) {
        int64_t n = 0;
        for (int k = 0; k < s->n_elems; k++)
            n += shape_bytes(s->elems[k]);
        return n;
    }
    int64_t n = dtype_size(s->dtype);
    struct shape_phys p;
    shape_physical(s, &p);
    for (int d = 0; d < p.rank; d++)
        n *= p.dims[d];
    return n;
}

int shape_leaves(const struct shape *s) {
    return shape_is_tuple(s) ? s->n_leaves : 1;
}

const struct shape *shape_leaf(const struct shape *s, int k) {
    if (!shape_is_tuple(s)) return k == 0 ? s : NULL;
    int e = shape_element_of(s, k);
    return e < 0 ? NULL : shape_leaf(s->elems[e], k - shape_first_leaf(s, e));
}
int shape_element_of(const struct shape *tuple, int leaf) {
    if (leaf < 0 || leaf >= tuple->n_leaves) return -1;
    if (!tuple->first_leaf) return leaf;
    int e = 0, end = tuple->n_elems; // the last that begins at the leaf or before it
    while (end - e > 1) {
        int middle = e + (end - e) / 2;
        *(tuple->first_leaf[middle] <= leaf ? &e : &end) = middle;
    }
    return e;
}
int shape_first_leaf(const struct shape *tuple, int k) {
    return tuple->first_leaf ? tuple->first_leaf[k] : k;
}

bool shape_same_dims(const struct shape *a, const struct shape *b) {
    return a->rank == b->rank &&
           (a->rank == 0 || memcmp(a->dims, b->dims, sizeof *a->dims * (size_t)a->rank) == 0);
}

static bool same(const struct shape *a, const struct shape *b, bool layouts) {
    if (a == b) return true;
    if (a->dtype != b->dtype) return false;
    if (shape_is_tuple(a)) {
        if (a->n_elems != b->n_elems) return false;
        for (int k = 0; k < a->n_elems; k++)
            if (!same(a->elems[k], b->elems[k], layouts)) return false;
        return true;
    }
    if (!shape_same_dims(a, b)) return false;
    for (int d = 0; layouts && d < a->rank; d++)
        if ((a->dynamic && a->dynamic[d]) != (b->dynamic && b->dynamic[d])) return false;
    return !layouts || layout_equal(a->layout, b->layout, a->rank);
}
bool shape_compatible(const struct shape *a, const struct shape *b) {
    return same(a, b, false);
}
bool shape_equal(const struct shape *a, const struct shape *b) {
    return same(a, b, true);
}

bool layout_is_default(const struct layout *l, int rank) {
    if (!l) return true;
    if (l->tile_rank || l->rest) return false;
    for (int k = 0; k < rank; k++)
        if (l->minor_to_major[k] != rank - 1 - k) return false;
    return true;
}

bool shape_in_order(const struct shape *s) {
    return !shape_is_tuple(s) && !s->dynamic && layout_is_default(s->layout, s->rank);
}

bool layout_equal(const struct layout *a, const struct layout *b, int rank) {
    if (a == b) return true;
    bool da = layout_is_default(a, rank), db = layout_is_default(b, rank);
    if (da || db) return da && db;
    if (memcmp(a->minor_to_major, b->minor_to_major, (size_t)rank) != 0 ||
        a->tile_rank != b->tile_rank)
        return false;
    for (int k = 0; k < a->tile_rank; k++)
        if (a->tile[k] != b->tile[k]) return false;
    return strcmp(a->rest ? a->rest : "", b->rest ? b->rest : "") == 0;
}

// ---- the physical view

void shape_physical(const struct shape *s, struct shape_phys *out) {
    const struct layout *l = s->layout;
    int rank = s->rank, tiled = l && l->tile_rank > 0 && l->tile_rank <= rank ? l->tile_rank : 0;
    out->rank = 0;
    out->padded = false;
    // Major to minor; the last `tiled` of them give a block number here and the position in the
    // block at the end.
    for (int k = rank - 1; k >= 0; k--) {
        int d = l ? l->minor_to_major[k] : rank - 1 - k;
        int32_t t = k < tiled ? l->tile[tiled - 1 - k] : 1;
        int64_t n = (s->dims[d] + t - 1) / t;
        if (n * t != s->dims[d]) out->padded = true;
        out->dims[out->rank] = n;
        out->of[out->rank] = (int8_t)d;
        out->step[out->rank++] = t;
    }
    for (int k = tiled - 1; k >= 0; k--) {
        int32_t t = l->tile[tiled - 1 - k];
        if (t == 1) continue;
        out->dims[out->rank] = t;
        out->of[out->rank] = l->minor_to_major[k];
        out->step[out->rank++] = 1;
    }
}

int64_t shape_offset(const struct shape *s, const int64_t *index) {
    struct shape_phys p;
    shape_physical(s, &p);
    int64_t rest[HLO_MAX_RANK], off = 0;
    for (int d = 0; d < s->rank; d++)
        rest[d] = index[d];
    for (int k = 0; k < p.rank; k++) {
        int d = p.of[k];
        int64_t i = rest[d] / p.step[k];
        rest[d] -= i * p.step[k];
        off = off * p.dims[k] + i;
    }
    return off;
}

void shape_strides(const struct shape *s, int64_t *out) {
    int64_t n = 1;
    for (int k = 0; k < s->rank; k++) {
        int d = s->layout ? s->layout->minor_to_major[k] : s->rank - 1 - k;
        out[d] = n;
        n *= s->dims[d];
    }
}

// ---- text

void shape_print(struct strbuf *b, const struct shape *s, bool with_layout) {
    if (shape_is_tuple(s)) {
        strbuf_putc(b, '(');
        for (int k = 0; k < s->n_elems; k++) {
            if (k) strbuf_puts(b, ", ");
            shape_print(b, s->elems[k], with_layout);
        }
        strbuf_putc(b, ')');
        return;
    }

    strbuf_puts(b, dtype_name(s->dtype));
    strbuf_putc(b, '[');
    for (int d = 0; d < s->rank; d++) {
        if (d) strbuf_putc(b, ',');
        if (s->unbounded >> d & 1) {
            strbuf_putc(b, '?');
            continue;
        }
        if (s->dynamic && s->dynamic[d]) strbuf_puts(b, "<=");
        strbuf_i64(b, s->dims[d]);
    }
    strbuf_putc(b, ']');

    bool plain = layout_is_default(s->layout, s->rank);
    if (plain && (!with_layout || s->rank == 0)) return;
    strbuf_putc(b, '{');
    for (int k = 0; k < s->rank; k++) {
        if (k) strbuf_putc(b, ',');
        strbuf_i64(b, s->layout ? s->layout->minor_to_major[k] : s->rank - 1 - k);
    }

    if (s->layout && (s->layout->tile_rank || s->layout->rest)) strbuf_putc(b, ':');
    if (s->layout && s->layout->tile_rank) {
        strbuf_puts(b, "T(");
        for (int k = 0; k < s->layout->tile_rank; k++)
            strbuf_printf(b, "%s%d", k ? "," : "", s->layout->tile[k]);
        strbuf_putc(b, ')');
    }
    if (s->layout && s->layout->rest) strbuf_puts(b, s->layout->rest);
    strbuf_putc(b, '}');
}

const char *shape_text(struct arena *a, const struct shape *s) {
    struct strbuf b = {0};
    shape_print(&b, s, false);
    const char *t = arena_strndup(a, strbuf_cstr(&b), b.n);
    strbuf_done(&b);
    return t;
}
