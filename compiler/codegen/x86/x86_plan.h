// SPDX-License-Identifier: Apache-2.0
// x86_plan: what the direct generator decides before it writes an instruction: which loops run as
// vectors, in which form each value is, and where it lives. Private to x86_*.c.
//
// Forms. An s64 or u64 that is the same in all lanes, or that grows from lane to lane by a known
// stride, is an integer register holding lane 0 (class G); its lanes are made of that where someone
// wants them. A pred is a mask register (K). All else is a vector register (V) whose lanes have 32
// or 64 bits: narrower types lie extended in 32, an index whose range is known to fit lies in 32.
// A value that is the same in all lanes fills the whole register, so that scalar code is vector
// code and nothing is ever broadcast at its use.
//
// With AVX2 vectors are half as long, there are 16 of them, and a pred is a vector too: lanes of 32
// bits, all ones where it is true.
#pragma once
#include "compiler/codegen/x86/x86_asm.h"
#include "compiler/kernel/kir.h"

enum x86_shape { SHAPE_SAME, SHAPE_STRIDE, SHAPE_LANES };
enum x86_class { CLASS_G, CLASS_V, CLASS_K, CLASSES };
enum { MAX_COPIES = 4, X86_BESIDE_VALUES = 45 };

struct x86_home { // where a value lives while it is wanted: positions in order of the text
    int32_t first, last, slot; // slot: bytes from the stack pointer where reg < 0
    int8_t reg;
    uint8_t class;
    bool constant;      // needs no slot: the pool has it
    bool kept;          // goes before all others: sums of a contraction
    bool plain;         // lives in a plain loop alone: may have a temporary register
    bool bare;          // ... in a bare one: TMP0 too
    bool by_tmp0;       // a sum around such loops: if it has no register, TMP0 serves
    float weight;       // of what not having a register costs
    VEC(int32_t) reads; // class G: positions, growing
};
struct x86_held { // a home in memory, and the register that has it too through a loop
    struct x86_home *home;
    int8_t reg;
};
struct x86_loop {
    struct kir_loop *l;
    int lanes;                            // 0: one iteration at a time
    int copies;                           // accumulators of each carried value
    struct x86_home *(*more)[MAX_COPIES]; // [n_carry] of copies 1, 2, ...
    int32_t start, end;                   // positions
    bool plain, bare;                     // of sums: see x86_sums.c
    bool beside;                          // its copies are written value by value: x86_beside.c
    VEC(struct x86_home *) outer;         // homes of values from outside that it reads
    int window;                           // turns that a tile has columns for; 0: has no tiles
    int32_t window_slot;                  // of the window's state; 0: none yet
    VEC(struct x86_held) held;            // see x86_held.c
    uint32_t free;                        // registers of class G that nothing has in it
};
// Of a load whose lanes lie far apart: see x86_tile.c.
enum { X86_BETWEEN = 4 };
struct x86_tile {
    struct kir_loop *lanes;
    struct x86_loop *along, *between[X86_BETWEEN]; // the innermost first
    int n_between;
    int64_t stride, bytes; // elements from lane to lane; of all its tiles
    int32_t slot;          // of them on the frame; -1: none yet
};
// Stores of one buffer that fill n neighbours together, an n-th of each vector. They are written as
// n whole vectors where the last of them stands.
enum { MAX_GROUP = 8 };
struct x86_group {
    int n;
    const struct kir_val *store[MAX_GROUP], *last; // by place
};
struct x86_val {
    enum x86_shape shape;
    int64_t stride;
    bool wide;   // lanes of 64 bits
    bool spread; // class G, and someone wants its lanes
    bool fused;  // what reads it computes it: a product by a sum, a comparison by a choice, a
                 // rounding by a store, a constant distance by an access of memory, a power of two
                 // by a product, a value in all lanes by anyone
    bool one;    // no lane but the first of it is ever read
    bool narrow; // all lanes are read, but the same: one is computed, which takes less, and spread
    bool lazy;   // a select of lanes by a condition that is one for all: one arm is computed
    int uses, claims, places;    // places: uses as where an element of memory lies, or in K_SPLAT
    int splat;                   // the most bytes of these
    const struct kir_val *owner; // only this lazy select's arm (1 or 2) reads it, or the choices by
    int8_t arm;                  // this rare condition
    bool opens, opened;          // K_SELECT: a group is written before it; K_CMP: one is
    int32_t first_choice, group_values; // K_CMP: see x86_lazy.c
    struct x86_group *group;            // K_STORE in a vector loop
    struct x86_tile *tile;              // K_LOAD in a vector loop
    struct x86_home *home, *lanes;      // lanes: of class G
    struct x86_home **beside;  // [copies - 1] in turns beside the first: home, of class G lanes
    const struct kir_val *sum; // the carried value in whose home it is summed
    struct kir_val *power[2];  // K_MUL: it is the first by 2 to the power of the second
    struct x86_loop *loop;     // K_FOR, and the loop's variable
};
struct x86_slot { // whose last value is read for the last time there
    int32_t at, last;
};
struct x86_plan {
    struct arena *a;
    const struct kir_fn *f;
    int64_t turns;                                  // of the loops that call it
    int values;                                     // all of the kernel
    bool merged;                                    // part of a loop that is one function
    bool vex;                                       // AVX2
    bool bf16;                                      // AVX512-BF16
    VEC(struct x86_home *) homes, inside;           // inside: read or made in plain loops
    VEC(struct x86_loop *) loops;                   // those around others before them
    struct x86_home **bufs, *scratch, *begin, *end; // NULL: not read
    int32_t frame;                                  // bytes of slots
    VEC(struct x86_slot) slots;                     // of vectors
    size_t next_slot;                               // of these, the one to try next
    uint32_t saved;                                 // registers of the caller that are used
    int64_t tiles;                                  // bytes of tiles, beside the slots
    struct x86_loop *open[KIR_MAX_LEVEL + 2];       // loops around what is being decided
    int n_open;
    bool has_lanes;   // a loop runs as a vector
    bool sums;        // has values of several lanes
    bool is_small;    // ... which are results as they are: products of small matrices
    const char *slow; // why a loop costs a multiple of LLVM's: static text
    bool is_short;    // there is a loop of few elements
    bool is_brief;    // ... that sums up few, has_work: and one that does more
    bool has_work;
    bool is_apart;   // ... of elements that do not lie side by side
    bool is_mixed;   // ... of floats of 32 bits beside values of 64
    bool is_narrow;  // ... of integers of 8 or 16 bits
    bool sums_alone; // what operands have is read by loops of sums,
    bool reads_else; // ... by others
    bool is_long;    // ... of many values
    const char *why; // it does not fit: static text
};

