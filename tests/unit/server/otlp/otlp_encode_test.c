// SPDX-License-Identifier: Apache-2.0
// otlp: what is written by hand reads back by otlp.proto's own parser; work keeps what it says on
// its way through the queue; answers mean what OTLP's table says. (tests/otlp reads the same by
// OpenTelemetry's own package.)
#include "server/otlp/otlp_encode.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>

#include "base/metrics.h"
#include "base/status.h"
#include "proto/formats/otlp.pb-c.h"
#include "server/otlp/otlp_record.h"
#include "server/otlp/otlp_send.h"

static struct arena a;
static struct otlp_origin origin;
static struct trace trace;
static unsigned n_put;

static int setup(void **state) {
    static const struct otlp_attribute resource[] = {{"service.name", "hlod"}, {"k", ""}};
    const struct otlp_address http = {"127.0.0.1", "https", 8000}, grpc = {"::1", "", 8001};
    (void)state;
    a = (struct arena){0};
    n_put = 0;
    otlp_origin_make(&origin, "1.2", resource, 2, &http, &grpc);
    assert_true(trace_parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", &trace));
    trace.state = "a=1";
    return 0;
}
static int teardown(void **state) {
    (void)state;
    otlp_origin_done(&origin);
    arena_done(&a);
    return 0;
}
static void count(void *ctx) {
    (void)ctx;
    n_put++;
}
static void free_request(void *m) {
    otlp__export_trace_service_request__free_unpacked(m, NULL);
}
// The spans of the work, as a collector reads them.
static Otlp__ScopeSpans *spans_of_work(const struct trace_work *w, int64_t wall_ns) {
    struct otlp_bytes spans = {0}, all = {0};
    otlp_encode_work(&spans, w, &origin, wall_ns, &a, count, NULL);
    otlp_request_head(&all, &origin, spans.n);
    otlp_put_raw(&all, spans.p, spans.n);
    otlp_request_tail(&all);
    Otlp__ExportTraceServiceRequest *m =
        otlp__export_trace_service_request__unpack(NULL, all.n, all.p);
    free(spans.p);
    free(all.p);
    assert_non_null(m);
    arena_link(&a, free_request, m);
    assert_int_equal(m->n_resource_spans, 1);
    Otlp__ResourceSpans *r = m->resource_spans[0];
    assert_string_equal(r->schema_url, OTLP_SCHEMA);
    assert_int_equal(r->resource->n_attributes, 2);
    assert_string_equal(r->resource->attributes[0]->value->string_value, "hlod");
    assert_int_equal(r->n_scope_spans, 1);
    assert_string_equal(r->scope_spans[0]->schema_url, OTLP_SCHEMA);
    assert_string_equal(r->scope_spans[0]->scope->name, "hlod");
    assert_string_equal(r->scope_spans[0]->scope->version, "1.2");
    assert_int_equal(r->scope_spans[0]->n_spans, n_put);
    return r->scope_spans[0];
}
static const Otlp__AnyValue *attribute(const Otlp__Span *s, const char *key) {
    for (size_t k = 0; k < s->n_attributes; k++)
        if (!strcmp(s->attributes[k]->key, key)) return s->attributes[k]->value;
    return NULL;
}
static const char *text(const Otlp__Span *s, const char *key) {
    const Otlp__AnyValue *v = attribute(s, key);
    return v && v->value_case == OTLP__ANY_VALUE__VALUE_STRING_VALUE ? v->string_value : "(none)";
}
static int64_t number(const Otlp__Span *s, const char *key) {
    const Otlp__AnyValue *v = attribute(s, key);
    return v && v->value_case == OTLP__ANY_VALUE__VALUE_INT_VALUE ? v->int_value : -1;
}
static void same_id(ProtobufCBinaryData found, const uint8_t *want, size_t n) {
    assert_int_equal(found.len, n);
    assert_memory_equal(found.data, want, n);
}

static struct trace_work request(void) {
    return (struct trace_work){.trace = &trace,
                               .verb = "POST",
                               .service = STR("hlod.v1.Hlod"),
                               .method = STR("Run"),
                               .route = STR("/v1/run"),
                               .start_ns = 1000,
                               .end_ns = 5000000,
                               .http = 200};
}

static void over_http(void **state) {
    struct trace_work w = request();
    (void)state;
    Otlp__Span *s = spans_of_work(&w, 7000000000)->spans[0];
    same_id(s->trace_id, trace.id, 16);
    same_id(s->span_id, trace.span, 8);
    same_id(s->parent_span_id, trace.parent, 8);
    assert_string_equal(s->trace_state, "a=1");
    assert_string_equal(s->name, "POST /v1/run");
    assert_int_equal(s->kind, OTLP__SPAN__SPAN_KIND__SPAN_KIND_SERVER);
    assert_int_equal(s->start_time_unix_nano, 7000001000);
    assert_int_equal(s->end_time_unix_nano, 7005000000);
    assert_int_equal(s->flags, 0x301); // sampled; the parent is remote
    assert_null(s->status);
    assert_string_equal(text(s, "http.request.method"), "POST");
    assert_string_equal(text(s, "http.route"), "/v1/run");
    assert_string_equal(text(s, "url.path"), "/v1/run");
    assert_string_equal(text(s, "url.scheme"), "https");
    assert_string_equal(text(s, "server.address"), "127.0.0.1");
    assert_int_equal(number(s, "server.port"), 8000);
    assert_int_equal(number(s, "http.response.status_code"), 200);
    assert_null(attribute(s, "rpc.system"));

    w.route = STR("/v2/models/{model_name}/infer"); // what stands there is a name
    n_put = 0;
    s = spans_of_work(&w, 0)->spans[0];
    assert_string_equal(s->name, "POST /v2/models/{model_name}/infer");
    assert_null(attribute(s, "url.path"));
    w.route = (struct str){0};
    n_put = 0;
    assert_string_equal(spans_of_work(&w, 0)->spans[0]->name, "POST /hlod.v1.Hlod/Run");
    w.method = w.service = (struct str){0}; // nothing at that path
    w.verb = "_OTHER";
    n_put = 0;
    assert_string_equal(spans_of_work(&w, 0)->spans[0]->name, "HTTP");
}

static void over_grpc(void **state) {
    struct trace_work w = request();
    (void)state;
    w.verb = NULL;
    w.code = ST_UNAVAILABLE;
    w.reason = HLOD__V1__REASON__REASON_WORKER_LOST;
    w.message = "a \xff b";
    w.tenant = "acme";
    w.model = "caf\xc3\xa9";
    Otlp__Span *s = spans_of_work(&w, 0)->spans[0];
    assert_string_equal(s->name, "hlod.v1.Hlod/Run");
    assert_string_equal(text(s, "rpc.system"), "grpc");
    assert_string_equal(text(s, "rpc.service"), "hlod.v1.Hlod");
    assert_string_equal(text(s, "rpc.method"), "Run");
    assert_int_equal(number(s, "rpc.grpc.status_code"), ST_UNAVAILABLE);
    assert_string_equal(text(s, "server.address"), "::1");
    assert_string_equal(text(s, "error.type"), "UNAVAILABLE");
    assert_string_equal(text(s, "hlod.reason"), "WORKER_LOST");
    assert_string_equal(text(s, "hlod.tenant"), "acme");
    assert_string_equal(text(s, "hlod.model.name"), "caf\xc3\xa9");
    assert_int_equal(s->status->code, OTLP__STATUS__STATUS_CODE__STATUS_CODE_ERROR);
    assert_string_equal(s->status->message, "a "); // up to what is no UTF-8
}

// The server's fault or the client's, by the conventions of each.
static void errors(void **state) {
    static const struct {
        const char *verb, *name, *type;
        int code, http;
        bool error;
    } rows[] = {{"GET", NULL, "(none)", ST_INVALID_ARGUMENT, 400, false},
                {"GET", NULL, "503", ST_UNAVAILABLE, 503, true},
                {"GET", NULL, "507", ST_RESOURCE_EXHAUSTED, 507, true},
                {"GET", NULL, "(none)", ST_CANCELLED, 0, false},
                {"POST", NULL, "INTERNAL", ST_INTERNAL, 200, true}, // in a stream
                {NULL, NULL, "(none)", ST_INVALID_ARGUMENT, 0, false},
                {NULL, NULL, "(none)", ST_CANCELLED, 0, false},
                {NULL, NULL, "DEADLINE_EXCEEDED", ST_DEADLINE_EXCEEDED, 0, true},
                {NULL, "batch", "INVALID_ARGUMENT", ST_INVALID_ARGUMENT, 0, true}};
    (void)state;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        struct trace_work w = request();
        w.verb = rows[k].verb;
        w.name = rows[k].name;
        w.code = rows[k].code;
        w.http = rows[k].http;
        n_put = 0;
        Otlp__Span *s = spans_of_work(&w, 0)->spans[0];
        if (rows[k].error != (s->status != NULL) ||
            strcmp(text(s, "error.type"), rows[k].type) != 0)
            fail_msg("row %zu: %s", k, text(s, "error.type"));
        assert_string_equal(text(s, "hlod.code"), st_code_name((enum status_code)rows[k].code));
    }
}

