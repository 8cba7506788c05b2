// SPDX-License-Identifier: Apache-2.0
// lower: from one HLO instruction (a fusion or a single op) to one kir kernel. The rules of
// compiler/ops/*_lower.c are written against this header.
//
// A rule computes one element: it gets a logical index and asks operands for theirs. Everything
// else is here: loops over the physical result, flattening and splitting of loops,
// reductions of any kind and where they run, values kept in scratch, loads through layouts.
#pragma once
#include "compiler/ir/op.h"
#include "compiler/kernel/kir.h"
#include "compiler/target.h"

enum { LOWER_MAX_RESULTS = 16, LOWER_MAX_CUTS = 16, LOWER_MAX_EDGES = 24 };

// An iteration space of `total` linear positions, cut into nested loops: cut[0] > cut[1] > ... > 1,
// each dividing the one before and total. No cuts: one flat loop.
struct lower_space {
    const void *owner;
    int64_t total, cut[LOWER_MAX_CUTS];
    int n;
    int64_t minor; // of a result: so many elements are written out in a turn of the innermost loop;
                   // 0 = one
    int64_t step;  // of a result: in each part of the innermost loop a turn makes so many elements,
                   // because what they are repeats (padding between elements); 0 = one
    // Of a result: turns at which the loop of this stride begins anew, because what is read before
    // lies elsewhere (lower_loops.c).
    struct lower_edge {
        int64_t stride, at;
    } edge[LOWER_MAX_EDGES];
    int n_edges;
};
// An innermost loop that runs over contiguous elements: what a reduction by columns and a
// cached value need.
struct lower_row {
    struct kir_val *var, *begin, *end;
    int base;       // level of the block around the row's loops
    int64_t extent; // most iterations
    bool reduces;   // the loop of a reduction, which may fill a cache
    struct lower_row *outer;
};
struct lower {
    struct kir k;
    struct arena *arena;
    const struct hlo_instr *instr;
    enum precision prec;
    const struct target *target; // may be NULL
    const struct kernel_policy *policy;
    struct lower_tile *tile; // being built, or NULL
    struct kir_fn *sums;     // the tile's, built before; or NULL
    struct lower_rows *rows; // short ones whose elements are turned, or NULL
    bool moves;              // what lower_moved has integers for is only moved
    struct lower_turn *turn; // of a loop that is a kernel, whose body is being built, or NULL
    int64_t turn_number;     // of its copy of the body; 0: none. What it computes is its own
    const char *why;         // static text, when the status is an error
    struct pmap leaf;        // instruction -> buffer + 1
    struct pmap memo;        // hash of (instruction, index) -> struct lower_memo
    struct pmap *env;   // parameters and values of the scalar computation being called, or NULL
    struct pmap cached; // instructions worth keeping in scratch between phases
    VEC(struct lower_kept *) kept;
    VEC(struct lower_space *) spaces;
    struct lower_space *result;
    struct lower_units { // the loop over units, and what its innermost part stands for
        const struct kir_val *var;
        // (var / below) % extent (0: no remainder) is the turn of the loop of that stride.
        int64_t below, extent, stride;
    } units;
    bool no_minor, long_rows; // write nothing out; no reductions along a row either
    bool short_rows;          // one was written out
    // Which edges loops begin anew at: fewer where all make the kernel large.
    enum { EDGES_ALL, EDGES_LONGEST, EDGES_NONE } edges;
    bool small_units, settled; // units are few elements; cuts and edges were found, so merge them
    struct pmap var_space;     // loop variable -> struct lower_space; with its stride in imm_j
    struct lower_row *row;
    struct pmap canon; // block -> canonical row variable
    int64_t scratch;
    int64_t chunk;                     // 0 = innermost loop not chunked
    bool want_chunk, reduces, columns; // seen while building: asks for other chunks the next time
    struct pmap reductions;            // reductions of floats that were built
    bool twice;                        // one of them at several places: the next time
    bool ordered;                      // sums keep their order
    bool elements;                     // policy_elements
    bool in_loop, in_place;            // lower_in_loop; an update there
    const struct hlo_instr *update;    // plan_last_update of the kernel: it stores that alone
    bool in_range;                     // indices are known to lie within their dimensions
    bool dear_after;                   // dear operations follow reductions
    int depth;
};

