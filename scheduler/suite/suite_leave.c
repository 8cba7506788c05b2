// SPDX-License-Identifier: Apache-2.0
// A suite that is another node's by now: its jobs end here without a result, the journal says where
// it is, and what that alone had of its results goes to the records.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "scheduler/loop.h"
#include "scheduler/sched_inside.h"
#include "scheduler/suite/suite_inside.h"

enum { AGAIN_MS = 2000 };
struct lost {
    struct suites *s;
    struct suite *x;
    int64_t id;
    char *node;
    bool marked; // the journal says where it is
    struct loop_timer *timer;
    status_t st;
};
static void lost_over(void *arg) {
    struct lost *l = arg;
    l->s->n_runs--;
    suites_share_ends(l->s, l->id);
    loop_timer_free(l->timer);
    suite_unref(l->x);
    free(l->node);
    free(l);
}
static void tell_all(void *arg);
static void on_told(void *ctx, UNUSED int64_t suite, int failed) {
    struct lost *l = ctx;
    if ((failed || !l->marked) && l->s->fleet.registers)
        loop_timer_start(l->timer, AGAIN_MS);
    else
        lost_over(l);
}
static void mark_work(void *arg) {
    struct lost *l = arg;
    if (!l->marked) l->st = journal_suite_move(l->s->journal, l->id, l->node);
}
static void marked(void *arg) {
    struct lost *l = arg;
    if (l->st)
        log_event(LOG_ERROR, "jobs.save", "suite=%" PRId64 " why=\"%s\"", l->id, st_message(l->st));
    l->marked = !l->st;
    st_drop(l->st);
    l->st = ST_OK;
    share_again(l->s, l->id, false, on_told, l);
}
// The journal says that it is no more ours, and what only that had goes to the records.
static void tell_all(void *arg) {
    struct lost *l = arg;
    loop_work(l->s->sched->loop, mark_work, marked, l);
}
static void on_saved(void *ctx, UNUSED uint32_t n) {
    tell_all(ctx);
}
// It stays in the journal, as one that moved, until a copy with all results takes its place. The
// next daemon does not begin it, nor put it again, unless it is found to be ours by its head.
void suite_leave(struct suite *x, const char *home) {
    struct suites *s = x->s;
    struct lost *l = arena_must_calloc(1, sizeof *l);
    *l = (struct lost){.s = s, .x = x, .id = x->id, .node = strdup(home)};
    if (!l->node) abort();
    l->timer = loop_timer_new(s->sched->loop, tell_all, l);
    log_event(LOG_WARN, "suite.moved", "suite=%" PRId64 " node=%s jobs=%u", x->id, home, x->n_left);
    s->n_runs++;
    vec_push(&s->sharing, x->id); // it is not taken back before its results are records
    s->lost(x);                   // out of the list, whose reference is ours
    suite_save_then(s, on_saved, l, 0);
}
