// SPDX-License-Identifier: Apache-2.0
// Conversions that AVX2 has no instruction for: floats of integers without a sign and of 64 bits,
// and back. The parts of an integer become the mantissas of floats whose exponent is fixed, and are
// added: one rounding in all. See x86_cast.c for what is asked.
#include "compiler/codegen/x86/x86_gen.h"

#define CVT_DQ_PS EV(1, 0, 0, 0x5b)
#define CVT_PS_DQ EV(1, 2, 0, 0x5b)
#define CVT_PS_PD EV(1, 0, 0, 0x5a)
#define CVT_PD_PS EV(1, 1, 1, 0x5a)
#define CVT_PD_DQ EV(1, 1, 1, 0xe6)
#define BLENDD    EV(3, 1, 0, 0x02)
#define PCMPEQQ   EV(2, 1, 0, 0x29)
enum { ORDERED = 7, NOT_LESS = 0x1d, TO_ZERO = 11, DOWN = 9, ODD = 0xaa };

// ---- integers to floats

// Both halves of 32 bits: 2^23 + low, and 2^39 + 2^16 high.
static void float_of_u32(struct x86_gen *g, enum x86_len len, int dst, int x) {
    x86_op3(g, EV_AND, len, TMP1, x, x86_each32(g, 0xffff));
    x86_op3(g, EV_OR, len, TMP1, TMP1, x86_each32(g, 0x4b000000));
    x86_lane_shift(g, false, len, TMP2, x, LANES_RIGHT, 16);
    x86_op3(g, EV_OR, len, TMP2, TMP2, x86_each32(g, 0x53000000));
    x86_op3(g, EV_SUBPS, len, TMP2, TMP2, x86_each_float(g, false, 0x1p39 + 0x1p23));
    x86_op3(g, EV_ADDPS, len, dst, TMP1, x86_r(TMP2));
}
static void double_of_u32(struct x86_gen *g, int dst, int x) {
    x86_op2(g, EV_ZXDQ, FULL, TMP1, x86_r(x));
    x86_op3(g, EV_OR, FULL, TMP1, TMP1, x86_each_float(g, true, 0x1p52));
    x86_op3(g, EV_SUBPS + EV_PD, FULL, dst, TMP1, x86_each_float(g, true, 0x1p52));
}
// 2^84 + 2^32 high (and 2^63, if there is a sign), and 2^52 + low.
static void double_of_64(struct x86_gen *g, bool sign, int dst, int x) {
    x86_lane_shift(g, true, FULL, TMP1, x, LANES_RIGHT, 32);
    x86_op3(g, EV_XOR, FULL, TMP1, TMP1,
            x86_each64(g, UINT64_C(0x4530000000000000) | (sign ? UINT64_C(0x80000000) : 0)));
    x86_op3(g, EV_SUBPS + EV_PD, FULL, TMP1, TMP1,
            x86_each_float(g, true, 0x1p84 + (sign ? 0x1p63 : 0) + 0x1p52));
    x86_op3i(g, BLENDD, FULL, TMP2, x, x86_each_float(g, true, 0x1p52), ODD);
    x86_op3(g, EV_ADDPS + EV_PD, FULL, dst, TMP1, x86_r(TMP2));
}
// By way of a double, which holds the number but for its last bits: where it does not, those are
// one that says whether there were any (rounding to odd), so that the second rounding is the only
// one.
static void float_of_64(struct x86_gen *g, bool sign, int dst, int x) {
    x86_op3(g, EV_AND, FULL, TMP1, x, x86_each64(g, 0xfff));
    x86_op3(g, EV_ADDQ, FULL, TMP1, TMP1, x86_each64(g, 0xfff));
    x86_lane_shift(g, true, FULL, TMP1, TMP1, LANES_RIGHT, 1);
    x86_op3(g, EV_AND, FULL, TMP1, TMP1, x86_each64(g, 0x800));
    x86_op3(g, EV_AND, FULL, TMP2, x, x86_each64(g, ~UINT64_C(0xfff)));
    x86_op3(g, EV_OR, FULL, TMP1, TMP1, x86_r(TMP2));

    // Numbers of 53 bits stay.
    x86_op3(g, EV_ADDQ, FULL, MASK_TMP, x, x86_each64(g, sign ? UINT64_C(1) << 53 : 0));
    x86_lane_shift(g, true, FULL, MASK_TMP, MASK_TMP, LANES_RIGHT, sign ? 54 : 53);
    x86_op3(g, EV_XOR, FULL, TMP2, TMP2, x86_r(TMP2));
    x86_op3(g, PCMPEQQ, FULL, MASK_TMP, MASK_TMP, x86_r(TMP2));
    x86_avx2_blend(g, FULL, TMP3, TMP1, x86_r(x), MASK_TMP);

    double_of_64(g, sign, TMP3, TMP3);
    x86_op2(g, CVT_PD_PS, FULL, dst, x86_r(TMP3));
}
void x86_avx2_float(struct x86_gen *g, enum dtype t, bool from, bool to, enum x86_len len, int dst,
                    int x) {
    bool sign = t != DT_U32 && t != DT_U64;
    if (from)
        (to ? double_of_64 : float_of_64)(g, sign, dst, x);
    else if (to)
        double_of_u32(g, dst, x);
    else
        float_of_u32(g, len, dst, x);
}

// ---- floats to integers, in TMP3

