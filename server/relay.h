// SPDX-License-Identifier: Apache-2.0
// relay: calls about what lies on one node of a cluster: resident buffers and uploads in pieces.
// Their handles begin with the name of that node ("gpu-3:b0123..."), so any node takes such a call
// and has that one answer it (docs/decisions/0051). Once, and with the caller's tenant: whose they
// are the other node says. Needs the nodes' secret; without it handles name no node. Thread: loop.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "proto/hlod.pb-c.h"

struct call;
struct relay_counts {
    int64_t ok, failed, away; // away: the node was not there
};
// Does the call name what another node has? Then *out_away: it is sent there, and ends with what
// that one answers.
// errors  FAILED_PRECONDITION: several nodes; UNAVAILABLE: that one is lost, or not heard yet
status_t relay_start(struct call *c, bool *out_away) MUST_CHECK;
// Answers with the tenant's buffers, `own` of this node, and those of all others.
status_t relay_list(struct call *c, Hlod__V1__ListBuffersReply *own) MUST_CHECK;
// What lies here under `local`, as clients know it. In c->arena.
char *relay_handle(struct call *c, const char *local);
