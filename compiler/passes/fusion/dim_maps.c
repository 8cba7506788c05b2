// SPDX-License-Identifier: Apache-2.0
// Movements along one dimension after another (dim_maps.h) as one, which reads each element once:
// a pad by mirrored edges of two dimensions is ten instructions and four copies of the array. What
// it does not take: a single rotation (library.h, lib_joins_rows), small arrays, which fusions with
// their neighbours serve better, and what somebody else reads in between.
#include "compiler/passes/fusion/dim_maps.h"

#include "base/map.h"
#include "compiler/passes/fusion/fusion.h"

enum { LEAST_BYTES = 1 << 14, MOST_TABLE = 1 << 24, MOST_MEMBERS = 256, DEPTH = 64 };
enum { MOST_TABLES = 1 << 27 }; // bytes of a module's: what is left then stays as it is

struct reader {
    struct arena *a;
    struct pmap known; // instruction -> its maps
    int depth;
    int64_t bytes, most; // of tables
};
static const struct dim_maps *read(struct reader *r, const struct hlo_instr *i);

static int64_t *table(struct reader *r, int64_t n) {
    int64_t bytes = n * (int64_t)sizeof(int64_t);
    if (bytes > r->most - r->bytes) return NULL;
    r->bytes += bytes;
    return arena_array(r->a, int64_t, n);
}
// at[d] of m becomes at[d](begin + k * step) for k < n; step 0: at[d](0) for all.
static bool along(struct reader *r, struct dim_maps *m, int64_t d, int64_t begin, int64_t step,
                  int64_t n) {
    int64_t *t = table(r, n);
    for (int64_t k = 0; t && k < n; k++) {
        int64_t at = begin + k * step;
        t[k] = m->at[d] ? m->at[d][at] : at;
    }
    m->at[d] = t;
    return t != NULL;
}
static bool sliced(struct reader *r, const struct hlo_instr *i, struct dim_maps *m) {
    const struct range *s = HLO_ATTR(i, slice)->slice.v;
    for (int d = 0; d < i->shape->rank; d++)
        if (i->shape->dims[d] != i->operands[0]->shape->dims[d] &&
            !along(r, m, d, s[d].start, s[d].stride, i->shape->dims[d]))
            return false;
    return true;
}
static bool reversed(struct reader *r, const struct hlo_instr *i, struct dim_maps *m) {
    struct i64s dims = HLO_ATTR(i, dims)->dimensions;
    for (int k = 0; k < dims.n; k++) {
        int64_t n = i->shape->dims[dims.v[k]];
        if (!along(r, m, dims.v[k], n - 1, -1, n)) return false;
    }
    return true;
}
// What broadcast i repeats, with dimensions of one where it does; NULL: it is not written so.
static const struct hlo_instr *repeated(const struct hlo_instr *i) {
    const struct hlo_instr *x =
        i->operands[0]->op == HLO_RESHAPE ? i->operands[0]->operands[0] : NULL;
    struct i64s dims = HLO_ATTR(i, dims)->dimensions;
    if (!x || x->shape->rank != i->shape->rank) return NULL;
    for (int k = 1; k < dims.n; k++)
        if (dims.v[k] <= dims.v[k - 1]) return NULL;
    for (int d = 0; d < i->shape->rank; d++)
        if (x->shape->dims[d] != (i64s_has(dims, d) ? i->shape->dims[d] : 1)) return NULL;
    return x;
}
static bool spread(struct reader *r, const struct hlo_instr *i, struct dim_maps *m) {
    struct i64s dims = HLO_ATTR(i, dims)->dimensions;
    for (int d = 0; d < i->shape->rank; d++)
        if (!i64s_has(dims, d) && !along(r, m, d, 0, 0, i->shape->dims[d])) return false;
    return true;
}
static bool same_table(const int64_t *a, const int64_t *b, int64_t n) {
    for (int64_t k = 0; a != b && k < n; k++)
        if ((a ? a[k] : k) != (b ? b[k] : k)) return false;
    return true;
}
static bool joined(struct reader *r, const struct hlo_instr *i, struct dim_maps *m) {
    int64_t d = HLO_ATTR(i, dims)->dimensions.v[0], at = 0, *t = table(r, i->shape->dims[d]);
    if (!t) return false;
    for (int k = 0; k < i->n_operands; k++) {
        const struct dim_maps *o = read(r, i->operands[k]);
        if (!o || (k && o->from != m->from)) return false;
        if (!k) *m = *o;
        for (int e = 0; e < i->shape->rank; e++)
            if (e != d && !same_table(o->at[e], m->at[e], i->shape->dims[e])) return false;
        for (int64_t j = 0; j < i->operands[k]->shape->dims[d]; j++)
            t[at++] = o->at[d] ? o->at[d][j] : j;
    }
    m->at[d] = t;
    return true;
}
static bool plain(const struct hlo_instr *i) {
    return !shape_is_tuple(i->shape) && !i->shape->dynamic && !i->control_preds.n &&
           dtype_bits(i->shape->dtype) >= 8 && shape_elements(i->shape) > 0 && i->shape->rank > 0;
}
static bool from_operand(struct reader *r, const struct hlo_instr *i, struct dim_maps *m) {
    const struct hlo_instr *x = i->op == HLO_BROADCAST ? repeated(i) : i->operands[0];
    if (i->op == HLO_CONCATENATE) return joined(r, i, m);
    const struct dim_maps *in = x && plain(x) ? read(r, x) : NULL;
    if (!in) return false;
    *m = *in;
    return i->op == HLO_SLICE     ? sliced(r, i, m)
           : i->op == HLO_REVERSE ? reversed(r, i, m)
                                  : spread(r, i, m);
}
static const struct dim_maps *read(struct reader *r, const struct hlo_instr *i) {
    struct dim_maps *m = pmap_get_ptr(&r->known, i);
    if (m) return m;
    m = arena_new_of(r->a, struct dim_maps);
    bool moves = i->op == HLO_SLICE || i->op == HLO_REVERSE || i->op == HLO_BROADCAST ||
                 i->op == HLO_CONCATENATE;
    bool read = moves && plain(i) && r->depth < DEPTH;
    r->depth++;
    if (!read || !from_operand(r, i, m)) *m = (struct dim_maps){.from = i};
    r->depth--;
    pmap_put_ptr(&r->known, i, m);
    return m;
}
bool dim_maps_match(const struct hlo_instr *f) {
    return f->op == HLO_FUSION && HLO_ATTR(f, fusion)->kind == FUSION_CUSTOM &&
           f->n_operands == 1 && f->called[0]->root->op == HLO_CONCATENATE &&
           f->called[0]->params.v[0]->shape->rank == f->shape->rank;
}
bool dim_maps_of(struct arena *a, const struct hlo_instr *f, struct dim_maps *out) {
    struct reader r = {.a = a, .most = MOST_TABLE};
    if (!dim_maps_match(f)) return false;
    *out = *read(&r, f->called[0]->root);
    pmap_done(&r.known);
    return out->from == f->called[0]->params.v[0];
}

