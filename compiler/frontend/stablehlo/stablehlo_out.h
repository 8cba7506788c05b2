// SPDX-License-Identifier: Apache-2.0
// stablehlo_out: a module of HLO as StableHLO text, in MLIR's generic form, which jaxlib and other
// tools parse, verify and run. Source: the StableHLO specification; HLO's semantics, XLA.
#pragma once
#include "compiler/ir/module.h"

// Values of tuple type become several values, so parameters and results are flat; fused
// computations are written in place, called ones as private functions; layouts are left out. Names
// of parameters are in the attribute hlod.name, donated ones have tf.aliasing_output or
// jax.buffer_donor. UNIMPLEMENTED names the instructions, one line each, that StableHLO (with CHLO)
// has no operation for; *b holds an unfinished text then. Thread: any.
status_t stablehlo_print(struct strbuf *b, const struct hlo_module *m) MUST_CHECK;
