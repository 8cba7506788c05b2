// SPDX-License-Identifier: Apache-2.0
// grpc_api: what the unary rows and ModelStreamInfer share: a message becomes a call's request and
// inputs. Thread: loop; parsing of large messages: pool.
#pragma once
#include "server/body/budget.h"
#include "server/grpc/grpc_call.h"

struct api_request { // of one call
    struct call *c;
    struct rpc_call *rc;
    struct rpc_bytes m;
    struct budget_hold hold;
    status_t st;
    void (*ready)(struct api_request *q); // parsed, or st: takes it from there
};
// Parses m, at once or on the pool while the message is held; ready is the last thing that happens,
// also when the call was cancelled meanwhile (then only to let go of it).
void api_request_take(struct api_request *q, const struct rpc_bytes *m);
// Who calls, by the metadata and the connection: api_admit.
status_t api_request_admit(struct rpc_call *rc, const struct api_row *row, struct arena *a,
                           struct principal *out) MUST_CHECK;
// Deadline, priority and tenant, after that; in the call.
status_t api_request_headers(struct rpc_call *rc, struct call *c) MUST_CHECK;
// A message with the call's outputs in it, and success where it is the last; large outputs are sent
// from where they lie.
void api_request_send(struct rpc_call *rc, struct call *c, const ProtobufCMessage *m, bool last);
extern const struct rpc_service rpc_oip_stream; // ModelStreamInfer
