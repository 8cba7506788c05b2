// SPDX-License-Identifier: Apache-2.0
// op_prepare: makes one executable with one weight set resident in one worker: LOAD (unless it is
// there), then PREPARE. Found by worker, key and weights, so that a burst of requests after a
// restart loads once. Its waiters hold places in the worker; the op itself holds none. When the
// last of them goes (its deadline, its client) the worker is told to stop, and the op has the place
// until it has stopped, or was killed.
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/store/store.h"
#include "proto/weigh.h"
#include "scheduler/job/job_inside.h"
#include "scheduler/queue/aside.h"
#include "scheduler/records/blobs.h"
#include "scheduler/records/tuning.h"

static void prepare(struct op *op);

// The op has no slot: its waiters hold theirs.
static struct worker *target(const struct op *op) {
    return pool_worker(op->s->pool, op->target_index);
}

// What the worker was at work for it goes on the account of the tenant who waits longest.
static void charge(struct op *op, double ms) {
    int64_t ns = clock_of_ms(ms), most = clock_ns() - op->start_ns;
    if (!op->waiters.n) return; // the op has the slot, and its whole time counts
    if (ns > 0) job_used_before(op->waiters.v[0], ns < most ? ns : most); // it may say anything
}

// The run that it is for is blamed for its end.
static void charge_call(struct op *op) {
    if (op->waiters.n)
        sched_charge(target(op), op->call, op->waiters.v[0]->tenant, "run", op->digest);
}

static status_t check_weights(struct op *op) MUST_CHECK;
// The worker read the model's file itself: is it still the one that was checked?
static void prepared(struct op *op, status_t st) {
    struct worker *w = target(op);
    if (st) sched_forget_executable(op->s, op->digest); // and what was prepared with it
    if (!st && worker_epoch(w) == op->epoch) {
        warm_add_prepared(worker_warm(w), op->digest, op->model->weights);
        metric_add(M_PREPARES, 1);
        struct hex_digest hex = digest_to_hex(op->digest);
        Hlod__V1__PreparedEvent prepared = HLOD__V1__PREPARED_EVENT__INIT;
        prepared.executable = hex.z;
        prepared.ms = clock_ms_since(op->start_ns);
        prepared.prepared_bytes = op->prepared_bytes;
        prepared.device = (char *)worker_hello(w)->device_name;
        Hlod__V1__Event e = HLOD__V1__EVENT__INIT;
        e.kind_case = HLOD__V1__EVENT__KIND_PREPARED;
        e.prepared = &prepared;
        op_tell(op, &e);
        op_deliver(op, ROW_PREPARED,
                   &(struct delivery){.timing = "prepare", .since_ns = op->start_ns});
    }
    op_end(op, st);
}

static void on_prepared(void *ctx, struct frame *f, status_t lost) {
    struct op *op = ctx;
    if (f && f->type != HLOD__WIRE__TYPE__TYPE_PREPARE_REPLY) return;
    op->call = 0;
    status_t st = lost;
    Hlod__Wire__PrepareReply *r = wire_reply(&hlod__wire__prepare_reply__descriptor, f, &st);
    if (r) op->prepared_bytes = r->prepared_bytes;
    if (r) charge(op, r->ms);
    hlod__wire__prepare_reply__free_unpacked(r, NULL);
    if (st)
        op_end(op, st);
    else
        op_work(op, check_weights, prepared);
}

static void on_loaded(void *ctx, struct frame *f, status_t lost) {
    struct op *op = ctx;
    if (f && f->type != HLOD__WIRE__TYPE__TYPE_LOAD_REPLY) return;
    op->call = 0;
    status_t st = lost;
    Hlod__Wire__LoadReply *r = wire_reply(&hlod__wire__load_reply__descriptor, f, &st);
    if (r) charge(op, r->ms);
    if (r && r->choices_left) {
        metric_add(M_TUNINGS_IGNORED, 1);
        log_event(LOG_WARN, "tuning.ignored", "key=%s why=\"%u of its choices do not hold here\"",
                  digest_to_hex(op->digest).z, r->choices_left);
    }
    hlod__wire__load_reply__free_unpacked(r, NULL);
    for (size_t i = 0; i < op->waiters.n; i++)
        job_timing(op->waiters.v[i], "load", clock_ns() - op->start_ns);
    if (!st && worker_epoch(target(op)) == op->epoch)
        warm_add_executable(worker_warm(target(op)), op->digest);
    if (st || !op->waiters.n) {
        op_end(op, st);
        return;
    }
    op->start_ns = clock_ns();
    prepare(op);
}

