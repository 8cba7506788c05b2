// SPDX-License-Identifier: Apache-2.0
#include "server/call.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/metrics.h"
#include "base/str.h"
#include "base/vec.h"
#include "proto/message.h"
#include "proto/weigh.h"
#include "scheduler/cluster/cluster.h"
#include "scheduler/error.h"
#include "scheduler/loop.h"
#include "scheduler/queue/tenant.h"
#include "scheduler/workers/memfds.h"
#include "server/api/api.h"
#include "server/otlp/otlp.h"

void call_init(struct call *c, struct api *api) {
    *c = (struct call){.api = api,
                       .payload_fd = -1,
                       .content_type = "",
                       .range = "",
                       .file = {.fd = -1},
                       .start_ns = clock_ns()};
}

void call_trace(struct call *c, const char *parent, const char *state) {
    const struct otlp *o = c->api->otlp;
    struct trace t;
    bool came = trace_parse(parent, &t);
    if (!came && !o) return;
    if (!came) trace_begin(&t);
    bool sampled = o && otlp_samples(o, &t);
    if (!came && !sampled) return; // nobody will hear of it

    struct call_trace *x = arena_new_of(&c->arena, struct call_trace);
    if (o) t.flags = (uint8_t)((t.flags & ~TRACE_SAMPLED) | (sampled ? TRACE_SAMPLED : 0));
    x->t = t;
    if (came) {
        memcpy(x->given, parent, sizeof x->given - 1);
        trace_write(&t, x->reply);
        if (state && trace_state_fits(state)) x->t.state = arena_strdup(&c->arena, state);
    }
    c->trace = x;
}

status_t call_check_priority(int64_t priority) {
    if (priority >= -CALL_MAX_PRIORITY && priority <= CALL_MAX_PRIORITY) return ST_OK;
    return st_because(ST_INVALID_ARGUMENT, BAD_OPTION, "priority: expected %d to %d, found %lld",
                      -CALL_MAX_PRIORITY, CALL_MAX_PRIORITY, (long long)priority);
}
MUST_CHECK static status_t bad_header(const char *name, const char *value) {
    return st_because(ST_INVALID_ARGUMENT, BAD_OPTION, "%s cannot be '%.80s'", name, value);
}
status_t call_headers(struct call *c, const char *(*get)(void *ctx, const char *name), void *ctx) {
    const char *v;
    int64_t n;
    if ((v = get(ctx, "hlod-priority"))) {
        if (!str_to_i64(str_of(v), &n)) return bad_header("Hlod-Priority", v);
        RETURN_IF_ERR(call_check_priority(n));
        c->priority = (int32_t)n;
    }
    if ((v = get(ctx, "hlod-timeout-ms"))) {
        if (!str_to_i64(str_of(v), &n) || n <= 0 || n > UINT32_MAX)
            return bad_header("Hlod-Timeout-Ms", v);
        if (!c->timeout_ms || n < c->timeout_ms) c->timeout_ms = n;
    }
    c->forwarded = get(ctx, "hlod-forwarded") != NULL;
    if (c->api->trust_tenant_header && c->principal.anonymous && (v = get(ctx, "hlod-tenant"))) {
        if (!tenant_name_fits(v)) return bad_header("Hlod-Tenant", v);
        c->principal.tenant = arena_strdup(&c->arena, v);
    }
    return ST_OK;
}

void call_event(struct call *c, const Hlod__V1__Event *e) {
    if (c->finished || !c->row->stream) return;
    c->told = true;
    c->sink->event(c, e);
}

// Its span; `why` where it has no status.
static void tell(const struct call *c, int64_t now, status_t st, enum status_code why) {
    if (!c->trace || !c->api->otlp || !trace_sampled(&c->trace->t)) return;
    if (c->row && c->row->state == STATE_PROBE && !c->trace->t.remote) return;
    bool answered = c->verb && !why;
    int good = c->file.part ? 206 : 200;

    struct trace_work w = {
        .trace = &c->trace->t,
        .verb = c->verb,
        .route = c->route,
        .start_ns = c->start_ns,
        .end_ns = now,
        .code = (int)(why ? why : st_code(st)),
        .reason = st_get_reason(st),
        .http = !answered        ? 0
                : st && !c->told ? (int)error_http_code(st)
                                 : good,
        .message = st ? st_message(st) : NULL,
        .record = c->record,
        .work_ns = c->work_ns,
        .run = c->batch,
        .rows = c->batch_rows,
        .upload_ms = c->upload_ms,
        .model = c->model,
        .tenant = c->principal.tenant,
    };
    if (c->row) {
        w.service = str_of(c->row->service);
        w.method = str_of(c->row->method);
    }
    otlp_tell(c->api->otlp, &w);
}

