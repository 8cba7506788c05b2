// SPDX-License-Identifier: Apache-2.0
// A job's life: start, events and timings, the one end. What it does in between is job_table.c.
#include "scheduler/job/job_inside.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/text.h"
#include "scheduler/job/job_call.h"
#include "scheduler/loop.h"
#include "scheduler/records/models.h"
#include "scheduler/records/recent.h"
#include "scheduler/workers/memfds.h"

const struct job_result *job_result(const struct job *j) {
    return &j->r;
}
int64_t job_start_ns(const struct job *j) {
    return j->start_ns;
}

void job_event(struct job *j, Hlod__V1__Event *e) {
    if (!j->finished && job_kind(j)->tell) job_kind(j)->tell(j, e);
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

void job_event_queued(struct job *j) {
    Hlod__V1__QueuedEvent queued = HLOD__V1__QUEUED_EVENT__INIT;
    queued.job = j->r.id;
    queued.position = (uint32_t)j->s->queue[ROLE_DEVICE].n;
    Hlod__V1__Event e = HLOD__V1__EVENT__INIT;
    e.kind_case = HLOD__V1__EVENT__KIND_QUEUED;
    e.queued = &queued;
    job_event(j, &e);
}

// ---- what others tell it

void job_hold(struct job *j) {
    j->held = true;
}
bool job_held_no_more(struct job *j) {
    bool goes_on = !j->finished;
    j->held = false;
    if (j->free_later) job_free(j);
    return goes_on;
}
void job_wait_op(struct job *j, struct op *op) {
    j->op = op;
}
void job_wait_worker(struct job *j) {
    j->waits_for_worker = true;
}
void job_choose_device(struct job *j, const char *kind) {
    j->spec.device = kind;
}
void job_count_out(struct job *j, int64_t bytes) {
    metric_add(M_DEVICE_BYTES_OUT, bytes);
    j->tenant->total_bytes += bytes;
    quota_charge(&j->tenant->bytes, bytes);
}
void job_drop_result(struct job *j) {
    for (int i = 0; i < j->r.n_fds && !j->out; i++)
        close(j->r.fds[i]);
    memfd_unref(j->out);
    j->out = j->r.memory = NULL;
    j->r.n_fds = 0;
}
struct seat *job_seat(struct job *j) {
    return j->parent ? &j->parent->seat : &j->seat;
}

// ---- its inputs

int job_replicas(const struct job *j) {
    const Hlod__V1__CompileOptions *o = j->spec.options;
    int n = j->exe ? j->exe->info->replicas : o ? o->replicas : 1;
    return n > 1 ? n : 1;
}

const Hlod__V1__TensorSpec *job_signature_input(const Hlod__V1__Signature *sig, const char *name) {
    for (size_t i = 0; i < sig->n_inputs; i++)
        if (!strcmp(sig->inputs[i]->name, name)) return sig->inputs[i];
    return NULL;
}

// The model's name of the input that is given as `name`; `name` itself where that is one, or none.
static const char *name_of_alias(const Hlod__V1__Signature *sig, const char *name) {
    if (!*name || job_signature_input(sig, name)) return name;
    for (size_t i = 0; i < sig->n_inputs; i++)
        if (*sig->inputs[i]->alias && !strcmp(sig->inputs[i]->alias, name))
            return sig->inputs[i]->name;
    return name;
}

void job_rename_inputs(struct job *j) {
    const Hlod__V1__Signature *sig = j->model->rec->signature;
    bool any = false;
    for (size_t i = 0; i < sig->n_inputs; i++)
        any |= *sig->inputs[i]->alias != 0;
    if (!any) return;
    struct job_spec *spec = &j->spec;
    if (spec->n_inputs) {
        struct job_input *in =
            arena_dup(&j->arena, spec->inputs, spec->n_inputs * sizeof *spec->inputs);
        for (size_t k = 0; k < spec->n_inputs; k++)
            in[k].name = name_of_alias(sig, in[k].name);
        spec->inputs = in;
    }
    Hlod__V1__ShapeBinding **shapes =
        arena_array(&j->arena, Hlod__V1__ShapeBinding *, spec->n_shapes + 1);
    for (size_t k = 0; k < spec->n_shapes; k++) {
        shapes[k] = arena_dup(&j->arena, spec->shapes[k], sizeof *shapes[k]);
        shapes[k]->input = (char *)(uintptr_t)name_of_alias(sig, shapes[k]->input);
    }
    spec->shapes = shapes;
}

// ---- the end

static bool is_batched(const struct job *j) {
    return j->spec.kind == JOB_RUN && j->run.batch;
}

// Nobody waits for the call any more: it holds the place now.
static void drop_call(struct job *j) {
    j->call->j = NULL;
    j->call->seat = j->seat;
    j->seat = (struct seat){0};
    pool_cancel(j->call->w, j->call->id);
    j->call = NULL;
}

// Lets go of everything in flight. The job's results stay.
static void detach(struct job *j) {
    task_drop(&j->task);
    if (j->op) op_leave(j->op, j);
    if (j->call) drop_call(j);
    if (job_kind(j)->detach) job_kind(j)->detach(j);
    job_leave_slot(j);
    j->tenant->jobs--;
    loop_timer_free(j->deadline);
    j->deadline = NULL;
    j->waits_for_worker = j->woken = false;
    *(j->prev ? &j->prev->next : &j->s->jobs) = j->next;
    if (j->next) j->next->prev = j->prev;
    metric_set(M_JOBS_ACTIVE, --j->s->n_jobs);
}

// The beginning of why it failed, in the job's arena: messages name what the client sent.
static char *failure_text(struct job *j, status_t st) {
    enum { MOST = 500 };
    struct str all = str_of(st_message(st)), rest = all;
    struct strbuf shown = {0};
    uint32_t code;
    while (rest.n) {
        size_t n = text_first(rest, &code);
        if ((size_t)(rest.p - all.p) + n > MOST) break;
        rest = (struct str){rest.p + n, rest.n - n};
    }
    text_show(&shown, (struct str){all.p, all.n - rest.n}, "");
    if (rest.n) strbuf_puts(&shown, " ...");
    char *text = arena_strdup(&j->arena, strbuf_cstr(&shown));
    strbuf_done(&shown);
    return text;
}

// What GET /v1/runs shows of the job. Looking at an executable or a model is
// none of it.
static void remember(struct job *j, const char *key, status_t st) {
    if (j->spec.kind == JOB_INSPECT || (j->spec.kind == JOB_INGEST && j->r.ingest_hit)) return;
    Hlod__V1__RunRecord m = HLOD__V1__RUN_RECORD__INIT;
    char source[65], started[32];
    digest_hex(j->r.source, source);
    clock_wall_text(clock_wall_ns() - (clock_ns() - j->start_ns), started);
    m.job = j->r.id;
    m.kind = (char *)job_kind(j)->name;
    m.code = (char *)(st ? st_code_name(st_code(st)) : "OK");
    m.message = failure_text(j, st);
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
    if (is_batched(j)) return 0; // its leader's
    for (int i = 0; i < j->r.n_fds; i++)
        if (j->r.fds[i] >= 0 && !fstat(j->r.fds[i], &s)) bytes += s.st_size;
    return bytes;
}

void job_finish(struct job *j, status_t st) {
    if (j->finished) {
        st_drop(st);
        return;
    }
    st = at_assumed_sizes(j, st);
    if (job_kind(j)->note) st = job_kind(j)->note(j, st);
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
    if (!digest_is_zero(j->key.digest)) digest_hex(j->key.digest, key);
    const char *code = st ? st_code_name(st_code(st)) : "OK";
    remember(j, key, st);
    struct strbuf times = {0};
    for (size_t i = 0; i < j->r.n_timings; i++)
        strbuf_printf(&times, " %s_ms=%.2f", j->r.timings[i]->name, j->r.timings[i]->ms);
    // Runs that went well, and looks at models that are known, are too many for a log: they are in
    // /metrics and /v1/runs.
    bool usual = !st && !j->spec.trace &&
                 (j->spec.kind == JOB_RUN || (j->spec.kind == JOB_INGEST && j->r.ingest_hit));
    log_event(usual ? LOG_DEBUG : LOG_INFO, "job.done",
              "job=%llu tenant=%s kind=%s key=%s dev=%s%s code=%s%s%s", (unsigned long long)j->r.id,
              j->tenant->name, job_kind(j)->name, *key ? key : "-", j->r.device ? j->r.device : "-",
              strbuf_cstr(&times), code, j->spec.trace ? " trace=" : "",
              j->spec.trace ? j->spec.trace : "");
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
    if (j->held) {
        j->free_later = true;
        return;
    }
    if (j->unread_bytes) sched_unread(j->s, j->tenant, -j->unread_bytes);
    for (int i = 0; i < j->r.n_fds; i++)
        if (j->r.fds[i] >= 0 && !j->out && !is_batched(j)) close(j->r.fds[i]);
    if (job_kind(j)->free) job_kind(j)->free(j);
    if (j->reply.any) protobuf_c_message_free_unpacked(j->reply.any, NULL);
    model_unref(j->model);
    model_unref(j->weights);
    exe_unref(j->exe);
    memfd_unref(j->out);
    st_drop(j->refused);
    arena_done(&j->arena);
    free(j);
}

static void on_deadline(void *arg) {
    struct job *j = arg;
    job_finish(j, st_reason(st_new(ST_DEADLINE_EXCEEDED, "the deadline of %lld ms passed while %s",
                                   (long long)j->spec.timeout_ms, job_doing(j)),
                            HLOD__V1__REASON__REASON_DEADLINE));
}

static void first_step(void *arg) {
    struct job *j = arg;
    if (!job_held_no_more(j)) return;
    if (j->refused) {
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
    job_hold(j); // for the posted step
    loop_post(s->loop, first_step, j);
    return j;
}
