// SPDX-License-Identifier: Apache-2.0
// fleet: what the options say of other machines: remotes of the cache, peers, this daemon's name
// among them, and by what executables from elsewhere are known. Read and judged before anything is
// opened (also for --check-config), then made; their files are looked at again (secrets.h).
// Thread: start-up, loop.
#pragma once
#include "base/status.h"
#include "scheduler/remote/remotes.h"
#include "scheduler/remote/trust.h"

struct config;
struct sched;
struct secrets;
struct fleet {
    struct config *cfg;
    struct remote_spec *specs;
    size_t n_specs;
    struct trust_files keys;
    struct peer_files peers;
    const char *node;
    struct trust *trust;            // counted
    struct remote_secrets *secrets; // until the remotes have them
    struct remotes *remotes;        // NULL: there are none
    struct sched *sched;            // once there is one
};
// Judges the options and reads their files; adds these to what is watched. Errors name the option.
status_t fleet_read(struct fleet *f, struct config *cfg, struct secrets *watch) MUST_CHECK;
// dir: the data folder, which keeps this daemon's name.
status_t fleet_open(struct fleet *f, struct loop *l, struct store *store, struct journal *journal,
                    const char *dir) MUST_CHECK;
void fleet_close(struct fleet *f); // after the loop
