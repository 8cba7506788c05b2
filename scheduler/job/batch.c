// SPDX-License-Identifier: Apache-2.0
// References: each member holds its batch until it is freed, since its results lie in the leader's
// memory; the batch holds itself from its opening until it is over.
#include "scheduler/job/batch.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/metrics.h"
#include "proto/frame.h"
#include "proto/message.h"
#include "scheduler/job/job_run.h"
#include "scheduler/loop.h"
#include "scheduler/records/models.h"
#include "scheduler/trace.h"
#include "scheduler/workers/memfds.h"

enum { MAX_SOURCES = FRAME_MAX_FDS - 2 }; // descriptors of members; the results' and one of ours

struct member {
    struct job *j; // NULL: left
    int64_t row, rows, joined_ns;
    // What it brought, kept while the leader needs it, whether the member stays or not.
    const struct job_input *inputs; // in the signature's order, with offsets into:
    struct span bytes;              // or
    int fd;                         // ours; -1: bytes
    struct memfd *memfd;            // kept from reuse; or NULL
};
struct batch {
    struct sched *s;
    int refs;
    bool open, over;
    struct strbuf key; // in sched.batches while it is open
    struct arena arena;
    struct batching how;
    VEC(struct member) members;
    int64_t rows; // of all that joined
    int sources;  // members with a descriptor
    struct loop_timer *timer;
    struct task ticket;
    struct job *leader;
    struct job_input *inputs; // the leader's
    size_t n_inputs;
    int inline_fd; // members' bytes beyond what a frame carries; -1
    int64_t *inline_at;
    Hlod__V1__CompileOptions *options; // owned
    struct trace *trace;               // of the run of all, which is nobody's part; NULL: not told
    const struct trace **links;        // the members', [n_links]
    size_t n_links;
};

// ---- what may be joined

static status_t cannot(const char *what, const char *name, const char *why) {
    return st_because(ST_INVALID_ARGUMENT, BAD_OPTION,
                      "runs of this model cannot be batched: %s '%s' %s", what, name, why);
}

static status_t check_form(const char *what, const Hlod__V1__TensorSpec *t) {
    if (t->sequence || t->optional || t->by_value)
        return cannot(what, t->name, "has no fixed form");
    for (size_t d = 0; d < t->n_dims; d++) // it may follow from the number of rows
        if (t->dims[d]->expression)
            return cannot(what, t->name, "has a dimension that follows from others");
    return strcmp(t->dtype, "string") ? ST_OK : cannot(what, t->name, "is a string tensor");
}
// *symbol: that of dimension 0 of all tensors, NULL before the first.
static status_t check_tensor(const char *what, const Hlod__V1__TensorSpec *t, const char **symbol) {
    RETURN_IF_ERR(check_form(what, t));
    if (t->unknown_rank) return cannot(what, t->name, "has no fixed form");
    if (!t->n_dims || t->dims[0]->size >= 0 || !*t->dims[0]->symbol)
        return cannot(what, t->name, "has no symbolic dimension 0");
    if (!*symbol) *symbol = t->dims[0]->symbol;
    if (strcmp(*symbol, t->dims[0]->symbol))
        return cannot(what, t->name, "has another dimension 0 than those before");
    for (size_t d = 1; d < t->n_dims; d++)
        if (t->dims[d]->size < 0 && !strcmp(t->dims[d]->symbol, *symbol))
            return cannot(what, t->name, "has dimension 0 elsewhere too");
    return ST_OK;
}

status_t batch_check(const struct batching *b, const Hlod__V1__Signature *sig) {
    const char *symbol = NULL;
    if (b->max < 0 || b->max > BATCH_MAX || b->delay_us < 0 || b->delay_us > BATCH_MAX_DELAY_US)
        return st_because(ST_INVALID_ARGUMENT, BAD_OPTION,
                          "batching: expected max up to %d and delay_us up to %d", BATCH_MAX,
                          BATCH_MAX_DELAY_US);
    if (b->max <= 1) return ST_OK;
    if (!sig->n_inputs || !sig->n_outputs) return cannot("the", "signature", "is empty");
    // Exporters name one dimension differently in each tensor. Where the compiler shows that rows
    // are independent it is seen there which they are, else the names have to say it.
    for (size_t i = 0; i < sig->n_inputs; i++) {
        if (!b->unchecked) symbol = NULL;
        RETURN_IF_ERR(check_tensor("input", sig->inputs[i], &symbol));
    }
    for (size_t i = 0; i < sig->n_outputs; i++)
        RETURN_IF_ERR(b->unchecked ? check_tensor("output", sig->outputs[i], &symbol)
                                   : check_form("output", sig->outputs[i]));
    return ST_OK;
}

