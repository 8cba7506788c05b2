// SPDX-License-Identifier: Apache-2.0
// otlp_config: options and OpenTelemetry's variables, which wins, what is refused and what is as if
// it were not there; and the samplers.
#include "server/otlp/otlp_config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "scheduler/trace.h"
#include "server/config.h"

static struct config c;
static struct arena a;
static struct otlp_config o;

// Options as flags, up to NULL; then variables, up to NULL.
static status_t read_all(const char *const *flags, const char *const *env) {
    char *argv[20] = {(char *)(uintptr_t)"hlod"};
    int argc = 1;
    for (; *flags; flags++)
        argv[argc++] = (char *)(uintptr_t)*flags;
    config_done(&c);
    arena_done(&a);
    c = (struct config){0};
    assert_null(config_read(argc, argv, NULL, &c));
    return otlp_config_read(&a, &c, (char *const *)(uintptr_t)env, &o);
}
#define FLAGS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define ENV(...)   ((const char *const[]){__VA_ARGS__, NULL})
static const char *const nothing[] = {NULL};

static void good(const char *const *flags, const char *const *env) {
    status_t st = read_all(flags, env);
    if (st) fail_msg("%s", st_message(st));
}
static void refused(const char *const *flags, const char *says) {
    status_t st = read_all(flags, nothing);
    assert_non_null(st);
    if (!strstr(st_message(st), says)) fail_msg("'%s'", st_message(st));
    st_drop(st);
}
static void warns(const char *variable) {
    good(nothing, ENV("OTEL_EXPORTER_OTLP_ENDPOINT=http://x:4317",
                      "OTEL_EXPORTER_OTLP_PROTOCOL=grpc", variable));
    if (o.warnings.n != 1) fail_msg("%s: %zu warnings", variable, o.warnings.n);
    if (strncmp(o.warnings.v[0], variable, strcspn(variable, "=")) != 0)
        fail_msg("%s", o.warnings.v[0]);
}
static const char *resource(const char *key) {
    const char *found = NULL;
    for (size_t k = 0; k < o.n_resource; k++) {
        if (strcmp(o.resource[k].key, key) != 0) continue;
        assert_null(found); // once
        found = o.resource[k].value;
    }
    return found ? found : "(none)";
}

