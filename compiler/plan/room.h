// SPDX-License-Identifier: Apache-2.0
// room: where in an arena there is room for a buffer while it lives. Places that were given out are
// kept by the steps during which they are taken, so that each question costs about as much as the
// pieces in which memory is taken then, not as there are buffers.
#pragma once
#include <stdint.h>

#include "base/arena.h"

struct room;
struct room *room_new(struct arena *a, int steps); // steps 0..steps-1
// The lowest offset from which `size` bytes are free during the steps first..last; they are taken
// then.
int64_t room_take(struct room *r, int first, int last, int64_t size);
