// SPDX-License-Identifier: Apache-2.0
// Dynamic dimensions with a bound become values of the bound's shape beside their true sizes (what
// XLA's pass of this name does): set-dimension-size gives a size, operations pass sizes on,
// reductions and contractions over a dynamic dimension see the neutral value behind its end, and
// get-dimension-size reads it. Sizes of results go out as further leaves of the root, by which
// whoever returns results cuts them (results.h). What would need to move the end of the data, or
// carries dynamic dimensions into control flow, is refused by name.
#include "compiler/passes/pass.h"
#include "compiler/results.h"

enum { MAX_CUT = 64 };

struct sizes { // of one array: s64 scalars, NULL where the dimension is static
    struct hlo_instr *of[HLO_MAX_RANK];
};
struct padder {
    struct arena *a; // of the module
    struct hb b;
    struct pmap known; // instruction -> struct sizes [1], or [elements of its tuple]
};

static status_t refuse(const struct hlo_instr *i, const char *why) {
    return st_unimplemented("instruction '%s': %s with a dynamic dimension: %s", i->name,
                            hlo_op_info(i->op)->name, why);
}
static struct sizes *sizes_of(const struct padder *p, const struct hlo_instr *i) {
    return pmap_get_ptr(&p->known, i);
}
static bool any(const struct sizes *s, int rank) {
    for (int d = 0; s && d < rank; d++)
        if (s->of[d]) return true;
    return false;
}
static bool is_dynamic(const struct shape *s) {
    for (int k = 0; shape_is_tuple(s) && k < s->n_elems; k++)
        if (is_dynamic(s->elems[k])) return true;
    return !shape_is_tuple(s) && s->dynamic;
}
static const struct shape *bounded(struct arena *a, const struct shape *s) {
    if (!is_dynamic(s)) return s;
    if (!shape_is_tuple(s))
        return shape_with_layout(a, shape_make(a, s->dtype, s->dims, s->rank), s->layout);
    const struct shape **e = arena_array(a, const struct shape *, s->n_elems + 1);
    for (int k = 0; k < s->n_elems; k++)
        e[k] = bounded(a, s->elems[k]);
    return shape_tuple(a, e, s->n_elems);
}

// x with `value` (a scalar) where its position lies behind a true size of dims.
static struct hlo_instr *masked(struct padder *p, struct hlo_instr *x, const struct sizes *s,
                                struct i64s dims, struct hlo_instr *value) {
    struct hb *b = &p->b;
    const struct shape *at = shape_with_dtype(p->a, x->shape, DT_S64);
    struct hlo_instr *inside = NULL;
    for (int k = 0; k < dims.n; k++) {
        int64_t d = dims.v[k];
        if (!s || !s->of[d]) continue;
        struct hlo_instr *end = hb_broadcast(b, s->of[d], at->dims, at->rank, NULL);
        struct hlo_instr *here = hb_compare(b, hb_iota(b, at, d), end, CMP_LT);
        inside = inside ? hb_binary(b, HLO_AND, inside, here) : here;
    }
    if (!inside) return x;
    return hb_select(b, inside, x, hb_broadcast(b, value, at->dims, at->rank, NULL));
}
static struct hlo_instr *clamped(struct padder *p, struct hlo_instr *n, int64_t most) {
    struct hb *b = &p->b;
    return hb_min(b, hb_max(b, hb_convert(b, n, DT_S64), hb_const_i64(b, DT_S64, 0)),
                  hb_const_i64(b, DT_S64, most));
}

// ---- how sizes pass through an operation; *out is all static when called

