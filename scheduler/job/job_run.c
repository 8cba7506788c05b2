// SPDX-License-Identifier: Apache-2.0
// The end of a RUN job: inputs put in the signature's order, a place in a device worker, weights
// prepared there, the RUN call; and INSPECT, which wants a compile worker.
//
//   job_run -> queued -> placed -> (op_prepare ->) RUN -> reply -> done       NOT_FOUND from the
//   worker: it evicted the executable; forget, prepare again, once
#include "scheduler/job/job_parts.h"
#include "scheduler/job/job_run.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/metrics.h"
#include "base/store/store.h"
#include "proto/weigh.h"
#include "scheduler/job/job_call.h"
#include "scheduler/loop.h"
#include "scheduler/workers/memfds.h"

// ---- sequences and optionals, flattened

static bool any_loose(const Hlod__V1__Signature *s) {
    for (size_t i = 0; i < s->n_inputs; i++)
        if (key_is_loose(s->inputs[i])) return true;
    for (size_t i = 0; i < s->n_outputs; i++)
        if (s->outputs[i]->sequence || s->outputs[i]->optional) return true;
    return false;
}
static const struct job_input *input_given(const struct job *j, const char *name) {
    for (size_t k = 0; k < j->spec.n_inputs; k++)
        if (!strcmp(j->spec.inputs[k].name, name)) return &j->spec.inputs[k];
    return NULL;
}
static Hlod__V1__TensorSpec *tensor_of(struct arena *a, const Hlod__V1__TensorSpec *from,
                                       const char *name, int32_t rank) {
    Hlod__V1__TensorSpec *t = arena_new_of(a, Hlod__V1__TensorSpec);
    hlod__v1__tensor_spec__init(t);
    t->name = (char *)(uintptr_t)name;
    t->dtype = from->dtype;
    t->n_dims = (size_t)rank;
    t->dims = arena_array(a, Hlod__V1__Dim *, rank + 1);
    for (int32_t d = 0; d < rank; d++) {
        t->dims[d] = arena_new_of(a, Hlod__V1__Dim);
        hlod__v1__dim__init(t->dims[d]);
        t->dims[d]->size = -1;
    }
    return t;
}

// The executable's output "result2[1]" by the model's name of output 2.
static const char *output_name(struct arena *a, const Hlod__V1__Signature *sig, const char *name) {
    struct str rest = str_of(name), number;
    int64_t i;
    if (!str_starts(rest, "result")) return name;
    rest = (struct str){rest.p + 6, rest.n - 6};
    if (!str_cut(&rest, '[', &number) || !str_to_i64(number, &i) || i < 0 ||
        (size_t)i >= sig->n_outputs)
        return name;
    return rest.n ? arena_printf(a, "%s[" STR_FMT, sig->outputs[i]->name, STR_ARG(rest))
                  : sig->outputs[i]->name;
}

// The model's signature with each loose input as the tensors that the request brings, and, once
// there is an executable, each sequence among the outputs as the tensors that it gives.
const Hlod__V1__Signature *job_names(struct job *j) {
    const Hlod__V1__Signature *sig = j->model->rec->signature;
    struct arena *a = &j->arena;
    if (!any_loose(sig)) return sig;
    struct {
        Hlod__V1__TensorSpec **v;
        size_t n, cap;
    } in = {0};
    for (size_t i = 0; i < sig->n_inputs; i++) {
        Hlod__V1__TensorSpec *s = sig->inputs[i];
        if (!key_is_loose(s)) {
            avec_push(a, &in, s);
            continue;
        }
        for (size_t e = 0; e < (s->sequence ? KEY_MAX_ELEMENTS : 1); e++) {
            const char *name = key_element_name(a, s, e);
            const struct job_input *given = input_given(j, name);
            if (!given) break;
            avec_push(a, &in, tensor_of(a, s, name, given->rank));
        }
    }
    Hlod__V1__Signature *f = arena_new_of(a, Hlod__V1__Signature);
    hlod__v1__signature__init(f);
    f->inputs = in.v;
    f->n_inputs = in.n;
    f->outputs = sig->outputs;
    f->n_outputs = sig->n_outputs;
    const Hlod__V1__Signature *bound = j->exe ? j->exe->info->signature : NULL;
    if (!bound) return f;
    f->n_outputs = bound->n_outputs;
    f->outputs = arena_array(a, Hlod__V1__TensorSpec *, bound->n_outputs + 1);
    for (size_t k = 0; k < bound->n_outputs; k++) {
        f->outputs[k] = arena_dup(a, bound->outputs[k], sizeof *bound->outputs[k]);
        f->outputs[k]->name = (char *)(uintptr_t)output_name(a, sig, bound->outputs[k]->name);
    }
    return f;
}

