// SPDX-License-Identifier: Apache-2.0
#include "scheduler/place.h"

#include <string.h>

bool place_matches(const struct place_want *want, const struct place_worker *w) {
    if (w->role != want->role) return false;
    return !*want->device || !strcmp(want->device, w->kind) || !strcmp(want->device, w->name);
}

int place_choose(const struct place_want *want, const struct place_worker *w, int n) {
    int best = PLACE_NEVER;
    int64_t best_score = -1;
    for (int i = 0; i < n; i++) {
        if (!place_matches(want, &w[i]) || w[i].hopeless) continue;
        if (best == PLACE_NEVER) best = PLACE_WAIT;
        if (!w[i].ready || w[i].calls >= w[i].max_calls) continue;
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
