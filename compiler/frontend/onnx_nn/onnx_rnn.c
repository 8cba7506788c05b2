// SPDX-License-Identifier: Apache-2.0
// RNN, GRU and LSTM. The inputs of all steps meet the weights in one product; a step adds what the
// state contributes. Short sequences are unrolled, longer ones are an HLO while whose state carries
// the sequence, the weights and the results.
//     x [steps, batch, in], w -> xw [steps, batch, gates*hidden] -> cell x steps -> y
// com.microsoft.DynamicQuantizeLSTM is LSTM with 8-bit weights [directions, depth, 4*hidden], a
// scale and a zero point a direction or a column; x and each step's state are rounded to 8 bits,
// each over its whole range.
#include <math.h>
#include <string.h>

#include "compiler/frontend/onnx/onnx_tools.h"
#include "compiler/frontend/onnx_nn/onnx_quant.h"

enum { UNROLLED_STEPS = 16 };
enum cell_kind { CELL_RNN, CELL_GRU, CELL_LSTM };
struct activation {
    struct str name;
    double alpha, beta;
};
struct cell { // of one direction
    enum cell_kind kind;
    int64_t steps, batch, hidden;
    bool reverse, input_forget, linear_before_reset, quantised;
    double clip; // 0 = none
    struct activation act[3];
    hv r, rb;    // [hidden, gates*hidden]; GRU: the part of the bias that stays with r, [hidden]
    hv rs, rz;   // of 8-bit r: scale and zero point (f32 and s32 [gates*hidden]); or NULL
    hv peep[3];  // LSTM: input, output, forget; [hidden] or NULL
    hv lens;     // s64[batch] or NULL
    hv h, c, xw; // state [batch, hidden]; [steps, batch, gates*hidden]
};
enum { CELL_VALUES = 11 };
static void cell_values(struct cell *k, hv **v) {
    hv *all[CELL_VALUES] = {&k->h,  &k->c,       &k->xw,      &k->r,       &k->rb,  &k->rs,
                            &k->rz, &k->peep[0], &k->peep[1], &k->peep[2], &k->lens};
    memcpy(v, all, sizeof all);
}

hv onnx_activate(struct onnx_ctx *c, struct str name, hv x, double alpha, double beta) {
    struct hb *b = &c->b;
    hv zero = onnx_splat_like(c, x, 0);
    if (str_is(name, "Tanh")) return hb_unary(b, HLO_TANH, x);
    if (str_is(name, "Sigmoid")) return hb_unary(b, HLO_LOGISTIC, x);
    if (str_is(name, "Relu")) return hb_max(b, x, zero);
    if (str_is(name, "Affine")) return onnx_add_k(c, onnx_mul_k(c, x, alpha), beta);
    if (str_is(name, "LeakyRelu"))
        return hb_select(b, hb_compare(b, x, zero, CMP_GE), x, onnx_mul_k(c, x, alpha));
    if (str_is(name, "ThresholdedRelu"))
        return hb_select(b, onnx_compare_k(c, x, alpha, CMP_GT), x, zero);
    if (str_is(name, "ScaledTanh"))
        return onnx_mul_k(c, hb_unary(b, HLO_TANH, onnx_mul_k(c, x, beta)), alpha);
    if (str_is(name, "HardSigmoid"))
        return hb_clamp(b, zero, onnx_add_k(c, onnx_mul_k(c, x, alpha), beta),
                        onnx_splat_like(c, x, 1));
    if (str_is(name, "Elu"))
        return hb_select(b, hb_compare(b, x, zero, CMP_GT), x,
                         onnx_mul_k(c, hb_unary(b, HLO_EXPM1, x), alpha));
    if (str_is(name, "Softsign")) return hb_div(b, x, onnx_add_k(c, hb_unary(b, HLO_ABS, x), 1));
    if (str_is(name, "Softplus")) {
        hv e = hb_unary(b, HLO_EXP, hb_unary(b, HLO_NEGATE, hb_unary(b, HLO_ABS, x)));
        return hb_add(b, hb_max(b, x, zero), hb_unary(b, HLO_LOG1P, e));
    }
    onnx_fail(c, "activation '" STR_FMT "' is not known", STR_ARG(name));
    return x;
}

// ---- one step

