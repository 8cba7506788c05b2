// SPDX-License-Identifier: Apache-2.0
// A job on a fake pool: its rows and events in order; what is done once for several jobs; how often
// it goes back, to which row, and how it ends then; its deadline, and its being cancelled, at each
// row.
#include "tests/unit/scheduler/rig.h"

static struct request a, b, c;

static int open_rig(void **state) {
    (void)state;
    rig_open(&(struct sched_config){0});
    return 0;
}
static int close_rig(void **state) {
    (void)state;
    rig_close();
    request_free(&a);
    request_free(&b);
    request_free(&c);
    return 0;
}
static void start(struct request *q, int64_t rows) {
    struct job_spec spec = request_spec(q, rows, 0);
    request_start(q, &spec);
}
// The calls that a first run makes, in order.
static const struct {
    uint32_t type;
    enum job_row row;
    const char *doing;
} calls[] = {
    {HLOD__WIRE__TYPE__TYPE_INGEST, ROW_MODEL, "reading the model"},
    {HLOD__WIRE__TYPE__TYPE_COMPILE, ROW_EXECUTABLE, "compiling"},
    {HLOD__WIRE__TYPE__TYPE_LOAD, ROW_PREPARED, "preparing weights"},
    {HLOD__WIRE__TYPE__TYPE_PREPARE, ROW_PREPARED, "preparing weights"},
    {HLOD__WIRE__TYPE__TYPE_RUN, ROW_REPLY, "running"},
};
enum { CALLS = sizeof calls / sizeof *calls };
// Until the call is under way, with all before it answered.
static void reach(int call) {
    for (int i = 0; i < call; i++)
        serve(calls[i].type);
    UNTIL(fake_find(calls[call].type));
}

// ---- rows

static void rows_in_order(void **state) {
    (void)state;
    start(&a, 3);
    assert_int_equal(fake.last_call, 0); // nothing from inside job_start
    for (int i = 0; i < CALLS; i++) {
        UNTIL(fake_find(calls[i].type));
        assert_int_equal(fake.calls.n, 1);
        assert_int_equal(a.j->at, calls[i].row);
        assert_false(job_has(a.j, calls[i].row));
        for (int row = 0; row < (int)calls[i].row; row++)
            assert_true(job_has(a.j, (enum job_row)row) || !(job_kind(a.j)->rows & 1u << row));
        assert_string_equal(job_doing(a.j), calls[i].doing);
        serve(calls[i].type);
    }
    ended(&a, ST_CODE_OK, 0);
    assert_string_equal(a.events, "ingest compiling pass compiled queued prepared running");
    const Hlod__Wire__Blob *y = job_result(a.j)->reply->outputs[0]->data;
    assert_memory_equal(y->inline_bytes.data, ((float[]){1, 2, 3}), 12);
    assert_int_equal(rig.device->place.calls, 0); // the slot is free again
}

static void nothing_is_done_twice(void **state) {
    (void)state;
    start(&a, 3);
    serve_all(&a);
    start(&b, 3);
    serve_all(&b);
    ended(&b, ST_CODE_OK, 0);
    assert_string_equal(b.events, "ingest compiled queued running");
    assert_true(job_result(b.j)->cache_hit);
    assert_int_equal(fake.made[HLOD__WIRE__TYPE__TYPE_RUN], 2);
    for (int i = 0; i < CALLS - 1; i++)
        assert_int_equal(fake.made[calls[i].type], 1);
}

static void kinds_end_at_their_last_row(void **state) {
    (void)state;
    struct job_spec spec = request_spec(&a, 3, 0);
    spec.kind = JOB_INGEST;
    request_start(&a, &spec);
    serve_all(&a);
    ended(&a, ST_CODE_OK, 0);
    assert_string_equal(a.events, "ingest");
    assert_int_equal(fake.last_call, 1);
}

// ---- several that wait for one

static bool has_timing(const struct request *q, const char *name) {
    const struct job_result *r = job_result(q->j);
    for (size_t i = 0; i < r->n_timings; i++)
        if (!strcmp(r->timings[i]->name, name)) return true;
    return false;
}

