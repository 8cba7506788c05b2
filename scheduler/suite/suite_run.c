// SPDX-License-Identifier: Apache-2.0
// One attempt at a batch job: its tensors from the store into a payload, a run (or compile) like
// any other request's, its outputs compared with what was expected, its budget judged.
//
//   pool: payload -> loop: job -> done -> pool: compare, keep outputs -> loop: judge,
//   job_done
//
// A cancelled attempt lets go of its job at once; the pool's part ends first where it is under way.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/store/store.h"
#include "proto/message.h"
#include "proto/numbers.h"
#include "scheduler/job/job.h"
#include "scheduler/job/key.h"
#include "scheduler/loop.h"
#include "scheduler/op/op.h"
#include "scheduler/records/blobs.h"
#include "scheduler/sched_inside.h"
#include "scheduler/suite/compare.h"
#include "scheduler/suite/suite_inside.h"
#include "scheduler/workers/memfds.h"

enum { INLINE_BYTES = 64 << 10, ALIGN = 64 };
struct suite_run {
    struct suite_job *j; // NULL: cancelled
    struct suite *suite;
    struct arena arena;
    bool busy; // the pool or a post holds it
    // Ready for the job.
    const Hlod__V1__JobInput *in; // NULL: compile only
    struct job_input *inputs;
    struct memfd *payload;
    uint8_t *bytes;
    int64_t total;
    struct job *job;
    Hlod__V1__JobOutcome *outcome;
    bool differs;
    status_t st;
};

static void free_run(struct suite_run *r) {
    r->suite->s->n_runs--;
    job_free(r->job);
    memfd_unref(r->payload);
    arena_done(&r->arena);
    st_drop(r->st);
    suite_unref(r->suite);
    free(r);
}

// ---- tensors from the store

// The tensor's bytes at `to`, checked against their digest. suite_check knew their number.
static status_t read_tensor(struct store *s, const Hlod__V1__JobTensor *t, int64_t want,
                            uint8_t *to) {
    struct digest d;
    if (!*t->blob) {
        if ((int64_t)t->raw.len != want) return st_internal("unreadable suite");
        if (want) memcpy(to, t->raw.data, (size_t)want);
        return ST_OK;
    }
    if (!digest_parse(str_of(t->blob), &d)) return st_internal("unreadable suite");
    return blob_said(store_read_into(s, STORE_BLOB, d, to, want), d);
}

static int64_t tensor_bytes(const Hlod__V1__JobTensor *t, const struct dtype_row **out_type) {
    *out_type = numbers_dtype(str_of(t->dtype));
    if ((*out_type)->cls == NUM_STRING) return (int64_t)t->raw.len;
    int64_t bytes = (*out_type)->bytes;
    for (size_t d = 0; d < t->n_shape; d++)
        bytes *= t->shape[d]; // checked when the suite was accepted
    return bytes;
}

static status_t fill(struct suite_run *r, struct store *store) {
    uint8_t *to = r->bytes;
    if (!to) RETURN_IF_ERR(memfd_memory(r->payload, &to));
    for (size_t i = 0; i < r->in->n_inputs; i++) {
        const struct job_input *in = &r->inputs[i];
        RETURN_IF_ERR(st_note(read_tensor(store, r->in->inputs[i], in->size, to + in->offset),
                              "input '%s'", in->name));
    }
    return ST_OK;
}

static void load_work(void *arg) {
    struct suite_run *r = arg;
    struct sched *s = r->suite->s->sched;
    size_t n = r->in->n_inputs;
    r->inputs = arena_zarray(&r->arena, struct job_input, n + 1);
    for (size_t i = 0; i < n; i++) {
        const Hlod__V1__JobTensor *t = r->in->inputs[i];
        struct job_input *in = &r->inputs[i];
        in->name = t->name;
        in->size = tensor_bytes(t, &in->dtype);
        in->rank = (int32_t)t->n_shape;
        in->dims = t->shape;
        in->offset = r->total;
        if (!sz_add(r->total, in->size + ALIGN - 1, &r->total)) {
            r->st = st_invalid("the inputs are too large together");
            return;
        }
        r->total &= ~(int64_t)(ALIGN - 1);
    }
    if (r->total <= INLINE_BYTES)
        r->bytes = arena_zalloc(&r->arena, (size_t)r->total + 1);
    else
        r->st = memfds_take(pool_memfds(s->pool), pool_input_owner(s->pool),
                            hash64(r->suite->tenant, strlen(r->suite->tenant), 0), r->total,
                            &r->payload);
    if (!r->st) r->st = fill(r, s->store);
}

