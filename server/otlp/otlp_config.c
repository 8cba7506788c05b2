// SPDX-License-Identifier: Apache-2.0
#include "server/otlp/otlp_config.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <unistd.h>

#include "base/store/file.h"
#include "base/str.h"
#include "base/text.h"
#include "server/config.h"

enum { MOST_HEADERS = 32, MOST_ATTRIBUTES = 64, MAX_FILE = 1 << 16, MOST_MS = 86400000 };
enum { USUAL_TIMEOUT_MS = 10000, USUAL_METRICS_MS = 60000, USUAL_DELAY_MS = 5000 };
enum { USUAL_BATCH = 2048, MOST_BATCH = 8192 };
static const char *const signal_names[OTLP_SIGNALS] = {"TRACES", "METRICS"};
struct reader {
    struct arena *a;
    const struct config *c;
    char *const *env;
    struct otlp_config *out;
};

// ---- the environment

__attribute__((format(printf, 2, 3))) static void warn(struct reader *r, const char *fmt, ...) {
    struct strbuf b = {0};
    va_list ap;
    va_start(ap, fmt);
    strbuf_vprintf(&b, fmt, ap);
    va_end(ap);
    const char *text = arena_strdup(r->a, strbuf_cstr(&b));
    strbuf_done(&b);
    for (size_t k = 0; k < r->out->warnings.n; k++) // of a variable for both signals
        if (!strcmp(r->out->warnings.v[k], text)) return;
    avec_push(r->a, &r->out->warnings, text);
}
// NULL where it is not set, or empty, which is the same.
static const char *variable(const struct reader *r, const char *name) {
    size_t n = strlen(name);
    for (int k = 0; r->env && r->env[k]; k++)
        if (!strncmp(r->env[k], name, n) && r->env[k][n] == '=' && r->env[k][n + 1])
            return r->env[k] + n + 1;
    return NULL;
}
// OTEL_EXPORTER_OTLP_<SIGNAL>_<what>, or OTEL_EXPORTER_OTLP_<what>; *own: it is the signal's.
static const char *exporter(const struct reader *r, enum otlp_signal s, const char *what,
                            const char **out_name) {
    const char *const names[] = {
        arena_printf(r->a, "OTEL_EXPORTER_OTLP_%s_%s", signal_names[s], what),
        arena_printf(r->a, "OTEL_EXPORTER_OTLP_%s", what)};
    for (int k = 0; k < 2; k++) {
        const char *v = variable(r, names[k]);
        if (out_name) *out_name = names[k];
        if (v) return v;
    }
    return NULL;
}
static bool is_true(const char *v) {
    return v && !strcasecmp(v, "true");
}
static int64_t number(struct reader *r, const char *name, const char *v, int64_t most,
                      int64_t otherwise) {
    int64_t n;
    if (!v) return otherwise;
    if (str_to_i64(str_of(v), &n) && n > 0 && n <= most) return n;
    warn(r, "%s: expected a number up to %lld, found '%.40s'", name, (long long)most, v);
    return otherwise;
}
static int64_t milliseconds(struct reader *r, const char *name, int64_t otherwise) {
    return number(r, name, variable(r, name), MOST_MS, otherwise);
}

// ---- lists of KEY=VALUE

