// SPDX-License-Identifier: Apache-2.0
// A loop of a thousand turns with a conditional in a conditional is one RUN: the worker, a process
// of its own as hlod starts it, sends nothing but RUNNING and the reply. Every frame that comes
// from its socket is counted.
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "compiler/ir/text/text.h"
#include "devices/device.h"
#include "devices/worker/worker.h"
#include "proto/frame.h"
#include "proto/wire.pb-c.h"

enum { TURNS = 1000 };

// Each turn: i % 3 == 0 doubles x and takes 7 off when it passed 100, i % 3 == 1 adds i, else x -
// 2; n counts the turns that took something off.
static const char text[] =
    "HloModule loop\n"
    "cut { s = (s32[], s32[]) parameter(0)\n x = s32[] get-tuple-element(s), index=0\n"
    " n = s32[] get-tuple-element(s), index=1\n h = s32[] constant(100)\n o = s32[] constant(1)\n"
    " y = s32[] remainder(x, h)\n m = s32[] add(n, o)\n ROOT t = (s32[], s32[]) tuple(y, m)\n}\n"
    "keep { ROOT s = (s32[], s32[]) parameter(0)\n}\n"
    "twice { s = (s32[], s32[], s32[]) parameter(0)\n x = s32[] get-tuple-element(s), index=0\n"
    " n = s32[] get-tuple-element(s), index=1\n y = s32[] add(x, x)\n h = s32[] constant(100)\n"
    " p = pred[] compare(y, h), direction=GT\n t = (s32[], s32[]) tuple(y, n)\n"
    " ROOT c = (s32[], s32[]) conditional(p, t, t), true_computation=cut, "
    "false_computation=keep\n}\n"
    "plus { s = (s32[], s32[], s32[]) parameter(0)\n x = s32[] get-tuple-element(s), index=0\n"
    " n = s32[] get-tuple-element(s), index=1\n i = s32[] get-tuple-element(s), index=2\n"
    " y = s32[] add(x, i)\n ROOT t = (s32[], s32[]) tuple(y, n)\n}\n"
    "minus { s = (s32[], s32[], s32[]) parameter(0)\n x = s32[] get-tuple-element(s), index=0\n"
    " n = s32[] get-tuple-element(s), index=1\n o = s32[] constant(2)\n"
    " y = s32[] subtract(x, o)\n ROOT t = (s32[], s32[]) tuple(y, n)\n}\n"
    "body { s = (s32[], s32[], s32[], s32[]) parameter(0)\n"
    " i = s32[] get-tuple-element(s), index=0\n x = s32[] get-tuple-element(s), index=1\n"
    " n = s32[] get-tuple-element(s), index=2\n e = s32[] get-tuple-element(s), index=3\n"
    " three = s32[] constant(3)\n k = s32[] remainder(i, three)\n"
    " a = (s32[], s32[], s32[]) tuple(x, n, i)\n"
    " c = (s32[], s32[]) conditional(k, a, a, a), branch_computations={twice, plus, minus}\n"
    " y = s32[] get-tuple-element(c), index=0\n m = s32[] get-tuple-element(c), index=1\n"
    " o = s32[] constant(1)\n j = s32[] add(i, o)\n"
    " ROOT t = (s32[], s32[], s32[], s32[]) tuple(j, y, m, e)\n}\n"
    "more { s = (s32[], s32[], s32[], s32[]) parameter(0)\n"
    " i = s32[] get-tuple-element(s), index=0\n e = s32[] get-tuple-element(s), index=3\n"
    " ROOT p = pred[] compare(i, e), direction=LT\n}\n"
    "ENTRY main { x = s32[] parameter(0)\n e = s32[] parameter(1)\n z = s32[] constant(0)\n"
    " s = (s32[], s32[], s32[], s32[]) tuple(z, x, z, e)\n"
    " ROOT w = (s32[], s32[], s32[], s32[]) while(s), condition=more, body=body\n}\n";

static void by_hand(int32_t x, int32_t turns, int32_t out[4]) {
    int32_t n = 0, i = 0;
    for (; i < turns; i++) {
        if (i % 3 == 0) {
            x += x;
            if (x > 100) x %= 100, n++;
        } else {
            x += i % 3 == 1 ? i : -2;
        }
    }
    memcpy(out, (int32_t[]){i, x, n, turns}, 4 * sizeof *out);
}

static void must(status_t st) {
    if (st) fail_msg("%s", st_message(st));
}

static struct strbuf compiled(void) {
    struct hlo_module *m;
    struct device *d;
    struct executable *e;
    struct strbuf artifact = {0};
    struct compile_options opt = {.disable_passes = "", .disable_rules = "", .verify_each = true};
    must(hlo_parse((struct str){text, sizeof text - 1}, NULL, &m));
    must(dev_open("cpu", &d));
    must(hlo_compile_module(m, &opt, dev_target(d), NULL, &e));
    must(executable_pack(e, &artifact, NULL));
    executable_free(e);
    dev_close(d);
    return artifact;
}

struct talk {
    int sock;
    struct frame_buf *buf;
    struct frame f;
    uint64_t call;
};
static void send(struct talk *t, uint32_t type, const ProtobufCMessage *m) {
    must(frame_send_msg(t->sock, type, ++t->call, m, NULL, 0, 10000));
}
static void receive(struct talk *t, uint32_t type) {
    frame_done(&t->f);
    must(frame_recv(t->sock, t->buf, 60000, &t->f));
    assert_int_equal(t->f.type, type);
}

