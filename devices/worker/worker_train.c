// SPDX-License-Identifier: Apache-2.0
// TRAIN and TRAINED: a model as the program that trains it, with what its state begins with; and a
// checkpoint as the model's file with new weights.
#include <string.h>
#include <unistd.h>

#include "base/span.h"
#include "compiler/frontend/hlo/hlo_proto.h"
#include "compiler/train/model.h"
#include "devices/worker/worker_calls.h"
#include "proto/reason.h"

enum { ALIGN = 64 };
static Hlod__Wire__TrainLeaf *leaf_message(struct arena *a, const struct train_leaf *l) {
    Hlod__Wire__TrainLeaf *m = message_new(a, &hlod__wire__train_leaf__descriptor);
    m->name = arena_strdup(a, l->name);
    m->role = (char *)(uintptr_t)train_role_name(l->role);
    if (l->of) m->of = arena_strdup(a, l->of);
    m->key = arena_strdup(a, l->key);
    m->still = l->still;
    m->dtype = (char *)(uintptr_t)dtype_name(l->shape->dtype);
    m->n_dims = (size_t)l->shape->rank;
    m->dims = arena_dup_array(a, l->shape->dims, l->shape->rank);
    return m;
}

struct made {
    struct hlo_module *m;
    struct train_program p;
    struct ingest_result r;
    struct span source, state;
    struct safetensor *saved;
    size_t n_saved;
};
// The leaves' values, one behind the other, into a memfd of the reply.
static status_t put_values(struct worker_call *c, const struct made *t,
                           Hlod__Wire__TrainReply *out) {
    int64_t total = 0;
    for (int32_t k = 0; k < t->p.n_leaves; k++) {
        Hlod__Wire__TrainLeaf *l = out->leaves[k];
        if (!train_leaf_kept(&t->p, k)) continue;
        l->offset = (uint64_t)total;
        l->size = (uint64_t)shape_bytes(t->p.leaves[k].shape);
        if (!sz_add(total, (int64_t)l->size + ALIGN - 1, &total))
            return st_because(ST_INVALID_ARGUMENT, LIMIT_EXCEEDED, "the state is too large");
        total &= ~(int64_t)(ALIGN - 1);
    }

    int fd;
    uint8_t *map;
    void *base;
    size_t bytes;
    RETURN_IF_ERR(frame_memfd("hlod-state", total, &fd));
    c->reply_fds[c->n_reply_fds++] = fd;
    RETURN_IF_ERR(frame_map(fd, 0, total, true, &map, &base, &bytes));
    status_t st = ST_OK;
    for (int32_t k = 0; k < t->p.n_leaves && !st; k++) {
        const struct train_leaf *l = &t->p.leaves[k];
        struct span data;
        if (!train_leaf_kept(&t->p, k)) continue;
        uint8_t *to = map + out->leaves[k]->offset;
        if (!t->state.n || k >= t->p.n_state) { // what is frozen stays the model's
            train_leaf_initial(l, &t->r, t->source, to);
            continue;
        }
        st = st_note(train_leaf_saved(l, t->saved, t->n_saved, &data), "the checkpoint");
        if (!st && data.n != out->leaves[k]->size)
            st = st_invalid("the checkpoint: '%s' has %zu bytes", l->key, data.n);
        if (!st) memcpy(to, data.p, data.n);
        int32_t step;
        if (!st && l->role == TRAIN_STEP && data.n == sizeof step) {
            memcpy(&step, data.p, sizeof step);
            out->step = step;
        }
    }
    frame_unmap(base, bytes);
    out->values = message_new(&c->arena, &hlod__wire__blob__descriptor);
    out->values->fd = (uint32_t)c->n_reply_fds;
    out->values->size = (uint64_t)total;
    return st;
}

static status_t reply_program(struct worker_call *c, const struct made *t,
                              const struct train_spec *spec, Hlod__Wire__TrainReply *out) {
    struct strbuf b = {0};
    status_t st = hlo_proto_write(t->m, &b);
    if (!st) st = worker_call_put_blob(c, strbuf_cstr(&b), b.n, &out->program);
    strbuf_done(&b);
    if (st) return st;

    out->leaves = arena_array(&c->arena, Hlod__Wire__TrainLeaf *, t->p.n_leaves + 1);
    for (int32_t k = 0; k < t->p.n_leaves; k++)
        out->leaves[out->n_leaves++] = leaf_message(&c->arena, &t->p.leaves[k]);
    out->n_state = (uint32_t)t->p.n_state;
    out->accuracy = t->p.accuracy;
    out->steps_per_epoch = t->p.steps_per_epoch;
    out->classes = t->p.classes;
    out->slice = spec->slice;
    return put_values(c, t, out);
}

WORKER_ANSWER(train) {
    const Hlod__Wire__Train *q = (const Hlod__Wire__Train *)c->request;
    struct frontend_limits limits = worker_limits(q->limits);
    struct train_spec spec;
    struct made t = {0};
    RETURN_IF_ERR(train_spec_parse(&c->arena, str_of(q->spec), &spec));
    RETURN_IF_ERR(worker_call_blob(c, q->source, &t.source));
    RETURN_IF_ERR(worker_call_blob(c, q->state, &t.state));
    if (t.state.n)
        RETURN_IF_ERR(st_note(safetensors_read(&c->arena, t.state, &t.saved, &t.n_saved, NULL),
                              "the checkpoint"));

    struct train_rows *rows = arena_array(&c->arena, struct train_rows, q->n_rows + 1);
    for (size_t k = 0; k < q->n_rows; k++)
        rows[k] =
            (struct train_rows){q->rows[k]->name, (int32_t)q->rows[k]->n_dims, q->rows[k]->dims};
    RETURN_IF_ERR(train_model(&c->arena, *q->format ? q->format : NULL, t.source, &limits, rows,
                              q->n_rows, &spec, worker_compile_target(), &t.r, &t.m, &t.p));
    status_t st = st_note(train_check_saved(&t.p, t.saved, t.n_saved), "the checkpoint");
    if (!st) st = reply_program(c, &t, &spec, reply);
    hlo_module_free(t.m);
    return st;
}

WORKER_ANSWER(trained) {
    Hlod__Wire__TrainedReply *out = reply;
    const Hlod__Wire__Trained *q = (const Hlod__Wire__Trained *)c->request;
    struct frontend_limits limits = worker_limits(q->limits);
    struct span source, state;
    struct strbuf b = {0};
    RETURN_IF_ERR(worker_call_blob(c, q->source, &source));
    RETURN_IF_ERR(worker_call_blob(c, q->state, &state));
    status_t st = train_with_weights(*q->format ? q->format : NULL, source, state, &limits, &b);
    if (!st) st = worker_call_put_blob(c, strbuf_cstr(&b), b.n, &out->model);
    strbuf_done(&b);
    return st;
}
