// SPDX-License-Identifier: Apache-2.0
// Who waits for an op, what it says to them, its end.
#include "scheduler/op/op.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/store/store.h"
#include "proto/weigh.h"
#include "scheduler/job/job_inside.h"
#include "scheduler/loop.h"

static struct op *new_op(struct sched *s, enum op_kind kind, const char *name) {
    struct op *op = arena_must_calloc(1, sizeof *op);
    op->kind = kind;
    op->s = s;
    op->start_ns = clock_ns();
    op->listed = true;
    memcpy(op->name, name, strlen(name) + 1);
    smap_put(&s->ops, str_of(op->name), op);
    return op;
}

bool op_wait(struct job *j, enum op_kind kind, const char *name, struct op **out) {
    struct op *op = smap_get(&j->s->ops, str_of(name));
    bool is_new = !op;
    if (is_new) op = new_op(j->s, kind, name);
    vec_push(&op->waiters, j);
    job_wait_op(j, op);
    *out = op;
    return is_new;
}

static struct op *of_task(struct task *t) {
    return (struct op *)((char *)t - offsetof(struct op, task));
}
static void placed(struct task *t) {
    struct op *op = of_task(t);
    op->slot = t->slot;
    op->placed(op);
}
static void failed(struct task *t, status_t st) {
    op_end(of_task(t), st);
}
void op_queue(struct op *op, const char *device, struct tenant *tenant, int32_t priority) {
    op->task = (struct task){.want = {.role = ROLE_COMPILE, .device = device},
                             .tenant = tenant,
                             .placed = placed,
                             .failed = failed,
                             .item = {.priority = priority}};
    task_queue(op->s, &op->task);
}

static void on_pool(void *arg) {
    struct op *op = arg;
    op->st = op->work(op);
}
static void on_loop(void *arg) {
    struct op *op = arg;
    status_t st = op->st;
    op->st = ST_OK;
    op->then(op, st);
}
void op_work(struct op *op, status_t (*work)(struct op *op),
             void (*then)(struct op *op, status_t st)) {
    op->work = work;
    op->then = then;
    loop_work(op->s->loop, on_pool, on_loop, op);
}

static void unlist(struct op *op) {
    if (op->listed) smap_del(&op->s->ops, str_of(op->name));
    op->listed = false;
}

// One that prepares sits where its waiters do. The last of them leaves it the place: it is taken,
// and the tenant pays, until the worker is done.
static struct worker *op_worker(const struct op *op) {
    return op->kind == OP_PREPARE ? pool_worker(op->s->pool, op->target_index) : op->slot.w;
}

void op_leave(struct op *op, struct job *j) {
    for (size_t i = 0; i < op->waiters.n; i++)
        if (op->waiters.v[i] == j) {
            memmove(op->waiters.v + i, op->waiters.v + i + 1,
                    (--op->waiters.n - i) * sizeof *op->waiters.v);
            break;
        }
    job_wait_op(j, NULL);
    if (op->waiters.n || op->ending) return;
    if (op->call) { // stop the worker; the reply, or the loss, ends the op
        unlist(op);
        if (op->kind == OP_PREPARE) op->slot = job_take_slot(j);
        pool_cancel(op_worker(op), op->call);
    } else if (task_waits(&op->task)) {
        task_drop(&op->task);
        op_end(op, ST_OK);
    } else if (op->look)
        op_end(op, ST_OK);
}

