// SPDX-License-Identifier: Apache-2.0
// api_uploads: uploads in pieces. Each is a file in the store's uploads folder until it is
// finished, and a record in the journal, so that it goes on after a restart. Thread: loop.
#pragma once
#include <stdint.h>

#include "base/status.h"

struct sched;
struct uploads;
struct uploads *uploads_new(void);
// Those that an earlier daemon left open; files of none go.
status_t uploads_load(struct uploads *all, struct sched *s, int64_t keep_ms) MUST_CHECK;
void uploads_free(struct uploads *all); // NULL is fine. Before the loop's end
