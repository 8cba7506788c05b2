// SPDX-License-Identifier: Apache-2.0
// Index arithmetic of kir: sums of coefficient times atom in normal form, outermost loops first so
// that partial sums are hoisted. An atom is a loop variable, a loaded index, or divmod(v, s, m) =
// (v / s) % m. Two laws carry the design: (v / (s m)) * m + (v / s) % m = v / s folds back when a
// reshape or a flattened loop changes nothing, and divmod of hi * c + lo falls apart into hi and lo
// when a loop was split at the right place.
#include <stdlib.h>

#include "compiler/kernel/kir.h"

enum { MAX_TERMS = 40 };
struct sum {
    int64_t base;
    int n;
    struct {
        struct kir_val *atom;
        int64_t coef;
    } t[MAX_TERMS];
    bool full;
};

static void add_term(struct sum *s, struct kir_val *atom, int64_t coef) {
    for (int i = 0; i < s->n; i++)
        if (s->t[i].atom == atom) {
            s->t[i].coef += coef;
            if (s->t[i].coef == 0) s->t[i] = s->t[--s->n];
            return;
        }
    if (s->n == MAX_TERMS) {
        s->full = true;
        return;
    }
    s->t[s->n].atom = atom;
    s->t[s->n++].coef = coef;
}
// Is v `other` times the constant c?
static bool times_constant(const struct kir_val *v, struct kir_val **other, int64_t *c) {
    if (v->op != K_MUL || v->type != DT_S64) return false;
    for (int k = 1; k >= 0; k--)
        if (kir_is_const(v->args[k], c) && llabs(*c) < (INT64_C(1) << 40)) {
            *other = v->args[1 - k];
            return true;
        }
    return false;
}
static void flatten(struct sum *s, struct kir_val *v, int64_t coef, int depth) {
    struct kir_val *other;
    int64_t c;
    if (kir_is_const(v, &c)) {
        s->base += c * coef;
    } else if (v->op == K_ADD && v->type == DT_S64 && v->flags == 0 && depth < 64) {
        flatten(s, v->args[0], coef, depth + 1);
        flatten(s, v->args[1], coef, depth + 1);
    } else if (times_constant(v, &other, &c)) {
        flatten(s, other, coef * c, depth + 1);
    } else {
        add_term(s, v, coef);
    }
}

// An atom seen as (v / s) % m.
static void as_divmod(struct kir_val *a, struct kir_val **v, int64_t *s, int64_t *m) {
    bool dm = a->op == K_DIVMOD;
    *v = dm ? a->args[0] : a;
    *s = dm ? a->imm_i : 1;
    *m = dm ? a->imm_j : 0;
}
static struct kir_val *atom(struct kir *k, struct kir_val *v, int64_t s, int64_t m) {
    if (v->lo >= 0 && v->hi < s) return kir_i64(k, 0);
    if (m && v->lo >= 0 && v->hi / s < m) m = 0;
    if (s == 1 && m == 0) return v;
    struct kir_val t = {
        .op = K_DIVMOD, .type = DT_S64, .imm_i = s, .imm_j = m, .n_args = 1, .args = {v}};
    t.hi = v->hi / s;
    if (m && t.hi > m - 1) t.hi = m - 1;
    return kir_intern(k, &t);
}

// Folds pairs (v/(s m))*K m + ((v/s)%m)*K into (v/s)*K.
static void merge(struct kir *k, struct sum *s) {
    for (bool again = true; again;) {
        again = false;
        for (int i = 0; i < s->n && !again; i++)
            for (int j = 0; j < s->n && !again; j++) {
                struct kir_val *vi, *vj;
                int64_t si, mi, sj, mj, ki = s->t[i].coef, kj = s->t[j].coef;
                if (i == j) continue;
                as_divmod(s->t[i].atom, &vi, &si, &mi);
                as_divmod(s->t[j].atom, &vj, &sj, &mj);
                if (vi != vj || mj == 0 || si != sj * mj || ki != kj * mj) continue;
                int a = i < j ? i : j, b = i < j ? j : i;
                s->t[b] = s->t[--s->n];
                s->t[a] = s->t[--s->n];
                struct kir_val *r = atom(k, vi, sj, mi ? mi * mj : 0);
                flatten(s, r, kj, 0);
                again = true;
            }
    }
}

