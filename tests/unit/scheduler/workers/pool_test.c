// SPDX-License-Identifier: Apache-2.0
// The pool's processes: how they come up, what their deaths mean for their calls, for the next life
// and for whoever is blamed, what is killed, bounded, drained and relieved. The workers are this
// program again (worker_main): a device's options, and what is sent, say how one behaves.
#include "scheduler/workers/pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "scheduler/loop.h"
#include "scheduler/workers/plugins.h"
#include "scheduler/workers/pool_inside.h"

enum { // Run.repeat
    ANSWER,
    FAULT,        // ends by SIGSEGV
    KILLED,       // ends by SIGKILL
    AFTERWARDS,   // answers, and ends by SIGSEGV then
    OBEY,         // waits for CANCEL
    HANG,         // and does not mind CANCEL
    OTHER_REPLY,  // answers with another type
    OTHER_CALL,   // answers a call that was never made
    BEGIN_AND_DIE // says on its page that it has begun, and ends by SIGKILL
};
static const int64_t second = 1000000000;

// ---- the worker

static void die(int sig) {
    signal(sig, SIG_DFL); // no finding of a sanitizer
    raise(sig);
}
static void tell(uint32_t type, uint64_t call, const ProtobufCMessage *m) {
    if (frame_send_msg(3, type, call, m, NULL, 0, -1)) _exit(0);
}
static void reply(uint32_t type, uint64_t call, int code) {
    Hlod__Wire__Status s = HLOD__WIRE__STATUS__INIT;
    Hlod__Wire__RunReply r = HLOD__WIRE__RUN_REPLY__INIT; // each reply's status is its field 1
    s.code = code;
    r.status = &s;
    tell(type, call, &r.base);
}
static void run(const struct frame *f, _Atomic uint64_t *page) {
    Hlod__Wire__Run *q = hlod__wire__run__unpack(NULL, f->body.n, f->body.p);
    uint32_t how = q ? q->repeat : ANSWER, answer = HLOD__WIRE__TYPE__TYPE_RUN_REPLY;
    if (how != KILLED) *page = f->call;
    if (how == FAULT) die(SIGSEGV);
    if (how == KILLED || how == BEGIN_AND_DIE) die(SIGKILL);
    if (how == OTHER_REPLY) answer = HLOD__WIRE__TYPE__TYPE_LOAD_REPLY;
    if (how != OBEY && how != HANG) reply(answer, f->call + (how == OTHER_CALL), 0);
    if (how == AFTERWARDS) die(SIGSEGV);
    if (how != HANG) return;
    for (;;)
        pause();
}
static void hello(const char *role, const char *spec, const char *memory) {
    Hlod__Wire__Hello h = HLOD__WIRE__HELLO__INIT;
    h.protocol = FRAME_PROTOCOL;
    h.role = (char *)(strstr(spec, "other_role") ? "broker" : role);
    h.device_kind = (char *)"sim";
    h.device_name = (char *)"sim:0";
    h.description = (char *)memory;
    h.single_use = strstr(spec, "single_use") || !strcmp(spec, "single");
    if (strstr(spec, "no_device")) h.error = (char *)"no such hardware";
    tell(HLOD__WIRE__TYPE__TYPE_HELLO, 0, &h.base);
}
static int worker_main(int argc, char **argv) {
    const char *role = argv[1] + 7, *spec = argv[2] + 9, *memory = "";
    uint8_t *page;
    void *base;
    size_t bytes;
    struct frame_buf *buf = frame_buf_new();
    for (int i = 3; i < argc; i++)
        if (!strncmp(argv[i], "--memory=", 9)) memory = argv[i] + 9;
    if (frame_map(4, 0, WORKER_STATE_BYTES, true, &page, &base, &bytes)) _exit(2);
    if (strstr(spec, "at_start")) _exit(3);
    if (strstr(spec, "silent")) pause();
    hello(role, spec, memory);
    if (strstr(spec, "idle")) die(SIGSEGV);
    for (struct frame f;;) {
        if (frame_recv(3, buf, -1, &f) || !f.type) _exit(0);
        if (f.type == HLOD__WIRE__TYPE__TYPE_RUN)
            run(&f, (_Atomic uint64_t *)(void *)page);
        else if (f.type == HLOD__WIRE__TYPE__TYPE_CANCEL)
            reply(HLOD__WIRE__TYPE__TYPE_RUN_REPLY, f.call, ST_CANCELLED);
        else if (f.type == HLOD__WIRE__TYPE__TYPE_INGEST)
            _exit(66);                                  // out of memory
        else if (f.type != HLOD__WIRE__TYPE__TYPE_LOAD) // that one is never answered
            reply(f.type + 40, f.call, 0);
        frame_done(&f);
    }
}

