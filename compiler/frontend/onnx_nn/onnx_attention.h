// SPDX-License-Identifier: Apache-2.0
// onnx_attention: the parts of attention that the standard's operators (onnx_attention.c) and those
// of com.microsoft (onnx_contrib_attention.c) share.
#pragma once
#include "compiler/frontend/onnx/onnx_tools.h"

// [batch, sequence, heads*size] -> [batch, heads, sequence, size]; 4-D stays.
hv onnx_split_heads(struct onnx_ctx *c, hv x, int64_t heads);
// Over the last of 4 dimensions; a row of nothing but -inf gives 0. sink: NULL, or one more score a
// row, of x's shape without its last dimension, that takes its part and is dropped.
hv onnx_masked_softmax(struct onnx_ctx *c, hv x, hv sink);
// x [batch, sequence, heads, size] turned in its first dim elements by cos and sin [batch or 1,
// sequence, at least dim/2].
hv onnx_rotate(struct onnx_ctx *c, hv x, hv cosine, hv sine, int64_t dim, bool interleaved);
