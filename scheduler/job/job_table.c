// SPDX-License-Identifier: Apache-2.0
// A job as a table of rows. A row is something that a job has to have before it can go on; a kind
// of job is the rows it goes through, the last of which is what it is for:
//
//   MODEL -> [JOINED | BUCKET] -> KEY -> EXECUTABLE -> CHECKED -> SLOT -> PREPARED -> REPLY
//
//   ingest   MODEL                                     verify   .. CHECKED COMPARED
//   compile  .. CHECKED                                inspect  .. CHECKED SLOT REPLY
//   warm     MODEL BUCKET .. CHECKED, once a bucket    run      MODEL JOINED .. REPLY
//   step     MODEL KEY .. CHECKED SLOT PREPARED        plan     STEPS CHECKED SLOT PREPARED REPLY
//   put      SLOT REPLY                                get      BUFFERS SLOT REPLY
//
// job_advance starts the first row that is missing. A row's `start` has it at once, or something is
// under way that ends in job_deliver and job_advance: an operation, a place in the queue, a call, a
// batch, the steps of a plan. What turns out not to hold any more (an executable's file, a place in
// a worker that died) is given up by job_invalidate, with all rows behind it: the job then goes
// the same way again. A row's `retries` says how often a job may have gone back, whatever for, to
// be let back to this row once more.
//
// A batch's member has JOINED under way until its leader's run gives it its rows, as a REPLY; the
// leader has its SLOT from the start. A plan's steps are jobs: the plan gives them its own slot.
#include <string.h>

#include "base/clock.h"
#include "scheduler/job/batch.h"
#include "scheduler/job/job_buffers.h"
#include "scheduler/job/job_parts.h"
#include "scheduler/job/job_plan.h"
#include "scheduler/job/job_run.h"
#include "scheduler/job/job_warm.h"

#define BIT(row) (1u << (row))

static void forget_from(struct job *j, enum job_row first);

enum {
    TO_EXECUTABLE = BIT(ROW_MODEL) | BIT(ROW_KEY) | BIT(ROW_EXECUTABLE) | BIT(ROW_CHECKED),
    TO_REPLY = BIT(ROW_SLOT) | BIT(ROW_REPLY)
};
static const struct kind kinds[] = {
    [JOB_COMPILE] = {"compile", TO_EXECUTABLE},
    [JOB_RUN] = {"run", TO_EXECUTABLE | BIT(ROW_JOINED) | BIT(ROW_PREPARED) | TO_REPLY, run_check,
                 run_want, run_prepare, run_send, run_end, .evicted = run_evicted,
                 .doing = batch_doing, .note = job_note_parts, .detach = batch_leave,
                 .free = run_free},
    [JOB_INSPECT] = {"inspect", TO_EXECUTABLE | TO_REPLY, .want = inspect_want,
                     .send = inspect_send},
    [JOB_INGEST] = {"ingest", BIT(ROW_MODEL)},
    [JOB_WARM] = {"warm", TO_EXECUTABLE | BIT(ROW_BUCKET), .check = warm_check, .end = warm_end},
    [JOB_VERIFY] = {"verify", TO_EXECUTABLE | BIT(ROW_COMPARED)},
    [JOB_PLAN] = {"plan", BIT(ROW_STEPS) | BIT(ROW_CHECKED) | BIT(ROW_PREPARED) | TO_REPLY,
                  plan_check, plan_want, plan_prepare, plan_send, .unprepare = plan_unprepare,
                  .evicted = plan_evicted, .lost = plan_lost_buffers, .detach = plan_detach,
                  .free = plan_free},
    [JOB_PUT] = {"put", TO_REPLY, .want = put_want, .send = put_send, .free = kept_free},
    [JOB_GET] = {"get", TO_REPLY | BIT(ROW_BUFFERS), .want = get_want, .send = get_send,
                 .lost = get_lost_buffers, .free = kept_free},
    [JOB_STEP] = {"step", TO_EXECUTABLE | BIT(ROW_SLOT) | BIT(ROW_PREPARED), job_check_part,
                  .prepare = run_prepare, .end = plan_step_ready, .tell = plan_step_event},
};
const struct kind *job_kind(const struct job *j) {
    return &kinds[j->spec.kind];
}

