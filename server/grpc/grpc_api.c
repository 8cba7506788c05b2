// SPDX-License-Identifier: Apache-2.0
// hlod.v1 and the inference service over gRPC: a path is a row of api.def or oip.def, a message its
// request; the same call object, handlers and sink as on HTTP. A stream ends with `done` and the
// status; an error is the status alone. Tensors go from the received pieces to the payload, not
// through the unpacker.
#include <stdlib.h>
#include <string.h>

#include "scheduler/loop.h"
#include "server/body/pieces.h"
#include "server/body/tensors.h"
#include "server/grpc/cut.h"
#include "server/grpc/grpc_api.h"
#include "server/oip/oip.h"

enum { SMALL = 64 << 10 }; // below: unpacked where it is; above: on the pool

// ---- the sink

// Above this the outputs are sent from where they lie; below, a copy is cheaper.
enum { LENT_BYTES = 64 << 10 };
void api_request_send(struct rpc_call *rc, struct call *c, const ProtobufCMessage *m, bool last) {
    size_t bytes = 0;
    for (size_t i = 0; i < c->n_outputs; i++)
        bytes += c->outputs[i].data.n;
    if (bytes >= LENT_BYTES) {
        struct pieces p;
        pieces_of(c, m, &p);
        call_lend(c);
        rpc_send_lent(rc, p.v, p.n, call_unlend, c);
        if (last) rpc_finish(rc, ST_OK);
    } else if (last)
        rpc_reply(rc, m);
    else
        rpc_send(rc, m);
}
static void on_event(struct call *c, const Hlod__V1__Event *e) {
    struct api_request *ac = c->transport;
    bool result = e->kind_case == HLOD__V1__EVENT__KIND_RESULT;
    if (result) {
        call_outputs_into(c, &e->result->base);
        api_request_send(ac->rc, c, &e->base, false);
    } else
        rpc_send(ac->rc, &e->base);
}
static void on_finish(struct call *c, const ProtobufCMessage *reply, status_t st) {
    struct api_request *ac = c->transport;
    struct strbuf timing = {0};
    call_server_timing(c, &timing);
    if (timing.n) rpc_tail(ac->rc, "server-timing", arena_strdup(&c->arena, timing.p));
    strbuf_done(&timing);
    if (st_code(st) == ST_NOT_FOUND &&
        c->row->output == &inference__model_ready_response__descriptor) { // as Triton has it
        Inference__ModelReadyResponse m = INFERENCE__MODEL_READY_RESPONSE__INIT;
        st_drop(st);
        rpc_reply(ac->rc, &m.base);
        return;
    }
    if (st) {
        rpc_finish(ac->rc, st);
        return;
    }
    if (c->row->stream) {
        Hlod__V1__Event e;
        call_done_event(c, ST_OK, &e);
        rpc_reply(ac->rc, &e.base);
        return;
    }
    if (call_has_outputs(reply->descriptor))
        call_outputs_into(c, (ProtobufCMessage *)(uintptr_t)reply);
    if (reply->descriptor == &inference__model_infer_response__descriptor)
        oip_outputs_into(c, (Inference__ModelInferResponse *)reply);
    api_request_send(ac->rc, c, reply, true);
}
static const struct call_sink sink = {on_event, on_finish};

// ---- requests

struct placing {
    struct call *c;
    int64_t offset;
};
static status_t place(void *ctx, size_t at, struct span part) {
    struct placing *p = ctx;
    return tensors_put(p->c, p->offset + (int64_t)at, part.p, part.n);
}

MUST_CHECK static status_t not_a(const struct call *c) {
    return st_because(ST_INVALID_ARGUMENT, BAD_JSON, "the message is not a %s",
                      c->row->input->name);
}
// The cut bytes to the inputs they belong to, after the layout.
static status_t place_all(struct api_request *q, const struct cuts *cuts) {
    for (size_t i = 0; i < cuts->n; i++) {
        const struct cut *k = &cuts->v[i];
        const struct job_input *in = &q->c->inputs[k->parent];
        struct placing p = {q->c, in->offset};
        if ((int64_t)k->n == in->size) // a field repeated on the wire: the last counts
            RETURN_IF_ERR(cut_each(q->m.pieces, q->m.n, k, place, &p));
    }
    return ST_OK;
}

