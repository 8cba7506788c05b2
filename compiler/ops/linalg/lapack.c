// SPDX-License-Identifier: Apache-2.0
// The names are lapack_[sdcz]ROUTINE_ffi; backend_config holds LAPACK's letters as numbers:
// {diag = 78 : ui8, side = 76 : ui8, uplo = 76 : ui8}, and words: {left = true}.
#include "compiler/ops/linalg/lapack.h"

// The number that the configuration has for `name`; -1: none, or one that is not understood.
static int64_t number(struct str config, const char *name) {
    size_t n = strlen(name);
    for (size_t k = 0; k + n < config.n; k++) {
        if (memcmp(config.p + k, name, n) != 0) continue;
        if (k > 0 && config.p[k - 1] != '{' && config.p[k - 1] != ' ' && config.p[k - 1] != ',')
            continue;
        size_t at = k + n;
        int64_t v = 0;
        int digits = 0;
        while (at < config.n && (config.p[at] == ' ' || config.p[at] == '='))
            at++;
        for (; at < config.n && config.p[at] >= '0' && config.p[at] <= '9' && digits < 12; digits++)
            v = v * 10 + (config.p[at++] - '0');
        return digits ? v : -1;
    }
    return -1;
}
// The letter of that code; 0 = none.
static char letter(struct str config, const char *name) {
    int64_t v = number(config, name);
    return v > 0 && v < 128 ? (char)v : 0;
}
static bool is_target(struct str name, enum dtype t, const char *routine) {
    char type = t == DT_F32 ? 's' : t == DT_F64 ? 'd' : t == DT_C64 ? 'c' : 'z';
    size_t n = strlen(routine);
    return (t == DT_F32 || t == DT_F64 || t == DT_C64 || t == DT_C128) && name.n == n + 12 &&
           memcmp(name.p, "lapack_", 7) == 0 && name.p[7] == type &&
           memcmp(name.p + 8, routine, n) == 0 && memcmp(name.p + 8 + n, "_ffi", 4) == 0;
}
static bool square(const struct shape *s) {
    return !shape_is_tuple(s) && s->rank >= 2 && s->dims[s->rank - 1] == s->dims[s->rank - 2];
}
static bool same_batch(const struct shape *a, const struct shape *b, int n) {
    for (int d = 0; d < n; d++)
        if (a->dims[d] != b->dims[d]) return false;
    return true;
}
static bool read_potrf(const struct hlo_instr *i, struct str config, struct lapack_call *out) {
    const struct shape *x = i->operands[0]->shape, *r = i->shape;
    char uplo = letter(config, "uplo");
    if (i->n_operands != 1 || !square(x) || !shape_is_tuple(r) || r->n_elems != 2 ||
        !shape_compatible(r->elems[0], x) || r->elems[1]->dtype != DT_S32 ||
        r->elems[1]->rank != x->rank - 2 || !same_batch(r->elems[1], x, x->rank - 2) ||
        (uplo != 'L' && uplo != 'U'))
        return false;
    out->kind = LAPACK_POTRF;
    out->cholesky.lower = uplo == 'L';
    return true;
}
static bool read_trsm(const struct hlo_instr *i, struct str config, struct lapack_call *out) {
    const struct shape *a = i->operands[0]->shape,
                       *b = i->n_operands == 2 ? i->operands[1]->shape : NULL;
    char uplo = letter(config, "uplo"), side = letter(config, "side"),
         diag = letter(config, "diag"), trans = letter(config, "trans_x");
    if (!b || !square(a) || shape_is_tuple(b) || b->rank != a->rank || b->dtype != a->dtype ||
        !shape_compatible(i->shape, b) || !same_batch(a, b, a->rank - 2) ||
        b->dims[b->rank - (side == 'L' ? 2 : 1)] != a->dims[a->rank - 1] ||
        (uplo != 'L' && uplo != 'U') || (side != 'L' && side != 'R') ||
        (diag != 'N' && diag != 'U') || (trans != 'N' && trans != 'T' && trans != 'C'))
        return false;
    out->kind = LAPACK_TRSM;
    out->trisolve.left_side = side == 'L';
    out->trisolve.lower = uplo == 'L';
    out->trisolve.unit_diagonal = diag == 'U';
    out->trisolve.transpose_a = trans == 'N'   ? TRI_NO_TRANSPOSE
                                : trans == 'T' ? TRI_TRANSPOSE
                                               : TRI_ADJOINT;
    return true;
}

