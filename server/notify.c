// SPDX-License-Identifier: Apache-2.0
#include "server/notify.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/str.h"
#include "scheduler/loop.h"

enum { READY_EVERY_MS = 20 };
struct notify {
    struct sockaddr_un to;
    socklen_t to_bytes;
    int fd;
    bool ready;
    int64_t watchdog_ms; // between two feedings; 0 = none wanted
    struct loop_timer *timer;
    bool (*can_serve)(void *ctx);
    void *ctx;
};

static void say(struct notify *n, const char *text) {
    if (n) // a manager that does not listen is no reason to fail
        (void)!sendto(n->fd, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT,
                      (const struct sockaddr *)&n->to, n->to_bytes);
}

static void on_timer(void *arg) {
    struct notify *n = arg;
    if (!n->ready && n->can_serve(n->ctx)) {
        n->ready = true;
        say(n, "READY=1\nSTATUS=serving");
    }
    if (n->ready && n->watchdog_ms) say(n, "WATCHDOG=1");
    if (!n->ready)
        loop_timer_start(n->timer, READY_EVERY_MS);
    else if (n->watchdog_ms)
        loop_timer_start(n->timer, n->watchdog_ms);
}

static int64_t watchdog_ms(void) {
    const char *usec = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
    int64_t us = 0, who = 0;
    if (!usec || !str_to_i64(str_of(usec), &us) || us < 2000) return 0;
    if (pid && (!str_to_i64(str_of(pid), &who) || who != getpid())) return 0;
    return us / 3000; // three times in its patience
}

struct notify *notify_new(struct loop *l, bool (*can_serve)(void *ctx), void *ctx) {
    const char *path = getenv("NOTIFY_SOCKET");
    struct notify *n = NULL;
    size_t bytes = path ? strlen(path) : 0;
    if (bytes > 1 && bytes < sizeof n->to.sun_path && (*path == '/' || *path == '@'))
        n = calloc(1, sizeof *n);
    if (n) {
        n->to.sun_family = AF_UNIX;
        memcpy(n->to.sun_path, path, bytes);
        if (*path == '@') n->to.sun_path[0] = 0; // of the abstract namespace
        n->to_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + bytes);
        n->watchdog_ms = watchdog_ms();
        n->can_serve = can_serve;
        n->ctx = ctx;
        n->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        if (n->fd < 0) {
            free(n);
            n = NULL;
        }
    }
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
    if (!n) return NULL;
    say(n, "STATUS=workers are starting");
    n->timer = loop_timer_new(l, on_timer, n);
    loop_timer_start(n->timer, 0);
    return n;
}

void notify_free(struct notify *n) {
    if (!n) return;
    loop_timer_free(n->timer);
    close(n->fd);
    free(n);
}

void notify_reloading(struct notify *n) {
    char text[64];
    snprintf(text, sizeof text, "RELOADING=1\nMONOTONIC_USEC=%lld", (long long)clock_ns() / 1000);
    say(n, text);
}
void notify_reloaded(struct notify *n) {
    say(n, n && n->ready ? "READY=1\nSTATUS=serving" : "STATUS=workers are starting");
}
void notify_stopping(struct notify *n) {
    say(n, "STOPPING=1\nSTATUS=draining");
}
