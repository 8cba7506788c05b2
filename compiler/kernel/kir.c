// SPDX-License-Identifier: Apache-2.0
// The kir builder: places pure values in the outermost loop where their arguments exist, shares
// equal ones, folds constants. See kir.h.
#include "compiler/kernel/kir.h"

#include <stdlib.h>

enum { P = 1, C = 2 };
static const struct {
    const char *name;
    uint8_t args, traits;
} kops[KOP_COUNT] = {
#define KOP(e, text, args, traits) {text, args, traits},
#include "compiler/kernel/kops.def"
#undef KOP
};
const char *kop_name(enum kop op) {
    return (unsigned)op < KOP_COUNT ? kops[op].name : "?";
}
bool kop_commutes(enum kop op) {
    return kops[op].traits & C;
}
static const struct {
    const char *name;
    int args;
} libm[] = {
#define LIBM(e, name, n) {"hlod_" #name, n},
#include "compiler/kernel/libm.def"
#undef LIBM
};
const char *kir_fn_name(int fn) {
    return libm[fn].name;
}
int kir_fn_args(int fn) {
    return libm[fn].args;
}

void kir_init(struct kir *k, struct arena *a, int n_in, int n_bufs) {
    *k = (struct kir){.arena = a, .max_vals = 60000};
    k->fn = arena_new_of(a, struct kir_fn);
    k->fn->n_in = n_in;
    k->fn->n_bufs = n_bufs;
    k->stack[0] = &k->fn->top;
    struct kir_val *v[2];
    for (int i = 0; i < 2; i++) {
        v[i] = arena_new_of(a, struct kir_val);
        *v[i] = (struct kir_val){.op = K_VAR, .type = DT_S64, .hi = INT64_C(1) << 40};
        v[i]->block = k->stack[0];
        v[i]->id = k->n_vals++;
    }
    k->fn->begin = v[0];
    k->fn->end = v[1];
}

void kir_done(struct kir *k) {
    pmap_done(&k->seen);
}

enum dtype kir_type(enum dtype t) {
    switch (t) {
    case DT_S2:
    case DT_S4:
        return DT_S8;
    case DT_U2:
    case DT_U4:
        return DT_U8;
    case DT_F64:
    case DT_C128:
        return DT_F64;
    case DT_C64:
        return DT_F32;
    default:
        return dtype_is_float(t) ? DT_F32 : t;
    }
}

bool kir_visible(const struct kir *k, const struct kir_val *v) {
    return v->level <= k->depth && k->stack[v->level] == v->block;
}

static void append(struct kir_block *b, struct kir_val *v) {
    v->next = NULL;
    if (b->last)
        b->last->next = v;
    else
        b->first = v;
    b->last = v;
}

static struct kir_val *make(struct kir *k, enum kop op, enum dtype type, int level) {
    struct kir_val *v = arena_new_of(k->arena, struct kir_val);
    v->op = op;
    v->type = type;
    v->lo = INT64_MIN;
    v->hi = INT64_MAX;
    v->level = (uint8_t)level;
    v->block = k->stack[level];
    v->id = k->n_vals++;
    if (k->n_vals > k->max_vals) k->overflow = true;
    return v;
}

static bool same(const struct kir_val *a, const struct kir_val *b) {
    return a->op == b->op && a->type == b->type && a->elem == b->elem && a->flags == b->flags &&
           a->lanes == b->lanes && a->n_args == b->n_args && a->args[0] == b->args[0] &&
           a->args[1] == b->args[1] && a->args[2] == b->args[2] && a->args[3] == b->args[3] &&
           a->imm_i == b->imm_i && a->imm_j == b->imm_j &&
           memcmp(&a->imm_f, &b->imm_f, sizeof a->imm_f) == 0;
}

static uint64_t mix(uint64_t h, uint64_t x) {
    h = (h ^ x) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ (h >> 29);
}

