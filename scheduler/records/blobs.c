// SPDX-License-Identifier: Apache-2.0
#include "scheduler/records/blobs.h"

#include <errno.h>
#include <inttypes.h>
#include <unistd.h>

#include "base/log.h"
#include "base/map.h"
#include "base/metrics.h"
#include "base/store/store.h"
#include "base/vec.h"
#include "proto/journal.pb-c.h"
#include "proto/reason.h"
#include "proto/weigh.h"
#include "proto/wire.pb-c.h"
#include "scheduler/error.h"
#include "scheduler/records/journal.h"
#include "scheduler/records/owners.h"
#include "scheduler/suite/journal_jobs.h"

status_t blob_own(struct journal *j, const char *tenant, struct digest d) {
    return owner_write(j, tenant, d, (struct digest){0});
}

status_t blob_keep_own(struct journal *j, const char *tenant, struct digest d) {
    struct digest source;
    status_t st = owner_read(j, tenant, d, &source);
    if (st_code(st) != ST_NOT_FOUND) return st;
    st_drop(st);
    return blob_own(j, tenant, d);
}

status_t blob_store(struct store *s, struct span bytes, struct digest *out, uint64_t *out_fresh) {
    struct store_writer *w;
    RETURN_IF_ERR(error_of_store(store_write_begin(s, STORE_BLOB, &w)));
    status_t st = store_write(w, bytes.p, bytes.n);
    if (st)
        store_write_abort(w);
    else
        st = store_write_end(w, out, out_fresh);
    return error_of_store(st);
}
status_t blob_put(struct store *s, struct journal *j, const char *tenant, struct span bytes,
                  struct digest *out) {
    RETURN_IF_ERR(blob_store(s, bytes, out, NULL));
    return blob_own(j, tenant, *out);
}

status_t blob_said(status_t st, struct digest d) {
    bool gone = st_code(st) == ST_NOT_FOUND;
    if (!gone && st_code(st) != ST_DATA_LOSS) return st;
    struct hex_digest hex = digest_to_hex(d);
    if (gone) {
        st_drop(st);
        st = st_new(ST_DATA_LOSS, "blobs %s was removed from the data folder", hex.z);
    }
    metric_add(M_CACHE_QUARANTINED, 1);
    log_event(LOG_ERROR, gone ? "blob.missing" : "blob.quarantined", "digest=%s why=\"%s\"", hex.z,
              st_message(st));
    return st_reason(st, HLOD__V1__REASON__REASON_CACHE_DAMAGED);
}
static status_t open_checked(struct store *s, struct digest d, int *out_fd, int64_t *out_bytes) {
    int64_t offset;
    return store_open_fd(s, STORE_BLOB, d, STORE_CHECK_ONCE, out_fd, &offset, out_bytes);
}
status_t blob_check(struct store *s, struct journal *j, struct digest d) {
    int fd, owners = 0;
    int64_t bytes;
    status_t st = open_checked(s, d, &fd, &bytes);
    if (st_code(st) == ST_NOT_FOUND && j) {
        struct arena a = {0};
        struct span rec;
        st_drop(owners_written(j, d, &owners));
        status_t exe = journal_get(j, JOURNAL_EXECUTABLE, d, &a, &rec);
        bool never = !owners || !exe; // an executable's owners are there too
        st_drop(exe);
        arena_done(&a);
        if (never) return st;
    }
    if (st) return blob_said(st, d);
    close(fd);
    return ST_OK;
}

status_t blob_read_part(struct store *s, struct digest d, int64_t from, void *to, int64_t n) {
    int fd;
    int64_t bytes, done = 0;
    status_t st = open_checked(s, d, &fd, &bytes);
    if (st) return blob_said(st, d);
    if (n > bytes || from > bytes - n) st = st_new(ST_DATA_LOSS, "it has %" PRId64 " bytes", bytes);
    while (done < n && !st) {
        ssize_t got = pread(fd, (uint8_t *)to + done, (size_t)(n - done), from + done);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0)
            st = got ? st_errno(errno, "a blob") : st_new(ST_DATA_LOSS, "a blob ended early");
        else
            done += got;
    }
    close(fd);
    return st;
}

status_t blob_open(struct store *s, struct journal *j, const char *tenant, struct digest d,
                   int *out_fd, int64_t *out_bytes) {
    struct digest source;
    status_t st = owner_read(j, tenant, d, &source);
    if (!st) {
        st = open_checked(s, d, out_fd, out_bytes);
        bool blob = digest_is_zero(source); // else the row is of an executable
        if (blob || st_code(st) != ST_NOT_FOUND) return blob_said(st, d);
    }
    if (st_code(st) != ST_NOT_FOUND) return st;
    st_drop(st);
    return st_because(ST_NOT_FOUND, BLOB_NOT_FOUND, "no blob %s here", digest_to_hex(d).z);
}

// ---- collection