// Without a secret nodes do not call each other (relay.h), and handles say no node.
MUST_CHECK static status_t note_node(const struct call *c, status_t st) {
    int reason = st_get_reason(st);
    bool alone = reason == HLOD__V1__REASON__REASON_BUFFER_NOT_FOUND ||
                 reason == HLOD__V1__REASON__REASON_UPLOAD_NOT_FOUND;
    if (!alone || !c->api->cluster || cluster_asks(c->api->cluster)) return st;
    return st_note(
        st,
        "on node %s (without cluster_secret buffers and uploads are known to the node that "
        "gave their handle alone)",
        cluster_node(c->api->cluster));
}
void call_finish(struct call *c, const ProtobufCMessage *reply, status_t st) {
    if (c->finished) {
        st_drop(st);
        return;
    }
    c->finished = true;
    st = note_node(c, st);
    metric_add(M_REQUESTS, 1);
    if (st) metric_add(M_REQUEST_ERRORS, 1);
    if (c->on_finished) c->on_finished(c, !st);
    int64_t now = clock_ns();
    metric_observe_ns(M_REQUEST_TIME, now - c->start_ns);
    tell(c, now, st, ST_CODE_OK);
    c->sink->finish(c, reply, st);
}
void call_refused(struct call *c, status_t st) {
    c->finished = true;
    metric_add(M_REQUESTS, 1);
    metric_add(M_REQUEST_ERRORS, 1);
    tell(c, clock_ns(), st, ST_CODE_OK);
}

status_t call_reply(struct call *c, const ProtobufCMessage *reply) {
    call_finish(c, reply, ST_OK);
    return ST_OK;
}
void call_fail(struct call *c, status_t st) {
    if (st) call_finish(c, NULL, st);
}

static void free_message(void *m) {
    protobuf_c_message_free_unpacked(m, NULL);
}
// The message, and those that are single fields of it, once more, in the arena: the path, the query
// and handlers set fields, and what was unpacked is freed with what it was unpacked with.
static ProtobufCMessage *settable(struct arena *a, const ProtobufCMessage *of) {
    const ProtobufCMessageDescriptor *d = of->descriptor;
    ProtobufCMessage *m = arena_dup(a, of, d->sizeof_message);
    for (unsigned k = 0; k < d->n_fields; k++) {
        const ProtobufCFieldDescriptor *f = &d->fields[k];
        uint8_t *at = (uint8_t *)m + f->offset;
        uint32_t which;
        if (f->type != PROTOBUF_C_TYPE_MESSAGE || f->label == PROTOBUF_C_LABEL_REPEATED) continue;
        memcpy(&which, (uint8_t *)m + f->quantifier_offset, sizeof which);
        if ((f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) && which != f->id) continue;
        ProtobufCMessage *inner;
        memcpy(&inner, at, sizeof inner);
        if (inner) inner = settable(a, inner);
        memcpy(at, &inner, sizeof inner);
    }
    return m;
}
status_t call_unpack(struct call *c, struct span bytes) {
    ProtobufCMessage *m;
    status_t st = weigh_unpack(c->row->input, bytes, &m);
    if (st) return st_get_reason(st) ? st : st_reason(st, HLOD__V1__REASON__REASON_BAD_JSON);
    arena_link(&c->arena, free_message, m);
    c->unpacked_bytes += weigh_message(c->row->input, bytes);
    c->request = settable(&c->arena, m);
    return ST_OK;
}

int64_t call_bytes(const struct call *c) {
    return c->unpacked_bytes + (int64_t)c->arena.used_bytes;
}

void call_done_event(struct call *c, status_t st, Hlod__V1__Event *out) {
    Hlod__V1__DoneEvent *done = message_new(&c->arena, &hlod__v1__done_event__descriptor);
    done->code = (char *)(st ? st_code_name(st_code(st)) : "OK");
    done->timings = c->timings;
    done->n_timings = c->n_timings;
    hlod__v1__event__init(out);
    out->t_ms = clock_ms_since(c->start_ns);
    out->kind_case = HLOD__V1__EVENT__KIND_DONE;
    out->done = done;
}

void call_server_timing(const struct call *c, struct strbuf *b) {
    for (size_t i = 0; i < c->n_timings; i++) {
        if (i) strbuf_puts(b, ", ");
        strbuf_puts(b, c->timings[i]->name);
        strbuf_puts(b, ";dur=");
        strbuf_ms(b, c->timings[i]->ms);
    }
}

