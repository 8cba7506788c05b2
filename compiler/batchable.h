// SPDX-License-Identifier: Apache-2.0
// batchable: does row r of every result depend on row r of every input only, and in the same way
// for all r? Then requests may share a run, and rows may be added to fill it up
// (scheduler/job/batch.h). Rows are dimension 0 of the inputs and of the results. A dataflow walk
// that follows where rows lie through transposes, reshapes, convolutions, dots, gathers and so on;
// whatever it does not know counts as mixing. It speaks of this module with these sizes: a program
// that computes with the number of rows itself has other constants for another number, which the
// digest shows. Thread: any.
#pragma once
#include "base/hash.h"
#include "compiler/ir/module.h"

struct batchable {
    bool independent;
    const char *why;         // where not; in arena a
    struct digest constants; // that the results depend on
};
// One computation, calls inlined. a: for the answer and for scratch.
struct batchable batchable_check(struct arena *a, const struct hlo_module *m);