// ---- the end

// What differs, and what is over its budget.
static char *failure_text(struct arena *a, const Hlod__V1__JobOutcome *o) {
    struct strbuf text = {0};
    for (size_t i = 0; i < o->n_comparisons; i++) {
        const Hlod__V1__Comparison *c = o->comparisons[i];
        if (c->ok) continue;
        strbuf_printf(&text, "%soutput '%s' ", text.n ? "; " : "", c->output);
        if (*c->message)
            strbuf_puts(&text, c->message);
        else
            strbuf_printf(&text,
                          "differs in %" PRId64 " of %" PRId64 " elements: [%" PRId64
                          "] is %s, expected %s; largest difference %g",
                          c->mismatches, c->elements, c->first, c->found, c->expected, c->max_abs);
    }
    for (size_t i = 0; i < o->n_over_budget; i++)
        strbuf_printf(&text, "%sover budget: %s", text.n ? "; " : "", o->over_budget[i]);
    char *kept = arena_strndup(a, strbuf_cstr(&text), text.n);
    strbuf_done(&text);
    return kept;
}

static void judge(struct suite_run *r) {
    struct arena *a = &r->arena;
    Hlod__V1__JobOutcome *o = r->outcome;
    Hlod__V1__JobBudget b = suite_budget(r->j);
    double run_ms = suite_median(a, o->run_ms, o->n_run_ms);
    char **over = o->over_budget = arena_array(a, char *, 4);
    if (b.run_ms > 0 && run_ms > b.run_ms)
        *over++ = arena_printf(a, "run %.3f ms, budget %.3f ms", run_ms, b.run_ms);
    if (b.compile_ms > 0 && o->compile_ms > b.compile_ms)
        *over++ = arena_printf(a, "compile %.1f ms, budget %.1f ms", o->compile_ms, b.compile_ms);
    if (b.instructions && o->counts && o->counts->entry > b.instructions)
        *over++ = arena_printf(a, "%" PRId64 " instructions, budget %" PRId64, o->counts->entry,
                               b.instructions);
    if (b.peak_bytes && o->peak_bytes > b.peak_bytes)
        *over++ = arena_printf(a, "%" PRId64 " bytes of working memory, budget %" PRId64,
                               o->peak_bytes, b.peak_bytes);
    o->n_over_budget = (size_t)(over - o->over_budget);

    bool failed = r->differs || o->n_over_budget;
    o->state = arena_strdup(a, failed ? "failed" : "passed");
    if (!failed) return;
    Hlod__V1__Error *e = o->error = message_new(a, &hlod__v1__error__descriptor);
    e->code = arena_strdup(a, "FAILED_PRECONDITION");
    e->reason = arena_strdup(a, r->differs ? "OUTPUT_DIFFERS" : "BUDGET_EXCEEDED");
    e->message = failure_text(a, o);
}

static void finish(void *arg) {
    struct suite_run *r = arg;
    r->busy = false;
    if (!r->j) {
        free_run(r);
        return;
    }
    if (!r->outcome) {
        r->outcome = message_new(&r->arena, &hlod__v1__job_outcome__descriptor);
    }
    if (!r->st) judge(r);
    status_t st = r->st;
    r->st = ST_OK;
    struct suite_job *j = r->j;
    enum status_code code = st                  ? st_code(st)
                            : r->outcome->error ? ST_FAILED_PRECONDITION // what it gave
                                                : ST_CODE_OK;
    suite_trace_end(j, r->job, code, st_get_reason(st), st ? st_message(st) : NULL);
    struct arena a = r->arena;
    r->arena = (struct arena){0};
    j->suite->s->job_done(j, r->outcome, &a, st);
    arena_done(&a);
    free_run(r);
}
static void finish_soon(struct suite_run *r) {
    r->busy = true;
    loop_post(r->suite->s->sched->loop, finish, r);
}

