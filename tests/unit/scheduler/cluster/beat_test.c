// SPDX-License-Identifier: Apache-2.0
// What nodes tell of themselves: what is kept of bytes that anybody may send, servers in options.
#include "scheduler/cluster/beat.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "scheduler/cluster/bus.h"
#include "scheduler/cluster/cluster.h"

static Hlod__V1__PeerTarget target;
static Hlod__V1__PeerTarget *targets[BEAT_MAX_TARGETS + 1];
static Hlod__V1__Node good(void) {
    Hlod__V1__Node m = HLOD__V1__NODE__INIT;
    hlod__v1__peer_target__init(&target);
    target.target_id = (char *)"cpu:1";
    target.build_id = (char *)"b1";
    for (size_t k = 0; k <= BEAT_MAX_TARGETS; k++)
        targets[k] = &target;
    m.node = (char *)"n1";
    m.life = (char *)"l1";
    m.address = (char *)"http://10.0.0.1:8000";
    m.version = (char *)"0.1.0";
    m.state = (char *)"serving";
    m.targets = targets;
    m.n_targets = 2;
    m.devices = m.devices_up = m.places = 1;
    m.beat_ms = 2000;
    return m;
}
static bool taken(const Hlod__V1__Node *m) {
    struct arena a = {0};
    const char *why;
    Hlod__V1__Node *read = beat_read(&a, beat_write(&a, m), &why);
    assert_true(!read == (why != NULL));
    assert_true(!read || (!read->self && read->seconds == 0 && !strcmp(read->node, m->node)));
    arena_done(&a);
    return read != NULL;
}

static void fields(void **state) {
    (void)state;
    Hlod__V1__Node m = good();
    assert_true(taken(&m));
    m.self = true; // not for others to say
    m.seconds = 5;
    assert_true(taken(&m));
#define REFUSED(field, v)                                                                          \
    m = good();                                                                                    \
    m.field = (v);                                                                                 \
    assert_false(taken(&m))
    REFUSED(node, (char *)"");
    REFUSED(node, (char *)"a b");
    REFUSED(life, (char *)"a\n");
    REFUSED(address, (char *)"10.0.0.1:8000");
    REFUSED(version, (char *)"\x1b[2J");
    REFUSED(version, (char *)"a\"b");
    REFUSED(state, (char *)"lost");
    REFUSED(n_targets, BEAT_MAX_TARGETS + 1);
    REFUSED(devices, -1);
    REFUSED(devices_up, 2);
    REFUSED(places, -1);
    REFUSED(jobs, -1);
    REFUSED(queued, INT32_MIN);
    REFUSED(max_queue, INT32_MAX);
    REFUSED(uptime_ms, -1);
    REFUSED(beat_ms, 99);
    REFUSED(beat_ms, 60001);
    m = good();
    target.target_id = (char *)"";
    assert_false(taken(&m));
}

static void bytes(void **state) {
    (void)state;
    struct arena a = {0};
    const char *why;
    Hlod__V1__Node m = good();
    struct span all = beat_write(&a, &m);
    for (size_t n = 0; n < all.n; n++) {
        uint8_t *cut = arena_dup(&a, all.p, n + 1);
        assert_null(beat_read(&a, (struct span){cut, n}, &why));
    }
    uint8_t *much = arena_zalloc(&a, BEAT_MAX_BYTES + 1);
    assert_null(beat_read(&a, (struct span){much, BEAT_MAX_BYTES + 1}, &why));
    assert_null(beat_read(&a, (struct span){NULL, 0}, &why));
    arena_done(&a);
}

static void addresses(void **state) {
    (void)state;
    static const char *const fit[] = {"http://a:1", "https://a-b.c_d:65535", "http://[::1]:8000"};
    static const char *const not[] = {"",
                                      "http://",
                                      "http://a",
                                      "http://:1",
                                      "http://a:",
                                      "http://a:0",
                                      "http://a:65536",
                                      "http://a:+1",
                                      "http://a: 1",
                                      "http://a:1/",
                                      "http://u@a:1",
                                      "ftp://a:1",
                                      "http://[::1]",
                                      "http://[::1:8",
                                      "http://[]:1",
                                      "http://a:000001"};
    for (size_t k = 0; k < sizeof fit / sizeof *fit; k++)
        assert_true(beat_address_fits(fit[k]));
    for (size_t k = 0; k < sizeof not/ sizeof *not; k++)
        assert_false(beat_address_fits(not[k]));
}

static void servers(void **state) {
    (void)state;
    struct arena a = {0};
    struct bus_server all[BUS_SERVERS];
    size_t n;
    status_t st = bus_servers(&a, "nats://a:4222, tls://[::1]:1,nats://127.0.0.1:2", all, &n);
    assert_null(st);
    assert_int_equal(n, 3);
    assert_string_equal(all[0].url, "nats://a:4222");
    assert_string_equal(all[1].host, "::1");
    assert_true(all[1].tls && !all[0].tls && all[2].loopback && !all[0].loopback);
    static const char *const not[] = {
        "a:1",         "http://a:1", "nats://",      "nats://a",       "nats://a:",
        "nats://a:0",  "nats://:1",  "nats://a:1/x", "nats://u:p@a:1", "nats://a:99999",
        "tls://[::1]", "tls://[:"};
    for (size_t k = 0; k < sizeof not/ sizeof *not; k++) {
        st = bus_servers(&a, not[k], all, &n);
        assert_non_null(st);
        st_drop(st);
    }
    st = bus_servers(&a, "", all, &n);
    assert_null(st);
    assert_int_equal(n, 0);
    st = bus_servers(&a,
                     "nats://a:1,nats://a:1,nats://a:1,nats://a:1,nats://a:1,nats://a:1,"
                     "nats://a:1,nats://a:1,nats://a:1,nats://a:1,nats://a:1,nats://a:1,"
                     "nats://a:1,nats://a:1,nats://a:1,nats://a:1,nats://a:1",
                     all, &n);
    assert_non_null(st);
    st_drop(st);
    assert_true(cluster_name_fits("a-b_1") && !cluster_name_fits("a.b") && !cluster_name_fits(""));
    arena_done(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(fields), cmocka_unit_test(bytes),
                                       cmocka_unit_test(addresses), cmocka_unit_test(servers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
