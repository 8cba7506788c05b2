// SPDX-License-Identifier: Apache-2.0
// A worker that obeys the wire protocol and a script: the "model" is text that starts with FAKE and
// says how to behave, so that scheduling and failures can be tested without a compiler. Lines:  in
// NAME DTYPE DIM,DIM  ·  out NAME DTYPE DIM,DIM  (a DIM is a number or a symbol)  ·  weight BYTES
// ·  key VALUE, with keys
//   ingest_ms compile_ms prepare_ms run_ms    take so long (CANCEL and STATS are answered
//   meanwhile) crash ingest|compile|expect|prepare|run   die by SIGKILL there, half way
//   fault ingest|compile|expect|prepare|run              die by SIGSEGV there   hang run
//   ignore CANCEL too fail ingest|compile|expect|prepare|run    answer INVALID_ARGUMENT
//   draft 1                                              a compile sends a DRAFT first
//   work N                               operations, and bytes, of the executable, as it says
//   artifact 1                           a compile gives an artefact that others may check
// FAKE_WORKER_BUILD, FAKE_WORKER_TARGET: what it says it is.
// A run's outputs are its first input's bytes, each f32 plus one. FAKE_WORKER_SEED: much of what it
// says is wrong (tests/fuzz/mutate.h).
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/map.h"
#include "base/str.h"
#include "proto/artifact.pb-c.h"
#include "proto/frame.h"
#include "proto/wire.pb-c.h"
#include "tests/fuzz/mutate.h"

enum { KERNEL_ABI = 1 };
static const char *said(const char *variable, const char *otherwise) {
    const char *v = getenv(variable);
    return v ? v : otherwise;
}
static int sock;
static _Atomic uint64_t *begun; // the daemon's page
static bool hostile;
static struct frame_buf *buf;
static uint64_t cancelled; // the call named by the last CANCEL
static struct smap loaded; // key, or key and weights -> script

static void send_msg(uint32_t type, uint64_t call, const ProtobufCMessage *m, const int *fds,
                     int n) {
    if (hostile) {
        mutate_send(sock, type, call, m, fds, n);
        return;
    }
    status_t st = frame_send_msg(sock, type, call, m, fds, n, -1);
    if (st) exit(0);
}

static void answer_stats(uint64_t call) {
    Hlod__Wire__Status ok = HLOD__WIRE__STATUS__INIT;
    Hlod__Wire__StatsReply r = HLOD__WIRE__STATS_REPLY__INIT;
    r.status = &ok;
    r.rss_bytes = 1 << 20;
    r.resident_executables = (int32_t)loaded.n;
    send_msg(HLOD__WIRE__TYPE__TYPE_STATS_REPLY, call, &r.base, NULL, 0);
}

// ---- scripts

static const char *value(const char *script, const char *key) {
    static char out[200];
    size_t n = strlen(key);
    for (const char *p = script; p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL)
        if (!strncmp(p, key, n) && p[n] == ' ') {
            snprintf(out, sizeof out, "%.*s", (int)strcspn(p + n + 1, "\n"), p + n + 1);
            return out;
        }
    return "";
}
static int64_t number(const char *script, const char *key) {
    int64_t v = 0;
    return str_to_i64(str_of(value(script, key)), &v) ? v : 0;
}

static struct frame queued[64]; // requests that came while we were busy; bodies copied
static int n_queued;

static void take_other(struct frame *f) {
    if (f->type == HLOD__WIRE__TYPE__TYPE_STATS)
        answer_stats(f->call);
    else if (f->type == HLOD__WIRE__TYPE__TYPE_CANCEL)
        cancelled = f->call;
    else if (n_queued < 64) {
        uint8_t *copy = malloc(f->body.n + 1);
        memcpy(copy, f->body.p, f->body.n);
        f->body.p = copy;
        queued[n_queued++] = *f;
        return;
    }
    frame_done(f);
}

