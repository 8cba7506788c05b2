// SPDX-License-Identifier: Apache-2.0
// See estimate.h. The figures of `ways` and of hard operations were fitted to the steps of the zoo
// (tests/zoo, bench.py --steps): docs/performance.md has the distribution.
#include "compiler/plan/estimate.h"

#include "compiler/ir/ir.h"
#include "compiler/ir/turns.h"
#include "compiler/ir/work.h"

const struct machine estimate_nominal = {
    .threads = 1,
    .flops_f32 = 100e9,
    .flops_f64 = 50e9,
    .flops_i8 = 400e9,
    .level = {{32 << 10, 200e9}, {1 << 20, 80e9}, {16 << 20, 30e9}, {INT64_MAX, 10e9}},
    .memory_all = 10e9};

// ---- work

static double elements(const struct shape *s) {
    double n = 0;
    if (!shape_is_tuple(s)) return s->dtype == DT_TOKEN ? 0 : (double)shape_elements(s);
    for (int k = 0; k < s->n_elems; k++)
        n += elements(s->elems[k]);
    return n;
}

// Additions that one operation is worth in a vector kernel; 0: a simple one.
static const uint8_t hardness[HLO_OP_COUNT] = {
    [HLO_DIVIDE] = 8, [HLO_SQRT] = 8,   [HLO_RSQRT] = 8,  [HLO_REMAINDER] = 8, [HLO_EXP] = 20,
    [HLO_EXPM1] = 20, [HLO_LOG] = 20,   [HLO_LOG1P] = 20, [HLO_TANH] = 20,     [HLO_LOGISTIC] = 20,
    [HLO_ERF] = 30,   [HLO_CBRT] = 30,  [HLO_SIN] = 30,   [HLO_COS] = 30,      [HLO_POWER] = 60,
    [HLO_TAN] = 60,   [HLO_ATAN2] = 60, [HLO_ACOS] = 60,  [HLO_ACOSH] = 60,    [HLO_ASIN] = 60,
    [HLO_ASINH] = 60, [HLO_ATANH] = 60, [HLO_COSH] = 60,  [HLO_SINH] = 60};
static double hardness_of(const struct hlo_instr *i) {
    bool angle = i->op == HLO_SIN || i->op == HLO_COS; // f64: the reduction of large ones
    return angle && i->shape->dtype == DT_F64 ? 90 : hardness[i->op];
}
// A vector has half the lanes for 8 bytes; what is narrower is computed in 4.
static double width(const struct shape *s) {
    return !shape_is_tuple(s) && dtype_size(s->dtype) > 4 ? dtype_size(s->dtype) / 4.0 : 1;
}

static double part(double n, double of) { // of blocks of `of` that n takes, how much is n
    double blocks = (double)(int64_t)((n + of - 1) / of);
    return n > 0 ? n / (blocks * of) : 1;
}
static void add_dot(const struct hlo_instr *i, struct step_work *w) {
    const struct hlo_attr_dot *d = HLO_ATTR(i, dot);
    const struct shape *left = i->operands[0]->shape, *right = i->operands[1]->shape;
    double depth = 1, batch = 1;
    for (int k = 0; k < d->lhs_contracting_dims.n; k++)
        depth *= (double)left->dims[d->lhs_contracting_dims.v[k]];
    for (int k = 0; k < d->lhs_batch_dims.n; k++)
        batch *= (double)left->dims[d->lhs_batch_dims.v[k]];
    double rows = elements(left) / (depth * batch + 1e-9),
           cols = elements(right) / (depth * batch + 1e-9);
    w->lanes = part(cols > rows ? cols : rows, 16); // either side may lie along a vector
    w->depth = depth;
    w->product_type = left->dtype;
}
static void add_conv(const struct hlo_instr *i, struct step_work *w) {
    const struct hlo_attr_conv *c = HLO_ATTR(i, conv);
    const struct shape *k = i->operands[1]->shape;
    double groups = (double)c->feature_group_count, out = (double)k->dims[c->dim_labels.k_out];
    w->depth = elements(k) / (out > 0 ? out : 1);
    // Few channels a group: vectors hold channels of several groups, or places of the image.
    w->lanes = part(out / groups >= 8 ? out / groups : out, 16);
    w->product_type = i->operands[0]->shape->dtype;
}

