// SPDX-License-Identifier: Apache-2.0
// A status is one heap object: code, reason, place, message. Notes rewrite the message in front
// ("while x: message"). The out-of-memory status is static, so that reporting it needs nothing.
#include "base/status.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct status {
    enum status_code code;
    int reason;
    int64_t retry_ms;
    const char *file;
    int line;
    char *message; // malloc, or static text when is_static
    bool is_static;
    char where[64];
};
static struct status oom = {.code = ST_RESOURCE_EXHAUSTED,
                            .message = (char *)(uintptr_t)"out of memory",
                            .is_static = true};

static char *format(const char *fmt, va_list ap) {
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    char *p = n < 0 ? NULL : malloc((size_t)n + 1);
    if (p) vsnprintf(p, (size_t)n + 1, fmt, ap);
    return p;
}

status_t st_new_at(enum status_code code, const char *file, int line, const char *fmt, ...) {
    struct status *s = calloc(1, sizeof *s);
    if (!s) return &oom;
    va_list ap;
    va_start(ap, fmt);
    s->message = format(fmt, ap);
    va_end(ap);
    if (!s->message) {
        free(s);
        return &oom;
    }
    s->code = code;
    s->file = file;
    s->line = line;
    return s;
}

status_t st_note(status_t s, const char *fmt, ...) {
    if (!s || s->is_static) return s;
    va_list ap;
    va_start(ap, fmt);
    char *note = format(fmt, ap);
    va_end(ap);
    if (!note) return s;
    size_t a = strlen(note), b = strlen(s->message);
    char *both = malloc(a + b + 3);
    if (both) {
        memcpy(both, note, a);
        memcpy(both + a, ": ", 2);
        memcpy(both + a + 2, s->message, b + 1);
        free(s->message);
        s->message = both;
    }
    free(note);
    return s;
}

status_t st_reason(status_t s, int reason) {
    if (s && !s->is_static) s->reason = reason;
    return s;
}

status_t st_retry_after(status_t s, int64_t ms) {
    if (s && !s->is_static) s->retry_ms = ms;
    return s;
}

status_t st_copy(status_t s) {
    if (!s || s->is_static) return s;
    status_t c = st_new_at(s->code, s->file, s->line, "%s", s->message);
    return st_retry_after(st_reason(c, s->reason), s->retry_ms);
}

status_t st_errno(int err, const char *what) {
    static const struct {
        int err;
        enum status_code code;
    } known[] = {{ENOENT, ST_NOT_FOUND},
                 {EEXIST, ST_ALREADY_EXISTS},
                 {EACCES, ST_PERMISSION_DENIED},
                 {EPERM, ST_PERMISSION_DENIED},
                 {ENOSPC, ST_RESOURCE_EXHAUSTED},
                 {EFBIG, ST_RESOURCE_EXHAUSTED},
                 {EDQUOT, ST_RESOURCE_EXHAUSTED},
                 {EMFILE, ST_UNAVAILABLE}, // of the process, of the machine: some are closed soon
                 {ENFILE, ST_UNAVAILABLE},
                 {EINVAL, ST_INVALID_ARGUMENT},
                 {EPIPE, ST_UNAVAILABLE},
                 {ECONNRESET, ST_UNAVAILABLE},
                 {ECONNREFUSED, ST_UNAVAILABLE}};
    enum status_code code = ST_UNKNOWN;
    for (size_t k = 0; k < sizeof known / sizeof *known; k++)
        if (known[k].err == err) code = known[k].code;
    if (err == ENOMEM) return &oom;
    char text[128];
    return st_new(code, "%s: %s", what, strerror_r(err, text, sizeof text));
}

status_t st_oom(void) {
    return &oom;
}

void st_drop(status_t s) {
    if (!s || s->is_static) return;
    free(s->message);
    free(s);
}

status_t st_unless(enum status_code code, status_t s) {
    if (!s || s->code != code) return s;
    st_drop(s);
    return ST_OK;
}
status_t st_first(status_t a, status_t b) {
    if (!a) return b;
    st_drop(b);
    return a;
}

enum status_code st_code(status_t s) {
    return s ? s->code : ST_CODE_OK;
}
int st_get_reason(status_t s) {
    return s ? s->reason : 0;
}
int64_t st_get_retry_ms(status_t s) {
    return s ? s->retry_ms : 0;
}
const char *st_message(status_t s) {
    return s ? s->message : "";
}

const char *st_where(status_t s) {
    if (!s || s->is_static) return "";
    snprintf(s->where, sizeof s->where, "%s:%d", s->file, s->line);
    return s->where;
}

struct code_row {
    enum status_code code;
    const char *name;
    int http, retry;
};
enum { NO_RETRY = 0, RETRY = 1 };
static const struct code_row rows[] = {
    {ST_CODE_OK, "OK", 200, NO_RETRY},
#define STATUS(name, number, http, retry, text) {ST_##name, #name, http, retry},
#include "base/status.def"
#undef STATUS
};

static const struct code_row *row_of(enum status_code c) {
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].code == c) return &rows[i];
    return row_of(ST_UNKNOWN);
}
const char *st_code_name(enum status_code c) {
    return row_of(c)->name;
}
int st_code_http(enum status_code c) {
    return row_of(c)->http;
}
int st_code_retryable(enum status_code c) {
    return row_of(c)->retry;
}
enum status_code st_code_from_name(const char *name, size_t n) {
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strlen(rows[i].name) == n && memcmp(rows[i].name, name, n) == 0) return rows[i].code;
    return ST_UNKNOWN;
}
