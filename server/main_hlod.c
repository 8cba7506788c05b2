// SPDX-License-Identifier: Apache-2.0
// hlod: the daemon. Reads its options, opens the data folder, starts the workers (before anything
// large is in memory: a fork is cheap then), listens, and runs the loop until SIGTERM or SIGINT:
// then it takes no more connections, waits for the jobs under way, and ends.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uv.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/store/file.h"
#include "base/store/store.h"
#include "base/text.h"
#include "base/vec.h"
#include "proto/kinds.h"
#include "scheduler/cluster/cluster.h"
#include "scheduler/loop.h"
#include "scheduler/queue/tenant.h"
#include "scheduler/records/journal.h"
#include "scheduler/records/models.h"
#include "scheduler/suite/suite.h"
#include "scheduler/workers/plugins.h"
#include "server/api/api_uploads.h"
#include "server/body/budget.h"
#include "server/check_device.h"
#include "server/config.h"
#include "server/fleet.h"
#include "server/grpc/grpc.h"
#include "server/http/cors.h"
#include "server/http/http.h"
#include "server/last_words.h"
#include "server/membership.h"
#include "server/notify.h"
#include "server/oip/oip.h"
#include "server/otlp/otlp.h"
#include "server/reserve.h"
#include "server/secrets.h"
#include "server/tls.h"

enum { MAX_DEVICES = 32 };
struct device_list {
    const char **v;
    size_t n, cap;
};
struct daemon {
    int argc;
    char **argv;
    struct config cfg;
    struct loop *loop;
    struct store *store;
    struct journal *journal;
    struct sched *sched;
    struct journal_jobs *jobs;
    struct suites *suites;
    struct plugins plugins;
    struct api api;
    struct tls *tls; // NULL: plain
    struct fleet fleet;
    struct membership members;
    struct secrets *secrets;
    struct http *http;
    struct rpc *rpc;     // NULL: not wanted
    int max_connections; // of each port
    // What start() makes of the options: addresses, data folder, devices.
    const char *host, *grpc_host;
    uint16_t port, grpc_port;
    const char *dir;
    struct device_list devices;
    struct otlp_config otlp;
    struct notify *notify; // NULL: no service manager
    uv_signal_t sig[4];
    char backup_dir[4096];
    status_t backup_st;
    bool backing_up, backup_again;
    struct loop_timer *drain;
    int64_t drain_until_ns;
};

// ---- shutdown

static int open_requests(const struct daemon *d) {
    return http_open_requests(d->http) + (d->rpc ? rpc_open_calls(d->rpc) : 0);
}

static int puts_under_way(const struct daemon *d) {
    return d->fleet.remotes ? remotes_busy(d->fleet.remotes) : 0;
}
static void take_no_more(struct daemon *d) {
    d->api.draining = true;
    suites_stop(d->suites);
    if (d->fleet.remotes) remotes_quiesce(d->fleet.remotes);
    http_quiesce(d->http);
    if (d->rpc) rpc_quiesce(d->rpc);
    d->drain_until_ns = clock_ns() + clock_of_ms((double)d->cfg.drain_ms);
}
enum { DRAIN_LOOK_MS = 20 };
static void on_drain(void *arg) {
    struct daemon *d = arg;
    bool over = d->api.draining && clock_ns() >= d->drain_until_ns, first = !d->api.draining;
    if (first) take_no_more(d); // who has just asked on a connection that it keeps is told
    int others = puts_under_way(d) + suites_away(d->suites);
    if (first || (sched_active(d->sched) + open_requests(d) + others > 0 && !over)) {
        loop_timer_start(d->drain, DRAIN_LOOK_MS);
        return;
    }
    if (over)
        log_event(LOG_WARN, "server.drain", "jobs=%d requests=%d", sched_active(d->sched),
                  open_requests(d));
    loop_stop(d->loop);
}

static void on_signal(uv_signal_t *s, int number) {
    struct daemon *d = s->data;
    if (d->api.leaving) { // a second one means now
        if (!d->api.draining) take_no_more(d);
        d->drain_until_ns = 0;
        loop_timer_start(d->drain, 0);
        return;
    }
    log_event(LOG_INFO, "server.stop", "signal=%d jobs=%d", number, sched_active(d->sched));
    d->api.leaving = true;
    notify_stopping(d->notify);
    cluster_leave(d->members.cluster);
    d->drain = loop_timer_new(d->loop, on_drain, d);
    loop_timer_start(d->drain, d->cfg.leave_ms);
}

