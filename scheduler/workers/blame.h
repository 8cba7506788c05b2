// SPDX-License-Identifier: Apache-2.0
// blame: work that ended the worker process it was in, by tenant. What has done so BLAME_DEATHS
// times is put aside: it is refused at once until a time, longer after each further death, then
// tried again. Only the tenant whose work it is is refused, since the inputs are its own; the
// others keep their worker. A death is forgotten BLAME_FORGET_NS after the time that it cost.
// Bounded: the oldest goes. Pure. Thread: loop.
#pragma once
#include "base/hash.h"
#include "base/vec.h"

enum { BLAME_DEATHS = 2, BLAME_MAX = 1024, BLAME_TENANT = 72, BLAME_WHY = 160 };
#define BLAME_FIRST_NS  INT64_C(60000000000)
#define BLAME_MOST_NS   INT64_C(3600000000000)
#define BLAME_FORGET_NS INT64_C(600000000000)

struct charge {       // what a call is for: what is blamed if the process dies of it
    const char *step; // static: ingest, compile, inspect, run, plan; NULL: nothing is
    char tenant[BLAME_TENANT];
    struct digest work; // of a source, a key; of a plan: of its keys
};
struct blame {
    struct charge of;
    int32_t deaths;
    int64_t last_ns, until_ns; // until_ns > now: it is put aside
    char why[BLAME_WHY];       // how the process ended, the last time
};
struct blames {
    VEC(struct blame) rows;
};
void blames_done(struct blames *b);
// A death of it. Borrowed until the next call.
const struct blame *blames_add(struct blames *b, const struct charge *of, const char *why,
                               int64_t now_ns);
// Is it put aside now? NULL if not. Borrowed until the next call.
const struct blame *blames_find(const struct blames *b, const struct charge *of, int64_t now_ns);
// Forgets what is put aside: of that work, or of all (NULL). How many rows.
int blames_lift(struct blames *b, const struct digest *work, int64_t now_ns);
