// SPDX-License-Identifier: Apache-2.0
// What a training writes: checkpoints (safetensors) and the trained model, as blobs of the tenant.
#include <stdlib.h>
#include <string.h>

#include "base/store/store.h"
#include "proto/safetensors.h"
#include "scheduler/error.h"
#include "scheduler/loop.h"
#include "scheduler/op/op.h"
#include "scheduler/records/blobs.h"
#include "scheduler/suite/training.h"

// One of an attempt before may be gone: then it begins anew.
status_t training_from_work(struct training *t) {
    struct sched *s = t->suite->s->sched;
    status_t st = blob_check(sched_store(s), sched_journal(s), t->from);
    if (!st || !t->own_checkpoint) return st;
    st_drop(st);
    t->from = (struct digest){0};
    return ST_OK;
}

static status_t write_all(struct store *s, const struct safetensor *v, size_t n, struct digest *out,
                          uint64_t *out_file) {
    struct strbuf head = {0};
    struct store_writer *w;
    status_t st = safetensors_head(&head, v, n, NULL);
    if (!st) st = error_of_store(store_write_begin(s, STORE_BLOB, &w));
    if (st) {
        strbuf_done(&head);
        return st;
    }
    st = store_write(w, head.p, head.n);
    for (size_t k = 0; k < n && !st; k++)
        if (v[k].data.n) st = store_write(w, v[k].data.p, v[k].data.n);
    strbuf_done(&head);
    if (st)
        store_write_abort(w);
    else
        st = store_write_end(w, out, out_file);
    return error_of_store(st);
}

status_t training_keep_work(struct training *t) {
    const struct job_result *x = job_result(t->job);
    struct sched *s = t->suite->s->sched;
    const struct training_program *p = &t->train;
    struct arena a = {0};
    size_t n = x->reply->n_outputs, mapped = 0;
    struct safetensor *v = arena_zarray(&a, struct safetensor, n + 1);
    void **base = arena_zarray(&a, void *, n + 1);
    size_t *bytes = arena_zarray(&a, size_t, n + 1);
    status_t st = n == p->n_state ? ST_OK : st_internal("the state has %zu parts", n);
    for (; mapped < n && !st; mapped++) {
        const Hlod__Wire__TrainLeaf *l = p->leaves[mapped];
        struct span data = {0};
        st = blob_map(x->reply->outputs[mapped]->data, x->fds, x->n_fds, &data, &base[mapped],
                      &bytes[mapped]);
        v[mapped] = (struct safetensor){l->key, l->dtype, (int32_t)l->n_dims, l->dims, data};
        if (!st && data.n != l->size)
            st = st_internal("'%s' has %zu bytes, not %llu", l->key, data.n,
                             (unsigned long long)l->size);
    }
    if (!st) st = write_all(sched_store(s), v, n, &t->now.digest, &t->now.file);
    if (!st) st = blob_own(sched_journal(s), t->suite->tenant, t->now.digest);
    for (size_t k = 0; k < mapped; k++)
        frame_unmap(base[k], bytes[k]);
    arena_done(&a);
    return st;
}

struct drop {
    struct suites *s;
    struct unused_blob blob;
};
static void drop_work(void *arg) {
    const struct drop *d = arg;
    blob_remove(sched_store(d->s->sched), sched_journal(d->s->sched), &d->blob);
}
static void drop_recorded(void *ctx, UNUSED uint32_t n) {
    struct drop *d = ctx;
    if (d->s->stopping) // a collection of unused blobs finds it
        free(d);
    else
        loop_work(sched_loop(d->s->sched), drop_work, free, d);
}
void training_drop(struct suites *s, const struct training_kept *k) {
    struct drop *d = arena_must_calloc(1, sizeof *d);
    *d = (struct drop){s, {.digest = k->digest, .file = k->file}};
    suite_save_then(s, drop_recorded, d, 0);
}

status_t training_model_work(struct training *t) {
    const struct job_result *x = job_result(t->job);
    struct sched *s = t->suite->s->sched;
    struct span model;
    void *base;
    size_t bytes;
    RETURN_IF_ERR(blob_map(x->train.model, x->fds, x->n_fds, &model, &base, &bytes));
    status_t st = blob_put(sched_store(s), sched_journal(s), t->suite->tenant, model, &t->model);
    frame_unmap(base, bytes);
    return st;
}
