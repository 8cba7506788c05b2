// SPDX-License-Identifier: Apache-2.0
// The ordered list (D8), and the three implementations that need no library: control flow,
// generated kernels, and the reference evaluator, which always accepts.
#include <stdlib.h>

#include "compiler/codegen/abi.h"
#include "compiler/eval.h"
#include "compiler/plan/in_place.h"
#include "devices/cpu/cpu.h"
#include "devices/cpu/routines/cpu_windows.h"
#include "devices/reference.h"

static const struct cpu_impl *const list[] = {
    &cpu_impl_control,      &cpu_impl_thin8,     &cpu_impl_int8,     &cpu_impl_pairs,
    &cpu_impl_matmul,       &cpu_impl_thin,      &cpu_impl_channels, &cpu_impl_depthwise,
    &cpu_impl_pointwise,    &cpu_impl_winograd,  &cpu_impl_amx,      &cpu_impl_windows,
    &cpu_impl_onednn,       &cpu_impl_gemm,      &cpu_impl_sort,     &cpu_impl_fft,
    &cpu_impl_update,       &cpu_impl_concat,    &cpu_impl_dim_maps, &cpu_impl_pad,
    &cpu_impl_trees,        &cpu_impl_bits,      &cpu_impl_table,    &cpu_impl_attention,
    &cpu_impl_nms,          &cpu_impl_transpose, &cpu_impl_random,   &cpu_impl_lapack,
    &cpu_impl_lapack_calls, &cpu_impl_kernel,    &cpu_impl_reference};
enum { ALL = sizeof list / sizeof list[0] };
const struct cpu_impl *const *cpu_impls(int *n) {
    static const struct cpu_impl *few[ALL];
    const char *forced = cpu_only_impl();
    *n = ALL;
    if (!forced) return list;
    *n = 0;
    for (int k = 0; k < ALL; k++)
        if (k == 0 || k == ALL - 1 || strcmp(list[k]->name, forced) == 0) few[(*n)++] = list[k];
    return few;
}

// What moves data and accepts by the instruction alone, before kernels are asked.
bool cpu_routine_runs(UNUSED const struct target *t, const struct hlo_instr *i) {
    static const struct cpu_impl *const movers[] = {
        &cpu_impl_update, &cpu_impl_concat, &cpu_impl_dim_maps, &cpu_impl_pad, &cpu_impl_transpose};
    const char *why;
    for (size_t k = 0; k < sizeof movers / sizeof *movers; k++)
        if (movers[k]->accepts(NULL, i, &why)) return true;
    return false;
}

// ---- kernels

struct kernel_state {
    void *code;
    const struct kernel_info *info;
    int64_t scratch; // of a thread
    bool updates;    // plan_updates_alone
};

const struct kernel_info *cpu_find_kernel(const struct cpu_exe *x, const struct hlo_instr *i) {
    for (int k = 0; x->kernels && k < x->kernels->n; k++)
        if (strcmp(x->kernels->k[k].instr, i->name) == 0) return &x->kernels->k[k];
    return NULL;
}
static bool kernel_accepts(const struct cpu_exe *x, const struct hlo_instr *i, const char **why) {
    *why = "no kernel was generated";
    return cpu_find_kernel(x, i) != NULL;
}
// A unit's share of the work decides whether waking the other thread pays: about 20 us.
static int64_t kernel_grain(const struct kernel_info *k) {
    int64_t per_unit = k->extent > 0 ? (k->flops + k->bytes) / k->extent : 0;
    return per_unit > 0 ? 60000 / per_unit + 1 : 1;
}
// So much of what steps share, at least; `s` may have it while others run.
static void want_scratch(struct cpu_exe *x, struct cpu_step *s, int64_t bytes) {
    s->own_bytes = bytes;
    if (bytes > x->scratch_bytes) x->scratch_bytes = bytes;
}
static status_t kernel_open(struct cpu_exe *x, struct cpu_step *s) {
    struct kernel_state *k = arena_new_of(&x->arena, struct kernel_state);
    k->info = cpu_find_kernel(x, s->plan->instr);
    void *symbol = x->binding ? code_symbol(x->binding, k->info->symbol) : NULL;
    if (!symbol) return st_internal("kernel '%s' is not in the object code", k->info->symbol);
    if (k->info->n_bufs != s->plan->n_in + s->plan->n_out)
        return st_new(ST_DATA_LOSS, "kernel '%s' has %d buffers, its step %d", k->info->symbol,
                      k->info->n_bufs, s->plan->n_in + s->plan->n_out);
    k->code = symbol;
    k->scratch = (k->info->scratch_bytes + 63) / 64 * 64;
    want_scratch(x, s, k->scratch * cpu_threads());
    s->flops = k->info->flops;
    s->bytes = k->info->bytes;
    s->alone = k->info->extent < 2 * kernel_grain(k->info);
    s->apart = true;
    s->detail = k->info->tiles ? "kernel:tiles" : "kernel";
    k->updates = plan_updates_alone(s->plan->instr);
    s->state = k;
    return ST_OK;
}
struct kernel_call {
    const struct kernel_state *k;
    void **bufs;
    char *scratch;
};
static void kernel_part(void *ctx, int64_t begin, int64_t end, int thread) {
    const struct kernel_call *c = ctx;
    hlod_kernel_call(c->k->code, c->k->info->n_bufs, c->bufs, begin, end,
                     c->scratch + c->k->scratch * thread, c->k->info->sizes);
}
static status_t kernel_run(struct cpu_exe *x, struct cpu_step *s, void **bufs) {
    const struct kernel_state *k = s->state;
    struct kernel_call c = {k, bufs, (char *)x->scratch + s->own_at};
    void **out = bufs + s->plan->n_in;
    for (int e = 0; k->updates && e < s->plan->n_out; e++)
        if (out[e] != bufs[e] && s->plan->out[e].size_bytes)
            memcpy(out[e], bufs[e], (size_t)s->plan->out[e].size_bytes);
    cpu_parallel(kernel_part, &c, k->info->extent, kernel_grain(k->info));
    return ST_OK;
}
void cpu_direct_of(const struct cpu_step *s, struct cpu_direct *out) {
    *out = (struct cpu_direct){0};
    if (s->impl != &cpu_impl_kernel || !s->alone) return;
    const struct kernel_state *k = s->state;
    if (k->updates) return;
    *out = (struct cpu_direct){.code = k->code,
                               .sizes = k->info->sizes,
                               .extent = k->info->extent,
                               .n_bufs = k->info->n_bufs};
}
const struct cpu_impl cpu_impl_kernel = {"kernel",   kernel_accepts, kernel_open, NULL,
                                         kernel_run, NULL,           NULL,        NULL};

