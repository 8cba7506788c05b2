// SPDX-License-Identifier: Apache-2.0
// job_run: the rows of RUN, WARM, INSPECT, TUNE, TRAIN and EXPORT jobs, and what plain runs and
// plans share: inputs in a signature's order, the model's names, what a run is expected to take.
// Thread: loop.
#pragma once
#include "scheduler/job/job_inside.h"

struct run_own {
    const struct job_input **order; // inputs as the executable has them
    struct job_parts *parts;        // of the program that are over; or NULL
    struct batch *batch;            // it was run in, or waits for
};
struct export_own { // sizes of the inputs
    Hlod__Wire__Binding **bindings;
    size_t n_bindings;
    Hlod__V1__ShapeBinding **assumed;
    size_t n_assumed;
    struct span how;      // of the request, what goes into the package's key
    struct digest key;    // of the package
    const char *not_kept; // by this build of the compiler: it was looked for; or NULL
};
struct warm_own {
    size_t n_buckets;      // begun
    const char *constants; // of the last of them that has several rows
    Hlod__V1__ShapeBinding **shapes;
    size_t n_shapes; // of the one under way; 0 = those of the model
};

// Rows of the table (job_table.c).
status_t run_check(struct job *j, struct delivery *d) MUST_CHECK;
status_t run_want(const struct job *j, struct task *t) MUST_CHECK;
status_t run_prepare(struct job *j, bool *later) MUST_CHECK; // and a STEP's
status_t run_send(struct job *j) MUST_CHECK;
void run_end(struct job *j);
void run_evicted(struct job *j);
void run_free(struct job *j);
status_t inspect_want(const struct job *j, struct task *t) MUST_CHECK;
status_t inspect_send(struct job *j) MUST_CHECK;
status_t tune_want(const struct job *j, struct task *t) MUST_CHECK;
status_t tune_send(struct job *j) MUST_CHECK;
status_t train_want(const struct job *j, struct task *t) MUST_CHECK;
status_t train_send(struct job *j) MUST_CHECK;
status_t export_check(struct job *j, struct delivery *d) MUST_CHECK;
status_t export_want(const struct job *j, struct task *t) MUST_CHECK;
status_t export_send(struct job *j) MUST_CHECK;
status_t warm_start(struct job *j, bool *later) MUST_CHECK; // the next bucket
status_t warm_check(struct job *j, struct delivery *d) MUST_CHECK;
void warm_end(struct job *j);

// The model's names for tensors in and out, sequences flattened; needs model, and exe for outputs.
const Hlod__V1__Signature *job_names(struct job *j);
// The given inputs in signature order; sig: the executable's or the model's own.
status_t job_order_inputs(struct job *j, const struct job_input *given,
                          const Hlod__V1__Signature *sig, const struct job_input **out) MUST_CHECK;
status_t job_check_inputs(struct job *j) MUST_CHECK; // against the model's, before any compile
// Which outputs are wanted, and their names.
status_t job_order_outputs(struct job *j, struct delivery *d) MUST_CHECK;
// Into *out: outputs of these names, each as it is (names, outputs, n_outputs).
void job_name_outputs(struct job *j, const char *const *names, size_t n, struct job_result *out);
status_t job_check_weights(const struct job *j) MUST_CHECK; // they are of the model's program
// A run's inputs as one replica sees them: without the first dimension where there are several.
status_t job_one_replica(struct job *j, const struct job_input **out) MUST_CHECK;
// The memory that results take, laid out as the worker does; 0 = only the run knows.
int64_t job_add_output_bytes(int64_t total, const Hlod__V1__TensorSpec *t);
struct footprint_want job_footprint(const struct job *j); // what its run needs; it has its exe
int64_t job_plan_bytes(int64_t bytes);                    // of a worker's figures: in range
int64_t exe_resident_bytes(const struct exe *e);          // by plan, for each of its runs
// A run took so long (each of n): what is expected of the next one. All of it, in ns.
int64_t exe_measured(struct exe *e, const double *run_ms, size_t n, int64_t most_ns);
Hlod__Wire__WireTensor *job_wire_input(struct job *j, const struct job_input *in);
// The executable was first compiled from another model: its node names are not this job's to see.
bool job_foreign_names(const struct job *j);
