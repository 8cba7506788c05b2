// SPDX-License-Identifier: Apache-2.0
// onnx_open: what the driver does one after the other. A step is a node, or what stands around the
// nodes of a graph that was opened: a function, a branch, a Loop turn by turn, whose nodes become
// steps of their own where lowering them as one failed, so that the program can be cut between them
// (onnx_parts.h). Steps of opened graphs have contexts of their own, in the main computation.
#pragma once
#include "compiler/frontend/onnx/onnx_scope.h"

struct onnx_opened; // a node whose graph was opened
struct onnx_step {
    struct onnx_ctx *c;        // where its names are
    const struct onnx_node *n; // to be lowered; NULL: a turn's begin, or the end of a turn or graph
    struct onnx_opened *of;    // then: of this
    size_t turn;               // and of this turn
    bool begins;
};
struct onnx_todo { // in order
    struct onnx_step *v;
    size_t n, cap;
};
// A use of a value by a step; v may be one that failed.
typedef void (*onnx_use_fn)(void *to, struct onnx_val *v, struct str name);

// Adds to `to` the steps that node n of c, which was refused, is made of. False: it has none, or
// which they are is not known yet, or it is nested too deeply.
bool onnx_open(struct onnx_ctx *c, const struct onnx_node *n, struct onnx_todo *to);
// Begins or ends what was opened; what follows is added to `more`. INVALID_ARGUMENT: it lacks what
// a run finds, which is added to c->parts->needs (if so, *curable).
status_t onnx_open_go_on(const struct onnx_step *s, struct onnx_todo *more,
                         bool *curable) MUST_CHECK;
// A value that the step cannot do without was refused.
bool onnx_step_failed(const struct onnx_step *s);
// Marks what the step gives as refused, or forgets it.
void onnx_step_give_up(const struct onnx_step *s);
void onnx_step_forget(const struct onnx_step *s);
// Every value that the step, or one that may follow from it, uses.
void onnx_step_uses(const struct onnx_step *s, onnx_use_fn use, void *to);