static status_t parse_run(struct api_request *q, const struct tensors_limits *l) {
    struct call *c = q->c;
    struct cuts cuts;
    enum { INPUTS = 3, RAW = 4 }; // RunRequest.inputs and its like, Tensor.raw
    if (!cut_fields(&c->arena, q->m.pieces, q->m.n, INPUTS, RAW, &cuts)) return not_a(c);
    RETURN_IF_ERR(call_unpack(c, cuts.rest));
    size_t n;
    Hlod__V1__Tensor **v = tensors_of(c->request, &n);
    for (size_t i = 0; i < cuts.n; i++) // sizes for the layout
        v[cuts.v[i].parent]->raw.len = cuts.v[i].n;
    status_t st = tensors_layout(c, l, TENSORS_RAW, NULL);
    for (size_t i = 0; i < cuts.n; i++)
        v[cuts.v[i].parent]->raw.len = 0; // there is nothing behind it
    return st ? st : place_all(q, &cuts);
}

static status_t parse_infer(struct api_request *q, const struct tensors_limits *l) {
    struct call *c = q->c;
    struct cuts cuts;
    enum { RAW_INPUT_CONTENTS = 7 };
    if (!cut_fields(&c->arena, q->m.pieces, q->m.n, RAW_INPUT_CONTENTS, 0, &cuts)) return not_a(c);
    RETURN_IF_ERR(call_unpack(c, cuts.rest));
    const Inference__ModelInferRequest *infer = call_request(c);
    if (!cuts.n) {
        RETURN_IF_ERR(tensors_layout(c, l, TENSORS_JSON, NULL));
        return oip_contents(c);
    }
    RETURN_IF_ERR(oip_no_contents(infer));
    size_t *with = arena_array(&c->arena, size_t, infer->n_inputs + 1), n = 0;
    for (size_t i = 0; i < infer->n_inputs; i++) // those in shared memory have none
        if (!oip_in_region(&infer->inputs[i]->base)) with[n++] = i;
    if (cuts.n != n)
        return st_because(ST_INVALID_ARGUMENT, BAD_TENSOR_DATA,
                          "%zu raw_input_contents for %zu inputs", cuts.n, n);
    int64_t *given = arena_zarray(&c->arena, int64_t, infer->n_inputs + 1);
    for (size_t i = 0; i < cuts.n; i++) {
        cuts.v[i].parent = (uint32_t)with[i];
        given[with[i]] = (int64_t)cuts.v[i].n;
    }
    c->given = given;
    RETURN_IF_ERR(tensors_layout(c, l, TENSORS_RAW, NULL));
    return place_all(q, &cuts);
}

static status_t parse(struct api_request *q) {
    struct call *c = q->c;
    struct tensors_limits l = {rpc_cfg(rpc_of(q->rc))->max_message_bytes};
    if (c->row->scope == SCOPE_NONE) {
        struct span small;
        RETURN_IF_ERR(rpc_small(&c->arena, &q->m, &small));
        return call_unpack(c, small);
    }
    RETURN_IF_ERR(rpc_inflate(&c->arena, &q->m, l.max_bytes));
    bool run = tensors_in(c->row->input);
    if (c->row->input == &inference__model_infer_request__descriptor) return parse_infer(q, &l);
    if (run && q->m.bytes > SMALL) return parse_run(q, &l);
    RETURN_IF_ERR(call_unpack(c, rpc_flat(&c->arena, &q->m)));
    return run ? tensors_raw(c, &l) : ST_OK;
}

static void parse_work(void *arg) {
    struct api_request *q = arg;
    struct arena_guard g;
    q->st = ARENA_GUARD(&q->c->arena, &g) ? parse(q) : st_oom();
    arena_unguard(&q->c->arena, &g);
}
// What is held from now on.
static void settle(struct api_request *q) {
    budget_set(rpc_api(rpc_of(q->rc))->budget, &q->hold, call_bytes(q->c) + tensors_bytes(q->c));
}
static void parsed(void *arg) {
    struct api_request *q = arg;
    struct rpc_call *rc = q->rc;
    q->c->busy = false;
    settle(q);
    q->ready(q);
    rpc_release(rc); // may free q
}

void api_request_take(struct api_request *q, const struct rpc_bytes *m) {
    struct rpc *r = rpc_of(q->rc);
    bool open = q->c->row->scope == SCOPE_NONE;
    q->m = *m;
    q->hold.tenant = q->c->principal.tenant;
    q->st =
        budget_try(rpc_api(r)->budget, &q->hold,
                   open ? API_OPEN_BYTES : rpc_inflated_bytes(m, rpc_cfg(r)->max_message_bytes));
    if (!q->st && !open && (m->bytes > SMALL || m->compressed)) {
        rpc_hold(q->rc);
        q->c->busy = true;
        loop_work(rpc_loop(r), parse_work, parsed, q);
        return;
    }
    if (!q->st) parse_work(q);
    if (!q->st) settle(q);
    q->ready(q);
}

