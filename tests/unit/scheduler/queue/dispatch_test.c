// SPDX-License-Identifier: Apache-2.0
// Tasks to a fake pool's workers: shares by weight and by what work took, priorities, a tenant's
// places and unread results, the memory of devices, warm and cold ones, full queues, deadlines,
// devices that leave or fail, reliefs, and workers that belong to tenants.
#include "base/clock.h"
#include "tests/unit/scheduler/rig.h"

enum { MS = 1000000, TASKS = 64 };
static struct worker *d0, *d1, *compiler;
struct piece { // one task, and what became of it
    struct task t;
    struct slot slot;
    int placed, failed, turn; // turn: the how-manieth that was placed
    status_t st;
};
static struct piece p[TASKS];
static int turns;

static void on_placed(struct task *t) {
    struct piece *x = (struct piece *)t;
    x->slot = t->slot;
    x->placed++;
    x->turn = ++turns;
}
static void on_failed(struct task *t, status_t st) {
    struct piece *x = (struct piece *)t;
    x->failed++;
    x->st = st;
}
// For the tenant, on any device; what else it wants is set before `queue`.
static struct piece *piece(int i, const char *tenant) {
    p[i].t = (struct task){.want = {.role = ROLE_DEVICE, .device = ""},
                           .tenant = tenants_get(&rig.s->tenants, tenant, clock_ns()),
                           .cost_ns = MS,
                           .placed = on_placed,
                           .failed = on_failed};
    return &p[i];
}
static void queue(struct piece *x) {
    task_queue(rig.s, &x->t);
}
static void leave(struct piece *x, int64_t used_ns) {
    x->slot.used_ns = used_ns;
    slot_leave(rig.s, &x->slot);
    settle();
}
static void failed_with(const struct piece *x, enum status_code code, int reason,
                        const char *words) {
    assert_int_equal(x->placed, 0);
    assert_int_equal(x->failed, 1);
    assert_int_equal(st_code(x->st), code);
    assert_int_equal(st_get_reason(x->st), reason);
    if (!strstr(st_message(x->st), words)) fail_msg("%s", st_message(x->st));
}

static int open_with(const struct sched_config *cfg) {
    memset(p, 0, sizeof p);
    turns = 0;
    compiler = fake_add(ROLE_COMPILE, "cpu", "");
    d0 = fake_add(ROLE_DEVICE, "cpu", "cpu:0");
    d1 = fake_add(ROLE_DEVICE, "sim", "sim:0");
    rig_open(cfg);
    return 0;
}
static int open_rig(void **state) {
    (void)state;
    return open_with(&(struct sched_config){.tenants = "light:weight=1,heavy:weight=3"});
}
static int close_rig(void **state) {
    (void)state;
    for (int i = 0; i < TASKS; i++) {
        task_drop(&p[i].t);
        slot_leave(rig.s, &p[i].slot);
        st_drop(p[i].st);
    }
    rig_close();
    return 0;
}
// Leaves d0's one slot n times. The pieces are two tenants': the first half and the others, whose
// work takes so long each. How many of the n turns the first had.
static int turns_of_first(int half, int n, int64_t first_ns, int64_t other_ns) {
    int mine = 0;
    d1->place.ready = false;
    for (int served = 0; served < n; served++) {
        int i = 0;
        settle();
        while (!p[i].slot.w)
            i++;
        leave(&p[i], i < half ? first_ns : other_ns);
    }
    for (int i = 0; i < half; i++)
        mine += p[i].turn > 0 && p[i].turn <= n;
    return mine;
}

// ---- whose turn