static void where(void **state) {
    (void)state;
    good(nothing, nothing);
    assert_false(o.to[OTLP_TRACES].on || o.to[OTLP_METRICS].on);
    assert_true(o.sampler.by_parent && o.sampler.below == UINT64_C(1) << SAMPLER_BITS);
    assert_int_equal(o.keep.detail, SPANS_PHASES);
    assert_int_equal(o.metrics_ms, 60000);
    assert_int_equal(o.batch, 2048);
    assert_int_equal(o.delay_ms, 5000);

    good(FLAGS("--otlp-endpoint", "http://collector:4317", "--otlp-protocol=grpc"), nothing);
    assert_true(o.to[OTLP_TRACES].on && !o.to[OTLP_TRACES].tls);
    assert_string_equal(o.to[OTLP_METRICS].where, "collector:4317");
    assert_int_equal(o.to[OTLP_METRICS].timeout_ms, 10000);
    assert_string_equal(o.to[OTLP_METRICS].ca, "");

    good(FLAGS("--otlp-endpoint", "https://[::1]:9", "--otlp-cacert", "/ca", "--otlp-timeout-ms",
               "7", "--otlp-signals=metrics"),
         ENV("OTEL_EXPORTER_OTLP_ENDPOINT=http://other:1", "OTEL_EXPORTER_OTLP_TIMEOUT=9"));
    assert_false(o.to[OTLP_TRACES].on);
    assert_true(o.to[OTLP_METRICS].tls);
    assert_string_equal(o.to[OTLP_METRICS].where, "[::1]:9");
    assert_string_equal(o.to[OTLP_METRICS].ca, "/ca");
    assert_int_equal(o.to[OTLP_METRICS].timeout_ms, 7);

    good(nothing,
         ENV("OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4317/",
             "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=https://t:1", "OTEL_EXPORTER_OTLP_TIMEOUT=11",
             "OTEL_EXPORTER_OTLP_METRICS_TIMEOUT=12", "OTEL_EXPORTER_OTLP_CERTIFICATE=/c",
             "OTEL_EXPORTER_OTLP_COMPRESSION=gzip", "OTEL_METRIC_EXPORT_INTERVAL=1500",
             "OTEL_BSP_SCHEDULE_DELAY=100", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE=9"));
    assert_true(o.to[OTLP_TRACES].tls && o.to[OTLP_TRACES].gzip);
    assert_string_equal(o.to[OTLP_TRACES].where, "t:1");
    assert_int_equal(o.to[OTLP_TRACES].timeout_ms, 11);
    assert_string_equal(o.to[OTLP_METRICS].where, "c:4317");
    assert_int_equal(o.to[OTLP_METRICS].timeout_ms, 12);
    assert_string_equal(o.to[OTLP_METRICS].ca, "/c");
    assert_int_equal(o.metrics_ms, 1500);
    assert_int_equal(o.batch, 9);
    assert_int_equal(o.delay_ms, 100);
    good(nothing, ENV("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://t:1"));
    assert_true(o.to[OTLP_TRACES].on);
    assert_false(o.to[OTLP_METRICS].on);

    good(nothing, ENV("OTEL_EXPORTER_OTLP_ENDPOINT=c:4317", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"));
    assert_true(o.to[OTLP_TRACES].tls); // no scheme: safe
    good(nothing, ENV("OTEL_EXPORTER_OTLP_ENDPOINT=c:4317", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc",
                      "OTEL_EXPORTER_OTLP_INSECURE=TRUE", "OTEL_METRICS_EXPORTER=none"));
    assert_false(o.to[OTLP_TRACES].tls || o.to[OTLP_METRICS].on);
    good(FLAGS("--otlp-endpoint=http://c:1"), ENV("OTEL_SDK_DISABLED=True"));
    assert_false(o.to[OTLP_TRACES].on || o.to[OTLP_METRICS].on);
}

static void over_http(void **state) {
    (void)state;
    good(FLAGS("--otlp-endpoint=http://c:4318", "--otlp-protocol=http/protobuf"), nothing);
    assert_true(o.to[OTLP_TRACES].http && o.to[OTLP_METRICS].http && !o.to[OTLP_TRACES].tls);
    assert_string_equal(o.to[OTLP_TRACES].url, "http://c:4318/v1/traces");
    assert_string_equal(o.to[OTLP_METRICS].url, "http://c:4318/v1/metrics");
    assert_string_equal(o.to[OTLP_METRICS].where, "c:4318");
    good(FLAGS("--otlp-endpoint=HTTPS://c.example/otlp//", "--otlp-protocol=http/protobuf"),
         nothing);
    assert_true(o.to[OTLP_TRACES].tls);
    assert_string_equal(o.to[OTLP_TRACES].url, "https://c.example:443/otlp/v1/traces");
    assert_string_equal(o.to[OTLP_TRACES].where, "c.example:443");

    // A signal's own address is as it stands, the common one a beginning; a protocol for each.
    good(nothing, ENV("OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf",
                      "OTEL_EXPORTER_OTLP_ENDPOINT=http://[::1]/a/",
                      "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://t:1",
                      "OTEL_EXPORTER_OTLP_TRACES_HEADERS=k=t", "OTEL_EXPORTER_OTLP_HEADERS=k=m"));
    assert_string_equal(o.to[OTLP_TRACES].url, "http://t:1/");
    assert_string_equal(o.to[OTLP_TRACES].headers[0].value, "t");
    assert_string_equal(o.to[OTLP_METRICS].url, "http://[::1]:80/a/v1/metrics");
    assert_string_equal(o.to[OTLP_METRICS].headers[0].value, "m");
    good(nothing, ENV("OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4317",
                      "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL=http/protobuf",
                      "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=http://c:4318/in%20/x"));
    assert_true(!o.to[OTLP_TRACES].http && o.to[OTLP_METRICS].http);
    assert_string_equal(o.to[OTLP_METRICS].url, "http://c:4318/in%20/x");
}

static void mistakes(void **state) {
    (void)state;
    refused(FLAGS("--otlp-endpoint=collector"), "otlp_endpoint");
    refused(FLAGS("--otlp-endpoint=http://collector", "--otlp-protocol=grpc"), "otlp_endpoint");
    refused(FLAGS("--otlp-endpoint=http://c:1/x", "--otlp-protocol=grpc"), "otlp_endpoint");
    refused(FLAGS("--otlp-endpoint=http://user:secret@c:1"), "otlp_endpoint");
    refused(FLAGS("--otlp-endpoint=http://c:1", "--otlp-protocol=http/json"), "otlp_protocol");
    static const char *const no_urls[] = {
        "c:4318",          "http://",       "http:///v1", "http://u:p@c/",    "http://c/a b",
        "http://c/?key=x", "http://c:0/v1", "ftp://c/",   "http://c:99999/a", "http://c/#x"};
    for (size_t k = 0; k < sizeof no_urls / sizeof *no_urls; k++)
        refused(FLAGS("--otlp-endpoint", no_urls[k], "--otlp-protocol=http/protobuf"),
                "https://HOST/PATH");
    refused(FLAGS("--otlp-endpoint=http://c:1", "--otlp-headers-file=/none"), "/none");
    refused(FLAGS("--otlp-signals=logs"), "otlp_signals");
    refused(FLAGS("--otlp-sample=2"), "otlp_sample");
    refused(FLAGS("--otlp-detail=all"), "otlp_detail");
    refused(FLAGS("--otlp-resource=a"), "otlp_resource");

    warns("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/json");
    warns("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=nonsense");
    warns("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT=soon");
    warns("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION=lz4");
    warns("OTEL_TRACES_EXPORTER=zipkin");
    warns("OTEL_TRACES_SAMPLER=xray");
    warns("OTEL_TRACES_SAMPLER_ARG=-1");
    warns("OTEL_RESOURCE_ATTRIBUTES=a=%zz");
    warns("OTEL_RESOURCE_ATTRIBUTES=a=%ff");
    warns("OTEL_METRIC_EXPORT_INTERVAL=0");
    warns("OTEL_BSP_MAX_EXPORT_BATCH_SIZE=100000");
    warns("OTEL_EXPORTER_OTLP_TRACES_HEADERS=grpc-timeout=1S"); // the library's own
    warns("OTEL_EXPORTER_OTLP_TRACES_HEADERS=a-bin=1");
    warns("OTEL_EXPORTER_OTLP_TRACES_HEADERS=a b=1");
    warns("OTEL_EXPORTER_OTLP_TRACES_HEADERS=a=%0a");
    warns("OTEL_EXPORTER_OTLP_TRACES_HEADERS=a=\xc3\xa9");
}

static void who(void **state) {
    (void)state;
    good(nothing, nothing);
    assert_string_equal(resource("service.name"), "hlod");
    assert_string_equal(resource("service.version"), HLOD_VERSION);
    assert_int_equal(strlen(resource("service.instance.id")), 36);
    good(nothing,
         ENV("OTEL_RESOURCE_ATTRIBUTES=service.name=a,region=eu%2Cwest, service.instance.id = i1",
             "OTEL_SERVICE_NAME=b"));
    assert_string_equal(resource("service.name"), "b");
    assert_string_equal(resource("region"), "eu,west");
    assert_string_equal(resource("service.instance.id"), "i1");
    good(FLAGS("--otlp-service-name=mine", "--otlp-resource=region=here,x=1"),
         ENV("OTEL_RESOURCE_ATTRIBUTES=region=eu,y=2", "OTEL_SERVICE_NAME=b"));
    assert_string_equal(resource("service.name"), "mine");
    assert_string_equal(resource("region"), "here");
    assert_string_equal(resource("y"), "2");
}

static void headers(void **state) {
    char path[] = "/tmp/hlod-otlp-XXXXXX";
    (void)state;
    good(nothing, ENV("OTEL_EXPORTER_OTLP_ENDPOINT=http://c:1",
                      "OTEL_EXPORTER_OTLP_HEADERS=Api-Key=a%20b, x=1",
                      "OTEL_EXPORTER_OTLP_METRICS_HEADERS=y=2"));
    assert_int_equal(o.to[OTLP_TRACES].n_headers, 2);
    assert_string_equal(o.to[OTLP_TRACES].headers[0].key, "api-key");
    assert_string_equal(o.to[OTLP_TRACES].headers[0].value, "a b");
    assert_int_equal(o.to[OTLP_METRICS].n_headers, 1);

    int fd = mkstemp(path);
    assert_int_equal(write(fd, "# key\n\nApi-Key = Bearer a=b\n", 27), 27);
    close(fd);
    char *flag = arena_printf(&a, "--otlp-headers-file=%s", path);
    const char *const flags[] = {"--otlp-endpoint=http://c:1", strdup(flag), NULL};
    good(flags, ENV("OTEL_EXPORTER_OTLP_HEADERS=x=1"));
    assert_int_equal(o.to[OTLP_TRACES].n_headers, 1);
    assert_string_equal(o.to[OTLP_TRACES].headers[0].value, "Bearer a=b");
    chmod(path, 0644);
    refused(flags, "is a secret");
    free((char *)(uintptr_t)flags[1]);
    unlink(path);
}

// ---- samplers

static double part(const struct sampler *s, bool remote, uint8_t flags) {
    int n = 0;
    for (int k = 0; k < 20000; k++) {
        struct trace t;
        trace_begin(&t);
        t.remote = remote;
        t.flags = flags;
        n += sampler_takes(s, &t);
    }
    return n / 20000.0;
}
static void samplers(void **state) {
    static const struct {
        const char *name;
        double root, asked, not_asked; // parts that are taken: of roots, of traces of others
    } rows[] = {{"always_on", 1, 1, 1},
                {"always_off", 0, 0, 0},
                {"traceidratio", 0.25, 0.25, 0.25},
                {"parentbased_always_on", 1, 1, 0},
                {"parentbased_always_off", 0, 1, 0},
                {"parentbased_traceidratio", 0.25, 1, 0}};
    struct sampler s;
    (void)state;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        assert_true(sampler_named(str_of(rows[k].name), 0.25, &s));
        double found[] = {part(&s, false, 0), part(&s, true, TRACE_SAMPLED), part(&s, true, 0)};
        const double *want = &rows[k].root;
        for (int i = 0; i < 3; i++)
            if (found[i] < want[i] - 0.02 || found[i] > want[i] + 0.02)
                fail_msg("%s: %g, expected %g", rows[k].name, found[i], want[i]);
    }
    assert_false(sampler_named(STR("jaeger_remote"), 1, &s));
    good(nothing, ENV("OTEL_TRACES_SAMPLER=traceidratio", "OTEL_TRACES_SAMPLER_ARG=0.5"));
    assert_false(o.sampler.by_parent);
    assert_int_equal(o.sampler.below, UINT64_C(1) << 62);
    good(FLAGS("--otlp-sample=0"), ENV("OTEL_TRACES_SAMPLER=always_on"));
    assert_true(o.sampler.by_parent && !o.sampler.below);

    // The same id is taken by every ratio above the one that takes it.
    struct trace t = {.id = {[8] = 0x40}}; // a quarter of all ids lies below
    assert_true(sampler_named(STR("traceidratio"), 0.25, &s) && !sampler_takes(&s, &t));
    assert_true(sampler_named(STR("traceidratio"), 0.251, &s) && sampler_takes(&s, &t));
}

static int done(void **state) {
    (void)state;
    config_done(&c);
    arena_done(&a);
    return 0;
}
int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(where),    cmocka_unit_test(over_http),
                                       cmocka_unit_test(mistakes), cmocka_unit_test(who),
                                       cmocka_unit_test(headers),  cmocka_unit_test(samplers)};
    return cmocka_run_group_tests(tests, NULL, done);
}
