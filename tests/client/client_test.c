// SPDX-License-Identifier: Apache-2.0
// libhlod against a daemon, from the installed header and library alone: compile, run, events,
// cancel, errors, inspect, devices, cache. argv: address, a scripted model
// (tests/api/fake_worker.c: a run adds one to every number).
#include <hlod.h>
#include <hlod_admin.h>
#include <hlod_jobs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures;
#define CHECK(what) (void)((what) || (failures++, printf("    line %d: %s\n", __LINE__, #what)))

static struct hlod *h;
static const char *addr, *model_path;

static struct hlod_compile_options shape_n(int64_t n, struct hlod_shape *s, int64_t dims[2]) {
    dims[0] = n;
    dims[1] = 4;
    *s = (struct hlod_shape){"x", 2, dims};
    struct hlod_compile_options o = HLOD_COMPILE_OPTIONS;
    o.shapes = s;
    o.n_shapes = 1;
    return o;
}
static struct hlod_executable *compiled(int64_t n) {
    struct hlod_shape s;
    int64_t dims[2];
    struct hlod_compile_options o = shape_n(n, &s, dims);
    struct hlod_executable *e = NULL;
    enum hlod_code code = hlod_compile_file(h, model_path, &o, &e);
    if (code) printf("    %s\n", hlod_error(h)->message);
    return e;
}

struct seen {
    int n[16];
    int stop_at; // kind, or -1
};
static bool note(void *ctx, const struct hlod_event *e) {
    struct seen *s = ctx;
    s->n[e->kind]++;
    return (int)e->kind != s->stop_at;
}

static void compile(void) {
    struct seen seen = {.stop_at = -1};
    struct hlod_shape s;
    int64_t dims[2];
    struct hlod_compile_options o = shape_n(2, &s, dims);
    o.on_event = note;
    o.ctx = &seen;
    struct hlod_executable *e = NULL, *again = NULL;
    CHECK(hlod_compile_file(h, model_path, &o, &e) == HLOD_OK);
    if (!e) return;
    CHECK(seen.n[HLOD_EVENT_PASS] == 4 && seen.n[HLOD_EVENT_COMPILED] == 1);
    CHECK(strlen(e->digest) == 64 && strlen(e->model) == 64 && !e->cache_hit);
    CHECK(e->n_inputs == 1 && !strcmp(e->inputs[0].name, "x") && e->inputs[0].rank == 2);
    CHECK(e->inputs[0].dims[0] == 2 && !strcmp(e->inputs[0].dtype, "f32"));
    CHECK(e->n_outputs == 1 && !strcmp(e->outputs[0].name, "y"));
    CHECK(e->entry_after == 7 && e->total_after == 9 && e->fusions == 2);
    o.on_event = NULL;
    CHECK(hlod_compile_digest(h, e->model, &o, &again) == HLOD_OK);
    CHECK(again && again->cache_hit && !strcmp(again->digest, e->digest));
    hlod_executable_free(again);
    hlod_executable_free(e);
}

