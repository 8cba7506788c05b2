// SPDX-License-Identifier: Apache-2.0
// What a training reads: the words of its program's spec, and its rows, from the store into memory
// that the device's worker reads, in the types and shapes of the program.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/store/store.h"
#include "scheduler/loop.h"
#include "scheduler/op/op.h"
#include "scheduler/records/blobs.h"
#include "scheduler/suite/training.h"
#include "scheduler/workers/memfds.h"

enum { ALIGN = 64 };

status_t training_count(Hlod__V1__JobTensor *const *v, size_t n, int64_t *out) {
    for (size_t k = 0; k < n; k++) {
        if (!v[k]->n_shape)
            return st_because(ST_INVALID_ARGUMENT, SHAPE_MISMATCH,
                              "'%s' has no rows: it is one number", v[k]->name);
        if (k && v[k]->shape[0] != *out)
            return st_because(ST_INVALID_ARGUMENT, SHAPE_MISMATCH,
                              "'%s' has %" PRId64 " rows, '%s' %" PRId64, v[k]->name,
                              v[k]->shape[0], v[0]->name, *out);
        *out = v[k]->shape[0];
    }
    if (n && *out > 0) return ST_OK;
    return st_because(ST_INVALID_ARGUMENT, SHAPE_MISMATCH, "there are no rows");
}

char *training_spec(struct arena *a, const Hlod__V1__Training *q, int64_t batch, int64_t rows,
                    bool evaluates) {
    struct strbuf b = {0};
    strbuf_printf(&b, "loss=%s;batch=%" PRId64 ";rows=%" PRId64 ";slice=%d", q->loss, batch, rows,
                  TRAINING_SLICE);
    if (*q->optimizer) strbuf_printf(&b, ";optimizer=%s", q->optimizer);
    if (*q->schedule) strbuf_printf(&b, ";schedule=%s", q->schedule);
    if (!q->in_order) strbuf_puts(&b, ";shuffle=1");
    for (size_t k = 0; k < q->n_settings; k++)
        strbuf_printf(&b, ";%s", q->settings[k]);
    if (evaluates) strbuf_puts(&b, ";evaluate=1");
    char *text = arena_strndup(a, strbuf_cstr(&b), b.n);
    strbuf_done(&b);
    return text;
}

// ---- rows

static bool is_rows(const Hlod__Wire__TrainLeaf *l) {
    return !strcmp(l->role, "data") || !strcmp(l->role, "label");
}
static const char *row_name(const Hlod__Wire__TrainLeaf *l) {
    return !strcmp(l->role, "label") ? "label" : l->of;
}
static const Hlod__V1__JobTensor *tensor_of(const struct training_program *p,
                                            const Hlod__Wire__TrainLeaf *l) {
    for (size_t k = 0; k < p->n_rows; k++)
        if (!strcmp(p->rows[k]->name, row_name(l))) return p->rows[k];
    return NULL;
}

// Labels often come as one column.
static bool same_shape(const Hlod__Wire__TrainLeaf *l, const Hlod__V1__JobTensor *x) {
    bool column = x->n_shape == l->n_dims + 1 && x->shape[l->n_dims] == 1;
    return (x->n_shape == l->n_dims || column) &&
           (!l->n_dims || !memcmp(x->shape, l->dims, l->n_dims * sizeof *l->dims));
}
static void put_shape(struct strbuf *b, const int64_t *dims, size_t n) {
    for (size_t k = 0; k < n; k++)
        strbuf_printf(b, "%s%" PRId64, k ? "x" : "", dims[k]);
}
MUST_CHECK static status_t other_shape(const Hlod__Wire__TrainLeaf *l,
                                       const Hlod__V1__JobTensor *x) {
    struct strbuf b = {0};
    put_shape(&b, l->dims, l->n_dims);
    strbuf_puts(&b, ", not ");
    put_shape(&b, x->shape, x->n_shape);
    status_t st = st_because(ST_INVALID_ARGUMENT, SHAPE_MISMATCH, "'%s' must be %s %s", x->name,
                             l->dtype, strbuf_cstr(&b));
    strbuf_done(&b);
    return st;
}

MUST_CHECK static status_t read_bytes(struct store *s, const Hlod__V1__JobTensor *x, uint8_t *to,
                                      int64_t bytes) {
    struct digest d;
    if (!*x->blob) {
        if ((int64_t)x->raw.len != bytes) return st_internal("unreadable suite");
        if (bytes) memcpy(to, x->raw.data, (size_t)bytes);
        return ST_OK;
    }
    if (!digest_parse(str_of(x->blob), &d)) return st_internal("unreadable suite");
    return blob_said(store_read_into(s, STORE_BLOB, d, to, bytes), d);
}

