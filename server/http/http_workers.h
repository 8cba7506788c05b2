// SPDX-License-Identifier: Apache-2.0
// http_workers: pages that join as devices, by a WebSocket at /v1/workers (RFC 6455, section 4).
// Who may is decided here: a page of this server by its Origin, a token with the scope `worker` (in
// Sec-WebSocket-Protocol: a page cannot set Authorization), a device without a page. What comes
// then is read by the device's worker alone, whose process gets the socket; the connection counts
// here, towards the bounds of connections, until that process is gone. Nothing of it is reachable
// unless http_config.workers. Thread: loop.
#pragma once
#include <stdbool.h>

struct http;
struct http_req;
// Is the request for a page that joins? r->error: it is refused.
bool http_workers_route(struct http_req *r, const char *verb, const char *url);
void http_workers_reply(struct http_req *r); // r->response: 101, or 200 where it was but a question
void http_workers_stop(struct http *h);      // before the library is stopped
