// SPDX-License-Identifier: Apache-2.0
// Packages of exports: kept and opened again by another life of the store; what goes into the key;
// the least used go, of who has much; none is kept on a disk that is nearly full; what is damaged,
// or is none, counts as absent. The source is included with a fault point.
#ifndef HLOD_FAULTS
#define HLOD_FAULTS
#endif
#include "scheduler/records/package.c"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/unit/scheduler/folder.h"

static bool no_room;
bool fault_hit(const char *point) {
    return no_room && !strcmp(point, "package.room");
}

static char dir[] = "/tmp/hlod-package-XXXXXX";
static const struct digest key = {.b = {1, 2, 3}};

static void must(status_t st) {
    if (st) fail_msg("%s", st_message(st));
}
static struct store *opened(void) {
    struct store *s;
    must(store_open(dir, 0, &s));
    return s;
}
static void keep(struct store *s, struct digest k, const char *text, size_t n, int64_t most) {
    Hlod__V1__WebPackage m = HLOD__V1__WEB_PACKAGE__INIT;
    m.kernel_bytes = 77;
    must(package_keep(s, k, &m, (struct span){(const uint8_t *)text, n}, most));
}
static int code(struct store *s, struct digest k, const char *want) {
    struct package p;
    char got[64] = {0};
    status_t st = package_open(s, k, &p);
    int c = st_code(st);
    st_drop(st);
    if (c) return c;
    assert_int_equal(p.info->kernel_bytes, 77);
    assert_int_equal(p.bytes, strlen(want));
    assert_int_equal(pread(p.fd, got, (size_t)p.bytes, p.offset), p.bytes);
    assert_string_equal(got, want);
    close(p.fd);
    hlod__v1__web_package__free_unpacked(p.info, NULL);
    return 0;
}

static void kept(void **state) {
    (void)state;
    struct store *s = opened();
    assert_int_equal(code(s, key, ""), ST_NOT_FOUND);
    keep(s, key, "the page", 8, 1 << 20);
    assert_int_equal(code(s, key, "the page"), ST_OK);
    store_close(s);
    s = opened();
    assert_int_equal(code(s, key, "the page"), ST_OK);
    store_close(s);
}

static void little_room(void **state) {
    (void)state;
    struct store *s = opened();
    const struct digest other = {.b = {200}};
    no_room = true;
    keep(s, other, "the page", 8, 1 << 20);
    assert_false(store_has(s, STORE_PACKAGE, other));
    assert_int_equal(code(s, key, "the page"), ST_OK); // what is there stays
    no_room = false;
    store_close(s);
}

static void bounded(void **state) {
    (void)state;
    struct store *s = opened();
    char *text = calloc(1, 1000);
    for (uint8_t k = 10; k < 40; k++) {
        struct digest d = {.b = {k}};
        keep(s, d, text, 1000, 8000);
        usleep(2000); // times of files are a tick's
    }
    int there = 0;
    for (uint8_t k = 10; k < 40; k++)
        there += store_has(s, STORE_PACKAGE, (struct digest){.b = {k}});
    assert_in_range(there, 5, 8);
    assert_true(store_has(s, STORE_PACKAGE, (struct digest){.b = {39}})); // the last one
    keep(s, key, text, 1000, 900);                                        // larger than all may be
    assert_false(store_has(s, STORE_PACKAGE, key));
    assert_true(store_has(s, STORE_PACKAGE, (struct digest){.b = {39}}));
    free(text);
    store_close(s);
}

static void damaged(void **state) {
    (void)state;
    static const char *const none[] = {"", "short", "\xff\xff\xff\xff\xff\xff\xff\xff.",
                                       "\x02\0\0\0\0\0\0\0\xff\xff.", "\x09\0\0\0\0\0\0\0nine"};
    static const size_t bytes[] = {0, 5, 9, 11, 12};
    struct store *s = opened();
    for (size_t k = 0; k < sizeof none / sizeof *none; k++) { // whole files that are no packages
        must(store_put(s, STORE_PACKAGE, key, none[k], bytes[k], false));
        assert_int_equal(code(s, key, ""), ST_DATA_LOSS);
        assert_int_equal(code(s, key, ""), ST_NOT_FOUND);
    }
    keep(s, key, "the page", 8, 1 << 20);
    char path[300];
    snprintf(path, sizeof path, "%s/packages/%.2s/%s", dir, digest_to_hex(key).z,
             digest_to_hex(key).z);
    must(truncate(path, 60) ? st_internal("truncate") : ST_OK);
    assert_int_equal(code(s, key, ""), ST_DATA_LOSS);
    keep(s, key, "the page", 8, 1 << 20);
    assert_int_equal(code(s, key, "the page"), ST_OK);
    store_close(s);
}