// ---- control flow: called plans run here, on the device; nothing goes to the daemon

static bool control_accepts(UNUSED const struct cpu_exe *x, const struct hlo_instr *i,
                            const char **why) {
    *why = "not control flow";
    return i->op == HLO_WHILE || i->op == HLO_CONDITIONAL || i->op == HLO_CALL;
}
// A loop that codegen made one function of is a step like others: nothing of it is bound.
static status_t control_open(struct cpu_exe *x, struct cpu_step *s) {
    s->detail = "control";
    const struct kernel_info *info = cpu_find_kernel(x, s->plan->instr);
    if (!info) return ST_OK;
    struct kernel_state *k = arena_new_of(&x->arena, struct kernel_state);
    *k = (struct kernel_state){code_symbol(x->binding, info->symbol), info, 0, false};
    if (!k->code) return st_internal("loop '%s' is not in the object code", info->symbol);
    if (info->n_bufs != s->plan->n_out + HLOD_LOOP_BUFFERS || info->n_sizes != 1 ||
        info->sizes[0] > s->plan->scratch_bytes)
        return st_new(ST_DATA_LOSS, "loop '%s' is of another plan", info->symbol);
    want_scratch(x, s, (info->scratch_bytes + 63) / 64 * 64);
    s->state = k;
    s->called = NULL;
    s->alone = s->apart = true;
    s->detail = "loop";
    return ST_OK;
}
static status_t control_run(struct cpu_exe *x, struct cpu_step *s, void **bufs) {
    static const _Atomic bool never;
    const struct kernel_state *k = s->state;
    const struct plan_step *ps = s->plan;
    struct hlod_loop_outcome outcome;
    if (!k) return st_internal("control steps are run by cpu_run_plan");
    void **out = bufs + ps->n_in, *b[CPU_MAX_BUFS + HLOD_LOOP_BUFFERS];
    for (int e = 0; e < ps->n_out; e++) {
        b[e] = out[e];
        if (out[e] != bufs[e] && ps->out[e].size_bytes)
            memcpy(out[e], bufs[e], (size_t)ps->out[e].size_bytes);
    }
    b[ps->n_out] = out[ps->n_out];
    b[ps->n_out + 1] = (void *)(uintptr_t)(x->cancel ? x->cancel : &never);
    b[ps->n_out + 2] = &outcome;
    hlod_loop_call(k->code, b, (char *)x->scratch + s->own_at);
    if (outcome.stopped) return cpu_cancelled();
    if (x->run && x->run->profile) // some 0.1 ns each
        x->run->profile->estimate_ns += (double)outcome.work / 10;
    return ST_OK;
}
const struct cpu_impl cpu_impl_control = {
    "control", control_accepts, control_open, NULL, control_run, NULL, NULL, NULL};

// ---- the reference evaluator

static bool reference_accepts(UNUSED const struct cpu_exe *x, UNUSED const struct hlo_instr *i,
                              UNUSED const char **why) {
    return true;
}
static status_t reference_open(UNUSED struct cpu_exe *x, struct cpu_step *s) {
    s->detail = "reference";
    const struct hlo_instr *i = s->plan->instr;
    return st_note(hlo_eval_supports(i), "the CPU device cannot run %s%s%s",
                   i->op_type ? i->op_type : hlo_op_name(i->op), i->op_name ? " " : "",
                   i->op_name ? i->op_name : "");
}
static status_t reference_run(struct cpu_exe *x, struct cpu_step *s, void **bufs) {
    struct dev_reference r = {x->rng_state, x->run ? x->run->texts : NULL, x->cancel};
    status_t st = dev_reference_run(&r, s->plan->instr, bufs, s->plan->n_in);
    x->rng_state = r.rng_state;
    x->stats.reference_steps++;
    return st;
}
const struct cpu_impl cpu_impl_reference = {
    "reference", reference_accepts, reference_open, NULL, reference_run, NULL, NULL, NULL};
