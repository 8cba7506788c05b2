// SPDX-License-Identifier: Apache-2.0
// Uploads in pieces. A piece is written and hashed on the pool, whole or not at all: what an upload
// holds is always what its offset says, and the client goes on from there, over a new connection
// if need be.
//
//   start -> [append]... -> finish -> kept to answer a second finish -> removed
//
// While the pool works on an upload it is `busy`: its writer is the pool's, and removing it waits
// (`dropped`). One that nobody appends to for --upload-keep-s is removed with its file.
//
// A record in the journal says what is held, and with which digest: written when the piece is on
// the disk, before it is answered. After a restart the first piece reads the file once, and goes on
// only if it is what the record says.
#include "server/api/api_uploads.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/store/store.h"
#include "proto/journal.pb-c.h"
#include "proto/message.h"
#include "proto/weigh.h"
#include "scheduler/error.h"
#include "scheduler/loop.h"
#include "scheduler/records/blobs.h"
#include "scheduler/records/journal.h"
#include "server/api/api.h"
#include "server/relay.h"

struct session {
    struct uploads *all;
    struct session *next;
    struct loop *loop;
    struct store *store;
    struct journal *journal;
    struct loop_timer *timer;
    char id[33], *tenant;
    int64_t size, offset;
    bool any;                     // digest
    struct digest digest, prefix; // prefix: of what is held
    struct store_writer *w;       // NULL before the first piece of this daemon
    bool busy, finished, dropped;
};
struct uploads {
    struct session *first; // the newest
};

struct uploads *uploads_new(void) {
    struct uploads *all = arena_must_calloc(1, sizeof *all);
    return all;
}

// ---- life

static struct digest key_of(const struct session *u) {
    return sha256_of(u->id, strlen(u->id));
}
MUST_CHECK static status_t save(struct session *u, int64_t offset, bool finished) {
    Hlod__Journal__Upload m = HLOD__JOURNAL__UPLOAD__INIT;
    m.id = u->id;
    m.tenant = u->tenant;
    m.size = u->size;
    m.offset = offset;
    if (!u->any || finished) m.digest = (ProtobufCBinaryData){sizeof u->digest.b, u->digest.b};
    m.prefix = (ProtobufCBinaryData){sizeof u->prefix.b, u->prefix.b};
    m.finished = finished;
    m.touched_ns = clock_wall_ns();
    return error_of_store(
        journal_put_message(u->journal, JOURNAL_UPLOAD, key_of(u), (struct digest){0}, &m.base));
}
static void abort_work(void *arg) {
    struct session *u = arg;
    store_write_abort(u->w); // removes a file of any size
    if (!u->w) store_upload_remove(u->store, u->id);
    status_t st = journal_remove(u->journal, JOURNAL_UPLOAD, key_of(u));
    if (st) log_event(LOG_WARN, "upload.record", "id=%s why=\"%s\"", u->id, st_message(st));
    st_drop(st);
}
static void free_session(void *arg) {
    struct session *u = arg;
    free(u->tenant);
    free(u);
}
static void let_go(struct session *u) {
    loop_work(u->loop, abort_work, free_session, u);
}
// Nobody finds it any more.
static void drop(struct session *u) {
    struct session **at = &u->all->first;
    while (*at != u)
        at = &(*at)->next;
    *at = u->next;
    loop_timer_free(u->timer);
    u->timer = NULL;
    u->dropped = true;
    if (!u->busy) let_go(u);
}
static void on_timer(void *arg) {
    drop(arg);
}
// What is open goes on with the next daemon.
void uploads_free(struct uploads *all) {
    if (!all) return;
    while (all->first) {
        struct session *u = all->first;
        all->first = u->next;
        loop_timer_free(u->timer);
        store_write_leave(u->w);
        free_session(u);
    }
    free(all);
}

// ---- those of the daemon before

