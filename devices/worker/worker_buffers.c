// SPDX-License-Identifier: Apache-2.0
// PUT, GET, FREE: the buffers that this worker holds for the daemon, under the daemon's numbers.
// The daemon decides whose they are and how long they stay. The table is the run thread's; its
// size is published for STATS.
#include "base/map.h"
#include "devices/worker/worker_calls.h"

static struct pmap buffers; // id -> struct dev_buffer
static _Atomic int32_t count;
static _Atomic int64_t total;

void worker_buffers_held(int32_t *n, int64_t *bytes) {
    *n = count;
    *bytes = total;
}

struct dev_buffer *worker_buffer(uint64_t id) {
    return pmap_get(&buffers, id);
}
void worker_buffer_keep(uint64_t id, struct dev_buffer *b) {
    worker_buffer_drop(id);
    pmap_put(&buffers, id, b);
    count++;
    total += b->bytes;
}
void worker_buffer_drop(uint64_t id) {
    struct dev_buffer *b = pmap_del(&buffers, id);
    if (!b) return;
    count--;
    total -= b->bytes;
    dev_buffer_unref(b);
}

// ---- put

static status_t shape_of(struct arena *a, const Hlod__Wire__WireTensor *t,
                         const struct shape **out) {
    enum dtype dt = dtype_from_name(str_of(t->dtype));
    if (dt == DT_INVALID || dt == DT_TUPLE || dt == DT_TOKEN || dt == DT_OPAQUE)
        return st_reason(st_invalid("no arrays of type '%.40s'", t->dtype),
                         HLOD__V1__REASON__REASON_DTYPE_MISMATCH);
    if (t->n_dims > HLO_MAX_RANK)
        return st_reason(st_invalid("rank %zu, at most %d", t->n_dims, HLO_MAX_RANK),
                         HLOD__V1__REASON__REASON_SHAPE_MISMATCH);
    struct shape s = {.dtype = dt, .rank = (int32_t)t->n_dims, .dims = t->dims};
    RETURN_IF_ERR(shape_check(&s, 0));
    *out = shape_make(a, dt, t->dims, s.rank);
    return ST_OK;
}

static status_t put_one(struct worker_call *c, struct device *d, const Hlod__Wire__WireTensor *t,
                        struct dev_buffer **out) {
    const struct shape *s = NULL;
    struct span data;
    RETURN_IF_ERR(shape_of(&c->arena, t, &s));
    RETURN_IF_ERR(worker_call_blob(c, t->data, &data));
    if ((int64_t)data.n != shape_bytes(s))
        return st_reason(
            st_invalid("%zu bytes for a value of %lld", data.n, (long long)shape_bytes(s)),
            HLOD__V1__REASON__REASON_BAD_TENSOR_DATA);
    data = dtype_whole_codes(&c->arena, s->dtype, data);
    status_t st;
    do
        st = dev_put(d, s, data.p, out);
    while (worker_make_room(&st));
    return st;
}

WORKER_ANSWER(put) {
    const Hlod__Wire__Put *q = (const Hlod__Wire__Put *)c->request;
    if (q->n_ids != q->n_tensors) return st_internal("as many ids as tensors are needed");
    struct dev_buffer **b = arena_zarray(&c->arena, struct dev_buffer *, q->n_ids + 1);
    size_t n = 0;
    status_t st = ST_OK;
    while (n < q->n_ids && !st) {
        st = put_one(c, d, q->tensors[n], &b[n]);
        if (!st) n++;
    }
    for (size_t k = 0; k < n; k++)
        if (st)
            dev_buffer_unref(b[k]);
        else
            worker_buffer_keep(q->ids[k], b[k]);
    return st;
}

// ---- get

status_t worker_buffer_missing(uint64_t id) {
    return st_reason(
        st_new(ST_NOT_FOUND, "buffer number %llu is not in this worker", (unsigned long long)id),
        HLOD__V1__REASON__REASON_BUFFER_NOT_FOUND);
}

WORKER_ANSWER(get) {
    Hlod__Wire__GetReply *out = reply;
    const Hlod__Wire__Get *q = (const Hlod__Wire__Get *)c->request;
    struct worker_outputs o = {0};
    int n = (int)q->n_ids;
    int64_t *bytes = arena_zarray(&c->arena, int64_t, q->n_ids + 1);
    if (q->n_ids != 1 && (q->offset || q->length))
        return st_invalid("a part of %zu buffers", q->n_ids);
    for (int k = 0; k < n; k++) {
        struct dev_buffer *b = worker_buffer(q->ids[k]);
        if (!b) return worker_buffer_missing(q->ids[k]);
        if (q->offset > (uint64_t)b->bytes || q->length > (uint64_t)b->bytes - q->offset)
            return st_new(ST_OUT_OF_RANGE, "%llu bytes at %llu of a buffer of %lld",
                          (unsigned long long)q->length, (unsigned long long)q->offset,
                          (long long)b->bytes);
        bytes[k] = q->length ? (int64_t)q->length : b->bytes - (int64_t)q->offset;
    }
    RETURN_IF_ERR(worker_outputs_make(c, bytes, n, 0, &o));
    out->data = arena_array(&c->arena, Hlod__Wire__Blob *, n + 1);
    status_t st = ST_OK;
    for (int k = 0; k < n && !st; k++) {
        st = dev_get(worker_buffer(q->ids[k]), (int64_t)q->offset, bytes[k], o.p[k]);
        out->data[out->n_data++] = worker_outputs_blob(c, &o, k, bytes[k]);
    }
    frame_unmap(o.base, o.base_bytes);
    return st;
}

// ---- free

WORKER_ANSWER(free) {
    const Hlod__Wire__Free *q = (const Hlod__Wire__Free *)c->request;
    Hlod__Wire__FreeReply *r = reply;
    int64_t before = total;
    for (size_t k = 0; k < q->n_ids; k++)
        worker_buffer_drop(q->ids[k]);
    r->freed_bytes = before - total;
    return ST_OK;
}
