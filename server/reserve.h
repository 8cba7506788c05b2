// SPDX-License-Identifier: Apache-2.0
// reserve: address space put aside at the start for the moment when memory runs out, so that who
// asked for too much is refused and the daemon lives. A small allocation that fails anywhere in the
// process, libraries included, gives the reserve back to the system and is tried again; until it
// can be put aside again the daemon takes no work (api_admit). Not under sanitizers, whose
// allocator is their own. Thread: any.
#pragma once
#include <stdbool.h>

void reserve_make(void); // once, at start
// Is it there, or can it be made now? False: memory is short.
bool reserve_there(void);
