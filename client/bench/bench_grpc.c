// SPDX-License-Identifier: Apache-2.0
// The gRPC load: one channel, one completion queue, `concurrency` calls in flight. One in SAMPLE
// replies is read for the server's own times.
#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc.h>
#include <grpc/slice.h>
#include <grpc/support/time.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "client/bench/bench.h"
#include "client/lib/grpc_channel.h"
#include "proto/formats/inference.pb-c.h"
#include "proto/hlod.pb-c.h"

enum { SAMPLE = 16, MAX_SAMPLED_BYTES = 1 << 20 };
struct load {
    const struct bench_request *q;
    struct bench_progress p;
    grpc_channel *channel;
    grpc_completion_queue *queue;
    void *method;
    grpc_slice message;
    grpc_metadata authorization;
};
struct rpc {
    grpc_call *call;
    int64_t sent_ns;
    grpc_metadata_array head, trailer;
    grpc_byte_buffer *reply;
    grpc_status_code code;
    grpc_slice details;
};

static void start(struct load *l, struct rpc *c) {
    if (!bench_may_send(&l->p)) return;
    *c = (struct rpc){.sent_ns = clock_ns()};
    c->call =
        grpc_channel_create_registered_call(l->channel, NULL, GRPC_PROPAGATE_DEFAULTS, l->queue,
                                            l->method, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
    grpc_metadata_array_init(&c->head);
    grpc_metadata_array_init(&c->trailer);
    grpc_byte_buffer *b = grpc_raw_byte_buffer_create(&l->message, 1);
    grpc_op op[6] = {{.op = GRPC_OP_SEND_INITIAL_METADATA},  {.op = GRPC_OP_SEND_MESSAGE},
                     {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT}, {.op = GRPC_OP_RECV_INITIAL_METADATA},
                     {.op = GRPC_OP_RECV_MESSAGE},           {.op = GRPC_OP_RECV_STATUS_ON_CLIENT}};
    if (l->q->authorization) {
        op[0].data.send_initial_metadata.metadata = &l->authorization;
        op[0].data.send_initial_metadata.count = 1;
    }
    op[1].data.send_message.send_message = b;
    op[3].data.recv_initial_metadata.recv_initial_metadata = &c->head;
    op[4].data.recv_message.recv_message = &c->reply;
    op[5].data.recv_status_on_client.trailing_metadata = &c->trailer;
    op[5].data.recv_status_on_client.status = &c->code;
    op[5].data.recv_status_on_client.status_details = &c->details;
    if (grpc_call_start_batch(c->call, op, 6, c, NULL) != GRPC_CALL_OK)
        abort(); // a batch that contradicts itself: a bug of ours
    grpc_byte_buffer_destroy(b);
}

static void sample(struct load *l, grpc_byte_buffer *b) {
    grpc_byte_buffer_reader reader;
    if (!grpc_byte_buffer_reader_init(&reader, b)) return;
    grpc_slice s = grpc_byte_buffer_reader_readall(&reader);
    const uint8_t *p = GRPC_SLICE_START_PTR(s);
    if (strstr(l->q->method, "RunUnary")) {
        Hlod__V1__RunReply *r = hlod__v1__run_reply__unpack(NULL, GRPC_SLICE_LENGTH(s), p);
        for (size_t i = 0; r && i < r->n_timings; i++)
            bench_split_add(&l->p.r->server, r->timings[i]->name, r->timings[i]->ms);
        if (r) hlod__v1__run_reply__free_unpacked(r, NULL);
    } else {
        Inference__ModelInferResponse *r =
            inference__model_infer_response__unpack(NULL, GRPC_SLICE_LENGTH(s), p);
        for (size_t i = 0; r && i < r->n_parameters; i++)
            if (!strcmp(r->parameters[i]->key, "hlod_timing") && r->parameters[i]->value &&
                r->parameters[i]->value->parameter_choice_case ==
                    INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_STRING_PARAM)
                bench_split_text(&l->p.r->server, str_of(r->parameters[i]->value->string_param));
        if (r) inference__model_infer_response__free_unpacked(r, NULL);
    }
    grpc_slice_unref(s);
    grpc_byte_buffer_reader_destroy(&reader);
}

static void replied(struct load *l, struct rpc *c) {
    char text[160] = "";
    if (c->code != GRPC_STATUS_OK || !c->reply) {
        size_t n = GRPC_SLICE_LENGTH(c->details);
        snprintf(text, sizeof text, "gRPC status %d: %.*s", (int)c->code, (int)(n < 120 ? n : 120),
                 (const char *)GRPC_SLICE_START_PTR(c->details));
    }
    size_t bytes = c->reply ? grpc_byte_buffer_length(c->reply) : 0;
    if (bench_took(&l->p, c->sent_ns, text[0] ? text : NULL) && l->p.done % SAMPLE == 0 &&
        bytes < MAX_SAMPLED_BYTES)
        sample(l, c->reply);
    l->p.r->reply_bytes += (int64_t)bytes;
    grpc_byte_buffer_destroy(c->reply);
    grpc_metadata_array_destroy(&c->head);
    grpc_metadata_array_destroy(&c->trailer);
    grpc_slice_unref(c->details);
    grpc_call_unref(c->call);
    start(l, c);
}

status_t bench_grpc(const struct bench_request *q, const struct bench_load *load,
                    struct bench_result *out) {
    struct load l = {.q = q};
    struct rpc *calls = calloc((size_t)load->concurrency, sizeof *calls);
    if (!calls) return st_oom();
    grpc_init();
    status_t st = grpc_channel_open(q->addr, q->tls, q->security, &l.channel);
    if (st) {
        grpc_shutdown();
        free(calls);
        return st;
    }

    l.queue = grpc_completion_queue_create_for_next(NULL);
    l.method = grpc_channel_register_call(l.channel, q->method, NULL, NULL);
    l.message = grpc_slice_from_static_buffer(q->bytes.p, q->bytes.n);
    if (q->authorization)
        l.authorization = (grpc_metadata){.key = grpc_slice_from_static_string("authorization"),
                                          .value = grpc_slice_from_copied_string(q->authorization)};

    bench_begin(&l.p, load, out);
    for (int i = 0; i < load->concurrency; i++)
        start(&l, &calls[i]);
    while (!bench_over(&l.p)) {
        gpr_timespec soon =
            gpr_time_add(gpr_now(GPR_CLOCK_REALTIME), gpr_time_from_seconds(1, GPR_TIMESPAN));
        grpc_event e = grpc_completion_queue_next(l.queue, soon, NULL);
        if (e.type == GRPC_OP_COMPLETE) replied(&l, e.tag);
    }

    if (q->authorization) grpc_slice_unref(l.authorization.value);
    grpc_completion_queue_shutdown(l.queue);
    while (grpc_completion_queue_next(l.queue, gpr_inf_future(GPR_CLOCK_REALTIME), NULL).type !=
           GRPC_QUEUE_SHUTDOWN)
        ;
    grpc_completion_queue_destroy(l.queue);
    grpc_channel_destroy(l.channel);
    grpc_shutdown();
    free(calls);
    bool all_failed = !out->ns.n && out->errors;
    return all_failed ? st_new(ST_UNAVAILABLE, "%s: %s", q->addr, out->error) : ST_OK;
}
