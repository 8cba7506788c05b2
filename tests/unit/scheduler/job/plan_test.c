// SPDX-License-Identifier: Apache-2.0
// Plans as requests say them: what each step takes, in what order, and the text of every refusal.
#include "scheduler/job/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "proto/hlod.pb-c.h"

static void refused(status_t st, const char *part) {
    if (st_code(st) != ST_INVALID_ARGUMENT || !strstr(st_message(st), part) ||
        st_get_reason(st) != HLOD__V1__REASON__REASON_BAD_PLAN)
        fail_msg("expected '%s', found %s '%s'", part, st_code_name(st_code(st)), st_message(st));
    st_drop(st);
}

#define FROM_INPUT(to, from) {.name = (to), .input = (from), .step = "", .output = ""}
#define FROM_STEP(to, from)  {.name = (to), .input = "", .step = (from), .output = ""}
#define RESULT(from)         {.name = "", .step = (from), .output = ""}
#define STEP(called, list)                                                                         \
    {.name = (called), .args = (list), .n_args = sizeof(list) / sizeof *(list)}

// d = f(b, c), written first; b and c from a; a from the input.
static void finds_the_order(void **state) {
    (void)state;
    struct plan_arg d[] = {FROM_STEP("l", "b"), FROM_STEP("r", "c")}, c[] = {FROM_STEP("x", "a")},
                    b[] = {FROM_STEP("x", "a")}, a[] = {FROM_INPUT("x", "in")};
    struct job_plan_step steps[] = {STEP("d", d), STEP("c", c), STEP("b", b), STEP("a", a)};
    struct plan_result results[] = {RESULT("d")};
    struct plan_spec p = {.steps = steps, .n_steps = 4, .results = results, .n_results = 1};
    const char *inputs[] = {"in"};
    assert_null(plan_resolve(&p, inputs, 1));
    int at[4];
    for (int k = 0; k < 4; k++)
        at[p.order[k]] = k;
    assert_true(at[3] < at[1] && at[3] < at[2] && at[1] < at[0] && at[2] < at[0]);
    assert_int_equal(a[0].from_input, 0);
    assert_int_equal(a[0].from_step, -1);
    assert_int_equal(d[0].from_step, 2);
    assert_int_equal(d[0].from_input, -1);
    assert_int_equal(results[0].from_step, 0);
}

static void refuses_circles(void **state) {
    (void)state;
    struct plan_arg a[] = {FROM_INPUT("x", "in")}, b[] = {FROM_STEP("y", "c")},
                    c[] = {FROM_STEP("z", "b"), FROM_STEP("w", "a")};
    struct job_plan_step steps[] = {STEP("a", a), STEP("b", b), STEP("c", c)};
    struct plan_result results[] = {RESULT("c")};
    struct plan_spec p = {.steps = steps, .n_steps = 3, .results = results, .n_results = 1};
    const char *inputs[] = {"in"};
    refused(plan_resolve(&p, inputs, 1), "circle");
    struct plan_arg self[] = {FROM_STEP("x", "a"), FROM_INPUT("y", "in")};
    struct job_plan_step one[] = {STEP("a", self)};
    struct plan_result r[] = {RESULT("a")};
    struct plan_spec q = {.steps = one, .n_steps = 1, .results = r, .n_results = 1};
    refused(plan_resolve(&q, inputs, 1), "step 'a', input 'x', waits for step 'a'");
}

static void refuses_what_is_not_used(void **state) {
    (void)state;
    struct plan_arg a[] = {FROM_INPUT("x", "in")}, b[] = {FROM_STEP("x", "a")};
    struct job_plan_step steps[] = {STEP("a", a), STEP("b", b)};
    struct plan_result results[] = {RESULT("a")};
    struct plan_spec p = {.steps = steps, .n_steps = 2, .results = results, .n_results = 1};
    const char *inputs[] = {"in", "more"};
    refused(plan_resolve(&p, inputs, 1), "nothing uses what step 'b' computes");
    results[0].step = "b";
    assert_null(plan_resolve(&p, inputs, 1));
    refused(plan_resolve(&p, inputs, 2), "no step uses the input 'more'");
    inputs[1] = "in";
    refused(plan_resolve(&p, inputs, 2), "two inputs are called 'in'");
    inputs[1] = "";
    refused(plan_resolve(&p, inputs, 2), "inputs[1] has no name");
    results[0].step = "c";
    refused(plan_resolve(&p, inputs, 1), "outputs[0]: there is no step 'c'");
    p.n_results = 0;
    refused(plan_resolve(&p, inputs, 1), "outputs");
}

static void refuses_more_steps_than_there_may_be(void **state) {
    (void)state;
    struct plan_arg a[] = {FROM_INPUT("x", "in")};
    struct job_plan_step steps[PLAN_MAX_STEPS + 1];
    struct plan_result results[PLAN_MAX_STEPS + 1];
    char names[PLAN_MAX_STEPS + 1][8];
    for (int k = 0; k <= PLAN_MAX_STEPS; k++) {
        snprintf(names[k], sizeof names[k], "s%d", k);
        steps[k] = (struct job_plan_step)STEP(names[k], a);
        results[k] = (struct plan_result)RESULT(names[k]);
    }
    struct plan_spec p = {.steps = steps, .results = results};
    const char *inputs[] = {"in"};
    p.n_steps = p.n_results = PLAN_MAX_STEPS;
    assert_null(plan_resolve(&p, inputs, 1));
    p.n_steps = p.n_results = PLAN_MAX_STEPS + 1;
    refused(plan_resolve(&p, inputs, 1), "1 to 32 steps, found 33");
    p.n_steps = 0;
    refused(plan_resolve(&p, inputs, 1), "1 to 32 steps, found 0");
}

int main(void) {
    const struct CMUnitTest t[] = {cmocka_unit_test(finds_the_order),
                                   cmocka_unit_test(refuses_circles),
                                   cmocka_unit_test(refuses_what_is_not_used),
                                   cmocka_unit_test(refuses_more_steps_than_there_may_be)};
    return cmocka_run_group_tests_name("plan", t, NULL, NULL);
}
