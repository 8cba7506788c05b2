// SPDX-License-Identifier: Apache-2.0
// A job's life: start, what is missing next, events and timings, the one end. See sched.h for the
// picture.
#include "scheduler/job/job.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "scheduler/job/job_call.h"
#include "scheduler/job/job_parts.h"
#include "scheduler/job/job_plan.h"
#include "scheduler/job/job_run.h"
#include "scheduler/loop.h"
#include "scheduler/workers/memfds.h"
#include "scheduler/records/models.h"
#include "scheduler/records/recent.h"

const struct job_result *job_result(const struct job *j) {
    return &j->r;
}
int64_t job_start_ns(const struct job *j) {
    return j->start_ns;
}

void job_event(struct job *j, Hlod__V1__Event *e) {
    if (j->parent && !j->finished) plan_step_event(j, e);
    if (j->finished || !j->spec.on_event) return;
    e->t_ms = (double)(clock_ns() - j->start_ns) / 1e6;
    j->spec.on_event(j->spec.ctx, e);
}

void job_timing(struct job *j, const char *name, int64_t ns) { // told when it ends
    job_timing_to(j, name, ns, clock_ns());
}

void job_timing_to(struct job *j, const char *name, int64_t ns, int64_t end_ns) {
    size_t room = sizeof j->r.timings / sizeof *j->r.timings - 1; // one for the total
    if (j->r.n_timings >= room + !strcmp(name, "total")) return;
    Hlod__V1__Timing *t = arena_new_of(&j->arena, Hlod__V1__Timing);
    hlod__v1__timing__init(t);
    t->name = (char *)name; // always a literal
    t->ms = (double)ns / 1e6;
    t->start_ms = (double)(end_ns - ns - j->start_ns) / 1e6;
    if (t->start_ms < 0) t->start_ms = 0;
    j->r.timings[j->r.n_timings++] = t;
}

static void leave_seat(struct job *j) {
    if (j->parent) // it sits in its parent's
        j->seat = (struct seat){0};
    seat_leave(j->s, &j->seat);
}

// Lets go of everything in flight. The job's results stay.
static void detach(struct job *j) {
    task_drop(&j->task);
    batch_leave(j);
    if (j->op) op_leave(j->op, j);
    if (j->call) job_drop_call(j);
    plan_detach(j);
    leave_seat(j);
    j->tenant->jobs--;
    loop_timer_free(j->deadline);
    j->deadline = NULL;
    j->waits_for_worker = j->woken = false;
    *(j->prev ? &j->prev->next : &j->s->jobs) = j->next;
    if (j->next) j->next->prev = j->prev;
    metric_set(M_JOBS_ACTIVE, --j->s->n_jobs);
}

static const char *const kinds[] = {"compile", "run",  "inspect", "ingest", "warm",
                                    "verify",  "plan", "put",     "get",    "step"};

// What GET /v1/runs shows of the job. Looking at an executable or a model is
// none of it.
static void remember(struct job *j, const char *key, const char *code) {
    if (j->spec.kind == JOB_INSPECT || (j->spec.kind == JOB_INGEST && j->r.ingest_hit)) return;
    Hlod__V1__RunRecord m = HLOD__V1__RUN_RECORD__INIT;
    char source[65], started[32];
    digest_hex(j->r.source, source);
    clock_wall_text(clock_wall_ns() - (clock_ns() - j->start_ns), started);
    m.job = j->r.id;
    m.kind = (char *)kinds[j->spec.kind];
    m.code = (char *)code;
    m.started = started;
    m.model = source;
    m.executable = (char *)key;
    if (j->r.device) m.device = (char *)j->r.device;
    m.tenant = (char *)(j->spec.tenant ? j->spec.tenant : "default");
    if (j->spec.trace) m.trace_id = (char *)j->spec.trace;
    m.cache_hit = j->r.cache_hit;
    m.timings = j->r.timings;
    m.n_timings = j->r.n_timings;
    for (size_t i = 0; i < j->r.n_timings; i++)
        m.compiled |= !strcmp(j->r.timings[i]->name, "compile");
    if (m.compiled && j->exe) {
        m.passes = j->exe->info->passes;
        m.n_passes = j->exe->info->n_passes;
    }
    if (j->r.run) m.profile = j->r.run->profile;
    m.profiled = m.profile != NULL;
    recent_add(j->s->recent, &m, m.compiled || m.profiled);
}

