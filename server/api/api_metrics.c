// SPDX-License-Identifier: Apache-2.0
// /metrics: the totals of base/metrics.def, what each device is, and what the daemon's own process
// takes, under the names that Prometheus' client libraries use for it.
#include <dirent.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/metrics.h"
#include "scheduler/cluster/cluster.h"
#include "scheduler/records/models.h"
#include "scheduler/remote/remotes.h"
#include "server/api/api.h"
#include "server/secrets.h"

int64_t api_rss_bytes(void) {
    long long pages = 0;
    FILE *f = fopen("/proc/self/statm", "re"); // not a disk file: does not block
    if (!f) return 0;
    if (fscanf(f, "%*s %lld", &pages) != 1) pages = 0;
    fclose(f);
    return pages * sysconf(_SC_PAGESIZE);
}

static void put_head(struct strbuf *b, const char *name, const char *type, const char *help) {
    strbuf_printf(b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}
static void put(struct strbuf *b, const char *name, const char *type, const char *help, double v) {
    put_head(b, name, type, help);
    strbuf_printf(b, "%s %.15g\n", name, v);
}

static int open_files(void) {
    int n = -3; // ".", "..", and the folder's own
    DIR *d = opendir("/proc/self/fd");
    while (d && readdir(d))
        n++;
    if (d) closedir(d);
    return d ? n : 0;
}
static double seconds(struct timeval t) {
    return (double)t.tv_sec + (double)t.tv_usec / 1e6;
}
static void put_process(struct strbuf *b, const struct api *api) {
    struct rlimit files = {0};
    struct rusage used = {0};
    getrlimit(RLIMIT_NOFILE, &files);
    getrusage(RUSAGE_SELF, &used);
    put(b, "process_cpu_seconds_total", "counter", "processor time of the daemon, workers apart",
        seconds(used.ru_utime) + seconds(used.ru_stime));
    put(b, "process_resident_memory_bytes", "gauge", "memory of the daemon, workers apart",
        (double)api_rss_bytes());
    put(b, "process_open_fds", "gauge", "open descriptors of the daemon", open_files());
    put(b, "process_max_fds", "gauge", "most descriptors it may have", (double)files.rlim_cur);
    put(b, "process_start_time_seconds", "gauge", "when the daemon started, since 1970",
        (double)(clock_wall_ns() - (clock_ns() - api->start_ns)) / 1e9);
}

enum of_device { UP, RESTARTS, MEMORY, OF_DEVICE_COUNT };
static double of_device(enum of_device what, const Hlod__V1__Device *d) {
    bool up = !d->drained && (!strcmp(d->state, "ready") || !strcmp(d->state, "busy"));
    return what == UP ? up : what == RESTARTS ? (double)d->restarts : (double)d->worker_rss_bytes;
}
static void put_devices(struct strbuf *b, struct pool *p) {
    static const char *const rows[OF_DEVICE_COUNT][3] = {
        [UP] = {"hlod_device_up", "gauge", "1 while the device takes work"},
        [RESTARTS] = {"hlod_device_restarts_total", "counter", "new starts of its worker"},
        [MEMORY] = {"hlod_device_worker_memory_bytes", "gauge", "memory of its worker's process"}};
    for (int k = 0; k < OF_DEVICE_COUNT; k++) {
        put_head(b, rows[k][0], rows[k][1], rows[k][2]);
        for (int i = 0; i < pool_size(p); i++) {
            Hlod__V1__Device d;
            struct place_worker w = pool_place(pool_worker(p, i));
            if (w.role != ROLE_DEVICE || w.spare) continue;
            worker_describe(pool_worker(p, i), &d);
            strbuf_printf(b, "%s{device=", rows[k][0]);
            strbuf_json_str(b, str_of(d.name)); // the escapes of a label's value
            strbuf_printf(b, "} %.15g\n", of_device((enum of_device)k, &d));
        }
    }
}

// ---- names of models: a label with a bound

enum { MAX_MODELS = 64 };
enum of_model { REQUESTS, FAILED, SECONDS, ROWS, OF_MODEL_COUNT };
static double of_model(enum of_model what, const struct named_model *x) {
    return what == REQUESTS  ? (double)(x->success.n + x->fail.n)
           : what == FAILED  ? (double)x->fail.n
           : what == SECONDS ? (double)(x->success.ns + x->fail.ns) / 1e9
                             : (double)x->inferences;
}
// Beyond the bound, and where tenants must not see each other's names, models are "other" together.
static void put_models(struct strbuf *b, const struct api *api) {
    static const char *const rows[OF_MODEL_COUNT][2] = {
        [REQUESTS] = {"hlod_model_requests_total", "requests by a model's name through /v2"},
        [FAILED] = {"hlod_model_request_errors_total", "those that failed"},
        [SECONDS] = {"hlod_model_request_seconds_total", "their time, from accepted to answered"},
        [ROWS] = {"hlod_model_rows_total", "rows that were inferred for them"}};
    struct named_model *first = models_first(sched_models(api->sched));
    for (int k = 0; k < OF_MODEL_COUNT; k++) {
        double other = 0;
        int n = 0, more = 0;
        put_head(b, rows[k][0], "counter", rows[k][1]);
        for (const struct named_model *x = first; x; x = x->next) {
            if (api->auth || n++ >= MAX_MODELS) {
                other += of_model((enum of_model)k, x);
                more++;
                continue;
            }
            char version[32];
            snprintf(version, sizeof version, "%lld", (long long)x->version);
            strbuf_printf(b, "%s{model=", rows[k][0]);
            strbuf_json_str(b, str_of(x->name));
            strbuf_printf(b, ",version=\"%s\"} %.15g\n", version, of_model((enum of_model)k, x));
        }
        if (more) strbuf_printf(b, "%s{model=\"other\",version=\"\"} %.15g\n", rows[k][0], other);
    }
}

void api_metrics(const struct api *api, struct strbuf *b) {
    put_head(b, "hlod_build_info", "gauge", "always 1; its version");
    strbuf_printf(b, "hlod_build_info{version=\"%s\"} 1\n", api_version_text());
    put(b, "hlod_ready", "gauge", "1 while /readyz says so", api_serves(api));
    put(b, "hlod_reload_ok", "gauge",
        "0 when options, tokens, certificates or keys had a mistake when they were last read, and "
        "those before stayed",
        !api->options_failed && (!api->secrets || secrets_ok(api->secrets)));
    metrics_text(b);
    put_devices(b, sched_pool(api->sched));
    put_models(b, api);
    struct remotes *r = sched_cfg(api->sched)->remotes;
    if (r) remotes_metrics(r, b);
    if (api->cluster) {
        const struct relay_counts *n = &api->relays;
        const struct metric_count relays[] = {
            {"ok", n->ok}, {"failed", n->failed}, {"away", n->away}};
        cluster_metrics(api->cluster, b);
        metrics_counts(
            b, "hlod_cluster_relays_total",
            "calls about buffers and uploads that other nodes have, which they answered, "
            "answered with an error, and for which they were not there",
            "outcome", relays, sizeof relays / sizeof *relays);
    }
    put_process(b, api);
}
