// SPDX-License-Identifier: Apache-2.0
// recent: what the scheduler did last, for people who look (GET /v1/runs): one packed RunRecord a
// job in a ring of fixed length, so that nothing grows with time. Jobs that compiled or were
// profiled have a ring of their own: thousands of plain runs a second must not wash them out; since
// profiles may be large it is bounded in bytes too. Lost with the process. Thread: loop.
#pragma once
#include "base/span.h"
#include "proto/hlod.pb-c.h"

struct recent;
struct recent *recent_new(void); // NULL: no memory
void recent_free(struct recent *r);
// Copies m. Jobs come in any order; an older one of the same ring goes.
void recent_add(struct recent *r, const Hlod__V1__RunRecord *m, bool keep_long);
// The newest first, packed; at most `limit`. Returns how many; out[k] is borrowed until the next
// recent_add.
size_t recent_list(const struct recent *r, size_t limit, struct span *out);
struct span recent_find(const struct recent *r, uint64_t job); // .p NULL: not there
