// SPDX-License-Identifier: Apache-2.0
// onnx_scope: graphs inside graphs, for the driver and for control flow. A context lowers one graph
// into one computation; a child lowers a subgraph, either into the same computation (inlined) or
// into one of its own, whose single parameter is a tuple. What a subgraph captures goes in as
// leaves of that tuple: one for each tensor that is not known at compile time; known values are
// made again inside. Errors of a body are status values; the caller puts them into its builder.
#pragma once
#include "base/map.h"
#include "compiler/frontend/onnx/onnx_lower.h"

struct onnx_leaves { // grows in the module's arena
    hv *v;
    size_t n, cap;
};
// The tensors of a value in order; with known_too also those known at compile time, as constants.
void onnx_leaves_add(struct onnx_ctx *c, const struct onnx_val *v, bool known_too,
                     struct onnx_leaves *out);
// The value again from leaves: `like` tells its structure; c is where the leaves live.
struct onnx_val *onnx_leaves_take(struct onnx_ctx *c, const struct onnx_val *like, bool known_too,
                                  hv const *from, size_t *at);
void onnx_captures_add(struct onnx_ctx *c, const struct onnx_graph *g, struct onnx_leaves *out);

// comp NULL = lower into c's own computation. The child must be ended.
struct onnx_ctx *onnx_child(struct onnx_ctx *c, struct hlo_computation *comp);
void onnx_child_end(struct onnx_ctx *c, struct onnx_ctx *child);
// Gives the child what g captures; from: leaves as onnx_captures_add ordered them, NULL when
// inlined.
void onnx_captures_take(struct onnx_ctx *c, struct onnx_ctx *child, const struct onnx_graph *g,
                        hv const *from, size_t *at);
// onnx_lower_body in c's own computation; errors go to c's builder (onnx_control.c).
void onnx_inline(struct onnx_ctx *c, const struct onnx_graph *g, struct onnx_val *const *formals,
                 struct onnx_val **outs);
struct hlo_computation *onnx_computation(struct onnx_ctx *c, const char *name);

// onnx_lower.c
struct onnx_val *onnx_tensor_val(struct onnx_ctx *c, hv v); // known if v is a constant
struct onnx_val *onnx_string_val(struct onnx_ctx *c, hv places);
int32_t onnx_string_place(struct onnx_ctx *c, struct str s); // in the table of texts
// n texts as a vector of places.
struct literal *onnx_string_list(struct onnx_ctx *c, const struct str *v, size_t n);
// The texts of a tensor as places, in the module's arena; copied.
status_t onnx_string_literal(struct onnx_ctx *c, const struct onnx_tensor *t,
                             struct literal **out) MUST_CHECK;
struct onnx_val *onnx_in_any(struct onnx_ctx *c, size_t k); // a value of any kind; NULL if missing
void onnx_out_any(struct onnx_ctx *c, size_t k, struct onnx_val *v);

// onnx_dynamic_ops.c
bool onnx_has_dynamic(struct onnx_ctx *c);               // of the node's inputs
void onnx_pass_dynamic(struct onnx_ctx *c, onnx_fn fn);  // lowers a node that has such inputs
void onnx_bound_outputs(struct onnx_ctx *c, onnx_fn fn); // onnx_val's bound, of a lowered node

// onnx_string.c
bool onnx_has_text(struct onnx_ctx *c);              // of the node's inputs
hv onnx_text_ranks(struct onnx_ctx *c, hv x);        // of texts: s32 in the order of their bytes
void onnx_pass_text(struct onnx_ctx *c, onnx_fn fn); // lowers a node that has such inputs
// Cast where text is on one side or both.
void onnx_text_cast(struct onnx_ctx *c, enum dtype to, bool to_text);

// onnx_fold.c
status_t onnx_add_initializers(struct onnx_ctx *c, const struct onnx_graph *g) MUST_CHECK;
struct onnx_val *onnx_weight_val(struct onnx_ctx *c, const struct onnx_tensor *t);
// Replaces outputs of c->n that depend on known values alone by constants.
status_t onnx_fold_outputs(struct onnx_ctx *c) MUST_CHECK;

// onnx_nodes.c. formals[i] = input i of g; outs[i] set for output i.
// Is a result of g of the type that g declares for it?
status_t onnx_check_declared(const struct onnx_graph *g, const struct onnx_value *o,
                             const struct onnx_val *v) MUST_CHECK;
status_t onnx_lower_body(struct onnx_ctx *child, const struct onnx_graph *g,
                         struct onnx_val *const *formals, struct onnx_val **outs) MUST_CHECK;
status_t onnx_lower_nodes(struct onnx_ctx *c, const struct onnx_graph *g) MUST_CHECK;
// The body of f as node c->n calls it: with that node's attributes in the place of references.
const struct onnx_graph *onnx_function_body(struct onnx_ctx *c, const struct onnx_function *f);
