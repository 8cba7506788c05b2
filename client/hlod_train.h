// SPDX-License-Identifier: Apache-2.0
// hlod_train.h: training as a job of the server (docs/training.md): it is on the server's disk
// before hlod_train returns, goes on without its client and after a restart, and ends with a model
// that is the source with other weights. hlod_jobs_cancel ends it before; blobs are those of
// hlod_jobs.h. Ownership, errors, threads: as in hlod.h.
#pragma once
#include "hlod_jobs.h"

#if defined(__cplusplus)
extern "C" {
#endif

struct hlod_training {                // begin with HLOD_TRAINING
    size_t size;                      // sizeof this struct
    const char *model;                // digest of a blob or upload, or NAME[:VERSION]
    const char *loss;                 // "softmax-cross-entropy", ...
    const char *optimizer, *schedule; // "adam:rate=1e-3"; NULL = sgd, constant
    const struct hlod_job_tensor *data, *validation; // rows, by the names of inputs; "label"
    size_t n_data, n_validation;
    const char *const *settings; // "clip=1", ...
    size_t n_settings;
    uint32_t batch;  // 0 = 32
    uint32_t epochs; // or
    uint64_t steps;  // neither: one epoch
    int32_t seed;
    bool in_order;             // rows are not shuffled
    uint32_t patience;         // ends after so many epochs without a better validation; 0 = never
    uint64_t checkpoint_steps; // 0 = by time alone
    uint32_t checkpoint_s;     // 0 = 60
    const char *resume;        // digest of a checkpoint
    const char *device;        // kind or name; NULL = the first
    const char *name, *idempotency_key;
    uint32_t max_attempts; // of failures that may pass; 0 = 3
    uint32_t timeout_ms;   // of one attempt; 0 = none
    int32_t priority;      // among batch jobs; higher first
    uint32_t window;       // rows that lie on the device at a time; 0 = all
    const struct hlod_job_tensor *whole; // inputs that are the same for all rows
    size_t n_whole;
    const char *precision; // NULL, "strict" or "fast"
};
#define HLOD_TRAINING {.size = sizeof(struct hlod_training)}

// out     caller frees with hlod_submitted_free; the training is job SUITE.1
// errors  INVALID_ARGUMENT the message names what; NOT_FOUND model, blob or checkpoint. What the
//         model and its rows have to fit in is looked at by the job
HLOD_API enum hlod_code hlod_train(struct hlod *h, const struct hlod_training *t,
                                   struct hlod_submitted **out);

struct hlod_train_progress {
    const char *job, *state; // as of struct hlod_job
    bool ended;
    int64_t step, steps, steps_per_epoch;
    const float *losses, *accuracies; // [n] of the steps since the call before, up to `step`
    size_t n_losses, n_accuracies;    // accuracies: 0 where the loss has none
    double examples_per_s, step_ms;
    const char *checkpoint; // digest of the last state kept; ""
    int64_t checkpoint_step;
    int64_t validation_step; // 0 = none yet
    double validation_loss, validation_accuracy;
    const char *error_code, *error_reason, *error; // "" without
    const double (*curve)[3]; // [n_curve] of the whole training so far, as of struct hlod_trained
    size_t n_curve;
};
// Called with the training as it is and whenever it changes. False: stop watching, CANCELLED; the
// training goes on. Must not use the same connection. p is borrowed during the call.
typedef bool (*hlod_train_fn)(void *ctx, const struct hlod_train_progress *p);
// Until it has ended.
// errors  NOT_FOUND; UNAVAILABLE the connection broke: watch again, nothing is lost
HLOD_API enum hlod_code hlod_train_watch(struct hlod *h, const char *job, hlod_train_fn fn,
                                         void *ctx);

struct hlod_trained {
    const char *job, *state;
    const char *error_code, *error_reason, *error; // "" without
    const char *model;      // digest of the trained model (hlod_blob_get); "" after an error
    const char *checkpoint; // digest of the last state; ""
    const char *executable, *device;
    int64_t step;
    double loss, accuracy, validation_loss, validation_accuracy;
    const double (*curve)[3]; // [n_curve] step, loss, accuracy: means over the steps between
    size_t n_curve;
};
// out     caller frees with hlod_trained_free
// errors  NOT_FOUND; FAILED_PRECONDITION it has not ended
HLOD_API enum hlod_code hlod_train_result(struct hlod *h, const char *job,
                                          struct hlod_trained **out);
HLOD_API void hlod_trained_free(struct hlod_trained *t); // NULL is fine

#if defined(__cplusplus)
}
#endif
