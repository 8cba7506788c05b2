// SPDX-License-Identifier: Apache-2.0
// Evaluation of custom-call: the few targets of XLA that are pure and have a meaning on one device.
// Every other target is refused by name, before anything runs (hlo_eval_supports); in a branch,
// when a run comes to it (compiler/frontend/hlo/hlo_ingest.h).
#include <math.h>

#include "compiler/calls/bits.h"
#include "compiler/calls/nms.h"
#include "compiler/calls/trees.h"
#include "compiler/ops/eval_rules.h"
#include "compiler/ops/linalg/csr.h"
#include "compiler/ops/linalg/lapack.h"
#include "compiler/ops/string/string.h"
#include "proto/hlod.pb-c.h"

typedef status_t (*target_fn)(struct hlo_eval *ev, const struct hlo_instr *i,
                              struct literal *const *in, struct literal **out);

// Says where or how a value lies; on one device the value itself.
static status_t same_value(struct hlo_eval *ev, const struct hlo_instr *i,
                           struct literal *const *in, struct literal **out) {
    if (i->n_operands != 1 || !shape_compatible(i->shape, in[0]->shape))
        return st_invalid("instruction '%s': " STR_FMT " takes one operand of the shape %s",
                          i->name, STR_ARG(HLO_ATTR(i, custom)->custom_call_target),
                          shape_text(ev->arena, i->shape));
    *out = in[0];
    return ST_OK;
}

// What only says something of its operand.
static status_t nothing(struct hlo_eval *ev, const struct hlo_instr *i, struct literal *const *in,
                        struct literal **out) {
    (void)in;
    if (i->n_operands != 1 || !shape_is_tuple(i->shape) || i->shape->n_elems)
        return st_invalid("instruction '%s': " STR_FMT " takes one operand and gives nothing",
                          i->name, STR_ARG(HLO_ATTR(i, custom)->custom_call_target));
    *out = lit_tuple(ev->arena, i->shape, arena_array(ev->arena, struct literal *, 1));
    return ST_OK;
}

// (values, indices) of the k largest along the last dimension, k by the result's shape; ties go to
// the smaller index, floats are in total order.
static status_t top_k(struct hlo_eval *ev, const struct hlo_instr *i, struct literal *const *in,
                      struct literal **out) {
    const struct shape *s = i->n_operands == 1 ? in[0]->shape : NULL, *r = i->shape;
    bool fit = s && s->rank >= 1 && shape_is_tuple(r) && r->n_elems == 2 &&
               r->elems[0]->rank == s->rank && shape_same_dims(r->elems[0], r->elems[1]) &&
               r->elems[0]->dtype == s->dtype && r->elems[1]->dtype == DT_S32 &&
               r->elems[0]->dims[s->rank - 1] <= s->dims[s->rank - 1];
    for (int d = 0; fit && d < s->rank - 1; d++)
        fit = r->elems[0]->dims[d] == s->dims[d];
    if (!fit)
        return st_invalid("instruction '%s': TopK of %s gives %s", i->name,
                          s ? shape_text(ev->arena, s) : "other than one operand",
                          shape_text(ev->arena, r));
    struct hlo_attr_topk attr = {.k = r->elems[0]->dims[s->rank - 1], .largest = true};
    struct hlo_instr as = *i;
    as.op = HLO_TOPK;
    as.attr = &attr;
    return hlo_eval_TOPK(ev, &as, in, out);
}

