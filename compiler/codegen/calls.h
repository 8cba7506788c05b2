// SPDX-License-Identifier: Apache-2.0
// calls: the only names that resolve in loaded kernels. Private to codegen.
#pragma once
struct code_symbol {
    const char *name;
    void *fn;
};
extern const struct code_symbol code_symbols[]; // ends with a NULL name