static inline struct x86_val *x86_of(const struct kir_val *v) {
    return v->emit;
}
static inline bool x86_is_index(enum dtype t) {
    return t == DT_S64 || t == DT_U64;
}
static inline enum x86_class x86_class(const struct kir_val *v) {
    if (v->type == DT_PRED) return CLASS_K;
    return x86_is_index(v->type) && x86_of(v)->shape != SHAPE_LANES ? CLASS_G : CLASS_V;
}
static inline bool x86_grouped(const struct kir_val *store) {
    return x86_of(store)->group && x86_of(store->args[0])->shape == SHAPE_STRIDE;
}
// What a store writes: of a rounding to the type in memory, what is rounded, as the store does it.
static inline const struct kir_val *x86_written(const struct kir_val *store) {
    const struct kir_val *v = store->args[1];
    return v->op == K_QUANT && x86_of(v)->fused ? v->args[0] : v;
}
// A load of lanes that lie so close that whole vectors are read and the lanes taken out of them.
static inline bool x86_near(const struct x86_plan *p, const struct kir_val *load) {
    const struct x86_val *at = x86_of(load->args[0]);
    int64_t size = dtype_size(load->elem), most = size == 4 ? 8 : 4, n = at->stride;
    if (at->shape != SHAPE_STRIDE || size < 4) return false;
    return p->vex ? size == 4 && n == 2 : n != 1 && -most <= n && n <= most;
}
// Lanes of 64 (wide) or 32 bits that a register has.
static inline int x86_lanes(const struct x86_plan *p, bool wide) {
    return (p->vex ? 8 : 16) >> wide;
}
// A cast between integers that lie extended in 32 bits already.
static inline bool x86_casts_freely(const struct kir_val *v) {
    const struct kir_val *x = v->args[0];
    return v->op == K_CAST && dtype_is_int(x->type) && dtype_is_int(v->type) &&
           x->type != DT_PRED && dtype_bits(v->type) == 32 && !x86_of(x)->wide;
}
// Turns of a loop; -1: only the run knows.
static inline int64_t x86_trip(const struct kir_loop *l) {
    int64_t b, e;
    if (!kir_is_const(l->begin, &b) || !kir_is_const(l->end, &e)) return -1;
    return e > b ? e - b : 0;
}
// Chooses loops and forms. False, with p->why: the generator does not take this kernel.
bool x86_choose(struct x86_plan *p);
// Why LLVM's code of a kernel that could be made here repays its time; NULL: it does not.
const char *x86_slower(const struct x86_plan *p);
// Tiles of a transposition (x86_tile.c): can load v, in the body of `lanes`, have one? Then it is
// noted. take: those of a loop that has become a vector.
bool x86_tile_find(struct x86_plan *p, struct kir_loop *lanes, struct kir_val *v);
void x86_tile_take(struct x86_plan *p, const struct kir_block *b);
// Values that are computed where they are wanted alone (x86_lazy.c): of a block in a vector loop,
// or not in one.
void x86_lazy_find(struct x86_plan *p, const struct kir_block *b, bool vector);
// How many values of a block few elements want.
int x86_lazy_rare(struct x86_plan *p, const struct kir_block *b);
// Sums of contractions (x86_sums.c). Why v, a value of several lanes, is not taken; NULL: it is.
const char *x86_sums_refuse(const struct x86_plan *p, const struct kir_val *v);
// What is summed in place, what is part of an address, which loops are plain.
void x86_sums_plan(struct x86_plan *p);
// Is v the last step of an exponential, p * 2^n? Then both are noted, and what else it read is
// fused (x86_power.c).
void x86_power_find(const struct kir_val *v);
// Turns of a loop side by side (x86_beside.c): may those of l, which runs as a vector, be written
// so? The plan of those that are. Has v a home of its own in each turn?
bool x86_beside_may(const struct x86_plan *p, const struct kir_loop *l, int lanes);
void x86_beside_plan(struct x86_plan *p, const struct kir_block *b);
bool x86_beside_each(const struct kir_val *v);
// The distance that an access at `at` adds to *index.
int64_t x86_distance(const struct kir_val *at, const struct kir_val **index);
// Gives loops what they hold of `registers` (x86_held.c), which end with -1.
void x86_hold(struct x86_plan *p, const int8_t *registers);
// Lays out homes in registers and slots.
bool x86_place(struct x86_plan *p);
