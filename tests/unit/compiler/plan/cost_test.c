// SPDX-License-Identifier: Apache-2.0
// Flops and bytes of small modules, counted by hand.
#include "compiler/plan/cost.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "compiler/ir/text/text.h"

static void expect(const char *body, int64_t flops, int64_t bytes) {
    struct hlo_module *m;
    status_t st = hlo_parse(str_of(body), NULL, &m);
    if (st) fail_msg("%s", st_message(st));
    struct hlo_cost c = plan_cost(m);
    if (c.flops != flops || c.bytes != bytes)
        fail_msg("%lld flops, %lld bytes of:\n%s", (long long)c.flops, (long long)c.bytes, body);
    hlo_module_free(m);
}

static void counts(void **state) {
    (void)state;
    expect("HloModule m\nENTRY e { x = f32[2,3] parameter(0) y = f32[3,5] parameter(1) ROOT d = "
           "f32[2,5] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0} }\n",
           2 * 3 * 10, 4 * (6 + 15 + 10));
    expect(
        "HloModule m\nENTRY e { x = f32[1,8,8,4] parameter(0) k = f32[3,3,2,6] parameter(1) "
        "ROOT c = f32[1,6,6,6] convolution(x, k), window={size=3x3}, dim_labels=b01f_01io->b01f, "
        "feature_group_count=2 }\n",
        2 * 9 * 2 * 216, 4 * (256 + 108 + 216));
    expect("HloModule m\nf { a = f32[8] parameter(0) b = f32[8] multiply(a, a) ROOT c = f32[8] "
           "add(b, a) }\nENTRY e { x = f32[8] parameter(0) ROOT y = f32[8] fusion(x), kind=kLoop, "
           "calls=f }\n",
           16, 64); // what lies within a fusion is not moved
    expect("HloModule m\nadd { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, "
           "b) }\nENTRY e { x = f32[10,10] parameter(0) z = f32[] constant(0) ROOT r = f32[10] "
           "reduce(x, z), dimensions={1}, to_apply=add }\n",
           100, 4 * (100 + 1 + 10));
    expect("HloModule m\nENTRY e { x = f32[4,5] parameter(0) ROOT t = f32[5,4] transpose(x), "
           "dimensions={1,0} }\n",
           0, 160); // moves, computes nothing
    expect(
        "HloModule m\nc { s = (s32[], f32[16]) parameter(0) i = s32[] get-tuple-element(s), "
        "index=0\nn = s32[] constant(9) ROOT p = pred[] compare(i, n), direction=LT }\nb { s = "
        "(s32[], f32[16]) parameter(0) i = s32[] get-tuple-element(s), index=0\nv = f32[16] "
        "get-tuple-element(s), index=1\nw = f32[16] sqrt(v) ROOT t = (s32[], f32[16]) tuple(i, w) "
        "}\nENTRY e { s = (s32[], f32[16]) parameter(0) ROOT w = (s32[], f32[16]) while(s), "
        "condition=c, body=b }\n",
        17, 9 + 128); // a body counts once
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(counts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
