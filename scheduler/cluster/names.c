// SPDX-License-Identifier: Apache-2.0
// What is to be told waits in `out` as packed records, and goes out a message every few
// milliseconds, so that neither the loop nor NATS gets much at once. A walk over all that is known
// fills it as it empties.
//
//   models_share: told -> out -> flush -> send          a change made here
//   names_look -> look (after a while) -> walk -> out   all of it
#include "scheduler/cluster/names.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/str.h"
#include "base/text.h"
#include "base/vec.h"
#include "proto/message.h"
#include "proto/weigh.h"
#include "scheduler/loop.h"
#include "scheduler/remote/peers.h"

enum { FLUSH_MS = 5, WALK_STEP = 32, GREET_MS = 150, LONGEST_PAUSE_MS = 60000, TENANT_MAX = 200 };
enum { LABELS_MAX = 256, LABEL_OUTPUT = 1024 };
struct names {
    struct names_config cfg;
    struct loop_timer *flush, *look;
    VEC(struct span) out; // from malloc, the next first
    size_t out_bytes;
    bool flushing, looking, walking;
    int64_t pause_ms, next_ns; // between walks that change nothing; of the next walk, earliest
    uint64_t walked_sum;       // ours when we last told all
    int64_t sent, taken, refused, walks;
};

// ---- what we tell

static void flush_soon(struct names *n) {
    if (n->flushing || !n->flush) return;
    n->flushing = true;
    loop_timer_start(n->flush, FLUSH_MS);
}
static void add_record(void *ctx, const Hlod__Journal__NamedModel *r) {
    struct names *n = ctx;
    size_t bytes = protobuf_c_message_get_packed_size(&r->base);
    if (bytes > NAMES_RECORD) {
        log_event(LOG_WARN, "names.long",
                  "name=\"%s\" bytes=%zu why=\"other nodes do not hear of it: its labels are too "
                  "long\"",
                  r->name, bytes);
        return;
    }
    uint8_t *p = malloc(bytes + 1);
    if (!p) abort();
    struct span one = {p, protobuf_c_message_pack(&r->base, p)};
    vec_push(&n->out, one);
    n->out_bytes += one.n;
}
static void on_change(void *ctx, const Hlod__Journal__NamedModel *r) {
    add_record(ctx, r);
    flush_soon(ctx);
}
static void send_some(struct names *n) {
    Hlod__Cluster__Names m = HLOD__CLUSTER__NAMES__INIT;
    struct arena a = {0};
    size_t bytes = 0, all;
    m.records = arena_array(&a, ProtobufCBinaryData, n->out.n + 1);
    while (m.n_records < n->out.n && m.n_records < NAMES_RECORDS &&
           (!m.n_records || bytes + n->out.v[m.n_records].n <= NAMES_PIECE)) {
        struct span s = n->out.v[m.n_records];
        bytes += s.n;
        m.records[m.n_records++] = (ProtobufCBinaryData){s.n, (uint8_t *)(uintptr_t)s.p};
    }
    m.whole = n->walking;
    m.sum = models_sum(n->cfg.models, &all);
    n->cfg.send(n->cfg.ctx, &m);
    n->sent += (int64_t)m.n_records;

    for (size_t k = 0; k < m.n_records; k++)
        free((void *)(uintptr_t)n->out.v[k].p);
    n->out.n -= m.n_records;
    n->out_bytes -= bytes;
    if (n->out.n) memmove(n->out.v, n->out.v + m.n_records, n->out.n * sizeof *n->out.v);
    arena_done(&a);
}
static void on_flush(void *arg) {
    struct names *n = arg;
    n->flushing = false;
    bool more = n->walking;
    for (int k = 0; more && k < WALK_STEP && n->out_bytes < NAMES_PIECE; k++)
        more = models_walk_on(n->cfg.models, WALK_STEP, add_record, n);
    if (n->out.n) send_some(n);
    if (n->walking && !more && !n->out.n) n->walking = false;
    if (n->walking || n->out.n) flush_soon(n);
}

// ---- do all know the same?

static void on_look(void *arg) {
    struct names *n = arg;
    size_t all;
    uint64_t sum = models_sum(n->cfg.models, &all);
    n->looking = false;
    if (n->walking || !n->cfg.differ(n->cfg.ctx, sum)) return;
    bool again = n->walks && sum == n->walked_sum;
    int64_t least = 2 * n->cfg.beat_ms;
    n->pause_ms = !again                               ? least
                  : n->pause_ms * 2 < LONGEST_PAUSE_MS ? n->pause_ms * 2
                                                       : LONGEST_PAUSE_MS;
    n->next_ns = clock_ns() + n->pause_ms * CLOCK_MS;
    n->walked_sum = sum;
    n->walking = true;
    n->walks++;
    models_walk(n->cfg.models);
    flush_soon(n);
}
// Where we stand among the others: not all at once.
static int64_t spread(const struct names *n, int64_t ms) {
    return (int64_t)(hash64(n->cfg.node, strlen(n->cfg.node), (uint64_t)clock_ns()) %
                     (uint64_t)(ms + 1));
}
// Beats that were on their way when we were told the same are waited for.
void names_look(struct names *n, bool fresh) {
    if (n->looking || !n->look) return;
    if (!fresh && clock_ns() < n->next_ns) return;
    n->looking = true;
    loop_timer_start(n->look, fresh ? GREET_MS + spread(n, GREET_MS)
                                    : n->cfg.beat_ms * 3 / 2 + spread(n, n->cfg.beat_ms));
}

