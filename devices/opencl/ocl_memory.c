// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>

#include "devices/opencl/ocl_device.h"
#include "proto/hlod.pb-c.h"

static status_t full(const struct ocl_device *d, int64_t bytes, const char *what) {
    return st_reason(st_exhausted("no device memory for %s: %lld bytes wanted, %lld of %lld in use",
                                  what, (long long)bytes, (long long)d->used_bytes,
                                  (long long)d->memory_bytes),
                     HLOD__V1__REASON__REASON_DEVICE_MEMORY);
}
status_t ocl_take(struct ocl_device *d, int64_t bytes, const char *what, struct ocl_memory *out) {
    ocl_code code = 0;
    int64_t n = bytes > 0 ? bytes : 1;
    RETURN_IF_ERR(ocl_alive(d));
    if (n > d->most_bytes)
        return st_reason(st_exhausted("no device memory for %s: %lld bytes wanted, a buffer of "
                                      "this device has at most %lld",
                                      what, (long long)bytes, (long long)d->most_bytes),
                         HLOD__V1__REASON__REASON_DEVICE_MEMORY);
    if (n > d->memory_bytes - d->used_bytes) return full(d, bytes, what);
    void *mem = d->cl->CreateBuffer(d->context, OCL_MEM_READ_WRITE, (size_t)n, NULL, &code);
    if (mem && code == 0) {
        d->used_bytes += n;
        *out = (struct ocl_memory){mem, n};
        return ST_OK;
    }
    status_t st = ocl_check(d, code ? code : -4, "clCreateBuffer");
    if (st_code(st) != ST_RESOURCE_EXHAUSTED) return st;
    st_drop(st);
    return full(d, bytes, what);
}
void ocl_give(struct ocl_device *d, struct ocl_memory *m) {
    if (m->mem) d->cl->ReleaseMemObject(m->mem);
    d->used_bytes -= m->bytes;
    *m = (struct ocl_memory){0};
}

status_t ocl_write(struct ocl_device *d, struct ocl_place to, const void *from, int64_t bytes,
                   bool wait) {
    if (bytes == 0) return ST_OK;
    return ocl_check(d,
                     d->cl->EnqueueWriteBuffer(d->queue, to.mem, wait, (size_t)to.at, (size_t)bytes,
                                               from, 0, NULL, NULL),
                     "clEnqueueWriteBuffer");
}
status_t ocl_read(struct ocl_device *d, void *to, struct ocl_place from, int64_t bytes, bool wait) {
    if (bytes == 0) return ST_OK;
    return ocl_check(d,
                     d->cl->EnqueueReadBuffer(d->queue, from.mem, wait, (size_t)from.at,
                                              (size_t)bytes, to, 0, NULL, NULL),
                     "clEnqueueReadBuffer");
}
status_t ocl_copy(struct ocl_device *d, struct ocl_place to, struct ocl_place from, int64_t bytes) {
    if (bytes == 0 || (to.mem == from.mem && to.at == from.at)) return ST_OK;
    return ocl_check(d,
                     d->cl->EnqueueCopyBuffer(d->queue, from.mem, to.mem, (size_t)from.at,
                                              (size_t)to.at, (size_t)bytes, 0, NULL, NULL),
                     "clEnqueueCopyBuffer");
}

// ---- buffers

struct dev_buffer *ocl_buffer_of(struct ocl_device *d, const struct shape *s,
                                 struct ocl_memory memory) {
    struct ocl_buffer *b = arena_must_calloc(1, sizeof *b);
    *b = (struct ocl_buffer){.base = {.dev = &d->base, .refs = 1, .bytes = shape_bytes(s)},
                             .memory = memory};
    b->base.shape = shape_make(&b->base.arena, s->dtype, s->dims, s->rank);
    return &b->base;
}
status_t ocl_put(struct device *base, const struct shape *s, const void *data,
                 struct dev_buffer **out) {
    struct ocl_device *d = (struct ocl_device *)base;
    struct ocl_memory m = {0};
    RETURN_IF_ERR(ocl_take(d, shape_bytes(s), "a buffer", &m));
    status_t st = ocl_write(d, (struct ocl_place){m.mem, 0}, data, shape_bytes(s), true);
    if (st)
        ocl_give(d, &m);
    else
        *out = ocl_buffer_of(d, s, m);
    return st;
}
status_t ocl_get(struct dev_buffer *base, int64_t offset, int64_t n, void *dst) {
    struct ocl_buffer *b = (struct ocl_buffer *)base;
    struct ocl_device *d = (struct ocl_device *)base->dev;
    RETURN_IF_ERR(ocl_alive(d));
    return ocl_read(d, dst, (struct ocl_place){b->memory.mem, offset}, n, true);
}
void ocl_drop(struct dev_buffer *base) {
    struct ocl_buffer *b = (struct ocl_buffer *)base;
    ocl_give((struct ocl_device *)base->dev, &b->memory);
    arena_done(&base->arena);
    free(b);
}