static hv act(struct onnx_ctx *c, const struct cell *k, int which, hv x) {
    const struct activation *a = &k->act[which];
    if (k->clip > 0)
        x = hb_clamp(&c->b, onnx_splat_like(c, x, -k->clip), x, onnx_splat_like(c, x, k->clip));
    return onnx_activate(c, a->name, x, a->alpha, a->beta);
}
// A scalar, or one value for each index of the last dimension, over s.
static hv over_columns(struct onnx_ctx *c, hv v, const struct shape *s) {
    return v->shape->rank ? onnx_along(c, v, s, s->rank - 1) : onnx_spread(c, v, s);
}
// x [..., depth] times 8-bit w [depth, columns], x rounded to u8 by its own range as
// DynamicQuantizeLinear does it: the product of the integers is exact (also in f32 up to 2^24), and
// the pass int8 makes it one of 8-bit integers.
static hv times_8bit(struct onnx_ctx *c, hv x, hv w, hv scale, hv zero) {
    struct hb *b = &c->b;
    hv xs, xz, q = onnx_quant_dynamic(c, x, &xs, &xz);
    int64_t last = x->shape->rank - 1, first = 0;
    q = hb_convert(b, q, DT_S32);
    q = hb_sub(b, q, onnx_spread(c, hb_convert(b, xz, DT_S32), q->shape));
    w = hb_convert(b, w, DT_S32);
    if (zero) w = hb_sub(b, w, over_columns(c, zero, w->shape));
    hv y = hb_dot_over(b, hb_convert(b, q, DT_F32), hb_convert(b, w, DT_F32), last, first);
    if (!hb_ok(b)) return y;
    scale = hb_mul(b, onnx_spread(c, xs, scale->shape), scale);
    return hb_mul(b, y, over_columns(c, scale, y->shape));
}
// h [batch, hidden] times columns [from, to) of r.
static hv times_r(struct onnx_ctx *c, const struct cell *k, hv h, int64_t from, int64_t to) {
    int64_t one = 1, zero = 0;
    if (k->rs) return times_8bit(c, h, k->r, k->rs, k->rz); // LSTM: all of it
    hv r = onnx_part(c, k->r, 1, from * k->hidden, to * k->hidden);
    return hb_dot_over(&c->b, h, r, one, zero);
}
static hv gate(struct onnx_ctx *c, const struct cell *k, hv x, int64_t n) {
    return onnx_part(c, x, 1, n * k->hidden, (n + 1) * k->hidden);
}
static hv peephole(struct onnx_ctx *c, const struct cell *k, int n, hv x, hv state) {
    if (!k->peep[n]) return x;
    return hb_add(&c->b, x, hb_mul(&c->b, onnx_along(c, k->peep[n], state->shape, 1), state));
}

