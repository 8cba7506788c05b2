// SPDX-License-Identifier: Apache-2.0
// A job's state, and the only file that writes it: how rows are had and given up, what others tell
// of it, its start and its one end. Which rows there are is job_table.c, what is told of a job that
// has ended job_report.c.
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "proto/message.h"
#include "scheduler/job/job_call.h"
#include "scheduler/job/job_run.h"
#include "scheduler/loop.h"
#include "scheduler/records/models.h"
#include "scheduler/workers/memfds.h"

static void forget_from(struct job *j, enum job_row first);

// ---- what is told

const struct job_result *job_result(const struct job *j) {
    return &j->r;
}
int64_t job_start_ns(const struct job *j) {
    return j->start_ns;
}

void job_event(struct job *j, Hlod__V1__Event *e) {
    if (!j->finished && job_kind(j)->tell) job_kind(j)->tell(j, e);
    if (j->finished || !j->spec->on_event) return;
    e->t_ms = clock_ms_since(j->start_ns);
    j->spec->on_event(j->spec->ctx, e);
}

void job_timing(struct job *j, const char *name, int64_t ns) { // told when it ends
    job_timing_to(j, name, ns, clock_ns());
}

void job_timing_to(struct job *j, const char *name, int64_t ns, int64_t end_ns) {
    size_t room = sizeof j->r.timings / sizeof *j->r.timings - 1; // one for the total
    if (j->r.n_timings >= room + !strcmp(name, "total")) return;
    Hlod__V1__Timing *t = message_new(&j->arena, &hlod__v1__timing__descriptor);
    t->name = (char *)name; // always a literal
    t->ms = clock_ms(ns);
    t->start_ms = clock_ms(end_ns - ns - j->start_ns);
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

void job_event_ingest(struct job *j, const struct model *m, int64_t since_ns) {
    struct hex_digest source = digest_to_hex(m->source);
    Hlod__V1__IngestEvent ingest = HLOD__V1__INGEST_EVENT__INIT;
    ingest.source_digest = source.z;
    ingest.hit = !since_ns;
    if (since_ns) ingest.ms = clock_ms_since(since_ns);
    ingest.signature = m->rec->signature;
    ingest.format = m->rec->format;
    for (size_t i = 0; since_ns && i < m->rec->n_weights; i++)
        sz_sum(&ingest.weights_bytes, m->rec->weights[i]->size);
    Hlod__V1__Event e = HLOD__V1__EVENT__INIT;
    e.kind_case = HLOD__V1__EVENT__KIND_INGEST;
    e.ingest = &ingest;
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
    j->device = kind;
}
void job_count_out(struct job *j, Hlod__Wire__WireTensor *const *v, size_t n) {
    int64_t bytes = 0;
    for (size_t i = 0; i < n; i++)
        bytes += v[i]->data ? (int64_t)v[i]->data->size : 0;
    metric_add(M_DEVICE_BYTES_OUT, bytes);
    j->tenant->total_bytes += bytes;
    quota_charge(&j->tenant->bytes, bytes);
}
void job_joined(struct job *j) {
    if (j->spec->kind == JOB_COMPILE) j->r.compile.joined = true;
}
void job_answer(struct job *j, const struct job_result *r) {
    j->r = *r;
}
static struct slot *slot_of(struct job *j) {
    return j->parent ? &j->parent->slot : &j->slot;
}
void job_used(struct job *j, int64_t ns) {
    slot_of(j)->used_ns = ns;
}
void job_used_before(struct job *j, int64_t ns) {
    slot_of(j)->before_ns += ns;
}
struct slot job_take_slot(struct job *j) {
    struct slot taken = *slot_of(j);
    *slot_of(j) = (struct slot){0};
    return taken;
}

// ---- its call

void job_sent(struct job *j, struct run_call *c) {
    j->call = c;
    j->sent_ns = clock_ns();
}

void job_answered(struct job *j, struct frame *f, struct memfd *out) {
    j->call = NULL;
    j->r.n_fds = f ? f->n_fds : 0;
    for (int i = 0; i < j->r.n_fds; i++)
        j->r.fds[i] = frame_take_fd(f, i);
    if (!out || !f || f->n_fds) {
        memfd_unref(out);
        return;
    }
    j->out = j->r.memory = out; // the results lie where we said
    j->r.fds[0] = memfd_fd(out);
    j->r.n_fds = 1;
}

Hlod__Wire__RunReply *job_take_reply(struct job *j, int *fd, struct memfd **memory) {
    Hlod__Wire__RunReply *r = j->reply.run;
    if (j->r.n_fds) *fd = j->r.fds[0];
    if (j->out) *memory = j->out;
    j->reply.any = NULL;
    j->out = j->r.memory = NULL;
    j->r.n_fds = 0;
    return r;
}

// ---- its inputs

static bool brings_inputs(const struct job *j) {
    enum job_kind kind = j->spec->kind;
    return kind == JOB_RUN || kind == JOB_STEP || kind == JOB_PLAN || kind == JOB_PUT;
}

int job_replicas(const struct job *j) {
    const Hlod__V1__CompileOptions *o = j->spec->options;
    int n = j->exe ? j->exe->info->replicas : o ? o->replicas : 1;
    return n > 1 ? n : 1;
}

// The model's name of the input that is given as `name`; `name` itself where that is one, or none.
static const char *name_of_alias(const Hlod__V1__Signature *sig, const char *name) {
    if (!*name || key_input(sig, name)) return name;
    for (size_t i = 0; i < sig->n_inputs; i++)
        if (*sig->inputs[i]->alias && !strcmp(sig->inputs[i]->alias, name))
            return sig->inputs[i]->name;
    return name;
}

// The job's inputs, and shapes, that are called by an alias get the model's own names.
static void rename_inputs(struct job *j) {
    const Hlod__V1__Signature *sig = j->model->rec->signature;
    bool any = false;
    for (size_t i = 0; i < sig->n_inputs; i++)
        any |= *sig->inputs[i]->alias != 0;
    if (!any) return;

    const struct job_spec *spec = j->spec;
    if (brings_inputs(j) && spec->n_inputs) {
        struct job_input *in =
            arena_dup(&j->arena, spec->inputs, spec->n_inputs * sizeof *spec->inputs);
        for (size_t k = 0; k < spec->n_inputs; k++)
            in[k].name = name_of_alias(sig, in[k].name);
        j->inputs = in;
    }

    size_t n = spec->kind == JOB_COMPILE ? spec->compile.n_shapes : 0;
    Hlod__V1__ShapeBinding **shapes = arena_array(&j->arena, Hlod__V1__ShapeBinding *, n + 1);
    for (size_t k = 0; k < n; k++) {
        shapes[k] = arena_dup(&j->arena, spec->compile.shapes[k], sizeof *shapes[k]);
        shapes[k]->input = (char *)(uintptr_t)name_of_alias(sig, shapes[k]->input);
    }
    j->shapes = shapes;
}

// ---- rows

void job_forget_model(struct job *j) {
    j->subject = j->model->source; // an executable's digest has led here
    j->reread = true;
    j->model = model_unref(j->model);
    j->weights = model_unref(j->weights);
}
void job_forget_executable(struct job *j) {
    j->exe = exe_unref(j->exe);
    j->r.exe = NULL;
}
void job_forget_slot(struct job *j) {
    if (j->parent) // it sits in its parent's
        j->slot = (struct slot){0};
    slot_leave(j->s, &j->slot);
}
void job_leave_slot(struct job *j) {
    job_forget_slot(j);
    j->has &= ~(ROW_BIT(ROW_SLOT) | ROW_BIT(ROW_PREPARED));
}
void job_forget_prepared(struct job *j) {
    if (job_kind(j)->unprepare) job_kind(j)->unprepare(j);
}
void job_forget_reply(struct job *j) {
    if (j->reply.any) protobuf_c_message_free_unpacked(j->reply.any, NULL);
    j->reply.any = NULL;
    for (int i = 0; i < j->r.n_fds && !j->out; i++)
        close(j->r.fds[i]);
    memfd_unref(j->out);
    j->out = j->r.memory = NULL;
    j->r.n_fds = 0;
}

static struct job *of_task(struct task *t) {
    return (struct job *)((char *)t - offsetof(struct job, task));
}
static void no_slot(struct task *t, status_t st) {
    job_finish(of_task(t), st);
}
static void placed(struct task *t) {
    struct job *j = of_task(t);
    bool told = t->want.role == ROLE_DEVICE;
    job_deliver(j, ROW_SLOT,
                &(struct delivery){
                    .slot = &t->slot, .timing = told ? "queue" : NULL, .since_ns = t->queued_ns});
    job_advance(j);
}
status_t job_start_slot(struct job *j, bool *later) {
    *later = true;
    if (j->parent) { // its plan gives it, when all steps are here
        job_kind(j)->end(j);
        return ST_OK;
    }

    forget_from(j, ROW_SLOT); // one of a worker that has died
    j->task = (struct task){.want = {.role = ROLE_DEVICE},
                            .tenant = j->tenant,
                            .placed = placed,
                            .failed = no_slot,
                            .item = {.priority = j->spec->priority, .deadline_ns = j->deadline_ns}};

    RETURN_IF_ERR(job_kind(j)->want(j, &j->task));
    if (j->task.want.role == ROLE_DEVICE) job_event_queued(j);
    task_queue(j->s, &j->task);
    return ST_OK;
}
void job_deliver(struct job *j, enum job_row row, const struct delivery *d) {
    if (d->timing) job_timing(j, d->timing, clock_ns() - d->since_ns);
    if (row == ROW_MODEL && d->weights) j->weights = model_ref(d->weights);
    if (row == ROW_MODEL && !d->model) return;

    switch (row) {
    case ROW_MODEL:
        j->model = model_ref(d->model);
        if (!j->weights) j->weights = model_ref(d->model);
        j->r.model = d->model->rec;
        j->r.source = d->model->source;
        j->r.ingest_hit |= d->hit;
        rename_inputs(j);
        break;
    case ROW_KEY:
        j->key = *d->key;
        if (j->spec->kind != JOB_COMPILE) break;
        j->r.compile.assumed = d->key->assumed;
        j->r.compile.n_assumed = d->key->n_assumed;
        break;
    case ROW_EXECUTABLE:
        j->exe = exe_ref(d->exe);
        j->r.cache_hit = d->hit;
        if (d->remote) j->r.remote = arena_strdup(&j->arena, d->remote);
        break;
    case ROW_CHECKED:
        if (j->exe) j->r.exe = j->exe->info;
        j->r.names = d->names;
        j->r.outputs = d->outputs;
        j->r.n_outputs = d->n_outputs;
        break;
    case ROW_COMPARED:
        j->r.verify.differs = arena_strdup(&j->arena, d->differs);
        break;
    case ROW_SLOT:
        j->slot = *d->slot;
        if (!j->parent && j->slot.role == ROLE_DEVICE)
            j->r.device = arena_strdup(&j->arena, worker_hello(j->slot.w)->device_name);
        j->has &= ~ROW_BIT(ROW_PREPARED); // not there
        break;
    case ROW_REPLY:
        j->reply.any = d->reply;
        break;
    default: // are had or not
        break;
    }
    j->has |= ROW_BIT(row);
}

static void forget_from(struct job *j, enum job_row first) {
    for (int row = ROWS - 1; row >= (int)first; row--) {
        if ((j->has & ROW_BIT(row)) && job_rows[row].forget) job_rows[row].forget(j);
        j->has &= ~ROW_BIT(row);
    }
    if (j->at > first) j->at = first;
}
bool job_invalidate(struct job *j, enum job_row row) {
    if (j->retries >= job_rows[row].retries) return false;
    j->retries++;
    forget_from(j, row);
    return true;
}
void job_repeat(struct job *j, enum job_row row) {
    j->retries = 0;
    forget_from(j, row);
}

bool job_call_again(struct job *j, status_t st, bool lost, bool began) {
    bool waited = lost && !began; // it only waited there: another worker, or the next life
    bool evicted = st_code(st) == ST_NOT_FOUND &&
                   st_get_reason(st) == HLOD__V1__REASON__REASON_EXECUTABLE_NOT_FOUND;
    if (!waited && !evicted) return false;
    if (!job_invalidate(j, waited ? ROW_SLOT : ROW_PREPARED)) return false;
    st_drop(st);
    if (evicted && worker_epoch(j->slot.w) == j->slot.epoch) job_kind(j)->evicted(j);
    job_forget_reply(j);
    job_advance(j);
    return true;
}

bool job_call_moved(struct job *j, const struct worker *w, status_t lost) {
    forget_from(j, ROW_SLOT);
    return task_moved(&j->task, w, lost);
}

void job_advance(struct job *j) {
    while (!j->finished) {
        if (j->s->stopping) {
            job_finish(j, st_because(ST_UNAVAILABLE, SHUTTING_DOWN, "the server is shutting down"));
            return;
        }
        enum job_row row = job_next_row(j);
        if (row == ROWS) {
            if (job_kind(j)->end)
                job_kind(j)->end(j);
            else
                job_finish(j, ST_OK);
            return;
        }

        j->at = row;
        bool later = false;
        status_t st = job_rows[row].start(j, &later);
        if (st) job_finish(j, st);
        if (st || later) return;
    }
}

void jobs_wake(struct sched *s) {
    for (struct job *j = s->jobs; j; j = j->next)
        j->woken = j->waits_for_worker || (task_waits(&j->task) && job_kind(j)->lost);
    for (struct job *j = s->jobs; j && !s->stopping;) {
        if (!j->woken) {
            j = j->next;
            continue;
        }
        j->woken = false;
        if (j->waits_for_worker) {
            j->waits_for_worker = false;
            j->has &= ~ROW_BIT(ROW_JOINED); // there may be a device to wait with others for
            job_advance(j);
        } else {
            status_t st = job_kind(j)->lost(j);
            if (!st) continue;
            job_finish(j, st);
        }
        j = s->jobs; // advancing one may end and free others: look from the start again
    }
}

// ---- the end

static bool is_batched(const struct job *j) {
    return j->spec->kind == JOB_RUN && j->run->batch;
}

// Nobody waits for the call any more: it holds the place now.
static void drop_call(struct job *j) {
    j->call->j = NULL;
    j->call->slot = j->slot;
    j->slot = (struct slot){0};
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

// What a tenant's model was compiled to is the tenant's, by that model.
void job_own_executable(struct job *j) {
    if (!j->exe || !j->model || job_leads(j)) return;
    const char *tenant = j->spec->tenant ? j->spec->tenant : MODELS_DEFAULT;
    struct digest source;
    if (!owners_knows(j->s->owners, tenant, j->exe->key, &source) || digest_is_zero(source))
        owners_add(j->s->owners, tenant, j->exe->key, j->model->source);
}

// Memory that its result holds until the client has taken it.
static int64_t result_bytes(const struct job *j) {
    int64_t bytes = 0;
    struct stat s;
    for (size_t k = 0; j->r.node && k < j->r.reply->n_outputs; k++)
        bytes += (int64_t)j->r.reply->outputs[k]->data->size;
    if (is_batched(j)) return bytes; // the rest is its leader's
    for (int i = 0; i < j->r.n_fds; i++)
        if (j->r.fds[i] >= 0 && !fstat(j->r.fds[i], &s)) bytes += s.st_size;
    return bytes;
}

void job_finish(struct job *j, status_t st) {
    if (j->finished) {
        st_drop(st);
        return;
    }
    if (st && j->spec->may_leave && !j->away && job_kind(j)->leave &&
        (j->away = job_kind(j)->leave(j, st))) {
        st_drop(st);
        return;
    }
    st = job_at_assumed_sizes(j, st);
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

    if (!j->parent) j->r.record = job_report(j, job_kind(j)->name, st); // else its plan tells
    j->spec->on_done(j->spec->ctx, j, st);
}

void job_retire(struct job *j) {
    if (j->finished) return;
    j->finished = true;
    detach(j);
}

void job_cancel(struct job *j) {
    if (j->finished) return;
    j->finished = true;
    metric_add(M_CANCELS, 1);
    log_event(LOG_INFO, "job.cancelled", "job=%llu after_ms=%.1f", (unsigned long long)j->r.id,
              clock_ms_since(j->start_ns));
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
    job_finish(j,
               st_because(ST_DEADLINE_EXCEEDED, DEADLINE, "the deadline of %lld ms passed while %s",
                          (long long)j->timeout_ms, job_doing(j)));
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

// By its tenant's quotas; a batch's members have been counted, its leader is not.
static void admit(struct job *j) {
    const struct job_spec *spec = j->spec;
    if (spec->kind == JOB_STEP || !brings_inputs(j) || job_leads(j)) return;
    for (size_t i = 0; i < spec->n_inputs; i++)
        j->admitted_bytes += spec->inputs[i].size;
    j->tenant->total_bytes += j->admitted_bytes;
    if (spec->counted) return;
    j->refused = tenant_admit(j->tenant, j->start_ns, j->admitted_bytes);
    j->admitted = !j->refused;
}

static void start_deadline(struct job *j) {
    j->timeout_ms = j->spec->timeout_ms;
    // A step's is its plan's.
    if (!j->timeout_ms && !j->parent) j->timeout_ms = j->s->cfg.default_timeout_ms;
    if (!j->timeout_ms) return;
    j->deadline_ns = j->start_ns + clock_of_ms(j->timeout_ms);
    j->deadline = loop_timer_new(j->s->loop, on_deadline, j);
    loop_timer_start(j->deadline, j->timeout_ms);
}

struct job *job_start(struct sched *s, const struct job_spec *spec) {
    struct job *j = arena_must_calloc(1, sizeof *j);
    j->s = s;
    j->spec = arena_dup(&j->arena, spec, sizeof *spec);
    j->own = arena_zalloc(&j->arena, job_kind(j)->own);
    j->start_ns = clock_ns();
    j->r.id = ++s->next_job;
    j->r.kind = spec->kind;
    j->r.source = j->subject = spec->model;
    j->device = spec->device;
    if (brings_inputs(j)) j->inputs = spec->inputs;
    if (spec->kind == JOB_COMPILE) j->shapes = spec->compile.shapes;
    if (spec->kind == JOB_STEP) j->parent = spec->ctx;
    // A batch's leader runs what its members found.
    if (s->cfg.by_tenant && !spec->sees_all && !job_leads(j))
        j->owner = spec->tenant ? spec->tenant : MODELS_DEFAULT;

    j->tenant = tenants_get(&s->tenants, spec->tenant, j->start_ns);
    j->tenant->jobs++;
    j->tenant->total_jobs++;
    if (s->last_tenant && s->last_tenant != j->tenant) s->mixed_ns = j->start_ns;
    s->last_tenant = j->tenant;
    admit(j);
    start_deadline(j);

    j->next = s->jobs;
    if (j->next) j->next->prev = j;
    s->jobs = j;
    metric_set(M_JOBS_ACTIVE, ++s->n_jobs);
    job_hold(j); // for the posted step
    loop_post(s->loop, first_step, j);
    return j;
}