// Finds or places the pure value `t` (a template).
struct kir_val *kir_intern(struct kir *k, const struct kir_val *t) {
    int level = 0;
    uint64_t bits, h = mix((uint64_t)t->op * 64 + t->type,
                           ((uint64_t)t->lanes * 256 + t->elem) * 256 + t->flags);
    memcpy(&bits, &t->imm_f, sizeof bits);
    h = mix(mix(mix(h, (uint64_t)t->imm_i), (uint64_t)t->imm_j), bits);
    for (int i = 0; i < t->n_args; i++) {
        h = mix(h, t->args[i]->id + 1);
        if (t->args[i]->level > level) level = t->args[i]->level;
    }

    if (t->flags & KF_PINNED) {
        level = k->depth;
    } else {
        struct kir_val *old = pmap_get(&k->seen, h);
        if (old && same(old, t) && kir_visible(k, old)) return old;
    }
    if (level > k->depth) level = k->depth; // cannot be: arguments are visible
    struct kir_val *v = make(k, t->op, t->type, level);
    v->elem = t->elem;
    v->flags = t->flags;
    v->lanes = t->lanes;
    v->n_args = t->n_args;
    memcpy(v->args, t->args, sizeof v->args);
    v->imm_i = t->imm_i;
    v->imm_j = t->imm_j;
    v->imm_f = t->imm_f;
    v->lo = t->lo;
    v->hi = t->hi;
    append(v->block, v);
    if (!(t->flags & KF_PINNED)) pmap_put(&k->seen, h, v);
    return v;
}

struct kir_val *kir_int(struct kir *k, enum dtype t, int64_t v) {
    int w = dtype_bits(t);
    if (w < 64)
        v = dtype_class(t) == DC_SIGNED ? (int64_t)((uint64_t)v << (64 - w)) >> (64 - w)
                                        : (int64_t)((uint64_t)v & ((UINT64_C(1) << w) - 1));
    return kir_intern(k, &(struct kir_val){.op = K_CONST, .type = t, .imm_i = v, .lo = v, .hi = v});
}
struct kir_val *kir_i64(struct kir *k, int64_t v) {
    return kir_int(k, DT_S64, v);
}
struct kir_val *kir_f(struct kir *k, enum dtype t, double v) {
    if (t == DT_F32) v = (double)(float)v;
    return kir_intern(k, &(struct kir_val){.op = K_CONST, .type = t, .imm_f = v});
}
struct kir_val *kir_zero(struct kir *k, enum dtype storage) {
    enum dtype t = kir_type(storage);
    struct kir_val *z = dtype_is_float(t) ? kir_f(k, t, 0) : kir_int(k, t, 0);
    return dtype_is_complex(storage) ? kir_complex(k, z, z) : z;
}
bool kir_is_const(const struct kir_val *v, int64_t *out) {
    if (v->op != K_CONST || dtype_is_float(v->type)) return false;
    *out = v->imm_i;
    return true;
}

// A commutative operation or a subtraction of two integers; kir_int cuts the result to its width.
static int64_t of_ints(enum kop op, bool sign, int64_t a, int64_t b) {
    uint64_t x = (uint64_t)a, y = (uint64_t)b;
    switch (op) {
    case K_ADD:
        return (int64_t)(x + y);
    case K_SUB:
        return (int64_t)(x - y);
    case K_MUL:
        return (int64_t)(x * y);
    case K_AND:
        return a & b;
    case K_OR:
        return a | b;
    case K_XOR:
        return a ^ b;
    case K_MIN:
        return (sign ? a < b : x < y) ? a : b;
    default: // K_MAX
        return (sign ? a > b : x > y) ? a : b;
    }
}
// The constant that op makes of two; NULL: they are none, or op is not one that is computed here.
static struct kir_val *fold(struct kir *k, enum kop op, struct kir_val *x, struct kir_val *y) {
    if (!y || x->op != K_CONST || y->op != K_CONST) return NULL;
    if (!dtype_is_float(x->type)) {
        if ((op != K_SUB && !kop_commutes(op)) || op == K_PAIRS) return NULL;
        bool sign = dtype_class(x->type) == DC_SIGNED;
        return kir_int(k, x->type, of_ints(op, sign, x->imm_i, y->imm_i));
    }
    double a = x->imm_f, b = y->imm_f;
    if (op != K_ADD && op != K_SUB && op != K_MUL && op != K_DIV) return NULL;
    // Rounding +-*/ of f64 to f32 again is exact: kir_f does.
    return kir_f(k, x->type,
                 op == K_ADD   ? a + b
                 : op == K_SUB ? a - b
                 : op == K_MUL ? a * b
                               : a / b);
}

