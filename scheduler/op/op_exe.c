// SPDX-License-Identifier: Apache-2.0
// op_exe: the executable of a key. Looked up in the store (digest checked; a damaged entry is
// quarantined there and counts as absent) and the journal; else compiled.
//
//   pool: open, check, read record -> hit -> waiters
//                                  -> miss: queued -> placed: COMPILE -> passes ... -> reply ->
//                                  pool: store, journal -> waiters
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/store/store.h"
#include "proto/weigh.h"
#include "scheduler/error.h"
#include "scheduler/job/job_inside.h"
#include "scheduler/loop.h"
#include "scheduler/op/ahead.h"
#include "scheduler/queue/aside.h"
#include "scheduler/records/artifact.h"
#include "scheduler/records/journal.h"
#include "scheduler/remote/remotes.h"

static void give_exe(struct op *op, bool hit) {
    op_deliver(op, ROW_EXECUTABLE,
               &(struct delivery){.exe = op->exe,
                                  .hit = hit,
                                  .remote = op->remote,
                                  .timing = op->remote ? "fetch"
                                            : hit      ? NULL
                                                       : "compile",
                                  .since_ns = op->start_ns});
}

// ---- records

static void set_str(char **field, const char *text) {
    if (*field && *field != protobuf_c_empty_string) free(*field);
    *field = strdup(text);
    if (!*field) abort();
}
static void set_digest(char **field, struct digest d) {
    set_str(field, digest_to_hex(d).z);
}
// What the remotes said before it was compiled here.
static void set_answers(const struct op *op, Hlod__V1__ExecutableInfo *x) {
    if (!op->answers.n) return;
    x->remotes = calloc(op->answers.n, sizeof *x->remotes);
    if (!x->remotes) abort();
    for (; x->n_remotes < op->answers.n; x->n_remotes++) {
        const Hlod__V1__RemoteAnswer *a = op->answers.v[x->n_remotes];
        Hlod__V1__RemoteAnswer *m = arena_must_calloc(1, sizeof *m);
        hlod__v1__remote_answer__init(m);
        set_str(&m->remote, a->remote);
        set_str(&m->outcome, a->outcome);
        set_str(&m->why, a->why);
        m->ms = a->ms;
        x->remotes[x->n_remotes] = m;
    }
}

// ---- look up

// One that came from elsewhere says no model: this one, of the same program, has its names.
static void own_model(const struct op *op, Hlod__V1__ExecutableInfo *x) {
    set_digest(&x->source_digest, op->model->source);
    set_digest(&x->weights_digest, op->model->weights);
    x->weights_bytes = model_weights(op->model);
    status_t st = journal_put_message(op->s->journal, JOURNAL_EXECUTABLE, op->digest,
                                      op->model->program, &x->base);
    st_drop(st); // the next look-up tries again
}
static status_t look_up(struct op *op) {
    int fd;
    int64_t offset, size;
    struct span rec;
    status_t st =
        store_open_fd(op->s->store, STORE_EXECUTABLE, op->digest, STORE_CHECK, &fd, &offset, &size);
    if (!st) close(fd);
    op->damaged = st_code(st) == ST_DATA_LOSS;
    op->tuned = store_has(op->s->store, STORE_TUNING, op->digest);
    if (st && st_code(st) != ST_NOT_FOUND) return st;

    status_t known = journal_get(op->s->journal, JOURNAL_EXECUTABLE, op->digest, &op->arena, &rec);
    if (st) { // evicted ones have no record
        op->damaged = !known;
        st_drop(known);
        return op->damaged ? st_note(st, "its file was removed") : st;
    }
    RETURN_IF_ERR(known);
    Hlod__V1__ExecutableInfo *info =
        weigh_unpack_or_null(&hlod__v1__executable_info__descriptor, rec);
    if (!info) return st_new(ST_NOT_FOUND, "unreadable record");
    if (!*info->source_digest) own_model(op, info);
    op->exe = exe_new(op->digest, info);
    return ST_OK;
}
static void queue_compile(struct op *op);

