// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>

#include "devices/queue/queue.h"
#include "proto/hlod.pb-c.h"

bool queue_option(struct arena *a, struct str key, struct str item, struct queue_options *o,
                  bool *known) {
    *known = true;
    if (str_is(key, "device")) return str_to_i64(item, &o->device) && o->device >= 0;
    if (str_is(key, "memory")) return str_to_bytes(item, &o->memory) && o->memory > 0;
    *known = str_is(key, "library") && item.n;
    if (*known) o->library = arena_strndup(a, item.p, item.n);
    return *known;
}
status_t queue_bad_option(bool known, struct str key, struct str item, const char *all) {
    if (known)
        return st_invalid("option " STR_FMT " cannot be '" STR_FMT "'", STR_ARG(key),
                          STR_ARG(item));
    return st_invalid("no option " STR_FMT "=" STR_FMT "; there are %s", STR_ARG(key),
                      STR_ARG(item), all);
}
status_t queue_alive(const struct queue_device *d) {
    return d->lost ? st_new(ST_UNAVAILABLE, "the %s device is lost", d->driver->name) : ST_OK;
}
static status_t full(const struct queue_device *d, int64_t bytes, const char *what) {
    return st_reason(st_exhausted("no device memory for %s: %lld bytes wanted, %lld of %lld in use",
                                  what, (long long)bytes, (long long)d->used_bytes,
                                  (long long)d->memory_bytes),
                     HLOD__V1__REASON__REASON_DEVICE_MEMORY);
}
status_t queue_take(struct queue_device *d, int64_t bytes, const char *what,
                    struct queue_memory *out) {
    int64_t n = bytes > 0 ? bytes : 1;
    RETURN_IF_ERR(queue_alive(d));
    if (n > d->most_bytes)
        return st_reason(st_exhausted("no device memory for %s: %lld bytes wanted, a buffer of "
                                      "this device has at most %lld",
                                      what, (long long)bytes, (long long)d->most_bytes),
                         HLOD__V1__REASON__REASON_DEVICE_MEMORY);
    if (n > d->memory_bytes - d->used_bytes) return full(d, bytes, what);

    status_t st = d->driver->take(d, n, out);
    if (!st) d->used_bytes += out->bytes;
    if (st_code(st) != ST_RESOURCE_EXHAUSTED) return st;
    st_drop(st);
    return full(d, bytes, what);
}
void queue_give(struct queue_device *d, struct queue_memory *m) {
    if (m->place.mem) d->driver->give(d, m);
    d->used_bytes -= m->bytes;
    *m = (struct queue_memory){0};
}
status_t queue_write(struct queue_device *d, struct queue_place to, const void *from, int64_t bytes,
                     bool wait) {
    return bytes ? d->driver->write(d, to, from, bytes, wait) : ST_OK;
}
status_t queue_read(struct queue_device *d, void *to, struct queue_place from, int64_t bytes,
                    bool wait) {
    return bytes ? d->driver->read(d, to, from, bytes, wait) : ST_OK;
}
status_t queue_copy(struct queue_device *d, struct queue_place to, struct queue_place from,
                    int64_t bytes) {
    return bytes == 0 || queue_same(to, from) ? ST_OK : d->driver->copy(d, to, from, bytes);
}

// ---- buffers

struct dev_buffer *queue_buffer_of(struct queue_device *d, const struct shape *s,
                                   struct queue_memory memory) {
    struct queue_buffer *b = arena_must_calloc(1, sizeof *b);
    *b = (struct queue_buffer){.base = {.dev = &d->base, .refs = 1, .bytes = shape_bytes(s)},
                               .memory = memory};
    b->base.shape = shape_make(&b->base.arena, s->dtype, s->dims, s->rank);
    return &b->base;
}
status_t queue_put(struct device *base, const struct shape *s, const void *data,
                   struct dev_buffer **out) {
    struct queue_device *d = (struct queue_device *)base;
    struct queue_memory m = {0};
    RETURN_IF_ERR(queue_take(d, shape_bytes(s), "a buffer", &m));
    status_t st = queue_write(d, m.place, data, shape_bytes(s), true);
    if (st)
        queue_give(d, &m);
    else
        *out = queue_buffer_of(d, s, m);
    return st;
}
status_t queue_get(struct dev_buffer *base, int64_t offset, int64_t n, void *dst) {
    struct queue_buffer *b = (struct queue_buffer *)base;
    struct queue_device *d = (struct queue_device *)base->dev;
    struct queue_place from = {b->memory.place.mem, b->memory.place.at + offset};
    RETURN_IF_ERR(queue_alive(d));
    return queue_read(d, dst, from, n, true);
}
void queue_drop(struct dev_buffer *base) {
    struct queue_buffer *b = (struct queue_buffer *)base;
    queue_give((struct queue_device *)base->dev, &b->memory);
    arena_done(&base->arena);
    free(b);
}

const struct target *queue_target(struct device *d) {
    return ((struct queue_device *)d)->target;
}
struct dev_stats queue_stats(const struct dev_exe *x) {
    return ((const struct queue_exe *)x)->stats;
}
