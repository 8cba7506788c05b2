// SPDX-License-Identifier: Apache-2.0
// reserve: address space put aside at the start for the moment when memory runs out, so that who
// asked for too much is refused and the daemon lives. A small allocation that fails anywhere in the
// process, libraries included, and a larger one of base's whose owner cannot be refused
// (arena_free_spare), give the reserve back to the system and are tried again; until it can be put
// aside again the daemon takes no work (api_admit). Not under sanitizers, whose allocator is their
// own. Thread: any.
#pragma once
#include <stdbool.h>
#include <stdint.h>

void reserve_make(void); // once, at start
// Is it there, or can it be made now? False: memory is short.
bool reserve_there(void);
// Bytes that this process may still take, as far as it is told: by its limits (RLIMIT_AS,
// RLIMIT_DATA), its control group's memory.max, the machine's memory.
int64_t reserve_spare_bytes(void);
int64_t reserve_resident_bytes(void); // of the process, in memory
