// SPDX-License-Identifier: Apache-2.0
// The compute pool: every piece of a region is done once, whoever does it; the library's regions
// are on it while a run goes on and on OpenMP's threads otherwise; where threads move to.
#include <omp.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "devices/cpu/cpu_pool.h"

void GOMP_parallel(void (*fn)(void *), void *data, unsigned threads, unsigned flags);
void GOMP_barrier(void);

#if defined(__SANITIZE_THREAD__) // does not see libgomp's joins, and wants no threads after a fork
enum { TSAN = true };
#else
enum { TSAN = false };
#endif
enum { MOST = 5000 };
struct seen {
    _Atomic int times[MOST];
    int threads; // of the caller: OpenMP keeps the number by thread
    _Atomic int bad; // thread numbers out of range, or two on one at a time
    _Atomic bool used[POOL_THREADS];
};
static void mark(void *ctx, int64_t begin, int64_t end, int thread) {
    struct seen *s = ctx;
    if (thread < 0 || thread >= s->threads) {
        s->bad++;
        return;
    }
    if (atomic_exchange(&s->used[thread], true)) s->bad++;
    for (int64_t k = begin; k < end; k++)
        s->times[k]++;
    atomic_store(&s->used[thread], false);
}
static bool once_each(int64_t extent, int64_t grain) {
    static struct seen s;
    memset(&s, 0, sizeof s);
    s.threads = cpu_threads();
    cpu_parallel(mark, &s, extent, grain);
    for (int64_t k = 0; k < extent; k++)
        if (s.times[k] != 1) return false;
    return !s.bad && s.times[extent] == 0;
}

static void test_each_piece_once(void **state) {
    (void)state;
    int was = cpu_use_threads(3);
    for (int64_t extent = 0; extent < 40; extent++)
        for (int64_t grain = 0; grain < 9; grain++)
            assert_true(once_each(extent, grain));
    for (int k = 0; k < 2000; k++) { // sleeps come in between
        assert_true(once_each(1 + k * 7 % (MOST - 1), 1 + k % 50));
        if (k % 200 == 0) usleep(2000);
    }
    cpu_use_threads(was);
}
// The number of threads goes down and up again: scratch is by thread number.
static void test_fewer_threads(void **state) {
    (void)state;
    int was = cpu_use_threads(5);
    for (int k = 0; k < 200; k++) {
        cpu_use_threads(1 + k % 5);
        assert_true(once_each(1000, 1));
    }
    cpu_use_threads(was);
}

// A piece that divides its own work does it alone, and the library's too.
static void count(void *ctx, int64_t begin, int64_t end, int thread) {
    *(_Atomic int *)ctx += (int)(end - begin) * (thread == 0 ? 1 : 1000);
}
static void not_two(void *ctx) {
    if (omp_get_num_threads() != 1 || omp_get_thread_num() != 0) *(_Atomic int *)ctx += 1000;
}
static void divide_again(void *ctx, int64_t begin, int64_t end, int thread) {
    (void)thread;
    for (int64_t k = begin; k < end; k++) {
        cpu_parallel(count, ctx, 100, 1);
        if (!omp_in_parallel() || omp_get_max_threads() != 1) *(_Atomic int *)ctx += 1000;
        int was = cpu_use_threads(5); // is kept, and does not show before the piece has ended
        if (omp_get_max_threads() != 1 || cpu_use_threads(was) != 5) *(_Atomic int *)ctx += 1000;
        GOMP_parallel(not_two, ctx, 2, 0);
    }
}
static void test_nested(void **state) {
    (void)state;
    _Atomic int sum = 0;
    int was = cpu_use_threads(3);
    for (int k = 0; k < 100; k++)
        cpu_parallel(divide_again, &sum, 8, 1);
    assert_int_equal(omp_get_max_threads(), 3);
    cpu_use_threads(was);
    assert_int_equal(sum, 100 * 8 * 100);
    assert_false(cpu_pool_inside());
}