// ---- what the options make of the parts that may change

static struct suites_config suites_options(const struct config *c) {
    return (struct suites_config){.parallel = (int)c->job_parallel,
                                  .keep = {.jobs = c->job_keep, .bytes = c->job_keep_bytes},
                                  .keep_ns = c->job_keep_days * 86400 * 1000000000,
                                  .replicas = (int)c->jobs_replicas,
                                  .lease_ms = c->jobs_lease_ms};
}

static struct sched_config sched_options(const struct config *c) {
    Hlod__Wire__Limits limits = HLOD__WIRE__LIMITS__INIT;
    limits.own_names = *c->tokens != 0;
    return (struct sched_config){.max_queue = (int32_t)c->max_queue,
                                 .default_timeout_ms = c->timeout_ms,
                                 .limits = limits,
                                 .cache_budget_bytes = c->cache_bytes,
                                 .max_shapes = (int32_t)c->max_shapes,
                                 .compiles_a_minute = c->compile_rate,
                                 .buffer_bytes = c->buffer_bytes,
                                 .reply_bytes = c->reply_bytes,
                                 .max_names = c->max_names,
                                 .buffer_lease_ms = c->buffer_lease_ms,
                                 .tenants = c->tenants,
                                 .cancel_grace_ms = c->cancel_grace_ms,
                                 .by_tenant = *c->tokens != 0,
                                 .alone_ns = c->alone_us * 1000};
}
static void api_options(struct api *a, const struct config *c) {
    a->allow_model_load = c->allow_model_load;
    a->allow_cache_import = c->allow_cache_import;
    a->trust_tenant_header = c->trust_tenant_header;
    a->max_uploads = (int)c->max_uploads;
    a->upload_keep_ms = c->upload_keep_s * 1000;
}

static void start_backup(struct daemon *d);

// ---- reload

static void reloaded(struct daemon *d, const char *what, status_t st) {
    d->api.options_failed = st != ST_OK;
    if (st)
        log_event(LOG_ERROR, "server.reload", "what=%s why=\"%s; what was before stays\"", what,
                  st_message(st));
    else
        log_event(LOG_INFO, "server.reload", "what=%s", what);
    st_drop(st);
}
static void option_changed(UNUSED void *ctx, const char *name, bool live, const char *from,
                           const char *to) {
    log_event(live ? LOG_INFO : LOG_WARN, "server.option", "name=%s from=\"%s\" to=\"%s\"%s", name,
              from, to, live ? "" : " why=\"needs a restart\"");
}
// Options again, from the same places. With any mistake in them nothing changes.
static void reload_options(struct daemon *d) {
    struct config next = {0};
    struct otlp_config otlp;
    status_t st = config_read(d->argc, d->argv, environ, &next);
    if (!st) st = otlp_config_live(&next.arena, &next, environ, &otlp);
    if (!st && !log_set(next.log)) st = st_invalid("log: '%s' is no level", next.log);
    if (!st) {
        struct sched_config sc = sched_options(&next);
        st = sched_configure(d->sched, &sc);
    }
    if (!st) {
        config_update(&d->cfg, &next, option_changed, d);
        api_options(&d->api, &d->cfg);
        struct suites_config jobs = suites_options(&d->cfg);
        suites_configure(d->suites, &jobs);
        otlp_configure(d->api.otlp, &otlp);
    }
    config_done(&next);
    reloaded(d, "options", st);
}
static void secrets_were_read(void *ctx) {
    notify_reloaded(((struct daemon *)ctx)->notify);
}
static void on_hangup(uv_signal_t *s, UNUSED int number) {
    struct daemon *d = s->data;
    notify_reloading(d->notify);
    reload_options(d);
    secrets_read(d->secrets, secrets_were_read, d);
}

// ---- backup

