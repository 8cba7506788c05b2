// SPDX-License-Identifier: Apache-2.0
// hlod_jobs.h: batch jobs (docs/jobs.md): a suite of models x targets x inputs, submitted at once,
// on the server's disk before the submit is answered, each job with exactly one recorded result
// whatever happens to server or client. Blobs hold what is larger than a message should be.
//
// Each call twice: one that waits, on a `struct hlod`, and one that is started on a
// `struct hlod_async` and ends as hlod_async.h says. Ownership, errors, threads: as in both.
// Example: client/examples/jobs.c.
#pragma once
#include "hlod_async.h"

#if defined(__cplusplus)
extern "C" {
#endif

// ---- blobs: bytes by digest, kept for the tenant

enum { HLOD_DIGEST_CHARS = 65 }; // 64 hex digits and the end
// out_digest is filled before anything is sent. A blob may be a model, or a job's tensor.
// errors  RESOURCE_EXHAUSTED
HLOD_API enum hlod_code hlod_blob_put(struct hlod *h, const void *data, size_t bytes,
                                      char out_digest[HLOD_DIGEST_CHARS]);
struct hlod_bytes {
    const void *data;
    size_t size_bytes;
};
// The same of bytes in parts, one after the other.
HLOD_API enum hlod_code hlod_blob_put_parts(struct hlod *h, const struct hlod_bytes *parts,
                                            size_t n_parts, char out_digest[HLOD_DIGEST_CHARS]);
struct hlod_blob {
    const void *data; // aligned for any type
    size_t bytes;
};
// One that fits a message of the server; larger ones by ranges over HTTP. NOT_FOUND
HLOD_API enum hlod_code hlod_blob_get(struct hlod *h, const char *digest, struct hlod_blob **out);
HLOD_API void hlod_blob_free(struct hlod_blob *b); // NULL is fine

// Bytes of the whole: sent until now, and all. sent may go back when a piece is sent again.
typedef void (*hlod_upload_fn)(void *ctx, int64_t sent, int64_t total);
// Uploads a model in pieces of 8 MiB, or of what the server takes. Where the connection breaks or
// the server is busy it goes on from what the server holds, up to five times in a row without
// progress. Blocks meanwhile.
// parts       [n_parts] the model's bytes, one part after the other
// on_progress on the caller's thread; NULL = none. Must not use the same connection
// out_digest  as the server stored it and as it was read here; name it in hlod_compile_digest
// errors      UNAVAILABLE it did not go on; RESOURCE_EXHAUSTED; DATA_LOSS; INVALID_ARGUMENT too
//             large for the server
HLOD_API enum hlod_code hlod_upload(struct hlod *h, const struct hlod_bytes *parts, size_t n_parts,
                                    hlod_upload_fn on_progress, void *ctx,
                                    char out_digest[HLOD_DIGEST_CHARS]);

// ---- submit

struct hlod_job_tensor {
    struct hlod_tensor tensor; // data up to 64 KiB; or data NULL and
    const char *blob;          // the digest of the same bytes
};
struct hlod_job_budget { // 0 = any. A job beyond ends as failed
    double run_ms, compile_ms;
    int64_t instructions, peak_bytes;
};
struct hlod_job_model {
    const char *name;                // in job names; NULL = the model's
    const char *model;               // digest of a blob or upload, or NAME[:VERSION]
    const struct hlod_shape *shapes; // for jobs without inputs, which only compile
    size_t n_shapes;
};
struct hlod_job_target {
    const char *name;   // NULL = the device or target
    const char *device; // kind or name; NULL = the first
    const char *target; // instead: compile for it (docs/tpu.md)
};
struct hlod_job_input {
    const char *name;
    const struct hlod_job_tensor *inputs, *expect; // expect: outputs to compare
    size_t n_inputs, n_expect;
};
struct hlod_suite { // begin with HLOD_SUITE
    size_t size;    // sizeof this struct
    const char *name;
    const char *idempotency_key; // the same again gives the suite that exists; NULL = none
    const struct hlod_job_model *models;
    size_t n_models;
    const struct hlod_job_target *targets; // none: the first device
    size_t n_targets;
    const struct hlod_job_input *inputs; // none: each model is compiled for each target
    size_t n_inputs;
    struct hlod_job_budget budget;
    double rtol, atol;     // |found - expected| <= atol + rtol * |expected|
    uint32_t max_attempts; // of failures that may pass; 0 = 3
    uint32_t timeout_ms;   // of one attempt; 0 = the server's default
    uint32_t repeat;       // runs of each job, for its times; 0 = 1
    int32_t priority;      // among batch jobs; higher first
    bool keep_outputs;     // as blobs, named in the outcome
};
#define HLOD_SUITE {.size = sizeof(struct hlod_suite)}
struct hlod_submitted {
    const char *suite; // its jobs are SUITE.1 to SUITE.N
    uint32_t n_jobs;
    bool existed; // by its idempotency key
};
// out     caller frees with hlod_submitted_free
// errors  INVALID_ARGUMENT the message names what; NOT_FOUND a model or blob; RESOURCE_EXHAUSTED
HLOD_API enum hlod_code hlod_jobs_submit(struct hlod *h, const struct hlod_suite *s,
                                         struct hlod_submitted **out);
HLOD_API void hlod_submitted_free(struct hlod_submitted *s); // NULL is fine

// ---- watch, outcome, cancel

struct hlod_job {
    const char *id, *suite, *suite_name;
    const char *model, *target, *input; // names within the suite
    // queued, running, waiting (to be tried again); ended: passed, failed (differs, or over its
    // budget), error (could not be run), cancelled
    const char *state;
    bool ended;
    uint32_t attempts;
    double run_ms;                                 // median, once ended
    const char *error_code, *error_reason, *error; // "" without
};
// Called with each job as it is and whenever it changes. False: stop watching, CANCELLED; the jobs
// go on. Must not use the same connection. j is borrowed during the call.
typedef bool (*hlod_job_fn)(void *ctx, const struct hlod_job *j);
// Until all jobs of it have ended. job: of a suite or a single one.
// errors  NOT_FOUND; UNAVAILABLE the connection broke: watch again, nothing is lost
HLOD_API enum hlod_code hlod_jobs_watch(struct hlod *h, const char *job, hlod_job_fn on_job,
                                        void *ctx);
// While a call on h waits, stop is asked about once a second, on the caller's thread: true ends the
// call with CANCELLED, a watch too between two events. Must not use the same connection. NULL: not
// asked. Calls of hlod_async.h have hlod_call_cancel instead.
HLOD_API void hlod_set_stop(struct hlod *h, bool (*stop)(void *ctx), void *ctx);
// Jobs that have not ended become cancelled; what has a result keeps it.
// out_cancelled   how many; may be NULL
HLOD_API enum hlod_code hlod_jobs_cancel(struct hlod *h, const char *job, uint32_t *out_cancelled);

struct hlod_comparison {
    const char *output;
    bool ok;
    int64_t elements, mismatches;
    double max_abs, max_rel;
    const char *message; // where more than values differ
};
struct hlod_outcome {
    const char *job, *state;
    uint32_t attempts;
    const char *error_code, *error_reason, *error; // "" without
    const char *executable, *device;
    bool cache_hit;
    double compile_ms;
    int64_t instructions, peak_bytes;
    const double *run_ms; // one for each repeat
    size_t n_run_ms;
    const struct hlod_comparison *comparisons;
    size_t n_comparisons;
    const char *const *over_budget; // one line each
    size_t n_over_budget;
    const struct hlod_job_tensor *outputs; // keep_outputs
    size_t n_outputs;
};
// out     caller frees with hlod_outcome_free
// errors  NOT_FOUND; FAILED_PRECONDITION it has not ended
HLOD_API enum hlod_code hlod_job_outcome(struct hlod *h, const char *job,
                                         struct hlod_outcome **out);
HLOD_API void hlod_outcome_free(struct hlod_outcome *o); // NULL is fine

// ---- the same, started: done and out as in hlod_async.h; what is given is borrowed until the end

HLOD_API enum hlod_code hlod_blob_put_start(struct hlod_async *q, const void *data, size_t bytes,
                                            char out_digest[HLOD_DIGEST_CHARS], hlod_done_fn done,
                                            void *ctx, struct hlod_call **out);
HLOD_API enum hlod_code hlod_jobs_submit_start(struct hlod_async *q, const struct hlod_suite *s,
                                               hlod_done_fn done, void *ctx,
                                               struct hlod_call **out);
// on_job gets ctx, on the library's thread.
HLOD_API enum hlod_code hlod_jobs_watch_start(struct hlod_async *q, const char *job,
                                              hlod_job_fn on_job, hlod_done_fn done, void *ctx,
                                              struct hlod_call **out);
HLOD_API enum hlod_code hlod_jobs_cancel_start(struct hlod_async *q, const char *job,
                                               hlod_done_fn done, void *ctx,
                                               struct hlod_call **out);
HLOD_API enum hlod_code hlod_job_outcome_start(struct hlod_async *q, const char *job,
                                               hlod_done_fn done, void *ctx,
                                               struct hlod_call **out);
// After the end of a call of that kind: as hlod_call_take_result.
HLOD_API struct hlod_submitted *hlod_call_take_submitted(struct hlod_call *c);
HLOD_API struct hlod_outcome *hlod_call_take_outcome(struct hlod_call *c);

#if defined(__cplusplus)
}
#endif
