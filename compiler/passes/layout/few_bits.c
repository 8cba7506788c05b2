// SPDX-License-Identifier: Apache-2.0
// A dot whose weights the program makes of integers of 4 or 8 bits reads these as they are, by the
// call of compiler/calls/bits.h, instead of f32 that were prepared of them:
//     dot(x, (convert(q) - zeros) * scales)   =>   custom-call(x, packed q, scales, zeros)
// q [k, n] or [n, k] of s4, u4, s8, u8; zeros and scales: none, or the same for runs along k that
// are a multiple of 32 bits (one for each column, or blocks). A step of few rows runs at the speed
// of the memory it reads, and large weights take 4 to 8 times as much of it in f32.
// A call whose model lets x be rounded to 8 bits gets .x8, where the device multiplies such.
// Does not: small weights; many rows of weights that are not large, where a library's dot with what
// is fused behind it is as quick; integers that the program computes; `strict`, since sums of a
// block meet their scale once.
#include "compiler/calls/bits.h"
#include "compiler/passes/pass.h"

enum { WORD = 32, LONGEST = 256, SMALL = 1 << 16, LARGE = 1 << 22 };

struct few {
    hv q, zeros, scales; // the latter NULL: none; shaped as the weights are
    int64_t k, n, block;
    bool k_first; // [k, n]
    int bits;
    bool is_signed;
};

static hv through_reshapes(hv v) {
    while (v->op == HLO_RESHAPE)
        v = v->operands[0];
    return v;
}
// The longest run along k of equal values in v, which has the weights' shape: by how it is
// broadcast. 0: unknown.
static int64_t run_of(const struct few *f, hv v) {
    v = through_reshapes(v);
    if (v->op == HLO_CONVERT) v = through_reshapes(v->operands[0]);
    if (v->op != HLO_BROADCAST) return 0;
    const struct shape *s = v->shape;
    struct i64s kept = HLO_ATTR(v, dims)->dimensions;
    // The dimensions that k was flattened of: the first ones or the last ones.
    int from = 0, to = 0;
    int64_t size = 1;
    if (f->k_first) {
        while (to < s->rank && size < f->k)
            size *= s->dims[to++];
    } else {
        from = to = s->rank;
        while (from > 0 && size < f->k)
            size *= s->dims[--from];
    }
    if (size != f->k) return 0;
    int64_t run = 1;
    for (int d = to - 1; d >= from; d--) {
        for (int e = 0; e < kept.n; e++)
            if (kept.v[e] == d && s->dims[d] > 1) return run;
        run *= s->dims[d];
    }
    return run;
}
static bool few_type(enum dtype t, struct few *f) {
    f->bits = t == DT_S4 || t == DT_U4 ? 4 : 8;
    f->is_signed = t == DT_S4 || t == DT_S8;
    return t == DT_S4 || t == DT_U4 || t == DT_S8 || t == DT_U8;
}
static bool holds_bytes(enum dtype t) {
    return t == DT_F32 || t == DT_F16 || t == DT_BF16 || t == DT_S16 || t == DT_S32 || t == DT_S64;
}
// What v is a conversion of, by types that hold every byte; NULL: no integers of few bits.
static hv converted(hv v, struct few *f) {
    while (v->op == HLO_CONVERT && holds_bytes(v->shape->dtype))
        v = v->operands[0];
    return few_type(v->shape->dtype, f) ? v : NULL;
}
// What w is made of.
static bool read(hv w, struct few *f) {
    hv v = w;
    if (v->op == HLO_MULTIPLY) {
        int s = run_of(f, v->operands[1]) ? 1 : 0;
        f->scales = v->operands[s];
        v = v->operands[1 - s];
    }
    hv inner = v->op == HLO_CONVERT ? v->operands[0] : v;
    if (inner->op == HLO_SUBTRACT && (inner == v || inner->shape->dtype == DT_S32)) {
        f->zeros = inner->operands[1];
        v = inner->operands[0];
    }
    f->q = converted(v, f);
    if (!f->q || !shape_same_dims(f->q->shape, w->shape)) return false;
    int64_t scales = f->scales ? run_of(f, f->scales) : f->k,
            zeros = f->zeros ? run_of(f, f->zeros) : f->k;
    if (!scales || !zeros) return false;
    f->block = scales < zeros ? scales : zeros;
    if (scales % f->block || zeros % f->block) return false;
    while (f->block > LONGEST && f->block * f->bits % (2 * WORD) == 0)
        f->block /= 2;
    return f->block * f->bits % WORD == 0;
}
static bool takes(const struct hlo_instr *i, struct few *f) {
    if (i->op != HLO_DOT || i->shape->dtype != DT_F32 || i->shape->dynamic) return false;
    const struct hlo_attr_dot *d = HLO_ATTR(i, dot);
    const struct shape *x = i->operands[0]->shape, *w = i->operands[1]->shape;
    if (d->lhs_batch_dims.n || d->lhs_contracting_dims.n != 1 || x->dtype != DT_F32 ||
        w->dtype != DT_F32 || x->dynamic || w->rank != 2 || x->rank < 1 ||
        d->lhs_contracting_dims.v[0] != x->rank - 1 || i->operands[1]->mark != 1 ||
        i->operands[1]->users.n > 1 || i->operands[0]->mark == 1)
        return false;
    int64_t of_k = d->rhs_contracting_dims.v[0], all = shape_elements(w);
    *f = (struct few){.k = w->dims[of_k], .n = w->dims[1 - of_k], .k_first = of_k == 0};
    if (all < SMALL || shape_elements(x) == 0) return false;
    if (shape_elements(x) / f->k > BITS_FEW_ROWS && all < LARGE) return false;
    return read(i->operands[1], f);
}

