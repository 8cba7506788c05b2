// SPDX-License-Identifier: Apache-2.0
// opt: what hlo-opt does with a module; the command line is in main_opt.c.
#pragma once
#include "compiler/ir/text.h"

struct opt_options {
    const char *path;
    bool print, canonical, hash, counts, eval;
    bool list_passes, strict;
    const char *passes, *target; // comma separated; "cpu-avx512", "cpu-avx2" or NULL
    const char *bind;            // ONNX: "N=1,S=128", or NULL
};
// *out_rc: exit code when the status is OK. Prints on stdout.
status_t opt_run(const struct opt_options *o, struct str text, int *out_rc) MUST_CHECK;
void opt_list_passes(void); // on stdout
