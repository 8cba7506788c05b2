// SPDX-License-Identifier: Apache-2.0
// Batches on a fake pool: which runs are joined, when they are run, each member's own rows of the
// result, and what a member that fails, leaves or is late costs the others. And what batch.h checks
// of a model.
#include "scheduler/job/batch.h"
#include "tests/unit/scheduler/rig.h"

enum { MAX = 4, MEMBERS = 6, FOREVER_US = 10000000, RUN = HLOD__WIRE__TYPE__TYPE_RUN };
static struct request m[MEMBERS];

static int open_rig(void **state) {
    (void)state;
    rig_open(&(struct sched_config){.max_queue = 100});
    return 0;
}
static int close_rig(void **state) {
    (void)state;
    rig_close();
    for (int i = 0; i < MEMBERS; i++)
        request_free(&m[i]);
    return 0;
}
static struct job_spec joins(int i, int64_t rows, int32_t delay_us) {
    struct job_spec spec = request_spec(&m[i], rows, (float)(10 * i));
    spec.run.batching = (struct batching){.max = MAX, .delay_us = delay_us};
    return spec;
}
static void start(int i, int64_t rows, int32_t delay_us) {
    struct job_spec spec = joins(i, rows, delay_us);
    request_start(&m[i], &spec);
}
// The model is known, so that runs join as soon as they come.
static void know_model(void) {
    struct job_spec spec = request_spec(&m[MEMBERS - 1], 1, 0);
    spec.kind = JOB_INGEST;
    request_start(&m[MEMBERS - 1], &spec);
    serve_all(&m[MEMBERS - 1]);
}
static int runs(void) {
    return fake.made[RUN];
}
// The member's own rows, plus one; the batch had so many.
static void has_rows(int i, int64_t rows, int64_t of) {
    ended(&m[i], ST_CODE_OK, 0);
    const struct job_result *r = job_result(m[i].j);
    assert_int_equal(r->run.rows, rows);
    assert_int_equal(r->run.batch_rows, of);
    assert_int_equal(r->reply->n_outputs, 1);
    const Hlod__Wire__WireTensor *y = r->reply->outputs[0];
    assert_int_equal(y->dims[0], rows);
    assert_int_equal(y->data->size, rows * 4);
    for (int64_t k = 0; k < rows; k++) {
        float v;
        memcpy(&v, y->data->inline_bytes.data + k * 4, 4);
        assert_true(v == (float)(10 * i) + (float)k + 1);
    }
}

// ---- together

static void a_full_batch(void **state) {
    (void)state;
    know_model();
    start(0, 1, FOREVER_US);
    start(1, 2, FOREVER_US);
    settle();
    assert_string_equal(job_doing(m[0].j), "waiting for a batch");
    assert_null(fake_find(HLOD__WIRE__TYPE__TYPE_COMPILE));
    start(2, 1, FOREVER_US); // full: nobody waits any longer
    UNTIL(fake_find(HLOD__WIRE__TYPE__TYPE_COMPILE));
    assert_string_equal(job_doing(m[0].j), "running");
    serve_all(&m[0]);
    settle();
    has_rows(0, 1, 4);
    has_rows(1, 2, 4);
    has_rows(2, 1, 4);
    assert_int_equal(runs(), 1);
    for (int i = 0; i < 3; i++)
        assert_string_equal(m[i].events, "ingest queued compiling pass compiled prepared running");
    assert_int_equal(rig.device->place.calls, 0);
}
// Three rows run in a bucket of four; the fourth is nobody's.
static void after_the_delay(void **state) {
    (void)state;
    know_model();
    start(0, 1, 5000);
    start(1, 2, 5000);
    UNTIL(fake_find(HLOD__WIRE__TYPE__TYPE_COMPILE));
    serve_all(&m[1]);
    settle();
    has_rows(0, 1, 3);
    has_rows(1, 2, 3);
}
// What does not fit opens the next one, which stays open when the first is run.
static void the_next_batch(void **state) {
    (void)state;
    know_model();
    start(0, 3, FOREVER_US);
    start(1, 2, FOREVER_US); // the first goes without it
    serve_all(&m[0]);
    start(2, 2, FOREVER_US);
    serve_all(&m[2]);
    settle();
    has_rows(0, 3, 3);
    has_rows(1, 2, 4);
    has_rows(2, 2, 4);
    assert_int_equal(runs(), 2);
}
// A batch that waits for a device takes in who comes meanwhile.
static void grows_while_it_waits(void **state) {
    (void)state;
    know_model();
    rig.device->place.ready = false;
    start(0, 1, 0);
    UNTIL(rig.s->queue[ROLE_DEVICE].n == 1);
    start(1, 1, 0);
    settle();
    assert_int_equal(rig.s->queue[ROLE_DEVICE].n, 1);
    rig.device->place.ready = true;
    fake_tell();
    serve_all(&m[0]);
    settle();
    has_rows(0, 1, 2);
    has_rows(1, 1, 2);
    assert_int_equal(runs(), 1);
}

