// SPDX-License-Identifier: Apache-2.0
// x86_asm: an assembler for the instructions that the direct generator needs: 64-bit integer ones,
// mask registers, and vectors, all of which are encoded with EVEX (AVX-512 F, BW, DQ, VL), whatever
// their length, or all with VEX (AVX2, FMA, F16C). No disp8 compression, no short branches: each
// encoder stays one function.
// Constants lie in a pool behind the code and are addressed relative to it. Encodings: Intel SDM,
// volume 2, sections 2.3 (VEX) and 2.7 (EVEX).
#pragma once
#include "base/str.h"
#include "base/vec.h"

enum { RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8, R9, R10, R11, R12, R13, R14, R15 };
// FULL: the machine's vectors, 64 bytes with AVX-512, 32 with AVX2.
enum x86_len { L128, HALF, FULL };
enum x86_cc {
    CC_B = 2,
    CC_E = 4,
    CC_NE = 5,
    CC_L = 12,
    CC_GE = 13,
    CC_LE = 14,
    CC_G = 15,
    CC_AE = 3,
    CC_BE = 6,
    CC_A = 7
};

struct x86_mem {
    int8_t base, index; // registers; index -1: none. A vector register with x86_gather
    uint8_t scale;      // of the index: its logarithm
    bool pool;          // disp is an offset in the pool; base and index are not used
    int32_t disp;
};
struct x86_arg { // the last operand of an instruction
    bool mem;
    bool each; // memory is one element, read into all lanes
    int8_t reg;
    struct x86_mem m;
};
struct x86_fix {
    uint32_t at;   // of the 4 bytes in the code
    uint32_t next; // bytes of the instruction behind them
    int32_t to;    // label, or offset in the pool
    bool pool;
};
enum { X86_HELD = 28, X86_HELD_N = 4 };
struct x86 {
    bool vex; // AVX2: 16 registers of 32 bytes; register 16 + n is n, there are no masks
    bool one; // no lane but the first counts: vectors are as short as can be
    bool bad; // an instruction was asked for that VEX has not
    int64_t held[X86_HELD_N]; // constants in registers from X86_HELD on (x86_home.c); 0: none
    struct strbuf code, pool;
    VEC(struct x86_fix) fixes;
    VEC(int32_t) labels;
    VEC(uint64_t) consts; // offset << 8 | size, to find equal ones again
};

void x86_done(struct x86 *a);
// Puts the pool behind the code and resolves what refers to it and to labels. The code is then a
// blob that may lie anywhere at 64 bytes.
void x86_finish(struct x86 *a);
int x86_label(struct x86 *a);
void x86_bind(struct x86 *a, int label);
// Offset in the pool of n equal bytes (n is the alignment too, at most 64).
int32_t x86_const(struct x86 *a, const void *bytes, int n);
int32_t x86_table(struct x86 *a, const void *bytes, size_t n);

// A vector instruction: opcode map (1: 0F, 2: 0F38, 3: 0F3A), prefix (0, 1: 66, 2: F3, 3: F2), W.
#define EV(map, pp, w, op)                                                                         \
    ((uint32_t)(map) << 16 | (uint32_t)(pp) << 12 | (uint32_t)(w) << 8 | (op))
struct x86_v { // k: mask, 0 = none; zero: lanes without it become 0 instead of staying
    uint32_t op;
    enum x86_len len;
    int dst, src; // src 0 where there is none
    uint8_t k;
    bool zero;
    int imm; // -1: none
};
void x86_vec(struct x86 *a, struct x86_v v, struct x86_arg last);
// With VSIB: m.index is a vector register. k: a mask; with AVX2 a vector register.
void x86_gather(struct x86 *a, uint32_t op, enum x86_len len, int dst, struct x86_mem m, int k);
// Mask instructions (VEX). ANDN: y without x.
enum {
    MASK_AND = 0x41,
    MASK_ANDN = 0x42,
    MASK_NOT = 0x44,
    MASK_OR = 0x45,
    MASK_XNOR = 0x46,
    MASK_XOR = 0x47,
    MASK_MOVE = 0x90
};
void x86_mask3(struct x86 *a, int op, int dst, int x, int y);
void x86_mask2(struct x86 *a, int op, int dst, int x);
void x86_mask_twice(struct x86 *a, int k); // its lowest 8 lanes in the next 8 too
void x86_mask_test(struct x86 *a, int k);  // flags: zero where no lane is set
void x86_mask_from(struct x86 *a, int k, int gpr);
void x86_mask_to(struct x86 *a, int gpr, int k);
void x86_mask_load(struct x86 *a, int k, struct x86_mem m);
void x86_mask_store(struct x86 *a, struct x86_mem m, int k);

// Integer instructions on 64 bits unless they say 32.
enum x86_alu { ALU_ADD, ALU_OR, ALU_AND = 4, ALU_SUB, ALU_XOR, ALU_CMP };
void x86_alu(struct x86 *a, enum x86_alu op, int dst, int src);
void x86_alu_imm(struct x86 *a, enum x86_alu op, int dst, int32_t imm);
void x86_mov(struct x86 *a, int dst, int src);
void x86_mov_imm(struct x86 *a, int dst, int64_t imm);
void x86_load(struct x86 *a, int dst, struct x86_mem m);
void x86_store(struct x86 *a, struct x86_mem m, int src, int size); // 1, 2, 4, 8 bytes
// Reads `size` bytes and extends them to 64 bits.
void x86_load_small(struct x86 *a, int dst, struct x86_mem m, int size, bool sign);
void x86_lea(struct x86 *a, int dst, struct x86_mem m);
void x86_imul(struct x86 *a, int dst, int src);
void x86_imul_imm(struct x86 *a, int dst, int src, int32_t imm);
enum x86_shift { SHIFT_LEFT = 4, SHIFT_RIGHT = 5, SHIFT_SIGNED = 7 };
void x86_shift_imm(struct x86 *a, enum x86_shift op, int dst, int imm);
void x86_shift_cl(struct x86 *a, enum x86_shift op, int dst);
enum x86_unary { UN_NEG = 3, UN_DIV = 6, UN_IDIV = 7 };
void x86_unary(struct x86 *a, enum x86_unary op, int reg, bool wide);
void x86_sign(struct x86 *a, bool wide); // rdx:rax from rax (edx:eax from eax)
void x86_cmov(struct x86 *a, enum x86_cc cc, int dst, int src);
void x86_setcc(struct x86 *a, enum x86_cc cc, int dst);    // dst becomes 0 or 1
void x86_count(struct x86 *a, bool pop, int dst, int src); // popcnt or lzcnt
void x86_test(struct x86 *a, int x, int32_t imm);
void x86_sxd(struct x86 *a, int dst, int src); // from 32 bits
void x86_jump(struct x86 *a, int label);
void x86_jump_if(struct x86 *a, enum x86_cc cc, int label);
void x86_push(struct x86 *a, int reg);
void x86_pop(struct x86 *a, int reg);
void x86_ret(struct x86 *a); // vzeroupper before

static inline struct x86_arg x86_r(int reg) {
    return (struct x86_arg){.reg = (int8_t)reg};
}
static inline struct x86_arg x86_m(struct x86_mem m) {
    return (struct x86_arg){.mem = true, .m = m};
}
static inline struct x86_mem x86_at(int base, int32_t disp) {
    return (struct x86_mem){.base = (int8_t)base, .index = -1, .disp = disp};
}
static inline struct x86_mem x86_pooled(int32_t offset) {
    return (struct x86_mem){.pool = true, .index = -1, .disp = offset};
}