status_t batch_check_outputs(const Hlod__V1__ExecutableInfo *x, int64_t bucket) {
    for (size_t i = 0; i < x->signature->n_outputs; i++) {
        const Hlod__V1__TensorSpec *t = x->signature->outputs[i];
        if (!t->n_dims || t->dims[0]->size != bucket)
            return cannot("output", t->name, "has no row for each row of the inputs");
    }
    return ST_OK;
}

status_t batch_check_rows(const Hlod__V1__ExecutableInfo *x, const char *constants) {
    const char *why = x->rows_independent ? "it computes with the number of rows" : x->rows_why;
    if (x->rows_independent && (!constants || !strcmp(constants, x->constants_digest)))
        return ST_OK;
    return st_because(ST_INVALID_ARGUMENT, BAD_OPTION,
                      "runs of this model cannot be batched: %s; if its rows are independent "
                      "all the same, say batching.unchecked",
                      why);
}

int64_t batch_bucket(int64_t rows, int64_t max) {
    int64_t n = 1;
    while (n < rows)
        n *= 2;
    return n < max ? n : max;
}

static bool wants(struct job *j) {
    const struct job_spec *p = j->spec;
    const Hlod__V1__Signature *sig = j->model->rec->signature;
    if (p->kind != JOB_RUN || p->run.batching.max <= 1 || p->repeat > 1 || p->no_compile ||
        p->run.leads || job_has(j, ROW_KEY) || p->n_inputs != sig->n_inputs || !p->n_inputs ||
        job_replicas(j) > 1)
        return false;
    int64_t rows = j->inputs[0].rank ? j->inputs[0].dims[0] : 0;
    for (size_t i = 0; i < p->n_inputs; i++)
        if (!j->inputs[i].rank || j->inputs[i].dims[0] != rows || j->inputs[i].resident ||
            (j->inputs[i].handle && *j->inputs[i].handle))
            return false;
    if (rows < 1 || rows > p->run.batching.max || !job_device_kind(j)) return false;
    status_t st = batch_check(&p->run.batching, sig); // the name may have moved on to another model
    if (!st) st = job_check_inputs(j);
    bool fits = !st;
    st_drop(st); // what is wrong with it will be said on the way of a single run
    return fits;
}

// Inputs in the order of the signature, which job_check_inputs has seen to be there.
static const struct job_input *ordered(struct job *j) {
    const Hlod__V1__Signature *sig = j->model->rec->signature;
    struct job_input *v = arena_array(&j->arena, struct job_input, sig->n_inputs);
    for (size_t k = 0; k < j->spec->n_inputs; k++) {
        const char *name = j->inputs[k].name;
        v[*name ? key_index(sig->inputs, sig->n_inputs, name) : k] = j->inputs[k];
    }
    return v;
}

static const char *device_of(struct job *j) { // "auto" until its batch is queued
    return j->device && *j->device ? j->device : job_device_kind(j);
}

// Runs with equal keys differ in their rows only.
static void put_key(struct job *j, const struct job_input *in, struct strbuf *b) {
    const char *options = "", *device = device_of(j);
    st_drop(key_options(&j->arena, j->spec->options, &options));
    strbuf_add(b, (const char *)j->model->source.b, sizeof j->model->source.b);
    strbuf_add(b, (const char *)j->weights->source.b, sizeof j->weights->source.b);
    strbuf_printf(b, "%s\n%s\n%s\n%d/%d/%d/%d", j->tenant->name, device, options, j->spec->priority,
                  j->spec->profile, j->spec->run.batching.max, j->spec->run.batching.delay_us);
    for (size_t i = 0; i < j->spec->n_inputs; i++)
        for (int32_t d = 1; d < in[i].rank; d++)
            strbuf_printf(b, "%c%" PRId64, d == 1 ? ';' : ',', in[i].dims[d]);
}

// ---- life

struct batch *batch_ref(struct batch *b) {
    if (b) b->refs++;
    return b;
}
void batch_unref(struct batch *b) {
    if (!b || --b->refs) return;
    job_free(b->leader);
    for (size_t i = 0; i < b->members.n; i++) {
        if (b->members.v[i].fd >= 0) close(b->members.v[i].fd);
        memfd_unref(b->members.v[i].memfd);
    }
    if (b->inline_fd >= 0) close(b->inline_fd);
    if (b->options) hlod__v1__compile_options__free_unpacked(b->options, NULL);
    vec_done(&b->members);
    strbuf_done(&b->key);
    arena_done(&b->arena);
    free(b);
}