// Sums of 32-bit integers x and constants: of two one, as exponents are put together. *x and *y may
// become the operands of that one.
static void join_constants(struct kir *k, enum kop *op, struct kir_val **x, struct kir_val **y) {
    if (*op == K_ADD && (*x)->op == K_CONST) {
        struct kir_val *t = *x;
        *x = *y, *y = t;
    }
    const struct kir_val *in = *x, *c = *y;
    if ((in->op != K_ADD && in->op != K_SUB) || c->op != K_CONST || dtype_is_float(c->type) ||
        dtype_bits(c->type) != 32)
        return;
    bool second = in->args[1]->op == K_CONST;
    if (!second && (in->op == K_SUB || in->args[0]->op != K_CONST)) return;
    int64_t a = in->args[second]->imm_i, b = c->imm_i;
    *x = in->args[!second];
    *y = kir_int(k, c->type, (in->op == K_SUB ? -a : a) + (*op == K_SUB ? -b : b));
    *op = K_ADD;
}
static struct kir_val *op_flags(struct kir *k, enum kop op, struct kir_val *x, struct kir_val *y,
                                struct kir_val *z, uint8_t flags) {
    if (op == K_ADD || op == K_SUB) join_constants(k, &op, &x, &y);

    struct kir_val t = {.op = op,
                        .type = x->type,
                        .flags = flags,
                        .lanes = x->lanes,
                        .n_args = kops[op].args,
                        .args = {x, y, z},
                        .lo = INT64_MIN,
                        .hi = INT64_MAX};
    struct kir_val *c = t.n_args == 2 ? fold(k, op, x, y) : NULL;
    if (c) return c;
    bool either = x->type == DT_PRED && (op == K_AND || op == K_OR);
    if (either && y->op == K_CONST) return (op == K_AND) == (y->imm_i != 0) ? x : y;
    if (either && x->op == K_CONST) return (op == K_AND) == (x->imm_i != 0) ? y : x;
    if (op == K_MUL && y->op == K_CONST && dtype_is_float(y->type) && y->imm_f == 1) return x;
    if (kop_commutes(op) && y->id < x->id) {
        t.args[0] = y;
        t.args[1] = x;
    }
    if (op == K_MIN || op == K_MAX) {
        if (x == y) return x;
        bool mn = op == K_MIN;
        t.lo = mn ? (x->lo < y->lo ? x->lo : y->lo) : (x->lo > y->lo ? x->lo : y->lo);
        t.hi = mn ? (x->hi < y->hi ? x->hi : y->hi) : (x->hi > y->hi ? x->hi : y->hi);
        if (x->type == DT_S64 && (mn ? x->hi <= y->lo : x->lo >= y->hi)) return x;
        if (x->type == DT_S64 && (mn ? y->hi <= x->lo : y->lo >= x->hi)) return y;
    }
    return kir_intern(k, &t);
}
struct kir_val *kir_op(struct kir *k, enum kop op, struct kir_val *x, struct kir_val *y,
                       struct kir_val *z) {
    return op_flags(k, op, x, y, z, 0);
}
struct kir_val *kir_flag(struct kir *k, enum kop op, struct kir_val *x, struct kir_val *y,
                         uint8_t flags) {
    return op_flags(k, op, x, y, NULL, flags);
}

