// SPDX-License-Identifier: Apache-2.0
// loops: the order in which a plan takes the instructions of a computation.
#pragma once
#include "compiler/ir/module.h"

struct plan_order {
    const struct hlo_instr **v; // all instructions, each behind what it needs
    int *beside; // v[k] and so many behind it are loops that need nothing of each other; 0 = none
    int n;
};
// over: the parameter leaf that each leaf of the root may take (renew.h), or NULL.
struct plan_order plan_order(struct arena *a, const struct hlo_computation *c,
                             const int32_t *over);
