// SPDX-License-Identifier: Apache-2.0
// wasm_module on what is no object of LLVM's or a damaged one: an error or a module, whatever is
// missing or changed; and the sizes that it finds in a module.
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/str.h"
#include "compiler/codegen/wasm/wasm_module.h"

static void section(struct strbuf *b, char id, const char *p, size_t n) {
    strbuf_putc(b, id);
    strbuf_putc(b, (char)n);
    strbuf_add(b, p, n);
}
#define SECTION(b, id, text) section(b, id, text, sizeof text - 1)
// As LLVM writes it: `void k(float *p) { *p = t[1]; }` over a table of two floats, a stack pointer.
static void make_object(struct strbuf *b) {
    strbuf_add(b, "\0asm\1\0\0\0", 8);
    SECTION(b, 1, "\1\x60\1\x7f\0");
    SECTION(b, 2,
            "\2\3env\17__linear_memory\2\0\1"
            "\3env\17__stack_pointer\3\x7f\1");
    SECTION(b, 3, "\1\0");
    SECTION(b, 12, "\1");
    SECTION(b, 10, "\1\13\0\x20\0\x41\4\x2a\2\0\x38\2\0\13");
    SECTION(b, 11, "\1\0\x41\0\13\x8\0\0\x80\x3f\0\0\0\x40");
    SECTION(b, 0, "\7linking\2\x8\x10\3\0\4\0\1k\1\2\1t\0\0\x8\2\x10\0");
}
static const char *const names[] = {"k"};

static void finishes(void **s) {
    (void)s;
    struct strbuf b = {0};
    struct arena a = {0};
    struct span out;
    int64_t data;
    make_object(&b);
    struct span object = {(const uint8_t *)b.p, b.n};
    status_t st = wasm_module(&a, object, names, 1, &out);
    if (st) print_error("%s\n", st_message(st));
    assert_null(st);
    assert_memory_equal(out.p, "\0asm\1\0\0\0", 8);
    assert_non_null(memmem(out.p, out.n, "\1k\0\0", 4));
    assert_non_null(memmem(out.p, out.n, "\5stack\3\0", 8));
    assert_null(memmem(out.p, out.n, "linking", 7));
    assert_null(memmem(out.p, out.n, "__stack_pointer", 15));
    assert_null(wasm_data_bytes(out, &data));
    assert_int_equal(data, 8);

    st = wasm_module(&a, object, (const char *const[]){"other"}, 1, &out);
    assert_int_equal(st_code(st), ST_DATA_LOSS);
    st_drop(st);
    strbuf_done(&b);
    arena_done(&a);
}
static void damaged(void **s) {
    (void)s;
    struct strbuf b = {0};
    int refused = 0;
    make_object(&b);
    for (size_t n = 0; n < b.n; n++) { // what is there ends at the end of a page
        struct arena a = {0};
        struct span out;
        uint8_t *copy = arena_dup(&a, b.p, n + 1);
        status_t st = wasm_module(&a, (struct span){copy, n}, names, 1, &out);
        assert_non_null(st);
        st_drop(st);
        arena_done(&a);
    }
    for (size_t n = 0; n < b.n * 8; n++) {
        struct arena a = {0};
        struct span out;
        int64_t data;
        uint8_t *copy = arena_dup(&a, b.p, b.n);
        copy[n / 8] ^= (uint8_t)(1 << n % 8);
        status_t st = wasm_module(&a, (struct span){copy, b.n}, names, 1, &out);
        refused += st != ST_OK;
        st_drop(st);
        st_drop(wasm_data_bytes((struct span){copy, b.n}, &data));
        arena_done(&a);
    }
    assert_true(refused > 100);
    strbuf_done(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(finishes), cmocka_unit_test(damaged)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
