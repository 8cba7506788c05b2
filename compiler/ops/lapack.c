// SPDX-License-Identifier: Apache-2.0
// The names are lapack_[sdcz]potrf_ffi and lapack_[sdcz]trsm_ffi; backend_config holds LAPACK's
// letters as numbers: {diag = 78 : ui8, side = 76 : ui8, trans_x = 84 : ui8, uplo = 76 : ui8}.
#include "compiler/ops/lapack.h"

// The letter that the configuration has for `name`; 0 = none.
static char letter(struct str config, const char *name) {
    size_t n = strlen(name);
    for (size_t k = 0; k + n < config.n; k++) {
        if (memcmp(config.p + k, name, n) != 0) continue;
        if (k > 0 && config.p[k - 1] != '{' && config.p[k - 1] != ' ' && config.p[k - 1] != ',')
            continue;
        size_t at = k + n;
        int v = 0, digits = 0;
        while (at < config.n && (config.p[at] == ' ' || config.p[at] == '='))
            at++;
        for (; at < config.n && config.p[at] >= '0' && config.p[at] <= '9' && digits < 3; digits++)
            v = v * 10 + (config.p[at++] - '0');
        return digits && v < 128 ? (char)v : 0;
    }
    return 0;
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
bool lapack_read(const struct hlo_instr *i, struct lapack_call *out) {
    size_t n = 0;
    *out = (struct lapack_call){.kind = LAPACK_NONE};
    if (i->op != HLO_CUSTOM_CALL || i->n_operands < 1 || shape_is_tuple(i->operands[0]->shape))
        return false;
    struct str name = HLO_ATTR(i, custom)->custom_call_target;
    const char *text = hlo_extra(i, "backend_config", &n);
    struct str config = {text, text ? n : 0};
    enum dtype t = i->operands[0]->shape->dtype;
    if (is_target(name, t, "potrf")) return read_potrf(i, config, out);
    return is_target(name, t, "trsm") && read_trsm(i, config, out);
}