static status_t missing(const Hlod__V1__TensorSpec *t) {
    struct strbuf b = {0};
    key_spec_text(&b, t);
    status_t st = st_reason(st_new(ST_INVALID_ARGUMENT, "input '%s' is missing (%s)", t->name,
                                   strbuf_cstr(&b)),
                            HLOD__V1__REASON__REASON_MISSING_INPUT);
    strbuf_done(&b);
    return st;
}

// The given inputs in signature order. Names are of the model that was asked for; shapes are of
// `sig`, the executable's or the model's own (whose symbols fit any size).
status_t job_order_inputs(struct job *j, const Hlod__V1__Signature *sig,
                          const struct job_input **out) {
    const Hlod__V1__Signature *names = job_names(j);
    size_t n = names->n_inputs; // behind them: what an earlier part left
    if (!sig || (sig->n_inputs != n && sig->n_inputs != n + job_carried(j)))
        return st_new(ST_INTERNAL, "the executable's signature does not fit its model");
    for (size_t i = 0; i < n; i++)
        out[i] = NULL;
    for (size_t k = 0; k < j->spec.n_inputs; k++) {
        const struct job_input *in = &j->spec.inputs[k];
        size_t i = *in->name ? 0 : k;
        while (*in->name && i < names->n_inputs && strcmp(names->inputs[i]->name, in->name))
            i++;
        if (i >= names->n_inputs)
            return key_no_such("input", in->name, names->inputs, names->n_inputs);
        if (out[i])
            return st_reason(st_new(ST_INVALID_ARGUMENT, "input '%s' is given twice",
                                    names->inputs[i]->name),
                             HLOD__V1__REASON__REASON_UNKNOWN_INPUT);
        out[i] = in;
    }
    for (size_t i = 0; i < n; i++) {
        const Hlod__V1__TensorSpec *want = sig->inputs[i];
        const char *name = names->inputs[i]->name;
        const struct job_input *in = out[i];
        if (!in) return missing(names->inputs[i]);
        if (strcmp(in->dtype->name, want->dtype))
            return st_reason(st_new(ST_INVALID_ARGUMENT, "input '%s': expected %s, found %s", name,
                                    want->dtype, in->dtype->name),
                             HLOD__V1__REASON__REASON_DTYPE_MISMATCH);
        if ((size_t)in->rank != want->n_dims)
            return key_wrong_rank(want, name, in->rank);
        for (size_t d = 0; d < want->n_dims; d++)
            if (want->dims[d]->size >= 0 && want->dims[d]->size != in->dims[d])
                return st_reason(st_new(ST_INVALID_ARGUMENT,
                                        "input '%s', dimension %zu: expected %" PRId64
                                        ", found %" PRId64,
                                        name, d, want->dims[d]->size, in->dims[d]),
                                 HLOD__V1__REASON__REASON_SHAPE_MISMATCH);
    }
    return ST_OK;
}

int job_replicas(const struct job *j) {
    const Hlod__V1__CompileOptions *o = j->spec.options;
    int n = j->exe ? j->exe->info->replicas : o ? o->replicas : 1;
    return n > 1 ? n : 1;
}

