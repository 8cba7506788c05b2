// SPDX-License-Identifier: Apache-2.0
// onnx_dynamic: values of which one dimension has a size that only the run knows.
#pragma once
#include "compiler/frontend/onnx/onnx_scope.h"
#include "compiler/frontend/onnx/onnx_tools.h"
#include "compiler/ir/text/text.h"

// v of which `size` (an integer scalar) counts in dimension dim; a plain value when size is known.
struct onnx_val *onnx_dynamic_val(struct onnx_ctx *c, hv v, hv size, int dim);
// The positions at which mask [n > 0] holds, in order, then the others; *count of them hold.
hv onnx_true_positions(struct onnx_ctx *c, hv mask, hv *count);
