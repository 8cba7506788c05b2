// SPDX-License-Identifier: Apache-2.0
// Bytecode gives the tree that its text gives, whatever version of StableHLO it is for; no bytes
// make the reader do more than refuse them.
#include <glob.h>
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
#include "compiler/frontend/mlir/mlir_text.h"

#define CORPUS "tests/fuzz/corpus/"

static struct span file(struct arena *a, const char *path) {
    FILE *f = fopen(path, "rbe");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    size_t n = (size_t)ftell(f);
    rewind(f);
    uint8_t *p = arena_alloc(a, n + 1);
    assert_int_equal(fread(p, 1, n, f), n);
    fclose(f);
    return (struct span){p, n};
}
typedef status_t reader(struct arena *a, struct span source, const struct mlir_limits *limits,
                        struct mlir_module *out);
static char *normal_text(struct arena *a, reader *read, const char *path) {
    struct mlir_module m;
    struct strbuf b = {0};
    status_t st = read(a, file(a, path), &mlir_default_limits, &m);
    if (!st) st = mlir_normal(&m);
    if (st) print_error("%s: %s\n", path, st_message(st));
    assert_null(st);
    mlir_print(&b, &m);
    char *text = arena_strdup(a, strbuf_cstr(&b));
    strbuf_done(&b);
    return text;
}
// `as`: the text is that of this name, NULL: of the bytecode's own.
static void same_as_text(const char *pattern, const char *as) {
    glob_t g;
    assert_int_equal(glob(pattern, 0, NULL, &g), 0);
    for (size_t k = 0; k < g.gl_pathc; k++) {
        struct arena a = {0};
        const char *path = g.gl_pathv[k];
        char *text = as ? arena_strdup(&a, as) : arena_strndup(&a, path, strlen(path) - 3);
        char *want = normal_text(&a, mlir_read_text, text);
        char *got = normal_text(&a, mlir_read_bytecode, path);
        assert_string_equal(got, want);
        arena_done(&a);
    }
    globfree(&g);
}
static void all_versions(void **state) {
    (void)state;
    same_as_text(CORPUS "stablehlo_bytecode/kinds.*.bc", CORPUS "stablehlo/kinds.mlir");
}
static void programs(void **state) {
    (void)state;
    same_as_text(CORPUS "stablehlo_bytecode/calls.bc", CORPUS "stablehlo/calls.mlir");
    same_as_text(CORPUS "stablehlo_bytecode/closures.bc", CORPUS "stablehlo/closures.mlir");
    same_as_text(CORPUS "stablehlo_bytecode/dynamic.bc", CORPUS "stablehlo/dynamic.mlir");
}
static void twins(void **state) { // FOLDER/*.mlir.bc beside FOLDER/*.mlir
    (void)state;
    const char *folder = getenv("STABLEHLO_TWINS");
    char pattern[1024];
    if (!folder) skip();
    snprintf(pattern, sizeof pattern, "%s/*.mlir.bc", folder);
    same_as_text(pattern, NULL);
}
static void shardings_are_passed_over(void **state) {
    (void)state;
    struct arena a = {0};
    char *text = normal_text(&a, mlir_read_bytecode, CORPUS "stablehlo_bytecode/sharded.bc");
    assert_non_null(strstr(text, "tf.aliasing_output = 0"));
    assert_non_null(strstr(text, "stablehlo.multiply"));
    assert_null(strstr(text, "sdy"));
    arena_done(&a);
}

// ---- one function of the tree

