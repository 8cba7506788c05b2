// SPDX-License-Identifier: Apache-2.0
// What tenants use at other nodes: what of it is taken from their buckets here, how places are
// divided, whose batch jobs are next; what is refused, and that all of it is forgotten.
#include "scheduler/cluster/use.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/str.h"
#include "proto/message.h"
#include "scheduler/cluster/nodes.h"
#include "scheduler/queue/tenant.h"

struct site {
    struct tenants tenants;
    struct nodes nodes;
    struct use *use;
    struct arena arena;
    int sent, room;
    uint64_t number;
    size_t told;
    char last[64]; // tenant that was told
};
static void on_send(void *ctx, Hlod__Cluster__Use *m) {
    struct site *s = ctx;
    assert_null(use_fault(m));
    s->sent++;
    s->told = m->n_tenants;
    snprintf(s->last, sizeof s->last, "%s", m->tenants[m->n_tenants - 1]->tenant);
}
static void on_room(void *ctx) {
    ((struct site *)ctx)->room++;
}
static void node(struct site *s, const char *name, const char *life, const char *state) {
    struct arena *a = arena_new();
    Hlod__V1__Node *m = message_new(a, &hlod__v1__node__descriptor);
    m->node = arena_strdup(a, name);
    m->life = arena_strdup(a, life);
    m->state = arena_strdup(a, state);
    m->beat_ms = 60000;
    m->proved = true;
    nodes_hear(&s->nodes, a, m, clock_ns());
}
static struct site *begin(const char *rules) {
    struct site *s = arena_must_calloc(1, sizeof *s);
    assert_null(tenants_set(&s->tenants, rules));
    s->use = use_new(&(struct use_config){.tenants = &s->tenants,
                                          .nodes = &s->nodes,
                                          .node = "m",
                                          .life = "ours",
                                          .beat_ms = 60000,
                                          .send = on_send,
                                          .room = on_room,
                                          .ctx = s});
    use_connected(s->use, true);
    return s;
}
static void end(struct site *s) {
    use_stop(s->use);
    use_free(s->use);
    nodes_done(&s->nodes);
    tenants_done(&s->tenants);
    arena_done(&s->arena);
    free(s);
}
static Hlod__Cluster__TenantUse *one(struct site *s, const char *tenant) {
    Hlod__Cluster__TenantUse *t = message_new(&s->arena, &hlod__cluster__tenant_use__descriptor);
    t->tenant = arena_strdup(&s->arena, tenant);
    return t;
}
static void hear(struct site *s, const char *name, const char *life, Hlod__Cluster__TenantUse *t) {
    Hlod__Cluster__Use m = HLOD__CLUSTER__USE__INIT;
    m.node = (char *)(uintptr_t)name;
    m.life = (char *)(uintptr_t)life;
    m.number = ++s->number;
    m.tenants = &t;
    m.n_tenants = 1;
    assert_null(use_fault(&m));
    use_hear(s->use, &m);
}
static void took(struct site *s, const char *name, const char *life, int64_t before, int64_t runs) {
    Hlod__Cluster__TenantUse *t = one(s, "a");
    t->runs_before = before;
    t->runs = runs;
    hear(s, name, life, t);
}
static int64_t left(struct site *s) {
    return quota_left(&tenants_get(&s->tenants, "a", clock_ns())->runs, clock_ns());
}

static void counted(void **state) {
    (void)state;
    struct site *s = begin("a:runs=100000000");
    const int64_t some = 20000000, all = 100000000, much = 8000000; // much: more than is refilled
    took(s, "b", "1", 0, some);                                     // not known: not heard
    assert_true(left(s) > all - much);
    node(s, "b", "1", "serving");
    took(s, "b", "2", 0, some); // another process
    assert_true(left(s) > all - much);
    took(s, "b", "1", 5 * some, 6 * some); // what it took before we knew it is over
    assert_in_range(left(s), all - some, all - some + much);
    took(s, "b", "1", 6 * some, 7 * some);
    assert_in_range(left(s), all - 2 * some, all - 2 * some + much);
    s->number--;
    took(s, "b", "1", 6 * some, 7 * some); // a second time
    assert_in_range(left(s), all - 2 * some, all - 2 * some + much);
    took(s, "b", "1", 8 * some, 9 * some); // one was lost between
    assert_in_range(left(s), all - 4 * some, all - 4 * some + much);
    took(s, "b", "1", 9 * some, 8 * some); // given back
    assert_in_range(left(s), all - 3 * some, all - 3 * some + much);
    took(s, "b", "1", 0, 0); // its tenant was forgotten there, and came again
    took(s, "b", "1", 0, some);
    assert_in_range(left(s), all - 4 * some, all - 4 * some + much);

    // One that is new here says what its bucket lacks.
    Hlod__Cluster__TenantUse *t = one(s, "a");
    t->runs_owed_us = 59000000;
    node(s, "c", "1", "serving");
    hear(s, "c", "1", t);
    assert_true(left(s) < all - 4 * some);
    t->runs_owed_us = 0;
    hear(s, "c", "1", t);
    assert_true(left(s) < all - 4 * some);
    end(s);
}

