// SPDX-License-Identifier: Apache-2.0
// error: a status as the message that clients see: the first line is the message, the others are
// details. Pure. Thread: any.
#pragma once
#include "base/arena.h"
#include "base/status.h"
#include "proto/hlod.pb-c.h"

Hlod__V1__Error *error_of(struct arena *a, status_t st); // in a; st stays the caller's
