// SPDX-License-Identifier: Apache-2.0
// When the owner of the pool works alone, by times that the caller gives: no clock is read here.
#include "devices/cpu/cpu_pool.h"

enum {
    WINDOW_NS = 4000000, // of regions, before a verdict
    LEAST_NS = 20000000, // alone, the first time
    MOST_NS = 1000000000
};

bool cpu_pace_alone(const struct cpu_pace *p, int64_t now) {
    return now < p->alone_until_ns;
}

void cpu_pace_saw(struct cpu_pace *p, int64_t now, int mine, int others, int64_t own_ns,
                  int64_t waited_ns) {
    if (mine < 1) return; // its own speed is not known
    p->saved_ns += own_ns * others / mine;
    p->own_ns += own_ns;
    p->waited_ns += waited_ns;
    if (p->own_ns + p->waited_ns < WINDOW_NS) return;
    bool bad = p->waited_ns > p->saved_ns + p->saved_ns / 4;
    if (bad && !p->rest_ns && !p->doubt) {
        p->doubt = true; // once is chance
    } else if (bad) {
        int64_t rest = p->rest_ns * 2;
        p->rest_ns = rest < LEAST_NS ? LEAST_NS : rest > MOST_NS ? MOST_NS : rest;
        p->alone_until_ns = now + p->rest_ns;
    } else {
        p->doubt = false;
        p->rest_ns = p->rest_ns > LEAST_NS ? p->rest_ns / 2 : 0;
    }
    p->saved_ns = p->own_ns = p->waited_ns = 0;
}
