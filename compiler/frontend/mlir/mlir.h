// SPDX-License-Identifier: Apache-2.0
// mlir: what a StableHLO program is in memory, whichever of its forms it came in: functions of
// operations with attributes and regions. The readers (mlir_text, mlir_bytecode) fill it,
// mlir_normal brings it into one form, stablehlo.c lowers it to HLO. A tree lives in an arena and
// is not changed once it is normal. Sources: MLIR's language reference, the StableHLO
// specification. Thread: any; no global state.
#pragma once
#include "base/vec.h"
#include "compiler/ir/shape.h"

enum mlir_type_kind {
    MLIR_TENSOR,
    MLIR_TOKEN,    // !stablehlo.token
    MLIR_TUPLE,    // tuple<...>: elems
    MLIR_FUNCTION, // (ins) -> outs: elems, the first n_in are inputs
    MLIR_NONE,     // VHLO's none: an attribute that is not there
    MLIR_SCALAR,   // f32, i64, index by itself: the type of an attribute
    MLIR_OTHER,    // any other, by its text (name)
};
// !quant.uniform<storage:expressed, scale:zero_point>; along an axis there are several of each.
struct mlir_quant {
    enum dtype storage, expressed;
    int64_t storage_min, storage_max;
    int32_t axis; // -1: one scale for the whole tensor
    int32_t n;    // scales and zero points
    double *scales;
    int64_t *zero_points;
};
// i1 is DT_PRED, i8 and si8 are DT_S8, ui8 is DT_U8; index is DT_S64 with `index` set.
struct mlir_type {
    enum mlir_type_kind kind;
    enum dtype dtype; // of a tensor's elements or of a scalar; of quantised ones the storage's
    bool index;
    const struct mlir_quant *quant; // or NULL
    int32_t rank;                   // -1: unranked
    int64_t *dims;                  // [rank]; -1 = dynamic
    int64_t *bounds;                // [rank], -1 = none (#stablehlo.bounds), or NULL
    int32_t n_elems, n_in;
    const struct mlir_type **elems;
    const char *name; // MLIR_OTHER: its text, "!shape.witness"; of a tensor: an element type that
                      // is not known here, dtype is DT_INVALID then
};

enum mlir_attr_kind {
    MLIR_A_UNIT,
    MLIR_A_BOOL,    // i
    MLIR_A_INT,     // i, of type (NULL: i64)
    MLIR_A_FLOAT,   // f, of type (NULL: f64)
    MLIR_A_STRING,  // s, unescaped
    MLIR_A_SYMBOL,  // s: the name after @
    MLIR_A_TYPE,    // type
    MLIR_A_ARRAY,   // list: [a, b]
    MLIR_A_DICT,    // dict: {name = a}, and structures: #stablehlo.dot<name = [..], ..>
    MLIR_A_INTS,    // ints: array<i64: 1, 2>; of type's dtype (NULL: i64; DT_PRED: array<i1: ...>)
    MLIR_A_DENSE,   // type, bytes: dense<...> : tensor<...>
    MLIR_A_ENUM,    // of (family), s: #stablehlo<comparison_direction EQ>
    MLIR_A_OTHER,   // s: the text as it stands (#sdy.sharding<...>)
    MLIR_A_MISSING, // VHLO's none type as an attribute: as though it was not there
};
struct mlir_named;
struct mlir_attr {
    enum mlir_attr_kind kind;
    const struct mlir_type *type;
    int64_t i;
    double f;
    struct str s, of; // in the source or in the arena
    int32_t n;        // of list, dict or ints
    const struct mlir_attr **list;
    struct mlir_named *dict; // sorted by name
    int64_t *ints;
    // MLIR_A_DENSE: elements in row-major order as a literal holds them (little-endian, pred and
    // types below 8 bits a byte each). `splat`: one element for all. Borrowed from the source where
    // it has them so: then bytes.p lies within it.
    struct span bytes;
    bool splat;
    int32_t weight; // of a program with its weights cut out: index in the manifest; else -1
};
struct mlir_named {
    struct str name;
    const struct mlir_attr *attr;
};