// %41 -> A. False: what follows a % is no byte.
static bool decode(struct arena *a, struct str s, const char **out) {
    char *to = arena_alloc(a, s.n + 1), *p = to;
    for (size_t k = 0; k < s.n; k++) {
        if (s.p[k] != '%') {
            *p++ = s.p[k];
            continue;
        }
        if (k + 2 >= s.n || !isxdigit((unsigned char)s.p[k + 1]) ||
            !isxdigit((unsigned char)s.p[k + 2]))
            return false;
        char two[3] = {s.p[k + 1], s.p[k + 2], 0};
        *p = (char)strtol(two, NULL, 16);
        if (!*p++) return false;
        k += 2;
    }
    *p = 0;
    *out = to;
    return true;
}
typedef VEC(struct otlp_attribute) attributes;
static bool read_pairs(struct arena *a, struct str list, size_t most, attributes *out) {
    struct str one;
    while (str_cut(&list, ',', &one)) {
        struct otlp_attribute x;
        struct str key;
        one = str_trim(one);
        if (!one.n) continue;
        if (!memchr(one.p, '=', one.n) || out->n == most) return false;
        str_cut(&one, '=', &key);
        key = str_trim(key);
        if (!key.n || !decode(a, key, &x.key) || !decode(a, str_trim(one), &x.value)) return false;
        avec_push(a, out, x);
    }
    return true;
}
static bool utf8(const char *v) {
    struct str s = str_of(v);
    uint32_t code;
    while (s.n) {
        size_t n = text_first(s, &code);
        if (code == UINT32_MAX) return false;
        s = (struct str){s.p + n, s.n - n};
    }
    return true;
}

// ---- headers

// Which a collector may be sent: not those that the transports write themselves.
static bool header_fits(struct arena *a, struct otlp_attribute *h) {
    static const char *const ours[] = {
        "content-type", "content-length", "content-encoding",  "te",
        "host",         "user-agent",     "transfer-encoding", "connection"};
    char *key = arena_strdup(a, h->key);
    for (char *p = key; *p; p++) {
        *p = (char)tolower((unsigned char)*p);
        if (!isalnum((unsigned char)*p) && !strchr("-_.", *p)) return false;
    }
    size_t n = strlen(key);
    if (!strncmp(key, "grpc-", 5) || (n > 4 && !strcmp(key + n - 4, "-bin"))) return false;
    for (size_t k = 0; k < sizeof ours / sizeof *ours; k++)
        if (!strcmp(key, ours[k])) return false;
    for (const char *p = h->value; *p; p++)
        if (*p < ' ' || *p > '~') return false;
    h->key = key;
    return true;
}
static status_t headers_file(struct reader *r, attributes *out) {
    const char *path = r->c->otlp_headers_file;
    struct str text, line;
    RETURN_IF_ERR(file_read_secret(r->a, path, MAX_FILE, &text));
    for (int n = 1; str_cut(&text, '\n', &line); n++) {
        struct str key;
        line = str_trim(line);
        if (!line.n || line.p[0] == '#') continue;
        bool pair = memchr(line.p, '=', line.n) != NULL;
        str_cut(&line, '=', &key);
        key = str_trim(key);
        line = str_trim(line);
        struct otlp_attribute x = {arena_strndup(r->a, key.p, key.n),
                                   arena_strndup(r->a, line.p, line.n)};
        if (!pair || !key.n || !header_fits(r->a, &x) || out->n == MOST_HEADERS)
            return st_invalid("%s:%d: expected NAME=VALUE of a header, at most %d of them", path, n,
                              MOST_HEADERS);
        avec_push(r->a, out, x);
    }
    return ST_OK;
}
static status_t headers(struct reader *r, enum otlp_signal s, struct otlp_target *t) {
    attributes all = {0};
    const char *name, *v = exporter(r, s, "HEADERS", &name);
    if (*r->c->otlp_headers_file) {
        RETURN_IF_ERR(headers_file(r, &all));
    } else if (v) {
        bool good = read_pairs(r->a, str_of(v), MOST_HEADERS, &all);
        for (size_t k = 0; k < all.n && good; k++)
            good = header_fits(r->a, &all.v[k]);
        if (!good) warn(r, "%s: expected NAME=VALUE,... with values percent-encoded", name);
        if (!good) all.n = 0;
    }
    t->headers = all.v;
    t->n_headers = all.n;
    return ST_OK;
}

// ---- where it goes

