// SPDX-License-Identifier: Apache-2.0
#include "scheduler/workers/pool_log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/str.h"
#include "base/text.h"
#include "scheduler/loop.h"

enum { LINE_MAX_BYTES = 4096, TURNS = 8 };
struct pool_log {
    struct pool_log *next;
    struct pool_logs *all;
    struct loop_watch *watch;
    int fd, worker;
    char line[LINE_MAX_BYTES];
    size_t n;
    int64_t second, told; // bytes told in this second
};

static void tell(struct pool_log *x) {
    int64_t now = clock_ns() / 1000000000;
    if (now != x->second) x->second = now, x->told = 0;
    x->told += (int64_t)x->n + 1;
    if (x->told <= LOG_BYTES_A_SECOND && x->n) {
        struct strbuf b = {0};
        text_show(&b, (struct str){x->line, x->n}, "");
        fprintf(stderr, "%s worker=%d\n", strbuf_cstr(&b), x->worker);
        strbuf_done(&b);
    }
    x->n = 0;
}

// False: the other end is closed.
static bool take(struct pool_log *x) {
    char piece[LINE_MAX_BYTES];
    ssize_t n = 0;
    for (int turn = 0; turn < TURNS; turn++) {
        n = read(x->fd, piece, sizeof piece);
        if (n <= 0) break;
        for (ssize_t k = 0; k < n; k++) {
            if (piece[k] == '\n' || x->n == sizeof x->line) tell(x);
            if (piece[k] == '\n') continue;
            x->line[x->n++] = piece[k] == '\t' ? ' ' : piece[k];
        }
    }
    return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

static void end(struct pool_log *x) {
    struct pool_log **at = &x->all->first;
    while (*at != x)
        at = &(*at)->next;
    *at = x->next;
    if (x->n) tell(x);
    loop_watch_free(x->watch);
    close(x->fd);
    free(x);
}

static void on_text(void *arg, UNUSED int events) {
    if (!take(arg)) end(arg);
}

status_t pool_log_new(struct pool_logs *all, struct loop *l, int worker, int *out_fd) {
    int fds[2];
    struct pool_log *x = calloc(1, sizeof *x);
    if (!x) return st_oom();
    if (pipe2(fds, O_CLOEXEC)) {
        free(x);
        return st_errno(errno, "pipe");
    }
    x->all = all;
    x->fd = fds[0];
    x->worker = worker;
    status_t st = fcntl(x->fd, F_SETFL, O_NONBLOCK) ? st_errno(errno, "fcntl") : ST_OK;
    if (!st) st = loop_watch_new(l, x->fd, on_text, x, &x->watch);
    if (st) {
        close(fds[0]);
        close(fds[1]);
        free(x);
        return st;
    }
    loop_watch_set(x->watch, LOOP_READ);
    x->next = all->first;
    all->first = x;
    *out_fd = fds[1];
    return ST_OK;
}

void pool_logs_done(struct pool_logs *all) {
    while (all->first) {
        (void)take(all->first);
        end(all->first);
    }
}
