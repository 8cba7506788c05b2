// SPDX-License-Identifier: Apache-2.0
// onnx_external: ONNX models whose weights lie in files beside them (TensorProto.external_data), as
// one stream: the same message with those bytes in raw_data. Nothing is copied: the parts lie in
// mapped files. The model is foreign input: a location that leaves its folder is refused, so that a
// model cannot make its user send other files. Thread: any.
#pragma once
#include "base/arena.h"
#include "base/span.h"
#include "base/status.h"

// *out_n = 0: no external data (or not ONNX at all): send the file as it is. Parts live as long as
// the arena. INVALID_ARGUMENT names the tensor; NOT_FOUND the missing file.
status_t onnx_external_inline(struct arena *a, const char *path, struct span **out_parts,
                              size_t *out_n) MUST_CHECK;
// The same; and all files that were read, the model's first.
status_t onnx_external_files(struct arena *a, const char *path, struct span **out_parts,
                             size_t *out_n, const char *const **out_paths,
                             size_t *out_n_paths) MUST_CHECK;
