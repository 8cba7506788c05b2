// SPDX-License-Identifier: Apache-2.0
// The driver's program of the kernels' text, and a kernel a step.
#include <stdlib.h>

#include "base/str.h"
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

status_t ocl_begin(struct queue_exe *base, const struct kernel_set *k) {
    struct ocl_exe *x = (struct ocl_exe *)base;
    smap_done(&x->symbols);
    x->symbols = (struct smap){0};
    x->program = NULL;
    if (queue_of(&base->base)->compiles_only) return ST_OK;
    status_t st = build(ocl_of(base), k->object, &x->program);
    if (x->program) vec_push(&x->programs, x->program);
    return st;
}

// ---- kernels

static status_t kernel_of(struct ocl_exe *x, const struct kernel_info *info, void **out) {
    struct ocl_device *d = ocl_of(&x->base);
    ocl_code code = 0;
    *out = smap_get(&x->symbols, str_of(info->symbol));
    if (*out) return ST_OK;
    *out = d->cl->CreateKernel(x->program, info->symbol, &code);
    RETURN_IF_ERR(ocl_check(d, code, "clCreateKernel"));
    smap_put(&x->symbols, str_of(info->symbol), *out);
    vec_push(&x->kernels, *out);
    return ST_OK;
}
static size_t group_info(const struct ocl_device *d, void *kernel, uint32_t what) {
    size_t v = 0;
    return d->cl->GetKernelWorkGroupInfo(kernel, d->id, what, sizeof v, &v, NULL) ? 0 : v;
}
// Groups of LOCAL items; of fewer, down to what the device computes together, where each of its
// units would not have some groups.
static void shape_launch(struct ocl_device *d, const struct kernel_info *k, struct ocl_kernel *s) {
    int64_t items = k->extent;
    if (s->scratch) {
        int64_t fit = SCRATCH_BYTES / queue_aligned(k->scratch_bytes ? k->scratch_bytes : 1);
        if (items > fit) items = fit > 0 ? fit : 1;
    }
    s->per = items ? ceil_div(k->extent, items) : 1;
    int64_t used = ceil_div(k->extent, s->per); // those behind return at once
    s->scratch_bytes = s->scratch ? used * queue_aligned(k->scratch_bytes) : 0;
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
static bool fits(const struct ocl_device *d, const struct kernel_info *k) {
    int64_t parameters = k->n_bufs * INT64_C(16) + k->n_sizes * INT64_C(8) + 32;
    return parameters <= d->parameter_bytes && k->extent <= d->most_items;
}
status_t ocl_bind(struct queue_exe *base, struct queue_step *s) {
    struct ocl_exe *x = (struct ocl_exe *)base;
    struct ocl_device *d = ocl_of(base);
    const struct kernel_info *k = s->info;
    uint32_t n = 0;
    if (d->base.compiles_only || !fits(d, k)) return ST_OK;
    struct ocl_kernel *own = arena_new_of(&base->arena, struct ocl_kernel);
    RETURN_IF_ERR(kernel_of(x, k, &own->kernel));
    RETURN_IF_ERR(
        ocl_check(d, d->cl->GetKernelInfo(own->kernel, OCL_KERNEL_NUM_ARGS, sizeof n, &n, NULL),
                  "clGetKernelInfo"));

    int64_t plain = k->n_bufs * INT64_C(2) + k->n_sizes + 1;
    own->scratch = n == plain + 3;
    if (n != plain && !own->scratch)
        return st_new(ST_DATA_LOSS, "kernel '%s' has %u parameters, its step %d buffers", k->symbol,
                      n, k->n_bufs);
    shape_launch(d, k, own);
    if (own->scratch_bytes > x->scratch_bytes) x->scratch_bytes = own->scratch_bytes;
    s->kernel = own;
    return ST_OK;
}
status_t ocl_ready(struct queue_exe *base) {
    struct ocl_exe *x = (struct ocl_exe *)base;
    if (x->scratch_bytes)
        RETURN_IF_ERR(
            queue_take(queue_of(&base->base), x->scratch_bytes, "what kernels keep", &x->scratch));
    base->stats.arena_bytes += x->scratch.bytes;
    base->stats.scratch_bytes = x->scratch.bytes;
    return ST_OK;
}
void ocl_unload(struct queue_exe *base) {
    struct ocl_exe *x = (struct ocl_exe *)base;
    struct ocl_device *d = ocl_of(base);
    for (size_t k = 0; k < x->kernels.n; k++)
        d->cl->ReleaseKernel(x->kernels.v[k]);
    for (size_t k = 0; k < x->programs.n; k++)
        d->cl->ReleaseProgram(x->programs.v[k]);
    queue_give(&d->base, &x->scratch);
    vec_done(&x->kernels);
    vec_done(&x->programs);
    smap_done(&x->symbols);
}
void ocl_explain(const struct queue_step *s, struct strbuf *out) {
    const struct ocl_kernel *k = s->kernel;
    strbuf_printf(out, "kernel %s, %zu work items by %zu, %lld units each", s->info->symbol,
                  k->items, k->local, (long long)k->per);
}
