// SPDX-License-Identifier: Apache-2.0
// kir: a small structured loop and scalar IR, and its builder. SSA values in nested for loops with
// carried values; no branches. It knows no target: compiler/codegen makes code of it.
//
// The builder simplifies as it goes. A pure value is placed in the outermost open loop in which its
// arguments exist, so loop-invariant work is hoisted by construction (reductions too: see
// kir_at_level), and equal values are shared while they are visible. Index arithmetic is kept as
// sums of terms; division and remainder of an index are atoms `divmod(v, s, m)` = (v / s) % m of a
// loop variable, and sums of them that make up the variable again fold back (index.c). Thread: one
// builder, one thread. Memory: the builder's arena.
#pragma once
#include "base/map.h"
#include "base/vec.h"
#include "compiler/ir/attrs.h"

enum kop {
#define KOP(e, text, args, traits) K_##e,
#include "compiler/kernel/kops.def"
#undef KOP
    KOP_COUNT
};
// KIR_OWN: vectors of a unit's own, fn->own; stored whole at places that are constants, loaded one
// element at a time. KIR_SUMS: what the units of fn->sums left there, KIR_SUMS_OF_UNIT places each.
enum {
    KIR_SCRATCH = -1,
    KIR_OWN = -2,
    KIR_SUMS = -3,
    KIR_SUMS_OF_UNIT = 16,
    KIR_MAX_LEVEL = 40,
    KIR_MAX_LANES = 64
};
enum {               // value flags
    KF_REASSOC = 1,  // the order of additions may change (sums of a reduction)
    KF_CONTRACT = 2, // may fuse with its multiplication
    KF_PINNED = 4,   // reads memory that the kernel writes: neither hoisted nor shared
    KF_FITS = 8,     // a cast of a float that lies in the integer type's range
    KF_PLACE = 16,   // a comparison that only decides where to read
    KF_RARE = 64,    // a comparison that few elements meet
    KF_NUMBERS = 32, // a bound of which another value tells NaN and zeros have either sign
};
struct kir_val {
    enum kop op;
    enum dtype type; // value type; STORE: DT_INVALID
    enum dtype elem; // LOAD, STORE, TABLE: element type in memory
    uint8_t n_args, flags, level;
    uint16_t lanes; // so many elements side by side; 0: one
    uint32_t id;
    struct kir_val *args[4];
    int64_t imm_i, imm_j;
    double imm_f;
    int64_t lo, hi; // s64 values: lo <= value <= hi
    // f32 values: an 8-bit float type whose grid it is known to lie on (0: none), and what was
    // rounded to that, or NULL.
    enum dtype grid;
    struct kir_val *rounded;
    struct kir_block *block;
    struct kir_loop *loop; // FOR, VAR, CARRY, RESULT
    struct kir_val *next;
    void *emit; // scratch of a back end
};
struct kir_block {
    struct kir_val *first, *last;
    struct kir_block *parent;
    uint8_t level;
};
struct kir_loop {
    struct kir_val *begin, *end; // step 1
    int64_t trip;                // iterations, an estimate from above
    struct kir_val *var;
    int n_carry;
    struct kir_val **init, **carry, **yield, **result;
    struct kir_block body;
    bool vectorize;     // hint: iterations are independent or a reassociable reduction
    uint8_t interleave; // hint: so many vectors side by side; 0: as the generator likes
    bool unroll;
};
struct kir_table {
    enum dtype elem;
    int64_t n;
    const void *data;
};

struct kir_fn {
    int n_bufs, n_in; // buffers; the first n_in are read only, the others written only
    int64_t extent, scratch_bytes;
    struct kir_own {
        enum dtype type;
        int lanes, n; // n vectors of so many lanes; n 0: there is none
    } own;
    bool tiles;     // a contraction by lower_tile.c
    bool rows;      // short rows by lower_rows.c
    bool exchanges; // short lines sorted side by side: long straight code
    // Runs before this, of the same buffers and tables, and has no result but KIR_OWN of each unit;
    // or NULL.
    struct kir_fn *sums;
    bool turns; // a loop by lower_turns.c
    VEC(struct kir_table) tables;
    struct kir_block top;        // level 0
    struct kir_val *begin, *end; // VARs: the unit range
};
struct kir {
    struct arena *arena;
    struct kir_fn *fn;
    struct kir_block *stack[KIR_MAX_LEVEL];
    int depth;        // stack[0..depth] are open
    struct pmap seen; // value hash -> newest value
    uint32_t n_vals, max_vals;
    bool overflow;                // more than max_vals or too deep: the caller gives up
    bool no_fma, no_f64, no_libm; // what the target lacks (compiler/kernel/policy.h)
};
void kir_init(struct kir *k, struct arena *a, int n_in, int n_bufs);
void kir_done(struct kir *k);