static void shares_by_weight(void **state) {
    (void)state;
    for (int i = 0; i < 32; i++) {
        queue(piece(i, "light"));
        queue(piece(32 + i, "heavy"));
    }
    assert_in_range(turns_of_first(32, 32, MS, MS), 7, 9); // one in four
}
// Whose work takes longer than was expected gets so many turns fewer.
static void shares_by_what_it_took(void **state) {
    (void)state;
    for (int i = 0; i < 16; i++) {
        queue(piece(i, "slow"));
        queue(piece(16 + i, "fast"));
    }
    int slow = turns_of_first(16, 16, 3 * MS, MS);
    assert_in_range(slow, 3, 5);
    const struct tenant *t = tenants_get(&rig.s->tenants, "slow", 0);
    assert_int_equal(t->used_ns[ROLE_DEVICE] / (3 * MS), slow);
}
static void priority_within_a_tenant(void **state) {
    (void)state;
    d0->place.ready = d1->place.ready = false;
    for (int i = 0; i < 3; i++)
        piece(i, "light")->t.item.priority = i == 2 ? 5 : 0;
    piece(3, "heavy");
    for (int i = 0; i < 4; i++)
        queue(&p[i]);
    settle();
    d0->place.ready = true;
    fake_tell();
    turns_of_first(4, 4, MS, MS);
    assert_true(p[2].turn < p[0].turn && p[0].turn < p[1].turn);
    assert_true(p[3].turn <= 2); // the others' priority is not its own
}
static void places_of_a_tenant(void **state) {
    (void)state;
    assert_null(sched_configure(rig.s, &(struct sched_config){.tenants = "few:places=1"}));
    d0->place.max_calls = 2;
    queue(piece(0, "few"));
    queue(piece(1, "few"));
    queue(piece(2, "other"));
    settle();
    assert_true(p[0].placed && !p[1].placed && p[2].placed);
    leave(&p[0], MS);
    assert_true(p[1].placed);
}
static void unread_results(void **state) {
    (void)state;
    struct tenant *t = tenants_get(&rig.s->tenants, "lazy", 0);
    assert_null(sched_configure(rig.s, &(struct sched_config){.tenants = "", .reply_bytes = 100}));
    sched_unread(rig.s, t, 60);
    queue(piece(0, "lazy"));
    piece(1, "lazy")->t.want.role = ROLE_COMPILE; // brings no results
    queue(&p[1]);
    queue(piece(2, "other"));
    settle();
    assert_true(!p[0].placed && p[1].placed && p[2].placed);
    assert_true(sched_waits_for_reply(rig.s, "lazy"));
    sched_unread(rig.s, t, -30);
    settle();
    assert_true(p[0].placed);
    assert_false(sched_waits_for_reply(rig.s, "lazy"));
    sched_unread(rig.s, t, -30);
}

// ---- refused

static void full_queue(void **state) {
    (void)state;
    d0->place.ready = d1->place.ready = false;
    assert_null(sched_configure(rig.s, &(struct sched_config){.tenants = "", .max_queue = 3}));
    for (int i = 0; i < 3; i++)
        queue(piece(i, "many"));
    queue(piece(3, "many")); // its own lane is the longest
    failed_with(&p[3], ST_UNAVAILABLE, HLOD__V1__REASON__REASON_QUEUE_FULL, "3 jobs wait, of 3");
    assert_true(st_get_retry_ms(p[3].st) >= 100);
    queue(piece(4, "one")); // the last of the longest lane leaves, not from inside this call
    assert_int_equal(p[2].failed, 0);
    settle();
    failed_with(&p[2], ST_UNAVAILABLE, HLOD__V1__REASON__REASON_QUEUE_FULL, "tenant 'many'");
    assert_int_equal(rig.s->queue[ROLE_DEVICE].n, 3);
    assert_int_equal(tenants_get(&rig.s->tenants, "many", 0)->refused, 2);
    assert_true(task_waits(&p[4].t));
}
static void deadline_in_the_queue(void **state) {
    (void)state;
    piece(0, "light")->t.item.deadline_ns = clock_ns() - 1;
    queue(&p[0]);
    settle();
    failed_with(&p[0], ST_DEADLINE_EXCEEDED, HLOD__V1__REASON__REASON_DEADLINE,
                "waiting for a worker");
}
static void a_dropped_task(void **state) {
    (void)state;
    queue(piece(0, "light"));
    task_drop(&p[0].t);
    task_drop(&p[0].t);
    settle();
    assert_int_equal(p[0].placed + p[0].failed, 0);
}

// ---- where