const char *batch_doing(const struct job *j) {
    return j->at == ROW_JOINED && j->run->batch && j->run->batch->leader ? "running" : NULL;
}

static void close_to_others(struct batch *b) {
    if (b->open) smap_del(&b->s->batches, (struct str){b->key.p, b->key.n});
    b->open = false;
    loop_timer_free(b->timer);
    b->timer = NULL;
}
static void end(struct batch *b) {
    close_to_others(b);
    if (b->over) return;
    b->over = true;
    batch_unref(b);
}

// Ends what is left of the members; takes st.
static void fail_all(struct batch *b, status_t st) {
    b->refs++;
    end(b);
    for (size_t i = 0; i < b->members.n; i++) {
        struct job *j = b->members.v[i].j;
        b->members.v[i].j = NULL;
        if (!j) continue;
        job_finish(j, st_copy(st));
    }
    st_drop(st);
    batch_unref(b);
}

void batch_leave(struct job *j) {
    struct batch *b = j->run->batch;
    if (!b || b->over) return;
    bool any = false;
    for (size_t i = 0; i < b->members.n; i++) {
        struct member *m = &b->members.v[i];
        if (m->j == j) {
            m->j = NULL;
            if (!b->leader) b->rows -= m->rows; // its rows will not be run
        }
        any = any || m->j;
    }
    if (any) return;
    task_drop(&b->ticket);
    if (b->leader) job_cancel(b->leader);
    end(b);
}

// ---- results

// The member's rows of one result of the bucket: a view.
static Hlod__Wire__WireTensor *rows_of(struct arena *a, const Hlod__Wire__WireTensor *all,
                                       const struct member *m, int64_t bucket) {
    Hlod__Wire__WireTensor *t = message_new(a, &hlod__wire__wire_tensor__descriptor);
    Hlod__Wire__Blob *b = message_new(a, &hlod__wire__blob__descriptor);
    t->dtype = all->dtype;
    t->n_dims = all->n_dims;
    t->dims = arena_dup(a, all->dims, all->n_dims * sizeof *all->dims);
    t->dims[0] = m->rows;
    t->data = b;

    const Hlod__Wire__Blob *from = all->data;
    uint64_t each = from->size / (uint64_t)bucket, at = each * (uint64_t)m->row;
    b->size = each * (uint64_t)m->rows;
    b->fd = from->fd;
    b->offset = from->offset + at;
    if (!from->fd && at + b->size <= from->inline_bytes.len)
        b->inline_bytes = (ProtobufCBinaryData){b->size, from->inline_bytes.data + at};
    return t;
}

// The member's outputs out of those of the bucket.
static status_t cut_outputs(struct job *j, const struct member *m, int64_t bucket,
                            const Hlod__Wire__RunReply *all, const Hlod__Wire__RunReply **out) {
    Hlod__Wire__RunReply *r = arena_dup(&j->arena, all, sizeof *all);
    r->outputs = arena_array(&j->arena, Hlod__Wire__WireTensor *, j->r.n_outputs + 1);
    for (r->n_outputs = 0; r->n_outputs < j->r.n_outputs; r->n_outputs++) {
        uint32_t k = j->r.outputs[r->n_outputs];
        const Hlod__Wire__WireTensor *t = k < all->n_outputs ? all->outputs[k] : NULL;
        if (!t || !t->data || !t->n_dims || t->dims[0] != bucket ||
            t->data->size % (uint64_t)bucket)
            return st_internal("an output of the batch of %" PRId64 " has no such rows", bucket);
        r->outputs[r->n_outputs] = rows_of(&j->arena, t, m, bucket);
    }
    *out = r;
    return ST_OK;
}

