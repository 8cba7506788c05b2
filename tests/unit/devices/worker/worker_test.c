// SPDX-License-Identifier: Apache-2.0
// A worker in a child process, spoken to as the daemon does, well and badly: every call of both
// roles, memory of both sides, and frames that must be refused without costing the process.
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/str.h"
#include "devices/worker/worker.h"
#include "proto/frame.h"
#include "proto/wire.pb-c.h"

struct peer {
    pid_t pid;
    int sock;
    struct frame_buf *buf;
    struct frame last; // the latest reply
    uint64_t calls;
};

static void ok_(status_t st, int line) {
    if (!st) return;
    fprintf(stderr, "line %d: %s\n", line, st_message(st));
    st_drop(st);
    fail();
}
#define ok(call) ok_((call), __LINE__)

static struct peer *start(const char *role, const char *device) {
    struct peer *p = calloc(1, sizeof *p);
    int fds[2];
    ok(frame_pair(fds));
    fflush(NULL);
    p->pid = fork();
    if (p->pid == 0) {
        close(fds[0]);
        struct worker_options o = {
            .role = role, .device = device, .name = "sim:3", .fd = fds[1], .filter = true};
        status_t st = worker_serve(&o);
        int rc = st ? 1 : 0;
        st_drop(st);
        free(p);
        exit(rc); // leaks are looked for here
    }
    close(fds[1]);
    p->sock = fds[0];
    p->buf = frame_buf_new();
    ok(frame_recv(p->sock, p->buf, 20000, &p->last));
    assert_int_equal(p->last.type, HLOD__WIRE__TYPE__TYPE_HELLO);
    return p;
}

// Waits for the process to end; its exit status.
static int end_of(struct peer *p) {
    int how;
    frame_done(&p->last);
    close(p->sock);
    assert_int_equal(waitpid(p->pid, &how, 0), p->pid);
    if (WIFSIGNALED(how)) fail_msg("the worker died of signal %d", WTERMSIG(how));
    frame_buf_free(p->buf);
    free(p);
    return WEXITSTATUS(how);
}

static void send_call(struct peer *p, uint32_t type, const ProtobufCMessage *m, const int *fds,
                      int n) {
    ok(frame_send_msg(p->sock, type, ++p->calls, m, fds, n, 5000));
}
static void wait_for(struct peer *p, uint32_t type) {
    do {
        frame_done(&p->last);
        ok(frame_recv(p->sock, p->buf, 20000, &p->last));
        assert_true(p->last.type != 0);
    } while (p->last.type != type);
    assert_int_equal(p->last.call, p->calls);
}
// The reply's body; `last` holds its descriptors.
static struct span ask(struct peer *p, uint32_t type, const ProtobufCMessage *m, const int *fds,
                       int n) {
    send_call(p, type, m, fds, n);
    wait_for(p, type + 40);
    return p->last.body;
}

static int memory(const void *bytes, size_t n, bool sealed) {
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(fd >= 0 && ftruncate(fd, (off_t)n) == 0);
    if (bytes) assert_int_equal(pwrite(fd, bytes, n, 0), n);
    if (sealed) assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
    return fd;
}

// ---- a program, through the compile role

#define HEAD "HloModule m\nENTRY e {\n"
static const char add_one[] =
    HEAD "  x = f32[8192] parameter(0)\n  c = f32[] constant(1)\n  b = f32[8192] broadcast(c), "
         "dimensions={}\n  ROOT r = f32[8192] add(x, b)\n}\n";
enum { N = 8192, BYTES = N * 4 };

static int artifact_of(const char *text, size_t *out_bytes) {
    struct peer *p = start("compile", "sim");
    Hlod__Wire__Hello *h = hlod__wire__hello__unpack(NULL, p->last.body.n, p->last.body.p);
    assert_string_equal(h->role, "compile");
    assert_true(strcmp(h->filter, "on") == 0 || strstr(h->filter, "off: ") == h->filter);
    hlod__wire__hello__free_unpacked(h, NULL);

    Hlod__Wire__Blob source = HLOD__WIRE__BLOB__INIT;
    Hlod__Wire__Ingest in = HLOD__WIRE__INGEST__INIT;
    source.inline_bytes = (ProtobufCBinaryData){strlen(text), (uint8_t *)(uintptr_t)text};
    source.size = strlen(text);
    in.source = &source;
    struct span s = ask(p, HLOD__WIRE__TYPE__TYPE_INGEST, &in.base, NULL, 0);
    Hlod__Wire__IngestReply *r = hlod__wire__ingest_reply__unpack(NULL, s.n, s.p);
    assert_int_equal(r->status->code, 0);
    assert_string_equal(r->format, "hlo-text");

    Hlod__Wire__Compile c = HLOD__WIRE__COMPILE__INIT;
    c.format = r->format;
    c.program = r->program;
    c.target_id = (char *)(uintptr_t)"sim:1";
    s = ask(p, HLOD__WIRE__TYPE__TYPE_COMPILE, &c.base, p->last.fds, p->last.n_fds);
    Hlod__Wire__CompileReply *q = hlod__wire__compile_reply__unpack(NULL, s.n, s.p);
    assert_int_equal(q->status->code, 0);
    *out_bytes = (size_t)q->artifact->size;
    int fd;
    if (q->artifact->fd) {
        fd = frame_take_fd(&p->last, (int)q->artifact->fd - 1);
    } else {
        fd = memory(q->artifact->inline_bytes.data, *out_bytes, true);
    }
    hlod__wire__ingest_reply__free_unpacked(r, NULL);
    hlod__wire__compile_reply__free_unpacked(q, NULL);
    assert_int_equal(end_of(p), 0);
    return fd;
}

