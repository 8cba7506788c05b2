// SPDX-License-Identifier: Apache-2.0
// INSPECT, TUNE, TRAIN and EXPORT jobs: what compile workers do besides reading and compiling
// models. A stage of an executable, out of its artefact or made again from its program; who is to
// run its steps, by measurement; a model's file as the program that trains it, a checkpoint as the
// model's file with new weights, and a model as a package for browsers, which is kept for the next
// export of the same: their descriptors stay the job's until it is freed.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/store/store.h"
#include "scheduler/job/job_call.h"
#include "scheduler/job/job_run.h"
#include "scheduler/loop.h"
#include "scheduler/queue/aside.h"
#include "scheduler/records/package.h"
#include "scheduler/records/tuning.h"

// ---- inspect

static void on_inspect(void *ctx, struct frame *f, status_t lost) {
    struct run_call *c = ctx;
    if (f && f->type != HLOD__WIRE__TYPE__TYPE_INSPECT_REPLY) return;
    struct worker *w = c->w;
    struct job *j = job_call_ended(c, f, lost);
    if (!j) return;
    if (!f && job_call_moved(j, w, lost)) return;
    status_t st = lost;
    Hlod__Wire__InspectReply *r = wire_reply(&hlod__wire__inspect_reply__descriptor, f, &st);
    if (r) job_deliver(j, ROW_REPLY, &(struct delivery){.reply = &r->base});
    struct job_result done = j->r;
    if (!st) done.inspect.text = r->text;
    job_answer(j, &done);
    job_finish(j, st);
}

status_t inspect_send(struct job *j) {
    int fds[2], n = 0;
    Hlod__Wire__Blob artifact, program;
    status_t st = wire_blob_open(j->s->store, STORE_EXECUTABLE, j->key.digest, STORE_COPY, fds, &n,
                                 &artifact);
    if (!st)
        st = wire_blob_open(j->s->store, STORE_PROGRAM, j->model->program, STORE_COPY, fds, &n,
                            &program);
    if (!st) {
        Hlod__Wire__Compile how = HLOD__WIRE__COMPILE__INIT;
        how.format = j->model->rec->format;
        how.program = &program;
        how.bindings = j->key.bindings;
        how.n_bindings = j->key.n_bindings;
        how.options = (char *)j->key.parts.options;
        how.target_id = (char *)j->key.parts.target_id;
        how.entry_name = (char *)"main";
        how.limits = &j->s->cfg.limits;

        Hlod__Wire__Inspect m = HLOD__WIRE__INSPECT__INIT;
        m.tuning = tuning_read(j->s->store, j->key.digest, j->exe->info);
        m.stage = (char *)j->spec->inspect.stage;
        m.artifact = &artifact;
        m.compile = &how;
        struct run_call *c = job_call_new(j);
        job_call_send(c, HLOD__WIRE__TYPE__TYPE_INSPECT, &m.base, fds, n, on_inspect);
        sched_charge(c->w, c->id, j->tenant, "inspect", j->key.digest);
        if (m.tuning) hlod__v1__tuning__free_unpacked(m.tuning, NULL);
    }
    for (int i = 0; i < n; i++)
        close(fds[i]);
    return st;
}

status_t inspect_want(const struct job *j, struct task *t) {
    const char *stage = j->spec->inspect.stage;
    // These are not in the artefact: the worker compiles again.
    bool again = !strcmp(stage, "kir") || !strcmp(stage, "llvm") || !strncmp(stage, "pass/", 5);
    RETURN_IF_ERR(sched_aside(j->s, j->tenant, "inspect", j->key.digest));
    t->want = (struct place_want){.role = ROLE_COMPILE, .device = j->key.device_kind};
    return again ? sched_take_compile(j->s, j->tenant) : ST_OK;
}

// ---- tune