static status_t through_reshape(const struct hlo_instr *i, const struct sizes *s,
                                struct sizes *out) {
    const struct shape *x = i->operands[0]->shape, *r = i->shape;
    for (int d = 0; d < x->rank; d++) {
        if (!s->of[d]) continue;
        int64_t before = 1, other = 1;
        int e = 0;
        for (int k = 0; k < d; k++)
            before *= x->dims[k];
        while (e < r->rank && (other < before || r->dims[e] != x->dims[d]) && other <= before)
            other *= r->dims[e++];
        if (e == r->rank || other != before) return refuse(i, "it splits or joins the dimension");
        out->of[e] = s->of[d];
    }
    return ST_OK;
}
static status_t through_slice(struct padder *p, const struct hlo_instr *i, const struct sizes *s,
                              struct sizes *out) {
    for (int d = 0; d < i->shape->rank; d++) {
        const struct range *r = &HLO_ATTR(i, slice)->slice.v[d];
        if (!s->of[d]) continue;
        if (r->stride != 1) return refuse(i, "a stride");
        struct hlo_instr *n = hb_sub(&p->b, s->of[d], hb_const_i64(&p->b, DT_S64, r->start));
        out->of[d] = clamped(p, n, i->shape->dims[d]);
    }
    return ST_OK;
}
static status_t through_concat(struct padder *p, const struct hlo_instr *i, struct sizes *out) {
    int64_t d = HLO_ATTR(i, dims)->dimensions.v[0], before = 0;
    for (int k = 0; k < i->n_operands; k++) {
        const struct sizes *s = sizes_of(p, i->operands[k]);
        for (int e = 0; s && e < i->shape->rank; e++)
            if (e != d && s->of[e]) out->of[e] = s->of[e];
        if (s && s->of[d] && k < i->n_operands - 1)
            return refuse(i, "what follows it would have to move");
        if (s && s->of[d])
            out->of[d] = hb_add(&p->b, s->of[d], hb_const_i64(&p->b, DT_S64, before));
        before += i->operands[k]->shape->dims[d];
    }
    return ST_OK;
}
static status_t through_pad(struct padder *p, const struct hlo_instr *i, const struct sizes *s,
                            struct sizes *out) {
    for (int d = 0; s && d < i->shape->rank; d++) {
        const struct pad_dim *w = &HLO_ATTR(i, pad)->padding.v[d];
        if (!s->of[d]) continue;
        if (w->high || w->interior || w->low < 0)
            return refuse(i, "padding other than in front of it");
        out->of[d] = hb_add(&p->b, s->of[d], hb_const_i64(&p->b, DT_S64, w->low));
    }
    return ST_OK;
}
static status_t through_reduce(struct padder *p, struct hlo_instr *i, struct sizes *out) {
    struct i64s over = HLO_ATTR(i, dims)->dimensions;
    int n = i->n_operands / 2, rank = i->operands[0]->shape->rank;
    for (int k = 0; k < n; k++) {
        const struct sizes *s = sizes_of(p, i->operands[k]);
        hlo_set_operand(i, k, masked(p, i->operands[k], s, over, i->operands[n + k]));
        for (int d = 0, o = 0; d < rank; d++)
            if (!i64s_has(over, d)) {
                for (int r = 0; r < n && s && s->of[d]; r++)
                    out[r].of[o] = s->of[d];
                o++;
            }
    }
    return ST_OK;
}
static status_t through_dot(struct padder *p, struct hlo_instr *i, struct sizes *out) {
    const struct hlo_attr_dot *a = HLO_ATTR(i, dot);
    const struct i64s batch[2] = {a->lhs_batch_dims, a->rhs_batch_dims},
                      con[2] = {a->lhs_contracting_dims, a->rhs_contracting_dims};
    const struct sizes *s[2] = {sizes_of(p, i->operands[0]), sizes_of(p, i->operands[1])};
    int o = batch[0].n;
    for (int side = 0; side < 2; side++) {
        struct hlo_instr *x = i->operands[side];
        for (int n = 0; s[side] && n < batch[side].n; n++)
            if (s[side]->of[batch[side].v[n]]) out->of[n] = s[side]->of[batch[side].v[n]];
        for (int d = 0; d < x->shape->rank; d++)
            if (!i64s_has(batch[side], d) && !i64s_has(con[side], d)) {
                out->of[o] = s[side] ? s[side]->of[d] : NULL;
                o++;
            }
        // Both sides: what lies behind the end of one may be NaN on the other.
        struct sizes both = {{NULL}};
        for (int n = 0; n < con[side].n; n++)
            for (int from = 0; from < 2; from++)
                if (s[from] && s[from]->of[con[from].v[n]])
                    both.of[con[side].v[n]] = s[from]->of[con[from].v[n]];
        struct hlo_instr *zero = hb_const_f64(&p->b, x->shape->dtype, 0);
        hlo_set_operand(i, side, masked(p, x, &both, con[side], zero));
    }
    return ST_OK;
}
static status_t through_conv(const struct padder *p, const struct hlo_instr *i, struct sizes *out) {
    const struct labels *l = &HLO_ATTR(i, conv)->dim_labels;
    const struct sizes *s = sizes_of(p, i->operands[0]);
    bool others = any(sizes_of(p, i->operands[1]), i->operands[1]->shape->rank);
    for (int d = 0; s && d < i->operands[0]->shape->rank; d++)
        others |= d != l->in_batch && s->of[d];
    if (others || HLO_ATTR(i, conv)->batch_group_count > 1)
        return refuse(i, "only the images of a convolution may be of an unknown number");
    if (s) out->of[l->out_batch] = s->of[l->in_batch];
    return ST_OK;
}
static status_t through_window(const struct padder *p, const struct hlo_instr *i,
                               struct sizes *out) {
    const struct window *w = &HLO_ATTR(i, window)->window;
    for (int k = 0; k < i->n_operands / 2; k++) {
        const struct sizes *s = sizes_of(p, i->operands[k]);
        for (int d = 0; s && d < w->n; d++) {
            if (!s->of[d]) continue;
            if (w->v[d].size != 1 || w->v[d].stride != 1 || w->v[d].pad_low || w->v[d].pad_high ||
                w->v[d].base_dilation != 1)
                return refuse(i, "a window over it");
            for (int r = 0; r < i->n_operands / 2; r++)
                out[r].of[d] = s->of[d];
        }
    }
    return ST_OK;
}
// Operations on whole lines along `along` (sort, reverse): other dimensions pass.
static status_t through_lines(const struct padder *p, const struct hlo_instr *i, struct i64s along,
                              struct sizes *out) {
    for (int k = 0; k < i->n_operands; k++) {
        const struct sizes *s = sizes_of(p, i->operands[k]);
        for (int d = 0; s && d < i->operands[k]->shape->rank; d++) {
            if (!s->of[d]) continue;
            if (i64s_has(along, d)) return refuse(i, "along it");
            for (int r = 0; r < i->n_operands; r++)
                out[r].of[d] = s->of[d];
        }
    }
    return ST_OK;
}
static status_t through_elementwise(const struct padder *p, const struct hlo_instr *i,
                                    struct sizes *out) {
    for (int k = 0; k < i->n_operands; k++) {
        const struct sizes *s = sizes_of(p, i->operands[k]);
        for (int d = 0; s && d < i->operands[k]->shape->rank; d++)
            if (s->of[d]) out->of[d] = s->of[d];
    }
    return ST_OK;
}
// Sizes that are given: data is in row-major order of the operand's true sizes, so only outermost
// dimensions may be dynamic on either side.
static status_t dynamic_reshape(struct padder *p, struct hlo_instr *i, struct sizes *out) {
    const struct sizes *s = sizes_of(p, i->operands[0]);
    for (int d = 1; s && d < i->operands[0]->shape->rank; d++)
        if (s->of[d]) return refuse(i, "the data would have to be packed");
    for (int d = 0; d < i->shape->rank; d++) {
        if (!i->shape->dynamic || !i->shape->dynamic[d]) continue;
        if (d) return refuse(i, "the data would have to be spread");
        out->of[d] = clamped(p, i->operands[d + 1], i->shape->dims[d]);
    }
    return ST_OK;
}
static status_t through(struct padder *p, struct hlo_instr *i, struct sizes *out) {
    const struct sizes *s = i->n_operands ? sizes_of(p, i->operands[0]) : NULL;
    struct i64s map;

    switch (i->op) {
    case HLO_COPY:
    case HLO_BITCAST_CONVERT:
    case HLO_OPT_BARRIER:
        return shape_is_tuple(i->shape) ? refuse(i, "in a tuple") : through_elementwise(p, i, out);
    case HLO_BROADCAST:
        map = HLO_ATTR(i, dims)->dimensions;
        for (int d = 0; d < map.n; d++)
            out->of[map.v[d]] = s->of[d];
        return ST_OK;
    case HLO_TRANSPOSE:
        map = HLO_ATTR(i, dims)->dimensions;
        for (int d = 0; d < map.n; d++)
            out->of[d] = s->of[map.v[d]];
        return ST_OK;
    case HLO_RESHAPE:
        return through_reshape(i, s, out);
    case HLO_SLICE:
        return through_slice(p, i, s, out);
    case HLO_CONCATENATE:
        return through_concat(p, i, out);
    case HLO_PAD:
        return through_pad(p, i, s, out);
    case HLO_REDUCE:
        return through_reduce(p, i, out);
    case HLO_DOT:
        return through_dot(p, i, out);
    case HLO_CONVOLUTION:
        return through_conv(p, i, out);
    case HLO_REDUCE_WINDOW:
        return through_window(p, i, out);
    case HLO_SORT:
        return through_lines(p, i, HLO_ATTR(i, sort)->dimensions, out);
    case HLO_REVERSE:
        return through_lines(p, i, HLO_ATTR(i, dims)->dimensions, out);
    default:
        return hlo_is_elementwise(i) ? through_elementwise(p, i, out) : refuse(i, "not supported");
    }
}

