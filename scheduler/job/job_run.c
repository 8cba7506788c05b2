// SPDX-License-Identifier: Apache-2.0
// A RUN job's own rows (job_table.c): inputs put in the signature's order, the place that it wants
// in a device worker, the RUN call and what its reply means.
#include "scheduler/job/job_run.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/metrics.h"
#include "base/vec.h"
#include "proto/message.h"
#include "scheduler/job/batch.h"
#include "scheduler/job/job_call.h"
#include "scheduler/job/job_parts.h"
#include "scheduler/queue/aside.h"
#include "scheduler/workers/memfds.h"

// ---- sequences and optionals, flattened

static bool any_loose(const Hlod__V1__Signature *s) {
    for (size_t i = 0; i < s->n_inputs; i++)
        if (key_is_loose(s->inputs[i])) return true;
    if (s->n_defaults) return true;
    for (size_t i = 0; i < s->n_outputs; i++)
        if (s->outputs[i]->sequence || s->outputs[i]->optional) return true;
    return false;
}
static const struct job_input *input_given(const struct job *j, const char *name) {
    for (size_t k = 0; k < j->spec->n_inputs; k++)
        if (!strcmp(j->inputs[k].name, name)) return &j->inputs[k];
    return NULL;
}
static Hlod__V1__TensorSpec *tensor_of(struct arena *a, const Hlod__V1__TensorSpec *from,
                                       const char *name, int32_t rank) {
    Hlod__V1__TensorSpec *t = message_new(a, &hlod__v1__tensor_spec__descriptor);
    t->name = (char *)(uintptr_t)name;
    t->dtype = from->dtype;
    t->n_dims = (size_t)rank;
    t->dims = arena_array(a, Hlod__V1__Dim *, rank + 1);
    for (int32_t d = 0; d < rank; d++) {
        t->dims[d] = message_new(a, &hlod__v1__dim__descriptor);
        t->dims[d]->size = -1;
    }
    return t;
}

// Whose names a run uses: of an executable's, those of the model whose weights it takes.
static const struct model *named_as(const struct job *j) {
    bool executable = !digest_eq(j->spec->model, j->model->source);
    return executable && j->spec->has_weights && j->weights ? j->weights : j->model;
}
// The model's signature with each loose input as the tensors that the request brings, behind them
// the values of the model that it replaces, and, once
// there is an executable, each sequence among the outputs as the tensors that it gives.
const Hlod__V1__Signature *job_names(struct job *j) {
    const Hlod__V1__Signature *sig = named_as(j)->rec->signature;
    struct arena *a = &j->arena;
    if (!any_loose(sig)) return sig;
    VEC(Hlod__V1__TensorSpec *) in = {0};
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
    for (size_t i = 0; i < sig->n_defaults; i++)
        if (input_given(j, sig->defaults[i]->name)) avec_push(a, &in, sig->defaults[i]);

    Hlod__V1__Signature *f = message_new(a, &hlod__v1__signature__descriptor);
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
        f->outputs[k]->name = (char *)(uintptr_t)key_output_name(a, sig, bound->outputs[k]->name);
    }
    return f;
}

static status_t missing(const Hlod__V1__TensorSpec *t) {
    struct strbuf b = {0};
    key_spec_text(&b, t);
    status_t st = st_because(ST_INVALID_ARGUMENT, MISSING_INPUT, "input '%s' is missing (%s)",
                             t->name, strbuf_cstr(&b));
    strbuf_done(&b);
    return st;
}

