// SPDX-License-Identifier: Apache-2.0
// What a value of 8-bit integers or floats becomes by elementwise operations with one value for
// all, ending in 8 bits again, is a table of 256 bytes: networks of quantise-dequantise pairs
// compute sigmoid, tanh, SiLU and GELU so, with several roundings on the way. The table holds what
// the reference evaluator makes of each byte; looking up is a gather:
//     quantise(f(dequantise(x u8[...]))) -> gather(u8[256], x)
// Done where f has an operation that takes long, as all that round to an 8-bit float; others are
// cheaper in the kernels around them. Floats are looked up by their bits, and so are the results.
#include "compiler/eval.h"
#include "compiler/passes/fusion/match.h"
#include "compiler/passes/pass.h"

enum { BYTES = 256, MAX_CONE = 64, LEAST = 1024 }; // instructions; elements worth a table
// What pass scratch says of an instruction: tmp = the 8-bit value of which alone it is made, itself
// at the start of such a chain, or NULL; mark = these.
enum { SLOW = 1, COVERED = 2 }; // slow operations on the way; all uses end in 8 bits

static bool small_float(enum dtype t) {
    return dtype_is_float(t) && dtype_bits(t) == 8;
}
static bool byte_value(const struct hlo_instr *i) {
    return !shape_is_tuple(i->shape) && !i->shape->dynamic &&
           (i->shape->dtype == DT_U8 || i->shape->dtype == DT_S8 || small_float(i->shape->dtype)) &&
           shape_elements(i->shape) >= LEAST;
}
static bool slow(const struct hlo_instr *i) {
    switch (i->op) {
    case HLO_COPY:
    case HLO_BITCAST_CONVERT:
    case HLO_MAXIMUM:
    case HLO_MINIMUM:
    case HLO_CLAMP:
    case HLO_SELECT:
        return false; // one of the operands, rounded already
    case HLO_TANH:
    case HLO_LOGISTIC:
    case HLO_EXP:
    case HLO_EXPM1:
    case HLO_LOG:
    case HLO_LOG1P:
    case HLO_ERF:
    case HLO_POWER:
    case HLO_SIN:
    case HLO_COS:
    case HLO_TAN:
    case HLO_CBRT:
        return true;
    default:
        return small_float(i->shape->dtype);
    }
}
static bool one_value(const struct hlo_instr *i) {
    double v;
    return match_splat(i, &v);
}
// The 8-bit value that all operands are made of; says whether on a slow way.
static struct hlo_instr *source_of(const struct hlo_instr *i, bool *is_slow) {
    struct hlo_instr *source = NULL;
    *is_slow = slow(i);
    if (!hlo_is_pointwise(i) || hlo_has_effect(i) || i->n_called || shape_is_tuple(i->shape) ||
        i->shape->dynamic || i->control_preds.n)
        return NULL;
    for (int k = 0; k < i->n_operands; k++) {
        const struct hlo_instr *x = i->operands[k];
        if (one_value(x)) continue;
        if (!shape_same_dims(x->shape, i->shape) || !x->tmp || (source && x->tmp != source))
            return NULL;
        source = x->tmp;
        *is_slow |= x != source && (x->mark & SLOW);
    }
    return source;
}
static void find_sources(struct hlo_computation *c) {
    for (struct hlo_instr *i = c->first; i; i = i->next) {
        bool is_slow;
        struct hlo_instr *source = source_of(i, &is_slow);
        i->mark = source && is_slow ? SLOW : 0;
        i->tmp = source ? source : byte_value(i) ? i : NULL;
    }
}
// Every use is made of the same value and ends in 8 bits.
static bool all_covered(const struct hlo_instr *i) {
    for (size_t k = 0; k < i->users.n; k++)
        if (i->users.v[k]->tmp != i->tmp || !(i->users.v[k]->mark & COVERED)) return false;
    return i->users.n && i->parent->root != i;
}

// ---- the table