struct load {
    struct sched *sched;
    struct uploads *all;
    int64_t keep_ms;
};
static struct session *session_new(struct uploads *all, struct sched *s, const char *tenant,
                                   int64_t keep_ms) {
    struct session *u = calloc(1, sizeof *u);
    if (!u || !(u->tenant = strdup(tenant))) abort();
    u->all = all;
    u->loop = sched_loop(s);
    u->store = sched_store(s);
    u->journal = sched_journal(s);
    u->next = all->first;
    all->first = u;
    u->timer = loop_timer_new(u->loop, on_timer, u);
    loop_timer_start(u->timer, keep_ms);
    return u;
}
static void load_one(void *ctx, UNUSED struct digest key, struct span record) {
    const struct load *l = ctx;
    Hlod__Journal__Upload *m = weigh_unpack_or_null(&hlod__journal__upload__descriptor, record);
    if (m && strlen(m->id) == 32 && m->prefix.len == 32 && m->offset <= m->size) {
        int64_t left = l->keep_ms - (clock_wall_ns() - m->touched_ns) / CLOCK_MS;
        struct session *u = session_new(l->all, l->sched, m->tenant,
                                        left < 1            ? 1
                                        : left > l->keep_ms ? l->keep_ms
                                                            : left);
        memcpy(u->id, m->id, sizeof u->id);
        u->size = m->size;
        u->offset = m->offset;
        u->finished = m->finished;
        u->any = m->digest.len != 32;
        if (!u->any) memcpy(u->digest.b, m->digest.data, 32);
        memcpy(u->prefix.b, m->prefix.data, 32);
    }
    if (m) hlod__journal__upload__free_unpacked(m, NULL);
}
static bool is_open(void *ctx, const char *name) {
    for (const struct session *u = ((struct uploads *)ctx)->first; u; u = u->next)
        if (!strcmp(u->id, name)) return true;
    return false;
}
status_t uploads_load(struct uploads *all, struct sched *s, int64_t keep_ms) {
    struct load l = {s, all, keep_ms};
    RETURN_IF_ERR(journal_list(sched_journal(s), JOURNAL_UPLOAD, -1, load_one, &l));
    store_uploads_keep(sched_store(s), is_open, all);
    return ST_OK;
}

MUST_CHECK static status_t not_found(const char *id) {
    return st_because(ST_NOT_FOUND, UPLOAD_NOT_FOUND,
                      "no upload '%.100s': it ended, or got nothing for too long", id);
}
// By what follows the node's name, whichever that is.
static struct session *find(const struct call *c, const char *text) {
    const char *colon = strrchr(text, ':'), *id = colon ? colon + 1 : text;
    for (struct session *u = c->api->uploads->first; u; u = u->next)
        if (!strcmp(u->id, id) && !strcmp(u->tenant, c->principal.tenant)) return u;
    return NULL;
}

static const ProtobufCMessage *reply(struct call *c, const struct session *u) {
    enum { AROUND = 1024 }; // what gRPC's message has beside the piece
    int64_t max = c->api->max_message_bytes;
    Hlod__V1__Upload *m = message_new(&c->arena, &hlod__v1__upload__descriptor);
    m->upload = relay_handle(c, u->id);
    m->offset = u->offset;
    m->size = u->size;
    m->piece_bytes = max > 2 * AROUND ? max - AROUND : max;
    return &m->base;
}

// ---- start

// A place for one more of this tenant's: of those that are finished the oldest gives way.
MUST_CHECK static status_t make_room(struct call *c) {
    int n = 0;
    struct session *finished = NULL;
    for (struct session *u = c->api->uploads->first; u; u = u->next) {
        if (strcmp(u->tenant, c->principal.tenant)) continue;
        n++;
        if (u->finished) finished = u;
    }
    if (n < c->api->max_uploads) return ST_OK;
    if (!finished)
        return st_because(ST_RESOURCE_EXHAUSTED, UPLOADS_FULL,
                          "%d uploads are open, as many as --max-uploads allows: finish or "
                          "cancel one",
                          n);
    drop(finished);
    return make_room(c);
}
MUST_CHECK static status_t open_session(struct call *c, struct session **out) {
    const Hlod__V1__StartUploadRequest *q = call_request(c);
    struct uploads *all = c->api->uploads;
    struct digest digest = {0};
    if (q->size <= 0)
        return st_because(ST_INVALID_ARGUMENT, BAD_OPTION, "size: expected the bytes of the whole");
    if (q->size > c->api->max_model_bytes)
        return st_because(ST_INVALID_ARGUMENT, BODY_TOO_LARGE,
                          "%lld bytes are more than the %lld allowed", (long long)q->size,
                          (long long)c->api->max_model_bytes);
    if (*q->digest) RETURN_IF_ERR(api_digest(q->digest, "digest", &digest));
    RETURN_IF_ERR(make_room(c));
    uint64_t id[2];
    if (getrandom(id, sizeof id, 0) != sizeof id) abort();
    struct session *u =
        session_new(all, c->api->sched, c->principal.tenant, c->api->upload_keep_ms);
    snprintf(u->id, sizeof u->id, "%016llx%016llx", (unsigned long long)id[0],
             (unsigned long long)id[1]);
    u->size = q->size;
    u->any = !*q->digest;
    u->digest = digest;
    u->prefix = sha256_of("", 0);
    *out = u;
    return ST_OK;
}

