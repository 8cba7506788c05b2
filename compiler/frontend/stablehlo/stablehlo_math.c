// SPDX-License-Identifier: Apache-2.0
// Special functions of CHLO that HLO has no opcode for, as formulas. Types of less than 32 bits are
// computed in f32.
#include <math.h>

#include "compiler/frontend/stablehlo/stablehlo_lower.h"

// ---- helpers

static hv num(struct hb *b, hv like, double v) {
    return hb_splat(b, like->shape, v);
}
// c[0] + x (c[1] + x (c[2] + ...)).
static hv polynomial(struct hb *b, hv x, const double *c, int n) {
    hv p = num(b, x, c[n - 1]);
    for (int k = n - 2; k >= 0; k--)
        p = hb_add(b, hb_mul(b, p, x), num(b, x, c[k]));
    return p;
}
static hv neg(struct hb *b, hv x) {
    return hb_unary(b, HLO_NEGATE, x);
}
static hv log_of(struct hb *b, hv x) {
    return hb_unary(b, HLO_LOG, x);
}
// Is it a whole number?
static hv is_whole(struct hb *b, hv x) {
    return hb_compare(b, x, hb_unary(b, HLO_FLOOR, x), CMP_EQ);
}

typedef hv (*formula)(struct hb *b, hv const *x);
static status_t by_formula(struct shl *l, const struct mlir_op *op, hv const *in, int n, formula f,
                           hv *out) {
    hv x[2];
    if (op->n_operands != n)
        return st_invalid("it has %d operands, expected %d", op->n_operands, n);
    enum dtype t = in[0]->shape->dtype;
    if (!dtype_is_float(t)) return st_unimplemented("elements of type %s", dtype_name(t));
    for (int k = 0; k < n; k++)
        x[k] = t == DT_F64 ? in[k] : hb_convert(&l->b, in[k], DT_F32);
    *out = hb_convert(&l->b, f(&l->b, x), t);
    return ST_OK;
}

// ---- of complex numbers

// The larger or smaller by the real part, then by the imaginary one; a NaN's comparison chooses y.
status_t shl_extreme(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    struct hb *b = &l->b;
    enum hlo_op hlo = shl_row_of(op->name)->hlo;
    if (op->n_operands != 2 || !dtype_is_complex(in[0]->shape->dtype))
        return shl_each(l, op, in, out);
    enum cmp_direction first = hlo == HLO_MAXIMUM ? CMP_GT : CMP_LT;
    hv part[2][2];
    for (int k = 0; k < 2; k++) {
        part[0][k] = hb_unary(b, HLO_REAL, in[k]);
        part[1][k] = hb_unary(b, HLO_IMAG, in[k]);
    }
    hv by_imag = hb_binary(b, HLO_AND, hb_compare(b, part[0][0], part[0][1], CMP_EQ),
                           hb_compare(b, part[1][0], part[1][1], first));
    hv chosen = hb_binary(b, HLO_OR, hb_compare(b, part[0][0], part[0][1], first), by_imag);
    *out = hb_select(b, chosen, in[0], in[1]);
    return ST_OK;
}
// -i log((x + i y) / sqrt(x^2 + y^2))
static hv complex_atan2(struct hb *b, hv y, hv x) {
    const struct shape *s = x->shape;
    s = shape_with_dtype(b->c->module->arena, s, s->dtype == DT_C64 ? DT_F32 : DT_F64);
    hv i = hb_binary(b, HLO_COMPLEX, hb_splat(b, s, 0), hb_splat(b, s, 1));
    hv norm = hb_add(b, hb_mul(b, x, x), hb_mul(b, y, y));
    hv v = hb_div(b, hb_add(b, x, hb_mul(b, i, y)), hb_unary(b, HLO_SQRT, norm));
    return hb_mul(b, neg(b, i), log_of(b, v));
}
status_t shl_atan2(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    if (op->n_operands != 2 || !dtype_is_complex(in[0]->shape->dtype))
        return shl_each(l, op, in, out);
    *out = complex_atan2(&l->b, in[0], in[1]);
    return ST_OK;
}
status_t shl_atan(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    if (op->n_operands != 1) return st_invalid("it has %d operands, expected 1", op->n_operands);
    hv one = hb_splat(&l->b, in[0]->shape, 1);
    bool complex = dtype_is_complex(in[0]->shape->dtype);
    *out = complex ? complex_atan2(&l->b, in[0], one) : hb_binary(&l->b, HLO_ATAN2, in[0], one);
    return ST_OK;
}