struct kir_val *kir_mul_add(struct kir *k, struct kir_val *x, struct kir_val *y,
                            struct kir_val *z) {
    if (!k->no_fma) return kir_op(k, K_FMA, x, y, z);
    return kir_op(k, K_ADD, kir_op(k, K_MUL, x, y, NULL), z, NULL);
}
// The upper half of the digits.
static struct kir_val *upper(struct kir *k, struct kir_val *x) {
    struct kir_val *factor = kir_f(k, x->type, x->type == DT_F64 ? 0x1p27 + 1 : 0x1p12 + 1),
                   *far = kir_op(k, K_MUL, x, factor, NULL);
    return kir_op(k, K_SUB, far, kir_op(k, K_SUB, far, x, NULL), NULL);
}
struct kir_val *kir_two_product(struct kir *k, struct kir_val *x, struct kir_val *y,
                                struct kir_val **lost) {
    struct kir_val *p = kir_op(k, K_MUL, x, y, NULL), *less = kir_op(k, K_NEG, p, NULL, NULL);
    if (!k->no_fma) {
        *lost = kir_op(k, K_FMA, x, y, less);
        return p;
    }
    struct kir_val *a = upper(k, x), *b = kir_op(k, K_SUB, x, a, NULL), *c = upper(k, y),
                   *d = kir_op(k, K_SUB, y, c, NULL);
    struct kir_val *e = kir_mul_add(k, a, c, less);
    e = kir_mul_add(k, a, d, e);
    e = kir_mul_add(k, b, c, e);
    *lost = kir_mul_add(k, b, d, e);
    return p;
}
struct kir_val *kir_fma_exact(struct kir *k, struct kir_val *x, struct kir_val *y,
                              struct kir_val *z) {
    struct kir_val *lost, *p;
    if (!k->no_fma) return kir_op(k, K_FMA, x, y, z);
    p = kir_two_product(k, x, y, &lost);
    return kir_op(k, K_ADD, kir_op(k, K_ADD, p, z, NULL), lost, NULL);
}

