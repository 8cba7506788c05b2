// SPDX-License-Identifier: Apache-2.0
// Loading: plans as the compiler made them, the driver's program of the kernels' text, a kernel a
// step, and the memory of runs.
#include <stdlib.h>

#include "base/map.h"
#include "base/str.h"
#include "compiler/codegen/opencl.h"
#include "compiler/eval.h"
#include "compiler/ir/op.h"
#include "devices/opencl/ocl_device.h"

// Work items that have scratch are as many as fit here.
enum { SCRATCH_BYTES = 64 << 20, LOCAL = 64, GROUPS_A_UNIT = 4 };

// ---- the driver's program

static status_t build_log(struct ocl_device *d, void *program, ocl_code code) {
    size_t n = 0;
    char *log = NULL;
    if (!d->cl->GetProgramBuildInfo(program, d->id, OCL_PROGRAM_BUILD_LOG, 0, NULL, &n) && n > 1 &&
        n < 1 << 24)
        log = calloc(1, n + 1);
    if (log) d->cl->GetProgramBuildInfo(program, d->id, OCL_PROGRAM_BUILD_LOG, n, log, NULL);
    status_t st = ocl_check(d, code, "clBuildProgram");
    if (log && *log) st = st_note(st, "the driver refuses the kernels: %.600s", log);
    free(log);
    return st;
}
static status_t build(struct ocl_device *d, struct span text, void **out) {
    ocl_code code = 0;
    const char *p = (const char *)text.p;
    if (text.n == 0) return ST_OK;
    *out = d->cl->CreateProgramWithSource(d->context, 1, &p, &text.n, &code);
    RETURN_IF_ERR(ocl_check(d, code, "clCreateProgramWithSource"));
    code = d->cl->BuildProgram(*out, 1, &d->id, d->build_options, NULL, NULL);
    return code ? build_log(d, *out, code) : ST_OK;
}

// ---- kernels

struct loader {
    struct ocl_exe *x;
    struct ocl_device *d;
    void *program;
    struct smap infos;   // instruction -> kernel_info
    struct smap kernels; // symbol -> kernel
    struct pmap consts;  // literal -> struct ocl_memory
};
static status_t kernel_of(struct loader *l, const struct kernel_info *info, void **out) {
    ocl_code code = 0;
    *out = smap_get(&l->kernels, str_of(info->symbol));
    if (*out) return ST_OK;
    *out = l->d->cl->CreateKernel(l->program, info->symbol, &code);
    RETURN_IF_ERR(ocl_check(l->d, code, "clCreateKernel"));
    smap_put(&l->kernels, str_of(info->symbol), *out);
    vec_push(&l->x->kernels, *out);
    return ST_OK;
}
static size_t group_info(const struct ocl_device *d, void *kernel, uint32_t what) {
    size_t v = 0;
    return d->cl->GetKernelWorkGroupInfo(kernel, d->id, what, sizeof v, &v, NULL) ? 0 : v;
}
// Groups of LOCAL items; of fewer, down to what the device computes together, where each of its
// units would not have some groups.
static void shape_launch(struct ocl_device *d, struct ocl_step *s) {
    const struct kernel_info *k = s->info;
    int64_t items = k->extent;
    if (s->scratch) {
        int64_t fit = SCRATCH_BYTES / ocl_aligned(k->scratch_bytes ? k->scratch_bytes : 1);
        if (items > fit) items = fit > 0 ? fit : 1;
    }
    s->per = items ? ceil_div(k->extent, items) : 1;
    int64_t used = ceil_div(k->extent, s->per); // those behind return at once
    s->scratch_bytes = s->scratch ? used * ocl_aligned(k->scratch_bytes) : 0;
    size_t most = group_info(d, s->kernel, OCL_KERNEL_WORK_GROUP_SIZE),
           least = group_info(d, s->kernel, OCL_KERNEL_PREFERRED_MULTIPLE), local = LOCAL;
    if (d->is_cpu && s->scratch) least = 1; // a unit is much work
    if (most < 1 || most > d->most_local) most = d->most_local;
    while (local / 2 >= least && local > 1 && (size_t)items < local * d->units * GROUPS_A_UNIT)
        local /= 2;
    s->local = local < most ? local : most;
    s->items = (size_t)round_up(items, (int64_t)s->local);
}
// Does the driver take such a launch? If not, the step is the evaluator's.
static bool fits(const struct ocl_device *d, const struct ocl_step *s) {
    const struct kernel_info *k = s->info;
    int64_t parameters = k->n_bufs * INT64_C(16) + k->n_sizes * INT64_C(8) + 32;
    return parameters <= d->parameter_bytes && k->extent <= d->most_items;
}
static status_t bind_kernel(struct loader *l, struct ocl_step *s) {
    uint32_t n = 0;
    s->info = smap_get(&l->infos, str_of(s->plan->instr->name));
    if (!s->info || !fits(l->d, s)) {
        s->info = NULL;
        return ST_OK;
    }
    const struct kernel_info *k = s->info;
    RETURN_IF_ERR(kernel_of(l, k, &s->kernel));
    RETURN_IF_ERR(
        ocl_check(l->d, l->d->cl->GetKernelInfo(s->kernel, OCL_KERNEL_NUM_ARGS, sizeof n, &n, NULL),
                  "clGetKernelInfo"));
    int64_t plain = k->n_bufs * INT64_C(2) + k->n_sizes + 1;
    s->scratch = n == plain + 3;
    if ((n != plain && !s->scratch) || k->n_bufs != s->plan->n_in + s->plan->n_out ||
        k->extent < 0 || k->scratch_bytes < 0)
        return st_new(ST_DATA_LOSS, "kernel '%s' has %u parameters, its step %d buffers", k->symbol,
                      n, s->plan->n_in + s->plan->n_out);
    shape_launch(l->d, s);
    if (s->scratch_bytes > l->x->scratch_bytes) l->x->scratch_bytes = s->scratch_bytes;
    return ST_OK;
}