// Works for a while. False: cancelled.
static bool work(const char *script, const char *step, uint64_t call) {
    char key[40];
    snprintf(key, sizeof key, "%s_ms", step);
    int64_t end = clock_ns() + number(script, key) * 1000000,
            half = clock_ns() + number(script, key) * 500000;
    bool crash = !strcmp(value(script, "crash"), step), hang = !strcmp(value(script, "hang"), step);
    for (;;) {
        int64_t now = clock_ns();
        if (crash && now >= half) raise(SIGKILL);
        if (!strcmp(value(script, "fault"), step)) {
            signal(SIGSEGV, SIG_DFL); // no finding of a sanitizer
            raise(SIGSEGV);
        }
        if (now >= end && !hang) return true;
        int ms = hang ? 1000 : (int)((end - now) / 1000000) + 1;
        struct frame f;
        status_t st = frame_recv(sock, buf, ms < 5 ? ms : 5, &f);
        if (st) {
            st_drop(st);
            continue;
        }
        if (f.type == 0) exit(0);
        take_other(&f);
        if (cancelled == call && !hang) return false;
    }
}

static bool done_or(Hlod__Wire__Status *s, const char *script, const char *step, uint64_t call) {
    hlod__wire__status__init(s);
    if (!work(script, step, call)) {
        s->code = ST_CANCELLED;
        s->message = (char *)"cancelled";
    } else if (!strcmp(value(script, "fail"), step)) {
        s->code = ST_INVALID_ARGUMENT;
        s->reason = HLOD__V1__REASON__REASON_UNSUPPORTED_OP;
        s->message = (char *)"2 nodes are not supported\nnode 'a': op Foo\nnode 'b': op Bar";
    }
    return s->code == 0;
}

// The first bytes of b, `most` at most, and a 0.
static char *blob_head(const Hlod__Wire__Blob *b, struct frame *f, size_t most) {
    size_t n = !b ? 0 : b->size < most ? b->size : most;
    char *out = calloc(1, n + 1);
    if (!b) return out;
    if (b->fd == 0)
        memcpy(out, b->inline_bytes.data, b->inline_bytes.len < n ? b->inline_bytes.len : n);
    else if (n && pread(f->fds[b->fd - 1], out, n, (off_t)b->offset) != (ssize_t)n)
        abort();
    return out;
}
static char *blob_text(const Hlod__Wire__Blob *b, struct frame *f) {
    return blob_head(b, f, SIZE_MAX);
}

// Of an artefact: the script, as it is or within one that others may check.
static char *script_in(const Hlod__Wire__Blob *b, struct frame *f) {
    char *bytes = blob_text(b, f);
    if (!strncmp(bytes, "FAKE", 4)) return bytes;
    Hlod__Artifact__Artifact *m =
        hlod__artifact__artifact__unpack(NULL, b->size, (const uint8_t *)bytes);
    return m ? m->main : bytes;
}

static Hlod__V1__TensorSpec *spec(const char *at, Hlod__Wire__Binding **b, size_t n_b) {
    char line[300];
    snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
    char name[64], dtype[16], dims[128] = "";
    if (sscanf(line, "%63s %15s %127s", name, dtype, dims) < 2) abort();
    Hlod__V1__TensorSpec *t = calloc(1, sizeof *t);
    hlod__v1__tensor_spec__init(t);
    t->name = strdup(name);
    t->dtype = strdup(dtype);
    t->dims = calloc(16, sizeof *t->dims);
    struct str text = str_of(dims), one;
    while (text.n && str_cut(&text, ',', &one)) {
        Hlod__V1__Dim *d = calloc(1, sizeof *d);
        hlod__v1__dim__init(d);
        if (!str_to_i64(one, &d->size)) {
            d->size = -1;
            d->symbol = strndup(one.p, one.n);
            for (size_t i = 0; i < n_b; i++)
                if (!strcmp(b[i]->symbol, d->symbol)) {
                    d->size = b[i]->size;
                    d->symbol = (char *)protobuf_c_empty_string;
                }
        }
        t->dims[t->n_dims++] = d;
    }
    return t;
}

