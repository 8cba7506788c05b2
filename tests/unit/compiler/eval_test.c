// SPDX-License-Identifier: Apache-2.0
// The evaluator's limits and refusals; values are tested by tests/ops.
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "compiler/eval.h"
#include "compiler/ir/text/text.h"

static struct hlo_module *parse(const char *text) {
    struct hlo_module *m = NULL;
    status_t st = hlo_parse((struct str){text, strlen(text)}, NULL, &m);
    if (st) fail_msg("%s", st_message(st));
    return m;
}
// Evaluates a module without parameters.
static status_t eval(struct hlo_eval *ev, const struct hlo_module *m, struct literal **out) {
    return hlo_eval_module(ev, m, NULL, 0, out);
}
static void expect(status_t st, enum status_code code, const char *part) {
    assert_int_equal(st_code(st), code);
    if (!strstr(st_message(st), part)) fail_msg("'%s' lacks '%s'", st_message(st), part);
    st_drop(st);
}

static const char forever[] = "HloModule m\n"
                              "cond { s = s32[] parameter(0)\n"
                              "  ROOT t = pred[] constant(true)\n}\n"
                              "body { s = s32[] parameter(0)\n"
                              "  ROOT r = s32[] add(s, s)\n}\n"
                              "ENTRY e { z = s32[] constant(1)\n"
                              "  ROOT w = s32[] while(z), condition=cond, body=body\n}\n";

