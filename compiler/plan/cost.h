// SPDX-License-Identifier: Apache-2.0
// cost: how much work a module is, counted from its shapes: what `hlo compile` reports and what
// placement over devices compares. No estimate of time. Pure. Thread: any.
#pragma once
#include "compiler/ir/module.h"

struct hlo_cost {
    int64_t flops; // additions, products, comparisons, ...; 2 for each multiply-add of a product
    int64_t bytes; // that the entry's instructions read and write; what a fusion keeps inside is
                   // not counted
};
// A loop's body counts once: how often it runs is not known here; of a conditional all branches
// count. Saturates.
struct hlo_cost plan_cost(const struct hlo_module *m);
