// SPDX-License-Identifier: Apache-2.0
// A step's kernel given to the queue. At most some kernels are in it, so that a run that is
// cancelled ends soon; a profile's times are the device's, by events.
#include "base/clock.h"
#include "devices/opencl/ocl_device.h"

enum { MARK_EVERY = 16 };

// ---- profile

static int64_t event_ns(const struct ocl_device *d, void *event, uint32_t what) {
    uint64_t v = 0;
    if (d->cl->GetEventProfilingInfo(event, what, sizeof v, &v, NULL)) return 0;
    return (int64_t)v;
}
// Kernels' times, once they are over: on the host's clock by the moment the first was given.
void ocl_settle(struct queue_walk *w) {
    struct ocl_device *d = ocl_of(w->x);
    for (size_t k = 0; k < d->waiting.n; k++) {
        const struct ocl_waiting *e = &d->waiting.v[k];
        int64_t start = event_ns(d, e->event, OCL_PROFILING_START),
                end = event_ns(d, e->event, OCL_PROFILING_END);
        if (!d->device_ns) d->device_ns = event_ns(d, e->event, OCL_PROFILING_QUEUED);
        struct profile_row *row = &w->profile->rows[e->row];
        row->ns = end > start ? end - start : 0;
        row->start_ns = start - d->device_ns + d->host_ns - w->profile->zero_ns;
        if (row->start_ns < 0) row->start_ns = 0;
        d->cl->ReleaseEvent(e->event);
    }
    vec_done(&d->waiting);
    if (d->mark) d->cl->ReleaseEvent(d->mark);
    d->mark = NULL;
    d->given = d->host_ns = d->device_ns = 0;
}
// ---- kernels

static status_t set_arguments(struct ocl_device *d, const struct ocl_exe *x,
                              const struct queue_step *s) {
    const struct kernel_info *k = s->info;
    const struct ocl_kernel *own = s->kernel;
    uint32_t n = 0;
    ocl_code code = 0;
    for (int b = 0; b < k->n_bufs && !code; b++) {
        uint64_t at = (uint64_t)s->at[b].at;
        code = d->cl->SetKernelArg(own->kernel, n++, sizeof(void *), &s->at[b].mem);
        if (!code) code = d->cl->SetKernelArg(own->kernel, n++, sizeof at, &at);
    }
    for (int b = 0; b < k->n_sizes && !code; b++)
        code = d->cl->SetKernelArg(own->kernel, n++, sizeof(int64_t), &k->sizes[b]);
    uint64_t rest[] = {(uint64_t)k->extent, (uint64_t)own->per,
                       (uint64_t)queue_aligned(k->scratch_bytes)};
    if (!code) code = d->cl->SetKernelArg(own->kernel, n++, 8, &rest[0]);
    if (own->scratch) {
        if (!code) code = d->cl->SetKernelArg(own->kernel, n++, 8, &rest[1]);
        if (!code)
            code = d->cl->SetKernelArg(own->kernel, n++, sizeof(void *), &x->scratch.place.mem);
        if (!code) code = d->cl->SetKernelArg(own->kernel, n, 8, &rest[2]);
    }
    return ocl_check(d, code, "clSetKernelArg");
}
// Waits for what was given a while ago, so that the queue stays short.
static status_t keep_short(struct ocl_device *d, void *event) {
    ocl_code code = d->mark ? d->cl->WaitForEvents(1, &d->mark) : 0;
    if (d->mark) d->cl->ReleaseEvent(d->mark);
    d->mark = event;
    if (code) d->base.lost = true; // it failed where it ran
    return code ? st_new(ST_UNAVAILABLE, "the OpenCL device is lost: a kernel ended with %s (%d)",
                         ocl_name_of(code), code)
                : ST_OK;
}
status_t ocl_run(struct queue_walk *w, const struct queue_step *s) {
    struct ocl_device *d = ocl_of(w->x);
    const struct ocl_kernel *k = s->kernel;
    void *event = NULL;
    RETURN_IF_ERR(set_arguments(d, (const struct ocl_exe *)w->x, s));

    bool mark = !w->profile && d->given % MARK_EVERY == 0;
    if (d->given++ == 0) d->host_ns = clock_ns();
    ocl_code code = d->cl->EnqueueNDRangeKernel(d->queue, k->kernel, 1, NULL, &k->items, &k->local,
                                                0, NULL, w->profile || mark ? &event : NULL);
    RETURN_IF_ERR(ocl_check(d, code, "clEnqueueNDRangeKernel"));
    if (mark) return keep_short(d, event);
    int row = event ? queue_begin_row(w, s, "kernel") : -1;
    if (row >= 0)
        vec_push(&d->waiting, ((struct ocl_waiting){event, row}));
    else if (event)
        d->cl->ReleaseEvent(event);
    return ST_OK;
}
