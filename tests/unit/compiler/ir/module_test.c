// SPDX-License-Identifier: Apache-2.0
// The graph: users stay exact under every edit, names are unique, clones share nothing, dead code
// goes, order is restored.
#include "tests/unit/compiler/ir_test.h"

static const char TEXT[] =
    "HloModule m\n"
    "f { a = f32[] parameter(0)\n  ROOT n = f32[] negate(a) }\n"
    "ENTRY e {\n"
    "  x = f32[4] parameter(0)\n"
    "  twice = f32[4] add(x, x)\n"
    "  dead = f32[4] negate(twice)\n"
    "  map = f32[4] map(twice), dimensions={0}, to_apply=f, sharding={replicated}\n"
    "  ROOT r = f32[4] multiply(map, twice), metadata={op_name=\"r\" source_line=7}\n"
    "}\n";

static size_t uses(const struct hlo_instr *of, const struct hlo_instr *by) {
    size_t n = 0;
    for (size_t k = 0; k < of->users.n; k++)
        n += of->users.v[k] == by;
    return n;
}
static void users_follow_edits(void **state) {
    (void)state;
    struct hlo_module *m = parsed(TEXT);
    struct hlo_instr *x = named(m, "x"), *twice = named(m, "twice"), *r = named(m, "r");
    assert_int_equal(uses(x, twice), 2);
    hlo_set_operand(r, 1, x);
    assert_int_equal(uses(x, r), 1);
    assert_int_equal(uses(twice, r), 0);
    hlo_replace_uses(twice, x);
    assert_int_equal(twice->users.n, 0);
    must(hlo_verify(m));
    assert_int_equal(hlo_remove_dead(m->entry), 2); // twice and dead
    must(hlo_verify(m));
    hlo_module_free(m);
}
static void the_root_is_replaced(void **state) {
    (void)state;
    struct hlo_module *m = parsed(TEXT);
    struct hlo_instr *twice = named(m, "twice");
    hlo_replace_uses(named(m, "r"), twice);
    assert_ptr_equal(m->entry->root, twice);
    hlo_module_free(m);
}
static void names_are_unique(void **state) {
    (void)state;
    struct hlo_module *m = parsed(TEXT);
    struct hlo_instr *x = named(m, "x");
    struct hlo_instr *c = hlo_clone_instr(m->entry, named(m, "twice"), NULL);
    assert_string_equal(c->name, "twice.1");
    hlo_set_name(c, "x");
    assert_string_equal(c->name, "x.1");
    hlo_set_name(x, "onnx::Mul/7");
    assert_string_equal(x->name, "onnx__Mul_7");
    hlo_set_name(c, "x"); // free again
    assert_string_equal(c->name, "x");
    hlo_module_free(m);
}
static void clones_are_whole(void **state) {
    (void)state;
    struct hlo_module *m = parsed(TEXT), *k = hlo_module_clone(m);
    struct digest d, e;
    hlo_canonical_hash(m, &d);
    hlo_module_free(m); // nothing of it is used
    hlo_canonical_hash(k, &e);
    assert_memory_equal(&d, &e, sizeof d);
    must(hlo_verify(k));
    expect_print(k, HLO_PRINT_DEFAULT, "sharding={replicated}");
    expect_print(k, HLO_PRINT_DEFAULT, "metadata={op_name=\"r\" source_line=7}");
    hlo_module_free(k);
}
static void order_is_restored(void **state) {
    (void)state;
    struct hlo_module *m = parsed(TEXT);
    hlo_move_before(named(m, "r"), named(m, "x"));
    expect(hlo_verify(m), ST_INVALID_ARGUMENT, "comes after its user");
    must(hlo_sort_instrs(m->entry));
    must(hlo_verify(m));
    struct hlo_instr *twice = named(m, "twice");
    assert_true(hlo_depends_on(named(m, "r"), twice));
    assert_false(hlo_depends_on(twice, named(m, "map")));
    hlo_number_list(m->entry);
    HLO_EACH_INSTR(i, m->entry)
    HLO_EACH_INSTR(on, m->entry) {
        assert_int_equal(hlo_depends_on(i, on), hlo_depends_on_by_place(i, on));
    }
    hlo_set_operand(twice, 0, named(m, "map")); // a cycle
    expect(hlo_sort_instrs(m->entry), ST_INTERNAL, "cycle");
    hlo_module_free(m);
}
static void counts_and_extra(void **state) {
    (void)state;
    struct hlo_module *m = parsed(TEXT);
    struct hlo_counts n = hlo_count(m);
    assert_int_equal(n.entry, 5);
    assert_int_equal(n.total, 7);
    assert_int_equal(n.computations, 2);
    struct hlo_instr *map = named(m, "map");
    size_t len;
    assert_null(hlo_extra(map, "backend_config", &len));
    hlo_set_extra(map, "backend_config", "\"q\"");
    hlo_set_extra(map, "sharding", "{manual}");
    expect_print(m, HLO_PRINT_DEFAULT, "backend_config=\"q\", sharding={manual}");
    hlo_module_free(m);
}
static void building_checks(void **state) {
    (void)state;
    struct hlo_module *m = parsed(TEXT);
    struct hlo_instr *x = named(m, "x"), *ops[2] = {x, x}, *out;
    struct arena *a = m->arena;
    expect(hlo_add_instr(m->entry, HLO_ADD, NULL, ops, 1, NULL, NULL, 0, &out), ST_INVALID_ARGUMENT,
           "add takes 2 operands, 1 given");
    expect(hlo_add_instr(m->entry, HLO_ADD, shape_scalar(a, DT_F32), ops, 2, NULL, NULL, 0, &out),
           ST_INVALID_ARGUMENT, "shape f32[] given, f32[4] inferred");
    must(hlo_verify(m)); // a refused instruction leaves nothing behind
    hlo_module_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(users_follow_edits), cmocka_unit_test(the_root_is_replaced),
        cmocka_unit_test(names_are_unique),   cmocka_unit_test(clones_are_whole),
        cmocka_unit_test(order_is_restored),  cmocka_unit_test(counts_and_extra),
        cmocka_unit_test(building_checks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