// What a tenant's model was compiled to is the tenant's, by that model.
void job_own_executable(struct job *j) {
    if (!j->exe || !j->model || j->spec.leads) return;
    const char *tenant = j->spec.tenant ? j->spec.tenant : MODELS_DEFAULT;
    struct digest source;
    if (!owners_knows(j->s->owners, tenant, j->exe->key, &source) || digest_is_zero(source))
        owners_add(j->s->owners, tenant, j->exe->key, j->model->source);
}

// A compile that was refused at sizes that the request did not say.
static status_t at_assumed_sizes(const struct job *j, status_t st) {
    if (st_code(st) != ST_INVALID_ARGUMENT || !j->r.n_assumed || j->r.exe ||
        st_get_reason(st) == HLOD__V1__REASON__REASON_BAD_OPTION)
        return st;
    struct strbuf t = {0};
    strbuf_limit(&t, 2000);
    for (size_t i = 0; i < j->r.n_assumed; i++) {
        const Hlod__V1__ShapeBinding *s = j->r.assumed[i];
        strbuf_printf(&t, " %s=", s->input);
        for (size_t d = 0; d < s->n_dims; d++)
            strbuf_printf(&t, "%s%" PRId64, d ? "x" : "", s->dims[d]);
    }
    st = st_note(st, "with shapes that were not given, taken as%s", strbuf_cstr(&t));
    strbuf_done(&t);
    return st;
}

// Memory that its result holds until the client has taken it.
static int64_t result_bytes(const struct job *j) {
    int64_t bytes = 0;
    struct stat s;
    if (j->batch) {
        for (size_t i = 0; j->run && i < j->run->n_outputs; i++)
            bytes += j->run->outputs[i]->data ? (int64_t)j->run->outputs[i]->data->size : 0;
        return bytes;
    }
    for (int i = 0; i < j->r.n_fds; i++)
        if (j->r.fds[i] >= 0 && !fstat(j->r.fds[i], &s)) bytes += s.st_size;
    return bytes;
}

void job_finish(struct job *j, status_t st) {
    if (j->finished) {
        st_drop(st);
        return;
    }
    st = job_note_parts(j, at_assumed_sizes(j, st));
    if (!st) job_own_executable(j);
    // Refused for want of room, not tried: it does not count.
    bool refused = st_code(st) == ST_UNAVAILABLE || st_code(st) == ST_RESOURCE_EXHAUSTED;
    if (j->admitted && refused && !j->r.device) tenant_return(j->tenant, j->admitted_bytes);
    job_timing(j, "total", clock_ns() - j->start_ns);
    j->finished = true;
    detach(j);
    j->unread_bytes = result_bytes(j);
    if (j->unread_bytes) sched_unread(j->s, j->tenant, j->unread_bytes);
    if (j->parent) { // its plan tells
        j->spec.on_done(j->spec.ctx, j, st);
        return;
    }
    char key[65] = "";
    if (!digest_is_zero(j->key)) digest_hex(j->key, key);
    const char *code = st ? st_code_name(st_code(st)) : "OK";
    remember(j, key, code);
    struct strbuf times = {0};
    for (size_t i = 0; i < j->r.n_timings; i++)
        strbuf_printf(&times, " %s_ms=%.2f", j->r.timings[i]->name, j->r.timings[i]->ms);
    // Runs that went well, and looks at models that are known, are too many for a log: they are in
    // /metrics and /v1/runs.
    bool usual = !st && !j->spec.trace &&
                 (j->spec.kind == JOB_RUN || (j->spec.kind == JOB_INGEST && j->r.ingest_hit));
    log_event(usual ? LOG_DEBUG : LOG_INFO, "job.done",
              "job=%llu tenant=%s kind=%s key=%s dev=%s%s code=%s%s%s", (unsigned long long)j->r.id,
              j->tenant->name, kinds[j->spec.kind], *key ? key : "-",
              j->r.device ? j->r.device : "-", strbuf_cstr(&times), code,
              j->spec.trace ? " trace=" : "", j->spec.trace ? j->spec.trace : "");
    strbuf_done(&times);
    j->spec.on_done(j->spec.ctx, j, st);
}

