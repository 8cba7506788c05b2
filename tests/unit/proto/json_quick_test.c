// SPDX-License-Identifier: Apache-2.0
// The quick reader: what it takes, json_parse reads to the same message (texts of spaces beyond its
// bound show what that reads without it); what it is not sure of, it leaves alone.
#include "proto/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "proto/formats/inference.pb-c.h"
#include "proto/hlod.pb-c.h"
#include "proto/message.h"

#define INFER &inference__model_infer_request__descriptor
#define RUN   &hlod__v1__run_request__descriptor

static status_t slow(struct arena *a, const ProtobufCMessageDescriptor *d, struct str text,
                     bool oip, ProtobufCMessage **out) {
    struct strbuf b = {0};
    strbuf_add(&b, text.p, text.n);
    for (size_t i = 0; i < JSON_QUICK_BYTES; i++)
        strbuf_putc(&b, ' ');
    struct str all = {b.p, b.n};
    status_t st = oip ? json_parse_oip(a, d, all, out) : json_parse(a, d, all, out);
    strbuf_done(&b);
    return st;
}

// Whether it was taken; if it was, as the other reads it.
static bool taken(const ProtobufCMessageDescriptor *d, const char *text, bool oip) {
    struct arena a = {0};
    ProtobufCMessage *quick = NULL, *m;
    char *exact = malloc(strlen(text) + 1); // a byte beyond it is found by ASan
    memcpy(exact, text, strlen(text));
    bool ok = json_quick(&a, d, (struct str){exact, strlen(text)}, oip, &quick);
    free(exact);
    if (ok) {
        status_t st = slow(&a, d, str_of(text), oip, &m);
        if (st) fail_msg("'%s' was taken: %s", text, st_message(st));
        struct span x = message_pack(&a, quick), y = message_pack(&a, m);
        if (x.n != y.n || memcmp(x.p, y.p, x.n) != 0) fail_msg("'%s' is another message", text);
    }
    arena_done(&a);
    return ok;
}

static void takes(void **state) {
    (void)state;
    static const char *const infer[] = {
        "{}",
        " { } ",
        "{\"id\":\"7\",\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[1,784],"
        "\"parameters\":{\"binary_data_size\":3136}}],\"parameters\":{\"binary_data_output\":true}"
        "}",
        "{\"inputs\":[{\"name\":\"x\",\"raw\":null}]}",
        "{\"inputs\": [] ,\"outputs\":[{\"name\":\"y\",\"parameters\":{\"classification\":3}},\n"
        "{\"name\":\"z\",\"parameters\":{\"binary_data\":false,\"region\":\"r\"}}]}",
        "{\"model_name\":\"m\",\"inputs\":null}"};
    for (size_t i = 0; i < sizeof infer / sizeof *infer; i++)
        assert_true(taken(INFER, infer[i], true));
    assert_true(taken(RUN,
                      "{\"model\":\"ab\",\"inputs\":[{\"name\":\"x\",\"dtype\":\"f32\",\"shape\":"
                      "[0,-3,123456789012345]}],\"options\":{\"noCompile\":true,\"timeout_ms\":7}}",
                      false));
}

static void leaves(void **state) {
    (void)state;
    static const char *const infer[] = {"",
                                        "[]",
                                        "{",
                                        "{\"id\":\"a\"",
                                        "{\"id\":\"a\"}x",
                                        "{\"id\":\"a\",}",
                                        "{,\"id\":\"a\"}",
                                        "{\"id\":\"a\",\"id\":\"b\"}",
                                        "{\"id\":\"\\u0041\"}",
                                        "{\"id\":\"\xc3\xa9\"}",
                                        "{\"id\":\"a\x01\"}",
                                        "{\"id\":1}",
                                        "{\"id\" \"a\"}",
                                        "{\"nope\":1}",
                                        "{\"a\":null,\"a\":null}",
                                        "{\"inputs\":[{}{}]}",
                                        "{\"inputs\":[{},]}",
                                        "{\"inputs\":[1]}",
                                        "{\"inputs\":{}}",
                                        "{\"inputs\":[{\"shape\":[1 2]}]}",
                                        "{\"inputs\":[{\"shape\":[01]}]}",
                                        "{\"inputs\":[{\"shape\":[-0]}]}",
                                        "{\"inputs\":[{\"shape\":[1.0]}]}",
                                        "{\"inputs\":[{\"shape\":[1e3]}]}",
                                        "{\"inputs\":[{\"shape\":[\"1\"]}]}",
                                        "{\"inputs\":[{\"shape\":[1234567890123456]}]}",
                                        "{\"inputs\":[{\"shape\":[1]]}",
                                        "{\"parameters\":{\"a\":1,\"a\":2}}",
                                        "{\"parameters\":{\"a\":1.5}}",
                                        "{\"parameters\":{\"a\":[]}}",
                                        "{\"parameters\":{\"a\":tru}}",
                                        "{\"id\":nul}",
                                        "{\"inputs\":[{\"name\":\"x\",\"raw\":[1]}]}"};
    for (size_t i = 0; i < sizeof infer / sizeof *infer; i++)
        if (taken(INFER, infer[i], true)) fail_msg("'%s' was taken", infer[i]);
    assert_false(taken(RUN, "{\"nope\":null}", false));
    assert_false(taken(RUN, "{\"options\":{\"timeoutMs\":5000000000}}", false));
}

// Every cut and every changed byte of a text: never beyond its bytes, never another message.
static void damaged(void **state) {
    (void)state;
    static const char text[] =
        "{\"id\":\"7\",\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[1,784],"
        "\"parameters\":{\"binary_data_size\":3136}}],\"parameters\":{\"binary_data_output\":true}"
        "}";
    static const char with[] = "{}[]\",:-019.tfn \\a";
    char copy[sizeof text];
    for (size_t i = 0; i < sizeof text - 1; i++) {
        memcpy(copy, text, sizeof text);
        copy[i] = 0;
        taken(INFER, copy, true);
        for (size_t k = 0; k < sizeof with - 1; k++) {
            memcpy(copy, text, sizeof text);
            copy[i] = with[k];
            taken(INFER, copy, true);
        }
    }
}

// More entries, or deeper, than it has room for.
static void large(void **state) {
    (void)state;
    struct strbuf b = {0};
    strbuf_puts(&b, "{\"inputs\":[{\"shape\":[1");
    for (int i = 0; i < 16; i++)
        strbuf_puts(&b, ",1");
    strbuf_puts(&b, "]}]}");
    assert_false(taken(INFER, b.p, true));
    strbuf_done(&b);
    struct strbuf deep = {0};
    for (int i = 0; i < 40; i++)
        strbuf_puts(&deep, "{\"elements\":[");
    assert_false(taken(&hlod__v1__tensor_spec__descriptor, deep.p, false));
    strbuf_done(&deep);
}

int main(void) {
    const struct CMUnitTest t[] = {cmocka_unit_test(takes), cmocka_unit_test(leaves),
                                   cmocka_unit_test(damaged), cmocka_unit_test(large)};
    return cmocka_run_group_tests(t, NULL, NULL);
}