// DATA/backup/: the databases as they are now. What they name besides (blobs, programs,
// executables) never changes under its name: it is copied after them, by any tool.
static void backup_work(void *arg) {
    struct daemon *d = arg;
    const char *dir = d->backup_dir;
    status_t st = mkdir(dir, 0700) && errno != EEXIST ? st_errno(errno, dir) : ST_OK;
    if (!st) st = journal_backup(d->journal, dir);
    if (!st) st = journal_jobs_backup(d->jobs, dir);
    d->backup_st = st;
}
static void backed_up(void *arg) {
    struct daemon *d = arg;
    d->backing_up = false;
    if (d->backup_st)
        log_event(LOG_ERROR, "server.backup", "why=\"%s\"", st_message(d->backup_st));
    else
        log_event(LOG_INFO, "server.backup", "folder=\"%s\"", d->backup_dir);
    st_drop(d->backup_st);
    if (!d->backup_again) return;
    d->backup_again = false;
    start_backup(d);
}
static void start_backup(struct daemon *d) {
    d->backing_up = true;
    loop_work(d->loop, backup_work, backed_up, d);
}
static void on_backup(uv_signal_t *s, UNUSED int number) {
    struct daemon *d = s->data;
    if (d->backing_up)
        d->backup_again = true; // what changed since it began
    else
        start_backup(d);
}

// ---- start

static bool can_serve(void *ctx) {
    const struct daemon *d = ctx;
    return sched_can_serve(d->sched);
}

MUST_CHECK static status_t of_data(status_t st, const char *dir) {
    return st_note(st, "data folder %s (--data)", dir);
}

static const char *data_dir(struct daemon *d) {
    return *d->cfg.data ? d->cfg.data : store_default_dir(&d->cfg.arena);
}

static const char *worker_path(struct daemon *d) {
    if (*d->cfg.worker) return d->cfg.worker;
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0) return "hlod-worker";
    self[n] = 0;
    char *slash = strrchr(self, '/');
    return arena_printf(&d->cfg.arena, "%.*s/hlod-worker", (int)(slash - self), self);
}

static status_t write_port(const char *path, const char *host, uint16_t port) {
    if (!*path) return ST_OK;
    char tmp[4100];
    snprintf(tmp, sizeof tmp, "%.4090s.tmp", path);
    FILE *f = fopen(tmp, "we");
    if (!f) return st_errno(errno, tmp);
    bool ok = fprintf(f, strchr(host, ':') ? "[%s]:%u\n" : "%s:%u\n", host, port) > 0;
    if (fclose(f) || !ok || rename(tmp, path)) return st_errno(errno, path);
    return ST_OK;
}

static status_t address(struct config *c, const char *text, const char **out_host,
                        uint16_t *out_port) {
    RETURN_IF_ERR(config_address(&c->arena, text, out_host, out_port));
    if (str_is_loopback(str_of(*out_host)) || *c->tokens) return ST_OK;
    if (!c->insecure_allow_anonymous)
        return st_new(
            ST_FAILED_PRECONDITION,
            "%s is not a loopback address, and callers would not be authenticated: whoever "
            "reaches it could compile, run and delete. Name a file of tokens (--tokens, see "
            "`hlo tokens add`), or say --insecure-allow-anonymous to allow it",
            *out_host);
    if (c->allow_model_load)
        return st_new(
            ST_FAILED_PRECONDITION,
            "--allow-model-load is for loopback addresses; on %s give the callers that may "
            "load a token with the scope `load` (--tokens)",
            *out_host);
    return ST_OK;
}

// What the options about callers say together; reads tokens and certificates.
static status_t start_security(struct daemon *d) {
    const struct config *c = &d->cfg;
    if (*c->tokens && c->insecure_allow_anonymous)
        return st_invalid("--tokens and --insecure-allow-anonymous contradict each other");
    if (!*c->tls_cert != !*c->tls_key) return st_invalid("--tls-cert and --tls-key go together");
    if (*c->tls_client_ca && (!*c->tls_cert || !*c->tokens))
        return st_invalid(
            "--tls-client-ca needs --tls-cert, and --tokens, where `cert:` lines say what "
            "the owner of a certificate may do");
    d->secrets = secrets_new();
    struct tls_files files = {c->tls_cert, c->tls_key, c->tls_client_ca};
    if (*c->tokens) auth_watch(&d->api.auth, c->tokens, d->secrets);
    if (*c->tls_cert) tls_watch(&d->tls, &files, d->secrets);
    if (*c->tokens) RETURN_IF_ERR(st_note(auth_open(c->tokens, &d->api.auth), "tokens"));
    RETURN_IF_ERR(fleet_read(&d->fleet, &d->cfg, d->secrets));
    RETURN_IF_ERR(membership_read(&d->members, &d->cfg, d->secrets));
    return *c->tls_cert ? st_note(tls_open(&files, &d->tls), "TLS") : ST_OK;
}