// Types of values: f16 -> f32, s4 -> s8, ...; complex keeps its component's type.
enum dtype kir_type(enum dtype t);
struct kir_val *kir_i64(struct kir *k, int64_t v);
struct kir_val *kir_int(struct kir *k, enum dtype t, int64_t v);
struct kir_val *kir_f(struct kir *k, enum dtype t, double v);
struct kir_val *kir_zero(struct kir *k, enum dtype storage);
struct kir_val *kir_op(struct kir *k, enum kop op, struct kir_val *x, struct kir_val *y,
                       struct kir_val *z);
struct kir_val *kir_flag(struct kir *k, enum kop op, struct kir_val *x, struct kir_val *y,
                         uint8_t flags);
// x * y + z, rounded once where the target has that; else the product is rounded before the sum.
struct kir_val *kir_mul_add(struct kir *k, struct kir_val *x, struct kir_val *y, struct kir_val *z);
// The same for algorithms that need what rounding x * y loses: without fma it is computed from
// halves of x and y (Dekker, "A Floating-Point Technique for Extending the Available Precision",
// 1971) and added last, so the result is exact wherever x * y rounded plus z is. |x|, |y| below
// 2^970 (f32: 2^110); no NaN for infinities is promised.
struct kir_val *kir_fma_exact(struct kir *k, struct kir_val *x, struct kir_val *y,
                              struct kir_val *z);
// x * y = the result + *lost, exactly if nothing over- or underflows.
struct kir_val *kir_two_product(struct kir *k, struct kir_val *x, struct kir_val *y,
                                struct kir_val **lost);
struct kir_val *kir_cmp(struct kir *k, enum cmp_direction d, struct kir_val *x, struct kir_val *y);
struct kir_val *kir_cmp_place(struct kir *k, enum cmp_direction d, struct kir_val *x,
                              struct kir_val *y); // KF_PLACE
struct kir_val *kir_cmp_rare(struct kir *k, enum cmp_direction d, struct kir_val *x,
                             struct kir_val *y); // KF_RARE
struct kir_val *kir_select(struct kir *k, struct kir_val *c, struct kir_val *x, struct kir_val *y);
struct kir_val *kir_cast(struct kir *k, enum dtype t, struct kir_val *x);
struct kir_val *kir_cast_fits(struct kir *k, enum dtype t, struct kir_val *x); // KF_FITS
struct kir_val *kir_bits(struct kir *k, enum dtype t, struct kir_val *x);
struct kir_val *kir_quant(struct kir *k, enum dtype t, struct kir_val *x);
// small_float.c: 8-bit floats (a value on the grid, its code and back), f64 to f32 rounded to odd,
// and XLA's reduce-precision of a value of type t.
struct kir_val *kir_quant8(struct kir *k, enum dtype t, struct kir_val *x);
struct kir_val *kir_encode8(struct kir *k, enum dtype t, struct kir_val *x);
struct kir_val *kir_decode8(struct kir *k, enum dtype t, struct kir_val *code);
struct kir_val *kir_to_odd(struct kir *k, struct kir_val *x);
struct kir_val *kir_reduce_precision(struct kir *k, enum dtype t, struct kir_val *x, int e, int m);
static inline bool kir_is_f8(enum dtype t) {
    return dtype_is_float(t) && dtype_bits(t) <= 8;
}
struct kir_val *kir_call(struct kir *k, int fn, struct kir_val *x, struct kir_val *y);
struct kir_val *kir_call_n(struct kir *k, int fn, struct kir_val *const *args);
struct kir_val *kir_complex(struct kir *k, struct kir_val *re, struct kir_val *im);
struct kir_val *kir_re(struct kir *k, struct kir_val *x); // of any value
struct kir_val *kir_im(struct kir *k, struct kir_val *x);
struct kir_val *kir_load(struct kir *k, int buf, enum dtype elem, struct kir_val *at,
                         uint8_t flags);
void kir_store(struct kir *k, int buf, enum dtype elem, struct kir_val *at, struct kir_val *v);
// Vectors, of registers' numbers and sizes that the schedule knows (lower_tile.c): x in each lane;
// lanes from memory that the kernel wrote. Sums and products of vectors are as those of scalars; a
// store writes all lanes.
struct kir_val *kir_splat(struct kir *k, struct kir_val *x, int lanes);
// A vector of 2 or 4 scalars of one type.
struct kir_val *kir_join(struct kir *k, struct kir_val *const *x, int lanes);
// Lanes of x and of y in turn, as many as one has: of their first halves, or of their second ones.
struct kir_val *kir_zip(struct kir *k, struct kir_val *x, struct kir_val *y, bool second);
struct kir_val *kir_load_lanes(struct kir *k, int buf, enum dtype elem, struct kir_val *at,
                               int lanes);
