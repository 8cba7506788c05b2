// SPDX-License-Identifier: Apache-2.0
// Run and RunUnary: request -> job, job's result -> reply with its tensors beside it.
#include <string.h>

#include "base/clock.h"
#include "proto/frame.h"
#include "proto/message.h"
#include "scheduler/workers/memfds.h"
#include "server/api/api_job.h"

struct mapping {
    void *base;
    size_t bytes;
};
static void unmap(void *obj) {
    struct mapping *m = obj;
    frame_unmap(m->base, m->bytes);
}

static status_t output_data(struct call *c, const struct job_result *r, const Hlod__Wire__Blob *b,
                            struct call_output *o) {
    int64_t need = o->dtype->bytes;
    o->elements = 1;
    for (int32_t d = 0; d < o->rank; d++)
        if (!sz_mul(o->elements, o->dims[d], &o->elements))
            return st_internal("output '%s' has an absurd shape", o->name);
    if (!sz_mul(o->elements, need, &need))
        return st_internal("output '%s' has an absurd shape", o->name);
    if (o->dtype->cls == NUM_STRING && b) need = (int64_t)b->size; // as the worker says
    if (r->kind == JOB_GET && r->get.part) need = r->get.part_bytes;
    if (need == 0) return ST_OK;

    if (!b) return st_internal("output '%s' has no data", o->name);
    if (b->fd == 0) {
        if (b->inline_bytes.len != (size_t)need)
            return st_internal("output '%s': %zu bytes, expected %lld", o->name,
                               b->inline_bytes.len, (long long)need);
        o->data = (struct span){b->inline_bytes.data, b->inline_bytes.len};
        return ST_OK;
    }
    if (b->fd > (uint32_t)r->n_fds || b->size != (uint64_t)need || b->offset > INT64_MAX)
        return st_internal("output '%s': a blob of %llu bytes, expected %lld", o->name,
                           (unsigned long long)b->size, (long long)need);

    uint8_t *p;
    if (r->memory && b->fd == 1) {
        if (b->offset > (uint64_t)memfd_bytes(r->memory) ||
            need > memfd_bytes(r->memory) - (int64_t)b->offset)
            return st_internal("output '%s' lies outside its memory", o->name);
        RETURN_IF_ERR(memfd_memory(r->memory, &p));
        o->data = (struct span){p + b->offset, (size_t)need};
        return ST_OK;
    }
    struct mapping *m = arena_new_of(&c->arena, struct mapping);
    RETURN_IF_ERR(
        frame_map(r->fds[b->fd - 1], (int64_t)b->offset, need, false, &p, &m->base, &m->bytes));
    arena_link(&c->arena, unmap, m);
    o->data = (struct span){p, (size_t)need};
    return ST_OK;
}

status_t api_take_outputs(struct call *c, const struct job_result *r) {
    c->n_outputs = r->reply->n_outputs;
    c->outputs = arena_zarray(&c->arena, struct call_output, r->reply->n_outputs + 1);
    for (size_t i = 0; i < r->reply->n_outputs; i++) {
        const Hlod__Wire__WireTensor *t = r->reply->outputs[i];
        struct call_output *o = &c->outputs[i];
        o->name = r->names->outputs[r->outputs[i]]->name;
        o->dtype = numbers_dtype(str_of(t->dtype));
        o->rank = (int32_t)t->n_dims;
        o->dims = t->dims;
        if (!o->dtype) return st_internal("output '%s' has unknown type '%s'", o->name, t->dtype);
        o->handle = r->kind == JOB_PLAN && r->plan.handles ? r->plan.handles[i] : NULL;
        if (!o->handle) RETURN_IF_ERR(output_data(c, r, t->data, o));
    }
    return ST_OK;
}

static Hlod__V1__StepReport *step_report(struct arena *a, const struct job_step_result *s) {
    Hlod__V1__StepReport *m = message_new(a, &hlod__v1__step_report__descriptor);
    m->name = (char *)(uintptr_t)s->name;
    m->executable = s->exe->digest;
    m->cache_hit = s->cache_hit;
    m->run_ms = s->reply->run_ms;
    m->n_run_ms = s->reply->n_run_ms;
    m->profile = s->reply->profile;
    m->peak_bytes = s->reply->peak_bytes;
    m->prepared_bytes = s->reply->prepared_bytes;
    return m;
}

static void put_precision(const struct job_result *r, Hlod__V1__RunReply *m) {
    const Hlod__V1__ExecutableInfo *x = r->exe;
    if (!x || !strstr(x->options, "precision=")) return;
    m->computed_in = x->computed_in;
    m->n_computed_in = x->n_computed_in;
    m->precision_note = x->precision_note;
}

status_t api_ran(struct call *c, const struct job_result *r, const ProtobufCMessage **out) {
    const Hlod__V1__RunRequest *q = call_request(c);
    RETURN_IF_ERR(api_take_outputs(c, r));
    Hlod__V1__RunReply *m = message_new(&c->arena, &hlod__v1__run_reply__descriptor);
    if (q->base.descriptor == &hlod__v1__run_request__descriptor) { // a plan names its own
        m->model = q->model;
        m->executable = r->exe->digest;
        put_precision(r, m);
    }
    m->steps = arena_array(&c->arena, Hlod__V1__StepReport *, r->n_steps + 1);
    for (; m->n_steps < r->n_steps; m->n_steps++)
        m->steps[m->n_steps] = step_report(&c->arena, &r->steps[m->n_steps]);
    if (r->kind == JOB_PLAN && r->plan.tuple) m->tuple = (char *)(uintptr_t)r->plan.tuple;

    m->timings = c->timings;
    m->n_timings = c->n_timings;
    m->run_ms = r->reply->run_ms;
    m->n_run_ms = r->reply->n_run_ms;
    m->peak_bytes = r->reply->peak_bytes;
    m->prepared_bytes = r->reply->prepared_bytes;
    m->device = (char *)r->device;
    m->cache_hit = r->cache_hit;
    if (r->remote) m->remote = (char *)(uintptr_t)r->remote;
    if (r->node) m->node = (char *)(uintptr_t)r->node;
    m->job = r->id;
    if (r->kind == JOB_RUN) m->batch_rows = r->run.batch_rows;
    if (!c->row->stream)
        m->profile = r->reply->profile;
    else if (r->reply->profile) { // a line of its own before the result
        Hlod__V1__Event e = HLOD__V1__EVENT__INIT;
        e.kind_case = HLOD__V1__EVENT__KIND_PROFILE;
        e.profile = r->reply->profile;
        e.t_ms = clock_ms_since(c->start_ns);
        call_event(c, &e);
    }

    *out = &m->base;
    return ST_OK;
}

status_t api_run(struct call *c) {
    Hlod__V1__RunRequest *q = call_request(c);
    struct job_spec spec = api_job_spec(c, JOB_RUN);
    spec.has_weights = *q->weights != 0;
    spec.run.outputs = q->outputs;
    spec.run.n_outputs = q->n_outputs;
    RETURN_IF_ERR(api_model(c, q->model, &spec.model));
    api_name(c, q->model, &spec);
    if (spec.has_weights) RETURN_IF_ERR(api_model(c, q->weights, &spec.weights));
    RETURN_IF_ERR(api_run_options(q->options, &spec));
    return api_wants_residents(c) ? api_run_resident(c, &spec) : api_start_job(c, &spec, api_ran);
}
