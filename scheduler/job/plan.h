// SPDX-License-Identifier: Apache-2.0
// plan: several executables in one job, as the request says it: steps, what each takes from where,
// what leaves. plan_resolve finds which outputs each step takes and in what order the steps can
// run, and refuses references that name nothing. Types and shapes are looked at when the steps are
// compiled (job_plan.c). Pure. Thread: any.
#pragma once
#include "base/arena.h"
#include "base/hash.h"
#include "base/status.h"

enum { PLAN_MAX_STEPS = 32 };
struct plan_arg {
    const char *name; // of the step's input; "" = by position
    // Exactly one of input and step is not "".
    const char *input;         // an input of the request
    const char *step, *output; // a step's output; "" = its only one
    int from_input, from_step; // set by plan_resolve; -1
};
struct job_plan_step {
    const char *name;
    struct digest model;
    bool has_weights;
    struct digest weights;
    struct plan_arg *args;
    size_t n_args;
};
struct plan_result {
    const char *name;          // "" = as the step calls it
    const char *step, *output; // output "" = all
    bool keep;
    int from_step; // set by plan_resolve
};
struct plan_spec {
    struct job_plan_step *steps;
    size_t n_steps;
    struct plan_result *results;
    size_t n_results;
    char **keep; // further results that stay, by the names they have in the reply; "*" = all
    size_t n_keep;
    bool single;               // a plain run with resident buffers: messages do not speak of steps
    int order[PLAN_MAX_STEPS]; // set by plan_resolve: steps as they run
};
// inputs: names of the request's. INVALID_ARGUMENT, REASON_BAD_PLAN, names the step and the input:
// no steps or too many, a name missing or given twice, a reference to nothing or to two things, a
// circle, an input or a step that nothing uses.
status_t plan_resolve(struct plan_spec *p, const char *const *inputs, size_t n_inputs) MUST_CHECK;
