// SPDX-License-Identifier: Apache-2.0
// x86_gen: state and helpers of the direct generator while it writes a kernel. Private to x86_*.c.
#pragma once
#include "compiler/codegen/x86/x86_plan.h"

// Registers that no value lives in. G: RAX, RCX, RDX. K1 holds the lanes of a loop's last turn.
// With AVX2 the four of vectors are 12 to 15 (x86_asm.h), and what K_TMP is for is MASK_TMP.
enum { TMP0 = 28, TMP1, TMP2, TMP3, MASK_TMP = 27, K_TAIL = 1, K_TMP = 7 };

struct x86_gen {
    struct x86 as;
    struct x86_plan *p;
    struct x86_loop *vec; // the vector loop that is being written; NULL: none
    bool masked;          // its last turn: lanes of K_TAIL only
    int left;             // how many they are; -1: only the run knows
    int copy;             // of its accumulators
    bool beside;          // copies are written value by value: `copy` is one of them
    int32_t *tables;      // offsets in the pool
    int32_t tile_save;    // slot of registers that tiles borrow; 0: none yet
    int32_t tail;         // AVX2: slot of the lanes of a last turn; 0: none yet
    const char *why;      // something that is not written: static text
};

static inline struct x86_mem x86_slot(const struct x86_home *h) {
    return x86_at(RSP, h->slot);
}
static inline int x86_log_size(enum dtype t) {
    return __builtin_ctz((unsigned)dtype_size(t));
}

// x86_direct.c. All of a kernel but what is before and behind: its buffers are in their homes.
void x86_write_body(struct x86_gen *g);

// x86_home.c. Where v is now: accumulators have copies.
struct x86_home *x86_home_of(const struct x86_gen *g, const struct kir_val *v);
struct x86_home *x86_lanes_home(const struct x86_gen *g, const struct kir_val *v); // of class G
int64_t x86_beside_ahead(const struct x86_gen *g, const struct kir_val *v); // of the first turn's
int32_t x86_frame_slot(struct x86_gen *g); // 64 more bytes of the frame, from the stack pointer
// Of a value of several lanes, or what stores one.
enum x86_len x86_whole(const struct x86_gen *g, const struct kir_val *v);
enum x86_len x86_holds(const struct x86_gen *g, int bytes);
enum x86_len x86_length(const struct x86_gen *g, enum x86_shape s, bool wide);
// Of any class. A register to make v in; v, made in register `reg`, goes home.
int x86_dst(const struct x86_gen *g, const struct kir_val *v);
void x86_put(struct x86_gen *g, const struct kir_val *v, int reg);
// The same of a home. A register with what it holds: its own, or `temp`, into which it is read.
int x86_home_dst(const struct x86_gen *g, const struct x86_home *h);
void x86_home_put(struct x86_gen *g, const struct x86_home *h, int reg);
int x86_home_reg(struct x86_gen *g, const struct x86_home *h, int temp);
// Class G. A register with v in it (`temp` if it has none of its own).
int x86_int(struct x86_gen *g, const struct kir_val *v, int temp);
// Classes V and K. v as the last operand, in lanes of 64 (wide) or 32 bits; converted in `temp`.
struct x86_arg x86_lane_arg(struct x86_gen *g, const struct kir_val *v, bool wide, int temp);
int x86_lane_reg(struct x86_gen *g, const struct kir_val *v, bool wide, int temp);
int x86_in_register(struct x86_gen *g, struct x86_arg a, bool wide, enum x86_len len, int temp);
int x86_mask_reg(struct x86_gen *g, const struct kir_val *v);
void x86_mask_of_flags(struct x86_gen *g, enum x86_cc cc, int k);
int x86_avx2_mask(struct x86_gen *g, const struct kir_val *v, int temp); // in `temp`, not MASK_TMP
void x86_mask_bits(struct x86_gen *g, int gpr, int k);                   // a bit a lane of 32 bits
void x86_each_gpr(struct x86_gen *g, bool wide, int dst, int gpr);       // into all lanes
void x86_narrow(struct x86_gen *g, int dst, int src); // the low halves of 64 bits
// Do this loop's values of 32 (not wide) bits fill half a register?
static inline bool x86_is_half(const struct x86_gen *g, int lanes, bool wide) {
    return !wide && lanes == x86_lanes(g->p, true);
}
// The register with the start of a load's or store's buffer, or of a table; `temp` if none has it.
int x86_base(struct x86_gen *g, const struct kir_val *v, int temp);
// Of lane 0. Uses RDX and RCX.
struct x86_mem x86_address(struct x86_gen *g, const struct kir_val *v);
// Constants of the pool, read into all lanes: of 64 (wide) or 32 bits.
struct x86_arg x86_lane_const(struct x86_gen *g, const struct kir_val *v, bool wide);
struct x86_arg x86_each(struct x86_gen *g, bool wide, uint64_t bits);
struct x86_arg x86_each_float(struct x86_gen *g, bool wide, double v);
static inline struct x86_arg x86_each32(struct x86_gen *g, uint32_t bits) {
    return x86_each(g, false, bits);
}
static inline struct x86_arg x86_each64(struct x86_gen *g, uint64_t bits) {
    return x86_each(g, true, bits);
}
void x86_op3(struct x86_gen *g, uint32_t op, enum x86_len len, int dst, int x, struct x86_arg y);
void x86_op2(struct x86_gen *g, uint32_t op, enum x86_len len, int dst, struct x86_arg y);
void x86_op3i(struct x86_gen *g, uint32_t op, enum x86_len len, int dst, int x, struct x86_arg y,
              int imm);
