// SPDX-License-Identifier: Apache-2.0
// http: the HTTP/1.1 transport, libmicrohttpd driven by our loop through its epoll descriptor: no
// thread of its own. Requests become calls; replies are JSON, an ndjson event stream, protobuf,
// plain text, or JSON and raw tensors. A connection is suspended while its call is under way; its
// socket is watched then, so that a client's leaving cancels the call. Thread: loop.
#pragma once
#include "server/api/api.h"

struct http;
struct tls;
struct http_config {
    const char *host;
    uint16_t port; // 0 = any
    int64_t max_model_bytes, max_message_bytes, max_json_bytes;
    int max_connections, max_per_address; // 0 = no bound of one address
    int header_s, idle_s;
    struct tls *tls;        // NULL: plain
    bool workers;           // pages may join as devices (http_workers.h)
    int64_t joins_a_minute; // of one holder; 0 = no limit
    const char *cors;       // origins of web pages that may call, server/http/cors.h
    bool local_only;        // no token is needed: a web page may not reach us by a DNS name
};
status_t http_start(struct loop *l, struct api *api, const struct http_config *cfg,
                    struct http **out) MUST_CHECK;
// Makes such a listener and lets it go again: for --check-config. *out_in_use: it failed because
// the port is taken.
status_t http_try(const struct http_config *cfg, bool *out_in_use) MUST_CHECK;
uint16_t http_port(const struct http *h); // bound
void http_quiesce(struct http *h);        // no new connections
int http_open_requests(const struct http *h);
void http_stop(struct http *h); // closes everything; no call may be under way