// Where float lanes x compare so with c, TMP3 becomes `most`; where they are NaN, 0.
static void bounded(struct x86_gen *g, bool wide, bool to, bool lanes, enum x86_len len, int x,
                    double c, uint64_t most) {
    x86_avx2_compare(g, wide, lanes && !to, len, MASK_TMP, x, x86_each_float(g, wide, c), NOT_LESS);
    int k = x86_avx2_widen(g, MASK_TMP, to && !wide, lanes);
    x86_avx2_blend(g, FULL, TMP3, TMP3, x86_each(g, to, most), k);
}
static void zero_nan(struct x86_gen *g, bool wide, bool to, bool lanes, enum x86_len len, int x) {
    x86_avx2_compare(g, wide, lanes && !to, len, MASK_TMP, x, x86_r(x), ORDERED);
    int k = x86_avx2_widen(g, MASK_TMP, to && !wide, lanes);
    x86_op3(g, EV_AND, FULL, TMP3, TMP3, x86_r(k));
}
// TMP3, doubles without a fraction: the high part, 2^32 times a whole number, and the rest.
static void parts_of_64(struct x86_gen *g, bool sign) {
    x86_op3(g, EV_MULPS + EV_PD, FULL, TMP1, TMP3, x86_each_float(g, true, 0x1p-32));
    x86_op3i(g, EV_RNDSCALEPD, FULL, TMP1, 0, x86_r(TMP1), DOWN);
    x86_op3(g, EV_MULPS + EV_PD, FULL, TMP2, TMP1, x86_each_float(g, true, 0x1p32));
    x86_op3(g, EV_SUBPS + EV_PD, FULL, TMP3, TMP3, x86_r(TMP2));
    x86_op3(g, EV_ADDPS + EV_PD, FULL, TMP3, TMP3, x86_each_float(g, true, 0x1p52));
    x86_op3(g, EV_ADDPS + EV_PD, FULL, TMP1, TMP1,
            x86_each_float(g, true, sign ? 0x1.8p52 : 0x1p52));
    x86_lane_shift(g, true, FULL, TMP1, TMP1, LANES_LEFT, 32);
    x86_op3i(g, BLENDD, FULL, TMP3, TMP3, x86_r(TMP1), ODD);
}
static void int_64(struct x86_gen *g, bool sign, bool wide, bool lanes, enum x86_len len, int x) {
    x86_op2(g, wide ? EV_MOVAPS : CVT_PS_PD, FULL, TMP3, x86_r(x));
    x86_op3i(g, EV_RNDSCALEPD, FULL, TMP3, 0, x86_r(TMP3), TO_ZERO);
    x86_op3(g, EV_MAXPS + EV_PD, FULL, TMP3, TMP3, x86_each_float(g, true, sign ? -0x1p63 : 0));
    parts_of_64(g, sign);
    bounded(g, wide, true, lanes, len, x, sign ? 0x1p63 : 0x1p64, sign ? INT64_MAX : UINT64_MAX);
    if (sign) zero_nan(g, wide, true, lanes, len, x);
}
// Both of x and x - 2^31, whose conversion is 2^31 where it does not fit.
static void u32_of_float(struct x86_gen *g, enum x86_len len, int x) {
    x86_op3(g, EV_MAXPS, len, TMP3, x, x86_each_float(g, false, 0));
    x86_op3(g, EV_SUBPS, len, TMP1, TMP3, x86_each_float(g, false, 0x1p31));
    x86_op3i(g, EV_CMPPS, len, MASK_TMP, TMP3, x86_each_float(g, false, 0x1p32), NOT_LESS);
    x86_op2(g, CVT_PS_DQ, len, TMP3, x86_r(TMP3));
    x86_op2(g, CVT_PS_DQ, len, TMP1, x86_r(TMP1));
    x86_lane_shift(g, false, len, TMP2, TMP3, LANES_SIGNED, 31);
    x86_op3(g, EV_AND, len, TMP1, TMP1, x86_r(TMP2));
    x86_op3(g, EV_OR, len, TMP3, TMP3, x86_r(TMP1));
    x86_op3(g, EV_OR, len, TMP3, TMP3, x86_r(MASK_TMP));
}
static void u32_of_double(struct x86_gen *g, int x) {
    x86_op3(g, EV_MAXPS + EV_PD, FULL, TMP3, x, x86_each_float(g, true, 0));
    x86_op3(g, EV_MINPS + EV_PD, FULL, TMP3, TMP3, x86_each_float(g, true, UINT32_MAX));
    x86_op3i(g, EV_RNDSCALEPD, FULL, TMP3, 0, x86_r(TMP3), TO_ZERO);
    x86_op3(g, EV_ADDPS + EV_PD, FULL, TMP3, TMP3, x86_each_float(g, true, 0x1p52));
    x86_narrow(g, TMP3, TMP3);
}
void x86_avx2_int(struct x86_gen *g, enum dtype t, bool wide, bool lanes, enum x86_len len, int x) {
    bool sign = dtype_class(t) == DC_SIGNED;
    if (dtype_bits(t) == 64) {
        int_64(g, sign, wide, lanes, len, x);
    } else if (sign) {
        x86_op2(g, wide ? CVT_PD_DQ : CVT_PS_DQ, len, TMP3, x86_r(x));
        bounded(g, wide, false, lanes, len, x, 0x1p31, INT32_MAX);
        zero_nan(g, wide, false, lanes, len, x);
    } else if (wide) {
        u32_of_double(g, x);
    } else {
        u32_of_float(g, len, x);
    }
}
