// SPDX-License-Identifier: Apache-2.0
// metrics: counters, gauges and histograms declared in metrics.def; text in the Prometheus
// exposition format 0.0.4. Relaxed atomics, any thread.
#pragma once
#include "base/str.h"
#include <stdint.h>
enum metric_id {
#define METRIC(id, kind, name, help) M_##id,
#include "base/metrics.def"
#undef METRIC
    METRIC_COUNT
};
void metric_add(enum metric_id id, int64_t n);         // counter or gauge
void metric_set(enum metric_id id, int64_t v);         // gauge
void metric_observe_ns(enum metric_id id, int64_t ns); // histogram, seconds in the text
enum { METRIC_MOST_BOUNDS = 16 };
struct metric_view { // of one, at about this moment
    const char *name, *help;
    enum metric_kind { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM } kind;
    int64_t value, sum_ns; // a histogram's count is that of its buckets
    int n_bounds;
    const int64_t *bounds_ns;               // upper ones, rising
    int64_t counts[METRIC_MOST_BOUNDS + 1]; // each for itself; the last is beyond all bounds
};
void metric_look(enum metric_id id, struct metric_view *out);
int64_t metric_get(enum metric_id id); // counter/gauge value, histogram count
void metrics_text(struct strbuf *out);
// A counter that is no row of metrics.def, by the values of one label. All texts: static.
struct metric_count {
    const char *value;
    int64_t n;
};
void metrics_counts(struct strbuf *out, const char *name, const char *help, const char *label,
                    const struct metric_count *v, size_t n);
