// SPDX-License-Identifier: Apache-2.0
// The text parser: errors with their place, budgets before memory, forms that are spelled out, kept
// text.
#include "tests/unit/compiler/ir_test.h"

static void errors_name_their_place(void **state) {
    (void)state;
    static const char *const bad[][2] = {
        {"", "1:1: the module has no computation"},
        {"HloModule m\nENTRY e {", "no '}' closes computation 'e'"},
        {"HloModule m\nENTRY e {\n}", "3:2: computation 'e' is empty"},
        {"HloModule m\nENTRY e {\n  x = f32[2] frob(y)\n}", "3:14: unknown opcode 'frob'"},
        {"HloModule m\nENTRY e {\n  x = f32[2] negate(y)\n}", "operand 'y' is not defined above"},
        {"HloModule m\nENTRY e {\n  x = f33[2] parameter(0)\n}", "expected a shape"},
        {"HloModule m\nENTRY e {\n  x = f32[-2] parameter(0)\n}", "expected a dimension"},
        {"HloModule m\nENTRY e {\n  x = f32[2]{1} parameter(0)\n}", "not a permutation"},
        {"HloModule m\nENTRY e {\n  x = f32[2] parameter(1)\n}", "has no parameter 0"},
        {"HloModule m\nENTRY e {\n  x = f32[] parameter(0)\n  y = f32[] parameter(0)\n}",
         "parameter 0 is there twice"},
        {"HloModule m\nENTRY e {\n  x = f32[] parameter(0)\n  x = f32[] negate(x)\n}",
         "instruction 'x' is there twice"},
        {"HloModule m\nENTRY e {\n  ROOT x = f32[] constant(0)\n  ROOT y = f32[] negate(x)\n}",
         "two ROOT instructions"},
        {"HloModule m\nENTRY e { x = f32[] constant(0) }\nENTRY f { x = f32[] constant(0) }",
         "two ENTRY computations"},
        {"HloModule m\nENTRY e {\n  x = s8[] constant(128)\n}", "out of the range of s8"},
        {"HloModule m\nENTRY e {\n  x = u8[] constant(256)\n}", "out of the range of u8"},
        {"HloModule m\nENTRY e {\n  x = f32[2] constant({1})\n}", "expected 2 elements"},
        {"HloModule m\nENTRY e {\n  x = f32[2] constant({1, 2, 3})\n}", "expected '}' after 2"},
        {"HloModule m\nENTRY e {\n  x = f32[] parameter(0), a=1, a=2\n}", "a is there twice"},
        {"HloModule m\nENTRY e {\n  x = f32[] parameter(0), sharding={[}]\n}", "does not close"},
        {"HloModule m\nENTRY e {\n  x = f32[] parameter(0), metadata={op_name=\"a\" \"b\"}\n}",
         "expected name=value"},
        {"HloModule m\nENTRY e {\n  x = f32[] parameter(0), frontend_attributes={a=\"b\"c}\n}",
         "frontend_attributes"},
        {"HloModule m\nENTRY e {\n  x = f32[] parameter(0)\n  y = f32[] call(x), to_apply=g\n}",
         "computation 'g' is not defined above"},
        {"HloModule m, entry_computation_layout={(f32[2])->f32[]}\nENTRY e {\n  x = f32[] "
         "parameter(0)\n}",
         "entry_computation_layout has f32[2], the entry f32[]"},
        {"HloModule m\nENTRY e {\n  x = f32[?] parameter(0)\n}", "has no bound"},
        {"HloModule m\nENTRY e {\n  x = f32[9] constant({...})\n}", "left out of the text"},
        {"HloModule m\nENTRY e {\n  x = f32[2] parameter(0)\n  y = f32[2] dot-start(x)\n}",
         "dot-start needs a shape ((operands), result, ...)"},
    };
    for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++) {
        struct hlo_module *m = NULL;
        expect(hlo_parse(str_of(bad[k][0]), NULL, &m), ST_INVALID_ARGUMENT, bad[k][1]);
    }
}