// ---- a job: its phases, passes and steps, through the queue

static Hlod__V1__Timing *timing(const char *name, double start_ms, double ms) {
    Hlod__V1__Timing *t = arena_new_of(&a, Hlod__V1__Timing);
    hlod__v1__timing__init(t);
    t->name = (char *)(uintptr_t)name;
    t->start_ms = start_ms;
    t->ms = ms;
    return t;
}
static Hlod__V1__PassStat *pass(const char *name, double ms) {
    Hlod__V1__PassStat *p = arena_new_of(&a, Hlod__V1__PassStat);
    hlod__v1__pass_stat__init(p);
    p->name = (char *)(uintptr_t)name;
    p->ms = ms;
    p->before = 300;
    return p;
}
static Hlod__V1__ProfileRow *row(const char *name, int depth, double start_ms, double ms) {
    Hlod__V1__ProfileRow *r = arena_new_of(&a, Hlod__V1__ProfileRow);
    hlod__v1__profile_row__init(r);
    r->name = (char *)(uintptr_t)name;
    r->depth = depth;
    r->start_ms = start_ms;
    r->ms = ms;
    r->flops = 1 << 20;
    r->impl = (char *)(uintptr_t)"kernel";
    return r;
}
static Hlod__V1__RunRecord *record(void) {
    Hlod__V1__RunRecord *m = arena_new_of(&a, Hlod__V1__RunRecord);
    hlod__v1__run_record__init(m);
    m->job = 17;
    m->device = (char *)(uintptr_t)"cpu:0";
    m->model = (char *)(uintptr_t)"ab12";
    m->compiled = true;
    m->timings = arena_array(&a, Hlod__V1__Timing *, 5);
    m->timings[m->n_timings++] = timing("compile", 1, 4);
    m->timings[m->n_timings++] = timing("run", 6, 10);
    m->timings[m->n_timings++] = timing("transfer", 14, 2);
    m->timings[m->n_timings++] = timing("total", 0, 16);
    m->passes = arena_array(&a, Hlod__V1__PassStat *, 2);
    m->passes[m->n_passes++] = pass("cse", 1);
    m->passes[m->n_passes++] = pass("fuse", 2);

    m->profile = arena_new_of(&a, Hlod__V1__Profile);
    hlod__v1__profile__init(m->profile);
    m->profile->total_ms = 6;
    m->profile->rows = arena_array(&a, Hlod__V1__ProfileRow *, 4);
    m->profile->rows[m->profile->n_rows++] = row("dot", 1, 0, 1); // inside what comes behind it
    m->profile->rows[m->profile->n_rows++] = row("add", 1, 1, NAN);
    m->profile->rows[m->profile->n_rows++] = row("while", 0, 0, 3);
    m->profile->rows[m->profile->n_rows++] = row("tanh", 0, 3, -1);
    return m;
}
static const Otlp__Span *named(const Otlp__ScopeSpans *s, const char *name) {
    for (size_t k = 0; k < s->n_spans; k++)
        if (!strcmp(s->spans[k]->name, name)) return s->spans[k];
    fail_msg("no span '%s'", name);
    return NULL;
}
static void is_part(const Otlp__ScopeSpans *s, const char *part, const char *of) {
    const Otlp__Span *p = named(s, part), *whole = named(s, of);
    same_id(p->parent_span_id, whole->span_id.data, 8);
    same_id(p->trace_id, trace.id, 16);
    assert_int_equal(p->kind, OTLP__SPAN__SPAN_KIND__SPAN_KIND_INTERNAL);
    assert_int_equal(p->flags, 0x101);
    assert_true(p->end_time_unix_nano >= p->start_time_unix_nano);
}

