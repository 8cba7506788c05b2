// SPDX-License-Identifier: Apache-2.0
// Work whose end was its worker's end: noted, put aside, refused (workers/blame.h).
#include "scheduler/queue/aside.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "scheduler/sched_inside.h"

static struct charge charge_of(const struct tenant *t, const char *step, struct digest work) {
    struct charge c = {.step = step, .work = work};
    snprintf(c.tenant, sizeof c.tenant, "%s", t->name);
    return c;
}

void sched_charge(struct worker *w, uint64_t call, const struct tenant *t, const char *step,
                  struct digest work) {
    struct charge c = charge_of(t, step, work);
    worker_charge(w, call, &c);
}

status_t sched_aside(const struct sched *s, const struct tenant *t, const char *step,
                     struct digest work) {
    if (!s->blames.rows.n) return ST_OK;
    struct charge c = charge_of(t, step, work);
    int64_t now = clock_ns();
    const struct blame *x = blames_find(&s->blames, &c, now);
    if (!x) return ST_OK;
    int64_t left_ms = clock_ms_left(x->until_ns);
    status_t st = st_new(ST_FAILED_PRECONDITION,
                         "to %s %.12s ended its worker %d times, the last time: %s; it is put "
                         "aside for %lld s more, or until an admin lifts that (hlo aside lift)",
                         step, digest_to_hex(work).z, (int)x->deaths, x->why,
                         (long long)(left_ms / 1000 + 1));
    return st_retry_after(st_reason(st, HLOD__V1__REASON__REASON_PUT_ASIDE), left_ms);
}

void sched_blame(void *ctx, const struct charge *of, const char *why) {
    struct sched *s = ctx;
    int64_t now = clock_ns();
    const struct blame *x = blames_add(&s->blames, of, why, now);
    if (x->until_ns <= now) return;
    metric_add(M_WORK_ASIDE, 1);
    log_event(LOG_WARN, "work.aside",
              "tenant=%s step=%s digest=%s deaths=%d seconds=%lld why=\"%s\"", of->tenant, of->step,
              digest_to_hex(of->work).z, (int)x->deaths,
              (long long)((x->until_ns - now) / 1000000000), why);
}
