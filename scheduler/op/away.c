// SPDX-License-Identifier: Apache-2.0
// The request is packed on the pool where its tensors lie in a memfd (they may be large), and here
// where they lie in the call's memory, which would not outlive it.
#include "scheduler/op/away.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "proto/message.h"
#include "proto/tokens.h"
#include "proto/weigh.h"
#include "scheduler/cluster/forward.h"
#include "scheduler/job/batch.h"
#include "scheduler/job/job_run.h"
#include "scheduler/loop.h"
#include "scheduler/records/models.h"

struct packing { // the pool's while it is there; from malloc, as the job may end meanwhile
    struct arena arena;
    struct away *away; // NULL: nobody waits for it
    Hlod__V1__RunRequest q;
    int fd;
    const int64_t *offsets; // of the inputs in it
    struct span out;        // from malloc; none: it cannot be read
};
struct away { // in the job's arena
    struct job *j;
    status_t why; // it has no place here
    int64_t since_ns;
    struct packing *packing;
    struct forward_call *call;
    Hlod__V1__Profile *profile; // told before the result
};

// ---- the request

static void pack(struct packing *p) {
    size_t n = protobuf_c_message_get_packed_size(&p->q.base);
    uint8_t *bytes = malloc(n + 1);
    if (!bytes) return;
    p->out = (struct span){bytes, protobuf_c_message_pack(&p->q.base, bytes)};
}
static void pack_work(void *arg) {
    struct packing *p = arg;
    struct stat s;
    void *base = NULL;
    size_t bytes = 0;
    uint8_t *at;
    if (fstat(p->fd, &s)) return;
    status_t st = frame_map(p->fd, 0, s.st_size, false, &at, &base, &bytes);
    for (size_t k = 0; !st && k < p->q.n_inputs; k++) {
        Hlod__V1__Tensor *t = p->q.inputs[k];
        if (p->offsets[k] > s.st_size || (int64_t)t->raw.len > s.st_size - p->offsets[k])
            st = st_internal("an input outside its memory");
        t->raw.data = at + p->offsets[k];
    }
    if (!st) pack(p);
    if (bytes) frame_unmap(base, bytes);
    st_drop(st);
}
static void free_packing(struct packing *p) {
    if (p->fd >= 0) close(p->fd);
    free((void *)(uintptr_t)p->out.p);
    arena_done(&p->arena);
    free(p);
}
static Hlod__V1__Tensor *tensor(struct packing *p, const struct job_spec *spec,
                                const struct job_input *in) {
    Hlod__V1__Tensor *t = message_new(&p->arena, &hlod__v1__tensor__descriptor);
    t->name = arena_strdup(&p->arena, in->name);
    t->dtype = (char *)(uintptr_t)in->dtype->name;
    t->n_shape = (size_t)in->rank;
    t->shape = arena_array(&p->arena, int64_t, t->n_shape + 1);
    for (size_t d = 0; d < t->n_shape; d++)
        t->shape[d] = in->dims[d];
    t->raw.len = (size_t)in->size;
    if (p->fd < 0) t->raw.data = (uint8_t *)(uintptr_t)spec->payload_bytes.p + in->offset;
    return t;
}
static char *hex(struct arena *a, struct digest d) {
    return arena_strdup(a, digest_to_hex(d).z);
}
static void set_options(struct packing *p, const struct job *j) {
    const struct job_spec *spec = j->spec;
    Hlod__V1__RunOptions *o = message_new(&p->arena, &hlod__v1__run_options__descriptor);
    o->profile = spec->profile;
    o->no_compile = spec->no_compile;
    o->device = arena_strdup(&p->arena, spec->device ? spec->device : "");
    o->repeat = spec->repeat;
    o->priority = spec->priority;
    p->q.options = o;
    if (!spec->options) return;
    struct span bytes = message_pack(&p->arena, &spec->options->base); // a copy that lasts
    o->compile = weigh_unpack_in(&p->arena, &hlod__v1__compile_options__descriptor, bytes);
}
static struct packing *packing_new(const struct job *j) {
    const struct job_spec *spec = j->spec;
    struct packing *p = arena_must_calloc(1, sizeof *p);
    struct arena *a = &p->arena;
    hlod__v1__run_request__init(&p->q);
    p->fd = spec->payload_fd < 0 ? -1 : fcntl(spec->payload_fd, F_DUPFD_CLOEXEC, 0);
    p->q.model = spec->run.name && *spec->run.name
                     ? arena_printf(a, "%s:%lld", spec->run.name, (long long)spec->run.version)
                     : hex(a, spec->model);
    if (spec->has_weights) p->q.weights = hex(a, spec->weights);
    set_options(p, j);