// What of it goes through the queue, and comes out as spans.
static Otlp__ScopeSpans *through(const struct trace_work *w, enum spans_detail detail, bool names,
                                 size_t room, unsigned *lost) {
    struct otlp_queue *q = otlp_queue_new(room, 512);
    struct trace_work again;
    *lost = otlp_record_put(q, w, &(struct otlp_keep){detail, names});
    const void *x = otlp_queue_first(q);
    assert_non_null(x);
    otlp_record_get(x, &a, &again);
    unsigned waiting = otlp_queue_spans(q);
    n_put = 0;
    Otlp__ScopeSpans *s = spans_of_work(&again, 0);
    assert_true(s->n_spans <= waiting + 1); // that, and a request that was long in coming
    otlp_queue_drop(q);
    assert_int_equal(otlp_queue_spans(q), 0);
    otlp_queue_free(q);
    return s;
}

static void parts(void **state) {
    struct trace_work w = request();
    struct trace batch = trace;
    unsigned lost;
    (void)state;
    w.start_ns = 500000000;
    w.work_ns = 502000000; // 2 ms in coming
    w.record = record();
    w.tenant = "acme";
    w.run = &batch;
    w.rows = 5;
    Otlp__ScopeSpans *s = through(&w, SPANS_STEPS, false, 1 << 16, &lost);
    assert_int_equal(lost, 0);
    assert_int_equal(s->n_spans, 12);
    static const char *const tree[][2] = {{"receive", "POST /v1/run"},
                                          {"compile", "POST /v1/run"},
                                          {"run", "POST /v1/run"},
                                          {"transfer", "run"},
                                          {"cse", "compile"},
                                          {"fuse", "compile"},
                                          {"run on the device", "run"},
                                          {"while", "run on the device"},
                                          {"tanh", "run on the device"},
                                          {"dot", "while"},
                                          {"add", "while"}};
    for (size_t k = 0; k < sizeof tree / sizeof *tree; k++)
        is_part(s, tree[k][0], tree[k][1]);
    assert_int_equal(named(s, "run")->start_time_unix_nano, 508000000);
    assert_int_equal(named(s, "run")->end_time_unix_nano, 518000000);
    assert_int_equal(named(s, "run")->n_links, 1);
    same_id(named(s, "run")->links[0]->span_id, batch.span, 8);
    assert_int_equal(named(s, "fuse")->start_time_unix_nano, 504000000);
    assert_int_equal(number(named(s, "fuse"), "hlod.instructions.before"), 300);
    assert_int_equal(number(named(s, "dot"), "hlod.flops"), 1 << 20);
    assert_string_equal(text(named(s, "dot"), "hlod.impl"), "kernel");
    assert_int_equal(number(s->spans[0], "hlod.job"), 17);
    assert_int_equal(number(s->spans[0], "hlod.batch.rows"), 5);
    assert_string_equal(text(s->spans[0], "hlod.device"), "cpu:0");
    assert_string_equal(text(s->spans[0], "hlod.model"), "ab12");
    assert_null(attribute(s->spans[0], "hlod.tenant"));

    assert_int_equal(through(&w, SPANS_PASSES, false, 1 << 16, &lost)->n_spans, 7);
    assert_int_equal(through(&w, SPANS_PHASES, false, 1 << 16, &lost)->n_spans, 5);
    s = through(&w, SPANS_REQUEST, true, 1 << 16, &lost);
    assert_int_equal(s->n_spans, 1);
    assert_string_equal(text(s->spans[0], "hlod.tenant"), "acme");
}

