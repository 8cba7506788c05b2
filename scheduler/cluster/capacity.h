// SPDX-License-Identifier: Apache-2.0
// capacity: what this daemon serves and how much room it has, as it tells others. Thread: loop.
#pragma once
#include "base/arena.h"
#include "proto/hlod.pb-c.h"

struct pool;
struct sched;
// The targets of its devices, in a: one each, of every device worker that has said hello.
Hlod__V1__PeerTarget **capacity_targets(struct pool *p, struct arena *a, size_t *out_n);
// Targets without repeats, devices, places, jobs, queue.
void capacity_describe(struct sched *s, struct arena *a, Hlod__V1__Node *out);
