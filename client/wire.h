// SPDX-License-Identifier: Apache-2.0
// wire: calls of hlod.v1 as messages, behind hlod.h: one seam for every transport (HTTP now).
// Thread: as the connection.
#pragma once
#include "base/arena.h"
#include "client/hlod.h"
#include "client/http.h"
#include "proto/hlod.pb-c.h"

struct hlod {
    struct http_client *http;
    struct arena error_arena;
    struct hlod_error error;
};
// What a call gives: the public struct first, then what it points into.
struct wire_result {
    struct arena arena;
};
void *wire_result_new(size_t public_bytes, struct arena **out_arena); // zeroed public struct
void wire_result_free(void *public_struct);                           // NULL is fine
// Keeps a message alive as long as the arena.
void wire_keep(struct arena *a, void *message);

// Ends every public call: takes st, fills h->error, gives the code.
enum hlod_code wire_end(struct hlod *h, status_t st);

// One message, one reply (free_unpacked by the caller, or wire_keep).
status_t wire_unary(struct hlod *h, const char *method, const ProtobufCMessage *request,
                    const ProtobufCMessageDescriptor *reply_type,
                    ProtobufCMessage **out) MUST_CHECK;
// A stream: events go to on_event; the one that ends it (result or compile_result) to *out_result,
// a profile to *out_profile (NULL if none came).
struct wire_stream {
    hlod_event_fn on_event; // or NULL
    void *ctx;
    const char *path, *content_type, *header; // header: one further, or NULL
    const struct span *parts;
    size_t n_parts;
    const char *body_file;
};
status_t wire_stream(struct hlod *h, const struct wire_stream *w, Hlod__V1__Event **out_result,
                     Hlod__V1__Event **out_profile) MUST_CHECK;
// An executable as the public struct, in `a`; borrows from the message.
void wire_executable(struct arena *a, const Hlod__V1__ExecutableInfo *x,
                     struct hlod_executable *out);
