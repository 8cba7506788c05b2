// SPDX-License-Identifier: Apache-2.0
// What the CPU device says of an executable before it runs: its plan, and for each step what the
// cost model (compiler/plan/estimate) expects of it, which implementation takes it, and why those
// before it in the list do not. Measures nothing but the machine, once a process (cpu_peak.c).
#include "compiler/ir/op.h"
#include "devices/cpu/routines/cpu_windows.h"

static enum way way_of(const struct cpu_step *s) {
    const struct {
        const struct cpu_impl *impl;
        enum way way;
    } rows[] = {{&cpu_impl_thin, WAY_THIN},         {&cpu_impl_thin8, WAY_THIN},
                {&cpu_impl_onednn, WAY_LIBRARY},    {&cpu_impl_int8, WAY_LIBRARY},
                {&cpu_impl_pairs, WAY_LIBRARY},     {&cpu_impl_depthwise, WAY_LIBRARY},
                {&cpu_impl_winograd, WAY_LIBRARY},  {&cpu_impl_pointwise, WAY_LIBRARY},
                {&cpu_impl_matmul, WAY_LIBRARY},    {&cpu_impl_amx, WAY_LIBRARY},
                {&cpu_impl_attention, WAY_LIBRARY}, {&cpu_impl_table, WAY_KERNEL},
                {&cpu_impl_channels, WAY_COPY},     {&cpu_impl_gemm, WAY_BLOCKED},
                {&cpu_impl_sort, WAY_SORT},         {&cpu_impl_fft, WAY_FFT},
                {&cpu_impl_update, WAY_COPY},       {&cpu_impl_concat, WAY_COPY},
                {&cpu_impl_transpose, WAY_COPY},    {&cpu_impl_random, WAY_COPY},
                {&cpu_impl_pad, WAY_COPY},          {&cpu_impl_trees, WAY_TREES},
                {&cpu_impl_bits, WAY_BITS},         {&cpu_impl_nms, WAY_KERNEL},
                {&cpu_impl_lapack, WAY_BLOCKED},    {&cpu_impl_lapack_calls, WAY_BLOCKED},
                {&cpu_impl_kernel, WAY_KERNEL},     {&cpu_impl_control, WAY_CONTROL},
                {&cpu_impl_windows, WAY_KERNEL},    {&cpu_impl_reference, WAY_LAST}};

    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
        if (rows[k].impl == s->impl) return rows[k].way;
    return WAY_LAST;
}

// The work that only an implementation knows of: what stands behind a custom call.
static void add_own(const struct cpu_step *s, struct step_work *w) {
    if (s->impl == &cpu_impl_trees || s->impl == &cpu_impl_nms) w->moved += (double)s->flops;
    if (s->products > 0) w->products = s->products;
    if (s->impl != &cpu_impl_bits && s->impl != &cpu_impl_lapack_calls) return;
    w->products = (double)s->flops;
    if (s->impl == &cpu_impl_bits) {
        const struct shape *x = s->plan->instr->operands[0]->shape;
        w->lanes = 1;
        w->depth = (double)x->dims[x->rank - 1];
    }
    w->product_type =
        s->impl == &cpu_impl_bits ? DT_F32 : s->plan->instr->operands[0]->shape->dtype;
}

// Bytes of all weights that a run reads, once each.
static double weights_read(const struct cpu_exe *x) {
    const struct hlo_computation *c = x->exe->main->entry;
    double n = 0;
    for (size_t k = 0; k < c->params.n; k++) {
        const struct hlo_instr *p = c->params.v[k];
        if (p->param_kind == PARAM_BOUND) n += (double)shape_bytes(p->shape);
    }
    return n;
}
static void estimate_plan(const struct machine *m, struct cpu_plan *p, double together) {
    for (int k = 0; k < p->plan->n_steps; k++) {
        struct cpu_step *s = &p->steps[k];
        struct step_work w;
        estimate_work(s->plan, &w);
        add_own(s, &w);
        s->estimate_ns = estimate_ns(m, &w, way_of(s), together, s->alone);
        if (!s->called) s->bytes = (int64_t)(w.bytes + w.weights);
        if (w.products > (double)s->flops) s->flops = (int64_t)w.products;
        for (int c = 0; s->called && c < s->plan->instr->n_called; c++)
            estimate_plan(m, s->called[c], together);
    }
}
void cpu_estimate(struct cpu_exe *x) {
    const struct machine *m = x->estimated ? NULL : cpu_peak(x->base.dev).machine;
    x->estimated = true;
    if (m) estimate_plan(m, x->main, weights_read(x));
}

