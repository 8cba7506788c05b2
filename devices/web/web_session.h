// SPDX-License-Identifier: Apache-2.0
// web_session: messages to and from a page over a WebSocket whose handshake is over. Nothing that
// the page sends is believed: a message has a bound before it comes, one that nobody waits for ends
// the session, and so does a page that is silent for long, or breaks the protocol. A session that
// has ended stays so: every call is UNAVAILABLE. Thread: the one that calls the device.
#pragma once
#include "base/status.h"
#include "base/str.h"
#include "devices/web/ws.h"

struct web_session {
    int fd; // a stream socket; closed by web_session_close
    struct ws ws;
    uint8_t *in;          // what was read last
    struct ws_bytes rest; // of it, not looked at yet
    struct strbuf msg;    // the message that is coming, or came last
    bool whole, lost;
    int controls;                         // control frames since our last ping
    int64_t heard_ns, pinged_ns, sent_ns; // last bytes; our last ping; the last that went out
    char why[160];                        // it was lost
};
// How long a call waits: until *cancel (NULL: never), or until_ns (0: no bound), at which the
// session is lost.
struct web_wait {
    const _Atomic bool *cancel;
    int64_t until_ns;
};
void web_session_open(struct web_session *s, int fd); // takes fd
void web_session_close(struct web_session *s);        // says goodbye, if it is up
// Ends it; gives the status that every later call gives. why: copied, cut.
status_t web_session_lose(struct web_session *s, const char *why) MUST_CHECK;
status_t web_session_alive(const struct web_session *s) MUST_CHECK;
// One message of these pieces in turn. A message that was begun is finished: within a second when
// it is cancelled, or the session is lost.
status_t web_send(struct web_session *s, const struct span *v, int n,
                  const struct web_wait *w) MUST_CHECK;
// The next message, of at most `most` bytes; *out is borrowed until the next call, and aligned as
// malloc's memory is. CANCELLED: a message that has begun goes on with the next call.
status_t web_receive(struct web_session *s, int64_t most, const struct web_wait *w,
                     struct span *out) MUST_CHECK;
// Between calls, every now and then: does not wait. A page that leaves, speaks without being asked,
// or does not answer pings is lost.
status_t web_session_idle(struct web_session *s) MUST_CHECK;
