// SPDX-License-Identifier: Apache-2.0
// metrics.def by OTLP. Names are Prometheus's without what its exporters put behind them again
// (`_total`, the unit) and with a dot after `hlod`, so that a collector that writes Prometheus
// writes the names of /metrics. Cumulative, since the process began: what is lost costs nothing.
#include <stdio.h>
#include <stdlib.h>

#include "base/metrics.h"
#include "server/otlp/otlp_encode.h"

enum { METRICS = 2, METRIC_NAME = 1, METRIC_DESCRIPTION = 2, METRIC_UNIT = 3 };
enum { GAUGE = 5, SUM = 7, HISTOGRAM = 9 };
enum { POINTS = 1, TEMPORALITY = 2, CUMULATIVE = 2, MONOTONIC = 3 };
enum { START = 2, NOW = 3, AS_INT = 6, COUNT = 4, SUM_OF = 5, COUNTS = 6, BOUNDS = 7 };

static bool ends(struct str s, struct str with) {
    return s.n > with.n && !memcmp(s.p + s.n - with.n, with.p, with.n);
}
void otlp_metric_name(const char *prometheus, char out[OTLP_METRIC_NAME], const char **unit) {
    static const struct {
        struct str suffix;
        const char *unit;
    } units[] = {{{"_bytes", 6}, "By"}, {{"_seconds", 8}, "s"}};
    struct str s = str_of(prometheus);
    *unit = "";
    if (ends(s, STR("_total"))) s.n -= strlen("_total");
    for (size_t k = 0; k < sizeof units / sizeof *units; k++) {
        if (!ends(s, units[k].suffix)) continue;
        s.n -= units[k].suffix.n;
        *unit = units[k].unit;
    }
    snprintf(out, OTLP_METRIC_NAME, STR_FMT, STR_ARG(s));
    char *first = strchr(out, '_');
    if (first) *first = '.';
}

struct moment {
    int64_t start_ns, now_ns;
};
static void put_times(struct otlp_bytes *b, struct moment t) {
    if (t.start_ns) otlp_put_fixed64(b, START, (uint64_t)t.start_ns);
    otlp_put_fixed64(b, NOW, (uint64_t)t.now_ns);
}
static void put_number(struct otlp_bytes *b, int64_t v, struct moment t) {
    size_t open = otlp_open(b, POINTS);
    put_times(b, t);
    otlp_put_fixed64(b, AS_INT, (uint64_t)v);
    otlp_close(b, open);
}
static void put_histogram(struct otlp_bytes *b, const struct metric_view *m, struct moment t) {
    size_t open = otlp_open(b, POINTS);
    put_times(b, t);
    otlp_put_fixed64(b, COUNT, (uint64_t)m->value);
    otlp_put_double(b, SUM_OF, (double)m->sum_ns / 1e9);

    size_t list = otlp_open(b, COUNTS); // packed
    for (int k = 0; k <= m->n_bounds; k++)
        otlp_put_raw(b, &m->counts[k], sizeof m->counts[k]);
    otlp_close(b, list);
    list = otlp_open(b, BOUNDS);
    for (int k = 0; k < m->n_bounds; k++) {
        double s = (double)m->bounds_ns[k] / 1e9;
        otlp_put_raw(b, &s, sizeof s);
    }
    otlp_close(b, list);
    otlp_close(b, open);
}
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "packed numbers are written as they lie");

static void put_metric(struct otlp_bytes *b, enum metric_id id, struct moment t) {
    static const uint32_t fields[] = {
        [METRIC_COUNTER] = SUM, [METRIC_GAUGE] = GAUGE, [METRIC_HISTOGRAM] = HISTOGRAM};
    struct metric_view m;
    char name[OTLP_METRIC_NAME];
    const char *unit;
    metric_look(id, &m);
    otlp_metric_name(m.name, name, &unit);
    size_t open = otlp_open(b, METRICS);
    otlp_put_bytes(b, METRIC_NAME, name, strlen(name));
    otlp_put_bytes(b, METRIC_DESCRIPTION, m.help, strlen(m.help));
    if (*unit) otlp_put_bytes(b, METRIC_UNIT, unit, strlen(unit));

    size_t data = otlp_open(b, fields[m.kind]);
    if (m.kind == METRIC_GAUGE) t.start_ns = 0; // it has none
    if (m.kind == METRIC_HISTOGRAM)
        put_histogram(b, &m, t);
    else
        put_number(b, m.value, t);
    if (m.kind != METRIC_GAUGE) otlp_put_varint(b, TEMPORALITY, CUMULATIVE);
    if (m.kind == METRIC_COUNTER) otlp_put_varint(b, MONOTONIC, 1);
    otlp_close(b, data);
    otlp_close(b, open);
}

void otlp_encode_metrics(struct otlp_bytes *b, const struct otlp_origin *o, int64_t start_ns,
                         int64_t now_ns) {
    struct otlp_bytes all = {0};
    for (int id = 0; id < METRIC_COUNT; id++)
        put_metric(&all, (enum metric_id)id, (struct moment){start_ns, now_ns});
    otlp_request_head(b, o, all.n);
    otlp_put_raw(b, all.p, all.n);
    otlp_request_tail(b);
    free(all.p);
}