struct told {
    int passes, results, done, sent;
};
static bool told_event(void *ctx, const char *event) {
    struct told *t = ctx;
    t->passes += strstr(event, "\"pass\"") != NULL;
    t->results += strstr(event, "\"compileResult\"") && strstr(event, "\"overBudget\"");
    t->done += strstr(event, "\"done\"") != NULL;
    return true;
}
static void told_sent(void *ctx, int64_t sent, int64_t total) {
    struct told *t = ctx;
    t->sent += sent == total && total > 0;
}
// Whole events, a bound that is passed, a target that does not exist.
static void compile_options(void) {
    struct told told = {0};
    struct hlod_shape s;
    int64_t dims[2];
    struct hlod_compile_options o = shape_n(9, &s, dims);
    struct hlod_executable *e = NULL;
    o.on_json = told_event;
    o.on_progress = told_sent;
    o.ctx = &told;
    o.max_instructions = 1;
    CHECK(hlod_compile_file(h, model_path, &o, &e) == HLOD_OK);
    CHECK(told.passes >= 4 && told.results == 1 && told.done == 1);
    CHECK(told.sent >= 1 || !strncmp(addr, "grpc", 4));
    hlod_executable_free(e);
    o.max_instructions = 0;
    CHECK(hlod_compile_file(h, model_path, &o, &e) == HLOD_OK);
    CHECK(told.results == 1 && told.done == 2);
    hlod_executable_free(e);
    o.target = "nonsense:1";
    CHECK(hlod_compile_file(h, model_path, &o, &e) == HLOD_INVALID_ARGUMENT);
    CHECK(strstr(hlod_error(h)->message, "nonsense"));
    o.target = NULL;
    o.replicas = -1;
    CHECK(hlod_compile_file(h, model_path, &o, &e) == HLOD_INVALID_ARGUMENT);
}

static void run(void) {
    struct hlod_executable *e = compiled(2);
    CHECK(e != NULL);
    if (!e) return;
    const float x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    const int64_t dims[2] = {2, 4};
    const struct hlod_tensor in = {"x", "f32", 2, dims, x, sizeof x};
    struct seen seen = {.stop_at = -1};
    struct hlod_run_options o = HLOD_RUN_OPTIONS;
    o.on_event = note;
    o.ctx = &seen;
    struct hlod_result *r = NULL;
    CHECK(hlod_run(h, e->model, &in, 1, &o, &r) == HLOD_OK);
    CHECK(seen.n[HLOD_EVENT_QUEUED] == 1 && seen.n[HLOD_EVENT_RUNNING] == 1);
    CHECK(r && r->n_outputs == 1 && r->outputs[0].size_bytes == sizeof x);
    CHECK(r && r->outputs[0].rank == 2 && r->outputs[0].dims[0] == 2);
    for (int i = 0; r && i < 8; i++)
        CHECK(((const float *)r->outputs[0].data)[i] == x[i] + 1);
    CHECK(r && r->n_run_ms == 1 && !strcmp(r->device, "cpu:0") &&
          !strcmp(r->executable, e->digest));
    hlod_result_free(r);
    hlod_executable_free(e);
}

static void on_sent(void *ctx, int64_t sent, int64_t total) {
    int64_t *most = ctx;
    if (sent > *most && sent <= total) *most = sent;
}
static void in_pieces(void) { // 65 MiB: beyond one request; the last bytes decide the digest
    const size_t n = 65u << 20, first = 10u << 20;
    static const char begin[] = "FAKE\nin x f32 1,4\nout y f32 1,4\nweight 8\n# ";
    char *model = malloc(n), digest[HLOD_DIGEST_CHARS] = "";
    if (!model) abort();
    memset(model, 'x', n);
    memcpy(model, begin, sizeof begin - 1);
    model[n - 1] = '\n';

    int64_t most = 0;
    struct hlod_executable *a = NULL, *b = NULL;
    const struct hlod_bytes parts[2] = {{model, first}, {model + first, n - first}};
    CHECK(hlod_upload(h, parts, 2, on_sent, &most, digest) == HLOD_OK && strlen(digest) == 64);
    CHECK(hlod_compile_digest(h, digest, NULL, &a) == HLOD_OK);
    CHECK(hlod_compile(h, model, n, NULL, &b) == HLOD_OK);
    CHECK(a && b && !strcmp(a->model, digest) && !strcmp(b->model, digest));
    CHECK(most == (int64_t)n);
    hlod_executable_free(a);
    hlod_executable_free(b);

    const struct hlod_bytes none = {model, 0};
    CHECK(hlod_upload(h, &none, 1, NULL, NULL, digest) == HLOD_INVALID_ARGUMENT);
    free(model);
}
static void large(void) { // 16 MiB each way
    in_pieces();
    enum { N = 1 << 20 };
    struct hlod_executable *e = compiled(1);
    CHECK(e != NULL);
    if (!e) return;
    float *x = malloc(sizeof *x * 4 * N);
    if (!x) abort();
    for (int i = 0; i < 4 * N; i++)
        x[i] = (float)(i % 1000);
    const int64_t dims[2] = {N, 4};
    const struct hlod_tensor in = {NULL, "f32", 2, dims, x, sizeof *x * 4 * N};
    struct hlod_result *r = NULL;
    CHECK(hlod_run(h, e->model, &in, 1, NULL, &r) == HLOD_OK);
    CHECK(r && r->outputs[0].size_bytes == in.size_bytes);
    int wrong = 0;
    for (int i = 0; r && i < 4 * N; i++)
        wrong += ((const float *)r->outputs[0].data)[i] != x[i] + 1;
    CHECK(wrong == 0);
    hlod_result_free(r);
    hlod_executable_free(e);
    free(x);
}

