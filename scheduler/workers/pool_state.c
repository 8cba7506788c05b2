// SPDX-License-Identifier: Apache-2.0
// How the workers stand, for placement and for people.
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "scheduler/workers/pool_inside.h"

// A device whose workers die one after another takes no work while others may; one that then stays
// up is trusted again.
bool worker_drained(const struct worker *w) {
    if (w->role != ROLE_DEVICE || w->failures < DRAIN_FAILURES) return false;
    return w->state != W_READY || clock_ns() - w->ready_ns <= STEADY_MS * CLOCK_MS;
}

// Belongs to a tenant who has nothing under way there. One that was just given waits for its work.
bool worker_idle(const struct worker *w) {
    int64_t patience = w->served ? 0 : GIVEN_MS * CLOCK_MS;
    return *w->tenant && !w->places_taken && !w->calls.n && clock_ns() - w->used_ns >= patience;
}

int64_t worker_first_kill_ns(const struct worker *w) { // 0: no call was cancelled
    int64_t first = 0;
    for (size_t i = 0; i < w->calls.n; i++) {
        int64_t at = w->calls.v[i].kill_at_ns;
        if (at && (!first || at < first)) first = at;
    }
    return first;
}

// A cancelled call that has not ended yet may be the end of the process: nothing new goes there.
static bool full(const struct worker *w) {
    int64_t most = w->pool->cfg.flight_bytes;
    return most > 0 && w->flight_bytes >= most;
}

// Where workers do not belong to tenants: a relief without work.
bool worker_relief_idle(const struct worker *w) {
    return w->relief && !w->places_taken && !w->calls.n && !w->buffers;
}

// Behind what is under way there is no saying when it is one's turn.
static bool held(const struct worker *w) {
    bool unknown = w->unknown && w->role == ROLE_DEVICE; // of compiles it always is
    return w->places_taken && (unknown || clock_ns() - w->moved_ns > HELD_MS * CLOCK_MS);
}
bool worker_stuck(const struct worker *w) {
    const struct pool_config *cfg = &w->pool->cfg;
    int64_t after = w->role == ROLE_COMPILE ? cfg->compile_relief_ns : cfg->relief_ns;
    return w->places_taken && clock_ns() - w->moved_ns >= after;
}

// What a device computes at the same time, and one more that waits for its turn. Where it computes
// several that one is bound already, and of short runs another waits behind it: processors that are
// all at work take the reply, and what comes for it, later than a run takes.
static int most_calls(const struct worker *w) {
    enum { SHORT_MS = 50 }; // all that is under way
    const struct pool_config *cfg = &w->pool->cfg;
    if (w->role != ROLE_DEVICE) return cfg->isolate ? cfg->n_compile : 1;
    bool shortly = !w->unknown && w->expected_ns <= SHORT_MS * CLOCK_MS;
    int more = w->hello && w->hello->streams > 1 ? w->hello->streams - 1 + shortly : 0;
    return cfg->device_calls > 1 ? cfg->device_calls + more : cfg->device_calls;
}

static bool is_up(const struct worker *w) {
    return w->state == W_READY && !w->spent && !w->ending;
}
struct place_worker pool_place(const struct worker *w) {
    return (struct place_worker){.role = w->role,
                                 .kind = w->kind,
                                 .name = w->hello ? w->hello->device_name : w->name,
                                 .up = is_up(w),
                                 .ready = is_up(w) && !worker_first_kill_ns(w) && !full(w),
                                 .asked_only = w->lazy || w->joins,
                                 .owner = w->joins ? w->tenant : NULL,
                                 .drained = worker_drained(w),
                                 .hopeless = w->starts_without_hello >= MAX_STARTS_WITHOUT_HELLO ||
                                             (w->joins && w->joined < 0),
                                 .calls = w->places_taken,
                                 .expected_ns = w->expected_ns,
                                 .held = held(w),
                                 .stuck = worker_stuck(w),
                                 .relief = w->relief,
                                 .max_calls = most_calls(w),
                                 .group = w->group,
                                 .tenant = w->tenant,
                                 .spare = w->spare,
                                 .idle = worker_idle(w),
                                 .used = w->used_ns,
                                 .memory_bytes = w->pool->cfg.device_memory
                                                     ? w->pool->cfg.device_memory
                                                 : w->hello ? w->hello->memory_bytes
                                                            : 0,
                                 .planned_bytes = w->footprint.bytes};
}

void worker_describe(const struct worker *w, Hlod__V1__Device *out) {
    hlod__v1__device__init(out);
    static const char *const states[] = {"down", "starting", "ready", "down"};
    const Hlod__Wire__Hello *h = w->hello;
    if (h) {
        out->name = (char *)w->shown;
        out->kind = h->device_kind;
        out->target_id = h->target_id;
        out->description = h->description;
        out->memory_bytes = h->memory_bytes;
        out->threads = h->threads;
        out->filter = *h->filter ? h->filter : (char *)"off: unknown";
    } else {
        out->name = (char *)w->shown;
        out->kind = (char *)w->kind;
    }

    bool busy = w->state == W_READY && w->places_taken, waiting = w->joins && w->joined < 0;
    out->state = (char *)(busy ? "busy" : waiting ? "waiting" : states[w->state]);
    out->drained = worker_drained(w);
    bool never = w->state != W_READY && w->starts_without_hello > 0;
    out->why = (char *)(w->why || w->joins           ? worker_why(w)
                        : worker_drained(w) || never ? w->lost
                                                     : "");

    out->worker_pid = w->pid;
    out->worker_rss_bytes = w->rss_bytes;
    out->restarts = w->restarts;
    out->resident_executables = w->resident;
    out->prepared_bytes = w->prepared_bytes;
    out->runs = w->places_taken;
    out->planned_bytes = w->footprint.bytes;
    out->flight_bytes = w->flight_bytes;
    out->buffers = w->buffers;
    out->buffer_bytes = w->buffer_bytes;
}

const char *worker_why(const struct worker *w) {
    if (w->joins && w->joined < 0) return "no page has joined (/worker)";
    return w->why ? w->why : "";
}
const char *pool_why(const struct pool *p, enum worker_role role, const char *device) {
    struct place_want want = {.role = role, .device = device};
    for (int i = 0; i < p->n; i++) {
        struct place_worker v = pool_place(&p->w[i]);
        if (place_matches(&want, &v) && *worker_why(&p->w[i])) return worker_why(&p->w[i]);
    }
    return "";
}
void pool_devices(const struct pool *p, struct strbuf *out) {
    for (int i = 0; i < p->n; i++) {
        struct place_worker v = pool_place(&p->w[i]);
        bool again = v.role != ROLE_DEVICE || !v.name || !*v.name;
        for (int k = 0; k < i && !again; k++) { // processes of several tenants share one
            struct place_worker w = pool_place(&p->w[k]);
            again = w.role == ROLE_DEVICE && w.name && !strcmp(w.name, v.name);
        }
        if (!again) strbuf_printf(out, "%s%s", out->n ? ", " : "", v.name);
    }
}
const char *pool_filter(const struct pool *p) {
    for (int i = 0; i < p->n; i++) {
        const Hlod__Wire__Hello *h = p->w[i].hello;
        if (h && strcmp(h->filter, "on") != 0) return *h->filter ? h->filter : "off: unknown";
    }
    return "on";
}

status_t wire_status(const Hlod__Wire__Status *s) {
    if (!s || s->code == 0) return ST_OK;
    enum status_code code = s->code > 0 && s->code <= 16 ? (enum status_code)s->code : ST_UNKNOWN;
    return st_reason(st_new(code, "%s", s->message), s->reason);
}
