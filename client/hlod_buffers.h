// SPDX-License-Identifier: Apache-2.0
// hlod_buffers.h: values that stay in a device's memory between runs, and plans: several
// executables in one request (docs/buffers.md). A buffer is known by its handle, a text; it ends
// when it is freed or donated, when it was not used for its lease, or with the worker that holds
// it (UNAVAILABLE, reason BUFFER_LOST: put it again). What a call gives is ended by its _free.
// Thread: as the connection.
//
//     struct hlod_outputs *r;
//     struct hlod_buffers *b;
//     struct hlod_resident_options o = HLOD_RESIDENT_OPTIONS;
//     const char *all[] = {"*"};
//     o.keep = all, o.n_keep = 1;
//     hlod_buffer_put(h, &state, 1, NULL, &b);
//     struct hlod_input in = {.handle = b->buffers[0].handle, .donate = true};
//     hlod_run_resident(h, digest, &in, 1, &o, &r); // r->outputs[0].handle: the next state
#pragma once
#include "hlod.h"

#if defined(__cplusplus)
extern "C" {
#endif

struct hlod_buffer {
    const char *handle, *name, *device, *state; // state: ready, busy, lost
    const char *dtype;                          // "" for a tuple
    int32_t rank;
    const int64_t *dims;
    int64_t bytes, lease_ms, left_ms; // -1 = no end
    bool tuple;                       // elements are HANDLE.0, HANDLE.1, ...
    size_t n_elements;
};
struct hlod_buffers {
    const struct hlod_buffer *buffers;
    size_t n_buffers;
};
struct hlod_put_options { // begin with HLOD_PUT_OPTIONS
    size_t size;          // sizeof this struct
    const char *device;   // NULL = the first
    int64_t lease_ms;     // 0 = the server's, -1 = none
    bool tuple;           // one handle for all
};
#define HLOD_PUT_OPTIONS {.size = sizeof(struct hlod_put_options)}
// o       NULL = defaults
// out     in the order of in, or the tuple; caller frees with hlod_buffers_free
// errors  RESOURCE_EXHAUSTED quota (BUFFER_QUOTA) or device memory
HLOD_API enum hlod_code hlod_buffer_put(struct hlod *h, const struct hlod_tensor *in, size_t n_in,
                                        const struct hlod_put_options *o,
                                        struct hlod_buffers **out);
HLOD_API enum hlod_code hlod_buffer_list(struct hlod *h, struct hlod_buffers **out);
// lease_ms as above. out: one
HLOD_API enum hlod_code hlod_buffer_tuple(struct hlod *h, const char *const *handles, size_t n,
                                          int64_t lease_ms, struct hlod_buffers **out);
HLOD_API void hlod_buffers_free(struct hlod_buffers *b);                      // NULL is fine
HLOD_API enum hlod_code hlod_buffer_free(struct hlod *h, const char *handle); // NOT_FOUND
HLOD_API enum hlod_code hlod_buffer_renew(struct hlod *h, const char *handle, int64_t lease_ms);

struct hlod_output {
    struct hlod_tensor tensor; // data NULL where it stays on the device
    const char *handle;        // then; else NULL
};
struct hlod_outputs {
    const struct hlod_output *outputs;
    size_t n_outputs;
    const char *tuple;  // of all that stays, with keep_tuple; or NULL
    const char *device; // "" for hlod_buffer_get
};
HLOD_API void hlod_outputs_free(struct hlod_outputs *o); // NULL is fine
// The contents of a buffer, or of each element of a tuple.
// errors  NOT_FOUND, FAILED_PRECONDITION donated, UNAVAILABLE lost
HLOD_API enum hlod_code hlod_buffer_get(struct hlod *h, const char *handle,
                                        struct hlod_outputs **out);

struct hlod_input {            // one or the other
    struct hlod_tensor tensor; // handle NULL
    const char *handle;        // of tensor only the name counts then
    bool donate;               // its memory may be reused: after success the handle is dead
};
struct hlod_resident_options { // begin with HLOD_RESIDENT_OPTIONS
    size_t size;               // sizeof this struct
    const char *device;        // NULL = where the buffers are, or any
    const char *const *keep;   // names of outputs that stay; "*" = all
    size_t n_keep;
    bool keep_tuple;
    int64_t lease_ms;
    uint32_t timeout_ms; // 0 = the server's default
};
#define HLOD_RESIDENT_OPTIONS {.size = sizeof(struct hlod_resident_options)}
// A run with resident buffers among its inputs and outputs; as hlod_run.
HLOD_API enum hlod_code hlod_run_resident(struct hlod *h, const char *digest,
                                          const struct hlod_input *in, size_t n_in,
                                          const struct hlod_resident_options *o,
                                          struct hlod_outputs **out);
// hlod_call_json (hlod_admin.h) of a unary method whose messages have tensors: RunUnary,
// RunPlanUnary, PutBuffer, GetBuffer, with all that their messages may say (proto/hlod.proto).
// in      [n_in] follow those of the request's `inputs`; borrowed, over HTTP sent without a copy
// json    the reply, caller frees with hlod_text_free; NULL = not wanted. Its outputs have no
//         contents where `out` is given; else each has them as one flat list, `data`
// out     the reply's outputs, caller frees with hlod_outputs_free; NULL = not wanted
// errors  UNIMPLEMENTED no unary method of that name; INVALID_ARGUMENT, reason BAD_JSON, names the
//         field; those of the method. After an error nothing is set
HLOD_API enum hlod_code hlod_call_tensors(struct hlod *h, const char *method, const char *request,
                                          const struct hlod_input *in, size_t n_in, char **json,
                                          struct hlod_outputs **out);
// A plan. json: steps, outputs and options as POST /v1/plan takes them, without the inputs'
// contents; in: the inputs, which have names.
// errors  INVALID_ARGUMENT, reason BAD_PLAN: the message names the step and the input
HLOD_API enum hlod_code hlod_plan(struct hlod *h, const char *json, const struct hlod_input *in,
                                  size_t n_in, struct hlod_outputs **out);

#if defined(__cplusplus)
}
#endif
