// SPDX-License-Identifier: Apache-2.0
// onnx_quant: what quantised operators of the standard (onnx_quant.c) and of com.microsoft
// (onnx_contrib_quant.c) share. Values are q = round(x / scale) + zero point.
#pragma once
#include "compiler/frontend/onnx/onnx_tools.h"

// A parameter (one element, one for each index of the axis, or one a block) over `like`.
hv onnx_spread_param(struct onnx_ctx *c, hv p, const struct shape *like, int64_t axis);
// Integers less their zero point (NULL = 0), as s32; floats as f32.
hv onnx_centred(struct onnx_ctx *c, hv x, hv zero, int64_t axis);
// x (f32), rounded, plus the zero point (NULL or of x's shape), saturated into t.
hv onnx_quant_saturate(struct onnx_ctx *c, hv x, hv zero, enum dtype t);
// x as u8 with the scale and zero point (scalars) that its own range gives.
hv onnx_quant_dynamic(struct onnx_ctx *c, hv x, hv *scale, hv *zero);
// A parameter of a product's operand or result: one element, one a column of the right operand or
// a row of the left, or as broadcast.
hv onnx_matrix_param(struct onnx_ctx *c, hv p, hv x, bool right);
// Input x less input zero (if it is there), as s32.
hv onnx_matrix_centred(struct onnx_ctx *c, size_t x, size_t zero, bool right);
// onnx_contrib_quant.c: bytes [..., n] as their parts [..., n * 8/bits], lower bits first.
hv onnx_unpack_bits(struct onnx_ctx *c, hv x, int64_t bits);
