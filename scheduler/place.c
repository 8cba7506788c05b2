// SPDX-License-Identifier: Apache-2.0
#include "scheduler/place.h"

#include <string.h>

bool place_matches(const struct place_want *want, const struct place_worker *w) {
    if (w->role != want->role) return false;
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

int place_choose(const struct place_want *want, const struct place_worker *w, int n) {
    int best = PLACE_NEVER;
    int64_t best_score = -1;
    bool sound = false;
    for (int i = 0; i < n && !sound; i++)
        sound = place_matches(want, &w[i]) && !w[i].hopeless && !w[i].drained;
    for (int i = 0; i < n; i++) {
        if (!place_matches(want, &w[i]) || w[i].hopeless) continue;
        if (want->pinned ? want->pinned != i + 1 : sound && w[i].drained) continue;
        if (!within(&w[i], w[i].alone_bytes)) {
            if (best == PLACE_NEVER) best = PLACE_HUGE;
            continue;
        }
        if (best == PLACE_NEVER || best == PLACE_HUGE) best = PLACE_WAIT;
        if (!w[i].ready || !place_has_room(want, &w[i])) continue;
        if (!within(&w[i], w[i].planned_bytes + w[i].needed_bytes)) {
            if (best == PLACE_WAIT) best = PLACE_MEMORY;
            continue;
        }
        int64_t score = (w[i].has_prepared     ? 2000000
                         : w[i].has_executable ? 1000000
                                               : 0) +
                        999999 - w[i].calls;
        if (score > best_score) {
            best = i;
            best_score = score;
        }
    }
    return best;
}
