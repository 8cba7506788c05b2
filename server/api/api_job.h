// SPDX-License-Identifier: Apache-2.0
// api_job: a call with a job behind it (compile, run, inspect): events pass through, cancelling
// reaches the job, and the job lives until the reply is sent. Thread: loop.
#pragma once
#include "server/api/api.h"

// `reply` makes the answer from the finished job (in c->arena) and is called only on success. It
// may answer later itself: it leaves the call busy then.
typedef status_t (*api_reply_fn)(struct call *c, const struct job_result *r,
                                 const ProtobufCMessage **out_reply);
// Sets on_event, on_done, ctx of the spec. ST_OK.
status_t api_start_job(struct call *c, struct job_spec *spec, api_reply_fn reply) MUST_CHECK;
// A finished run or plan as RunReply.
status_t api_ran(struct call *c, const struct job_result *r,
                 const ProtobufCMessage **out) MUST_CHECK;
// A job of the tensors that came with the call.
struct job_spec api_job_spec(const struct call *c, enum job_kind kind);
// What a run or plan was asked to do, into its spec; NULL: nothing. INVALID_ARGUMENT: out of range.
status_t api_run_options(const Hlod__V1__RunOptions *o, struct job_spec *spec) MUST_CHECK;
// api_plan.c: a RunRequest with handles or outputs that stay runs as a plan of one step.
bool api_wants_residents(const struct call *c);
// spec: of the run, checked.
status_t api_run_resident(struct call *c, struct job_spec *spec) MUST_CHECK;
// A finished run's outputs as the call's (mapped, borrowed from the job until the call ends).
status_t api_take_outputs(struct call *c, const struct job_result *r) MUST_CHECK;
