// SPDX-License-Identifier: Apache-2.0
// What a training reads: the words of its program's spec, and its rows, from the store into memory
// that the device's worker reads, in the types and shapes of the program.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/store/store.h"
#include "scheduler/loop.h"
#include "scheduler/op/op.h"
#include "scheduler/records/blobs.h"
#include "scheduler/suite/training.h"
#include "scheduler/workers/memfds.h"

enum { ALIGN = 64 };
static struct sched *sched_of(const struct training *t) {
    return t->suite->s->sched;
}

status_t training_count(Hlod__V1__JobTensor *const *v, size_t n, int64_t *out) {
    for (size_t k = 0; k < n; k++) {
        if (!v[k]->n_shape)
            return st_because(ST_INVALID_ARGUMENT, SHAPE_MISMATCH,
                              "'%s' has no rows, it is one number: that is given as `whole`",
                              v[k]->name);
        if (k && v[k]->shape[0] != *out)
            return st_because(ST_INVALID_ARGUMENT, SHAPE_MISMATCH,
                              "'%s' has %" PRId64 " rows, '%s' %" PRId64
                              "; what all rows share is given as `whole`",
                              v[k]->name, v[k]->shape[0], v[0]->name, *out);
        *out = v[k]->shape[0];
    }
    if (n && *out > 0) return ST_OK;
    return st_because(ST_INVALID_ARGUMENT, SHAPE_MISMATCH, "there are no rows");
}

char *training_spec(struct arena *a, const Hlod__V1__Training *q, int64_t batch,
                    const struct training_program *p) {
    struct strbuf b = {0};
    strbuf_printf(&b, "loss=%s;batch=%" PRId64 ";rows=%" PRId64 ";slice=%d", q->loss, batch,
                  p->rows, TRAINING_SLICE);
    if (*q->optimizer) strbuf_printf(&b, ";optimizer=%s", q->optimizer);
    if (*q->schedule) strbuf_printf(&b, ";schedule=%s", q->schedule);
    if (!q->in_order) strbuf_puts(&b, ";shuffle=1");
    for (size_t k = 0; k < q->n_settings; k++)
        strbuf_printf(&b, ";%s", q->settings[k]);
    for (size_t k = 0; k < q->n_whole; k++) {
        strbuf_puts(&b, k ? "," : ";whole=");
        strbuf_glob(&b, q->whole[k]->name);
    }
    if (p->evaluates) strbuf_puts(&b, ";evaluate=1");
    char *text = arena_strndup(a, strbuf_cstr(&b), b.n);
    strbuf_done(&b);
    return text;
}
int64_t training_epoch(const struct training *t) {
    return t->train.steps_per_epoch * t->train.parts;
}

// ---- which tensor is whose

static bool is_label(const Hlod__Wire__TrainLeaf *l) {
    return !strcmp(l->role, "label");
}
static bool is_whole(const Hlod__Wire__TrainLeaf *l) {
    return !strcmp(l->role, "whole");
}
bool training_is_given(const Hlod__Wire__TrainLeaf *l) {
    return is_label(l) || is_whole(l) || !strcmp(l->role, "data");
}
static const char *given_name(const Hlod__Wire__TrainLeaf *l) {
    return is_label(l) ? "label" : l->of;
}
static const Hlod__V1__JobTensor *tensor_of(const struct training *t,
                                            const Hlod__Wire__TrainLeaf *l) {
    const struct training_program *p = t->at;
    Hlod__V1__JobTensor *const *v = is_whole(l) ? t->q->whole : p->given;
    size_t n = is_whole(l) ? t->q->n_whole : p->n_rows;
    for (size_t k = 0; k < n; k++)
        if (!strcmp(v[k]->name, given_name(l))) return v[k];
    return NULL;
}
static status_t not_given(const Hlod__Wire__TrainLeaf *l) {
    if (is_whole(l))
        return st_because(ST_INVALID_ARGUMENT, MISSING_INPUT,
                          "no value for input '%s', which has no rows: it is given as `whole`",
                          given_name(l));
    return st_because(ST_INVALID_ARGUMENT, MISSING_INPUT, "no rows for %s '%s'",
                      is_label(l) ? "the target" : "input", given_name(l));
}
static status_t check_names(const struct training *t) {
    const struct training_program *p = t->at;
    for (size_t k = 0; k < p->n_rows + t->q->n_whole; k++) {
        const char *name = k < p->n_rows ? p->given[k]->name : t->q->whole[k - p->n_rows]->name;
        bool known = false;
        for (size_t i = 0; i < p->n_leaves; i++)
            known |= training_is_given(p->leaves[i]) && !strcmp(name, given_name(p->leaves[i]));
        if (!known)
            return st_because(ST_INVALID_ARGUMENT, UNKNOWN_INPUT, "the model has no input '%s'",
                              name);
    }
    return ST_OK;
}