// Values are numbered through a function from 0 in this order: its arguments, then of each
// operation the values of its regions (arguments first), then its results. Arguments and results so
// have consecutive numbers, and those defined within a region are [first, end).
struct mlir_op;
struct mlir_region {
    uint32_t first, end;
    uint32_t args; // number of the first argument
    int32_t n_args;
    VEC(struct mlir_op *) ops; // the last one is the terminator
};
struct mlir_op {
    struct str name; // "stablehlo.add", "func.call"
    int32_t n_operands, n_results, n_regions;
    uint32_t *operands;
    uint32_t result;              // number of the first result
    VEC(struct mlir_named) attrs; // sorted by name once normal
    struct mlir_region *regions;  // of one block each; n_args and ops are 0 in an empty one
    int64_t at;                   // where it stands: line of a text, place in a bytecode's order
};
struct mlir_func {
    struct str name;
    bool is_public;                       // not `private`
    VEC(const struct mlir_type *) values; // type by number
    struct mlir_region body;              // a declaration has no ops
    int32_t n_results;
    const struct mlir_type **results;
    const struct mlir_attr **arg_attrs;    // [body.n_args], NULL = none; dictionaries
    const struct mlir_attr **result_attrs; // [n_results], the same
    int64_t at;
};
struct mlir_module {
    struct arena *arena; // the caller's
    struct str name;
    VEC(struct mlir_named) attrs;
    VEC(struct mlir_func *) funcs; // nested modules are refused
    struct span source;
    struct str producer; // "StableHLO_v1.9.0", or empty
    const char *where;   // what `at` counts: "line" or "operation"
};

// What a reader may use: bounds on what it makes, counted before it is made.
struct mlir_limits {
    int max_depth;          // of regions, types and attributes
    int64_t max_ops;        // operations of the module
    int64_t max_values;     // values of the module
    int64_t max_attr_bytes; // of attributes and types that are not the source's own bytes
};
extern const struct mlir_limits mlir_default_limits;

const struct mlir_attr *mlir_op_attr(const struct mlir_op *op, const char *name); // NULL = none
const struct mlir_attr *mlir_dict_attr(const struct mlir_attr *dict, const char *name);
void mlir_sort_named(struct mlir_named *v, size_t n);
const struct mlir_func *mlir_find_func(const struct mlir_module *m, struct str name);
// A new value of the type, its number returned.
uint32_t mlir_new_value(struct mlir_module *m, struct mlir_func *f, const struct mlir_type *t);

// The tensor of rank 0 with the elements of t, scale and zero point included.
const struct mlir_type *mlir_scalar_type(struct arena *a, const struct mlir_type *t);
bool mlir_type_equal(const struct mlir_type *x, const struct mlir_type *y);
// The dtype that an element type's spelling means ("i1", "ui8", "complex<f32>", "f8E4M3FN"), index
// not among them; DT_INVALID.
enum dtype mlir_dtype(struct str spelling);
const char *mlir_dtype_text(enum dtype t);
void mlir_storage_range(enum dtype storage, int64_t *min, int64_t *max); // of quantised types
const char *mlir_quant_wrong(const struct mlir_quant *q); // what no such type has; NULL = nothing
int64_t mlir_type_elements(const struct mlir_type *t);    // -1: not static, or beyond int64

// Text in MLIR's generic form, from which mlir_text reads the same tree: elements of dense<> and
// floats as hexadecimal, weights as dense_resource<wN>. The tree should be normal.
void mlir_print(struct strbuf *b, const struct mlir_module *m);
void mlir_print_type(struct strbuf *b, const struct mlir_type *t);
void mlir_print_attr(struct strbuf *b, const struct mlir_attr *t);

// One form for all: structures of dimension numbers become attributes of the operation by the names
// that VHLO gives their fields, 1-d dense integers become ints, attributes that say the default are
// left out, the rest sorted; names of the dialects' returns are func.return and stablehlo.return.
// INVALID_ARGUMENT where an attribute that must be there is not (mlir_ops.def).
status_t mlir_normal(struct mlir_module *m) MUST_CHECK;