static struct kir_val *raw(struct kir *k, enum kop op, struct kir_val *x, struct kir_val *y) {
    return kir_op(k, op, x, y, NULL);
}
static void range(const struct sum *s, int64_t *lo, int64_t *hi) {
    __int128 l = s->base, h = s->base;
    for (int i = 0; i < s->n; i++) {
        __int128 a = (__int128)s->t[i].atom->lo * s->t[i].coef,
                 b = (__int128)s->t[i].atom->hi * s->t[i].coef;
        l += a < b ? a : b;
        h += a < b ? b : a;
    }
    *lo = l < INT64_MIN ? INT64_MIN : l > INT64_MAX ? INT64_MAX : (int64_t)l;
    *hi = h > INT64_MAX ? INT64_MAX : h < INT64_MIN ? INT64_MIN : (int64_t)h;
}
static struct kir_val *build(struct kir *k, struct sum *s) {
    merge(k, s);
    if (s->n == 0) return kir_i64(k, s->base);
    for (int i = 1; i < s->n; i++) // by level, then id: stable text
        for (int j = i; j > 0; j--) {
            struct kir_val *a = s->t[j - 1].atom, *b = s->t[j].atom;
            if (a->level < b->level || (a->level == b->level && a->id <= b->id)) break;
            typeof(s->t[0]) x = s->t[j];
            s->t[j] = s->t[j - 1];
            s->t[j - 1] = x;
        }

    struct kir_val *v = NULL;
    struct sum part = {.base = 0};
    if (s->base && s->t[0].atom->level == 0) { // keep constants with the outermost part
        v = kir_i64(k, s->base);
        part.base = s->base;
    }

    for (int i = 0; i < s->n; i++) {
        struct kir_val *x = s->t[i].atom;
        if (s->t[i].coef != 1) {
            struct sum one = {.n = 1};
            one.t[0] = s->t[i];
            x = raw(k, K_MUL, x, kir_i64(k, s->t[i].coef));
            range(&one, &x->lo, &x->hi);
        }
        part.t[part.n++] = s->t[i];
        v = v ? raw(k, K_ADD, v, x) : x;
        if (v != s->t[i].atom) range(&part, &v->lo, &v->hi);
    }

    if (s->base && s->t[0].atom->level != 0) {
        v = raw(k, K_ADD, v, kir_i64(k, s->base));
        range(s, &v->lo, &v->hi);
    }
    return v;
}

struct kir_val *kir_idx_add(struct kir *k, struct kir_val *x, struct kir_val *y) {
    struct sum s = {.base = 0};
    flatten(&s, x, 1, 0);
    flatten(&s, y, 1, 0);
    return s.full ? raw(k, K_ADD, x, y) : build(k, &s);
}
struct kir_val *kir_idx_mul(struct kir *k, struct kir_val *x, int64_t c) {
    struct sum s = {.base = 0};
    if (c == 0) return kir_i64(k, 0);
    flatten(&s, x, c, 0);
    return s.full ? raw(k, K_MUL, x, kir_i64(k, c)) : build(k, &s);
}

