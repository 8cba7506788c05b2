// SPDX-License-Identifier: Apache-2.0
// renew: what makes a new value of a parameter from its old one stands behind all that reads the
// old one, where nothing needs the new one earlier: then it may be written over the old one
// (in_place.h).
#pragma once
#include "compiler/ir/module.h"
// list[n]: all instructions of c, each behind what it needs; so it is afterwards. over[k]: the
// parameter leaf that leaf k of the root may take, -1 = none; NULL = none for all.
void plan_renew_last(struct arena *a, const struct hlo_computation *c, const int32_t *over,
                     const struct hlo_instr **list, int n);