static void prepare(struct op *op) {
    Hlod__Wire__IngestReply *rec = op->model->rec;
    Hlod__Wire__Blob source = HLOD__WIRE__BLOB__INIT, sidecar = HLOD__WIRE__BLOB__INIT;
    int fds[2], n_fds = 0;
    status_t st = ST_OK;
    if (rec->n_weights)
        st = st_note(wire_blob_open(op->s->store, STORE_BLOB, op->model->source, STORE_TRUST, fds,
                                    &n_fds, &source),
                     "the model's weights");
    if (!st && rec->sidecar_digest.len == 32) {
        struct digest d;
        memcpy(d.b, rec->sidecar_digest.data, 32);
        st =
            st_note(wire_blob_open(op->s->store, STORE_BLOB, d, STORE_TRUST, fds, &n_fds, &sidecar),
                    "the model's decoded weights");
    }

    if (!st) {
        Hlod__Wire__Prepare m = HLOD__WIRE__PREPARE__INIT;
        m.key = (ProtobufCBinaryData){32, op->digest.b};
        m.weights_digest = (ProtobufCBinaryData){32, op->model->weights.b};
        m.source = &source;
        m.sidecar = &sidecar;
        m.weights = rec->weights;
        m.n_weights = rec->n_weights;
        op->call = pool_call(target(op), HLOD__WIRE__TYPE__TYPE_PREPARE, &m.base, fds, n_fds,
                             on_prepared, op);
        charge_call(op);
    }
    for (int i = 0; i < n_fds; i++)
        close(fds[i]);
    if (st) op_end(op, st);
}

// ---- load

// The weights, before a device gets them; with a model's bytes once a life of the daemon.
static status_t check_weights(struct op *op) {
    const Hlod__Wire__IngestReply *rec = op->model->rec;
    if (rec->n_weights)
        RETURN_IF_ERR(
            st_note(blob_check(op->s->store, NULL, op->model->source), "the model's weights"));
    if (rec->sidecar_digest.len != 32) return ST_OK;
    struct digest d;
    memcpy(d.b, rec->sidecar_digest.data, 32);
    return st_note(blob_check(op->s->store, NULL, d), "the model's decoded weights");
}
static void checked(struct op *op, status_t st) {
    if (st || !op->waiters.n)
        op_end(op, st);
    else
        prepare(op);
}

static status_t open_work(struct op *op) {
    status_t st = check_weights(op);
    op->damaged = st != ST_OK; // what was sent, not what was made of it
    if (!st) op->tuning = tuning_read(op->s->store, op->digest, op->exe->info);
    return st ? st
              : wire_blob_open(op->s->store, STORE_EXECUTABLE, op->digest, STORE_COPY, op->fds,
                               &op->n_fds, &op->artifact);
}

static void opened(struct op *op, status_t st) {
    if (!op->damaged &&
        (st_code(st) == ST_DATA_LOSS ||
         st_code(st) == ST_NOT_FOUND)) { // gone bad, or evicted: the waiters compile again
        if (st_code(st) == ST_DATA_LOSS) op_quarantined(op, st);
        exe_unref(smap_del(&op->s->exes, digest_str(&op->digest)));
        bool all = true;
        for (size_t i = 0; i < op->waiters.n; i++)
            all &= job_invalidate(op->waiters.v[i], ROW_EXECUTABLE);
        if (all) {
            st_drop(st);
            st = ST_OK;
        }
    }
    if (st || op->n_fds == 0 || !op->waiters.n) {
        op_end(op, st);
        return;
    }
    Hlod__Wire__Load m = HLOD__WIRE__LOAD__INIT;
    m.key = (ProtobufCBinaryData){32, op->digest.b};
    m.artifact = &op->artifact;
    m.program = (ProtobufCBinaryData){32, op->model->program.b};
    m.tuning = op->tuning;
    op->call =
        pool_call(target(op), HLOD__WIRE__TYPE__TYPE_LOAD, &m.base, op->fds, 1, on_loaded, op);
    charge_call(op);
}

void op_prepare_start(struct job *j) {
    int index = worker_index(j->slot.w);
    char name[200], key[65], weights[65];
    digest_hex(j->key.digest, key);
    digest_hex(j->weights->weights, weights);
    snprintf(name, sizeof name, "prepare/%d/%llu/%s/%s", index, (unsigned long long)j->slot.epoch,
             key, weights);
    struct op *op;
    if (!op_wait(j, OP_PREPARE, name, &op)) return;
    op->target_index = index;
    op->digest = j->key.digest;
    op->model = model_ref(j->weights);
    op->epoch = j->slot.epoch;
    op->exe = exe_ref(j->exe);
    if (warm_has_executable(worker_warm(j->slot.w), j->key.digest))
        op_work(op, check_weights, checked);
    else
        op_work(op, open_work, opened);
}
