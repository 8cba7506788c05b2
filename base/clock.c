// SPDX-License-Identifier: Apache-2.0
// Thin over clock_gettime.
#include "base/clock.h"

#include <stdio.h>
#include <string.h>

static int64_t now(clockid_t id) {
    struct timespec t;
    clock_gettime(id, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
int64_t clock_ns(void) {
    return now(CLOCK_MONOTONIC);
}
struct timespec clock_after(int64_t ns) {
    int64_t at = clock_ns() + ns;
    return (struct timespec){.tv_sec = at / 1000000000, .tv_nsec = at % 1000000000};
}
int64_t clock_of_ms(double ms) {
    double ns = ms * 1e6;
    return ns > 0 ? ns < 1e16 ? (int64_t)ns : INT64_C(10000000000000000) : 0;
}
int64_t clock_ms_left(int64_t until_ns) {
    int64_t ns = until_ns - clock_ns();
    return ns > 0 ? (ns - 1) / CLOCK_MS + 1 : 0;
}
double clock_ms(int64_t ns) {
    return (double)ns / 1e6;
}
double clock_ms_since(int64_t start_ns) {
    return clock_ms(clock_ns() - start_ns);
}
int64_t clock_wall_ns(void) {
    return now(CLOCK_REALTIME);
}
void clock_wall_text(int64_t wall_ns, char out[32]) {
    static _Thread_local struct {
        time_t s;
        size_t n; // of the text; 0: none yet
        char text[32];
    } last; // most calls are for the same second as the one before
    time_t s = (time_t)(wall_ns / 1000000000);
    int ms = (int)(wall_ns / 1000000 % 1000);
    if (ms < 0) ms += 1000, s--; // before 1970
    if (!last.n || last.s != s) {
        struct tm tm;
        gmtime_r(&s, &tm);
        last.n = strftime(last.text, sizeof last.text, "%Y-%m-%dT%H:%M:%S", &tm);
        last.s = s;
    }
    const char end[] = {'.', (char)('0' + ms / 100 % 10), (char)('0' + ms / 10 % 10),
                        (char)('0' + ms % 10), 'Z', 0};
    memcpy(out, last.text, last.n);
    memcpy(out + last.n, end, sizeof end);
}

// `n` digits at *s.
static bool digits(struct str *s, size_t n, int *out) {
    if (s->n < n) return false;
    *out = 0;
    for (size_t i = 0; i < n; i++) {
        if (s->p[i] < '0' || s->p[i] > '9') return false;
        *out = *out * 10 + (s->p[i] - '0');
    }
    s->p += n;
    s->n -= n;
    return true;
}
static bool letter(struct str *s, const char *any_of) {
    if (!s->n || !s->p[0] || !strchr(any_of, s->p[0])) return false;
    s->p++;
    s->n--;
    return true;
}
static bool read_zone(struct str *s, int64_t *out_s) {
    int hours, minutes;
    *out_s = 0;
    if (letter(s, "Zz")) return s->n == 0;
    int sign = s->n && s->p[0] == '-' ? -1 : 1;
    if (!letter(s, "+-") || !digits(s, 2, &hours) || !letter(s, ":") || !digits(s, 2, &minutes))
        return false;
    *out_s = sign * (hours * 3600 + minutes * 60);
    return hours < 24 && minutes < 60 && s->n == 0;
}
bool clock_wall_read(struct str s, int64_t *out) {
    struct tm t = {0};
    int64_t ns = 0, zone = 0;
    int year, month;
    if (!digits(&s, 4, &year) || !letter(&s, "-") || !digits(&s, 2, &month) || !letter(&s, "-") ||
        !digits(&s, 2, &t.tm_mday))
        return false;

    if (s.n) {
        if (!letter(&s, "Tt") || !digits(&s, 2, &t.tm_hour) || !letter(&s, ":") ||
            !digits(&s, 2, &t.tm_min) || !letter(&s, ":") || !digits(&s, 2, &t.tm_sec))
            return false;
        if (letter(&s, ".")) {
            int64_t each = 100000000;
            int d;
            if (!digits(&s, 1, &d)) return false;
            do {
                ns += d * each;
                each /= 10;
            } while (digits(&s, 1, &d));
        }
        if (!read_zone(&s, &zone)) return false;
    }

    t.tm_year = year - 1900;
    t.tm_mon = month - 1;
    struct tm as = t; // timegm moves what is beyond its bounds on: then it is no such day or hour
    time_t seconds = timegm(&as);
    if (as.tm_mday != t.tm_mday || as.tm_mon != t.tm_mon || as.tm_year != t.tm_year ||
        as.tm_hour != t.tm_hour || as.tm_min != t.tm_min || as.tm_sec != t.tm_sec || year > 2261 ||
        year < 1678)
        return false;

    *out = ((int64_t)seconds - zone) * 1000000000 + ns;
    return true;
}
