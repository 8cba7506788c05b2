// SPDX-License-Identifier: Apache-2.0
// shape: element type, dimensions and layout of a value, or a tuple of shapes. Shapes are immutable
// once made and live in a module's arena; they may be shared freely by pointer. A layout is XLA's:
// minor_to_major, and optionally one tile over the minor dimensions. The tile T(16,1,1) on
// {3,2,1,0} of an NCHW value is what libraries call nChw16c: dimensions are padded up to the tile,
// and the PADDING IS ALWAYS ZERO (every producer keeps that). dims[i] < 0 never occurs; a dynamic
// dimension has its bound in dims[i] and dynamic[i] set.
#pragma once
#include "base/arena.h"
#include "base/span.h"
#include "base/status.h"
#include "base/str.h"

enum { HLO_MAX_RANK = 16 };

enum dtype {
    DT_INVALID = 0,
#define DTYPE(e, text, bits, cls, size, xla, onnx, np) DT_##e,
#include "compiler/ir/dtype.def"
#undef DTYPE
    DT_COUNT
};
enum dtype_class { DC_NONE, DC_PRED, DC_SIGNED, DC_UNSIGNED, DC_FLOAT, DC_COMPLEX };
const char *dtype_name(enum dtype t);        // "f32"
enum dtype dtype_from_name(struct str name); // DT_INVALID if unknown
enum dtype dtype_from_onnx(int code);        // DT_INVALID if none
int dtype_to_onnx(enum dtype t);             // 0 if none
enum dtype dtype_from_xla(int code);
int dtype_to_xla(enum dtype t);
int dtype_size(enum dtype t); // bytes of a stored element
int dtype_bits(enum dtype t);
// The least and the greatest value: infinities of floats; of 64 bits the greatest is rounded up.
double dtype_lowest(enum dtype t);
double dtype_highest(enum dtype t);
enum dtype_class dtype_class(enum dtype t);
// Does a value of x lie in memory as one of the same bits does as y? Elements below a byte lie in
// one each; the other bits of signed integers are like the sign.
bool dtype_same_codes(enum dtype x, enum dtype y);
// Elements of t as this compiler's code expects them. Whoever made them may have left other bits in
// bytes that hold fewer (MLIR's bytecode and ml_dtypes have -8 of s4 as 0x08; a pred of 2): bytes
// itself where all are as they should be, else a copy in `a`, aligned to 64 bytes.
struct span dtype_whole_codes(struct arena *a, enum dtype t, struct span bytes);
static inline bool dtype_is_int(enum dtype t) {
    return dtype_class(t) == DC_SIGNED || dtype_class(t) == DC_UNSIGNED;
}
static inline bool dtype_is_float(enum dtype t) {
    return dtype_class(t) == DC_FLOAT;
}
static inline bool dtype_is_complex(enum dtype t) {
    return dtype_class(t) == DC_COMPLEX;
}

struct layout {
    int8_t minor_to_major[HLO_MAX_RANK]; // [rank]
    int8_t tile_rank;                    // 0 = no tile
    int32_t tile[HLO_MAX_RANK]; // [tile_rank] over the tile_rank minor dimensions, major first
    const char
        *rest; // anything else between the braces, kept verbatim for printing ("S(1)"), or NULL
};
struct shape {
    enum dtype dtype;   // DT_TUPLE for a tuple
    int32_t rank;       // 0 for tuples
    int64_t *dims;      // [rank]
    bool *dynamic;      // [rank] or NULL = none is dynamic
    uint16_t unbounded; // bit d: dimension d is dynamic without a bound ("?"), dims[d] is 0
    const struct layout *layout; // NULL = default: row-major, no tile
    int32_t n_elems;             // tuples
    int32_t n_leaves, n_levels;  // tuples; saturated beyond what shape_check lets by
    int32_t n_nodes;             // of the tree: itself and those of its elements; the same
    const struct shape **elems;  // [n_elems]
    int32_t *first_leaf;         // [n_elems] of tuples in a tuple: leaves before each; else NULL
};

const struct shape *shape_make(struct arena *a, enum dtype t, const int64_t *dims,
                               int rank); // dims copied; size must have been checked
const struct shape *shape_scalar(struct arena *a, enum dtype t);
const struct shape *shape_tuple(struct arena *a, const struct shape *const *elems, int n);
const struct shape *shape_with_dtype(struct arena *a, const struct shape *s,
                                     enum dtype t); // same dims and layout
const struct shape *shape_with_layout(struct arena *a, const struct shape *s,
                                      const struct layout *l); // l copied; NULL = default
// Checks rank <= HLO_MAX_RANK, dims >= 0, and that the byte size fits in int64 and in max_bytes (0
// = no cap); of tuples that they are no larger and nest no deeper than these. Elements that many
// tuples share make shapes that no walk ends over.
enum { SHAPE_MAX_NODES = 1 << 16, SHAPE_MAX_LEVELS = 64 };
status_t shape_check(const struct shape *s, int64_t max_bytes) MUST_CHECK;

static inline bool shape_is_tuple(const struct shape *s) {
    return s->dtype == DT_TUPLE;
}
int64_t shape_elements(const struct shape *s); // logical elements; tuples: 0
int64_t shape_bytes(
    const struct shape *s); // bytes of the buffer, tile padding counted; tuples: sum over leaves
int shape_leaves(const struct shape *s); // flattened non-tuple leaves, 1 for an array
const struct shape *shape_leaf(const struct shape *s, int k); // k-th leaf in depth-first order
int shape_first_leaf(const struct shape *tuple, int k);       // how many stand before element k's
int shape_element_of(const struct shape *tuple, int leaf);    // whose leaf it is; -1: there is none
bool shape_same_dims(const struct shape *a, const struct shape *b); // dims only
bool shape_compatible(const struct shape *a,
                      const struct shape *b); // dtype and dims, recursively; layout ignored
bool shape_equal(const struct shape *a, const struct shape *b); // layout too
bool layout_is_default(const struct layout *l, int rank);       // NULL or row-major without tile
// An array whose elements lie row by row, as many as the shape says.
bool shape_in_order(const struct shape *s);
bool layout_equal(const struct layout *a, const struct layout *b, int rank);

// The physical view: the buffer as a dense row-major array of phys_rank dims. Physical dim p covers
// logical dim of[p]: logical index = sum over p with of[p]==d of idx[p]*step[p]. Tiled dims appear
// twice (block number, then position in the block). Padded extents.
struct shape_phys {
    int rank;
    int64_t dims[2 * HLO_MAX_RANK];
    int8_t of[2 * HLO_MAX_RANK];
    int64_t step[2 * HLO_MAX_RANK];
    bool padded; // some logical dim is not a multiple of its tile
};
void shape_physical(const struct shape *s, struct shape_phys *out);
int64_t
shape_offset(const struct shape *s,
             const int64_t *index); // element offset in the buffer of a logical index [rank]
void shape_strides(const struct shape *s,
                   int64_t *out); // [rank] element strides of the layout; only without tile

void shape_print(struct strbuf *b, const struct shape *s,
                 bool with_layout); // "f32[2,3]{1,0}", "(f32[], s32[4])"
const char *shape_text(struct arena *a,
                       const struct shape *s); // for messages, without default layouts
