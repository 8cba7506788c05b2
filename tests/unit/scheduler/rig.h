// SPDX-License-Identifier: Apache-2.0
// rig: a scheduler on a fake pool (fake_pool.h), with a store and a journal in a folder of its own,
// and one model in the store: y f32[N] of x f32[N], without weights. A job that nobody answers
// waits: a test turns the loop until something is so (UNTIL), and answers calls by `serve`.
#pragma once
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "base/log.h"
#include "base/store/store.h"
#include "scheduler/job/job_inside.h"
#include "scheduler/loop.h"
#include "scheduler/records/journal.h"
#include "tests/unit/scheduler/fake_pool.h"
#include "tests/unit/scheduler/folder.h"

static struct rig {
    char dir[40];
    struct loop *loop;
    struct store *store;
    struct journal *journal;
    struct sched *s;
    struct digest source; // of the model
    struct worker *compiler, *device;
} rig;
// A condition that never comes ends the test by SIGALRM (rig_main).
#define UNTIL(condition)                                                                           \
    while (!(condition))                                                                           \
    loop_turn(rig.loop)

static inline void rig_mark(void *arg) {
    *(bool *)arg = true;
}
// Until nothing is left that happens by itself, but timers.
static inline void settle(void) {
    for (int quiet = 0; quiet < 4; quiet++) {
        bool here = false;
        loop_post(rig.loop, rig_mark, &here);
        UNTIL(here);
        if (loop_works(rig.loop)) quiet = 0;
    }
}

// One compiler and one device, unless the test has added others before.
static inline void rig_open(const struct sched_config *given) {
    struct sched_config cfg = *given;
    if (!cfg.tenants) cfg.tenants = "";
    hlod__wire__limits__init(&cfg.limits);
    assert_true(log_set("error"));
    static const char model[] = "the model's bytes";
    snprintf(rig.dir, sizeof rig.dir, "/tmp/sched-test-XXXXXX");
    assert_non_null(mkdtemp(rig.dir));
    if (!fake.n) {
        rig.compiler = fake_add(ROLE_COMPILE, "cpu", "");
        rig.device = fake_add(ROLE_DEVICE, "cpu", "cpu:0");
    }
    assert_null(loop_new(&rig.loop));
    assert_null(store_open(rig.dir, 0, &rig.store));
    assert_null(journal_open(rig.dir, &rig.journal));
    assert_null(sched_new(rig.loop, rig.store, rig.journal, &cfg, &rig.s));
    struct store_writer *w;
    assert_null(store_write_begin(rig.store, STORE_BLOB, &w));
    assert_null(store_write(w, model, sizeof model));
    assert_null(store_write_end(w, &rig.source, NULL));
}
static inline void rig_close(void) {
    sched_stop(rig.s);
    settle();
    sched_free(rig.s);
    loop_free(rig.loop);
    journal_close(rig.journal);
    store_close(rig.store);
    assert_int_equal(folder_remove(rig.dir), 0);
}

// ---- jobs

struct request { // a job as its owner sees it
    struct job *j;
    struct job_input in;
    int64_t dims[1];
    float x[8];
    int done; // how often on_done came
    status_t st;
    char events[400]; // their names, each once in a row, with blanks between
};