// ---- the inverse of the error function
// M. Giles, Approximating the erfinv function, GPU Computing Gems 2, 2010: a polynomial in
// w = -log(1 - x^2) for the middle, in sqrt(w) for the ends.

static const double inv32_middle[] = {1.50140941,     0.246640727,     -0.00417768164,
                                      -0.00125372503, 0.00021858087,   -4.39150654e-06,
                                      -3.5233877e-06, 3.43273939e-07,  2.81022636e-08};
static const double inv32_end[] = {2.83297682,     1.00167406,    0.00943887047,
                                   -0.0076224613,  0.00573950773, -0.00367342844,
                                   0.00134934322,  0.000100950558, -0.000200214257};
static const double inv64_middle[] = {
    1.6536545626831027356,     0.24015818242558961693,    -0.0060336708714301490533,
    -0.00074070253416626697512, 0.0001867342080340571352, -1.3882523362786468719e-05,
    -1.3654692000834678645e-06, 4.2347877827932403518e-07, -2.9070369957882005086e-08,
    -4.1126339803469836976e-09, 1.051212273321532285e-09, -5.4154120542946279317e-11,
    -1.2975133253453532498e-11, 2.6335093153082322977e-12, -8.1519341976054721522e-14,
    -4.0545662729752068639e-14, 6.6376381343583238325e-15, 2.0972767875968561637e-17,
    -1.333171662854620906e-16, 1.115787767802518096e-17,  1.2858480715256400167e-18,
    -1.685059138182016589e-19, -3.6444120640178196996e-21};
static const double inv64_end[] = {
    3.0838856104922207635,     1.0052589676941592334,      0.005370914553590063617,
    -0.0037512085075692412107, 0.0024914420961078508066,   -0.0016882755560235047313,
    0.00095328937973738049703, -0.0003550375203628474796,  2.4031110387097893999e-05,
    6.8284851459573175448e-05, -4.7318229009055733981e-05, 1.2475304481671778723e-05,
    2.9234449089955446044e-06, -4.013867526981545969e-06,  1.5027403968909827627e-06,
    1.8239629214389227755e-08, -2.7517406297064545428e-07, 9.0756561938885390979e-08,
    2.2137376921775787049e-09};
static const double inv64_far[] = {
    4.8499064014085844221,      1.0103004648645343977,      -0.00013871931833623122026,
    -0.00021503011930044477347, 7.5995277030017761139e-05,  -1.9681778105531670567e-05,
    4.5260625972231537039e-06,  -9.9298272942317002539e-07, 2.2900482228026654717e-07,
    -6.7711997758452339498e-08, 2.9147953450901080826e-08,  -1.4960026627149240478e-08,
    7.6157012080783393804e-09,  -3.7894654401267369937e-09, 1.5076572693500548083e-09,
    -2.5556418169965252055e-10, -2.7109920616438573243e-11};
#define POLYNOMIAL(b, x, c) polynomial(b, x, c, (int)(sizeof(c) / sizeof *(c)))

