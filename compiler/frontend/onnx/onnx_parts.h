// SPDX-License-Identifier: Apache-2.0
// onnx_parts: where a graph is cut because sizes come from values that only a run has
// (compiler/parts.h, docs/decisions/0022). The driver lowers all it can, asks what the nodes that
// were refused need, and ends the part there, or, where the request binds those values, goes on
// with them.
#pragma once
#include "compiler/frontend/onnx/onnx_open.h"
#include "compiler/parts.h"

struct onnx_marks {
    bool *v;
    size_t n, cap;
};
struct onnx_parts {
    const struct lower_request *req;
    int index;                  // parts that are over
    struct onnx_leaves needs;   // of the nodes that were refused: values that would do
    struct onnx_leaves carried; // parameters that the part before this one left
    struct onnx_leaves over;    // such of the parts before it: now dead
    uint32_t before;            // instructions with smaller ids stand before the last cut
    struct onnx_leaves live;    // at the end of this part
    struct onnx_marks live_text, carried_text; // which of those are text
    bool lacks; // a node of a nested graph was refused for want of such values
    bool open;  // this part ends before the graph does
    struct {    // contexts of opened graphs
        struct onnx_ctx **v;
        size_t n, cap;
    } opened;
};
// Node n was refused: adds to c->parts->needs what it lacks. False: nothing that a run would find.
bool onnx_parts_need(struct onnx_ctx *c, const struct onnx_node *n);
// The same of a node of a nested graph, for c->parts->lacks: a cut cannot be made there.
void onnx_parts_note(struct onnx_ctx *c, const struct onnx_node *n);
// The elements of v, the sizes of what it holds: added likewise. False: a run would not find them.
bool onnx_parts_need_elements(struct onnx_ctx *c, const struct onnx_val *v);
bool onnx_parts_need_sizes(struct onnx_ctx *c, const struct onnx_val *v);
// Of g the steps of `left` are left over, for want of c->parts->needs. With those bound by the
// request, the next part begins; without, the part is open and the lowering ends.
// INVALID_ARGUMENT: it cannot be cut here; RESOURCE_EXHAUSTED: too many parts.
status_t onnx_parts_cut(struct onnx_ctx *c, const struct onnx_graph *g,
                        const struct onnx_todo *left) MUST_CHECK;
// The root of an open part.
void onnx_parts_root(struct onnx_ctx *c, struct hlo_computation *comp);
// Says in the module which part it is, and takes away what only parts before it needed. Before dead
// instructions are removed and texts are put.
status_t onnx_parts_end(struct onnx_ctx *c, struct hlo_computation *comp) MUST_CHECK;
