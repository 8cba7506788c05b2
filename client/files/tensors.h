// SPDX-License-Identifier: Apache-2.0
// tensors: what `hlo run`, `hlo plan` and `hlo buffers` share: tensors described in JSON with their
// bytes behind it, replies of the same form, and the options about resident buffers.
#pragma once
#include "client/cli/hlo.h"
#include "client/files/npy.h"
#include "client/hlod_buffers.h"

// path ends in .npy (one) or .npz
// Does the name say a format that tensors_write has? NULL: nothing is to be written.
status_t tensors_can_write(const char *path) MUST_CHECK;
status_t tensors_write(struct arena *a, const char *path, struct npy *x, int n) MUST_CHECK;
void tensor_print(const struct npy *x);       // a line: name, type, dims, the first numbers
void tensors_print_kept(const json_t *reply); // a line for each output that stays on the device

// --input-handle NAME=HANDLE, --donate NAME=HANDLE, --keep-output NAME|all, --keep-tuple, --lease T
enum { MAX_RESIDENTS = 1024 };
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
void resident_outputs(const struct residents *r, json_t *request); // into the request
bool parse_lease(const char *text, int64_t *out_ms);               // "90s", "10m", "forever"

struct tensors_reply {
    json_t *head;  // the caller's, also on failure
    struct npy *v; // outputs that came with contents
    int n;
    bool printed; // with --json and no file: with all numbers
};
// Calls a unary method with tensors, then r's handles (r may be NULL), behind the request's inputs;
// writes the outputs to `file` unless it is NULL. 0, or an exit code already reported.
// request taken
int tensors_call(struct hlo *h, const char *method, json_t *request, const struct npy *in, int n,
                 const struct residents *r, const char *file, struct tensors_reply *out);