// ---- outputs

static const char *one_value(struct arena *a, const struct dtype_row *t, const void *p, int64_t i) {
    struct strbuf b = {0};
    numbers_print(&b, t, 1, (const uint8_t *)p + i * t->bytes);
    char *text = b.n > 2 ? arena_strndup(a, b.p + 1, b.n - 2) : arena_strdup(a, "");
    strbuf_done(&b);
    return text;
}

static bool same_shape(const Hlod__Wire__WireTensor *t, const Hlod__V1__JobTensor *e) {
    bool same = t->n_dims == e->n_shape;
    for (size_t d = 0; same && d < t->n_dims; d++)
        same = t->dims[d] == e->shape[d];
    return same;
}

static const char *missing(struct suite_run *r, const struct job_result *x) {
    struct strbuf b = {0};
    strbuf_limit(&b, 500);
    strbuf_puts(&b, "is missing; the model gives");
    for (size_t k = 0; k < x->reply->n_outputs; k++)
        strbuf_printf(&b, "%s '%s'", k ? "," : "", x->names->outputs[x->outputs[k]]->name);
    const char *text = arena_strndup(&r->arena, strbuf_cstr(&b), b.n);
    strbuf_done(&b);
    return text;
}

static status_t compare_one(struct suite_run *r, const Hlod__V1__JobTensor *e,
                            const Hlod__Wire__WireTensor *t, struct span found,
                            Hlod__V1__Comparison *c) {
    const struct dtype_row *type, *have = t ? numbers_dtype(str_of(t->dtype)) : NULL;
    int64_t bytes = tensor_bytes(e, &type);
    c->elements = type->bytes ? bytes / type->bytes : 0;
    if (!t)
        c->message = (char *)(uintptr_t)missing(r, job_result(r->job));
    else if (have != type)
        c->message = arena_printf(&r->arena, "is %s, expected %s", t->dtype, type->name);
    else if (!same_shape(t, e) || (type->cls != NUM_STRING && (int64_t)found.n != bytes))
        c->message = (char *)(uintptr_t)"has another shape than expected";
    if (*c->message) return ST_OK;

    if (type->cls == NUM_STRING) {
        c->ok = found.n == e->raw.len && (!found.n || !memcmp(found.p, e->raw.data, found.n));
        if (!c->ok) c->message = (char *)(uintptr_t)"has other strings than expected";
        return ST_OK;
    }

    const Hlod__V1__SubmitJobsRequest *q = r->suite->q;
    double rtol = r->in->rtol > 0 ? r->in->rtol : q->rtol;
    double atol = r->in->atol > 0 ? r->in->atol : q->atol;
    uint8_t *want = malloc((size_t)bytes + 1);
    status_t st = want ? read_tensor(r->suite->s->sched->store, e, bytes, want) : st_oom();
    if (st) {
        free(want);
        return st_note(st, "expected output '%s'", e->name);
    }

    struct compare_result x;
    compare_values(type, c->elements, found.p, want, rtol, atol, &x);
    c->mismatches = x.mismatches;
    c->max_abs = x.max_abs;
    c->max_rel = x.max_rel;
    c->ok = x.mismatches == 0;
    if (!c->ok) {
        c->first = x.first;
        c->found = (char *)(uintptr_t)one_value(&r->arena, type, found.p, x.first);
        c->expected = (char *)(uintptr_t)one_value(&r->arena, type, want, x.first);
    }
    free(want);
    return ST_OK;
}

// The output that the i-th expected one is about, by name or, without one, by position; or NULL.
static const Hlod__Wire__WireTensor *output_of(const struct job_result *x, size_t i,
                                               const char **name) {
    for (size_t k = 0; k < x->reply->n_outputs; k++) {
        const char *is = x->names->outputs[x->outputs[k]]->name;
        if (**name ? strcmp(is, *name) != 0 : k != i) continue;
        *name = is;
        return x->reply->outputs[k];
    }
    return NULL;
}

