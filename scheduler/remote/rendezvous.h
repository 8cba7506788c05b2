// SPDX-License-Identifier: Apache-2.0
// rendezvous: which of several nodes has to do with a key, so that all who know the same nodes say
// the same, and a node that comes or goes moves only its own share of the keys (highest random
// weight: Thaler and Ravishankar, IEEE/ACM Transactions on Networking 6(1), 1998). Pure. Thread:
// any.
#pragma once
#include "base/hash.h"

enum { RENDEZVOUS_MAX = 256 }; // nodes; more are not looked at
// The best `most` of n nodes for a key, best first, by their names: indices. How many there are.
size_t rendezvous(struct digest key, const char *const *nodes, size_t n, size_t *out, size_t most);