static struct rpc_config grpc_options(const struct daemon *d) {
    const struct config *c = &d->cfg;
    return (struct rpc_config){.address = c->grpc,
                               .spin_ns = c->spin_us * 1000,
                               .header_s = (int)c->header_s,
                               .max_connections = d->max_connections,
                               .max_per_address = (int)c->max_per_address,
                               .max_message_bytes = c->max_message_bytes,
                               .receive_bytes = c->receive_bytes,
                               .tls = d->tls};
}
static status_t start_grpc(struct daemon *d) {
    struct config *c = &d->cfg;
    struct rpc_config rc = grpc_options(d);
    RETURN_IF_ERR(st_note(rpc_start(d->loop, &d->api, &rc, &d->rpc), "--grpc"));
    log_event(LOG_INFO, "server.listen", "grpc=%s:%d", d->grpc_host, rpc_port(d->rpc));
    return st_note(write_port(c->grpc_port_file, d->grpc_host, (uint16_t)rpc_port(d->rpc)),
                   "--grpc-port-file");
}

// One entry of --device: "cpu", "sim:latency_us=5", or so many alike: "cpu*2",
// "sim*3:latency_us=5".
static status_t add_devices(struct arena *a, const struct plugins *plugins,
                            struct device_list *list, struct str spec) {
    struct str rest = spec, kind, number;
    str_cut(&rest, ':', &kind);
    bool has_options = kind.n < spec.n, many = memchr(kind.p, '*', kind.n) != NULL;
    int64_t n = 1;
    number = kind;
    if (many) str_cut(&number, '*', &kind);
    if (many && (!str_to_i64(number, &n) || n < 1 || n > MAX_DEVICES))
        return st_invalid("device: '" STR_FMT "': expected KIND*N, N from 1 to %d", STR_ARG(spec),
                          MAX_DEVICES);
    const char *text =
        arena_printf(a, STR_FMT "%s" STR_FMT, STR_ARG(kind), has_options ? ":" : "", STR_ARG(rest));
    if (has_options && kind_has(text, KIND_JOINS))
        return st_invalid("device: '%s': the kind has no options", text);
    RETURN_IF_ERR(plugins_device(plugins, a, text, &text));
    const struct plugin *x = plugins_of_kind(plugins, arena_strndup(a, kind.p, kind.n));
    status_t absent = x && !kind_has(text, KIND_PLUGIN) ? plugin_present(x) : ST_OK;
    if (absent) // it may be installed while we run
        log_event(LOG_WARN, "device.absent", "device=%s why=\"%s\"", text, st_message(absent));
    st_drop(absent);
    for (int64_t i = 0; i < n; i++)
        avec_push(a, list, text);
    return ST_OK;
}

// A connection takes one or two descriptors over HTTP, one over gRPC, the rest of the daemon fewer
// than RESERVED_FILES: a daemon that has none left cannot even close the connections that wait.
enum { RESERVED_FILES = 48, LEAST_FILES = RESERVED_FILES + 16 };
// As many as the system lets us; with fewer than LEAST_FILES libraries end the process while it
// starts.
static status_t raise_files(void) {
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files)) return ST_OK;
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    return files.rlim_max >= LEAST_FILES
               ? ST_OK
               : st_invalid(
                     "the limit of open files is %lld: at least %d are needed (LimitNOFILE=, "
                     "ulimit -n)",
                     (long long)files.rlim_max, LEAST_FILES);
}
static int allowed_connections(const struct config *c) {
    struct rlimit files;
    rlim_t each = *c->grpc ? 3 : 2;
    if (getrlimit(RLIMIT_NOFILE, &files) ||
        files.rlim_cur >= (rlim_t)c->max_connections * each + RESERVED_FILES)
        return (int)c->max_connections;
    int n = files.rlim_cur > LEAST_FILES ? (int)((files.rlim_cur - RESERVED_FILES) / each) : 8;
    log_event(LOG_WARN, "server.files",
              "limit=%lld max_connections=%d why=\"max_connections is %lld, for which the limit of "
              "open files is too low (LimitNOFILE=, ulimit -n)\"",
              (long long)files.rlim_cur, n, (long long)c->max_connections);
    return n;
}