int kir_add_table(struct kir *k, enum dtype elem, int64_t n, const void *data); // data copied
struct kir_val *kir_table(struct kir *k, int table, struct kir_val *at);
bool kir_is_const(const struct kir_val *v, int64_t *out); // integer constant
// An s64 that is known to fit 32 bits: most indices.
static inline bool kir_fits_32(const struct kir_val *v) {
    return v->type == DT_S64 && !v->lanes && v->lo >= INT32_MIN && v->hi <= INT32_MAX;
}
// An s64 with bounds, which its sum or product thus does not overflow: indices have them. LLVM
// joins accesses that take turns only where their places are known not to wrap.
static inline bool kir_is_exact(const struct kir_val *v) {
    return v->type == DT_S64 && !v->lanes && v->lo > INT64_MIN && v->hi < INT64_MAX;
}

// For index.c: finds or places the pure value `t`.
struct kir_val *kir_intern(struct kir *k, const struct kir_val *t);

// index.c: sums and atoms. All s64.
struct kir_val *kir_idx_add(struct kir *k, struct kir_val *x, struct kir_val *y);
struct kir_val *kir_idx_mul(struct kir *k, struct kir_val *x, int64_t c);
// (x / s) % m, x >= 0; m 0: no remainder is taken.
struct kir_val *kir_idx_divmod(struct kir *k, struct kir_val *x, int64_t s, int64_t m);
struct kir_val *kir_idx_clamp(struct kir *k, struct kir_val *x, int64_t lo, int64_t hi);
// An integer of any type as a place from 0 to `last`, the nearest; clamped in its own type where
// that is a short one, so that lanes stay as wide.
struct kir_val *kir_idx_place(struct kir *k, struct kir_val *x, int64_t last);
struct kir_val *kir_idx_between(struct kir *k, struct kir_val *x, int64_t lo,
                                int64_t hi); // x, which is known to lie between lo and hi
// x with loop variable `var` replaced by `with`; NULL if x depends on a carried value.
struct kir_val *kir_subst(struct kir *k, struct kir_val *x, struct kir_val *var,
                          struct kir_val *with);

// Loops. kir_end places the loop in the block around it; `yield` replaces the carried values.
struct kir_loop *kir_for(struct kir *k, struct kir_val *begin, struct kir_val *end,
                         int64_t max_trip, struct kir_val *const *init, int n_carry);
void kir_end(struct kir *k, struct kir_loop *l, struct kir_val *const *yield);
// Makes `level` the current block until kir_restore; deeper values are invisible meanwhile.
struct kir_block *kir_at_level(struct kir *k, int level); // returns what kir_restore needs
void kir_restore(struct kir *k, struct kir_block *now);
bool kir_visible(const struct kir *k, const struct kir_val *v);

void kir_sweep(struct kir *k); // drops unused pure values
// Calls fn for each value of the block and of the loops in it, in order.
void kir_each(struct kir_block *b, void (*fn)(void *ctx, struct kir_val *v), void *ctx);
// Text without names: kernels of equal text do the same.
void kir_print(struct strbuf *b, const struct kir_fn *f);
// Text with the sizes left open: kernels of one form do the same but for the values in *out, which
// are added in order of the text. Each such constant notes its place, from 1, in imm_j.
struct kir_sizes {
    int64_t *v;
    size_t n, cap;
};
void kir_print_form(struct strbuf *b, struct arena *a, struct kir_fn *f, struct kir_sizes *out);
status_t kir_verify(const struct kir_fn *f) MUST_CHECK;
// Conditions that few elements meet (KF_RARE).
int kir_rare(const struct kir_fn *f);
// Operations that a run of the whole kernel executes, an estimate from above. Saturates.
int64_t kir_work(const struct kir_fn *f);

// libm functions that kernels may call; the loader resolves these names and no others.
enum kir_libm {
#define LIBM(e, name, n) KLIBM_##e,
#include "compiler/kernel/libm.def"
#undef LIBM
    KLIBM_COUNT
};
const char *kir_fn_name(int fn);
int kir_fn_args(int fn);
const char *kop_name(enum kop op);
bool kop_commutes(enum kop op);