// Under mask k; other lanes stay, or become 0.
void x86_masked(struct x86_gen *g, uint32_t op, enum x86_len len, int dst, int x, struct x86_arg y,
                int k, bool zero);
// The constant of an operation that commutes goes last.
static inline void x86_constant_last(const struct kir_val **x, const struct kir_val **y) {
    bool splat = (*x)->op == K_SPLAT && (*x)->args[0]->op == K_CONST;
    if ((*x)->op != K_CONST && !splat) return;
    const struct kir_val *t = *x;
    *x = *y;
    *y = t;
}
// dst = x shifted; how: as EV_SHIFT has it.
enum { LANES_RIGHT = 2, LANES_SIGNED = 4, LANES_LEFT = 6 };
void x86_lane_shift(struct x86_gen *g, bool wide, enum x86_len len, int dst, int x, int how, int n);
// Types of 8 and 16 bits lie extended in 32.
void x86_normal(struct x86_gen *g, enum dtype t, enum x86_len len, int dst, int src);

// x86_index.c
void x86_index_value(struct x86_gen *g, const struct kir_val *v);
// Lanes of a value of class G from its home, if someone wants them.
void x86_spread(struct x86_gen *g, const struct kir_val *v);

// x86_lanes.c
void x86_lane_value(struct x86_gen *g, const struct kir_val *v);
void x86_mask_value(struct x86_gen *g, const struct kir_val *v);
// dst = x op y, for sums, products, bounds and bits of type t; may use TMP2, TMP3 and K_TMP.
void x86_combine(struct x86_gen *g, enum kop op, enum dtype t, bool wide, enum x86_len len, int dst,
                 int x, struct x86_arg y);
// The same of a minimum or maximum of registers without NaN; uses TMP3 and MASK_TMP.
void x86_bound_numbers(struct x86_gen *g, bool max, bool wide, enum x86_len len, int dst, int y);
// Goes to `label` where no lane of x is NaN.
void x86_jump_numbers(struct x86_gen *g, bool wide, enum x86_len len, int x, int label);
// x86_cast.c
void x86_cast(struct x86_gen *g, const struct kir_val *v);
void x86_quant(struct x86_gen *g, const struct kir_val *v);
// Codes of v, in a register or memory already, in lanes of 32 bits; reads v's lanes into `temp`.
void x86_to_bf16(struct x86_gen *g, const struct kir_val *v, enum x86_len len, int dst, int temp);
void x86_cast_index(struct x86_gen *g, const struct kir_val *v); // to class G, from another

// x86_avx2.c: what AVX-512 has instructions for.
// A mask's lanes as wide as those it stands for, where they are `lanes` and not one value; in
// MASK_TMP, or the register that has them so already.
int x86_avx2_widen(struct x86_gen *g, int k, bool wide, bool lanes);
// The lanes of a last turn, in register `temp`.
int x86_avx2_tail(struct x86_gen *g, bool wide, int temp);
void x86_avx2_set_tail(struct x86_gen *g); // RCX of them; uses RAX and TMP0
// dst = yes where k (of lanes as wide as theirs) is set, else no.
void x86_avx2_blend(struct x86_gen *g, enum x86_len len, int dst, int no, struct x86_arg yes,
                    int k);