// ---- what we hear

static bool labels_fit(const Hlod__Journal__NamedModel *r) {
    if (r->n_labels > LABELS_MAX) return false;
    for (size_t i = 0; i < r->n_labels; i++)
        if (strnlen(r->labels[i]->output, LABEL_OUTPUT + 1) > LABEL_OUTPUT) return false;
    return true;
}
const char *names_fault(const Hlod__Journal__NamedModel *r, int64_t wall_ms) {
    if (!models_name_fits(r->name)) return "no name of a model";
    if (!text_is_name(str_of(r->tenant), TENANT_MAX)) return "no tenant";
    if (!peer_name_fits(r->writer)) return "no node";
    if (r->version < 1) return "no version";
    if (r->revision < 1 || r->revision / 1000 > wall_ms + NAMES_AHEAD_MS) return "no revision";
    if (r->source.len != sizeof(struct digest) && !(r->removed && !r->source.len))
        return "no digest";
    if (r->batch_max < 0 || r->batch_delay_us < 0) return "no batching";
    return labels_fit(r) ? NULL : "no labels";
}
struct names_heard *names_read(struct arena *a, const Hlod__Cluster__Names *m, int64_t wall_ms) {
    struct names_heard *h = arena_new_of(a, struct names_heard);
    if (m->n_records > NAMES_RECORDS) return NULL;
    *h = (struct names_heard){.whole = m->whole, .sum = m->sum};
    h->records = arena_zarray(a, Hlod__Journal__NamedModel *, m->n_records + 1);
    for (; h->n < m->n_records; h->n++) {
        struct span bytes = {m->records[h->n].data, m->records[h->n].len};
        h->records[h->n] = weigh_unpack_in(a, &hlod__journal__named_model__descriptor, bytes);
        if (!h->records[h->n] || names_fault(h->records[h->n], wall_ms)) return NULL;
    }
    return h;
}
void names_hear(struct names *n, const struct names_heard *h) {
    bool any = false, full = false;
    size_t all;
    for (size_t k = 0; k < h->n; k++) {
        enum models_merged how = models_merge(n->cfg.models, h->records[k]);
        any = any || how == MODELS_TAKEN;
        full = full || how == MODELS_FULL;
        n->taken += how == MODELS_TAKEN;
        n->refused += how == MODELS_FULL;
    }
    if (full)
        log_event(LOG_WARN, "names.full",
                  "why=\"more names in the cluster than this node keeps (max_names)\"");
    // Somebody who knows what we know tells all: we need not.
    if (h->whole && n->looking && h->sum == models_sum(n->cfg.models, &all)) {
        loop_timer_stop(n->look);
        n->looking = false;
        n->next_ns = clock_ns() + 2 * n->cfg.beat_ms * CLOCK_MS;
    }
    if (any) n->cfg.changed(n->cfg.ctx);
}

// ---- life

struct names *names_new(const struct names_config *cfg) {
    struct names *n = arena_must_calloc(1, sizeof *n);
    n->cfg = *cfg;
    n->flush = loop_timer_new(cfg->loop, on_flush, n);
    n->look = loop_timer_new(cfg->loop, on_look, n);
    models_share(cfg->models, cfg->node, on_change, n);
    return n;
}
void names_stop(struct names *n) {
    if (!n || !n->flush) return;
    if (n->out.n) send_some(n);
    models_share(n->cfg.models, n->cfg.node, NULL, NULL);
    loop_timer_free(n->flush);
    loop_timer_free(n->look);
    n->flush = n->look = NULL;
}
void names_free(struct names *n) {
    if (!n) return;
    for (size_t k = 0; k < n->out.n; k++)
        free((void *)(uintptr_t)n->out.v[k].p);
    vec_done(&n->out);
    free(n);
}

void names_metrics(const struct names *n, struct strbuf *b) {
    const struct metric_count all[] = {
        {"told", n->sent}, {"taken", n->taken}, {"refused", n->refused}};
    metrics_counts(b, "hlod_cluster_names_total",
                   "names of models told to other nodes, taken from them, and refused for want of "
                   "room",
                   "what", all, sizeof all / sizeof *all);
}