// ---- what rows are given up

static void forget_model(struct job *j) {
    j->spec.model = j->model->source; // an executable's digest has led here
    j->reread = true;
    j->model = model_unref(j->model);
    j->weights = model_unref(j->weights);
}
static void forget_executable(struct job *j) {
    j->exe = exe_unref(j->exe);
    j->r.exe = NULL;
}
static void forget_slot(struct job *j) {
    if (j->parent) // it sits in its parent's
        j->seat = (struct seat){0};
    seat_leave(j->s, &j->seat);
}
void job_leave_slot(struct job *j) {
    forget_slot(j);
    j->has &= ~(BIT(ROW_SLOT) | BIT(ROW_PREPARED));
}
static void forget_prepared(struct job *j) {
    if (job_kind(j)->unprepare) job_kind(j)->unprepare(j);
}
static void forget_reply(struct job *j) {
    if (j->reply.any) protobuf_c_message_free_unpacked(j->reply.any, NULL);
    j->reply.any = NULL;
    job_drop_result(j);
}

// ---- how they are had

static void tell_compiled(struct job *j) {
    char hex[65];
    digest_hex(j->key.digest, hex);
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
// What the request brings goes with the executable; its owner hears of that.
static status_t start_checked(struct job *j, bool *later) {
    struct delivery d = {0};
    (void)later;
    if (j->exe) tell_compiled(j);
    if (job_kind(j)->check) RETURN_IF_ERR(job_kind(j)->check(j, &d));
    job_deliver(j, ROW_CHECKED, &d);
    return ST_OK;
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
                    .seat = &t->seat, .timing = told ? "queue" : NULL, .since_ns = t->queued_ns});
    job_advance(j);
}
static status_t start_slot(struct job *j, bool *later) {
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
                            .item = {.priority = j->spec.priority, .deadline_ns = j->deadline_ns}};
    RETURN_IF_ERR(job_kind(j)->want(j, &j->task));
    if (j->task.want.role == ROLE_DEVICE) job_event_queued(j);
    task_queue(j->s, &j->task);
    return ST_OK;
}
static status_t start_prepared(struct job *j, bool *later) {
    return job_kind(j)->prepare(j, later);
}
static status_t start_reply(struct job *j, bool *later) {
    *later = true;
    return job_kind(j)->send(j);
}

// ---- the table

static const struct row {
    bool (*have)(const struct job *j);             // NULL: since it was delivered
    status_t (*start)(struct job *j, bool *later); // later: it comes, the job may be gone by now
    void (*forget)(struct job *j);
    const char *doing;
    int retries;
} rows[ROWS];

bool job_has(const struct job *j, enum job_row row) {
    return (j->has & BIT(row)) && (!rows[row].have || rows[row].have(j));
}
// The worker's process is still the one in which the place was taken.
static bool have_slot(const struct job *j) {
    return j->seat.w && worker_epoch(j->seat.w) == j->seat.epoch;
}
static const struct row rows[ROWS] = {
    [ROW_MODEL] = {NULL, job_resolve, forget_model, "reading the model", 1},
    [ROW_JOINED] = {NULL, batch_start, NULL, "waiting for a batch", 0},
    [ROW_BUCKET] = {NULL, warm_start, NULL, "starting", 0},
    [ROW_KEY] = {NULL, job_bind, NULL, "starting", 0},
    [ROW_EXECUTABLE] = {NULL, op_exe_start, forget_executable, "compiling", 3},
    [ROW_STEPS] = {NULL, plan_start, NULL, "compiling", 0},
    [ROW_BUFFERS] = {NULL, get_start, NULL, "starting", 0},
    [ROW_CHECKED] = {NULL, start_checked, NULL, "starting", 0},
    [ROW_COMPARED] = {NULL, op_verify_start, NULL, "compiling", 0},
    [ROW_SLOT] = {have_slot, start_slot, forget_slot, "waiting for a device worker", 2},
    [ROW_PREPARED] = {NULL, start_prepared, forget_prepared, "preparing weights", 2},
    [ROW_REPLY] = {NULL, start_reply, forget_reply, "running", 0},
};

