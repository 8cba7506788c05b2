// SPDX-License-Identifier: Apache-2.0
// onnx: the two entry points of the ONNX frontend (rows of frontends.def) and what they share.
#pragma once
#include "compiler/frontend/onnx_model.h"

status_t onnx_ingest(struct arena *a, struct span source, const struct frontend_limits *limits,
                     struct ingest_result *out) MUST_CHECK;
status_t onnx_lower(const struct lower_request *req, struct hlo_module **out) MUST_CHECK;
bool onnx_sniff(struct span head);
struct str onnx_dim_symbol(struct arena *a, const struct onnx_value *v,
                           int d); // of a dimension without a size
// INVALID_ARGUMENT that lists every node we cannot take, one a line, or OK.
status_t onnx_check_supported(const struct onnx_model *m) MUST_CHECK;
