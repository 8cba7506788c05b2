// SPDX-License-Identifier: Apache-2.0
// train: from a model to the program that trains it: forward, loss, backward, update and the loop
// over steps, as one HLO module (Fischer & Saba, section 4). The program is an ordinary one: its
// state comes in and goes out with each run, in the same memory (input_output_alias), a run makes
// as many steps as `limit` says, and what it computes at a step depends on state, data, seed and
// the step's number alone, so that training goes on from any state as if never stopped.
//
//   parameters  state..., frozen..., whole..., data..., [label], seed s32, limit s32
//     state     the weights that are trained, each followed by what the optimiser keeps of it;
//               statistics of batch normalisation; order s32[rows] where rows are shuffled;
//               loss_scale f32, loss_scale.clean s32 (steps since it changed) where dynamic;
//               step s32: steps made so far
//     whole     the model's inputs that every batch reads as they are: single numbers, and those
//               that spec.whole names
//     data      the others, with `rows` in place of the batch
//   results     state'..., losses f32[slice], [accuracy f32[slice]]: of the steps that were made,
//               in order, zeros behind
// A step's batch is the next `batch` rows of the order; what is left of an epoch when no whole
// batch is left is not used in that epoch.
#pragma once
#include "compiler/frontend/frontend.h"

enum train_loss {
#define LOSS(id, ...) TRAIN_LOSS_##id,
#include "compiler/train/losses.def"
#undef LOSS
    TRAIN_LOSS_COUNT
};
enum train_optimizer {
#define OPTIMIZER(id, ...) TRAIN_OPTIMIZER_##id,
#include "compiler/train/optimizers.def"
#undef OPTIMIZER
    TRAIN_OPTIMIZER_COUNT
};
enum train_schedule {
#define SCHEDULE(id, ...) TRAIN_SCHEDULE_##id,
#include "compiler/train/schedules.def"
#undef SCHEDULE
    TRAIN_SCHEDULE_COUNT
};
enum train_nan { TRAIN_NAN_STOP, TRAIN_NAN_SKIP, TRAIN_NAN_IGNORE };
enum train_remat { TRAIN_REMAT_NONE, TRAIN_REMAT_SEGMENTS, TRAIN_REMAT_BYTES };

struct train_hyper {
    double rate, momentum, beta1, beta2, decay, eps, weight_decay;
};
struct train_spec {
    enum train_loss loss;
    int64_t output;          // result of the model that the loss looks at
    int64_t axis;            // of classes, -1 = the last
    double smoothing, delta; // label smoothing of softmax-cross-entropy; huber's border
    enum train_optimizer optimizer;
    struct train_hyper hyper;
    enum train_schedule schedule;
    int64_t warmup, steps, every;    // steps; every: of `step`
    double factor, end;              // of `step`; what linear and cosine end at, a part of the rate
    double clip;                     // largest norm of all gradients together; 0 = any
    double ema;                      // decay of the weights' running mean; 0 = none is kept
    double loss_scale;               // gradients are computed of so many times the loss; 0 = as
                                     // much as does not overflow, found while training
    const char *trainable, *decayed; // comma separated globs over names of weights; decayed also
                                     // "matrices" (of two dimensions or more)
    enum frontend_constants constants;
    const char *whole;           // globs over names of inputs that are given whole, not by rows
    int64_t batch, rows, slice;      // slice: most steps a run makes; rows 0 = batch
    bool shuffle;
    bool batchnorm; // normalise by the batch, and keep running statistics
    double momentum_of_statistics;
    enum train_nan nan;
    enum train_remat remat; // segments: their insides are computed again in the backward pass
    int64_t remat_bytes;    // of TRAIN_REMAT_BYTES: of as few that the planned arena is no larger
    int32_t remat_first;    // so many segments only, the first ones; 0 = all. No word says this
    bool evaluate; // the mean loss and accuracy of all rows instead, with the weights as they are
};
// "loss=mse;optimizer=adam:rate=1e-3:beta1=0.9;schedule=cosine:steps=1000:warmup=50;batch=64".
// INVALID_ARGUMENT names the word that is not known or out of range.
status_t train_spec_parse(struct arena *a, struct str text, struct train_spec *out) MUST_CHECK;
// Canonical text: what is usual left out.
void train_spec_print(const struct train_spec *s, struct strbuf *out);

enum train_role {
    TRAIN_WEIGHT,
    TRAIN_SLOT,
    TRAIN_MEAN,
    TRAIN_STATISTIC,
    TRAIN_ORDER,
    TRAIN_STEP,
    TRAIN_FROZEN,
    TRAIN_WHOLE,
    TRAIN_DATA,
    TRAIN_LABEL,
    TRAIN_SEED,
    TRAIN_LIMIT
};
const char *train_role_name(enum train_role role); // "weight", "slot", ...
struct train_leaf { // a parameter of the program, in order
    enum train_role role;
    const char *name; // the parameter's
    const char *of;   // the weight's or input's in the model
    const char *key;  // in a checkpoint: of a weight its own; others begin with "hlod."
    int64_t weight;   // index into the manifest; -1 = of no weight
    const struct shape *shape;
    bool still;     // a weight that the loss does not depend on, or only through what has no
                    // derivative (integers, ArgMax): its gradient is zero
    double initial; // of slots: each element; weights, statistics, frozen and running means begin
                    // as the weight, order and step as zeros
};
struct train_program {
    struct train_leaf *leaves; // in the module's arena
    int32_t n_leaves, n_state; // state comes first, and has the same places in the results
    bool accuracy;             // there is a result behind the losses
    int64_t steps_per_epoch;
    int32_t segments; // of the forward pass that remat could compute again
    int64_t classes; // of labels: 0 <= label < classes; 0 = values
};
// m as frontend_lower gives it becomes the program (in place), of which *out tells. r names the
// weights; NULL: parameters have their own names, and those that spec.trainable matches are state.
// Errors: INVALID_ARGUMENT where the model, its shapes or the spec do not fit; UNIMPLEMENTED names
// the instruction whose opcode has no derivative. TRAIN_REMAT_BYTES is taken as segments (model.h
// has what looks for the number).
status_t train_module(struct hlo_module *m, const struct ingest_result *r,
                      const struct train_spec *spec, struct train_program *out) MUST_CHECK;