static int64_t gcd(int64_t a, int64_t b) {
    while (b) {
        int64_t t = a % b;
        a = b;
        b = t;
    }
    return a < 0 ? -a : a;
}
// divmod of one atom.
static struct kir_val *divmod_atom(struct kir *k, struct kir_val *x, int64_t s, int64_t m) {
    struct kir_val *v;
    int64_t s1, m1;
    as_divmod(x, &v, &s1, &m1);
    if (v == x) return atom(k, x, s, m);
    if (m1 == 0) return atom(k, v, s1 * s, m);
    if (m1 % s == 0) {
        int64_t left = m1 / s;
        if (m == 0 || m >= left) return atom(k, v, s1 * s, left);
        if (left % m == 0) return atom(k, v, s1 * s, m);
    }
    return atom(k, x, s, m);
}
// (g A + low) / s = A / (s / g) when g divides s and 0 <= low < g. NULL if no g of the terms fits.
static struct kir_val *divmod_low(struct kir *k, const struct sum *f, int64_t s, int64_t m) {
    for (int t = 0; t < f->n; t++) {
        int64_t g = gcd(s, f->t[t].coef), lo, hi;
        struct sum high = {.base = f->base / g}, low = {.base = f->base % g};
        if (g <= 1) continue;
        for (int i = 0; i < f->n; i++) {
            struct sum *to = f->t[i].coef % g ? &low : &high;
            to->t[to->n] = f->t[i];
            to->t[to->n++].coef /= to == &high ? g : 1;
        }
        range(&low, &lo, &hi);
        if (low.n == 0 && low.base == 0) continue; // a common factor: the caller divides by it
        if (lo >= 0 && hi < g) return kir_idx_divmod(k, build(k, &high), s / g, m);
    }
    return NULL;
}
// x modulo m where x = g hi + lo, g divides m and lo lies below g: g (hi modulo m/g) + lo.
static struct kir_val *modulo_apart(struct kir *k, const struct sum *f, int64_t m) {
    for (int c = 0; c < f->n; c++) {
        int64_t g = gcd(m, f->t[c].coef), lo, hi;
        struct sum high = {.base = f->base / g}, low = {.base = f->base % g};
        if (g <= 1 || g == m) continue;
        for (int i = 0; i < f->n; i++) {
            struct sum *to = f->t[i].coef % g == 0 ? &high : &low;
            to->t[to->n] = f->t[i];
            if (to == &high) to->t[to->n].coef /= g;
            to->n++;
        }
        range(&low, &lo, &hi);
        if (!low.n || lo < 0 || hi >= g) continue;
        struct kir_val *v = kir_idx_divmod(k, build(k, &high), 1, m / g);
        return kir_idx_add(k, kir_idx_mul(k, v, g), build(k, &low));
    }
    return NULL;
}
struct kir_val *kir_idx_divmod(struct kir *k, struct kir_val *x, int64_t s, int64_t m) {
    int64_t lo, hi;
    struct sum f = {.base = 0};
    if (m == 1) return kir_i64(k, 0);
    if (s == 1 && m == 0) return x;
    if (kir_is_const(x, &lo)) return kir_i64(k, m ? lo / s % m : lo / s);

    flatten(&f, x, 1, 0);
    range(&f, &lo, &hi);
    if (f.full || lo < 0) return atom(k, x, s, m);
    if (hi < s) return kir_i64(k, 0);
    if (m && hi / s < m) m = 0;

    if (m) { // modulo s*m, whole multiples drop out
        struct sum g = {.base = f.base % (s * m)};
        for (int i = 0; i < f.n; i++)
            if (f.t[i].coef % (s * m)) g.t[g.n++] = f.t[i];
        range(&g, &lo, &hi);
        if (lo >= 0) f = g;
        if (lo >= 0 && hi / s < m) m = 0;
    }

    struct sum q = {.base = f.base / s}, r = {.base = f.base % s};
    for (int i = 0; i < f.n; i++) {
        if (f.t[i].coef % s == 0) {
            q.t[q.n] = f.t[i];
            q.t[q.n++].coef /= s;
        } else {
            r.t[r.n++] = f.t[i];
        }
    }
    range(&r, &lo, &hi);
    if (lo >= 0 && hi < s && (s > 1 || m == 0)) {
        struct kir_val *v = build(k, &q);
        return m ? kir_idx_divmod(k, v, 1, m) : v;
    }

    if (f.n == 1 && f.base == 0 && f.t[0].coef == 1) return divmod_atom(k, f.t[0].atom, s, m);
    struct kir_val *v = divmod_low(k, &f, s, m);
    if (!v && s == 1 && m) v = modulo_apart(k, &f, m);
    if (v) return v;