static uint8_t key[32] = {1, 2, 3}, weights[32] = {9};

// A blob's bytes as descriptors of our own.
static int kept(struct peer *p, const Hlod__Wire__Blob *b) {
    return b->fd ? frame_take_fd(&p->last, (int)b->fd - 1)
                 : memory(b->inline_bytes.data, b->size, true);
}
// A compile for the CPU: the draft that it sends, then the artefact.
static void draft_and_artifact(const char *text, int *out_fds, size_t *out_bytes) {
    struct peer *p = start("device", "cpu"); // says the target
    Hlod__Wire__Hello *h = hlod__wire__hello__unpack(NULL, p->last.body.n, p->last.body.p);
    assert_int_equal(end_of(p), 0);
    p = start("compile", "cpu");
    Hlod__Wire__Blob program = HLOD__WIRE__BLOB__INIT;
    Hlod__Wire__Compile c = HLOD__WIRE__COMPILE__INIT;
    program.inline_bytes = (ProtobufCBinaryData){strlen(text), (uint8_t *)(uintptr_t)text};
    program.size = strlen(text);
    c.format = (char *)(uintptr_t)"hlo-text";
    c.program = &program;
    c.target_id = h->target_id;
    c.draft = true;
    send_call(p, HLOD__WIRE__TYPE__TYPE_COMPILE, &c.base, NULL, 0);
    wait_for(p, HLOD__WIRE__TYPE__TYPE_DRAFT);
    Hlod__Wire__Draft *d = hlod__wire__draft__unpack(NULL, p->last.body.n, p->last.body.p);
    out_bytes[0] = (size_t)d->artifact->size;
    out_fds[0] = kept(p, d->artifact);
    hlod__wire__draft__free_unpacked(d, NULL);
    wait_for(p, HLOD__WIRE__TYPE__TYPE_COMPILE_REPLY);
    Hlod__Wire__CompileReply *r =
        hlod__wire__compile_reply__unpack(NULL, p->last.body.n, p->last.body.p);
    assert_int_equal(r->status->code, 0);
    out_bytes[1] = (size_t)r->artifact->size;
    out_fds[1] = kept(p, r->artifact);
    hlod__wire__compile_reply__free_unpacked(r, NULL);
    hlod__wire__hello__free_unpacked(h, NULL);
    assert_int_equal(end_of(p), 0);
}
static Hlod__Wire__Status *status_in(struct span s, Hlod__Wire__RunReply **out) {
    if (*out) hlod__wire__run_reply__free_unpacked(*out, NULL);
    *out = hlod__wire__run_reply__unpack(NULL, s.n, s.p);
    assert_non_null(*out);
    return (*out)->status;
}

// Loaded before and after its weights are prepared: it is there already, and they stay.
static struct peer *device_with(const char *spec, const char *text) {
    size_t n;
    int fd = artifact_of(text, &n);
    struct peer *p = start("device", spec);
    Hlod__Wire__Blob artifact = HLOD__WIRE__BLOB__INIT;
    Hlod__Wire__Load load = HLOD__WIRE__LOAD__INIT;
    Hlod__Wire__Prepare prepare = HLOD__WIRE__PREPARE__INIT;
    artifact.fd = 1;
    artifact.size = n;
    load.key = prepare.key = (ProtobufCBinaryData){32, key};
    load.artifact = &artifact;
    prepare.weights_digest = (ProtobufCBinaryData){32, weights};
    for (int turn = 0; turn < 2; turn++) {
        struct span s = ask(p, HLOD__WIRE__TYPE__TYPE_LOAD, &load.base, &fd, 1);
        Hlod__Wire__LoadReply *r = hlod__wire__load_reply__unpack(NULL, s.n, s.p);
        assert_int_equal(r->status->code, 0);
        hlod__wire__load_reply__free_unpacked(r, NULL);
        if (turn) break;
        s = ask(p, HLOD__WIRE__TYPE__TYPE_PREPARE, &prepare.base, NULL, 0);
        Hlod__Wire__PrepareReply *q = hlod__wire__prepare_reply__unpack(NULL, s.n, s.p);
        assert_int_equal(q->status->code, 0);
        hlod__wire__prepare_reply__free_unpacked(q, NULL);
    }
    close(fd);
    return p;
}

