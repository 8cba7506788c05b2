// SPDX-License-Identifier: Apache-2.0
// How long a thread that has nothing to do looks for more before it sleeps. Waking a sleeping
// processor takes some 25 us, as much as a small run; looking costs a processor that may have other
// work (docs/decisions/0013). So a thread looks where what it waits for has come soon of late, a
// few times as long as that took; between two looks it yields, and where that shows the processor
// to be wanted for long, it sleeps at once for a while, longer each time.
// Belongs to one thread.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct spin {
    int64_t limit_ns;       // the longest look; 0: never
    int64_t usual_ns;       // how long a wait takes, recent ones weighing more; 0: not known yet
    int64_t not_before_ns;  // clock_ns
    int64_t rest_ns;        // the last rest; halved by each look that found something
    int64_t from_ns, to_ns; // of the wait that was begun: looking ends at to_ns
};

void spin_begin(struct spin *s); // what comes next is a wait
bool spin_again(struct spin *s); // yields; true: look, false: sleep
void spin_end(struct spin *s);   // it came
// The rule, of times that the caller gives; the above call these.
int64_t spin_until(const struct spin *s, int64_t now_ns);
void spin_saw_wait(struct spin *s, int64_t waited_ns);                // from spin_begin to spin_end
bool spin_saw_yield(struct spin *s, int64_t now_ns, int64_t took_ns); // true: go on looking
