// SPDX-License-Identifier: Apache-2.0
// The encodings. See x86_asm.h.
#include "compiler/codegen/x86/x86_asm.h"

enum { ALIGN = 64 };

static void byte(struct x86 *a, int b) {
    strbuf_putc(&a->code, (char)b);
}
static void word32(struct x86 *a, int64_t v) {
    int32_t w = (int32_t)v;
    strbuf_add(&a->code, &w, sizeof w);
}

void x86_done(struct x86 *a) {
    strbuf_done(&a->code);
    strbuf_done(&a->pool);
    vec_done(&a->fixes);
    vec_done(&a->labels);
    vec_done(&a->consts);
}
static void pad(struct strbuf *b, size_t align, char with) {
    while (b->n % align)
        strbuf_putc(b, with);
}
void x86_finish(struct x86 *a) {
    pad(&a->code, ALIGN, (char)0xcc);
    int64_t pool = (int64_t)a->code.n;
    for (size_t i = 0; i < a->fixes.n; i++) {
        const struct x86_fix *f = &a->fixes.v[i];
        int64_t to = f->pool ? pool + f->to : a->labels.v[f->to];
        int32_t d = (int32_t)(to - (int64_t)f->at - 4 - (int64_t)f->next);
        memcpy(a->code.p + f->at, &d, sizeof d);
    }
    if (a->pool.n) strbuf_add(&a->code, a->pool.p, a->pool.n);
}

int x86_label(struct x86 *a) {
    vec_push(&a->labels, 0);
    return (int)a->labels.n - 1;
}
void x86_bind(struct x86 *a, int label) {
    memset(a->held, 0, sizeof a->held); // it is come to from elsewhere, too
    a->labels.v[label] = (int32_t)a->code.n;
}
int32_t x86_const(struct x86 *a, const void *bytes, int n) {
    for (size_t i = 0; i < a->consts.n; i++) {
        size_t at = (size_t)(a->consts.v[i] >> 8);
        if ((a->consts.v[i] & 255) == (uint64_t)n && !memcmp(a->pool.p + at, bytes, (size_t)n))
            return (int32_t)at;
    }
    pad(&a->pool, (size_t)n, 0);
    vec_push(&a->consts, (uint64_t)a->pool.n << 8 | (uint64_t)n);
    strbuf_add(&a->pool, bytes, (size_t)n);
    return (int32_t)a->pool.n - n;
}
int32_t x86_table(struct x86 *a, const void *bytes, size_t n) {
    pad(&a->pool, ALIGN, 0);
    strbuf_add(&a->pool, bytes, n);
    return (int32_t)(a->pool.n - n);
}

// ModRM, SIB and displacement. tail: bytes of immediate that follow.
static void modrm(struct x86 *a, int reg, const struct x86_mem *m, int tail) {
    int r = (reg & 7) << 3;
    if (m->pool) {
        byte(a, r | 5);
        struct x86_fix f = {(uint32_t)a->code.n, (uint32_t)tail, m->disp, true};
        vec_push(&a->fixes, f);
        word32(a, 0);
        return;
    }
    int base = m->base & 7;
    bool sib = m->index >= 0 || base == 4;
    int mod = m->disp == 0 && base != 5 ? 0 : m->disp >= -128 && m->disp < 128 ? 1 : 2;
    byte(a, mod << 6 | r | (sib ? 4 : base));
    if (sib) byte(a, m->scale << 6 | (m->index >= 0 ? m->index & 7 : 4) << 3 | base);
    if (mod == 1) byte(a, m->disp);
    if (mod == 2) word32(a, m->disp);
}
// As above with a displacement of 4 bytes: EVEX scales one of a byte.
static void modrm_wide(struct x86 *a, int reg, const struct x86_mem *m, int tail) {
    if (m->pool || (m->disp == 0 && (m->base & 7) != 5)) {
        modrm(a, reg, m, tail);
        return;
    }
    bool sib = m->index >= 0 || (m->base & 7) == 4;
    byte(a, 0x80 | (reg & 7) << 3 | (sib ? 4 : m->base & 7));
    if (sib) byte(a, m->scale << 6 | (m->index >= 0 ? m->index & 7 : 4) << 3 | (m->base & 7));
    word32(a, m->disp);
}

// ---- vectors

