// SPDX-License-Identifier: Apache-2.0
// model: between a model's file and the program that trains it: what the program's state begins
// with, a checkpoint as that, and the file with what its weights became. Thread: any; no state.
#pragma once
#include "compiler/target.h"
#include "compiler/train/train.h"
#include "proto/safetensors.h"

// Sizes that `sig` leaves open and req does not bind are bound: dimension 0 of an input by rows to
// `batch` (0 = as the others), others to their usual ones, or 1; expressions follow from them. They
// are added behind req's own, in a new array in `a`.
void train_assume_sizes(struct arena *a, const struct signature *sig, int64_t batch,
                        struct lower_request *req);

struct train_rows { // all rows of an input, one that is given whole, or of none of the model's
    const char *name;
    int32_t rank;
    const int64_t *dims;
};
// The model's file, lowered for training by `spec`. Sizes that the model leaves open and req does
// not bind are those of the n arrays, where they tell (dimension 0 of rows apart, which is the
// batch), else as of train_assume_sizes; dimension 0 of the first input by rows, where the model
// fixes it, becomes the batch. r and what the module borrows lie in `a`; req has what it was done
// with. Errors: of frontend_ingest and frontend_lower. The caller frees the module.
status_t train_lower(struct arena *a, const char *format, struct span source,
                     const struct frontend_limits *limits, const struct train_rows *rows, size_t n,
                     const struct train_spec *spec, struct lower_request *req,
                     struct ingest_result *r, struct hlo_module **out) MUST_CHECK;
// The same, and then the program that trains it; *p in the module's arena. Errors also of
// train_derive.
status_t train_model(struct arena *a, const char *format, struct span source,
                     const struct frontend_limits *limits, const struct train_rows *rows, size_t n,
                     const struct train_spec *spec, const struct target *target,
                     struct ingest_result *r, struct hlo_module **out,
                     struct train_program *p) MUST_CHECK;
// m, lowered for training, as that program: calls of libraries become operations with derivatives
// before. r NULL: m is no model's. remat=BYTES is of what is planned for target t (NULL, or one
// that compiles on its own: for none). Errors: of train_module; RESOURCE_EXHAUSTED: it does not fit
// remat=BYTES.
status_t train_derive(struct hlo_module *m, const struct ingest_result *r,
                      const struct train_spec *spec, const struct target *t,
                      struct train_program *p) MUST_CHECK;

// Has the leaf a value before the first run that is no row and no number of the caller's?
bool train_leaf_kept(const struct train_program *p, int32_t leaf);
// That value, of shape_bytes(leaf->shape) bytes, from the model's file.
void train_leaf_initial(const struct train_leaf *leaf, const struct ingest_result *r,
                        struct span source, void *to);
// Or from a checkpoint: of the file's n tensors the one of this key. INVALID_ARGUMENT: there is
// none, or it has another type or shape.
status_t train_leaf_saved(const struct train_leaf *leaf, const struct safetensor *v, size_t n,
                          struct span *out) MUST_CHECK;

// INVALID_ARGUMENT names a tensor of the file that is no leaf's: it is of another training.
status_t train_check_saved(const struct train_program *p, const struct safetensor *v,
                           size_t n) MUST_CHECK;

// The model's file with the weights of a checkpoint or any safetensors file, appended to *out; what
// the optimiser keeps ("hlod.") is left out. limits may be NULL. INVALID_ARGUMENT names a weight
// that the model has not, or has in another shape.
status_t train_with_weights(const char *format, struct span source, struct span file,
                            const struct frontend_limits *limits, struct strbuf *out) MUST_CHECK;