static void lstm_step(struct onnx_ctx *c, const struct cell *k, hv x, hv *h, hv *state) {
    struct hb *b = &c->b;
    hv g = hb_add(b, x, times_r(c, k, *h, 0, 4)); // input, output, forget, cell
    hv i = act(c, k, 0, peephole(c, k, 0, gate(c, k, g, 0), *state));
    hv f = k->input_forget ? hb_sub(b, onnx_splat_like(c, i, 1), i)
                           : act(c, k, 0, peephole(c, k, 2, gate(c, k, g, 2), *state));
    hv now = act(c, k, 1, gate(c, k, g, 3));
    *state = hb_add(b, hb_mul(b, f, *state), hb_mul(b, i, now));
    hv o = act(c, k, 0, peephole(c, k, 1, gate(c, k, g, 1), *state));
    const struct activation *a = &k->act[2];
    *h = hb_mul(b, o, onnx_activate(c, a->name, *state, a->alpha, a->beta));
}
static void gru_step(struct onnx_ctx *c, const struct cell *k, hv x, hv *h) {
    struct hb *b = &c->b;
    hv zr = hb_add(b, onnx_part(c, x, 1, 0, 2 * k->hidden), times_r(c, k, *h, 0, 2)), hr;
    hv z = act(c, k, 0, gate(c, k, zr, 0)), r = act(c, k, 0, gate(c, k, zr, 1));
    hv bias = k->rb ? onnx_along(c, k->rb, (*h)->shape, 1) : onnx_splat_like(c, *h, 0);
    if (k->linear_before_reset)
        hr = hb_mul(b, r, hb_add(b, times_r(c, k, *h, 2, 3), bias));
    else
        hr = hb_add(b, times_r(c, k, hb_mul(b, r, *h), 2, 3), bias);
    hv now = act(c, k, 1, hb_add(b, gate(c, k, x, 2), hr));
    *h = hb_add(b, hb_mul(b, hb_sub(b, onnx_splat_like(c, z, 1), z), now), hb_mul(b, z, *h));
}
// The state that a quantised step rounds: rows whose sequence has ended do not widen the range, as
// in ONNX Runtime, which has 0 for them from the second step behind the end on.
static hv range_of_state(struct onnx_ctx *c, const struct cell *k, hv t) {
    struct hb *b = &c->b;
    if (!k->quantised || !k->lens || k->reverse) return k->h;
    hv on = hb_compare(b, onnx_spread(c, t, k->lens->shape), k->lens, CMP_LE);
    on = hb_broadcast(b, on, k->h->shape->dims, 2, (int64_t[]){0});
    return hb_select(b, on, k->h, onnx_splat_like(c, k->h, 0));
}
// Moves the state; gives y [batch, hidden] of step t (a number or a scalar): 0 behind a sequence's
// end, where the state stays.
static hv cell_step(struct onnx_ctx *c, struct cell *k, hv x, hv t) {
    struct hb *b = &c->b;
    hv h = range_of_state(c, k, t), state = k->c;
    if (k->kind == CELL_LSTM)
        lstm_step(c, k, x, &h, &state);
    else if (k->kind == CELL_GRU)
        gru_step(c, k, x, &h);
    else
        h = act(c, k, 0, hb_add(b, x, times_r(c, k, h, 0, 1)));
    if (!k->lens) return k->c = state, k->h = h;
    hv on = hb_compare(b, onnx_spread(c, t, k->lens->shape), k->lens, CMP_LT);
    on = hb_broadcast(b, on, h->shape->dims, 2, (int64_t[]){0});
    k->h = hb_select(b, on, h, k->h);
    if (state) k->c = hb_select(b, on, state, k->c);
    return hb_select(b, on, h, onnx_splat_like(c, h, 0));
}

// ---- all steps: y [steps, batch, hidden]

static hv unrolled(struct onnx_ctx *c, struct cell *k) {
    hv y[UNROLLED_STEPS];
    for (int64_t n = 0; n < k->steps; n++) {
        int64_t t = k->reverse ? k->steps - 1 - n : n;
        hv one = cell_step(c, k, onnx_row(c, k->xw, 0, t), hb_const_i64(&c->b, DT_S64, t));
        y[t] = onnx_add_axis(c, one, 0);
    }
    return hb_concat(&c->b, y, (int)k->steps, 0);
}