// x, b: bits 3 of index or bit 4 of a register operand, and bit 3 of base or operand; high: bit 4
// of src, or of a vector index.
static void evex(struct x86 *a, const struct x86_v *v, int x, int b, int high, bool each) {
    int map = (int)(v->op >> 16), pp = (int)(v->op >> 12) & 3, w = (int)(v->op >> 8) & 1;
    byte(a, 0x62);
    byte(a, (v->dst & 8 ? 0 : 0x80) | (x ? 0 : 0x40) | (b ? 0 : 0x20) | (v->dst & 16 ? 0 : 0x10) |
                map);
    byte(a, w << 7 | (~v->src & 15) << 3 | 4 | pp);
    byte(a, (v->zero ? 0x80 : 0) | (int)v->len << 5 | (each ? 0x10 : 0) | (high ? 0 : 8) | v->k);
    byte(a, (int)(v->op & 255));
}

// Is there such an instruction with VEX, of the same meaning but for its length? Of those that the
// generator knows: x86_avx2_*.c say the others in several.
static bool has_vex(uint32_t op) {
    int map = (int)(op >> 16), pp = (int)(op >> 12) & 3, w = (int)(op >> 8) & 1, o = op & 255;
    bool wide_int = w && pp == 1;
    switch (map) {
    case 1:
        return !(o >= 0x78 && o <= 0x7b) && !(o == 0x72 && w) && !(o == 0x5b && w) &&
               !(o == 0xe6 && pp == 2 && w);
    case 2:
        return pp == 1 && o != 0x1f && o != 0x27 && o != 0x65 && o != 0x77 && o != 0x7a &&
               o != 0x7b && o != 0x7c && o != 0x7f && !(wide_int && o >= 0x38 && o <= 0x40) &&
               !(wide_int && o == 0x46);
    default:
        return o != 0x1e && o != 0x1f && o != 0x23 && o != 0x50;
    }
}
enum { EACH_WIDE = 0x020019 }; // 8 bytes into all lanes: not of 16 bytes
static bool is_each_wide(uint32_t op) {
    return (op & 0xff00ff) == EACH_WIDE;
}
// Some have no W with VEX where EVEX has it.
static int vex_w(uint32_t op) {
    bool none = is_each_wide(op) || (op & 0xff00ff) == 0x030005; // into all lanes; pairs
    return none ? 0 : (int)(op >> 8) & 1;
}
static void vex_prefix(struct x86 *a, const struct x86_v *v, int x, int b) {
    int map = (int)(v->op >> 16), pp = (int)(v->op >> 12) & 3, w = vex_w(v->op),
        l = is_each_wide(v->op) || (v->len == FULL && !a->one);
    int rest = (~v->src & 15) << 3 | l << 2 | pp;
    if (v->k || v->zero || !has_vex(v->op)) a->bad = true;
    if (map == 1 && !w && !x && !b) {
        byte(a, 0xc5);
        byte(a, (v->dst & 8 ? 0 : 0x80) | rest);
    } else {
        byte(a, 0xc4);
        byte(a, (v->dst & 8 ? 0 : 0x80) | (x ? 0 : 0x40) | (b ? 0 : 0x20) | map);
        byte(a, w << 7 | rest);
    }
    byte(a, (int)(v->op & 255));
}
static void vex_vec(struct x86 *a, const struct x86_v *v, const struct x86_arg *last) {
    if (!last->mem) {
        vex_prefix(a, v, 0, last->reg & 8);
        byte(a, 0xc0 | (v->dst & 7) << 3 | (last->reg & 7));
    } else {
        bool plain = last->m.pool;
        if (last->each) a->bad = true;
        vex_prefix(a, v, !plain && last->m.index >= 0 && last->m.index & 8,
                   !plain && last->m.base & 8);
        modrm(a, v->dst, &last->m, v->imm >= 0);
    }
    if (v->imm >= 0) byte(a, v->imm);
}
static void forget(struct x86 *a, int reg) {
    if (reg >= X86_HELD) a->held[reg - X86_HELD] = 0;
}
// Shifts by an immediate: `dst` says how, `src` is written.
static bool writes_src(uint32_t op) {
    int o = op & 255;
    return op >> 16 == 1 && o >= 0x71 && o <= 0x73;
}
void x86_vec(struct x86 *a, struct x86_v v, struct x86_arg last) {
    int tail = v.imm >= 0;
    forget(a, writes_src(v.op) ? v.src : v.dst);
    if (!last.mem) forget(a, last.reg); // which some write
    if (a->vex) {
        vex_vec(a, &v, &last);
        return;
    }
    if (a->one) v.len = L128;
    if (is_each_wide(v.op) && v.len == L128) v.len = HALF;
    if (!last.mem) {
        evex(a, &v, last.reg & 16, last.reg & 8, v.src & 16, false);
        byte(a, 0xc0 | (v.dst & 7) << 3 | (last.reg & 7));
    } else {
        bool plain = last.m.pool;
        evex(a, &v, !plain && last.m.index >= 0 && last.m.index & 8, !plain && last.m.base & 8,
             v.src & 16, last.each);
        modrm_wide(a, v.dst, &last.m, tail);
    }
    if (tail) byte(a, v.imm);
}
void x86_gather(struct x86 *a, uint32_t op, enum x86_len len, int dst, struct x86_mem m, int k) {
    struct x86_v v = {.op = op, .len = len, .dst = dst, .imm = -1};
    if (a->vex) {
        v.src = k;
        vex_prefix(a, &v, m.index & 8, m.base & 8);
        modrm(a, dst, &m, 0);
        return;
    }
    forget(a, dst);
    v.k = (uint8_t)k;
    evex(a, &v, m.index & 8, m.base & 8, m.index & 16, false);
    modrm_wide(a, dst, &m, 0);
}

