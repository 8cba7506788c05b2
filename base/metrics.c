// SPDX-License-Identifier: Apache-2.0
// One table of atomics. Histograms have fixed bounds from 100 us to 100 s, which fit request,
// queue, compile and run times alike.
#include "base/metrics.h"

#include <stdatomic.h>

enum kind { COUNTER, GAUGE, HISTOGRAM };
struct row {
    enum kind kind;
    const char *name, *help;
};
static const struct row rows[METRIC_COUNT] = {
#define METRIC(id, kind, name, help) [M_##id] = {kind, name, help},
#include "base/metrics.def"
#undef METRIC
};
enum { N_BOUNDS = 13 };
_Static_assert((int)N_BOUNDS <= (int)METRIC_MOST_BOUNDS, "a view has room");
static const int64_t bounds_ns[N_BOUNDS] = {
    100000,    316000,     1000000,    3160000,     10000000,    31600000,    100000000,
    316000000, 1000000000, 3160000000, 10000000000, 31600000000, 100000000000};
static _Atomic int64_t values[METRIC_COUNT]; // histograms: count
static _Atomic int64_t sums_ns[METRIC_COUNT];
static _Atomic int64_t buckets[METRIC_COUNT][N_BOUNDS];

void metric_add(enum metric_id id, int64_t n) {
    atomic_fetch_add_explicit(&values[id], n, memory_order_relaxed);
}
void metric_set(enum metric_id id, int64_t v) {
    atomic_store_explicit(&values[id], v, memory_order_relaxed);
}
int64_t metric_get(enum metric_id id) {
    return atomic_load_explicit(&values[id], memory_order_relaxed);
}
void metric_observe_ns(enum metric_id id, int64_t ns) {
    metric_add(id, 1);
    atomic_fetch_add_explicit(&sums_ns[id], ns, memory_order_relaxed);
    for (int k = 0; k < N_BOUNDS; k++)
        if (ns <= bounds_ns[k]) {
            atomic_fetch_add_explicit(&buckets[id][k], 1, memory_order_relaxed);
            break;
        }
}

void metric_look(enum metric_id id, struct metric_view *out) {
    static const enum metric_kind kinds[] = {METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM};
    const struct row *r = &rows[id];
    *out = (struct metric_view){
        .name = r->name, .help = r->help, .kind = kinds[r->kind], .value = metric_get(id)};
    if (r->kind != HISTOGRAM) return;
    int64_t below = 0;
    out->n_bounds = N_BOUNDS;
    out->bounds_ns = bounds_ns;
    out->sum_ns = atomic_load_explicit(&sums_ns[id], memory_order_relaxed);
    for (int k = 0; k < N_BOUNDS; k++) {
        out->counts[k] = atomic_load_explicit(&buckets[id][k], memory_order_relaxed);
        below += out->counts[k];
    }
    out->counts[N_BOUNDS] = out->value > below ? out->value - below : 0;
    out->value = below + out->counts[N_BOUNDS];
}

void metrics_text(struct strbuf *out) {
    static const char *const types[] = {
        [METRIC_COUNTER] = "counter", [METRIC_GAUGE] = "gauge", [METRIC_HISTOGRAM] = "histogram"};
    for (int id = 0; id < METRIC_COUNT; id++) {
        struct metric_view m;
        int64_t below = 0;
        metric_look((enum metric_id)id, &m);
        strbuf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", m.name, m.help, m.name, types[m.kind]);
        if (m.kind != METRIC_HISTOGRAM) {
            strbuf_printf(out, "%s %lld\n", m.name, (long long)m.value);
            continue;
        }
        for (int k = 0; k < m.n_bounds; k++) {
            below += m.counts[k];
            strbuf_printf(out, "%s_bucket{le=\"%g\"} %lld\n", m.name, (double)m.bounds_ns[k] / 1e9,
                          (long long)below);
        }
        strbuf_printf(out, "%s_bucket{le=\"+Inf\"} %lld\n%s_sum %.9f\n%s_count %lld\n", m.name,
                      (long long)m.value, m.name, (double)m.sum_ns / 1e9, m.name,
                      (long long)m.value);
    }
}

void metrics_counts(struct strbuf *out, const char *name, const char *help, const char *label,
                    const struct metric_count *v, size_t n) {
    strbuf_printf(out, "# HELP %s %s\n# TYPE %s counter\n", name, help, name);
    for (size_t k = 0; k < n; k++)
        strbuf_printf(out, "%s{%s=\"%s\"} %lld\n", name, label, v[k].value, (long long)v[k].n);
}