// A RUN with one input, by descriptor 1.
struct run_request {
    Hlod__Wire__Run run;
    Hlod__Wire__WireTensor tensor, *list[1];
    Hlod__Wire__Blob blob;
    int64_t dims[1];
};
static struct run_request *run_of(struct run_request *q) {
    hlod__wire__run__init(&q->run);
    hlod__wire__wire_tensor__init(&q->tensor);
    hlod__wire__blob__init(&q->blob);
    q->run.key = (ProtobufCBinaryData){32, key};
    q->run.weights_digest = (ProtobufCBinaryData){32, weights};
    q->run.n_inputs = 1;
    q->run.inputs = q->list;
    q->list[0] = &q->tensor;
    q->tensor.dtype = (char *)(uintptr_t)"f32";
    q->tensor.n_dims = 1;
    q->tensor.dims = q->dims;
    q->dims[0] = N;
    q->tensor.data = &q->blob;
    q->blob.fd = 1;
    q->blob.size = BYTES;
    return q;
}
static int input(void) {
    static float v[N];
    for (int k = 0; k < N; k++)
        v[k] = (float)k;
    return memory(v, BYTES, true);
}
// The output of a good reply, wherever it lies.
static void check_output(struct peer *p, const Hlod__Wire__RunReply *r, int ours) {
    static float got[N];
    assert_int_equal(r->status->code, 0);
    assert_int_equal(r->n_outputs, 1);
    const Hlod__Wire__Blob *b = r->outputs[0]->data;
    assert_int_equal(b->fd, 1);
    assert_int_equal(b->size, BYTES);
    assert_int_equal(p->last.n_fds, ours >= 0 ? 0 : 1);
    int fd = ours >= 0 ? ours : p->last.fds[0];
    assert_int_equal(pread(fd, got, BYTES, (off_t)b->offset), BYTES);
    for (int k = 0; k < N; k++)
        assert_true(got[k] == (float)k + 1);
    if (ours < 0) assert_true(fcntl(fd, F_GET_SEALS) & F_SEAL_SHRINK);
}

static int32_t expect_reply(struct peer *p, int fd, size_t n, bool whole) {
    Hlod__Wire__Blob b = HLOD__WIRE__BLOB__INIT;
    Hlod__Wire__Expect m = HLOD__WIRE__EXPECT__INIT;
    b.fd = 1;
    b.size = n;
    m.key = (ProtobufCBinaryData){32, key};
    m.artifact = &b;
    m.whole = whole;
    struct span s = ask(p, HLOD__WIRE__TYPE__TYPE_EXPECT, &m.base, &fd, 1);
    Hlod__Wire__ExpectReply *r = hlod__wire__expect_reply__unpack(NULL, s.n, s.p);
    int32_t code = r->status->code;
    hlod__wire__expect_reply__free_unpacked(r, NULL);
    return code;
}
static void load_and_run(struct peer *p, int fd, size_t n, float plus) {
    Hlod__Wire__Blob b = HLOD__WIRE__BLOB__INIT;
    Hlod__Wire__Load load = HLOD__WIRE__LOAD__INIT;
    Hlod__Wire__Prepare prepare = HLOD__WIRE__PREPARE__INIT;
    struct run_request q;
    Hlod__Wire__RunReply *r = NULL;
    b.fd = 1;
    b.size = n;
    load.key = prepare.key = (ProtobufCBinaryData){32, key};
    load.artifact = &b;
    struct span s = ask(p, HLOD__WIRE__TYPE__TYPE_LOAD, &load.base, &fd, 1);
    Hlod__Wire__LoadReply *l = hlod__wire__load_reply__unpack(NULL, s.n, s.p);
    assert_int_equal(l->status->code, 0);
    hlod__wire__load_reply__free_unpacked(l, NULL);
    prepare.weights_digest = (ProtobufCBinaryData){32, weights};
    s = ask(p, HLOD__WIRE__TYPE__TYPE_PREPARE, &prepare.base, NULL, 0);
    Hlod__Wire__PrepareReply *w = hlod__wire__prepare_reply__unpack(NULL, s.n, s.p);
    assert_int_equal(w->status->code, 0);
    hlod__wire__prepare_reply__free_unpacked(w, NULL);
    int in = input();
    static float got[N];
    run_of(&q);
    status_in(ask(p, HLOD__WIRE__TYPE__TYPE_RUN, &q.run.base, &in, 1), &r);
    assert_int_equal(r->status->code, 0);
    assert_int_equal(pread(p->last.fds[0], got, BYTES, (off_t)r->outputs[0]->data->offset), BYTES);
    for (int k = 0; k < N; k++)
        assert_true(got[k] == (float)k + plus);
    hlod__wire__run_reply__free_unpacked(r, NULL);
    close(in);
}
// What is expected is used where LOAD brings the same, and harms nobody where it does not.
static void test_expected(void **state) {
    (void)state;
    static const char add_two[] =
        HEAD "  x = f32[8192] parameter(0)\n  c = f32[] constant(2)\n  b = f32[8192] broadcast(c), "
             "dimensions={}\n  ROOT r = f32[8192] add(x, b)\n}\n";
    int one[2], two[2];
    size_t n1[2], n2[2];
    draft_and_artifact(add_one, one, n1);
    draft_and_artifact(add_two, two, n2);
    for (int way = 0; way < 7; way++) {
        struct peer *p = start("device", "cpu");
        bool draft = way == 1 || way == 3, whole = way == 2 || way == 3;
        if (draft) assert_int_equal(expect_reply(p, one[0], n1[0], false), 0);
        if (whole) assert_int_equal(expect_reply(p, one[1], n1[1], true), 0);
        if (way == 4) assert_int_equal(expect_reply(p, two[0], n2[0], false), 0);
        if (way == 5) assert_int_equal(expect_reply(p, two[1], n2[1], true), 0);
        if (way == 6) assert_int_not_equal(expect_reply(p, one[1], n1[1] - 9, true), 0);
        load_and_run(p, one[1], n1[1], 1);
        if (way == 3) load_and_run(p, two[1], n2[1], 2); // under the same name
        if (way == 2) assert_int_equal(expect_reply(p, two[0], n2[0], false), 0); // never comes
        assert_int_equal(end_of(p), 0);
    }
    for (int k = 0; k < 2; k++)
        close(one[k]), close(two[k]);
}