// A record on its way to the store.
struct keeping {
    struct job *j; // held
    struct store *store;
    struct digest key;
    const Hlod__V1__Tuning *tuning; // the job's reply, which stays as long as the job
    status_t st;
};
static void keep_work(void *arg) {
    struct keeping *k = arg;
    k->st = tuning_keep(k->store, k->key, k->tuning);
}
static void kept(void *arg) {
    struct keeping *k = arg;
    struct job *j = k->j;
    status_t st = k->st;
    if (!st) {
        metric_add(M_TUNINGS, 1);
        sched_forget_executable(j->s, k->key); // workers load it anew, and so as was found
        log_event(LOG_INFO, "tune.done", "key=%s ms=%.1f steps=%zu", digest_to_hex(k->key).z,
                  k->tuning->ms, k->tuning->n_steps);
    }
    if (!job_held_no_more(j)) {
        st_drop(st);
        return;
    }
    struct job_result done = j->r;
    if (!st) done.tune.tuning = k->tuning;
    job_answer(j, &done);
    job_finish(j, st_note(st, "the record of the tuning"));
}

// What only the daemon knows. The message is protobuf's, which frees it whole.
static void complete(Hlod__V1__Tuning *t, const Hlod__V1__ExecutableInfo *x, int64_t since_ns) {
    const struct {
        char **field;
        const char *text;
    } set[] = {{&t->target_id, x->target_id}, {&t->content_digest, x->content_digest}};
    char now[32];
    clock_wall_text(clock_wall_ns(), now);
    for (size_t k = 0; k < sizeof set / sizeof *set; k++) {
        if (*set[k].field != protobuf_c_empty_string) free(*set[k].field);
        *set[k].field = strdup(set[k].text);
        if (!*set[k].field) abort();
    }
    if (t->created != protobuf_c_empty_string) free(t->created);
    t->created = strdup(now);
    if (!t->created) abort();
    t->ms = clock_ms_since(since_ns);
}
static void on_tune(void *ctx, struct frame *f, status_t lost) {
    struct run_call *c = ctx;
    if (f && f->type != HLOD__WIRE__TYPE__TYPE_TUNE_REPLY) return;
    struct worker *w = c->w;
    struct job *j = job_call_ended(c, f, lost);
    if (!j) return;
    if (!f && job_call_moved(j, w, lost)) return;
    status_t st = lost;
    Hlod__Wire__TuneReply *r = wire_reply(&hlod__wire__tune_reply__descriptor, f, &st);
    if (r) job_deliver(j, ROW_REPLY, &(struct delivery){.reply = &r->base});
    if (!st && !r->tuning) st = st_internal("a tuning without a result");
    if (st) {
        job_finish(j, st);
        return;
    }
    complete(r->tuning, j->exe->info, j->sent_ns);
    struct keeping *k = arena_new_of(&j->arena, struct keeping);
    *k = (struct keeping){j, j->s->store, j->key.digest, r->tuning, ST_OK};
    job_hold(j);
    loop_work(j->s->loop, keep_work, kept, k);
}

status_t tune_send(struct job *j) {
    int fd, n = 0;
    Hlod__Wire__Blob artifact;
    RETURN_IF_ERR(wire_blob_open(j->s->store, STORE_EXECUTABLE, j->key.digest, STORE_COPY, &fd, &n,
                                 &artifact));
    Hlod__Wire__Tune m = HLOD__WIRE__TUNE__INIT;
    m.artifact = &artifact;
    m.budget_ms = j->spec->tune.budget_ms;
    struct run_call *c = job_call_new(j);
    job_call_send(c, HLOD__WIRE__TYPE__TYPE_TUNE, &m.base, &fd, n, on_tune);
    sched_charge(c->w, c->id, j->tenant, "tune", j->key.digest);
    close(fd);
    return ST_OK;
}

status_t tune_want(const struct job *j, struct task *t) {
    RETURN_IF_ERR(sched_aside(j->s, j->tenant, "tune", j->key.digest));
    t->want = (struct place_want){.role = ROLE_COMPILE, .device = j->key.device_kind};
    return sched_take_compile(j->s, j->tenant);
}

