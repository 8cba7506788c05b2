// SPDX-License-Identifier: Apache-2.0
// A module is split into prepare and main: what names parameters by number follows them.
#include "compiler/passes/control/hoist.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "compiler/ir/text/text.h"

#define BODY                                                                                       \
    "\nENTRY e { s = f32[4] parameter(0)\nw = f32[4] parameter(1), "                               \
    "frontend_attributes={hlod_param=\"weight:0\"}\nu = f32[4] parameter(2)\nv = f32[4] "          \
    "parameter(3), frontend_attributes={hlod_param=\"weight:1\"}\na = f32[4] multiply(s, w) b = "  \
    "f32[4] multiply(u, v)\nROOT t = (f32[4], f32[4]) tuple(a, b) }\n"

static void split(const char *attrs, const char *name, const char *in_main) {
    struct hlo_module *m = NULL, *prepare = NULL;
    struct strbuf text = {0};
    strbuf_printf(&text, "HloModule m%s" BODY, attrs);
    assert_null(hlo_parse(str_of(strbuf_cstr(&text)), NULL, &m));
    assert_null(hoist_split(m, &prepare));
    assert_null(hlo_module_extra(prepare, name).p);
    struct str got = hlo_module_extra(m, name);
    if (!in_main) {
        assert_null(got.p);
    } else {
        assert_non_null(got.p);
        assert_int_equal(got.n, strlen(in_main));
        assert_memory_equal(got.p, in_main, got.n);
    }
    assert_int_equal(m->entry->params.n, 4); // both weights come first
    hlo_module_free(m);
    hlo_module_free(prepare);
    strbuf_done(&text);
}

static void test_donors(void **state) {
    (void)state;
    split(", input_output_alias={ {0}: (0, {}, may-alias), {1}: (2, {}, must-alias) }",
          "input_output_alias", "{ {0}: (2, {}, may-alias), {1}: (3, {}, must-alias) }");
    split(", input_output_alias={ {0}: (1, {}, may-alias), {1}: (2, {}) }", "input_output_alias",
          "{ {1}: (3, {}) }"); // a weight is lent to nobody
    split(", input_output_alias={ {0}: (3, {}) }", "input_output_alias", NULL);
    split(", input_output_alias={ {0}: (7, {}) }", "input_output_alias", NULL);
    split(", input_output_alias={ }", "input_output_alias", NULL);
    split(", input_output_alias={nonsense}", "input_output_alias", NULL);
    split(", buffer_donor={ (0, {}), (2, {}) }", "buffer_donor", "{ (2, {}), (3, {}) }");
    split("", "input_output_alias", NULL);
}

// Two programs that differ in this alone are not one in the cache.
static void test_key(void **state) {
    (void)state;
    struct digest d[3];
    const char *const texts[] = {"HloModule m" BODY,
                                 "HloModule m, input_output_alias={ {0}: (0, {}) }" BODY,
                                 "HloModule m, input_output_alias={ {1}: (2, {}) }" BODY};
    for (int k = 0; k < 3; k++) {
        struct hlo_module *m = NULL;
        assert_null(hlo_parse(str_of(texts[k]), NULL, &m));
        hlo_canonical_hash(m, &d[k]);
        hlo_module_free(m);
    }
    assert_memory_not_equal(&d[0], &d[1], sizeof d[0]);
    assert_memory_not_equal(&d[1], &d[2], sizeof d[0]);
}