status_t hlo_end_run(struct hlo_computation *c, const struct shape *s, const char *why,
                     struct hlo_instr **out) {
    struct hlo_attr_custom attr = {.custom_call_target = STR("hlod.refuse"),
                                   .custom_call_has_side_effect = true};
    RETURN_IF_ERR(hlo_add_instr(c, HLO_CUSTOM_CALL, s, NULL, 0, &attr, NULL, 0, out));
    struct strbuf text = {0};
    strbuf_putc(&text, '"');
    for (const char *p = why; *p; p++)
        strbuf_putc(&text, *p == '"' || *p == '\\' ? '\'' : *p == '\n' ? ' ' : *p);
    strbuf_putc(&text, '"');
    hlo_set_extra(*out, "backend_config", strbuf_cstr(&text));
    strbuf_done(&text);
    return ST_OK;
}
// Where a program must not come: ends the run with the text of backend_config. An instruction that
// no node of a graph made (op_type) is told by its name.
status_t hlo_eval_ends_run(const struct hlo_instr *i) {
    size_t n = 0;
    if (i->op != HLO_CUSTOM_CALL || !str_is(HLO_ATTR(i, custom)->custom_call_target, "hlod.refuse"))
        return ST_OK;
    const char *why = hlo_extra(i, "backend_config", &n);
    status_t st = st_invalid("%.*s", n > 2 ? (int)n - 2 : 0, why ? why + 1 : "");
    if (!i->op_type) st = st_note(st, "instruction '%s'", i->name);
    return i->op_name ? st_note(st, "%s", i->op_name) : st;
}
static status_t refuse(UNUSED struct hlo_eval *ev, const struct hlo_instr *i,
                       UNUSED struct literal *const *in, UNUSED struct literal **out) {
    return st_reason(hlo_eval_ends_run(i), HLOD__V1__REASON__REASON_RUN_FAILED);
}

static bool tree_holds(int kind, double x, double split) {
    if ((kind & TREE_MISSING) && isnan(x)) return true;
    switch (kind & 7) {
    case TREE_LEQ:
        return x <= split;
    case TREE_LT:
        return x < split;
    case TREE_GTE:
        return x >= split;
    case TREE_GT:
        return x > split;
    case TREE_EQ:
        return x == split;
    default:
        return x != split;
    }
}
static status_t trees(struct hlo_eval *ev, const struct hlo_instr *i, struct literal *const *in,
                      struct literal **out) {
    struct trees t;
    RETURN_IF_ERR(trees_read(ev->arena, i, in, &t));

    struct literal *r = lit_new(ev->arena, i->shape);
    double start = t.how == HLO_ADD ? 0 : t.how == HLO_MINIMUM ? INFINITY : -INFINITY;
    for (int64_t k = 0; k < t.rows * t.targets; k++)
        lit_set_f64(r, k, start);

    for (int64_t row = 0; row < t.rows; row++)
        for (int64_t k = 0; k < t.roots; k++) {
            int32_t at = t.root[k];
            const int32_t *n = t.node[at];
            while ((n[TREE_KIND] & 7) != TREE_LEAF) {
                double x = tree_number(in[0], t.type, row * t.features + n[TREE_FEATURE]);
                bool yes = tree_holds(n[TREE_KIND], x, tree_number(t.split, t.type, at));
                at = n[yes ? TREE_YES : TREE_NO];
                n = t.node[at];
            }
            for (int64_t c = 0; c < t.width; c++) {
                double v = tree_number(t.values, t.type, n[TREE_YES] * t.width + c);
                int64_t to = row * t.targets + n[TREE_FEATURE] + c;
                double old = lit_get_f64(r, to);
                lit_set_f64(r, to,
                            t.how == HLO_ADD       ? old + v
                            : t.how == HLO_MINIMUM ? fmin(old, v)
                                                   : fmax(old, v));
            }
        }
    *out = r;
    return ST_OK;
}

// A row of x as calls of .x8 read it: to[k to whole blocks].
static void rounded_row(const struct bits *d, const float *x, float *to) {
    bool as_is = false;
    for (int64_t b = 0; b < d->blocks && !as_is; b++) {
        int64_t from = b * d->block, end = from + d->block < d->k ? from + d->block : d->k;
        float most = 0;
        for (int64_t k = from; k < end; k++)
            most = fabsf(x[k]) > most || isnan(x[k]) ? fabsf(x[k]) : most;
        as_is = !isfinite(most) || (most < BITS_LEAST && most != 0);
        float step = most / 127, per_step = most != 0 ? 127 / most : 0;
        for (int64_t k = from; k < end; k++)
            to[k] = step * rintf(x[k] * per_step);
    }
    if (as_is) memcpy(to, x, (size_t)d->k * sizeof *to);
}
static status_t bits(struct hlo_eval *ev, const struct hlo_instr *i, struct literal *const *in,
                     struct literal **out) {
    struct bits d;
    RETURN_IF_ERR(bits_read(ev->arena, i, &d));
    struct literal *y = lit_new(ev->arena, i->shape);
    const uint8_t *q = in[BITS_Q]->data;
    float *x = arena_array(ev->arena, float, d.k);
    int64_t bytes = d.blocks * d.block * d.bits / 8;
    for (int64_t r = 0; r < d.rows; r++) {
        const float *from = (const float *)in[BITS_X]->data + r * d.k;
        if (d.rounding == BITS_X_8)
            rounded_row(&d, from, x);
        else
            memcpy(x, from, (size_t)d.k * sizeof *x);
        for (int64_t c = 0; c < d.n; c++) {
            double sum = 0;
            for (int64_t k = 0; k < d.k; k++) {
                int64_t at = k / d.block * d.n + c;
                double v = q[c * bytes + k * d.bits / 8] >> (k * d.bits % 8) & ((1 << d.bits) - 1);
                v -= lit_get_f64(in[BITS_ZEROS], d.one_zero ? 0 : at);
                sum += x[k] * v * lit_get_f64(in[BITS_SCALES], at);
            }
            lit_set_f64(y, r * d.n + c, sum);
        }
    }
    *out = y;
    return ST_OK;
}