// The tensor has the leaf's shape, or all rows where that has a part's. Labels often come as one
// column, single numbers as a list of one.
static bool same_shape(const struct training_program *p, const Hlod__Wire__TrainLeaf *l,
                       const Hlod__V1__JobTensor *x) {
    const size_t n = l->n_dims;
    bool column = (is_label(l) || is_whole(l)) && x->n_shape == n + 1 && x->shape[n] == 1;
    bool same = x->n_shape == n || column;
    for (size_t d = 0; d < l->n_dims && same; d++)
        same = x->shape[d] == (d || is_whole(l) ? l->dims[d] : p->all_rows);
    return same;
}
MUST_CHECK static status_t other_shape(const struct training_program *p,
                                       const Hlod__Wire__TrainLeaf *l,
                                       const Hlod__V1__JobTensor *x) {
    struct strbuf b = {0};
    for (size_t d = 0; d < l->n_dims; d++)
        strbuf_printf(&b, "%s%" PRId64, d ? "x" : "",
                      d || is_whole(l) ? l->dims[d] : p->all_rows);
    strbuf_puts(&b, ", not ");
    for (size_t d = 0; d < x->n_shape; d++)
        strbuf_printf(&b, "%s%" PRId64, d ? "x" : "", x->shape[d]);
    status_t st = st_because(ST_INVALID_ARGUMENT, SHAPE_MISMATCH, "'%s' must be %s %s", x->name,
                             l->dtype, strbuf_cstr(&b));
    strbuf_done(&b);
    return st;
}

// ---- their numbers

// Elements of a tensor, from..from+n, and what they become.
struct piece {
    const Hlod__V1__JobTensor *x;
    const struct dtype_row *type, *as;
    int64_t from, n;
    bool whole; // these are all of them
};
MUST_CHECK static status_t read_bytes(struct store *s, const struct piece *e, uint8_t *to) {
    const Hlod__V1__JobTensor *x = e->x;
    const int64_t at = e->from * e->type->bytes, bytes = e->n * e->type->bytes;
    struct digest d;
    if (!*x->blob) {
        if (at + bytes > (int64_t)x->raw.len) return st_internal("unreadable suite");
        if (bytes) memcpy(to, x->raw.data + at, (size_t)bytes);
        return ST_OK;
    }
    if (!digest_parse(str_of(x->blob), &d)) return st_internal("unreadable suite");
    if (e->whole) return blob_said(store_read_into(s, STORE_BLOB, d, to, bytes), d);
    return blob_read_part(s, d, at, to, bytes);
}

// Numbers of another type become the program's where all of them fit.
static status_t read_converted(struct store *s, const struct piece *e, uint8_t *out) {
    const struct dtype_row *from = e->type, *to = e->as;
    if (from == to) return read_bytes(s, e, out);
    if (from->cls == NUM_RAW || from->cls == NUM_STRING)
        return st_because(ST_INVALID_ARGUMENT, DTYPE_MISMATCH, "'%s' must be %s, not %s",
                          e->x->name, to->name, from->name);
    uint8_t *bytes = malloc((size_t)(e->n * from->bytes) + 1);
    status_t st = bytes ? read_bytes(s, e, bytes) : st_oom();
    for (int64_t k = 0; k < e->n && !st; k++) {
        long double v = numbers_at(from, bytes, k);
        if (!numbers_put(to, out, k, v))
            st = st_because(ST_INVALID_ARGUMENT, DTYPE_MISMATCH,
                            "'%s': element %" PRId64 ", %Lg, is no %s", e->x->name, e->from + k, v,
                            to->name);
    }
    free(bytes);
    return st;
}
static status_t check_classes(const struct training_program *p, const struct piece *e,
                              const uint8_t *data) {
    for (int64_t k = 0; k < e->n && p->classes; k++) {
        int32_t v;
        memcpy(&v, data + k * (int64_t)sizeof v, sizeof v);
        if (v < 0 || v >= p->classes)
            return st_because(ST_INVALID_ARGUMENT, BAD_TENSOR_DATA,
                              "label: element %" PRId64 " is %d, there are classes 0 to %" PRId64,
                              e->from + k, v, p->classes - 1);
    }
    return ST_OK;
}
// Remembers the first element that is no finite number, for the case that a loss is none either.
static void look_for_odd(struct training *t, const struct piece *e, const uint8_t *data) {
    const bool f32 = e->as->cls == NUM_F32;
    if (!f32 && e->as->cls != NUM_F64 && e->as->cls != NUM_F16 && e->as->cls != NUM_BF16) return;
    for (int64_t k = 0; k < e->n && !*t->odd; k++) {
        float one = 0;
        if (f32) memcpy(&one, data + k * (int64_t)sizeof one, sizeof one);
        if (f32 && isfinite(one)) continue;
        double v = (double)numbers_at(e->as, data, k);
        if (!isfinite(v))
            snprintf(t->odd, sizeof t->odd, "; '%.80s': element %" PRId64 " is %g", e->x->name,
                     e->from + k, v);
    }
}
static status_t read_piece(struct training *t, const Hlod__Wire__TrainLeaf *l,
                           const struct piece *e, uint8_t *to) {
    RETURN_IF_ERR(read_converted(sched_store(sched_of(t)), e, to));
    look_for_odd(t, e, to);
    return is_label(l) ? check_classes(t->at, e, to) : ST_OK;
}

