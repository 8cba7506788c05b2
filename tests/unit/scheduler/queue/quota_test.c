// SPDX-License-Identifier: Apache-2.0
// The quota: a minute's worth at once, then one every minute / n, never more than that saved up.
#include "scheduler/queue/quota.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const int64_t second = 1000000000;

static void refills(void **state) {
    (void)state;
    struct quota q;
    int64_t wait = 0, now = 77;
    quota_init(&q, 6, now);
    for (int i = 0; i < 6; i++)
        assert_true(quota_take(&q, now, 1, &wait));
    assert_false(quota_take(&q, now, 1, &wait));
    assert_int_equal(wait, 10000);
    assert_false(quota_take(&q, now + 4 * second, 1, &wait));
    assert_int_equal(wait, 6000);
    assert_true(quota_take(&q, now + 10 * second, 1, &wait));
    assert_false(quota_take(&q, now + 10 * second, 1, &wait));
    now += 3600 * second; // an hour saves up one minute
    for (int i = 0; i < 6; i++)
        assert_true(quota_take(&q, now, 1, &wait));
    assert_false(quota_take(&q, now, 1, &wait));
    assert_false(quota_take(&q, now - second, 1, &wait)); // a clock that steps back gives nothing
}

static void no_limit(void **state) {
    (void)state;
    struct quota q;
    int64_t wait;
    quota_init(&q, 0, 0);
    for (int i = 0; i < 1000; i++)
        assert_true(quota_take(&q, 0, 1, &wait));
}

// Bytes: what is larger than a minute's worth goes when the bucket is full and is paid off after.
static void debt(void **state) {
    (void)state;
    struct quota q;
    int64_t wait = 0;
    quota_init(&q, 1000, 0);
    assert_true(quota_take(&q, 0, 3000, &wait));
    assert_false(quota_take(&q, 0, 1, &wait));
    assert_int_equal(wait, 120060);
    assert_true(quota_take(&q, 121 * second, 1, &wait));
    quota_charge(&q, 1000); // the reply
    assert_false(quota_take(&q, 122 * second, 500, &wait));
    quota_set(&q, 0);
    assert_true(quota_take(&q, 122 * second, 500, &wait));
    quota_init(&q, 1, 0);
    quota_charge(&q, INT64_MAX);
    quota_charge(&q, INT64_MAX);
    assert_false(quota_take(&q, second, 1, &wait));
    assert_true(wait > 0);
}

// ---- counted together: nodes that tell each other every two seconds, at times of their own, what
// they took, and share by what each was asked for

enum { NODES = 5, MINUTE = 600, STEP_MS = 20, BEAT_MS = 2000, WINDOW_MS = 2 * BEAT_MS };
struct fleet {
    struct quota q[NODES];
    int64_t told[NODES], want[NODES], wanted[NODES];
    int64_t passed[NODES], largest; // one request
    int n;
};
static void fleet_init(struct fleet *f, int n) {
    *f = (struct fleet){.n = n};
    for (int k = 0; k < n; k++) {
        quota_init(&f->q[k], MINUTE, 0);
        quota_share(&f->q[k], 0, QUOTA_ONE / n, WINDOW_MS * INT64_C(1000000));
    }
}
static void fleet_tell(struct fleet *f, int k, int64_t now) {
    int64_t more = f->q[k].taken - f->told[k], all = 0;
    f->told[k] = f->q[k].taken;
    f->want[k] += ((f->q[k].wanted - f->wanted[k]) * 1000 - f->want[k]) / 4;
    f->wanted[k] = f->q[k].wanted;
    for (int i = 0; i < f->n; i++) {
        all += f->want[i];
        if (i != k) quota_others(&f->q[i], now, more);
    }
    for (int i = 0; i < f->n; i++) {
        int64_t half = QUOTA_ONE / 2;
        int64_t share = all ? half / f->n + half * f->want[i] / all : QUOTA_ONE / f->n;
        quota_share(&f->q[i], now, (int32_t)share, WINDOW_MS * INT64_C(1000000));
    }
}
// asks[k]: requests of that node in each step. Most that was taken beyond what one bucket gives.
static int64_t fleet_run(struct fleet *f, int64_t from_ms, int64_t to_ms, const int *asks,
                         int64_t size) {
    int64_t excess = INT64_MIN, wait;
    for (int64_t ms = from_ms; ms < to_ms; ms += STEP_MS) {
        int64_t now = ms * 1000000, all = 0;
        for (int k = 0; k < f->n; k++) {
            if ((ms / STEP_MS + k * 17) % (BEAT_MS / STEP_MS) == 0) fleet_tell(f, k, now);
            for (int i = 0; i < asks[k]; i++)
                f->passed[k] += quota_take(&f->q[k], now, size, &wait) ? size : 0;
            all += f->passed[k];
        }
        int64_t one = MINUTE + MINUTE * ms / 60000;
        if (all - one > excess) excess = all - one;
    }
    return excess;
}
static int64_t all_passed(const struct fleet *f) {
    int64_t all = 0;
    for (int k = 0; k < f->n; k++)
        all += f->passed[k];
    return all;
}

