// SPDX-License-Identifier: Apache-2.0
// Thin over clock_gettime.
#include "base/clock.h"

#include <stdio.h>

static int64_t now(clockid_t id) {
    struct timespec t;
    clock_gettime(id, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
int64_t clock_ns(void) {
    return now(CLOCK_MONOTONIC);
}
struct timespec clock_after(int64_t ns) {
    int64_t at = clock_ns() + ns;
    return (struct timespec){.tv_sec = at / 1000000000, .tv_nsec = at % 1000000000};
}
int64_t clock_wall_ns(void) {
    return now(CLOCK_REALTIME);
}
void clock_wall_text(int64_t wall_ns, char out[32]) {
    time_t s = (time_t)(wall_ns / 1000000000);
    struct tm tm;
    gmtime_r(&s, &tm);
    size_t n = strftime(out, 32, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(out + n, 32 - n, ".%03dZ", (int)(wall_ns / 1000000 % 1000));
}