void job_retire(struct job *j) {
    if (j->finished) return;
    j->finished = true;
    detach(j);
}

void job_cancel(struct job *j) {
    if (j->finished) return;
    j->finished = j->cancelled = true;
    metric_add(M_CANCELS, 1);
    log_event(LOG_INFO, "job.cancelled", "job=%llu after_ms=%.1f", (unsigned long long)j->r.id,
              (double)(clock_ns() - j->start_ns) / 1e6);
    detach(j);
}

// The arena may still be used by pool work of a resolve: then that frees the job.
void job_free(struct job *j) {
    if (!j) return;
    if (j->resolving) {
        j->free_later = true;
        return;
    }
    if (j->unread_bytes) sched_unread(j->s, j->tenant, -j->unread_bytes);
    plan_done(j);
    for (size_t i = 0; i < j->kept.n; i++)
        buffer_unref(j->kept.v[i]);
    vec_done(&j->kept);
    if (j->plan_reply) hlod__wire__run_plan_reply__free_unpacked(j->plan_reply, NULL);
    if (j->get_reply) hlod__wire__get_reply__free_unpacked(j->get_reply, NULL);
    model_unref(j->model);
    model_unref(j->weights);
    exe_unref(j->exe);
    if (j->run) hlod__wire__run_reply__free_unpacked(j->run, NULL);
    job_drop_parts(j);
    if (j->inspect) hlod__wire__inspect_reply__free_unpacked(j->inspect, NULL);
    for (int i = 0; i < j->r.n_fds; i++)
        if (j->r.fds[i] >= 0 && !j->out && !j->batch) close(j->r.fds[i]);
    memfd_unref(j->out);
    batch_unref(j->batch);
    st_drop(j->refused);
    arena_done(&j->arena);
    free(j);
}

static void on_deadline(void *arg) {
    struct job *j = arg;
    bool in_batch = j->waits_for_batch;
    job_finish(j,
               st_reason(st_new(ST_DEADLINE_EXCEEDED, "the deadline of %lld ms passed while %s",
                                (long long)j->spec.timeout_ms,
                                in_batch && !batch_runs(j->batch)   ? "waiting for a batch"
                                : j->call || in_batch               ? "running"
                                : task_waits(&j->task)              ? "waiting for a device worker"
                                : j->op && task_waits(&j->op->task) ? "waiting for a compile worker"
                                : j->op && j->op->kind == OP_INGEST ? "reading the model"
                                : j->op && j->op->kind == OP_PREPARE ? "preparing weights"
                                : j->op                              ? "compiling"
                                                                     : "starting"),
                         HLOD__V1__REASON__REASON_DEADLINE));
}

static void first_step(void *arg) {
    struct job *j = arg;
    j->resolving = false;
    if (j->free_later)
        job_free(j);
    else if (j->finished)
        return;
    else if (j->refused) {
        status_t st = j->refused;
        j->refused = ST_OK;
        job_finish(j, st);
    } else
        job_advance(j);
}