static void waiters_share_each_row(void **state) {
    (void)state;
    rig.device->place.max_calls = 3;
    start(&a, 3);
    start(&b, 3);
    start(&c, 3);
    settle(); // all have asked for the model
    reach(1);
    settle();
    for (int i = 1; i < 4; i++) {
        assert_int_equal(fake.calls.n, 1);
        serve(calls[i].type);
        settle();
    }
    assert_int_equal(fake.calls.n, 3); // the runs are each one's own
    serve_all(&a);
    serve_all(&b);
    serve_all(&c);
    ended(&a, ST_CODE_OK, 0);
    ended(&b, ST_CODE_OK, 0);
    ended(&c, ST_CODE_OK, 0);
    assert_string_equal(b.events, a.events);
    static const char *const names[] = {"ingest", "compile", "prepare", "run"};
    for (int i = 0; i < 4; i++) // delivered to each, not found by who looked again
        assert_true(has_timing(&a, names[i]) && has_timing(&b, names[i]) &&
                    has_timing(&c, names[i]));
}
// Who leaves costs the others nothing, neither the first nor another.
static void a_waiter_leaves(void **state) {
    (void)state;
    start(&a, 3);
    start(&b, 3);
    reach(1);
    settle(); // b waits for the compile too
    job_cancel(a.j);
    settle();
    assert_false(fake_find(HLOD__WIRE__TYPE__TYPE_COMPILE)->cancelled);
    serve_all(&b);
    ended(&b, ST_CODE_OK, 0);
    assert_int_equal(a.done, 0);
    assert_int_equal(fake.made[HLOD__WIRE__TYPE__TYPE_COMPILE], 1);
}
static void an_error_is_each_waiters(void **state) {
    (void)state;
    start(&a, 3);
    start(&b, 3);
    reach(1);
    settle();
    serve_error(HLOD__WIRE__TYPE__TYPE_COMPILE, ST_UNIMPLEMENTED,
                HLOD__V1__REASON__REASON_UNSUPPORTED_OP);
    ended(&a, ST_UNIMPLEMENTED, HLOD__V1__REASON__REASON_UNSUPPORTED_OP);
    ended(&b, ST_UNIMPLEMENTED, HLOD__V1__REASON__REASON_UNSUPPORTED_OP);
    assert_string_equal(st_message(b.st), "the worker's words");
}

// ---- back to a row

static void lost_before_it_began(void **state) {
    (void)state;
    start(&a, 3);
    for (int life = 0; life < 3; life++) { // the first place and two more
        for (int i = life ? 2 : 0; i < 4; i++)
            serve(calls[i].type);
        UNTIL(fake_find(HLOD__WIRE__TYPE__TYPE_RUN));
        assert_int_equal(a.done, 0);
        fake_lose(rig.device);
    }
    ended(&a, ST_UNAVAILABLE, HLOD__V1__REASON__REASON_WORKER_LOST);
    assert_int_equal(fake.made[HLOD__WIRE__TYPE__TYPE_RUN], 3);
    assert_int_equal(fake.made[HLOD__WIRE__TYPE__TYPE_COMPILE], 1); // that row held
}
// What had begun may be what ended the worker: it is not tried again.
static void lost_after_it_began(void **state) {
    (void)state;
    start(&a, 3);
    reach(4);
    rig.device->began = fake_find(HLOD__WIRE__TYPE__TYPE_RUN)->id;
    fake_lose(rig.device);
    ended(&a, ST_UNAVAILABLE, HLOD__V1__REASON__REASON_WORKER_LOST);
    assert_int_equal(fake.made[HLOD__WIRE__TYPE__TYPE_RUN], 1);
}

static void evicted(int times) {
    for (int i = 0; i < times; i++) {
        if (i) serve(HLOD__WIRE__TYPE__TYPE_LOAD);
        if (i) serve(HLOD__WIRE__TYPE__TYPE_PREPARE);
        serve_error(HLOD__WIRE__TYPE__TYPE_RUN, ST_NOT_FOUND,
                    HLOD__V1__REASON__REASON_EXECUTABLE_NOT_FOUND);
    }
}
static void loads_again(void **state) {
    (void)state;
    start(&a, 3);
    reach(4);
    evicted(2);
    serve_all(&a);
    ended(&a, ST_CODE_OK, 0);
    assert_int_equal(fake.made[HLOD__WIRE__TYPE__TYPE_LOAD], 3);
    assert_int_equal(fake.made[HLOD__WIRE__TYPE__TYPE_COMPILE], 1);
}
static void loads_again_twice_at_most(void **state) {
    (void)state;
    start(&a, 3);
    reach(4);
    evicted(3);
    ended(&a, ST_NOT_FOUND, HLOD__V1__REASON__REASON_EXECUTABLE_NOT_FOUND);
    assert_int_equal(rig.device->place.calls, 0);
}