static status_t compare_all(struct suite_run *r, const struct job_result *x) {
    Hlod__V1__JobOutcome *o = r->outcome;
    o->comparisons = arena_array(&r->arena, Hlod__V1__Comparison *, r->in->n_expect + 1);
    for (size_t i = 0; i < r->in->n_expect; i++) {
        const Hlod__V1__JobTensor *e = r->in->expect[i];
        Hlod__V1__Comparison *c = o->comparisons[o->n_comparisons++] =
            message_new(&r->arena, &hlod__v1__comparison__descriptor);
        const char *name = e->name;
        const Hlod__Wire__WireTensor *t = output_of(x, i, &name);
        c->output = arena_strdup(&r->arena, name);
        struct span found = {0};
        void *base = NULL;
        size_t base_bytes = 0;
        if (t) RETURN_IF_ERR(blob_map(t->data, x->fds, x->n_fds, &found, &base, &base_bytes));
        status_t st = compare_one(r, e, t, found, c);
        frame_unmap(base, base_bytes);
        if (st) return st;
        r->differs = r->differs || !c->ok;
    }
    return ST_OK;
}

static status_t keep_outputs(struct suite_run *r, const struct job_result *x) {
    Hlod__V1__JobOutcome *o = r->outcome;
    struct sched *s = r->suite->s->sched;
    o->outputs = arena_array(&r->arena, Hlod__V1__JobTensor *, x->reply->n_outputs + 1);
    for (size_t k = 0; k < x->reply->n_outputs; k++) {
        const Hlod__Wire__WireTensor *t = x->reply->outputs[k];
        struct span found;
        void *base;
        size_t base_bytes;
        struct digest d;
        RETURN_IF_ERR(blob_map(t->data, x->fds, x->n_fds, &found, &base, &base_bytes));
        status_t st = blob_put(s->store, s->journal, r->suite->tenant, found, &d);
        frame_unmap(base, base_bytes);
        if (st) return st;
        Hlod__V1__JobTensor *out = o->outputs[o->n_outputs++] =
            message_new(&r->arena, &hlod__v1__job_tensor__descriptor);
        out->name = arena_strdup(&r->arena, x->names->outputs[x->outputs[k]]->name);
        out->dtype = arena_strdup(&r->arena, t->dtype);
        out->shape = arena_dup_array(&r->arena, t->dims, t->n_dims);
        out->n_shape = t->n_dims;
        out->blob = arena_strdup(&r->arena, digest_to_hex(d).z);
    }
    return ST_OK;
}

static void outputs_work(void *arg) {
    struct suite_run *r = arg;
    const struct job_result *x = job_result(r->job);
    r->st = compare_all(r, x);
    if (!r->st && r->suite->q->keep_outputs) r->st = keep_outputs(r, x);
}

// ---- the job

static void note_event(void *ctx, Hlod__V1__Event *e) {
    struct suite_run *r = ctx;
    struct suite_job *j = r->j;
    switch (e->kind_case) {
    case HLOD__V1__EVENT__KIND_INGEST:
        if (!e->ingest->hit) suite_log(j, "read the model in %.1f ms", e->ingest->ms);
        break;
    case HLOD__V1__EVENT__KIND_COMPILING:
        suite_log(j, "%s %.12s", e->compiling->joined ? "waits for the compile of" : "compiles",
                  e->compiling->digest);
        break;
    case HLOD__V1__EVENT__KIND_COMPILED:
        suite_log(j, "executable %.12s%s, compiled in %.1f ms", e->compiled->digest,
                  e->compiled->cache_hit ? " from the cache" : "", e->compiled->ms);
        break;
    case HLOD__V1__EVENT__KIND_PREPARED:
        if (!e->prepared->hit)
            suite_log(j, "weights prepared on %s in %.1f ms", e->prepared->device, e->prepared->ms);
        break;
    case HLOD__V1__EVENT__KIND_RUNNING:
        suite_log(j, "runs on %s", e->running->device);
        break;
    default:
        break;
    }
}

