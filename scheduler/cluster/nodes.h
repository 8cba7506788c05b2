// SPDX-License-Identifier: Apache-2.0
// nodes: the table of the cluster's other nodes, as they last told of themselves, and when one that
// tells nothing any more is lost. Bounded, since whoever may publish names nodes. Its clock is the
// caller's. Pure. Thread: loop.
#pragma once
#include "base/arena.h"
#include "base/vec.h"
#include "proto/hlod.pb-c.h"

enum { NODES_MAX = 1024, NODES_BEATS = 3 };
struct node {
    struct arena *arena; // its message's
    const Hlod__V1__Node *m;
    int64_t heard_ns;
    bool lost, gone; // gone: it said so, and ended
    int64_t shun_ns; // until when it gets no batch job: it was not reached (attempt.h)
    int32_t sent;    // work that it was sent since, less what of it all ended since (forward.h)
};
struct nodes {
    VEC(struct node *) v; // in the order of their names
};
enum nodes_news {
    NODES_SAME,     // as before, with other numbers
    NODES_NEW,      // not known before, or another process than the one that was
    NODES_BACK,     // was lost
    NODES_STATE,    // serves now, or not any more
    NODES_GONE,     // ended in good order
    NODES_FULL,     // no room, not taken
    NODES_STRANGER, // the end of a process that is not that node's any more: not taken
};
// A beat, and the arena it is in, which is taken in any case.
enum nodes_news nodes_hear(struct nodes *t, struct arena *a, const Hlod__V1__Node *m,
                           int64_t now_ns);
// Marks those that are lost by now, with `lost` called for each; forgets those lost or gone for
// long. Not called while nothing can be heard.
void nodes_age(struct nodes *t, int64_t now_ns, void (*lost)(void *ctx, const struct node *x),
               void *ctx);
// Nothing could be heard until now: nobody is late.
void nodes_excuse(struct nodes *t, int64_t now_ns);
const struct node *nodes_find(const struct nodes *t, const char *name); // NULL: not known
// Work that was sent to that process has ended; nothing where another has its name by now.
void nodes_ended(const struct nodes *t, const char *name, const char *life);
void nodes_shun(const struct nodes *t, const char *name, int64_t until_ns);
const char *node_state(const struct node *x); // "serving", ..., "lost", "gone", "incompatible"
void nodes_done(struct nodes *t);