// ---- the plan

// Where the choice of who runs it came from, if not from the list.
static void put_choice(const struct cpu_step *s, struct strbuf *out) {
    const struct exe_choice *c = s->choice;
    if (c)
        strbuf_printf(out, "tuned: %.4f ms, %s %.4f", (double)c->ns / 1e6, c->usual,
                      (double)c->usual_ns / 1e6);
}
static void implementations(const struct cpu_plan *p, struct strbuf *out, int depth) {
    for (int k = 0; k < p->plan->n_steps; k++) {
        const struct cpu_step *s = &p->steps[k];
        strbuf_printf(out, "%*s%-40s %s%s", depth * 2, "", s->plan->instr->name,
                      s->detail ? s->detail : s->impl->name, s->choice ? "  " : "");
        put_choice(s, out);
        strbuf_puts(out, "\n");
        for (int c = 0; s->called && c < s->plan->instr->n_called; c++)
            implementations(s->called[c], out, depth + 1);
    }
}
void cpu_explain(const struct dev_exe *base, struct strbuf *out) {
    const struct cpu_exe *x = (const struct cpu_exe *)base;
    plan_print(out, x->main->plan);
    strbuf_puts(out, "\nimplementations:\n");
    implementations(x->main, out, 1);
}

// ---- costs

static double total_ns(const struct cpu_plan *p) { // a loop's turns and all branches count once
    double n = 0;
    for (int k = 0; k < p->plan->n_steps; k++) {
        const struct cpu_step *s = &p->steps[k];
        n += s->estimate_ns;
        for (int c = 0; s->called && c < s->plan->instr->n_called; c++)
            n += total_ns(s->called[c]);
    }
    return n;
}

// The nodes of the model that a step was made of, in order, once each.
static bool said_before(const struct hlo_computation *c, const struct hlo_instr *i) {
    for (const struct hlo_instr *x = c->first; x != i; x = x->next)
        if (x->op_name && x->op != HLO_CONSTANT && strcmp(x->op_name, i->op_name) == 0) return true;
    return false;
}
static void put_nodes(const struct hlo_instr *i, struct strbuf *out) {
    const char *between = "";
    const struct hlo_computation *c = i->op == HLO_FUSION ? i->called[0] : NULL;
    for (const struct hlo_instr *x = c ? c->first : NULL; x; x = x->next) {
        if (!x->op_name || x->op == HLO_CONSTANT || x->op == HLO_PARAMETER || said_before(c, x))
            continue;
        strbuf_printf(out, "%s%s", between, x->op_name);
        between = " ";
    }
    if (!*between && i->op_name) strbuf_puts(out, i->op_name);
}
static void put_fused(const struct hlo_instr *i, int indent, struct strbuf *out) {
    if (i->op != HLO_FUSION) return;
    strbuf_printf(out, "%*sfused:", indent, "");
    for (const struct hlo_instr *x = i->called[0]->first; x; x = x->next)
        if (x->op != HLO_PARAMETER && x->op != HLO_CONSTANT)
            strbuf_printf(out, " %s", hlo_op_name(x->op));
    strbuf_puts(out, "\n");
}
// What stands before this implementation in the list, and its reasons; for a contraction, a
// decomposition or a last resort only: that others do not take an addition says nothing.
static bool worth_reasons(const struct cpu_step *s) {
    struct step_work w;
    enum hlo_op op = s->plan->instr->op;
    estimate_work(s->plan, &w);
    return w.products > 0 || s->impl == &cpu_impl_reference || op == HLO_CHOLESKY ||
           op == HLO_TRIANGULAR_SOLVE;
}
static void put_refused(const struct cpu_exe *x, const struct cpu_step *s, int indent,
                        struct strbuf *out) {
    int n, said = 0;
    const struct cpu_impl *const *list = cpu_impls(&n);
    for (int k = 0; k < n && list[k] != s->impl && worth_reasons(s); k++) {
        const char *why = "";
        if (list[k] == &cpu_impl_control || list[k]->accepts(x, s->plan->instr, &why)) continue;
        if (!said++) strbuf_printf(out, "%*snot by:", indent, "");
        strbuf_printf(out, "%s %s (%s)", said > 1 ? "," : "", list[k]->name, why);
    }
    if (said) strbuf_puts(out, "\n");
}
static void put_last_resort(const struct cpu_step *s, int indent, struct strbuf *out) {
    struct step_work w;
    estimate_work(s->plan, &w);
    const char *why =
        s->impl == &cpu_impl_reference           ? "the reference evaluator, one by one"
        : s->detail && strstr(s->detail, ":ref") ? "the library's plain loops"
        : s->impl == &cpu_impl_kernel && !strstr(s->detail, ":tiles") && w.products > 0
            ? "a contraction as loops over its elements"
            : NULL;
    if (why) strbuf_printf(out, "%*sa fallback: %s\n", indent, "", why);
}

