// SPDX-License-Identifier: Apache-2.0
// Builds a line on the stack and writes it at once, so that lines of several threads do not mix.
#include "base/log.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

static _Atomic int max_level = LOG_INFO;
static char categories[256]; // ",place,pool,"; empty = all. Set once at start

bool log_set(const char *spec) {
    static const char *const names[] = {"error", "warn", "info", "debug"};
    size_t n = strcspn(spec, ":");
    for (int k = 0; k < 4; k++) {
        if (strlen(names[k]) != n || memcmp(spec, names[k], n) != 0) continue;
        if (spec[n] && strlen(spec) > sizeof categories - 3) return false;
        if (spec[n]) snprintf(categories, sizeof categories, ",%s,", spec + n + 1);
        max_level = k;
        return true;
    }
    return false;
}

bool log_on(enum log_level l, const char *event) {
    if ((int)l > max_level) return false;
    if (l != LOG_DEBUG || !categories[0]) return true;
    char name[64];
    snprintf(name, sizeof name, ",%.*s,", (int)strcspn(event, "."), event);
    return strstr(categories, name) != NULL;
}

static void write_line(enum log_level l, const char *event, const char *text) {
    static const char *const names[] = {"error", "warn", "info", "debug"};
    char ts[32], line[4096];
    clock_wall_text(clock_wall_ns(), ts);
    int n = snprintf(line, sizeof line - 1, "ts=%s lvl=%s ev=%s%s%s", ts, names[l], event,
                     text[0] ? " " : "", text);
    if (n < 0) return;
    if (n > (int)sizeof line - 2) n = (int)sizeof line - 2;
    for (int k = 0; k < n; k++) // one event, one line
        if (line[k] == '\n' || line[k] == '\r') line[k] = ' ';
    line[n++] = '\n';
    for (const char *p = line; n > 0;) {
        ssize_t w = write(STDERR_FILENO, p, (size_t)n);
        if (w <= 0) return;
        p += w;
        n -= (int)w;
    }
}

void log_event(enum log_level l, const char *event, const char *fmt, ...) {
    char text[3800];
    if (!log_on(l, event)) return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    write_line(l, event, text);
}

void log_status(enum log_level l, const char *event, status_t s) {
    log_event(l, event, "code=%s msg=\"%s\" at=%s", st_code_name(st_code(s)), st_message(s),
              st_where(s));
    st_drop(s);
}