// Lowers `i` into *out (arena a). ST_UNIMPLEMENTED with lw->why when it cannot be.
// t: whose schedules contractions take; NULL: those of vectors of 256 bits.
status_t lower_kernel(struct arena *a, const struct hlo_instr *i, const struct target *t,
                      enum precision prec, struct kir_fn **out, const char **why) MUST_CHECK;
// The same in a loop that is one function. update: the result of a dynamic-update-slice holds its
// operand already: the kernel writes the update alone, and does not read operand 0.
status_t lower_in_loop(struct arena *a, const struct hlo_instr *i, const struct target *t,
                       enum precision prec, bool update, struct kir_fn **out,
                       const char **why) MUST_CHECK;

// For rules. Values of tuple-shaped instructions: out has LOWER_MAX_RESULTS places.
status_t lower_value(struct lower *lw, const struct hlo_instr *i, struct kir_val *const *index,
                     struct kir_val **out) MUST_CHECK;
static inline status_t lower_operand(struct lower *lw, const struct hlo_instr *i, int n,
                                     struct kir_val *const *index, struct kir_val **out) {
    return lower_value(lw, i->operands[n], index, out);
}
// The value at position `v` of the physical view of i's array, row-major; padding: any value.
status_t lower_physical(struct lower *lw, const struct hlo_instr *i, struct kir_val *v,
                        struct kir_val **out) MUST_CHECK;
status_t lower_no(struct lower *lw, const char *why) MUST_CHECK; // why: static text
// Calls a scalar computation on values.
status_t lower_call(struct lower *lw, const struct hlo_computation *c, struct kir_val *const *args,
                    int n, struct kir_val **out) MUST_CHECK;
// Linear position -> index over dims, row-major; and back.
void lower_unflatten(struct lower *lw, struct kir_val *v, const int64_t *dims, int rank,
                     struct kir_val **index);
struct kir_val *lower_flatten(struct lower *lw, struct kir_val *const *index, const int64_t *dims,
                              int rank);
struct kir_val *lower_offset(struct lower *lw, const struct shape *s,
                             struct kir_val *const *index); // element offset in the buffer
int lower_level(struct kir_val *const *v, int n);
// The dim along which neighbours in memory lie: the last of more than one element; -1: none.
int lower_innermost(const struct shape_phys *p);
// Flags of a product: a reduction's sum may take it in before it is rounded; strict kernels round
// after each operation. Outside of reductions products that fuse are fma in kir.
static inline uint8_t lower_contract(const struct lower *lw) {
    return lw->prec == PRECISION_STRICT ? 0 : KF_CONTRACT;
}
// Flags of the additions of a reduction. A kernel that computes one sum at several places adds in
// order, so that all copies are the same.
static inline uint8_t lower_reassoc(const struct lower *lw) {
    return lw->ordered ? 0 : KF_REASSOC;
}

// The integers as which values of type t are moved: those that no kernel computes in as they lie in
// memory.
static inline enum dtype lower_moved(enum dtype t) {
    if (t == DT_C64) return DT_U64;
    if (!dtype_is_float(t) || dtype_bits(t) > 16) return t;
    return dtype_bits(t) == 16 ? DT_U16 : dtype_bits(t) == 8 ? DT_U8 : t;
}
// As what values of type t lie in memory.
static inline enum dtype lower_memory(const struct lower *lw, enum dtype t) {
    return lw->moves ? lower_moved(t) : t;
}
// For rules of whole kernels: result r at a logical index (read again only what was put), scratch
// of a thread: byte offset of n elements.
void lower_put(struct lower *lw, const struct hlo_instr *i, int r, struct kir_val *const *index,
               struct kir_val *v);
struct kir_val *lower_get(struct lower *lw, const struct hlo_instr *i, int r,
                          struct kir_val *const *index);
int64_t lower_scratch(struct lower *lw, enum dtype t, int64_t n);

// Is `element` one of the state of a loop that is being built? Then its value in the turn.
bool lower_turn_has(const struct lower *lw, const struct hlo_instr *element);
status_t lower_turn_get(struct lower *lw, const struct hlo_instr *element,
                        struct kir_val *const *index, struct kir_val **out) MUST_CHECK;