static Hlod__V1__Signature *signature(const char *script, Hlod__Wire__Binding **b, size_t n_b) {
    Hlod__V1__Signature *s = calloc(1, sizeof *s);
    hlod__v1__signature__init(s);
    s->inputs = calloc(16, sizeof *s->inputs);
    s->outputs = calloc(16, sizeof *s->outputs);
    for (const char *p = script; p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL) {
        if (!strncmp(p, "in ", 3)) s->inputs[s->n_inputs++] = spec(p + 3, b, n_b);
        if (!strncmp(p, "out ", 4)) s->outputs[s->n_outputs++] = spec(p + 4, b, n_b);
    }
    return s;
}

// ---- calls. This is a test program: what it makes it leaks.

int __lsan_is_turned_off(void);
__attribute__((visibility("default"))) int __lsan_is_turned_off(void) {
    return 1;
}

// As the real digest, it knows no names.
static struct digest program_of(const char *script) {
    struct sha256 h;
    sha256_init(&h);
    for (const char *p = script; *p;) {
        size_t n = strcspn(p, "\n"), skip = 0;
        if (!strncmp(p, "in ", 3) || !strncmp(p, "out ", 4)) skip = 4 + strcspn(p + 4, " ");
        sha256_add(&h, p, 2);
        if (n > skip) sha256_add(&h, p + skip, n - skip);
        p += n + (p[n] == '\n');
    }
    return sha256_end(&h);
}

static void do_ingest(struct frame *f) {
    Hlod__Wire__Ingest *q = hlod__wire__ingest__unpack(NULL, f->body.n, f->body.p);
    char *script = blob_head(q->source, f, 1 << 20); // what follows is padding
    Hlod__Wire__Status s;
    Hlod__Wire__IngestReply r = HLOD__WIRE__INGEST_REPLY__INIT;
    r.status = &s;
    hlod__wire__status__init(&s);
    if (strncmp(script, "FAKE", 4)) {
        s.code = ST_INVALID_ARGUMENT;
        s.reason = HLOD__V1__REASON__REASON_UNSUPPORTED_FORMAT;
        s.message = (char *)"not a FAKE model";
    } else if (done_or(&s, script, "ingest", f->call)) {
        struct digest program = program_of(script), weights = sha256_of("weights", 7);
        r.format = (char *)"fake";
        r.program_digest = (ProtobufCBinaryData){32, program.b};
        r.weights_digest = (ProtobufCBinaryData){32, weights.b};
        Hlod__Wire__Blob b = HLOD__WIRE__BLOB__INIT;
        b.inline_bytes = (ProtobufCBinaryData){strlen(script) < 60000 ? strlen(script) : 60000,
                                               (uint8_t *)script};
        b.size = b.inline_bytes.len;
        r.program = &b;
        r.signature = signature(script, NULL, 0);
        Hlod__Wire__Weight w = HLOD__WIRE__WEIGHT__INIT, *ws = &w;
        w.name = w.dtype = (char *)"u8";
        w.size = number(script, "weight");
        if (w.size) r.weights = &ws, r.n_weights = 1;
        send_msg(HLOD__WIRE__TYPE__TYPE_INGEST_REPLY, f->call, &r.base, NULL, 0);
        return;
    }
    send_msg(HLOD__WIRE__TYPE__TYPE_INGEST_REPLY, f->call, &r.base, NULL, 0);
}