static bool written_plainly(struct str s, const char *but) {
    for (size_t k = 0; k < s.n; k++)
        if (s.p[k] <= ' ' || s.p[k] > '~' || strchr(but, s.p[k])) return false;
    return true;
}
static bool has_port(struct reader *r, const char *text) {
    const char *host;
    uint16_t port;
    status_t st = config_address(r->a, text, &host, &port);
    bool good = !st && port;
    st_drop(st);
    return good;
}
// Over HTTP a signal's own variable is all of the URL, others what stands before v1/SIGNAL.
static const char *url_of(struct reader *r, enum otlp_signal s, const struct otlp_target *t,
                          struct str path, bool whole) {
    static const char *const paths[OTLP_SIGNALS] = {"/v1/traces", "/v1/metrics"};
    while (!whole && path.n && path.p[path.n - 1] == '/')
        path.n--;
    if (whole && !path.n) path = STR("/");
    return arena_printf(r->a, "http%s://%s" STR_FMT "%s", t->tls ? "s" : "", t->where,
                        STR_ARG(path), whole ? "" : paths[s]);
}
// Of a URL, or for gRPC HOST:PORT: tls, the place, the URL. False: it is neither.
static bool read_endpoint(struct reader *r, enum otlp_signal s, const char *v, bool whole,
                          struct otlp_target *t) {
    static const char odd[] = "@?#\"<>\\^`{|}";
    bool plain = !strncasecmp(v, "http://", 7), tls = !strncasecmp(v, "https://", 8);
    struct str rest = str_of(v + (plain ? 7 : tls ? 8 : 0)), place = rest;
    const char *slash = memchr(rest.p, '/', rest.n);
    if (slash) place.n = (size_t)(slash - rest.p);
    struct str path = {place.p + place.n, rest.n - place.n};
    t->tls = tls || (!plain && !is_true(exporter(r, s, "INSECURE", NULL)));
    if (!place.n || !written_plainly(rest, odd) || memchr(place.p, '%', place.n)) return false;

    t->where = arena_strndup(r->a, place.p, place.n);
    if (!t->http) return has_port(r, t->where) && path.n < 2;
    const char *bracket = strrchr(t->where, ']'); // of an IPv6 address
    if (!strchr(bracket ? bracket : t->where, ':'))
        t->where = arena_printf(r->a, "%s:%d", t->where, tls ? 443 : 80);
    t->url = url_of(r, s, t, path, whole);
    return (plain || tls) && has_port(r, t->where);
}
static status_t endpoint(struct reader *r, enum otlp_signal s, struct otlp_target *t) {
    const char *own = r->c->otlp_endpoint, *name = "otlp_endpoint";
    const char *v = *own ? own : exporter(r, s, "ENDPOINT", &name);
    if (!v) return ST_OK;
    bool whole = !*own && strstr(name, signal_names[s]); // its own variable
    if (!read_endpoint(r, s, v, whole, t)) {
        const char *what = t->http ? "http://HOST:PORT/PATH or https://HOST/PATH"
                                   : "http://HOST:PORT or https://HOST:PORT";
        if (*own) return st_invalid("otlp_endpoint: '%.200s': expected %s", v, what);
        warn(r, "%s: '%.200s': expected %s", name, v, what);
        return ST_OK;
    }
    t->on = true;
    return ST_OK;
}
static status_t protocol(struct reader *r, enum otlp_signal s, bool *out_http) {
    const char *own = r->c->otlp_protocol, *name = "otlp_protocol";
    const char *v = *own ? own : exporter(r, s, "PROTOCOL", &name);
    *out_http = v && !strcmp(v, "http/protobuf");
    if (!v || *out_http || !strcmp(v, "grpc")) return ST_OK;
    if (*own) return st_invalid("otlp_protocol: grpc or http/protobuf, not '%.40s'", v);
    warn(r, "%s: grpc or http/protobuf, not '%.40s'", name, v);
    return ST_OK;
}
static const char *file_of(const struct reader *r, enum otlp_signal s, const char *what,
                           const char *own) {
    const char *v = *own ? own : exporter(r, s, what, NULL);
    return v ? v : "";
}
static status_t target(struct reader *r, enum otlp_signal s) {
    struct otlp_target *t = &r->out->to[s];
    const char *name, *v;
    RETURN_IF_ERR(protocol(r, s, &t->http));
    RETURN_IF_ERR(endpoint(r, s, t));
    if (!t->on) return ST_OK;
    RETURN_IF_ERR(headers(r, s, t));
    t->ca = file_of(r, s, "CERTIFICATE", r->c->otlp_cacert);
    t->cert = file_of(r, s, "CLIENT_CERTIFICATE", "");
    t->key = file_of(r, s, "CLIENT_KEY", "");
    v = exporter(r, s, "TIMEOUT", &name);
    t->timeout_ms = r->c->otlp_timeout_ms ? r->c->otlp_timeout_ms
                                          : number(r, name, v, MOST_MS, USUAL_TIMEOUT_MS);

    v = exporter(r, s, "COMPRESSION", &name);
    t->gzip = v && !strcmp(v, "gzip");
    if (v && !t->gzip && strcmp(v, "none")) warn(r, "%s: gzip or none, not '%.40s'", name, v);
    name = arena_printf(r->a, "OTEL_%s_EXPORTER", signal_names[s]);
    v = variable(r, name);
    t->on = !v || !strcmp(v, "otlp");
    if (!t->on && strcmp(v, "none")) warn(r, "%s: otlp or none, not '%.40s'", name, v);
    return ST_OK;
}