// dst, lanes of 32 bits: float lanes x compared with y (how: as EV_CMPPS has it).
void x86_avx2_compare(struct x86_gen *g, bool wide, bool lanes, enum x86_len len, int dst, int x,
                      struct x86_arg y, int how);
void x86_avx2_compare_ints(struct x86_gen *g, const struct kir_val *v, int dst);
void x86_avx2_nonzero(struct x86_gen *g, bool wide, bool lanes, enum x86_len len, int dst, int x);
void x86_avx2_logic(struct x86_gen *g, const struct kir_val *v, int dst); // of two masks
void x86_avx2_extremum(struct x86_gen *g, bool max, bool wide, enum x86_len len, int dst, int x,
                       struct x86_arg y);
// Operations on integers of 64 bits.
void x86_avx2_wide(struct x86_gen *g, enum kop op, enum dtype t, int dst, int x, struct x86_arg y);
void x86_avx2_wide_abs(struct x86_gen *g, int dst, int x);
// The low halves of lanes, side by side.
void x86_avx2_words(struct x86_gen *g, enum x86_len len, int dst, int x);
// x86_avx2_cast.c. Floats of the integers x of type t; integers of type t in TMP3 of the floats x.
void x86_avx2_float(struct x86_gen *g, enum dtype t, bool from, bool to, enum x86_len len, int dst,
                    int x);
void x86_avx2_int(struct x86_gen *g, enum dtype t, bool wide, bool lanes, enum x86_len len, int x);
// x86_avx2_memory.c. Loads and stores of neighbours: `bytes` of a register from its beginning.
void x86_avx2_load_tail(struct x86_gen *g, const struct kir_val *v, struct x86_mem m);
void x86_avx2_store(struct x86_gen *g, const struct kir_val *s);
// A register with the elements of s side by side from its beginning. Uses TMP0 to TMP3.
int x86_avx2_elements(struct x86_gen *g, const struct kir_val *s);
// v, lanes of 4 or 8 bytes at any places, into `dst`, which is not TMP0; not in a last turn.
void x86_avx2_load_each(struct x86_gen *g, const struct kir_val *v, int dst);
// Of a last turn: the lanes that take part.
void x86_avx2_gather(struct x86_gen *g, uint32_t op, enum x86_len len, bool wide, int dst,
                     struct x86_mem m);
void x86_avx2_interleave(struct x86_gen *g, const struct x86_group *group);
void x86_avx2_pack(struct x86_gen *g, int bytes, int r);

// x86_memory.c
void x86_load_value(struct x86_gen *g, const struct kir_val *v);
void x86_store_value(struct x86_gen *g, const struct kir_val *v);
// v of elements that lie side by side in memory or in a register, extended to lanes.
void x86_load_lanes(struct x86_gen *g, const struct kir_val *v, struct x86_arg from);
// The instruction that makes elements side by side of the lanes that s stores: the place is its
// last operand. Elements of 4 and 8 bytes need none, they are its dst. Uses TMP0 to TMP3.
struct x86_v x86_stored(struct x86_gen *g, const struct kir_val *s);
// x86_apart.c
void x86_load_apart(struct x86_gen *g, const struct kir_val *v);
void x86_store_apart(struct x86_gen *g, const struct kir_val *s);
void x86_store_each(struct x86_gen *g, const struct kir_val *s); // lane by lane

// x86_tile.c: at each turn of a loop with tiles; the load of one, lane 0 at `from`.
void x86_window_turn(struct x86_gen *g, struct x86_loop *x);
void x86_tile_load(struct x86_gen *g, const struct kir_val *v, struct x86_mem from);