// ---- train

static void on_train(void *ctx, struct frame *f, status_t lost) {
    struct run_call *c = ctx;
    if (f && f->type != HLOD__WIRE__TYPE__TYPE_TRAIN_REPLY &&
        f->type != HLOD__WIRE__TYPE__TYPE_TRAINED_REPLY)
        return;
    bool trained = f && f->type == HLOD__WIRE__TYPE__TYPE_TRAINED_REPLY;
    struct worker *w = c->w;
    struct job *j = job_call_ended(c, f, lost);
    if (!j) return;
    if (!f && job_call_moved(j, w, lost)) return;
    status_t st = lost;
    ProtobufCMessage *r = wire_reply(trained ? &hlod__wire__trained_reply__descriptor
                                             : &hlod__wire__train_reply__descriptor,
                                     f, &st);
    if (!st && trained != !j->spec->train.spec)
        st = st_internal("the worker answered another call");
    if (r) job_deliver(j, ROW_REPLY, &(struct delivery){.reply = r});
    struct job_result done = j->r;
    if (!st && trained) done.train.model = j->reply.trained->model;
    if (!st && !trained) done.train.program = j->reply.train;
    job_answer(j, &done);
    job_finish(j, st);
}

static void send_train(struct job *j, Hlod__Wire__Blob *source, Hlod__Wire__Blob *state,
                       const int *fds, int n) {
    struct run_call *c = job_call_new(j);
    Hlod__Wire__Train m = HLOD__WIRE__TRAIN__INIT;
    Hlod__Wire__Trained t = HLOD__WIRE__TRAINED__INIT;
    m.format = t.format = j->model->rec->format;
    m.limits = t.limits = &j->s->cfg.limits;
    m.source = t.source = source;
    m.state = t.state = state;
    m.spec = (char *)(uintptr_t)j->spec->train.spec;
    m.rows = j->spec->train.rows;
    m.n_rows = j->spec->train.n_rows;
    if (m.spec)
        job_call_send(c, HLOD__WIRE__TYPE__TYPE_TRAIN, &m.base, fds, n, on_train);
    else
        job_call_send(c, HLOD__WIRE__TYPE__TYPE_TRAINED, &t.base, fds, n, on_train);
    sched_charge(c->w, c->id, j->tenant, "train", j->subject);
}

status_t train_send(struct job *j) {
    int fds[2], n = 0;
    Hlod__Wire__Blob source, state;
    bool resumes = !digest_is_zero(j->spec->train.state);
    status_t st =
        wire_blob_open(j->s->store, STORE_BLOB, j->model->source, STORE_TRUST, fds, &n, &source);
    if (!st && resumes)
        st = wire_blob_open(j->s->store, STORE_BLOB, j->spec->train.state, STORE_TRUST, fds, &n,
                            &state);
    if (!st) send_train(j, &source, resumes ? &state : NULL, fds, n);
    for (int i = 0; i < n; i++)
        close(fds[i]);
    return st;
}

status_t train_want(const struct job *j, struct task *t) {
    RETURN_IF_ERR(sched_aside(j->s, j->tenant, "train", j->subject));
    t->want = (struct place_want){.role = ROLE_COMPILE, .device = ""};
    return sched_take_compile(j->s, j->tenant);
}

// ---- export

