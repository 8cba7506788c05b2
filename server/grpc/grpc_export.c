// SPDX-License-Identifier: Apache-2.0
// One channel and one queue of completions; a request is one batch of operations with its answer. A
// collector that answers nothing costs the time that a request has, one that floods what
// OTLP_MOST_ANSWER lets through.
#include "server/grpc/grpc_export.h"

#include <stdio.h>
#include <stdlib.h>

#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/compression.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/slice.h>
#include <grpc/support/time.h>

#include "base/clock.h"
#include "base/store/file.h"
#include "base/tsan.h"

enum { MAX_PEM = 1 << 20, MOST_METADATA = 16 << 10, LOOK_MS = 100, SHUTDOWN_S = 5 };
struct sender {
    const struct otlp_target *target;
    const char *path;
    grpc_channel *channel;
    grpc_completion_queue *queue;
    grpc_metadata *headers; // [target->n_headers]
};

// ---- the channel

static status_t pem(struct arena *a, const char *path, const char **out) {
    struct str text;
    *out = NULL;
    if (!*path) return ST_OK;
    RETURN_IF_ERR(file_read(a, path, MAX_PEM, NULL, &text));
    *out = text.p;
    return ST_OK;
}
static status_t credentials(const struct otlp_target *t, grpc_channel_credentials **out) {
    struct arena a = {0};
    const char *ca, *cert = NULL, *key = NULL;
    if (!t->tls) {
        *out = grpc_insecure_credentials_create();
        return ST_OK;
    }
    status_t st = pem(&a, t->ca, &ca);
    if (!st) st = pem(&a, t->cert, &cert);
    if (!st) st = pem(&a, t->key, &key);
    if (!st) {
        grpc_ssl_pem_key_cert_pair pair = {key, cert};
        *out = grpc_ssl_credentials_create(ca, cert && key ? &pair : NULL, NULL, NULL);
    }
    if (!st && !*out) st = st_invalid("the certificates of an OTLP endpoint cannot be used");
    arena_done(&a);
    return st;
}
static grpc_arg number(const char *key, int v) {
    return (grpc_arg){.type = GRPC_ARG_INTEGER, .key = (char *)(uintptr_t)key, .value.integer = v};
}

static void close_sender(void *x) {
    struct sender *s = x;
    if (!s) return;
    if (s->queue) {
        grpc_completion_queue_shutdown(s->queue);
        gpr_timespec until = gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                          gpr_time_from_seconds(SHUTDOWN_S, GPR_TIMESPAN));
        while (grpc_completion_queue_next(s->queue, until, NULL).type == GRPC_OP_COMPLETE)
            continue;
        grpc_completion_queue_destroy(s->queue);
    }
    if (s->channel) grpc_channel_destroy(s->channel);
    for (size_t k = 0; s->headers && k < s->target->n_headers; k++) {
        grpc_slice_unref(s->headers[k].key);
        grpc_slice_unref(s->headers[k].value);
    }
    free(s->headers);
    free(s);
    grpc_shutdown();
}
static status_t open_sender(const struct otlp_target *t, enum otlp_signal signal, void **out) {
    static const char *const paths[OTLP_SIGNALS] = {
        "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
        "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"};
    struct sender *s = arena_must_calloc(1, sizeof *s);
    grpc_channel_credentials *creds;
    grpc_init();
    s->target = t;
    s->path = paths[signal];
    status_t st = credentials(t, &creds);
    if (st) {
        close_sender(s);
        return st;
    }

    char agent[] = OTLP_AGENT;
    grpc_arg args[] = {
        number(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, OTLP_MOST_ANSWER),
        number(GRPC_ARG_MAX_METADATA_SIZE, MOST_METADATA),
        number(GRPC_ARG_HTTP2_BDP_PROBE, 0), // or its window grows beyond what is read
        number(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, OTLP_MOST_ANSWER),
        number(GRPC_COMPRESSION_CHANNEL_DEFAULT_ALGORITHM,
               t->gzip ? GRPC_COMPRESS_GZIP : GRPC_COMPRESS_NONE),
        number(GRPC_ARG_ENABLE_RETRIES, 0), // the exporter's
        {.type = GRPC_ARG_STRING,
         .key = (char *)(uintptr_t)GRPC_ARG_PRIMARY_USER_AGENT_STRING,
         .value.string = agent}};
    grpc_channel_args all = {sizeof args / sizeof *args, args};
    s->channel = grpc_channel_create(t->where, creds, &all);
    grpc_channel_credentials_release(creds);
    s->queue = grpc_completion_queue_create_for_next(NULL);
    s->headers = arena_must_calloc(t->n_headers + 1, sizeof *s->headers);
    for (size_t k = 0; k < t->n_headers; k++)
        s->headers[k] =
            (grpc_metadata){.key = grpc_slice_from_copied_string(t->headers[k].key),
                            .value = grpc_slice_from_copied_string(t->headers[k].value)};
    *out = s;
    return ST_OK;
}

