// SPDX-License-Identifier: Apache-2.0
// call: one request between a transport and a handler; neither knows the other. The transport fills
// it in, hands it to api_dispatch, and gets the answer through its sink: any number of events on a
// stream row, then exactly one finish. On a unary row events are dropped. A handler that is not
// done at once leaves on_cancel; after call_cancel the sink is silent. Life: the transport owns the
// call and frees it (call_done) after finish or cancel, when its reply is sent: outputs are
// borrowed from the handler until then (on_free). Thread: loop.
#pragma once
#include "base/arena.h"
#include "proto/reason.h"
#include "scheduler/job/job.h"
#include "scheduler/trace.h"
#include "server/auth.h"

struct api;
struct api_row;
struct tensor_desc;
struct call;
struct memfd;
struct strbuf;

struct call_output { // a tensor of the reply, outside the message
    const char *name;
    const char *handle; // of a resident buffer, instead of data; or NULL
    const struct dtype_row *dtype;
    int32_t rank;
    const int64_t *dims;
    int64_t elements;
    struct span data;
};
struct call_file {           // bytes of a file as the reply
    int fd;                  // -1 = none; the call's until the transport takes it
    bool part;               // of the whole, as `range` asked
    const char *type, *name; // of what was made for this call, to be saved as that; or NULL
    int64_t offset, bytes, total;
};
struct call_trace {
    struct trace t;
    char given[TRACE_PARENT_TEXT], reply[TRACE_PARENT_TEXT]; // as it came, of us; "": none came
};
struct call_sink {
    void (*event)(struct call *c, const Hlod__V1__Event *e); // a result event: with call->outputs
    void (*finish)(struct call *c, const ProtobufCMessage *reply,
                   status_t st); // reply on success of a unary row; takes st
};
struct call {
    struct api *api;
    const struct api_row *row;
    struct principal principal; // set by api_admit, without which nothing is dispatched
    struct arena arena;
    ProtobufCMessage *request; // of the row's input type, in the arena
    int64_t unpacked_bytes;    // it takes beside the arena
    int64_t start_ns;
    int64_t timeout_ms;                // the transport's deadline, 0 = none
    const struct call_trace *trace;    // that came with the request, or was begun; NULL = none
    const char *verb;                  // of HTTP, a literal; NULL: gRPC
    struct str route;                  // HTTP's template, static; "" = the rpc's path
    const Hlod__V1__RunRecord *record; // of its job, once that has ended
    int64_t work_ns;                   // its start
    const struct trace *batch;         // that its run was a part of, or NULL
    int64_t batch_rows;
    const char *model; // the name that it asks for, or NULL; in the request
    bool told;         // events were sent
    int32_t priority;  // of the headers
    bool forwarded;    // by another node, which had no place for it
    // A model that came as the body, stored.
    bool has_source;
    uint64_t source_fresh; // its file, if nobody had brought it before; else 0
    struct digest source;
    const char *content_type; // "" if none
    bool as_form;             // what `curl -d` says, which leaves out line ends
    double upload_ms;
    struct span body; // BODY_BYTES over HTTP: the body, the call's own
    // Tensors that came with the request.
    struct job_input *inputs;
    size_t n_inputs;
    const struct tensor_desc *descs; // as requested, [n_inputs]
    const int64_t *given;            // bytes of each raw input, where the message does not say
    enum { WHOLE_NONE, WHOLE_RAW, WHOLE_GENERATE } whole; // the body is the one input, or names
    struct str whole_body;                                // inputs by its keys: oip_whole.c
    int payload_fd;                                       // -1: payload_bytes
    struct memfd *payload; // whose payload_fd is; NULL: the call's own
    struct span payload_bytes;
    // The answer's tensors, and what else the transport may show.
    struct call_output *outputs;
    size_t n_outputs;
    Hlod__V1__Timing **timings;
    size_t n_timings;
    bool wants_file;   // the transport sends files; else bytes go into the message
    const char *range; // HTTP's, "" if none
    struct call_file file;
    const struct call_sink *sink;
    void *transport;
    // The handler's.
    void *handler, *state;
    void (*on_finished)(struct call *c, bool ok); // optional: it ends now
    void (*on_cancel)(struct call *c);            // NULL: nothing to cancel
    void (*on_free)(struct call *c);              // outputs are no longer needed
    bool finished;
    bool busy, done; // busy: pool work holds the call; done: call_done came meanwhile
    int lent;        // replies under way that read its outputs where they lie (call_lend)
};
void call_init(struct call *c, struct api *api);
// By the headers traceparent and tracestate; NULL or a bad one is none.
void call_trace(struct call *c, const char *parent, const char *state);
// What headers (metadata) say about any request: Hlod-Priority, Hlod-Timeout-Ms, Hlod-Forwarded (it
// is not to be forwarded again), and Hlod-Tenant where --trust-tenant-header lets a caller without
// credentials name it. After api_admit. `get` gives a header's value by its lower-case name, or
// NULL; borrowed. INVALID_ARGUMENT, REASON_BAD_OPTION.
enum { CALL_MAX_PRIORITY = 100 };
status_t call_headers(struct call *c, const char *(*get)(void *ctx, const char *name),
                      void *ctx) MUST_CHECK;