static struct span artifact_of(const Hlod__Wire__Compile *q, char *script) {
    if (!number(script, "artifact")) return (struct span){(uint8_t *)script, strlen(script)};
    Hlod__Artifact__Artifact m = HLOD__ARTIFACT__ARTIFACT__INIT;
    m.version = 3;
    m.kernel_abi = KERNEL_ABI;
    m.build_id = (char *)said("FAKE_WORKER_BUILD", "fake");
    m.target_id = q->target_id;
    m.options = q->options;
    m.main = script;
    uint8_t *p = malloc(hlod__artifact__artifact__get_packed_size(&m));
    return (struct span){p, hlod__artifact__artifact__pack(&m, p)};
}

static void do_compile(struct frame *f) {
    Hlod__Wire__Compile *q = hlod__wire__compile__unpack(NULL, f->body.n, f->body.p);
    char *script = blob_text(q->program, f);
    static const char *const passes[] = {"lower", "dce", "fuse", "codegen"};
    for (size_t i = 0; i < 4; i++) {
        Hlod__V1__PassStat p = HLOD__V1__PASS_STAT__INIT;
        p.name = (char *)passes[i];
        p.before = 100;
        p.after = 100 - (int64_t)i;
        send_msg(HLOD__WIRE__TYPE__TYPE_PASS, f->call, &p.base, NULL, 0);
    }
    for (int64_t i = 0; q->draft && i < number(script, "draft"); i++) {
        Hlod__Wire__Blob all = HLOD__WIRE__BLOB__INIT;
        Hlod__Wire__Draft d = HLOD__WIRE__DRAFT__INIT;
        all.size = strlen(script);
        all.inline_bytes = (ProtobufCBinaryData){all.size, (uint8_t *)script};
        d.artifact = &all;
        send_msg(HLOD__WIRE__TYPE__TYPE_DRAFT, f->call, &d.base, NULL, 0);
    }
    Hlod__Wire__Status s;
    Hlod__Wire__CompileReply r = HLOD__WIRE__COMPILE_REPLY__INIT;
    Hlod__V1__ExecutableInfo x = HLOD__V1__EXECUTABLE_INFO__INIT;
    Hlod__V1__Counts c = HLOD__V1__COUNTS__INIT;
    Hlod__Wire__Blob b = HLOD__WIRE__BLOB__INIT;
    int fd = -1;
    r.status = &s;
    if (done_or(&s, script, "compile", f->call)) {
        c.entry = 7;
        c.total = 9;
        c.fusions = 2;
        x.before = x.after = &c;
        x.signature = signature(script, q->bindings, q->n_bindings);
        for (size_t i = 0; i < x.signature->n_inputs; i++) // as the compiler: names of its own
            x.signature->inputs[i]->name = (char *)"p.0";
        for (size_t i = 0; i < x.signature->n_outputs; i++)
            x.signature->outputs[i]->name = (char *)"out.0";
        x.compile_ms = (double)number(script, "compile_ms");
        x.flops = x.bytes_accessed = number(script, "work");
        struct span bytes = artifact_of(q, script);
        // By descriptor, to test that way.
        if (frame_memfd("artifact", (int64_t)bytes.n, &fd) || pwrite(fd, bytes.p, bytes.n, 0) < 0)
            abort();
        b.fd = 1;
        b.size = bytes.n;
        r.artifact = &b;
        r.info = &x;
    }
    send_msg(HLOD__WIRE__TYPE__TYPE_COMPILE_REPLY, f->call, &r.base, &fd, fd >= 0);
    if (fd >= 0) close(fd);
}

static void do_inspect(struct frame *f) {
    Hlod__Wire__Inspect *q = hlod__wire__inspect__unpack(NULL, f->body.n, f->body.p);
    Hlod__Wire__Status s = HLOD__WIRE__STATUS__INIT;
    Hlod__Wire__InspectReply r = HLOD__WIRE__INSPECT_REPLY__INIT;
    Hlod__Wire__Blob b = HLOD__WIRE__BLOB__INIT;
    char text[300];
    snprintf(text, sizeof text, "stage %.100s\n%.150s", q->stage, script_in(q->artifact, f));
    b.inline_bytes = (ProtobufCBinaryData){strlen(text), (uint8_t *)text};
    b.size = strlen(text);
    r.status = &s;
    r.text = &b;
    send_msg(HLOD__WIRE__TYPE__TYPE_INSPECT_REPLY, f->call, &r.base, NULL, 0);
}