// ---- one request

struct request {
    grpc_call *call;
    grpc_metadata_array head, trailer;
    grpc_byte_buffer *answer;
    grpc_status_code code;
    grpc_slice text;
};
static void begin(struct sender *s, struct request *r, struct span body) {
    grpc_slice path = grpc_slice_from_static_string(s->path),
               bytes = grpc_slice_from_copied_buffer((const char *)body.p, body.n);
    grpc_byte_buffer *message = grpc_raw_byte_buffer_create(&bytes, 1);
    grpc_slice_unref(bytes); // the library may hold it for longer than the request lasts
    gpr_timespec deadline = gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                         gpr_time_from_millis(s->target->timeout_ms, GPR_TIMESPAN));
    r->call = grpc_channel_create_call(s->channel, NULL, GRPC_PROPAGATE_DEFAULTS, s->queue, path,
                                       NULL, deadline, NULL);
    grpc_metadata_array_init(&r->head);
    grpc_metadata_array_init(&r->trailer);

    grpc_op ops[6] = {
        {.op = GRPC_OP_SEND_INITIAL_METADATA},  {.op = GRPC_OP_SEND_MESSAGE},
        {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT}, {.op = GRPC_OP_RECV_INITIAL_METADATA},
        {.op = GRPC_OP_RECV_MESSAGE},           {.op = GRPC_OP_RECV_STATUS_ON_CLIENT}};
    ops[0].data.send_initial_metadata.metadata = s->headers;
    ops[0].data.send_initial_metadata.count = s->target->n_headers;
    ops[1].data.send_message.send_message = message;
    ops[3].data.recv_initial_metadata.recv_initial_metadata = &r->head;
    ops[4].data.recv_message.recv_message = &r->answer;
    ops[5].data.recv_status_on_client.trailing_metadata = &r->trailer;
    ops[5].data.recv_status_on_client.status = &r->code;
    ops[5].data.recv_status_on_client.status_details = &r->text;

    tsan_release(r);
    if (grpc_call_start_batch(r->call, ops, 6, r, NULL) != GRPC_CALL_OK)
        abort(); // a batch that contradicts itself: a bug of ours
    grpc_byte_buffer_destroy(message);
}
static void wait_for(struct sender *s, struct request *r, int64_t (*until)(void *ctx), void *ctx) {
    for (;;) {
        gpr_timespec look =
            gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(LOOK_MS, GPR_TIMESPAN));
        grpc_event e = grpc_completion_queue_next(s->queue, look, NULL);
        if (e.type == GRPC_OP_COMPLETE) break;
        if (clock_ns() >= until(ctx)) grpc_call_cancel(r->call, NULL); // and its end comes
    }
    tsan_acquire(r);
}

static struct span trailer(const struct request *r, const char *key) {
    for (size_t i = 0; i < r->trailer.count; i++) {
        const grpc_metadata *m = &r->trailer.metadata[i];
        if (grpc_slice_str_cmp(m->key, key) == 0)
            return (struct span){GRPC_SLICE_START_PTR(m->value), GRPC_SLICE_LENGTH(m->value)};
    }
    return (struct span){0};
}
static void read_answer(struct request *r, struct otlp_answer *out) {
    grpc_byte_buffer_reader reader;
    if (r->code != GRPC_STATUS_OK) {
        otlp_answer_refusal((int)r->code, trailer(r, "grpc-status-details-bin"), out);
        size_t n = GRPC_SLICE_LENGTH(r->text);
        if (!*out->why)
            snprintf(out->why, sizeof out->why, "%.*s", (int)(n < 150 ? n : 150),
                     (const char *)GRPC_SLICE_START_PTR(r->text));
        return;
    }
    otlp_answer_body((struct span){0}, out);
    if (!r->answer || !grpc_byte_buffer_reader_init(&reader, r->answer)) return;
    grpc_slice s = grpc_byte_buffer_reader_readall(&reader);
    otlp_answer_body((struct span){GRPC_SLICE_START_PTR(s), GRPC_SLICE_LENGTH(s)}, out);
    grpc_slice_unref(s);
    grpc_byte_buffer_reader_destroy(&reader);
}

static void send_request(void *x, struct span body, int64_t (*until)(void *ctx), void *ctx,
                         struct otlp_answer *out) {
    struct sender *s = x;
    struct request r = {.code = GRPC_STATUS_UNKNOWN, .text = grpc_empty_slice()};
    begin(s, &r, body);
    wait_for(s, &r, until, ctx);
    read_answer(&r, out);
    if (r.answer) grpc_byte_buffer_destroy(r.answer);
    grpc_metadata_array_destroy(&r.head);
    grpc_metadata_array_destroy(&r.trailer);
    grpc_slice_unref(r.text);
    grpc_call_unref(r.call);
}

const struct otlp_transport grpc_export = {open_sender, send_request, close_sender};