// ---- the walk

static int elements(const struct hlo_instr *i) {
    return shape_is_tuple(i->shape) ? i->shape->n_elems : 1;
}
static status_t tuple_sizes(const struct padder *p, const struct hlo_instr *i, struct sizes *out) {
    for (int k = 0; k < i->n_operands; k++) {
        const struct sizes *s = sizes_of(p, i->operands[k]);
        if (s && shape_is_tuple(i->operands[k]->shape)) return refuse(i, "in a nested tuple");
        if (s) out[k] = *s;
    }
    return ST_OK;
}
static void replace(struct padder *p, struct hlo_instr *i, struct hlo_instr *with) {
    if (hb_ok(&p->b)) hlo_replace_uses(i, with);
}
static status_t visit(struct padder *p, struct hlo_instr *i, struct arena *scratch) {
    struct sizes *out = arena_zarray(scratch, struct sizes, elements(i) + 1);
    bool touched = false;

    for (int k = 0; k < i->n_operands; k++)
        touched |= sizes_of(p, i->operands[k]) != NULL;
    if (i->op == HLO_PARAMETER && is_dynamic(i->shape))
        return refuse(i, "pass the size and use set-dimension-size");

    if (i->op == HLO_GET_DIMENSION_SIZE && touched) {
        struct hlo_instr *n = sizes_of(p, i->operands[0])->of[HLO_ATTR(i, dims)->dimensions.v[0]];
        if (n) replace(p, i, hb_convert(&p->b, n, i->shape->dtype));
        return ST_OK;
    }

    if (i->op == HLO_SET_DIMENSION_SIZE) {
        int64_t d = HLO_ATTR(i, dims)->dimensions.v[0];
        struct hlo_instr *x = i->operands[0];
        if (sizes_of(p, x)) *out = *sizes_of(p, x);
        bool whole = i->operands[1]->op == HLO_CONSTANT &&
                     lit_get_i64(i->operands[1]->literal, 0) == x->shape->dims[d];
        out->of[d] = whole ? NULL : clamped(p, i->operands[1], x->shape->dims[d]);
        // Not x itself, whose own users see all of it.
        struct hlo_instr *r = hb_op(&p->b, HLO_RESHAPE, bounded(p->a, i->shape), &x, 1, NULL);
        replace(p, i, r);
        pmap_put_ptr(&p->known, r, out);
        return hb_ok(&p->b) ? ST_OK : hb_end(&p->b);
    }

    bool given = i->op == HLO_DYNAMIC_RESHAPE;
    if (!touched && !given) {
        i->shape = bounded(p->a, i->shape); // no size is behind the mark
        return ST_OK;
    }

    if (i->op == HLO_GET_TUPLE_ELEMENT)
        *out = sizes_of(p, i->operands[0])[HLO_ATTR(i, gte)->index];
    else if (i->op == HLO_TUPLE)
        RETURN_IF_ERR(tuple_sizes(p, i, out));
    else
        RETURN_IF_ERR(given ? dynamic_reshape(p, i, out) : through(p, i, out));
    i->shape = bounded(p->a, i->shape);

    struct hlo_instr *r = i;
    if (given) {
        r = hb_op(&p->b, HLO_RESHAPE, i->shape, i->operands, 1, NULL);
        replace(p, i, r);
    }
    pmap_put_ptr(&p->known, r, out);
    return hb_ok(&p->b) ? ST_OK : hb_end(&p->b);
}

