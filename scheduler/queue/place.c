// SPDX-License-Identifier: Apache-2.0
#include "scheduler/queue/place.h"

#include <string.h>

bool place_matches(const struct place_want *want, const struct place_worker *w) {
    if (w->role != want->role) return false;
    if (want->owner && w->owner && strcmp(want->owner, w->owner) != 0) return false;
    if (!*want->device) return !w->asked_only;
    return !strcmp(want->device, w->kind) || !strcmp(want->device, w->name);
}

static bool within(const struct place_worker *w, int64_t bytes) {
    return !w->memory_bytes || bytes <= w->memory_bytes;
}

bool place_has_room(const struct place_want *want, const struct place_worker *w) {
    if (w->calls < (want->alone ? 1 : w->max_calls)) return true;
    return want->expected_ns > 0 && w->calls < PLACE_BRIEF_CALLS &&
           w->expected_ns + want->expected_ns <= PLACE_BRIEF_NS;
}

// The first worker of i's group.
static int first_of(const struct place_worker *w, int i) {
    int k = 0;
    while (w[k].group != w[i].group || w[k].role != w[i].role)
        k++;
    return k;
}
void place_group(struct place_worker *w, int n) {
    for (int i = 0; i < n; i++) {
        struct place_worker *sum = &w[first_of(w, i)];
        if (sum == &w[i]) continue;
        sum->calls += w[i].calls;
        sum->expected_ns += w[i].expected_ns;
        sum->planned_bytes += w[i].planned_bytes;
        if (!sum->memory_bytes) sum->memory_bytes = w[i].memory_bytes;
    }
    for (int i = 0; i < n; i++) {
        const struct place_worker *sum = &w[first_of(w, i)];
        w[i].calls = sum->calls;
        w[i].expected_ns = sum->expected_ns;
        w[i].planned_bytes = sum->planned_bytes;
        w[i].memory_bytes = sum->memory_bytes;
    }
}

bool place_is_mine(const struct place_want *want, const struct place_worker *w) {
    return !want->tenant || (!w->spare && (!*w->tenant || !strcmp(w->tenant, want->tenant)));
}
// Has the tenant one in the group already?
static bool has_own(const struct place_want *want, const struct place_worker *w, int n, int group) {
    for (int i = 0; i < n; i++)
        if (w[i].role == want->role && w[i].group == group && !strcmp(w[i].tenant, want->tenant))
            return true;
    return false;
}
// What could become the tenant's: the higher the better, -1 = not this one.
static int64_t could_be_mine(const struct place_want *want, const struct place_worker *w, int n,
                             int i) {
    if (want->pinned || !place_has_room(want, &w[i]) || has_own(want, w, n, w[i].group)) return -1;
    if (w[i].spare) return INT64_MAX;
    return w[i].idle && w[i].ready ? INT64_MAX - 1 - w[i].used : -1;
}

bool place_is_brief(const struct place_want *want) {
    if (!want->relief_ns || want->pinned) return false;
    if (want->role == ROLE_COMPILE) return !want->moved;
    return want->expected_ns > 0 && want->expected_ns <= want->relief_ns;
}
// One that runs, or could be started, and has the memory.
static bool relieves(const struct place_want *want, const struct place_worker *w) {
    return w->relief && place_matches(want, w) && !w->hopeless && !w->drained &&
           within(w, w->planned_bytes + w->needed_bytes);
}
static bool has_relief(const struct place_want *want, const struct place_worker *w, int n) {
    bool found = false;
    for (int i = 0; i < n && !found; i++)
        found = relieves(want, &w[i]);
    return found && place_is_brief(want);
}
// Is no other worker ready and not held?
static bool needs_relief(const struct place_want *want, const struct place_worker *w, int n) {
    for (int i = 0; i < n; i++)
        if (!w[i].relief && place_matches(want, &w[i]) && w[i].ready && !w[i].held) return false;
    return true;
}
int place_relief(const struct place_want *want, const struct place_worker *w, int n) {
    int spare = -1, stuck = -1;
    if (!place_is_brief(want)) return -1;
    for (int i = 0; i < n; i++) {
        if (!place_matches(want, &w[i]) || w[i].hopeless) continue;
        if (!w[i].spare && !w[i].stuck) return -1;
        if (!relieves(want, &w[i])) continue;
        *(w[i].spare ? &spare : &stuck) = i;
    }
    return spare < 0 && want->role == ROLE_COMPILE ? stuck : spare;
}
// May this worker take it at all, busy or not?
static bool eligible(const struct place_want *want, const struct place_worker *w, bool sound,
                     bool relief, int at) {
    if (!place_matches(want, w) || w->hopeless) return false;
    if (want->pinned) return want->pinned == at + 1;
    if (w->relief && (w->spare || !relief)) return false;
    return !(sound && w->drained);
}

int place_choose(const struct place_want *want, const struct place_worker *w, int n) {
    int best = PLACE_NEVER, other = -1;
    int64_t other_score = -1;
    int64_t best_score = INT64_MIN;
    bool sound = false, relief = has_relief(want, w, n);
    bool alone = relief && needs_relief(want, w, n);
    for (int i = 0; i < n && !sound; i++)
        sound = place_matches(want, &w[i]) && !w[i].relief && !w[i].hopeless && !w[i].drained;

    for (int i = 0; i < n; i++) {
        if (!eligible(want, &w[i], sound, alone, i)) continue;
        if (!within(&w[i], w[i].alone_bytes)) {
            if (best == PLACE_NEVER) best = PLACE_TOO_LARGE;
            continue;
        }
        if (best == PLACE_NEVER || best == PLACE_TOO_LARGE) best = PLACE_WAIT;
        if (!place_is_mine(want, &w[i])) {
            int64_t score = could_be_mine(want, w, n, i);
            if (score > other_score) other = i, other_score = score;
            continue;
        }
        // Without a tenant, while this tenant has a busy one: it waits for that.
        if (want->tenant && !*w[i].tenant && has_own(want, w, n, w[i].group)) continue;
        if (!w[i].ready || !place_has_room(want, &w[i])) continue;
        if (relief && w[i].held) continue; // it is relieved, or free again, before long
        if (!within(&w[i], w[i].planned_bytes + w[i].needed_bytes)) {
            if (best == PLACE_WAIT) best = PLACE_MEMORY;
            continue;
        }

        int64_t score = (w[i].has_prepared     ? 2000000
                         : w[i].has_executable ? 1000000
                                               : 0) +
                        999999 - w[i].calls - (w[i].held ? 4000000 : 0);
        if (score > best_score) {
            best = i;
            best_score = score;
        }
    }
    return best == PLACE_WAIT && other >= 0 ? other : best;
}