static hv erf_inv(struct hb *b, hv const *in) {
    hv x = in[0], one = num(b, x, 1);
    bool wide = x->shape->dtype == DT_F64;
    hv w = neg(b, hb_unary(b, HLO_LOG1P, neg(b, hb_mul(b, x, x))));
    hv root = hb_unary(b, HLO_SQRT, w);
    hv middle = hb_sub(b, w, num(b, w, wide ? 3.125 : 2.5));
    hv end = hb_sub(b, root, num(b, w, wide ? 3.25 : 3));
    hv p = wide ? hb_select(b, hb_compare(b, w, num(b, w, 16), CMP_LT),
                            POLYNOMIAL(b, end, inv64_end),
                            POLYNOMIAL(b, hb_sub(b, root, num(b, w, 5)), inv64_far))
                : POLYNOMIAL(b, end, inv32_end);
    hv m = wide ? POLYNOMIAL(b, middle, inv64_middle) : POLYNOMIAL(b, middle, inv32_middle);
    p = hb_select(b, hb_compare(b, w, num(b, w, wide ? 6.25 : 5), CMP_LT), m, p);
    hv edge = hb_compare(b, hb_unary(b, HLO_ABS, x), one, CMP_EQ);
    return hb_mul(b, hb_select(b, edge, num(b, x, INFINITY), p), x);
}
status_t shl_erf_inv(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    return by_formula(l, op, in, 1, erf_inv, out);
}

// ---- the complement of the error function
// 1 - erf(x) near 0; elsewhere exp(-x^2) times rational functions (W. J. Cody's form, with the
// coefficients that S. L. Moshier published).

static const double erfc_p[] = {5.57535335369399327526e2, 1.02755188689515710272e3,
                                9.34528527171957607540e2, 5.26445194995477358631e2,
                                1.96520832956077098242e2, 4.86371970985681366614e1,
                                7.46321056442269912687e0, 5.64189564831068821977e-1,
                                2.46196981473530512524e-10};
static const double erfc_q[] = {5.57535340817727675546e2, 1.65666309194161350182e3,
                                2.24633760818710981792e3, 1.82390916687909736289e3,
                                9.75708501743205489753e2, 3.54937778887819891062e2,
                                8.67072140885989742329e1, 1.32281951154744992508e1,
                                1};
static const double erfc_r[] = {2.97886665372100240670, 7.40974269950448939160,
                                6.16021097993053585195, 5.01905042251180477414,
                                1.27536670759978104416, 5.64189583547755073984e-1};
static const double erfc_s[] = {3.36907645100081516050,  9.60896809063285878198,
                                1.70814450747565897222e1, 1.20489539808096656605e1,
                                9.39603524938001434673,  2.26052863220117276590,
                                1};
static hv erfc_far(struct hb *b, hv x) { // |x| from 1
    hv a = hb_unary(b, HLO_ABS, x), far = hb_compare(b, a, num(b, x, 8), CMP_GE);
    hv near = hb_div(b, POLYNOMIAL(b, a, erfc_p), POLYNOMIAL(b, a, erfc_q));
    hv wide = hb_div(b, POLYNOMIAL(b, a, erfc_r), POLYNOMIAL(b, a, erfc_s));
    // x^2 in two parts, so that exp() of it is exact to the last digits.
    hv head = hb_op(b, HLO_REDUCE_PRECISION, NULL, &a, 1,
                    &(struct hlo_attr_redprec){.exponent_bits = 8, .mantissa_bits = 10});
    hv tail = hb_mul(b, hb_sub(b, head, a), hb_add(b, head, a));
    hv e = hb_mul(b, hb_unary(b, HLO_EXP, neg(b, hb_mul(b, head, head))),
                  hb_unary(b, HLO_EXP, tail));
    hv y = hb_mul(b, e, hb_select(b, far, wide, near));
    y = hb_select(b, hb_compare(b, a, num(b, x, 30), CMP_GT), num(b, x, 0), y);
    return hb_select(b, hb_compare(b, x, num(b, x, 0), CMP_LT), hb_sub(b, num(b, x, 2), y), y);
}
static hv erfc_of(struct hb *b, hv const *in) {
    hv x = in[0], near = hb_compare(b, hb_unary(b, HLO_ABS, x), num(b, x, 1), CMP_LT);
    hv small = hb_sub(b, num(b, x, 1), hb_unary(b, HLO_ERF, x));
    hv nan = hb_compare(b, x, x, CMP_NE);
    return hb_select(b, nan, x, hb_select(b, near, small, erfc_far(b, x)));
}
status_t shl_erfc(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    return by_formula(l, op, in, 1, erfc_of, out);
}

// ---- the gamma function
// C. Lanczos, A precision approximation of the gamma function, 1964, with g = 7 and nine terms.

