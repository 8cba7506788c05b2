// SPDX-License-Identifier: Apache-2.0
// tuning: what was measured of an executable (hlod.v1.Tuning), in the store under the executable's
// key. It is a record of its own, so that it outlives the executable: one that is compiled again is
// the same. It names the target, what the executable did and the device's implementations; a record
// that does not hold, or is damaged, is left aside and counted, and the executable runs as it would
// without. Blocking: call it on the pool, or where a small file may be read.
#pragma once
#include "base/store/store.h"
#include "proto/hlod.pb-c.h"

// Replaces an older one. Of more than some thousand records the oldest go.
status_t tuning_keep(struct store *s, struct digest key, const Hlod__V1__Tuning *t) MUST_CHECK;
// NULL: there is none for x that holds. Freed by its free_unpacked.
Hlod__V1__Tuning *tuning_read(struct store *s, struct digest key,
                              const Hlod__V1__ExecutableInfo *x);
bool tuning_holds(const Hlod__V1__Tuning *t, const Hlod__V1__ExecutableInfo *x);
