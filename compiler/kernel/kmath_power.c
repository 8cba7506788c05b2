// SPDX-License-Identifier: Apache-2.0
// Powers and roots of f64 as kir: cbrt, and pow by a logarithm of twice the precision, from
// a table of 64 ratios (as in Tang, "Table-driven implementation of the logarithm function in IEEE
// floating-point arithmetic", 1990). Special cases are libm's. Bounds: kmath_double_test.
#include <math.h>
#include <pthread.h>

#include "compiler/kernel/kmath_short.h"
#include "compiler/kernel/kmath_wide.h"
#include "compiler/kernel/lower.h"

#define C(v) kir_f(k, DT_F64, (v))

// e^(log(a)/3), and a step of Newton's.
V kmath_cbrt_64(struct kir *k, V x) {
    V a = OP1(ABS, x), tiny = CMP(LT, a, C(0x1p-900)), big = CMP(GT, a, C(0x1p900));
    V b = OP2(MUL, a, SEL(tiny, C(0x1p198), SEL(big, C(0x1p-198), C(1)))), inf = C(INFINITY);
    V l = OP2(MUL, kmath_f64(k, KFN_LOG, b, NULL), C(1. / 3)), y = kmath_f64(k, KFN_EXP, l, NULL),
      z = OP2(MUL, y, y);
    V over = EXACT(z, y, OP1(NEG, b));
    y = OP2(SUB, y, OP2(DIV, over, OP2(MUL, z, C(3))));
    y = OP2(COPYSIGN, OP2(MUL, y, SEL(tiny, C(0x1p-66), SEL(big, C(0x1p66), C(1)))), x);
    V same = OP2(OR, CMP(EQ, x, C(0)), OP2(OR, CMP(NE, x, x), CMP(EQ, a, inf)));
    return SEL(same, x, y);
}

// ---- the logarithm of a power

// Numbers as sums of two doubles, for the table.
struct two {
    double h, l;
};
static struct two fast_sum(double h, double l) { // |h| >= |l|
    double s = h + l;
    return (struct two){s, l - (s - h)};
}
static struct two times(struct two x, struct two y) {
    double p = x.h * y.h;
    return fast_sum(p, fma(x.h, y.h, -p) + x.h * y.l + x.l * y.h);
}
static struct two ratio(double n, double d) { // of whole numbers
    double q = n / d;
    return (struct two){q, fma(-q, d, n) / d};
}
// log(n/d) = 2 atanh(z), z = (n - d)/(n + d)
static struct two log_ratio(double n, double d) {
    struct two z = ratio(n - d, n + d), zz = times(z, z), sum = {0, 0};
    for (int i = 41; i > 0; i -= 2) {
        struct two c = ratio(1, i), t = times(zz, sum);
        sum = fast_sum(c.h, t.h);
        sum = fast_sum(sum.h, sum.l + c.l + t.l);
    }
    sum = times(z, sum);
    return (struct two){2 * sum.h, 2 * sum.l};
}