// ---- append, finish: a step on the pool

struct step {
    struct call *c;
    struct session *u;
    struct span bytes;
    status_t st;
};
static status_t begin(struct call *c, struct session *u, struct span bytes, void (*work)(void *),
                      void (*done)(void *)) {
    struct step *s = arena_new_of(&c->arena, struct step);
    *s = (struct step){.c = c, .u = u, .bytes = bytes};
    loop_timer_stop(u->timer);
    u->busy = c->busy = true;
    loop_work(u->loop, work, done, s);
    return ST_OK;
}
// The upload is the loop's again; false: it was removed meanwhile.
static bool ended(struct step *s) {
    struct session *u = s->u;
    u->busy = false;
    if (u->dropped) {
        let_go(u);
        return false;
    }
    loop_timer_start(u->timer, s->c->api->upload_keep_ms);
    return true;
}
MUST_CHECK static status_t elsewhere(const struct session *u) {
    return st_because(ST_FAILED_PRECONDITION, UPLOAD_OFFSET, "%lld of %lld bytes are held%s",
                      (long long)u->offset, (long long)u->size,
                      u->finished ? ", and it is finished"
                      : u->busy   ? ", and a request for this upload is under way"
                                  : "");
}

static void start_work(void *arg) {
    struct step *s = arg;
    s->st = save(s->u, 0, false);
}
static void started(void *arg) {
    struct step *s = arg;
    struct call *c = s->c;
    const ProtobufCMessage *m = reply(c, s->u);
    if (ended(s) && s->st) drop(s->u);
    if (call_goes_on(c, s->st)) call_finish(c, m, ST_OK);
}
status_t api_start_upload(struct call *c) {
    struct session *u = NULL;
    RETURN_IF_ERR(open_session(c, &u));
    return begin(c, u, (struct span){0}, start_work, started);
}

// The file, behind what is held.
MUST_CHECK static status_t open_file(struct session *u) {
    if (u->w) return ST_OK;
    status_t st = store_write_named(u->store, STORE_BLOB, u->id, u->offset, &u->prefix, &u->w);
    if (st_code(st) != ST_DATA_LOSS && st_code(st) != ST_NOT_FOUND) return st;
    log_event(LOG_ERROR, "upload.damaged", "id=%s tenant=%s offset=%lld why=\"%s\"", u->id,
              u->tenant, (long long)u->offset, st_message(st));
    st_drop(st);
    return st_because(ST_DATA_LOSS, CACHE_DAMAGED,
                      "what was held of upload '%s' is damaged: begin anew", u->id);
}
static void append_work(void *arg) {
    struct step *s = arg;
    struct session *u = s->u;
    s->st = open_file(u);
    if (!s->st) s->st = store_write(u->w, s->bytes.p, s->bytes.n);
    if (!s->st) { // what cannot be recorded is held all the same, for as long as this daemon lives
        status_t st = store_write_sync(u->w, &u->prefix);
        if (!st) st = save(u, u->offset + (int64_t)s->bytes.n, false);
        st_drop(st);
    }
    s->st = error_of_store(s->st);
}
static void appended(void *arg) {
    struct step *s = arg;
    struct call *c = s->c;
    if (!s->st) s->u->offset += (int64_t)s->bytes.n;
    const ProtobufCMessage *m = reply(c, s->u);
    bool here = ended(s);
    if (!here && !s->st) s->st = not_found(((Hlod__V1__Upload *)m)->upload);
    if (here && st_code(s->st) == ST_DATA_LOSS) drop(s->u);
    if (call_goes_on(c, s->st)) call_finish(c, m, ST_OK);
}
status_t api_append_upload(struct call *c) {
    const Hlod__V1__AppendUploadRequest *q = call_request(c);
    struct span bytes = c->body.n ? c->body : (struct span){q->data.data, q->data.len};
    struct session *u = find(c, q->upload);
    if (!u) return not_found(q->upload);
    if (u->busy || u->finished || q->offset != u->offset) return elsewhere(u);
    if ((int64_t)bytes.n > u->size - u->offset)
        return st_because(ST_OUT_OF_RANGE, BAD_RANGE,
                          "%zu bytes at %lld end behind the upload's %lld", bytes.n,
                          (long long)q->offset, (long long)u->size);
    metric_add(M_UPLOAD_BYTES, (int64_t)bytes.n);
    return begin(c, u, bytes, append_work, appended);
}