static void test_run(void **state) {
    (void)state;
    struct peer *p = device_with("sim", add_one);
    struct run_request q;
    Hlod__Wire__RunReply *r = NULL;
    int fds[2] = {input(), memory(NULL, BYTES + 4096, true)};
    for (int turn = 0; turn < 2; turn++) { // its own memory, then ours
        run_of(&q)->run.output_fd = turn ? 2 : 0;
        status_in(ask(p, HLOD__WIRE__TYPE__TYPE_RUN, &q.run.base, fds, turn + 1), &r);
        check_output(p, r, turn ? fds[1] : -1);
    }
    hlod__wire__run_reply__free_unpacked(r, NULL);
    close(fds[0]);
    close(fds[1]);
    assert_int_equal(end_of(p), 0);
}

// Memory for results that cannot be used is not used; the run is fine.
static void test_output_memory_is_checked(void **state) {
    (void)state;
    struct peer *p = device_with("sim", add_one);
    struct run_request q;
    Hlod__Wire__RunReply *r = NULL;
    int in = input(), bad[] = {memory(NULL, 4096, true), memory(NULL, BYTES + 4096, false)};
    for (int k = 0; k < 3; k++) {
        int fds[2] = {in, bad[k < 2 ? k : 0]};
        run_of(&q)->run.output_fd = k < 2 ? 2 : 77;
        status_in(ask(p, HLOD__WIRE__TYPE__TYPE_RUN, &q.run.base, fds, 2), &r);
        check_output(p, r, -1);
    }
    hlod__wire__run_reply__free_unpacked(r, NULL);
    close(in);
    close(bad[0]);
    close(bad[1]);
    assert_int_equal(end_of(p), 0);
}

static void test_bad_blobs_are_refused(void **state) {
    (void)state;
    struct peer *p = device_with("sim", add_one);
    Hlod__Wire__RunReply *r = NULL;
    struct run_request q;
    int in = input(), loose = memory(NULL, BYTES, false), brief = memory(NULL, BYTES - 1, true);
    int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
    const struct {
        uint32_t fd;
        uint64_t offset, size;
        int give;
        const char *says;
    } cases[] = {{2, 0, BYTES, in, "descriptor 2 of 1"},
                 {UINT32_MAX, 0, BYTES, in, "of 1"},
                 {1, 1, BYTES, in, "a blob"},
                 {1, UINT64_MAX - 3, 8, in, "a blob"},
                 {1, 0, UINT64_MAX, in, "a blob"},
                 {1, 0, BYTES, loose, "not sealed"},
                 {1, 0, BYTES, brief, "a blob"},
                 {1, 0, BYTES, file, "mapping"},
                 {1, 0, BYTES - 4, in, "expected f32[8192]"},
                 {1, 0, 0, in, "expected f32[8192]"},
                 {0, 0, 0, in, "expected f32[8192]"}};
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        run_of(&q)->blob.fd = cases[k].fd;
        q.blob.offset = cases[k].offset;
        q.blob.size = cases[k].size;
        Hlod__Wire__Status *s =
            status_in(ask(p, HLOD__WIRE__TYPE__TYPE_RUN, &q.run.base, &cases[k].give, 1), &r);
        if (s->code == 0 || !strstr(s->message, cases[k].says))
            fail_msg("case %zu: code %d '%s'", k, s->code, s->message);
    }
    run_of(&q)->run.n_inputs = 0;
    assert_int_equal(status_in(ask(p, HLOD__WIRE__TYPE__TYPE_RUN, &q.run.base, NULL, 0), &r)->code,
                     ST_INVALID_ARGUMENT);
    uint8_t other[32] = {7};
    run_of(&q)->run.key.data = other;
    Hlod__Wire__Status *s = status_in(ask(p, HLOD__WIRE__TYPE__TYPE_RUN, &q.run.base, &in, 1), &r);
    assert_int_equal(s->code, ST_NOT_FOUND);
    assert_int_equal(s->reason, HLOD__V1__REASON__REASON_EXECUTABLE_NOT_FOUND);
    run_of(&q)->run.key.len = 31;
    assert_int_not_equal(
        status_in(ask(p, HLOD__WIRE__TYPE__TYPE_RUN, &q.run.base, &in, 1), &r)->code, 0);
    uint32_t outputs[] = {0, 1};
    run_of(&q)->run.outputs = outputs;
    q.run.n_outputs = 2;
    assert_int_equal(status_in(ask(p, HLOD__WIRE__TYPE__TYPE_RUN, &q.run.base, &in, 1), &r)->code,
                     ST_INVALID_ARGUMENT);
    run_of(&q); // after all that, a good one
    status_in(ask(p, HLOD__WIRE__TYPE__TYPE_RUN, &q.run.base, &in, 1), &r);
    check_output(p, r, -1);
    hlod__wire__run_reply__free_unpacked(r, NULL);
    close(in);
    close(loose);
    close(brief);
    close(file);
    assert_int_equal(end_of(p), 0);
}