// ---- the test's side

static struct loop *l;
static struct pool *pool;
static int changes, faults;
static int64_t changed_ns;
static struct charge blamed;
static char blamed_why[100];
#define UNTIL(condition)                                                                           \
    while (!(condition))                                                                           \
    loop_turn(l)

static void on_change(void *ctx) {
    (void)ctx;
    changes++;
    changed_ns = clock_ns();
}
static void on_fault(void *ctx, const struct charge *of, const char *why) {
    (void)ctx;
    faults++;
    blamed = *of;
    snprintf(blamed_why, sizeof blamed_why, "%s", why);
}
struct answer { // to a call
    int n;      // how often
    struct worker *w;
    uint64_t id;
    enum status_code code; // of the reply, or how it was lost
    bool lost, began;      // began: the worker's page says so
    char why[300];
};
static void on_answer(void *ctx, struct frame *f, status_t lost) {
    struct answer *a = ctx;
    a->n++;
    a->lost = !f;
    a->began = worker_began(a->w, a->id);
    a->code = st_code(lost);
    snprintf(a->why, sizeof a->why, "%s", st_message(lost));
    if (lost) assert_int_equal(st_get_reason(lost), HLOD__V1__REASON__REASON_WORKER_LOST);
    st_drop(lost);
    if (!f) return;
    Hlod__Wire__RunReply *r = hlod__wire__run_reply__unpack(NULL, f->body.n, f->body.p);
    a->code = (enum status_code)r->status->code;
    hlod__wire__run_reply__free_unpacked(r, NULL);
}
static void call_type(struct worker *w, struct answer *a, uint32_t type) {
    Hlod__Wire__Stats empty = HLOD__WIRE__STATS__INIT;
    *a = (struct answer){.w = w};
    a->id = pool_call(w, type, &empty.base, NULL, 0, on_answer, a);
}
static void call(struct worker *w, struct answer *a, uint32_t how) {
    static const struct charge of = {.step = "run", .tenant = "someone"};
    Hlod__Wire__Run q = HLOD__WIRE__RUN__INIT;
    q.repeat = how;
    *a = (struct answer){.w = w};
    a->id = pool_call(w, HLOD__WIRE__TYPE__TYPE_RUN, &q.base, NULL, 0, on_answer, a);
    worker_charge(w, a->id, &of);
}
static bool ready(const struct worker *w) {
    return pool_place(w).ready;
}
static void pass(int64_t ms) { // so long the loop turns
    int64_t end = clock_ns() + ms * 1000000;
    struct loop_timer *t = loop_timer_new(l, on_change, NULL);
    loop_timer_start(t, ms);
    UNTIL(clock_ns() >= end);
    loop_timer_free(t);
}
static void open_pool(const char *device, const struct pool_config *more) {
    static const char *devices[1];
    struct pool_config c = *more;
    devices[0] = device;
    c.worker_path = "/proc/self/exe";
    c.devices = devices;
    c.n_devices = 1;
    c.n_compile = 1;
    c.device_calls = 2;
    c.on_change = on_change;
    c.on_fault = on_fault;
    changes = faults = 0;
    assert_true(log_set("error"));
    assert_null(loop_new(&l));
    assert_null(pool_new(l, &c, &pool));
}
// The device's worker.
static struct worker *open_device(const char *device) {
    open_pool(device, &(struct pool_config){.kill_grace_ms = 10});
    return pool_worker(pool, 0);
}
static int close_pool(void **state) {
    (void)state;
    pool_stop(pool);
    pass(0);
    pool_free(pool);
    loop_free(l);
    return 0;
}

// ---- up

