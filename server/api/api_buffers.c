// SPDX-License-Identifier: Apache-2.0
// Resident buffers: put, get, list, free, renew, tuples. Putting and getting are jobs, since a
// worker does them; the rest is the scheduler's table alone.
#include <string.h>

#include "base/clock.h"
#include "proto/message.h"
#include "scheduler/cluster/cluster.h"
#include "scheduler/records/buffers.h"
#include "server/api/api_job.h"
#include "server/relay.h"

// ---- a handle as a message

static const char *state_name(enum handle_state s) {
    static const char *const names[] = {"ready", "busy", "lost", "lost"};
    return names[s];
}

static char *own_node(const struct call *c) {
    return (char *)(uintptr_t)(c->api->cluster ? cluster_node(c->api->cluster) : "");
}

static Hlod__V1__Buffer *array_message(struct call *c, const struct buffer *b, const char *handle,
                                       const char *state) {
    struct pool *pool = sched_pool(c->api->sched);
    Hlod__V1__Buffer *m = message_new(&c->arena, &hlod__v1__buffer__descriptor);
    m->handle = arena_strdup(&c->arena, handle);
    m->name = arena_strdup(&c->arena, b->name);
    m->dtype = (char *)(uintptr_t)b->dtype->name;
    m->shape = arena_dup_array(&c->arena, b->dims, b->rank);
    m->n_shape = (size_t)b->rank;
    m->bytes = b->bytes;
    m->device = arena_strdup(&c->arena, pool_place(pool_worker(pool, b->worker)).name);
    m->state = (char *)(uintptr_t)state;
    m->node = own_node(c);
    return m;
}

static Hlod__V1__Buffer *message(struct call *c, const struct handle *h) {
    int64_t now = clock_ns();
    const char *state = state_name(h->state);
    Hlod__V1__Buffer *m = NULL;
    if (!h->tuple) {
        m = array_message(c, h->leaf[0], h->text, state);
    } else {
        m = message_new(&c->arena, &hlod__v1__buffer__descriptor);
        m->handle = arena_strdup(&c->arena, h->text);
        m->tuple = true;
        m->node = own_node(c);
        m->state = (char *)(uintptr_t)state;
        m->elements = arena_array(&c->arena, Hlod__V1__Buffer *, h->n + 1);
        for (; m->n_elements < h->n; m->n_elements++) {
            const char *text = arena_printf(&c->arena, "%s.%zu", h->text, m->n_elements);
            m->elements[m->n_elements] = array_message(c, h->leaf[m->n_elements], text, state);
            m->bytes += h->leaf[m->n_elements]->bytes;
            m->device = m->elements[m->n_elements]->device;
        }
    }
    m->lease_ms = h->lease_ms;
    m->idle_ms = (now - h->used_ns) / CLOCK_MS;
    m->left_ms = h->lease_ms < 0 ? -1 : h->lease_ms - m->idle_ms;
    if (h->lease_ms >= 0 && m->left_ms < 0) m->left_ms = 0;
    return m;
}

static struct buffers *table(struct call *c) {
    return sched_buffers(c->api->sched);
}
MUST_CHECK static status_t find(struct call *c, const char *handle, struct handle **h, int *leaf) {
    return buffers_find(table(c), c->principal.tenant, handle, clock_ns(), h, leaf);
}

// ---- put

static status_t put_done(struct call *c, const struct job_result *r, const ProtobufCMessage **out) {
    Hlod__V1__PutBufferReply *m = message_new(&c->arena, &hlod__v1__put_buffer_reply__descriptor);
    m->buffers = arena_array(&c->arena, Hlod__V1__Buffer *, r->put.n_handles + 1);
    for (size_t k = 0; k < (r->put.tuple ? 1 : r->put.n_handles); k++) {
        struct handle *h;
        int leaf;
        RETURN_IF_ERR(find(c, r->put.tuple ? r->put.tuple : r->put.handles[k], &h, &leaf));
        m->buffers[m->n_buffers++] = message(c, h);
    }
    *out = &m->base;
    return ST_OK;
}

status_t api_put_buffer(struct call *c) {
    const Hlod__V1__PutBufferRequest *q = call_request(c);
    if (!c->n_inputs) return st_invalid("inputs: nothing to put");
    for (size_t k = 0; k < c->n_inputs; k++)
        if (c->inputs[k].handle)
            return st_because(ST_INVALID_ARGUMENT, BAD_TENSOR_DATA,
                              "inputs[%zu] is a buffer already; tuples are made by MakeTuple", k);
        else if (!c->inputs[k].dtype->bytes)
            return st_because(ST_INVALID_ARGUMENT, DTYPE_MISMATCH,
                              "inputs[%zu]: no device holds strings", k);
    struct job_spec spec = api_job_spec(c, JOB_PUT);
    spec.device = q->device;
    spec.put.lease_ms = q->lease_ms;
    spec.put.tuple = q->tuple;
    return api_start_job(c, &spec, put_done);
}

// ---- get

static status_t got(struct call *c, const struct job_result *r, const ProtobufCMessage **out) {
    Hlod__V1__GetBufferReply *m = message_new(&c->arena, &hlod__v1__get_buffer_reply__descriptor);
    m->buffer = c->state;
    RETURN_IF_ERR(api_take_outputs(c, r));
    if (r->get.part && !c->wants_file) {
        m->part =
            (ProtobufCBinaryData){c->outputs[0].data.n, (uint8_t *)(uintptr_t)c->outputs[0].data.p};
        c->n_outputs = 0;
    }
    *out = &m->base;
    return ST_OK;
}