static status_t limited(const char *text, struct hlo_parse_limits l) {
    struct hlo_module *m = NULL;
    status_t st = hlo_parse(str_of(text), &l, &m);
    if (!st) hlo_module_free(m);
    return st;
}
static void budgets_come_first(void **state) {
    (void)state;
    const char *two = "HloModule m\nENTRY e { x = f32[] parameter(0)\n  y = f32[] negate(x) }";
    must(limited(two, (struct hlo_parse_limits){.max_instrs = 2}));
    expect(limited(two, (struct hlo_parse_limits){.max_instrs = 1}), ST_INVALID_ARGUMENT,
           "more than 1 instructions");
    expect(limited(two, (struct hlo_parse_limits){.max_text_bytes = 20}), ST_RESOURCE_EXHAUSTED,
           "above the limit of 20");
    const char *big = "HloModule m\nENTRY e { x = f32[1000000000] constant({1}) }";
    expect(limited(big, (struct hlo_parse_limits){0}), ST_INVALID_ARGUMENT, "too short");
    const char *shapes =
        "HloModule m\nENTRY e { x = ((),(),(),(),(),(),(),(),(),(),(),(),(),(),(),()"
        ",(),(),(),()) parameter(0) }";
    expect(limited(shapes, (struct hlo_parse_limits){.max_instrs = 1}), ST_INVALID_ARGUMENT,
           "more than 16 shapes");
    const char *elided = "HloModule m\nENTRY e { x = f32[1000000000000] constant({...}) }";
    expect(limited(elided, (struct hlo_parse_limits){.incomplete = true}), ST_INVALID_ARGUMENT,
           "above the limit");
}
static void nesting_is_bounded(void **state) {
    (void)state;
    static const struct {
        const char *head, *open, *middle, *close, *tail;
    } forms[] = {
        {"HloModule m\nENTRY e { x = ", "(", "f32[]", ")", " parameter(0) }"},
        {"HloModule m\nENTRY e { x = f32[] ", "negate(f32[] ", "parameter(0)", ")", " }"},
        {"HloModule m\nENTRY e { p = f32[] parameter(0)\n x = f32[] ",
         "call(p), to_apply={ p = f32[] parameter(0)\n ROOT c = f32[] ", "negate(p)", "}", " }"},
    };
    for (size_t k = 0; k < sizeof forms / sizeof forms[0]; k++)
        for (int depth = 10; depth <= 100000; depth *= 10000) {
            struct strbuf b = {0};
            strbuf_puts(&b, forms[k].head);
            for (int d = 0; d < depth; d++)
                strbuf_puts(&b, forms[k].open);
            strbuf_puts(&b, forms[k].middle);
            for (int d = 0; d < depth; d++)
                strbuf_puts(&b, forms[k].close);
            strbuf_puts(&b, forms[k].tail);
            status_t st = limited(b.p, (struct hlo_parse_limits){0});
            if (depth == 10)
                must(st);
            else
                expect(st, ST_INVALID_ARGUMENT, "deeper than");
            strbuf_done(&b);
        }
}

static void short_forms_are_spelled_out(void **state) {
    (void)state;
    struct hlo_module *m =
        parsed("HloModule short:\nc: {\n ROOT r = sqrt(f32[4] parameter(0)) }\n");
    assert_int_equal(m->entry->n_instrs, 2);
    hlo_module_free(m);
    m = parsed(
        "HloModule m\nENTRY e {\n x = f32[2] parameter(0)\n"
        " s = ((f32[2]), f32[2], u32[]) negate-start(x), async_execution_thread=\"t\"\n"
        " u = ((f32[2]), f32[2], u32[]) negate-update(s)\n ROOT d = f32[2] negate-done(u) }");
    expect_print(m, 0, "async-start(%x), calls=%async_wrapped, async_execution_thread=\"t\"");
    expect_print(m, 0, "ROOT %d = f32[2] async-done(%u)\n");
    hlo_module_free(m);
    m = parsed("HloModule m\nENTRY e {\n x = bf16[2] parameter(0)\n ROOT c = f32[2] copy(x) }");
    expect_print(m, 0, "ROOT %c = f32[2] convert(");
    hlo_module_free(m);
}
static void kept_text_has_one_form(void **state) {
    (void)state;
    struct hlo_module *m =
        parsed("HloModule m, z={ 1 },\n a={\"x // y\"}\nENTRY e {\n x = f32[] parameter(0), "
               "statistics={a=1,\n  b=2}, metadata={op_name=\"a\\\"b\\012\", source_line=3},\n"
               " backend_config={\"k\": [1,  2]} /* c */\n}");
    expect_print(m, HLO_PRINT_DEFAULT, "HloModule m, a={\"x // y\"}, z={ 1 }, entry");
    expect_print(m, HLO_PRINT_DEFAULT, "backend_config={\"k\": [1, 2]}, statistics={a=1, b=2}");
    expect_print(m, HLO_PRINT_DEFAULT, "metadata={op_name=\"a\\\"b\\012\" source_line=3}");
    assert_string_equal(m->entry->root->op_name, "a\"b\n");
    hlo_module_free(m);
}
static void source_places_are_tables(void **state) {
    (void)state;
    const char *tables = "\nFileNames\n1 \"a b\"\n\nFunctionNames\n1 \"f\"\n\nFileLocations\n"
                         "1 {file_name_id=1 function_name_id=1 line=5 end_line=5 column=2 "
                         "end_column=9}\n\nStackFrames\n1 {file_location_id=1 parent_frame_id=1}\n";
    struct strbuf b = {0};
    strbuf_printf(&b, "HloModule m\n%s\nENTRY e { x = f32[] parameter(0) }", tables);
    struct hlo_module *m = parsed(b.p);
    assert_int_equal(m->source_map.locations.v[0].v[2], 5);
    expect_print(m, HLO_PRINT_DEFAULT, tables);
    hlo_module_free(m);
    strbuf_done(&b);
    struct hlo_module *none = NULL;
    expect(hlo_parse(STR("HloModule m\nFileNames\n2 \"a\"\nENTRY e { x = f32[] constant(0) }"),
                     NULL, &none),
           ST_INVALID_ARGUMENT, "expected entry 1 of the table");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_name_their_place), cmocka_unit_test(budgets_come_first),
        cmocka_unit_test(nesting_is_bounded),      cmocka_unit_test(short_forms_are_spelled_out),
        cmocka_unit_test(kept_text_has_one_form),  cmocka_unit_test(source_places_are_tables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
