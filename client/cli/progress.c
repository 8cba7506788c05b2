// SPDX-License-Identifier: Apache-2.0
// Nothing is drawn for work that is over at once: the first line comes after a fifth of a second.
#include "client/cli/progress.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "client/cli/hlo.h"

enum { FIRST_MS = 200, EVERY_MS = 100, WIDTH = 30 };

void progress_begin(struct progress *p, const struct hlo *h) {
    *p = (struct progress){.h = h, .start_ns = clock_ns()};
}

static bool draw_now(struct progress *p, bool last) {
    if (!p->h || !p->h->tty || p->h->quiet) return false;
    int64_t now = clock_ns(), since = p->drawn_ns ? p->drawn_ns : p->start_ns;
    int64_t wait_ms = p->drawn_ns ? EVERY_MS : FIRST_MS;
    if (!last && now - since < clock_of_ms(wait_ms)) return false;
    if (last && !p->drawn_ns) return false;
    p->drawn_ns = now;
    return true;
}

void progress_bytes(struct progress *p, const char *what, int64_t done, int64_t total) {
    if (total <= 0 || !draw_now(p, done == total)) return;
    char bar[WIDTH + 1] = "";
    int full = (int)((double)done / (double)total * WIDTH);
    for (int k = 0; k < WIDTH; k++)
        bar[k] = k < full ? '#' : '.';
    double s = (double)(p->drawn_ns - p->start_ns) / 1e9, mb = (double)done / 1e6;
    fprintf(stderr, "\r\033[K%s [%s] %3d%%  %.1f of %.1f MB, %.0f MB/s", what, bar,
            (int)((double)done / (double)total * 100), mb, (double)total / 1e6, s > 0 ? mb / s : 0);
}

static void draw_passes(const struct progress *p) {
    double s = (double)(p->drawn_ns - p->start_ns) / 1e9;
    if (p->pass[0])
        fprintf(stderr, "\r\033[Kcompiling for %.1f s: %lld pass%s done, %s", s,
                (long long)p->passes, p->passes == 1 ? "" : "es", p->pass);
    else
        fprintf(stderr, "\r\033[Kcompiling for %.1f s: the compiler has not begun yet", s);
}
void progress_begins(struct progress *p, const char *name) {
    bool plugin = strcmp(name, "plugin") == 0;
    snprintf(p->pass, sizeof p->pass, "now %s", plugin ? "the plugin's compiler" : name);
    if (draw_now(p, false)) draw_passes(p);
}
void progress_pass(struct progress *p, const char *name, double ms) {
    p->passes++;
    if (ms < 10000)
        snprintf(p->pass, sizeof p->pass, "the last was %s, %.1f ms", name, ms);
    else
        snprintf(p->pass, sizeof p->pass, "the last was %s, %.1f s", name, ms / 1e3);
    progress_tick(p);
}
void progress_tick(struct progress *p) {
    if (draw_now(p, false)) draw_passes(p);
}

void progress_end(struct progress *p) {
    if (p->drawn_ns) fputs("\r\033[K", stderr);
    p->drawn_ns = 0;
}
