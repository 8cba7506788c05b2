// SPDX-License-Identifier: Apache-2.0
// The jobs PUT and GET.
//
//   PUT: a place -> quota -> PUT -> handles        GET: found -> a place where it lies -> GET
#include "scheduler/job/job_buffers.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/metrics.h"
#include "proto/message.h"
#include "scheduler/job/job_call.h"
#include "scheduler/job/job_run.h"
#include "scheduler/loop.h"
#include "scheduler/workers/memfds.h"

// ---- put

const char *job_handle(struct job *j, struct buffer *const *b, size_t n, bool tuple,
                       int64_t lease_ms) {
    struct handle *h =
        buffers_name(sched_buffers(j->s), j->tenant->name, b, n, tuple, lease_ms, clock_ns());
    return arena_strdup(&j->arena, h->text);
}

static void name_put(struct job *j, struct hold *h) {
    size_t n = h->made.n;
    const char **handles = arena_zarray(&j->arena, const char *, n + 1);
    int64_t lease_ms = j->spec->put.lease_ms;
    struct job_result r = j->r;
    r.put.handles = handles;
    r.put.n_handles = n;
    if (j->spec->put.tuple) r.put.tuple = job_handle(j, h->made.v, n, true, lease_ms);
    for (size_t i = 0; i < n; i++) {
        vec_push(&j->kept->buffers, buffer_ref(h->made.v[i]));
        if (!r.put.tuple) handles[i] = job_handle(j, &h->made.v[i], 1, false, lease_ms);
    }
    job_answer(j, &r);
    sched_watch_leases(j->s);
}

static void on_put(void *ctx, struct frame *f, status_t lost) {
    struct run_call *c = ctx;
    struct job *j = c->j;
    status_t st = lost;
    if (f && f->type != HLOD__WIRE__TYPE__TYPE_PUT_REPLY) return;
    hlod__wire__put_reply__free_unpacked(wire_reply(&hlod__wire__put_reply__descriptor, f, &st),
                                         NULL);
    hold_settle(c->hold, !st, NULL, 0);
    for (size_t i = 0; i < c->hold->made.n && !st && j; i++) {
        const struct job_input *in = &j->inputs[i];
        buffer_fill(c->hold->made.v[i], in->name, in->dtype, in->rank, in->dims);
    }
    if (!st && !j) hold_abandon(c->hold);
    if (!st && j) name_put(j, c->hold);
    j = job_call_ended(c, f, st);
    if (!j) return;
    job_timing(j, "put", clock_ns() - j->sent_ns);
    job_finish(j, st);
}

status_t put_want(const struct job *j, struct task *t) {
    t->want.device = j->device ? j->device : "";
    return ST_OK;
}

status_t put_send(struct job *j) {
    struct worker *w = j->slot.w;
    size_t n = j->spec->n_inputs;
    Hlod__Wire__Put m = HLOD__WIRE__PUT__INIT;
    m.ids = arena_array(&j->arena, uint64_t, n + 1);
    m.tensors = arena_array(&j->arena, Hlod__Wire__WireTensor *, n + 1);
    struct run_call *c = job_call_new(j);
    c->hold = hold_new(j);
    for (size_t i = 0; i < n; i++) {
        struct buffer *x;
        status_t st = buffers_reserve(sched_buffers(j->s), j->tenant->name, worker_index(w),
                                      j->slot.epoch, device_memory(w), j->inputs[i].size, 0, &x);
        if (st) {
            job_call_drop(c);
            return st;
        }
        vec_push(&c->hold->made, x);
        m.ids[m.n_ids++] = x->id;
        m.tensors[m.n_tensors++] = job_wire_input(j, &j->inputs[i]);
        c->flight_bytes += j->inputs[i].size;
    }
    metric_add(M_DEVICE_BYTES_IN, c->flight_bytes);
    job_call_send(c, HLOD__WIRE__TYPE__TYPE_PUT, &m.base, &j->spec->payload_fd,
                  j->spec->payload_fd >= 0, on_put);
    return ST_OK;
}

// ---- get

