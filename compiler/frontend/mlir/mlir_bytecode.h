// SPDX-License-Identifier: Apache-2.0
// mlir_bytecode: reads StableHLO's portable artifacts: VHLO in MLIR's bytecode.
#pragma once
#include "compiler/frontend/mlir/mlir.h"

// *out and all it has lie in `a`; strings and the elements of constants are borrowed from the
// source (but those of i1, which are bits there). Locations are passed over, casts between VHLO's
// and other types are taken away, sdy operations beside functions left out. The tree is as it was
// written: mlir_normal comes next. INVALID_ARGUMENT with the offset of the byte or the name of the
// operation; RESOURCE_EXHAUSTED beyond the limits; UNIMPLEMENTED: bytecode of other dialects.
status_t mlir_read_bytecode(struct arena *a, struct span source, const struct mlir_limits *limits,
                            struct mlir_module *out) MUST_CHECK;