static status_t give_rows(struct batch *b, const struct member *m, int64_t bucket) {
    struct job *j = m->j;
    const struct job_result *from = &b->leader->r;
    struct delivery all = {.key = &b->leader->key, .exe = b->leader->exe, .hit = from->cache_hit};
    job_deliver(j, ROW_KEY, &all);
    job_deliver(j, ROW_EXECUTABLE, &all);
    for (size_t i = 0; i + 1 < from->n_timings; i++) { // the last is its total
        const Hlod__V1__Timing *t = from->timings[i];
        job_timing_to(j, t->name, clock_of_ms(t->ms),
                      b->leader->start_ns + clock_of_ms(t->start_ms + t->ms));
    }
    RETURN_IF_ERR(job_order_outputs(j, &all));
    job_deliver(j, ROW_CHECKED, &all);

    struct job_result r = j->r;
    r.device = from->device ? arena_strdup(&j->arena, from->device) : NULL;
    r.run.batch_rows = b->rows;
    r.run.rows = m->rows;
    if (b->trace) r.run.batch = arena_dup(&j->arena, b->trace, sizeof *b->trace);
    r.n_fds = from->n_fds;
    memcpy(r.fds, from->fds, sizeof from->fds);
    status_t st = cut_outputs(j, m, bucket, from->reply, &r.reply);
    job_answer(j, &r);
    if (!st) job_deliver(j, ROW_REPLY, &(struct delivery){0}); // the message is the leader's
    return st;
}

// The run of all is a trace of its own with links to the members', which link to it: it is a part
// of none of them more than of the others.
static void begin_trace(struct batch *b) {
    size_t n = 0;
    struct trace *t = arena_array(&b->arena, struct trace, b->members.n);
    b->links = arena_array(&b->arena, const struct trace *, b->members.n);
    for (size_t i = 0; i < b->members.n && b->s->told; i++) {
        const struct trace *own = b->members.v[i].j->spec->trace;
        if (!trace_sampled(own)) continue;
        t[n] = *own; // its request may be gone by then
        t[n].state = "";
        b->links[n] = &t[n];
        n++;
    }
    b->n_links = n;
    if (!n) return;
    b->trace = arena_new_of(&b->arena, struct trace);
    trace_begin(b->trace);
    b->trace->flags = TRACE_SAMPLED;
}
static void tell_trace(const struct batch *b, const struct job *leader, status_t st) {
    if (!b->trace) return;
    struct trace_work w = {.trace = b->trace,
                           .name = "batch",
                           .start_ns = leader->start_ns,
                           .end_ns = clock_ns(),
                           .code = st_code(st),
                           .reason = st_get_reason(st),
                           .message = st ? st_message(st) : NULL,
                           .record = leader->r.record,
                           .work_ns = leader->start_ns,
                           .tenant = leader->tenant->name,
                           .links = b->links,
                           .n_links = b->n_links,
                           .rows = b->rows};
    b->s->told(b->s->told_ctx, &w);
}

static void on_done(void *ctx, struct job *leader, status_t st) {
    struct batch *b = ctx;
    tell_trace(b, leader, st);
    if (st) {
        fail_all(b, st);
        return;
    }
    metric_add(M_BATCHES, 1);
    metric_add(M_BATCH_ROWS, b->rows);

    for (size_t i = 0; i < b->members.n; i++) { // for the statistics of its name
        const struct job *j = b->members.v[i].j;
        if (!j || !j->spec->run.name) continue;
        models_count_batch(b->s->names, j->spec->run.space, j->spec->run.name, j->spec->run.version,
                           b->rows, (uint64_t)(clock_ns() - leader->sent_ns));
        break;
    }
    leader->model->batch_plan = job_footprint(leader);
    leader->model->batch_ns = leader->exe->run_ns;

    int64_t bucket = b->inputs[0].dims[0];
    b->refs++;
    end(b);
    for (size_t i = 0; i < b->members.n; i++) {
        struct member *m = &b->members.v[i];
        struct job *j = m->j;
        if (!j) continue;
        status_t own = give_rows(b, m, bucket);
        m->j = NULL;
        if (own)
            job_finish(j, own);
        else
            job_advance(j);
    }
    batch_unref(b);
}

static void on_event(void *ctx, Hlod__V1__Event *e) {
    struct batch *b = ctx;
    if (e->kind_case == HLOD__V1__EVENT__KIND_INGEST ||
        e->kind_case == HLOD__V1__EVENT__KIND_QUEUED)
        return; // each had its own
    for (size_t i = 0; i < b->members.n; i++)
        if (b->members.v[i].j) job_event(b->members.v[i].j, e);
}

// ---- the leader