static void shares(void **state) {
    (void)state;
    struct site *s = begin("a:runs=600:bytes=1000,b:places=2");
    struct tenant *a = tenants_get(&s->tenants, "a", clock_ns());
    use_beat(s->use);
    assert_int_equal(a->runs.share, 0); // alone
    node(s, "b", "1", "serving");
    node(s, "c", "1", "serving");
    use_beat(s->use);
    assert_in_range(a->runs.share, 333333, 333334);
    Hlod__Cluster__TenantUse *t = one(s, "a");
    t->want_runs = 1000;
    hear(s, "b", "1", t);
    assert_in_range(a->runs.share, 166666, 166667);
    assert_in_range(a->bytes.share, 333333, 333334);
    assert_null(tenants_set(&s->tenants, "a:runs=600:bytes=1000,b:places=2,new:runs=3"));
    assert_in_range(tenants_get(&s->tenants, "new", clock_ns())->runs.share, 333333, 333334);
    assert_int_equal(tenants_get(&s->tenants, "b", clock_ns())->elsewhere.counts, 1);
    node(s, "c", "1", "gone");
    use_lost(s->use, "c");
    assert_in_range(a->runs.share, 250000, 250000);
    use_connected(s->use, false);
    assert_int_equal(a->runs.parts, 2);
    use_connected(s->use, true);
    assert_int_equal(a->runs.parts, 0);
    use_lost(s->use, "b");
    node(s, "b", "1", "gone");
    use_beat(s->use);
    assert_int_equal(a->runs.share, 0);
    assert_int_equal(a->elsewhere.counts, 0);
    end(s);
}

static int want(struct site *s, const char *name, int places, int want) {
    Hlod__Cluster__TenantUse *t = one(s, "a");
    t->places = places;
    t->want_places = want;
    hear(s, name, "1", t);
    return tenants_get(&s->tenants, "a", clock_ns())->elsewhere.may_places;
}
// Parts of a tenant's places make the whole, whoever looks: the same three nodes as each of them.
static void places(void **state) {
    (void)state;
    for (int most = 1; most <= 9; most++)
        for (int w = 0; w < 1000; w++) {
            const char *const names[] = {"g", "m", "z"};
            const int wants[] = {w % 10, w / 10 % 10, w / 100};
            int64_t sum = 0;
            char rules[32];
            snprintf(rules, sizeof rules, "a:places=%d", most);
            for (int self = 0; self < 3 && (w % 37 == 0 || w == 999); self++) {
                struct site *s = arena_must_calloc(1, sizeof *s);
                assert_null(tenants_set(&s->tenants, rules));
                s->use = use_new(&(struct use_config){.tenants = &s->tenants,
                                                      .nodes = &s->nodes,
                                                      .node = names[self],
                                                      .life = "ours",
                                                      .beat_ms = 60000,
                                                      .send = on_send,
                                                      .room = on_room,
                                                      .ctx = s});
                use_connected(s->use, true);
                struct tenant *a = tenants_get(&s->tenants, "a", clock_ns());
                a->told.want_places = wants[self];
                a->told.part = most;
                int part = 0;
                for (int k = 0; k < 3; k++)
                    if (k != self) node(s, names[k], "1", "serving");
                for (int k = 0; k < 3; k++)
                    if (k != self) part = want(s, names[k], 0, wants[k]);
                if (wants[0] + wants[1] + wants[2] <= most) assert_true(part >= wants[self]);
                sum += part;
                end(s);
            }
            if (w % 37 == 0 || w == 999) assert_int_equal(sum, most);
        }
    struct site *s = begin("a:places=4");
    struct tenant *a = tenants_get(&s->tenants, "a", clock_ns());
    node(s, "b", "1", "serving");
    a->told.want_places = 1;
    assert_int_equal(want(s, "b", 0, 1), 0); // not before our second beat
    use_beat(s->use);
    a->told.want_places = 4; // as if it was told with that beat
    assert_int_equal(want(s, "b", 0, 0), 2);
    use_beat(s->use); // told: half of that, nothing being taken
    assert_int_equal(a->told.want_places, 2);
    a->told.want_places = 4;
    assert_int_equal(want(s, "b", 0, 0), 3);
    assert_int_equal(want(s, "b", 0, 9), 2); // less at once
    a->told.part = 4;
    a->told.want_places = 1;
    assert_int_equal(want(s, "b", 9, 9), 1);
    assert_int_equal(a->elsewhere.places, 9);
    assert_true(tenant_may_place(a)); // one always
    a->places = 1;
    assert_false(tenant_may_place(a));
    assert_int_equal(want(s, "b", 1, 1), 2);
    assert_true(tenant_may_place(a));
    assert_int_equal(want(s, "b", 3, 1), 2);
    assert_false(tenant_may_place(a)); // as long as they are taken there
    use_connected(s->use, false);
    assert_int_equal(a->elsewhere.may_places, 2);
    assert_true(s->room > 0);
    end(s);
}