// A priority as requests give it.
status_t call_check_priority(int64_t priority) MUST_CHECK;
void call_event(struct call *c, const Hlod__V1__Event *e);
void call_finish(struct call *c, const ProtobufCMessage *reply, status_t st); // takes st
// The answer of a handler that ends with it; ST_OK.
status_t call_reply(struct call *c, const ProtobufCMessage *reply) MUST_CHECK;
void call_refused(struct call *c, status_t st); // counts a call that is not dispatched; borrows st
void call_fail(struct call *c, status_t st); // ends the call with st, which is taken; OK: nothing
// The request from its bytes; it lives as long as the call. INVALID_ARGUMENT; what would take too
// much of memory is REASON_BODY_TOO_LARGE.
status_t call_unpack(struct call *c, struct span bytes) MUST_CHECK;
// Memory that the request takes as parsed, its tensors aside.
int64_t call_bytes(const struct call *c);
// The request, as the handler of its row knows its type.
static inline void *call_request(const struct call *c) {
    return c->request;
}
// The event that ends a stream; borrows from the call.
void call_done_event(struct call *c, status_t st, Hlod__V1__Event *out);
// The value of a Server-Timing header: appends; nothing where nothing was timed.
void call_server_timing(const struct call *c, struct strbuf *b);
// Has the message outputs that are tensors: RunReply, GetBufferReply?
bool call_has_outputs(const ProtobufCMessageDescriptor *d);
// The call's outputs as raw tensors of such a reply, borrowed from it.
void call_outputs_into(struct call *c, ProtobufCMessage *reply);
// What part of f->total bytes a Range header asks for, if any: f->part, offset, bytes.
// OUT_OF_RANGE, REASON_BAD_RANGE.
status_t call_range(const char *header, struct call_file *f) MUST_CHECK;
void call_cancel(struct call *c); // the client is gone: no finish will come
// Frees the call (from malloc) and what belongs to it; while pool work holds it (busy),
// call_goes_on does that later.
void call_done(struct call *c);
// A transport sends the outputs from where they lie: call_done frees nothing before call_unlend.
void call_lend(struct call *c);
void call_unlend(void *c); // of a struct call
// Holds the call (busy) while work(arg) runs on the pool; then, where that was well and the call
// goes on, then(arg) on the loop. The first error of the two ends the call. ST_OK: it has begun.
status_t call_work(struct call *c, status_t (*work)(void *arg), status_t (*then)(void *arg),
                   void *arg) MUST_CHECK;
// On the loop, after pool work that held the call (busy): true when it goes on. Else it was
// finished meanwhile and is let go, or it is finished with st, which is taken.
bool call_goes_on(struct call *c, status_t st) MUST_CHECK;