// Neither here nor anywhere else.
static void missed(struct op *op) {
    status_t st;
    for (size_t i = 0; i < op->waiters.n;) { // those that will not wait for a compile
        struct job *j = op->waiters.v[i];
        if (!j->spec->no_compile) {
            i++;
            continue;
        }
        job_finish(j, st_because(ST_FAILED_PRECONDITION, WOULD_COMPILE,
                                 "executable %s is not in the cache and no_compile was asked",
                                 digest_to_hex(op->digest).z));
        i = 0;
    }

    if (op->waiters.n == 0)
        op_end(op, ST_OK);
    else if ((st = sched_aside(op->s, op->waiters.v[0]->tenant, "compile", op->digest)) ||
             (st = sched_take_compile(op->s, op->waiters.v[0]->tenant)))
        op_end(op, st);
    else
        queue_compile(op);
}

static void add_shape(void *ctx, struct digest key, int64_t used_ns);
static status_t family_work(struct op *op) {
    return journal_family(op->s->journal, JOURNAL_EXECUTABLE, op->model->program, add_shape, op);
}
// Before it is given: then a job that waits may end.
static void trim(struct op *op) {
    const char *owner = op->waiters.n ? op->waiters.v[0]->owner : NULL;
    shapes_trim(op->s, owner, op->digest, op->shapes.v, op->shapes.n);
}
static void came(struct op *op, status_t st) {
    if (!st) trim(op);
    give_exe(op, true);
    st_drop(st); // it is here all the same
    op_end(op, ST_OK);
}
static void looked_up(struct op *op, status_t st);
static void remotes_said(struct op *op, Hlod__V1__ExecutableInfo *found, bool here) {
    if (found) {
        op->exe = exe_ref(sched_keep_exe(op->s, exe_new(op->digest, found)));
        log_event(LOG_INFO, "cache.remote", "key=%s remote=\"%s\" ms=%.1f",
                  digest_to_hex(op->digest).z, op->remote, clock_ms_since(op->start_ns));
        op_work(op, family_work, came);
    } else if (here)
        op_work(op, look_up, looked_up);
    else
        missed(op);
}

static void looked_up(struct op *op, status_t st) {
    if (!st) {
        op->exe = exe_ref(sched_keep_exe(op->s, op->exe));
        metric_add(M_CACHE_HITS, 1);
        give_exe(op, true);
        op_end(op, ST_OK);
        return;
    }
    op->remote = NULL;
    if (op->damaged) op_quarantined(op, st);
    if (!op->looks) metric_add(M_CACHE_MISSES, 1);
    st_drop(st);
    if (op->waiters.n == 0)
        op_end(op, ST_OK);
    else if (!op_remote_start(op, remotes_said))
        missed(op);
}

// ---- compile

static void add_shape(void *ctx, struct digest key, int64_t used_ns) {
    struct op *op = ctx;
    struct shape_use u = {key, used_ns, store_size(op->s->store, STORE_EXECUTABLE, key)};
    avec_push(&op->arena, &op->shapes, u);
}

static status_t store_artifact(struct op *op) {
    Hlod__Wire__CompileReply *r = op->compile;
    struct span bytes;
    void *base;
    size_t base_bytes;
    RETURN_IF_ERR(blob_map(r->artifact, op->fds, op->n_fds, &bytes, &base, &base_bytes));
    if (!r->info || !bytes.n) return st_internal("incomplete compile reply");
    status_t st = store_put(op->s->store, STORE_EXECUTABLE, op->digest, bytes.p, bytes.n, false);
    r->info->artifact_bytes = (int64_t)bytes.n;
    frame_unmap(base, base_bytes);
    if (st) return st;
    RETURN_IF_ERR(journal_put_message(op->s->journal, JOURNAL_EXECUTABLE, op->digest,
                                      op->model->program, &r->info->base));
    if (!op->counts) return ST_OK;
    return journal_family(op->s->journal, JOURNAL_EXECUTABLE, op->model->program, add_shape, op);
}

