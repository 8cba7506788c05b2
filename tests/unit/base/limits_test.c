// SPDX-License-Identifier: Apache-2.0
// limits: control groups of both versions, in folders made for the test.
#include "base/limits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

static char root[64] = "/tmp/hlod-limits-XXXXXX";

// path: below the root; its folders are made.
static void put(const char *path, const char *text) {
    char full[256];
    snprintf(full, sizeof full, "%s/%s", root, path);
    for (char *p = full + strlen(root) + 1; (p = strchr(p, '/')); *p++ = '/') {
        *p = 0;
        mkdir(full, 0700);
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    fclose(f);
}
static struct limits here(const char *groups) {
    char full[256];
    put("groups", groups);
    snprintf(full, sizeof full, "%s/groups", root);
    return limits_of(full, root);
}
static void version_2(void **state) {
    (void)state;
    put("a/b/memory.max", "max\n");
    put("a/memory.max", "2147483648\n");
    put("a/b/cpu.max", "150000 100000\n");
    put("a/cpu.max", "max 100000\n");
    put("a/memory.current", "2000000000\n");
    struct limits l = here("0::/a/b\n");
    assert_int_equal(l.memory_bytes, 2147483648); // the group above
    assert_int_equal(l.memory_left, 147483648);
    put("a/memory.stat", "file 9\ninactive_file 500000000\nactive_file 7\n");
    assert_int_equal(here("0::/a/b\n").memory_left, 647483648);
    put("a/memory.current", "3000000000\n");
    assert_int_equal(here("0::/a/b\n").memory_left, 0);
    assert_int_equal(l.processors, 2); // one and a half
    put("memory.max", "1073741824\n"); // a container's own group is its root
    assert_int_equal(here("0::/../elsewhere\n").memory_bytes, 1073741824);
    assert_int_equal(here("0::/\n").processors, INT32_MAX);
}
static void version_1(void **state) {
    (void)state;
    put("memory/x/memory.limit_in_bytes", "536870912\n");
    put("memory/x/memory.usage_in_bytes", "536870911\n");
    put("memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("cpu/x/cpu.cfs_quota_us", "-1\n");
    put("cpu/cpu.cfs_quota_us", "400000\n");
    put("cpu/cpu.cfs_period_us", "100000\n");
    struct limits l = here("12:cpu,cpuacct:/x\n4:memory:/x\n1:name=systemd:/x\n");
    assert_int_equal(l.memory_bytes, 536870912);
    assert_int_equal(l.memory_left, 1);
    assert_int_equal(l.processors, 4);
}
static void nothing(void **state) {
    (void)state;
    struct limits l = here("no group\n7::\n3:memory:/none/such\n");
    assert_true(l.memory_bytes >= 1073741824); // "7::" has the root's, of version_2
    l = limits_of("/none/such", "/none");
    assert_true(l.memory_bytes == INT64_MAX && l.processors == INT32_MAX);
    assert_true(limits_memory() > 0);
}
int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(version_2), cmocka_unit_test(version_1),
                                       cmocka_unit_test(nothing)};
    if (!mkdtemp(root)) return 1;
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    char remove[128];
    snprintf(remove, sizeof remove, "rm -rf %s", root);
    return system(remove) || rc;
}
