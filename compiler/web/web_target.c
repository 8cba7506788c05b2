// SPDX-License-Identifier: Apache-2.0
#include "compiler/codegen/abi.h"
#include "compiler/web/web.h"

// One thread runs all of a kernel. Functions of libm.def are the page's (web/runtime/libm.js).
static const struct kernel_policy policy = {.units = 1,
                                            .has_f64 = true,
                                            .has_s64 = true,
                                            .has_libm = true,
                                            .has_scratch = true,
                                            .tiles = TILES_OF_WASM};

#define WEB_TARGET(how, ...)                                                                       \
    {.id = "web:wasm32:simd128" how ":abi" HLOD_KERNEL_ABI_TEXT,                                   \
     .kind = "web",                                                                                \
     .backend = "wasm",                                                                            \
     .policy = &policy,                                                                            \
     .evaluates_prepare = true,                                                                    \
     .expands_calls = true,                                                                        \
     .llvm_triple = "wasm32-unknown-unknown",                                                      \
     .llvm_cpu = "generic",                                                                        \
     .llvm_features = "+simd128,+nontrapping-fptoint,+bulk-memory,+sign-ext,+mutable-globals",     \
     .vector_bits = 128,                                                                           \
     .threads = 1,                                                                                 \
     __VA_ARGS__}
const struct target *web_target(void) {
    static const struct target t = WEB_TARGET("", .kernel_pairs = false);
    return &t;
}
const struct target *web_target_for(enum web_backend b) {
    static const struct target alone = WEB_TARGET(":pairs", .kernel_pairs = true);
    return b == WEB_WASM ? &alone : web_target();
}
