// SPDX-License-Identifier: Apache-2.0
// The table of resident buffers with a clock of our own: leases, tenants, quota, tuples, donation,
// workers that die, and what whoever comes too late is told.
#include "scheduler/records/buffers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "proto/hlod.pb-c.h"

static const int64_t ms = 1000000;
static int dropped;
static uint64_t last_dropped;

static void on_drop(void *ctx, const struct buffer *b) {
    (void)ctx;
    dropped++;
    last_dropped = b->id;
}
static struct buffers *table(int64_t quota) {
    dropped = 0;
    return buffers_new(
        &(struct buffers_config){.lease_ms = 1000, .quota_bytes = quota, .drop = on_drop});
}
static void refused(status_t st, enum status_code code, int reason, const char *part) {
    if (st_code(st) != code || st_get_reason(st) != reason || !strstr(st_message(st), part))
        fail_msg("found %s %d '%s'", st_code_name(st_code(st)), st_get_reason(st), st_message(st));
    st_drop(st);
}
// A vector of n floats in life 1 of a worker.
static struct buffer *make(struct buffers *b, const char *tenant, int worker, int64_t n) {
    struct buffer *x = NULL;
    assert_null(buffers_reserve(b, tenant, worker, 1, 1 << 20, 4 * n, 0, &x));
    assert_int_equal(x->state, BUFFER_PENDING);
    buffer_fill(x, "x", numbers_dtype(str_of("f32")), 1, &n);
    return x;
}
static struct handle *put(struct buffers *b, const char *tenant, int64_t n, int64_t lease_ms,
                          int64_t now) {
    struct buffer *x = make(b, tenant, 0, n);
    struct handle *h = buffers_name(b, tenant, &x, 1, false, lease_ms, now);
    buffer_unref(x);
    return h;
}
static int64_t used(const struct buffers *b, const char *tenant) {
    int64_t bytes;
    int n;
    buffers_used(b, tenant, 0, &bytes, &n);
    return bytes;
}

static void leases(void **state) {
    (void)state;
    struct buffers *b = table(0);
    struct handle *h = put(b, "t", 4, 0, 0), *ever = put(b, "t", 4, -1, 0), *got;
    char text[20];
    int leaf;
    snprintf(text, sizeof text, "%s", h->text);
    assert_int_equal(h->lease_ms, 1000);
    assert_int_equal(buffers_due(b), 1000 * ms);
    assert_null(buffers_find(b, "t", text, 900 * ms, &got, &leaf)); // begins it anew
    assert_ptr_equal(got, h);
    assert_int_equal(leaf, -1);
    buffers_expire(b, 1500 * ms);
    assert_int_equal(dropped, 0);
    assert_int_equal(buffers_due(b), 1900 * ms);
    assert_null(buffers_renew(b, "t", text, 50, 1500 * ms, &got));
    assert_int_equal(buffers_due(b), 1550 * ms);
    buffers_expire(b, 1549 * ms);
    assert_int_equal(dropped, 0);
    buffers_expire(b, 1550 * ms);
    assert_int_equal(dropped, 1);
    assert_int_equal(buffers_due(b), 0); // the other one has no end
    refused(buffers_find(b, "t", text, 1600 * ms, &got, &leaf), ST_NOT_FOUND,
            HLOD__V1__REASON__REASON_BUFFER_NOT_FOUND, "lease of 50 ms");
    assert_ptr_equal(buffers_next(b, "t", NULL), ever);
    assert_null(buffers_next(b, "t", ever));
    assert_int_equal(used(b, "t"), 16);
    buffers_done(b);
}

static void tenants(void **state) {
    (void)state;
    struct buffers *b = table(0);
    struct handle *h = put(b, "a", 4, 0, 0), *got;
    int64_t bytes;
    int leaf;
    refused(buffers_find(b, "b", h->text, 0, &got, &leaf), ST_NOT_FOUND,
            HLOD__V1__REASON__REASON_BUFFER_NOT_FOUND, "no buffer");
    refused(buffers_free(b, "b", h->text, &bytes), ST_NOT_FOUND,
            HLOD__V1__REASON__REASON_BUFFER_NOT_FOUND, "no buffer");
    assert_null(buffers_next(b, "b", NULL));
    refused(buffers_find(b, "a", "b0", 0, &got, &leaf), ST_NOT_FOUND,
            HLOD__V1__REASON__REASON_BUFFER_NOT_FOUND, "'b0'");
    char text[20];
    snprintf(text, sizeof text, "%s", h->text);
    assert_null(buffers_free(b, "a", text, &bytes));
    assert_int_equal(bytes, 16);
    assert_int_equal(dropped, 1);
    refused(buffers_free(b, "a", text, &bytes), ST_NOT_FOUND,
            HLOD__V1__REASON__REASON_BUFFER_NOT_FOUND, "was freed");
    refused(buffers_find(b, "b", text, 0, &got, &leaf), ST_NOT_FOUND,
            HLOD__V1__REASON__REASON_BUFFER_NOT_FOUND, "no buffer"); // not even that it was
    buffers_done(b);
}