// How many instructions of an opcode each half has.
static void count_halves(const char *text, enum hlo_op op, int in_prepare, int in_main) {
    struct hlo_module *half[2] = {NULL, NULL};
    assert_null(hlo_parse(str_of(text), NULL, &half[1]));
    assert_null(hoist_split(half[1], &half[0]));
    for (int k = 0; k < 2; k++) {
        int n = 0;
        for (const struct hlo_instr *i = half[k]->entry->first; i; i = i->next)
            n += i->op == op;
        assert_int_equal(n, k ? in_main : in_prepare);
        hlo_module_free(half[k]);
    }
}
// What depends on constants alone is prepared within a budget of operations (the second product of
// 8192 x 8192 exceeds it, and all behind it) and of bytes that stay (one iota of 200 MB).
static void test_budget(void **state) {
    (void)state;
#define DOT(name, n, x, y)                                                                         \
    name " = f32[" n "," n "] dot(" x ", " y "), lhs_contracting_dims={1}, "                       \
         "rhs_contracting_dims={0}\n"
#define OF(n)                                                                                      \
    "HloModule m\nENTRY e {\n  x = f32[] parameter(0)\n  i = f32[" n "," n                         \
    "] iota(), iota_dimension=0\n  s = f32[" n "," n "] sine(i)\n" DOT("a", n, "s", "s")           \
        DOT("b", n, "a", "s")                                                                      \
            DOT("c", n, "b", "s") "  v = f32[" n "," n                                             \
                                  "] broadcast(x), dimensions={}\n  ROOT r = f32[" n "," n         \
                                  "] add(v, c)\n}\n"
    count_halves(OF("2048"), HLO_DOT, 3, 0);
    count_halves(OF("8192"), HLO_DOT, 0, 3);
    static const char *const many =
        "HloModule m\nENTRY e {\n  x = f32[50000000] parameter(0)\n"
        "  i = f32[50000000] iota(), iota_dimension=0\n  a = f32[50000000] sine(i)\n"
        "  b = f32[50000000] cosine(i)\n  ab = f32[50000000] subtract(a, b)\n"
        "  p = f32[50000000] add(x, a)\n  q = f32[50000000] add(p, ab)\n"
        "  ROOT r = f32[50000000] multiply(q, b)\n}\n";
    count_halves(many, HLO_SIN, 0, 1);
    count_halves(many, HLO_COS, 1, 0);
}

// A run takes prepared arrays, no tuples (fuzz-hlo seed 180011: the device crashed).
static void no_tuples(const char *body, size_t params) {
    struct hlo_module *m = NULL, *prepare = NULL;
    struct strbuf text = {0};
    strbuf_printf(&text,
                  "HloModule m\nENTRY e { w = f32[2,8] parameter(0), "
                  "frontend_attributes={hlod_param=\"weight:0\"}\nv = f32[2,8] sine(w)\n"
                  "k = (f32[2,2], s32[2,2]) topk(v), k=2, largest=true\n%s }\n",
                  body);
    assert_null(hlo_parse(str_of(strbuf_cstr(&text)), NULL, &m));
    assert_null(hoist_split(m, &prepare));
    assert_int_equal(m->entry->params.n, params);
    for (size_t k = 0; k < params; k++)
        assert_false(shape_is_tuple(m->entry->params.v[k]->shape));
    hlo_module_free(m);
    hlo_module_free(prepare);
    strbuf_done(&text);
}
static void test_tuples(void **state) {
    (void)state;
    no_tuples("ROOT r = f32[2,2] get-tuple-element(k), index=0", 1);
    no_tuples("g = s32[2,2] get-tuple-element(k), index=1\nx = s32[2,2] parameter(1)\n"
              "ROOT r = s32[2,2] add(g, x)",
              2);
    no_tuples("ROOT r = ((f32[2,2], s32[2,2])) tuple(k)", 1);
}

// Texts are a run's: calls that look at them stay in main, and what calls those.
static void test_texts(void **state) {
    (void)state;
#define CALL "  t = s32[4] custom-call(p, p), custom_call_target=\"hlod.text.concat\"\n"
    count_halves("HloModule m\nENTRY e {\n  x = s32[4] parameter(0)\n  i = s32[4] iota(), "
                 "iota_dimension=0\n  p = s32[4] negate(i)\n" CALL "  n = s32[4] negate(t)\n"
                 "  ROOT r = s32[4] add(x, n)\n}\n",
                 HLO_NEGATE, 1, 1);
    count_halves("HloModule m\nf {\n  p = s32[4] parameter(0)\n" CALL
                 "  ROOT r = s32[4] negate(t)\n"
                 "}\nENTRY e {\n  x = s32[4] parameter(0)\n  i = s32[4] iota(), iota_dimension=0\n"
                 "  c = s32[4] call(i), to_apply=f\n  s = s32[4] sign(c)\n"
                 "  ROOT r = s32[4] add(x, s)\n}\n",
                 HLO_SIGN, 0, 1);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_donors), cmocka_unit_test(test_key),   cmocka_unit_test(test_budget),
        cmocka_unit_test(test_tuples), cmocka_unit_test(test_texts),
    };
    return cmocka_run_group_tests_name("compiler/hoist", tests, NULL, NULL);
}
