// SPDX-License-Identifier: Apache-2.0
// grpc_client: calls of hlod.v1.Hlod over gRPC: one channel and one queue of completions, which one
// thread turns. Tensors go from where they lie; a message is given as its bytes.
// Thread: starting and cancelling any; turning one at a time.
#pragma once
#include <protobuf-c/protobuf-c.h>

#include "client/lib/http.h"

struct grpc_client;
struct grpc_flight;
// addr "HOST:PORT", copied; nothing is sent yet. s: as in http.h; TLS when tls.
status_t grpc_client_new(const char *addr, bool tls, const struct http_security *s,
                         struct grpc_client **out) MUST_CHECK;
void grpc_client_free(struct grpc_client *c); // after grpc_client_stop; NULL is fine

struct grpc_request {
    const char *method;              // "Run"
    const ProtobufCMessage *message; // with all it points to, borrowed until the end
    bool (*on_message)(void *ctx, struct span bytes); // each reply; false breaks off: CANCELLED
    void (*on_end)(void *ctx, status_t st);           // once, last, from a turn; takes st
    void *ctx;
};
// The flight is valid until on_end has returned.
struct grpc_flight *grpc_flight_start(struct grpc_client *c, const struct grpc_request *q);
void grpc_flight_cancel(struct grpc_flight *f); // on_end follows
// Waits for one thing to happen, briefly: for a second. False once the client is stopped and all
// flights have ended.
bool grpc_client_turn(struct grpc_client *c, bool briefly);
void grpc_client_stop(struct grpc_client *c); // after the last on_end: turn gives false then