// What the members brought, so that none of them is needed any more.
static status_t keep_sources(struct batch *b) {
    int64_t inline_bytes = 0, at = 0;
    for (size_t i = 0; i < b->members.n; i++) {
        struct member *m = &b->members.v[i];
        const struct job_spec *p = m->j->spec;
        m->inputs = arena_dup(&b->arena, m->inputs, b->n_inputs * sizeof *m->inputs);
        if (p->payload_fd < 0) {
            m->bytes = (struct span){arena_dup(&b->arena, p->payload_bytes.p, p->payload_bytes.n),
                                     p->payload_bytes.n};
            inline_bytes += (int64_t)p->payload_bytes.n;
            continue;
        }
        m->fd = dup(p->payload_fd);
        if (m->fd < 0) return st_exhausted("no descriptor for a batch");
        m->memfd = p->payload ? memfd_ref(p->payload) : NULL;
    }
    if (inline_bytes <= FRAME_INLINE_BYTES) return ST_OK;
    RETURN_IF_ERR(frame_memfd("hlod-batch", inline_bytes, &b->inline_fd));
    b->inline_at = arena_array(&b->arena, int64_t, b->members.n);
    for (size_t i = 0; i < b->members.n; i++) {
        struct span s = b->members.v[i].bytes;
        b->inline_at[i] = at;
        if (s.n && pwrite(b->inline_fd, s.p, s.n, at) != (ssize_t)s.n)
            return st_exhausted("no memory for a batch");
        at += (int64_t)s.n;
    }
    return ST_OK;
}

status_t batch_gather(struct batch *b, size_t i, Hlod__Wire__WireTensor *t, int *fds, int *n_fds) {
    t->parts = arena_array(&b->arena, Hlod__Wire__Blob *, b->members.n);
    for (size_t k = 0; k < b->members.n; k++) {
        struct member *m = &b->members.v[k];
        const struct job_input *in = &m->inputs[i];
        Hlod__Wire__Blob *x = t->parts[t->n_parts++] =
            message_new(&b->arena, &hlod__wire__blob__descriptor);
        x->size = (uint64_t)in->size;
        int fd = m->fd >= 0 ? m->fd : b->inline_fd;
        if (fd < 0) {
            x->inline_bytes =
                (ProtobufCBinaryData){(size_t)in->size, (uint8_t *)m->bytes.p + in->offset};
            continue;
        }
        int n = 0;
        while (n < *n_fds && fds[n] != fd)
            n++;
        if (n == FRAME_MAX_FDS - 1) return st_internal("a batch of too many sources");
        if (n == *n_fds) fds[(*n_fds)++] = fd;
        x->fd = (uint32_t)n + 1;
        x->offset = (uint64_t)(in->offset + (m->fd < 0 ? b->inline_at[k] : 0));
    }
    return ST_OK;
}

static void make_inputs(struct batch *b, const struct member *first, int64_t bucket) {
    const Hlod__V1__Signature *sig = first->j->model->rec->signature;
    b->inputs = arena_array(&b->arena, struct job_input, b->n_inputs);
    for (size_t i = 0; i < b->n_inputs; i++) {
        struct job_input *x = &b->inputs[i];
        *x = first->inputs[i];
        int64_t *dims = arena_dup(&b->arena, x->dims, (size_t)x->rank * sizeof *dims);
        int64_t each = x->size / dims[0]; // within a budget that the request passed
        dims[0] = bucket;
        x->dims = dims;
        x->name = arena_strdup(&b->arena, sig->inputs[i]->name);
        x->size = each * bucket;
        x->offset = 0;
        x->elements = x->elements / first->rows * bucket;
    }
}

static void copy_options(struct batch *b, const Hlod__V1__CompileOptions *o) {
    if (!o) return;
    size_t n = protobuf_c_message_get_packed_size(&o->base);
    uint8_t *bytes = arena_alloc(&b->arena, n + 1);
    protobuf_c_message_pack(&o->base, bytes);
    b->options = hlod__v1__compile_options__unpack(NULL, n, bytes);
}

static void start_leader(struct batch *b, const struct slot *slot) {
    struct member *first = &b->members.v[0];
    const struct job_spec *p = first->j->spec;
    copy_options(b, p->options);
    begin_trace(b);
    struct job_spec spec = {.kind = JOB_RUN,
                            .model = first->j->model->source,
                            .has_weights = p->has_weights,
                            .weights = p->weights,
                            .inputs = b->inputs,
                            .n_inputs = b->n_inputs,
                            .payload_fd = -1,
                            .options = b->options,
                            .device =
                                arena_strdup(&b->arena, job_wants_auto(first->j)
                                                            ? worker_hello(slot->w)->device_kind
                                                        : first->j->device ? first->j->device
                                                                           : ""),
                            .tenant = arena_strdup(&b->arena, b->ticket.tenant->name),
                            .priority = p->priority,
                            .profile = p->profile,
                            .trace = b->trace,
                            .run.leads = b,
                            .on_event = on_event,
                            .on_done = on_done,
                            .ctx = b};
    b->leader = job_start(b->s, &spec);
    job_deliver(b->leader, ROW_SLOT, &(struct delivery){.slot = slot});
}