static void device_by_kind_and_name(void **state) {
    (void)state;
    static const char *const names[] = {"sim", "cpu:0", "tpu"};
    d0->place.max_calls = 2;
    for (int i = 0; i < 3; i++)
        piece(i, "light")->t.want.device = names[i];
    for (int i = 0; i < 3; i++)
        queue(&p[i]);
    settle();
    assert_ptr_equal(p[0].slot.w, d1);
    assert_ptr_equal(p[1].slot.w, d0);
    failed_with(&p[2], ST_UNAVAILABLE, HLOD__V1__REASON__REASON_NO_WORKER, "for device tpu");
}
// The worker that has the weights, then the one that has the executable, before the first.
static void warm_before_cold(void **state) {
    (void)state;
    struct digest key = {{1}}, weights = {{2}};
    d0->place.max_calls = d1->place.max_calls = 4;
    for (int i = 0; i < 3; i++) {
        piece(i, "light")->t.has_key = true;
        p[i].t.plan.key = key;
        p[i].t.weights = weights;
    }
    queue(&p[0]);
    settle();
    assert_ptr_equal(p[0].slot.w, d0);
    leave(&p[0], MS);
    warm_add_executable(&d1->warm, key);
    queue(&p[1]);
    settle();
    assert_ptr_equal(p[1].slot.w, d1);
    leave(&p[1], MS);
    warm_add_prepared(&d0->warm, key, weights);
    queue(&p[2]);
    settle();
    assert_ptr_equal(p[2].slot.w, d0);
}
static void least_busy_and_alone(void **state) {
    (void)state;
    d0->place.max_calls = d1->place.max_calls = 2;
    queue(piece(0, "light"));
    queue(piece(1, "light"));
    piece(2, "light")->t.want.alone = true; // never behind other work
    queue(&p[2]);
    queue(piece(3, "light")); // passes it
    settle();
    assert_ptr_equal(p[0].slot.w, d0);
    assert_ptr_equal(p[1].slot.w, d1);
    assert_false(p[2].placed);
    assert_true(p[3].placed);
    leave(&p[1], MS);
    leave(&p[3], MS);
    leave(&p[0], MS);
    assert_true(p[2].placed);
}

static struct piece *needs(int i, int64_t bytes) {
    struct piece *x = piece(i, "light");
    x->t.has_key = true;
    x->t.plan = (struct footprint_want){.key = {{(uint8_t)(i + 1)}}, .resident_bytes = bytes};
    return x;
}
static void memory_of_a_device(void **state) {
    (void)state;
    d0->place.memory_bytes = d1->place.memory_bytes = 100;
    d0->place.max_calls = d1->place.max_calls = 4;
    queue(needs(0, 101)); // at once, without waiting
    failed_with(&p[0], ST_RESOURCE_EXHAUSTED, HLOD__V1__REASON__REASON_DEVICE_MEMORY,
                "needs 101 bytes");
    queue(needs(1, 80));
    queue(needs(2, 70));
    queue(needs(3, 60)); // waits for memory
    queue(needs(4, 20)); // passes it
    settle();
    assert_ptr_equal(p[1].slot.w, d0);
    assert_ptr_equal(p[2].slot.w, d1);
    assert_false(p[3].placed);
    assert_true(p[4].placed);
    // One that has waited for a second lets nobody pass any more.
    p[3].t.queued_ns -= 2000 * INT64_C(1000000);
    queue(needs(5, 5));
    settle();
    assert_false(p[5].placed);
    leave(&p[2], MS);
    assert_true(p[3].placed && p[5].placed);
    assert_int_equal(pool_place(d1).planned_bytes + pool_place(d0).planned_bytes, 80 + 20 + 60 + 5);
}

// ---- devices that go

static void a_device_leaves(void **state) {
    (void)state;
    piece(0, "light")->t.want.device = "sim";
    d1->place.ready = false; // starting
    d0->place.ready = false;
    queue(&p[0]);
    settle();
    assert_true(task_waits(&p[0].t));
    d1->place.hopeless = true;
    d1->why = "no such hardware";
    fake_tell();
    settle();
    failed_with(&p[0], ST_UNAVAILABLE, HLOD__V1__REASON__REASON_NO_WORKER, ": no such hardware");
}
static void one_that_keeps_failing(void **state) {
    (void)state;
    d0->place.drained = true;
    queue(piece(0, "light"));
    settle();
    assert_ptr_equal(p[0].slot.w, d1);
    queue(piece(1, "light")); // waits for the sound one
    settle();
    assert_false(p[1].placed);
    d1->place.hopeless = true; // now there is no other
    fake_tell();
    settle();
    assert_ptr_equal(p[1].slot.w, d0);
}