// The root's sizes become its last leaves.
static status_t close_root(struct padder *p, struct hlo_computation *c, struct arena *scratch) {
    struct hlo_instr *root = c->root, **leaf;
    const struct sizes *s = sizes_of(p, root);
    struct dynamic_result cut[MAX_CUT];
    int n = elements(root), n_cut = 0;
    bool tuple = shape_is_tuple(root->shape), some = false;

    for (int k = 0; s && k < n; k++) {
        const struct shape *e = tuple ? root->shape->elems[k] : root->shape;
        some |= !shape_is_tuple(e) && any(&s[k], e->rank);
    }
    if (!some) return ST_OK;

    leaf = arena_array(scratch, struct hlo_instr *, n + MAX_CUT);
    for (int k = 0; k < n; k++) {
        leaf[k] = !tuple                  ? root
                  : root->op == HLO_TUPLE ? root->operands[k]
                                          : hb_gte(&p->b, root, k);
        if (shape_is_tuple(leaf[k]->shape)) return refuse(root, "beside a nested tuple");
    }

    for (int k = 0; k < n; k++)
        for (int d = 0; d < leaf[k]->shape->rank; d++) {
            if (!s[k].of[d]) continue;
            if (n_cut == MAX_CUT) return refuse(root, "more of them than 64");
            cut[n_cut] = (struct dynamic_result){.leaf = k, .dim = d, .size_leaf = n + n_cut};
            leaf[n + n_cut++] = s[k].of[d];
        }

    struct hlo_instr *all = hb_tuple(&p->b, leaf, n + n_cut);
    if (!hb_ok(&p->b)) return ST_OK;
    hlo_set_root(c, all);
    results_set_dynamic(c->module, cut, n_cut);
    return ST_OK;
}