// Links; and what is left out where a profile is too large.
static void bounds(void **state) {
    struct trace_work w = request();
    const struct trace *links[200];
    unsigned lost;
    (void)state;
    for (size_t k = 0; k < 200; k++)
        links[k] = &trace;
    w.name = "batch";
    w.links = links;
    w.n_links = 3;
    const Otlp__Span *s = through(&w, SPANS_STEPS, false, 1 << 16, &lost)->spans[0];
    assert_int_equal(s->n_links, 3);
    same_id(s->links[2]->trace_id, trace.id, 16);
    same_id(s->links[2]->span_id, trace.span, 8);
    w.n_links = 200;
    s = through(&w, SPANS_STEPS, false, 1 << 16, &lost)->spans[0];
    assert_int_equal(s->n_links, 128);
    assert_int_equal(s->dropped_links_count, 1); // at least

    w = request();
    Hlod__V1__RunRecord *m = record();
    char *op = arena_zalloc(&a, 3001);
    memset(op, 'x', 3000);
    m->profile->rows[0]->op = op;
    w.work_ns = w.start_ns;
    w.record = m;
    Otlp__ScopeSpans *all = through(&w, SPANS_STEPS, false, 1 << 12, &lost);
    assert_int_equal(all->n_spans, 4); // itself and its phases
    assert_int_equal(lost, 7);
}