// Comparison of constants and of index ranges: 1 always, 0 never, -1 unknown.
static int known(enum cmp_direction d, const struct kir_val *x, const struct kir_val *y) {
    if (x->op == K_CONST && y->op == K_CONST && dtype_is_int(x->type) && !x->imm_j && !y->imm_j) {
        bool sign = dtype_class(x->type) == DC_SIGNED;
        int64_t flip = sign ? 0 : INT64_MIN, a = x->imm_i ^ flip, b = y->imm_i ^ flip;
        return d == CMP_LT   ? a < b
               : d == CMP_LE ? a <= b
               : d == CMP_GT ? a > b
               : d == CMP_GE ? a >= b
               : d == CMP_EQ ? a == b
                             : a != b;
    }
    if (x->type != DT_S64) return -1;
    switch (d) {
    case CMP_LT:
        return x->hi < y->lo ? 1 : x->lo >= y->hi ? 0 : -1;
    case CMP_GE:
        return x->lo >= y->hi ? 1 : x->hi < y->lo ? 0 : -1;
    case CMP_GT:
        return x->lo > y->hi ? 1 : x->hi <= y->lo ? 0 : -1;
    case CMP_LE:
        return x->hi <= y->lo ? 1 : x->lo > y->hi ? 0 : -1;
    case CMP_EQ:
        return x->lo == x->hi && y->lo == y->hi && x->lo == y->lo ? 1
               : x->hi < y->lo || y->hi < x->lo                   ? 0
                                                                  : -1;
    default:
        return -1;
    }
}
static struct kir_val *compare(struct kir *k, enum cmp_direction d, struct kir_val *x,
                               struct kir_val *y, uint8_t flags) {
    int r = known(d, x, y);
    if (r >= 0) return kir_int(k, DT_PRED, r);
    return kir_intern(
        k,
        &(struct kir_val){
            .op = K_CMP, .type = DT_PRED, .imm_i = d, .flags = flags, .n_args = 2, .args = {x, y}});
}
struct kir_val *kir_cmp(struct kir *k, enum cmp_direction d, struct kir_val *x, struct kir_val *y) {
    return compare(k, d, x, y, 0);
}
struct kir_val *kir_cmp_place(struct kir *k, enum cmp_direction d, struct kir_val *x,
                              struct kir_val *y) {
    return compare(k, d, x, y, KF_PLACE);
}
struct kir_val *kir_cmp_rare(struct kir *k, enum cmp_direction d, struct kir_val *x,
                             struct kir_val *y) {
    return compare(k, d, x, y, KF_RARE);
}
struct kir_val *kir_select(struct kir *k, struct kir_val *c, struct kir_val *x, struct kir_val *y) {
    if (c->op == K_CONST) return c->imm_i ? x : y;
    if (x == y) return x;
    if (x->op == K_COMPLEX || y->op == K_COMPLEX)
        return kir_complex(k, kir_select(k, c, kir_re(k, x), kir_re(k, y)),
                           kir_select(k, c, kir_im(k, x), kir_im(k, y)));
    struct kir_val t = {
        .op = K_SELECT, .type = x->type, .lanes = x->lanes, .n_args = 3, .args = {c, x, y}};
    t.lo = x->lo < y->lo ? x->lo : y->lo;
    t.hi = x->hi > y->hi ? x->hi : y->hi;
    return kir_intern(k, &t);
}
// x without bounds that the cast to an integer of 8 or 16 bits has by itself: it saturates.
static struct kir_val *unclamped(enum dtype t, struct kir_val *x) {
    double lo = dtype_lowest(t), hi = dtype_highest(t);
    while (x->op == K_MIN || x->op == K_MAX) {
        int c = x->args[0]->op == K_CONST ? 0 : 1;
        const struct kir_val *bound = x->args[c];
        if (bound->op != K_CONST ||
            (x->op == K_MIN ? !(bound->imm_f >= hi) : !(bound->imm_f <= lo)))
            break;
        x = x->args[1 - c];
    }
    return x;
}
struct kir_val *kir_cast(struct kir *k, enum dtype t, struct kir_val *x) {
    if (x->type == t) return x;
    if (dtype_is_int(t) && dtype_bits(t) <= 16 && dtype_is_float(x->type)) x = unclamped(t, x);
    if (x->op == K_CONST && dtype_is_int(t) && !dtype_is_float(x->type))
        return kir_int(k, t, x->imm_i);
    if (x->op == K_CONST && dtype_is_float(t) && dtype_is_float(x->type))
        return kir_f(k, t, x->imm_f);
    if (x->op == K_CONST && dtype_is_float(t) && dtype_class(x->type) != DC_UNSIGNED &&
        llabs(x->imm_i) < (1 << 24))
        return kir_f(k, t, (double)x->imm_i);
    struct kir_val v = {.op = K_CAST,
                        .type = t,
                        .lanes = x->lanes, // from integers to integers alone
                        .n_args = 1,
                        .args = {x},
                        .lo = INT64_MIN,
                        .hi = INT64_MAX};
    return kir_intern(k, &v);
}
struct kir_val *kir_cast_fits(struct kir *k, enum dtype t, struct kir_val *x) {
    struct kir_val v = {.op = K_CAST,
                        .type = t,
                        .flags = KF_FITS,
                        .n_args = 1,
                        .args = {x},
                        .lo = INT64_MIN,
                        .hi = INT64_MAX};
    return kir_intern(k, &v);
}
struct kir_val *kir_bits(struct kir *k, enum dtype t, struct kir_val *x) {
    struct kir_val v = {
        .op = K_BITS, .type = t, .n_args = 1, .args = {x}, .lo = INT64_MIN, .hi = INT64_MAX};
    return x->type == t ? x : kir_intern(k, &v);
}
struct kir_val *kir_quant(struct kir *k, enum dtype t, struct kir_val *x) {
    if (t == DT_F32 || t == DT_F64 || !dtype_is_float(t)) return x;
    if (kir_is_f8(t)) return kir_quant8(k, t, x);
    if (x->op == K_QUANT && x->imm_i == t) return x;
    return kir_intern(
        k, &(struct kir_val){.op = K_QUANT, .type = DT_F32, .imm_i = t, .n_args = 1, .args = {x}});
}
struct kir_val *kir_call_n(struct kir *k, int fn, struct kir_val *const *args) {
    struct kir_val t = {.op = K_CALL, .type = DT_F64, .imm_i = fn};
    t.n_args = (uint8_t)kir_fn_args(fn);
    memcpy(t.args, args, sizeof *args * t.n_args);
    return kir_intern(k, &t);
}
struct kir_val *kir_call(struct kir *k, int fn, struct kir_val *x, struct kir_val *y) {
    return kir_call_n(k, fn, (struct kir_val *[]){x, y});
}
struct kir_val *kir_complex(struct kir *k, struct kir_val *re, struct kir_val *im) {
    return kir_intern(
        k, &(struct kir_val){.op = K_COMPLEX, .type = re->type, .n_args = 2, .args = {re, im}});
}
struct kir_val *kir_re(UNUSED struct kir *k, struct kir_val *x) {
    return x->op == K_COMPLEX ? x->args[0] : x;
}
struct kir_val *kir_im(struct kir *k, struct kir_val *x) {
    return x->op == K_COMPLEX ? x->args[1] : kir_f(k, x->type, 0);
}

