// SPDX-License-Identifier: Apache-2.0
// grpc_gate: how much the gRPC library reads of clients that nobody has vouched for. The library
// reads whatever comes and makes calls of it, which wait in it for the daemon without any bound
// (ten bytes become ten kilobytes, and stay when the client has gone). So its reads pass here, as
// libmicrohttpd's do (server/http/conn/http_read.h):
//
//   A connection is strange until one of its calls was admitted. Strange connections together may
//   read TURN_BYTES; then they wait, in the kernel, until all calls that came of it have been taken
//   by the daemon: that is a turn. In the next one, addresses take turns, and the connections of
//   each, and there is a pause before it as long as the last one took. One whose client has gone
//   meanwhile is read no more.
//   Nor is any that sends a call's head without an end (grpc_head.h): the library keeps all of it.
//   An admitted connection reads while no call waits in the library; else it waits too, as the
//   others of its address and other addresses do, in turn. Its first read, and those after it has
//   filled the library, are small: then they grow.
//
// Also the number of connections, together and of one address, is bounded here. What is encrypted
// is counted as it comes: nothing here looks into bytes, but for the frames that heads come in.
// One gate in a process. Thread: any, except where it says so.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct gate_config {
    int max_connections, max_per_address; // 0: no bound
    int max_calls;                        // of a connection, admitted and not ended; the same
    void (*held)(
        void *ctx); // somebody waits, and a turn may begin: any thread, with the gate's lock
    bool (*keeps_up)(void *ctx); // no call waits in the library: the same
    void *ctx;
};
void gate_start(const struct gate_config *cfg);
void gate_stop(void); // `held` is called no more; what is read is bounded no more
// Whether the sockets on which this thread begins to listen are the gate's: for the time in which
// the library makes its own.
void gate_listens(bool on);
// Of doors that are not the gate's, on this thread: what is done where no descriptor is left for
// who waits there (EMFILE or ENFILE). True: he is seen to, the others wait on. NULL: nothing is.
void gate_others_full(bool (*turn_away)(int door, int why));

bool gate_waits(void); // somebody waits, or has read: gate_turn wants to be told
// All calls that came of what was read have been taken: the next turn, of strangers only if they
// may. Nanoseconds until those may read again; 0: it is not time that they wait for.
int64_t gate_turn(bool strangers);
// The daemon ends: no more connections, who knocks is refused.
void gate_shut_doors(void);
// And no more reads: what is sent from now on makes no calls, and its client sees the connection
// end. The library would make calls of it and end them as CANCELLED, which nobody tries again.
void gate_hold_all(void);
// What has been sent goes out, then the connections end. The library would name, in a GOAWAY, the
// last call that it has seen: a client tries those behind it again by itself, and where nobody
// listens by then its streams hang for ever (gRPC's C core, and all that is built on it).
void gate_end_all(void);
// A call of this peer, as the library writes it, was admitted: its connection is no stranger.
// False: it has too many. *out is for gate_ended, once.
struct gate_call {
    uint64_t connection; // 0: none
    uint16_t port;
};
bool gate_admit(const char *peer, struct gate_call *out);
void gate_ended(struct gate_call *call); // or is about to: its client cannot know yet
void gate_doubt(const char *peer);       // one was refused: it is a stranger again
