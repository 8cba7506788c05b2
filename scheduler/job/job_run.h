// SPDX-License-Identifier: Apache-2.0
// job_run: what plain runs and plans share: inputs in a signature's order, the model's names, what
// a run is expected to take. Thread: loop.
#pragma once
#include "scheduler/sched.h"

// The model's names for tensors in and out, sequences flattened; needs model, and exe for outputs.
const Hlod__V1__Signature *job_names(struct job *j);
// The given inputs in signature order; sig: the executable's or the model's own.
status_t job_order_inputs(struct job *j, const Hlod__V1__Signature *sig,
                          const struct job_input **out) MUST_CHECK;
status_t job_pick_weights(struct job *j) MUST_CHECK;
// The memory that results take, laid out as the worker does; 0 = only the run knows.
int64_t job_add_output_bytes(int64_t total, const Hlod__V1__TensorSpec *t);
bool job_takes_inputs(const struct job *j); // RUN, STEP
// A run took so long (each of n): what is expected of the next one. All of it, in ns.
int64_t exe_resident_bytes(const struct exe *e); // by plan, for each of its runs
int64_t exe_measured(struct exe *e, const double *run_ms, size_t n, int64_t most_ns);
Hlod__Wire__WireTensor *job_wire_input(struct job *j, const struct job_input *in);
// The executable was first compiled from another model: its node names are not this job's to see.
bool job_foreign_names(const struct job *j);
void job_own_executable(struct job *j); // job.c: it is its tenant's, by its model
