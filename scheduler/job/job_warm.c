// SPDX-License-Identifier: Apache-2.0
// A WARM job's own rows (job_table.c): a model is compiled before anybody runs it; one whose runs
// will be joined for one bucket after the other, each checked to have independent rows.
#include "proto/message.h"
#include "scheduler/job/batch.h"
#include "scheduler/job/job_run.h"

// Dimensions from `from` on that only a request fixes.
static bool has_open_dims(const Hlod__V1__Signature *s, size_t from) {
    for (size_t i = 0; i < s->n_inputs; i++)
        for (size_t d = from; d < s->inputs[i]->n_dims; d++)
            if (s->inputs[i]->dims[d]->size < 0) return true;
    return false;
}

// The largest batch of the name that is made; 1: its runs are not joined.
static int64_t most_rows(const struct job *j) {
    return j->spec->warm.batching.max > 1 ? j->spec->warm.batching.max : 1;
}
// How many rows the last of n buckets has.
static int64_t bucket_rows(const struct job *j, size_t n) {
    return batch_bucket(INT64_C(1) << (n - 1), most_rows(j));
}

// One of a single row shows nothing about rows, unless it is to be compared with the only other.
status_t warm_check(struct job *j, UNUSED struct delivery *d) {
    const struct batching *b = &j->spec->warm.batching;
    size_t n = j->warm->n_buckets;
    if (b->max <= 1 || (b->unchecked && !j->exe->info->part)) return ST_OK;
    if (j->exe->info->part)
        return st_because(ST_INVALID_ARGUMENT, BAD_OPTION,
                          "sizes in this model come from values that only a run has: runs of "
                          "it cannot be joined");
    if (n > 1) {
        RETURN_IF_ERR(batch_check_rows(j->exe->info, j->warm->constants));
        RETURN_IF_ERR(batch_check_outputs(j->exe->info, bucket_rows(j, n)));
    }
    if (n > 1 || b->max == 2)
        j->warm->constants = arena_strdup(&j->arena, j->exe->info->constants_digest);
    return ST_OK;
}

static status_t check_model(const struct job *j) {
    const Hlod__V1__Signature *sig = j->model->rec->signature;
    if (most_rows(j) == 1) return ST_OK;
    RETURN_IF_ERR(batch_check(&j->spec->warm.batching, sig));
    if (j->spec->warm.batching.unchecked || !has_open_dims(sig, 1)) return ST_OK;
    return st_because(ST_INVALID_ARGUMENT, BAD_OPTION,
                      "only dimension 0 may be open where the compiler shall show that rows are "
                      "independent; if they are, say batching.unchecked");
}

status_t warm_start(struct job *j, bool *later) {
    const Hlod__V1__Signature *sig = j->model->rec->signature;
    bool batched = most_rows(j) > 1;
    if (!j->warm->n_buckets) RETURN_IF_ERR(check_model(j));
    if (has_open_dims(sig, batched)) { // only a request fixes them
        *later = true;
        job_finish(j, ST_OK);
        return ST_OK;
    }
    j->warm->n_buckets++;
    if (batched) {
        job_repeat(j, ROW_BUCKET); // an executable that the digest named is not the bucket's
        Hlod__V1__ShapeBinding **v =
            arena_array(&j->arena, Hlod__V1__ShapeBinding *, sig->n_inputs + 1);
        for (size_t i = 0; i < sig->n_inputs; i++) {
            v[i] = message_new(&j->arena, &hlod__v1__shape_binding__descriptor);
            v[i]->input = sig->inputs[i]->name;
            v[i]->n_dims = sig->inputs[i]->n_dims;
            v[i]->dims = arena_array(&j->arena, int64_t, v[i]->n_dims + 1);
            for (size_t d = 0; d < v[i]->n_dims; d++)
                v[i]->dims[d] =
                    d ? sig->inputs[i]->dims[d]->size : bucket_rows(j, j->warm->n_buckets);
        }
        j->warm->shapes = v;
        j->warm->n_shapes = sig->n_inputs;
    }
    job_deliver(j, ROW_BUCKET, &(struct delivery){0});
    return ST_OK;
}

void warm_end(struct job *j) {
    if (bucket_rows(j, j->warm->n_buckets) == most_rows(j)) {
        job_finish(j, ST_OK);
        return;
    }
    job_repeat(j, ROW_BUCKET);
    job_advance(j);
}
