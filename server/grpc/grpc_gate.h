// SPDX-License-Identifier: Apache-2.0
// grpc_gate: how much the gRPC library reads of clients that nobody has vouched for. The library
// reads whatever comes and makes calls of it, which wait in it for the daemon without any bound
// (ten bytes become ten kilobytes, and stay when the client has gone). So its reads pass here, as
// libmicrohttpd's do (server/http/http_read.h):
//
//   A connection is strange until one of its calls was admitted. Strange connections together may
//   read TURN_BYTES; then they wait, in the kernel, until all calls that came of it have been taken
//   by the daemon: that is a turn. In the next one, addresses take turns, and the connections of
//   each. One whose client has gone meanwhile is read no more.
//
// Also the number of connections, together and of one address, is bounded here. What is encrypted
// is counted as it comes: nothing here looks into bytes.
// One gate in a process. Thread: any, except where it says so.
#pragma once
#include <stdbool.h>

struct gate_config {
    int max_connections, max_per_address; // 0: no bound
    void (*held)(
        void *ctx); // somebody waits, and a turn may begin: any thread, with the gate's lock
    void *ctx;
};
void gate_start(const struct gate_config *cfg);
void gate_stop(void); // `held` is called no more; what is read is bounded no more
// Whether the sockets on which this thread begins to listen are the gate's: for the time in which
// the library makes its own.
void gate_listens(bool on);

bool gate_holds(void); // somebody waits
// All calls that came of what was read have been taken: the next turn.
void gate_turn(void);
// A call of this peer, as the library writes it, was admitted: its connection is no stranger.
void gate_admit(const char *peer);
bool gate_strangers(void); // there are some