struct cone {
    struct hb b;
    const struct hlo_instr *source, *from[MAX_CONE];
    hv bytes, to[MAX_CONE];
    int n;
};
// i as it is of all 256 bytes; NULL: it takes too many instructions.
static hv of_bytes(struct cone *c, struct hlo_instr *i) {
    const int64_t n = BYTES;
    hv in[3];
    if (i == c->source) return c->bytes;
    if (one_value(i))
        return i->op == HLO_BROADCAST ? hb_broadcast(&c->b, i->operands[0], &n, 1, NULL) : i;
    for (int k = 0; k < c->n; k++)
        if (c->from[k] == i) return c->to[k];
    if (c->n == MAX_CONE || i->n_operands > 3) return NULL;
    int at = c->n++;
    c->from[at] = i, c->to[at] = NULL;
    for (int k = 0; k < i->n_operands; k++)
        if (!(in[k] = of_bytes(c, i->operands[k]))) return NULL;
    const struct shape *s = shape_make(c->b.c->module->arena, i->shape->dtype, &n, 1);
    return c->to[at] = hb_op(&c->b, i->op, s, in, i->n_operands, i->attr);
}
static status_t table_of(struct cone *c, struct hlo_instr *end, struct pass_ctx *p, hv *out) {
    const int64_t n = BYTES;
    struct literal *all = lit_new(
        c->b.c->module->arena, shape_make(c->b.c->module->arena, c->source->shape->dtype, &n, 1));
    for (int k = 0; k < BYTES; k++)
        ((uint8_t *)all->data)[k] = (uint8_t)k;
    c->bytes = hb_constant(&c->b, all);
    struct literal *table = NULL;
    hv v = of_bytes(c, end);
    int64_t work = BYTES * 64 * (c->n + 1);
    *out = NULL;
    if (!v || !hb_ok(&c->b) || work > EVAL_COMPILE_WORK - p->folded_work) return ST_OK;
    struct hlo_eval ev = hlo_eval_at_compile(&p->scratch, work, pass_cancel(p));
    status_t st = hlo_eval_value(&ev, v, &table);
    p->folded_work += work;
    if (st_code(st) == ST_CANCELLED) return st;
    if (st)
        st_drop(st); // not defined for the type: stays as it is
    else
        *out = hb_constant(&c->b, lit_clone(c->b.c->module->arena, table));
    return ST_OK;
}
// The same bits as another type of 8.
static hv as_type(struct hb *b, hv v, enum dtype t) {
    if (!hb_ok(b) || v->shape->dtype == t) return v;
    const struct shape *s = shape_with_dtype(b->c->module->arena, v->shape, t);
    return hb_op(b, HLO_BITCAST_CONVERT, s, &v, 1, NULL);
}
static status_t look_up(struct hlo_instr *end, struct pass_ctx *p) {
    struct hlo_instr *last = end->parent->last;
    struct cone c = {.b = hb_begin(end->parent), .source = end->tmp};
    c.b.op_name = end->op_name, c.b.op_type = end->op_type;
    hv table, index = end->tmp;

    status_t st = table_of(&c, end, p, &table);
    if (!st && table) {
        int64_t zero = 0, one = 1;
        index = as_type(&c.b, index, DT_U8);
        if (small_float(table->shape->dtype)) table = as_type(&c.b, table, DT_U8);
        struct hlo_attr_gather g = {.collapsed_slice_dims = {&zero, 1},
                                    .start_index_map = {&zero, 1},
                                    .index_vector_dim = index->shape->rank,
                                    .slice_sizes = {&one, 1}};
        hv r = as_type(&c.b, hb_gather(&c.b, table, index, &g), end->shape->dtype);
        if (hb_ok(&c.b)) {
            r->tmp = r;
            hlo_replace_uses(end, r);
            p->changed = true;
        }
    }

    for (struct hlo_instr *i = last->next; i; i = i->next)
        i->mark = 0;
    pass_place(last, end);
    if (st) {
        st_drop(hb_end(&c.b));
        return st;
    }
    return hb_end(&c.b);
}

status_t pass_tables(struct hlo_module *m, struct pass_ctx *p) {
    if (!p->target) return ST_OK;
    HLO_EACH_COMPUTATION(c, m) {
        if (c->fusion) continue;
        find_sources(c);
        for (struct hlo_instr *i = c->last, *prev; i; i = prev) {
            prev = i->prev;
            bool byte = byte_value(i), covered = all_covered(i);
            if (byte && i->tmp != i && (i->mark & SLOW) && !covered) {
                i->mark |= COVERED;
                RETURN_IF_ERR(look_up(i, p));
            } else if (byte ? i->tmp != i && (i->mark & SLOW) : covered) {
                i->mark |= COVERED;
            }
        }
    }
    return ST_OK;
}