    int64_t *offsets = arena_array(a, int64_t, spec->n_inputs + 1);
    p->offsets = offsets;
    p->q.inputs = arena_array(a, Hlod__V1__Tensor *, spec->n_inputs + 1);
    for (; p->q.n_inputs < spec->n_inputs; p->q.n_inputs++) {
        offsets[p->q.n_inputs] = spec->inputs[p->q.n_inputs].offset;
        p->q.inputs[p->q.n_inputs] = tensor(p, spec, &spec->inputs[p->q.n_inputs]);
    }
    p->q.outputs = arena_array(a, char *, spec->run.n_outputs + 1);
    for (; p->q.n_outputs < spec->run.n_outputs; p->q.n_outputs++)
        p->q.outputs[p->q.n_outputs] = arena_strdup(a, spec->run.outputs[p->q.n_outputs]);
    return p;
}

// ---- what comes back

static void free_event(void *e) {
    hlod__v1__event__free_unpacked(e, NULL);
}
static Hlod__Wire__RunReply *wire_of(struct arena *a, const Hlod__V1__RunReply *m) {
    Hlod__Wire__RunReply *r = message_new(a, &hlod__wire__run_reply__descriptor);
    r->outputs = arena_array(a, Hlod__Wire__WireTensor *, m->n_outputs + 1);
    for (; r->n_outputs < m->n_outputs; r->n_outputs++) {
        const Hlod__V1__Tensor *t = m->outputs[r->n_outputs];
        Hlod__Wire__WireTensor *w = message_new(a, &hlod__wire__wire_tensor__descriptor);
        w->dtype = t->dtype;
        w->dims = t->shape;
        w->n_dims = t->n_shape;
        w->data = message_new(a, &hlod__wire__blob__descriptor);
        w->data->inline_bytes = t->raw;
        w->data->size = t->raw.len;
        r->outputs[r->n_outputs] = w;
    }
    r->run_ms = m->run_ms;
    r->n_run_ms = m->n_run_ms;
    r->profile = m->profile;
    r->peak_bytes = m->peak_bytes;
    r->prepared_bytes = m->prepared_bytes;
    return r;
}
static Hlod__V1__ExecutableInfo *exe_of(struct arena *a, char *digest) {
    Hlod__V1__ExecutableInfo *x = message_new(a, &hlod__v1__executable_info__descriptor);
    x->digest = digest;
    return x;
}
static void set_steps(struct arena *a, const Hlod__V1__RunReply *m, struct job_result *r) {
    struct job_step_result *v = arena_zarray(a, struct job_step_result, m->n_steps + 1);
    for (size_t k = 0; k < m->n_steps; k++) {
        const Hlod__V1__StepReport *s = m->steps[k];
        Hlod__Wire__StepReply *reply = message_new(a, &hlod__wire__step_reply__descriptor);
        reply->run_ms = s->run_ms;
        reply->n_run_ms = s->n_run_ms;
        reply->profile = s->profile;
        reply->peak_bytes = s->peak_bytes;
        reply->prepared_bytes = s->prepared_bytes;
        v[k] = (struct job_step_result){s->name, exe_of(a, s->executable), s->cache_hit, reply};
    }
    r->steps = v;
    r->n_steps = m->n_steps;
}
static status_t take_result(struct away *x, Hlod__V1__RunReply *m, const char *node) {
    struct job *j = x->j;
    struct arena *a = &j->arena;
    struct job_result r = j->r;
    const char **names = arena_array(a, const char *, m->n_outputs + 1);
    for (size_t k = 0; k < m->n_outputs; k++) {
        if (!m->outputs[k]->dtype || *m->outputs[k]->handle)
            return st_internal("node %s sent an output without contents", node);
        names[k] = m->outputs[k]->name;
    }
    Hlod__V1__ExecutableInfo *exe = exe_of(a, m->executable);
    exe->computed_in = m->computed_in;
    exe->n_computed_in = m->n_computed_in;
    exe->precision_note = m->precision_note;
    if (m->n_computed_in || *m->precision_note) exe->options = (char *)"precision=";
    Hlod__Wire__RunReply *reply = wire_of(a, m);
    if (x->profile) reply->profile = x->profile;

    r.exe = exe;
    r.reply = reply;
    r.device = m->device;
    r.cache_hit = m->cache_hit;
    r.node = arena_strdup(a, node);
    r.run.batch_rows = m->batch_rows;
    r.run.rows = 0;
    r.run.batch = NULL;
    set_steps(a, m, &r);
    job_name_outputs(j, names, m->n_outputs, &r);
    job_answer(j, &r);
    return ST_OK;
}
static void on_event(void *ctx, Hlod__V1__Event *e) {
    struct away *x = ctx;
    if (e->kind_case != HLOD__V1__EVENT__KIND_PROFILE) {
        job_event(x->j, e);
        return;
    }
    struct span bytes = message_pack(&x->j->arena, &e->profile->base);
    x->profile = weigh_unpack_in(&x->j->arena, &hlod__v1__profile__descriptor, bytes);
}
static void on_done(void *ctx, status_t st, Hlod__V1__Event *result, const char *node) {
    struct away *x = ctx;
    struct job *j = x->j;
    x->call = NULL;
    job_timing(j, "forward", clock_ns() - x->since_ns);
    if (result) {
        arena_link(&j->arena, free_event, result);
        st = take_result(x, result->result, node);
    } else if (!st) {
        st = x->why;
        x->why = ST_OK;
    }
    job_finish(j, st);
}

