// SPDX-License-Identifier: Apache-2.0
#include "server/traceparent.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

// Is text[0..n) lower-case hex, and not all zeros?
static bool hex(const char *text, int n) {
    bool zero = true;
    for (int k = 0; k < n; k++) {
        if (!text[k] || !strchr("0123456789abcdef", text[k])) return false;
        zero = zero && text[k] == '0';
    }
    return !zero;
}

bool traceparent_parse(const char *text, struct traceparent *out) {
    if (!text) return false;
    size_t n = strnlen(text, 256);
    // A later version may append fields after another dash; ff is never one.
    bool later = n > 55 && text[55] == '-' && strncmp(text, "00", 2);
    if ((n != 55 && !later) || !strncmp(text, "ff", 2)) return false;
    if (text[2] != '-' || text[35] != '-' || text[52] != '-') return false;
    if (!hex(text + 3, 32) || !hex(text + 36, 16)) return false;
    for (int k = 0; k < 2; k++) // these may be zeros
        if (!strchr("0123456789abcdef", text[k]) || !text[53 + k] ||
            !strchr("0123456789abcdef", text[53 + k]))
            return false;
    uint64_t span = 0;
    if (getrandom(&span, sizeof span, GRND_NONBLOCK) != sizeof span || !span) span = 1;
    memcpy(out->id, text + 3, 32);
    out->id[32] = 0;
    memcpy(out->given, text, 55);
    out->given[55] = 0;
    snprintf(out->reply, sizeof out->reply, "00-%s-%016llx-%.2s", out->id, (unsigned long long)span,
             text + 53);
    return true;
}