// The dimension that lies along memory; -1: a scalar.
static int minor(const struct shape *s) {
    return !s->rank ? -1 : s->layout ? s->layout->minor_to_major[0] : s->rank - 1;
}
// Elements that a change of order moves one by one: where another dimension lies along memory.
static double reordered(const struct hlo_instr *i) {
    const struct shape *from = i->operands[0]->shape;
    int to = minor(i->shape), was = minor(from);
    if (to < 0 || was < 0) return 0;
    bool tiled = (from->layout && from->layout->tile_rank) ||
                 (i->shape->layout && i->shape->layout->tile_rank);
    if (i->op == HLO_COPY && tiled) return elements(i->shape);
    if (i->op == HLO_TRANSPOSE) to = (int)HLO_ATTR(i, dims)->dimensions.v[to];
    return to == was && i->shape->dims[minor(i->shape)] > 1 ? 0 : elements(i->shape);
}
// Runs of elements that lie together in the operand of a gather.
static double gathered(const struct hlo_instr *i) {
    const struct hlo_attr_gather *g = HLO_ATTR(i, gather);
    const struct shape *from = i->operands[0]->shape;
    double run = 1;
    for (int d = from->rank - 1; d >= 0; d--) {
        run *= (double)g->slice_sizes.v[d];
        if (g->slice_sizes.v[d] != from->dims[d]) break;
    }
    return elements(i->shape) / (run > 1 ? run : 1);
}
// Updates whose last dimension lies in a window are written by vectors.
static double scattered(const struct hlo_instr *i) {
    const struct shape *u = i->operands[i->n_operands - 1]->shape;
    int last = u->rank - 1;
    bool row = i64s_has(HLO_ATTR(i, scatter)->update_window_dims, last) && u->dims[last] >= 8;
    return elements(u) * (row ? .5 : 2);
}
static double log2_of(double n) {
    double k = 1;
    for (; n > 2; n /= 2)
        k++;
    return k;
}

// Moves of elements, which compute nothing but where an element comes from. False: i is none.
static bool add_move(const struct hlo_instr *i, struct step_work *w) {
    double n = elements(i->shape);

    switch (i->op) {
    case HLO_TRANSPOSE:
    case HLO_COPY:
        w->moved += reordered(i);
        return true;
    case HLO_REVERSE:
        w->moved += n;
        return true;
    case HLO_GATHER:
        w->moved += gathered(i);
        return true;
    case HLO_SCATTER:
        w->moved += scattered(i);
        return true;
    case HLO_SELECT_AND_SCATTER:
        w->moved += elements(i->operands[0]->shape) * 4;
        return true;
    case HLO_PAD:
    case HLO_SLICE:
    case HLO_DYNAMIC_SLICE:
    case HLO_IOTA:
        w->simple += n * 3;
        return true;
    case HLO_CONCATENATE:
        w->simple += n * (2 * i->n_operands);
        return true;
    case HLO_DYNAMIC_UPDATE_SLICE:
        w->simple += 3 * elements(i->operands[1]->shape);
        return true;
    default:
        return false;
    }
}
static void add_elementwise(const struct hlo_instr *i, struct step_work *w) {
    double n = elements(i->shape), each = width(i->shape), hard = hardness_of(i) * each;
    *(hard > 0 ? &w->hard : &w->simple) += n * (hard > 0 ? hard : each);
}

