// SPDX-License-Identifier: Apache-2.0
// hoist: splits one module into NAME.prepare (what depends on weights alone, run once per weight
// set) and NAME.main (D14).
#pragma once
#include "compiler/ir/ir.h"
// m becomes NAME.main; *out_prepare is a new module that shares nothing with it. Both are verified
// by the caller's pass runner. Main's parameters: bound values first, then the inputs in their
// order. On an error m is good for hlo_module_free alone, and *out_prepare NULL.
status_t hoist_split(struct hlo_module *m, struct hlo_module **out_prepare) MUST_CHECK;
