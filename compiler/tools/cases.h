// SPDX-License-Identifier: Apache-2.0
// cases: test files of operations (tests/ops). A file has one or more cases separated by lines "//
// ----"; a case is an HLO module with comment lines
//     // IN: <literal>       one per entry parameter, in order
//     // OUT: <literal>      one per leaf of the result; where that has a dynamic dimension, the
//     true shape stands first
//     // TOL: <number>       tolerance relative to the largest magnitude of the expected value;
//                            0 = exact (default for integers), 1e-6 for floats
//     // RTOL: <number>      instead: tolerance relative to each element (elementwise functions)
//     // REFUSED: <text>      instead of OUT: UNIMPLEMENTED with this text in its message
// Literals are HLO text in the parameter's or result's shape.
#pragma once
#include <stdio.h>

#include "compiler/ir/module.h"

struct test_case {
    struct hlo_module *m;  // owned
    struct literal **in;   // [params] in m's arena
    struct literal **want; // [leaves]
    int n_in, n_want;
    struct str refused; // empty: the case has results
    double tol;         // < 0 = default for the type
    double rtol;        // < 0 = none: tol decides
    int line;           // where the case begins
};
// The next case of *text, which advances. out->m NULL at the end. INVALID_ARGUMENT on a file that
// is not well formed.
status_t cases_next(struct str *text, int *line, struct test_case *out) MUST_CHECK;
// The same without the expected results, which the case may lack.
status_t cases_next_inputs(struct str *text, int *line, struct test_case *out) MUST_CHECK;
void cases_done(struct test_case *c);
// Compares leaf k of the results of module m (the case's, or what it was compiled to), which `got`
// has all of, and which is cut to its true size; false and a message in `why` when it differs.
bool cases_matches(const struct test_case *c, const struct hlo_module *m, int k,
                  struct literal *const *got, struct strbuf *why);
// Was the case refused as its REFUSED line says?
bool cases_refused(const struct test_case *c, status_t st);
// Runs all cases of a file on the reference evaluator; prints failures; *out_rc 1 when some failed.
// A file without cases is an error.
status_t cases_check(struct str text, FILE *log, int *out_rc) MUST_CHECK;