status_t job_one_replica(struct job *j, const struct job_input **out) {
    int all = job_replicas(j);
    *out = j->spec.inputs;
    if (all == 1) return ST_OK;
    struct job_input *own = arena_dup(&j->arena, *out, j->spec.n_inputs * sizeof *own);
    for (size_t k = 0; k < j->spec.n_inputs; k++) {
        struct job_input *in = &own[k];
        if (in->rank < 1 || in->dims[0] != all)
            return st_reason(st_new(ST_INVALID_ARGUMENT,
                                    "input '%s': expected a first dimension of %d, one part for "
                                    "each replica",
                                    in->name, all),
                             HLOD__V1__REASON__REASON_SHAPE_MISMATCH);
        in->dims++;
        in->rank--;
        in->elements /= all;
        in->size /= all;
    }
    *out = own;
    return ST_OK;
}

bool job_takes_inputs(const struct job *j) {
    return j->spec.kind == JOB_RUN || j->spec.kind == JOB_STEP;
}

status_t job_check_inputs(struct job *j) {
    const struct job_input *given = j->spec.inputs;
    RETURN_IF_ERR(job_one_replica(j, &j->spec.inputs));
    const Hlod__V1__Signature *sig = job_names(j);
    const struct job_input **in =
        arena_array(&j->arena, const struct job_input *, sig->n_inputs + 1);
    status_t st = job_order_inputs(j, sig, in);
    j->spec.inputs = given;
    return st;
}

status_t job_order_outputs(struct job *j) {
    const Hlod__V1__Signature *names = job_names(j);
    j->r.names = names;
    if (exe_is_open(j->exe->info)) { // all it has; nobody is sent any
        j->r.n_outputs = j->exe->info->signature->n_outputs;
        return ST_OK;
    }
    size_t n = j->spec.n_outputs ? j->spec.n_outputs : names->n_outputs;
    uint32_t *v = arena_array(&j->arena, uint32_t, n + 1);
    for (size_t k = 0; k < n; k++) {
        size_t i = j->spec.n_outputs ? 0 : k;
        while (j->spec.n_outputs && i < names->n_outputs &&
               strcmp(names->outputs[i]->name, j->spec.outputs[k]))
            i++;
        if (i >= names->n_outputs)
            return key_no_such("output", j->spec.outputs[k], names->outputs, names->n_outputs);
        v[k] = (uint32_t)i;
    }
    j->r.outputs = v;
    j->r.n_outputs = n;
    return ST_OK;
}

static void send_run(struct job *j);

int64_t exe_measured(struct exe *e, const double *run_ms, size_t n, int64_t most_ns) {
    double ms = 0;
    for (size_t i = 0; i < n; i++)
        ms += run_ms[i];
    int64_t all = clock_of_ms(ms);
    if (all > most_ns) all = most_ns; // the worker may say anything
    if (all <= 0) return 0;
    int64_t ns = all / (int64_t)n;
    e->run_ns = e->run_ns ? e->run_ns + (ns - e->run_ns) / 4 : ns;
    return all;
}

// What the run took on the device: for the account, and for what is expected of the next one.
static void measure(struct job *j) {
    int64_t ns =
        exe_measured(j->exe, j->run->run_ms, j->run->n_run_ms, clock_ns() - j->run_start_ns);
    if (ns <= 0) return;
    j->seat.used_ns = ns;
    // A run by an executable's digest had no choice, and a part is not the work.
    if (!digest_is_zero(j->work) && !j->exe->info->part)
        history_note(&j->s->history, j->work, j->exe->info->target_id,
                     ns / (int64_t)j->run->n_run_ms,
                     j->exe->info->flops + j->exe->info->bytes_accessed);
    int64_t out = 0;
    for (size_t i = 0; i < j->run->n_outputs; i++)
        out += (int64_t)(j->run->outputs[i]->data ? j->run->outputs[i]->data->size : 0);
    metric_add(M_DEVICE_BYTES_OUT, out);
    j->tenant->total_bytes += out;
    quota_charge(&j->tenant->bytes, out);
}