struct job *job_start(struct sched *s, const struct job_spec *spec) {
    struct job *j = calloc(1, sizeof *j);
    if (!j) abort();
    j->s = s;
    j->spec = *spec;
    j->start_ns = clock_ns();
    j->r.id = ++s->next_job;
    j->r.source = spec->model;
    // A batch's leader runs what its members found.
    if (s->cfg.by_tenant && !spec->sees_all && !spec->leads)
        j->owner = spec->tenant ? spec->tenant : MODELS_DEFAULT;
    if (spec->kind == JOB_STEP) // its plan's deadline is its own
        j->parent = spec->ctx;
    else if (!j->spec.timeout_ms)
        j->spec.timeout_ms = s->cfg.default_timeout_ms;
    j->tenant = tenants_get(&s->tenants, spec->tenant, j->start_ns);
    j->tenant->jobs++;
    j->tenant->total_jobs++;
    if (s->last_tenant && s->last_tenant != j->tenant) s->mixed_ns = j->start_ns;
    s->last_tenant = j->tenant;
    bool runs = spec->kind == JOB_RUN || spec->kind == JOB_PLAN || spec->kind == JOB_PUT;
    if (runs && !spec->leads) { // whose members have been counted
        int64_t bytes = 0;
        for (size_t i = 0; i < spec->n_inputs; i++)
            bytes += spec->inputs[i].size;
        j->tenant->total_bytes += bytes;
        j->refused = tenant_admit(j->tenant, j->start_ns, bytes);
        j->admitted = !j->refused;
        j->admitted_bytes = bytes;
    }
    if (j->spec.timeout_ms) {
        j->deadline_ns = j->start_ns + j->spec.timeout_ms * 1000000;
        j->deadline = loop_timer_new(s->loop, on_deadline, j);
        loop_timer_start(j->deadline, j->spec.timeout_ms);
    }
    j->next = s->jobs;
    if (j->next) j->next->prev = j;
    s->jobs = j;
    metric_set(M_JOBS_ACTIVE, ++s->n_jobs);
    j->resolving = true; // a posted step holds it, see job_free
    loop_post(s->loop, first_step, j);
    return j;
}

static void emit_compiled(struct job *j) {
    char hex[65];
    digest_hex(j->key, hex);
    Hlod__V1__CompiledEvent compiled = HLOD__V1__COMPILED_EVENT__INIT;
    compiled.digest = hex;
    compiled.cache_hit = j->r.cache_hit;
    compiled.ms = j->exe->info->compile_ms;
    compiled.before = j->exe->info->before;
    compiled.after = j->exe->info->after;
    Hlod__V1__Event e = HLOD__V1__EVENT__INIT;
    e.kind_case = HLOD__V1__EVENT__KIND_COMPILED;
    e.compiled = &compiled;
    job_event(j, &e);
}

// Dimensions from `from` on that only a request fixes.
static bool has_open_dims(const Hlod__V1__Signature *s, size_t from) {
    for (size_t i = 0; i < s->n_inputs; i++)
        for (size_t d = from; d < s->inputs[i]->n_dims; d++)
            if (s->inputs[i]->dims[d]->size < 0) return true;
    return false;
}

// Of the bucket just compiled; one of a single row shows nothing about rows, unless it is to be
// compared with the only other. False: the job has ended.
static bool rows_fit(struct job *j) {
    const struct batching *b = &j->spec.batching;
    if (b->max <= 1 || (b->unchecked && !j->exe->info->part)) return true;
    status_t st = ST_OK;
    if (j->exe->info->part)
        st = st_reason(st_new(ST_INVALID_ARGUMENT,
                              "sizes in this model come from values that only a run has: runs of "
                              "it cannot be joined"),
                       HLOD__V1__REASON__REASON_BAD_OPTION);
    else if (j->n_warm > 1) {
        int64_t bucket = batch_bucket(INT64_C(1) << (j->n_warm - 1), b->max);
        st = batch_check_rows(j->exe->info, j->constants);
        if (!st) st = batch_check_outputs(j->exe->info, bucket);
    }
    if (j->n_warm > 1 || b->max == 2)
        j->constants = arena_strdup(&j->arena, j->exe->info->constants_digest);
    if (st) job_finish(j, st);
    return !st;
}