static const ProtobufCFieldDescriptor *outputs_field(const ProtobufCMessageDescriptor *d) {
    const ProtobufCFieldDescriptor *f =
        protobuf_c_message_descriptor_get_field_by_name(d, "outputs");
    return f && f->descriptor == &hlod__v1__tensor__descriptor ? f : NULL;
}
bool call_has_outputs(const ProtobufCMessageDescriptor *d) {
    return outputs_field(d) != NULL;
}
void call_outputs_into(struct call *c, ProtobufCMessage *reply) {
    const ProtobufCFieldDescriptor *f = outputs_field(reply->descriptor);
    Hlod__V1__Tensor **v = arena_array(&c->arena, Hlod__V1__Tensor *, c->n_outputs + 1);
    for (size_t i = 0; i < c->n_outputs; i++) {
        const struct call_output *o = &c->outputs[i];
        Hlod__V1__Tensor *t = v[i] = message_new(&c->arena, &hlod__v1__tensor__descriptor);
        t->name = (char *)o->name;
        t->dtype = (char *)o->dtype->name;
        t->shape = (int64_t *)o->dims;
        t->n_shape = (size_t)o->rank;
        if (o->handle)
            t->handle = (char *)(uintptr_t)o->handle;
        else
            t->raw = (ProtobufCBinaryData){o->data.n, (uint8_t *)o->data.p};
    }
    memcpy((char *)reply + f->offset, &v, sizeof v);
    memcpy((char *)reply + f->quantifier_offset, &c->n_outputs, sizeof c->n_outputs);
}

MUST_CHECK static status_t out_of_range(int64_t bytes) {
    return st_because(ST_OUT_OF_RANGE, BAD_RANGE,
                      "the range begins behind the %lld bytes there are", (long long)bytes);
}
// "bytes=A-B", "bytes=A-", "bytes=-N". What is no such range, or several, is passed over, as HTTP
// has it.
status_t call_range(const char *text, struct call_file *f) {
    struct str rest = str_of(text), first;
    int64_t a, b;
    if (!str_starts(rest, "bytes=") || strchr(text, ',')) return ST_OK;
    rest = (struct str){rest.p + 6, rest.n - 6};
    const char *dash = memchr(rest.p, '-', rest.n);
    if (!dash) return ST_OK;
    first = (struct str){rest.p, (size_t)(dash - rest.p)};
    rest = (struct str){dash + 1, rest.n - first.n - 1};
    bool has_a = str_to_i64(first, &a) && a >= 0, has_b = str_to_i64(rest, &b) && b >= 0;
    if ((first.n && !has_a) || (rest.n && !has_b) || (!has_a && !has_b)) return ST_OK;
    if (!has_a) { // the last b
        a = b < f->total ? f->total - b : 0;
        b = f->total - 1;
        if (a == f->total) return out_of_range(f->total);
    } else if (!has_b || b >= f->total)
        b = f->total - 1;
    if (a >= f->total) return out_of_range(f->total);
    if (b < a) return ST_OK;
    f->part = true;
    f->offset = a;
    f->bytes = b - a + 1;
    return ST_OK;
}

void call_cancel(struct call *c) {
    if (c->finished) return;
    c->finished = true;
    metric_add(M_REQUESTS, 1);
    metric_add(M_REQUEST_ERRORS, 1);
    tell(c, clock_ns(), ST_OK, ST_CANCELLED);
    if (c->on_cancel) c->on_cancel(c);
}

void call_done(struct call *c) {
    c->done = true;
    if (c->busy || c->lent) return;
    if (c->on_free) c->on_free(c);
    if (c->file.fd >= 0) close(c->file.fd);
    if (c->payload)
        memfd_unref(c->payload);
    else if (c->payload_fd >= 0)
        close(c->payload_fd);
    arena_done(&c->arena);
    free(c);
}

void call_lend(struct call *c) {
    c->lent++;
}
void call_unlend(void *arg) {
    struct call *c = arg;
    c->lent--;
    if (c->done) call_done(c);
}

bool call_goes_on(struct call *c, status_t st) {
    c->busy = false;
    if (!c->finished) {
        if (st) call_finish(c, NULL, st);
        return !st;
    }
    st_drop(st);
    if (c->done) call_done(c);
    return false;
}

struct work { // in the call's arena, which goes with the call
    struct call *c;
    status_t (*work)(void *arg), (*then)(void *arg);
    void *arg;
    status_t st;
};
static void on_pool(void *arg) {
    struct work *w = arg;
    w->st = w->work(w->arg);
}
static void on_loop(void *arg) {
    struct work *w = arg;
    struct call *c = w->c;
    if (call_goes_on(c, w->st)) call_fail(c, w->then(w->arg));
}
status_t call_work(struct call *c, status_t (*work)(void *arg), status_t (*then)(void *arg),
                   void *arg) {
    struct work *w = arena_new_of(&c->arena, struct work);
    *w = (struct work){.c = c, .work = work, .then = then, .arg = arg};
    c->busy = true;
    loop_work(sched_loop(c->api->sched), on_pool, on_loop, w);
    return ST_OK;
}
