// SPDX-License-Identifier: Apache-2.0
// aside: work whose end was its worker's end is noted, and refused for a time (workers/blame.h).
// Thread: loop.
#pragma once
#include "base/hash.h"
#include "base/status.h"

struct charge;
struct sched;
struct tenant;
struct worker;
// Is this work of the tenant put aside, since it ended its workers (blame.h)? FAILED_PRECONDITION,
// REASON_PUT_ASIDE, with the time left. step: as in struct charge.
status_t sched_aside(const struct sched *s, const struct tenant *t, const char *step,
                     struct digest work) MUST_CHECK;
// What the call, just made, is for.
void sched_charge(struct worker *w, uint64_t call, const struct tenant *t, const char *step,
                  struct digest work);
void sched_blame(void *s, const struct charge *of, const char *why); // pool_config.on_fault
