// SPDX-License-Identifier: Apache-2.0
// wire: calls of hlod.v1 as messages, behind hlod.h: one seam for both transports. A wire_request
// says a call in the form of either; a wire_reader takes what comes back. Thread: as the
// connection.
#pragma once
#include "base/arena.h"
#include "client/hlod.h"
#include "client/lib/grpc_client.h"
#include "proto/hlod.pb-c.h"

struct hlod {
    struct http_client *http; // one of the two
    struct grpc_client *grpc;
    struct arena error_arena;
    struct hlod_error error;
    bool answered; // the call under way ended with an error of the server's
    bool (*stop)(void *ctx); // hlod_set_stop
    void *stop_ctx;
};
// What a call gives: the public struct first, then what it points into.
struct wire_result {
    struct arena arena;
};
void *wire_result_new(size_t public_bytes, struct arena **out_arena); // zeroed public struct
void wire_result_free(void *public_struct);                           // NULL is fine
// Keeps a message alive as long as the arena.
void wire_keep(struct arena *a, void *message);

// Ends every public call: takes st, fills h->error, gives the code. Whether the server answered is
// what wire_stream noted.
enum hlod_code wire_end(struct hlod *h, status_t st);

// By the scheme of addr one of the two is made.
status_t wire_open(const char *addr, const struct http_security *s, struct http_client **out_http,
                   struct grpc_client **out_grpc) MUST_CHECK;
void wire_close_grpc(struct grpc_client *c); // nothing is under way

// One message, one reply (free_unpacked by the caller, or wire_keep).
status_t wire_unary(struct hlod *h, const char *method, const ProtobufCMessage *request,
                    const ProtobufCMessageDescriptor *reply_type,
                    ProtobufCMessage **out) MUST_CHECK;
// A call, whose reply is one message or a stream of events. All in one arena, or borrowed from the
// caller.
struct wire_request {
    const ProtobufCMessageDescriptor *reply; // one message of this type; NULL: a stream
    hlod_event_fn on_event;                  // or NULL
    bool any_end;                            // of a stream that need not end with a result
    bool (*on_message)(void *ctx, const Hlod__V1__Event *e);     // each event as it came; or NULL
    bool (*on_json)(void *ctx, const char *event);               // the same as JSON; or NULL
    void (*on_progress)(void *ctx, int64_t sent, int64_t total); // of the body over HTTP; or NULL
    void *ctx;                                                   // of all four
    // HTTP: POST path
    const char *verb;                         // NULL = POST
    const char *path, *content_type, *header; // header: one further, or NULL
    const struct span *parts;
    size_t n_parts;
    const char *body_file;
    // gRPC
    const char *method;
    const ProtobufCMessage *message;
};
// A method with its message, which is borrowed. reply: as above.
void wire_call(struct arena *a, bool grpc, const char *method, const ProtobufCMessage *m,
               const ProtobufCMessageDescriptor *reply, struct wire_request *out);
// The message of a call over HTTP as JSON, put into parts[0], and the bytes of its tensors, which
// lie in the others, behind it (docs/api.md, "Binary tensors").
void wire_binary(struct arena *a, const char *path, const ProtobufCMessage *m, struct span *parts,
                 size_t n_parts, struct wire_request *out);
// The calls: in the form for gRPC or for HTTP, in a. Of a model its digest, or its bytes in parts,
// or its file.
struct wire_model {
    const char *digest;
    const struct span *parts;
    size_t n_parts;
    const char *file;
};
status_t wire_compile(struct arena *a, bool grpc, const struct wire_model *m,
                      const struct hlod_compile_options *o, struct wire_request *out) MUST_CHECK;
status_t wire_run(struct arena *a, bool grpc, const char *digest, const struct hlod_tensor *in,
                  size_t n_in, const struct hlod_run_options *o,
                  struct wire_request *out) MUST_CHECK;
// The parts as one field of a message: of several a copy in `a`.
ProtobufCBinaryData wire_joined(struct arena *a, const struct span *parts, size_t n);
// Shapes as a message's field; copied.
Hlod__V1__ShapeBinding **wire_shapes(struct arena *a, const struct hlod_shape *v, size_t n);
// A model's file with the data files beside it.
status_t wire_model_file(struct arena *a, const char *path, struct wire_model *out) MUST_CHECK;

// Reads the reply. Of a stream events go to on_event, the result and the profile are kept.
struct wire_reader {
    const struct wire_request *q;
    const struct hlod *h; // whose stop is asked; NULL: nobody's
    struct strbuf buf; // of an unfinished frame
    ProtobufCMessage *reply;
    Hlod__V1__Event *result, *profile;
    status_t st;
    bool done;
    bool refused; // the error is the server's own
};
bool wire_frames(void *reader, struct span piece);  // HTTP; false: on_event breaks off
bool wire_message(void *reader, struct span bytes); // gRPC
// Of gRPC: is st the server's? The channel's own are UNAVAILABLE or CANCELLED without a reason.
void wire_note_status(struct wire_reader *r, status_t st);
// How it went, given what the transport says (taken) and, over HTTP, the reply; frees the buffer.
// On success reply or result is there (unless it has none); else all is freed.
status_t wire_reader_end(struct wire_reader *r, status_t st,
                         const struct http_reply *reply) MUST_CHECK;
// What a reader has got, as the public struct; DATA_LOSS when it is of another kind.
status_t wire_compiled(struct wire_reader *r, void **out_executable) MUST_CHECK;
status_t wire_ran(struct wire_reader *r, void **out_result) MUST_CHECK;
struct http_request wire_http(const struct wire_request *q, struct wire_reader *r,
                              const char *headers[2]); // q as HTTP sends it

status_t wire_refusal(const struct http_reply *r) MUST_CHECK; // of a reply that is an error

// Sends it and waits.
status_t wire_stream(struct hlod *h, const struct wire_request *q,
                     struct wire_reader *out) MUST_CHECK;
// An executable as the public struct, in `a`; borrows from the message.
const struct hlod_type_count *wire_type_counts(struct arena *a, Hlod__V1__TypeCount *const *v,
                                               size_t n);
void wire_executable(struct arena *a, const Hlod__V1__ExecutableInfo *x,
                     struct hlod_executable *out);
