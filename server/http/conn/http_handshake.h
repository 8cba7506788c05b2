// SPDX-License-Identifier: Apache-2.0
// http_handshake: TLS handshakes of HTTP connections, one after the other. The library does all
// that are ready in one go, a millisecond or two each, and asks again and again of those whose
// client has not sent the rest. So each step of a handshake passes here:
//
//   A step is taken at once where no other waits and the pause is over. Else its connection is
//   suspended, and taken up by a timer in its turn: addresses in turn, in one of them the oldest
//   first. After a step there is a pause as long as it took: the loop has half of its time for
//   others. One whose client has more to send is suspended until that is there.
//
// Thread: loop.
#pragma once
#include <microhttpd.h>
#include <stdbool.h>
#include <stdint.h>

struct loop;
struct http_handshakes; // all of one server's
enum handshake_state { HANDSHAKE_FREE, HANDSHAKE_BYTES, HANDSHAKE_TURN, HANDSHAKE_NEXT };
struct http_handshake { // of one connection, in it; zeros but for what stands first
    struct http_handshakes *all;
    struct MHD_Connection *mhd;
    int fd;
    uint64_t address; // hashed
    enum handshake_state state;
    bool hurried, watched;              // it waits no more; its descriptor was watched before
    struct http_handshake *prev, *next; // of those that wait for the same
};
// resumed(arg): the library has something to do. NULL: no descriptors are left.
struct http_handshakes *http_handshakes_new(struct loop *l, void (*resumed)(void *arg), void *arg);
// Nobody waits any more: before the library closes all connections.
void http_handshakes_stop(struct http_handshakes *all);
void http_handshakes_free(struct http_handshakes *all); // after it has; NULL is fine

// May a step be taken now? Else the connection is suspended until it may; or its client has left,
// and it is to end: thousands that come and go would fill the places and the turns.
enum handshake_may { HANDSHAKE_LEFT = -1, HANDSHAKE_WAIT, HANDSHAKE_GO };
enum handshake_may http_handshake_may(struct http_handshake *h);
enum handshake_wants { HANDSHAKE_WANTS_NOTHING, HANDSHAKE_WANTS_READ, HANDSHAKE_WANTS_WRITE };
void http_handshake_took(struct http_handshake *h, int64_t ns, enum handshake_wants wants);
void http_handshake_hurry(struct http_handshake *h); // it is to end: it waits no more
void http_handshake_gone(struct http_handshake *h);  // its connection is closed
