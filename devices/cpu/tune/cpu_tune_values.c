// SPDX-License-Identifier: Apache-2.0
// Values for steps that are measured by themselves, and what two ways to run one may differ by.
#include <math.h>

#include "compiler/ops/index.h"
#include "compiler/passes/fusion/library.h"
#include "devices/cpu/tune/cpu_tune.h"

enum { PERIOD = 1009, STEP = 37 }; // a prime, and how values follow each other

// ---- operands

static double value_of(enum dtype t, int64_t k, bool positive) {
    int64_t v = k * STEP % PERIOD;
    if (t == DT_PRED) return (double)(v & 1);
    if (dtype_is_int(t) && dtype_bits(t) <= 8)
        return (double)(v % 255) - (dtype_class(t) == DC_SIGNED ? 127 : 0);
    if (dtype_is_int(t)) return (double)(v % 7);
    double u = (double)v / PERIOD;
    return positive ? .5 + u / 2 : u - .5;
}
void tune_fill(const struct shape *s, bool positive, void *to) {
    struct arena a = {0};
    int64_t bytes = shape_bytes(s), size = dtype_size(s->dtype), n = shape_elements(s), k = 0;
    struct literal *one = lit_new(&a, shape_make(&a, s->dtype, &(int64_t){PERIOD}, 1));
    const char *from = one->data;
    for (int64_t e = 0; e < PERIOD; e++) {
        double v = value_of(s->dtype, e, positive);
        lit_set_c128(one, e, v, v * (e % 3 - 1));
    }

    memset(to, 0, (size_t)bytes);
    if (n * size == bytes)
        for (; k < n; k += PERIOD)
            memcpy((char *)to + k * size, from, (size_t)((n - k < PERIOD ? n - k : PERIOD) * size));
    else
        EACH_INDEX(x, s)
    memcpy((char *)to + shape_offset(s, x) * size, from + k++ % PERIOD * size, (size_t)size);
    arena_done(&a);
}

// ---- steps

static bool is_hero(const struct hlo_instr *i) {
    return i->op == HLO_DOT || i->op == HLO_CONVOLUTION;
}
const struct hlo_instr *tune_hero(const struct hlo_instr *i) {
    struct lib_call c;
    if (is_hero(i)) return i;
    return i->op == HLO_FUSION && lib_match(i, &c) ? c.hero : NULL;
}
static bool same_posts(const struct lib_call *a, const struct lib_call *b) {
    if (a->n_post != b->n_post || !shape_equal(a->result, b->result)) return false;
    for (int k = 0; k < a->n_post; k++) {
        const struct lib_post *p = &a->post[k], *q = &b->post[k];
        if (p->kind != q->kind || !p->operand != !q->operand ||
            (p->operand && !shape_equal(p->operand->shape, q->operand->shape)))
            return false;
    }
    return true;
}
bool tune_alike(const struct hlo_instr *a, const struct hlo_instr *b) {
    const struct hlo_instr *x = tune_hero(a), *y = tune_hero(b);
    struct lib_call c, d;
    if (x->op != y->op || !attr_equal(hlo_op_info(x->op)->attrs, x->attr, y->attr) ||
        !shape_equal(x->shape, y->shape) ||
        !shape_equal(x->operands[0]->shape, y->operands[0]->shape) ||
        !shape_equal(x->operands[1]->shape, y->operands[1]->shape))
        return false;
    bool call = lib_match(a, &c);
    if (call != lib_match(b, &d)) return false;
    return call ? same_posts(&c, &d) : a == x && b == y;
}

// ---- results

// The sum of a result's terms' magnitudes, and what follows the sums at most does to errors.
static double largest_sum(const struct hlo_instr *i, const struct hlo_instr *hero) {
    struct lib_call c;
    double s = (double)cpu_sizes_of(hero).k / 4; // of values up to a half
    if (dtype_is_complex(hero->shape->dtype)) s *= 4;
    if (!lib_match(i, &c)) return s;
    for (int k = 0; k < c.n_post; k++) {
        if (c.post[k].operand) s += 1;
        if (c.post[k].kind == LIB_POST_SCALE) s *= fabs((double)c.post[k].alpha);
    }
    return s;
}
// Functions that implementations approximate, each in its way.
static bool approximates(const struct hlo_instr *i) {
    struct lib_call c;
    bool any = false;
    for (int k = 0; lib_match(i, &c) && k < c.n_post; k++)
        any = any || c.post[k].kind == LIB_POST_LOGISTIC || c.post[k].kind == LIB_POST_TANH ||
              c.post[k].kind == LIB_POST_GELU_ERF || c.post[k].kind == LIB_POST_SWISH;
    return any;
}
static double tolerance(const struct hlo_instr *i, double largest) {
    enum { WINOGRAD = 256 };
    const struct hlo_instr *h = tune_hero(i);
    enum dtype t = h->shape->dtype, out = i->shape->dtype;
    if (dtype_is_int(t)) return 0; // exact, and the same operations behind
    double u = t == DT_F64 || t == DT_C128 ? 0x1p-53 : 0x1p-24,
           terms = 2 * ((double)cpu_sizes_of(h).k * (dtype_is_complex(t) ? 2 : 1) + 2);
    if (h->op == HLO_CONVOLUTION && t == DT_F32) terms += WINOGRAD;
    double bound = terms * u * largest_sum(i, h);
    if (approximates(i)) bound += 1e-5 * (largest > 1 ? largest : 1);
    return bound + largest * (out == DT_F16 ? 0x1p-10 : out == DT_BF16 ? 0x1p-7 : 4 * u);
}

struct comparison {
    double worst, largest; // difference; magnitude
    bool other_kind;       // NaN or an infinity in one alone
};
static void compare(struct comparison *c, double x, double y) {
    if (x == y || (isnan(x) && isnan(y))) {
        if (isfinite(x) && fabs(x) > c->largest) c->largest = fabs(x);
        return;
    }
    if (!isfinite(x) || !isfinite(y)) c->other_kind = true;
    if (fabs(x - y) > c->worst) c->worst = fabs(x - y);
    if (fabs(x) > c->largest) c->largest = fabs(x);
}
bool tune_same(const struct hlo_instr *i, const void *usual, const void *other) {
    struct comparison c = {0};
    struct arena a = {0};
    const struct shape *s = i->shape;
    int64_t n = shape_elements(s);
    struct literal *x = lit_borrow(&a, s, usual), *y = lit_borrow(&a, s, other);
    bool dense = n * dtype_size(s->dtype) == shape_bytes(s);
    if (dense && s->dtype == DT_F32)
        for (int64_t k = 0; k < n; k++)
            compare(&c, (double)((const float *)usual)[k], (double)((const float *)other)[k]);
    else
        EACH_INDEX(at, s) {
            double v[2], w[2];
            lit_get_c128(x, shape_offset(s, at), v);
            lit_get_c128(y, shape_offset(s, at), w);
            compare(&c, v[0], w[0]);
            compare(&c, v[1], w[1]);
        }
    arena_done(&a);
    return !c.other_kind && c.worst <= tolerance(i, c.largest);
}
