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
//   train    MODEL SLOT REPLY                         tune     .. CHECKED SLOT REPLY
//   export   MODEL CHECKED SLOT REPLY
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
#include "scheduler/op/away.h"

enum {
    TO_EXECUTABLE =
        ROW_BIT(ROW_MODEL) | ROW_BIT(ROW_KEY) | ROW_BIT(ROW_EXECUTABLE) | ROW_BIT(ROW_CHECKED),
    TO_REPLY = ROW_BIT(ROW_SLOT) | ROW_BIT(ROW_REPLY)
};
static const struct kind kinds[] = {
    [JOB_COMPILE] = {"compile", TO_EXECUTABLE},
    [JOB_RUN] = {"run", TO_EXECUTABLE | ROW_BIT(ROW_JOINED) | ROW_BIT(ROW_PREPARED) | TO_REPLY,
                 sizeof(struct run_own), run_check, run_want, run_prepare, run_send, run_end,
                 .evicted = run_evicted, .doing = batch_doing, .note = job_note_parts,
                 .leave = away_start, .detach = away_detach, .free = run_free},
    [JOB_INSPECT] = {"inspect", TO_EXECUTABLE | TO_REPLY, .want = inspect_want,
                     .send = inspect_send},
    [JOB_INGEST] = {"ingest", ROW_BIT(ROW_MODEL)},
    [JOB_WARM] = {"warm", TO_EXECUTABLE | ROW_BIT(ROW_BUCKET), sizeof(struct warm_own),
                  .check = warm_check, .end = warm_end},
    [JOB_VERIFY] = {"verify", TO_EXECUTABLE | ROW_BIT(ROW_COMPARED)},
    [JOB_PLAN] = {"plan",
                  ROW_BIT(ROW_STEPS) | ROW_BIT(ROW_CHECKED) | ROW_BIT(ROW_PREPARED) | TO_REPLY,
                  sizeof(struct plan_run), plan_check, plan_want, plan_prepare, plan_send,
                  .unprepare = plan_unprepare, .evicted = plan_evicted, .lost = plan_lost_buffers,
                  .detach = plan_detach, .free = plan_free},
    [JOB_PUT] = {"put", TO_REPLY, sizeof(struct kept), .want = put_want, .send = put_send,
                 .free = kept_free},
    [JOB_GET] = {"get", TO_REPLY | ROW_BIT(ROW_BUFFERS), sizeof(struct kept), .want = get_want,
                 .send = get_send, .lost = get_lost_buffers, .free = kept_free},
    [JOB_STEP] = {"step", TO_EXECUTABLE | ROW_BIT(ROW_SLOT) | ROW_BIT(ROW_PREPARED), 0,
                  job_check_part, .prepare = run_prepare, .end = plan_step_ready,
                  .tell = plan_step_event},
    [JOB_TUNE] = {"tune", TO_EXECUTABLE | TO_REPLY, .want = tune_want, .send = tune_send},
    [JOB_EXPORT] = {"export", ROW_BIT(ROW_MODEL) | ROW_BIT(ROW_CHECKED) | TO_REPLY,
                    sizeof(struct export_own), .check = export_check, .want = export_want,
                    .send = export_send},
    [JOB_TRAIN] = {"train", ROW_BIT(ROW_MODEL) | TO_REPLY, .want = train_want, .send = train_send},
};
const struct kind *job_kind(const struct job *j) {
    return &kinds[j->spec->kind];
}

// ---- how they are had

static void tell_compiled(struct job *j) {
    struct hex_digest hex = digest_to_hex(j->key.digest);
    Hlod__V1__CompiledEvent compiled = HLOD__V1__COMPILED_EVENT__INIT;
    compiled.digest = hex.z;
    compiled.cache_hit = j->r.cache_hit;
    compiled.ms = j->exe->info->compile_ms;
    compiled.before = j->exe->info->before;
    compiled.after = j->exe->info->after;
    compiled.precision_note = j->exe->info->precision_note;
    Hlod__V1__Event e = HLOD__V1__EVENT__INIT;
    e.kind_case = HLOD__V1__EVENT__KIND_COMPILED;
    e.compiled = &compiled;
    job_event(j, &e);
}
// What the request brings goes with the executable; its owner hears of that.
static status_t start_checked(struct job *j, UNUSED bool *later) {
    struct delivery d = {0};
    if (j->exe) tell_compiled(j);
    if (job_kind(j)->check) RETURN_IF_ERR(job_kind(j)->check(j, &d));
    job_deliver(j, ROW_CHECKED, &d);
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

bool job_has(const struct job *j, enum job_row row) {
    return (j->has & ROW_BIT(row)) && (!job_rows[row].have || job_rows[row].have(j));
}
// The worker's process is still the one in which the place was taken.
static bool have_slot(const struct job *j) {
    return j->slot.w && worker_epoch(j->slot.w) == j->slot.epoch;
}
const struct row job_rows[ROWS] = {
    [ROW_MODEL] = {NULL, job_resolve, job_forget_model, "reading the model", 1},
    [ROW_JOINED] = {NULL, batch_start, NULL, "waiting for a batch", 0},
    [ROW_BUCKET] = {NULL, warm_start, NULL, "starting", 0},
    [ROW_KEY] = {NULL, job_bind, NULL, "starting", 0},
    [ROW_EXECUTABLE] = {NULL, op_exe_start, job_forget_executable, "compiling", 3},
    [ROW_STEPS] = {NULL, plan_start, NULL, "compiling", 0},
    [ROW_BUFFERS] = {NULL, get_start, NULL, "starting", 0},
    [ROW_CHECKED] = {NULL, start_checked, NULL, "starting", 0},
    [ROW_COMPARED] = {NULL, op_verify_start, NULL, "compiling", 0},
    [ROW_SLOT] = {have_slot, job_start_slot, job_forget_slot, "waiting for a device worker", 2},
    [ROW_PREPARED] = {NULL, start_prepared, job_forget_prepared, "preparing weights", 2},
    [ROW_REPLY] = {NULL, start_reply, job_forget_reply, "running", 0},
};

static bool of_kind(const struct job *j, int row) {
    return job_kind(j)->rows & ROW_BIT(row);
}
enum job_row job_next_row(const struct job *j) {
    int last = ROWS - 1, row = 0;
    while (!of_kind(j, last))
        last--;
    if (job_has(j, (enum job_row)last)) return ROWS;
    while (!of_kind(j, row) || job_has(j, (enum job_row)row))
        row++;
    return (enum job_row)row;
}

const char *job_doing(const struct job *j) {
    if (j->op && j->op->look) return "asking the remotes of the cache";
    if (j->op && task_waits(&j->op->task)) return "waiting for a compile worker";
    if (j->at == ROW_MODEL && !j->op) return "starting";
    const char *own = job_kind(j)->doing ? job_kind(j)->doing(j) : NULL;
    return own ? own : job_rows[j->at].doing;
}
