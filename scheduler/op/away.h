// SPDX-License-Identifier: Apache-2.0
// away: a run that has no place here is done by another node of the cluster (cluster/forward.h):
// what was asked for goes there as it came, what it tells becomes this job's events and result. It
// may leave once, and never from where it was forwarded to. Thread: loop.
#pragma once
#include "base/status.h"

struct away;
struct job;
// The job, a RUN that may leave, ends with st: is that for want of a place, and is there a node
// that has one? Then it is sent there, and ends later: with what that node says, or with st, of
// which a copy is taken, where none does it. NULL: no.
struct away *away_start(struct job *j, status_t st);
void away_detach(struct job *j); // a RUN has ended: leaves its batch, too
