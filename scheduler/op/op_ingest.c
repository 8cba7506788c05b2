// SPDX-License-Identifier: Apache-2.0
// op_ingest: a source that no record knows is read by a compile worker (INGEST); what it found goes
// to the store (program, sidecar) and the journal, then to the waiters.
//
//   queued -> placed: open source, INGEST -> reply -> pool: store program, store sidecar, journal
//   -> record in memory -> waiters
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/metrics.h"
#include "base/store/store.h"
#include "proto/weigh.h"
#include "scheduler/error.h"
#include "scheduler/job/job_inside.h"
#include "scheduler/queue/aside.h"
#include "scheduler/records/blobs.h"
#include "scheduler/records/journal.h"

// Is there a record of these bytes as another reader understood them? It stays.
static bool known_otherwise(struct op *op, const char *format) {
    struct arena a = {0};
    struct span rec;
    status_t st = journal_get(op->s->journal, JOURNAL_SOURCE, op->record, &a, &rec);
    Hlod__Wire__IngestReply *r =
        st ? NULL : weigh_unpack_in(&a, &hlod__wire__ingest_reply__descriptor, rec);
    bool other = r && strcmp(r->format, format) != 0;
    st_drop(st);
    arena_done(&a);
    return other;
}

// What the worker calls a program, or its weights, as this tenant's name for it; written back.
static struct digest own_name(const struct op *op, ProtobufCBinaryData *b) {
    struct digest d;
    memcpy(d.b, b->data, sizeof d.b);
    d = sched_record(op->s, op->tenant->name, d);
    memcpy(b->data, d.b, sizeof d.b);
    return d;
}

// The reply as it is kept: blobs emptied, the sidecar's digest in their place.
static status_t store_results(struct op *op) {
    Hlod__Wire__IngestReply *r = op->ingest;
    if (r->program_digest.len != 32 || r->weights_digest.len != 32 || !r->signature)
        return st_internal("incomplete ingest reply");
    struct digest program = own_name(op, &r->program_digest);
    own_name(op, &r->weights_digest);
    struct span bytes;
    void *base;
    size_t base_bytes;
    RETURN_IF_ERR(blob_map(r->program, op->fds, op->n_fds, &bytes, &base, &base_bytes));
    status_t st = store_put(op->s->store, STORE_PROGRAM, program, bytes.p, bytes.n, false);
    frame_unmap(base, base_bytes);
    if (st) return st;

    RETURN_IF_ERR(blob_map(r->sidecar, op->fds, op->n_fds, &bytes, &base, &base_bytes));
    if (bytes.n) {
        struct digest d;
        st = blob_store(op->s->store, bytes, &d, NULL);
        if (!st) {
            free(r->sidecar_digest.data);
            r->sidecar_digest = (ProtobufCBinaryData){32, malloc(32)};
            if (!r->sidecar_digest.data) abort();
            memcpy(r->sidecar_digest.data, d.b, 32);
        }
    }
    frame_unmap(base, base_bytes);
    if (st) return st;

    if (r->program) hlod__wire__blob__free_unpacked(r->program, NULL);
    if (r->sidecar) hlod__wire__blob__free_unpacked(r->sidecar, NULL);
    r->program = r->sidecar = NULL;
    if (*op->format && known_otherwise(op, r->format)) return ST_OK;
    return journal_put_message(op->s->journal, JOURNAL_SOURCE, op->record, program, &r->base);
}

// Were the bytes what they should be while the worker read them, too?
static status_t again_work(struct op *op) {
    return blob_check(op->s->store, NULL, op->digest);
}
static status_t store_work(struct op *op) {
    RETURN_IF_ERR(again_work(op));
    return error_of_store(store_results(op));
}

static void stored(struct op *op, status_t st) {
    if (!st) {
        struct model *made = model_new(op->record, op->digest, op->ingest),
                     *kept = sched_model(op->s, op->record), *m = made;
        if (!kept || !strcmp(kept->rec->format, made->rec->format)) // else it is these jobs' alone
            m = model_ref(sched_keep_model(op->s, made));
        op->ingest = NULL;
        metric_add(M_INGESTS, 1);

        for (size_t i = 0; i < op->waiters.n; i++)
            job_event_ingest(op->waiters.v[i], m, op->start_ns);
        op_deliver(op, ROW_MODEL,
                   &(struct delivery){.model = m, .timing = "ingest", .since_ns = op->start_ns});
        model_unref(m);
    }
    op_end(op, st);
}

// A file that a disk changed while it was read is not the fault of who sent it.
static void doubted(struct op *op, status_t st) {
    if (!st) {
        st = op->said;
        op->said = NULL;
    }
    op_end(op, st);
}

static void on_reply(void *ctx, struct frame *f, status_t lost) {
    struct op *op = ctx;
    if (f && f->type != HLOD__WIRE__TYPE__TYPE_INGEST_REPLY) return;
    if (!op_answered(op, f, lost)) return;
    status_t st = ST_OK;
    op->ingest = wire_reply(&hlod__wire__ingest_reply__descriptor, f, &st);
    if (!st) {
        op_work(op, store_work, stored);
        return;
    }
    op->said = st;
    op_work(op, again_work, doubted);
}

static void placed(struct op *op) {
    Hlod__Wire__Blob source;
    int fd, n_fds = 0;
    status_t st =
        wire_blob_open(op->s->store, STORE_BLOB, op->digest, STORE_TRUST, &fd, &n_fds, &source);
    if (st) {
        op_end(op, st);
        return;
    }
    Hlod__Wire__Ingest m = HLOD__WIRE__INGEST__INIT;
    m.source = &source;
    m.format = (char *)op->format;
    m.limits = &op->s->cfg.limits;
    op->call = pool_call(op->slot.w, HLOD__WIRE__TYPE__TYPE_INGEST, &m.base, &fd, 1, on_reply, op);
    sched_charge(op->slot.w, op->call, op->tenant, "ingest", op->record);
    close(fd);
}

// Are the bytes still those that were brought? Before anybody reads them; once a life.
static status_t check_work(struct op *op) {
    return blob_check(op->s->store, op->s->journal, op->digest);
}
static void checked(struct op *op, status_t st) {
    if (!st) st = sched_aside(op->s, op->tenant, "ingest", op->record);
    if (st || !op->waiters.n) {
        op_end(op, st);
        return;
    }
    op->placed = placed;
    op_queue(op, "", op->tenant, op->priority);
}

// By digest and format: who asks for another reader shares nothing with those who ask for this one.
void op_ingest_start(struct job *j) {
    char name[200] = "ingest/";
    struct digest record = sched_record(j->s, j->tenant->name, j->subject);
    digest_hex(record, name + strlen(name));
    snprintf(name + strlen(name), sizeof name - strlen(name), "/%.100s",
             j->spec->format ? j->spec->format : "");
    struct op *op;
    if (!op_wait(j, OP_INGEST, name, &op)) return;
    op->digest = j->subject;
    op->record = record;
    op->format = arena_strdup(&op->arena, j->spec->format ? j->spec->format : "");
    op->tenant = j->tenant;
    op->priority = j->spec->priority;
    op_work(op, check_work, checked);
}