static status_t nms(struct hlo_eval *ev, const struct hlo_instr *i, struct literal *const *in,
                    struct literal **out) {
    struct nms n;
    struct literal *e[2];
    RETURN_IF_ERR(nms_read(i, &n));
    for (int k = 0; k < 2; k++)
        e[k] = lit_new(ev->arena, i->shape->elems[k]);
    int32_t *heap = arena_array(ev->arena, int32_t, n.n);
    float *kept = arena_array(ev->arena, float, 5 * nms_stride(n.most));
    const float *x[NMS_OPERANDS];
    for (int k = 0; k < NMS_OPERANDS; k++)
        x[k] = in[k]->data;
    for (int64_t r = 0; r < n.rows; r++) {
        int64_t at = r / (n.rows / n.batches) * n.n;
        struct nms_boxes b = {
            x[NMS_SCORES] + r * n.n, x[NMS_Y1] + at, x[NMS_X1] + at, x[NMS_Y2] + at,
            x[NMS_X2] + at,          *x[NMS_IOU],    *x[NMS_LEAST]};
        nms_row(&b, n.n, n.most, heap, kept, (int64_t *)e[0]->data + r * n.most,
                (uint8_t *)e[1]->data + r * n.most, nms_overlaps);
    }
    *out = lit_tuple(ev->arena, i->shape, e);
    return ST_OK;
}

static const struct {
    const char *name;
    target_fn fn;
} targets[] = {{"xla.sdy.ShardingGroup", nothing},
               {"TopK", top_k},
               {"hlod.refuse", refuse},
               {"hlod.trees.sum", trees},
               {"hlod.trees.min", trees},
               {"hlod.trees.max", trees},
               {"hlod.nms", nms},
#define TEXT_ROW(name) {"hlod.text." #name, hlo_string_##name},
               STRING_CALLS(TEXT_ROW)
#undef TEXT_ROW
};

// By HLO's own operations, where it has them. potrf's number: 0, or 1 for a matrix that is not
// positive definite.
static status_t lapack(struct hlo_eval *ev, const struct hlo_instr *i, struct literal *const *in,
                       struct literal **out) {
    struct lapack_call c;
    struct hlo_instr as = *i;
    struct literal *e[2];

    if (!lapack_read(i, &c)) return hlo_eval_supports(i);

    if (c.kind != LAPACK_TRSM && c.kind != LAPACK_POTRF) {
        struct literal **each;
        bool tuple = shape_is_tuple(i->shape);
        RETURN_IF_ERR(hlo_eval_alloc_each(ev, i, tuple ? i->shape->n_elems : 1, &each, out));
        return lapack_run(&c, in, each);
    }

    if (c.kind == LAPACK_TRSM) {
        as.op = HLO_TRIANGULAR_SOLVE;
        as.attr = &c.trisolve;
        return hlo_eval_TRIANGULAR_SOLVE(ev, &as, in, out);
    }

    as.op = HLO_CHOLESKY;
    as.attr = &c.cholesky;
    as.shape = i->shape->elems[0];
    RETURN_IF_ERR(hlo_eval_CHOLESKY(ev, &as, in, &e[0]));
    e[1] = lit_new(ev->arena, i->shape->elems[1]);

    int64_t n = as.shape->dims[as.shape->rank - 1];
    for (int64_t k = 0; k < shape_elements(i->shape->elems[1]); k++) {
        double v[2] = {0, 0};
        if (n) lit_get_c128(e[0], k * n * n, v);
        lit_set_i64(e[1], k, isnan(v[0]) ? 1 : 0);
    }
    *out = lit_tuple(ev->arena, i->shape, e);
    return ST_OK;
}

