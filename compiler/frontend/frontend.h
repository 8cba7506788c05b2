// SPDX-License-Identifier: Apache-2.0
// frontend: formats that a program can come in. Each row of frontends.def has three functions:
// sniff the first bytes, ingest (source bytes -> program without weights, signature, weight
// manifest; D13), and lower (program with its dimensions bound -> one HLO module). Everything a
// frontend reads is hostile. Thread: any; no global state.
#pragma once
#include "base/hash.h"
#include "base/map.h"
#include "base/vec.h"
#include "compiler/ir/module.h"

struct sig_dim {
    int64_t size;
    const char *symbol;
    int64_t usual; // of an input's symbol: a size at which the model is known to work; 0 = none
    bool expression; // the symbol is one over others, proto/size_expr.h; frontend_bound knows it
}; // size >= 0 and symbol NULL, or size -1 and the symbol's name ("N"; unnamed ones get
   // "_<input>_<dim>")
struct sig_tensor {
    const char *name, *alias; // alias: another name that it is taken by, or NULL
    enum dtype dtype;
    int32_t rank;
    struct sig_dim *dims;
    bool by_value; // inputs: the elements decide shapes and are bound as "=<input>[<element>]"
    bool sequence, optional;
    bool text; // elements are texts; dtype is s32, as what stands for them (compiler/strings.h)
}; // rank -1 = unknown; always so for sequences and optionals
struct signature {
    struct sig_tensor *in, *out;
    int32_t n_in, n_out;
    // Values of the model that a request may replace: where it does, "~<default>" is bound to 1 and
    // the value is one more input, behind the others, in this order.
    struct sig_tensor *defaults;
    int32_t n_defaults;
};

// One weight: a slice of the source blob, or of the sidecar (weights that are not stored as plain
// little-endian bytes in the source, decoded).
struct weight {
    const char *name; // as in the source
    enum dtype dtype;
    int32_t rank;
    int64_t *dims;
    struct digest digest; // of the bytes
    bool sidecar;
    int64_t offset, size_bytes;
    bool inner; // of a graph in a node, or of a Constant node where those are not trained:
                // frontend_with_weights has it not
};
struct op_count {
    const char *name;
    int64_t count;
};
struct opset {
    const char *domain;
    int64_t version;
};
struct program_info {         // what there is to tell about a source
    VEC(struct op_count) ops; // most frequent first, then by name
    VEC(struct opset) opsets;
    int64_t nodes;
    const char *producer; // NULL = it does not say
    int64_t parameters, parameter_bytes; // elements of the weights, small ones too; their bytes
};
// One more operator called `name`; program_info_sort once all are counted. `seen` is the caller's,
// from name to its place.
void frontend_program_info_count(struct arena *a, struct program_info *p, struct smap *seen,
                                 struct str name);
void frontend_program_info_sort(struct program_info *p);

struct ingest_result {
    struct digest program_digest; // canonical graph: names, metadata and weight values removed;
                                  // baked constants hashed; dynamic dims as symbols
    struct digest weights_digest; // over the manifest in order: dtype, shape, digest
    struct span program;          // source format with the weights cut out, arena
    struct span sidecar;          // may be empty, arena
    struct signature sig;
    struct weight *weights; // manifest; module parameters of kind PARAM_WEIGHT index it
    int32_t n_weights;
    const char *format; // row name
    struct program_info info;
};
// Of a training, the tensors of real numbers of Constant nodes of the main graph: AUTO: weights
// where they hold more numbers than all initializers.
enum frontend_constants { CONSTANTS_AUTO, CONSTANTS_FROZEN, CONSTANTS_TRAINED };
struct frontend_limits {
    int64_t max_program_bytes; /* without weights */
    int max_depth;
    int64_t max_nodes;
    int64_t max_tensor_bytes;
    bool trainable; // initializers of real numbers are weights at any size
    enum frontend_constants constants; // what a training makes of those of Constant nodes
    const char *singles; // globs (str_in_globs) of single numbers that are weights of a training,
                         // others are constants; NULL = none
    int channel_block;   // of the target (target.h), for weights that were written in such blocks
                         // for a machine of its kind; 0 = they are refused
}; // 0 = defaults: 256 MiB, 100, 200000, 64 GiB

