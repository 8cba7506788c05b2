// SPDX-License-Identifier: Apache-2.0
// hlod.v1.Hlod over gRPC: a path is a row of api.def, a message its request; the same call object,
// handlers and sink as on HTTP. A stream ends with `done` and the status; an error is the status
// alone. Tensors go from the received pieces to the payload, not through the unpacker.
#include <stdlib.h>
#include <string.h>

#include "scheduler/loop.h"
#include "server/budget.h"
#include "server/cut.h"
#include "server/grpc_call.h"
#include "server/tensors.h"

enum { SMALL = 64 << 10 }; // below: unpacked where it is; above: cut, on the pool
struct api_call {
    struct rpc_call *rc;
    struct call *c;
    struct budget_hold hold;
    struct rpc_bytes m; // held while the pool parses
    status_t st;
};

// ---- the sink

static void on_event(struct call *c, const Hlod__V1__Event *e) {
    struct api_call *ac = c->transport;
    if (e->kind_case == HLOD__V1__EVENT__KIND_RESULT) call_outputs_into(c, e->result);
    rpc_send(ac->rc, &e->base);
}
static void on_finish(struct call *c, const ProtobufCMessage *reply, status_t st) {
    struct api_call *ac = c->transport;
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
    if (reply->descriptor == &hlod__v1__run_reply__descriptor)
        call_outputs_into(c, (Hlod__V1__RunReply *)reply);
    rpc_reply(ac->rc, reply);
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

static status_t parse_tensors(struct api_call *ac, const struct tensors_limits *l) {
    struct call *c = ac->c;
    struct cuts cuts;
    enum { INPUTS = 3, RAW = 4 }; // RunRequest.inputs, Tensor.raw
    if (!cut_fields(&c->arena, ac->m.pieces, ac->m.n, INPUTS, RAW, &cuts))
        return st_reason(st_new(ST_INVALID_ARGUMENT, "the message is not a RunRequest"),
                         HLOD__V1__REASON__REASON_BAD_JSON);
    RETURN_IF_ERR(call_unpack(c, cuts.rest));
    Hlod__V1__RunRequest *q = (Hlod__V1__RunRequest *)c->request;
    for (size_t i = 0; i < cuts.n; i++) // sizes for the layout; a repeated field: the last counts
        q->inputs[cuts.v[i].parent]->raw.len = cuts.v[i].n;
    status_t st = tensors_layout(c, l, TENSORS_RAW);
    for (size_t i = 0; i < cuts.n; i++)
        q->inputs[cuts.v[i].parent]->raw.len = 0; // there is nothing behind it
    for (size_t i = 0; i < cuts.n && !st; i++) {
        const struct job_input *in = &c->inputs[cuts.v[i].parent];
        struct placing p = {c, in->offset};
        if ((int64_t)cuts.v[i].n <= in->size)
            st = cut_each(ac->m.pieces, ac->m.n, &cuts.v[i], place, &p);
    }
    return st;
}

static status_t parse(struct api_call *ac) {
    struct call *c = ac->c;
    struct tensors_limits l = {rpc_cfg(rpc_of(ac->rc))->max_message_bytes};
    bool tensors = c->row->input == &hlod__v1__run_request__descriptor;
    if (tensors && ac->m.bytes > SMALL) return parse_tensors(ac, &l);
    RETURN_IF_ERR(call_unpack(c, rpc_flat(&c->arena, &ac->m)));
    return tensors ? tensors_raw(c, &l) : ST_OK;
}

static void dispatch(struct api_call *ac) {
    if (ac->st) {
        status_t st = ac->st;
        ac->st = ST_OK;
        call_finish(ac->c, NULL, st);
    } else
        api_dispatch(ac->c);
}

static void parse_work(void *arg) {
    struct api_call *ac = arg;
    ac->st = parse(ac);
}
static void parsed(void *arg) {
    struct api_call *ac = arg;
    struct call *c = ac->c;
    c->busy = false;
    if (!c->finished) dispatch(ac);
    rpc_release(ac->rc); // may free ac
}

static void message(struct rpc_call *rc, const struct rpc_bytes *m) {
    struct api_call *ac = rpc_data(rc);
    struct call *c = ac->c;
    if (c->request || c->busy || c->finished) return; // a second message of a unary request
    if (!m) {
        call_finish(c, NULL, st_new(ST_INVALID_ARGUMENT, "no request message"));
        return;
    }
    ac->m = *m;
    ac->st = budget_try(rpc_api(rpc_of(rc))->budget, &ac->hold, (int64_t)m->bytes);
    if (!ac->st && m->bytes > SMALL) {
        rpc_hold(rc);
        c->busy = true;
        loop_work(rpc_loop(rpc_of(rc)), parse_work, parsed, ac);
        return;
    }
    if (!ac->st) ac->st = parse(ac);
    dispatch(ac);
}

// ---- life

static void begin(struct rpc_call *rc) {
    struct call *c = malloc(sizeof *c);
    if (!c) abort();
    call_init(c, rpc_api(rpc_of(rc)));
    struct api_call *ac = arena_new_of(&c->arena, struct api_call);
    ac->rc = rc;
    ac->c = c;
    c->row = rpc_method_of(rc)->datum;
    c->sink = &sink;
    c->transport = ac;
    c->timeout_ms = rpc_timeout_ms(rc);
    rpc_set_data(rc, ac);
    rpc_receive(rc);
}
static void cancelled(struct rpc_call *rc) {
    struct api_call *ac = rpc_data(rc);
    call_cancel(ac->c);
}
static void ended(struct rpc_call *rc) {
    struct api_call *ac = rpc_data(rc);
    budget_drop(&ac->hold);
    st_drop(ac->st);
    call_done(ac->c); // ac lies in its arena
}

static const struct rpc_service service = {
    .begin = begin, .message = message, .cancelled = cancelled, .ended = ended};

const struct rpc_method *rpc_api_method(const char *path) {
    static struct rpc_method methods[API_ROWS];
    static const char prefix[] = "/hlod.v1.Hlod/";
    if (strncmp(path, prefix, sizeof prefix - 1)) return NULL;
    for (int i = 0; i < API_ROWS; i++)
        if (!strcmp(path + sizeof prefix - 1, api_rows[i].method)) {
            methods[i] = (struct rpc_method){api_rows[i].method, &service, &api_rows[i]};
            return &methods[i];
        }
    return NULL;
}