static status_t sparse(struct hlo_eval *ev, const struct hlo_instr *i, struct literal *const *in,
                       struct literal **out) {
    RETURN_IF_ERR(hlo_eval_alloc(ev, i, out));
    csr_run(in, *out);
    return ST_OK;
}

bool hlo_eval_gives_operand(struct str target) {
    static const char *const names[] = {"Sharding",
                                        "SPMDFullToShardShape",
                                        "SPMDShardToFullShape",
                                        "LayoutConstraint",
                                        "annotate_device_placement",
                                        "MoveToHost",
                                        "MoveToDevice",
                                        "xla.sdy.FuncResultSharding",
                                        "xla.sdy.GlobalToLocalShape",
                                        "xla.sdy.LocalToGlobalShape",
                                        "xla.sdy.PropagationBarrier"};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        if (str_is(target, names[k])) return true;
    return false;
}
static target_fn find(const struct hlo_instr *i) {
    struct lapack_call c;
    if (csr_is(i)) return sparse;
    if (lapack_read(i, &c)) return lapack;
    struct str name = HLO_ATTR(i, custom)->custom_call_target;
    if (str_starts(name, "hlod.bits.")) return bits;
    if (hlo_eval_gives_operand(name)) return same_value;
    for (size_t k = 0; k < sizeof targets / sizeof targets[0]; k++)
        if (str_is(name, targets[k].name)) return targets[k].fn;
    return NULL;
}

bool hlo_eval_is_operand(const struct hlo_instr *i) {
    return i->op == HLO_CUSTOM_CALL && find(i) == same_value && i->n_operands == 1 &&
           shape_equal(i->shape, i->operands[0]->shape);
}
bool hlo_eval_calls_python(const struct hlo_instr *i) {
    struct str name = HLO_ATTR(i, custom)->custom_call_target;
    return memmem(name.p, name.n, "python", 6) && memmem(name.p, name.n, "callback", 8);
}
status_t hlo_eval_supports_call(const struct hlo_instr *i) {
    struct str name = HLO_ATTR(i, custom)->custom_call_target;
    if (find(i)) return ST_OK;
    if (hlo_eval_calls_python(i))
        return st_unimplemented(
            "calls back into the Python process that made the program "
            "(jax.debug.print, jax.pure_callback, io_callback): leave it out of what is exported");
    if (name.n > 7 && memcmp(name.p, "lapack_", 7) == 0)
        return st_unimplemented(
            "custom-call of '" STR_FMT
            "' is not a call of LAPACK as JAX writes it, or its operands, results or "
            "configuration do not fit; known are potrf, trsm, getrf, geqrf, geqp3, orgqr, ungqr, "
            "ormqr, unmqr, syevd, heevd, gesdd, gesvd, geev, gees, gehrd, sytrd, hetrd and gtsv of "
            "f32 (s), f64 (d), c64 (c) and c128 (z)",
            STR_ARG(name));
    return st_unimplemented(
        "custom-call of '" STR_FMT
        "', a function outside the module or operands that do not fit it; known here: "
        "Sharding, SPMDFullToShardShape, SPMDShardToFullShape, LayoutConstraint, "
        "annotate_device_placement, MoveToHost, MoveToDevice, xla.sdy.*, TopK, lapack_*_ffi, "
        "cpu_csr_sparse_dense_ffi, "
        "hlod.refuse, hlod.trees.*, hlod.bits.*, hlod.nms, hlod.text.*",
        STR_ARG(name));
}
status_t hlo_eval_supports(const struct hlo_instr *i) {
    if (i->op != HLO_CUSTOM_CALL) return hlo_eval_has_rule(i);
    return st_note(hlo_eval_supports_call(i), "instruction '%s'", i->name);
}
EVAL(CUSTOM_CALL) {
    target_fn fn = find(i);
    return fn ? fn(ev, i, in, out) : hlo_eval_supports(i);
}
