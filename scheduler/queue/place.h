// SPDX-License-Identifier: Apache-2.0
// place: which worker takes a piece of work, as a pure function of what is wanted and how the
// workers stand. Prefers the worker that holds the prepared weights, then the one that holds the
// executable, then the least busy, then the first; never one that is held, while another will do.
// Never waits for a warm worker while a cold one is free: a load costs milliseconds, a queue may
// cost more. Work that is known to be brief does not go behind a worker that is held where its
// device has a *relief*: a second process that takes nothing else. How long a compile takes is not
// known: each may go to a compilers' relief once; what that gave up (moved) waits for the others.
// Thread: any.
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum worker_role { ROLE_COMPILE, ROLE_DEVICE };
struct place_want {
    enum worker_role role;
    const char *device;  // kind or name; "" = any; of a compile worker: the kind it compiles for
    bool alone;          // long work: never behind other work in a worker
    int64_t expected_ns; // what it takes; 0 = not known
    int64_t relief_ns;   // work that takes no longer is brief: a relief may take it; 0 = none is
    bool moved;          // a compilers' relief gave it up: it is not brief
    int32_t pinned;      // 1 + index of the only worker that will do; 0 = any
    const char *tenant;  // whose it is, where workers belong to tenants; else NULL
    const char *owner;   // whose it is, for devices that have an owner; NULL: any's
};
struct place_worker {
    enum worker_role role;
    const char *kind, *name; // of its device
    bool up;                 // past its handshake
    bool ready;              // up, and takes more now
    bool hopeless;           // gave up restarting
    bool drained;            // keeps failing: takes nothing while another may
    bool asked_only;         // takes only work for its kind
    const char *owner;       // the tenant whose work alone it takes; NULL: all's
    int32_t calls, max_calls;
    int64_t expected_ns; // of the work under way
    bool held;           // the end of what is under way is not known, or is overdue
    bool stuck;          // held for as long as brief work may wait (place_want.relief_ns)
    bool relief;         // takes brief work only, or what is pinned to it
    bool has_executable, has_prepared;
    int64_t memory_bytes;  // of its device; 0 = not said
    int64_t planned_bytes; // of it for the work under way
    int64_t needed_bytes;  // what this piece of work would add
    int64_t alone_bytes;   // what it would need if nothing else were under way
    // Where workers belong to tenants (want.tenant): group are those of one device, or compilers of
    // one kind; what is under way in any of them is counted in each (place_group).
    int32_t group;
    const char *tenant; // whose its process is; "" = none yet
    bool spare;         // no process, may be given one
    bool idle;          // of another tenant it would be taken from, between two pieces of work
    int64_t used;       // when it was last used; of those that may be taken the least goes first
};
enum {
    PLACE_WAIT = -1,     // all able workers are busy or starting
    PLACE_NEVER = -2,    // no worker will ever be able
    PLACE_MEMORY = -3,   // a place is free, but not the memory
    PLACE_TOO_LARGE = -4 // it fits no able worker's memory, even alone
};
// Brief work may queue in a worker beyond max_calls, as long as all that is there is over sooner
// than a reply and the next request would take. Up to so many, so long in all.
enum { PLACE_BRIEF_CALLS = 16, PLACE_BRIEF_NS = 300000 };
// Adds up calls, expected_ns and planned_bytes of each group, in each of its workers; they have one
// memory.
void place_group(struct place_worker *w, int n);
// With want.tenant: the tenant's own worker of a group, else one without a tenant, else (the
// caller gives it a new process first: place_is_mine is false) a spare one, else an idle one of
// another tenant.
bool place_is_mine(const struct place_want *want, const struct place_worker *w);
// Brief work that waits only for workers that are stuck: the relief to start for it; or the one of
// compilers that is stuck itself, which is to give up what it does; or -1.
int place_relief(const struct place_want *want, const struct place_worker *w, int n);
bool place_is_brief(const struct place_want *want);
int place_choose(const struct place_want *want, const struct place_worker *w, int n);
bool place_has_room(const struct place_want *want, const struct place_worker *w); // for a call
bool place_matches(const struct place_want *want,
                   const struct place_worker *w); // role and device fit