static void on_run(void *ctx, struct frame *f, status_t lost) {
    struct run_call *c = ctx;
    if (f && f->type == HLOD__WIRE__TYPE__TYPE_RUNNING) {
        job_call_running(c);
        return;
    }
    if (f && f->type != HLOD__WIRE__TYPE__TYPE_RUN_REPLY) return;
    struct worker *w = c->w;
    bool began = c->began || (lost && worker_began(w, c->id));
    struct job *j = job_call_ended(c, f, lost);
    if (!j) return;
    status_t st = lost;
    if (lost && !began &&
        j->retries++ < 2) { // it only waited there: another worker, or the next life
        st_drop(lost);
        seat_leave(j->s, &j->seat);
        j->prepared = false;
        job_advance(j);
        return;
    }
    if (f) {
        j->run = weigh_unpack_or_null(&hlod__wire__run_reply__descriptor, f->body);
        st = j->run ? wire_status(j->run->status) : st_new(ST_INTERNAL, "unreadable run reply");
    }
    if (st_code(st) == ST_NOT_FOUND &&
        st_get_reason(st) == HLOD__V1__REASON__REASON_EXECUTABLE_NOT_FOUND && j->retries++ < 2) {
        st_drop(st);
        hlod__wire__run_reply__free_unpacked(j->run, NULL);
        j->run = NULL;
        job_call_discard(j);
        if (worker_epoch(w) == j->seat.epoch) warm_forget(worker_warm(w), j->key);
        j->prepared = false;
        job_advance(j); // still has its place
        return;
    }
    if (!st && j->run->n_outputs != j->r.n_outputs)
        st = st_new(ST_INTERNAL, "the worker sent %zu outputs, expected %zu", j->run->n_outputs,
                    j->r.n_outputs);
    if (!st) measure(j);
    int64_t end_ns = clock_ns(), ran_ns = end_ns - j->run_start_ns, carried_ns = ran_ns;
    job_timing_to(j, "run", ran_ns, end_ns);
    double at_work_ms = st ? 0 : j->run->peak_ms;
    for (size_t i = 0; !st && i < j->run->n_run_ms; i++)
        at_work_ms += j->run->run_ms[i];
    carried_ns -= clock_of_ms(at_work_ms);
    if (!st && carried_ns > 0) // a part of run: frames, tensors to the worker and back
        job_timing_to(j, "transfer", carried_ns, end_ns);
    metric_add(st ? M_RUN_ERRORS : M_RUNS, 1);
    metric_observe_ns(M_RUN_TIME, ran_ns);
    if (!st && exe_is_open(j->exe->info)) {
        st = job_next_part(j);
        if (!st) {
            job_advance(j);
            return;
        }
    }
    if (!st) job_tell_parts(j);
    j->r.run = st ? NULL : j->run;
    job_finish(j, st);
}

int64_t job_add_output_bytes(int64_t total, const Hlod__V1__TensorSpec *spec) {
    const struct dtype_row *t = dtype_find(str_of(spec->dtype));
    int64_t bytes = t ? t->bytes : 0;
    if (!bytes) return 0; // texts: their size is known when they are
    for (size_t d = 0; d < spec->n_dims; d++)
        if (spec->dims[d]->size < 0 || !sz_mul(bytes, spec->dims[d]->size, &bytes)) return 0;
    if (!sz_add(total, bytes, &total) || !sz_add(total, 127, &total)) return 0;
    return total / 64 * 64;
}
static int64_t output_bytes(const Hlod__V1__Signature *sig) {
    int64_t total = 64;
    for (size_t k = 0; k < sig->n_outputs && total; k++)
        total = job_add_output_bytes(total, sig->outputs[k]);
    return total;
}
static int64_t tensor_bytes(const struct job *j) {
    int64_t total = output_bytes(j->exe->info->signature);
    total = total > 64 ? total - 64 : 0; // the slack at its end is not the device's
    for (size_t i = 0; i < j->spec.n_inputs; i++)
        if (!sz_add(total, j->spec.inputs[i].size, &total)) return INT64_MAX / 4;
    return sz_add(total, job_carried_bytes(j), &total) ? total : INT64_MAX / 4;
}

