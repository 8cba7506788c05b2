// SPDX-License-Identifier: Apache-2.0
// YAML as a tree: types of scalars, lines, what is refused and where.
#include "client/files/yaml.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

static void is(const char *text, const char *want) {
    json_t *j = NULL;
    status_t st = yaml_read((struct span){(const uint8_t *)text, strlen(text)}, "t", &j);
    if (st) print_error("%s: %s\n", text, st_message(st));
    assert_null(st);
    char *got = json_dumps(j, JSON_COMPACT | JSON_ENCODE_ANY | JSON_PRESERVE_ORDER);
    assert_string_equal(got, want);
    free(got);
    json_decref(j);
}
static void refused(const char *text, const char *why) {
    json_t *j = NULL;
    status_t st = yaml_read((struct span){(const uint8_t *)text, strlen(text)}, "t", &j);
    assert_non_null(st);
    if (!strstr(st_message(st), why)) print_error("%s: %s\n", text, st_message(st));
    assert_non_null(strstr(st_message(st), why));
    st_drop(st);
}

static void scalars(void **state) {
    (void)state;
    is("[1, -7, 0x10, 1.5, -2e3, .5, '1', \"2\", 1x4, 10m, true, no, null, ~, ]",
       "[1,-7,\"0x10\",1.5,-2000.0,0.5,\"1\",\"2\",\"1x4\",\"10m\",true,\"no\",null,null]");
    is("[inf, nan, .inf, infinity]", "[\"inf\",\"nan\",\".inf\",\"infinity\"]");
    is("[9223372036854775807, 92233720368547758080]",
       "[9223372036854775807,9.2233720368547758e19]");
    is("\"a\\tb\"", "\"a\\tb\"");
}
static void structure(void **state) {
    (void)state;
    is("a: 1\nb:\n  - {c: x}\n  - [y, z]\n# end\n",
       "{\"$line\":1,\"a\":1,\"b\":[{\"$line\":3,\"c\":\"x\"},[\"y\",\"z\"]]}");
    is("---\na: |\n  two\n  lines\n", "{\"$line\":2,\"a\":\"two\\nlines\\n\"}");
    is("{}", "{\"$line\":1}");
}
static void errors(void **state) {
    (void)state;
    refused("", "nothing here");
    refused("a: 1\na: 2\n", "t:2:1: this key stands here twice");
    refused("a: &x 1\n", "anchors");
    refused("a: [&x 1]\nb: *x\n", "anchors");
    refused("b: *x\n", "aliases");
    refused("[a: {b]", "t:1:");
    refused("a: 1\n---\nb: 2\n", "a second document");
    refused("$line: 4\n", "a key must be a word");
    refused("[1]: 2\n", "a key must be a word");
    refused("a: \"\\xff\\xfe\"\n\xff\xfe", "t:");
    char deep[200];
    memset(deep, '[', 100);
    memset(deep + 100, ']', 99);
    deep[199] = 0;
    refused(deep, "nested too deeply");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(scalars), cmocka_unit_test(structure),
                                       cmocka_unit_test(errors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
