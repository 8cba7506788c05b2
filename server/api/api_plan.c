// SPDX-License-Identifier: Apache-2.0
// RunPlan and RunPlanUnary: the request as a plan of the scheduler's; and plain runs with resident
// buffers, which are plans of one step.
#include <string.h>

#include "base/vec.h"
#include "scheduler/job/plan.h"
#include "server/api/api_job.h"

struct extra { // inputs of the job: the request's, and handles named inside steps
    struct job_input *v;
    size_t n, cap;
};

MUST_CHECK static status_t bad_plan(const char *step, const char *why) {
    return st_because(ST_INVALID_ARGUMENT, BAD_PLAN, "step '%s': %s", step, why);
}

static status_t read_step(struct call *c, const Hlod__V1__PlanStep *q, struct job_plan_step *s,
                          struct extra *in) {
    s->name = q->name;
    s->has_weights = *q->weights != 0;
    RETURN_IF_ERR(st_note(api_model(c, q->model, &s->model), "step '%s'", q->name));
    if (s->has_weights)
        RETURN_IF_ERR(
            st_note(api_model(c, q->weights, &s->weights), "step '%s', weights", q->name));
    s->args = arena_zarray(&c->arena, struct plan_arg, q->n_inputs + 1);
    for (; s->n_args < q->n_inputs; s->n_args++) {
        const Hlod__V1__PlanInput *x = q->inputs[s->n_args];
        struct plan_arg *a = &s->args[s->n_args];
        *a = (struct plan_arg){
            .name = x->name, .input = x->input, .step = x->step, .output = x->output};
        if (*x->output && !*x->step) return bad_plan(q->name, "an output without its step");
        if (!*x->handle && x->donate)
            return bad_plan(q->name, "only a resident buffer can be donated");
        if (!*x->handle) continue;
        if (*x->input || *x->step) return bad_plan(q->name, "an input has two sources");
        // A name that no input of a request has.
        a->input = arena_printf(&c->arena, "handle %zu", in->n);
        struct job_input h = {.name = a->input, .handle = x->handle, .donate = x->donate};
        avec_push(&c->arena, in, h);
    }
    return ST_OK;
}

static status_t read_plan(struct call *c, struct plan_spec *p, struct extra *in) {
    const Hlod__V1__RunPlanRequest *q = call_request(c);
    for (size_t k = 0; k < c->n_inputs; k++)
        avec_push(&c->arena, in, c->inputs[k]);
    p->steps = arena_zarray(&c->arena, struct job_plan_step, q->n_steps + 1);
    for (; p->n_steps < q->n_steps; p->n_steps++)
        RETURN_IF_ERR(read_step(c, q->steps[p->n_steps], &p->steps[p->n_steps], in));
    p->results = arena_zarray(&c->arena, struct plan_result, q->n_outputs + 1);
    for (; p->n_results < q->n_outputs; p->n_results++) {
        const Hlod__V1__PlanOutput *x = q->outputs[p->n_results];
        p->results[p->n_results] = (struct plan_result){
            .name = x->name, .step = x->step, .output = x->output, .keep = x->keep};
    }
    const char **names = arena_array(&c->arena, const char *, in->n + 1);
    for (size_t k = 0; k < in->n; k++)
        names[k] = in->v[k].name;
    return plan_resolve(p, names, in->n);
}

status_t api_plan(struct call *c) {
    const Hlod__V1__RunPlanRequest *q = call_request(c);
    struct job_spec spec = api_job_spec(c, JOB_PLAN);
    struct plan_spec *p = arena_new_of(&c->arena, struct plan_spec);
    struct extra in = {0};
    RETURN_IF_ERR(read_plan(c, p, &in));
    RETURN_IF_ERR(api_run_options(q->options, &spec));
    spec.inputs = in.v;
    spec.n_inputs = in.n;
    spec.plan.spec = p;
    spec.plan.lease_ms = q->lease_ms;
    spec.plan.tuple = q->keep_tuple;
    return api_start_job(c, &spec, api_ran);
}

// ---- a plain run with resident buffers

bool api_wants_residents(const struct call *c) {
    const Hlod__V1__RunRequest *q = call_request(c);
    bool any = q->n_keep > 0;
    for (size_t k = 0; k < c->n_inputs; k++)
        any |= c->inputs[k].handle != NULL;
    return any;
}

status_t api_run_resident(struct call *c, struct job_spec *spec) {
    const Hlod__V1__RunRequest *q = call_request(c);
    struct plan_spec *p = arena_new_of(&c->arena, struct plan_spec);
    struct job_plan_step *s = arena_new_of(&c->arena, struct job_plan_step);
    s->name = q->model;
    s->model = spec->model;
    s->has_weights = spec->has_weights;
    s->weights = spec->weights;
    s->args = arena_zarray(&c->arena, struct plan_arg, c->n_inputs + 1);
    for (; s->n_args < c->n_inputs; s->n_args++)
        s->args[s->n_args] = (struct plan_arg){.name = c->inputs[s->n_args].name,
                                               .input = c->inputs[s->n_args].name,
                                               .step = "",
                                               .from_input = (int)s->n_args,
                                               .from_step = -1};

    p->results = arena_zarray(&c->arena, struct plan_result, q->n_outputs + 1);
    p->n_results = q->n_outputs ? q->n_outputs : 1;
    for (size_t k = 0; k < p->n_results; k++)
        p->results[k] = (struct plan_result){
            .name = "", .step = s->name, .output = q->n_outputs ? q->outputs[k] : ""};
    p->steps = s;
    p->n_steps = 1;
    p->keep = q->keep;
    p->n_keep = q->n_keep;
    p->single = true;

    spec->kind = JOB_PLAN; // the run's own part of the spec gives way to a plan's
    spec->plan.spec = p;
    spec->plan.lease_ms = q->lease_ms;
    spec->plan.tuple = q->keep_tuple;
    return api_start_job(c, spec, api_ran);
}