// ---- its way

static void go(struct away *x, struct packing *p) {
    struct job *j = x->j;
    const char *tenant = j->spec->tenant ? j->spec->tenant : MODELS_DEFAULT;
    struct forward_spec s = {.device = j->spec->device ? j->spec->device : "",
                             .tenant = tenant,
                             .scopes = SCOPE_RUN | (j->spec->sees_all ? SCOPE_ADMIN : 0),
                             .trace = j->spec->trace,
                             .deadline_ns = j->deadline_ns,
                             .body = p->out,
                             .event = on_event,
                             .done = on_done,
                             .ctx = x};
    p->out = (struct span){0};
    if (s.body.p) x->call = forward_start(j->s->forward, &s);
    if (!x->call) on_done(x, ST_OK, NULL, "");
}
static void packed(void *arg) {
    struct packing *p = arg;
    struct away *x = p->away;
    if (x) {
        x->packing = NULL;
        go(x, p);
    }
    free_packing(p);
}
static bool has_no_place(status_t st) {
    int reason = st_get_reason(st);
    return reason == HLOD__V1__REASON__REASON_QUEUE_FULL ||
           reason == HLOD__V1__REASON__REASON_NO_WORKER;
}
struct away *away_start(struct job *j, status_t st) {
    const char *device = j->spec->device ? j->spec->device : "";
    if (!j->s->forward || j->s->stopping || !has_no_place(st)) return NULL;
    if (!forward_may(j->s->forward, device)) return NULL;
    struct away *x = arena_new_of(&j->arena, struct away);
    *x = (struct away){.j = j, .why = st_copy(st), .since_ns = clock_ns()};
    struct packing *p = x->packing = packing_new(j);
    p->away = x;
    if (p->fd >= 0)
        loop_work(j->s->loop, pack_work, packed, p);
    else { // `done` is not called from inside
        pack(p);
        loop_post(j->s->loop, packed, p);
    }
    return x;
}
void away_detach(struct job *j) {
    struct away *x = j->away;
    batch_leave(j);
    if (!x) return;
    if (x->packing) x->packing->away = NULL;
    x->packing = NULL;
    forward_cancel(x->call);
    x->call = NULL;
    st_drop(x->why);
    x->why = ST_OK;
}
