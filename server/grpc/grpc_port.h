// SPDX-License-Identifier: Apache-2.0
// grpc_port: the gRPC library's server as the options want it: limits, credentials, the port, one
// completion queue. What comes of it is grpc.c's. Thread: loop.
#pragma once
#include <stdatomic.h>
#include <stdint.h>

#include <grpc/grpc.h>

#include "server/grpc/grpc.h"

// Calls of a connection at a time. A client that keeps to it waits with more; the library closes
// the connection of one that has acknowledged it and sends more. Who has not acknowledged it, or
// has given up calls that still end here, may have a few more before they are refused.
enum { GRPC_PORT_STREAMS = 512, GRPC_PORT_MAX_CALLS = 768 };
struct grpc_port {
    const struct rpc_config *cfg; // set by the caller, and stays
    grpc_server *server;
    grpc_completion_queue *queue;
    grpc_resource_quota *quota;
    atomic_uint tls_version; // that the library has
    int number;              // bound
};
// Listens, but is not started. `room`: bytes that all messages together may take. UNAVAILABLE where
// it cannot listen: then it is closed.
status_t grpc_port_open(struct grpc_port *p, int64_t room) MUST_CHECK;
// CN and SANs of the verified certificate of a call's client, in a; returns how many. Over TLS.
size_t grpc_port_names(grpc_call *call, struct arena *a, const char *const **out);
int64_t grpc_port_ms_left(gpr_timespec until); // 1 where it is past, 0: forever
// Where it was started, after the server was shut down.
void grpc_port_close(struct grpc_port *p);