static void elements_are_borrowed(void **state) {
    (void)state;
    struct arena a = {0};
    struct mlir_module m;
    struct span s = file(&a, CORPUS "stablehlo_bytecode/kinds.1.17.0.bc");
    assert_null(mlir_read_bytecode(&a, s, &mlir_default_limits, &m));
    assert_true(str_is(m.producer, "StableHLO_v1.17.0"));
    assert_int_equal(m.funcs.n, 2);
    const struct mlir_func *f = mlir_find_func(&m, STR("main"));
    assert_int_equal(f->body.n_args, 3);
    assert_false(mlir_find_func(&m, STR("inner"))->is_public);

    const struct mlir_attr *big = mlir_op_attr(f->body.ops.v[0], "value");
    assert_int_equal(big->kind, MLIR_A_DENSE);
    assert_int_equal(big->bytes.n, 32);
    assert_true(big->bytes.p > s.p && big->bytes.p + big->bytes.n < s.p + s.n);
    const struct mlir_attr *bits = mlir_op_attr(f->body.ops.v[1], "value");
    static const uint8_t want[] = {1, 0, 1, 1, 0, 1, 0, 0};
    assert_int_equal(bits->bytes.n, sizeof want);
    assert_memory_equal(bits->bytes.p, want, sizeof want);
    assert_true(mlir_op_attr(f->body.ops.v[2], "value")->splat);
    arena_done(&a);
}

// ---- hostile bytes

static void read_all(struct span s, bool must_fail) {
    struct arena a = {0};
    struct mlir_module m;
    uint8_t *exact = malloc(s.n + 1); // so that a sanitizer sees its end
    assert_non_null(exact);
    memcpy(exact, s.p, s.n);
    status_t st = mlir_read_bytecode(&a, (struct span){exact, s.n}, &mlir_default_limits, &m);
    if (must_fail) assert_non_null(st);
    if (!st) st = mlir_normal(&m);
    st_drop(st);
    free(exact);
    arena_done(&a);
}
static void truncated(void **state) {
    (void)state;
    struct arena a = {0};
    static const char *const paths[] = {CORPUS "stablehlo_bytecode/kinds.0.9.0.bc",
                                        CORPUS "stablehlo_bytecode/kinds.1.17.0.bc",
                                        CORPUS "stablehlo_bytecode/sharded.bc"};
    for (size_t k = 0; k < sizeof paths / sizeof *paths; k++) {
        struct span s = file(&a, paths[k]);
        for (size_t n = 0; n < s.n; n++)
            read_all((struct span){s.p, n}, true);
    }
    arena_done(&a);
}
static void changed(void **state) {
    (void)state;
    struct arena a = {0};
    uint32_t seed = 1;
    glob_t g;
    assert_int_equal(glob(CORPUS "stablehlo_bytecode/*.bc", 0, NULL, &g), 0);
    for (size_t k = 0; k < g.gl_pathc; k++) {
        struct span s = file(&a, g.gl_pathv[k]);
        uint8_t *p = arena_alloc(&a, s.n);
        for (int round = 0; round < 300; round++) {
            memcpy(p, s.p, s.n);
            for (int n = 0; n <= round % 3; n++) {
                seed = seed * 1664525 + 1013904223;
                p[(seed >> 8) % s.n] = (uint8_t)(seed >> 4);
            }
            read_all((struct span){p, s.n}, false);
        }
    }
    globfree(&g);
    arena_done(&a);
}
static void small_limits(void **state) {
    (void)state;
    struct arena a = {0};
    struct span s = file(&a, CORPUS "stablehlo_bytecode/kinds.1.17.0.bc");
    for (int k = 0; k < 4; k++) {
        struct mlir_limits limits = mlir_default_limits;
        struct mlir_module m;
        if (k == 0) limits.max_depth = 2;
        if (k == 1) limits.max_ops = 10;
        if (k == 2) limits.max_values = 10;
        if (k == 3) limits.max_attr_bytes = 1000;
        status_t st = mlir_read_bytecode(&a, s, &limits, &m);
        assert_int_equal(st_code(st), ST_RESOURCE_EXHAUSTED);
        st_drop(st);
    }
    arena_done(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_versions),
        cmocka_unit_test(programs),
        cmocka_unit_test(twins),
        cmocka_unit_test(shardings_are_passed_over),
        cmocka_unit_test(elements_are_borrowed),
        cmocka_unit_test(truncated),
        cmocka_unit_test(changed),
        cmocka_unit_test(small_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