static void start(struct talk *t, const struct strbuf *artifact, uint8_t *key, uint8_t *weights) {
    Hlod__Wire__Blob blob = HLOD__WIRE__BLOB__INIT;
    Hlod__Wire__Load load = HLOD__WIRE__LOAD__INIT;
    Hlod__Wire__Prepare prepare = HLOD__WIRE__PREPARE__INIT;
    Hlod__Wire__Blob none = HLOD__WIRE__BLOB__INIT;
    blob.inline_bytes = (ProtobufCBinaryData){artifact->n, (uint8_t *)artifact->p};
    blob.size = artifact->n;
    load.key = prepare.key = (ProtobufCBinaryData){32, key};
    load.artifact = &blob;
    prepare.weights_digest = (ProtobufCBinaryData){32, weights};
    prepare.source = prepare.sidecar = &none;
    receive(t, HLOD__WIRE__TYPE__TYPE_HELLO);
    send(t, HLOD__WIRE__TYPE__TYPE_LOAD, &load.base);
    receive(t, HLOD__WIRE__TYPE__TYPE_LOAD_REPLY);
    send(t, HLOD__WIRE__TYPE__TYPE_PREPARE, &prepare.base);
    receive(t, HLOD__WIRE__TYPE__TYPE_PREPARE_REPLY);
}

static void input(Hlod__Wire__WireTensor *w, Hlod__Wire__Blob *b, int32_t *v) {
    hlod__wire__wire_tensor__init(w);
    hlod__wire__blob__init(b);
    b->inline_bytes = (ProtobufCBinaryData){sizeof *v, (uint8_t *)v};
    b->size = sizeof *v;
    w->dtype = (char *)(uintptr_t)"s32";
    w->data = b;
}

// Frames between the RUN and its reply, and the results.
static int run(struct talk *t, uint8_t *key, uint8_t *weights, int32_t turns, bool quiet,
               int32_t got[4]) {
    Hlod__Wire__Run r = HLOD__WIRE__RUN__INIT;
    Hlod__Wire__WireTensor in[2], *list[2] = {&in[0], &in[1]};
    Hlod__Wire__Blob blob[2];
    int32_t x = 3;
    int between = 0;
    input(&in[0], &blob[0], &x);
    input(&in[1], &blob[1], &turns);
    r.key = (ProtobufCBinaryData){32, key};
    r.weights_digest = (ProtobufCBinaryData){32, weights};
    r.n_inputs = 2;
    r.inputs = list;
    r.quiet = quiet;
    send(t, HLOD__WIRE__TYPE__TYPE_RUN, &r.base);
    if (!quiet) receive(t, HLOD__WIRE__TYPE__TYPE_RUNNING);
    for (;; between++) {
        if (!quiet || between) frame_done(&t->f);
        must(frame_recv(t->sock, t->buf, 60000, &t->f));
        if (t->f.type == HLOD__WIRE__TYPE__TYPE_RUN_REPLY) break;
        assert_int_not_equal(t->f.type, 0);
    }
    Hlod__Wire__RunReply *reply = hlod__wire__run_reply__unpack(NULL, t->f.body.n, t->f.body.p);
    assert_non_null(reply);
    if (reply->status && reply->status->code) fail_msg("%s", reply->status->message);
    assert_int_equal(reply->n_outputs, 4);
    for (int k = 0; k < 4; k++) {
        assert_int_equal(reply->outputs[k]->data->inline_bytes.len, 4);
        memcpy(&got[k], reply->outputs[k]->data->inline_bytes.data, 4);
    }
    hlod__wire__run_reply__free_unpacked(reply, NULL);
    return between;
}

static void test_one_run_is_one_frame_each_way(void **state) {
    (void)state;
    int fds[2], page_fd, how;
    uint8_t *page;
    void *base;
    size_t bytes;
    uint8_t key[32] = {1}, weights[32] = {2};
    struct strbuf artifact = compiled();
    assert_true(artifact.n < FRAME_INLINE_BYTES);
    must(frame_pair(fds));
    must(frame_memfd("state", WORKER_STATE_BYTES, &page_fd));
    must(frame_map(page_fd, 0, WORKER_STATE_BYTES, true, &page, &base, &bytes));
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        struct worker_options o = {"device", "cpu", "cpu:0", fds[1], page_fd, 0, 0, false};
        close(fds[0]);
        status_t st = worker_serve(&o);
        _exit(st ? 1 : 0);
    }
    close(fds[1]);
    close(page_fd);
    struct talk t = {.sock = fds[0], .buf = frame_buf_new()};
    start(&t, &artifact, key, weights);
    for (int32_t turns = 0; turns <= TURNS; turns += TURNS / 4) {
        int32_t want[4], got[4];
        by_hand(3, turns, want);
        bool quiet = turns == TURNS / 2; // then the page alone says that it has begun
        assert_int_equal(run(&t, key, weights, turns, quiet, got), 0);
        assert_memory_equal(got, want, sizeof got);
        uint64_t begun;
        memcpy(&begun, page, sizeof begun);
        assert_int_equal(begun, t.call);
        if (turns) assert_true(got[2] > 0); // the inner conditional took both ways
    }
    frame_done(&t.f);
    frame_unmap(base, bytes);
    close(fds[0]);
    assert_int_equal(waitpid(pid, &how, 0), pid);
    frame_buf_free(t.buf);
    strbuf_done(&artifact);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_run_is_one_frame_each_way)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