static void calls_and_replies(void **state) {
    (void)state;
    struct answer a, b;
    struct worker *w = open_device("sim");
    assert_int_equal(pool_size(pool), 2);
    assert_false(ready(w));
    UNTIL(ready(w) && ready(pool_worker(pool, 1)));
    assert_true(changes > 0);
    assert_int_equal(pool_place(w).role, ROLE_DEVICE);
    assert_string_equal(pool_place(w).name, "sim:0");
    assert_int_equal(pool_place(pool_worker(pool, 1)).role, ROLE_COMPILE);
    call(w, &a, OBEY); // both are under way at once, and each has its own answer
    call(w, &b, ANSWER);
    UNTIL(b.n);
    assert_int_equal(a.n, 0);
    assert_true(worker_began(w, b.id));
    pool_cancel(w, a.id);
    assert_false(ready(w)); // it may be the end of the process
    UNTIL(a.n);
    assert_int_equal(a.code, ST_CANCELLED);
    assert_true(ready(w));
    assert_int_equal(worker_epoch(w), 1);
    assert_int_equal(b.n, 1);
}
static void places_and_tensors(void **state) {
    (void)state;
    open_pool("sim", &(struct pool_config){.flight_bytes = 100});
    struct worker *w = pool_worker(pool, 0);
    UNTIL(ready(w));
    int before = changes;
    worker_take(w, true);
    worker_expect(w, 7);
    assert_int_equal(pool_place(w).calls, 1);
    assert_int_equal(pool_place(w).expected_ns, 7);
    assert_true(pool_place(w).held); // nobody knows for how long
    worker_release(w, true);
    assert_int_equal(pool_place(w).calls, 0);
    assert_int_equal(changes, before + 1);
    worker_flight(w, 100);
    assert_false(ready(w)); // tensors in flight are bounded
    worker_flight(w, -1);
    assert_true(ready(w));
    worker_flight(w, -99);
}

// ---- deaths at the start, and idle

// The next life begins at once after the first death, after a while from then on (the test does not
// wait for it); in the end not at all.
static struct worker *waits_after_two(const char *device) {
    struct worker *w = open_device(device);
    UNTIL(w->restarts == 2);
    int64_t lost_ns = changed_ns;
    pass(20);
    assert_true(worker_epoch(w) == 2 || clock_ns() - lost_ns > 90 * INT64_C(1000000));
    if (w->state == W_DOWN) loop_timer_start(w->timer, 0);
    return w;
}
static void fails_at_start(const char *device, const char *why) {
    struct worker *w = waits_after_two(device);
    while (w->restarts < MAX_STARTS_WITHOUT_HELLO) {
        assert_false(pool_place(w).hopeless);
        if (w->state == W_DOWN) loop_timer_start(w->timer, 0); // without the wait
        loop_turn(l);
    }
    assert_true(pool_place(w).hopeless);
    Hlod__V1__Device d;
    worker_describe(w, &d);
    assert_non_null(strstr(d.why, why));
    assert_int_equal(faults, 0); // no work is to blame
}
static void dies_at_start(void **state) {
    (void)state;
    fails_at_start("sim:at_start", "status 3");
}
static void of_another_role(void **state) {
    (void)state;
    fails_at_start("sim:other_role", "");
}
static void has_no_device(void **state) {
    (void)state;
    struct worker *w = open_device("sim:no_device");
    UNTIL(w->restarts);
    assert_string_equal(pool_why(pool, ROLE_DEVICE, "sim"), "no such hardware");
    assert_string_equal(pool_why(pool, ROLE_COMPILE, ""), "");
}
static void does_not_say_hello(void **state) {
    (void)state;
    open_pool("sim:silent", &(struct pool_config){.hello_ms = 10});
    struct worker *w = pool_worker(pool, 0);
    UNTIL(w->restarts);
    assert_string_equal(w->lost, "no handshake in time");
}
static void dies_idle(void **state) {
    (void)state;
    struct worker *w = waits_after_two("sim:idle");
    UNTIL(w->restarts == 3);
    assert_int_equal(faults, 0);
    assert_true(pool_place(w).drained); // but it has said hello: not hopeless
    assert_false(pool_place(w).hopeless);
}
static void gives_no_sign(void **state) {
    (void)state;
    struct answer a;
    struct worker *w = open_device("sim");
    UNTIL(ready(w));
    call_type(w, &a, HLOD__WIRE__TYPE__TYPE_LOAD);
    w->last_sign_ns -= 11 * second;
    loop_timer_start(w->timer, 0);
    UNTIL(a.n);
    assert_true(a.lost);
    assert_non_null(strstr(a.why, "no sign of life"));
}

// ---- deaths at work