// What is worth keeping, in the attempt's memory: the job goes.
static void take_result(struct suite_run *r, const struct job_result *x) {
    struct arena *a = &r->arena;
    Hlod__V1__JobOutcome *o = r->outcome = message_new(a, &hlod__v1__job_outcome__descriptor);
    if (x->device) o->device = arena_strdup(a, x->device);
    o->cache_hit = x->cache_hit;
    if (x->exe) {
        o->executable = arena_strdup(a, x->exe->digest);
        o->compile_ms = x->exe->compile_ms;
        o->peak_bytes = x->exe->peak_bytes;
        const Hlod__V1__Counts *counts = key_counts(x->exe);
        if (counts) o->counts = arena_dup(a, counts, sizeof *counts);
    }
    o->timings = arena_array(a, Hlod__V1__Timing *, x->n_timings + 1);
    for (; o->n_timings < x->n_timings; o->n_timings++)
        o->timings[o->n_timings] =
            arena_dup(a, x->timings[o->n_timings], sizeof **x->timings); // names are literals
    if (!x->reply) return;
    o->run_ms = arena_dup_array(a, x->reply->run_ms, x->reply->n_run_ms);
    o->n_run_ms = x->reply->n_run_ms;
    if (x->reply->peak_bytes) o->peak_bytes = x->reply->peak_bytes;
}

static void on_done(void *ctx, struct job *job, status_t st) {
    struct suite_run *r = ctx;
    const struct job_result *x = job_result(job);
    take_result(r, x);
    r->st = st;
    r->busy = true;
    if (!st && x->reply && (r->in->n_expect || r->suite->q->keep_outputs))
        loop_work(r->suite->s->sched->loop, outputs_work, finish, r);
    else
        finish_soon(r);
}

static void start_job(struct suite_run *r) {
    const Hlod__V1__SubmitJobsRequest *q = r->suite->q;
    const Hlod__V1__JobModel *m = q->models[r->j->cell.model];
    const Hlod__V1__JobTarget *target = q->n_targets ? q->targets[r->j->cell.target] : NULL;
    struct job_spec spec = {.kind = r->in ? JOB_RUN : JOB_COMPILE,
                            .format = "",
                            .inputs = r->inputs,
                            .n_inputs = r->in ? r->in->n_inputs : 0,
                            .payload_fd = r->payload ? memfd_fd(r->payload) : -1,
                            .payload = r->payload,
                            .payload_bytes = {r->bytes, r->bytes ? (size_t)r->total : 0},
                            .options = m->options,
                            .device = target ? target->device : "",
                            .timeout_ms = q->timeout_ms,
                            .tenant = r->suite->tenant,
                            .priority = suite_priority(r->suite),
                            .repeat = q->repeat,
                            .trace = suite_trace(r->j),
                            .on_event = note_event,
                            .on_done = on_done,
                            .ctx = r};

    if (spec.kind == JOB_COMPILE) {
        spec.compile.shapes = m->shapes;
        spec.compile.n_shapes = m->n_shapes;
        spec.compile.target = target ? target->target : "";
    }
    if (digest_parse(str_of(m->model), &spec.model))
        r->job = job_start(r->suite->s->sched, &spec);
    else {
        r->st = st_internal("unreadable suite");
        finish_soon(r);
    }
}

static void loaded(void *arg) {
    struct suite_run *r = arg;
    r->busy = false;
    if (!r->j)
        free_run(r);
    else if (r->st)
        finish(r);
    else
        start_job(r);
}

void suite_run_start(struct suite_job *j) {
    struct suite_run *r = arena_must_calloc(1, sizeof *r);
    r->j = j;
    r->suite = j->suite;
    r->suite->refs++;
    r->suite->s->n_runs++;
    j->run = r;
    if (j->cell.input >= 0) r->in = j->suite->q->inputs[j->cell.input];
    if (r->in && !r->in->n_inputs) r->in = NULL;
    r->busy = true;
    if (r->in)
        loop_work(r->suite->s->sched->loop, load_work, loaded, r);
    else
        loop_post(r->suite->s->sched->loop, loaded, r);
}

void suite_run_cancel(struct suite_job *j) {
    struct suite_run *r = j->run;
    r->j = NULL;
    if (r->job) job_cancel(r->job);
    if (!r->busy) free_run(r);
}