static status_t store_work(struct op *op) {
    return error_of_store(store_artifact(op));
}

// All files are looked at: when nobody waits, and for a small part of the time where there are
// many.
enum { MEASURE_PART = 30 };
static void measure_work(void *arg) {
    struct sched *s = arg;
    int64_t start = clock_ns();
    metric_set(M_STORE_BYTES, store_bytes(s->store));
    s->measure_ns = clock_ns() - start;
}
static void measured(void *arg) {
    struct sched *s = arg;
    s->measures = s->measure_timer; // none: it stops
    if (s->measures) loop_timer_start(s->measure_timer, s->measure_ns * MEASURE_PART / CLOCK_MS);
}
static void measure(struct sched *s) {
    s->measure_due = s->measures;
    if (s->measures) return;
    s->measures = true;
    loop_work(s->loop, measure_work, measured, s);
}
void op_measure_due(void *arg) {
    struct sched *s = arg;
    s->measures = false;
    if (s->measure_due) measure(s);
}

static void stored(struct op *op, status_t st) {
    struct sched *s = op->s;
    if (!st) {
        op->exe = exe_ref(sched_keep_exe(op->s, exe_new(op->digest, op->compile->info)));
        op->compile->info = NULL;
        metric_add(M_COMPILES, 1);
        metric_observe_ns(M_COMPILE_TIME, clock_ns() - op->start_ns);
        const Hlod__V1__Counts *n = key_counts(op->exe->info);
        log_event(LOG_INFO, "compile.done", "key=%s ms=%.1f entry=%" PRId64 " fusions=%" PRId64,
                  digest_to_hex(op->digest).z, clock_ms_since(op->start_ns), n ? n->entry : 0,
                  n ? n->fusions : 0);
        op->remote = NULL;
        op->claimed = false;
        op->model->made = op->counts ? 0 : op->model->made + 1;
        if (op->counts) op->model->shapes = op->shapes.n;
        trim(op);
        give_exe(op, false);
        if (s->cfg.remotes) remotes_made(s->cfg.remotes, op->digest);
    }
    op_end(op, st);
    measure(s);
}

// ---- verify

static status_t compare_stored(struct op *op) {
    struct span made, kept;
    void *base;
    size_t bytes;
    RETURN_IF_ERR(store_read(op->s->store, STORE_EXECUTABLE, op->digest, &op->arena, &kept));
    RETURN_IF_ERR(blob_map(op->compile->artifact, op->fds, op->n_fds, &made, &base, &bytes));
    op->differs = artifact_difference(&op->arena, kept, made);
    frame_unmap(base, bytes);
    return ST_OK;
}
static void compared(struct op *op, status_t st) {
    if (op->differs)
        op_deliver(op, ROW_COMPARED,
                   &(struct delivery){
                       .differs = op->differs, .timing = "compile", .since_ns = op->start_ns});
    op_end(op, st);
}

// What only the daemon knows.
static void complete_info(struct op *op) {
    Hlod__V1__ExecutableInfo *x = op->compile->info;
    if (!x) return;
    char now[32];
    clock_wall_text(clock_wall_ns(), now);
    set_digest(&x->digest, op->digest);
    set_digest(&x->source_digest, op->model->source);
    set_digest(&x->program_digest, op->model->program);
    set_digest(&x->weights_digest, op->model->weights);
    set_str(&x->format, op->model->rec->format);
    set_str(&x->device_kind, op->device_kind);
    set_str(&x->target_id, op->target_id);
    set_str(&x->options, op->options);
    set_str(&x->build_id, op->build_id);
    set_str(&x->created, now);
    x->kernel_abi = op->kernel_abi;
    x->weights_bytes = model_weights(op->model);
    set_answers(op, x);

    for (size_t i = 0; i < x->n_bindings; i++)
        free(x->bindings[i]);
    free(x->bindings);
    x->n_bindings = op->n_bindings;
    x->bindings = calloc(op->n_bindings + 1, sizeof *x->bindings);
    if (!x->bindings) abort();
    for (size_t i = 0; i < op->n_bindings; i++) {
        struct strbuf text = {0}; // whole: the key follows from it (scheduler/remote/exchange.c)
        strbuf_printf(&text, "%s=%" PRId64, op->bindings[i]->symbol, op->bindings[i]->size);
        x->bindings[i] = strdup(strbuf_cstr(&text));
        strbuf_done(&text);
        if (!x->bindings[i]) abort();
    }
}

