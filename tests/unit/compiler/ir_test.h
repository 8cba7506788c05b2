// SPDX-License-Identifier: Apache-2.0
// ir_test: what the tests of compiler/ir share.
#pragma once
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "compiler/ir/op.h"
#include "compiler/ir/text/text.h"

static inline void must(status_t st) {
    if (st) fail_msg("%s", st_message(st));
}
static inline void expect(status_t st, enum status_code code, const char *part) {
    if (!st) fail_msg("accepted, expected '%s'", part);
    if (st_code(st) != code) fail_msg("code %d of '%s'", (int)st_code(st), st_message(st));
    if (!strstr(st_message(st), part)) fail_msg("'%s' lacks '%s'", st_message(st), part);
    st_drop(st);
}
static inline struct hlo_module *parsed(const char *text) {
    struct hlo_module *m = NULL;
    must(hlo_parse(str_of(text), NULL, &m));
    return m;
}
static inline struct hlo_instr *named(const struct hlo_module *m, const char *name) {
    HLO_EACH_COMPUTATION(c, m)
    for (struct hlo_instr *i = c->first; i; i = i->next)
        if (strcmp(i->name, name) == 0) return i;
    fail_msg("no instruction '%s'", name);
    return NULL;
}
static inline void expect_print(const struct hlo_module *m, unsigned flags, const char *part) {
    struct strbuf b = {0};
    hlo_print_module(&b, m, flags);
    if (!strstr(strbuf_cstr(&b), part)) fail_msg("'%s' lacks '%s'", strbuf_cstr(&b), part);
    strbuf_done(&b);
}
