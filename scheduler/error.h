// SPDX-License-Identifier: Apache-2.0
// error: a status as the message that clients see: the first line is the message, the others are
// details. Thread: any.
#pragma once
#include "base/arena.h"
#include "base/status.h"
#include "proto/hlod.pb-c.h"

// What writing to the data folder gave: where there is no room it gets REASON_STORE_FULL, and the
// log says so, at most every ten seconds.
status_t error_of_store(status_t st) MUST_CHECK;
Hlod__V1__Error *error_of(struct arena *a, status_t st); // in a; st stays the caller's
// Such a message of another server as a status, with `from: ` before its text. Never OK.
status_t error_from(const Hlod__V1__Error *e, const char *from) MUST_CHECK;
unsigned error_http_code(status_t st);                   // 200 for NULL
