// SPDX-License-Identifier: Apache-2.0
#include "base/spin.h"

#include <sched.h>

#include "base/clock.h"

enum {
    TIMES_USUAL = 3,
    TAKEN_NS = 5000,         // a yield with no other thread ready takes less
    OTHER_WORK_NS = 1000000, // the other side of a call needs less; a time slice is more
    REST_MIN_NS = 8000000,
    REST_MAX_NS = 2000000000
};

int64_t spin_until(const struct spin *s, int64_t now_ns) {
    if (s->usual_ns == 0 || s->usual_ns > s->limit_ns || now_ns < s->not_before_ns) return now_ns;
    int64_t ns = TIMES_USUAL * s->usual_ns;
    return now_ns + (ns < s->limit_ns ? ns : s->limit_ns);
}

// One long wait among many brief ones weighs half the limit, no more.
void spin_saw_wait(struct spin *s, int64_t waited_ns) {
    int64_t most = 4 * s->limit_ns, seen = waited_ns < 1 ? 1 : waited_ns < most ? waited_ns : most;
    s->usual_ns = s->usual_ns ? (7 * s->usual_ns + seen) / 8 : seen;
}

// A brief yield may have run what this thread works for: it sleeps now, the processor being awake,
// and looks at the next wait. A long one ran other work: a yield to it costs a time slice.
bool spin_saw_yield(struct spin *s, int64_t now_ns, int64_t took_ns) {
    if (took_ns < TAKEN_NS) return true;
    if (took_ns > OTHER_WORK_NS) {
        int64_t ns = 2 * s->rest_ns;
        s->rest_ns = ns < REST_MIN_NS ? REST_MIN_NS : ns < REST_MAX_NS ? ns : REST_MAX_NS;
        s->not_before_ns = now_ns + s->rest_ns;
    }
    return false;
}

void spin_begin(struct spin *s) {
    if (!s->limit_ns) return;
    s->from_ns = clock_ns();
    s->to_ns = spin_until(s, s->from_ns);
}

bool spin_again(struct spin *s) {
    if (!s->limit_ns || s->to_ns <= s->from_ns) return false;
    int64_t before = clock_ns();
    if (before >= s->to_ns) return false;
    sched_yield();
    int64_t after = clock_ns();
    if (spin_saw_yield(s, after, after - before)) return true;
    s->to_ns = s->from_ns;
    return false;
}

void spin_end(struct spin *s) {
    if (!s->limit_ns) return;
    int64_t now = clock_ns();
    if (now < s->to_ns) s->rest_ns /= 2;
    spin_saw_wait(s, now - s->from_ns);
}
