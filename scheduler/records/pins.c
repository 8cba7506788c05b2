// SPDX-License-Identifier: Apache-2.0
#include "scheduler/records/pins.h"

#include "base/clock.h"
#include "base/store/store.h"
#include "scheduler/records/journal.h"

static void load_one(void *ctx, struct digest key, UNUSED struct span record) {
    store_pin(ctx, STORE_EXECUTABLE, key, true);
}
status_t pins_load(struct store *s, struct journal *j) {
    return journal_list(j, JOURNAL_PIN, -1, load_one, s);
}

status_t pin_set(struct store *s, struct journal *j, struct digest key, bool pinned) {
    const uint8_t one = 1;
    if (pinned)
        RETURN_IF_ERR(
            journal_put(j, JOURNAL_PIN, key, key, (struct span){&one, 1}, clock_wall_ns()));
    else
        RETURN_IF_ERR(journal_remove(j, JOURNAL_PIN, key));
    store_pin(s, STORE_EXECUTABLE, key, pinned);
    return ST_OK;
}
