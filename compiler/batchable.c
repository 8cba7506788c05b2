// SPDX-License-Identifier: Apache-2.0
// What is known of a value is where its rows lie: dimension d holds n rows of k elements each, so
// that the row of the element at flat index f is (f / inner) % n, where inner = k * (product of the
// dimensions after d). Reshapes keep f, hence rows; transposes move d; and so on. A value that no
// input reaches has no rows; beside one that has, it must be the same for each of them (uniform).
#include "compiler/batchable.h"

#include "compiler/calls/bits.h"

#include <string.h>

#include "compiler/calls/trees.h"
#include "compiler/ir/op.h"

enum kind { NO_ROWS, HAS_ROWS, MIXED };
struct row_place {
    enum kind kind;
    int d;
    int64_t k;
};
struct walk {
    struct arena *a;
    struct row_place *at; // by instruction id
    int64_t n;            // rows
    int looks;            // of `uniform`, which walks a graph as a tree
};
enum { MAX_LOOKS = 100000 };
static const struct row_place none = {NO_ROWS, 0, 0}, mixed = {MIXED, 0, 0};

static struct row_place rows_at(int d, int64_t k) {
    return (struct row_place){HAS_ROWS, d, k};
}
static struct row_place of(struct walk *w, const struct hlo_instr *i) {
    return w->at[i->id];
}
static struct row_place of_operand(struct walk *w, const struct hlo_instr *i, int k) {
    return of(w, i->operands[k]);
}
static bool same(struct row_place a, struct row_place b) {
    return a.kind == b.kind && a.d == b.d && a.k == b.k;
}
static int64_t product(const struct shape *s, int from, int to) {
    int64_t p = 1;
    for (int d = from; d < to; d++)
        p *= s->dims[d];
    return p;
}
static int index_of(struct i64s v, int64_t x) { // -1: not there
    for (int k = 0; k < v.n; k++)
        if (v.v[k] == x) return k;
    return -1;
}
static int below(struct i64s v, int64_t x) { // how many are smaller
    int n = 0;
    for (int k = 0; k < v.n; k++)
        n += v.v[k] < x;
    return n;
}

// The same elements in order under another shape.
static bool reshaped(struct walk *w, const struct shape *from, const struct shape *to,
                     struct row_place p, struct row_place *out) {
    int64_t pre = product(from, 0, p.d), inner = p.k * product(from, p.d + 1, from->rank);
    for (int d = 0; d < to->rank; d++) {
        int64_t after = product(to, d + 1, to->rank);
        if (product(to, 0, d) != pre || !after || to->dims[d] % w->n || inner % after) continue;
        if (to->dims[d] / w->n * after != inner) continue;
        *out = rows_at(d, to->dims[d] / w->n);
        return true;
    }
    return false;
}

// Is a value that no input reaches the same for each row, if rows lie at p?
static bool uniform(struct walk *w, const struct hlo_instr *i, struct row_place p, int depth) {
    struct row_place q;
    if (i->shape->rank == 0) return true;
    if (depth > 64 || ++w->looks > MAX_LOOKS || shape_is_tuple(i->shape)) return false;
    if (hlo_is_elementwise(i) || i->op == HLO_COPY) {
        for (int k = 0; k < i->n_operands; k++)
            if (!uniform(w, i->operands[k], p, depth + 1)) return false;
        return true;
    }
    if (i->op == HLO_BROADCAST) {
        int d = index_of(HLO_ATTR(i, dims)->dimensions, p.d);
        return d < 0 || uniform(w, i->operands[0], rows_at(d, p.k), depth + 1);
    }
    if (i->op == HLO_RESHAPE)
        return reshaped(w, i->shape, i->operands[0]->shape, p, &q) &&
               uniform(w, i->operands[0], q, depth + 1);
    if (i->op == HLO_TRANSPOSE)
        return uniform(w, i->operands[0], rows_at((int)HLO_ATTR(i, dims)->dimensions.v[p.d], p.k),
                       depth + 1);
    if (i->op == HLO_IOTA) return HLO_ATTR(i, iota)->iota_dimension != p.d;
    if (i->op != HLO_CONSTANT) return false;
    int64_t bytes = dtype_size(i->shape->dtype),
            inner = p.k * product(i->shape, p.d + 1, i->shape->rank);
    const uint8_t *v = i->literal->data;
    for (int64_t f = 0; f < shape_elements(i->shape); f++) {
        int64_t row = f / inner % w->n;
        if (memcmp(v + f * bytes, v + (f - row * inner) * bytes, (size_t)bytes) != 0) return false;
    }
    return true;
}