// A symbol's size; or, symbol "=<input>[<element>]", an element of an input whose values decide
// shapes: integers sign-extended, floating-point elements as their bits. Of an input of unknown
// rank, "#<input>" is how many tensors it has (a sequence's elements; 0 = an absent optional),
// "#<input>[<tensor>]" a rank, "#<input>[<tensor>].<dim>" a size.
struct dim_binding {
    const char *symbol;
    int64_t size;
};
// TRAINING: what inference leaves out or simplifies stays: batch normalisation is one operation,
// dropout drops, and numbers are drawn anew at each run, also where a node has a seed. VALIDATION:
// as for inference, and dropout does not drop where the model says so either.
enum lower_purpose { LOWER_INFERENCE, LOWER_TRAINING, LOWER_VALIDATION };
enum { MAX_BOUND_VALUES = 256 }; // elements of one such input
struct lower_request {
    struct span program;
    const struct dim_binding *bindings;
    int32_t n_bindings;
    const char *entry_name;
    struct frontend_limits limits;
    const _Atomic bool *cancel; // or NULL; CANCELLED between two nodes
    int64_t fixed_batch,
        batch;     // ONNX: inputs whose dimension 0 is fixed_batch have batch instead,
                   // and so do shapes in the model that follow from it; 0 = as they are
    const char *whole; // globs of inputs that keep their dimension 0 then; NULL = none
    enum lower_purpose purpose;
    struct hlo_module *lowered; // for hlo_compile: what frontend_lower gives, taken; or NULL
};

// ---- what the driver calls
const char *frontend_sniff(struct span head); // row name ("onnx", "hlo-text"), or NULL
const char *frontend_from_media_type(struct str media_type);
// format NULL = sniff. Errors: INVALID_ARGUMENT with byte offset and message path; ALL unsupported
// nodes are listed in one error (reason REASON_UNSUPPORTED_OP; one line each: node name, op,
// domain, opset, why).
status_t frontend_ingest(struct arena *a, const char *format, struct span source,
                         const struct frontend_limits *limits,
                         struct ingest_result *out) MUST_CHECK;
// Unbound symbols: INVALID_ARGUMENT naming them. The module is verified; its entry parameters are
// the inputs in signature order (PARAM_INPUT), then the weights used (PARAM_WEIGHT, param_index
// into the manifest). The root is a tuple of the outputs in signature order. Caller frees the
// module.
status_t frontend_lower(const char *format, const struct lower_request *req,
                        struct hlo_module **out) MUST_CHECK;
// The size of a dimension as the request binds it: its symbol, or all that its expression names.
bool frontend_bound(const struct lower_request *req, const struct sig_dim *dim, int64_t *out);
// The entry's weights become constants, so that the module stands for the source alone. Their
// elements are borrowed from `source` and r's arena, which the module must not outlive.
// INVALID_ARGUMENT: a weight does not fit its parameter.
status_t frontend_bake_weights(struct hlo_module *m, const struct ingest_result *r,
                               struct span source) MUST_CHECK;
// A weight's new bytes, of its own type and shape.
struct new_weight {
    const char *name; // as in the source
    struct span data;
    bool found; // set by the call
};
// The source with other weights, all else as it was, appended to *out. Of ONNX; UNIMPLEMENTED for
// other formats and elements of fewer than 8 bits. INVALID_ARGUMENT: the source has no such
// weight, or it is an inner one.
status_t frontend_with_weights(struct span source, struct new_weight *v, size_t n,
                               struct strbuf *out) MUST_CHECK;
// "N=1,S=128" into req->bindings; texts and array lie in `a`. NULL = none. INVALID_ARGUMENT.
status_t frontend_bindings_parse(struct arena *a, const char *text,
                                 struct lower_request *req) MUST_CHECK;

struct frontend {
    const char *name, *media_type;
    bool (*sniff)(struct span head);
    status_t (*ingest)(struct arena *a, struct span source, const struct frontend_limits *limits,
                       struct ingest_result *out);
    status_t (*lower)(const struct lower_request *req, struct hlo_module **out);
};
