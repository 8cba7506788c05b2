// SPDX-License-Identifier: Apache-2.0
// secrets: files that hold tokens, certificates and keys, looked at again every few seconds and on
// SIGHUP: a mounted secret that is rotated sends no signal. A group of files that belong together
// is read whole, on the pool, into something new; the loop takes it over at once, or keeps what it
// had and says why. A file counts as changed by its inode, size and times, so a rename over it, a
// link that points elsewhere and a write all do. Thread: loop, but a group's `load` (pool).
#pragma once
#include <stdbool.h>

#include "base/status.h"

struct loop;
struct secrets;
enum { SECRET_FILES = 160 }; // of one group
struct secret_group {
    const char *what;                // for the log
    const char *files[SECRET_FILES]; // outlive the secrets; n of them, "" are none
    int n;
    status_t (*load)(void *ctx, void **out);
    void (*take)(void *ctx, void *loaded); // takes it
    void (*drop)(void *loaded);            // not taken
    void (*read)(void *ctx);               // afterwards, well or not; NULL: nothing
    void *ctx;
};
// Stamps the files as they are: before they are read for the first time. Blocks.
struct secrets *secrets_new(void);
void secrets_add(struct secrets *s, const struct secret_group *g);
void secrets_free(struct secrets *s); // when the loop's work is done; NULL is fine
void secrets_start(struct secrets *s, struct loop *l, int64_t period_ms); // 0: only when asked
void secrets_stop(struct secrets *s);
// Reads all of them now, changed or not; done on the loop afterwards.
void secrets_read(struct secrets *s, void (*done)(void *ctx), void *ctx);
bool secrets_ok(const struct secrets *s); // the last read of each went well