struct census {
    struct smap held;     // digest -> something
    struct smap sidecars; // of a source -> its sidecar, in the arena; and the other way
    struct arena *a;
    struct unused_blobs *out;
    int64_t before_ns;
};
static void hold(struct census *c, const char *hex) {
    struct digest d;
    if (digest_parse(str_of(hex), &d)) smap_put(&c->held, digest_str(&d), c);
}
static void hold_tensors(struct census *c, Hlod__V1__JobTensor *const *v, size_t n) {
    for (size_t i = 0; i < n; i++)
        hold(c, v[i]->blob);
}
static void in_request(void *ctx, struct span r) {
    struct census *c = ctx;
    Hlod__V1__SubmitJobsRequest *q =
        weigh_unpack_or_null(&hlod__v1__submit_jobs_request__descriptor, r);
    if (!q) return;
    for (size_t i = 0; i < q->n_models; i++)
        hold(c, q->models[i]->model);
    for (size_t i = 0; i < q->n_inputs; i++) {
        hold_tensors(c, q->inputs[i]->inputs, q->inputs[i]->n_inputs);
        hold_tensors(c, q->inputs[i]->expect, q->inputs[i]->n_expect);
    }
    if (q->train) {
        hold_tensors(c, q->train->validation, q->train->n_validation);
        hold_tensors(c, q->train->whole, q->train->n_whole);
        hold(c, q->train->resume);
    }
    hlod__v1__submit_jobs_request__free_unpacked(q, NULL);
}
static void hold_progress(struct census *c, const Hlod__V1__TrainProgress *p) {
    if (p) hold(c, p->checkpoint);
    if (p) hold(c, p->best);
}
static void in_brief(void *ctx, struct span r) {
    Hlod__V1__Job *j = weigh_unpack_or_null(&hlod__v1__job__descriptor, r);
    if (!j) return;
    hold_progress(ctx, j->train);
    hlod__v1__job__free_unpacked(j, NULL);
}
static void in_result(void *ctx, struct span r) {
    Hlod__V1__JobOutcome *o = weigh_unpack_or_null(&hlod__v1__job_outcome__descriptor, r);
    if (!o) return;
    hold_tensors(ctx, o->outputs, o->n_outputs);
    hold(ctx, o->model);
    hold_progress(ctx, o->train);
    hlod__v1__job_outcome__free_unpacked(o, NULL);
}
static void named(void *ctx, UNUSED struct digest key, struct span record) {
    struct census *c = ctx;
    Hlod__Journal__NamedModel *m =
        weigh_unpack_or_null(&hlod__journal__named_model__descriptor, record);
    if (m && !m->removed && m->source.len == sizeof(struct digest))
        smap_put(&c->held, (struct str){(const char *)m->source.data, m->source.len}, c);
    if (m) hlod__journal__named_model__free_unpacked(m, NULL);
}
static void with_sidecar(void *ctx, struct digest key, struct span record) {
    struct census *c = ctx;
    Hlod__Wire__IngestReply *m =
        weigh_unpack_or_null(&hlod__wire__ingest_reply__descriptor, record);
    if (m && m->sidecar_digest.len == sizeof key.b) {
        struct digest *d = arena_dup(c->a, m->sidecar_digest.data, sizeof *d);
        smap_put(&c->sidecars, digest_str(&key), d);
        smap_put(&c->held, digest_str(d), c); // it goes with its source
    }
    if (m) hlod__wire__ingest_reply__free_unpacked(m, NULL);
}
static void look(void *ctx, UNUSED enum store_kind kind, struct digest key, int64_t bytes,
                 int64_t mtime, bool pinned) {
    struct census *c = ctx;
    if (pinned || mtime >= c->before_ns || smap_has(&c->held, digest_str(&key))) return;
    struct unused_blob b = {.digest = key, .bytes = bytes};
    const struct digest *sidecar = smap_get(&c->sidecars, digest_str(&key));
    if (sidecar) b.sidecar = *sidecar;
    avec_push(c->a, c->out, b);
}

status_t blobs_unused(struct store *s, struct journal *j, struct journal_jobs *jobs,
                      int64_t before_ns, struct arena *a, struct unused_blobs *out) {
    struct census c = {.a = a, .out = out, .before_ns = before_ns};
    smap_seed_random(&c.held);
    smap_seed_random(&c.sidecars);
    status_t st = journal_jobs_contents(
        jobs, &(struct journal_jobs_contents){in_request, in_brief, in_result, &c});
    if (!st) st = journal_list(j, JOURNAL_MODEL, -1, named, &c);
    if (!st) st = journal_list(j, JOURNAL_SOURCE, -1, with_sidecar, &c);
    if (!st) st = store_list(s, STORE_BLOB, look, &c);
    smap_done(&c.held);
    smap_done(&c.sidecars);
    return st;
}

struct owners {
    struct digest v[64];
    size_t n;
};
static void add_owner(void *ctx, struct digest key, UNUSED int64_t used_ns) {
    struct owners *o = ctx;
    if (o->n < sizeof o->v / sizeof *o->v) o->v[o->n++] = key;
}
void blob_remove(struct store *s, struct journal *j, const struct unused_blob *b) {
    if (b->file && !store_remove_file(s, STORE_BLOB, b->digest, b->file, true)) return;
    st_drop(journal_remove(j, JOURNAL_SOURCE, b->digest));
    struct owners o; // before the bytes: whose is what is not there is damage
    do {
        o.n = 0;
        st_drop(journal_family(j, JOURNAL_BLOB, b->digest, add_owner, &o));
        for (size_t i = 0; i < o.n; i++)
            st_drop(journal_remove(j, JOURNAL_BLOB, o.v[i]));
    } while (o.n == sizeof o.v / sizeof *o.v);
    if (b->file)
        store_remove_file(s, STORE_BLOB, b->digest, b->file, false);
    else
        st_drop(store_remove(s, STORE_BLOB, b->digest));
    if (!digest_is_zero(b->sidecar)) st_drop(store_remove(s, STORE_BLOB, b->sidecar));
}