void op_end(struct op *op, status_t st) {
    unlist(op);
    slot_leave(op->s, &op->slot);
    if (op->remote_leave) op->remote_leave(op);
    op->ending = true;
    while (op->waiters.n) { // one at a time: waking one may make others leave
        struct job *j = op->waiters.v[0];
        memmove(op->waiters.v, op->waiters.v + 1, --op->waiters.n * sizeof *op->waiters.v);
        job_wait_op(j, NULL);
        if (st)
            job_finish(j, st_copy(st));
        else
            job_advance(j);
    }
    st_drop(st);
    st_drop(op->said);
    for (int i = 0; i < op->n_fds; i++)
        close(op->fds[i]);
    if (op->ingest) hlod__wire__ingest_reply__free_unpacked(op->ingest, NULL);
    if (op->compile) hlod__wire__compile_reply__free_unpacked(op->compile, NULL);
    model_unref(op->model);
    exe_unref(op->exe);
    if (op->tuning) hlod__v1__tuning__free_unpacked(op->tuning, NULL);
    vec_done(&op->waiters);
    arena_done(&op->arena);
    free(op);
}

void op_quarantined(const struct op *op, status_t why) {
    metric_add(M_CACHE_QUARANTINED, 1);
    log_event(LOG_WARN, "cache.quarantined", "key=%s why=\"%s\"", digest_to_hex(op->digest).z,
              st_message(why));
}

void op_tell(struct op *op, Hlod__V1__Event *e) {
    for (size_t i = 0; i < op->waiters.n; i++)
        job_event(op->waiters.v[i], e);
}

void op_deliver(struct op *op, enum job_row row, const struct delivery *d) {
    for (size_t i = 0; i < op->waiters.n; i++)
        job_deliver(op->waiters.v[i], row, d);
}

static void take_fds(struct op *op, struct frame *f) {
    for (int i = 0; i < f->n_fds; i++)
        op->fds[i] = frame_take_fd(f, i);
    op->n_fds = f->n_fds;
}
bool op_answered(struct op *op, struct frame *f, status_t lost) {
    struct worker *w = op->slot.w;
    op->call = 0;
    slot_leave(op->s, &op->slot);
    if (f)
        take_fds(op, f);
    else if (!op->waiters.n || !task_moved(&op->task, w, lost))
        op_end(op, lost);
    return f != NULL;
}

void *wire_reply(const ProtobufCMessageDescriptor *d, const struct frame *f, status_t *st) {
    if (!f) return NULL;
    uint8_t *r = weigh_unpack_or_null(d, f->body);
    const ProtobufCFieldDescriptor *field =
        protobuf_c_message_descriptor_get_field_by_name(d, "status");
    *st = r ? wire_status(*(Hlod__Wire__Status **)(void *)(r + field->offset))
            : st_internal("unreadable %s of a worker", d->short_name);
    return r;
}

status_t wire_blob_open(struct store *s, enum store_kind kind, struct digest d,
                        enum store_check check, int *fds, int *n_fds, Hlod__Wire__Blob *out) {
    int64_t offset, size;
    hlod__wire__blob__init(out);
    RETURN_IF_ERR(store_open_fd(s, kind, d, check, &fds[*n_fds], &offset, &size));
    out->fd = (uint32_t)++*n_fds;
    out->offset = (uint64_t)offset;
    out->size = (uint64_t)size;
    return ST_OK;
}

status_t blob_map(const Hlod__Wire__Blob *b, const int *fds, int n_fds, struct span *out,
                  void **out_base, size_t *out_base_bytes) {
    *out_base = NULL;
    *out_base_bytes = 0;
    if (!b || (b->fd == 0 && b->inline_bytes.len == 0) || (b->fd && b->size == 0)) {
        *out = (struct span){0};
        return ST_OK;
    }
    if (b->fd == 0) {
        *out = (struct span){b->inline_bytes.data, b->inline_bytes.len};
        return ST_OK;
    }
    if (b->fd > (uint32_t)n_fds || b->offset > INT64_MAX || b->size > INT64_MAX)
        return st_internal("a worker's blob names no descriptor");
    uint8_t *p;
    RETURN_IF_ERR(st_note(frame_map(fds[b->fd - 1], (int64_t)b->offset, (int64_t)b->size, false, &p,
                                    out_base, out_base_bytes),
                          "a worker's blob"));
    *out = (struct span){p, b->size};
    return ST_OK;
}