// More tensors in one descriptor than a frame has descriptors.
static void test_many_inputs_in_one_memory(void **state) {
    (void)state;
    enum { COUNT = 40 };
    struct strbuf b = {0};
    strbuf_puts(&b, HEAD);
    for (int k = 0; k < COUNT; k++)
        strbuf_printf(&b, "  x%d = f32[16] parameter(%d)\n", k, k);
    strbuf_puts(&b, "  s0 = f32[16] add(x0, x1)\n");
    for (int k = 2; k < COUNT; k++)
        strbuf_printf(&b, "  %ss%d = f32[16] add(s%d, x%d)\n", k == COUNT - 1 ? "ROOT " : "", k - 1,
                      k - 2, k);
    strbuf_puts(&b, "}\n");
    struct peer *p = device_with("sim", strbuf_cstr(&b));
    Hlod__Wire__WireTensor t[COUNT], *list[COUNT];
    Hlod__Wire__Blob blobs[COUNT];
    struct run_request q;
    Hlod__Wire__RunReply *r = NULL;
    float v[COUNT * 16];
    int64_t dim = 16;
    for (int k = 0; k < COUNT; k++) {
        hlod__wire__wire_tensor__init(&t[k]);
        hlod__wire__blob__init(&blobs[k]);
        t[k].dtype = (char *)(uintptr_t)"f32";
        t[k].n_dims = 1;
        t[k].dims = &dim;
        t[k].data = &blobs[k];
        blobs[k].fd = 1;
        blobs[k].offset = (uint64_t)k * 64;
        blobs[k].size = 64;
        list[k] = &t[k];
        for (int i = 0; i < 16; i++)
            v[k * 16 + i] = (float)(k + i);
    }
    int fd = memory(v, sizeof v, true);
    run_of(&q)->run.inputs = list;
    q.run.n_inputs = COUNT;
    Hlod__Wire__Status *s = status_in(ask(p, HLOD__WIRE__TYPE__TYPE_RUN, &q.run.base, &fd, 1), &r);
    if (s->code) fail_msg("%s", s->message);
    const ProtobufCBinaryData *out = &r->outputs[0]->data->inline_bytes; // few bytes: inline
    assert_int_equal(out->len, 64);
    assert_int_equal(p->last.n_fds, 0);
    for (int i = 0; i < 16; i++) {
        float got;
        memcpy(&got, out->data + 4 * i, 4);
        assert_true(got == (float)(COUNT * (COUNT - 1) / 2 + COUNT * i));
    }
    hlod__wire__run_reply__free_unpacked(r, NULL);
    strbuf_done(&b);
    close(fd);
    assert_int_equal(end_of(p), 0);
}

