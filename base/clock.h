// SPDX-License-Identifier: Apache-2.0
// clock: monotonic nanoseconds inside, milliseconds at the edge; wall time only for people.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "base/span.h"
#define CLOCK_MS INT64_C(1000000)        // a millisecond in ns
int64_t clock_ns(void);                  // CLOCK_MONOTONIC
struct timespec clock_after(int64_t ns); // CLOCK_MONOTONIC, for pthread_cond_clockwait
int64_t clock_of_ms(double ms);          // in ns, 0 to 10^16 (115 days); NaN is 0
int64_t clock_ms_left(int64_t until_ns); // whole ms from now, rounded up; 0 when it is past
double clock_ms(int64_t ns);             // of a length of time, for people
double clock_ms_since(int64_t start_ns);
int64_t clock_wall_ns(void);             // CLOCK_REALTIME
void clock_wall_text(int64_t wall_ns, char out[32]); // 2026-01-31T12:00:00.123Z
// RFC 3339: 2026-01-31T12:00:00Z, .123 and +01:00 as well; a date alone is its first moment in UTC.
// False for anything else, also for a day that is not in the calendar.
bool clock_wall_read(struct str text, int64_t *out_wall_ns);
