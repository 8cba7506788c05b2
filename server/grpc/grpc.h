// SPDX-License-Identifier: Apache-2.0
// grpc: the gRPC transport, on the C core. One thread takes events off the completion queue and
// posts them to the loop; all else happens there, as on HTTP. No per-method code: a path finds a
// row of api.def (or health, reflection), the descriptor does the rest. Thread: loop.
#pragma once
#include "server/api/api.h"

struct rpc;
struct tls;
struct rpc_config {
    const char *address; // "127.0.0.1:8001"; port 0 = any
    int64_t max_message_bytes, receive_bytes;
    int64_t spin_ns; // base/spin.h
    int header_s;    // a connection has so long for its handshake and first frame
    int max_connections, max_per_address; // 0: no bound
    struct tls *tls;                      // NULL: plain
};
// UNAVAILABLE when the address cannot be bound.
status_t rpc_start(struct loop *l, struct api *api, const struct rpc_config *cfg,
                   struct rpc **out) MUST_CHECK;
// Makes such a server and lets it go again: for --check-config.
status_t rpc_try(const struct rpc_config *cfg) MUST_CHECK;
int rpc_port(const struct rpc *r);       // bound
int rpc_open_calls(const struct rpc *r); // that a shutdown waits for
void rpc_quiesce(struct rpc *r);         // no new connections; calls under way go on
// Cancels what is left. Let the loop run until rpc_stopped, then rpc_free.
void rpc_stop(struct rpc *r);
bool rpc_stopped(const struct rpc *r);
void rpc_free(struct rpc *r); // NULL is fine