static void on_reply(void *ctx, struct frame *f, status_t lost) {
    struct op *op = ctx;
    if (f && f->type == HLOD__WIRE__TYPE__TYPE_PASS) {
        Hlod__V1__PassStat *p = weigh_unpack_or_null(&hlod__v1__pass_stat__descriptor, f->body);
        if (!p) return;
        Hlod__V1__Event e = HLOD__V1__EVENT__INIT;
        e.kind_case = HLOD__V1__EVENT__KIND_PASS;
        e.pass = p;
        op_tell(op, &e);
        hlod__v1__pass_stat__free_unpacked(p, NULL);
        return;
    }
    if (f && f->type == HLOD__WIRE__TYPE__TYPE_DRAFT) ahead_draft(op, f);
    if (f && f->type != HLOD__WIRE__TYPE__TYPE_COMPILE_REPLY) return;
    if (!op_answered(op, f, lost)) return;
    status_t st = ST_OK;
    op->compile = wire_reply(&hlod__wire__compile_reply__descriptor, f, &st);
    if (st) {
        op_end(op, st);
        return;
    }
    if (op->verify) {
        op_work(op, compare_stored, compared);
        return;
    }

    ahead_whole(op);
    complete_info(op);
    // Records of all shapes take longer to read than a shape to compile: a sixteenth more may come.
    op->counts = op->model->made >= op->model->shapes / 16;
    op_work(op, store_work, stored);
}

// A frame for each pass wakes us as often, which a short compile feels.
static bool told(const struct op *op) {
    for (size_t i = 0; i < op->waiters.n; i++) {
        const struct job *j = op->waiters.v[i];
        if (j->parent) j = j->parent;
        if (j->spec->on_event && !j->spec->quiet) return true;
    }
    return false;
}

// To all who wait, or to the one that has joined a compile under way.
static void tell_compiling(struct op *op, struct job *joined) {
    struct hex_digest hex = digest_to_hex(op->digest);
    Hlod__V1__CompilingEvent compiling = HLOD__V1__COMPILING_EVENT__INIT;
    compiling.digest = hex.z;
    compiling.joined = joined != NULL;
    Hlod__V1__Event e = HLOD__V1__EVENT__INIT;
    e.kind_case = HLOD__V1__EVENT__KIND_COMPILING;
    e.compiling = &compiling;
    if (joined)
        job_event(joined, &e);
    else
        op_tell(op, &e);
}

// The source must be read again: the waiters start over without its record.
static void forget_program(struct op *op) {
    model_unref(smap_del(&op->s->models, digest_str(&op->model->id)));
    for (size_t i = 0; i < op->waiters.n; i++) {
        struct job *j = op->waiters.v[i];
        if (job_invalidate(j, ROW_MODEL)) continue;
        job_finish(j, st_because(ST_DATA_LOSS, CACHE_DAMAGED, "the stored program is damaged"));
        i--;
    }
    op_end(op, ST_OK);
}

