// SPDX-License-Identifier: Apache-2.0
// onnx_model: the parts of an ONNX file that matter here, as structs in an arena whose texts and
// tensor bytes point into the file. Subgraphs are graphs like the main one; each node knows the
// outer values that its subgraphs use (captures), and nodes of every graph stand in an order in
// which producers come first. Field numbers: onnx.proto3 of ONNX IR version 11.
#pragma once
#include "base/vec.h"
#include "compiler/frontend/frontend.h"

typedef VEC(struct str) onnx_texts;
enum { ONNX_STRING = 8 };   // TensorProto.DataType
enum { ONNX_LAST_IR = 31 }; // far beyond what there is: what is new in a model tells its operators
struct onnx_tensor {
    struct str name;
    int data_type; // TensorProto.DataType
    int rank;
    int64_t dims[HLO_MAX_RANK];
    struct span raw;     // raw_data, or packed little-endian typed data
    struct span varints; // packed int32_data, int64_data or uint64_data
    VEC(uint64_t) loose; // typed data that was not packed
    int typed_field;     // number of the typed field seen, 0 = raw
    onnx_texts strings;
    struct str location; // external data: our own "weight:N", or a file name (refused)
    bool external;
    int weight; // manifest index + 1 once it is known to be a weight
};
// Elements that are not zero, and where they stand: one number each of the tensor laid flat, or one
// a dimension.
struct onnx_sparse {
    struct onnx_tensor values, indices;
    struct onnx_tensor dense; // dims alone
};
enum { ONNX_ATTR_FLOAT = 1, ONNX_ATTR_INT, ONNX_ATTR_STRING, ONNX_ATTR_FLOATS = 6, ONNX_ATTR_INTS };
struct onnx_attr {
    struct str name, s;
    int type;
    float f;
    int64_t i;
    VEC(float) floats;
    VEC(int64_t) ints;
    onnx_texts strings;
    struct onnx_tensor *t;
    struct onnx_sparse *sparse;
    struct onnx_graph *graph;
    struct str ref; // in a function's body: the attribute of the calling node that stands here
};
struct onnx_node {
    struct str name, op, domain, overload; // overload: which of the functions of that name
    onnx_texts in;
    onnx_texts out;
    VEC(struct onnx_attr) attrs;
    onnx_texts captures; // values of outer graphs that its subgraphs use, each once
    int index;           // in the file
};
struct onnx_dim {
    int64_t size;
    struct str symbol;
    int64_t usual; // of an input that has a value: this one's
}; // size -1: symbol or unknown
struct onnx_value {
    struct str name;
    int elem_type;
    bool has_shape, is_tensor, is_sequence, is_optional; // an optional tensor is both
    bool is_map;                                         // or a sequence of maps
    int key_type;                                        // of a map that is nothing else's element
    int rank;
    struct onnx_dim dims[HLO_MAX_RANK];
};
struct onnx_graph {
    struct span bytes;
    VEC(struct onnx_node) nodes; // in the file's order, then sorted
    VEC(struct onnx_tensor) inits;
    bool *replaced; // NULL, or of the file's initializers: those that another of the name replaces
    VEC(struct onnx_value) inputs, outputs; // inputs without those that are initializers
    VEC(struct onnx_value) defaults;        // of the main graph: inputs that are, in their shapes
    onnx_texts captures; // used here or below, defined in an outer graph; each once
};
struct onnx_function { // model-local
    struct str name, domain, overload;
    onnx_texts inputs;
    onnx_texts outputs;
    VEC(struct onnx_attr) defaults;
    struct onnx_graph body; // nodes only
    int64_t opset;
};
struct onnx_model {
    struct arena *arena;
    const uint8_t *file;
    int64_t ir_version, opset, ml_opset;
    struct str producer, producer_version;
    VEC(struct opset) opsets; // as the file lists them
    struct onnx_graph main;
    VEC(struct onnx_function) functions;
    int64_t n_messages, n_texts, file_bytes; // budget
    struct frontend_limits limits;
};
status_t onnx_parse(struct arena *a, struct span source, const struct frontend_limits *limits,
                    struct onnx_model *out) MUST_CHECK;
// Sorts the nodes of g and of its subgraphs, finds captures, checks names. A graph that is not
// nested may have none.
// Each input that is a map becomes two vectors, NAME.keys and NAME.values, also in the nodes that
// read it.
status_t onnx_split_maps(struct onnx_model *m, struct onnx_graph *g) MUST_CHECK;
status_t onnx_graph_resolve(struct onnx_model *m, struct onnx_graph *g) MUST_CHECK;
status_t onnx_functions_check(const struct onnx_model *m) MUST_CHECK; // none calls itself
// The model-local function that a node calls, by domain, name and overload; NULL: an operator.
const struct onnx_function *onnx_function_find(const struct onnx_model *m,
                                               const struct onnx_node *n);
// Name for messages: the node's own, or "#12 (Conv)".
const char *onnx_node_name(struct arena *a, const struct onnx_node *n);
const struct onnx_attr *onnx_attr(const struct onnx_node *n, const char *name); // NULL if absent
bool onnx_packed(enum dtype t); // several elements a byte
// Elements of a tensor with inline data as a literal (s is its shape).
status_t onnx_tensor_literal(struct arena *a, const struct onnx_tensor *t,
                             struct literal **out) MUST_CHECK;
enum dtype onnx_dtype_of(const struct onnx_value *v); // text: s32
status_t onnx_tensor_shape(struct arena *a, const struct onnx_tensor *t,
                           const struct shape **out) MUST_CHECK;