static void quota(void **state) {
    (void)state;
    struct buffers *b = table(100);
    struct buffer *x = NULL;
    struct handle *h = put(b, "a", 20, 0, 0);
    put(b, "b", 20, 0, 0); // another tenant has its own
    refused(buffers_reserve(b, "a", 0, 1, 1000, 21, 0, &x), ST_RESOURCE_EXHAUSTED,
            HLOD__V1__REASON__REASON_BUFFER_QUOTA, "80 of 100");
    assert_null(x);
    assert_null(buffers_reserve(b, "a", 0, 1, 1000, 100, 80, &x)); // in place of the first
    buffer_gone(x);
    buffer_unref(x);
    assert_int_equal(dropped, 0); // it never was
    assert_int_equal(used(b, "a"), 80);
    assert_null(buffers_reserve(b, "a", 1, 1, 1000, 100, 0, &x)); // another device
    buffer_fill(x, "cut", numbers_dtype(str_of("f32")), 1,
                (const int64_t[]){3}); // less than planned
    int64_t bytes;
    int n;
    buffers_used(b, NULL, 1, &bytes, &n);
    assert_int_equal(bytes, 12);
    assert_int_equal(n, 1);
    buffer_unref(x);
    assert_int_equal(dropped, 1);
    (void)h;
    assert_int_equal(buffers_quota(b, 1000), 100);
    buffers_done(b);
    b = table(0);
    assert_int_equal(buffers_quota(b, 1000), 500);
    buffers_done(b);
}

static void tuples(void **state) {
    (void)state;
    struct buffers *b = table(0);
    struct buffer *v[3];
    for (int k = 0; k < 3; k++)
        v[k] = make(b, "t", 0, k + 1);
    struct handle *t = buffers_name(b, "t", v, 3, true, 0, 0),
                  *one = buffers_name(b, "t", &v[1], 1, false, 0, 0), *got;
    for (int k = 0; k < 3; k++)
        buffer_unref(v[k]);
    char text[32];
    int leaf;
    int64_t bytes;
    snprintf(text, sizeof text, "%s.2", t->text);
    assert_null(buffers_find(b, "t", text, 0, &got, &leaf));
    assert_int_equal(leaf, 2);
    refused(buffers_free(b, "t", text, &bytes), ST_INVALID_ARGUMENT, 0, "tuple");
    snprintf(text, sizeof text, "%s.3", t->text);
    refused(buffers_find(b, "t", text, 0, &got, &leaf), ST_NOT_FOUND,
            HLOD__V1__REASON__REASON_BUFFER_NOT_FOUND, "no such element");
    snprintf(text, sizeof text, "%s.0", one->text);
    refused(buffers_find(b, "t", text, 0, &got, &leaf), ST_NOT_FOUND,
            HLOD__V1__REASON__REASON_BUFFER_NOT_FOUND, "no such element");
    snprintf(text, sizeof text, "%s.-1", t->text);
    refused(buffers_find(b, "t", text, 0, &got, &leaf), ST_NOT_FOUND,
            HLOD__V1__REASON__REASON_BUFFER_NOT_FOUND, "");
    snprintf(text, sizeof text, "%s", t->text);
    assert_null(buffers_free(b, "t", text, &bytes));
    assert_int_equal(bytes, 4 + 12); // the middle one has a handle of its own
    assert_int_equal(dropped, 2);
    assert_int_equal(used(b, "t"), 8);
    buffers_done(b);
}

static void donation(void **state) {
    (void)state;
    struct buffers *b = table(0);
    struct handle *h = put(b, "t", 4, 0, 0), *got;
    char text[20];
    int leaf;
    int64_t bytes;
    snprintf(text, sizeof text, "%s", h->text);
    buffers_lend(h);
    refused(buffers_find(b, "t", text, 0, &got, &leaf), ST_FAILED_PRECONDITION,
            HLOD__V1__REASON__REASON_BUFFER_DONATED, "under way");
    refused(buffers_free(b, "t", text, &bytes), ST_FAILED_PRECONDITION,
            HLOD__V1__REASON__REASON_BUFFER_DONATED, "under way");
    buffers_expire(b, 5000 * ms); // not while the run has it
    assert_int_equal(dropped, 0);
    assert_int_equal(buffers_due(b), 6000 * ms);
    buffers_returned(h); // the run failed
    assert_null(buffers_find(b, "t", text, 5000 * ms, &got, &leaf));
    buffers_lend(h);
    buffer_gone(h->leaf[0]); // the worker has taken it
    buffers_taken(b, h, 17);
    assert_int_equal(dropped, 0);
    refused(buffers_find(b, "t", text, 0, &got, &leaf), ST_FAILED_PRECONDITION,
            HLOD__V1__REASON__REASON_BUFFER_DONATED, "job 17");
    assert_int_equal(used(b, "t"), 0);
    buffers_done(b);
}