MUST_CHECK static status_t finish(struct step *s) {
    struct session *u = s->u;
    struct digest got = u->prefix;
    struct arena *a = &s->c->arena;
    // The daemon before may have died between the file's new name and the record of it.
    if (u->w || !store_has(u->store, STORE_BLOB, got)) {
        RETURN_IF_ERR(open_file(u));
        struct store_writer *w = u->w;
        u->w = NULL;
        RETURN_IF_ERR(error_of_store(store_write_end(w, &got, NULL)));
    }
    if (!u->any && !digest_eq(got, u->digest))
        return st_because(ST_INVALID_ARGUMENT, BLOB_MISMATCH, "the bytes have digest %s, not %s",
                          api_hex(a, got), api_hex(a, u->digest));
    u->digest = got;
    RETURN_IF_ERR(blob_own(u->journal, u->tenant, got));
    st_drop(save(u, u->size, true)); // else it is finished again when that is asked
    return ST_OK;
}
static void finish_work(void *arg) {
    struct step *s = arg;
    s->st = finish(s);
}
static const ProtobufCMessage *info(struct call *c, const struct session *u) {
    Hlod__V1__BlobInfo *m = message_new(&c->arena, &hlod__v1__blob_info__descriptor);
    m->digest = api_hex(&c->arena, u->digest);
    m->bytes = u->size;
    return &m->base;
}
static void finished(void *arg) {
    struct step *s = arg;
    struct call *c = s->c;
    const ProtobufCMessage *m = s->st ? NULL : info(c, s->u);
    s->u->finished = !s->st;
    if (ended(s) && s->st) drop(s->u); // its file is gone
    if (call_goes_on(c, s->st)) call_finish(c, m, ST_OK);
}
status_t api_finish_upload(struct call *c) {
    const Hlod__V1__FinishUploadRequest *q = call_request(c);
    struct session *u = find(c, q->upload);
    if (!u) return not_found(q->upload);
    if (u->finished) return call_reply(c, info(c, u));
    if (u->busy || u->offset != u->size) return elsewhere(u);
    return begin(c, u, (struct span){0}, finish_work, finished);
}

// ---- get, cancel

status_t api_get_upload(struct call *c) {
    const Hlod__V1__GetUploadRequest *q = call_request(c);
    const struct session *u = find(c, q->upload);
    return u ? call_reply(c, reply(c, u)) : not_found(q->upload);
}
static void cancel_work(void *arg) { // what was answered stays so
    struct step *s = arg;
    s->st = error_of_store(journal_remove(s->u->journal, JOURNAL_UPLOAD, key_of(s->u)));
}
static void cancelled(void *arg) {
    struct step *s = arg;
    struct call *c = s->c;
    Hlod__V1__CancelUploadReply m = HLOD__V1__CANCEL_UPLOAD_REPLY__INIT;
    if (ended(s)) drop(s->u);
    if (call_goes_on(c, s->st)) call_finish(c, &m.base, ST_OK);
}
status_t api_cancel_upload(struct call *c) {
    const Hlod__V1__CancelUploadRequest *q = call_request(c);
    struct session *u = find(c, q->upload);
    Hlod__V1__CancelUploadReply m = HLOD__V1__CANCEL_UPLOAD_REPLY__INIT;
    if (!u) return not_found(q->upload);
    if (!u->busy) return begin(c, u, (struct span){0}, cancel_work, cancelled);
    drop(u); // it goes when the pool is done with it
    return call_reply(c, &m.base);
}
