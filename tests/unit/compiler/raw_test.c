// SPDX-License-Identifier: Apache-2.0
// hlo_proto_raw: a module that our reader refuses is shown as it stands.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "compiler/frontend/hlo/hlo_proto.h"
#include "compiler/ir/text/text.h"

static const char text[] = "HloModule m\n\nENTRY e {\n  x = f32[2,3] parameter(0)\n"
                           "  y = f32[2,3] parameter(1)\n  ROOT z = f32[2,3] add(x, y)\n}\n";

static void shown_as_it_stands(void **state) {
    (void)state;
    struct hlo_module *m;
    struct strbuf bytes = {0}, out = {0};
    assert_null(hlo_parse(str_of(text), NULL, &m));
    assert_null(hlo_proto_write(m, &bytes));
    hlo_module_free(m);
    char *at = memmem(bytes.p, bytes.n, "add", 3); // an opcode of no one
    at[2] = '!';
    struct span s = {(const uint8_t *)bytes.p, bytes.n};
    status_t st = hlo_proto_read(s, NULL, true, &m);
    assert_non_null(st);
    st_drop(st);
    assert_null(hlo_proto_raw(s, &out));
    assert_non_null(strstr(strbuf_cstr(&out), "HloModule m\n"));
    assert_non_null(strstr(strbuf_cstr(&out), "ENTRY %e {\n"));
    assert_non_null(strstr(strbuf_cstr(&out), " parameter(1)"));
    assert_non_null(strstr(strbuf_cstr(&out), "  ROOT %z = f32[2,3]"));
    assert_non_null(strstr(strbuf_cstr(&out), " ad!(%x, %y)"));
    strbuf_clear(&out);
    st = hlo_proto_raw((struct span){s.p, s.n - 1}, &out); // cut short
    assert_non_null(st);
    st_drop(st);
    strbuf_done(&bytes);
    strbuf_done(&out);
}

int main(void) {
    const struct CMUnitTest t[] = {cmocka_unit_test(shown_as_it_stands)};
    return cmocka_run_group_tests(t, NULL, NULL);
}
