// SPDX-License-Identifier: Apache-2.0
// pjrt_events: work that a plugin has begun and not ended: transfers, executions. All of it is
// begun before any is waited for, and who waits may give up. Thread: one at a time; the plugin's
// threads only wake the waiter.
#pragma once
#include <stdint.h>

#include "base/vec.h"
#include "devices/pjrt/pjrt_abi_run.h"
#include "devices/pjrt/pjrt_load.h"

struct pj_event {
    void *handle;
    const char *what; // for the error: "input", static
    size_t number;
};
struct pj_pending { // begins zeroed; empty once waited for
    VEC(struct pj_event) events;
};
// Takes the event; NULL is work that is over.
void pj_pending_add(struct pj_pending *w, void *event, const char *what, size_t number);
// Until all of it is over: the first one's error, each that has another behind it, in the plugin's
// words. CANCELLED once *cancel is set (NULL: never): then the work goes on, and `w` still has it.
status_t pj_pending_wait(const struct pj_plugin *p, struct pj_pending *w,
                         const _Atomic bool *cancel) MUST_CHECK;
// Is all of it over? Does not wait. What ended is let go, its errors too.
bool pj_pending_over(const struct pj_plugin *p, struct pj_pending *w);
// Moves what is under way from one to the other.
void pj_pending_move(struct pj_pending *to, struct pj_pending *from);