static int open_relief(void **state) {
    (void)state;
    return open_with(
        &(struct sched_config){.pool = {.relief_ns = 5 * MS, .compile_relief_ns = 5 * MS}});
}
// Brief work that waits only for a worker that is stuck calls its relief.
static void relief(void **state) {
    (void)state;
    struct worker *spare = fake_add(ROLE_DEVICE, "cpu", "cpu:0");
    *spare = (struct worker){.place = d0->place, .hello = d0->hello};
    spare->place.relief = spare->place.spare = true;
    spare->place.ready = false;
    d0->place.held = d0->place.stuck = true;
    d0->place.calls = 1;
    piece(0, "light")->t.want.device = "cpu";
    p[0].t.want.expected_ns = MS;
    queue(&p[0]);
    settle();
    assert_false(p[0].placed);
    assert_true(spare->relieved > 0);
    spare->place.spare = false;
    spare->place.ready = true;
    fake_tell();
    settle();
    assert_ptr_equal(p[0].slot.w, spare);
    int before = spare->relieved;
    piece(1, "light")->t.want.device = "cpu"; // of unknown length: not the relief's
    queue(&p[1]);
    settle();
    assert_false(p[1].placed);
    assert_int_equal(spare->relieved, before);
    d0->place.calls = 0;
}
// What a compilers' relief gave up is queued again, and does not go there twice.
static void moved(void **state) {
    (void)state;
    struct worker *spare = fake_add(ROLE_COMPILE, "cpu", "");
    spare->place.relief = true;
    compiler->place.calls = 1;
    compiler->place.held = true;
    piece(0, "light")->t.want.role = ROLE_COMPILE;
    queue(&p[0]);
    settle();
    assert_ptr_equal(p[0].slot.w, spare);
    struct worker *w = p[0].slot.w;
    leave(&p[0], MS);
    assert_false(task_moved(&p[0].t, d0, ST_OK));
    assert_true(task_moved(&p[0].t, w, st_new(ST_UNAVAILABLE, "lost")));
    settle();
    assert_int_equal(p[0].placed, 1); // waits for the others
    compiler->place.held = false;
    compiler->place.calls = 0;
    fake_tell();
    settle();
    assert_ptr_equal(p[0].slot.w, compiler);
}

static int open_isolated(void **state) {
    (void)state;
    return open_with(&(struct sched_config){.pool = {.isolate = 2}});
}
static void workers_of_tenants(void **state) {
    (void)state;
    d0->place.max_calls = 2;
    for (int i = 0; i < 2; i++)
        piece(i, i ? "two" : "one")->t.want.device = "cpu";
    queue(&p[0]); // it is nobody's yet
    settle();
    assert_ptr_equal(p[0].slot.w, d0);
    assert_string_equal(d0->place.tenant, "one");
    queue(&p[1]);
    settle();
    assert_false(p[1].placed);
    assert_string_equal(d0->given, "one");
    leave(&p[0], MS);
    d0->place.idle = true; // between two pieces of work it may be taken
    d0->place.ready = true;
    fake_tell();
    settle();
    assert_string_equal(d0->given, "two");
}

// A tenant that must wait for a process leaves those of others to them; and looks again by itself,
// as nothing tells when a process that was given to somebody has waited long enough for work.
static void others_workers_serve_them(void **state) {
    (void)state;
    d0->place.tenant = "mine";
    d0->place.ready = false;
    for (int i = 0; i < 2; i++)
        piece(i, i ? "mine" : "nobody")->t.want.device = "cpu";
    queue(&p[0]);
    queue(&p[1]);
    settle();
    assert_true(!p[0].placed && !p[1].placed);
    d0->place.ready = true;
    d0->place.max_calls = 2;
    fake_tell();
    settle();
    assert_true(!p[0].placed && p[1].placed);
    leave(&p[1], MS);
    assert_string_equal(d0->given, "");
    d0->place.idle = true;
    UNTIL(!strcmp(d0->given, "nobody"));
}

static void long_work_goes_alone(void **state) {
    (void)state;
    assert_null(sched_configure(rig.s, &(struct sched_config){.tenants = "", .alone_ns = 5 * MS}));
    assert_false(sched_alone(rig.s, 10 * MS)); // one tenant alone
    rig.s->mixed_ns = clock_ns();
    assert_true(sched_alone(rig.s, 10 * MS));
    assert_false(sched_alone(rig.s, 5 * MS));
    rig.s->mixed_ns -= 61000 * INT64_C(1000000); // the other has not come for a minute
    assert_false(sched_alone(rig.s, 10 * MS));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, open_rig, close_rig)
int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(shares_by_weight),
        TEST(shares_by_what_it_took),
        TEST(priority_within_a_tenant),
        TEST(places_of_a_tenant),
        TEST(unread_results),
        TEST(full_queue),
        TEST(deadline_in_the_queue),
        TEST(a_dropped_task),
        TEST(device_by_kind_and_name),
        TEST(warm_before_cold),
        TEST(least_busy_and_alone),
        TEST(memory_of_a_device),
        TEST(a_device_leaves),
        TEST(one_that_keeps_failing),
        cmocka_unit_test_setup_teardown(relief, open_relief, close_rig),
        cmocka_unit_test_setup_teardown(moved, open_relief, close_rig),
        cmocka_unit_test_setup_teardown(workers_of_tenants, open_isolated, close_rig),
        cmocka_unit_test_setup_teardown(others_workers_serve_them, open_isolated, close_rig),
        TEST(long_work_goes_alone),
    };
    return rig_main(tests);
}
