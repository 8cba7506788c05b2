// SPDX-License-Identifier: Apache-2.0
// http_req: one request inside the HTTP transport, shared by http.c (library), http_watch.c (loop),
// http_body.c (receiving) and http_reply.c (sending).
//
//   headers -> route, checks -> body pieces -> start -> [suspended: call runs] -> finish -> reply
//   queued -> freed when the library is done with it
//
// Thread: loop, except parse work of large JSON bodies, during which the request is suspended and
// touched by nobody else.
#pragma once
#include <microhttpd.h>

#include "base/str.h"
#include "server/body/budget.h"
#include "server/body/tensors.h"
#include "server/body/upload.h"
#include "server/http/coding.h"
#include "server/http/http.h"
#include "server/http/http_joins.h"
#include "server/http/http_route.h"
#include "server/http/http_text.h"

struct loop;
struct loop_timer;
struct loop_watch;
struct http {
    struct loop *loop;
    struct api *api;
    struct http_config cfg;
    struct MHD_Daemon *mhd;
    struct http_conns *conns;
    int connections;
    struct loop_watch *watch;
    struct loop_timer *timer;
    uint16_t port;
    int listen_fd;
    bool kicked, running, stopping;
    int open_requests;
    struct loop_timer *look;                   // runs while requests wait for a watch of their peer
    struct http_req *young_first, *young_last; // in the order of coming
    uint64_t looks;
    struct http_away *away_first, *away_last; // waits for its turn on the pool (http_text.h)
    int away;                                 // that is there
    struct http_session *sessions;            // connections that pages keep (http_workers.h)
    struct http_joins joins;
};
struct http_lent { // pieces of a stream that are read from where they lie
    size_t at;     // where in the stream's other bytes they go
    const struct span *v;
    size_t n, offset; // pieces left; in the first
};
enum body_kind { IN_NONE, IN_TEXT, IN_MODEL, IN_BINARY };
struct http_req {
    struct http *h;
    struct MHD_Connection *conn;
    struct route route;
    struct call *call;
    bool plain;     // not an API row: probes, metrics, openapi
    bool joins;     // a page joins, or asks whether it may
    bool upgraded;  // and has: the connection is a session's
    bool preflight; // a browser asks whether a page may ask
    bool options;   // somebody else asks what may be asked: balancers, whether we live
    bool oip;       // a path of the Open Inference Protocol's: so are its errors, without a row too
    bool foreign;   // its target is absolute, of a host that is not ours (http_same_site)
    char plain_path[32];
    status_t error;    // found before the call could start
    const char *allow; // for 405, in the call's arena
    // Body.
    enum body_kind in;
    bool protobuf, compressed, started;
    int64_t length, received; // length -1 = chunked
    int64_t json_bytes;       // IN_BINARY: of the JSON in front
    struct budget_hold hold;
    struct strbuf text;
    struct upload *upload;
    struct tensors_binary binary;
    bool binary_ready; // layout done
    // Waiting and replying.
    bool suspended, gone, probed;
    bool pooled; // pool work (parsing, compressing) holds the request
    struct loop_watch *watch;
    struct loop_timer *gone_timer;
    int watch_fd;
    enum coding coding; // that the reply may have
    bool young;
    struct http_req *young_prev, *young_next;
    uint64_t young_since; // http.looks
    struct MHD_Response *response;
    unsigned code;
    bool queued;                 // handed to the library
    text_holes holes;            // of the text that is being printed
    struct http_text *long_text; // that is made while it is read; a stream's: all, in order
    struct strbuf out;           // stream: bytes not yet taken
    size_t out_at;
    struct http_lent lent;
    bool stream_open, stream_ended, reader_waits;
};
// http_watch.c
void http_kick(struct http *h);            // run the library soon
void http_on_epoll(void *arg, int events); // of the loop: struct http
void http_on_timer(void *arg);
void http_on_look(void *arg);
void http_watch_soon(struct http_req *r); // for the client's leaving, if the request lasts
void http_watch_stop(struct http_req *r);
void http_suspend(struct http_req *r);
void http_resume(struct http_req *r);
void http_leave(struct http_req *r); // the client is gone: cancel, let the library clean up

// http_body.c
void http_body_begin(struct http_req *r); // after routing: what will come, limits
void http_body_add(struct http_req *r, const char *p,
                   size_t *n);                   // takes from the front; *n is what is left
void http_body_end(struct http_req *r);          // starts the call, now or after parsing
void http_fail(struct http_req *r, status_t st); // takes st; the first error stays
// http_reply.c
extern const struct call_sink http_sink;
void http_reply_error(struct http_req *r, status_t st); // takes st; builds r->response
void http_reply_text(struct http_req *r, unsigned code, const char *type,
                     struct strbuf *text); // takes the text
void http_reply_bytes(struct http_req *r, const char *type, const void *p,
                      size_t n); // static memory