// Working memory, and weights as they came or as they are kept, whichever is more.
int64_t exe_resident_bytes(const struct exe *e) {
    int64_t kept = e->info->bound_bytes, came = e->info->weights_bytes, all;
    return sz_add(e->info->peak_bytes, kept > came ? kept : came, &all) ? all : INT64_MAX / 4;
}

struct footprint_want job_plan(const struct job *j) {
    return (struct footprint_want){.key = j->key,
                                   .resident_bytes = exe_resident_bytes(j->exe),
                                   .tensor_bytes = tensor_bytes(j),
                                   .prepare_bytes = j->exe->info->prepare_bytes};
}

// Results beyond what travels inline go into memory of ours, kept from run to run. Without it the
// worker makes its own; so it does when it lays them out otherwise than we think.
static void give_output_memory(struct job *j, struct run_call *c) {
    int64_t total = output_bytes(j->exe->info->signature);
    c->flight_bytes = total;
    if (total <= RUN_INLINE_BYTES) return;
    // What a part leaves, another worker may get to see.
    int owner = exe_is_open(j->exe->info) ? MEMFD_NOBODY : worker_index(j->seat.w);
    st_drop(memfds_take(pool_memfds(j->s->pool), owner,
                        hash64(j->tenant->name, strlen(j->tenant->name), 0), total, &c->out));
}

Hlod__Wire__WireTensor *job_wire_input(struct job *j, const struct job_input *in) {
    Hlod__Wire__WireTensor *t = arena_new_of(&j->arena, Hlod__Wire__WireTensor);
    Hlod__Wire__Blob *b = arena_new_of(&j->arena, Hlod__Wire__Blob);
    hlod__wire__wire_tensor__init(t);
    hlod__wire__blob__init(b);
    t->dtype = (char *)in->dtype->name;
    t->dims = (int64_t *)in->dims;
    t->n_dims = (size_t)in->rank;
    t->data = b;
    b->size = (uint64_t)in->size;
    if (j->spec.leads) return t; // gathered from its members
    if (j->spec.payload_fd >= 0) {
        b->fd = 1;
        b->offset = (uint64_t)in->offset;
    } else
        b->inline_bytes = (ProtobufCBinaryData){(size_t)in->size,
                                                (uint8_t *)j->spec.payload_bytes.p + in->offset};
    return t;
}

bool job_foreign_names(const struct job *j) {
    char source[65];
    digest_hex(j->model->source, source);
    return strcmp(source, j->exe->info->source_digest) != 0;
}

// What was sent and asked for, in the executable's order. `out`: an array in the job's arena.
static status_t order(struct job *j, const struct job_input ***out) MUST_CHECK;
static status_t order(struct job *j, const struct job_input ***out) {
    *out = arena_array(&j->arena, const struct job_input *, job_names(j)->n_inputs + 1);
    RETURN_IF_ERR(job_check_part(j));
    RETURN_IF_ERR(job_order_inputs(j, j->exe->info->signature, *out));
    return job_order_outputs(j);
}

