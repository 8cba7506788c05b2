// SPDX-License-Identifier: Apache-2.0
// log: logfmt, one line an event, to stderr. Only server/, scheduler/ and the mains may include
// this (a lint checks). Event names are rows of metrics.def, so that a metric and its log line
// share a name. Levels: error = someone must act; warn = we went on; info = one per request and per
// worker life event; debug = by category. Thread safe: one write(2) a line.
//     log_event(LOG_INFO, "job.done", "job=%llu code=%s", id, code);
#pragma once
#include "base/status.h"
#include <stdbool.h>
enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };
bool log_set(const char *spec); // "info", "debug", "debug:place,pool" (categories = first part of
                                // the event name)
bool log_on(enum log_level l, const char *event);
void log_event(enum log_level l, const char *event, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void log_status(enum log_level l, const char *event, status_t s); // takes s
struct str;