// The given inputs in signature order. Names are of the model that was asked for; shapes are of
// `sig`, the executable's or the model's own (whose symbols fit any size).
status_t job_order_inputs(struct job *j, const struct job_input *given,
                          const Hlod__V1__Signature *sig, const struct job_input **out) {
    const Hlod__V1__Signature *names = job_names(j);
    size_t n = names->n_inputs; // behind them: what an earlier part left
    if (!sig || (sig->n_inputs != n && sig->n_inputs != n + job_carried(j)))
        return st_internal("the executable's signature does not fit its model");
    for (size_t i = 0; i < n; i++)
        out[i] = NULL;

    for (size_t k = 0; k < j->spec->n_inputs; k++) {
        const struct job_input *in = &given[k];
        size_t i = *in->name ? key_index(names->inputs, names->n_inputs, in->name) : k;
        if (i >= names->n_inputs)
            return key_no_such_input(&j->arena, in->name, names, j->model->rec->signature);
        if (out[i])
            return st_because(ST_INVALID_ARGUMENT, UNKNOWN_INPUT, "input '%s' is given twice",
                              names->inputs[i]->name);
        out[i] = in;
    }

    for (size_t i = 0; i < n; i++) {
        const Hlod__V1__TensorSpec *want = sig->inputs[i];
        const char *name = names->inputs[i]->name;
        const struct job_input *in = out[i];
        if (!in) return missing(names->inputs[i]);
        if (strcmp(in->dtype->name, want->dtype))
            return st_because(ST_INVALID_ARGUMENT, DTYPE_MISMATCH,
                              "input '%s': expected %s, found %s", name, want->dtype,
                              in->dtype->name);
        if ((size_t)in->rank != want->n_dims) return key_wrong_rank(want, name, in->rank);
        for (size_t d = 0; d < want->n_dims; d++)
            if (want->dims[d]->size >= 0 && want->dims[d]->size != in->dims[d])
                return key_wrong_size(name, d, want->dims[d]->size, in->dims[d]);
    }
    return ST_OK;
}

status_t job_one_replica(struct job *j, const struct job_input **out) {
    int all = job_replicas(j);
    *out = j->inputs;
    if (all == 1) return ST_OK;
    struct job_input *own = arena_dup(&j->arena, *out, j->spec->n_inputs * sizeof *own);
    for (size_t k = 0; k < j->spec->n_inputs; k++) {
        struct job_input *in = &own[k];
        if (in->rank < 1 || in->dims[0] != all)
            return st_because(ST_INVALID_ARGUMENT, SHAPE_MISMATCH,
                              "input '%s': expected a first dimension of %d, one part for "
                              "each replica",
                              in->name, all);
        in->dims++;
        in->rank--;
        in->elements /= all;
        in->size /= all;
    }
    *out = own;
    return ST_OK;
}

status_t job_check_inputs(struct job *j) {
    const struct job_input *given;
    RETURN_IF_ERR(job_one_replica(j, &given));
    const Hlod__V1__Signature *sig = job_names(j);
    const struct job_input **in =
        arena_array(&j->arena, const struct job_input *, sig->n_inputs + 1);
    return job_order_inputs(j, given, sig, in);
}

status_t job_order_outputs(struct job *j, struct delivery *d) {
    const Hlod__V1__Signature *names = job_names(j);
    d->names = names;
    if (exe_is_open(j->exe->info)) { // all it has; nobody is sent any
        d->n_outputs = j->exe->info->signature->n_outputs;
        return ST_OK;
    }
    char *const *wanted = j->spec->run.n_outputs ? j->spec->run.outputs : NULL;
    size_t n = wanted ? j->spec->run.n_outputs : names->n_outputs;
    uint32_t *v = arena_array(&j->arena, uint32_t, n + 1);
    for (size_t k = 0; k < n; k++) {
        size_t i = wanted ? key_index(names->outputs, names->n_outputs, wanted[k]) : k;
        if (i >= names->n_outputs)
            return key_no_such("output", wanted[k], names->outputs, names->n_outputs);
        v[k] = (uint32_t)i;
    }
    d->outputs = v;
    d->n_outputs = n;
    return ST_OK;
}

