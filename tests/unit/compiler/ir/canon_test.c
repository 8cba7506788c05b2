// SPDX-License-Identifier: Apache-2.0
// The canonical hash: names, metadata, spelling and the order of independent instructions do not
// change it; everything that changes the meaning does.
#include "tests/unit/compiler/ir_test.h"

static const char BASE[] = "HloModule m\n"
                           "add { a = f32[] parameter(0)\n b = f32[] parameter(1)\n"
                           " ROOT s = f32[] add(a, b) }\n"
                           "ENTRY e {\n"
                           " x = f32[4,2] parameter(0)\n"
                           " y = f32[4,2] parameter(1)\n"
                           " z = f32[] constant(0)\n"
                           " p = f32[4,2] subtract(x, y)\n"
                           " q = f32[4,2] exponential(y)\n"
                           " m = f32[4,2] multiply(p, q)\n"
                           " ROOT r = f32[4] reduce(m, z), dimensions={1}, to_apply=add\n"
                           "}\n";

static struct digest hash_of(const char *text) {
    struct hlo_module *m = parsed(text);
    struct digest d;
    hlo_canonical_hash(m, &d);
    hlo_module_free(m);
    return d;
}
// BASE with `from` replaced by `to`.
static struct digest with(const char *from, const char *to) {
    struct strbuf b = {0};
    const char *at = strstr(BASE, from);
    assert_non_null(at);
    strbuf_add(&b, BASE, (size_t)(at - BASE));
    strbuf_puts(&b, to);
    strbuf_puts(&b, at + strlen(from));
    struct digest d = hash_of(b.p);
    strbuf_done(&b);
    return d;
}

static void meaning_counts(void **state) {
    (void)state;
    static const char *const edits[][2] = {
        {"subtract(x, y)", "subtract(y, x)"},
        {"exponential(y)", "negate(y)"},
        {"constant(0)", "constant(1)"},
        {"constant(0)", "constant(-0)"},
        {" ROOT s = f32[] add(a, b)", " ROOT s = f32[] maximum(a, b)"},
        {"f32[4,2] parameter(0)", "f32[4,2]{0,1} parameter(0)"},
        {"f32[4,2] multiply(p, q)", "f32[4,2]{0,1} multiply(p, q)"},
        {"multiply(p, q)\n", "multiply(p, q), backend_config=\"fast\"\n"},
        {"multiply(p, q)\n", "multiply(p, q), sharding={devices=[2,1]<=[2]}\n"},
        {"exponential(y)\n", "exponential(y), control-predecessors={p}\n"},
    };
    struct digest base = hash_of(BASE);
    for (size_t k = 0; k < sizeof edits / sizeof edits[0]; k++) {
        struct digest d = with(edits[k][0], edits[k][1]);
        if (memcmp(&base, &d, sizeof d) == 0) fail_msg("'%s' changes nothing", edits[k][1]);
    }
}
static void spelling_does_not(void **state) {
    (void)state;
    static const char *const edits[][2] = {
        {"HloModule m", "HloModule other"},
        {"ENTRY e", "ENTRY main"},
        {" q = f32[4,2] exponential(y)\n m = f32[4,2] multiply(p, q)",
         " q7 = f32[4,2] exponential(y)\n m = f32[4,2] multiply(p, q7)"},
        {" p = f32[4,2] subtract(x, y)\n q = f32[4,2] exponential(y)\n",
         " q = f32[4,2] exponential(y)\n p = f32[4,2] subtract(x, y)\n"},
        {" q = f32[4,2] exponential(y)\n m = f32[4,2] multiply(p, q)",
         " m = f32[4,2] multiply(p, f32[4,2] exponential(y))"},
        {"multiply(p, q)\n", "multiply(p, q), metadata={op_type=\"Mul\" source_line=3}\n"},
        {"multiply(p, q)\n", "multiply(p, q), frontend_attributes={a=\"b\"}\n"},
        {"f32[4,2] multiply", "f32[4,2]{1,0} multiply"},
        {"constant(0)", "constant(/*zero*/ 0.0)"},
        {" z = f32[] constant(0)\n", " z = f32[] constant(0)\n unused = f32[4,2] negate(y)\n"},
    };
    struct digest base = hash_of(BASE);
    for (size_t k = 0; k < sizeof edits / sizeof edits[0]; k++) {
        struct digest d = with(edits[k][0], edits[k][1]);
        if (memcmp(&base, &d, sizeof d) != 0) fail_msg("'%s' changes the hash", edits[k][1]);
    }
}
static void canonical_text_has_no_names(void **state) {
    (void)state;
    struct hlo_module *m = parsed(BASE);
    expect_print(m, HLO_PRINT_CANONICAL, "HloModule m,");
    expect_print(m, HLO_PRINT_CANONICAL,
                 "subtract.9 = f32[4,2] subtract(parameter.6, parameter.7)");
    hlo_module_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(meaning_counts),
        cmocka_unit_test(spelling_does_not),
        cmocka_unit_test(canonical_text_has_no_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
