// SPDX-License-Identifier: Apache-2.0
// grpc_trailer: metadata of ours in front of the first message, and the status that ends a call, as
// the library's operations want them. Thread: loop.
#pragma once
#include <stdbool.h>

#include <grpc/grpc.h>

#include "base/arena.h"
#include "base/status.h"

struct trailer { // zero-initialise
    grpc_metadata v[3];
    size_t n;
    grpc_slice text; // of a status
};
void trailer_add(struct trailer *t, const char *key, const char *value); // key: a literal
// Also into *op, which borrows of t. key and value: one more, where there is a value.
void trailer_status(struct trailer *t, status_t st, const char *key, const char *value,
                    grpc_op *op);
void trailer_done(struct trailer *t); // after the operation was started

// Of a call's head: the first value of that name, in a; NULL: it is not there.
const char *metadata_find(const grpc_metadata_array *head, struct arena *a, const char *name);
// Whether all who read it take it alike: it is there at most once, without a NUL.
bool metadata_clear(const grpc_metadata_array *head, const char *name);