static inline void request_event(void *ctx, Hlod__V1__Event *e) {
    struct request *q = ctx;
    const char *name =
        protobuf_c_message_descriptor_get_field(&hlod__v1__event__descriptor, e->kind_case)->name;
    size_t n = strlen(q->events), own = strlen(name);
    if (n >= own && !strcmp(q->events + n - own, name)) return;
    snprintf(q->events + n, sizeof q->events - n, "%s%s", n ? " " : "", name);
}
static inline void request_done(void *ctx, struct job *j, status_t st) {
    struct request *q = ctx;
    assert_ptr_equal(q->j, j);
    q->done++;
    q->st = st;
}
// A run of so many rows: x is 0, 1, 2, ... and `first`.
static inline struct job_spec request_spec(struct request *q, int64_t rows, float first) {
    *q = (struct request){.dims = {rows}};
    q->in = (struct job_input){.name = "x",
                               .dtype = numbers_dtype(str_of("f32")),
                               .rank = 1,
                               .dims = q->dims,
                               .size = rows * 4,
                               .elements = rows};
    for (int i = 0; i < 8; i++)
        q->x[i] = first + (float)i;
    return (struct job_spec){.kind = JOB_RUN,
                             .model = rig.source,
                             .inputs = &q->in,
                             .n_inputs = 1,
                             .payload_fd = -1,
                             .payload_bytes = {(const uint8_t *)q->x, sizeof q->x},
                             .on_event = request_event,
                             .on_done = request_done,
                             .ctx = q};
}
static inline void request_start(struct request *q, const struct job_spec *spec) {
    q->j = job_start(rig.s, spec);
}
static inline void request_free(struct request *q) {
    job_free(q->j);
    st_drop(q->st);
    q->j = NULL;
    q->st = ST_OK;
}
// It has ended, with this code and reason.
static inline void ended(const struct request *q, enum status_code code, int reason) {
    assert_int_equal(q->done, 1);
    if (st_code(q->st) != code || st_get_reason(q->st) != reason)
        fail_msg("%s (reason %d): %s", st_code_name(st_code(q->st)), st_get_reason(q->st),
                 st_message(q->st));
}

// ---- answers

static Hlod__Wire__Status answer_ok = HLOD__WIRE__STATUS__INIT;

