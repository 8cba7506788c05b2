// SPDX-License-Identifier: Apache-2.0
// texts: what stands for strings in programs (docs/decisions/0008). HLO has no type for text and
// devices have none: an element of a tensor of text is an s32, the place of its text in a table.
// Equal texts have equal places, so operators that move or compare elements are those of numbers;
// only what looks inside a text (custom-calls hlod.text.*, compiler/ops/text/text.c) needs the
// table. The program's own texts come first and are part of it; a run adds those of its inputs and
// those that it makes, in a table of its own that ends with it. Place 0 is the empty text, so that
// what is filled with zeros is filled with empty texts. Thread: one at a time per table; a table
// that others are built on must not change.
#pragma once
#include "base/status.h"
#include "base/str.h"
#include "compiler/ir/module.h"

struct texts;
// base: table to build on, borrowed, or NULL. max_bytes: of texts added here, 0 = 256 MiB.
struct texts *texts_new(const struct texts *base, int64_t max_bytes);
void texts_free(struct texts *t); // NULL is fine
// The place of s, which is added if it is new (copied). RESOURCE_EXHAUSTED beyond the budget.
status_t texts_add(struct texts *t, struct str s, int32_t *out_place) MUST_CHECK;
struct str texts_get(const struct texts *t, int32_t place); // "" for a place that there is not
int32_t texts_count(const struct texts *t);

// Which inputs and results of a module are text, and its table. The module carries it in
// frontend_attributes={hlod_text="INPUTS;RESULTS;TEXTS"}: input numbers, leaves of the root, texts
// in percent form.
struct text_layout {
    struct texts *table; // owned by whoever asked
    bool *in, *out;      // [n_in] inputs, [n_out] leaves of the root
    int n_in, n_out;
};
void texts_to_module(struct hlo_module *m, const struct text_layout *l);
// False when the module has no texts. Places named on tensors that are not s32 are left out.
bool texts_of_module(struct arena *a, const struct hlo_module *m, struct text_layout *out);
