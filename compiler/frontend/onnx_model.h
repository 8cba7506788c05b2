// SPDX-License-Identifier: Apache-2.0
// onnx_model: the parts of an ONNX file that matter here, as structs in an arena whose texts and
// tensor bytes point into the file. Field numbers: onnx.proto3 of ONNX IR version 11.
#pragma once
#include "base/vec.h"
#include "compiler/frontend/frontend.h"

struct onnx_tensor {
    struct str name;
    int data_type; // TensorProto.DataType
    int rank;
    int64_t dims[HLO_MAX_RANK];
    struct span raw;     // raw_data, or packed little-endian typed data
    struct span varints; // packed int32_data, int64_data or uint64_data
    VEC(uint64_t) loose; // typed data that was not packed
    int typed_field;     // number of the typed field seen, 0 = raw
    struct str location; // external data: our own "weight:N", or a file name (refused)
    bool external;
};
struct onnx_attr {
    struct str name, s;
    int type;
    float f;
    int64_t i;
    VEC(float) floats;
    VEC(int64_t) ints;
    struct onnx_tensor *t;
    struct span graph; // subgraph, not opened
};
struct onnx_node {
    struct str name, op, domain;
    VEC(struct str) in;
    VEC(struct str) out;
    VEC(struct onnx_attr) attrs;
    int index; // in the file
};
struct onnx_dim {
    int64_t size;
    struct str symbol;
}; // size -1: symbol or unknown
struct onnx_value {
    struct str name;
    int elem_type;
    bool has_shape, is_tensor;
    int rank;
    struct onnx_dim dims[HLO_MAX_RANK];
};
struct onnx_model {
    struct arena *arena;
    const uint8_t *file;
    int64_t ir_version, opset, ml_opset;
    VEC(struct onnx_node) nodes; // in the file's order, then sorted
    VEC(struct onnx_tensor) inits;
    VEC(struct onnx_value) inputs, outputs; // inputs without those that are initializers
    struct span graph;                      // field 7 of ModelProto
    int64_t n_messages;                     // budget
    struct frontend_limits limits;
};
status_t onnx_parse(struct arena *a, struct span source, const struct frontend_limits *limits,
                    struct onnx_model *out) MUST_CHECK;
// Name for messages: the node's own, or "#12 (Conv)".
const char *onnx_node_name(struct arena *a, const struct onnx_node *n);
const struct onnx_attr *onnx_attr(const struct onnx_node *n, const char *name); // NULL if absent
// Elements of a tensor with inline data as a literal (s is its shape).
status_t onnx_tensor_literal(struct arena *a, const struct onnx_tensor *t,
                             struct literal **out) MUST_CHECK;
status_t onnx_tensor_shape(struct arena *a, const struct onnx_tensor *t,
                           const struct shape **out) MUST_CHECK;
