// SPDX-License-Identifier: Apache-2.0
// Artefacts: is it what its record says; where two of them differ first, times aside.
#include "scheduler/records/artifact.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "proto/artifact.pb-c.h"

static struct arena a;
static Hlod__V1__PassStat pass = HLOD__V1__PASS_STAT__INIT;
static Hlod__V1__PassStat *passes[1] = {&pass};
static Hlod__Artifact__KernelSet kernels = HLOD__ARTIFACT__KERNEL_SET__INIT;

static Hlod__Artifact__Artifact made(void) {
    Hlod__Artifact__Artifact m = HLOD__ARTIFACT__ARTIFACT__INIT;
    m.version = 3;
    m.kernel_abi = 6;
    m.build_id = (char *)"build";
    m.target_id = (char *)"target";
    m.options = (char *)"precision=strict";
    m.main = (char *)"HloModule main";
    m.compile_ns = 12345;
    pass.name = (char *)"dce";
    pass.ms = 1.5;
    m.passes = passes;
    m.n_passes = 1;
    kernels.object = (ProtobufCBinaryData){4, (uint8_t *)"code"};
    m.kernels = &kernels;
    m.peak_bytes = 100;
    return m;
}
static struct span packed(const Hlod__Artifact__Artifact *m) {
    uint8_t *p = arena_alloc(&a, hlod__artifact__artifact__get_packed_size(m) + 1);
    return (struct span){p, hlod__artifact__artifact__pack(m, p)};
}

static void difference(void **state) {
    (void)state;
    Hlod__Artifact__Artifact m = made();
    struct span one = packed(&m);
    assert_string_equal(artifact_difference(&a, one, one), "");
    m.compile_ns = 99; // how long it took is not what came out
    pass.ms = 700;
    assert_string_equal(artifact_difference(&a, one, packed(&m)), "");
    m = made();
    m.main = (char *)"HloModule mine";
    assert_string_equal(artifact_difference(&a, one, packed(&m)), "main");
    m = made();
    kernels.object.data = (uint8_t *)"cope";
    assert_string_equal(artifact_difference(&a, one, packed(&m)), "kernels");
    m = made();
    m.peak_bytes = 0;
    assert_string_equal(artifact_difference(&a, one, packed(&m)), "peak_bytes");
    assert_string_equal(artifact_difference(&a, packed(&m), one), "peak_bytes");
    m = made();
    m.n_passes = 0;
    assert_string_equal(artifact_difference(&a, one, packed(&m)), "passes");
    assert_string_equal(artifact_difference(&a, one, (struct span){one.p, one.n - 1}), "form");
}

static void check(void **state) {
    (void)state;
    Hlod__Artifact__Artifact m = made();
    Hlod__V1__ExecutableInfo info = HLOD__V1__EXECUTABLE_INFO__INIT;
    info.build_id = (char *)"build";
    info.target_id = (char *)"target";
    info.options = (char *)"precision=strict";
    info.kernel_abi = 6;
    assert_null(artifact_check(packed(&m), &info));
    struct {
        Hlod__Artifact__Artifact m;
        const char *why;
    } cases[] = {{made(), "version"},
                 {made(), "interface"},
                 {made(), "build"},
                 {made(), "target"},
                 {made(), "options"}};
    cases[0].m.version = 1;
    cases[1].m.kernel_abi = 5;
    cases[2].m.build_id = (char *)"elsewhere";
    cases[3].m.target_id = (char *)"";
    cases[4].m.options = (char *)"";
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        status_t st = artifact_check(packed(&cases[i].m), &info);
        assert_int_equal(st_code(st), ST_INVALID_ARGUMENT);
        assert_non_null(strstr(st_message(st), cases[i].why));
        st_drop(st);
    }
    status_t st = artifact_check((struct span){(const uint8_t *)"\xff", 1}, &info);
    assert_int_equal(st_code(st), ST_INVALID_ARGUMENT);
    st_drop(st);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(difference), cmocka_unit_test(check)};
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    arena_done(&a);
    return rc;
}