static void costs(const struct cpu_exe *x, const struct cpu_plan *p, double total, int depth,
                  struct strbuf *out) {
    for (int k = 0; k < p->plan->n_steps; k++) {
        const struct cpu_step *s = &p->steps[k];
        const struct hlo_instr *i = s->plan->instr;
        int indent = 26 + 2 * depth;
        strbuf_printf(out, "%10.4f %6.1f%%  %*s%-24s %-20s %-30s ", s->estimate_ns / 1e6,
                      total > 0 ? s->estimate_ns / total * 100 : 0, 2 * depth, "", i->name,
                      hlo_op_name(i->op), s->detail ? s->detail : s->impl->name);
        put_nodes(i, out);
        strbuf_puts(out, "\n");
        if (s->choice) strbuf_printf(out, "%*s", indent, "");
        put_choice(s, out);
        if (s->choice) strbuf_puts(out, "\n");
        put_fused(i, indent, out);
        put_refused(x, s, indent, out);
        put_last_resort(s, indent, out);
        for (int c = 0; s->called && c < i->n_called; c++) {
            strbuf_printf(out, "%*s%s:\n", indent, "",
                          i->op == HLO_WHILE  ? c ? "each turn" : "before each turn"
                          : i->op == HLO_CALL ? "called"
                                              : "a branch");
            costs(x, s->called[c], total, depth + 1, out);
        }
    }
}
void cpu_explain_costs(struct dev_exe *base, struct strbuf *out) {
    struct cpu_exe *x = (struct cpu_exe *)base;
    struct dev_peak peak = cpu_peak(base->dev);
    const struct machine *m = peak.machine;
    cpu_estimate(x);
    double total = total_ns(x->main);
    strbuf_printf(out, "%d steps, estimated at %.3f ms", x->main->plan->n_steps, total / 1e6);
    if (m)
        strbuf_printf(out,
                      " on %d thread%s of %.0f GFLOP/s; caches %.0f, %.0f, %.0f GB/s, "
                      "memory %.0f GB/s",
                      m->threads, m->threads == 1 ? "" : "s", m->flops_f32 / 1e9,
                      m->level[0].rate / 1e9, m->level[1].rate / 1e9, m->level[2].rate / 1e9,
                      m->memory_all / 1e9);
    if (m && m->passed_rate > 0)
        strbuf_printf(out, ", from another thread %.0f GB/s", m->passed_rate / 1e9);
    strbuf_printf(out, "\n\n%10s %7s  %-24s %-20s %-30s %s\n", "estimate", "share", "step",
                  "opcode", "by", "nodes");
    costs(x, x->main, total, 0, out);
    if (!x->main->plan->n_steps)
        strbuf_puts(out, "nothing to run: results are inputs or constants\n");
}