// A reduction: acc = step(acc, r) for r in 0..total: of one element, an inner loop over r; when
// `column`, of a whole row at once: loops over r outside, over the row inside, acc in scratch; when
// `lines`, of a row by turns: some lines in one loop over r, results in scratch.
struct lower_reduce {
    const struct hlo_instr *i;
    int n;            // accumulators
    enum dtype *type; // [n] storage types (complex allowed)
    int64_t total;
    bool column;  // neighbours along the row are neighbours in memory
    bool lines;   // what init and step make follows from index and r: lines of a row side by side
    bool unroll;  // straight-line
    bool numbers; // NaN among the elements is told by a sum (rules.h): the bound may pass over it
    int times; // steps a turn of a loop of units that are elements, if they divide total and need
               // no quotients of r; 0: one
    void *ctx;
    status_t (*init)(struct lower *lw, struct lower_reduce *f, struct kir_val **acc);
    status_t (*step)(struct lower *lw, struct lower_reduce *f, struct kir_val *const *index,
                     struct kir_val *r, struct kir_val *const *acc, struct kir_val **out);
};
// One more place where the kernel computes this reduction: lower_reduce notes it by itself.
void lower_note(struct lower *lw, const struct lower_reduce *f);
status_t lower_reduce(struct lower *lw, struct lower_reduce *f, struct kir_val *const *index,
                      int rank, struct kir_val **out) MUST_CHECK;

// kmath.c: the functions of elementwise.def's kir column on values of storage type t.
enum kfn {
    KFN_ABS,
    KFN_ACOS,
    KFN_ACOSH,
    KFN_ASIN,
    KFN_ASINH,
    KFN_ATANH,
    KFN_COSH,
    KFN_SINH,
    KFN_MULHI,
    KFN_CBRT,
    KFN_CEIL,
    KFN_CLZ,
    KFN_COS,
    KFN_ERF,
    KFN_EXP,
    KFN_EXPM1,
    KFN_FLOOR,
    KFN_LOG,
    KFN_LOG1P,
    KFN_LOGISTIC,
    KFN_NEG,
    KFN_NOT,
    KFN_POPCNT,
    KFN_REAL,
    KFN_IMAG,
    KFN_ROUND_AFZ,
    KFN_ROUND_EVEN,
    KFN_RSQRT,
    KFN_SIGN,
    KFN_SIN,
    KFN_SQRT,
    KFN_TAN,
    KFN_TANH,
    KFN_ISFINITE,
    KFN_ADD,
    KFN_AND,
    KFN_ATAN2,
    KFN_DIV,
    KFN_MAX,
    KFN_MIN,
    KFN_MUL,
    KFN_OR,
    KFN_POW,
    KFN_REM,
    KFN_SHL,
    KFN_ASHR,
    KFN_LSHR,
    KFN_SUB,
    KFN_XOR,
    KFN_COMPLEX,
    KFN_COUNT
};
// Integer that orders as IEEE 754 totalOrder does; integers as they are.
struct kir_val *kmath_total_order(struct kir *k, struct kir_val *x);
// NULL when not defined for the type. The result is rounded to t (small floats, s4, u4).
struct kir_val *kmath(struct lower *lw, enum kfn fn, enum dtype t, struct kir_val *x,
                      struct kir_val *y);
struct kir_val *kmath_complex(struct lower *lw, enum kfn fn, struct kir_val *x, struct kir_val *y);
struct kir_val *kmath_f32(struct kir *k, enum kfn fn, struct kir_val *x,
                          struct kir_val *y); // f32 transcendental, or NULL
struct kir_val *kmath_f64(struct kir *k, enum kfn fn, struct kir_val *x, struct kir_val *y);
struct kir_val *kmath_exp_scaled(struct kir *k, struct kir_val *x, int by); // f32: e^x 2^by
// The functions of f32 that kmath_f32 takes through f64 or libm, without either, nor fma.
struct kir_val *kmath_narrow(struct kir *k, enum kfn fn, struct kir_val *x, struct kir_val *y);
struct kir_val *kmath_wrap(struct lower *lw, enum dtype t,
                           struct kir_val *x); // rounds or wraps to the storage type
struct kir_val *kmath_convert(struct lower *lw, enum dtype to, enum dtype from, struct kir_val *x);