// A model whose runs will be joined is compiled for one bucket after the other. False: all done.
static bool warm_next_bucket(struct job *j) {
    const Hlod__V1__Signature *sig = j->model->rec->signature;
    int64_t max = j->spec.batching.max, bucket = batch_bucket(INT64_C(1) << j->n_warm, max);
    if (max <= 1 || (j->n_warm && batch_bucket(INT64_C(1) << (j->n_warm - 1), max) == max))
        return false;
    j->n_warm++;
    Hlod__V1__ShapeBinding **v =
        arena_array(&j->arena, Hlod__V1__ShapeBinding *, sig->n_inputs + 1);
    for (size_t i = 0; i < sig->n_inputs; i++) {
        v[i] = arena_new_of(&j->arena, Hlod__V1__ShapeBinding);
        hlod__v1__shape_binding__init(v[i]);
        v[i]->input = sig->inputs[i]->name;
        v[i]->n_dims = sig->inputs[i]->n_dims;
        v[i]->dims = arena_array(&j->arena, int64_t, v[i]->n_dims + 1);
        for (size_t d = 0; d < v[i]->n_dims; d++)
            v[i]->dims[d] = d ? sig->inputs[i]->dims[d]->size : bucket;
    }
    j->spec.shapes = v;
    j->spec.n_shapes = sig->n_inputs;
    j->exe = exe_unref(j->exe);
    j->bound = false;
    return true;
}

void job_advance(struct job *j) {
    if (j->finished) return;
    if (j->s->stopping) {
        job_finish(j, st_reason(st_new(ST_UNAVAILABLE, "the server is shutting down"),
                                HLOD__V1__REASON__REASON_SHUTTING_DOWN));
        return;
    }
    if (j->spec.kind == JOB_PLAN || j->spec.kind == JOB_PUT || j->spec.kind == JOB_GET) {
        (j->spec.kind == JOB_PLAN ? plan_advance : buffers_advance)(j);
        return;
    }
    if (!j->model) {
        job_resolve(j);
        return;
    }
    j->r.model = j->model->rec;
    j->r.source = j->model->source;
    bool batched = j->spec.kind == JOB_WARM && j->spec.batching.max > 1;
    if (batched && !j->n_warm) {
        status_t st = batch_check(&j->spec.batching, j->model->rec->signature);
        if (!st && !j->spec.batching.unchecked && has_open_dims(j->model->rec->signature, 1))
            st = st_reason(
                st_new(ST_INVALID_ARGUMENT,
                       "only dimension 0 may be open where the compiler shall show that rows are "
                       "independent; if they are, say batching.unchecked"),
                HLOD__V1__REASON__REASON_BAD_OPTION);
        if (st) {
            job_finish(j, st);
            return;
        }
    }
    if (j->spec.kind == JOB_INGEST ||
        (j->spec.kind == JOB_WARM && has_open_dims(j->model->rec->signature, batched))) {
        job_finish(j, ST_OK);
        return;
    }
    if (batched && !j->n_warm) warm_next_bucket(j);
    if (batch_wants(j)) {
        batch_join(j);
        return;
    }
    if (!j->bound) {
        bool wait = false;
        status_t st = job_bind(j, &wait);
        if (st) job_finish(j, st);
        if (st || wait) return;
        j->bound = true;
    }
    if (!j->exe) {
        struct exe *e = sched_exe(j->s, j->key);
        if (!e) {
            j->told_compiled = false;
            leave_seat(j); // a compile may take long: let others have the place
            op_exe_start(j);
            return;
        }
        j->exe = exe_ref(e);
        j->r.cache_hit = true;
        metric_add(M_CACHE_HITS, 1);
    }
    j->r.exe = j->exe->info;
    if (!j->told_compiled) {
        j->told_compiled = true;
        emit_compiled(j);
    }
    switch (j->spec.kind) {
    case JOB_WARM:
        if (!rows_fit(j)) return;
        if (warm_next_bucket(j))
            job_advance(j);
        else
            job_finish(j, ST_OK);
        return;
    case JOB_COMPILE:
        job_finish(j, ST_OK);
        return;
    case JOB_VERIFY:
        if (j->r.differs)
            job_finish(j, ST_OK);
        else
            op_verify_start(j);
        return;
    case JOB_RUN:
        job_run(j);
        return;
    case JOB_INSPECT:
        job_inspect(j);
        return;
    case JOB_STEP: {
        status_t st = job_check_part(j);
        if (st)
            job_finish(j, st);
        else
            plan_step_ready(j);
        return;
    }
    case JOB_INGEST: // ended above
    case JOB_PLAN:   // have nothing of this
    case JOB_PUT:
    case JOB_GET:
        return;
    }
}