// Operands [from, to) of one shape side by side: where their rows all lie.
static struct row_place together(struct walk *w, const struct hlo_instr *i, int from, int to) {
    struct row_place p = none;
    for (int k = from; k < to; k++) {
        struct row_place q = of_operand(w, i, k);
        if (q.kind == MIXED || (q.kind && p.kind && !same(p, q))) return mixed;
        if (q.kind) p = q;
    }
    for (int k = from; k < to && p.kind; k++)
        if (!of_operand(w, i, k).kind && !uniform(w, i->operands[k], p, 0)) return mixed;
    return p;
}
static bool no_rows(struct walk *w, const struct hlo_instr *i, int from, int to) {
    for (int k = from; k < to; k++)
        if (of_operand(w, i, k).kind) return false;
    return true;
}

// ---- rules of ops.def, for operators that have rows among their operands

#define RULE(name)                                                                                 \
    static struct row_place rows_##name(UNUSED struct walk *w, UNUSED const struct hlo_instr *i)

RULE(dot) {
    const struct hlo_attr_dot *a = HLO_ATTR(i, dot);
    struct i64s batch[2] = {a->lhs_batch_dims, a->rhs_batch_dims},
                contract[2] = {a->lhs_contracting_dims, a->rhs_contracting_dims};
    struct row_place p[2] = {of_operand(w, i, 0), of_operand(w, i, 1)};
    if (p[0].kind == MIXED || p[1].kind == MIXED) return mixed;
    int in_batch[2] = {-1, -1};
    for (int s = 0; s < 2; s++)
        if (p[s].kind) in_batch[s] = index_of(batch[s], p[s].d);
    if (p[0].kind && p[1].kind)
        return in_batch[0] >= 0 && in_batch[0] == in_batch[1] && p[0].k == p[1].k
                   ? rows_at(in_batch[0], p[0].k)
                   : mixed;
    int s = p[1].kind == HAS_ROWS;
    if (in_batch[s] >= 0) {
        struct row_place other = rows_at((int)batch[!s].v[in_batch[s]], p[s].k);
        return uniform(w, i->operands[!s], other, 0) ? rows_at(in_batch[s], p[s].k) : mixed;
    }
    if (index_of(contract[s], p[s].d) >= 0) return mixed;
    int free = p[s].d - below(batch[s], p[s].d) - below(contract[s], p[s].d);
    int left = i->operands[0]->shape->rank - batch[0].n - contract[0].n;
    return rows_at(batch[0].n + (s ? left : 0) + free, p[s].k);
}

RULE(convolution) {
    const struct hlo_attr_conv *a = HLO_ATTR(i, conv);
    struct row_place p = of_operand(w, i, 0);
    if (p.kind != HAS_ROWS || of_operand(w, i, 1).kind || p.d != a->dim_labels.in_batch ||
        a->batch_group_count != 1)
        return mixed;
    return rows_at(a->dim_labels.out_batch, p.k);
}

RULE(gather) {
    const struct hlo_attr_gather *a = HLO_ATTR(i, gather);
    struct row_place x = of_operand(w, i, 0), ids = of_operand(w, i, 1);
    if (x.kind == MIXED || ids.kind == MIXED) return mixed;
    int batch[HLO_MAX_RANK], n_batch = 0; // dimensions of the result that come from the indices
    for (int d = 0; d < i->shape->rank; d++)
        if (index_of(a->offset_dims, d) < 0) batch[n_batch++] = d;
    int from_ids =
        ids.kind && ids.d != a->index_vector_dim ? ids.d - (ids.d > a->index_vector_dim) : -1;
    if (ids.kind && (from_ids < 0 || from_ids >= n_batch)) return mixed;
    if (!x.kind) // a table looked up: any row may read any of it
        return a->operand_batching_dims.n ? mixed : rows_at(batch[from_ids], ids.k);
    if (ids.kind) { // each in its own
        int b = index_of(a->operand_batching_dims, x.d);
        return b >= 0 && a->start_indices_batching_dims.v[b] == ids.d && x.k == ids.k
                   ? rows_at(batch[from_ids], ids.k)
                   : mixed;
    }
    if (index_of(a->start_index_map, x.d) >= 0 || index_of(a->collapsed_slice_dims, x.d) >= 0 ||
        index_of(a->operand_batching_dims, x.d) >= 0 ||
        a->slice_sizes.v[x.d] != i->operands[0]->shape->dims[x.d])
        return mixed;
    int kept = x.d - below(a->collapsed_slice_dims, x.d) - below(a->operand_batching_dims, x.d);
    return rows_at((int)a->offset_dims.v[kept], x.k);
}

