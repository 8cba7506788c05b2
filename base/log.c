// SPDX-License-Identifier: Apache-2.0
// Builds a line on the stack and writes it at once, so that lines of several threads do not mix.
#include "base/log.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/str.h"
#include "base/text.h"

enum { MAX_TEXT = 3800 };
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
    line[n++] = '\n';
    for (const char *p = line; n > 0;) {
        ssize_t w = write(STDERR_FILENO, p, (size_t)n);
        if (w <= 0) return;
        p += w;
        n -= (int)w;
    }
}

// One conversion of printf other than %s: flags, width, precision and length as they stand.
static void put_number(struct strbuf *b, const char *spec, va_list *ap) {
    size_t n = strlen(spec);
    char c = spec[n - 1];
    bool wide = strchr(spec, 'l') || strchr(spec, 'z') || strchr(spec, 'j');
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    if (strchr("fFeEgGa", c))
        strbuf_printf(b, spec, va_arg(*ap, double));
    else if (c == 'p')
        strbuf_printf(b, spec, va_arg(*ap, void *));
    else if (wide) // long, long long, size_t: 64 bits all
        strbuf_printf(b, spec, va_arg(*ap, long long));
    else
        strbuf_printf(b, spec, va_arg(*ap, int));
#pragma GCC diagnostic pop
}
// A text's value comes from anywhere: whatever it holds, it stays one value of one line, and does
// nothing to a terminal.
static void put_text(struct strbuf *b, const char *spec, va_list *ap) {
    const char *dot = strchr(spec, '.');
    size_t most = SIZE_MAX;
    if (dot && dot[1] == '*') {
        int n = va_arg(*ap, int);
        if (n >= 0) most = (size_t)n;
    } else if (dot)
        most = (size_t)strtoul(dot + 1, NULL, 10);
    const char *s = va_arg(*ap, const char *);
    if (!s) s = "(null)";
    text_show(b, (struct str){s, strnlen(s, most)}, "\"\\");
}

void log_event(enum log_level l, const char *event, const char *fmt, ...) {
    if (!log_on(l, event)) return;
    char text[MAX_TEXT + 1]; // a line is also for when there is no memory
    struct strbuf b = strbuf_over(text, sizeof text);
    va_list ap;
    va_start(ap, fmt);
    while (*fmt) {
        size_t n = strcspn(fmt, "%");
        strbuf_add(&b, fmt, n);
        fmt += n;
        if (!*fmt) break;
        char spec[24] = "";
        n = 1 + strspn(fmt + 1, "-+ #0123456789.*lzjht") + 1;
        if (n >= sizeof spec) break; // no such one is written
        memcpy(spec, fmt, n);
        fmt += n;
        if (spec[n - 1] == '%')
            strbuf_putc(&b, '%');
        else if (spec[n - 1] == 's')
            put_text(&b, spec, &ap);
        else
            put_number(&b, spec, &ap);
    }
    va_end(ap);
    write_line(l, event, text);
}

void log_status(enum log_level l, const char *event, status_t s) {
    log_event(l, event, "code=%s msg=\"%s\" at=%s", st_code_name(st_code(s)), st_message(s),
              st_where(s));
    st_drop(s);
}