static void do_tune(struct frame *f) {
    Hlod__Wire__Tune *q = hlod__wire__tune__unpack(NULL, f->body.n, f->body.p);
    Hlod__Wire__Status s = HLOD__WIRE__STATUS__INIT;
    Hlod__Wire__TuneReply r = HLOD__WIRE__TUNE_REPLY__INIT;
    Hlod__V1__Tuning t = HLOD__V1__TUNING__INIT;
    Hlod__V1__TunedStep step = HLOD__V1__TUNED_STEP__INIT, *steps[] = {&step};
    const char *name = "dot.1";
    step.instructions = (char **)(uintptr_t)&name;
    step.n_instructions = 1;
    step.usual = (char *)"slow";
    step.kept = (char *)"quick";
    step.usual_ms = q->budget_ms; // as it was told
    step.kept_ms = 1;
    t.steps = steps;
    t.n_steps = 1;
    t.complete = true;
    t.implementations = (char *)"list";
    r.status = &s;
    r.tuning = &t;
    send_msg(HLOD__WIRE__TYPE__TYPE_TUNE_REPLY, f->call, &r.base, NULL, 0);
    hlod__wire__tune__free_unpacked(q, NULL);
}

// A package of "name backend N=1;...", one page or an archive as the worker would send it.
static void do_export(struct frame *f) {
    Hlod__Wire__Export *q = hlod__wire__export__unpack(NULL, f->body.n, f->body.p);
    Hlod__Wire__Status s = HLOD__WIRE__STATUS__INIT;
    Hlod__Wire__ExportReply r = HLOD__WIRE__EXPORT_REPLY__INIT;
    Hlod__Wire__Blob b = HLOD__WIRE__BLOB__INIT;
    Hlod__V1__WebPackage info = HLOD__V1__WEB_PACKAGE__INIT;
    char text[300], *script = script_in(q->source, f);
    int fd = -1;
    size_t n = (size_t)snprintf(text, sizeof text, "%.40s %.10s", q->how->name, q->how->backend);
    for (size_t k = 0; k < q->n_bindings && n < sizeof text; k++)
        n += (size_t)snprintf(text + n, sizeof text - n, " %.40s=%lld", q->bindings[k]->symbol,
                              (long long)q->bindings[k]->size);
    r.status = &s;
    if (done_or(&s, script, "export", f->call)) {
        b.size = strlen(text);
        b.fd = 1;
        if (frame_memfd("package", (int64_t)b.size, &fd) || pwrite(fd, text, b.size, 0) < 0)
            abort();
        if (!strcmp(value(script, "package"), "nowhere")) b.fd = 0;
        if (!strcmp(value(script, "package"), "empty")) b.size = 0;
        info.weight_bytes = 7;
        r.package = &b;
        r.info = &info;
    }
    send_msg(HLOD__WIRE__TYPE__TYPE_EXPORT_REPLY, f->call, &r.base, &fd, fd >= 0);
    if (fd >= 0) close(fd);
    hlod__wire__export__free_unpacked(q, NULL);
}

static void do_load(struct frame *f) {
    Hlod__Wire__Load *q = hlod__wire__load__unpack(NULL, f->body.n, f->body.p);
    smap_put(&loaded, (struct str){(char *)q->key.data, 32}, script_in(q->artifact, f));
    Hlod__Wire__Status s = HLOD__WIRE__STATUS__INIT;
    Hlod__Wire__LoadReply r = HLOD__WIRE__LOAD_REPLY__INIT;
    r.status = &s;
    send_msg(HLOD__WIRE__TYPE__TYPE_LOAD_REPLY, f->call, &r.base, NULL, 0);
}