static void who_is_not_joined(void **state) {
    (void)state;
    know_model();
    start(0, 1, FOREVER_US);
    struct job_spec spec = joins(1, 1, FOREVER_US);
    spec.priority = 1;
    request_start(&m[1], &spec);
    spec = joins(2, 1, FOREVER_US);
    spec.tenant = "other";
    request_start(&m[2], &spec);
    start(3, MAX + 1, FOREVER_US); // alone, at once
    spec = joins(4, 1, FOREVER_US);
    m[4].in.dtype = numbers_dtype(str_of("s32")); // alone, and refused there
    request_start(&m[4], &spec);
    settle();
    assert_int_equal(rig.s->batches.n, 3);
    serve_all(&m[3]);
    ended(&m[3], ST_CODE_OK, 0);
    assert_int_equal(job_result(m[3].j)->run.rows, 0);
    ended(&m[4], ST_INVALID_ARGUMENT, HLOD__V1__REASON__REASON_DTYPE_MISMATCH);
}

// ---- one that goes its own way

// What one member asks for in vain ends that member.
static void an_error_of_one(void **state) {
    (void)state;
    static char none[] = "none", *outputs[] = {none};
    know_model();
    start(0, 2, FOREVER_US);
    struct job_spec spec = joins(1, 2, FOREVER_US);
    spec.run.outputs = outputs;
    spec.run.n_outputs = 1;
    request_start(&m[1], &spec);
    serve_all(&m[0]);
    settle();
    has_rows(0, 2, 4);
    ended(&m[1], ST_INVALID_ARGUMENT, HLOD__V1__REASON__REASON_UNKNOWN_OUTPUT);
}
static void an_error_of_the_run(void **state) {
    (void)state;
    know_model();
    start(0, 2, FOREVER_US);
    start(1, 2, FOREVER_US);
    for (uint32_t type = HLOD__WIRE__TYPE__TYPE_COMPILE; type < RUN; type++)
        if (type != HLOD__WIRE__TYPE__TYPE_INSPECT) serve(type);
    serve_error(RUN, ST_INTERNAL, 0);
    settle();
    ended(&m[0], ST_INTERNAL, 0);
    ended(&m[1], ST_INTERNAL, 0);
    assert_int_equal(rig.device->place.calls, 0);
}
// Before a device is free: its rows are not run. After: the others get theirs all the same.
static void one_leaves(void **state) {
    (void)state;
    know_model();
    rig.device->place.ready = false;
    start(0, 1, 0);
    start(1, 1, 0);
    start(2, 1, 0);
    UNTIL(rig.s->queue[ROLE_DEVICE].n == 1);
    settle();
    job_cancel(m[0].j);
    rig.device->place.ready = true;
    fake_tell();
    UNTIL(fake_find(HLOD__WIRE__TYPE__TYPE_COMPILE));
    job_cancel(m[1].j);
    request_free(&m[1]); // with the memory that its rows lie in
    memset(m[1].x, 0, sizeof m[1].x);
    serve_all(&m[2]);
    settle();
    has_rows(2, 1, 2);
    assert_int_equal(m[0].done + m[1].done, 0);
}
static void the_last_leaves(void **state) {
    (void)state;
    know_model();
    start(0, 2, FOREVER_US);
    start(1, 2, FOREVER_US);
    UNTIL(fake_find(HLOD__WIRE__TYPE__TYPE_COMPILE));
    job_cancel(m[0].j);
    assert_int_equal(sched_active(rig.s), 2); // the leader goes on
    job_cancel(m[1].j);
    assert_int_equal(sched_active(rig.s), 0);
    settle();
    assert_true(fake_find(HLOD__WIRE__TYPE__TYPE_COMPILE)->cancelled);
    start(2, 1, FOREVER_US); // no batch is left open
    settle();
    job_cancel(m[2].j);
    assert_int_equal(rig.s->batches.n, 0);
    assert_int_equal(rig.device->place.calls, 0);
}
// A deadline that passes while the batch gathers ends that member.
static void a_member_is_late(void **state) {
    (void)state;
    know_model();
    struct job_spec spec = joins(0, 1, FOREVER_US);
    spec.timeout_ms = 60000;
    request_start(&m[0], &spec);
    start(1, 2, FOREVER_US);
    settle();
    loop_timer_start(m[0].j->deadline, 0);
    UNTIL(m[0].done);
    ended(&m[0], ST_DEADLINE_EXCEEDED, HLOD__V1__REASON__REASON_DEADLINE);
    assert_non_null(strstr(st_message(m[0].st), "waiting for a batch"));
    start(2, 2, FOREVER_US);
    serve_all(&m[1]);
    settle();
    has_rows(1, 2, 4);
    has_rows(2, 2, 4);
}
static void a_full_queue_refuses_all(void **state) {
    (void)state;
    know_model();
    rig.device->place.ready = false;
    assert_null(sched_configure(rig.s, &(struct sched_config){.tenants = "", .max_queue = 1}));
    start(0, 4, FOREVER_US);
    UNTIL(rig.s->queue[ROLE_DEVICE].n == 1);
    start(1, 2, FOREVER_US);
    start(2, 2, FOREVER_US);
    UNTIL(m[1].done && m[2].done);
    ended(&m[1], ST_UNAVAILABLE, HLOD__V1__REASON__REASON_QUEUE_FULL);
    ended(&m[2], ST_UNAVAILABLE, HLOD__V1__REASON__REASON_QUEUE_FULL);
    assert_int_equal(m[0].done, 0);
}