// What the request says of sizes, as a compile takes it; of an executable its own.
status_t export_check(struct job *j, UNUSED struct delivery *d) {
    const Hlod__V1__ExportWebRequest *q = j->spec->export.how;
    const Hlod__V1__Signature *sig = j->model->rec->signature;
    struct export_own *own = j->export;
    if (j->exe) {
        if (q->n_shapes)
            return st_because(ST_INVALID_ARGUMENT, BAD_OPTION,
                              "an executable has its shapes: give some with the model instead");
        own->bindings = j->key.bindings;
        own->n_bindings = j->key.n_bindings;
        return ST_OK;
    }

    size_t n = q->n_shapes;
    struct key_shape *shapes = arena_zarray(&j->arena, struct key_shape, n + 1);
    for (size_t i = 0; i < n; i++)
        shapes[i] = (struct key_shape){.input = q->shapes[i]->input,
                                       .rank = (int32_t)q->shapes[i]->n_dims,
                                       .dims = q->shapes[i]->dims,
                                       .values = q->shapes[i]->values,
                                       .n_values = (int64_t)q->shapes[i]->n_values};
    RETURN_IF_ERR(key_bind(&j->arena, sig, shapes, n, job_key_how(j, false), &own->bindings,
                           &own->n_bindings));
    key_assumed(&j->arena, sig, shapes, n, own->bindings, own->n_bindings, &own->assumed,
                &own->n_assumed);
    return ST_OK;
}

static void give_package(struct job *j, struct job_result done, bool hit) {
    done.export.package = j->reply.export->package;
    done.export.info = j->reply.export->info;
    done.export.assumed = j->export->assumed;
    done.export.n_assumed = j->export->n_assumed;
    done.export.hit = hit;
    job_answer(j, &done);
    job_finish(j, ST_OK);
}

// A package on its way to the store, or out of it.
struct packing {
    struct job *j; // held
    struct store *store;
    struct digest key;
    struct package_parts parts;           // what is looked for
    const Hlod__Wire__ExportReply *reply; // the job's, which stays as long as the job
    int fds[FRAME_MAX_FDS];
    int n_fds;
    struct package found;
    status_t st;
};
static struct packing *packing_new(struct job *j) {
    struct packing *p = arena_new_of(&j->arena, struct packing);
    *p = (struct packing){.j = j, .store = j->s->store, .key = j->export->key};
    job_hold(j);
    return p;
}

static void keep_package(void *arg) {
    struct packing *p = arg;
    struct span bytes;
    void *base;
    size_t n;
    p->st = blob_map(p->reply->package, p->fds, p->n_fds, &bytes, &base, &n);
    if (p->st) return;
    p->st = package_keep(p->store, p->key, p->reply->info, bytes, PACKAGES_BYTES);
    frame_unmap(base, n);
}
static void package_kept(void *arg) {
    struct packing *p = arg;
    struct job *j = p->j;
    if (p->st)
        log_event(LOG_WARN, "package.not_kept", "key=%s why=\"%s\"", digest_to_hex(p->key).z,
                  st_message(p->st));
    st_drop(p->st); // it is there all the same
    if (job_held_no_more(j)) give_package(j, j->r, false);
}

static void on_export(void *ctx, struct frame *f, status_t lost) {
    struct run_call *c = ctx;
    if (f && f->type != HLOD__WIRE__TYPE__TYPE_EXPORT_REPLY) return;
    struct worker *w = c->w;
    struct job *j = job_call_ended(c, f, lost);
    if (!j) return;
    if (!f && job_call_moved(j, w, lost)) return;
    status_t st = lost;
    Hlod__Wire__ExportReply *r = wire_reply(&hlod__wire__export_reply__descriptor, f, &st);
    if (r)
        job_deliver(
            j, ROW_REPLY,
            &(struct delivery){.reply = &r->base, .timing = "export", .since_ns = j->sent_ns});
    const Hlod__Wire__Blob *b = !st ? r->package : NULL;
    if (!st && (!b || !b->fd || !b->size || !r->info))
        st = st_internal("an export without a package");
    if (st) {
        job_finish(j, st);
        return;
    }
    struct packing *p = packing_new(j);
    p->reply = r;
    p->n_fds = j->r.n_fds;
    memcpy(p->fds, j->r.fds, sizeof p->fds);
    loop_work(j->s->loop, keep_package, package_kept, p);
}