static void send_run(struct job *j) {
    const struct job_input **in;
    status_t st = order(j, &in);
    if (st) {
        job_finish(j, st);
        return;
    }
    size_t n = job_names(j)->n_inputs;
    int fds[FRAME_MAX_FDS], n_fds = 0;
    bool open = exe_is_open(j->exe->info);
    if (j->spec.payload_fd >= 0) fds[n_fds++] = j->spec.payload_fd;
    Hlod__Wire__Run m = HLOD__WIRE__RUN__INIT;
    m.n_inputs = n + job_carried(j);
    m.inputs = arena_array(&j->arena, Hlod__Wire__WireTensor *, m.n_inputs + 1);
    if (job_parts_fd(j) >= 0) fds[n_fds++] = job_parts_fd(j);
    job_carry(j, (uint32_t)n_fds, m.inputs + n);
    for (size_t i = 0; i < n && !st; i++) {
        m.inputs[i] = job_wire_input(j, in[i]);
        if (j->spec.leads) st = batch_gather(j->spec.leads, i, m.inputs[i], fds, &n_fds);
    }
    if (st) {
        job_finish(j, st);
        return;
    }
    m.key = (ProtobufCBinaryData){32, j->key.b};
    m.weights_digest = (ProtobufCBinaryData){32, j->weights->weights.b};
    if (j->spec.n_outputs && !open) {
        m.outputs = (uint32_t *)j->r.outputs;
        m.n_outputs = j->r.n_outputs;
    }
    m.profile = j->spec.profile;
    m.foreign_names = job_foreign_names(j);
    m.quiet = j->spec.quiet;
    m.repeat = open ? 1 : j->spec.repeat;
    m.timeout_ms = j->spec.timeout_ms > 0 && j->spec.timeout_ms < UINT32_MAX
                       ? (uint32_t)j->spec.timeout_ms
                       : 0;
    struct run_call *c = job_call_new(j);
    give_output_memory(j, c);
    if (c->out) {
        fds[n_fds++] = memfd_fd(c->out);
        m.output_fd = (uint32_t)n_fds;
    }
    c->in = j->spec.payload ? memfd_ref(j->spec.payload) : NULL;
    c->batch = batch_ref(j->spec.leads);
    c->flight_bytes += job_carried_bytes(j);
    for (size_t i = 0; i < n; i++)
        c->flight_bytes += in[i]->size;
    for (size_t i = 0; i < n; i++)
        metric_add(M_DEVICE_BYTES_IN, in[i]->size);
    j->run_start_ns = clock_ns();
    job_call_send(c, HLOD__WIRE__TYPE__TYPE_RUN, &m.base, fds, n_fds, on_run);
}

static void placed(struct task *t) {
    struct job *j = job_of_task(t);
    job_seated(j, t);
    j->prepared = warm_has_prepared(worker_warm(t->seat.w), j->key, j->weights->weights);
    job_advance(j);
}