static bool of_kind(const struct job *j, int row) {
    return job_kind(j)->rows & BIT(row);
}
static enum job_row last_row(const struct job *j) {
    int row = ROWS - 1;
    while (!of_kind(j, row))
        row--;
    return (enum job_row)row;
}

void job_advance(struct job *j) {
    while (!j->finished) {
        int row = 0;
        if (j->s->stopping) {
            job_finish(j, st_reason(st_new(ST_UNAVAILABLE, "the server is shutting down"),
                                    HLOD__V1__REASON__REASON_SHUTTING_DOWN));
            return;
        }
        if (job_has(j, last_row(j))) {
            if (job_kind(j)->end)
                job_kind(j)->end(j);
            else
                job_finish(j, ST_OK);
            return;
        }
        while (!of_kind(j, row) || job_has(j, (enum job_row)row))
            row++;
        j->at = (enum job_row)row;
        bool later = false;
        status_t st = rows[row].start(j, &later);
        if (st) job_finish(j, st);
        if (st || later) return;
    }
}

const char *job_doing(const struct job *j) {
    if (j->op && task_waits(&j->op->task)) return "waiting for a compile worker";
    if (j->at == ROW_MODEL && !j->op) return "starting";
    const char *own = job_kind(j)->doing ? job_kind(j)->doing(j) : NULL;
    return own ? own : rows[j->at].doing;
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
        job_rename_inputs(j);
        break;
    case ROW_KEY:
        j->key = *d->key;
        j->r.assumed = d->key->assumed;
        j->r.n_assumed = d->key->n_assumed;
        break;
    case ROW_EXECUTABLE:
        j->exe = exe_ref(d->exe);
        j->r.cache_hit = d->hit;
        break;
    case ROW_CHECKED:
        if (j->exe) j->r.exe = j->exe->info;
        if (j->spec.kind == JOB_RUN) j->run.order = d->order;
        j->r.names = d->names;
        j->r.outputs = d->outputs;
        j->r.n_outputs = d->n_outputs;
        break;
    case ROW_COMPARED:
        j->r.differs = arena_strdup(&j->arena, d->differs);
        break;
    case ROW_SLOT:
        j->seat = *d->seat;
        if (!j->parent && j->seat.role == ROLE_DEVICE)
            j->r.device = arena_strdup(&j->arena, worker_hello(j->seat.w)->device_name);
        j->has &= ~BIT(ROW_PREPARED); // not there
        break;
    case ROW_REPLY:
        j->reply.any = d->reply;
        break;
    default: // are had or not
        break;
    }
    j->has |= BIT(row);
}

static void forget_from(struct job *j, enum job_row first) {
    for (int row = ROWS - 1; row >= (int)first; row--) {
        if ((j->has & BIT(row)) && rows[row].forget) rows[row].forget(j);
        j->has &= ~BIT(row);
    }
    if (j->at > first) j->at = first;
}
bool job_invalidate(struct job *j, enum job_row row) {
    if (j->retries >= rows[row].retries) return false;
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
    if (evicted && worker_epoch(j->seat.w) == j->seat.epoch) job_kind(j)->evicted(j);
    job_drop_result(j);
    job_advance(j);
    return true;
}

bool job_call_moved(struct job *j, const struct worker *w, status_t lost) {
    forget_from(j, ROW_SLOT);
    return task_moved(&j->task, w, lost);
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
            j->has &= ~BIT(ROW_JOINED); // there may be a device to wait with others for
            job_advance(j);
        } else {
            status_t st = job_kind(j)->lost(j);
            if (!st) continue;
            job_finish(j, st);
        }
        j = s->jobs; // advancing one may end and free others: look from the start again
    }
}
