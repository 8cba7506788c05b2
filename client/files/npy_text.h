// SPDX-License-Identifier: Apache-2.0
// npy_text: texts between NumPy's fixed-width arrays ("<U5": UTF-32, "|S5": bytes; zeros at the end
// do not count) and the form they travel in (4 bytes of length and UTF-8 each), which an array of
// descr NPY_TEXT holds.
#pragma once
#include "client/files/npy.h"

#define NPY_TEXT "text"
// Bytes of an item of "<U5" or "|S5", *wide for the former; -1 = neither.
int64_t npy_text_item(const char *descr, bool *wide);
// x holds items of that width; becomes NPY_TEXT. INVALID_ARGUMENT: not code points; too much.
status_t npy_text_read(struct arena *a, struct npy *x, int64_t item, bool wide) MUST_CHECK;
// NPY_TEXT as a fixed-width array: "<U...", or "|S..." where a text is not UTF-8. INVALID_ARGUMENT
// when the widest would make it more than 4 GiB, or the data is not whole.
status_t npy_text_write(struct arena *a, const struct npy *x, struct npy *out) MUST_CHECK;
