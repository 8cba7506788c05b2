// SPDX-License-Identifier: Apache-2.0
// api_models: what calls that change names for models share. Thread: loop.
#pragma once
#include "server/call.h"

// The answer of a call that has just changed names (scheduler/records/models.h): sent when the
// journal has them, or the error where it could not be written. `reply` stays the caller's: static
// or c->arena. ST_OK.
status_t api_models_answer(struct call *c, const ProtobufCMessage *reply) MUST_CHECK;