status_t job_pick_weights(struct job *j) {
    if (!j->weights) j->weights = model_ref(j->model);
    if (digest_eq(j->weights->program, j->model->program)) return ST_OK;
    return st_reason(st_new(ST_INVALID_ARGUMENT, "the weights belong to another program"),
                     HLOD__V1__REASON__REASON_SHAPE_MISMATCH);
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

void job_run(struct job *j) {
    status_t picked = job_pick_weights(j);
    if (picked) {
        job_finish(j, picked);
        return;
    }
    if (j->seat.w && worker_epoch(j->seat.w) != j->seat.epoch) seat_leave(j->s, &j->seat);
    if (j->seat.w) {
        if (j->prepared || warm_has_prepared(worker_warm(j->seat.w), j->key, j->weights->weights))
            send_run(j);
        else
            op_prepare_start(j);
        return;
    }
    if (!j->checked) { // refuse before any waiting
        const struct job_input **in;
        status_t st = order(j, &in);
        if (st) {
            job_finish(j, st);
            return;
        }
        j->checked = true;
    }
    job_event_queued(j);
    const char *device = j->spec.device && *j->spec.device ? j->spec.device : j->device_kind;
    int64_t expected = j->exe->run_ns * (j->spec.repeat > 1 ? j->spec.repeat : 1);
    bool alone = sched_alone(j->s, expected);
    j->task = (struct task){
        .want = {.role = ROLE_DEVICE, .device = device, .alone = alone, .expected_ns = expected},
        .tenant = j->tenant,
        .has_key = true,
        .plan = job_plan(j),
        .weights = j->weights->weights,
        .cost_ns = expected,
        .placed = placed,
        .failed = job_task_failed,
        .item = {.priority = j->spec.priority, .deadline_ns = j->deadline_ns}};
    task_queue(j->s, &j->task);
}

// ---- inspect

static void on_inspect(void *ctx, struct frame *f, status_t lost) {
    struct run_call *c = ctx;
    if (f && f->type != HLOD__WIRE__TYPE__TYPE_INSPECT_REPLY) return;
    struct worker *w = c->w;
    struct job *j = job_call_ended(c, f, lost);
    if (!j) return;
    seat_leave(j->s, &j->seat);
    if (!f && task_moved(&j->task, w, lost)) return;
    status_t st = lost;
    if (f) {
        j->inspect = weigh_unpack_or_null(&hlod__wire__inspect_reply__descriptor, f->body);
        st = j->inspect ? wire_status(j->inspect->status)
                        : st_new(ST_INTERNAL, "unreadable inspect reply");
        if (!st) j->r.text = j->inspect->text;
    }
    job_finish(j, st);
}

static void inspect_placed(struct task *t) {
    struct job *j = job_of_task(t);
    j->seat = t->seat;
    int fds[2], n = 0;
    int64_t offset, size;
    Hlod__Wire__Blob artifact = HLOD__WIRE__BLOB__INIT, program = HLOD__WIRE__BLOB__INIT;
    const struct {
        enum store_kind kind;
        struct digest d;
        Hlod__Wire__Blob *b;
    } parts[] = {{STORE_EXECUTABLE, j->key, &artifact},
                 {STORE_PROGRAM, j->model->program, &program}};
    status_t st = ST_OK;
    for (int i = 0; i < 2 && !st; i++) {
        st = store_open_fd(j->s->store, parts[i].kind, parts[i].d, STORE_COPY, &fds[n], &offset,
                           &size);
        if (st) break;
        n++;
        parts[i].b->fd = (uint32_t)n;
        parts[i].b->offset = (uint64_t)offset;
        parts[i].b->size = (uint64_t)size;
    }
    if (!st) {
        Hlod__Wire__Compile how = HLOD__WIRE__COMPILE__INIT;
        how.format = j->model->rec->format;
        how.program = &program;
        how.bindings = j->bindings;
        how.n_bindings = j->n_bindings;
        how.options = (char *)j->key_parts.options;
        how.target_id = (char *)j->key_parts.target_id;
        how.entry_name = (char *)"main";
        how.limits = &j->s->cfg.limits;
        Hlod__Wire__Inspect m = HLOD__WIRE__INSPECT__INIT;
        m.stage = (char *)j->spec.stage;
        m.artifact = &artifact;
        m.compile = &how;
        job_call_send(job_call_new(j), HLOD__WIRE__TYPE__TYPE_INSPECT, &m.base, fds, n, on_inspect);
    }
    for (int i = 0; i < n; i++)
        close(fds[i]);
    if (st) job_finish(j, st);
}

void job_inspect(struct job *j) {
    const char *stage = j->spec.stage; // these are not in the artefact: the worker compiles again
    bool again = !strcmp(stage, "kir") || !strcmp(stage, "llvm") || !strncmp(stage, "pass/", 5);
    status_t st = again ? sched_take_compile(j->s) : ST_OK;
    if (st) {
        job_finish(j, st);
        return;
    }
    j->task = (struct task){.want = {.role = ROLE_COMPILE, .device = j->device_kind},
                            .tenant = j->tenant,
                            .placed = inspect_placed,
                            .failed = job_task_failed,
                            .item = {.priority = j->spec.priority, .deadline_ns = j->deadline_ns}};
    task_queue(j->s, &j->task);
}