static void get_result(struct job *j) {
    size_t n = j->kept->buffers.n;
    const char **names = arena_array(&j->arena, const char *, n + 1);
    Hlod__Wire__RunReply *r = message_new(&j->arena, &hlod__wire__run_reply__descriptor);
    r->outputs = arena_array(&j->arena, Hlod__Wire__WireTensor *, n + 1);
    for (; r->n_outputs < n; r->n_outputs++) {
        const struct buffer *b = j->kept->buffers.v[r->n_outputs];
        Hlod__Wire__WireTensor *t = r->outputs[r->n_outputs] =
            message_new(&j->arena, &hlod__wire__wire_tensor__descriptor);
        t->dtype = (char *)(uintptr_t)b->dtype->name;
        t->dims = b->dims;
        t->n_dims = (size_t)b->rank;
        t->data = j->reply.get->data[r->n_outputs];
        names[r->n_outputs] = b->name;
        metric_add(M_DEVICE_BYTES_OUT, t->data ? (int64_t)t->data->size : 0);
    }

    int64_t offset = j->spec->get.offset, bytes = j->spec->get.bytes;
    struct job_result done = j->r;
    done.reply = r;
    job_name_outputs(j, names, n, &done);
    done.get.part = offset || bytes;
    done.get.part_bytes = bytes ? bytes : j->kept->buffers.v[0]->bytes - offset;
    job_answer(j, &done);
}

static void on_get(void *ctx, struct frame *f, status_t lost) {
    struct run_call *c = ctx;
    if (f && f->type != HLOD__WIRE__TYPE__TYPE_GET_REPLY) return;
    struct job *j = job_call_ended(c, f, lost);
    if (!j) return;
    status_t st = lost;
    Hlod__Wire__GetReply *r = wire_reply(&hlod__wire__get_reply__descriptor, f, &st);
    if (!st && r->n_data != j->kept->buffers.n)
        st =
            st_internal("the worker sent %zu buffers, expected %zu", r->n_data, j->kept->buffers.n);
    if (r) job_deliver(j, ROW_REPLY, &(struct delivery){.reply = &r->base});
    job_timing(j, "get", clock_ns() - j->sent_ns);
    if (!st) get_result(j);
    job_finish(j, st);
}

// Not there any more: the handle says why, as whoever asks next would hear.
static status_t why_lost(const struct job *j) {
    struct handle *h;
    int leaf;
    RETURN_IF_ERR(buffers_find(sched_buffers(j->s), j->tenant->name, j->spec->get.handle,
                               clock_ns(), &h, &leaf));
    return st_internal("a buffer is not where its handle says");
}

status_t get_lost_buffers(const struct job *j) {
    for (size_t i = 0; i < j->kept->buffers.n; i++)
        if (!buffer_alive(j->s, j->kept->buffers.v[i])) return why_lost(j);
    return ST_OK;
}

status_t get_want(const struct job *j, struct task *t) {
    t->want.device = "";
    t->want.pinned = j->kept->buffers.v[0]->worker + 1;
    return ST_OK;
}

status_t get_send(struct job *j) {
    RETURN_IF_ERR(get_lost_buffers(j));
    Hlod__Wire__Get m = HLOD__WIRE__GET__INIT;
    m.offset = (uint64_t)j->spec->get.offset;
    m.length = (uint64_t)j->spec->get.bytes;
    m.ids = arena_array(&j->arena, uint64_t, j->kept->buffers.n + 1);
    for (size_t i = 0; i < j->kept->buffers.n; i++)
        m.ids[m.n_ids++] = j->kept->buffers.v[i]->id;
    job_call_send(job_call_new(j), HLOD__WIRE__TYPE__TYPE_GET, &m.base, NULL, 0, on_get);
    return ST_OK;
}

static status_t check_part(struct job *j) {
    int64_t offset = j->spec->get.offset, n = j->spec->get.bytes,
            all = j->kept->buffers.v[0]->bytes;
    if (!offset && !n) return ST_OK;
    if (j->kept->buffers.n != 1) return st_invalid("parts are of an array, not of a tuple");
    if (offset < 0 || n < 0 || offset > all || n > all - offset)
        return st_new(ST_OUT_OF_RANGE, "%lld bytes at %lld of a buffer of %lld", (long long)n,
                      (long long)offset, (long long)all);
    return ST_OK;
}

status_t get_start(struct job *j, UNUSED bool *later) {
    struct handle *h;
    int leaf;
    RETURN_IF_ERR(buffers_find(sched_buffers(j->s), j->tenant->name, j->spec->get.handle,
                               clock_ns(), &h, &leaf));
    for (size_t i = 0; i < h->n; i++)
        if (leaf < 0 || leaf == (int)i) vec_push(&j->kept->buffers, buffer_ref(h->leaf[i]));
    sched_watch_leases(j->s);
    if (!j->kept->buffers.n) return st_invalid("the tuple has no elements");
    RETURN_IF_ERR(check_part(j));
    job_deliver(j, ROW_BUFFERS, &(struct delivery){0});
    return ST_OK;
}

void kept_free(struct job *j) {
    for (size_t i = 0; i < j->kept->buffers.n; i++)
        buffer_unref(j->kept->buffers.v[i]);
    vec_done(&j->kept->buffers);
}
