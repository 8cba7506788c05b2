// SPDX-License-Identifier: Apache-2.0
// A code generator that makes no kernels: every step is then a library call or the reference
// evaluator. Stands in until the LLVM one is built in.
#include "compiler/codegen/codegen.h"

bool kernel_supported(const struct hlo_instr *i, const char **why) {
    (void)i;
    *why = "this build has no code generator";
    return false;
}
status_t codegen_module(struct arena *a, const struct hlo_module *m, const struct target *t,
                        enum precision prec, struct strbuf *text_kir, struct strbuf *text_llvm,
                        struct kernel_set *out) {
    (void)a, (void)m, (void)t, (void)prec, (void)text_kir, (void)text_llvm;
    *out = (struct kernel_set){0};
    return ST_OK;
}
status_t code_load(struct span object, struct code **out) {
    *out = NULL;
    return object.n ? st_new(ST_UNIMPLEMENTED, "this build has no code generator") : ST_OK;
}
void *code_symbol(struct code *c, const char *symbol) {
    (void)c, (void)symbol;
    return NULL;
}
void code_free(struct code *c) {
    (void)c;
}
