// SPDX-License-Identifier: Apache-2.0
// What is known of the registers that hold constants ends with each instruction that writes one,
// whichever operand says which register that is, and at labels; reading one changes nothing.
#include "compiler/codegen/x86/x86_gen.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void hold_all(struct x86 *a) {
    for (int k = 0; k < X86_HELD_N; k++)
        a->held[k] = k + 1;
}
static void check(const struct x86 *a, int written) {
    for (int k = 0; k < X86_HELD_N; k++)
        assert_int_equal(a->held[k], k + X86_HELD == written ? 0 : k + 1);
}
static void writes_end_what_is_held(void **state) {
    (void)state;
    for (int reg = X86_HELD; reg < X86_HELD + X86_HELD_N; reg++) {
        struct x86 a = {0};
        int read = reg == X86_HELD ? X86_HELD + 1 : X86_HELD;
        struct x86_v sum = {.op = EV_ADDD, .len = FULL, .dst = reg, .src = read, .imm = -1};
        struct x86_v shift = {.op = EV_SHIFT, .len = FULL, .dst = 2, .src = reg, .imm = 16};
        hold_all(&a);
        x86_vec(&a, sum, x86_r(3));
        check(&a, reg);
        hold_all(&a);
        x86_vec(&a, shift, x86_r(3));
        check(&a, reg);
        shift.op = EV_SHIFTQ;
        hold_all(&a);
        x86_vec(&a, shift, x86_r(3));
        check(&a, reg);
        x86_bind(&a, x86_label(&a));
        for (int k = 0; k < X86_HELD_N; k++)
            assert_int_equal(a.held[k], 0);
        x86_done(&a);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(writes_end_what_is_held)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