static void test_weights_outside_their_blob(void **state) {
    (void)state;
    struct peer *p = device_with("sim", add_one);
    int fd = memory("0123456789abcdef", 16, true);
    const int64_t cases[][2] = {{0, 17}, {16, 1}, {-1, 4}, {4, -1}, {INT64_MAX, 16}};
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        Hlod__Wire__Blob source = HLOD__WIRE__BLOB__INIT;
        Hlod__Wire__Weight w = HLOD__WIRE__WEIGHT__INIT, *list[] = {&w};
        Hlod__Wire__Prepare m = HLOD__WIRE__PREPARE__INIT;
        source.fd = 1;
        source.size = 16;
        w.name = (char *)(uintptr_t)"the weight";
        w.offset = cases[k][0];
        w.size = cases[k][1];
        m.key = (ProtobufCBinaryData){32, key};
        m.weights_digest = (ProtobufCBinaryData){32, weights};
        m.source = &source;
        m.n_weights = 1;
        m.weights = list;
        struct span s = ask(p, HLOD__WIRE__TYPE__TYPE_PREPARE, &m.base, &fd, 1);
        Hlod__Wire__PrepareReply *r = hlod__wire__prepare_reply__unpack(NULL, s.n, s.p);
        assert_int_equal(r->status->code, ST_DATA_LOSS);
        assert_non_null(strstr(r->status->message, "the weight"));
        hlod__wire__prepare_reply__free_unpacked(r, NULL);
    }
    close(fd);
    assert_int_equal(end_of(p), 0);
}

static void test_unload_and_stats(void **state) {
    (void)state;
    struct peer *p = device_with("sim", add_one);
    Hlod__Wire__Stats stats = HLOD__WIRE__STATS__INIT;
    Hlod__Wire__Unload unload = HLOD__WIRE__UNLOAD__INIT;
    unload.key = (ProtobufCBinaryData){32, key};
    for (int turn = 0; turn < 2; turn++) {
        struct span s = ask(p, HLOD__WIRE__TYPE__TYPE_STATS, &stats.base, NULL, 0);
        Hlod__Wire__StatsReply *r = hlod__wire__stats_reply__unpack(NULL, s.n, s.p);
        assert_int_equal(r->resident_executables, turn ? 0 : 1);
        assert_true(r->rss_bytes > 1 << 20);
        assert_int_equal(r->refused, 0);
        hlod__wire__stats_reply__free_unpacked(r, NULL);
        s = ask(p, HLOD__WIRE__TYPE__TYPE_UNLOAD, &unload.base, NULL, 0);
        Hlod__Wire__UnloadReply *u = hlod__wire__unload_reply__unpack(NULL, s.n, s.p);
        assert_int_equal(u->status->code, turn ? ST_NOT_FOUND : 0);
        hlod__wire__unload_reply__free_unpacked(u, NULL);
    }
    assert_int_equal(end_of(p), 0);
}

static void test_cancel(void **state) {
    (void)state;
    struct peer *p = device_with("sim:latency_us=60000000", add_one);
    struct run_request q;
    Hlod__Wire__RunReply *r = NULL;
    Hlod__Wire__Stats empty = HLOD__WIRE__STATS__INIT;
    int in = input();
    run_of(&q);
    send_call(p, HLOD__WIRE__TYPE__TYPE_RUN, &q.run.base, &in, 1);
    wait_for(p, HLOD__WIRE__TYPE__TYPE_RUNNING);
    ok(frame_send_msg(p->sock, HLOD__WIRE__TYPE__TYPE_CANCEL, p->calls, &empty.base, NULL, 0, 0));
    wait_for(p, HLOD__WIRE__TYPE__TYPE_RUN_REPLY);
    assert_int_equal(status_in(p->last.body, &r)->code, ST_CANCELLED);
    hlod__wire__run_reply__free_unpacked(r, NULL);
    close(in);
    assert_int_equal(end_of(p), 0);
}

// The daemon goes away while something runs: the worker does not wait for it.
static void test_daemon_leaves(void **state) {
    (void)state;
    struct peer *p = device_with("sim:latency_us=60000000", add_one);
    struct run_request q;
    int in = input();
    run_of(&q);
    send_call(p, HLOD__WIRE__TYPE__TYPE_RUN, &q.run.base, &in, 1);
    wait_for(p, HLOD__WIRE__TYPE__TYPE_RUNNING);
    close(in);
    assert_int_equal(end_of(p), 0);
}

static void test_lost_device(void **state) {
    (void)state;
    struct peer *p = device_with("sim:lose=run@1", add_one);
    struct run_request q;
    Hlod__Wire__RunReply *r = NULL;
    int in = input();
    run_of(&q);
    Hlod__Wire__Status *s = status_in(ask(p, HLOD__WIRE__TYPE__TYPE_RUN, &q.run.base, &in, 1), &r);
    assert_int_equal(s->code, ST_UNAVAILABLE);
    assert_int_equal(s->reason, HLOD__V1__REASON__REASON_WORKER_LOST);
    frame_done(&p->last);
    ok(frame_recv(p->sock, p->buf, 20000, &p->last));
    assert_int_equal(p->last.type, 0); // it closed by itself
    hlod__wire__run_reply__free_unpacked(r, NULL);
    close(in);
    assert_int_equal(end_of(p), 1);
}

