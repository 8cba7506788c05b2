// SPDX-License-Identifier: Apache-2.0
// text_io: tensors of text between the wire (4 bytes of length and the text, for each element) and
// a program, which sees places in a table (compiler/texts.h). One text_io for a loaded executable
// that has texts, one table for each run. Thread: the run thread.
#pragma once
#include "compiler/texts.h"
#include "devices/device.h"

struct text_io;
struct text_io *text_io_new(const struct executable *e); // NULL when it has no texts
void text_io_free(struct text_io *x);                    // NULL is fine
// Inputs of text become places, in the arena; *out is the run's table, to be freed. t[k].data is
// what the wire brought. INVALID_ARGUMENT names the input that is not text, or no whole texts.
status_t text_io_begin(const struct text_io *x, struct arena *a, struct dev_tensor *t, int n,
                       struct texts **out) MUST_CHECK;
bool text_io_is_result(const struct text_io *x, int leaf); // x may be NULL
// n places as the wire has their texts, in the arena. RESOURCE_EXHAUSTED beyond 1 GiB.
status_t text_io_texts(const struct texts *run, struct arena *a, const int32_t *places, int64_t n,
                       struct span *out) MUST_CHECK;
