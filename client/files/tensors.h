// SPDX-License-Identifier: Apache-2.0
// tensors: what `hlo run`, `hlo plan` and `hlo buffers` share: tensors described in JSON with their
// bytes behind it, replies of the same form, and the options about resident buffers.
#pragma once
#include "client/cli/hlo.h"
#include "client/files/npy.h"

json_t *tensor_describe(const struct npy *x); // as an input whose bytes follow
// POSTs head (taken) with the bytes of in[n] behind it; the reply in the same form, or as JSON with
// the tensors' numbers in it.
enum reply_form { REPLY_BYTES, REPLY_JSON };
status_t tensors_send(struct hlo *h, const char *path, json_t *head, const struct npy *in, int n,
                      enum reply_form form, struct http_reply *out) MUST_CHECK;
// With --json the numbers stand in the reply, unless they go to a file (out).
enum reply_form reply_form(const struct hlo *h, const char *out);
int64_t reply_print(const struct http_reply *reply); // a line of JSON as it came; gives its job
// A successful reply's JSON (also on failure, where it could be read; the caller's) and its outputs
// that came with contents.
status_t tensors_read(struct arena *a, const struct http_reply *reply, json_t **out_head,
                      struct npy **out, int *out_n) MUST_CHECK;
// path ends in .npy (one) or .npz
// Does the name say a format that tensors_write has? NULL: nothing is to be written.
status_t tensors_can_write(const char *path) MUST_CHECK;
status_t tensors_write(struct arena *a, const char *path, struct npy *x, int n) MUST_CHECK;
void tensor_print(const struct npy *x);       // a line: name, type, dims, the first numbers
void tensors_print_kept(const json_t *reply); // a line for each output that stays on the device

// --input-handle NAME=HANDLE, --donate NAME=HANDLE, --keep-output NAME|all, --keep-tuple, --lease T
enum { MAX_RESIDENTS = 64 };
struct resident {
    const char *name, *handle;
    bool donate;
};
struct residents {
    struct resident in[MAX_RESIDENTS];
    const char *keep[MAX_RESIDENTS];
    int n_in, n_keep;
    bool tuple;
    int64_t lease_ms;
};
status_t resident_option(struct hlo *h, int *k, struct residents *r, bool *out_taken) MUST_CHECK;
json_t *resident_input(const struct residents *r, int k);
void resident_outputs(const struct residents *r, json_t *request); // into the request
bool parse_lease(const char *text, int64_t *out_ms);               // "90s", "10m", "forever"
