// SPDX-License-Identifier: Apache-2.0
// Einsum, as a chain of products over its operands, and the determinant.
//     "bij,bjk->bik": labels of each operand and of the result -> diagonals -> for each next
//     operand: sum what only one side has, one dot over what is shared -> transpose
#include <string.h>

#include "compiler/frontend/onnx/onnx_tools.h"

// A label is its letter, or ELLIPSIS + k for the k-th dimension from the end under "...".
enum { ELLIPSIS = 128, LABELS = ELLIPSIS + HLO_MAX_RANK, MAX_TERMS = 32 };
struct labels_of {
    int v[HLO_MAX_RANK], n;
};
struct einsum {
    struct labels_of in[MAX_TERMS], out;
    int terms, ellipsis; // dimensions under the longest "..."
    bool arrow;
    int64_t size[LABELS];
    int count[LABELS]; // times a label stands in the inputs
};

static int find(const struct labels_of *l, int label) {
    for (int k = 0; k < l->n; k++)
        if (l->v[k] == label) return k;
    return -1;
}

// One term; rank < 0: the result, whose "..." has as many dimensions as the longest input's.
static bool read_term(struct onnx_ctx *c, const struct einsum *e, struct str term, int rank,
                      struct labels_of *out) {
    int letters = 0, dots;
    for (size_t k = 0; k < term.n; k++)
        letters += term.p[k] != '.' && term.p[k] != ' ';
    dots = rank < 0 ? e->ellipsis : rank - letters;
    out->n = 0;
    for (size_t k = 0; k < term.n; k++) {
        char ch = term.p[k];
        bool more = k + 2 < term.n && term.p[k + 1] == '.' && term.p[k + 2] == '.';
        if (ch == ' ') continue;
        if (ch == '.' && more) {
            for (int d = dots; d > 0 && out->n < HLO_MAX_RANK; d--)
                out->v[out->n++] = ELLIPSIS + d - 1;
            k += 2;
        } else if (((ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z')) &&
                   out->n < HLO_MAX_RANK) {
            out->v[out->n++] = ch;
        } else {
            return onnx_fail(c, "equation: '%c' is not understood", ch), false;
        }
    }
    if (rank >= 0 && out->n != rank)
        return onnx_fail(c, "equation: '" STR_FMT "' for an input of rank %d", STR_ARG(term), rank),
               false;
    return true;
}
// The next of the terms before the arrow; a scalar's is empty. False behind the last.
static bool next_term(struct str *left, bool *more, struct str *term) {
    bool had = *more;
    *term = *left;
    str_cut(left, ',', term);
    *more = had && term->p + term->n != left->p; // a comma stood between
    return had;
}
static bool read_equation(struct onnx_ctx *c, struct einsum *e) {
    struct str all = onnx_at_str(c, "equation", ""), left = all, right = {NULL, 0}, term;
    bool more = true;

    for (size_t k = 0; k + 1 < all.n && !e->arrow; k++)
        if (all.p[k] == '-' && all.p[k + 1] == '>') {
            left.n = k;
            right = (struct str){all.p + k + 2, all.n - k - 2};
            e->arrow = true;
        }
    if (c->n->in.n > MAX_TERMS) return onnx_fail(c, "more than %d inputs", MAX_TERMS), false;

    while (e->terms < (int)c->n->in.n && next_term(&left, &more, &term)) {
        const struct shape *s = onnx_in_val(c, (size_t)e->terms)->shape;
        struct labels_of *l = &e->in[e->terms++];
        if (!read_term(c, e, term, s->rank, l)) return false;
        for (int d = 0; d < l->n; d++) {
            int64_t *size = &e->size[l->v[d]];
            if (e->count[l->v[d]]++ == 0 || *size == 1) *size = s->dims[d];
            if (s->dims[d] != *size && s->dims[d] != 1)
                return onnx_fail(c, "equation: sizes %lld and %lld under one letter",
                                 (long long)s->dims[d], (long long)*size),
                       false;
            if (l->v[d] >= ELLIPSIS && l->v[d] - ELLIPSIS >= e->ellipsis)
                e->ellipsis = l->v[d] - ELLIPSIS + 1;
        }
    }

    if (e->terms != (int)c->n->in.n || more)
        return onnx_fail(c, "equation: terms do not match the inputs"), false;
    if (e->arrow) return read_term(c, e, right, -1, &e->out);

    for (int d = e->ellipsis; d > 0; d--) // implicit: "...", then letters that stand once, sorted
        e->out.v[e->out.n++] = ELLIPSIS + d - 1;
    for (int l = 0; l < ELLIPSIS; l++)
        if (e->count[l] == 1 && e->out.n < HLO_MAX_RANK) e->out.v[e->out.n++] = l;
    return true;
}

// A repeated label becomes one dimension, the diagonal; a 1 that broadcasts goes.
static hv tidy(struct onnx_ctx *c, const struct einsum *e, hv x, struct labels_of *l) {
    for (int d = 0; d < l->n && hb_ok(&c->b); d++) {
        bool broadcast = x->shape->dims[d] == 1 && e->size[l->v[d]] != 1;
        int first = find(l, l->v[d]);
        if (!broadcast && first == d) continue;
        if (!broadcast) {
            hv same = hb_compare(&c->b, onnx_index_along(c, x->shape, DT_S64, first),
                                 onnx_index_along(c, x->shape, DT_S64, d), CMP_EQ);
            x = hb_select(&c->b, same, x, onnx_splat_like(c, x, 0));
            int64_t axis = d;
            x = onnx_reduce_keep(c, x, &axis, 1, HLO_ADD, false);
        } else {
            x = onnx_row(c, x, d, 0);
        }
        memmove(l->v + d, l->v + d + 1, sizeof *l->v * (size_t)(l->n - d - 1));
        l->n--, d--;
    }
    return x;
}
static bool needed_later(const struct einsum *e, int label, int next) {
    if (find(&e->out, label) >= 0) return true;
    for (int k = next; k < e->terms; k++)
        if (find(&e->in[k], label) >= 0) return true;
    return false;
}
// Sums the dimensions that neither the other operand nor anything later has.
static hv sum_alone(struct onnx_ctx *c, const struct einsum *e, hv x, struct labels_of *l,
                    const struct labels_of *other, int next) {
    int64_t axes[HLO_MAX_RANK];
    int n = 0, kept = 0;
    for (int d = 0; d < l->n; d++)
        if (find(other, l->v[d]) < 0 && !needed_later(e, l->v[d], next))
            axes[n++] = d;
        else
            l->v[kept++] = l->v[d];
    l->n = kept;
    return n ? onnx_reduce_keep(c, x, axes, n, HLO_ADD, false) : x;
}
static hv contract(struct onnx_ctx *c, const struct einsum *e, hv x, struct labels_of *l, hv y,
                   const struct labels_of *r, int next) {
    int64_t lb[HLO_MAX_RANK], rb[HLO_MAX_RANK], lc[HLO_MAX_RANK], rc[HLO_MAX_RANK];
    int nb = 0, nc = 0;
    struct labels_of out = {.n = 0};
    for (int d = 0; d < l->n; d++) {
        int k = find(r, l->v[d]);
        if (k < 0) continue;
        if (needed_later(e, l->v[d], next))
            lb[nb] = d, rb[nb++] = k, out.v[out.n++] = l->v[d];
        else
            lc[nc] = d, rc[nc++] = k;
    }
    for (int d = 0; d < l->n; d++)
        if (find(r, l->v[d]) < 0 && out.n < HLO_MAX_RANK) out.v[out.n++] = l->v[d];
    for (int d = 0; d < r->n; d++)
        if (find(l, r->v[d]) < 0) {
            if (out.n == HLO_MAX_RANK)
                return onnx_fail(c, "the rank grows above %d", HLO_MAX_RANK), x;
            out.v[out.n++] = r->v[d];
        }
    *l = out;
    return hb_dot(&c->b, x, y,
                  &(struct hlo_attr_dot){.lhs_batch_dims = {lb, nb},
                                         .rhs_batch_dims = {rb, nb},
                                         .lhs_contracting_dims = {lc, nc},
                                         .rhs_contracting_dims = {rc, nc}});
}

ONNX(einsum) {
    struct einsum *e = arena_new_of(c->a, struct einsum);
    static const struct labels_of none = {.n = 0};
    int64_t perm[HLO_MAX_RANK];
    if (!read_equation(c, e)) return;
    for (int d = 0; d < e->out.n; d++)
        if (!e->count[e->out.v[d]] || find(&e->out, e->out.v[d]) != d)
            return onnx_fail(c,
                             "equation: the result's dimensions must each stand in an input, once");
    struct labels_of l = e->in[0];
    hv x = tidy(c, e, onnx_in_val(c, 0), &l);
    for (int k = 1; k < e->terms && hb_ok(b); k++) {
        struct labels_of r = e->in[k];
        hv y = tidy(c, e, onnx_in_val(c, (size_t)k), &r);
        x = sum_alone(c, e, x, &l, &r, k + 1);
        y = sum_alone(c, e, y, &r, &l, k + 1);
        x = contract(c, e, x, &l, y, &r, k + 1);
    }
    x = sum_alone(c, e, x, &l, &none, e->terms);
    if (!hb_ok(b)) return;
    for (int d = 0; d < e->out.n; d++)
        perm[d] = find(&l, e->out.v[d]);
    onnx_out_val(c, 0, hb_transpose(b, x, perm));
}

// ---- determinant: elimination with the largest pivot of each column, unrolled over a matrix that
// shrinks by one; LU from 5 rows on

enum { MAX_UNROLLED = 4 };
ONNX_X(det) {
    hv det = NULL;
    int rank = x->shape->rank;
    int64_t n = rank < 2 ? 0 : x->shape->dims[rank - 1], axis = 1, batch = 1;

    if (rank < 2 || x->shape->dims[rank - 2] != n)
        return onnx_fail(c, "input %s: expected square matrices", onnx_show(c, x));
    const struct shape *results = shape_make(c->a, x->shape->dtype, x->shape->dims, rank - 2);
    if (n == 0) return onnx_out_val(c, 0, hb_splat(b, results, 1)); // the empty product
    for (int d = 0; d < rank - 2; d++)
        batch *= x->shape->dims[d];

    hv m = hb_reshape(b, x, (int64_t[]){batch, n, n}, 3);
    if (n > MAX_UNROLLED && batch > 0) {
        det = onnx_det_by_lu(c, m);
        return onnx_out_val(c, 0, hb_reshape(b, det, x->shape->dims, rank - 2));
    }

    for (int64_t k = n; k > 0 && hb_ok(b); k--) {
        const struct shape *s = shape_make(c->a, DT_S64, (int64_t[]){batch, k}, 2);
        hv column = onnx_row(c, m, 2, 0), size = hb_unary(b, HLO_ABS, column);
        hv first = onnx_place_of_extreme(c, size, axis, true, false, false); // [batch]
        hv at = hb_iota(b, s, 1);
        hv here = hb_compare(b, at, onnx_back_to(c, first, s, &axis, 1), CMP_EQ);
        hv wide = hb_broadcast(b, here, (int64_t[]){batch, k, k}, 3, (int64_t[]){0, 1});
        hv pivots = hb_select(b, wide, m, onnx_splat_like(c, m, 0));
        // the pivot's row, [batch, k]
        pivots = onnx_reduce_keep(c, pivots, &axis, 1, HLO_ADD, false);
        hv pivot = onnx_row(c, pivots, 1, 0);
        hv moved = onnx_compare_k(c, first, 0, CMP_NE);
        hv factor = hb_select(b, moved, hb_unary(b, HLO_NEGATE, pivot), pivot);
        det = det ? hb_mul(b, det, factor) : factor;
        if (k == 1) break;

        // The first row takes the pivot's place; then the first column is cleared.
        hv top =
            hb_broadcast(b, onnx_row(c, m, 1, 0), (int64_t[]){batch, k, k}, 3, (int64_t[]){0, 2});
        m = onnx_part(c, hb_select(b, wide, top, m), 1, 1, k);
        hv safe =
            hb_select(b, onnx_compare_k(c, pivot, 0, CMP_EQ), onnx_splat_like(c, pivot, 1), pivot);
        int64_t dims[3] = {batch, k - 1, k - 1};
        hv ratio = onnx_row(c, m, 2, 0); // [batch, k-1]
        ratio = hb_div(b, ratio, hb_broadcast(b, safe, dims, 2, (int64_t[]){0}));
        hv minus =
            hb_mul(b, hb_broadcast(b, ratio, dims, 3, (int64_t[]){0, 1}),
                   hb_broadcast(b, onnx_part(c, pivots, 1, 1, k), dims, 3, (int64_t[]){0, 2}));
        m = hb_sub(b, onnx_part(c, m, 2, 1, k), minus);
    }

    onnx_out_val(c, 0, hb_reshape(b, det, x->shape->dims, rank - 2));
}
