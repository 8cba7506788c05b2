// SPDX-License-Identifier: Apache-2.0
// pool: the worker processes. Spawns them early (a fork from a small process is cheap), shakes
// hands, probes their health, restarts the dead (who died at work at once; who died at the start or
// idle the first time at once, then with growing delay),
// and carries calls: one request frame, any events, one reply. A worker's death ends all its calls
// with UNAVAILABLE; the daemon is unharmed. One whose compiles depend on what it compiled before is
// replaced after each. A cancelled call that does not end within the grace
// costs the worker its life: the only way to stop code that hangs. Thread: loop.
#pragma once
#include "base/hash.h"
#include "base/str.h"
#include "proto/frame.h"
#include "proto/reason.h"
#include "proto/wire.pb-c.h"
#include "scheduler/queue/footprint.h"
#include "scheduler/queue/place.h"
#include "scheduler/workers/blame.h"
#include "scheduler/workers/warm.h"

struct loop;
struct memfds;
struct plugins;
struct pool;
struct worker; // a slot: lives as long as the pool, its process comes and goes

enum { POOL_MAX_WORKERS = 512 };
struct pool_config {
    const char *worker_path;    // hlod-worker
    const char *dir;            // the data folder: a device's driver may keep files in devices/N of
                                // it (HLOD_DEVICE_CACHE); NULL = it has none
    const char *const *devices; // one device worker each: KIND[:OPTIONS]
    int n_devices, n_compile;
    int64_t compile_memory; // that a compile worker may take, but a plugin's; 0 = no bound; less
                            // where the machine, or a control group, has less (pool_slots.h)
    const struct plugins *plugins; // PJRT plugins by name; each that no device here uses has a
                                   // compile worker that starts when it is asked for
    bool filter;                   // system call filter in the workers
    int64_t compute_spin;  // GOMP_SPINCOUNT of the workers, unless the environment sets a policy
    int64_t keep_bytes;    // tensor memory kept for one worker between calls (memfds.h)
    int64_t flight_bytes;  // tensors in flight in a device worker; 0 = no bound
    int device_calls;      // calls in flight a device worker: 2 keeps it busy while a reply travels
    int64_t device_memory; // that work under way may plan in a device; 0 = what it says it has
    int64_t relief_ns;     // brief work that waits so long behind a device worker that is held gets
                           // another process of the device, which takes nothing else; 0 = never
    int64_t compile_relief_ns; // work that waits so long behind compile workers that are held gets
                               // another one of the kind, for a while; 0 = never
    int isolate; // processes of a device, and of compilers of a kind, each for one tenant at a
                 // time; 0 = one serves all
    int64_t hello_ms, health_ms, kill_grace_ms; // 0 = 30 s, 10 s, 2 s
    void (*on_change)(void *ctx);               // a worker became ready, free, or was lost
    // A process ended by a fault of its own in a call that was charged, or just after it.
    void (*on_fault)(void *ctx, const struct charge *of, const char *why);
    void *ctx;
};
status_t pool_new(struct loop *l, const struct pool_config *cfg,
                  struct pool **out) MUST_CHECK; // starts the workers
void pool_stop(
    struct pool *p); // closes their sockets: they end by themselves, or are killed after the grace
void pool_free(struct pool *p); // after pool_stop and a turn of the loop

// Devices that come from outside (KIND_JOINS): each has a worker of the kind, which takes only work
// of this tenant for the kind. Starts it with the device's socket, which stays the caller's and
// open until left(ctx): then the process, and its device, are gone. UNAVAILABLE: all have one.
status_t pool_join(struct pool *p, const char *kind, int sock, const char *tenant,
                   void (*left)(void *ctx), void *ctx, struct worker **out) MUST_CHECK;
bool pool_may_join(const struct pool *p, const char *kind); // is there one without?
void worker_part(struct worker *w, const char *why);        // its device has left

void pool_set_grace(struct pool *p, int64_t ms); // of calls cancelled from now on

int pool_size(const struct pool *p);
struct worker *pool_worker(struct pool *p, int i);
// The state for place_choose, except what depends on the work: has_executable, has_prepared,
// needed_bytes, alone_bytes.
struct place_worker pool_place(const struct worker *w);
// Where workers belong to tenants. Binds a worker without a tenant to this one; a worker of another
// tenant, or without a process, gets a new process first, and is ready after its handshake.
void worker_give(struct worker *w, const char *tenant);
// Starts a relief, unless it was lost a moment ago. One of compilers that is up gives up what it
// does, if it is stuck: its calls are answered as lost.
void worker_relieve(struct worker *w);
struct warm *worker_warm(struct worker *w);
struct footprint *worker_footprint(struct worker *w);
// A compile worker of this kind is needed: starts it if it sleeps, or gave up some seconds ago.
void pool_wake(struct pool *p, const char *kind);
void pool_devices(const struct pool *p, struct strbuf *out); // their names, with commas
// Why the workers of that role for a device (kind or name) cannot be started, as they said
// themselves; "" if they did not. Borrowed until the loop's next turn.
const char *pool_why(const struct pool *p, enum worker_role role, const char *device);
const char *worker_why(const struct worker *w);
// "on" when every worker that has said hello has its system call filter; else "off: why" of the
// first that has not. Borrowed.
const char *pool_filter(const struct pool *p);
struct memfds *pool_memfds(struct pool *p); // owners are worker_index
// Whose memory inputs go to while no worker is chosen: the only device worker's, or, where there is
// a choice, MEMFD_NOBODY. Thread: any.
int pool_input_owner(const struct pool *p);
enum worker_role worker_role(const struct worker *w);
int worker_index(const struct worker *w);
// Bytes of tensors sent to the worker, and (negative) done with. While more than flight_bytes are
// out nothing else is placed there.
void worker_flight(struct worker *w, int64_t bytes);
bool worker_ready(const struct worker *w); // or replaced after its one compile (hello.single_use)
// What the last handshake said; fields stay from the last life while it restarts. NULL before the
// first.
const Hlod__Wire__Hello *worker_hello(const struct worker *w);
void worker_describe(const struct worker *w,
                     Hlod__V1__Device *out);   // strings borrowed from the worker
uint64_t worker_epoch(const struct worker *w); // counts its lives

// One call. `fn` gets every event frame and at last the reply; or frame NULL and a status (taken by
// fn) when the worker is lost. Descriptors stay the caller's. fn may start other calls. Returns the
// call number (never 0).
typedef void (*pool_reply_fn)(void *ctx, struct frame *f, status_t lost);
uint64_t pool_call(struct worker *w, uint32_t type, const ProtobufCMessage *m, const int *fds,
                   int n_fds, pool_reply_fn fn, void *ctx);
// What the call, just made, is for: told to on_fault.
void worker_charge(struct worker *w, uint64_t call, const struct charge *of);
// Asks the worker to stop the call; fn still gets its reply. Kills the worker when none comes
// within the grace.
void pool_cancel(struct worker *w, uint64_t call);
// A place for one more piece of work is taken or free again (place_worker.calls).
// unknown: how long it takes is not known.
void worker_take(struct worker *w, bool unknown);
bool worker_began(const struct worker *w, uint64_t call); // this call, in its present or last life
void worker_expect(struct worker *w, int64_t ns);         // so much more work is under way, or less
void worker_release(struct worker *w, bool unknown);
status_t wire_status(const Hlod__Wire__Status *s) MUST_CHECK; // a reply's status as ours
