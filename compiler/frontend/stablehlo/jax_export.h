// SPDX-License-Identifier: Apache-2.0
// jax_export: reads what jax.export's serialize() writes: a flatbuffer around a portable artifact.
#pragma once
#include "compiler/ir/shape.h"

struct jax_value {    // an input or output of the exported function
    const char *name; // from the tree of arguments: "arg0", "arg1.w.0", "key"; "" = it has none
    enum dtype dtype; // DT_INVALID: a token, a key, or a type that is not known here
    int32_t rank;
    struct str *dims; // [rank]: "8", "b", "2*b + 1"
};
struct jax_values {
    struct jax_value *v;
    int32_t n;
};
struct jax_export {
    struct span module; // bytecode, borrowed from the source
    struct str function;
    int32_t calling_convention; // 9 or later
    int64_t n_devices;
    bool has_vjp; // the function's gradient is there as well
    int32_t n_platforms, n_kept;
    struct str *platforms;
    int32_t *kept; // the inputs that the module's main function takes, in order
    struct jax_values in, out;
};
// Does it look like one? `head`: the first bytes of the file, 512 are enough.
bool jax_export_sniff(struct span head);
// *out and all it has lie in `a`, texts and the module in the source. INVALID_ARGUMENT with the
// byte's offset where it is none; UNIMPLEMENTED: a calling convention before 9.
status_t jax_export_read(struct arena *a, struct span source, struct jax_export *out) MUST_CHECK;
