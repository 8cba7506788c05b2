// SPDX-License-Identifier: Apache-2.0
// string_io: string tensors between the wire (4 bytes of length and the bytes, for each element)
// and a program, which sees places in a table (compiler/strings.h). One string_io for a loaded
// executable that has strings, one table for each run. Thread: the run thread.
#pragma once
#include "compiler/strings.h"
#include "devices/device.h"

struct string_io;
struct string_io *string_io_new(const struct executable *e); // NULL when it has no strings
void string_io_free(struct string_io *x);                    // NULL is fine
// Inputs of strings become places, in the arena; *out is the run's table, to be freed. t[k].data is
// what the wire brought. INVALID_ARGUMENT names the input that is not strings, or damaged.
status_t string_io_begin(const struct string_io *x, struct arena *a, struct dev_tensor *t, int n,
                         struct strings **out) MUST_CHECK;
bool string_io_is_result(const struct string_io *x, int leaf); // x may be NULL
// n places as the wire has their strings, in the arena. RESOURCE_EXHAUSTED beyond 1 GiB.
status_t string_io_result(const struct strings *run, struct arena *a, const int32_t *places,
                          int64_t n, struct span *out) MUST_CHECK;