static void errors(void) {
    struct hlod_executable *e = NULL;
    struct hlod_result *r = NULL;
    CHECK(hlod_compile(h, "garbage", 7, NULL, &e) == HLOD_INVALID_ARGUMENT && !e);
    CHECK(!strcmp(hlod_error(h)->reason, "UNSUPPORTED_FORMAT") && *hlod_error(h)->message);
    static const char failing[] = "FAKE\nin x f32 4\nout y f32 4\nfail compile\n";
    CHECK(hlod_compile(h, failing, sizeof failing - 1, NULL, &e) == HLOD_INVALID_ARGUMENT);
    CHECK(hlod_error(h)->n_details == 2 && strstr(hlod_error(h)->details[1], "op Bar"));
    CHECK(hlod_compile_file(h, "/nonexistent/model", NULL, &e) == HLOD_NOT_FOUND);
    static const char open[] = "FAKE\nin x f32 4,M\nout y f32 4,M\n";
    CHECK(hlod_compile(h, open, sizeof open - 1, NULL, &e) == HLOD_INVALID_ARGUMENT);
    CHECK(!strcmp(hlod_error(h)->reason, "UNBOUND_DIM"));
    CHECK(hlod_error(h)->n_details > 1 && strstr(hlod_error(h)->details[1], "--shape x=4x128"));
    CHECK(hlod_run(h, "xyz", NULL, 0, NULL, &r) == HLOD_NOT_FOUND);
    CHECK(!strcmp(hlod_error(h)->reason, "MODEL_NOT_FOUND"));
    e = compiled(2);
    if (!e) return;
    const float x[4] = {0};
    const int64_t dims[2] = {1, 3};
    const struct hlod_tensor in = {"x", "f32", 2, dims, x, 12};
    CHECK(hlod_run(h, e->digest, &in, 1, NULL, &r) == HLOD_INVALID_ARGUMENT && !r);
    CHECK(!strcmp(hlod_error(h)->reason, "SHAPE_MISMATCH"));
    CHECK(hlod_run(h, e->digest, NULL, 0, NULL, &r) == HLOD_INVALID_ARGUMENT);
    CHECK(!strcmp(hlod_error(h)->reason, "MISSING_INPUT"));
    hlod_executable_free(e);
    struct hlod *other = NULL;
    CHECK(hlod_open("not an address", &other) == HLOD_INVALID_ARGUMENT && !other);
    CHECK(hlod_open("127.0.0.1:1", &other) == HLOD_OK);
    struct hlod_server s;
    CHECK(hlod_server(other, &s) == HLOD_UNAVAILABLE);
    CHECK(!strcmp(hlod_code_name(HLOD_UNAVAILABLE), "UNAVAILABLE"));
    hlod_close(other);
    hlod_close(NULL);
}