static void do_expect(struct frame *f) {
    Hlod__Wire__Expect *q = hlod__wire__expect__unpack(NULL, f->body.n, f->body.p);
    Hlod__Wire__Status s;
    Hlod__Wire__ExpectReply r = HLOD__WIRE__EXPECT_REPLY__INIT;
    r.status = &s;
    done_or(&s, script_in(q->artifact, f), "expect", f->call);
    send_msg(HLOD__WIRE__TYPE__TYPE_EXPECT_REPLY, f->call, &r.base, NULL, 0);
}

static void do_unload(struct frame *f) {
    Hlod__Wire__Unload *q = hlod__wire__unload__unpack(NULL, f->body.n, f->body.p);
    smap_del(&loaded, (struct str){(char *)q->key.data, 32});
    Hlod__Wire__Status s = HLOD__WIRE__STATUS__INIT;
    Hlod__Wire__UnloadReply r = HLOD__WIRE__UNLOAD_REPLY__INIT;
    r.status = &s;
    send_msg(HLOD__WIRE__TYPE__TYPE_UNLOAD_REPLY, f->call, &r.base, NULL, 0);
}

static void do_prepare(struct frame *f) {
    Hlod__Wire__Prepare *q = hlod__wire__prepare__unpack(NULL, f->body.n, f->body.p);
    const char *script = smap_get(&loaded, (struct str){(char *)q->key.data, 32});
    Hlod__Wire__Status s;
    Hlod__Wire__PrepareReply r = HLOD__WIRE__PREPARE_REPLY__INIT;
    r.status = &s;
    r.prepared_bytes = script ? number(script, "weight") : 0;
    if (script) done_or(&s, script, "prepare", f->call);
    send_msg(HLOD__WIRE__TYPE__TYPE_PREPARE_REPLY, f->call, &r.base, NULL, 0);
}

static void do_run(struct frame *f) {
    Hlod__Wire__Run *q = hlod__wire__run__unpack(NULL, f->body.n, f->body.p);
    const char *script = smap_get(&loaded, (struct str){(char *)q->key.data, 32});
    Hlod__Wire__Status s = HLOD__WIRE__STATUS__INIT;
    Hlod__Wire__RunReply r = HLOD__WIRE__RUN_REPLY__INIT;
    Hlod__Wire__WireTensor *out[16], *in = q->n_inputs ? q->inputs[0] : NULL;
    double ms = 1;
    int fd = -1;
    r.status = &s;
    if (!script) {
        s.code = ST_NOT_FOUND;
        s.reason = HLOD__V1__REASON__REASON_EXECUTABLE_NOT_FOUND;
    } else {
        send_msg(HLOD__WIRE__TYPE__TYPE_RUNNING, f->call, &s.base, NULL, 0);
        if (done_or(&s, script, "run", f->call)) {
            size_t n = q->n_outputs ? q->n_outputs : signature(script, NULL, 0)->n_outputs;
            float *data = (float *)(void *)blob_text(in->data, f);
            for (size_t i = 0; i < in->data->size / 4; i++)
                data[i] += 1;
            Hlod__Wire__Blob *b = calloc(1, sizeof *b);
            hlod__wire__blob__init(b);
            b->size = in->data->size;
            if (b->size <= 60000)
                b->inline_bytes = (ProtobufCBinaryData){b->size, (uint8_t *)data};
            else {
                if (frame_memfd("out", (int64_t)b->size, &fd) ||
                    pwrite(fd, data, b->size, 0) != (ssize_t)b->size)
                    abort();
                b->fd = 1;
            }
            for (size_t i = 0; i < n; i++) {
                out[i] = calloc(1, sizeof *out[i]);
                *out[i] = *in;
                out[i]->data = b;
            }
            r.outputs = out;
            r.n_outputs = n;
            r.run_ms = &ms;
            r.n_run_ms = 1;
        }
    }
    send_msg(HLOD__WIRE__TYPE__TYPE_RUN_REPLY, f->call, &r.base, &fd, fd >= 0);
    if (fd >= 0) close(fd);
}

