// SPDX-License-Identifier: Apache-2.0
// stablehlo_lower: what the functions share that lower operations of a tree to HLO. Functions are
// inlined where they are called, with what is known of their arguments; shapes are those of the
// operands, so that a dynamic dimension is a number here; regions become computations that get the
// outer values they use as operands (closure conversion).
#pragma once
#include "compiler/frontend/frontend.h"
#include "compiler/frontend/mlir/mlir.h"
#include "compiler/ir/build.h"

struct shl_frame { // one instance of a function
    const struct mlir_func *f;
    hv *values; // by number; NULL = not computed
    struct shl_frame *caller;
};
struct shl_process { // of those that run_parallel runs
    int replica, partition;
};
struct shl { // one lowering
    const struct mlir_module *m;
    struct hlo_module *hlo;
    struct arena *a; // the HLO module's
    struct hb b;     // of the computation that is being made
    struct shl_frame *frame;
    hv *weights; // by index in the manifest: parameters, or what stands for them in a region
    int32_t n_weights;
    int64_t ops_left;     // operations that may still be lowered
    int64_t folding_left; // work that may still be evaluated
    const struct shl_process *process; // whose operations are lowered, or NULL
    int depth;
    bool real; // the operation that is lowered has real values for quantised ones
    const _Atomic bool *cancel;
};

// Lowers one operation: in[k] = operand k, out[k] = result k. Errors of l->b are looked at by the
// caller, who says which operation it was.
typedef status_t (*shl_fn)(struct shl *l, const struct mlir_op *op, hv const *in, hv *out);
struct shl_row {
    const char *name; // without "stablehlo." where that is the dialect
    shl_fn lower;
    enum hlo_op hlo;
};
const struct shl_row *shl_row_of(struct str name); // NULL = unknown
// Lowers by the row; operands and results of quantised types are made real for it and stored again
// where it does not work on what is stored.
status_t shl_run(struct shl *l, const struct shl_row *row, const struct mlir_op *op, hv const *in,
                 hv *out) MUST_CHECK;

// ---- attributes of a normal operation. shl_int and shl_flag give the usual value of one that is
// missing; the others INVALID_ARGUMENT where it must be there.
int64_t shl_int(const struct mlir_op *op, const char *name, int64_t usual);
bool shl_flag(const struct mlir_op *op, const char *name);
struct str shl_word(const struct mlir_op *op, const char *name); // enumerator or string; empty
// n >= 0: so many of them, `usual` each where the attribute is missing; -1: none where it is.
status_t shl_ints(struct shl *l, const struct mlir_op *op, const char *name, int n, int64_t usual,
                  struct i64s *out) MUST_CHECK;
// Elements of a matrix of s64.
status_t shl_matrix(struct shl *l, const struct mlir_attr *t, const char *name,
                    struct i64s *out) MUST_CHECK;
status_t shl_needs(const struct mlir_op *op, const char *name,
                   const struct mlir_attr **out) MUST_CHECK;
enum rng_algorithm shl_rng_algorithm(const struct mlir_op *op); // its attribute's

// ---- shapes
// Of a type without dynamic dimensions; NULL where it has some. Quantised: of what is stored.
const struct shape *shl_shape(struct arena *a, const struct mlir_type *t);
const struct mlir_type *shl_result_type(const struct shl *l, const struct mlir_op *op, int k);
// Shape of result k if its type says it, else dtype of it with these dimensions.
const struct shape *shl_result_shape(struct shl *l, const struct mlir_op *op, int k,
                                     const int64_t *dims, int rank);
// An HLO instruction for the operation: its results' declared shapes where they are static, else
// those that the operands give, with the declared element types. Several results: out gets each.
status_t shl_emit(struct shl *l, const struct mlir_op *op, enum hlo_op hlo, hv const *in, int n,
                  const void *attr, struct hlo_computation *const *called, int n_called,
                  hv *out) MUST_CHECK;

// ---- regions
// A computation of scalars (reducer, comparator): its parameters have the types of the region's
// arguments, its root is the one result or a tuple of several. Outer values must be constants.
status_t shl_scalar_region(struct shl *l, const struct mlir_op *op, int k,
                           struct hlo_computation **out) MUST_CHECK;
// The same of a function.
status_t shl_scalar_function(struct shl *l, struct str callee,
                             struct hlo_computation **out) MUST_CHECK;
// One operation; its operands have values in the frame, its results get them.
status_t shl_lower_op(struct shl *l, const struct mlir_op *op) MUST_CHECK;
status_t shl_set_results(struct shl *l, const struct mlir_op *op, hv const *v) MUST_CHECK;
// The region's operations in the current computation; args by number of argument.
status_t shl_inline_region(struct shl *l, const struct mlir_region *r, hv const *args,
                           hv *out) MUST_CHECK;
// A function's, the same.
status_t shl_inline_call(struct shl *l, struct str callee, hv const *in, int n, hv *out,
                         int n_out) MUST_CHECK;

// ---- values
// The value where it is a constant, or follows from constants with little work; NULL.
struct literal *shl_known(struct shl *l, hv v);
// Elements of a known value of integers; INVALID_ARGUMENT where only a run knows it.
status_t shl_known_ints(struct shl *l, const struct mlir_op *op, int operand, hv v,
                        struct i64s *out) MUST_CHECK;
status_t shl_constant(struct shl *l, const struct mlir_attr *t, hv *out) MUST_CHECK;

#define SHL_OP(fn)                                                                                 \
    status_t shl_##fn(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) MUST_CHECK;
#define OP(name, fn, hlo) SHL_OP(fn)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wredundant-decls"
#include "compiler/frontend/stablehlo/stablehlo_ops.def"
#pragma GCC diagnostic pop
#undef OP