static void add_body(const struct hlo_computation *c, struct step_work *w);
static void add_turns(const struct hlo_instr *loop, struct step_work *w);
static void add_instr(const struct hlo_instr *i, struct step_work *w) {
    double n = elements(i->shape), in = i->n_operands ? elements(i->operands[0]->shape) : 0;
    if (add_move(i, w)) return;

    switch (i->op) {
    case HLO_DOT:
        add_dot(i, w);
        w->products += (double)hlo_flops(i);
        return;
    case HLO_CONVOLUTION:
        add_conv(i, w);
        w->products += (double)hlo_flops(i);
        return;
    case HLO_FUSION:
        add_body(i->called[0], w);
        return;
    case HLO_WHILE: // in a fusion: its turns are the kernel's
        add_turns(i, w);
        return;
    case HLO_REDUCE:
    case HLO_SCAN:
        w->simple += in * width(i->operands[0]->shape);
        return;
    case HLO_REDUCE_WINDOW:
    case HLO_MAP:
        w->simple += (double)hlo_flops(i) * width(i->operands[0]->shape);
        return;
    case HLO_SORT:
    case HLO_TOPK:
        w->serial += in * log2_of(in);
        return;
    case HLO_FFT:
        w->simple += 5 * n * log2_of(n) * width(i->shape);
        return;
    case HLO_CHOLESKY:
    case HLO_TRIANGULAR_SOLVE:
    case HLO_BATCH_NORM_TRAINING:
    case HLO_BATCH_NORM_GRAD:
    case HLO_RNG_BIT_GENERATOR:
        w->serial += (double)hlo_work(i);
        return;
    case HLO_RNG:
        w->hard += 30 * n;
        return;
    default:
        if (hlo_is_elementwise(i)) add_elementwise(i, w);
    }
}
static void add_turns(const struct hlo_instr *loop, struct step_work *w) {
    struct step_work turn = {0};
    int64_t turns = hlo_turns(loop);
    double n = turns > 0 ? (double)turns : 1;
    add_body(loop->called[1], &turn);
    w->simple += n * turn.simple;
    w->hard += n * turn.hard;
    w->serial += n * turn.serial;
    w->products += n * turn.products;
}
static void add_body(const struct hlo_computation *c, struct step_work *w) {
    for (const struct hlo_instr *i = c->first; i; i = i->next)
        add_instr(i, w);
}

// ---- bytes

// Does this use of operand k read only what it gives on?
static bool reads_a_part(const struct hlo_instr *user, const struct hlo_instr *x) {
    return (user->op == HLO_GATHER || user->op == HLO_SLICE || user->op == HLO_DYNAMIC_SLICE ||
            user->op == HLO_DYNAMIC_UPDATE_SLICE) &&
           user->operands[0] == x;
}
// Bytes of value x that its users (of one step) read.
static double read_by(const struct hlo_instr *x, const struct hlo_instr *user) {
    double all = (double)shape_bytes(x->shape), n = 0;
    if (user->op == HLO_FUSION) { // x is its operand, perhaps more than one
        for (int k = 0; k < user->n_operands; k++) {
            const struct hlo_instr *p = user->called[0]->params.v[k];
            if (user->operands[k] != x) continue;
            for (size_t u = 0; u < p->users.n; u++)
                n += read_by(p, p->users.v[u]);
        }
        return n < all ? n : all;
    }
    if (!reads_a_part(user, x)) return all;
    return user->op == HLO_DYNAMIC_UPDATE_SLICE ? 0 : (double)shape_bytes(user->shape);
}
// An update in place writes no more than the update.
static double written(const struct plan_step *s, const struct hlo_instr *root) {
    double all = (double)shape_bytes(root->shape);
    if (root->op == HLO_FUSION) return written(s, root->called[0]->root);
    if (root->op != HLO_DYNAMIC_UPDATE_SLICE) return all;
    for (int k = 0; k < s->n_in && s->n_out == 1; k++)
        if (s->in[k].where == s->out[0].where && s->in[k].offset == s->out[0].offset &&
            (s->in[k].where == SLICE_ARENA || s->in[k].index == s->out[0].index))
            return (double)shape_bytes(root->operands[1]->shape);
    return 2 * all;
}
static void add_bytes(const struct plan_step *s, struct step_work *w) {
    const struct hlo_instr *i = s->instr;
    for (int k = 0; k < i->n_operands; k++) {
        const struct hlo_instr *x = i->operands[k];
        bool again = false;
        for (int e = 0; e < k; e++)
            again = again || i->operands[e] == x;
        // Weights of one step come from where all weights lie; shared ones were there just before.
        bool weight = x->op == HLO_PARAMETER && x->param_kind != PARAM_INPUT && x->users.n == 1;
        if (again) continue;
        double bytes = read_by(x, i);
        *(weight ? &w->weights : &w->bytes) += bytes;
        if (x->op != HLO_PARAMETER && x->op != HLO_CONSTANT) w->passed += bytes;
    }
    w->bytes += written(s, i);
}

void estimate_work(const struct plan_step *s, struct step_work *out) {
    *out = (struct step_work){.lanes = 1, .depth = 1};
    if (s->called) return;
    add_instr(s->instr, out);
    add_bytes(s, out);
}

// ---- time