struct team {
    _Atomic int started, bad;
    _Atomic int by_number[8];
    int n;
};
static void one_of_none(void *data) {
    struct team *t = data;
    if (omp_get_num_threads() != 1 || omp_get_thread_num() != 0) t->bad++;
}
static void one_of_team(void *data) {
    struct team *t = data;
    int k = omp_get_thread_num();
    if (omp_get_num_threads() != t->n || !omp_in_parallel() || k < 0 || k >= t->n) {
        t->bad++;
        return;
    }
    t->by_number[k]++;
    t->started++;
    GOMP_barrier();
    if (t->started != t->n) t->bad++;
    GOMP_barrier();
    GOMP_parallel(one_of_none, t, 4, 0);
    if (omp_get_thread_num() != k) t->bad++;
}
static void check_team(int n) {
    struct team t = {.n = n};
    GOMP_parallel(one_of_team, &t, (unsigned)n, 0);
    assert_int_equal(t.bad, 0);
    for (int k = 0; k < n; k++)
        assert_int_equal(t.by_number[k], 1);
    assert_int_equal(omp_get_num_threads(), 1);
    assert_false(omp_in_parallel());
}
static void test_library_regions(void **state) {
    (void)state;
    if (!TSAN) check_team(2); // OpenMP's own
    assert_true(cpu_pool_begin(true));
    for (int k = 0; k < 300; k++) {
        check_team(2 + k % 3);
        if (k % 100 == 0) usleep(2000);
        assert_true(once_each(200, 1));
    }
    cpu_pool_end();
    assert_false(cpu_pool_is_mine());
    if (!TSAN) check_team(2);
}

static void meet(void *ctx, int k) {
    _Atomic int *met = ctx;
    (void)k;
    ++*met;
    while (*met < 2)
        sched_yield();
}

// A second thread while the pool is taken: works alone, and the library by OpenMP's threads.
static void *second(void *arg) {
    bool *ok = arg;
    *ok = !cpu_pool_begin(true) && !cpu_pool_is_mine() && once_each(1000, 1);
    struct team t = {.n = 2};
    if (TSAN) return NULL;
    GOMP_parallel(one_of_team, &t, 2, 0);
    *ok &= t.bad == 0 && t.started == 2;
    return NULL;
}
static void test_one_owner(void **state) {
    (void)state;
    pthread_t t;
    bool ok = false;
    assert_true(cpu_pool_begin(false));
    assert_true(cpu_pool_begin(false)); // nests
    cpu_pool_end();
    assert_int_equal(pthread_create(&t, NULL, second, &ok), 0);
    pthread_join(t, NULL);
    assert_true(ok);
    cpu_pool_end();
    assert_true(cpu_pool_begin(false));
    cpu_pool_end();
}

static void test_fork(void **state) {
    (void)state;
    int how;
    if (TSAN) skip();
    assert_true(once_each(1000, 1));
    pid_t pid = fork();
    if (pid == 0) {
        alarm(20);
        cpu_use_threads(2);
        _exit(once_each(1000, 1) ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &how, 0), pid);
    assert_int_equal(how, 0);
}

