// SPDX-License-Identifier: Apache-2.0
#include "compiler/codegen/backend.h"

static const struct backend *const table[] = {
#define BACKEND(name, row) &row,
#include "compiler/codegen/backends.def"
#undef BACKEND
};
const struct backend *backend_find(const char *name) {
    for (size_t k = 0; k < sizeof table / sizeof *table; k++)
        if (strcmp(table[k]->name, name) == 0) return table[k];
    return NULL;
}
const struct backend *backend_of(const struct target *t) {
    return backend_find(t->backend ? t->backend : "llvm");
}
const char *backend_names(void) {
#define BACKEND(name, row) ", " name
    static const char all[] = ""
#include "compiler/codegen/backends.def"
        ;
#undef BACKEND
    return all + 2;
}
