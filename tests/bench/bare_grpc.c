// SPDX-License-Identifier: Apache-2.0
// What the gRPC library alone can do: takes any unary call, drops its message, answers one message
// of fixed bytes, on one thread, with the batches that a server needs. `make bench-serve` measures
// hlod beside it. Usage: bare_grpc PORT REPLY_BYTES
#include <grpc/byte_buffer.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/slice.h>
#include <grpc/support/time.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct rpc {
    grpc_call *call;
    grpc_call_details details;
    grpc_metadata_array headers;
    grpc_byte_buffer *in;
    int cancelled, step;
};
static grpc_server *server;
static grpc_completion_queue *queue;
static grpc_slice reply;

static void accept_one(void) {
    struct rpc *c = calloc(1, sizeof *c);
    if (!c) abort();
    grpc_call_details_init(&c->details);
    grpc_metadata_array_init(&c->headers);
    grpc_server_request_call(server, &c->call, &c->details, &c->headers, queue, queue, c);
}

static void next(struct rpc *c) {
    grpc_op op[4] = {{0}};
    grpc_slice ok = grpc_empty_slice();
    grpc_byte_buffer *b = NULL;
    size_t n = 0;
    if (c->step == 0) {
        accept_one();
        op[n].op = GRPC_OP_RECV_MESSAGE;
        op[n++].data.recv_message.recv_message = &c->in;
    } else if (c->step == 1) {
        grpc_byte_buffer_destroy(c->in);
        b = grpc_raw_byte_buffer_create(&reply, 1);
        op[n++].op = GRPC_OP_SEND_INITIAL_METADATA;
        op[n].op = GRPC_OP_SEND_MESSAGE;
        op[n++].data.send_message.send_message = b;
        op[n].op = GRPC_OP_SEND_STATUS_FROM_SERVER;
        op[n++].data.send_status_from_server.status_details = &ok;
        op[n].op = GRPC_OP_RECV_CLOSE_ON_SERVER;
        op[n++].data.recv_close_on_server.cancelled = &c->cancelled;
    } else {
        grpc_call_details_destroy(&c->details);
        grpc_metadata_array_destroy(&c->headers);
        grpc_call_unref(c->call);
        free(c);
        return;
    }
    c->step++;
    if (grpc_call_start_batch(c->call, op, n, c, NULL) != GRPC_CALL_OK) abort();
    grpc_byte_buffer_destroy(b);
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    char address[64];
    snprintf(address, sizeof address, "127.0.0.1:%s", argv[1]);
    grpc_init();
    reply = grpc_slice_malloc(strtoul(argv[2], NULL, 10));
    memset(GRPC_SLICE_START_PTR(reply), 0, GRPC_SLICE_LENGTH(reply));
    grpc_arg a = {.type = GRPC_ARG_INTEGER,
                  .key = (char *)GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH,
                  .value.integer = INT_MAX};
    grpc_channel_args args = {1, &a};
    server = grpc_server_create(&args, NULL);
    queue = grpc_completion_queue_create_for_next(NULL);
    grpc_server_register_completion_queue(server, queue, NULL);
    grpc_server_credentials *plain = grpc_insecure_server_credentials_create();
    if (!grpc_server_add_http2_port(server, address, plain)) return 1;
    grpc_server_start(server);
    accept_one();
    puts("ready");
    fflush(stdout);
    for (;;) {
        grpc_event e = grpc_completion_queue_next(queue, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
        if (e.type == GRPC_OP_COMPLETE && (e.success || ((struct rpc *)e.tag)->step > 0))
            next(e.tag);
    }
}