// Instructions on lanes: the one on 32 bits; WIDE makes it the one on 64.
#define EV_W           0x100u
#define EV_ADDPS       EV(1, 0, 0, 0x58)
#define EV_MULPS       EV(1, 0, 0, 0x59)
#define EV_SUBPS       EV(1, 0, 0, 0x5c)
#define EV_MINPS       EV(1, 0, 0, 0x5d)
#define EV_DIVPS       EV(1, 0, 0, 0x5e)
#define EV_MAXPS       EV(1, 0, 0, 0x5f)
#define EV_SQRTPS      EV(1, 0, 0, 0x51)
#define EV_PD          EV(0, 1, 1, 0) /* added to one of the above: on doubles */
#define EV_ADDD        EV(1, 1, 0, 0xfe)
#define EV_ADDQ        EV(1, 1, 1, 0xd4)
#define EV_SUBD        EV(1, 1, 0, 0xfa)
#define EV_SUBQ        EV(1, 1, 1, 0xfb)
#define EV_MULD        EV(2, 1, 0, 0x40)
#define EV_MINSD       EV(2, 1, 0, 0x39)
#define EV_MINUD       EV(2, 1, 0, 0x3b)
#define EV_MAXSD       EV(2, 1, 0, 0x3d)
#define EV_MAXUD       EV(2, 1, 0, 0x3f)
#define EV_AND         EV(1, 1, 0, 0xdb)
#define EV_OR          EV(1, 1, 0, 0xeb)
#define EV_XOR         EV(1, 1, 0, 0xef)
#define EV_SLLV        EV(2, 1, 0, 0x47)
#define EV_SRLV        EV(2, 1, 0, 0x45)
#define EV_SRAV        EV(2, 1, 0, 0x46)
#define EV_ABSD        EV(2, 1, 0, 0x1e)
#define EV_ABSQ        EV(2, 1, 1, 0x1f)
#define EV_SHIFT       EV(1, 1, 0, 0x72) /* by an immediate: src LANES_LEFT, ... */
#define EV_SHIFTQ      EV(1, 1, 1, 0x73)
#define EV_MULUDQ      EV(1, 1, 1, 0xf4)
#define EV_RNDSCALEPS  EV(3, 1, 0, 0x08)
#define EV_RNDSCALEPD  EV(3, 1, 1, 0x09)
#define EV_SCALEF      EV(2, 1, 0, 0x2c)
#define EV_RANGE       EV(3, 1, 0, 0x50)
#define EV_CMPPS       EV(1, 0, 0, 0xc2)
#define EV_CMPD        EV(3, 1, 0, 0x1f)
#define EV_CMPUD       EV(3, 1, 0, 0x1e)
#define EV_BLEND       EV(2, 1, 0, 0x65)
#define EV_TEST        EV(2, 1, 0, 0x27)
#define EV_MOVUPS      EV(1, 0, 0, 0x10)
#define EV_STOREUPS    EV(1, 0, 0, 0x11)
#define EV_MOVAPS      EV(1, 0, 0, 0x28)
#define EV_EACHSS      EV(2, 1, 0, 0x18)
#define EV_EACHSD      EV(2, 1, 1, 0x19)
#define EV_EACH_GPR    EV(2, 1, 0, 0x7c)
#define EV_EACHW_GPR   EV(2, 1, 0, 0x7b)
#define EV_TO_GPR      EV(1, 1, 0, 0x7e)
#define EV_PTEST       EV(2, 1, 0, 0x17)
#define EV_PCMPEQD     EV(1, 1, 0, 0x76)
#define EV_PSHUFB      EV(2, 1, 0, 0x00)
#define EV_FROM_GPR    EV(1, 1, 0, 0x6e)
#define EV_EACHD       EV(2, 1, 0, 0x58)
#define EV_EACHQ       EV(2, 1, 0, 0x59)
#define EV_SHUFPS      EV(1, 0, 0, 0xc6)
#define EV_PERMQ       EV(3, 1, 1, 0x00)
#define EV_STORESS     EV(1, 2, 0, 0x11)
#define EV_STORESD     EV(1, 3, 1, 0x11)
#define EV_FMA132      EV(2, 1, 0, 0x98)
#define EV_FMA213      EV(2, 1, 0, 0xa8)
#define EV_FMA231      EV(2, 1, 0, 0xb8)
#define EV_SXDQ        EV(2, 1, 0, 0x25)
#define EV_ZXDQ        EV(2, 1, 0, 0x35)
#define EV_NARROWQD    EV(2, 2, 0, 0x35)
#define EV_PERMILPS    EV(3, 1, 0, 0x04)
#define EV_PERMILPD    EV(3, 1, 1, 0x05)
#define EV_PH2PS       EV(2, 1, 0, 0x13)
#define EV_UNPCKPS     EV(1, 0, 0, 0x14) /* of the lower pairs; + 1: of the upper ones */
#define EV_UNPCKPD     EV(1, 1, 1, 0x14)
#define EV_PERMI2PS    EV(2, 1, 0, 0x77)
#define EV_PERM_HALVES EV(3, 1, 0, 0x06)
#define EV_PS2PH       EV(3, 1, 0, 0x1d)