static void steps_bound_loops(void **state) {
    (void)state;
    struct arena a = {0};
    struct hlo_eval ev = hlo_eval_begin(&a);
    struct literal *out;
    struct hlo_module *m = parse(forever);
    ev.max_steps = 1000;
    expect(eval(&ev, m, &out), ST_RESOURCE_EXHAUSTED, "1000 steps");
    hlo_module_free(m);
    arena_done(&a);
}
static void cancel_stops_loops(void **state) {
    (void)state;
    struct arena a = {0};
    struct hlo_eval ev = hlo_eval_begin(&a);
    struct literal *out;
    struct hlo_module *m = parse(forever);
    _Atomic bool cancel = true;
    ev.cancel = &cancel;
    expect(eval(&ev, m, &out), ST_CANCELLED, "cancelled");
    hlo_module_free(m);
    arena_done(&a);
}
static void a_long_loop_keeps_little_memory(void **state) {
    (void)state;
    struct arena a = {0};
    struct hlo_eval ev = hlo_eval_begin(&a);
    struct literal *out;
    struct hlo_module *m = parse("HloModule m\n"
                                 "cond { s = (s32[], f32[1000]) parameter(0)\n"
                                 "  i = s32[] get-tuple-element(s), index=0\n"
                                 "  n = s32[] constant(1000)\n"
                                 "  ROOT t = pred[] compare(i, n), direction=LT\n}\n"
                                 "body { s = (s32[], f32[1000]) parameter(0)\n"
                                 "  i = s32[] get-tuple-element(s), index=0\n"
                                 "  x = f32[1000] get-tuple-element(s), index=1\n"
                                 "  one = s32[] constant(1)\n"
                                 "  j = s32[] add(i, one)\n"
                                 "  y = f32[1000] add(x, x)\n"
                                 "  ROOT r = (s32[], f32[1000]) tuple(j, y)\n}\n"
                                 "ENTRY e { z = s32[] constant(0)\n"
                                 "  c = f32[] constant(0)\n"
                                 "  v = f32[1000] broadcast(c), dimensions={}\n"
                                 "  t = (s32[], f32[1000]) tuple(z, v)\n"
                                 "  w = (s32[], f32[1000]) while(t), condition=cond, body=body\n"
                                 "  ROOT r = s32[] get-tuple-element(w), index=0\n}\n");
    ev.max_bytes = 50000; // a thousand states would be 4 MB
    status_t st = eval(&ev, m, &out);
    if (st) fail_msg("%s", st_message(st));
    assert_int_equal(lit_get_i64(out, 0), 1000);
    hlo_module_free(m);
    arena_done(&a);
}
static void bytes_bound_values(void **state) {
    (void)state;
    struct arena a = {0};
    struct hlo_eval ev = hlo_eval_begin(&a);
    struct literal *out;
    struct hlo_module *m = parse("HloModule m\nENTRY e { c = f32[] constant(1)\n"
                                 "  ROOT big = f32[1000,1000] broadcast(c), dimensions={}\n}\n");
    ev.max_bytes = 1000;
    expect(eval(&ev, m, &out), ST_RESOURCE_EXHAUSTED, "'big'");
    hlo_module_free(m);
    arena_done(&a);
}
static void bytes_bound_called_functions(void **state) {
    (void)state;
    struct arena a = {0};
    struct hlo_eval ev = hlo_eval_begin(&a);
    struct literal *out;
    struct hlo_module *m =
        parse("HloModule m\n"
              "add { x = f32[] parameter(0)\n  y = f32[] parameter(1)\n"
              "  ROOT s = f32[] add(x, y)\n}\n"
              "f { x = f32[] parameter(0)\n"
              "  big = f32[100000] broadcast(x), dimensions={}\n"
              "  z = f32[] constant(0)\n"
              "  ROOT r = f32[] reduce(big, z), dimensions={0}, to_apply=add\n}\n"
              "ENTRY e { c = f32[2] constant({1, 2})\n"
              "  ROOT r = f32[2] map(c), dimensions={0}, to_apply=f\n}\n");
    ev.max_bytes = 10000;
    expect(eval(&ev, m, &out), ST_RESOURCE_EXHAUSTED, "'big'");
    hlo_module_free(m);
    arena_done(&a);
}
static void ops_without_a_rule_are_named(void **state) {
    (void)state;
    struct arena a = {0};
    struct hlo_eval ev = hlo_eval_begin(&a);
    struct literal *out;
    struct hlo_module *m =
        parse("HloModule m\nENTRY e { c = f32[] constant(1)\n"
              "  ROOT mine = f32[] custom-call(c), custom_call_target=\"x\"\n}\n");
    expect(eval(&ev, m, &out), ST_UNIMPLEMENTED, "'mine'");
    hlo_module_free(m);
    arena_done(&a);
}
static void reducers_must_take_scalars(void **state) {
    (void)state;
    struct hlo_module *m = NULL;
    const char *text = "HloModule m\n"
                       "f { x = f32[2] parameter(0)\n  y = f32[2] parameter(1)\n"
                       "  ROOT s = f32[2] add(x, y)\n}\n"
                       "ENTRY e { c = f32[2] constant({1, 2})\n  z = f32[] constant(0)\n"
                       "  ROOT r = f32[] reduce(c, z), dimensions={0}, to_apply=f\n}\n";
    expect(hlo_parse((struct str){text, strlen(text)}, NULL, &m), ST_INVALID_ARGUMENT, "scalar");
}
static void a_reducer_may_be_wider_than_its_input(void **state) {
    (void)state;
    struct arena a = {0};
    struct hlo_eval ev = hlo_eval_begin(&a);
    struct literal *out;
    struct hlo_module *m = parse("HloModule m\n"
                                 "f { x = f32[] parameter(0)\n  y = f32[] parameter(1)\n"
                                 "  ROOT s = f32[] add(x, y)\n}\n"
                                 "ENTRY e { c = bf16[3] constant({1, 2, 0.5})\n"
                                 "  z = f32[] constant(0)\n"
                                 "  ROOT r = f32[] reduce(c, z), dimensions={0}, to_apply=f\n}\n");
    status_t st = eval(&ev, m, &out);
    if (st) fail_msg("%s", st_message(st));
    assert_true(lit_get_f64(out, 0) == 3.5);
    hlo_module_free(m);
    arena_done(&a);
}
static void arguments_are_checked(void **state) {
    (void)state;
    struct arena a = {0};
    struct hlo_eval ev = hlo_eval_begin(&a);
    struct literal *out, *arg = lit_scalar_i64(&a, DT_S32, 1);
    struct hlo_module *m = parse("HloModule m\nENTRY e { ROOT p = f32[2] parameter(0)\n}\n");
    expect(hlo_eval_module(&ev, m, &arg, 1, &out), ST_INVALID_ARGUMENT, "expected f32[2]");
    expect(hlo_eval_module(&ev, m, &arg, 0, &out), ST_INVALID_ARGUMENT, "takes 1");
    hlo_module_free(m);
    arena_done(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_bound_loops),
        cmocka_unit_test(cancel_stops_loops),
        cmocka_unit_test(a_long_loop_keeps_little_memory),
        cmocka_unit_test(bytes_bound_values),
        cmocka_unit_test(bytes_bound_called_functions),
        cmocka_unit_test(ops_without_a_rule_are_named),
        cmocka_unit_test(reducers_must_take_scalars),
        cmocka_unit_test(a_reducer_may_be_wider_than_its_input),
        cmocka_unit_test(arguments_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