static void remove_entry(enum store_kind kind, struct digest key) {
    assert_null(store_remove(rig.store, kind, key));
}
// An executable whose file is gone is compiled again, three times at most.
static void compiles_again_three_times_at_most(void **state) {
    (void)state;
    start(&a, 3);
    serve(HLOD__WIRE__TYPE__TYPE_INGEST);
    for (int i = 0; i < 4; i++) {
        UNTIL(fake_find(HLOD__WIRE__TYPE__TYPE_COMPILE));
        rig.device->place.ready = false; // it waits for its place while the file goes
        serve(HLOD__WIRE__TYPE__TYPE_COMPILE);
        UNTIL(task_waits(&a.j->task));
        remove_entry(STORE_EXECUTABLE, a.j->key.digest);
        rig.device->place.ready = true;
        fake_tell();
    }
    UNTIL(a.done);
    ended(&a, ST_NOT_FOUND, 0);
    assert_int_equal(fake.made[HLOD__WIRE__TYPE__TYPE_COMPILE], 4);
    assert_int_equal(fake.made[HLOD__WIRE__TYPE__TYPE_INGEST], 1);
}
// A program whose file is gone is read again from the model, once.
static void reads_again_once(void **state) {
    (void)state;
    start(&a, 3);
    for (int i = 0; i < 2; i++) {
        UNTIL(fake_find(HLOD__WIRE__TYPE__TYPE_INGEST));
        rig.compiler->place.ready = false;
        serve(HLOD__WIRE__TYPE__TYPE_INGEST);
        UNTIL(a.j->op && task_waits(&a.j->op->task));
        assert_string_equal(job_doing(a.j), "waiting for a compile worker");
        remove_entry(STORE_PROGRAM, a.j->model->program);
        rig.compiler->place.ready = true;
        fake_tell();
    }
    UNTIL(a.done);
    ended(&a, ST_DATA_LOSS, HLOD__V1__REASON__REASON_CACHE_DAMAGED);
    assert_int_equal(fake.made[HLOD__WIRE__TYPE__TYPE_COMPILE], 0);
}

// A row's limit counts whatever the job went back for; what lies behind the row is given up.
static void one_count_of_retries(void **state) {
    (void)state;
    start(&a, 3);
    reach(4);
    assert_true(job_invalidate(a.j, ROW_PREPARED));
    assert_true(job_has(a.j, ROW_SLOT));
    assert_false(job_has(a.j, ROW_PREPARED));
    assert_true(job_invalidate(a.j, ROW_SLOT));
    assert_false(job_has(a.j, ROW_SLOT));
    assert_false(job_invalidate(a.j, ROW_MODEL));     // 2 of 1
    assert_false(job_invalidate(a.j, ROW_PREPARED));  // 2 of 2
    assert_true(job_has(a.j, ROW_EXECUTABLE));        // nothing was changed
    assert_true(job_invalidate(a.j, ROW_EXECUTABLE)); // 2 of 3
    assert_true(job_has(a.j, ROW_KEY));
    assert_null(job_result(a.j)->exe);
    assert_false(job_invalidate(a.j, ROW_EXECUTABLE));
    job_repeat(a.j, ROW_EXECUTABLE); // the work itself goes on: counted anew
    assert_int_equal(a.j->retries, 0);
    job_cancel(a.j);
}

// ---- the end

// At each row: the call is cancelled, nobody is told, the slot is held until the worker answers.
static void cancel_at_each_row(void **state) {
    (void)state;
    for (int i = 0; i < CALLS; i++) {
        bool device = calls[i].row > ROW_CHECKED;
        struct worker *w = device ? rig.device : rig.compiler;
        start(&a, i + 1); // an executable of its own
        for (int k = i ? 1 : 0; k < i; k++)
            serve(calls[k].type);
        UNTIL(fake_find(calls[i].type));
        job_cancel(a.j);
        request_free(&a);
        settle();
        struct fake_call *call = fake_find(calls[i].type);
        assert_true(call->cancelled);
        assert_int_equal(w->place.calls, 1);
        assert_int_equal(sched_active(rig.s), 0);
        serve_error(calls[i].type, ST_CANCELLED, 0);
        settle();
        assert_int_equal(w->place.calls, 0);
        assert_int_equal(a.done, 0);
        if (i) continue;
        start(&b, 8); // so that what follows knows the model
        serve_all(&b);
    }
}