static void cancel(void) {
    static const char slow[] = "FAKE\nin x f32 4\nout y f32 4\nrun_ms 20000\n";
    struct hlod_executable *e = NULL;
    CHECK(hlod_compile(h, slow, sizeof slow - 1, NULL, &e) == HLOD_OK);
    if (!e) return;
    const float x[4] = {0};
    const int64_t dims[1] = {4};
    const struct hlod_tensor in = {"x", "f32", 1, dims, x, sizeof x};
    struct seen seen = {.stop_at = HLOD_EVENT_RUNNING};
    struct hlod_run_options o = HLOD_RUN_OPTIONS;
    o.on_event = note;
    o.ctx = &seen;
    struct hlod_result *r = NULL;
    CHECK(hlod_run(h, e->digest, &in, 1, &o, &r) == HLOD_CANCELLED && !r);
    o.on_event = NULL;
    o.timeout_ms = 100;
    CHECK(hlod_run(h, e->digest, &in, 1, &o, &r) == HLOD_DEADLINE_EXCEEDED);
    hlod_executable_free(e);
}

struct lines {
    int n, stop_at;
    bool done;
};
static bool on_line(void *ctx, const char *event) {
    struct lines *x = ctx;
    x->done = strstr(event, "\"done\"") != NULL;
    return ++x->n != x->stop_at && *event == '{';
}
// And with its messages as protobuf bytes: field 1, a text.
static void by_bytes(const char *digest) {
    struct hlod_blob *b = NULL;
    char request[80] = {1 << 3 | 2, 64};
    strcpy(request + 2, digest);
    CHECK(!hlod_call_message(h, "GetExecutable", request, 66, &b));
    CHECK(b && b->bytes > 66 && !memcmp(b->data, request, 66)); // it begins with its digest
    hlod_blob_free(b);
    CHECK(!hlod_call_message(h, "Version", NULL, 0, NULL));
    CHECK(hlod_call_message(h, "GetExecutable", request, 40, &b) == HLOD_INVALID_ARGUMENT);
    CHECK(hlod_call_message(h, "WatchJob", NULL, 0, &b) == HLOD_INVALID_ARGUMENT);
    CHECK(hlod_call_message(h, "Nonsense", NULL, 0, &b) == HLOD_UNIMPLEMENTED);
    request[2] = request[2] == '0' ? '1' : '0';
    CHECK(hlod_call_message(h, "GetExecutable", request, 66, &b) == HLOD_NOT_FOUND);
}
// Any method, by its name and with JSON.
static void by_name(const char *digest) {
    char *text = NULL, request[300];
    CHECK(hlod_call_json(h, "Version", NULL, NULL, NULL, &text) == HLOD_OK);
    CHECK(text && strstr(text, "\"api\":\"hlod.v1\""));
    hlod_text_free(text);
    text = NULL;
    snprintf(request, sizeof request, "{\"digest\": \"%s\"}", digest);
    CHECK(hlod_call_json(h, "GetExecutable", request, NULL, NULL, &text) == HLOD_OK);
    CHECK(text && strstr(text, digest));
    hlod_text_free(text);
    CHECK(hlod_call_json(h, "GetExecutable", request, NULL, NULL, NULL) == HLOD_OK);
    by_bytes(digest);

    text = NULL;
    CHECK(hlod_call_json(h, "Nonsense", NULL, NULL, NULL, &text) == HLOD_UNIMPLEMENTED && !text);
    CHECK(hlod_call_json(h, "GetExecutable", "{\"nonsense\": 1}", NULL, NULL, &text) ==
          HLOD_INVALID_ARGUMENT);
    CHECK(!strcmp(hlod_error(h)->reason, "BAD_JSON") && !hlod_error(h)->answered && !text);
    CHECK(hlod_call_json(h, "GetExecutable", "{", NULL, NULL, &text) == HLOD_INVALID_ARGUMENT);
    CHECK(hlod_call_json(h, "ShowModel", "{\"model\": \"nonsense\"}", NULL, NULL, &text) ==
          HLOD_NOT_FOUND);
    CHECK(hlod_error(h)->answered && !text);

    char model[100];
    struct hlod_executable *e = compiled(5);
    struct lines all = {.stop_at = -1}, some = {.stop_at = 1};
    snprintf(model, sizeof model, "%s", e ? e->model : "");
    hlod_executable_free(e);
    snprintf(request, sizeof request,
             "{\"model\": \"%s\", \"shapes\": [{\"input\": \"x\", \"dims\": [5, 4]}]}", model);
    CHECK(hlod_call_json(h, "CompileStream", request, on_line, &all, &text) == HLOD_OK && !text);
    CHECK(all.n >= 3 && all.done);
    CHECK(hlod_call_json(h, "CompileStream", request, on_line, &some, NULL) == HLOD_CANCELLED);
    CHECK(some.n == 1);
    CHECK(hlod_call_json(h, "CompileStream", "{\"model\": \"nonsense\"}", on_line, &some, NULL) ==
          HLOD_NOT_FOUND);
    CHECK(hlod_error(h)->answered);
}

