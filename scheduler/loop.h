// SPDX-License-Identifier: Apache-2.0
// loop: the one thread that owns all daemon state, with two doors: loop_post brings work to it from
// anywhere, loop_work takes work away from it (files, hashing, SQLite, long texts) to libuv's pool
// and comes back. Nothing on the loop may take longer than about 100 us. Thread: loop, except
// loop_post and loop_stop (any).
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct loop;
struct uv_loop_s;
status_t loop_new(struct loop **out) MUST_CHECK;  // this thread is the loop's until loop_run
void loop_free(struct loop *l);                   // runs until every handle is closed
void loop_spin(struct loop *l, int64_t limit_ns); // looks for events before it sleeps (base/spin.h)
void loop_run(struct loop *l);                    // until loop_stop
void loop_stop(struct loop *l);
void loop_turn(struct loop *l); // once: waits for an event and handles it; at shutdown
struct uv_loop_s *loop_uv(struct loop *l);
// fn(arg) on the loop thread, soon, in the order in which one thread posts. From the loop thread
// itself too: then it runs after the present callback.
void loop_post(struct loop *l, void (*fn)(void *arg), void *arg);
// work(arg) on a pool thread, then done(arg) on the loop. `arg` must hold all that work touches.
void loop_work(struct loop *l, void (*work)(void *arg), void (*done)(void *arg), void *arg);
bool loop_works(const struct loop *l); // some of that is under way

// One-shot timers. loop_timer makes one; a fired or stopped one can be started again.
struct loop_timer;
struct loop_timer *loop_timer_new(struct loop *l, void (*fn)(void *arg), void *arg);
void loop_timer_start(struct loop_timer *t, int64_t ms);
void loop_timer_at(struct loop_timer *t, int64_t at_ns); // when clock_ns() is past it
// To some 50 us, for waits shorter than loop_timer_start's milliseconds can tell: two system calls.
void loop_timer_start_ns(struct loop_timer *t, int64_t ns);
void loop_timer_stop(struct loop_timer *t);
void loop_timer_free(struct loop_timer *t); // NULL is fine; also from its own callback

// Watches a descriptor for reading (always) and writing (on request). One watch a descriptor;
// loop_watch_free before the fd is closed.
struct loop_watch;
enum { LOOP_READ = 1, LOOP_WRITE = 2, LOOP_HANGUP = 4 };
status_t loop_watch_new(struct loop *l, int fd, void (*fn)(void *arg, int events), void *arg,
                        struct loop_watch **out) MUST_CHECK;
void loop_watch_set(struct loop_watch *w, int events); // 0 = pause
void loop_watch_free(struct loop_watch *w);