// A region after the other of one kind, from *now on until the pace has its owner work alone or 1 s
// of work has gone by. Gives how long that took.
static int64_t until_alone(struct cpu_pace *p, int64_t *now, int64_t own_ns, int64_t waited_ns) {
    int64_t start = *now;
    while (!cpu_pace_alone(p, *now) && *now - start < 1000000000)
        cpu_pace_saw(p, *now += own_ns + waited_ns, 1, 1, own_ns, waited_ns);
    return *now - start;
}
static void test_pace(void **state) {
    (void)state;
    enum { US = 1000, MS = 1000000 };
    struct cpu_pace p = {0};
    int64_t now = 1;
    // Others as fast as the owner, or nearly; or late, but worth it; or not there at all.
    assert_true(until_alone(&p, &now, 100 * US, 0) >= 1000 * MS);
    assert_true(until_alone(&p, &now, 100 * US, 80 * US) >= 1000 * MS);
    for (int k = 0; k < 10000; k++)
        cpu_pace_saw(&p, now += 100 * US, 2, 0, 100 * US, 0);
    assert_false(cpu_pace_alone(&p, now));
    // A single long wait is chance.
    cpu_pace_saw(&p, now += 6 * MS, 1, 1, 100 * US, 6 * MS);
    assert_false(cpu_pace_alone(&p, now));
    assert_true(until_alone(&p, &now, 100 * US, 10 * US) >= 1000 * MS);
    // One for each share of the owner's is not: alone soon, and longer each time.
    assert_true(until_alone(&p, &now, 500 * US, 3 * MS) < 20 * MS);
    int64_t alone = 0;
    for (int k = 0; k < 10; k++) {
        int64_t rest = p.alone_until_ns - now;
        assert_true(rest >= alone && rest <= 1000 * MS);
        alone = rest;
        now = p.alone_until_ns;
        assert_true(until_alone(&p, &now, 500 * US, 3 * MS) < 10 * MS);
    }
    assert_int_equal(alone, 1000 * MS);
    // Good times again: all of that is forgotten.
    now = p.alone_until_ns;
    assert_true(until_alone(&p, &now, 100 * US, 0) >= 1000 * MS);
    assert_int_equal(p.rest_ns, 0);
}
// The owner works alone: others are not woken, nor needed, but come where a region wants them.
static void test_alone(void **state) {
    (void)state;
    alarm(60);
    int was = cpu_use_threads(2);
    assert_true(cpu_pool_begin(true));
    cpu_pool_alone(100000000000); // longer than the alarm
    for (int k = 0; k < 100; k++)
        assert_true(once_each(1000, 1));
    for (int k = 0; k < 20; k++)
        check_team(2); // its barrier calls the other
    assert_true(cpu_pool_begin(true));
    cpu_pool_end();
    usleep(20000); // the other sleeps, and the region that it was called to is over
    _Atomic int met = 0;
    cpu_pool_alone(500000000);
    cpu_pool_team(meet, &met, 2); // as the library's own barriers: nobody is called
    assert_int_equal(met, 2);
    cpu_pool_end();
    cpu_pool_alone(0);
    cpu_use_threads(was);
    alarm(0);
}

static cpu_set_t set_of(const char *cpus) {
    cpu_set_t s;
    CPU_ZERO(&s);
    for (int k = 0; cpus[k]; k++)
        if (cpus[k] == 'x') CPU_SET(k, &s);
    return s;
}
static void test_where_to(void **state) {
    (void)state;
    static const struct {
        int own;
        const char *allowed;
        int used[3];
        const char *to; // "" = stay
    } cases[] = {
        {0, "xx", {0, -1, -1}, ".x"},    {0, "xx", {1, -1, -1}, ""},
        {1, "xx", {1, -1, -1}, "x."},    {0, "xx", {0, 1, -1}, ""},
        {0, "x.", {0, -1, -1}, ""},      {0, "xx", {-1, -1, -1}, ""},
        {2, "xxxx", {2, 0, -1}, ".x.x"}, {2, "..xx", {2, 2, 3}, ""},
        {0, ".xx", {0, 1, -1}, "..x"},   {0, "xx", {0, CPU_SETSIZE, 7}, ".x"}};
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        cpu_set_t allowed = set_of(cases[k].allowed), want = set_of(cases[k].to), to;
        bool go = cpu_place_choose(cases[k].own, &allowed, cases[k].used, 3, &to);
        assert_int_equal(go, cases[k].to[0] != 0);
        if (go) assert_true(CPU_EQUAL(&to, &want));
    }
}
// Moved, and not pinned: the set is what it was.
static void test_move(void **state) {
    (void)state;
    cpu_set_t before, after, to;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    for (int c = 0; c < CPU_SETSIZE; c++) {
        if (!CPU_ISSET(c, &before)) continue;
        CPU_ZERO(&to);
        CPU_SET(c, &to);
        assert_true(cpu_place_move(&to));
        assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
        assert_true(CPU_EQUAL(&before, &after));
    }
    CPU_ZERO(&to);
    assert_false(cpu_place_move(&to));
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
    assert_true(CPU_EQUAL(&before, &after));
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_piece_once), cmocka_unit_test(test_fewer_threads),
        cmocka_unit_test(test_library_regions), cmocka_unit_test(test_one_owner),
        cmocka_unit_test(test_nested),          cmocka_unit_test(test_pace),
        cmocka_unit_test(test_alone),
        cmocka_unit_test(test_fork),            cmocka_unit_test(test_where_to),
        cmocka_unit_test(test_move)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
