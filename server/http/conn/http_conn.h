// SPDX-License-Identifier: Apache-2.0
// http_conn: what is known of one HTTP connection between and beside its requests: whose
// certificate it showed, and until when the headers of its next request must be there. A client
// that sends them a byte at a time is never idle, so the library's own timeout does not end it: a
// new connection has `header_s` from its acceptance (TLS handshake included), a kept one `idle_s`
// from its last reply, and `header_s` from its request line. Who is late is told 408 if there was
// a request line, and closed; so is who ends its side in the middle of them.
//
// Bodies may take their time, while there are places. Where few are left, those who wait for the
// rest of a request (headers first or body, idle ones last) lose theirs: of the address that has
// most of them, who is farthest behind 64 KiB/s. So do those who do not read the reply that is
// there for them. And where work of a tenant waits because its clients have not taken results
// (--reply-bytes), those of them go who are behind so. Thread: loop.
#pragma once
#include <microhttpd.h>

#include "server/auth.h"
#include "server/http/conn/http_guard.h"
#include "server/http/conn/http_handshake.h"
#include "server/http/http.h"

struct http_conn;
struct http_conns; // all of one server's
struct call;
struct sched;
// resumed(arg): the library has something to do. NULL: no descriptors are left.
struct http_conns *http_conns_new(struct sched *s, const struct http_config *cfg,
                                  void (*resumed)(void *arg), void *arg);
void http_conns_stop(struct http_conns *all); // before the library closes them
void http_conns_free(struct http_conns *all); // after the library has closed each; NULL is fine
// For MHD_OPTION_NOTIFY_CONNECTION: into and out of the library's slot of the connection.
void http_conn_opened(struct http_conns *all, struct MHD_Connection *conn, void **slot);
void http_conn_closed(struct http_conns *all, void **slot);

void http_conn_line(struct MHD_Connection *conn); // a request line came
// Its headers are there. False: its guard has not seen them, and they are not to be believed.
bool http_conn_begun(struct MHD_Connection *conn) MUST_CHECK;
// So many bytes of its body were taken; more are there, and it is we who make it wait.
void http_conn_body(struct MHD_Connection *conn, size_t n, bool waits);
void http_conn_whole(struct MHD_Connection *conn); // its body is there: it is at work
// The call's reply is on its way; borrowed until http_conn_replied.
void http_conn_replies(struct MHD_Connection *conn, const struct call *call);
void http_conn_replied(struct MHD_Connection *conn); // it waits for the next request
// The names in its verified certificate, if it showed one, into *who.
status_t http_conn_names(struct MHD_Connection *conn, struct credentials *who) MUST_CHECK;

// It is no HTTP any more: its bytes are a page's, whatever they are.
void http_conn_upgraded(struct MHD_Connection *conn);

uint64_t http_conns_opened(const struct http_conns *all); // so many ever

// For http_read.c.
struct http_conn *http_conn_of_fd(const struct http_conns *all, int fd); // NULL: none of theirs
struct http_guard *http_conn_guard(struct http_conn *c);
struct http_handshake *http_conn_handshake(struct http_conn *c);
struct MHD_Connection *http_conn_mhd(const struct http_conn *c);
bool http_conns_secure(const struct http_conns *all); // TLS