// ---- metrics

static void metrics(void **state) {
    struct otlp_bytes b = {0};
    (void)state;
    metric_add(M_REQUESTS, 3);
    metric_set(M_CONNECTIONS, -2);
    metric_observe_ns(M_RUN_TIME, 200000);
    metric_observe_ns(M_RUN_TIME, INT64_C(1000000000000));
    otlp_encode_metrics(&b, &origin, 111, 222);
    Otlp__ExportMetricsServiceRequest *m =
        otlp__export_metrics_service_request__unpack(NULL, b.n, b.p);
    free(b.p);
    assert_non_null(m);
    const Otlp__ScopeMetrics *s = m->resource_metrics[0]->scope_metrics[0];
    assert_int_equal(s->n_metrics, METRIC_COUNT);
    for (size_t k = 0; k < s->n_metrics; k++)
        for (size_t i = 0; i < k; i++)
            assert_string_not_equal(s->metrics[k]->name, s->metrics[i]->name);

    const Otlp__Metric *x = s->metrics[M_REQUESTS];
    assert_string_equal(x->name, "hlod.requests");
    assert_int_equal(x->data_case, OTLP__METRIC__DATA_SUM);
    assert_true(x->sum->is_monotonic);
    assert_int_equal(x->sum->aggregation_temporality, 2);
    assert_int_equal(x->sum->data_points[0]->as_int, 3);
    assert_int_equal(x->sum->data_points[0]->start_time_unix_nano, 111);
    assert_int_equal(x->sum->data_points[0]->time_unix_nano, 222);
    x = s->metrics[M_CONNECTIONS];
    assert_int_equal(x->data_case, OTLP__METRIC__DATA_GAUGE);
    assert_int_equal(x->gauge->data_points[0]->as_int, -2);
    x = s->metrics[M_UPLOAD_BYTES];
    assert_string_equal(x->name, "hlod.upload");
    assert_string_equal(x->unit, "By");

    x = s->metrics[M_RUN_TIME];
    assert_string_equal(x->name, "hlod.run");
    assert_string_equal(x->unit, "s");
    const Otlp__HistogramDataPoint *h = x->histogram->data_points[0];
    assert_int_equal(h->count, 2);
    assert_true(fabs(h->sum - 1000.0002) < 1e-9);
    assert_int_equal(h->n_bucket_counts, h->n_explicit_bounds + 1);
    assert_int_equal(h->bucket_counts[1], 1);
    assert_int_equal(h->bucket_counts[h->n_explicit_bounds], 1);
    assert_true(fabs(h->explicit_bounds[1] - 0.000316) < 1e-12);
    otlp__export_metrics_service_request__free_unpacked(m, NULL);
}

// ---- answers