    int64_t g = gcd(s, f.base);
    for (int i = 0; i < f.n; i++)
        g = gcd(g, f.t[i].coef);
    if (g > 1) {
        f.base /= g;
        for (int i = 0; i < f.n; i++)
            f.t[i].coef /= g;
        return kir_idx_divmod(k, build(k, &f), s / g, m);
    }

    merge(k, &f);
    if (f.n == 1 && f.base == 0 && f.t[0].coef == 1) return divmod_atom(k, f.t[0].atom, s, m);
    return atom(k, build(k, &f), s, m);
}
struct kir_val *kir_idx_clamp(struct kir *k, struct kir_val *x, int64_t lo, int64_t hi) {
    x = raw(k, K_MAX, x, kir_i64(k, lo));
    return raw(k, K_MIN, x, kir_i64(k, hi));
}

struct kir_val *kir_idx_place(struct kir *k, struct kir_val *x, int64_t last) {
    enum dtype t = x->type;
    int bits = dtype_bits(t);
    bool sign = dtype_class(t) == DC_SIGNED;
    if (bits > 32) {
        if (!sign) x = kir_op(k, K_MIN, x, kir_int(k, t, INT64_MAX), NULL);
        return kir_idx_clamp(k, kir_cast(k, DT_S64, x), 0, last);
    }

    int64_t most = ((int64_t)1 << (bits - sign)) - 1;
    if (bits < 32) x = kir_cast(k, t = DT_S32, x); // not every back end has shorter ones
    if (sign) x = kir_op(k, K_MAX, x, kir_int(k, t, 0), NULL);
    if (last < most) x = kir_op(k, K_MIN, x, kir_int(k, t, last), NULL);
    if (x->op == K_CONST) return kir_i64(k, x->imm_i);
    struct kir_val v = {.op = K_CAST,
                        .type = DT_S64,
                        .n_args = 1,
                        .args = {x},
                        .lo = 0,
                        .hi = last < most ? last : most};
    return kir_intern(k, &v);
}
struct kir_val *kir_idx_between(struct kir *k, struct kir_val *x, int64_t lo, int64_t hi) {
    if (x->op != K_SELECT) return kir_idx_clamp(k, x, lo, hi);
    if (x->lo < lo) x->lo = lo;
    if (x->hi > hi) x->hi = hi;
    return x;
}

static struct kir_val *subst(struct kir *k, struct kir_val *x, struct kir_val *var,
                             struct kir_val *with, struct pmap *memo) {
    if (x == var) return with;
    if (x->level < var->level || x->op == K_CONST) return x;
    // No value of the block of a canonical variable (one without a loop) depends on it.
    bool leaf = x->op == K_CARRY || x->op == K_RESULT || x->op == K_VAR || (x->flags & KF_PINNED);
    if (leaf) return x->level == var->level && !var->loop ? x : NULL;
    struct kir_val *r = pmap_get_ptr(memo, x), *a[4] = {NULL, NULL, NULL, NULL};
    if (r) return r;
    for (int i = 0; i < x->n_args; i++)
        if (!(a[i] = subst(k, x->args[i], var, with, memo))) return NULL;
    if (x->op == K_DIVMOD) {
        r = kir_idx_divmod(k, a[0], x->imm_i, x->imm_j);
    } else if (x->op == K_ADD && x->type == DT_S64) {
        r = kir_idx_add(k, a[0], a[1]);
    } else {
        struct kir_val t = *x;
        memcpy(t.args, a, sizeof a);
        r = kir_intern(k, &t);
    }
    pmap_put_ptr(memo, x, r);
    return r;
}
struct kir_val *kir_subst(struct kir *k, struct kir_val *x, struct kir_val *var,
                          struct kir_val *with) {
    struct pmap memo = {0};
    struct kir_val *r = subst(k, x, var, with, &memo);
    pmap_done(&memo);
    return r;
}