// ---- what may be joined

static void refused(status_t st, const char *words) {
    assert_int_equal(st_code(st), ST_INVALID_ARGUMENT);
    if (!strstr(st_message(st), words)) fail_msg("%s", st_message(st));
    st_drop(st);
}
static void models_that_are_refused(void **state) {
    (void)state;
    struct batching how = {.max = MAX};
    assert_null(batch_check(&how, answer_signature(-1)));
    refused(batch_check(&how, answer_signature(3)), "input 'x' has no symbolic dimension 0");
    Hlod__V1__Signature *sig = answer_signature(-1);
    sig->outputs[0]->dtype = (char *)"string";
    refused(batch_check(&how, sig), "output 'y'");
    sig = answer_signature(-1);
    sig->inputs[0]->dims[0]->expression = true;
    refused(batch_check(&how, sig), "input 'x' has a dimension that follows from others");
    sig = answer_signature(-1);
    sig->outputs[0]->n_dims = 0; // the compiler sees whether it has rows
    assert_null(batch_check(&how, sig));
    how.unchecked = true;
    refused(batch_check(&how, sig), "output 'y' has no symbolic dimension 0");
    refused(batch_check(&(struct batching){.max = BATCH_MAX + 1}, sig), "expected max");
    assert_null(batch_check(&(struct batching){.max = 1}, answer_signature(3))); // not at all
}
static void executables_that_are_refused(void **state) {
    (void)state;
    Hlod__V1__ExecutableInfo x = HLOD__V1__EXECUTABLE_INFO__INIT;
    x.signature = answer_signature(4);
    x.rows_why = (char *)"reduce 'r' adds them up";
    x.constants_digest = (char *)"abc";
    assert_null(batch_check_outputs(&x, 4));
    refused(batch_check_outputs(&x, 2), "output 'y' has no row for each row");
    refused(batch_check_rows(&x, NULL), "reduce 'r' adds them up");
    x.rows_independent = true;
    assert_null(batch_check_rows(&x, NULL));
    assert_null(batch_check_rows(&x, "abc"));
    refused(batch_check_rows(&x, "abd"), "it computes with the number of rows");
}
static void buckets(void **state) {
    (void)state;
    static const int want[] = {1, 1, 2, 4, 4, 6, 6};
    for (int rows = 1; rows <= 6; rows++)
        assert_int_equal(batch_bucket(rows, 6), want[rows]);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, open_rig, close_rig)
int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_full_batch),
        TEST(after_the_delay),
        TEST(the_next_batch),
        TEST(grows_while_it_waits),
        TEST(who_is_not_joined),
        TEST(an_error_of_one),
        TEST(an_error_of_the_run),
        TEST(one_leaves),
        TEST(the_last_leaves),
        TEST(a_member_is_late),
        TEST(a_full_queue_refuses_all),
        cmocka_unit_test(models_that_are_refused),
        cmocka_unit_test(executables_that_are_refused),
        cmocka_unit_test(buckets),
    };
    return rig_main(tests);
}
