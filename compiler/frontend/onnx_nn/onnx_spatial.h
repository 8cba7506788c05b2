// SPDX-License-Identifier: Apache-2.0
// onnx_spatial: the window attributes that convolutions and pools share.
#pragma once
#include "compiler/frontend/onnx/onnx_tools.h"

// kernel_shape, strides, dilations and pads resolved against an input [N, C, d...]: pads from
// auto_pad, defaults filled in.
struct spatial {
    int n; // spatial dimensions
    int64_t kernel[HLO_MAX_RANK], stride[HLO_MAX_RANK], dilation[HLO_MAX_RANK], low[HLO_MAX_RANK],
        high[HLO_MAX_RANK];
};
// False after a failure. kernel: [n_kernel].
bool onnx_spatial_of(struct onnx_ctx *c, hv x, const int64_t *kernel, int n_kernel,
                     struct spatial *s);
struct window_dim onnx_window_of(const struct spatial *s, int d);