static void placed(struct op *op) {
    Hlod__Wire__Blob program;
    int fd, n_fds = 0;
    // Programs have no weights in them: small enough to check here.
    status_t st = wire_blob_open(op->s->store, STORE_PROGRAM, op->model->program, STORE_COPY, &fd,
                                 &n_fds, &program);
    bool lost = st && (st_code(st) == ST_NOT_FOUND || st_code(st) == ST_DATA_LOSS);
    if (lost) {
        st_drop(st);
        forget_program(op);
        return;
    }
    if (st) { // no descriptor, no memory: it is there, and may be read later
        op_end(op, st);
        return;
    }
    op->compiling = true;
    tell_compiling(op, NULL);

    Hlod__Wire__Compile m = HLOD__WIRE__COMPILE__INIT;
    m.format = op->model->rec->format;
    m.program = &program;
    m.bindings = op->bindings;
    m.n_bindings = op->n_bindings;
    m.options = (char *)op->options;
    m.target_id = (char *)op->target_id;
    m.entry_name = (char *)"main";
    m.limits = &op->s->cfg.limits;
    m.quiet = !told(op);
    m.draft = ahead_wanted(op);
    op->start_ns = clock_ns();
    op->call = pool_call(op->slot.w, HLOD__WIRE__TYPE__TYPE_COMPILE, &m.base, &fd, 1, on_reply, op);
    sched_charge(op->slot.w, op->call, op->task.tenant, "compile", op->digest);
    close(fd);
}

static void queue_compile(struct op *op) {
    const struct job *first = op->waiters.v[0]; // on whose account it goes
    int32_t priority = first->spec->priority;
    for (size_t i = 1; i < op->waiters.n; i++)
        if (op->waiters.v[i]->spec->priority > priority)
            priority = op->waiters.v[i]->spec->priority;
    op->placed = placed;
    op_queue(op, op->device_kind, first->tenant, priority);
}

// ---- start

// What a new op is about, copied: the job may end before it.
static void set_key(struct op *op, const struct job *j) {
    op->digest = j->key.digest;
    op->model = model_ref(j->model);
    op->n_bindings = j->key.n_bindings;
    op->bindings = arena_array(&op->arena, Hlod__Wire__Binding *, j->key.n_bindings + 1);
    for (size_t i = 0; i < j->key.n_bindings; i++) {
        op->bindings[i] = arena_dup(&op->arena, j->key.bindings[i], sizeof *j->key.bindings[i]);
        op->bindings[i]->symbol = arena_strdup(&op->arena, j->key.bindings[i]->symbol);
    }
    op->options = arena_strdup(&op->arena, j->key.parts.options);
    op->target_id = arena_strdup(&op->arena, j->key.parts.target_id);
    op->build_id = arena_strdup(&op->arena, j->key.parts.build_id);
    op->device_kind = arena_strdup(&op->arena, j->key.device_kind);
    op->kernel_abi = j->key.parts.kernel_abi;
}

status_t op_verify_start(struct job *j, bool *later) {
    char name[80] = "verify/";
    *later = true;
    digest_hex(j->key.digest, name + strlen(name));
    bool under_way = smap_has(&j->s->ops, str_of(name));
    if (!under_way) RETURN_IF_ERR(sched_aside(j->s, j->tenant, "compile", j->key.digest));
    if (!under_way) RETURN_IF_ERR(sched_take_compile(j->s, j->tenant));
    struct op *op;
    if (!op_wait(j, OP_EXE, name, &op)) return ST_OK;
    set_key(op, j);
    op->verify = true;
    queue_compile(op);
    return ST_OK;
}

status_t op_exe_start(struct job *j, bool *later) {
    char name[80] = "exe/";
    struct exe *e = sched_exe(j->s, j->key.digest);
    if (e) {
        metric_add(M_CACHE_HITS, 1);
        job_deliver(j, ROW_EXECUTABLE, &(struct delivery){.exe = e, .hit = true});
        return ST_OK;
    }
    job_leave_slot(j); // a compile may take long: let others have the place
    *later = true;
    digest_hex(j->key.digest, name + strlen(name));
    struct op *op = smap_get(&j->s->ops, str_of(name));
    if (op && op->compiling && j->spec->no_compile)
        return st_because(ST_FAILED_PRECONDITION, WOULD_COMPILE,
                          "the executable is being compiled and no_compile was asked");
    if (op_wait(j, OP_EXE, name, &op)) {
        set_key(op, j);
        op_work(op, look_up, looked_up);
        return ST_OK;
    }
    job_joined(j);
    metric_add(M_COMPILE_JOINS, 1);
    if (op->compiling) tell_compiling(op, j);
    return ST_OK;
}
