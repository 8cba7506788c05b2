// SPDX-License-Identifier: Apache-2.0
// place: which worker takes a piece of work, as a pure function of what is wanted and how the
// workers stand. Prefers the worker that holds the prepared weights, then the one that holds the
// executable, then the least busy, then the first. Never waits for a warm worker while a cold one
// is free: a load costs milliseconds, a queue may cost more. Thread: any.
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum worker_role { ROLE_COMPILE, ROLE_DEVICE };
struct place_want {
    enum worker_role role;
    const char *device; // kind or name; "" = any; of a compile worker: the kind it compiles for
};
struct place_worker {
    enum worker_role role;
    const char *kind, *name; // of its device
    bool ready;              // up and past its handshake
    bool hopeless;           // gave up restarting
    int32_t calls, max_calls;
    bool has_executable, has_prepared;
};
enum {
    PLACE_WAIT = -1,
    PLACE_NEVER = -2
}; // all able workers are busy or starting · no worker will ever be able
int place_choose(const struct place_want *want, const struct place_worker *w, int n);
bool place_matches(const struct place_want *want,
                   const struct place_worker *w); // role and device fit
