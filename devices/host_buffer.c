// SPDX-License-Identifier: Apache-2.0
// A donated buffer is not copied: the result lies in its memory, unless another result has to be
// read from there (a result may be an input passed through).
#include "devices/host_buffer.h"

#include <stdlib.h>

#include "proto/hlod.pb-c.h"

struct host_buffer {
    struct dev_buffer base;
    uint8_t *data; // NULL: donated
};

status_t host_buffer_new(struct device *d, const struct shape *s, const void *data,
                         struct dev_buffer **out) {
    int64_t bytes = shape_bytes(s);
    void *p = NULL;
    struct host_buffer *b = calloc(1, sizeof *b);
    if (b && posix_memalign(&p, 64, (size_t)bytes + 64)) p = NULL;
    if (!p) {
        free(b);
        return st_reason(st_exhausted("no memory for a buffer of %lld bytes", (long long)bytes),
                         HLOD__V1__REASON__REASON_DEVICE_MEMORY);
    }
    *b = (struct host_buffer){.base = {.dev = d, .refs = 1, .bytes = bytes}, .data = p};
    b->base.shape = shape_make(&b->base.arena, s->dtype, s->dims, s->rank);
    if (data && bytes) memcpy(p, data, (size_t)bytes);
    *out = &b->base;
    return ST_OK;
}

void *host_buffer_data(const struct dev_buffer *b) {
    return ((const struct host_buffer *)b)->data;
}
void host_buffer_free(struct dev_buffer *base) {
    struct host_buffer *b = (struct host_buffer *)base;
    free(b->data);
    arena_done(&base->arena);
    free(b);
}
status_t host_buffer_get(struct dev_buffer *b, int64_t offset, int64_t n, void *dst) {
    if (n) memcpy(dst, (const uint8_t *)host_buffer_data(b) + offset, (size_t)n);
    return ST_OK;
}

// ---- results

static bool inside(const struct host_buffer *b, const void *p) {
    return (const uint8_t *)p >= b->data && (const uint8_t *)p < b->data + b->base.bytes;
}

// A donated input whose memory result k may take; not one that another result is read from, or that
// an earlier result has taken.
static struct host_buffer *donor(const struct dev_run *r, int64_t n_in, void *const *src, int n,
                                 int k, int64_t bytes, struct host_buffer *const *from) {
    for (int64_t i = 0; r->donate && i < n_in; i++) {
        if (!r->donate[i] || !r->in_buffers[i]) continue;
        struct host_buffer *b = (struct host_buffer *)r->in_buffers[i];
        bool fits = b->data && b->base.bytes == bytes && bytes > 0;
        for (int j = 0; fits && j < n; j++)
            fits = j == k || !inside(b, src[j]);
        for (int j = 0; fits && j < k; j++)
            fits = from[j] != b;
        if (fits) return b;
    }
    return NULL;
}

bool host_has_donor(const struct dev_run *r, int64_t n_in, int64_t bytes) {
    for (int64_t i = 0; r->donate && i < n_in; i++)
        if (r->donate[i] && r->in_buffers[i] && r->in_buffers[i]->bytes == bytes) return true;
    return false;
}

// The buffers for results that stay, where no donor gives its memory.
static status_t make_kept(struct device *d, const struct dev_run *r,
                          const struct shape *const *shapes, struct host_buffer *const *from,
                          struct dev_buffer *const *ahead, int n) {
    for (int k = 0; k < n; k++) {
        if (r->out[k] || from[k] || (ahead && ahead[k])) continue;
        status_t st = host_buffer_new(d, shapes[k], NULL, &r->kept[k]);
        if (!st) continue;
        while (k-- > 0)
            if (!r->out[k] && !from[k] && !(ahead && ahead[k])) {
                host_buffer_free(r->kept[k]);
                r->kept[k] = NULL;
            }
        return st;
    }
    return ST_OK;
}

// Result k lies in the donor's memory: a buffer of its own for it.
static struct dev_buffer *take_over(struct device *d, struct host_buffer *from,
                                    const struct shape *s) {
    struct host_buffer *b = calloc(1, sizeof *b);
    if (!b) abort(); // a few words
    *b = (struct host_buffer){{.dev = d, .refs = 1, .bytes = from->base.bytes}, from->data};
    b->base.shape = shape_make(&b->base.arena, s->dtype, s->dims, s->rank);
    from->data = NULL;
    return &b->base;
}

static status_t deliver(struct device *d, const struct dev_run *r, int64_t n_in, void *const *src,
                        const struct shape *const *shapes, int n, struct host_buffer **from,
                        struct dev_buffer *const *ahead,
                        status_t (*reserve)(struct device *d, int64_t bytes)) {
    int64_t new_bytes = 0;
    for (int k = 0; k < n; k++) {
        if (r->out[k] || (ahead && ahead[k])) continue;
        from[k] = donor(r, n_in, src, n, k, shape_bytes(shapes[k]), from);
        new_bytes += from[k] ? 0 : shape_bytes(shapes[k]);
    }
    if (reserve) RETURN_IF_ERR(reserve(d, new_bytes));
    status_t st = make_kept(d, r, shapes, from, ahead, n);
    if (st && reserve) st_drop(reserve(d, -new_bytes));
    RETURN_IF_ERR(st);
    for (int k = 0; k < n && ahead; k++)
        if (ahead[k] && !r->out[k]) r->kept[k] = ahead[k];
    for (int k = 0; k < n; k++) {
        int64_t bytes = shape_bytes(shapes[k]);
        void *to = from[k] ? from[k]->data : r->out[k] ? r->out[k] : host_buffer_data(r->kept[k]);
        if (bytes && src[k] != to) memmove(to, src[k], (size_t)bytes);
    }
    for (int k = 0; k < n; k++)
        if (from[k]) r->kept[k] = take_over(d, from[k], shapes[k]);
    return ST_OK;
}

status_t host_deliver(struct device *d, const struct dev_run *r, int64_t n_in, void *const *src,
                      const struct shape *const *shapes, int n, struct dev_buffer *const *ahead,
                      status_t (*reserve)(struct device *d, int64_t bytes)) {
    struct arena a = {0};
    struct host_buffer **from = arena_zarray(&a, struct host_buffer *, n + 1);
    status_t st = deliver(d, r, n_in, src, shapes, n, from, ahead, reserve);
    arena_done(&a);
    return st;
}