// ---- the others

// Is s of type t, the first nb dims of a, and then d0 and d1 (-1 = no such dim)?
static bool fits(const struct shape *s, enum dtype t, const struct shape *a, int nb, int64_t d0,
                 int64_t d1) {
    int tail = (d0 >= 0) + (d1 >= 0);
    return !shape_is_tuple(s) && s->dtype == t && s->rank == nb + tail && same_batch(s, a, nb) &&
           (tail < 1 || s->dims[nb] == d0) && (tail < 2 || s->dims[nb + 1] == d1);
}
static bool says(struct str config, const char *name) {
    size_t n = strlen(name);
    for (size_t k = 0; k + n + 4 <= config.n; k++) {
        size_t at = k + n;
        if (memcmp(config.p + k, name, n) != 0 || (k > 0 && !strchr("{ ,", config.p[k - 1])))
            continue;
        while (at < config.n && (config.p[at] == ' ' || config.p[at] == '='))
            at++;
        return at + 4 <= config.n && memcmp(config.p + at, "true", 4) == 0;
    }
    return false;
}
struct form { // what a call has to look like: t of its elements, r of their real parts
    const struct shape *a, *const *e;
    int nb, n_in, n_out;
    enum dtype t, r, c;
    int64_t m, n, least;
};
static bool leaf(const struct form *f, int k, enum dtype t, int64_t d0, int64_t d1) {
    return fits(f->e[k], t, f->a, f->nb, d0, d1);
}
static bool fits_factors(const struct form *f, enum lapack_kind kind, const struct hlo_instr *i) {
    switch (kind) {
    case LAPACK_GETRF:
        return f->n_in == 1 && f->n_out == 3 && leaf(f, 0, f->t, f->m, f->n) &&
               leaf(f, 1, DT_S32, f->least, -1) && leaf(f, 2, DT_S32, -1, -1);
    case LAPACK_GEQRF:
        return f->n_in == 1 && f->n_out == 2 && leaf(f, 0, f->t, f->m, f->n) &&
               leaf(f, 1, f->t, f->least, -1);
    case LAPACK_GEQP3:
        return f->n_in == 2 && f->n_out == 3 && leaf(f, 0, f->t, f->m, f->n) &&
               fits(i->operands[1]->shape, DT_S32, f->a, f->nb, f->n, -1) &&
               leaf(f, 1, DT_S32, f->n, -1) && leaf(f, 2, f->t, f->least, -1);
    case LAPACK_GEHRD:
        return f->n_in == 1 && f->n_out == 3 && f->m == f->n && leaf(f, 0, f->t, f->n, f->n) &&
               leaf(f, 1, f->t, f->n ? f->n - 1 : 0, -1) && leaf(f, 2, DT_S32, -1, -1);
    case LAPACK_SYTRD: {
        int64_t off = f->n ? f->n - 1 : 0;
        return f->n_in == 1 && f->n_out == 5 && f->m == f->n && leaf(f, 0, f->t, f->n, f->n) &&
               leaf(f, 1, f->r, f->n, -1) && leaf(f, 2, f->r, off, -1) &&
               leaf(f, 3, f->t, off, -1) && leaf(f, 4, DT_S32, -1, -1);
    }
    default:
        return false;
    }
}
static bool fits_values(const struct form *f, enum lapack_kind kind) {
    bool real = f->t == f->r;
    int w = real ? 2 : 1;
    if (f->n_in != 1) return false;
    switch (kind) {
    case LAPACK_SYEVD:
        return f->n_out == 3 && f->m == f->n && leaf(f, 0, f->t, f->n, f->n) &&
               leaf(f, 1, f->r, f->n, -1) && leaf(f, 2, DT_S32, -1, -1);
    case LAPACK_GESDD:
    case LAPACK_GESVD:
        return f->n_out == 5 && leaf(f, 0, f->t, f->m, f->n) && leaf(f, 1, f->r, f->least, -1) &&
               (leaf(f, 2, f->t, f->m, f->m) || leaf(f, 2, f->t, f->m, f->least)) &&
               (leaf(f, 3, f->t, f->n, f->n) || leaf(f, 3, f->t, f->least, f->n)) &&
               leaf(f, 4, DT_S32, -1, -1);
    case LAPACK_GEEV:
        return f->n_out == w + 3 && f->m == f->n && leaf(f, 0, f->t, f->n, -1) &&
               leaf(f, w - 1, f->t, f->n, -1) && leaf(f, w, f->c, f->n, f->n) &&
               leaf(f, w + 1, f->c, f->n, f->n) && leaf(f, w + 2, DT_S32, -1, -1);
    case LAPACK_GEES:
        return f->n_out == w + 4 && f->m == f->n && leaf(f, 0, f->t, f->n, f->n) &&
               leaf(f, 1, f->t, f->n, f->n) && leaf(f, 2, f->t, f->n, -1) &&
               leaf(f, w + 1, f->t, f->n, -1) && leaf(f, w + 2, DT_S32, -1, -1) &&
               leaf(f, w + 3, DT_S32, -1, -1);
    default:
        return false;
    }
}
static bool fits_q(const struct form *f, enum lapack_kind kind, const struct hlo_instr *i,
                   bool left) {
    int want = kind == LAPACK_ORGQR ? 2 : 3;
    if (f->n_in != want || f->n_out != 1) return false;
    const struct shape *tau = i->operands[1]->shape, *r = f->e[0];
    if (shape_is_tuple(tau) || tau->rank != f->nb + 1) return false;
    int64_t k = tau->dims[f->nb];
    if (!fits(tau, f->t, f->a, f->nb, k, -1)) return false;
    if (kind == LAPACK_ORGQR) return k <= f->n && f->n <= f->m && leaf(f, 0, f->t, f->m, f->n);
    const struct shape *c = i->operands[2]->shape;
    if (shape_is_tuple(c) || c->rank != f->nb + 2 || c->dtype != f->t ||
        !same_batch(c, f->a, f->nb) || k > f->n || k > f->m)
        return false;
    return c->dims[f->nb + (left ? 0 : 1)] == f->m && shape_compatible(r, c);
}
static bool fits_gtsv(const struct form *f, const struct hlo_instr *i) {
    if (f->n_in != 4 || f->n_out != 5) return false;
    const struct shape *d = i->operands[0]->shape, *b = i->operands[3]->shape;
    int nb = d->rank - 1;
    if (nb < 0 || shape_is_tuple(b) || b->rank != nb + 2 || b->dtype != f->t ||
        !same_batch(b, d, nb) || b->dims[nb] != d->dims[nb])
        return false;
    for (int k = 0; k < 3; k++)
        if (!fits(i->operands[k]->shape, f->t, d, nb, d->dims[nb], -1) ||
            !shape_compatible(f->e[k], d))
            return false;
    return shape_compatible(f->e[3], b) && fits(f->e[4], DT_S32, d, nb, -1, -1);
}
static enum dtype real_of(enum dtype t) {
    return t == DT_C64 ? DT_F32 : t == DT_C128 ? DT_F64 : t;
}
static bool read_other(const struct hlo_instr *i, struct str config, enum lapack_kind kind,
                       struct lapack_call *out) {
    const struct shape *a = i->operands[0]->shape, *one[1] = {i->shape};
    bool tuple = shape_is_tuple(i->shape), b = kind == LAPACK_GTSV && i->n_operands == 4;
    struct form f = {.a = a,
                     .e = tuple ? (const struct shape *const *)i->shape->elems : one,
                     .n_in = i->n_operands,
                     .n_out = tuple ? i->shape->n_elems : 1,
                     .t = a->dtype,
                     .r = real_of(a->dtype)};
    f.c = f.r == DT_F32 ? DT_C64 : DT_C128;

    const struct shape *whole = b ? i->operands[3]->shape : a;
    if (shape_is_tuple(whole) || whole->rank < 2) return false;
    f.nb = whole->rank - 2;
    f.m = whole->dims[f.nb], f.n = whole->dims[f.nb + 1];
    f.least = f.m < f.n ? f.m : f.n;

    char uplo = letter(config, "uplo");
    *out = (struct lapack_call){.kind = kind,
                                .batch = 1,
                                .m = f.m,
                                .n = f.n,
                                .upper = uplo == 'U',
                                .left = says(config, "left"),
                                .adjoint = says(config, "transpose"),
                                .left_vectors = letter(config, "compute_left") == 'V',
                                .right_vectors = letter(config, "compute_right") == 'V'};

    for (int d = 0; d < f.nb; d++)
        out->batch *= whole->dims[d];
    if (kind != LAPACK_GEEV) out->left_vectors = letter(config, "mode") != 'N';

    switch (kind) {
    case LAPACK_GTSV:
        return fits_gtsv(&f, i);
    case LAPACK_ORGQR:
    case LAPACK_ORMQR:
        return fits_q(&f, kind, i, out->left);
    case LAPACK_SYEVD:
    case LAPACK_GESDD:
    case LAPACK_GESVD:
    case LAPACK_GEEV:
    case LAPACK_GEES:
        if (letter(config, "sort") == 'S') return false; // by a function of the caller's
        return (kind != LAPACK_SYEVD || uplo == 'L' || uplo == 'U') && fits_values(&f, kind);
    default:
        if (kind == LAPACK_GEHRD && (number(config, "low") > 1 || (number(config, "high") >= 0 &&
                                                                   number(config, "high") != f.n)))
            return false; // part of a matrix
        if (kind == LAPACK_SYTRD && uplo != 'L' && uplo != 'U') return false;
        return fits_factors(&f, kind, i);
    }
}
bool lapack_read(const struct hlo_instr *i, struct lapack_call *out) {
    static const struct {
        const char *name;
        enum lapack_kind kind;
    } others[] = {{"getrf", LAPACK_GETRF}, {"geqrf", LAPACK_GEQRF}, {"geqp3", LAPACK_GEQP3},
                  {"orgqr", LAPACK_ORGQR}, {"ungqr", LAPACK_ORGQR}, {"ormqr", LAPACK_ORMQR},
                  {"unmqr", LAPACK_ORMQR}, {"syevd", LAPACK_SYEVD}, {"heevd", LAPACK_SYEVD},
                  {"gesdd", LAPACK_GESDD}, {"gesvd", LAPACK_GESVD}, {"geev", LAPACK_GEEV},
                  {"gees", LAPACK_GEES},   {"gehrd", LAPACK_GEHRD}, {"sytrd", LAPACK_SYTRD},
                  {"hetrd", LAPACK_SYTRD}, {"gtsv", LAPACK_GTSV}};
    size_t n = 0;
    *out = (struct lapack_call){.kind = LAPACK_NONE};
    if (i->op != HLO_CUSTOM_CALL || i->n_operands < 1 || shape_is_tuple(i->operands[0]->shape))
        return false;
    struct str name = HLO_ATTR(i, custom)->custom_call_target;
    const char *text = hlo_extra(i, "backend_config", &n);
    struct str config = {text ? text : "", text ? n : 0};
    enum dtype t = i->operands[0]->shape->dtype;
    if (is_target(name, t, "potrf")) return read_potrf(i, config, out);
    if (is_target(name, t, "trsm")) return read_trsm(i, config, out);
    for (size_t k = 0; k < sizeof others / sizeof others[0]; k++)
        if (is_target(name, t, others[k].name)) {
            if (read_other(i, config, others[k].kind, out)) return true;
            out->kind = LAPACK_NONE;
            return false;
        }
    return false;
}