static void lost_workers(void **state) {
    (void)state;
    struct buffers *b = table(0);
    buffers_worker(b, 0, 1, "sim:0");
    buffers_worker(b, 3, 1, "sim:3");
    struct handle *h = put(b, "t", 4, 0, 0), *busy = put(b, "t", 4, 0, 0), *got;
    struct buffer *other = make(b, "t", 3, 4);
    struct handle *safe = buffers_name(b, "t", &other, 1, false, 0, 0);
    buffer_unref(other);
    buffers_lend(busy);
    buffers_worker(b, 0, 1, "sim:0"); // as before
    assert_int_equal(used(b, "t"), 32);
    buffers_worker(b, 0, 0, "sim:0 (process 7)");
    int leaf;
    int64_t bytes;
    refused(buffers_find(b, "t", h->text, 0, &got, &leaf), ST_UNAVAILABLE,
            HLOD__V1__REASON__REASON_BUFFER_LOST, "lost with worker sim:0 (process 7)");
    assert_null(buffers_find(b, "t", safe->text, 0, &got, &leaf));
    assert_int_equal(used(b, "t"), 0);
    buffers_taken(b, busy, 1); // the run died with the worker: lost, not donated
    refused(buffers_find(b, "t", busy->text, 0, &got, &leaf), ST_UNAVAILABLE,
            HLOD__V1__REASON__REASON_BUFFER_LOST, "lost");
    buffers_worker(b, 0, 2, "sim:0");
    assert_int_equal(h->state, HANDLE_LOST); // still listed, still says what it was
    assert_int_equal(h->leaf[0]->bytes, 16);
    assert_ptr_equal(buffers_next(b, "t", NULL), h);
    char text[20];
    snprintf(text, sizeof text, "%s", h->text);
    assert_null(buffers_free(b, "t", text, &bytes));
    assert_int_equal(bytes, 0);
    buffers_expire(b, 3000 * ms);
    assert_null(buffers_next(b, "t", NULL));
    assert_int_equal(dropped, 1); // of the worker that lives
    buffers_done(b);
}

// What ended is remembered, but not without end.
static void the_dead_are_forgotten(void **state) {
    (void)state;
    struct buffers *b = table(0);
    char first[20], text[20];
    int64_t bytes;
    struct handle *got;
    int leaf;
    for (int k = 0; k < 5000; k++) {
        snprintf(text, sizeof text, "%s", put(b, "t", 1, 0, 0)->text);
        if (k == 0) memcpy(first, text, sizeof first);
        assert_null(buffers_free(b, "t", text, &bytes));
    }
    refused(buffers_find(b, "t", first, 0, &got, &leaf), ST_NOT_FOUND,
            HLOD__V1__REASON__REASON_BUFFER_NOT_FOUND, "no buffer");
    refused(buffers_find(b, "t", text, 0, &got, &leaf), ST_NOT_FOUND,
            HLOD__V1__REASON__REASON_BUFFER_NOT_FOUND, "was freed");
    buffers_done(b);
}

static void of_a_node(void **state) {
    (void)state;
    struct buffers *b = table(0);
    struct handle *got, *h = put(b, "t", 1, 0, 0), *later;
    char text[100];
    int leaf;
    int64_t bytes;
    assert_null(strchr(h->text, ':'));
    buffers_set_node(b, "rack.7-gpu_3");
    later = put(b, "t", 1, 0, 0);
    assert_memory_equal(later->text, "rack.7-gpu_3:b", 14);
    assert_string_equal(later->local, later->text + 13);
    // Found by what follows the node, whichever that is, of its tenant alone.
    const char *const before[] = {"", "rack.7-gpu_3:", "n1:", ":", "a:b:"};
    for (size_t k = 0; k < sizeof before / sizeof *before; k++) {
        snprintf(text, sizeof text, "%s%s", before[k], later->local);
        assert_null(buffers_find(b, "t", text, 0, &got, &leaf));
        assert_ptr_equal(got, later);
        refused(buffers_find(b, "other", text, 0, &got, &leaf), ST_NOT_FOUND,
                HLOD__V1__REASON__REASON_BUFFER_NOT_FOUND, text);
    }
    snprintf(text, sizeof text, "%s:", later->local);
    refused(buffers_find(b, "t", text, 0, &got, &leaf), ST_NOT_FOUND,
            HLOD__V1__REASON__REASON_BUFFER_NOT_FOUND, "no buffer");
    struct buffer *two[] = {h->leaf[0], later->leaf[0]};
    struct handle *pair = buffers_name(b, "t", two, 2, true, 0, 0);
    snprintf(text, sizeof text, "%s.1", pair->text);
    assert_null(buffers_find(b, "t", text, 0, &got, &leaf));
    assert_int_equal(leaf, 1);
    assert_null(buffers_free(b, "t", pair->text, &bytes));
    assert_null(buffers_free(b, "t", later->text, &bytes));
    assert_int_equal(bytes, 4);
    buffers_done(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(leases),       cmocka_unit_test(tenants),
        cmocka_unit_test(quota),        cmocka_unit_test(tuples),
        cmocka_unit_test(of_a_node),    cmocka_unit_test(donation),
        cmocka_unit_test(lost_workers), cmocka_unit_test(the_dead_are_forgotten),
    };
    return cmocka_run_group_tests_name("buffers", tests, NULL, NULL);
}
