// SPDX-License-Identifier: Apache-2.0
// shapes: at most so many executables of one program (D18.13), and at most a quarter of the cache
// (but 32 in any case), so that a client with ever new shapes fills neither the store nor the
// devices. Of many, a sixteenth more may be there before they are counted again. The least recently
// used go, file, record and what workers hold of them; those that a job holds stay. Thread: loop.
#pragma once
#include "base/hash.h"

struct sched;
struct shape_use { // an executable of the program, from the journal
    struct digest key;
    int64_t used_ns; // wall clock, at its last look-up on disk
    int64_t bytes;   // on disk
};
// `just_made` stays in any case. While `owner` (a tenant, or NULL) has as many of them as all
// others together, those that are its alone go first: shapes of one's own push nobody else's out,
// and to have asked for another's, too, takes nothing from that one.
void shapes_trim(struct sched *s, const char *owner, struct digest just_made,
                 const struct shape_use *all, size_t n);
