// SPDX-License-Identifier: Apache-2.0
// A flight is three batches: the request with the reply's head, one message after the other, the
// status. It ends when none is under way. Large fields of the request become slices of their own
// that point to the caller's memory; what lies between them is gathered.
#include "client/lib/grpc_client.h"

#include <stdlib.h>
#include <string.h>

#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc.h>
#include <grpc/slice.h>
#include <grpc/support/time.h>

#include "base/tsan.h"
#include "base/vec.h"
#include "client/lib/grpc_channel.h"
#include "proto/hlod.pb-c.h"

struct grpc_client {
    struct arena arena;
    const char *addr;
    grpc_channel *channel;
    grpc_completion_queue *queue;
    char *authorization; // or NULL
};
struct part { // of a flight, under way or not
    struct grpc_flight *f;
    void (*done)(struct grpc_flight *f, bool ok);
};
struct grpc_flight {
    struct grpc_client *c;
    struct grpc_request q;
    grpc_call *call;
    grpc_metadata_array head, trailer;
    grpc_byte_buffer *in;
    grpc_status_code code;
    grpc_slice text;
    struct part sent, received, ended;
    _Atomic int under_way; // parts
    bool broken_off, has_status;
};

// ---- requests as slices

enum { OWN_SLICE = 4096 }; // fields from here on are not copied
struct gather {
    ProtobufCBuffer base;
    struct strbuf small;
    VEC(grpc_slice) slices;
};
static void flush(struct gather *g) {
    if (!g->small.n) return;
    grpc_slice s = grpc_slice_from_copied_buffer(g->small.p, g->small.n);
    vec_push(&g->slices, s);
    strbuf_clear(&g->small);
}
static void append(ProtobufCBuffer *b, size_t n, const uint8_t *p) {
    struct gather *g = (struct gather *)b;
    if (n < OWN_SLICE) {
        strbuf_add(&g->small, p, n);
        return;
    }
    flush(g);
    grpc_slice s = grpc_slice_from_static_buffer(p, n); // outlives the flight
    vec_push(&g->slices, s);
}
static grpc_byte_buffer *pack(const ProtobufCMessage *m) {
    struct gather g = {.base.append = append};
    protobuf_c_message_pack_to_buffer(m, &g.base);
    flush(&g);
    grpc_byte_buffer *b = grpc_raw_byte_buffer_create(g.slices.v, g.slices.n);
    for (size_t i = 0; i < g.slices.n; i++)
        grpc_slice_unref(g.slices.v[i]);
    vec_done(&g.slices);
    strbuf_done(&g.small);
    return b;
}

// ---- flights

static void start(struct grpc_flight *f, const grpc_op *op, size_t n, struct part *p,
                  void (*done)(struct grpc_flight *f, bool ok)) {
    *p = (struct part){f, done};
    tsan_release(p);
    if (grpc_call_start_batch(f->call, op, n, p, NULL) != GRPC_CALL_OK)
        abort(); // a batch that contradicts itself: a bug of ours
}

static void receive(struct grpc_flight *f);
static void on_received(struct grpc_flight *f, bool ok) {
    grpc_byte_buffer *b = f->in;
    grpc_byte_buffer_reader reader;
    f->in = NULL;
    if (!b) return;
    if (ok && !f->broken_off && grpc_byte_buffer_reader_init(&reader, b)) {
        grpc_slice s = grpc_byte_buffer_reader_readall(&reader);
        struct span bytes = {GRPC_SLICE_START_PTR(s), GRPC_SLICE_LENGTH(s)};
        if (!f->q.on_message(f->q.ctx, bytes)) {
            f->broken_off = true;
            grpc_flight_cancel(f);
        }
        grpc_slice_unref(s);
        grpc_byte_buffer_reader_destroy(&reader);
    }
    grpc_byte_buffer_destroy(b);
    if (!ok) return;
    f->under_way++;
    receive(f);
}
static void receive(struct grpc_flight *f) {
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE};
    op.data.recv_message.recv_message = &f->in;
    start(f, &op, 1, &f->received, on_received);
}
static void on_sent(struct grpc_flight *f, bool ok) {
    (void)f, (void)ok; // the status says what went wrong
}
static void on_status(struct grpc_flight *f, bool ok) {
    f->has_status = ok;
}

static struct str trailer(const struct grpc_flight *f, const char *key) {
    for (size_t i = 0; i < f->trailer.count; i++) {
        const grpc_metadata *m = &f->trailer.metadata[i];
        if (grpc_slice_str_cmp(m->key, key) == 0)
            return (struct str){(const char *)GRPC_SLICE_START_PTR(m->value),
                                GRPC_SLICE_LENGTH(m->value)};
    }
    return (struct str){0};
}
static status_t status_of(const struct grpc_flight *f) {
    if (f->broken_off) return st_new(ST_CANCELLED, "cancelled by the caller");
    if (!f->has_status) return st_new(ST_UNAVAILABLE, "the call to %s broke", f->c->addr);
    if (f->code == GRPC_STATUS_OK) return ST_OK;
    struct str reason = trailer(f, "hlod-reason"), retry = trailer(f, "hlod-retry-after-ms");
    struct strbuf name = {0};
    int64_t ms = 0;
    strbuf_printf(&name, "REASON_" STR_FMT, STR_ARG(reason));
    const ProtobufCEnumValue *r =
        protobuf_c_enum_descriptor_get_value_by_name(&hlod__v1__reason__descriptor, name.p);
    strbuf_done(&name);
    if (retry.n && !str_to_i64(retry, &ms)) ms = 0;
    bool ours = f->code > 0 && f->code <= GRPC_STATUS_UNAUTHENTICATED;
    status_t st =
        st_new(ours ? (enum status_code)f->code : ST_UNKNOWN, "%.*s",
               (int)GRPC_SLICE_LENGTH(f->text), (const char *)GRPC_SLICE_START_PTR(f->text));
    return st_retry_after(st_reason(st, r ? r->value : 0), ms);
}