static status_t choose_part(struct call *c, const struct handle *h, int leaf,
                            struct job_spec *spec) {
    const Hlod__V1__GetBufferRequest *q = call_request(c);
    spec->get.offset = q->offset;
    spec->get.bytes = q->length;
    if (!c->wants_file) return ST_OK;
    if (h->tuple && leaf < 0)
        return st_invalid("the bytes of a tuple: ask for its elements, %s.0 and so on", h->text);
    int64_t total = h->leaf[leaf < 0 ? 0 : leaf]->bytes;
    c->file = (struct call_file){.fd = -1, .bytes = total, .total = total};
    RETURN_IF_ERR(call_range(c->range, &c->file));
    if (c->file.part) {
        spec->get.offset = c->file.offset;
        spec->get.bytes = c->file.bytes;
    }
    return ST_OK;
}

status_t api_get_buffer(struct call *c) {
    const Hlod__V1__GetBufferRequest *q = call_request(c);
    struct job_spec spec = {.kind = JOB_GET, .get.handle = q->handle};
    struct handle *h = NULL;
    int leaf;
    RETURN_IF_ERR(find(c, q->handle, &h, &leaf));
    RETURN_IF_ERR(choose_part(c, h, leaf, &spec));
    c->state =
        leaf < 0 ? message(c, h) : array_message(c, h->leaf[leaf], q->handle, state_name(h->state));
    return api_start_job(c, &spec, got);
}

// ---- the table

status_t api_list_buffers(struct call *c) {
    struct buffers *b = table(c);
    struct pool *pool = sched_pool(c->api->sched);
    const char *tenant = c->principal.tenant;
    Hlod__V1__ListBuffersReply *m =
        message_new(&c->arena, &hlod__v1__list_buffers_reply__descriptor);
    size_t n = 0;
    for (const struct handle *h = NULL; (h = buffers_next(b, tenant, h));)
        n++;
    m->buffers = arena_array(&c->arena, Hlod__V1__Buffer *, n + 1);
    for (const struct handle *h = NULL; (h = buffers_next(b, tenant, h));)
        m->buffers[m->n_buffers++] = message(c, h);
    m->use = arena_array(&c->arena, Hlod__V1__BufferUse *, pool_size(pool) + 1);
    for (int i = 0; i < pool_size(pool); i++) {
        struct place_worker w = pool_place(pool_worker(pool, i));
        const Hlod__Wire__Hello *hello = worker_hello(pool_worker(pool, i));
        if (w.role != ROLE_DEVICE || w.relief) continue; // of the same name, without buffers
        Hlod__V1__BufferUse *u = m->use[m->n_use++] =
            message_new(&c->arena, &hlod__v1__buffer_use__descriptor);
        u->device = arena_strdup(&c->arena, w.name);
        u->node = own_node(c);
        u->quota_bytes = buffers_quota(b, hello ? hello->memory_bytes : 0);
        buffers_used(b, tenant, i, &u->bytes, &u->buffers);
    }
    return relay_list(c, m);
}

status_t api_free_buffer(struct call *c) {
    const Hlod__V1__FreeBufferRequest *q = call_request(c);
    Hlod__V1__FreeBufferReply m = HLOD__V1__FREE_BUFFER_REPLY__INIT;
    RETURN_IF_ERR(buffers_free(table(c), c->principal.tenant, q->handle, &m.bytes));
    m.handle = q->handle;
    return call_reply(c, &m.base);
}

status_t api_renew_buffer(struct call *c) {
    const Hlod__V1__RenewBufferRequest *q = call_request(c);
    struct handle *h = NULL;
    RETURN_IF_ERR(
        buffers_renew(table(c), c->principal.tenant, q->handle, q->lease_ms, clock_ns(), &h));
    sched_watch_leases(c->api->sched);
    return call_reply(c, &message(c, h)->base);
}

status_t api_make_tuple(struct call *c) {
    const Hlod__V1__MakeTupleRequest *q = call_request(c);
    enum { MAX_ELEMENTS = 4096 };
    struct buffer **v = NULL;
    size_t n = 0;
    for (int pass = 0; pass < 2; pass++) { // count, then collect
        n = 0;
        for (size_t k = 0; k < q->n_elements; k++) {
            struct handle *h;
            int leaf;
            RETURN_IF_ERR(find(c, q->elements[k], &h, &leaf));
            for (size_t i = 0; i < h->n; i++) {
                if (leaf >= 0 && leaf != (int)i) continue;
                if (v) v[n] = h->leaf[i];
                n++;
            }
        }
        if (n > MAX_ELEMENTS || q->n_elements > MAX_ELEMENTS)
            return st_invalid("a tuple has at most %d elements", MAX_ELEMENTS);
        if (!v) v = arena_array(&c->arena, struct buffer *, n + 1);
    }

    for (size_t i = 1; i < n; i++)
        if (v[i]->worker != v[0]->worker)
            return st_because(ST_FAILED_PRECONDITION, BUFFERS_APART,
                              "the elements lie in different devices");
    if (!n) return st_invalid("elements: a tuple of nothing");
    RETURN_IF_ERR(buffers_room(table(c), c->principal.tenant, n));
    struct handle *h =
        buffers_name(table(c), c->principal.tenant, v, n, true, q->lease_ms, clock_ns());
    sched_watch_leases(c->api->sched);
    return call_reply(c, &message(c, h)->base);
}