// ---- a part

// The leaf as an input of the job that puts it on the device, and its place in the payload.
static status_t place(const struct training *t, const Hlod__Wire__TrainLeaf *l, int64_t *total,
                      struct job_input *in) {
    const Hlod__V1__JobTensor *x = tensor_of(t, l);
    if (!x) return not_given(l);
    const struct dtype_row *type = numbers_dtype(str_of(l->dtype));
    if (!type || !same_shape(t->at, l, x)) return other_shape(t->at, l, x);
    *in = (struct job_input){.name = l->name,
                             .dtype = type,
                             .rank = (int32_t)l->n_dims,
                             .dims = l->dims,
                             .offset = *total,
                             .elements = 1};
    for (size_t d = 0; d < l->n_dims; d++)
        if (!sz_mul(in->elements, l->dims[d], &in->elements)) return other_shape(t->at, l, x);
    if (!sz_mul(in->elements, type->bytes, &in->size) ||
        !sz_add(*total, in->size + ALIGN - 1, total))
        return other_shape(t->at, l, x);
    *total &= ~(int64_t)(ALIGN - 1);
    return ST_OK;
}
static struct piece piece_of(const struct training *t, const Hlod__Wire__TrainLeaf *l,
                             const struct job_input *in, int64_t part) {
    const struct training_program *p = t->at;
    const Hlod__V1__JobTensor *x = tensor_of(t, l);
    const int64_t last = p->all_rows - p->rows;
    const int64_t first = part * p->rows < last ? part * p->rows : last;
    const int64_t row = p->rows && !is_whole(l) ? in->elements / p->rows : 0;
    const bool all = p->parts == 1 || is_whole(l);
    return (struct piece){
        x, numbers_dtype(str_of(x->dtype)), in->dtype, first * row, in->elements, all};
}
status_t training_rows_work(struct training *t) {
    struct training_program *p = t->at;
    struct pool *pool = sched_pool(sched_of(t));
    int64_t total = 0;
    uint8_t *to;
    if (!p->row_input) p->row_input = arena_zarray(&t->arena, struct job_input, p->n_leaves + 1);
    p->n_row_input = 0;
    for (size_t k = 0; k < p->n_leaves; k++)
        if (training_is_given(p->leaves[k]))
            RETURN_IF_ERR(place(t, p->leaves[k], &total, &p->row_input[p->n_row_input++]));

    RETURN_IF_ERR(memfds_take(pool_memfds(pool), pool_input_owner(pool),
                              hash64(t->suite->tenant, strlen(t->suite->tenant), 0), total + ALIGN,
                              &p->payload));
    RETURN_IF_ERR(memfd_memory(p->payload, &to));
    for (size_t k = 0, i = 0; k < p->n_leaves; k++) {
        const Hlod__Wire__TrainLeaf *l = p->leaves[k];
        if (!training_is_given(l)) continue;
        const struct job_input *in = &p->row_input[i++];
        const struct piece e = piece_of(t, l, in, p->part);
        RETURN_IF_ERR(read_piece(t, l, &e, to + in->offset));
    }
    return ST_OK;
}

// A label that is none would end a long training late.
static status_t check_labels(struct training *t) {
    const struct training_program *p = t->at;
    const Hlod__Wire__TrainLeaf *l = NULL;
    const struct job_input *in = NULL;
    for (size_t k = 0, i = 0; k < p->n_leaves; k++) {
        if (!training_is_given(p->leaves[k])) continue;
        if (is_label(p->leaves[k])) l = p->leaves[k], in = &p->row_input[i];
        i++;
    }
    if (!l) return ST_OK;
    uint8_t *to = malloc((size_t)in->size + 1);
    status_t st = to ? ST_OK : st_oom();
    for (int64_t part = 0; part < p->parts && !st; part++) {
        const struct piece e = piece_of(t, l, in, part);
        st = read_piece(t, l, &e, to);
    }
    free(to);
    return st;
}
status_t training_program_work(struct training *t) {
    const struct job_result *x = job_result(t->job);
    struct training_program *p = t->at;
    struct span program;
    void *base;
    size_t bytes;
    RETURN_IF_ERR(blob_map(x->train.program->program, x->fds, x->n_fds, &program, &base, &bytes));
    status_t st = blob_put(sched_store(sched_of(t)), sched_journal(sched_of(t)), t->suite->tenant,
                           program, &p->source);
    frame_unmap(base, bytes);
    if (st) return st;
    if (!p->evaluates) p->part = t->step / p->steps_per_epoch % p->parts;
    RETURN_IF_ERR(check_names(t));
    RETURN_IF_ERR(training_rows_work(t));
    return p->parts > 1 ? check_labels(t) : ST_OK;
}
