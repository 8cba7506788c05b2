// SPDX-License-Identifier: Apache-2.0
// yaml: a YAML document as a jansson tree, so that what reads it need not know YAML. Plain scalars
// become numbers, booleans and null as in YAML 1.2's core schema, all others strings. Anchors,
// aliases and tags are refused, keys must be strings and may stand once. Thread: any.
#pragma once
#include <jansson.h>

#include "base/span.h"
#include "base/status.h"

// The member of every object that says on which line it begins.
#define YAML_LINE "$line"
// *out is the caller's. INVALID_ARGUMENT names `what`, line and column.
status_t yaml_read(struct span text, const char *what, json_t **out) MUST_CHECK;