RULE(reduce) {
    int n = i->n_operands / 2;
    struct i64s dims = HLO_ATTR(i, dims)->dimensions;
    struct row_place p = together(w, i, 0, n);
    if (p.kind != HAS_ROWS || index_of(dims, p.d) >= 0 || !no_rows(w, i, n, 2 * n)) return mixed;
    return rows_at(p.d - below(dims, p.d), p.k);
}

RULE(reduce_window) {
    int n = i->n_operands / 2;
    struct window win = HLO_ATTR(i, window)->window;
    struct row_place p = together(w, i, 0, n);
    if (p.kind != HAS_ROWS || !no_rows(w, i, n, 2 * n)) return mixed;
    if (!win.n) return p;
    const struct window_dim *d = &win.v[p.d];
    return d->size == 1 && d->stride == 1 && !d->pad_low && !d->pad_high && d->base_dilation <= 1
               ? p
               : mixed;
}

// Parts of dimensions: rows must be taken whole.
RULE(part) {
    struct row_place p = of_operand(w, i, 0);
    if (p.kind != HAS_ROWS) return mixed;
    bool whole = i->shape->dims[p.d] == i->operands[0]->shape->dims[p.d];
    if (i->op == HLO_PAD) {
        const struct pad_dim *d = &HLO_ATTR(i, pad)->padding.v[p.d];
        whole = !d->low && !d->high && !d->interior;
    }
    if (i->op == HLO_SLICE) whole &= HLO_ATTR(i, slice)->slice.v[p.d].stride == 1;
    return whole && no_rows(w, i, 1, i->n_operands) ? p : mixed;
}

RULE(update) {
    struct row_place p = together(w, i, 0, 2);
    bool whole =
        p.kind == HAS_ROWS && i->operands[1]->shape->dims[p.d] == i->operands[0]->shape->dims[p.d];
    return whole && no_rows(w, i, 2, i->n_operands) ? p : mixed;
}

static struct row_place unless(struct row_place p, bool mixes) {
    return mixes ? mixed : p;
}

RULE(mixed) {
    return mixed;
}
RULE(each) {
    return together(w, i, 0, i->n_operands);
}
RULE(same) { // of a part of a tuple: the results of an operator have their rows alike
    return of_operand(w, i, 0);
}
RULE(reshape) {
    struct row_place q;
    return reshaped(w, i->operands[0]->shape, i->shape, of_operand(w, i, 0), &q) ? q : mixed;
}
RULE(broadcast) {
    struct row_place p = of_operand(w, i, 0);
    return rows_at((int)HLO_ATTR(i, dims)->dimensions.v[p.d], p.k);
}
RULE(transpose) {
    struct row_place p = of_operand(w, i, 0);
    return rows_at(index_of(HLO_ATTR(i, dims)->dimensions, p.d), p.k);
}
RULE(concatenate) {
    struct row_place p = rows_each(w, i);
    return unless(p, p.d == HLO_ATTR(i, dims)->dimensions.v[0]);
}
RULE(reverse) {
    struct row_place p = of_operand(w, i, 0);
    return unless(p, index_of(HLO_ATTR(i, dims)->dimensions, p.d) >= 0);
}
RULE(sort) {
    struct row_place p = rows_each(w, i);
    return unless(p, p.d == HLO_ATTR(i, sort)->dimensions.v[0]);
}
RULE(topk) {
    struct row_place p = of_operand(w, i, 0);
    return unless(p, p.d == i->operands[0]->shape->rank - 1);
}
RULE(fft) {
    struct row_place p = of_operand(w, i, 0);
    return unless(p, p.d >= i->shape->rank - HLO_ATTR(i, fft)->fft_length.n);
}
RULE(batch_norm) {
    struct row_place p = of_operand(w, i, 0);
    return unless(p, p.d == HLO_ATTR(i, batchnorm)->feature_index || !no_rows(w, i, 1, 5));
}
RULE(custom_call) {
    struct row_place p = i->n_operands ? of_operand(w, i, 0) : none;
    bool known = trees_is(i) || bits_is(i);
    return unless(p, !known || p.d != 0 || i->operands[0]->shape->rank < 2 ||
                         !no_rows(w, i, 1, i->n_operands));
}

