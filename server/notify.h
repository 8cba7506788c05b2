// SPDX-License-Identifier: Apache-2.0
// notify: tells the service manager how we are (sd_notify's protocol: datagrams to $NOTIFY_SOCKET),
// and feeds its watchdog from the loop's own thread: a loop that hangs feeds nothing. Ready means
// that workers of both roles are up. Without a service manager every call does nothing. No library:
// the protocol is a line of text. Thread: loop.
#pragma once
#include <stdbool.h>

struct loop;
struct notify;
// Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID and takes them out of the environment:
// workers are not asked. `can_serve` is called now and then until it holds. NULL: nobody wants to
// know.
struct notify *notify_new(struct loop *l, bool (*can_serve)(void *ctx), void *ctx);
void notify_free(struct notify *n); // NULL is fine, here and below
void notify_reloading(struct notify *n);
void notify_reloaded(struct notify *n);
void notify_stopping(struct notify *n);