// ---- masks: VEX with W0, no prefix but where it says so

static void vex(struct x86 *a, int reg, int x, int b, int vvvv, int l) {
    if (a->vex) a->bad = true;
    byte(a, 0xc4);
    byte(a, (reg & 8 ? 0 : 0x80) | (x ? 0 : 0x40) | (b ? 0 : 0x20) | 1);
    byte(a, (~vvvv & 15) << 3 | l << 2);
}
static void vex_66(struct x86 *a, int reg, int vvvv) {
    vex(a, reg, 0, 0, vvvv, 1);
    a->code.p[a->code.n - 1] |= 1;
}
void x86_mask3(struct x86 *a, int op, int dst, int x, int y) {
    vex(a, dst, 0, 0, x, 1);
    byte(a, op);
    byte(a, 0xc0 | dst << 3 | y);
}
void x86_mask2(struct x86 *a, int op, int dst, int x) {
    vex(a, dst, 0, 0, 0, 0);
    byte(a, op);
    byte(a, 0xc0 | dst << 3 | x);
}
void x86_mask_twice(struct x86 *a, int k) { // KUNPCKBW
    vex_66(a, k, k);
    byte(a, 0x4b);
    byte(a, 0xc0 | k << 3 | k);
}
void x86_mask_test(struct x86 *a, int k) {
    x86_mask2(a, 0x98, k, k);
}
void x86_mask_from(struct x86 *a, int k, int gpr) {
    vex(a, k, 0, gpr & 8, 0, 0);
    byte(a, 0x92);
    byte(a, 0xc0 | k << 3 | (gpr & 7));
}
void x86_mask_to(struct x86 *a, int gpr, int k) {
    vex(a, gpr, 0, 0, 0, 0);
    byte(a, 0x93);
    byte(a, 0xc0 | (gpr & 7) << 3 | k);
}
static void mask_memory(struct x86 *a, int op, int k, const struct x86_mem *m) {
    vex(a, k, m->index >= 0 && m->index & 8, m->base & 8, 0, 0);
    byte(a, op);
    modrm(a, k, m, 0);
}
void x86_mask_load(struct x86 *a, int k, struct x86_mem m) {
    mask_memory(a, 0x90, k, &m);
}
void x86_mask_store(struct x86 *a, struct x86_mem m, int k) {
    mask_memory(a, 0x91, k, &m);
}

// ---- integers