// Of a mantissa m from sqrt(1/2) on, cut into equal parts of its bits: a ratio near 1/m, and its
// logarithm as a multiple of 2^-41, so that those of powers of two are added without rounding, and
// the rest. Around 1 the ratio is 1.
enum { PARTS = 64, PART_BITS = 46, STEPS = 256 };
static const int64_t root_half = INT64_C(0x3fe6a09e667f3bcd);
static double near_one_over[PARTS], log_high[PARTS], log_low[PARTS];
static void make_tables(void) {
    for (int i = 0; i < PARTS; i++) {
        int64_t bits = root_half + ((int64_t)i << PART_BITS) + (INT64_C(1) << (PART_BITS - 1));
        double m;
        memcpy(&m, &bits, sizeof m);
        double n = round(STEPS / m);
        struct two l = log_ratio(STEPS, n);
        near_one_over[i] = n / STEPS;
        log_high[i] = round(l.h * 0x1p41) * 0x1p-41;
        log_low[i] = l.h - log_high[i] + l.l;
    }
}
// log(a), a > 0 and finite, as *low + the result.
static V log_two(struct kir *k, V a, V *low) {
    static const double c[] = {1. / 3, -1. / 4, 1. / 5, -1. / 6, 1. / 7, -1. / 8, 1. / 9, -1. / 10};
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_tables);
    V tiny = CMP(LT, a, C(0x1p-1022)), b = SEL(tiny, OP2(MUL, a, C(0x1p54)), a);
    V u = OP2(SUB, kir_bits(k, DT_S64, b), I64(root_half)), e = OP2(SHR, u, I64(52));
    V f = OP2(AND, u, I64(INT64_C(0xfffffffffffff)));
    V m = kir_bits(k, DT_F64, OP2(ADD, f, I64(root_half)));
    V i = kir_idx_clamp(k, OP2(SHR, f, I64(PART_BITS)), 0, PARTS - 1);
    V inverse = kir_table(k, kir_add_table(k, DT_F64, PARTS, near_one_over), i);
    V n = kir_cast(k, DT_F64, SEL(tiny, OP2(SUB, e, I64(54)), e));

    V pl, ql, lost, p = kir_two_product(k, m, inverse, &pl), r = OP2(SUB, p, C(1));
    V high =
        FMA(n, C(0x1.62e42fefa3p-1), kir_table(k, kir_add_table(k, DT_F64, PARTS, log_high), i));
    V rest =
        FMA(n, C(0x1.3de6af278ece6p-42), kir_table(k, kir_add_table(k, DT_F64, PARTS, log_low), i));
    V q = kir_two_product(k, r, OP2(MUL, r, C(0.5)), &ql), s = kmath_two_sum(k, high, r, &lost);
    rest = OP2(ADD, rest, lost);
    s = kmath_two_sum(k, s, OP1(NEG, q), &lost);
    rest = OP2(ADD, OP2(ADD, rest, lost), OP2(SUB, pl, OP2(ADD, ql, OP2(MUL, r, pl))));
    rest = FMA(OP2(MUL, r, OP2(MUL, r, r)), POLY(r, c), rest);
    return kmath_two_sum(k, s, rest, low);
}
V kmath_pow_64(struct kir *k, V x, V y) {
    V a = OP1(ABS, x), inf = C(INFINITY), zero = CMP(EQ, a, C(0)), a_inf = CMP(EQ, a, inf), l;
    V h = log_two(k, SEL(OP2(OR, zero, a_inf), C(1), a), &l), lost;
    V p = kir_two_product(k, y, h, &lost), fits = CMP(LT, OP1(ABS, p), C(800));
    V pl = SEL(fits, FMA(y, l, lost), C(0));
    struct kmath_exp e = kmath_exp_parts(k, p, pl);
    V r = OP2(MUL, OP2(MUL, e.p, e.low), e.high);

    V whole = CMP(EQ, OP1(FLOOR, y), y), half = OP2(MUL, y, C(0.5));
    V odd = OP2(AND, whole, CMP(NE, OP1(FLOOR, half), half)), up = CMP(GT, y, C(0));
    r = SEL(zero, SEL(up, C(0), inf), SEL(a_inf, SEL(up, inf, C(0)), r));
    V apart = kir_op(k, K_XOR, CMP(GT, a, C(1)), up, NULL);
    r = SEL(CMP(EQ, OP1(ABS, y), inf), SEL(CMP(EQ, a, C(1)), C(1), SEL(apart, C(0), inf)), r);
    V negative = CMP(LT, OP2(COPYSIGN, C(1), x), C(0));
    r = SEL(OP2(AND, negative, odd), OP1(NEG, r), r);
    V bad = OP2(AND, OP2(AND, CMP(LT, x, C(0)), CMP(NE, a, inf)),
                OP2(XOR, whole, kir_int(k, DT_PRED, 1)));
    r = SEL(OP2(OR, bad, OP2(OR, CMP(NE, x, x), CMP(NE, y, y))), C(NAN), r);
    return SEL(OP2(OR, CMP(EQ, x, C(1)), CMP(EQ, y, C(0))), C(1), r);
}