struct kir_val *kir_load(struct kir *k, int buf, enum dtype elem, struct kir_val *at,
                         uint8_t flags) {
    if (dtype_is_complex(elem)) {
        enum dtype part = kir_type(elem);
        struct kir_val *two = kir_idx_mul(k, at, 2);
        return kir_complex(k, kir_load(k, buf, part, two, flags),
                           kir_load(k, buf, part, kir_idx_add(k, two, kir_i64(k, 1)), flags));
    }
    if (kir_is_f8(elem)) return kir_decode8(k, elem, kir_load(k, buf, DT_U8, at, flags));
    struct kir_val t = {.op = K_LOAD,
                        .type = kir_type(elem),
                        .elem = elem,
                        .flags = flags,
                        .imm_i = buf,
                        .n_args = 1,
                        .args = {at},
                        .lo = INT64_MIN,
                        .hi = INT64_MAX};
    return kir_intern(k, &t);
}
struct kir_val *kir_splat(struct kir *k, struct kir_val *x, int lanes) {
    return kir_intern(k, &(struct kir_val){.op = K_SPLAT,
                                           .type = x->type,
                                           .flags = KF_PINNED,
                                           .lanes = (uint16_t)lanes,
                                           .n_args = 1,
                                           .args = {x}});
}
struct kir_val *kir_join(struct kir *k, struct kir_val *const *x, int lanes) {
    struct kir_val t = {
        .op = K_JOIN, .type = x[0]->type, .lanes = (uint16_t)lanes, .n_args = (uint8_t)lanes};
    memcpy(t.args, x, sizeof *x * (size_t)lanes);
    return kir_intern(k, &t);
}
struct kir_val *kir_zip(struct kir *k, struct kir_val *x, struct kir_val *y, bool second) {
    return kir_intern(k, &(struct kir_val){.op = K_ZIP,
                                           .type = x->type,
                                           .lanes = x->lanes,
                                           .imm_i = second,
                                           .n_args = 2,
                                           .args = {x, y}});
}
struct kir_val *kir_load_lanes(struct kir *k, int buf, enum dtype elem, struct kir_val *at,
                               int lanes) {
    struct kir_val t = {.op = K_LOAD,
                        .type = kir_type(elem),
                        .elem = elem,
                        .flags = KF_PINNED,
                        .lanes = (uint16_t)lanes,
                        .imm_i = buf,
                        .n_args = 1,
                        .args = {at},
                        .lo = INT64_MIN,
                        .hi = INT64_MAX};
    return kir_intern(k, &t);
}
void kir_store(struct kir *k, int buf, enum dtype elem, struct kir_val *at, struct kir_val *v) {
    if (dtype_is_complex(elem)) {
        enum dtype part = kir_type(elem);
        struct kir_val *two = kir_idx_mul(k, at, 2);
        kir_store(k, buf, part, two, kir_re(k, v));
        kir_store(k, buf, part, kir_idx_add(k, two, kir_i64(k, 1)), kir_im(k, v));
        return;
    }
    if (kir_is_f8(elem)) {
        v = kir_encode8(k, elem, v);
        elem = DT_U8;
    }
    struct kir_val *s = make(k, K_STORE, DT_INVALID, k->depth);
    s->elem = elem;
    s->imm_i = buf;
    s->lanes = v->lanes;
    s->n_args = 2;
    s->args[0] = at;
    s->args[1] = v;
    append(s->block, s);
}
int kir_add_table(struct kir *k, enum dtype elem, int64_t n, const void *data) {
    struct kir_table t = {elem, n, arena_dup(k->arena, data, (size_t)n * (size_t)dtype_size(elem))};
    for (size_t i = 0; i < k->fn->tables.n; i++) {
        struct kir_table *o = &k->fn->tables.v[i];
        if (o->elem == elem && o->n == n &&
            memcmp(o->data, t.data, (size_t)n * (size_t)dtype_size(elem)) == 0)
            return (int)i;
    }
    avec_push(k->arena, &k->fn->tables, t);
    return (int)k->fn->tables.n - 1;
}
struct kir_val *kir_table(struct kir *k, int table, struct kir_val *at) {
    enum dtype e = k->fn->tables.v[table].elem;
    if (dtype_is_complex(e)) return NULL;
    if (kir_is_f8(e)) {
        k->fn->tables.v[table].elem = DT_U8;
        return kir_decode8(k, e, kir_table(k, table, at));
    }
    struct kir_val t = {.op = K_TABLE,
                        .type = kir_type(e),
                        .elem = e,
                        .imm_i = table,
                        .n_args = 1,
                        .args = {at},
                        .lo = INT64_MIN,
                        .hi = INT64_MAX};
    return kir_intern(k, &t);
}