// Names the parts of the while's state in a computation: [turn, y, values that exist...].
static hv unpack(struct onnx_ctx *c, struct cell *k, hv state, hv *y) {
    hv *v[CELL_VALUES];
    int64_t n = 2;
    cell_values(k, v);
    *y = hb_gte(&c->b, state, 1);
    for (int j = 0; j < CELL_VALUES; j++)
        if (*v[j]) *v[j] = hb_gte(&c->b, state, n++);
    return hb_gte(&c->b, state, 0);
}
static hv pack(struct onnx_ctx *c, struct cell *k, hv turn, hv y) {
    hv *v[CELL_VALUES], all[CELL_VALUES + 2] = {turn, y};
    int n = 2;
    cell_values(k, v);
    for (int j = 0; j < CELL_VALUES; j++)
        if (*v[j]) all[n++] = *v[j];
    return hb_tuple(&c->b, all, n);
}
// The body: turn n computes step n, or the last but n.
static void body_of(struct onnx_ctx *c, struct cell k, const struct shape *s) {
    struct hb *b = &c->b;
    hv y, state = hlo_add_param(b->c, 0, s, "state"), turn = unpack(c, &k, state, &y), t = turn;
    hv zero = hb_const_i64(b, DT_S64, 0);
    if (k.reverse) t = hb_sub(b, hb_const_i64(b, DT_S64, k.steps - 1), turn);
    int64_t wide = k.xw->shape->dims[2], size[3] = {1, k.batch, wide};
    hv x = hb_op(b, HLO_DYNAMIC_SLICE, NULL, (hv[]){k.xw, t, zero, zero}, 4,
                 &(struct hlo_attr_dynslice){.dynamic_slice_sizes = {size, 3}});
    hv one = cell_step(c, &k, hb_reshape(b, x, size + 1, 2), t);
    hv put[5] = {y, onnx_add_axis(c, one, 0), t, zero, zero};
    y = hb_op(b, HLO_DYNAMIC_UPDATE_SLICE, NULL, put, 5, NULL);
    hv root = pack(c, &k, hb_add(b, turn, hb_const_i64(b, DT_S64, 1)), y);
    if (hb_ok(b)) hlo_set_root(b->c, root);
}
static void condition_of(struct onnx_ctx *c, const struct cell *k, const struct shape *s) {
    struct hb *b = &c->b;
    hv turn = hb_gte(b, hlo_add_param(b->c, 0, s, "state"), 0);
    hv root = hb_compare(b, turn, hb_const_i64(b, DT_S64, k->steps), CMP_LT);
    if (hb_ok(b)) hlo_set_root(b->c, root);
}
static hv looped(struct onnx_ctx *c, struct cell *k) {
    struct hb outer = c->b;
    struct hlo_module *m = outer.c->module;
    int64_t dims[3] = {k->steps, k->batch, k->hidden};
    hv y = hb_splat(&c->b, shape_make(c->a, k->xw->shape->dtype, dims, 3), 0);
    hv start = pack(c, k, hb_const_i64(&c->b, DT_S64, 0), y);
    if (!hb_ok(&c->b)) return y;
    struct hlo_computation *called[2];
    outer = c->b;
    for (int n = 1; n >= 0 && !outer.st; n--) { // the body, then the condition before it
        called[n] = hb_callee(m, n ? "rnn_body" : "rnn_condition");
        c->b = hb_begin(called[n]);
        c->b.op_name = outer.op_name, c->b.op_type = outer.op_type;
        if (n)
            body_of(c, *k, start->shape);
        else
            condition_of(c, k, start->shape);
        outer.st = hb_end(&c->b);
    }
    c->b = outer;
    if (outer.st) return y;
    hv end = hb_call(&c->b, HLO_WHILE, NULL, &start, 1, NULL, called, 2);
    unpack(c, k, end, &y);
    return y;
}

// ---- the operators

static bool read_activations(struct onnx_ctx *c, struct cell *k, int direction, int n) {
    static const char *const defaults[][3] = {
        {"Tanh"}, {"Sigmoid", "Tanh"}, {"Sigmoid", "Tanh", "Tanh"}};
    static const struct {
        const char *name;
        double alpha, beta;
        bool has_alpha, has_beta;
    } known[] = {{"Affine", 1, 0, true, true},           {"LeakyRelu", 0.01, 0, true, false},
                 {"ThresholdedRelu", 1, 0, true, false}, {"ScaledTanh", 1, 1, true, true},
                 {"HardSigmoid", 0.2, 0.5, true, true},  {"Elu", 1, 0, true, false},
                 {"Tanh", 0, 0, false, false},           {"Sigmoid", 0, 0, false, false},
                 {"Relu", 0, 0, false, false},           {"Softsign", 0, 0, false, false},
                 {"Softplus", 0, 0, false, false}};
    const struct onnx_attr *names = onnx_attr(c->n, "activations"),
                           *alpha = onnx_attr(c->n, "activation_alpha"),
                           *beta = onnx_attr(c->n, "activation_beta");
    size_t na = 0, nb = 0, first = (size_t)(direction * n);

    if (names && names->strings.n && names->strings.n < first + (size_t)n)
        return onnx_fail(c, "%zu activations", names->strings.n), false;

    for (size_t j = 0; j < first + (size_t)n; j++) {
        struct activation a = {.name = names && names->strings.n
                                           ? names->strings.v[j]
                                           : str_of(defaults[k->kind][j % (size_t)n])};
        for (size_t e = 0; e < sizeof known / sizeof known[0]; e++) {
            if (!onnx_says(a.name, known[e].name)) continue;
            a.name = str_of(known[e].name);
            a.alpha = known[e].alpha, a.beta = known[e].beta;
            // The lists hold values for those that take one, in order.
            if (known[e].has_alpha && alpha && na < alpha->floats.n)
                a.alpha = (double)alpha->floats.v[na++];
            if (known[e].has_beta && beta && nb < beta->floats.n)
                a.beta = (double)beta->floats.v[nb++];
        }
        if (j >= first) k->act[j - first] = a;
    }
    return true;
}