static status_t make_package(struct job *j) {
    int fd, n = 0;
    Hlod__Wire__Blob source;
    RETURN_IF_ERR(
        wire_blob_open(j->s->store, STORE_BLOB, j->model->source, STORE_TRUST, &fd, &n, &source));
    Hlod__Wire__Export m = HLOD__WIRE__EXPORT__INIT;
    m.format = j->model->rec->format;
    m.source = &source;
    m.limits = &j->s->cfg.limits;
    m.bindings = j->export->bindings;
    m.n_bindings = j->export->n_bindings;
    m.how = (Hlod__V1__ExportWebRequest *)(uintptr_t)j->spec->export.how;

    struct run_call *c = job_call_new(j);
    job_call_send(c, HLOD__WIRE__TYPE__TYPE_EXPORT, &m.base, &fd, n, on_export);
    sched_charge(c->w, c->id, j->tenant, "export", j->subject);
    close(fd);
    return ST_OK;
}

static void look_for_package(void *arg) {
    struct packing *p = arg;
    p->key = package_key(&p->parts);
    p->st = package_open(p->store, p->key, &p->found);
}
static void drop_found(struct packing *p) {
    if (!p->st) {
        close(p->found.fd);
        hlod__v1__web_package__free_unpacked(p->found.info, NULL);
    }
    st_drop(p->st);
}
static void package_looked_for(void *arg) {
    struct packing was = *(struct packing *)arg, *p = &was; // the job's arena may go
    struct job *j = p->j;
    if (st_code(p->st) == ST_DATA_LOSS) {
        metric_add(M_CACHE_QUARANTINED, 1);
        log_event(LOG_WARN, "cache.quarantined", "key=%s why=\"%s\"", digest_to_hex(p->key).z,
                  st_message(p->st));
    }
    if (!job_held_no_more(j)) {
        drop_found(p);
        return;
    }
    metric_add(p->st ? M_CACHE_MISSES : M_CACHE_HITS, 1);
    if (p->st) {
        st_drop(p->st); // it is made then
        j->export->key = p->key;
        j->export->not_kept = p->parts.build_id;
        job_advance(j);
        return;
    }

    Hlod__Wire__ExportReply *r = arena_must_calloc(1, sizeof *r); // freed with the job
    hlod__wire__export_reply__init(r);
    r->info = p->found.info;
    r->package = arena_must_calloc(1, sizeof *r->package);
    hlod__wire__blob__init(r->package);
    r->package->fd = 1;
    r->package->offset = (uint64_t)p->found.offset;
    r->package->size = (uint64_t)p->found.bytes;
    job_deliver(j, ROW_REPLY, &(struct delivery){.reply = &r->base});
    struct job_result done = j->r;
    done.fds[0] = p->found.fd;
    done.n_fds = 1;
    give_package(j, done, true);
}

// In its place with a worker, so that no more packages are read into memory at a time than can be
// made.
status_t export_send(struct job *j) {
    struct export_own *own = j->export;
    RETURN_IF_ERR(sched_reply_room(j->s, j->tenant));
    const char *build = worker_hello(j->slot.w)->build_id;
    if (own->not_kept && !strcmp(own->not_kept, build)) return make_package(j);

    // The request is the client's, which may leave meanwhile, the worker may end: the pool has
    // copies of both.
    if (!own->how.p) own->how = package_how(&j->arena, j->spec->export.how);
    struct packing *p = packing_new(j);
    p->parts = (struct package_parts){
        .tenant = j->tenant->name,
        .format = j->model->rec->format,
        .bindings = key_bindings_text(&j->arena, own->bindings, own->n_bindings),
        .build_id = arena_strdup(&j->arena, build),
        .source = j->model->source,
        .how = own->how};
    loop_work(j->s->loop, look_for_package, package_looked_for, p);
    return ST_OK;
}

status_t export_want(const struct job *j, struct task *t) {
    RETURN_IF_ERR(sched_aside(j->s, j->tenant, "export", j->subject));
    t->want = (struct place_want){.role = ROLE_COMPILE, .device = ""};
    return sched_take_compile(j->s, j->tenant);
}