static bool has_pages(const struct device_list *devices) {
    for (size_t i = 0; i < devices->n; i++)
        if (kind_has(devices->v[i], KIND_JOINS)) return true;
    return false;
}
static struct http_config http_options(const struct daemon *d, const char *host, uint16_t port) {
    const struct config *c = &d->cfg;
    return (struct http_config){.host = host,
                                .port = port,
                                .max_model_bytes = c->max_model_bytes,
                                .max_message_bytes = c->max_message_bytes,
                                .max_json_bytes = c->max_json_bytes,
                                .max_connections = d->max_connections,
                                .max_per_address = (int)c->max_per_address,
                                .header_s = (int)c->header_s,
                                .idle_s = (int)c->idle_s,
                                .tls = d->tls,
                                .workers = has_pages(&d->devices),
                                .joins_a_minute = c->join_rate,
                                .cors = c->cors_origin,
                                .local_only = str_is_loopback(str_of(host)) && !d->api.auth &&
                                              !c->insecure_allow_anonymous};
}

// A message on stderr. It may hold what a file or the environment holds: shown, so that it moves
// nothing on a terminal.
static void say(status_t st, const char *more) {
    struct strbuf b = {0};
    struct str text = str_of(st_message(st)), line;
    for (int n = 0; str_cut(&text, '\n', &line); n++) {
        if (n) strbuf_putc(&b, '\n');
        text_show(&b, line, "");
    }
    fprintf(stderr, "hlod: %s%s\n", strbuf_cstr(&b), more);
    strbuf_done(&b);
}

// --check-config: makes both listeners, with their certificates, and lets them go. A port that is
// taken may be a daemon's that runs with these options: said, not refused, and another one tried.
MUST_CHECK static status_t try_http(struct http_config hc) {
    bool in_use;
    status_t st = http_try(&hc, &in_use);
    if (!in_use) return st;
    say(st, " (another hlod?)");
    st_drop(st);
    hc.port = 0;
    return http_try(&hc, &in_use);
}
static status_t try_listeners(struct daemon *d) {
    struct http_config hc = http_options(d, d->host, d->port);
    RETURN_IF_ERR(try_http(hc));
    if (!*d->cfg.grpc) return ST_OK;
    struct rpc_config rc = grpc_options(d);
    bool in_use;
    hc.host = d->grpc_host;
    hc.port = d->grpc_port;
    status_t st = http_try(&hc, &in_use); // says why, where the other does not
    if (st && !in_use) return st;
    if (in_use) {
        say(st, " (another hlod?)");
        rc.address = arena_printf(&d->cfg.arena, strchr(d->grpc_host, ':') ? "[%s]:0" : "%s:0",
                                  d->grpc_host);
    }
    st_drop(st);
    return rpc_try(&rc);
}

// --check-config: the data folder, or where it would be made, takes files.
static status_t try_folder(const char *dir) {
    char at[4096];
    struct stat sb;
    if (snprintf(at, sizeof at, "%s", dir) >= (int)sizeof at)
        return st_invalid("data folder %.80s...: the name is too long", dir);
    while (stat(at, &sb)) {
        char *slash = strrchr(at, '/');
        if (errno != ENOENT) return of_data(st_errno(errno, at), dir);
        snprintf(slash ? slash + (slash == at) : at, 2, "%s", slash ? "" : ".");
    }
    if (!S_ISDIR(sb.st_mode)) return st_invalid("data folder %s: %s is no folder", dir, at);
    if (access(at, W_OK | X_OK)) return of_data(st_errno(errno, at), dir);
    return ST_OK;
}

// Judges the options that concern several parts, before anything is opened.
static status_t judge_options(struct daemon *d) {
    struct config *c = &d->cfg;
    RETURN_IF_ERR(st_note(address(c, c->http, &d->host, &d->port), "--http"));
    if (*c->grpc)
        RETURN_IF_ERR(st_note(address(c, c->grpc, &d->grpc_host, &d->grpc_port), "--grpc"));
    RETURN_IF_ERR(start_security(d));
    if (!log_set(c->log)) return st_invalid("log: '%s' is no level", c->log);
    d->dir = data_dir(d);
    snprintf(d->backup_dir, sizeof d->backup_dir, "%s/backup", d->dir);
    RETURN_IF_ERR(cors_check(c->cors_origin));
    RETURN_IF_ERR(otlp_config_read(&c->arena, c, environ, &d->otlp));

    RETURN_IF_ERR(plugins_init(&c->arena, d->dir, c->plugins, &d->plugins));
    struct str list = str_of(c->device), one;
    while (list.n && str_cut(&list, ',', &one))
        RETURN_IF_ERR(add_devices(&c->arena, &d->plugins, &d->devices, one));
    if (*c->isolate && strcmp(c->isolate, "tenant") != 0)
        return st_invalid("isolate: 'tenant' or nothing, not '%s'", c->isolate);
    if (d->devices.n == 0 || d->devices.n > MAX_DEVICES)
        return st_invalid("device: expected 1 to %d devices", MAX_DEVICES);
    d->max_connections = allowed_connections(c);
    return ST_OK;
}

