// SPDX-License-Identifier: Apache-2.0
// onnx_tensor: a file of ONNX test data (one serialised TensorProto: input_0.pb) as an array.
// Thread: any.
#pragma once
#include "client/files/npy.h"

// out->name: the tensor's, "" if it has none. INVALID_ARGUMENT: no TensorProto, a type that NumPy
// lacks (bf16, strings, 8-bit floats), external data, lengths that do not fit.
status_t onnx_tensor_parse(struct arena *a, struct span bytes, const char *what,
                           struct npy *out) MUST_CHECK;
