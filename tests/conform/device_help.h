// SPDX-License-Identifier: Apache-2.0
// device_help: what the files of the device contract's test share: opening, compiling, the
// programs.
#pragma once
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "compiler/ir/text/text.h"
#include "devices/device.h"
extern const char *device_kind; // under test

static inline void ok_(status_t st, const char *file, int line) {
    if (!st) return;
    fprintf(stderr, "%s: %s\n", st_code_name(st_code(st)), st_message(st));
    st_drop(st);
    _fail(file, line);
}
#define ok(call) ok_((call), __FILE__, __LINE__)

static inline void expect(status_t st, enum status_code code, const char *part) {
    if (st_code(st) != code || !strstr(st_message(st), part))
        fail_msg("expected %s with '%s', found %s '%s'", st_code_name(code), part,
                 st_code_name(st_code(st)), st_message(st));
    st_drop(st);
}

// A page has joined: its socket comes from whoever listens at HLOD_WEB_TABS (tests/web/
// worker_farm.py).
static inline int page_socket(void) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    char byte, room[CMSG_SPACE(sizeof(int))];
    struct iovec v = {&byte, 1};
    struct msghdr m = {
        .msg_iov = &v, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    int s = socket(AF_UNIX, SOCK_STREAM, 0), fd = -1;
    const char *path = getenv("HLOD_WEB_TABS");
    snprintf(at.sun_path, sizeof at.sun_path, "%s", path ? path : "");
    assert_int_equal(connect(s, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(recvmsg(s, &m, 0), 1);
    assert_non_null(CMSG_FIRSTHDR(&m));
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
    close(s);
    return fd;
}
static inline struct device *open_one(void) {
    struct device *d = NULL;
    char spec[64];
    snprintf(spec, sizeof spec, "%s", device_kind);
    if (strcmp(device_kind, "web") == 0) snprintf(spec, sizeof spec, "web:fd=%d", page_socket());
    ok(dev_open(spec, &d));
    return d;
}

// The way of a real executable: compiled, packed, unpacked.
static inline struct executable *compile(struct device *d, const char *text) {
    struct compile_options opt = {.disable_passes = "", .disable_rules = "", .verify_each = true};
    struct hlo_module *m = NULL;
    struct executable *e = NULL, *again = NULL;
    struct strbuf bytes = {0};
    ok(hlo_parse(str_of(text), NULL, &m));
    ok(hlo_compile_module(m, &opt, dev_target(d), NULL, &e));
    ok(executable_pack(e, &bytes, NULL));
    executable_free(e);
    ok(executable_unpack((struct span){(const uint8_t *)strbuf_cstr(&bytes), bytes.n}, &again));
    strbuf_done(&bytes);
    return again;
}
static inline struct dev_exe *load(struct device *d, const char *text) {
    struct dev_exe *x = NULL;
    ok(dev_load(d, compile(d, text), NULL, &x));
    return x;
}
static inline struct dev_weights *prepare(struct dev_exe *x) {
    struct dev_weights *w = NULL;
    ok(dev_prepare(x, NULL, 0, NULL, &w));
    return w;
}
static inline status_t run2(struct dev_exe *x, struct dev_weights *w, const void *in0,
                            const void *in1, void *out0, void *out1) {
    const void *in[] = {in0, in1};
    void *out[] = {out0, out1};
    return dev_run(x, w, &(struct dev_run){.in = in, .out = out});
}

#define TWICE "HloModule m\nENTRY e { x = f32[4] parameter(0) ROOT r = f32[4] add(x, x) }\n"
#define SCALE                                                                                      \
    "HloModule m\nENTRY e { x = f32[3] parameter(0) w = f32[3] parameter(1), "                     \
    "frontend_attributes={hlod_param=\"weight:0\"}\nROOT r = f32[3] multiply(x, w) }\n"
// Counts to 2^30: no less than a part of a second on any device here.
enum { FOREVER_END = 1073741824 };
#define FOREVER                                                                                    \
    "HloModule m\ncond { c = s32[] parameter(0) n = s32[] constant(1073741824) ROOT l = pred[] "   \
    "compare(c, n), direction=LT }\nbody { b = s32[] parameter(0) one = s32[] constant(1) ROOT s " \
    "= s32[] add(b, one) }\nENTRY e { x = s32[] parameter(0) ROOT w = s32[] while(x), "            \
    "condition=cond, body=body }\n"

// How many turns of a loop last so many seconds here: run(arg, n) does n. Each number of turns is
// measured three times and the least counts: a stall of this machine in one of them would make
// turns seem dear, and what was asked to last would be over at once.
static inline int64_t turns_lasting(double seconds, int64_t most,
                                    void (*run)(void *arg, int64_t turns), void *arg) {
    int64_t turns = 1000, ns = 0;
    for (;; turns *= 4) {
        ns = INT64_MAX;
        for (int k = 0; k < 3; k++) {
            int64_t start = clock_ns();
            run(arg, turns);
            if (clock_ns() - start < ns) ns = clock_ns() - start;
        }
        if (ns > 50000000 || turns > most / 4) break;
    }
    double n = (double)turns * seconds * 1e9 / (double)(ns + 1);
    return n < (double)most ? (int64_t)n : most;
}

// device_buffers.c
void test_buffers(void **state);
void test_kept_results(void **state);
void test_donation(void **state);
void test_failed_run_donates_nothing(void **state);
void test_sim_buffers_are_counted(void **state);

// device_pjrt.c
void test_pjrt_given_up(void **state);
void test_pjrt_never_ends(void **state);
void test_pjrt_donation(void **state);
void test_pjrt_no_alias(void **state);
void test_pjrt_must_alias(void **state);
void test_pjrt_given_and_cancelled(void **state);
void test_pjrt_many_transfers(void **state);