static status_t pad_entry(struct hlo_module *m, struct pass_ctx *ctx) {
    struct hlo_computation *c = m->entry;
    struct padder p = {.a = m->arena, .b = hb_begin(c)};
    status_t st = ST_OK;
    for (struct hlo_instr *i = c->first, *next; i && !st; i = next) {
        struct hlo_instr *last = c->last;
        next = i->next;
        p.b.op_type = i->op_type;
        p.b.op_name = i->op_name;
        st = visit(&p, i, &ctx->scratch);
        pass_place(last, i); // reads nothing behind i: masks stand before what they feed
    }
    if (!st) st = close_root(&p, c, &ctx->scratch);
    status_t built = hb_end(&p.b);
    pmap_done(&p.known);
    if (st) {
        st_drop(built);
        return st;
    }
    RETURN_IF_ERR(built);
    ctx->changed = true;
    hlo_remove_dead(c);
    return ST_OK;
}

status_t pass_dynamic_padder(struct hlo_module *m, struct pass_ctx *p) {
    bool here = false;
    HLO_EACH_COMPUTATION(c, m)
    HLO_EACH_INSTR(i, c) {
        bool dynamic =
            is_dynamic(i->shape) || i->op == HLO_SET_DIMENSION_SIZE || i->op == HLO_DYNAMIC_RESHAPE;
        if (dynamic && c != m->entry) return refuse(i, "outside of the entry computation");
        here |= dynamic;
    }
    return here ? pad_entry(m, p) : ST_OK;
}
