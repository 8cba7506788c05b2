// SPDX-License-Identifier: Apache-2.0
// tenant: on whose behalf jobs run: the share of the devices' time it has a right to, what it may
// ask for, and what it has used. Known by name; "default" is everybody's who has no other. A tenant
// comes into being with its first job and, while there are few, stays for its counters. Limits come
// from one text (option --tenants) and may change at any time. Thread: loop.
#pragma once
#include "base/status.h"
#include "scheduler/queue/place.h"
#include "scheduler/queue/queue.h"
#include "scheduler/queue/quota.h"

struct tenant_limits {
    int32_t weight;              // share of device time against the others'; 1 to 1000
    int64_t runs, bytes, places; // runs a minute; bytes of tensors a minute; work on devices and in
                                 // compilers at once, the rest waits. 0 = no limit
};
// What the other nodes were told of it last (cluster/use.h).
struct tenant_told {
    int64_t runs, bytes, wanted_runs, wanted_bytes; // of its quotas: taken, wanted
    int64_t want_runs, want_bytes;                  // thousandths between two beats, of late
    int64_t want_places;                            // taken and waited for, of late
    int32_t part;                                   // of its places, by what was known then
};
// At the other nodes of the cluster, as they last told (cluster/use.h). All zero: there are none.
struct tenant_elsewhere {
    int32_t places;     // taken there
    int32_t may_places; // of `places` that may be taken here, beside the first; with `counts`
    bool counts;        // its limits hold over all nodes together
    int32_t suite_jobs; // running, of suites that others took
};
struct tenant {
    struct tenant *next; // by name
    char *name;
    struct tenant_limits limits;
    struct queue_lane lanes[2]; // by worker_role
    struct quota runs, bytes;
    struct quota compiles; // what it took of those of all tenants together (sched_take_compile)
    int32_t jobs, places;  // unfinished; on workers now
    int64_t total_jobs, refused; // refused: by its quotas or a full queue
    int64_t used_ns[2];          // of workers, by role
    int64_t total_bytes;         // tensors in and out
    int64_t unread_bytes;        // of results that its clients have not taken yet
    // Batch jobs of suites that this node took (suites_tally).
    int32_t suite_jobs, suite_waiting;
    struct tenant_told told;
    struct tenant_elsewhere elsewhere;
};
struct tenants {
    struct tenant *first;
    int n;
    char *rules; // as configured
    // Told of each that is made, or whose limits may have changed. NULL: nobody.
    void (*ruled)(void *ctx, struct tenant *t);
    void *ctx;
};
// Reads "NAME[:weight=N][:runs=N][:bytes=SIZE][:places=N],..." ('*': tenants without a rule) and
// applies it to all that are known. INVALID_ARGUMENT, and nothing changes.
status_t tenants_check(const char *rules) MUST_CHECK; // are they rules?
status_t tenants_set(struct tenants *ts, const char *rules) MUST_CHECK;
void tenants_done(struct tenants *ts);
// NULL: not known.
struct tenant *tenants_find(const struct tenants *ts, const char *name);
// By name; "" and NULL are "default". Made when it is new. Never NULL.
struct tenant *tenants_get(struct tenants *ts, const char *name, int64_t now_ns);
// May it run once more, with so many bytes of input? RESOURCE_EXHAUSTED, REASON_TENANT_QUOTA, with
// the time to wait.
status_t tenant_admit(struct tenant *t, int64_t now_ns, int64_t bytes) MUST_CHECK;
// What tenant_admit took for a run that was refused before it had a place.
void tenant_return(struct tenant *t, int64_t bytes);
// Within `places`: here, and over all nodes; one place a tenant may always have here.
bool tenant_may_place(const struct tenant *t);
bool tenant_name_fits(const char *name); // 1 to 64 of A-Z a-z 0-9 . _ -