// A deadline far away; `passes` lets it pass where the job stands.
static void start_late(struct request *q, int64_t rows) {
    struct job_spec spec = request_spec(q, rows, 0);
    spec.timeout_ms = 60000;
    request_start(q, &spec);
}
static void passes(struct request *q, const char *doing) {
    char text[100];
    loop_timer_start(q->j->deadline, 0);
    UNTIL(q->done);
    ended(q, ST_DEADLINE_EXCEEDED, HLOD__V1__REASON__REASON_DEADLINE);
    snprintf(text, sizeof text, "the deadline of 60000 ms passed while %s", doing);
    assert_string_equal(st_message(q->st), text);
}
static void deadline_at_each_row(void **state) {
    (void)state;
    for (int i = 0; i < CALLS; i++) {
        start_late(&a, i + 1);
        for (int k = i ? 1 : 0; k < i; k++)
            serve(calls[k].type);
        UNTIL(fake_find(calls[i].type));
        passes(&a, calls[i].doing);
        serve_error(calls[i].type, ST_CANCELLED, 0);
        settle();
        request_free(&a);
        assert_int_equal(rig.device->place.calls + rig.compiler->place.calls, 0);
        if (i) continue;
        start(&b, 8);
        serve_all(&b);
    }
}
static void deadline_in_the_queue(void **state) {
    (void)state;
    rig.device->place.ready = false;
    start_late(&a, 3);
    serve(HLOD__WIRE__TYPE__TYPE_INGEST);
    serve(HLOD__WIRE__TYPE__TYPE_COMPILE);
    UNTIL(task_waits(&a.j->task));
    passes(&a, "waiting for a device worker");
    assert_int_equal(rig.s->queue[ROLE_DEVICE].n, 0);
}

static void stopping_ends_all(void **state) {
    (void)state;
    start(&a, 3);
    start(&b, 4);
    reach(0);
    sched_stop(rig.s);
    ended(&a, ST_UNAVAILABLE, HLOD__V1__REASON__REASON_SHUTTING_DOWN);
    ended(&b, ST_UNAVAILABLE, HLOD__V1__REASON__REASON_SHUTTING_DOWN);
    assert_int_equal(sched_active(rig.s), 0);
}

static void what_is_wrong_with_a_request(void **state) {
    (void)state;
    struct job_spec spec = request_spec(&a, 3, 0);
    a.in.name = "z";
    request_start(&a, &spec);
    serve_all(&a);
    ended(&a, ST_INVALID_ARGUMENT, HLOD__V1__REASON__REASON_UNKNOWN_INPUT);
    spec = request_spec(&b, 3, 0);
    spec.model.b[0] ^= 1;
    request_start(&b, &spec);
    UNTIL(b.done);
    ended(&b, ST_NOT_FOUND, HLOD__V1__REASON__REASON_MODEL_NOT_FOUND);
    spec = request_spec(&c, 3, 0);
    spec.no_compile = true;
    request_start(&c, &spec);
    UNTIL(c.done);
    ended(&c, ST_FAILED_PRECONDITION, HLOD__V1__REASON__REASON_WOULD_COMPILE);
    assert_int_equal(fake.made[HLOD__WIRE__TYPE__TYPE_COMPILE], 0);
}

// A worker may say anything of memory: sums of it stay in range.
static void memory_that_no_device_has(void **state) {
    (void)state;
    int64_t usual = answer_bytes;
    answer_bytes = INT64_MAX;
    rig.device->place.memory_bytes = 1 << 30;
    start(&a, 3);
    reach(1);
    serve(HLOD__WIRE__TYPE__TYPE_COMPILE);
    UNTIL(a.done);
    ended(&a, ST_RESOURCE_EXHAUSTED, HLOD__V1__REASON__REASON_DEVICE_MEMORY);

    rig.device->place.memory_bytes = 0; // a device that does not say what it has
    start(&b, 3);
    serve_all(&b);
    ended(&b, ST_CODE_OK, 0);
    answer_bytes = usual;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, open_rig, close_rig)
int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(rows_in_order),
        TEST(nothing_is_done_twice),
        TEST(kinds_end_at_their_last_row),
        TEST(waiters_share_each_row),
        TEST(a_waiter_leaves),
        TEST(an_error_is_each_waiters),
        TEST(lost_before_it_began),
        TEST(lost_after_it_began),
        TEST(loads_again),
        TEST(loads_again_twice_at_most),
        TEST(compiles_again_three_times_at_most),
        TEST(reads_again_once),
        TEST(one_count_of_retries),
        TEST(cancel_at_each_row),
        TEST(deadline_at_each_row),
        TEST(deadline_in_the_queue),
        TEST(stopping_ends_all),
        TEST(what_is_wrong_with_a_request),
        TEST(memory_that_no_device_has),
    };
    return rig_main(tests);
}
