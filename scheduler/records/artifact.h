// SPDX-License-Identifier: Apache-2.0
// artifact: what the daemon may know of a compile's outcome without being able to run it: whether
// it is what its record says, and whether two of them are the same but for times. Pure. Thread:
// any.
#pragma once
#include "base/arena.h"
#include "base/span.h"
#include "base/status.h"
#include "proto/hlod.pb-c.h"

// Is this the artefact of `info`: the same compiler build, kernel interface, target and options?
// INVALID_ARGUMENT names what is not.
status_t artifact_check(struct span artifact, const Hlod__V1__ExecutableInfo *info) MUST_CHECK;
// The first part in which they differ ("main", "kernels", ...), times aside; "" for none. In a.
const char *artifact_difference(struct arena *a, struct span x, struct span y);