// Each call that it had is lost, the next life starts at once; who dies again and again takes no
// work while others may, until one lives for long.
static void dies_at_work(void **state) {
    (void)state;
    struct answer a, b;
    struct worker *w = open_device("sim");
    for (int life = 1; life <= DRAIN_FAILURES; life++) {
        UNTIL(ready(w));
        assert_int_equal(worker_epoch(w), life);
        assert_false(pool_place(w).drained);
        warm_add_executable(worker_warm(w), (struct digest){{1}});
        call(w, &a, OBEY);
        call(w, &b, FAULT);
        UNTIL(a.n && b.n);
        assert_true(a.lost && b.lost);
        assert_int_equal(a.code, ST_UNAVAILABLE);
        assert_non_null(strstr(b.why, "the device worker was lost (its process was ended by"));
        assert_false(warm_has_executable(worker_warm(w), (struct digest){{1}}));
        assert_int_equal(w->bad_starts, 0); // at once
    }
    UNTIL(ready(w));
    assert_true(pool_place(w).drained);
    w->ready_ns -= 11 * second;
    assert_false(pool_place(w).drained);
    assert_int_equal(w->restarts, DRAIN_FAILURES);
}
static void who_is_blamed(void **state) {
    (void)state;
    struct answer a;
    static const struct {
        uint32_t how;
        int faults;
    } ends[] = {{FAULT, 1}, {KILLED, 0}, {BEGIN_AND_DIE, 0}, {AFTERWARDS, 1}, {OTHER_CALL, 0}};
    struct worker *w = open_device("sim");
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        UNTIL(ready(w));
        faults = 0;
        call(w, &a, ends[i].how);
        UNTIL(w->restarts == (int)i + 1 && a.n);
        assert_int_equal(faults, ends[i].faults);
        assert_int_equal(a.lost, ends[i].how != AFTERWARDS);
        if (!faults) continue;
        assert_string_equal(blamed.tenant, "someone");
        assert_string_equal(blamed.step, "run");
        assert_non_null(strstr(blamed_why, "signal 11"));
    }
}
// A run that only waited in the process may be tried elsewhere.
static void what_had_begun(void **state) {
    (void)state;
    struct answer a;
    struct worker *w = open_device("sim");
    UNTIL(ready(w));
    call(w, &a, KILLED);
    UNTIL(a.n);
    assert_false(a.began);
    UNTIL(ready(w));
    call(w, &a, BEGIN_AND_DIE);
    UNTIL(a.n);
    assert_true(a.began);
}
static void breaks_the_protocol(void **state) {
    (void)state;
    struct answer a;
    struct worker *w = open_device("sim");
    for (uint32_t how = OTHER_REPLY; how <= OTHER_CALL; how++) {
        UNTIL(ready(w));
        call(w, &a, how);
        UNTIL(a.n);
        assert_true(a.lost);
        assert_non_null(strstr(a.why, how == OTHER_REPLY ? "another kind of reply"
                                                         : "a call that was never made"));
    }
}
static void does_not_stop(void **state) {
    (void)state;
    struct answer a;
    struct worker *w = open_device("sim");
    for (int i = 0; i < 2; i++) {
        UNTIL(ready(w));
        call(w, &a, HANG);
        int64_t since = clock_ns();
        pool_cancel(w, a.id);
        UNTIL(a.n);
        assert_true(a.lost);
        assert_non_null(strstr(a.why, "a cancelled call did not end"));
        assert_true(clock_ns() - since >= 10 * INT64_C(1000000)); // the grace
    }
    assert_int_equal(w->failures, 0); // that it was killed says nothing of it
    assert_int_equal(faults, 0);
}
static void call_of_a_dead_one(void **state) {
    (void)state;
    struct answer a;
    struct worker *w = open_device("sim"); // has not said hello
    call(w, &a, ANSWER);
    assert_int_equal(a.n, 0); // never from inside
    UNTIL(a.n);
    assert_true(a.lost);
}

// ---- compilers