// --check-config
static status_t check(struct daemon *d) {
    const struct device_list *devices = &d->devices;
    struct config *c = &d->cfg;
    RETURN_IF_ERR(tenants_check(c->tenants));
    RETURN_IF_ERR(try_folder(d->dir));
    const char *worker = worker_path(d);
    if (access(worker, X_OK)) return st_note(st_errno(errno, worker), "worker program");
    for (size_t i = 0; i < devices->n; i++)
        if (i == 0 || strcmp(devices->v[i], devices->v[i - 1]) != 0) // KIND*N: once
            RETURN_IF_ERR(
                check_device(&d->plugins, &c->arena, worker, devices->v[i], c->pjrt_plugin));
    return try_listeners(d);
}

static status_t open_data(struct daemon *d) {
    const char *dir = d->dir;
    RETURN_IF_ERR(of_data(file_make_parents(dir, 0700), dir));
    RETURN_IF_ERR(of_data(store_open(dir, d->cfg.cache_bytes, &d->store), dir));
    if (*store_mended(d->store))
        log_event(LOG_ERROR, "store.damaged", "why=\"%s\"", store_mended(d->store));
    if (store_free_bytes(d->store) < STORE_LITTLE)
        log_event(LOG_ERROR, "server.disk",
                  "free=%lld why=\"the disk is full: uploads, compiles, names and batch jobs are "
                  "refused\"",
                  (long long)store_free_bytes(d->store));
    RETURN_IF_ERR(of_data(journal_open(dir, &d->journal), dir));
    return of_data(journal_jobs_open(dir, &d->jobs), dir);
}

// Workers, scheduler and batch jobs.
static status_t start_scheduler(struct daemon *d) {
    const struct config *c = &d->cfg;
    if (*c->pjrt_plugin && setenv("HLOD_PJRT_PLUGIN", c->pjrt_plugin, 1)) return st_oom();
    struct sched_config sc = sched_options(c);
    sc.pool = (struct pool_config){.worker_path = worker_path(d),
                                   .dir = d->dir,
                                   .devices = d->devices.v,
                                   .n_devices = (int)d->devices.n,
                                   .plugins = &d->plugins,
                                   .n_compile = (int)c->compile_workers,
                                   .compile_memory = c->compile_memory,
                                   .filter = c->worker_filter,
                                   .compute_spin = c->compute_spin,
                                   .keep_bytes = c->keep_bytes,
                                   .flight_bytes = c->flight_bytes,
                                   .device_calls = (int)c->device_calls,
                                   .relief_ns = clock_of_ms((double)c->relief_ms),
                                   .compile_relief_ns = clock_of_ms((double)c->compile_relief_ms),
                                   .isolate = *c->isolate ? (int)c->isolate_workers : 0,
                                   .device_memory = c->device_memory};
    RETURN_IF_ERR(fleet_open(&d->fleet, d->loop, d->store, d->journal, d->dir));
    sc.trust = trust_ref(d->fleet.trust);
    sc.remotes = d->fleet.remotes;
    RETURN_IF_ERR(sched_new(d->loop, d->store, d->journal, &sc, &d->sched));
    d->fleet.sched = d->sched;
    struct suites_config jobs = suites_options(c);
    return suites_new(d->sched, d->jobs, &jobs, &d->suites);
}

static status_t start_api(struct daemon *d) {
    const struct config *c = &d->cfg;
    d->api = (struct api){.sched = d->sched,
                          .suites = d->suites,
                          .auth = d->api.auth,
                          .secrets = d->secrets,
                          .regions = c->allow_shared_memory ? oip_regions_new() : NULL,
                          .budget = budget_new(d->loop, c->receive_bytes, c->receive_wait_ms,
                                               *c->tokens || c->trust_tenant_header, true),
                          .uploads = uploads_new(),
                          .max_model_bytes = c->max_model_bytes,
                          .max_message_bytes = c->max_message_bytes,
                          .start_ns = clock_ns()};
    api_options(&d->api, c);
    return uploads_load(d->api.uploads, d->sched, d->api.upload_keep_ms);
}