// Numbers of another type become the program's where all of them fit.
static status_t read_converted(struct store *s, const Hlod__V1__JobTensor *x,
                               const struct dtype_row *from, const struct dtype_row *to, int64_t n,
                               uint8_t *out) {
    if (from == to) return read_bytes(s, x, out, n * from->bytes);
    if (from->cls == NUM_RAW || from->cls == NUM_STRING)
        return st_because(ST_INVALID_ARGUMENT, DTYPE_MISMATCH, "'%s' must be %s, not %s", x->name,
                          to->name, from->name);
    uint8_t *bytes = malloc((size_t)(n * from->bytes) + 1);
    status_t st = bytes ? read_bytes(s, x, bytes, n * from->bytes) : st_oom();
    for (int64_t k = 0; k < n && !st; k++) {
        long double v = numbers_at(from, bytes, k);
        if (!numbers_put(to, out, k, v))
            st = st_because(ST_INVALID_ARGUMENT, DTYPE_MISMATCH,
                            "'%s': element %" PRId64 ", %Lg, is no %s", x->name, k, v, to->name);
    }
    free(bytes);
    return st;
}
static status_t check_classes(const struct training_program *p, const Hlod__Wire__TrainLeaf *l,
                              const uint8_t *data, int64_t n) {
    if (strcmp(l->role, "label") != 0 || !p->classes) return ST_OK;
    for (int64_t k = 0; k < n; k++) {
        int32_t v;
        memcpy(&v, data + k * (int64_t)sizeof v, sizeof v);
        if (v < 0 || v >= p->classes)
            return st_because(ST_INVALID_ARGUMENT, BAD_TENSOR_DATA,
                              "label: element %" PRId64 " is %d, there are classes 0 to %" PRId64,
                              k, v, p->classes - 1);
    }
    return ST_OK;
}

// The leaf as an input of the job that puts it on the device, and its place in the payload.
static status_t place(struct arena *a, const struct training_program *p,
                      const Hlod__Wire__TrainLeaf *l, int64_t *total, struct job_input *in) {
    const Hlod__V1__JobTensor *x = tensor_of(p, l);
    if (!x)
        return st_because(ST_INVALID_ARGUMENT, MISSING_INPUT, "no rows for %s '%s'",
                          strcmp(l->role, "label") ? "input" : "the target", row_name(l));
    const struct dtype_row *type = numbers_dtype(str_of(l->dtype));
    if (!type || !same_shape(l, x)) return other_shape(l, x);
    *in = (struct job_input){.name = arena_strdup(a, l->name),
                             .dtype = type,
                             .rank = (int32_t)l->n_dims,
                             .dims = l->dims,
                             .offset = *total,
                             .elements = 1};
    for (size_t d = 0; d < l->n_dims; d++)
        if (!sz_mul(in->elements, l->dims[d], &in->elements)) return other_shape(l, x);
    if (!sz_mul(in->elements, type->bytes, &in->size) ||
        !sz_add(*total, in->size + ALIGN - 1, total))
        return other_shape(l, x);
    *total &= ~(int64_t)(ALIGN - 1);
    return ST_OK;
}
static status_t check_names(const struct training_program *p) {
    for (size_t k = 0; k < p->n_rows; k++) {
        bool known = false;
        for (size_t i = 0; i < p->n_leaves; i++)
            known |= is_rows(p->leaves[i]) && !strcmp(p->rows[k]->name, row_name(p->leaves[i]));
        if (!known)
            return st_because(ST_INVALID_ARGUMENT, UNKNOWN_INPUT, "the model has no input '%s'",
                              p->rows[k]->name);
    }
    return ST_OK;
}

static status_t read_rows(struct training *t) {
    struct training_program *p = t->at;
    struct sched *s = t->suite->s->sched;
    int64_t total = 0;
    p->row_input = arena_zarray(&t->arena, struct job_input, p->n_leaves + 1);
    RETURN_IF_ERR(check_names(p));
    for (size_t k = 0; k < p->n_leaves; k++)
        if (is_rows(p->leaves[k]))
            RETURN_IF_ERR(
                place(&t->arena, p, p->leaves[k], &total, &p->row_input[p->n_row_input++]));

    uint8_t *to;
    struct pool *pool = sched_pool(s);
    RETURN_IF_ERR(memfds_take(pool_memfds(pool), pool_input_owner(pool),
                              hash64(t->suite->tenant, strlen(t->suite->tenant), 0), total + ALIGN,
                              &p->payload));
    RETURN_IF_ERR(memfd_memory(p->payload, &to));
    for (size_t k = 0, i = 0; k < p->n_leaves; k++) {
        const Hlod__Wire__TrainLeaf *l = p->leaves[k];
        if (!is_rows(l)) continue;
        const struct job_input *in = &p->row_input[i++];
        const Hlod__V1__JobTensor *x = tensor_of(p, l);
        RETURN_IF_ERR(read_converted(sched_store(s), x, numbers_dtype(str_of(x->dtype)), in->dtype,
                                     in->elements, to + in->offset));
        RETURN_IF_ERR(check_classes(p, l, to + in->offset, in->elements));
    }
    return ST_OK;
}

status_t training_rows_work(struct training *t) {
    const struct job_result *x = job_result(t->job);
    struct sched *s = t->suite->s->sched;
    struct span program;
    void *base;
    size_t bytes;
    RETURN_IF_ERR(blob_map(x->train.program->program, x->fds, x->n_fds, &program, &base, &bytes));
    status_t st =
        blob_put(sched_store(s), sched_journal(s), t->suite->tenant, program, &t->at->source);
    frame_unmap(base, bytes);
    return st ? st : read_rows(t);
}
