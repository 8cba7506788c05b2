// SPDX-License-Identifier: Apache-2.0
// pool_inside: the pool's inside, shared by pool.c (the processes' life, frames, calls) and
// pool_state.c (what others may know of them). Thread: loop.
#pragma once
#include <uv.h>

#include "base/vec.h"
#include "scheduler/workers/pool.h"
#include "scheduler/workers/pool_log.h"

enum {
    STEADY_MS = 10000,
    DRAIN_FAILURES = 3,
    MAX_STARTS_WITHOUT_HELLO = 6,
    GIVEN_MS = 2000,
    AFTER_CALL_MS = 2000,
    HELD_MS = 50
};
enum worker_state { W_DOWN, W_STARTING, W_READY, W_STOPPED };

struct pool_call {
    uint64_t id;
    uint32_t type;
    pool_reply_fn fn;
    void *ctx;
    int64_t kill_at_ns; // 0 = not cancelled
    struct charge of;
};
struct pending { // a frame the socket had no room for
    uint32_t type;
    uint64_t call;
    uint8_t *body;
    size_t n;
    int fds[FRAME_MAX_FDS];
    int n_fds;
};
struct worker {
    struct pool *pool;
    int index;
    enum worker_role role;
    const char *spec;        // KIND[:OPTIONS], as the worker is told
    char kind[32], name[48]; // of its device
    bool lazy, sleeps;       // starts only when it is asked for; has not been yet
    bool joins;              // its device comes from outside (KIND_JOINS): starts with that alone
    int joined;              // the device's socket while a process has it, the caller's; -1: none
    void (*left)(void *ctx); // who is told when that process is gone, or NULL
    void *left_ctx;
    char *why;      // it could not open its device, as it said; or NULL
    char lost[160]; // why its last process went
    enum worker_state state;
    int sock;
    int page_fd; // of a page that its process writes: the call it has begun last
    _Atomic uint64_t *page;
    struct loop_watch *watch;
    struct loop_timer *timer; // restart while DOWN; health while up
    struct loop_timer *kill;  // of the cancelled call that must end first
    int64_t kill_ns;          // when it fires; 0: it does not
    uv_process_t *process;
    int pid;
    uint64_t epoch;
    int failures;   // lives in a row that did not last
    int bad_starts; // of these, that no call was in
    int starts_without_hello;
    bool ending; // has lost its device: its process ends by itself (StatsReply.ending)
    bool spent;  // has compiled, and says that it is for one compile only (hello.single_use)
    int64_t started_ns, ready_ns, last_sign_ns;
    Hlod__Wire__Hello *hello;
    VEC(struct pool_call) calls;
    struct pool_call last; // that was answered, and when; its end may still be the process's
    int64_t last_ns;
    VEC(struct pending) out;
    struct frame_batch batch;            // goes out at the end of the loop's turn, before `out`
    bool full;                           // the socket had no room for it
    int places_taken, unknown, restarts; // unknown: places for an unknown time
    int64_t moved_ns;                    // a piece of work began alone, or ended
    int64_t flight_bytes, expected_ns;
    int64_t rss_bytes, prepared_bytes;
    int32_t resident, buffers;
    int64_t buffer_bytes;
    int64_t refused; // system calls, of this life
    struct warm warm;
    struct footprint footprint;
    // Where workers belong to tenants: its group, the tenant of its process ("" = none yet),
    // whether it has worked for that tenant, and when last.
    int group;
    char tenant[72], shown[64];
    bool extra;  // not the first of its group: goes when it is idle for long
    bool relief; // an extra one where workers do not belong to tenants (place.h)
    bool moves;  // is to give up what it does
    bool spare, served;
    int64_t used_ns;
};
struct pool {
    struct loop *loop;
    struct pool_config cfg;
    struct worker *w;
    int n;
    uint64_t next_call;
    struct frame_buf *buf;
    struct memfds *memfds;
    struct pool_logs logs;
    struct arena arena; // specs
    bool stopping;
    bool flush_due; // batches are sent soon
};

bool worker_drained(const struct worker *w);
bool worker_idle(const struct worker *w);
bool worker_relief_idle(const struct worker *w);
bool worker_stuck(const struct worker *w);
int64_t worker_first_kill_ns(const struct worker *w); // 0: no call was cancelled
// pool_send.c. Sends a frame, or keeps it (copying it and its descriptors) until the end of the
// loop's turn or until the socket has room.
void worker_send_frame(struct worker *w, uint32_t type, uint64_t call, const ProtobufCMessage *m,
                       const int *fds, int n_fds);
void worker_send_rest(struct worker *w); // the socket has room
void worker_drop_unsent(struct worker *w);