// Of the machine's peak, what a way reaches where nothing holds it back; nanoseconds that a step
// takes whatever it does, and that it takes more on several threads.
struct way_row {
    double products, arithmetic; // 0..1
    double moved_ns, serial_ns;  // one element
    double fixed_ns, fork_ns;
};
static const struct way_row ways[] = {
    [WAY_LIBRARY] = {.60, .25, .5, 1.5, 1500, 3000},
    [WAY_THIN] = {.25, .25, .5, 1.5, 500, 3000},
    [WAY_BLOCKED] = {.35, .25, .5, 1.5, 1500, 3000},
    [WAY_KERNEL] = {.60, .25, .7, 1.5, 200, 3000}, // products: as the library's, see estimate.h
    [WAY_COPY] = {.60, .25, .3, 1.5, 200, 0},
    [WAY_SORT] = {.60, .25, .7, 1.0, 1000, 3000},
    [WAY_FFT] = {.60, .20, .7, 1.5, 1000, 3000},
    [WAY_TREES] = {.60, .25, 2.0, 1.0, 1000, 3000}, // in the nearest caches
    [WAY_BITS] = {.80, .25, .7, 1.5, 1000, 3000},
    [WAY_CONTROL] = {.60, .25, .7, 1.5, 100, 0},
    [WAY_LAST] = {.60, .25, .7, 1.5, 200, 3000}, // as a kernel
};

static double products_ns(const struct machine *m, const struct step_work *w,
                          const struct way_row *r) {
    enum dtype t = w->product_type;
    int size = dtype_size(t);
    double rate = size == 1 && m->flops_i8 > 0  ? m->flops_i8
                  : dtype_is_int(t) && size > 4 ? m->flops_f64 / 4
                  : size > 4 && t != DT_C64     ? m->flops_f64
                                                : m->flops_f32;
    if (dtype_is_complex(t)) rate /= 4;
    double filled = w->lanes * w->depth / (w->depth + 16); // a sum's end costs as some terms
    return w->products / (rate * r->products * (filled > .02 ? filled : .02)) * 1e9;
}
static int level_of(const struct machine *m, double footprint, int threads) {
    int k = 0;
    while (k + 1 < MACHINE_LEVELS && footprint > (double)m->level[k].bytes * (k < 2 ? threads : 1))
        k++;
    return k;
}
// Nanoseconds a byte where `footprint` bytes lie, for `threads` together. Behind the nearest cache
// a step gets half of what a plain read does: it writes too, and its accesses are not that even.
static double byte_ns(const struct machine *m, double footprint, int threads) {
    int k = level_of(m, footprint, threads);
    double rate = m->level[k].rate * threads * (k ? .5 : 1);
    if (k + 1 == MACHINE_LEVELS && m->memory_all > 0 && rate > m->memory_all) rate = m->memory_all;
    return rate > 0 ? 1e9 / rate : 0;
}

// Nanoseconds that a step takes more because other threads wrote some of what it reads: which, the
// model does not know; all of them wrote the same share.
static double passed_ns(const struct machine *m, const struct step_work *w, double footprint,
                        int threads) {
    if (m->threads < 2 || m->passed_rate <= 0) return 0;
    double more = 1e9 / (m->passed_rate * threads) - byte_ns(m, footprint, threads);
    return more > 0 ? w->passed * (m->threads - 1) / m->threads * more : 0;
}

double estimate_ns(const struct machine *m, const struct step_work *w, enum way way,
                   double together, bool alone) {
    const struct way_row *r = &ways[way];
    int threads = alone ? 1 : m->threads;
    double compute = (w->simple + w->hard) / (m->flops_f32 * r->arithmetic) * 1e9;
    if (w->product_type != DT_INVALID) compute += products_ns(m, w, r);
    double own = w->bytes + w->weights / w->lanes; // packed, with what fills the lanes
    double moved_ns = r->moved_ns;
    if (way == WAY_TREES) moved_ns *= level_of(m, own, threads) > 1 ? 5 : 1; // a walk waits
    compute = (compute + w->moved * moved_ns) / threads + w->serial * r->serial_ns;
    double memory = w->bytes * byte_ns(m, own, threads) +
                    w->weights / w->lanes * byte_ns(m, together > own ? together : own, threads) +
                    passed_ns(m, w, own, threads);
    double fixed = r->fixed_ns + (threads > 1 ? r->fork_ns : 0);
    return fixed + (compute > memory ? compute : memory);
}