static status_t start_otlp(struct daemon *d) {
    struct otlp_address http = {d->host, d->tls ? "https" : "http", http_port(d->http)},
                        grpc = {.host = d->grpc_host};
    if (d->rpc) grpc.port = (uint16_t)rpc_port(d->rpc);
    RETURN_IF_ERR(st_note(otlp_start(&d->otlp, &http, &grpc, &d->api.otlp), "OTLP"));
    if (d->api.otlp) sched_observe(d->sched, otlp_tell, d->api.otlp);
    return ST_OK;
}

static void watch_signals(struct daemon *d) {
    static const struct {
        int number;
        uv_signal_cb fn;
    } signals[] = {
        {SIGTERM, on_signal}, {SIGINT, on_signal}, {SIGHUP, on_hangup}, {SIGUSR1, on_backup}};
    for (int i = 0; i < 4; i++) {
        uv_signal_init(loop_uv(d->loop), &d->sig[i]);
        d->sig[i].data = d;
        uv_signal_start(&d->sig[i], signals[i].fn, signals[i].number);
    }
}

static void warn(const struct daemon *d) {
    if (!d->cfg.worker_filter)
        log_event(
            LOG_WARN, "server.filter",
            "off=1 why=\"by --worker-filter=false: a model that breaks into a worker can open "
            "files\"");
    if (d->api.auth) auth_say(d->api.auth);
    if (d->api.auth && !d->tls && !str_is_loopback(str_of(d->host)))
        log_event(LOG_WARN, "server.tokens",
                  "why=\"tokens cross the network unencrypted: --tls-cert, or a proxy with TLS\"");
}

static status_t start(struct daemon *d) {
    struct config *c = &d->cfg;
    RETURN_IF_ERR(judge_options(d));
    if (c->check) return check(d);

    RETURN_IF_ERR(open_data(d));
    RETURN_IF_ERR(loop_new(&d->loop));
    loop_spin(d->loop, c->spin_us * 1000);
    d->notify = notify_new(d->loop, can_serve, d);
    RETURN_IF_ERR(start_scheduler(d));
    RETURN_IF_ERR(start_api(d));
    struct http_config hc = http_options(d, d->host, d->port);
    RETURN_IF_ERR(st_note(http_start(d->loop, &d->api, &hc, &d->http), "--http"));
    if (*c->grpc) RETURN_IF_ERR(start_grpc(d));
    RETURN_IF_ERR(start_otlp(d));
    RETURN_IF_ERR(membership_start(&d->members, d->loop, c, d->fleet.node, d->host,
                                   http_port(d->http), &d->api));
    watch_signals(d);
    secrets_start(d->secrets, d->loop, c->secrets_s * 1000);

    warn(d);
    log_event(LOG_INFO, "server.listen", "http=%s:%u data=\"%s\" version=%s", d->host,
              http_port(d->http), d->dir, api_version_text());
    return st_note(write_port(c->port_file, d->host, http_port(d->http)), "--port-file");
}

static void finish(struct daemon *d) {
    membership_stop(&d->members);
    if (d->sched) sched_stop(d->sched);
    remotes_stop(d->fleet.remotes);
    if (d->secrets) secrets_stop(d->secrets);
    if (d->rpc) rpc_stop(d->rpc);
    while (d->rpc && !rpc_stopped(d->rpc))
        loop_turn(d->loop);
    rpc_free(d->rpc);
    if (d->http) http_stop(d->http);
    while (d->sched && sched_models(d->sched) && models_saving(sched_models(d->sched)))
        loop_turn(d->loop); // names given last
    while (d->loop && loop_works(d->loop))
        loop_turn(d->loop); // whose results belong to what is freed now
    uploads_free(d->api.uploads);
    budget_free(d->api.budget);
    oip_regions_free(d->api.regions);

    for (int i = 0; i < 4; i++) {
        int number = d->sig[i].signum;
        if (d->sig[i].data) uv_close((uv_handle_t *)&d->sig[i], NULL);
        if (number) signal(number, SIG_IGN); // one more does not cut off the end, which is bounded
    }
    loop_timer_free(d->drain);
    notify_free(d->notify);
    suites_free(d->suites);
    sched_free(d->sched);
    loop_free(d->loop);
    auth_close(d->api.auth); // files may be read again on the pool until the loop has ended
    tls_close(d->tls);
    otlp_stop(d->api.otlp, OTLP_STOP_MS);
    fleet_close(&d->fleet);
    membership_close(&d->members);
    secrets_free(d->secrets);
    free(d->http);
    journal_jobs_close(d->jobs);
    journal_close(d->journal);
    store_close(d->store);
    config_done(&d->cfg);
}

