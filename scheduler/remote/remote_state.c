// SPDX-License-Identifier: Apache-2.0
// Whether each remote is well: what came of asking it, probes while it is down, what is told of it.
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "base/text.h"
#include "proto/message.h"
#include "scheduler/loop.h"
#include "scheduler/remote/remotes_inside.h"

enum { TICK_MS = 500, PROBE_BYTES = 64 << 10 };

void remote_well(struct remote *x) {
    if (breaker_down(&x->breaker)) log_event(LOG_INFO, "remote.up", "remote=\"%s\"", x->name);
    breaker_ok(&x->breaker);
}
static void set_why(struct remote *x, status_t st) {
    struct strbuf b = strbuf_over(x->why, sizeof x->why);
    text_show(&b, str_of(st_message(st)), ""); // may hold what the remote said
}
void remote_failed(struct remote *x, status_t st, int64_t retry_after_ms, bool sure) {
    bool was = breaker_down(&x->breaker);
    set_why(x, st);
    breaker_failed(&x->breaker, clock_ns(), retry_after_ms, sure);
    if (was || !breaker_down(&x->breaker)) return;
    log_event(LOG_WARN, "remote.down", "remote=\"%s\" why=\"%s\"", x->name, x->why);
    if (!x->all->stopping) loop_timer_start(x->all->tick, TICK_MS);
}
// One that gives what does not hold is no better than one that fails.
void remote_refused(struct remote *x, struct digest key, status_t st) {
    x->n.refused++;
    set_why(x, st);
    log_event(LOG_WARN, "remote.refused", "remote=\"%s\" key=%s why=\"%s\"", x->name,
              digest_to_hex(key).z, x->why);
    if (!x->is_peers) remote_failed(x, st, 0, false);
}

static void probed(void *ctx, struct fetch_reply *r) {
    struct remote *x = ctx;
    x->probe = NULL;
    (void)object_answer(x, r);
}
void remotes_tick(void *arg) {
    struct remotes *r = arg;
    bool down = false;
    for (size_t k = 0; k < r->n; k++) {
        struct remote *x = &r->v[k];
        down = down || breaker_down(&x->breaker);
        if (x->is_peers || !breaker_probe(&x->breaker, clock_ns())) continue;
        struct arena a = {0};
        const char *url = object_url(&a, x, (struct digest){{0}});
        x->probe = object_get(x, url, PROBE_BYTES, probed, x); // of what no key is
        arena_done(&a);
    }
    if (down) loop_timer_start(r->tick, TICK_MS);
}

// ---- what is told of them

void remotes_describe(struct remotes *r, struct arena *a, Hlod__V1__CacheStatsReply *out) {
    out->remotes = arena_zarray(a, Hlod__V1__RemoteState *, r->n + 1);
    for (size_t k = 0; k < r->n; k++) {
        const struct remote *x = &r->v[k];
        Hlod__V1__RemoteState *m = message_new(a, &hlod__v1__remote_state__descriptor);
        bool s3 = r->cfg.specs[x->index].kind == REMOTE_S3;
        m->remote = (char *)(uintptr_t)x->name;
        m->kind = (char *)(x->is_peers ? "peers" : s3 ? "s3" : "prefix");
        m->state = (char *)(breaker_down(&x->breaker) ? "down" : "up");
        m->why = arena_strdup(a, x->why);
        m->hits = x->n.hits;
        m->misses = x->n.misses;
        m->errors = x->n.errors;
        m->refused = x->n.refused;
        m->skipped = x->n.skipped;
        m->puts = x->n.puts;
        m->put_errors = x->n.put_errors;
        m->bytes_in = x->n.bytes_in;
        m->bytes_out = x->n.bytes_out;
        m->seconds = (double)x->n.ns / 1e9;
        if (x->is_peers) peers_describe(r->peers, a, m);
        out->remotes[out->n_remotes++] = m;
    }
}

enum of_remote {
    UP,
    HITS,
    MISSES,
    ERRORS,
    REFUSED,
    SKIPPED,
    PUTS,
    PUT_ERRORS,
    BYTES_IN,
    BYTES_OUT,
    SECONDS,
    OF_REMOTE_COUNT
};
static double of_remote(enum of_remote what, const struct remote *x) {
    const int64_t n[OF_REMOTE_COUNT] = {!breaker_down(&x->breaker),
                                        x->n.hits,
                                        x->n.misses,
                                        x->n.errors,
                                        x->n.refused,
                                        x->n.skipped,
                                        x->n.puts,
                                        x->n.put_errors,
                                        x->n.bytes_in,
                                        x->n.bytes_out};
    return what == SECONDS ? (double)x->n.ns / 1e9 : (double)n[what];
}
void remotes_metrics(struct remotes *r, struct strbuf *b) {
    static const char *const rows[OF_REMOTE_COUNT][3] = {
        [UP] = {"up", "gauge", "0 while a remote of the cache did not answer and is only probed"},
        [HITS] = {"hits_total", "counter", "executables that a remote gave"},
        [MISSES] = {"misses_total", "counter", "look-ups of what a remote does not have"},
        [ERRORS] = {"errors_total", "counter", "look-ups that a remote did not answer in time"},
        [REFUSED] = {"refused_total", "counter",
                     "executables of a remote that do not hold: damaged, not signed, another's"},
        [SKIPPED] = {"skipped_total", "counter", "look-ups left out while a remote was down"},
        [PUTS] = {"puts_total", "counter", "executables and models brought to a remote"},
        [PUT_ERRORS] = {"put_errors_total", "counter", "those that it did not take"},
        [BYTES_IN] = {"received_bytes_total", "counter", "bytes that a remote gave"},
        [BYTES_OUT] = {"sent_bytes_total", "counter", "bytes brought to a remote"},
        [SECONDS] = {"lookup_seconds_total", "counter", "time of all look-ups in a remote"}};
    for (int k = 0; k < OF_REMOTE_COUNT; k++) {
        strbuf_printf(b, "# HELP hlod_remote_%s %s\n# TYPE hlod_remote_%s %s\n", rows[k][0],
                      rows[k][2], rows[k][0], rows[k][1]);
        for (size_t i = 0; i < r->n; i++) {
            strbuf_printf(b, "hlod_remote_%s{remote=", rows[k][0]);
            strbuf_json_str(b, str_of(r->v[i].name)); // the escapes of a label's value
            strbuf_printf(b, "} %.15g\n", of_remote((enum of_remote)k, &r->v[i]));
        }
    }
}