// Together they take what one would: beside one request a node no more, and not much less; each
// gets a part of it; one that is asked alone has it all.
static void together(void **state) {
    (void)state;
    static const int even[NODES] = {1, 1, 1, 1, 1}, one[NODES] = {0, 0, 3, 0, 0};
    struct fleet f;
    fleet_init(&f, NODES);
    assert_true(fleet_run(&f, 0, 600000, even, 1) <= NODES);
    assert_true(all_passed(&f) >= 11 * MINUTE * 9 / 10);
    for (int k = 0; k < NODES; k++)
        assert_true(f.passed[k] >= all_passed(&f) / NODES / 2);

    int64_t before = f.passed[2], all = all_passed(&f);
    assert_true(fleet_run(&f, 600000, 1200000, one, 1) <= NODES);
    assert_int_equal(all_passed(&f) - all, f.passed[2] - before);
    assert_true(f.passed[2] - before >= 10 * MINUTE * 9 / 10);
}
// Who was idle has the whole minute's worth within some beats, wherever it is asked for.
static void at_once(void **state) {
    (void)state;
    static const int one[NODES] = {0, 40, 0, 0, 0};
    struct fleet f;
    fleet_init(&f, NODES);
    assert_true(fleet_run(&f, 0, 16000, one, 1) <= NODES);
    assert_true(f.passed[1] >= MINUTE * 95 / 100);
}
// A client that goes from node to node, to each when it gives most: what is taken too much at one
// time is owed afterwards, so it does not grow.
static void jumps(void **state) {
    (void)state;
    struct fleet f;
    fleet_init(&f, NODES);
    int64_t most = 0;
    for (int64_t ms = 0, k = 0; ms < 1800000; ms += 1300, k++) {
        int asks[NODES] = {0};
        asks[k % NODES] = 50;
        int64_t more = fleet_run(&f, ms, ms + 1300, asks, 1);
        if (more > most) most = more;
    }
    assert_true(most <= MINUTE / 4 + NODES);
    assert_true(all_passed(&f) >= 31 * MINUTE * 8 / 10);
}
// Requests larger than a share, and than the bucket.
static void large(void **state) {
    (void)state;
    static const int even[NODES] = {1, 1, 1, 1, 1};
    struct fleet f;
    fleet_init(&f, NODES);
    assert_true(fleet_run(&f, 0, 1200000, even, MINUTE / 2) <= NODES * MINUTE / 2);
    assert_true(all_passed(&f) >= 15 * MINUTE);
    fleet_init(&f, NODES);
    assert_true(fleet_run(&f, 0, 3600000, even, 2 * MINUTE) <= NODES * 2 * MINUTE);
    assert_true(all_passed(&f) >= 30 * MINUTE);
}
// Cut off from each other each has its part for itself; heard again, the whole is shared again.
static void cut_off(void **state) {
    (void)state;
    static const int even[NODES] = {1, 1, 1, 1, 1}, none[NODES] = {0};
    struct fleet f;
    int64_t wait;
    fleet_init(&f, NODES);
    for (int k = 0; k < NODES; k++)
        quota_cut(&f.q[k], 0, NODES);
    for (int64_t ms = 0; ms < 600000; ms += STEP_MS)
        for (int k = 0; k < NODES; k++)
            f.passed[k] += quota_take(&f.q[k], ms * 1000000, 1, &wait);
    assert_in_range(all_passed(&f), 11 * MINUTE * 95 / 100, 11 * MINUTE);
    for (int k = 0; k < NODES; k++) {
        quota_cut(&f.q[k], 600 * second, 0);
        f.told[k] = f.q[k].taken;
    }
    assert_true(fleet_run(&f, 600000, 900000, even, 1) <= NODES);
    fleet_run(&f, 900000, 1000000, none, 1); // all full
    assert_int_equal(quota_owed_us(&f.q[0], 1000 * second), 0);
    quota_owe(&f.q[0], 1000 * second, 59000000);
    assert_int_equal(quota_owed_us(&f.q[0], 1000 * second), 59000000);
    quota_owe(&f.q[0], 1000 * second, 1000000); // less than it is: nothing
    assert_int_equal(quota_owed_us(&f.q[0], 1000 * second), 59000000);
}
// What others say costs ten minutes at most, whatever they say.
static void said(void **state) {
    (void)state;
    static const int64_t bad[] = {INT64_MAX, INT64_MAX / 4, -INT64_MAX, INT64_MIN};
    struct quota q;
    int64_t wait;
    quota_init(&q, 600, 0);
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        quota_others(&q, 0, bad[k]);
        quota_others(&q, 0, bad[k]);
        assert_true(quota_owed_us(&q, 0) <= 660 * INT64_C(1000000));
    }
    quota_owe(&q, 0, INT64_MAX);
    assert_int_equal(quota_owed_us(&q, 0), 660 * INT64_C(1000000));
    assert_false(quota_take(&q, 600 * second, 1, &wait));
    assert_true(quota_take(&q, 601 * second, 1, &wait));
}

int main(void) {
    const struct CMUnitTest t[] = {
        cmocka_unit_test(refills),  cmocka_unit_test(no_limit), cmocka_unit_test(debt),
        cmocka_unit_test(together), cmocka_unit_test(at_once),  cmocka_unit_test(jumps),
        cmocka_unit_test(large),    cmocka_unit_test(cut_off),  cmocka_unit_test(said)};
    return cmocka_run_group_tests(t, NULL, NULL);
}
