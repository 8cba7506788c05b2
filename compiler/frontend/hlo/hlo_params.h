// SPDX-License-Identifier: Apache-2.0
// hlo_params: entry parameters that are tuples, as XLA writes them where a computation takes its
// arguments as one (`tuple_args`), become one parameter an array: "p.0", "p.1", "p.2.0" of the
// parameter "p". What the module says of parameters by number (the shapes at its border, donated
// memory) is said of the new ones.
#pragma once
#include "compiler/ir/module.h"

status_t hlo_split_tuple_params(struct hlo_module *m) MUST_CHECK;
