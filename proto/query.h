// SPDX-License-Identifier: Apache-2.0
// query: parameters of a URL as fields of a request message, by the walk over field descriptors of
// proto/json. Thread: any.
#pragma once
#include <protobuf-c/protobuf-c.h>

#include "base/arena.h"
#include "base/status.h"

// One parameter, as text without escapes, into the request: a field of it, or of its options;
// "shape=x=1x3x224x224", "budget=instructions=N,bytes=SIZE,hbm=SIZE" and "stream" besides. What it
// allocates lies in a. INVALID_ARGUMENT with REASON_BAD_OPTION for what is none.
status_t query_set(struct arena *a, ProtobufCMessage *m, const char *key,
                   const char *value) MUST_CHECK;
