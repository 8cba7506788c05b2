// SPDX-License-Identifier: Apache-2.0
// What jax.export wrote is read; no bytes make the reader do more than refuse them.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/str.h"
#include "compiler/frontend/mlir/mlir_bytecode.h"
#include "compiler/frontend/stablehlo/jax_export.h"

static uint8_t bytes[1 << 16];
static struct span file(const char *path) {
    FILE *f = fopen(path, "rbe");
    assert_non_null(f);
    size_t n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    return (struct span){bytes, n};
}
static void check_value(const struct jax_value *v, const char *name, const char *dims) {
    struct strbuf b = {0};
    for (int32_t d = 0; d < v->rank; d++)
        strbuf_printf(&b, "%s%.*s", d ? "," : "", STR_ARG(v->dims[d]));
    assert_string_equal(v->name, name);
    assert_string_equal(strbuf_cstr(&b), dims);
    assert_int_equal(v->dtype, DT_F32);
    strbuf_done(&b);
}
// tanh(x @ p['w'] + p['b']) * scale of x [b, 8], where p['unused'] is one more.
static void polymorphic(void **state) {
    (void)state;
    struct arena a = {0};
    struct jax_export x;
    struct mlir_module m;
    struct span s = file("tests/fuzz/corpus/jax_export/poly.jax");
    assert_true(jax_export_sniff((struct span){s.p, 512}));
    assert_null(jax_export_read(&a, s, &x));
    assert_true(str_is(x.function, "g"));
    assert_true(x.calling_convention >= 9 && !x.has_vjp && x.n_devices == 1);
    assert_int_equal(x.n_platforms, 1);
    assert_true(str_is(x.platforms[0], "cpu"));
    assert_int_equal(x.n_kept, 5);
    assert_int_equal(x.kept[4], 4);

    assert_int_equal(x.in.n, 5);
    check_value(&x.in.v[0], "arg0.b", "4");
    check_value(&x.in.v[2], "arg0.w", "8,4");
    check_value(&x.in.v[3], "arg1", "b,8");
    check_value(&x.in.v[4], "scale", "");
    assert_int_equal(x.out.n, 1);
    check_value(&x.out.v[0], "y", "b,4");
    assert_true(x.module.p > s.p && x.module.p + x.module.n <= s.p + s.n);
    assert_null(mlir_read_bytecode(&a, x.module, &mlir_default_limits, &m));
    assert_true(m.funcs.n >= 1);
    arena_done(&a);
}
static void gradient(void **state) {
    (void)state;
    struct arena a = {0};
    struct jax_export x;
    assert_null(jax_export_read(&a, file("tests/fuzz/corpus/jax_export/vjp.jax"), &x));
    assert_true(x.has_vjp);
    arena_done(&a);
}

static void read_exact(struct span s) {
    struct arena a = {0};
    struct jax_export x;
    uint8_t *exact = malloc(s.n + 1); // so that a sanitizer sees its end
    assert_non_null(exact);
    memcpy(exact, s.p, s.n);
    (void)jax_export_sniff((struct span){exact, s.n < 512 ? s.n : 512});
    st_drop(jax_export_read(&a, (struct span){exact, s.n}, &x));
    free(exact);
    arena_done(&a);
}
static void hostile(void **state) {
    (void)state;
    struct span s = file("tests/fuzz/corpus/jax_export/poly.jax");
    uint32_t seed = 1;
    for (size_t n = 0; n < s.n; n++)
        read_exact((struct span){s.p, n});
    for (int round = 0; round < 3000; round++) {
        seed = seed * 1664525 + 1013904223;
        size_t at = (seed >> 8) % s.n;
        uint8_t was = bytes[at];
        bytes[at] = (uint8_t)(seed >> 4);
        read_exact(s);
        bytes[at] = was;
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(polymorphic), cmocka_unit_test(gradient),
                                       cmocka_unit_test(hostile)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
