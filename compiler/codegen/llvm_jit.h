// SPDX-License-Identifier: Apache-2.0
// llvm_jit: ELF objects by ORC. Private to codegen.
#pragma once
#include "base/span.h"
#include "base/status.h"

struct llvm_jit;
// Adds an object; starts *j if it is NULL. After an error *j, if any, is still to be freed.
status_t llvm_jit_add(struct llvm_jit **j, struct span object) MUST_CHECK;
void *llvm_jit_symbol(struct llvm_jit *j, const char *symbol); // NULL if absent
void llvm_jit_free(struct llvm_jit *j);                        // NULL is fine