bool dim_maps_keeps(const struct hlo_instr *f, int d) {
    if (!dim_maps_match(f)) return false;
    HLO_EACH_INSTR(i, f->called[0]) {
        if ((i->op == HLO_SLICE && i->shape->dims[d] != i->operands[0]->shape->dims[d]) ||
            (i->op == HLO_REVERSE && i64s_has(HLO_ATTR(i, dims)->dimensions, d)) ||
            (i->op == HLO_BROADCAST && !i64s_has(HLO_ATTR(i, dims)->dimensions, d)) ||
            (i->op == HLO_CONCATENATE && HLO_ATTR(i, dims)->dimensions.v[0] == d))
            return false;
    }
    return true;
}
int64_t dim_maps_runs(const int64_t *at, int64_t n, int64_t inner) {
    enum { LEAST_RUN = 4 }; // elements in the mean, beside two edges
    int64_t runs = 1;
    for (int64_t k = 1; k < n; k++)
        runs += at[k] != at[k - 1] + 1;
    return inner == 1 && runs * LEAST_RUN > n + 2 * LEAST_RUN ? 0 : runs;
}

// ---- the pass

// What lies between i and `from`, each once, i first. False: somebody else reads some of it.
struct members {
    struct hlo_instr *v[MOST_MEMBERS];
    int n;
    struct pmap seen;
    bool mixed; // more than one rotation
};
static bool gather(struct members *m, struct hlo_instr *i, const struct hlo_instr *from) {
    if (i == from || pmap_has_ptr(&m->seen, i)) return true;
    if (m->n == MOST_MEMBERS) return false;
    pmap_put_ptr(&m->seen, i, i);
    m->mixed |=
        i->op == HLO_REVERSE || i->op == HLO_BROADCAST || (m->n && i->op == HLO_CONCATENATE);
    m->v[m->n++] = i;
    for (int k = 0; k < i->n_operands; k++)
        if (!gather(m, i->operands[k], from)) return false;
    return true;
}
static bool alone(const struct members *m) {
    for (int k = 1; k < m->n; k++) {
        if (m->v[k]->parent->root == m->v[k]) return false;
        for (size_t u = 0; u < m->v[k]->users.n; u++)
            if (!pmap_has_ptr(&m->seen, m->v[k]->users.v[u])) return false;
    }
    return true;
}
// Is the last dimension that moves made of runs?
static bool has_runs(const struct dim_maps *m, const struct shape *s) {
    int64_t inner = 1;
    for (int d = s->rank - 1; d >= 0; inner *= s->dims[d--])
        if (m->at[d]) return dim_maps_runs(m->at[d], s->dims[d], inner) > 0;
    return false;
}
// Is anything but a slice behind i, which joins some? No tables: most that join are rotations.
static bool may_mix(const struct hlo_instr *i, int *looks) {
    for (int k = 0; k < i->n_operands; k++) {
        const struct hlo_instr *x = i->operands[k];
        if (x->op == HLO_REVERSE || x->op == HLO_CONCATENATE) return true;
        if (x->op == HLO_BROADCAST && repeated(x)) return true;
        if (x->op == HLO_SLICE && (--*looks < 0 || may_mix(x, looks))) return true;
    }
    return false;
}
// left: bytes of tables.
static status_t take(struct hlo_instr *i, struct pass_ctx *p, int64_t *left) {
    struct arena a = {0};
    struct reader r = {.a = &a, .most = *left < MOST_TABLE ? *left : MOST_TABLE};
    const struct dim_maps *maps = read(&r, i);
    struct members m = {.n = 0};
    struct hlo_instr *f;
    status_t st = ST_OK;
    pmap_done(&r.known);
    if (maps->from != i && maps->from->shape->rank == i->shape->rank && has_runs(maps, i->shape) &&
        gather(&m, i, maps->from) && m.mixed && alone(&m)) {
        fusion_in_list_order(m.v, m.n);
        st = fusion_make(m.v, m.n, FUSION_CUSTOM, i, &f);
        p->changed = true;
    }
    *left -= r.bytes;
    pmap_done(&m.seen);
    arena_done(&a);
    return st;
}
status_t pass_dim_maps(struct hlo_module *m, struct pass_ctx *p) {
    int64_t left = MOST_TABLES;
    if (!p->target || !p->target->library_dim_maps) return ST_OK;
    HLO_EACH_COMPUTATION(c, m) {
        if (c->fusion) continue;
        hlo_number_list(c);
        for (struct hlo_instr *i = c->last, *prev; i; i = prev) {
            int looks = DEPTH;
            prev = i->prev;
            if (i->op == HLO_CONCATENATE && plain(i) && (i->users.n || i == c->root) &&
                shape_bytes(i->shape) >= LEAST_BYTES && may_mix(i, &looks))
                RETURN_IF_ERR(take(i, p, &left));
        }
        hlo_remove_dead(c);
    }
    return ST_OK;
}