// ---- who sends

static bool has(const attributes *all, const char *key) {
    for (size_t k = 0; k < all->n; k++)
        if (!strcmp(all->v[k].key, key)) return true;
    return false;
}
static void add(struct arena *a, attributes *all, const char *key, const char *value) {
    struct otlp_attribute x = {key, value};
    if (!has(all, key) && *value) avec_push(a, all, x); // who comes first wins
}
static bool add_list(struct reader *r, const char *list, attributes *all) {
    attributes some = {0};
    bool good = read_pairs(r->a, str_of(list), MOST_ATTRIBUTES, &some);
    for (size_t k = 0; k < some.n && good; k++)
        good = utf8(some.v[k].key) && utf8(some.v[k].value) && strlen(some.v[k].value) <= 1000;
    for (size_t k = 0; k < some.n && good; k++)
        add(r->a, all, some.v[k].key, some.v[k].value);
    return good;
}
static const char *uuid(struct arena *a) {
    struct trace t;
    char id[TRACE_ID_TEXT];
    trace_begin(&t);
    t.id[6] = (t.id[6] & 0x0f) | 0x40;
    t.id[8] = (t.id[8] & 0x3f) | 0x80;
    trace_write_id(&t, id);
    return arena_printf(a, "%.8s-%.4s-%.4s-%.4s-%.12s", id, id + 8, id + 12, id + 16, id + 20);
}
static status_t resource(struct reader *r) {
    attributes all = {0};
    char host[256] = "";
    const char *service = variable(r, "OTEL_SERVICE_NAME"),
               *others = variable(r, "OTEL_RESOURCE_ATTRIBUTES");
    add(r->a, &all, "service.name", r->c->otlp_service_name);
    if (!utf8(r->c->otlp_service_name) || !add_list(r, r->c->otlp_resource, &all))
        return st_invalid("otlp_resource, otlp_service_name: expected KEY=VALUE,... in UTF-8");
    if (service && utf8(service)) add(r->a, &all, "service.name", service);
    if (others && !add_list(r, others, &all))
        warn(r, "OTEL_RESOURCE_ATTRIBUTES: expected KEY=VALUE,... with values percent-encoded");

    if (gethostname(host, sizeof host - 1)) *host = 0;
    add(r->a, &all, "service.name", "hlod");
    add(r->a, &all, "service.version", HLOD_VERSION);
    add(r->a, &all, "service.instance.id", uuid(r->a));
    if (utf8(host)) add(r->a, &all, "host.name", arena_strdup(r->a, host));
    add(r->a, &all, "telemetry.sdk.name", "hlod");
    add(r->a, &all, "telemetry.sdk.language", "c");
    add(r->a, &all, "telemetry.sdk.version", HLOD_VERSION);
    r->out->resource = all.v;
    r->out->n_resource = all.n;
    return ST_OK;
}