// A training program of one weight, whatever the script and the spec; the model is its own result.
static void do_train(struct frame *f) {
    Hlod__Wire__Status ok = HLOD__WIRE__STATUS__INIT;
    Hlod__Wire__TrainReply r = HLOD__WIRE__TRAIN_REPLY__INIT;
    Hlod__Wire__TrainedReply trained = HLOD__WIRE__TRAINED_REPLY__INIT;
    Hlod__Wire__Blob program = HLOD__WIRE__BLOB__INIT, values = HLOD__WIRE__BLOB__INIT;
    Hlod__Wire__TrainLeaf leaf[4], *leaves[4];
    static const char text[] =
        "FAKE\nin w f32 4\nin step s32 1\nin x f32 1,4\nin label f32 1,4\nout w f32 4\n"
        "out step s32 1\nout losses f32 8\nkey train\n";
    static const char *const role[] = {"weight", "step", "data", "label"}, *const name[] = {
                                                                               "w", "step", "x",
                                                                               "label"};
    static int64_t dims[] = {1, 4};
    int fd = -1;
    for (int k = 0; k < 4; k++) {
        hlod__wire__train_leaf__init(leaves[k] = &leaf[k]);
        leaf[k].name = leaf[k].of = leaf[k].key = (char *)(uintptr_t)name[k];
        leaf[k].role = (char *)(uintptr_t)role[k];
        leaf[k].dtype = (char *)(uintptr_t)(k == 1 ? "s32" : "f32");
        leaf[k].dims = k == 0 ? dims + 1 : dims;
        leaf[k].n_dims = k < 2 ? 1 : 2;
        leaf[k].offset = (uint64_t)k * 64;
        leaf[k].size = k == 1 ? 4 : 16;
    }

    program.inline_bytes = (ProtobufCBinaryData){sizeof text - 1, (uint8_t *)(uintptr_t)text};
    program.size = sizeof text - 1;
    r.status = trained.status = &ok;
    r.program = trained.model = &program;
    r.leaves = leaves;
    r.n_leaves = 4;
    r.n_state = 2;
    r.steps_per_epoch = 1;
    r.slice = 8;
    values.fd = 1;
    values.size = 256;
    r.values = &values;
    if (f->type == HLOD__WIRE__TYPE__TYPE_TRAINED) {
        send_msg(HLOD__WIRE__TYPE__TYPE_TRAINED_REPLY, f->call, &trained.base, NULL, 0);
        return;
    }
    status_t st = frame_memfd("fake-values", 256, &fd);
    if (st) exit(0);
    send_msg(HLOD__WIRE__TYPE__TYPE_TRAIN_REPLY, f->call, &r.base, &fd, 1);
    close(fd);
}

// Buffers are not a script's business: numbers are known, contents are not.
static void do_buffers(struct frame *f) {
    Hlod__Wire__Status ok = HLOD__WIRE__STATUS__INIT;
    Hlod__Wire__PutReply put = HLOD__WIRE__PUT_REPLY__INIT;
    Hlod__Wire__GetReply get = HLOD__WIRE__GET_REPLY__INIT;
    Hlod__Wire__FreeReply freed = HLOD__WIRE__FREE_REPLY__INIT;
    Hlod__Wire__Blob b = HLOD__WIRE__BLOB__INIT, *data = &b;
    uint8_t bytes[16] = {0};
    put.status = get.status = freed.status = &ok;
    b.inline_bytes = (ProtobufCBinaryData){b.size = sizeof bytes, bytes};
    get.data = &data;
    get.n_data = 1;
    const ProtobufCMessage *m = f->type == HLOD__WIRE__TYPE__TYPE_PUT   ? &put.base
                                : f->type == HLOD__WIRE__TYPE__TYPE_GET ? &get.base
                                                                        : &freed.base;
    send_msg(f->type + 40, f->call, m, NULL, 0);
}

