// SPDX-License-Identifier: Apache-2.0
// strings: what stands for strings in programs (docs/decisions/0008). HLO has no type for strings
// and devices have none: an element of a string tensor is an s32, the place of its string in a
// table. Equal strings have equal places, so operators that move or compare elements are those of
// numbers; only what looks inside a string (custom-calls hlod.text.*, compiler/ops/string/string.c)
// needs the table. The program's own strings come first and are part of it; a run adds those of its
// inputs and those that it makes, in a table of its own that ends with it. Place 0 is the empty
// string, so that what is filled with zeros is filled with empty strings. Thread: one at a time per
// table; a table that others are built on must not change.
#pragma once
#include "base/status.h"
#include "base/str.h"
#include "compiler/ir/module.h"

struct strings;
// base: table to build on, borrowed, or NULL. max_bytes: of strings added here, 0 = 256 MiB.
struct strings *strings_new(const struct strings *base, int64_t max_bytes);
void strings_free(struct strings *t); // NULL is fine
// The place of s, which is added if it is new (copied). RESOURCE_EXHAUSTED beyond the budget.
status_t strings_add(struct strings *t, struct str s, int32_t *out_place) MUST_CHECK;
struct str strings_get(const struct strings *t, int32_t place); // "" for a place that there is not
int32_t strings_count(const struct strings *t);

// Which inputs and results of a module are strings, and its table. The module carries it in
// frontend_attributes={hlod_text="INPUTS;RESULTS;TEXTS"}: input numbers, leaves of the root,
// strings in percent form.
struct string_layout {
    struct strings *table; // owned by whoever asked
    bool *in, *out;        // [n_in] inputs, [n_out] leaves of the root
    int n_in, n_out;
};
void strings_to_module(struct hlo_module *m, const struct string_layout *l);
// False when the module has no strings. Places named on tensors that are not s32 are left out.
bool strings_of_module(struct arena *a, const struct hlo_module *m, struct string_layout *out);