static void admin(void) {
    struct hlod_server s;
    CHECK(hlod_server(h, &s) == HLOD_OK && s.ready && !strcmp(s.api, "hlod.v1"));
    struct hlod_executable *a = compiled(5), *b = compiled(6);
    if (!a || !b) abort();
    char *text = NULL;
    CHECK(hlod_inspect(h, a->digest, "hlo-after", &text) == HLOD_OK);
    CHECK(text && !strncmp(text, "stage hlo-after", 15));
    hlod_text_free(text);
    bool grpc = !strncmp(addr, "grpc", 4);
    CHECK(hlod_metrics(h, &text) == (grpc ? HLOD_UNIMPLEMENTED : HLOD_OK));
    CHECK(grpc || strstr(text, "\nhlod_compiles_total "));
    if (!grpc) hlod_text_free(text);
    CHECK(hlod_inspect(h, a->digest, "nonsense", &text) == HLOD_NOT_FOUND);
    struct hlod_devices *d = NULL;
    CHECK(hlod_devices(h, &d) == HLOD_OK && d->n_devices == 1);
    CHECK(d && !strcmp(d->devices[0].name, "cpu:0") && d->devices[0].worker_pid > 0);
    hlod_devices_free(d);
    struct hlod_executables *l = NULL;
    CHECK(hlod_cache_list(h, 2, &l) == HLOD_OK && l->n_executables == 2);
    hlod_executables_free(l);
    struct hlod_difference *f = NULL;
    CHECK(hlod_cache_explain(h, a->digest, b->digest, &f) == HLOD_OK);
    CHECK(f && !strcmp(f->component, "bindings") && !strcmp(f->a, "N=5") && !strcmp(f->b, "N=6"));
    hlod_difference_free(f);
    struct hlod_cache_stats stats;
    CHECK(hlod_cache_stats(h, &stats) == HLOD_OK && stats.executables > 2 && stats.compiles > 2);
    by_name(a->digest);
    CHECK(hlod_cache_remove(h, b->digest) == HLOD_OK);
    CHECK(hlod_cache_remove(h, b->digest) == HLOD_NOT_FOUND);
    hlod_executable_free(a);
    hlod_executable_free(b);
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    addr = argv[1];
    model_path = argv[2];
    if (hlod_open(addr, &h)) return 1;
    static const struct {
        const char *name;
        void (*fn)(void);
    } tests[] = {{"compile", compile}, {"compile_options", compile_options},
                 {"run", run},         {"large", large},
                 {"errors", errors},   {"cancel", cancel},
                 {"admin", admin}};
    int bad = 0;
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        failures = 0;
        tests[i].fn();
        printf("%s libhlod %s\n", failures ? "FAIL" : "PASS", tests[i].name);
        bad += failures;
    }
    hlod_close(h);
    return bad ? 1 : 0;
}