static const double lanczos[] = {0.99999999999980993227684700473478,
                                 676.520368121885098567009190444019,
                                 -1259.13921672240287047156078755283,
                                 771.3234287776530788486528258894,
                                 -176.61502916214059906584551354,
                                 12.507343278686904814458936853,
                                 -0.13857109526572011689554707,
                                 9.984369578019570859563e-6,
                                 1.50563273514931155834e-7};
enum { LANCZOS = sizeof lanczos / sizeof *lanczos };
static const double pi = 3.14159265358979323846;

// The series at z, and what its derivative needs.
static hv series(struct hb *b, hv z, hv *derivative) {
    hv sum = num(b, z, lanczos[0]), d = num(b, z, 0);
    for (int k = 1; k < LANCZOS; k++) {
        hv at = hb_add(b, z, num(b, z, k)), term = hb_div(b, num(b, z, lanczos[k]), at);
        sum = hb_add(b, sum, term);
        d = hb_sub(b, d, hb_div(b, term, at));
    }
    if (derivative) *derivative = d;
    return sum;
}
static hv lgamma_of(struct hb *b, hv const *in) {
    hv x = in[0], low = hb_compare(b, x, num(b, x, 0.5), CMP_LT);
    hv z = hb_select(b, low, neg(b, x), hb_sub(b, x, num(b, x, 1)));
    hv t = hb_add(b, z, num(b, x, 7.5));
    hv log_t = hb_add(b, num(b, x, log(7.5)),
                      hb_unary(b, HLO_LOG1P, hb_div(b, z, num(b, x, 7.5))));
    hv y = hb_mul(b, hb_sub(b, hb_add(b, z, num(b, x, 0.5)), hb_div(b, t, log_t)), log_t);
    y = hb_add(b, hb_add(b, y, num(b, x, 0.5 * log(2 * pi))), log_of(b, series(b, z, NULL)));

    // Below 1/2: log(pi / |sin(pi x)|) - log(gamma(1 - x)); a pole at each whole number.
    hv a = hb_unary(b, HLO_ABS, x), part = hb_sub(b, a, hb_unary(b, HLO_FLOOR, a));
    part = hb_min(b, part, hb_sub(b, num(b, x, 1), part));
    hv s = log_of(b, hb_unary(b, HLO_SIN, hb_mul(b, part, num(b, x, pi))));
    hv pole = hb_compare(b, part, num(b, x, 0), CMP_EQ);
    hv mirrored = hb_sub(b, hb_sub(b, num(b, x, log(pi)), s), y);
    mirrored = hb_select(b, pole, num(b, x, INFINITY), mirrored);
    y = hb_select(b, low, mirrored, y);
    hv inf = hb_compare(b, a, num(b, x, INFINITY), CMP_EQ);
    return hb_select(b, inf, num(b, x, INFINITY), y);
}
status_t shl_lgamma(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    return by_formula(l, op, in, 1, lgamma_of, out);
}
static hv digamma(struct hb *b, hv const *in) {
    hv x = in[0], low = hb_compare(b, x, num(b, x, 0.5), CMP_LT), d;
    hv z = hb_select(b, low, neg(b, x), hb_sub(b, x, num(b, x, 1)));
    hv t = hb_add(b, z, num(b, x, 7.5));
    hv log_t = hb_add(b, num(b, x, log(7.5)),
                      hb_unary(b, HLO_LOG1P, hb_div(b, z, num(b, x, 7.5))));
    hv sum = series(b, z, &d);
    hv y = hb_sub(b, hb_add(b, log_t, hb_div(b, d, sum)), hb_div(b, num(b, x, 7), t));

    hv near = hb_unary(b, HLO_FLOOR, hb_add(b, x, num(b, x, 0.5)));
    hv part = hb_add(b, x, hb_unary(b, HLO_ABS, near));
    hv angle = hb_mul(b, num(b, x, pi), part);
    hv cot = hb_div(b, hb_mul(b, num(b, x, pi), hb_unary(b, HLO_COS, angle)),
                    hb_unary(b, HLO_SIN, angle));
    y = hb_select(b, low, hb_sub(b, y, cot), y);
    hv whole = hb_select(b, is_whole(b, x), hb_compare(b, x, num(b, x, 0), CMP_LE),
                         hb_compare(b, x, x, CMP_NE));
    return hb_select(b, whole, num(b, x, NAN), y);
}
status_t shl_digamma(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    return by_formula(l, op, in, 1, digamma, out);
}