static int fail(struct daemon *d, status_t st, int code) {
    say(st, "");
    st_drop(st);
    finish(d);
    return code;
}

static void errors_markdown(struct strbuf *b) {
    strbuf_puts(
        b, "# Status codes\n\n<!-- generated from base/status.def by `make docs-daemon`; do not "
           "edit -->\n\nThe canonical codes, with the HTTP status each has in an error reply. "
           "Five reasons have a status of their own: METHOD_NOT_ALLOWED 405,\nBODY_TOO_LARGE 413, "
           "UNSUPPORTED_MEDIA_TYPE 415, BAD_RANGE 416, STORE_FULL 507. Reasons: docs/api.md.\n\n| "
           "code | number | HTTP | retry | "
           "|\n|---|---|---|---|---|\n");
#define RETRY    "yes"
#define NO_RETRY "no"
#define STATUS(name, number, http, retry, text)                                                    \
    strbuf_printf(b, "| `%s` | %d | %d | %s | %s |\n", #name, number, http, retry, text);
#include "base/status.def"
#undef STATUS
#undef RETRY
#undef NO_RETRY
}

// `hlod --print-docs=WHAT`: for `make docs` and `make install`; the text of proto/hlod.proto comes
// on stdin for api.
static int print_docs(const char *what) {
    static const struct {
        const char *what;
        void (*print)(struct strbuf *b);
    } all[] = {{"config", config_markdown}, {"openapi", api_openapi},  {"errors", errors_markdown},
               {"man8", config_man},        {"man5", config_man_file}, {"sample", config_sample},
               {"bash", config_bash},       {"zsh", config_zsh}};
    struct strbuf b = {0}, in = {0};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++)
        if (!strcmp(what, all[k].what)) all[k].print(&b);
    if (b.n == 0 && strcmp(what, "api")) return 2;
    if (!strcmp(what, "api")) {
        char piece[4096];
        size_t n;
        while ((n = fread(piece, 1, sizeof piece, stdin)))
            strbuf_add(&in, piece, n);
        api_markdown(&b, (struct str){strbuf_cstr(&in), in.n});
    }
    bool ok = fwrite(strbuf_cstr(&b), 1, b.n, stdout) == b.n && !fflush(stdout);
    strbuf_done(&b);
    strbuf_done(&in);
    return ok ? 0 : 1;
}

// Where stderr is a file, lines go to its end, also after a tool for log rotation has cut it
// (copytruncate): at the old offset they would stand behind a hole.
static void append_log(void) {
    struct stat sb;
    int flags = fcntl(STDERR_FILENO, F_GETFL);
    if (flags >= 0 && !fstat(STDERR_FILENO, &sb) && S_ISREG(sb.st_mode))
        (void)fcntl(STDERR_FILENO, F_SETFL, flags | O_APPEND);
}

int main(int argc, char **argv) {
    static struct daemon d;
    last_words_hold(true);
    signal(SIGPIPE, SIG_IGN);
    append_log();
    last_words_watch();
    reserve_make();
    signal(SIGXFSZ, SIG_IGN); // a file that may not grow is a write that fails
    d.argc = argc;
    d.argv = argv;
    status_t st = api_init();
    if (st) return fail(&d, st, 1);
    if (argc == 2 && !strncmp(argv[1], "--print-docs=", 13)) return print_docs(argv[1] + 13);

    st = config_read(argc, argv, environ, &d.cfg);
    if (st) return fail(&d, st, 2);
    if (d.cfg.help || d.cfg.version) {
        struct strbuf b = {0};
        if (d.cfg.help)
            config_help(&b);
        else
            strbuf_printf(&b, "hlod %s\n", api_version_text());
        fputs(strbuf_cstr(&b), stdout);
        strbuf_done(&b);
        config_done(&d.cfg);
        return 0;
    }

    st = raise_files();
    if (st) return fail(&d, st, 2);
    st = start(&d);
    last_words_hold(false);
    if (st) return fail(&d, st, st_code(st) == ST_INVALID_ARGUMENT ? 2 : 1);
    if (!d.cfg.check) loop_run(d.loop);
    finish(&d);
    return 0;
}