static void handle(struct frame *f) {
    if (begun) *begun = f->call;
    switch (f->type) {
    case HLOD__WIRE__TYPE__TYPE_INGEST:
        do_ingest(f);
        break;
    case HLOD__WIRE__TYPE__TYPE_COMPILE:
        do_compile(f);
        break;
    case HLOD__WIRE__TYPE__TYPE_INSPECT:
        do_inspect(f);
        break;
    case HLOD__WIRE__TYPE__TYPE_TUNE:
        do_tune(f);
        break;
    case HLOD__WIRE__TYPE__TYPE_EXPORT:
        do_export(f);
        break;
    case HLOD__WIRE__TYPE__TYPE_LOAD:
        do_load(f);
        break;
    case HLOD__WIRE__TYPE__TYPE_EXPECT:
        do_expect(f);
        break;
    case HLOD__WIRE__TYPE__TYPE_PREPARE:
        do_prepare(f);
        break;
    case HLOD__WIRE__TYPE__TYPE_UNLOAD:
        do_unload(f);
        break;
    case HLOD__WIRE__TYPE__TYPE_RUN:
        do_run(f);
        break;
    case HLOD__WIRE__TYPE__TYPE_TRAIN:
    case HLOD__WIRE__TYPE__TYPE_TRAINED:
        do_train(f);
        break;
    case HLOD__WIRE__TYPE__TYPE_PUT:
    case HLOD__WIRE__TYPE__TYPE_GET:
    case HLOD__WIRE__TYPE__TYPE_FREE:
        do_buffers(f);
        break;
    default:
        break;
    }
}

int main(int argc, char **argv) {
    const char *role = "device";
    for (int i = 1; i < argc; i++) {
        if (!strncmp(argv[i], "--role=", 7)) role = argv[i] + 7;
        if (!strncmp(argv[i], "--fd=", 5)) sock = argv[i][5] - '0';
        uint8_t *page;
        void *base;
        size_t bytes;
        if (!strncmp(argv[i], "--state=", 8) &&
            !frame_map(argv[i][8] - '0', 0, WORKER_STATE_BYTES, true, &page, &base, &bytes))
            begun = (_Atomic uint64_t *)(void *)page;
    }
    buf = frame_buf_new();
    const char *seed = getenv("FAKE_WORKER_SEED"); // a worker gone wrong, each its own way
    int64_t begin = 0;
    if ((hostile = seed && str_to_i64(str_of(seed), &begin))) {
        begin = begin * 1000003 + clock_ns() % 1000000;
        fprintf(stderr, "fake_worker %s %d: mutate_seed %lld\n", role, (int)getpid(),
                (long long)begin);
        mutate_seed((uint64_t)begin);
    }
    Hlod__Wire__Hello h = HLOD__WIRE__HELLO__INIT;
    h.protocol = FRAME_PROTOCOL;
    h.role = (char *)role;
    h.pid = getpid();
    h.build_id = (char *)said("FAKE_WORKER_BUILD", "fake");
    h.kernel_abi = KERNEL_ABI;
    h.device_kind = (char *)"cpu";
    h.device_name = (char *)"cpu:0";
    h.target_id = (char *)said("FAKE_WORKER_TARGET", "fake:1");
    send_msg(HLOD__WIRE__TYPE__TYPE_HELLO, 0, &h.base, NULL, 0);
    for (;;) {
        struct frame f;
        if (n_queued) {
            f = queued[0];
            memmove(queued, queued + 1, (size_t)--n_queued * sizeof *queued);
            handle(&f);
            for (int i = 0; i < f.n_fds; i++)
                if (f.fds[i] >= 0) close(f.fds[i]);
            continue;
        }
        status_t st = frame_recv(sock, buf, -1, &f);
        if (st || f.type == 0) return 0;
        take_other(&f);
    }
}