static void batch(struct site *s, const char *name, const char *tenant, int jobs, int waiting) {
    Hlod__Cluster__TenantUse *t = one(s, tenant);
    t->jobs = jobs;
    t->jobs_waiting = waiting;
    hear(s, name, "1", t);
}
static void homes(void **state) {
    (void)state;
    struct site *s = begin("b:weight=3");
    node(s, "h", "1", "serving");
    node(s, "i", "1", "serving");
    assert_string_equal(use_home(s->use, "h"), "h"); // nothing is known
    batch(s, "h", "a", 4, 100);
    assert_string_equal(use_home(s->use, "h"), "h");
    batch(s, "i", "b", 0, 10);
    int got[2] = {0}; // of the next places, until the next beat
    for (int k = 0; k < 24; k++)
        got[*use_home(s->use, "h") == 'i']++;
    assert_in_range(got[1], 20, 22); // three times as many in all, with the 4 that run
    assert_int_equal(got[0] + got[1], 24);
    batch(s, "i", "b", 0, 10);
    use_beat(s->use);
    assert_string_equal(use_home(s->use, "h"), "i");
    use_nothing(s->use, "i");
    assert_string_equal(use_home(s->use, "h"), "h");
    assert_string_equal(use_home(s->use, "i"), "i"); // by its own ticket
    batch(s, "h", "a", 4, 0);
    assert_string_equal(use_home(s->use, "h"), "h");
    use_lost(s->use, "i");
    use_lost(s->use, "h");
    assert_string_equal(use_home(s->use, "i"), "i");
    end(s);
}

// More tenants than one message takes: all are told, some now, some then.
static void many(void **state) {
    (void)state;
    enum { N = 600 };
    struct site *s = begin("*:runs=1000");
    int64_t wait, now = clock_ns();
    char name[16];
    for (int k = 0; k < N; k++) {
        snprintf(name, sizeof name, "t%03d", k);
        assert_true(quota_take(&tenants_get(&s->tenants, name, now)->runs, now, 900, &wait));
    }
    node(s, "b", "1", "serving");
    use_beat(s->use);
    assert_int_equal(s->told, USE_TENANTS);
    use_beat(s->use);
    assert_int_equal(s->told, USE_TENANTS);
    use_beat(s->use);
    assert_int_equal(s->told, N - 2 * USE_TENANTS);
    assert_string_equal(s->last, "t599");
    use_beat(s->use);
    assert_string_equal(s->last, "t255");
    end(s);
}

static void refused(void **state) {
    (void)state;
    struct arena a = {0};
    Hlod__Cluster__Use m = HLOD__CLUSTER__USE__INIT;
    Hlod__Cluster__TenantUse good = HLOD__CLUSTER__TENANT_USE__INIT, bad, *v[USE_TENANTS + 1];
    m.node = (char *)(uintptr_t)"b";
    m.life = (char *)(uintptr_t)"1";
    good.tenant = (char *)(uintptr_t)"a";
    m.tenants = v;
    v[0] = &bad;
    m.n_tenants = 1;
#define BAD(field, value)                                                                          \
    bad = good;                                                                                    \
    assert_null(use_fault(&m));                                                                    \
    bad.field = value;                                                                             \
    assert_non_null(use_fault(&m))
    BAD(tenant, (char *)(uintptr_t)"");
    BAD(tenant, (char *)(uintptr_t)"a\nb");
    BAD(runs, INT64_MAX);
    BAD(runs, INT64_MIN);
    BAD(runs_before, INT64_MIN);
    BAD(bytes, INT64_MAX);
    BAD(bytes_before, INT64_MAX);
    BAD(runs_owed_us, -1);
    BAD(bytes_owed_us, -1);
    BAD(want_runs, -1);
    BAD(want_bytes, INT64_MAX);
    BAD(places, -1);
    BAD(want_places, INT32_MAX);
    BAD(jobs, -1);
    BAD(jobs_waiting, INT32_MIN);
    bad = good;
    v[1] = &good;
    m.n_tenants = 2;
    assert_non_null(use_fault(&m)); // twice
    for (int k = 0; k <= USE_TENANTS; k++) {
        v[k] = arena_dup(&a, &good, sizeof good);
        v[k]->tenant = arena_printf(&a, "t%04d", k);
    }
    m.n_tenants = USE_TENANTS;
    assert_null(use_fault(&m));
    m.n_tenants++;
    assert_non_null(use_fault(&m));
    m.n_tenants = 0;
    m.node = (char *)(uintptr_t)"../x";
    assert_non_null(use_fault(&m));
    arena_done(&a);
}

int main(void) {
    const struct CMUnitTest t[] = {cmocka_unit_test(counted), cmocka_unit_test(shares),
                                   cmocka_unit_test(places),  cmocka_unit_test(homes),
                                   cmocka_unit_test(many),    cmocka_unit_test(refused)};
    return cmocka_run_group_tests(t, NULL, NULL);
}
