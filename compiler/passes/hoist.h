// SPDX-License-Identifier: Apache-2.0
// hoist: splits one module into NAME.prepare (what depends on weights alone, run once per weight
// set) and NAME.main (D14).
#pragma once
#include "compiler/ir/ir.h"
// m stays as it is; both results are new modules, verified by the caller's pass runner. Main's
// parameters: bound values first, then the inputs in their order.
status_t hoist_split(const struct hlo_module *m, struct hlo_module **out_prepare,
                     struct hlo_module **out_main) MUST_CHECK;