// A daemon that speaks nonsense is not answered: the process ends, and says so by its status.
static void test_nonsense(void **state) {
    (void)state;
    Hlod__Wire__Ingest ingest = HLOD__WIRE__INGEST__INIT;
    for (int k = 0; k < 3; k++) {
        struct peer *p = start("device", "sim");
        if (k == 0) // a call of the other role
            send_call(p, HLOD__WIRE__TYPE__TYPE_INGEST, &ingest.base, NULL, 0);
        else if (k == 1) // no call at all
            send_call(p, 999, &ingest.base, NULL, 0);
        else // a body that does not parse
            ok(frame_send(p->sock, HLOD__WIRE__TYPE__TYPE_RUN, 1,
                          (struct span){(const uint8_t *)"\xff\xff\xff", 3}, NULL, 0, 1000));
        frame_done(&p->last);
        ok(frame_recv(p->sock, p->buf, 20000, &p->last));
        assert_int_equal(p->last.type, 0);
        assert_int_equal(end_of(p), 1);
    }
}

// ---- resident buffers, plans

static void put(struct peer *p, uint64_t id, int fd, int64_t n, int code) {
    Hlod__Wire__Put m = HLOD__WIRE__PUT__INIT;
    Hlod__Wire__WireTensor t = HLOD__WIRE__WIRE_TENSOR__INIT, *list[] = {&t};
    Hlod__Wire__Blob b = HLOD__WIRE__BLOB__INIT;
    t.dtype = (char *)(uintptr_t)"f32";
    t.n_dims = 1;
    t.dims = &n;
    t.data = &b;
    b.fd = 1;
    b.size = BYTES;
    m.ids = &id;
    m.n_ids = m.n_tensors = 1;
    m.tensors = list;
    struct span s = ask(p, HLOD__WIRE__TYPE__TYPE_PUT, &m.base, &fd, 1);
    Hlod__Wire__PutReply *r = hlod__wire__put_reply__unpack(NULL, s.n, s.p);
    assert_int_equal(r->status->code, code);
    hlod__wire__put_reply__free_unpacked(r, NULL);
}

// The buffer holds k + add at k; or asking for it gives `code`.
static void holds(struct peer *p, uint64_t id, float add, int code) {
    static float got[N];
    Hlod__Wire__Get m = HLOD__WIRE__GET__INIT;
    m.ids = &id;
    m.n_ids = 1;
    struct span s = ask(p, HLOD__WIRE__TYPE__TYPE_GET, &m.base, NULL, 0);
    Hlod__Wire__GetReply *r = hlod__wire__get_reply__unpack(NULL, s.n, s.p);
    assert_int_equal(r->status->code, code);
    if (!code) {
        assert_int_equal(r->data[0]->size, BYTES);
        assert_int_equal(pread(p->last.fds[0], got, BYTES, (off_t)r->data[0]->offset), BYTES);
        for (int k = 0; k < N; k++)
            assert_true(got[k] == (float)k + add);
    }
    hlod__wire__get_reply__free_unpacked(r, NULL);
}

static int64_t held(struct peer *p) {
    Hlod__Wire__Stats q = HLOD__WIRE__STATS__INIT;
    struct span s = ask(p, HLOD__WIRE__TYPE__TYPE_STATS, &q.base, NULL, 0);
    Hlod__Wire__StatsReply *r = hlod__wire__stats_reply__unpack(NULL, s.n, s.p);
    int64_t bytes = r->buffer_bytes;
    hlod__wire__stats_reply__free_unpacked(r, NULL);
    return bytes;
}

// Two steps of the program, one after the other, on buffer `from`; the result stays as `keep`.
struct plan_request {
    Hlod__Wire__RunPlan plan;
    Hlod__Wire__PlanInput input, *inputs[1];
    Hlod__Wire__PlanStep step[2], *steps[2];
    Hlod__Wire__PlanArg arg[2], *args[2][1];
    Hlod__Wire__PlanResult result, *results[1];
};
static struct plan_request *plan_of(struct plan_request *q, uint64_t from, bool donate,
                                    uint64_t keep) {
    hlod__wire__run_plan__init(&q->plan);
    hlod__wire__plan_input__init(&q->input);
    hlod__wire__plan_result__init(&q->result);
    q->input.buffer = from;
    q->input.donate = donate;
    q->inputs[0] = &q->input;
    q->plan.inputs = q->inputs;
    q->plan.n_inputs = 1;
    q->plan.steps = q->steps;
    q->plan.n_steps = 2;
    for (int k = 0; k < 2; k++) {
        hlod__wire__plan_step__init(&q->step[k]);
        hlod__wire__plan_arg__init(&q->arg[k]);
        q->arg[k].step = (uint32_t)k;
        q->args[k][0] = &q->arg[k];
        q->step[k].args = q->args[k];
        q->step[k].n_args = 1;
        q->step[k].name = (char *)(uintptr_t)(k ? "second" : "first");
        q->step[k].key = (ProtobufCBinaryData){32, key};
        q->step[k].weights_digest = (ProtobufCBinaryData){32, weights};
        q->steps[k] = &q->step[k];
    }
    q->result.step = 2;
    q->result.keep = keep;
    q->results[0] = &q->result;
    q->plan.results = q->results;
    q->plan.n_results = 1;
    return q;
}
static void run_plan(struct peer *p, const struct plan_request *q, int code, size_t consumed) {
    struct span s = ask(p, HLOD__WIRE__TYPE__TYPE_RUN_PLAN, &q->plan.base, NULL, 0);
    Hlod__Wire__RunPlanReply *r = hlod__wire__run_plan_reply__unpack(NULL, s.n, s.p);
    if (r->status->code != code)
        fail_msg("expected code %d, found %d: %s", code, r->status->code, r->status->message);
    assert_int_equal(r->n_consumed, consumed);
    hlod__wire__run_plan_reply__free_unpacked(r, NULL);
}