// State input k of one direction, [batch, hidden]; zeros when it is not given.
static hv initial(struct onnx_ctx *c, const struct cell *k, size_t input, int direction, hv x) {
    int64_t axis = onnx_at_int(c, "layout", 0) ? 1 : 0, dims[2] = {k->batch, k->hidden};
    if (!onnx_in_has(c, input))
        return hb_splat(&c->b, shape_make(c->a, x->shape->dtype, dims, 2), 0);
    hv v = onnx_in_val(c, input);
    if (v->shape->rank != 3) return onnx_fail(c, "input %zu must have 3 dimensions", input), v;
    v = onnx_row(c, v, axis, direction);
    if (!hb_ok(&c->b)) return v;
    if (v->shape->dims[0] != k->batch || v->shape->dims[1] != k->hidden)
        onnx_fail(c, "input %zu does not fit the batch and hidden_size", input);
    return v;
}

// The bias [2*gates*hidden] of one direction: the input's half joins the product; so does the
// state's, but for the GRU's last gate, which multiplies it.
static void add_bias(struct onnx_ctx *c, struct cell *k, int gates, int direction) {
    struct hb *b = &c->b;
    if (!onnx_in_has(c, 3)) return;
    int64_t n = gates * k->hidden;
    hv all = onnx_in_val(c, 3);
    if (all->shape->rank != 2 || all->shape->dims[1] != 2 * n)
        return onnx_fail(c, "bias %s", onnx_show(c, all));
    all = onnx_row(c, all, 0, direction);
    hv wb = onnx_part(c, all, 0, 0, n), rb = onnx_part(c, all, 0, n, 2 * n);
    if (k->kind == CELL_GRU) {
        k->rb = onnx_part(c, rb, 0, 2 * k->hidden, n);
        rb = onnx_pad_axis(c, onnx_part(c, rb, 0, 0, 2 * k->hidden), 0, 0, k->hidden, 0);
    }
    k->xw = hb_add(b, k->xw, onnx_along(c, hb_add(b, wb, rb), k->xw->shape, 2));
}

static bool constant_zero(hv v) {
    for (int64_t k = 0; v->op == HLO_CONSTANT && k < shape_elements(v->shape); k++)
        if (lit_get_f64(v->literal, k) != 0) return false;
    return v->op == HLO_CONSTANT;
}
// Row `direction` of a scale or zero point: one value a column, or a scalar.
static hv param_row(struct onnx_ctx *c, size_t k, const struct shape *w, int direction) {
    hv p = onnx_in_val(c, k);
    const struct shape *s = p->shape;
    bool wide = s->rank == 2 && s->dims[1] == w->dims[2];
    bool each = s->rank == 1 || (s->rank == 2 && s->dims[1] == 1);
    if (!hb_ok(&c->b) || (!wide && !each) || s->dims[0] != w->dims[0])
        return onnx_fail(c, "scale or zero point %s of weights %s", shape_text(c->a, s),
                         shape_text(c->a, w)),
               p;
    p = onnx_row(c, p, 0, direction);
    return wide ? p : hb_reshape(&c->b, p, NULL, 0);
}
// 8-bit weights of one direction as s8 [depth, gates*hidden], their scale (f32) and zero point (s32
// or NULL), whose inputs are `scale` and the next; each a scalar or one a column.
static hv weights_8bit(struct onnx_ctx *c, size_t w, size_t scale, int direction, hv *rs, hv *rz) {
    struct hb *b = &c->b;
    hv v = onnx_in_val(c, w);
    enum dtype t = v->shape->dtype;
    if (!onnx_in_has(c, scale)) return onnx_fail(c, "input %zu, the scale, is missing", scale), v;
    if (t != DT_S8 && t != DT_U8) return onnx_fail(c, "input %zu is not of 8-bit integers", w), v;
    *rs = hb_convert(b, param_row(c, scale, v->shape, direction), DT_F32);
    *rz = NULL;
    if (onnx_in_has(c, scale + 1) && !(t == DT_S8 && constant_zero(onnx_in_val(c, scale + 1))))
        *rz = hb_convert(b, param_row(c, scale + 1, v->shape, direction), DT_S32);
    v = onnx_row(c, v, 0, direction);
    if (t == DT_S8) return v;
    hv top = onnx_splat_like(c, v, 128), z = *rz ? *rz : hb_const_i64(b, DT_S32, 0);
    *rz = hb_sub(b, z, onnx_splat_like(c, z, 128));
    return hb_op(b, HLO_BITCAST_CONVERT, shape_with_dtype(c->a, v->shape, DT_S8),
                 (hv[]){hb_binary(b, HLO_XOR, v, top)}, 1, NULL);
}
// As ONNX Runtime: the range of x is that of the steps that any sequence has.
static hv steps_in_use(struct onnx_ctx *c, hv x) {
    struct hb *b = &c->b;
    if (!onnx_in_has(c, 4)) return x;
    hv lens = hb_convert(b, onnx_in_val(c, 4), DT_S64);
    if (!hb_ok(b) || lens->shape->rank != 1) return x;
    int64_t first = 0;
    hv longest = onnx_reduce_keep(c, lens, &first, 1, HLO_MAXIMUM, false);
    hv t = onnx_index_along(c, x->shape, DT_S64, 0);
    return hb_select(b, hb_compare(b, t, onnx_spread(c, longest, t->shape), CMP_LT), x,
                     onnx_splat_like(c, x, 0));
}
// The products of all steps' inputs, and what the state will be multiplied with.
static void read_weights(struct onnx_ctx *c, struct cell *k, hv x, int direction) {
    struct hb *b = &c->b;
    int64_t two = 2, one = 1;
    if (k->quantised) {
        hv scale, zero, w = weights_8bit(c, 1, 8, direction, &scale, &zero);
        k->r = weights_8bit(c, 2, 10, direction, &k->rs, &k->rz);
        if (hb_ok(b)) k->xw = times_8bit(c, steps_in_use(c, x), w, scale, zero);
        return;
    }
    hv w = onnx_row(c, onnx_in_val(c, 1), 0, direction);
    k->r = onnx_swap_axes(c, onnx_row(c, onnx_in_val(c, 2), 0, direction), 0,
                          1); // a step reads whole lines
    k->xw = hb_dot_over(b, x, w, two, one);
}

