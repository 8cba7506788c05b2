// SPDX-License-Identifier: Apache-2.0
// The verifier: each invariant broken by hand in a good module.
#include "tests/unit/compiler/ir_test.h"

static const char TEXT[] = "HloModule m\n"
                           "f { a = f32[] parameter(0)\n  ROOT n = f32[] negate(a) }\n"
                           "ENTRY e {\n"
                           "  x = f32[4] parameter(0)\n"
                           "  k = f32[4] constant({1, 2, 3, 4})\n"
                           "  m = f32[4] map(x), dimensions={0}, to_apply=f\n"
                           "  ROOT r = f32[4] add(m, k)\n"
                           "}\n";
static struct hlo_module *m;
static int open_module(void **state) {
    (void)state;
    m = parsed(TEXT);
    must(hlo_verify(m));
    return 0;
}
static int close_module(void **state) {
    (void)state;
    hlo_module_free(m);
    return 0;
}
static void broken(const char *part) {
    expect(hlo_verify(m), ST_INVALID_ARGUMENT, part);
}

static void operands_come_first(void **state) {
    (void)state;
    hlo_move_before(named(m, "r"), named(m, "k"));
    broken("instruction 'r' (add): an operand comes after its user");
}
static void users_agree(void **state) {
    (void)state;
    named(m, "k")->users.v[0] = named(m, "m");
    broken("users and operands disagree");
}
static void callees_stand_above(void **state) {
    (void)state;
    hlo_computation_move_before(m->entry, m->first);
    broken("calls a computation that does not stand above");
}
static void shapes_follow_the_rules(void **state) {
    (void)state;
    struct arena *a = m->arena;
    hlo_set_shape(named(m, "r"), shape_make(a, DT_F32, (int64_t[]){5}, 1));
    broken("instruction 'r' (add): shape is f32[5], its operands give f32[4]");
}
static void literals_fit(void **state) {
    (void)state;
    struct arena *a = m->arena;
    named(m, "k")->literal = lit_scalar_f64(a, DT_F32, 1);
    broken("literal and shape differ");
}
static void parameters_are_numbered(void **state) {
    (void)state;
    named(m, "x")->param_number = 3;
    broken("parameter numbering is wrong");
}
static void names_are_unique(void **state) {
    (void)state;
    named(m, "k")->name = "x";
    broken("its name is there twice");
}
static void there_is_an_entry(void **state) {
    (void)state;
    hlo_computation_remove(m->entry);
    broken("the module has no entry computation");
}
static void values_have_a_budget(void **state) {
    (void)state;
    m->max_bytes = 15;
    expect(hlo_verify(m), ST_RESOURCE_EXHAUSTED, "16 bytes");
}
static void control_predecessors_come_first(void **state) {
    (void)state;
    hlo_add_control_pred(named(m, "x"), named(m, "r"));
    broken("a control predecessor comes after it");
}
// Each level's two branches are the level above: what follows calls would see the first 2^25 times.
static void calls_multiply(void **state) {
    (void)state;
    struct strbuf b = {0};
    struct hlo_module *deep;
    strbuf_puts(&b, "HloModule m\nc0 { p = f32[4] parameter(0)\n  ROOT r = f32[4] sine(p) }\n");
    for (int k = 1; k <= 25; k++)
        strbuf_printf(&b,
                      "%sc%d { p = f32[4] parameter(0)\n b = pred[] constant(true)\n"
                      "ROOT r = f32[4] conditional(b, p, p), true_computation=c%d, "
                      "false_computation=c%d }\n",
                      k == 25 ? "ENTRY " : "", k, k - 1, k - 1);
    expect(hlo_parse(str_of(strbuf_cstr(&b)), NULL, &deep), ST_RESOURCE_EXHAUSTED,
           "module 'm': with what they call, each call for itself");
    strbuf_done(&b);
}

// Branches in branches are followed one inside the other: a bound on how deep.
static void regions_nest(void **state) {
    (void)state;
    struct strbuf b = {0};
    struct hlo_module *deep;
    strbuf_puts(&b, "HloModule m\nc0 { p = f32[4] parameter(0)\n  ROOT r = f32[4] sine(p) }\n");
    for (int k = 1; k <= 513; k++)
        strbuf_printf(&b,
                      "%sc%d { p = f32[4] parameter(0)\n b = pred[] constant(true)\n"
                      "ROOT r = f32[4] conditional(b, p, p), true_computation=c%d, "
                      "false_computation=c0 }\n",
                      k == 513 ? "ENTRY " : "", k, k - 1);
    expect(hlo_parse(str_of(strbuf_cstr(&b)), NULL, &deep), ST_RESOURCE_EXHAUSTED,
           "nest deeper than 512");
    strbuf_done(&b);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_module, close_module)
int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(operands_come_first),  TEST(users_agree),
        TEST(callees_stand_above),  TEST(shapes_follow_the_rules),
        TEST(literals_fit),         TEST(parameters_are_numbered),
        TEST(names_are_unique),     TEST(there_is_an_entry),
        TEST(values_have_a_budget), TEST(control_predecessors_come_first),
        TEST(calls_multiply),       TEST(regions_nest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