// v of the weights' shape, one of each run along k: f32[blocks, n].
static hv of_blocks(struct hb *b, const struct few *f, hv v) {
    struct range r[2] = {{0, f->k, f->block}, {0, f->n, 1}};
    if (f->k_first) return hb_convert(b, hb_slice(b, v, r), DT_F32);
    struct range by_column[2] = {{0, f->n, 1}, {0, f->k, f->block}};
    v = hb_transpose(b, hb_slice(b, v, by_column), (int64_t[]){1, 0});
    return hb_convert(b, v, DT_F32);
}
// q as u8[n, blocks, bytes]: by their order, signed ones more by the middle.
static hv packed(struct hb *b, const struct few *f) {
    hv q = hb_convert(b, f->q, f->is_signed ? DT_S8 : DT_U8);
    if (f->k_first) q = hb_transpose(b, q, (int64_t[]){1, 0});
    const struct shape *s = q->shape;
    if (f->is_signed) {
        q = hb_op(b, HLO_BITCAST_CONVERT, shape_with_dtype(b->c->module->arena, s, DT_U8), &q, 1,
                  NULL);
        q = hb_add(b, q, hb_splat(b, q->shape, f->bits == 4 ? 8 : 128));
    }
    int64_t blocks = f->k / f->block, half = f->block / 2;
    if (f->bits == 8) return hb_reshape(b, q, (int64_t[]){f->n, blocks, f->block}, 3);
    q = hb_reshape(b, q, (int64_t[]){f->n, blocks, half, 2}, 4);
    struct range low[4] = {{0, f->n, 1}, {0, blocks, 1}, {0, half, 1}, {0, 1, 1}}, high[4];
    memcpy(high, low, sizeof high);
    high[3] = (struct range){1, 2, 1};
    hv up = hb_slice(b, q, high);
    up = hb_binary(b, HLO_SHIFT_LEFT, up, hb_splat(b, up->shape, 4));
    q = hb_binary(b, HLO_OR, hb_slice(b, q, low), up);
    return hb_reshape(b, q, (int64_t[]){f->n, blocks, half}, 3);
}
static hv rewritten(struct hb *b, const struct few *f, hv x) {
    int64_t of[2] = {f->k / f->block, f->n};
    double middle = !f->is_signed ? 0 : f->bits == 4 ? 8 : 128;
    hv in[BITS_OPERANDS] = {x, packed(b, f)};
    in[BITS_SCALES] = f->scales ? of_blocks(b, f, f->scales)
                                : hb_broadcast(b, hb_const_f64(b, DT_F32, 1), of, 2, NULL);
    in[BITS_ZEROS] = hb_const_f64(b, DT_F32, middle);
    if (f->zeros) {
        hv z = of_blocks(b, f, f->zeros);
        in[BITS_ZEROS] = f->is_signed ? hb_add(b, z, hb_splat(b, z->shape, middle)) : z;
    }
    return bits_call(b, f->bits, BITS_X_F32, in);
}

// The weights' bits of a call of .level4 whose shapes fit; 0: another instruction.
static int lets_round(struct pass_ctx *p, const struct hlo_instr *i) {
    struct bits d;
    bool fits = bits_is(i) && !bits_read(&p->scratch, i, &d);
    return fits && d.rounding == BITS_X_LEVEL4 ? d.bits : 0;
}
static status_t in_computation(struct hlo_computation *c, struct pass_ctx *p) {
    pass_mark_weights(c);
    HLO_EACH_INSTR(i, c) {
        struct few f;
        int bits = p->target->few_bits_x8 ? lets_round(p, i) : 0;
        if (!bits && !takes(i, &f)) continue;
        struct hlo_instr *last = c->last;
        struct hb b = hb_begin(c);
        b.op_type = i->op_type;
        b.op_name = i->op_name;
        hv r =
            bits ? bits_call(&b, bits, BITS_X_8, i->operands) : rewritten(&b, &f, i->operands[0]);
        RETURN_IF_ERR(pass_put_instead(&b, last, i, r));
        p->changed = true;
    }
    return ST_OK;
}
status_t pass_few_bits(struct hlo_module *m, struct pass_ctx *p) {
    if (!p->target || !p->target->few_bits || !p->opt || p->opt->precision == PRECISION_STRICT)
        return ST_OK;
    HLO_EACH_COMPUTATION(c, m)
    RETURN_IF_ERR(in_computation(c, p));
    return ST_OK;
}