static const char *memory_of(const struct worker *w) {
    return worker_hello(w)->description;
}
static void memory_bound(void **state) {
    (void)state;
    struct answer a;
    open_pool("sim", &(struct pool_config){.compile_memory = 1 << 20, .compile_relief_ns = 1});
    struct worker *device = pool_worker(pool, 0), *compiler = pool_worker(pool, 1),
                  *relief = pool_worker(pool, 2);
    UNTIL(ready(device) && ready(compiler));
    assert_string_equal(memory_of(device), "");
    assert_string_equal(memory_of(compiler), "1048576");
    worker_relieve(relief);
    UNTIL(ready(relief));
    assert_string_equal(memory_of(relief), "262144");
    call_type(compiler, &a, HLOD__WIRE__TYPE__TYPE_INGEST);
    UNTIL(a.n);
    assert_non_null(strstr(a.why, "out of memory: a compile may take compile_memory = 1048576"));
}
// A relief starts when it is asked for; what it is stuck with is given up for others.
static void relief(void **state) {
    (void)state;
    struct answer a;
    open_pool("sim", &(struct pool_config){.compile_relief_ns = 1});
    struct worker *w = pool_worker(pool, 2);
    UNTIL(ready(pool_worker(pool, 1)));
    assert_int_equal(pool_size(pool), 3);
    assert_true(pool_place(w).spare && pool_place(w).relief);
    assert_int_equal(worker_epoch(w), 0);
    worker_relieve(w);
    UNTIL(ready(w));
    worker_relieve(w); // has nothing to give up
    pass(5);
    assert_int_equal(worker_epoch(w), 1);
    worker_take(w, true);
    call(w, &a, OBEY);
    worker_relieve(w);
    assert_int_equal(a.n, 0); // not in the middle of a dispatch
    UNTIL(a.n);
    assert_non_null(strstr(a.why, "it was needed for others"));
    assert_int_equal(w->restarts + faults, 0); // no death
    worker_release(w, true);
    UNTIL(ready(w));
    call(w, &a, FAULT);
    UNTIL(a.n);
    assert_int_equal(faults, 0); // it is done once more elsewhere
    assert_true(pool_place(w).spare);
}
// One whose compiles depend on what it compiled before gets a new process after each.
static void single_use(void **state) {
    (void)state;
    struct answer a;
    open_pool("single", &(struct pool_config){0});
    struct worker *w = pool_worker(pool, 1);
    UNTIL(ready(w));
    call_type(w, &a, HLOD__WIRE__TYPE__TYPE_COMPILE);
    UNTIL(a.n);
    assert_false(a.lost);
    assert_false(ready(w));
    assert_true(worker_ready(w)); // soon
    UNTIL(ready(w));
    assert_int_equal(worker_epoch(w), 2);
    assert_int_equal(w->restarts, 0);
}
// Compilers for devices that are not here start when they are asked for.
static void sleeps(void **state) {
    (void)state;
    open_pool("sim", &(struct pool_config){.plugins = &(struct plugins){0}});
    struct worker *w = pool_worker(pool, 2);
    UNTIL(ready(pool_worker(pool, 1)));
    assert_int_equal(worker_epoch(w), 0);
    pool_wake(pool, "sim");
    assert_int_equal(worker_epoch(w), 0);
    pool_wake(pool, "cpu");
    UNTIL(ready(w));
    assert_true(pool_place(w).asked_only);
}
// Where workers belong to tenants: the next one's process has seen nothing of the last one's.
static void given_to_tenants(void **state) {
    (void)state;
    open_pool("sim", &(struct pool_config){.isolate = 1});
    struct worker *w = pool_worker(pool, 0);
    UNTIL(ready(w));
    worker_give(w, "one"); // nobody's yet: the same process
    assert_true(ready(w));
    assert_string_equal(pool_place(w).tenant, "one");
    assert_false(pool_place(w).idle); // waits for what it was given for
    worker_take(w, false);
    worker_release(w, false);
    assert_true(pool_place(w).idle);
    worker_give(w, "two");
    assert_false(ready(w));
    UNTIL(ready(w));
    assert_int_equal(worker_epoch(w), 2);
    assert_string_equal(pool_place(w).tenant, "two");
}

#define TEST(f) cmocka_unit_test_teardown(f, close_pool)
int main(int argc, char **argv) {
    if (argc > 3 && !strncmp(argv[1], "--role=", 7)) return worker_main(argc, argv);
    const struct CMUnitTest tests[] = {
        TEST(calls_and_replies), TEST(places_and_tensors),
        TEST(dies_at_start),     TEST(of_another_role),
        TEST(has_no_device),     TEST(does_not_say_hello),
        TEST(dies_idle),         TEST(gives_no_sign),
        TEST(dies_at_work),      TEST(who_is_blamed),
        TEST(what_had_begun),    TEST(breaks_the_protocol),
        TEST(does_not_stop),     TEST(call_of_a_dead_one),
        TEST(memory_bound),      TEST(relief),
        TEST(single_use),        TEST(sleeps),
        TEST(given_to_tenants),
    };
    alarm(20); // a condition that never comes
    return cmocka_run_group_tests(tests, NULL, NULL);
}