static void keyed(void **state) {
    (void)state;
    struct arena a = {0};
    Hlod__V1__ExportWebRequest q = HLOD__V1__EXPORT_WEB_REQUEST__INIT;
    struct package_parts p = {"a", "onnx", "N=1", "b0", {.b = {9}}, package_how(&a, &q)}, x = p;
    struct digest k = package_key(&p);
    q.model = (char *)"net";
    q.timeout_ms = 5;
    q.priority = 3;
    q.backend = (char *)"auto";
    q.weights = (char *)"f32";
    x.how = package_how(&a, &q);
    assert_true(digest_eq(k, package_key(&x)));
    q.single_file = true;
    x.how = package_how(&a, &q);
    assert_false(digest_eq(k, package_key(&x)));
    x = p, x.tenant = "b";
    assert_false(digest_eq(k, package_key(&x)));
    x = p, x.format = "hlo";
    assert_false(digest_eq(k, package_key(&x)));
    x = p, x.bindings = "N=2";
    assert_false(digest_eq(k, package_key(&x)));
    x = p, x.build_id = "b1";
    assert_false(digest_eq(k, package_key(&x)));
    x = p, x.source.b[31] = 1;
    assert_false(digest_eq(k, package_key(&x)));
    arena_done(&a);
}

// A tenant that exports without end takes its own packages' place, not another's.
static void shared(void **state) {
    (void)state;
    struct arena a = {0};
    Hlod__V1__ExportWebRequest q = HLOD__V1__EXPORT_WEB_REQUEST__INIT;
    struct package_parts p = {"quiet", "onnx", "", "b0", {.b = {7}}, package_how(&a, &q)};
    struct digest quiet[2], last = {0};
    struct store *s = opened();
    char *text = calloc(1, 1000);
    for (uint8_t k = 0; k < 2; k++) {
        p.source.b[1] = k;
        quiet[k] = package_key(&p);
        keep(s, quiet[k], text, 1000, 8000);
        usleep(2000);
    }
    p.tenant = "busy";
    for (uint8_t k = 0; k < 30; k++) {
        p.source.b[1] = k;
        last = package_key(&p);
        keep(s, last, text, 1000, 8000);
        usleep(2000);
    }
    for (int k = 0; k < 2; k++)
        assert_true(store_has(s, STORE_PACKAGE, quiet[k]));
    assert_true(store_has(s, STORE_PACKAGE, last));
    p.source.b[1] = 0;
    assert_false(store_has(s, STORE_PACKAGE, package_key(&p)));
    free(text);
    arena_done(&a);
    store_close(s);
}

// What is kept can be opened as a copy, which the store makes of 64 MiB and no more.
static void largest(void **state) {
    (void)state;
    struct store *s = opened();
    size_t n = PACKAGE_MOST - 16;
    char *text = calloc(1, n + 16);
    struct package p;
    keep(s, key, text, n, INT64_C(1) << 30);
    must(package_open(s, key, &p));
    int seals = fcntl(p.fd, F_GET_SEALS);
    assert_true(seals > 0 && seals & F_SEAL_SHRINK);
    close(p.fd);
    hlod__v1__web_package__free_unpacked(p.info, NULL);
    must(store_remove(s, STORE_PACKAGE, key));
    keep(s, key, text, n + 16, INT64_C(1) << 30); // with its record it is too large
    assert_false(store_has(s, STORE_PACKAGE, key));
    free(text);
    store_close(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(kept),    cmocka_unit_test(little_room),
                                       cmocka_unit_test(bounded), cmocka_unit_test(damaged),
                                       cmocka_unit_test(keyed),   cmocka_unit_test(shared),
                                       cmocka_unit_test(largest)};
    if (!mkdtemp(dir)) return 1;
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    return folder_remove(dir) || rc;
}