static void rex(struct x86 *a, bool wide, int reg, int x, int b, bool always) {
    int r = 0x40 | (wide ? 8 : 0) | (reg & 8 ? 4 : 0) | (x & 8 ? 2 : 0) | (b & 8 ? 1 : 0);
    if (r != 0x40 || always) byte(a, r);
}
static void two(struct x86 *a, bool wide, int op, int reg, int rm) {
    rex(a, wide, reg, 0, rm, false);
    if (op > 255) byte(a, op >> 8);
    byte(a, op);
    byte(a, 0xc0 | (reg & 7) << 3 | (rm & 7));
}
static void with_memory(struct x86 *a, bool wide, int op, int reg, const struct x86_mem *m,
                        bool always) {
    bool plain = m->pool;
    rex(a, wide, reg, !plain && m->index >= 0 ? m->index : 0, plain ? 0 : m->base, always);
    if (op > 255) byte(a, op >> 8);
    byte(a, op);
    modrm(a, reg, m, 0);
}
void x86_alu(struct x86 *a, enum x86_alu op, int dst, int src) {
    two(a, true, (int)op << 3 | 1, src, dst);
}
void x86_alu_imm(struct x86 *a, enum x86_alu op, int dst, int32_t imm) {
    bool brief = imm >= -128 && imm < 128;
    two(a, true, brief ? 0x83 : 0x81, (int)op, dst);
    if (brief)
        byte(a, imm);
    else
        word32(a, imm);
}
void x86_mov(struct x86 *a, int dst, int src) {
    if (dst != src) two(a, true, 0x89, src, dst);
}
void x86_mov_imm(struct x86 *a, int dst, int64_t imm) {
    if (imm >= 0 && imm <= UINT32_MAX) {
        rex(a, false, 0, 0, dst, false);
        byte(a, 0xb8 | (dst & 7));
        word32(a, imm);
    } else if (imm >= INT32_MIN && imm < 0) {
        two(a, true, 0xc7, 0, dst);
        word32(a, imm);
    } else {
        rex(a, true, 0, 0, dst, false);
        byte(a, 0xb8 | (dst & 7));
        strbuf_add(&a->code, &imm, sizeof imm);
    }
}
void x86_load(struct x86 *a, int dst, struct x86_mem m) {
    with_memory(a, true, 0x8b, dst, &m, false);
}
void x86_store(struct x86 *a, struct x86_mem m, int src, int size) {
    if (size == 2) byte(a, 0x66);
    with_memory(a, size == 8, size == 1 ? 0x88 : 0x89, src, &m, size == 1);
}
void x86_load_small(struct x86 *a, int dst, struct x86_mem m, int size, bool sign) {
    if (size == 8)
        x86_load(a, dst, m);
    else if (size == 4)
        with_memory(a, sign, sign ? 0x63 : 0x8b, dst, &m, false);
    else
        with_memory(a, true, 0x0f00 | (sign ? 0xbe : 0xb6) | (size == 2), dst, &m, false);
}
void x86_lea(struct x86 *a, int dst, struct x86_mem m) {
    with_memory(a, true, 0x8d, dst, &m, false);
}
void x86_imul(struct x86 *a, int dst, int src) {
    two(a, true, 0x0faf, dst, src);
}
void x86_imul_imm(struct x86 *a, int dst, int src, int32_t imm) {
    two(a, true, 0x69, dst, src);
    word32(a, imm);
}
void x86_shift_imm(struct x86 *a, enum x86_shift op, int dst, int imm) {
    two(a, true, 0xc1, (int)op, dst);
    byte(a, imm);
}
void x86_shift_cl(struct x86 *a, enum x86_shift op, int dst) {
    two(a, true, 0xd3, (int)op, dst);
}
void x86_unary(struct x86 *a, enum x86_unary op, int reg, bool wide) {
    two(a, wide, 0xf7, (int)op, reg);
}
void x86_sign(struct x86 *a, bool wide) {
    if (wide) byte(a, 0x48);
    byte(a, 0x99);
}
void x86_cmov(struct x86 *a, enum x86_cc cc, int dst, int src) {
    two(a, true, 0x0f40 | (int)cc, dst, src);
}
void x86_setcc(struct x86 *a, enum x86_cc cc, int dst) {
    rex(a, false, 0, 0, dst, true);
    byte(a, 0x0f);
    byte(a, 0x90 | (int)cc);
    byte(a, 0xc0 | (dst & 7));
    rex(a, false, dst, 0, dst, true); // movzx
    byte(a, 0x0f);
    byte(a, 0xb6);
    byte(a, 0xc0 | (dst & 7) << 3 | (dst & 7));
}
void x86_count(struct x86 *a, bool pop, int dst, int src) {
    byte(a, 0xf3);
    two(a, true, pop ? 0x0fb8 : 0x0fbd, dst, src);
}
void x86_test(struct x86 *a, int x, int32_t imm) {
    two(a, false, 0xf7, 0, x);
    word32(a, imm);
}
void x86_sxd(struct x86 *a, int dst, int src) {
    two(a, true, 0x63, dst, src);
}
static void branch(struct x86 *a, int label) {
    struct x86_fix f = {(uint32_t)a->code.n, 0, label, false};
    vec_push(&a->fixes, f);
    word32(a, 0);
}
void x86_jump(struct x86 *a, int label) {
    byte(a, 0xe9);
    branch(a, label);
}
void x86_jump_if(struct x86 *a, enum x86_cc cc, int label) {
    byte(a, 0x0f);
    byte(a, 0x80 | (int)cc);
    branch(a, label);
}
void x86_push(struct x86 *a, int reg) {
    rex(a, false, 0, 0, reg, false);
    byte(a, 0x50 | (reg & 7));
}
void x86_pop(struct x86 *a, int reg) {
    rex(a, false, 0, 0, reg, false);
    byte(a, 0x58 | (reg & 7));
}
void x86_ret(struct x86 *a) {
    static const uint8_t code[] = {0xc5, 0xf8, 0x77, 0xc3};
    strbuf_add(&a->code, code, sizeof code);
}