// x -> y, of so many rows; -1: of any number.
static inline Hlod__V1__Signature *answer_signature(int64_t rows) {
    static Hlod__V1__Dim dim;
    static Hlod__V1__Dim *dims[] = {&dim};
    static Hlod__V1__TensorSpec x, y, *xs[] = {&x}, *ys[] = {&y};
    static Hlod__V1__Signature sig;
    hlod__v1__dim__init(&dim);
    hlod__v1__tensor_spec__init(&x);
    hlod__v1__signature__init(&sig);
    dim.size = rows;
    if (rows < 0) dim.symbol = (char *)"N";
    x.dtype = (char *)"f32";
    x.dims = dims;
    x.n_dims = 1;
    y = x;
    x.name = (char *)"x";
    y.name = (char *)"y";
    sig.inputs = xs;
    sig.outputs = ys;
    sig.n_inputs = sig.n_outputs = 1;
    return &sig;
}
static inline Hlod__Wire__Blob answer_blob(const void *p, size_t n) {
    Hlod__Wire__Blob b = HLOD__WIRE__BLOB__INIT;
    b.inline_bytes = (ProtobufCBinaryData){n, (uint8_t *)(uintptr_t)p};
    b.size = n;
    return b;
}
static inline void answer_ingest(struct fake_call *c) {
    static const char text[] = "the program";
    struct digest program = sha256_of(text, sizeof text), weights = sha256_of("", 0);
    Hlod__Wire__Blob b = answer_blob(text, sizeof text);
    Hlod__Wire__IngestReply r = HLOD__WIRE__INGEST_REPLY__INIT;
    r.status = &answer_ok;
    r.format = (char *)"fake";
    r.program_digest = (ProtobufCBinaryData){32, program.b};
    r.weights_digest = (ProtobufCBinaryData){32, weights.b};
    r.program = &b;
    r.signature = answer_signature(-1);
    fake_reply(c, &r.base);
}
static int64_t answer_bytes = 1000; // what a compile says of an executable's memory
static inline void answer_compile(struct fake_call *c) {
    Hlod__Wire__Compile *q = hlod__wire__compile__unpack(NULL, c->body.n, c->body.p);
    Hlod__V1__PassStat pass = HLOD__V1__PASS_STAT__INIT;
    Hlod__V1__ExecutableInfo x = HLOD__V1__EXECUTABLE_INFO__INIT;
    Hlod__Wire__Blob b = answer_blob("code", 4);
    Hlod__Wire__CompileReply r = HLOD__WIRE__COMPILE_REPLY__INIT;
    assert_non_null(q);
    assert_int_equal(q->n_bindings, 1);
    r.status = &answer_ok;
    r.artifact = &b;
    r.info = &x;
    x.signature = answer_signature(q->bindings[0]->size);
    x.peak_bytes = x.weights_bytes = x.prepare_bytes = answer_bytes;
    pass.name = (char *)"fuse";
    fake_event(c, HLOD__WIRE__TYPE__TYPE_PASS, &pass.base);
    hlod__wire__compile__free_unpacked(q, NULL);
    fake_reply(c, &r.base);
}
// y = x + 1, whether x came as one piece or in parts; rows behind the parts are zeros.
static inline void answer_run(struct fake_call *c) {
    float y[16] = {0};
    size_t at = 0;
    double ms = 1;
    Hlod__Wire__Run *q = hlod__wire__run__unpack(NULL, c->body.n, c->body.p);
    assert_non_null(q);
    Hlod__Wire__WireTensor *in = q->inputs[0], out = *in, *outs[] = {&out};
    for (size_t i = 0; i < (in->n_parts ? in->n_parts : 1); i++) {
        const Hlod__Wire__Blob *part = in->n_parts ? in->parts[i] : in->data;
        assert_int_equal(part->size, part->inline_bytes.len);
        memcpy((char *)y + at, part->inline_bytes.data, part->size);
        at += part->size;
    }
    for (int64_t i = 0; i < in->dims[0]; i++)
        y[i] += 1;
    Hlod__Wire__Blob b = answer_blob(y, (size_t)in->dims[0] * 4);
    Hlod__Wire__RunReply r = HLOD__WIRE__RUN_REPLY__INIT;
    out.data = &b;
    out.n_parts = 0;
    r.status = &answer_ok;
    r.outputs = outs;
    r.n_outputs = 1;
    r.run_ms = &ms;
    r.n_run_ms = 1;
    Hlod__Wire__Stats empty = HLOD__WIRE__STATS__INIT; // RUNNING has an empty body
    fake_event(c, HLOD__WIRE__TYPE__TYPE_RUNNING, &empty.base);
    fake_reply(c, &r.base);
    hlod__wire__run__free_unpacked(q, NULL);
}
static inline void answer(struct fake_call *c) {
    Hlod__Wire__LoadReply load = HLOD__WIRE__LOAD_REPLY__INIT;
    Hlod__Wire__PrepareReply prepare = HLOD__WIRE__PREPARE_REPLY__INIT;
    load.status = prepare.status = &answer_ok;
    if (c->type == HLOD__WIRE__TYPE__TYPE_INGEST)
        answer_ingest(c);
    else if (c->type == HLOD__WIRE__TYPE__TYPE_COMPILE)
        answer_compile(c);
    else if (c->type == HLOD__WIRE__TYPE__TYPE_RUN)
        answer_run(c);
    else
        fake_reply(c, c->type == HLOD__WIRE__TYPE__TYPE_LOAD ? &load.base : &prepare.base);
}
// Waits for a call of that type, and answers it.
static inline void serve(uint32_t type) {
    UNTIL(fake_find(type));
    answer(fake_find(type));
}
// The same, with an error.
static inline void serve_error(uint32_t type, enum status_code code, int reason) {
    Hlod__Wire__Status s = HLOD__WIRE__STATUS__INIT;
    Hlod__Wire__RunReply r = HLOD__WIRE__RUN_REPLY__INIT; // each reply's status is its field 1
    UNTIL(fake_find(type));
    s.code = code;
    s.reason = reason;
    s.message = (char *)"the worker's words";
    r.status = &s;
    fake_reply(fake_find(type), &r.base);
}
// Answers whatever is asked, until the request has ended.
static inline void serve_all(struct request *q) {
    while (!q->done) {
        if (fake.calls.n)
            answer(fake.calls.v[0]);
        else
            loop_turn(rig.loop);
    }
}

#define rig_main(tests) (alarm(20), cmocka_run_group_tests(tests, NULL, NULL))