static void placed(struct task *t) {
    struct batch *b = (struct batch *)((char *)t - offsetof(struct batch, ticket));
    struct slot slot = t->slot;
    int64_t now = clock_ns();
    close_to_others(b);
    size_t n = 0;
    for (size_t i = 0; i < b->members.n; i++)
        if (b->members.v[i].j) b->members.v[n++] = b->members.v[i];
    b->members.n = n; // at least one, or the ticket would be gone
    b->rows = 0;
    for (size_t i = 0; i < n; i++) {
        struct member *m = &b->members.v[i];
        m->row = b->rows;
        b->rows += m->rows;
        job_timing(m->j, "queue", now - m->joined_ns);
    }
    make_inputs(b, &b->members.v[0], batch_bucket(b->rows, b->how.max));
    status_t st = keep_sources(b);
    if (st) {
        slot_leave(b->s, &slot);
        fail_all(b, st);
        return;
    }
    start_leader(b, &slot);
}

static void failed(struct task *t, status_t st) {
    fail_all((struct batch *)((char *)t - offsetof(struct batch, ticket)), st);
}

// ---- joining

// What the last batch of this model needed stands for this one: its bucket is not known yet.
static void queue_ticket(struct batch *b) {
    struct job *first = NULL;
    for (size_t i = 0; i < b->members.n && !first; i++)
        first = b->members.v[i].j;
    const struct model *m = first->model;
    // "auto" is where a batch of this size goes fastest; it stays there if more join.
    const char *device = job_wants_auto(first)
                             ? job_auto_device(first, batch_bucket(b->rows, b->how.max))
                             : device_of(first);
    b->ticket = (struct task){
        .want = {ROLE_DEVICE, arena_strdup(&b->arena, device), sched_alone(b->s, m->batch_ns), 0},
        .tenant = first->tenant,
        .has_key = m->batch_ns > 0,
        .plan = m->batch_plan,
        .weights = first->weights->weights,
        .cost_ns = m->batch_ns,
        .placed = placed,
        .failed = failed,
        .item = {.priority = first->spec->priority}};
    task_queue(b->s, &b->ticket);
}

static void on_timer(void *arg) {
    struct batch *b = arg;
    if (!task_waits(&b->ticket)) queue_ticket(b);
}

static bool has_room(const struct batch *b, const struct job *j) {
    return b->rows + j->inputs[0].dims[0] <= b->how.max &&
           (j->spec->payload_fd < 0 || b->sources < MAX_SOURCES);
}

// One that is full stays where it is, in the queue.
static struct batch *open_one(struct job *j, struct strbuf *key) {
    struct str name = {key->p, key->n};
    struct batch *b = smap_get(&j->s->batches, name);
    if (b && has_room(b, j)) {
        strbuf_done(key);
        return b;
    }
    if (b) {
        smap_del(&b->s->batches, name);
        b->open = false;
        if (!task_waits(&b->ticket)) loop_timer_start(b->timer, 0);
    }
    b = calloc(1, sizeof *b);
    if (!b) abort();
    *b = (struct batch){.s = j->s,
                        .refs = 1,
                        .open = true,
                        .key = *key,
                        .how = j->spec->run.batching,
                        .n_inputs = j->spec->n_inputs,
                        .inline_fd = -1};
    smap_put(&j->s->batches, name, b);
    b->timer = loop_timer_new(j->s->loop, on_timer, b);
    loop_timer_start_ns(b->timer, b->how.delay_us * INT64_C(1000));
    return b;
}

status_t batch_start(struct job *j, bool *later) {
    if (!wants(j)) {
        job_deliver(j, ROW_JOINED, &(struct delivery){0});
        return ST_OK;
    }
    const struct job_input *in = ordered(j);
    struct strbuf key = {0};
    put_key(j, in, &key);
    struct batch *b = open_one(j, &key);
    struct member m = {
        .j = j, .rows = in[0].dims[0], .joined_ns = clock_ns(), .inputs = in, .fd = -1};
    vec_push(&b->members, m);
    b->rows += m.rows;
    b->sources += j->spec->payload_fd >= 0;
    j->run->batch = batch_ref(b);
    *later = true;
    job_event_queued(j);
    if (b->rows == b->how.max && !task_waits(&b->ticket)) queue_ticket(b);
    return ST_OK;
}