// A last state: 0 for sequences of no step, whose first state does not come through, as in ONNX
// Runtime.
static hv of_begun(struct onnx_ctx *c, const struct cell *k, hv state) {
    hv some = onnx_compare_k(c, k->lens, 0, CMP_GT);
    some = hb_broadcast(&c->b, some, state->shape->dims, 2, (int64_t[]){0});
    return hb_select(&c->b, some, state, onnx_splat_like(c, state, 0));
}
static hv run_direction(struct onnx_ctx *c, struct cell *k, hv x, int gates, int direction) {
    struct hb *b = &c->b;
    read_weights(c, k, x, direction);
    if (!hb_ok(b)) return x;
    add_bias(c, k, gates, direction);
    k->h = initial(c, k, 5, direction, x);
    if (k->kind == CELL_LSTM) {
        k->c = initial(c, k, 6, direction, x);
        for (int n = 0; n < 3 && onnx_in_has(c, 7); n++)
            k->peep[n] = onnx_part(c, onnx_row(c, onnx_in_val(c, 7), 0, direction), 0,
                                   n * k->hidden, (n + 1) * k->hidden);
    }
    if (onnx_in_has(c, 4)) k->lens = hb_convert(b, onnx_in_val(c, 4), DT_S64);
    if (k->lens && (k->lens->shape->rank != 1 || k->lens->shape->dims[0] != k->batch))
        return onnx_fail(c, "sequence_lens %s for a batch of %lld", onnx_show(c, k->lens),
                         (long long)k->batch),
               x;
    if (!hb_ok(b)) return x;
    hv y = k->steps <= UNROLLED_STEPS ? unrolled(c, k) : looped(c, k);
    if (k->lens) {
        if (onnx_in_has(c, 5)) k->h = of_begun(c, k, k->h);
        if (k->c && onnx_in_has(c, 6)) k->c = of_begun(c, k, k->c);
    }
    return y;
}

