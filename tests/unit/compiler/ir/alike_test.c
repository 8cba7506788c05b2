// SPDX-License-Identifier: Apache-2.0
// alike: two layers that say the same are alike whatever their names and metadata; each change of
// what one of them computes, or of the shapes it is given, makes them differ.
#include "compiler/ir/alike.h"

#include "tests/unit/compiler/ir_test.h"

#define ADD(NAME)                                                                                  \
    #NAME " { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT s = f32[] add(a, b) }\n"
#define BODY(NAME, OF)                                                                             \
    #NAME " {\n x = f32[4,2] parameter(0)\n y = f32[4,2] parameter(1)\n z = f32[] constant(0)\n"   \
          " d = f32[4,2] subtract(x, y)\n e = f32[4,2] exponential(y)\n"                           \
          " m = f32[4,2] multiply(d, e)\n t = f32[2,4] transpose(m), dimensions={1,0}\n"           \
          " ROOT r = f32[2] reduce(t, z), dimensions={1}, to_apply=" #OF " }\n"

static const char MODULE[] = "HloModule m\n" ADD(sum_a) ADD(sum_b) BODY(first, sum_a) BODY(
    second,
    sum_b) "ENTRY e {\n"
           " u = f32[4,2] parameter(0)\n"
           " v = f32[4,2] parameter(1)\n"
           " one = f32[2] fusion(u, v), kind=kLoop, calls=first, metadata={op_name=\"layer.0\"}\n"
           " w = f32[4,2] broadcast(one), dimensions={1}\n"
           " two = f32[2] fusion(w, w), kind=kLoop, calls=second, metadata={op_name=\"layer.1\"}\n"
           " ROOT all = (f32[2], f32[2]) tuple(one, two)\n"
           "}\n";

// MODULE with the last place that says `from` saying `to`: that of `second` and after.
static struct hlo_module *with(const char *from, const char *to) {
    struct strbuf b = {0};
    const char *at = NULL, *next = MODULE;
    while ((next = strstr(next, from)))
        at = next++;
    assert_non_null(at);
    strbuf_add(&b, MODULE, (size_t)(at - MODULE));
    strbuf_puts(&b, to);
    strbuf_puts(&b, at + strlen(from));
    struct hlo_module *m = parsed(strbuf_cstr(&b));
    strbuf_done(&b);
    return m;
}

static void layers_are_alike(void **state) {
    (void)state;
    static const char *const edits[][2] = {
        {"HloModule m", "HloModule n"},
        {"op_name=\"layer.1\"", "op_name=\"model/layer.1/attention\""},
        {"calls=second", "calls=second, frontend_attributes={note=\"b\"}"},
        {"fusion(w, w)", "fusion(u, w)"}, // which values are given is not looked at
        {"to_apply=sum_b", "to_apply=sum_a"},
    };
    for (size_t k = 0; k < sizeof edits / sizeof edits[0]; k++) {
        struct hlo_module *m = with(edits[k][0], edits[k][1]);
        const struct hlo_instr *one = named(m, "one"), *two = named(m, "two");
        assert_true(hlo_kernels_alike(one, two));
        assert_true(hlo_kernels_alike(two, one));
        assert_int_equal(hlo_kernel_hash(one), hlo_kernel_hash(two));
        assert_false(hlo_kernels_alike(named(m, "w"), named(m, "w"))); // no fusion
        hlo_module_free(m);
    }
}
static void changes_are_seen(void **state) {
    (void)state;
    static const char *const edits[][2] = {
        {"subtract(x, y)", "subtract(y, x)"},
        {"subtract(x, y)", "subtract(x, x)"},
        {"exponential(y)", "negate(y)"},
        {"exponential(y)", "exponential(x)"},
        {"constant(0)", "constant(1)"},
        {"constant(0)", "constant(-0)"},
        {"m = f32[4,2] multiply(d, e)", "m = f32[4,2]{0,1} multiply(d, e)"},
        {"m = f32[4,2] multiply(d, e)", "m = f32[4,2] multiply(d, e), backend_config=\"fast\""},
        {"m = f32[4,2] multiply(d, e)", "m = f32[4,2] multiply(d, e), control-predecessors={d}"},
        {"multiply(d, e)", "multiply(d, e)\n l = f32[4,2] negate(e)"},
        {"kind=kLoop, calls=second", "kind=kInput, calls=second"},
        {"w = f32[4,2] broadcast", "w = f32[4,2]{0,1} broadcast"}, // an operand's layout
        {"ROOT s = f32[] add(a, b)", "ROOT s = f32[] maximum(a, b)"},
    };
    for (size_t k = 0; k < sizeof edits / sizeof edits[0]; k++) {
        struct hlo_module *m = with(edits[k][0], edits[k][1]);
        if (hlo_kernels_alike(named(m, "one"), named(m, "two")))
            fail_msg("'%s' changes nothing", edits[k][1]);
        hlo_module_free(m);
    }
}

static void products_are_alike(void **state) {
    (void)state;
    struct hlo_module *m = parsed(
        "HloModule m\n"
        "ENTRY e {\n"
        " x = f32[4,8,8] parameter(0)\n"
        " y = f32[4,8,8] parameter(1)\n"
        " one = f32[4,8,8] dot(x, y), lhs_batch_dims={0}, rhs_batch_dims={0},"
        " lhs_contracting_dims={2}, rhs_contracting_dims={1}\n"
        " two = f32[4,8,8] dot(y, one), lhs_batch_dims={0}, rhs_batch_dims={0},"
        " lhs_contracting_dims={2}, rhs_contracting_dims={1}\n"
        " twice = f32[4,8,8] dot(x, x), lhs_batch_dims={0}, rhs_batch_dims={0},"
        " lhs_contracting_dims={2}, rhs_contracting_dims={1}\n"
        " turned = f32[4,8,8] dot(x, y), lhs_batch_dims={0}, rhs_batch_dims={0},"
        " lhs_contracting_dims={2}, rhs_contracting_dims={2}\n"
        " sum = f32[4,8,8] add(x, y)\n"
        " ROOT all = (f32[4,8,8], f32[4,8,8], f32[4,8,8], f32[4,8,8]) tuple(two, twice, turned,"
        " sum)\n"
        "}\n");
    const struct hlo_instr *one = named(m, "one");
    assert_true(hlo_kernels_alike(one, named(m, "two")));
    assert_int_equal(hlo_kernel_hash(one), hlo_kernel_hash(named(m, "two")));
    assert_false(hlo_kernels_alike(one, named(m, "twice")));
    assert_false(hlo_kernels_alike(named(m, "twice"), one));
    assert_false(hlo_kernels_alike(one, named(m, "turned")));
    assert_false(hlo_kernels_alike(named(m, "sum"), named(m, "sum"))); // neither
    hlo_module_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_are_alike),
        cmocka_unit_test(changes_are_seen),
        cmocka_unit_test(products_are_alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
