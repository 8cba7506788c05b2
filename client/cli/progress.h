// SPDX-License-Identifier: Apache-2.0
// progress: one line on stderr that tells how far long work is, redrawn at most ten times a second;
// only on a terminal, not with --quiet. Thread: one.
#pragma once
#include <stdint.h>

struct hlo;
struct progress {
    const struct hlo *h;
    int64_t start_ns, drawn_ns, passes;
    char pass[80]; // what it does now, or did last
};
void progress_begin(struct progress *p, const struct hlo *h);
void progress_bytes(struct progress *p, const char *what, int64_t done, int64_t total); // a bar
void progress_begins(struct progress *p, const char *name); // a pass that may take long
void progress_pass(struct progress *p, const char *name, double ms);
void progress_tick(struct progress *p); // time goes by
void progress_end(struct progress *p);  // wipes the line
