// SPDX-License-Identifier: Apache-2.0
// wasm_module: from the relocatable object that LLVM writes for wasm32 to a module that runs.
#pragma once
#include "base/arena.h"
#include "base/span.h"
#include "base/status.h"

// The module of an object. Its memory is imported as env.memory and begins with the object's data,
// which lie where the object has them, from 0 on. Where the object has a stack, its pointer is a
// mutable global that is exported as "stack", to be set before the first call; it grows downwards.
// Functions that are not defined are imported from "env". Exported are `names` [n]. What only
// linkers read is left out. In a; DATA_LOSS for what is no such object, UNIMPLEMENTED for what only
// a linker could finish.
status_t wasm_module(struct arena *a, struct span object, const char *const *names, int n,
                     struct span *out) MUST_CHECK;
// Bytes from 0 on that the data of such a module take. DATA_LOSS for what is none.
status_t wasm_data_bytes(struct span module, int64_t *out) MUST_CHECK;
