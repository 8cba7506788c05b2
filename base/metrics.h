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
int64_t metric_get(enum metric_id id);                 // counter/gauge value, histogram count
void metrics_text(struct strbuf *out);
