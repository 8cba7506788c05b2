// SPDX-License-Identifier: Apache-2.0
// The id of this CPU as a target tells of what LLVM may use here: as the kernel tells of it.
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "devices/cpu/cpu.h"

static bool has(const char *flags, const char *name) {
    char word[64];
    snprintf(word, sizeof word, " %s ", name);
    return strstr(flags, word) != NULL;
}

static void test_id_tells_of_instructions(void **state) {
    (void)state;
    static const char *const names[] = {
        "popcnt",      "bmi1",         "bmi2",        "abm",           "f16c",
        "sse4a",       "gfni",         "avx_vnni",    "avx512cd",      "avx512ifma",
        "avx512vbmi",  "avx512_vbmi2", "avx512_vnni", "avx512_bitalg", "avx512_vpopcntdq",
        "avx512_bf16", "avx512_fp16"};
    static char line[16384];
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && fgets(line, sizeof line, f) && strncmp(line, "flags", 5) != 0)
        continue;
    if (f) fclose(f);
    if (strncmp(line, "flags", 5) != 0) skip(); // another kind of processor
    line[strcspn(line, "\n")] = ' ';

    unsigned want = 0;
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        want |= (unsigned)has(line, names[k]) << k;
    const char *with = strstr(cpu_target()->id, ":with");
    assert_non_null(with);
    assert_int_equal(strtoul(with + strlen(":with"), NULL, 16), want);
}

int main(void) {
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_id_tells_of_instructions)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