// ---- which traces, how much of them

static bool read_ratio(const char *v, double *out) {
    return str_to_f64(str_of(v), out) && *out >= 0 && *out <= 1;
}
static status_t sampling(struct reader *r) {
    const char *own = r->c->otlp_sample, *name = variable(r, "OTEL_TRACES_SAMPLER"),
               *arg = variable(r, "OTEL_TRACES_SAMPLER_ARG");
    double ratio = 1;
    struct sampler *s = &r->out->sampler;
    if (*own) {
        if (!read_ratio(own, &ratio))
            return st_invalid("otlp_sample: expected 0 to 1, found '%.40s'", own);
        (void)sampler_named(STR("parentbased_traceidratio"), ratio, s);
        return ST_OK;
    }
    if (arg && !read_ratio(arg, &ratio)) {
        warn(r, "OTEL_TRACES_SAMPLER_ARG: expected 0 to 1, found '%.40s'", arg);
        ratio = 1;
    }
    if (name && sampler_named(str_of(name), ratio, s)) return ST_OK;
    if (name) warn(r, "OTEL_TRACES_SAMPLER: '%.60s' is not offered", name);
    (void)sampler_named(STR("parentbased_always_on"), 1, s);
    return ST_OK;
}
static status_t detail(struct reader *r) {
    static const char *const names[] = {[SPANS_REQUEST] = "request",
                                        [SPANS_PHASES] = "phases",
                                        [SPANS_PASSES] = "passes",
                                        [SPANS_STEPS] = "steps"};
    r->out->keep.names = r->c->otlp_names;
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        r->out->keep.detail = (enum spans_detail)k;
        if (!strcmp(r->c->otlp_detail, names[k])) return ST_OK;
    }
    return st_invalid("otlp_detail: request, phases, passes or steps, not '%.40s'",
                      r->c->otlp_detail);
}

static status_t signals(struct reader *r) {
    struct str list = str_of(r->c->otlp_signals), one;
    bool wanted[OTLP_SIGNALS] = {false};
    while (str_cut(&list, ',', &one)) {
        if (str_is(one, "traces"))
            wanted[OTLP_TRACES] = true;
        else if (str_is(one, "metrics"))
            wanted[OTLP_METRICS] = true;
        else
            return st_invalid("otlp_signals: traces, metrics, not '" STR_FMT "'", STR_ARG(one));
    }
    for (int s = 0; s < OTLP_SIGNALS; s++)
        if (wanted[s]) RETURN_IF_ERR(target(r, (enum otlp_signal)s));
    return ST_OK;
}

status_t otlp_config_live(struct arena *a, const struct config *c, char *const *env,
                          struct otlp_config *out) {
    struct reader r = {a, c, env, out};
    *out = (struct otlp_config){0};
    RETURN_IF_ERR(sampling(&r));
    return detail(&r);
}
status_t otlp_config_read(struct arena *a, const struct config *c, char *const *env,
                          struct otlp_config *out) {
    struct reader r = {a, c, env, out};
    RETURN_IF_ERR(otlp_config_live(a, c, env, out));
    out->queue_bytes = c->otlp_queue_bytes;
    RETURN_IF_ERR(resource(&r));
    if (!is_true(variable(&r, "OTEL_SDK_DISABLED"))) RETURN_IF_ERR(signals(&r));
    out->metrics_ms = c->otlp_metrics_s
                          ? c->otlp_metrics_s * 1000
                          : milliseconds(&r, "OTEL_METRIC_EXPORT_INTERVAL", USUAL_METRICS_MS);
    const char *batch = "OTEL_BSP_MAX_EXPORT_BATCH_SIZE";
    out->batch = number(&r, batch, variable(&r, batch), MOST_BATCH, USUAL_BATCH);
    out->delay_ms = milliseconds(&r, "OTEL_BSP_SCHEDULE_DELAY", USUAL_DELAY_MS);
    return ST_OK;
}
