// SPDX-License-Identifier: Apache-2.0
// fault: named fault points, in test builds only (-DHLOD_FAULTS). FAULT("store.put") is true when
// the environment variable HLOD_FAULT names it as "store.put" or "store.put:N" (the N-th time only,
// from 1). Compiles to false otherwise.
#pragma once
#include <stdbool.h>
#ifdef HLOD_FAULTS
bool fault_hit(const char *point);
#define FAULT(point) fault_hit(point)
#else
#define FAULT(point) false
#endif