static void end(struct grpc_flight *f) {
    f->q.on_end(f->q.ctx, status_of(f)); // until then it may be cancelled
    grpc_metadata_array_destroy(&f->head);
    grpc_metadata_array_destroy(&f->trailer);
    grpc_slice_unref(f->text);
    grpc_call_unref(f->call);
    free(f);
}

struct grpc_flight *grpc_flight_start(struct grpc_client *c, const struct grpc_request *q) {
    struct grpc_flight *f = calloc(1, sizeof *f);
    if (!f) abort(); // small fixed size
    f->c = c;
    f->q = *q;
    f->text = grpc_empty_slice();
    grpc_metadata_array_init(&f->head);
    grpc_metadata_array_init(&f->trailer);

    char path[128] = "/hlod.v1.Hlod/";
    strncat(path, q->method, sizeof path - strlen(path) - 1);
    grpc_slice where = grpc_slice_from_copied_string(path);
    f->call = grpc_channel_create_call(c->channel, NULL, GRPC_PROPAGATE_DEFAULTS, c->queue, where,
                                       NULL, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
    grpc_slice_unref(where);

    grpc_byte_buffer *b = pack(q->message);
    grpc_metadata bearer;
    grpc_op op[4] = {{.op = GRPC_OP_SEND_INITIAL_METADATA},
                     {.op = GRPC_OP_SEND_MESSAGE},
                     {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT},
                     {.op = GRPC_OP_RECV_INITIAL_METADATA}};

    if (c->authorization) {
        bearer = (grpc_metadata){.key = grpc_slice_from_static_string("authorization"),
                                 .value = grpc_slice_from_static_string(c->authorization)};
        op[0].data.send_initial_metadata.metadata = &bearer;
        op[0].data.send_initial_metadata.count = 1;
    }

    op[1].data.send_message.send_message = b;
    op[3].data.recv_initial_metadata.recv_initial_metadata = &f->head;
    grpc_op status = {.op = GRPC_OP_RECV_STATUS_ON_CLIENT};
    status.data.recv_status_on_client.trailing_metadata = &f->trailer;
    status.data.recv_status_on_client.status = &f->code;
    status.data.recv_status_on_client.status_details = &f->text;

    f->under_way = 3;
    start(f, &status, 1, &f->ended, on_status);
    receive(f);
    start(f, op, 4, &f->sent, on_sent); // last: from here on a turn may end it
    grpc_byte_buffer_destroy(b);
    return f;
}
void grpc_flight_cancel(struct grpc_flight *f) {
    grpc_call_cancel(f->call, NULL);
}

bool grpc_client_turn(struct grpc_client *c, bool briefly) {
    gpr_timespec until =
        briefly ? gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_seconds(1, GPR_TIMESPAN))
                : gpr_inf_future(GPR_CLOCK_REALTIME);
    grpc_event e = grpc_completion_queue_next(c->queue, until, NULL);
    if (e.type != GRPC_OP_COMPLETE) return e.type != GRPC_QUEUE_SHUTDOWN;
    struct part *p = e.tag;
    tsan_acquire(p);
    struct grpc_flight *f = p->f;
    p->done(f, e.success);
    if (--f->under_way == 0) end(f);
    return true;
}

// ---- the channel

status_t grpc_client_new(const char *addr, bool tls, const struct http_security *s,
                         struct grpc_client **out) {
    static const struct http_security none;
    grpc_channel *channel;
    const char *colon = strrchr(addr, ':');
    int64_t port;
    if (!colon || colon == addr || strpbrk(addr, "/ @?#") ||
        !str_to_i64(str_of(colon + 1), &port) || port < 1 || port > 65535)
        return st_new(ST_INVALID_ARGUMENT, "address '%.100s': expected HOST:PORT", addr);
    grpc_init();
    status_t st = grpc_channel_open(addr, tls, s ? s : &none, &channel);
    if (st) {
        grpc_shutdown();
        return st;
    }
    struct grpc_client *c = calloc(1, sizeof *c);
    if (!c) abort(); // small fixed size
    c->addr = arena_strdup(&c->arena, addr);
    if (s && s->token) c->authorization = arena_printf(&c->arena, "Bearer %s", s->token);
    c->channel = channel;
    c->queue = grpc_completion_queue_create_for_next(NULL);
    *out = c;
    return ST_OK;
}
void grpc_client_stop(struct grpc_client *c) {
    grpc_completion_queue_shutdown(c->queue);
}
void grpc_client_free(struct grpc_client *c) {
    if (!c) return;
    grpc_completion_queue_destroy(c->queue);
    grpc_channel_destroy(c->channel);
    grpc_shutdown();
    arena_done(&c->arena);
    free(c);
}