static struct row_place (*const rules[HLO_OP_COUNT])(struct walk *, const struct hlo_instr *) = {
#define OP(e, text, arity, traits, attrs, infer, eval, lower, batch, grad) [HLO_##e] = rows_##batch,
#include "compiler/ir/ops.def"
#undef OP
};

static struct row_place place_of(struct walk *w, const struct hlo_instr *i) {
    if (i->op == HLO_PARAMETER && i->param_kind == PARAM_INPUT)
        return !shape_is_tuple(i->shape) && i->shape->rank && i->shape->dims[0] == w->n &&
                       !i->shape->dynamic
                   ? rows_at(0, 1)
                   : mixed;
    if (i->op == HLO_TUPLE) return none; // asked for its parts
    if (i->op == HLO_GET_TUPLE_ELEMENT && i->operands[0]->op == HLO_TUPLE)
        return of(w, i->operands[0]->operands[HLO_ATTR(i, gte)->index]);
    if (hlo_op_info(i->op)->traits & (HLO_T_EFFECT | HLO_T_COLL)) return mixed;
    bool any = false;
    for (int k = 0; k < i->n_operands; k++) {
        const struct hlo_instr *x = i->operands[k];
        enum kind kind = of(w, x).kind;
        if (kind == MIXED || (x->op == HLO_TUPLE && !no_rows(w, x, 0, x->n_operands))) return mixed;
        any = any || kind == HAS_ROWS;
    }
    return any ? rules[i->op](w, i) : none;
}

// ---- the answer

// Of each computation once, where it is called first.
static void add_constants(struct sha256 *h, struct pmap *seen, const struct hlo_computation *c) {
    if (pmap_has_ptr(seen, c)) return;
    pmap_put_ptr(seen, c, NULL);
    HLO_EACH_INSTR(i, c) {
        for (int k = 0; k < i->n_called; k++)
            add_constants(h, seen, i->called[k]);
        if (i->op != HLO_CONSTANT || (!i->users.n && i != c->root)) continue;
        sha256_u64(h, i->shape->dtype);
        sha256_u64(h, i->literal->size_bytes);
        if (i->literal->data) sha256_add(h, i->literal->data, i->literal->size_bytes);
    }
}

static const char *name_of(struct arena *a, const struct hlo_instr *i) {
    return i->op_name
               ? arena_printf(a, "%s %s (node '%s')", hlo_op_name(i->op), i->name, i->op_name)
               : arena_printf(a, "%s %s", hlo_op_name(i->op), i->name);
}

static const char *check(struct walk *w, const struct hlo_module *m) {
    HLO_EACH_INSTR(i, m->entry) {
        w->at[i->id] = place_of(w, i);
        if (w->at[i->id].kind == MIXED && (i->users.n || i == m->entry->root))
            return arena_printf(w->a, "%s joins rows, or is not known to keep them apart",
                                name_of(w->a, i));
    }
    const struct hlo_instr *root = m->entry->root;
    bool tuple = root->op == HLO_TUPLE;
    for (int k = 0; k < (tuple ? root->n_operands : 1); k++) {
        const struct hlo_instr *r = tuple ? root->operands[k] : root;
        bool whole = !shape_is_tuple(r->shape) && r->shape->rank && r->shape->dims[0] == w->n;
        bool fits = of(w, r).kind ? same(of(w, r), rows_at(0, 1)) : uniform(w, r, rows_at(0, 1), 0);
        if (!whole || !fits)
            return arena_printf(w->a, "result %d (%s) has no rows in dimension 0", k,
                                name_of(w->a, r));
    }
    return NULL;
}

struct batchable batchable_check(struct arena *a, const struct hlo_module *m) {
    struct batchable out = {.why = "no input has rows"};
    struct walk w = {a, arena_zarray(a, struct row_place, m->next_id + 1), 0, 0};
    for (size_t k = 0; k < m->entry->params.n; k++) {
        const struct hlo_instr *p = m->entry->params.v[k];
        if (p->param_kind == PARAM_INPUT && !shape_is_tuple(p->shape) && p->shape->rank && !w.n)
            w.n = p->shape->dims[0];
    }
    if (w.n > 0) out.why = check(&w, m);
    out.independent = !out.why;
    struct sha256 h;
    sha256_init(&h);
    struct pmap seen = {0};
    add_constants(&h, &seen, m->entry);
    pmap_done(&seen);
    out.constants = sha256_end(&h);
    return out;
}
