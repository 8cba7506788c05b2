// SPDX-License-Identifier: Apache-2.0
// expand: calls of ours as the operations that they stand for, for devices without code of their
// own for them. Thread: any.
#pragma once
#include "compiler/ir/build.h"

// The same value as operations built by b in i's computation, or NULL where i is no such call (or
// trees whose nodes are not constants). Errors: what the call's reader finds wrong. Scratch in a.
status_t call_expand(struct hb *b, struct arena *a, const struct hlo_instr *i, hv *out) MUST_CHECK;