// ---- zeta
// Hurwitz's zeta function by Euler and Maclaurin: ten terms, then the integral and twelve
// derivatives.

static hv zeta(struct hb *b, hv const *in) {
    static const double bernoulli[] = {1.0 / 6,      -1.0 / 30,       1.0 / 42,       -1.0 / 30,
                                       5.0 / 66,     -691.0 / 2730,   7.0 / 6,        -3617.0 / 510,
                                       43867.0 / 798, -174611.0 / 330, 854513.0 / 138,
                                       -236364091.0 / 2730};
    enum { TERMS = 10, ORDER = sizeof bernoulli / sizeof *bernoulli };
    hv x = in[0], q = in[1], minus = neg(b, x), sum = num(b, x, 0);
    for (int k = 0; k < TERMS; k++)
        sum = hb_add(b, sum, hb_binary(b, HLO_POWER, hb_add(b, q, num(b, q, k)), minus));
    hv a = hb_add(b, q, num(b, q, TERMS)), power = hb_binary(b, HLO_POWER, a, minus);
    sum = hb_add(b, sum, hb_div(b, hb_mul(b, power, a), hb_sub(b, x, num(b, x, 1))));
    sum = hb_add(b, sum, hb_mul(b, num(b, x, 0.5), power));

    hv factor = x, inverse = hb_div(b, num(b, a, 1), hb_mul(b, a, a));
    hv term = hb_div(b, power, a);
    double factorial = 2;
    for (int k = 0; k < ORDER; k++) {
        hv c = hb_mul(b, num(b, x, bernoulli[k] / factorial), factor);
        sum = hb_add(b, sum, hb_mul(b, c, term));
        hv next = hb_mul(b, hb_add(b, x, num(b, x, 2 * k + 1)), hb_add(b, x, num(b, x, 2 * k + 2)));
        factor = hb_mul(b, factor, next);
        term = hb_mul(b, term, inverse);
        factorial *= (2 * k + 3) * (2 * k + 4);
    }
    hv one = num(b, x, 1), zero = num(b, x, 0);
    hv even = hb_compare(b, hb_binary(b, HLO_REMAINDER, x, num(b, x, 2)), zero, CMP_EQ);
    hv pole = hb_binary(b, HLO_AND, hb_compare(b, q, zero, CMP_LE), is_whole(b, q));
    hv inf = num(b, x, INFINITY);
    sum = hb_select(b, pole, hb_select(b, even, inf, num(b, x, NAN)), sum);
    sum = hb_select(b, hb_compare(b, x, one, CMP_EQ), inf, sum);
    return hb_select(b, hb_compare(b, x, one, CMP_LT), num(b, x, NAN), sum);
}
status_t shl_zeta(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    return by_formula(l, op, in, 2, zeta, out);
}
// (-1)^(n + 1) n! zeta(n + 1, x); for n = 0 the digamma function.
static hv polygamma(struct hb *b, hv const *in) {
    hv n = in[0], x = in[1], zero = num(b, n, 0), up = hb_add(b, n, num(b, n, 1));
    hv odd = hb_binary(b, HLO_REMAINDER, n, num(b, n, 2));
    hv sign = hb_sub(b, hb_mul(b, num(b, n, 2), odd), num(b, n, 1));
    hv size = hb_mul(b, hb_unary(b, HLO_EXP, lgamma_of(b, &up)), zeta(b, (hv[]){up, x}));
    hv y = hb_select(b, hb_compare(b, n, zero, CMP_EQ), digamma(b, &x), hb_mul(b, sign, size));
    hv fit = hb_select(b, is_whole(b, n), hb_compare(b, n, zero, CMP_GE),
                       hb_compare(b, n, n, CMP_NE));
    return hb_select(b, fit, y, num(b, n, NAN));
}
status_t shl_polygamma(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    return by_formula(l, op, in, 2, polygamma, out);
}