void job_name_outputs(struct job *j, const char *const *names, size_t n, struct job_result *out) {
    Hlod__V1__Signature *s = message_new(&j->arena, &hlod__v1__signature__descriptor);
    uint32_t *outputs = arena_array(&j->arena, uint32_t, n + 1);
    s->outputs = arena_array(&j->arena, Hlod__V1__TensorSpec *, n + 1);
    for (; s->n_outputs < n; s->n_outputs++) {
        Hlod__V1__TensorSpec *t = s->outputs[s->n_outputs] =
            message_new(&j->arena, &hlod__v1__tensor_spec__descriptor);
        t->name = (char *)(uintptr_t)names[s->n_outputs];
        outputs[s->n_outputs] = (uint32_t)s->n_outputs;
    }
    out->names = s;
    out->outputs = outputs;
    out->n_outputs = n;
}

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
    const Hlod__Wire__RunReply *r = j->reply.run;
    int64_t ns = exe_measured(j->exe, r->run_ms, r->n_run_ms, clock_ns() - j->sent_ns);
    if (ns <= 0) return;
    job_used(j, ns);
    const Hlod__V1__ExecutableInfo *info = j->exe->info;
    int64_t size; // 0: not known, or below zero or beyond all bounds, as a broken worker may say
    if (!sz_add(info->flops, info->bytes_accessed, &size)) size = 0;
    // A run by an executable's digest had no choice, and a part is not the work.
    if (!digest_is_zero(j->key.work) && !info->part)
        history_note(&j->s->history, j->key.work, info->target_id, ns / (int64_t)r->n_run_ms, size);
    job_count_out(j, r->outputs, r->n_outputs);
}

static void tell_times(struct job *j, bool ok) {
    int64_t end_ns = clock_ns(), ran_ns = end_ns - j->sent_ns, carried_ns = ran_ns;
    job_timing_to(j, "run", ran_ns, end_ns);
    metric_add(ok ? M_RUNS : M_RUN_ERRORS, 1);
    metric_observe_ns(M_RUN_TIME, ran_ns);
    if (!ok) return;
    double at_work_ms = j->reply.run->peak_ms;
    for (size_t i = 0; i < j->reply.run->n_run_ms; i++)
        at_work_ms += j->reply.run->run_ms[i];
    carried_ns -= clock_of_ms(at_work_ms);
    if (carried_ns > 0) // a part of run: frames, tensors to the worker and back
        job_timing_to(j, "transfer", carried_ns, end_ns);
}

static void on_run(void *ctx, struct frame *f, status_t lost) {
    struct run_call *c = ctx;
    if (f && f->type == HLOD__WIRE__TYPE__TYPE_RUNNING) {
        job_call_running(c);
        return;
    }
    if (f && f->type != HLOD__WIRE__TYPE__TYPE_RUN_REPLY) return;
    bool began = c->began || (lost && worker_began(c->w, c->id)), is_lost = lost != NULL;
    struct job *j = job_call_ended(c, f, lost);
    if (!j) return;

    status_t st = lost;
    Hlod__Wire__RunReply *r = wire_reply(&hlod__wire__run_reply__descriptor, f, &st);
    if (!st && r->n_outputs != j->r.n_outputs)
        st = st_internal("the worker sent %zu outputs, expected %zu", r->n_outputs, j->r.n_outputs);
    if (st) hlod__wire__run_reply__free_unpacked(r, NULL);
    if (st && job_call_again(j, st, is_lost, began)) return;
    if (!st) job_deliver(j, ROW_REPLY, &(struct delivery){.reply = &r->base});
    if (!st) measure(j);
    tell_times(j, !st);
    if (st)
        job_finish(j, st);
    else
        job_advance(j);
}

void run_end(struct job *j) {
    bool own = j->reply.any; // else a batch's leader has it
    status_t st = ST_OK;
    if (own && exe_is_open(j->exe->info)) {
        st = job_next_part(j);
        if (!st) {
            job_advance(j);
            return;
        }
    } else if (own) {
        struct job_result r = j->r;
        job_tell_parts(j, &r);
        r.reply = j->reply.run;
        job_answer(j, &r);
    }
    job_finish(j, st);
}

