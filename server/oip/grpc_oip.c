// SPDX-License-Identifier: Apache-2.0
// ModelStreamInfer: a stream of ModelInfer requests, answered in their order, one under way at a
// time. An error is a message in the stream, which goes on; with `triton_grpc_error: true` in the
// metadata it ends the stream as its status.
#include <stdlib.h>
#include <string.h>

#include "server/grpc/grpc_api.h"
#include "server/oip/oip.h"

struct stream {
    struct arena arena;
    struct rpc_call *rc;
    struct api_request *now, *old; // under way; answered (its job may still be on the stack)
    struct principal principal;    // of every request in it
    bool half_closed, errors_end;
    bool no_more; // the daemon ends
};

static void forget(struct api_request *q) {
    if (!q) return;
    budget_drop(&q->hold);
    call_done(q->c); // q lies in its arena
}
// The request's answer is queued: the next one may come.
static void next(struct stream *s) {
    s->old = s->now;
    s->now = NULL;
    if (s->half_closed)
        rpc_finish(s->rc, ST_OK);
    else if (s->no_more)
        rpc_finish(s->rc, api_ends());
    else if (!rpc_over(s->rc))
        rpc_receive(s->rc);
}

static void on_event(UNUSED struct call *c, UNUSED const Hlod__V1__Event *e) {}
static void on_finish(struct call *c, const ProtobufCMessage *reply, status_t st) {
    struct stream *s = c->transport;
    Inference__ModelStreamInferResponse m = INFERENCE__MODEL_STREAM_INFER_RESPONSE__INIT;
    Inference__ModelInferResponse failed = INFERENCE__MODEL_INFER_RESPONSE__INIT;
    const Inference__ModelInferRequest *q = call_request(c);
    if (st && s->errors_end) {
        rpc_finish(s->rc, st);
        st = ST_OK;
    } else if (st) {
        m.error_message = (char *)st_message(st);
        if (q) { // so that the client knows which
            failed.id = q->id;
            failed.model_name = q->model_name;
        }
        m.infer_response = &failed;
        rpc_send(s->rc, &m.base);
    } else {
        m.infer_response = (Inference__ModelInferResponse *)reply;
        oip_outputs_into(c, m.infer_response);
        Inference__InferParameter *last = // one answer a request
            oip_add_parameter(&c->arena, m.infer_response, "triton_final_response");
        last->parameter_choice_case = INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_BOOL_PARAM;
        last->bool_param = true;
        api_request_send(s->rc, c, &m.base, false);
    }
    st_drop(st);
    next(s);
}
static const struct call_sink sink = {on_event, on_finish};

static void ready(struct api_request *q) {
    status_t st = q->st;
    q->st = ST_OK;
    if (q->c->finished) { // cancelled while the pool had it
        st_drop(st);
        return;
    }
    if (st)
        call_finish(q->c, NULL, st);
    else
        api_dispatch(q->c);
}

static void message(struct rpc_call *rc, const struct rpc_bytes *m) {
    struct stream *s = rpc_data(rc);
    forget(s->old);
    s->old = NULL;
    if (!m) {
        s->half_closed = true;
        if (!s->now) rpc_finish(rc, ST_OK);
        return;
    }
    struct call *c = malloc(sizeof *c);
    if (!c) abort();
    call_init(c, rpc_api(rpc_of(rc)));
    struct api_request *q = arena_new_of(&c->arena, struct api_request);
    *q = (struct api_request){.c = c, .rc = rc, .ready = ready};
    c->row = &api_rows[ROW_ModelInfer];
    c->principal = s->principal;
    c->sink = &sink;
    c->transport = s;
    call_trace(c, rpc_header(rc, &c->arena, "traceparent"),
               rpc_header(rc, &c->arena, "tracestate"));
    s->now = q;
    status_t st = api_request_headers(rc, c);
    if (st)
        call_finish(c, NULL, st);
    else
        api_request_take(q, m);
}

static void begin(struct rpc_call *rc) {
    struct stream *s = arena_must_calloc(1, sizeof *s);
    s->rc = rc;
    const char *wanted = rpc_header(rc, &s->arena, "triton_grpc_error");
    s->errors_end = wanted && !strcmp(wanted, "true");
    rpc_set_data(rc, s);
    status_t st = api_request_admit(rc, &api_rows[ROW_ModelInfer], &s->arena, &s->principal);
    if (!st && rpc_api(rpc_of(rc))->draining) st = api_ends();
    if (st)
        rpc_finish(rc, st);
    else
        rpc_receive(rc);
}
// Streams stay open for as long as their clients like: a daemon that ends does not wait for them.
static void quiesce(struct rpc_call *rc) {
    struct stream *s = rpc_data(rc);
    s->no_more = true;
    if (!s->now) rpc_finish(rc, api_ends());
}
static void cancelled(struct rpc_call *rc) {
    struct stream *s = rpc_data(rc);
    if (s->now) call_cancel(s->now->c);
}
static void ended(struct rpc_call *rc) {
    struct stream *s = rpc_data(rc);
    forget(s->old);
    forget(s->now);
    arena_done(&s->arena);
    free(s);
}

const struct rpc_service rpc_oip_stream = {
    .begin = begin, .message = message, .cancelled = cancelled, .ended = ended, .quiesce = quiesce};