// ---- plans

static status_t upload(struct loader *l, struct ocl_plan *p) {
    const struct plan *plan = p->plan;
    p->consts = arena_zarray(&l->x->arena, struct ocl_place, plan->n_consts + 1);
    for (int k = 0; k < plan->n_consts; k++) {
        const struct literal *lit = plan->consts[k];
        void *mem = pmap_get_ptr(&l->consts, lit);
        if (!mem) {
            struct ocl_memory m = {0};
            RETURN_IF_ERR(ocl_take(l->d, (int64_t)lit->size_bytes, "constants", &m));
            vec_push(&l->x->consts, m);
            mem = m.mem;
            pmap_put_ptr(&l->consts, lit, mem);
            RETURN_IF_ERR(ocl_write(l->d, (struct ocl_place){mem, 0}, lit->data,
                                    (int64_t)lit->size_bytes, true));
            l->x->stats.resident_bytes += m.bytes;
        }
        p->consts[k] = (struct ocl_place){mem, 0};
    }
    return ST_OK;
}
static status_t lay_out(struct loader *l, struct plan *plan, const _Atomic bool *cancel,
                        struct ocl_plan **out);
static status_t bind_step(struct loader *l, struct ocl_step *s, const _Atomic bool *cancel) {
    const struct hlo_instr *i = s->plan->instr;
    struct arena *a = &l->x->arena;
    s->at = arena_zarray(a, struct ocl_place, s->plan->n_in + s->plan->n_out + 1);
    s->bytes = plan_step_bytes(s->plan);
    if (!s->plan->called) {
        RETURN_IF_ERR(bind_kernel(l, s));
        if (s->kernel) return ST_OK;
        return st_note(hlo_eval_supports(i), "the OpenCL device cannot run %s%s%s",
                       i->op_type ? i->op_type : hlo_op_name(i->op), i->op_name ? " " : "",
                       i->op_name ? i->op_name : "");
    }

    s->called = arena_zarray(a, struct ocl_plan *, i->n_called + 1);
    for (int c = 0; c < i->n_called; c++)
        RETURN_IF_ERR(lay_out(l, s->plan->called[c], cancel, &s->called[c]));
    if (i->op != HLO_WHILE) return ST_OK;
    s->stage_at = l->x->stage_bytes;
    for (int k = 0; k < s->plan->n_out; k++)
        if (plan_moves(s->called[1]->plan, k))
            l->x->stage_bytes += ocl_aligned(s->called[1]->plan->root[k].size_bytes);
    return ST_OK;
}
static status_t lay_out(struct loader *l, struct plan *plan, const _Atomic bool *cancel,
                        struct ocl_plan **out) {
    struct ocl_plan *p = arena_new_of(&l->x->arena, struct ocl_plan);
    p->plan = plan;
    p->steps = arena_zarray(&l->x->arena, struct ocl_step, plan->n_steps + 1);
    *out = p;
    for (int k = 0; k < plan->n_steps; k++) {
        if (cancel && *cancel) return st_new(ST_CANCELLED, "the call was cancelled");
        p->steps[k].plan = &plan->steps[k];
        RETURN_IF_ERR(bind_step(l, &p->steps[k], cancel));
    }
    return upload(l, p);
}
// which: 0 main, 1 prepare.
static status_t load_module(struct ocl_exe *x, int which, const _Atomic bool *cancel,
                            struct ocl_plan **out) {
    const struct executable *e = x->exe;
    const struct kernel_set *k = which ? &e->prepare_kernels : &e->kernels;
    struct loader l = {.x = x, .d = ocl_of(&x->base)};
    struct plan *plan;
    RETURN_IF_ERR(plan_make(&x->arena, (which ? e->prepare : e->main)->entry, &plan));
    RETURN_IF_ERR(build(l.d, k->object, &x->programs[which]));
    l.program = x->programs[which];
    for (int n = 0; n < k->n && l.program; n++)
        smap_put(&l.infos, str_of(k->k[n].instr), (void *)&k->k[n]);
    status_t st = lay_out(&l, plan, cancel, out);
    smap_done(&l.infos);
    smap_done(&l.kernels);
    pmap_done(&l.consts);
    return st;
}

