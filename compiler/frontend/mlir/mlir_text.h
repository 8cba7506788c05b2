// SPDX-License-Identifier: Apache-2.0
// mlir_text: reads StableHLO's text, pretty and generic, and what mlir_print writes.
#pragma once
#include "compiler/frontend/mlir/mlir.h"

// *out and all it has lie in `a`; texts point into the source. Locations are passed over. The tree
// is as it was written: mlir_normal comes next. INVALID_ARGUMENT with the line;
// RESOURCE_EXHAUSTED beyond the limits.
status_t mlir_read_text(struct arena *a, struct span source, const struct mlir_limits *limits,
                        struct mlir_module *out) MUST_CHECK;