// Results of the directions side by side along a new dimension.
static hv beside(struct onnx_ctx *c, hv const *v, int n, int64_t axis) {
    hv wide[2];
    for (int d = 0; d < n; d++)
        wide[d] = onnx_add_axis(c, v[d], axis);
    return hb_concat(&c->b, wide, n, axis);
}
// Weights are [directions, gates*hidden, depth]; quantised ones the other way round.
static bool rnn_shapes(struct onnx_ctx *c, hv x, int gates, int directions, int64_t hidden,
                       bool quantised) {
    const struct shape *s = x->shape, *w = onnx_in_val(c, 1)->shape, *r = onnx_in_val(c, 2)->shape;
    int deep = quantised ? 1 : 2, wide = 3 - deep;
    if (s->rank == 3 && w->rank == 3 && r->rank == 3 && hidden > 0 && w->dims[0] == directions &&
        r->dims[0] == directions && w->dims[wide] == gates * hidden &&
        r->dims[wide] == gates * hidden && w->dims[deep] == s->dims[2] && r->dims[deep] == hidden)
        return true;
    onnx_fail(c, "input %s, weights %s and %s, hidden_size %lld, %d directions",
              shape_text(c->a, s), shape_text(c->a, w), shape_text(c->a, r), (long long)hidden,
              directions);
    return false;
}
// Results of no steps: no outputs, and the states as they were. (ONNX Runtime leaves them unset.)
static void of_no_steps(struct onnx_ctx *c, hv x, enum cell_kind kind, int directions,
                        int64_t hidden, bool batch_first) {
    struct cell k = {.kind = kind, .batch = x->shape->dims[1], .hidden = hidden};
    int64_t all[2][4] = {{0, directions, k.batch, hidden}, {k.batch, 0, directions, hidden}};
    hv state[2];
    onnx_out_val(c, 0, hb_splat(&c->b, shape_make(c->a, x->shape->dtype, all[batch_first], 4), 0));
    for (size_t s = 0; s < (kind == CELL_LSTM ? 2 : 1); s++) {
        for (int d = 0; d < directions; d++)
            state[d] = initial(c, &k, 5 + s, d, x);
        if (!hb_ok(&c->b)) return;
        onnx_out_val(c, 1 + s, beside(c, state, directions, batch_first));
    }
}

ONNX(rnn) {
    enum cell_kind kind = (enum cell_kind)onnx_op_arg(c);
    static const int gate_count[] = {1, 3, 4}, activations[] = {1, 2, 3};
    int gates = gate_count[kind];
    struct str way = onnx_at_str(c, "direction", "forward");
    int directions = str_is(way, "bidirectional") ? 2 : 1;
    bool batch_first = onnx_at_int(c, "layout", 0) != 0;
    hv x = onnx_in_val(c, 0), r = onnx_in_val(c, 2), y[2], h[2], state[2];

    if (x->shape->rank != 3 || r->shape->rank != 3)
        return onnx_fail(c, "input %s, weights %s", onnx_show(c, x), onnx_show(c, r));

    if (batch_first) x = onnx_swap_axes(c, x, 0, 1);
    bool quantised = str_is(c->n->op, "DynamicQuantizeLSTM");
    int64_t hidden = onnx_at_int(c, "hidden_size", r->shape->dims[quantised ? 1 : 2]);
    if (!rnn_shapes(c, x, gates, directions, hidden, quantised)) return;
    if (x->shape->dims[0] == 0) return of_no_steps(c, x, kind, directions, hidden, batch_first);

    for (int d = 0; d < directions; d++) {
        struct cell k = {.kind = kind,
                         .steps = x->shape->dims[0],
                         .batch = x->shape->dims[1],
                         .hidden = hidden,
                         .quantised = quantised,
                         .reverse = d == 1 || str_is(way, "reverse"),
                         .input_forget = onnx_at_int(c, "input_forget", 0) != 0,
                         .linear_before_reset = onnx_at_int(c, "linear_before_reset", 0) != 0,
                         .clip = onnx_at_float(c, "clip", 0)};
        if (!read_activations(c, &k, d, activations[kind])) return;
        y[d] = run_direction(c, &k, x, gates, d);
        if (!hb_ok(b)) return;
        h[d] = k.h, state[d] = k.c;
    }

    hv all = beside(c, y, directions, 1); // [steps, directions, batch, hidden]
    if (batch_first) all = hb_transpose(b, all, (int64_t[]){2, 0, 1, 3});
    onnx_out_val(c, 0, all);
    onnx_out_val(c, 1, beside(c, h, directions, batch_first));
    if (kind == CELL_LSTM) onnx_out_val(c, 2, beside(c, state, directions, batch_first));
}
