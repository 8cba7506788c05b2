// SPDX-License-Identifier: Apache-2.0
// pins: executables that stay, across restarts: the store asks memory, the journal keeps it.
// Blocking. Thread: any; call it on the pool.
#pragma once
#include "base/hash.h"
#include "base/status.h"

struct journal;
struct store;
status_t pins_load(struct store *s, struct journal *j) MUST_CHECK; // at the start
status_t pin_set(struct store *s, struct journal *j, struct digest key, bool pinned) MUST_CHECK;