// ---- load

void ocl_unload(struct dev_exe *base) {
    struct ocl_exe *x = (struct ocl_exe *)base;
    struct ocl_device *d = ocl_of(base);
    for (size_t k = 0; k < x->kernels.n; k++)
        d->cl->ReleaseKernel(x->kernels.v[k]);
    for (int k = 0; k < 2; k++)
        if (x->programs[k]) d->cl->ReleaseProgram(x->programs[k]);
    for (size_t k = 0; k < x->consts.n; k++)
        ocl_give(d, &x->consts.v[k]);
    for (int k = 0; x->inputs && k < x->main->plan->n_params; k++)
        ocl_give(d, &x->inputs[k]);
    ocl_give(d, &x->memory);
    ocl_give(d, &x->scratch);
    ocl_give(d, &x->stage);
    vec_done(&x->kernels);
    vec_done(&x->consts);
    executable_free(x->exe);
    arena_done(&x->arena);
    free(x);
}
static status_t load_into(struct ocl_device *d, struct ocl_exe *x, const _Atomic bool *cancel) {
    RETURN_IF_ERR(ocl_alive(d));
    if (strcmp(x->exe->target_id, d->target->id) != 0)
        return st_new(ST_FAILED_PRECONDITION, "the executable is for target %s, this device is %s",
                      x->exe->target_id, d->target->id);
    RETURN_IF_ERR(load_module(x, 0, cancel, &x->main));
    RETURN_IF_ERR(load_module(x, 1, cancel, &x->prepare));
    x->inputs = arena_zarray(&x->arena, struct ocl_memory, x->main->plan->n_params + 1);
    RETURN_IF_ERR(ocl_take(d, x->main->plan->arena_bytes, "the working set", &x->memory));
    if (x->scratch_bytes)
        RETURN_IF_ERR(ocl_take(d, x->scratch_bytes, "what kernels keep", &x->scratch));
    if (x->stage_bytes)
        RETURN_IF_ERR(ocl_take(d, x->stage_bytes, "the states of loops", &x->stage));
    x->stats.arena_bytes = x->memory.bytes + x->scratch.bytes + x->stage.bytes;
    x->stats.scratch_bytes = x->scratch.bytes;
    return ST_OK;
}
status_t ocl_load_exe(struct device *d, struct executable *exe, const _Atomic bool *cancel,
                      struct dev_exe **out) {
    struct ocl_exe *x = calloc(1, sizeof *x);
    if (!x) {
        executable_free(exe);
        return st_oom();
    }
    x->base = (struct dev_exe){.dev = d, .exe = exe};
    x->exe = exe;
    status_t st = load_into((struct ocl_device *)d, x, cancel);
    if (st)
        ocl_unload(&x->base);
    else
        *out = &x->base;
    return st;
}

// ---- explain

static void explain_plan(const struct ocl_plan *p, int indent, struct strbuf *out) {
    for (int k = 0; k < p->plan->n_steps; k++) {
        const struct ocl_step *s = &p->steps[k];
        strbuf_printf(out, "%*s%s: ", indent, "", s->plan->instr->name);
        if (s->kernel)
            strbuf_printf(out, "kernel %s, %zu work items by %zu, %lld units each\n",
                          s->info->symbol, s->items, s->local, (long long)s->per);
        else
            strbuf_puts(out, s->called ? "control\n" : "reference\n");
        for (int c = 0; s->called && c < s->plan->instr->n_called; c++)
            explain_plan(s->called[c], indent + 2, out);
    }
}
void ocl_explain(const struct dev_exe *base, struct strbuf *out) {
    const struct ocl_exe *x = (const struct ocl_exe *)base;
    plan_print(out, x->main->plan);
    strbuf_puts(out, "\nimplementations:\n");
    explain_plan(x->main, 2, out);
    strbuf_puts(out, "implementations of prepare:\n");
    explain_plan(x->prepare, 2, out);
}
