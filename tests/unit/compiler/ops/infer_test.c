// SPDX-License-Identifier: Apache-2.0
// Shape rules refuse what the evaluator and the devices could not read safely. Each row is a module
// body (x = f32[2], y = s32[] are given) and a part of the message.
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "compiler/ir/text/text.h"

static const struct {
    const char *line, *part;
} rows[] = {
    {"ROOT r = f32[200] bitcast(x)", "does not bitcast"},
    {"ROOT r = token[] bitcast(x)", "does not bitcast"},
    {"ROOT r = f64[2] bitcast-convert(x)", "does not bitcast"},
    {"ROOT r = f32[3] reshape(x)", "does not reshape"},
    {"ROOT r = f32[2] add(x, y)", "operand"},
    {"ROOT r = f32[2] iota(), iota_dimension=4", "iota_dimension 4"},
    {"ROOT r = f32[4] rng(x, x), distribution=rng_uniform", "scalar"},
    {"ROOT r = f32[2] set-dimension-size(x, x), dimensions={0}", "integer scalar"},
    {"ROOT r = f32[5] slice(x), slice={[0:5]}", "[0:5:1]"},
    {"ROOT r = f32[2] transpose(x), dimensions={1}", "rank is 1"},
    {"ROOT r = f32[2] reverse(x), dimensions={0,0}", "twice"},
    {"ROOT r = f32[2] broadcast(x), dimensions={}", "dimensions"},
    {"ROOT r = f32[3] dynamic-slice(x, y), dynamic_slice_sizes={3}", "size 3"},
    {"ROOT r = f32[] dot(x, x), lhs_contracting_dims={0}, rhs_contracting_dims={}", "number"},
    {"ROOT r = f32[1] gather(x, i), offset_dims={}, collapsed_slice_dims={}, start_index_map={}, "
     "operand_batching_dims={0}, start_indices_batching_dims={0}, index_vector_dim=1, "
     "slice_sizes={1}",
     "batching dimension"},
    {"ROOT r = f32[2] map(x), dimensions={0}", "called computation"},
    {"ROOT r = f32[2] sort(x), dimensions={0}", "called computation"},
    {"ROOT r = f32[2] reduce(x, y), dimensions={0}", "called computation"},
    {"ROOT r = f32[2] pad(x, y), padding=0_0", "operand"},
    // fewer matrices than right sides: the evaluator would read behind them
    {"m = f32[1,2,2] broadcast(x), dimensions={1}\nv = f32[3,2,1] broadcast(x), dimensions={1}\n"
     "ROOT r = f32[3,2,1] triangular-solve(m, v), left_side=true, lower=true, "
     "transpose_a=NO_TRANSPOSE",
     "right side f32[3,2,1]"},
    {"m = s32[2,2] broadcast(y), dimensions={}\nROOT r = s32[2,2] cholesky(m), lower=true", "s32"},
};

static void bad_shapes_are_refused(void **state) {
    (void)state;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        char text[1024];
        struct hlo_module *m = NULL;
        int n = snprintf(text, sizeof text,
                         "HloModule m\nENTRY e {\nx = f32[2] constant({1, 2})\n"
                         "y = s32[] constant(1)\ni = s32[3,0] constant({})\n%s\n}\n",
                         rows[k].line);
        status_t st = hlo_parse((struct str){text, (size_t)n}, NULL, &m);
        if (!st) fail_msg("accepted: %s", rows[k].line);
        assert_int_equal(st_code(st), ST_INVALID_ARGUMENT);
        if (!strstr(st_message(st), rows[k].part))
            fail_msg("%s: '%s' lacks '%s'", rows[k].line, st_message(st), rows[k].part);
        st_drop(st);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(bad_shapes_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