struct kir_loop *kir_for(struct kir *k, struct kir_val *begin, struct kir_val *end,
                         int64_t max_trip, struct kir_val *const *init, int n_carry) {
    struct kir_loop *l = arena_new_of(k->arena, struct kir_loop);
    struct kir_val **arrays = arena_zarray(k->arena, struct kir_val *, 4 * n_carry + 1);
    l->begin = begin;
    l->end = end;
    l->trip = max_trip;
    l->n_carry = n_carry;
    l->init = arrays;
    l->carry = arrays + n_carry;
    l->yield = arrays + 2 * n_carry;
    l->result = arrays + 3 * n_carry;

    int level = k->depth + 1;
    if (level + 1 >= KIR_MAX_LEVEL) k->overflow = true;
    if (level >= KIR_MAX_LEVEL) level = KIR_MAX_LEVEL - 1;
    l->body = (struct kir_block){.parent = k->stack[k->depth], .level = (uint8_t)level};
    k->depth = level;
    k->stack[level] = &l->body;
    l->var = make(k, K_VAR, DT_S64, level);
    l->var->loop = l;
    l->var->lo = begin->lo < 0 ? 0 : begin->lo;
    l->var->hi = begin->op == K_CONST ? begin->imm_i + max_trip - 1 : max_trip - 1;
    for (int i = 0; i < n_carry; i++) {
        l->init[i] = init[i];
        l->carry[i] = make(k, K_CARRY, init[i]->type, level);
        l->carry[i]->loop = l;
        l->carry[i]->lanes = init[i]->lanes;
        l->carry[i]->imm_i = i;
    }
    return l;
}
void kir_end(struct kir *k, struct kir_loop *l, struct kir_val *const *yield) {
    k->depth = l->body.level - 1;
    struct kir_val *f = make(k, K_FOR, DT_INVALID, k->depth);
    f->loop = l;
    append(f->block, f);
    for (int i = 0; i < l->n_carry; i++) {
        l->yield[i] = yield[i];
        l->result[i] = make(k, K_RESULT, yield[i]->type, k->depth);
        l->result[i]->loop = l;
        l->result[i]->lanes = yield[i]->lanes;
        l->result[i]->imm_i = i;
    }
}
struct kir_block *kir_at_level(struct kir *k, int level) {
    struct kir_block *now = k->stack[k->depth];
    if (level < k->depth) k->depth = level;
    return now;
}
void kir_restore(struct kir *k, struct kir_block *now) {
    k->depth = now->level;
    for (struct kir_block *b = now; b; b = b->parent)
        k->stack[b->level] = b;
}