static void answers(void **state) {
    struct otlp_answer x;
    uint8_t bytes[400];
    (void)state;
    otlp_answer_body((struct span){0}, &x);
    assert_true(x.how == OTLP_TAKEN && !x.rejected && !*x.why);
    Otlp__PartialSuccess partial = OTLP__PARTIAL_SUCCESS__INIT;
    Otlp__ExportResponse answer = OTLP__EXPORT_RESPONSE__INIT;
    partial.rejected = 7;
    partial.error_message = (char *)(uintptr_t)"too old";
    answer.partial_success = &partial;
    size_t n = otlp__export_response__pack(&answer, bytes);
    otlp_answer_body((struct span){bytes, n}, &x);
    assert_true(x.how == OTLP_TAKEN && x.rejected == 7);
    assert_string_equal(x.why, "too old");
    partial.rejected = -1;
    n = otlp__export_response__pack(&answer, bytes);
    otlp_answer_body((struct span){bytes, n}, &x);
    assert_int_equal(x.rejected, 0);
    otlp_answer_body((struct span){bytes, n - 1}, &x); // cut off: taken all the same
    assert_true(x.how == OTLP_TAKEN && !x.rejected);

    Otlp__Duration delay = OTLP__DURATION__INIT;
    Otlp__RetryInfo info = OTLP__RETRY_INFO__INIT;
    Otlp__Any any = OTLP__ANY__INIT, *details[] = {&any};
    Otlp__RpcStatus status = OTLP__RPC_STATUS__INIT;
    uint8_t inner[40];
    delay.seconds = 2;
    delay.nanos = 500000000;
    info.retry_delay = &delay;
    any.type_url = (char *)(uintptr_t)"type.googleapis.com/google.rpc.RetryInfo";
    any.value = (ProtobufCBinaryData){otlp__retry_info__pack(&info, inner), inner};
    status.details = details;
    status.n_details = 1;
    n = otlp__rpc_status__pack(&status, bytes);
    otlp_answer_refusal(ST_RESOURCE_EXHAUSTED, (struct span){bytes, n}, &x);
    assert_true(x.how == OTLP_AGAIN && x.retry_ms == 2501);
    otlp_answer_refusal(ST_INVALID_ARGUMENT, (struct span){bytes, n}, &x);
    assert_int_equal(x.how, OTLP_REFUSED);
    any.type_url = (char *)(uintptr_t)"RetryInfo";
    n = otlp__rpc_status__pack(&status, bytes);
    otlp_answer_refusal(ST_RESOURCE_EXHAUSTED, (struct span){bytes, n}, &x);
    assert_int_equal(x.how, OTLP_REFUSED);

    static const int again[] = {ST_CANCELLED,    ST_DEADLINE_EXCEEDED, ST_ABORTED,
                                ST_OUT_OF_RANGE, ST_UNAVAILABLE,       ST_DATA_LOSS};
    int n_again = 0;
    for (int code = 1; code <= ST_UNAUTHENTICATED; code++) {
        otlp_answer_refusal(code, (struct span){0}, &x);
        n_again += x.how == OTLP_AGAIN;
    }
    assert_int_equal(n_again, sizeof again / sizeof *again);
    for (size_t k = 0; k < sizeof again / sizeof *again; k++) {
        otlp_answer_refusal(again[k], (struct span){0}, &x);
        assert_int_equal(x.how, OTLP_AGAIN);
    }
}

static void answers_over_http(void **state) {
    (void)state;
    static const struct {
        int code, how;
    } rows[] = {{200, OTLP_TAKEN},   {202, OTLP_TAKEN},   {100, OTLP_REFUSED}, {301, OTLP_REFUSED},
                {307, OTLP_REFUSED}, {400, OTLP_REFUSED}, {401, OTLP_REFUSED}, {413, OTLP_REFUSED},
                {429, OTLP_AGAIN},   {500, OTLP_REFUSED}, {501, OTLP_REFUSED}, {502, OTLP_AGAIN},
                {503, OTLP_AGAIN},   {504, OTLP_AGAIN},   {999, OTLP_REFUSED}};
    struct otlp_answer x;
    uint8_t bytes[200];
    Otlp__RpcStatus status = OTLP__RPC_STATUS__INIT;
    status.message = (char *)(uintptr_t)"no such tenant";
    size_t n = otlp__rpc_status__pack(&status, bytes);
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        otlp_answer_http(rows[k].code, (struct span){0}, &x);
        if ((int)x.how != rows[k].how) fail_msg("%d: %d", rows[k].code, (int)x.how);
        assert_true(!*x.why == (x.how == OTLP_TAKEN));
    }
    otlp_answer_http(400, (struct span){bytes, n}, &x);
    assert_string_equal(x.why, "HTTP 400: no such tenant");
    otlp_answer_http(503, (struct span){bytes, n - 1}, &x); // cut off
    assert_string_equal(x.why, "HTTP 503");
    otlp_answer_http(200, (struct span){(const uint8_t *)"<html>", 6}, &x); // taken all the same
    assert_true(x.how == OTLP_TAKEN && !x.rejected);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(over_http, setup, teardown),
        cmocka_unit_test_setup_teardown(over_grpc, setup, teardown),
        cmocka_unit_test_setup_teardown(errors, setup, teardown),
        cmocka_unit_test_setup_teardown(parts, setup, teardown),
        cmocka_unit_test_setup_teardown(bounds, setup, teardown),
        cmocka_unit_test_setup_teardown(metrics, setup, teardown),
        cmocka_unit_test(answers),
        cmocka_unit_test(answers_over_http),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