int64_t job_add_output_bytes(int64_t total, const Hlod__V1__TensorSpec *spec) {
    const struct dtype_row *t = numbers_dtype(str_of(spec->dtype));
    int64_t bytes = t ? t->bytes : 0;
    if (!bytes) return 0; // strings: their size is known when they are
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
// Bytes that a worker's figures come to, which may be anything: at most more than any device has,
// so that what is added to them stays in range.
int64_t job_plan_bytes(int64_t bytes) {
    static const int64_t MOST = INT64_C(1) << 52;
    return bytes < 0 || bytes > MOST ? MOST : bytes;
}
static int64_t tensor_bytes(const struct job *j) {
    int64_t total = output_bytes(j->exe->info->signature);
    total = total > 64 ? total - 64 : 0; // the slack at its end is not the device's
    for (size_t i = 0; i < j->spec->n_inputs; i++)
        sz_sum(&total, j->inputs[i].size);
    sz_sum(&total, job_carried_bytes(j));
    return job_plan_bytes(total);
}

// Working memory, and weights as they came or as they are kept, whichever is more.
int64_t exe_resident_bytes(const struct exe *e) {
    int64_t kept = job_plan_bytes(e->info->bound_bytes);
    int64_t came = job_plan_bytes(e->info->weights_bytes);
    return job_plan_bytes(job_plan_bytes(e->info->peak_bytes) + (kept > came ? kept : came));
}

struct footprint_want job_footprint(const struct job *j) {
    return (struct footprint_want){.key = j->key.digest,
                                   .resident_bytes = exe_resident_bytes(j->exe),
                                   .tensor_bytes = tensor_bytes(j),
                                   .prepare_bytes = job_plan_bytes(j->exe->info->prepare_bytes)};
}

// Results beyond what travels inline go into memory of ours, kept from run to run. Without it the
// worker makes its own; so it does when it lays them out otherwise than we think.
static void give_output_memory(struct job *j, struct run_call *c) {
    int64_t total = output_bytes(j->exe->info->signature);
    c->flight_bytes = total;
    if (total <= RUN_INLINE_BYTES) return;
    // What a part leaves, another worker may get to see.
    int owner = exe_is_open(j->exe->info) ? MEMFD_NOBODY : worker_index(j->slot.w);
    st_drop(memfds_take(pool_memfds(j->s->pool), owner,
                        hash64(j->tenant->name, strlen(j->tenant->name), 0), total, &c->out));
}

Hlod__Wire__WireTensor *job_wire_input(struct job *j, const struct job_input *in) {
    Hlod__Wire__WireTensor *t = message_new(&j->arena, &hlod__wire__wire_tensor__descriptor);
    Hlod__Wire__Blob *b = message_new(&j->arena, &hlod__wire__blob__descriptor);
    t->dtype = (char *)in->dtype->name;
    t->dims = (int64_t *)in->dims;
    t->n_dims = (size_t)in->rank;
    t->data = b;
    b->size = (uint64_t)in->size;
    if (job_leads(j)) return t; // gathered from its members
    if (j->spec->payload_fd >= 0) {
        b->fd = 1;
        b->offset = (uint64_t)in->offset;
    } else
        b->inline_bytes = (ProtobufCBinaryData){(size_t)in->size,
                                                (uint8_t *)j->spec->payload_bytes.p + in->offset};
    return t;
}

bool job_foreign_names(const struct job *j) {
    return strcmp(digest_to_hex(named_as(j)->source).z, j->exe->info->source_digest) != 0;
}

// ---- rows

status_t job_check_weights(const struct job *j) {
    if (digest_eq(j->weights->program, j->model->program)) return ST_OK;
    return st_because(ST_INVALID_ARGUMENT, SHAPE_MISMATCH, "the weights belong to another program");
}

// What was sent and asked for, in the executable's order: refused before any waiting.
status_t run_check(struct job *j, struct delivery *d) {
    const struct job_input **in = j->run->order =
        arena_array(&j->arena, const struct job_input *, job_names(j)->n_inputs + 1);
    RETURN_IF_ERR(job_check_weights(j));
    RETURN_IF_ERR(job_check_part(j, d));
    RETURN_IF_ERR(job_order_inputs(j, j->inputs, j->exe->info->signature, in));
    return job_order_outputs(j, d);
}

status_t run_want(const struct job *j, struct task *t) {
    RETURN_IF_ERR(sched_aside(j->s, j->tenant, "run", j->key.digest));
    int64_t expected = j->exe->run_ns * (j->spec->repeat > 1 ? j->spec->repeat : 1);
    t->want.device = j->device && *j->device ? j->device : j->key.device_kind;
    t->want.alone = sched_alone(j->s, expected);
    t->want.expected_ns = expected;
    t->has_key = true;
    t->plan = job_footprint(j);
    t->weights = j->weights->weights;
    t->cost_ns = expected;
    return ST_OK;
}

status_t run_prepare(struct job *j, bool *later) {
    RETURN_IF_ERR(sched_aside(j->s, j->tenant, "run", j->key.digest)); // a leader, a plan's step
    if (warm_has_prepared(worker_warm(j->slot.w), j->key.digest, j->weights->weights)) {
        job_deliver(j, ROW_PREPARED, &(struct delivery){0});
        return ST_OK;
    }
    *later = true;
    op_prepare_start(j);
    return ST_OK;
}

void run_evicted(struct job *j) {
    warm_forget(worker_warm(j->slot.w), j->key.digest);
}
void run_free(struct job *j) {
    job_drop_parts(j);
    batch_unref(j->run->batch);
}

// The inputs as they travel, with what an earlier part left behind them.
static status_t wire_inputs(struct job *j, Hlod__Wire__Run *m, int *fds, int *n_fds) {
    const struct job_input **in = j->run->order;
    size_t n = job_names(j)->n_inputs;
    if (j->spec->payload_fd >= 0) fds[(*n_fds)++] = j->spec->payload_fd;
    m->n_inputs = n + job_carried(j);
    m->inputs = arena_array(&j->arena, Hlod__Wire__WireTensor *, m->n_inputs + 1);
    if (job_parts_fd(j) >= 0) fds[(*n_fds)++] = job_parts_fd(j);
    job_carry(j, (uint32_t)*n_fds, m->inputs + n);
    for (size_t i = 0; i < n; i++) {
        m->inputs[i] = job_wire_input(j, in[i]);
        if (j->spec->run.leads)
            RETURN_IF_ERR(batch_gather(j->spec->run.leads, i, m->inputs[i], fds, n_fds));
    }
    return ST_OK;
}

status_t run_send(struct job *j) {
    int fds[FRAME_MAX_FDS], n_fds = 0;
    bool open = exe_is_open(j->exe->info);
    Hlod__Wire__Run m = HLOD__WIRE__RUN__INIT;
    RETURN_IF_ERR(wire_inputs(j, &m, fds, &n_fds));
    m.key = (ProtobufCBinaryData){32, j->key.digest.b};
    m.weights_digest = (ProtobufCBinaryData){32, j->weights->weights.b};
    if (j->spec->run.n_outputs && !open) {
        m.outputs = (uint32_t *)j->r.outputs;
        m.n_outputs = j->r.n_outputs;
    }
    m.profile = j->spec->profile;
    m.foreign_names = job_foreign_names(j);
    m.quiet = j->spec->quiet;
    m.repeat = open ? 1 : j->spec->repeat;
    m.timeout_ms = j->timeout_ms > 0 && j->timeout_ms < UINT32_MAX ? (uint32_t)j->timeout_ms : 0;

    struct run_call *c = job_call_new(j);
    give_output_memory(j, c);
    if (c->out) {
        fds[n_fds++] = memfd_fd(c->out);
        m.output_fd = (uint32_t)n_fds;
    }
    c->batch = batch_ref(j->spec->run.leads);
    c->let_go = batch_unref;
    c->flight_bytes += job_carried_bytes(j);
    for (size_t i = 0, n = job_names(j)->n_inputs; i < n; i++) {
        c->flight_bytes += j->run->order[i]->size;
        metric_add(M_DEVICE_BYTES_IN, j->run->order[i]->size);
    }
    job_call_send(c, HLOD__WIRE__TYPE__TYPE_RUN, &m.base, fds, n_fds, on_run);
    sched_charge(c->w, c->id, j->tenant, "run", j->key.digest);
    return ST_OK;
}
