// SPDX-License-Identifier: Apache-2.0
// The JSON walker: round trips, both spellings of names, limits of integers, what it refuses and
// how it names the place.
#include "proto/json.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>
#include <string.h>

#include "proto/hlod.pb-c.h"

static void round_trip(const ProtobufCMessageDescriptor *d, const char *in, const char *expect) {
    struct arena a = {0};
    ProtobufCMessage *m;
    status_t s = json_parse(&a, d, str_of(in), &m);
    if (s) fail_msg("%s", st_message(s));
    struct strbuf b = {0};
    json_print(&b, m);
    assert_string_equal(strbuf_cstr(&b), expect);
    // The packed form must carry the same.
    uint8_t packed[1000];
    size_t n = protobuf_c_message_pack(m, packed);
    ProtobufCMessage *again = protobuf_c_message_unpack(d, NULL, n, packed);
    assert_non_null(again);
    strbuf_clear(&b);
    json_print(&b, again);
    assert_string_equal(strbuf_cstr(&b), expect);
    protobuf_c_message_free_unpacked(again, NULL);
    strbuf_done(&b);
    arena_done(&a);
}

static void refused(const ProtobufCMessageDescriptor *d, const char *in, const char *words) {
    struct arena a = {0};
    ProtobufCMessage *m;
    status_t s = json_parse(&a, d, str_of(in), &m);
    assert_int_equal(st_code(s), ST_INVALID_ARGUMENT);
    assert_int_equal(st_get_reason(s), HLOD__V1__REASON__REASON_BAD_JSON);
    if (!strstr(st_message(s), words)) fail_msg("'%s' lacks '%s'", st_message(s), words);
    st_drop(s);
    arena_done(&a);
}

static void messages(void **state) {
    (void)state;
    round_trip(&hlod__v1__run_request__descriptor, "{}", "{}");
    round_trip(&hlod__v1__run_request__descriptor, "\xEF\xBB\xBF{\"model\":\"ab\"}",
               "{\"model\":\"ab\"}"); // a byte order mark
    round_trip(&hlod__v1__run_request__descriptor,
               "{\"model\":\"ab\",\"inputs\":[{\"name\":\"x\",\"dtype\":\"f32\",\"shape\":[1,\"2\","
               "3.0],\"raw\":\"AAECAw==\"}],"
               "\"options\":{\"no_compile\":true,\"timeoutMs\":7}}",
               "{\"model\":\"ab\",\"inputs\":[{\"name\":\"x\",\"dtype\":\"f32\",\"shape\":[1,2,3],"
               "\"raw\":\"AAECAw==\"}],"
               "\"options\":{\"noCompile\":true,\"timeoutMs\":7}}");
    round_trip(&hlod__v1__dim__descriptor,
               "{\"size\":\"9223372036854775807\",\"symbol\":\"a\\\"\\u0001\"}",
               "{\"size\":\"9223372036854775807\",\"symbol\":\"a\\\"\\u0001\"}");
    round_trip(&hlod__v1__event__descriptor, "{\"tMs\":1.5,\"done\":{}}",
               "{\"tMs\":1.5,\"done\":{}}");
    round_trip(&hlod__v1__pass_stat__descriptor, "{\"ms\":\"NaN\",\"before\":null}",
               "{\"ms\":\"NaN\"}");
}

// What is written without printf is what %.12g writes.
static void doubles(void **state) {
    (void)state;
    static const double some[] = {1e-4,          9.99999e-5, 0.1,     999999.999999, 1e6 - 1e-6,
                                  1e15,          -0.000123,  -12.5,   1e-300,        123456.7890004,
                                  0.30000001,    3,          1.0 / 3, 1e300,         2.5e-320,
                                  99999.9999995, 1e6,        1e11};
    struct strbuf b = {0};
    uint64_t seed = 1;
    for (int k = 0; k < 30000; k++) {
        Hlod__V1__PassStat m = HLOD__V1__PASS_STAT__INIT;
        char want[64];
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        m.ms = (double)(seed >> (20 + k % 40)) / 1e6; // from 44 bits down to 5
        if (k < (int)(sizeof some / sizeof *some)) m.ms = some[k];
        if (k % 5 == 4) m.ms = nextafter(m.ms, k % 2 ? 0 : 1e308);
        snprintf(want, sizeof want, "{\"ms\":%.12g}", m.ms);
        strbuf_clear(&b);
        json_print(&b, &m.base);
        if (m.ms != 0) assert_string_equal(strbuf_cstr(&b), want);
    }
    strbuf_done(&b);
}

static void refusals(void **state) {
    (void)state;
    const ProtobufCMessageDescriptor *d = &hlod__v1__run_request__descriptor;
    refused(d, "[]", "expected an object");
    refused(d, "{\"inputs\":[{},{\"shape\":[1,\"x\"]}]}", "inputs[1].shape[1]");
    refused(d, "{\"options\":{\"nope\":1}}", "options.nope");
    refused(d, "{\"model\":1}", "model");
    refused(d, "{\"model\":\"a\",\"model\":\"b\"}", "duplicate");
    refused(d, "\xFF\xFE{", "is UTF-16 or UTF-32");
    refused(d, "\xFE\xFF{", "is UTF-16 or UTF-32");
    refused(d, "\xFF{", "decode byte 0xff");
    refused(d, "{\"model\":\"a\"", "line 1");
    refused(d, "{\"options\":{\"timeout_ms\":-1}}", "out of range");
    refused(d, "{\"inputs\":[{\"raw\":\"*\"}]}", "base64");
    char deep[100001];
    memset(deep, '[', 100000);
    deep[100000] = 0;
    refused(d, deep, "");
}

static void query_parameters(void **state) {
    (void)state;
    struct arena a = {0};
    Hlod__V1__CompileOptions o = HLOD__V1__COMPILE_OPTIONS__INIT;
    assert_null(json_set_text(&a, &o.base, STR("verify_each"), STR("1")));
    assert_null(json_set_text(&a, &o.base, STR("disablePasses"), STR("cse")));
    assert_null(json_set_text(&a, &o.base, STR("disable_passes"), STR("dce")));
    assert_true(o.verify_each);
    assert_int_equal(o.n_disable_passes, 2);
    assert_string_equal(o.disable_passes[1], "dce");
    status_t s = json_set_text(&a, &o.base, STR("verify_each"), STR("yes"));
    assert_int_equal(st_code(s), ST_INVALID_ARGUMENT);
    st_drop(s);
    s = json_set_text(&a, &o.base, STR("other"), STR("1"));
    assert_int_equal(st_code(s), ST_INVALID_ARGUMENT);
    st_drop(s);
    arena_done(&a);
}

int main(void) {
    const struct CMUnitTest t[] = {cmocka_unit_test(messages), cmocka_unit_test(doubles),
                                   cmocka_unit_test(refusals), cmocka_unit_test(query_parameters)};
    return cmocka_run_group_tests(t, NULL, NULL);
}
