// SPDX-License-Identifier: Apache-2.0
#include "devices/opencl/ocl_device.h"

static struct ocl_device *own(struct queue_device *d) {
    return (struct ocl_device *)d;
}
status_t ocl_take(struct queue_device *base, int64_t n, struct queue_memory *out) {
    struct ocl_device *d = own(base);
    ocl_code code = 0;
    void *mem = d->cl->CreateBuffer(d->context, OCL_MEM_READ_WRITE, (size_t)n, NULL, &code);
    if (!mem || code) return ocl_check(d, code ? code : -4, "clCreateBuffer");
    *out = (struct queue_memory){{mem, 0}, n};
    return ST_OK;
}
void ocl_give(struct queue_device *d, const struct queue_memory *m) {
    own(d)->cl->ReleaseMemObject(m->place.mem);
}
status_t ocl_write(struct queue_device *base, struct queue_place to, const void *from,
                   int64_t bytes, bool wait) {
    struct ocl_device *d = own(base);
    return ocl_check(d,
                     d->cl->EnqueueWriteBuffer(d->queue, to.mem, wait, (size_t)to.at, (size_t)bytes,
                                               from, 0, NULL, NULL),
                     "clEnqueueWriteBuffer");
}
status_t ocl_read(struct queue_device *base, void *to, struct queue_place from, int64_t bytes,
                  bool wait) {
    struct ocl_device *d = own(base);
    return ocl_check(d,
                     d->cl->EnqueueReadBuffer(d->queue, from.mem, wait, (size_t)from.at,
                                              (size_t)bytes, to, 0, NULL, NULL),
                     "clEnqueueReadBuffer");
}
status_t ocl_copy(struct queue_device *base, struct queue_place to, struct queue_place from,
                  int64_t bytes) {
    struct ocl_device *d = own(base);
    return ocl_check(d,
                     d->cl->EnqueueCopyBuffer(d->queue, from.mem, to.mem, (size_t)from.at,
                                              (size_t)to.at, (size_t)bytes, 0, NULL, NULL),
                     "clEnqueueCopyBuffer");
}