static void ready(struct api_request *q) {
    status_t st = q->st;
    q->st = ST_OK;
    if (q->c->finished)
        st_drop(st);
    else if (st)
        call_finish(q->c, NULL, st);
    else
        api_dispatch(q->c);
}

static void message(struct rpc_call *rc, const struct rpc_bytes *m) {
    struct api_request *q = rpc_data(rc);
    struct call *c = q->c;
    if (c->request || c->busy || c->finished) return; // a second message of a unary request
    if (m)
        api_request_take(q, m);
    else
        call_finish(c, NULL, st_invalid("no request message"));
}

// ---- life

MUST_CHECK static status_t unclear(const char *name) {
    return st_because(ST_INVALID_ARGUMENT, BAD_FRAMING,
                      "metadata '%s' more than once, or with a NUL", name);
}
status_t api_request_admit(struct rpc_call *rc, const struct api_row *row, struct arena *a,
                           struct principal *out) {
    if (!rpc_header_clear(rc, "authorization")) return unclear("authorization");
    struct credentials who = {.authorization = rpc_header(rc, a, "authorization")};
    who.n_names = rpc_peer_names(rc, a, &who.names);
    struct api *api = rpc_api(rpc_of(rc));
    RETURN_IF_ERR(api_admit(api, row, a, &who, out));
    return !api->auth || !out->anonymous ? rpc_admitted(rc, out->tenant) : ST_OK;
}

struct metadata {
    struct rpc_call *rc;
    struct arena *a;
    const char *unclear; // or NULL
};
static const char *metadata(void *ctx, const char *name) {
    struct metadata *m = ctx;
    if (!rpc_header_clear(m->rc, name)) m->unclear = name;
    return rpc_header(m->rc, m->a, name);
}
status_t api_request_headers(struct rpc_call *rc, struct call *c) {
    struct metadata m = {rc, &c->arena, NULL};
    c->timeout_ms = rpc_timeout_ms(rc);
    status_t st = call_headers(c, metadata, &m);
    return !st && m.unclear ? unclear(m.unclear) : st;
}

static void begin(struct rpc_call *rc) {
    struct call *c = malloc(sizeof *c);
    if (!c) abort();
    call_init(c, rpc_api(rpc_of(rc)));
    struct api_request *q = arena_new_of(&c->arena, struct api_request);
    q->rc = rc;
    q->c = c;
    q->ready = ready;
    c->row = rpc_method_of(rc)->datum;
    c->sink = &sink;
    c->transport = q;
    call_trace(c, rpc_header(rc, &c->arena, "traceparent"),
               rpc_header(rc, &c->arena, "tracestate"));
    if (c->trace && *c->trace->reply) {
        rpc_head(rc, 0, "traceparent", c->trace->given);
        rpc_head(rc, 1, "traceresponse", c->trace->reply);
    }
    rpc_set_data(rc, q);
    status_t st = api_request_admit(rc, c->row, &c->arena, &c->principal);
    if (!st) st = api_request_headers(rc, c);
    if (st)
        call_finish(c, NULL, st);
    else
        rpc_receive(rc);
}
static void cancelled(struct rpc_call *rc) {
    struct api_request *q = rpc_data(rc);
    call_cancel(q->c);
}
static void ended(struct rpc_call *rc) {
    struct api_request *q = rpc_data(rc);
    budget_drop(&q->hold);
    st_drop(q->st);
    call_done(q->c); // q lies in its arena
}

static const struct rpc_service service = {
    .begin = begin, .message = message, .cancelled = cancelled, .ended = ended};

const struct rpc_method *rpc_api_method(const char *path) {
    static struct rpc_method methods[ALL_ROWS];
    if (*path != '/') return NULL;
    for (int i = 0; i < ALL_ROWS; i++) {
        const struct api_row *row = &api_rows[i];
        size_t n = strlen(row->service);
        if (strncmp(path + 1, row->service, n) || path[n + 1] != '/' ||
            strcmp(path + n + 2, row->method))
            continue;
        bool stream = row->stream && row->dialect == DIALECT_OIP; // takes a stream too
        methods[i] = (struct rpc_method){row->method, stream ? &rpc_oip_stream : &service, row};
        return &methods[i];
    }
    return NULL;
}
