// SPDX-License-Identifier: Apache-2.0
// use: what tenants use at each node, told to all with the beats, so that a quota is one of the
// whole cluster and shares hold over it (docs/decisions/0047). What others took is taken from the
// buckets here (queue/quota.h), by whose shares of what is left the nodes stay within it together;
// places are divided by who wants them; batch jobs of the tenant that has least for its weight go
// first, whichever node took them. Nothing waits. Thread: loop, where not said otherwise.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "proto/formats/cluster.pb-c.h"

struct loop;
struct nodes;
struct strbuf;
struct tenants;
struct use;
enum { USE_TENANTS = 256, USE_MAX = 65536 }; // in a message; that are kept of all nodes together
struct use_config {                          // borrowed
    struct tenants *tenants;
    const struct nodes *nodes;
    const char *node, *life; // ours
    int64_t beat_ms;
    void (*send)(void *ctx, Hlod__Cluster__Use *m);
    void (*room)(void *ctx); // a tenant may have more places now
    void *ctx;
};
struct use *use_new(const struct use_config *cfg);
void use_stop(struct use *u); // while there still are tenants; NULL is fine, as for
void use_free(struct use *u);
// Counts batch jobs into the tenants, before they are told. NULL: there are none any more.
void use_join(struct use *u, void (*tally)(void *ctx), void *ctx);

void use_beat(struct use *u);               // tells what there is to tell
void use_connected(struct use *u, bool up); // or nothing is heard of the others
// Why it is none; NULL: it may be heard. Pure. Thread: any.
const char *use_fault(const Hlod__Cluster__Use *m);
void use_hear(struct use *u, const Hlod__Cluster__Use *m);
void use_lost(struct use *u, const char *node); // its process has ended, or is not heard any more

// A ticket of that home came here: whose job is to have the place, by its tenants' shares? A node,
// perhaps the same one.
const char *use_home(struct use *u, const char *home);
void use_nothing(struct use *u, const char *home); // it has none that runs here after all
void use_metrics(const struct use *u, struct strbuf *b);