// ---- Bessel
// exp(-|x|) I1(x): its power series, all of whose terms are positive, and from 20 on the asymptotic
// one (DLMF 10.25.2, 10.40.1).

static hv bessel_i1e(struct hb *b, hv const *in) {
    enum { SERIES = 60, FAR = 20 };
    hv x = in[0], a = hb_unary(b, HLO_ABS, x);
    double c[SERIES], d[FAR];
    c[0] = 0.5;
    for (int k = 1; k < SERIES; k++)
        c[k] = c[k - 1] / ((double)k * (k + 1));
    d[0] = 1;
    for (int k = 1; k < FAR; k++)
        d[k] = d[k - 1] * -(4.0 - (2 * k - 1) * (2 * k - 1)) / (8.0 * k);
    hv low = hb_min(b, a, num(b, x, 20)), quarter = hb_mul(b, hb_mul(b, low, low), num(b, x, 0.25));
    hv near = hb_mul(b, hb_mul(b, POLYNOMIAL(b, quarter, c), a), hb_unary(b, HLO_EXP, neg(b, low)));
    hv high = hb_max(b, a, num(b, x, 20));
    hv far = hb_mul(b, POLYNOMIAL(b, hb_div(b, num(b, x, 1), high), d),
                    hb_unary(b, HLO_RSQRT, hb_mul(b, num(b, x, 2 * pi), high)));
    hv y = hb_select(b, hb_compare(b, a, num(b, x, 20), CMP_LT), near, far);
    y = hb_select(b, hb_compare(b, a, num(b, x, INFINITY), CMP_EQ), num(b, x, 0), y);
    return hb_select(b, hb_compare(b, x, num(b, x, 0), CMP_LT), neg(b, y), y);
}
status_t shl_bessel_i1e(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    return by_formula(l, op, in, 1, bessel_i1e, out);
}

// ---- the next number

status_t shl_next_after(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    struct hb *b = &l->b;
    if (op->n_operands != 2) return st_invalid("it has %d operands, expected 2", op->n_operands);
    hv x = in[0], y = in[1];
    int bits = dtype_bits(x->shape->dtype);
    enum dtype t = bits == 64 ? DT_S64 : bits == 32 ? DT_S32 : bits == 16 ? DT_S16 : DT_INVALID;
    if (!dtype_is_float(x->shape->dtype) || !t) return st_unimplemented("elements of this type");
    const struct shape *s = shape_with_dtype(l->a, x->shape, t);
    hv raw = hb_op(b, HLO_BITCAST_CONVERT, s, &x, 1, NULL), zero = hb_splat(b, s, 0);
    hv one = hb_splat(b, s, 1), low = hb_const_i64(b, t, INT64_MIN >> (64 - bits));
    hv sign = hb_broadcast(b, low, s->dims, s->rank, NULL), f0 = num(b, x, 0);

    // Away from 0 the bits grow, whatever the sign.
    hv up = hb_compare(b, hb_compare(b, x, y, CMP_LT), hb_compare(b, x, f0, CMP_GT), CMP_EQ);
    hv moved = hb_add(b, raw, hb_select(b, up, one, hb_unary(b, HLO_NEGATE, one)));
    hv least = hb_binary(b, HLO_OR, one, hb_select(b, hb_compare(b, y, f0, CMP_LT), sign, zero));
    hv r = hb_select(b, hb_compare(b, x, f0, CMP_EQ), least, moved);
    r = hb_op(b, HLO_BITCAST_CONVERT, x->shape, &r, 1, NULL);
    r = hb_select(b, hb_compare(b, x, y, CMP_EQ), y, r);
    hv nan = hb_binary(b, HLO_OR, hb_compare(b, x, x, CMP_NE), hb_compare(b, y, y, CMP_NE));
    *out = hb_select(b, nan, num(b, x, NAN), r);
    return ST_OK;
}
