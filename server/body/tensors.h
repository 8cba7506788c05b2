// SPDX-License-Identifier: Apache-2.0
// tensors: the inputs of a run request on their way from a body to the payload that goes to a
// worker: checked against their shapes, laid out at 64-byte aligned offsets, in one memfd (or, up
// to 64 KiB in all, in memory). Three sources: numbers in JSON, raw bytes after the JSON as they
// arrive, bytes inside a protobuf message. Thread: one call at a time; tensors_json may run on the
// pool.
#pragma once
#include "server/call.h"

struct tensors_limits {
    int64_t max_bytes; // of the payload
};
struct tensor_desc { // an input as its request describes it
    const char *name, *type;
    const int64_t *dims;
    size_t rank;
    int64_t given;      // bytes it came with, -1 = not said; strings in JSON: what they will take
    bool in_json;       // its data stands in the JSON, though others follow it in bytes
    bool elsewhere;     // neither here nor there: shared memory
    const char *handle; // a resident buffer instead of contents; NULL or ""
    bool donate;
};
// Has the message inputs that are tensors: RunRequest, RunPlanRequest, PutBufferRequest?
bool tensors_in(const ProtobufCMessageDescriptor *d);
Hlod__V1__Tensor **tensors_of(const ProtobufCMessage *m, size_t *out_n); // then: they
// In the call's arena; sets c->n_inputs. By request type.
struct tensor_desc *tensors_of_run(struct call *c, int from);
status_t tensors_of_infer(struct call *c, int from,
                          struct tensor_desc **out) MUST_CHECK; // oip_request.c
// Bytes into the payload, after tensors_layout.
status_t tensors_put(struct call *c, int64_t offset, const void *p, size_t n) MUST_CHECK;
int64_t tensors_bytes(const struct call *c); // of the payload

// Cuts the `data` values of inputs out of a request's JSON: spans into text, one an input (empty
// where there was none); `reduced` is the rest, a document json_parse reads. False: not of this
// form; parse the whole text to learn why.
struct tensors_spans {
    struct str *v;
    size_t n, cap;
};
bool tensors_split(struct str text, struct strbuf *reduced, struct tensors_spans *out);

// Takes the next member off the inside of a JSON object (`*rest` from behind its brace). The key as
// written, the value's text. False at the end, or where it is no JSON: then *rest is not empty.
bool tensors_member(struct str *rest, struct str *key, struct str *value);

// Checks names, types and shapes of the request's inputs, fills c->inputs, makes the payload.
// json: the data values of a JSON request, or NULL. `from` says where the bytes come from: sizes
// given there must fit the shapes.
status_t tensors_layout(struct call *c, const struct tensors_limits *l, int from,
                        const struct tensors_spans *json) MUST_CHECK;
enum { TENSORS_JSON, TENSORS_BINARY, TENSORS_RAW };

// The JSON in front of raw tensors: c->request, c->inputs, payload, and data that stands in it.
status_t tensors_head(struct call *c, const struct tensors_limits *l, struct str text) MUST_CHECK;
// A whole JSON body: c->request, c->inputs, payload.
status_t tensors_json(struct call *c, const struct tensors_limits *l, struct str text) MUST_CHECK;
// Inputs that came in the message's raw fields.
status_t tensors_raw(struct call *c, const struct tensors_limits *l) MUST_CHECK;
// Binary: bytes in the order of the inputs, any pieces. tensors_binary_left: bytes still to come.
struct tensors_binary {
    size_t input;
    int64_t done; // of this input
};
status_t tensors_binary_add(struct call *c, struct tensors_binary *b, const void *p,
                            size_t n) MUST_CHECK;
int64_t tensors_binary_left(const struct call *c, const struct tensors_binary *b);
