// SPDX-License-Identifier: Apache-2.0
// onnx: the two entry points of the ONNX frontend (rows of frontends.def) and what they share.
#pragma once
#include "base/map.h"
#include "compiler/frontend/onnx/onnx_model.h"

status_t onnx_ingest(struct arena *a, struct span source, const struct frontend_limits *limits,
                     struct ingest_result *out) MUST_CHECK;
status_t onnx_lower(const struct lower_request *req, struct hlo_module **out) MUST_CHECK;
bool onnx_sniff(struct span head);
struct str onnx_dim_symbol(struct arena *a, const struct onnx_value *v,
                           int d); // of a dimension without a size
// Names of values that must be known at compile time, of all graphs. Malloc-backed: smap_done.
void onnx_static_names(const struct onnx_model *m, struct smap *out);
uint32_t onnx_shape_inputs(const struct onnx_model *m,
                           const struct onnx_node *n); // bit k: input k decides a shape
// Is a graph input bound by its elements?
bool onnx_by_value(const struct smap *static_names, const struct onnx_value *v);
// Opsets, operators of all graphs and functions, producer.
void onnx_info(struct arena *a, const struct onnx_model *m, struct program_info *out);
// Fills `usual` of the inputs' symbolic dimensions (onnx_usual.c); the rest of r is there.
void onnx_usual_sizes(struct arena *a, const struct frontend_limits *limits,
                      struct ingest_result *r);
// INVALID_ARGUMENT that lists every node we cannot take, one a line, or OK.
status_t onnx_check_supported(const struct onnx_model *m) MUST_CHECK;
// The model with other data for initializers of its graph, stored as raw_data (onnx_weights.c).
// Appends to *out. INVALID_ARGUMENT: a weight is none of them.
status_t onnx_with_weights(struct span source, struct new_weight *v, size_t n,
                           struct strbuf *out) MUST_CHECK;
