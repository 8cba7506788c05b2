// SPDX-License-Identifier: Apache-2.0
// http_route: from verb, path, query and Accept to a row of api.def and its request message. Knows
// no library: pure, tested alone. Thread: any.
#pragma once
#include "server/api/api.h"

// FORM_FILE: the bytes of a blob. FORM_BYTES: of a tensor. FORM_FRAMES: a stream of protobuf
// messages, each behind its length (32 bits, little-endian; an empty frame means nothing).
enum reply_form {
    FORM_JSON,
    FORM_NDJSON,
    FORM_BINARY,
    FORM_PROTO,
    FORM_FRAMES,
    FORM_TEXT,
    FORM_FILE,
    FORM_BYTES,
    FORM_OIP,
    FORM_GENERATE,       // the keys of a JSON object are the inputs and outputs
    FORM_GENERATE_STREAM // the same as server-sent events
};
struct route {
    const struct api_row *row;
    struct str alias; // of the row that matched, static; "" where it is the rpc's path
    bool rpc;         // the /hlod.v1.Hlod/Method path
    enum reply_form form;
    struct {
        struct str field, value;
    } params[4];
    int n_params;
};
// accept: header's value or ""; stream: the query's stream parameter (-1 not given). NOT_FOUND with
// REASON_NO_ROUTE; UNIMPLEMENTED for an unknown RPC; INVALID_ARGUMENT with
// REASON_METHOD_NOT_ALLOWED and *out_allow (in a).
status_t http_route(struct arena *a, const char *verb, const char *path, const char *accept,
                    int stream, struct route *out, const char **out_allow) MUST_CHECK;
// Path parameters into the message.
status_t http_route_params(struct arena *a, const struct route *r, ProtobufCMessage *m) MUST_CHECK;
// The path of a request's target, also of an absolute one (http://host/path: RFC 9112, 3.2.2; what
// is neither comes back as it is). Its authority goes into `authority`, "" where there is none.
enum { HTTP_AUTHORITY = 264 };
const char *http_path_of(const char *target, char authority[HTTP_AUTHORITY]);
// Did a person or program at this address send it, and no web page of elsewhere? By the headers
// Host and Origin (NULL: absent). local: only loopback names and numeric addresses count as ours.
bool http_same_site(const char *host, const char *origin, bool local);
void http_error_json(struct strbuf *b, status_t st);
void http_error_oip(struct strbuf *b, status_t st); // {"error": text}