static void test_plans(void **state) {
    (void)state;
    struct peer *p = device_with("sim:memory=140K", add_one); // the working set and three buffers
    struct plan_request q;
    int in = input();
    put(p, 7, in, N, 0);
    holds(p, 7, 0, 0);
    assert_int_equal(held(p), BYTES);
    run_plan(p, plan_of(&q, 7, false, 8), 0, 0);
    holds(p, 7, 0, 0);
    holds(p, 8, 2, 0);
    for (uint64_t k = 0; k < 50; k++) // donated each time: one buffer beside the first
        run_plan(p, plan_of(&q, 8 + k, true, 9 + k), 0, 1);
    holds(p, 58, 102, 0);
    holds(p, 57, 0, ST_NOT_FOUND);
    assert_int_equal(held(p), 2 * BYTES);
    uint64_t ids[] = {7, 58, 999};
    Hlod__Wire__Free m = HLOD__WIRE__FREE__INIT;
    m.ids = ids;
    m.n_ids = 3;
    struct span s = ask(p, HLOD__WIRE__TYPE__TYPE_FREE, &m.base, NULL, 0);
    Hlod__Wire__FreeReply *r = hlod__wire__free_reply__unpack(NULL, s.n, s.p);
    assert_int_equal(r->freed_bytes, 2 * BYTES);
    hlod__wire__free_reply__free_unpacked(r, NULL);
    assert_int_equal(held(p), 0);
    close(in);
    assert_int_equal(end_of(p), 0);
}

// What does not fit together costs the call and nothing else.
static void test_plans_refused(void **state) {
    (void)state;
    struct peer *p = device_with("sim", add_one);
    struct plan_request q;
    int in = input();
    put(p, 1, in, N, 0);
    put(p, 2, in, N - 1, ST_INVALID_ARGUMENT);
    put(p, 2, in, -1, ST_INVALID_ARGUMENT);
    run_plan(p, plan_of(&q, 5, true, 6), ST_NOT_FOUND, 0);
    plan_of(&q, 1, true, 6)->arg[1].step = 2; // itself
    run_plan(p, &q, ST_INTERNAL, 0);
    plan_of(&q, 1, true, 6)->arg[1].index = 1; // no such result
    run_plan(p, &q, ST_INTERNAL, 0);
    plan_of(&q, 1, true, 6)->arg[0].index = 77;
    run_plan(p, &q, ST_INTERNAL, 0);
    plan_of(&q, 1, true, 6)->result.step = 3;
    run_plan(p, &q, ST_INTERNAL, 0);
    plan_of(&q, 1, true, 6)->result.index = 1;
    run_plan(p, &q, ST_INTERNAL, 0);
    plan_of(&q, 1, true, 6)->step[1].n_args = 0;
    run_plan(p, &q, ST_INVALID_ARGUMENT, 0);
    plan_of(&q, 1, true, 6)->plan.repeat = 2; // donated twice
    run_plan(p, &q, ST_INTERNAL, 0);
    plan_of(&q, 0, false, 6); // an input that is nothing
    run_plan(p, &q, ST_INTERNAL, 0);
    uint8_t other[32] = {7};
    plan_of(&q, 1, true, 6)->step[1].key.data = other;
    run_plan(p, &q, ST_NOT_FOUND, 0);
    holds(p, 1, 0, 0);
    holds(p, 6, 0, ST_NOT_FOUND);
    run_plan(p, plan_of(&q, 1, true, 6), 0, 1);
    holds(p, 6, 2, 0);
    close(in);
    assert_int_equal(end_of(p), 0);
}

int main(void) {
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_run),
                                              cmocka_unit_test(test_expected),
                                              cmocka_unit_test(test_output_memory_is_checked),
                                              cmocka_unit_test(test_bad_blobs_are_refused),
                                              cmocka_unit_test(test_many_inputs_in_one_memory),
                                              cmocka_unit_test(test_weights_outside_their_blob),
                                              cmocka_unit_test(test_unload_and_stats),
                                              cmocka_unit_test(test_plans),
                                              cmocka_unit_test(test_plans_refused),
                                              cmocka_unit_test(test_cancel),
                                              cmocka_unit_test(test_daemon_leaves),
                                              cmocka_unit_test(test_lost_device),
                                              cmocka_unit_test(test_nonsense)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
