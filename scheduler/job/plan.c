// SPDX-License-Identifier: Apache-2.0
#include "scheduler/job/plan.h"

#include <string.h>

#include "proto/reason.h"

#define bad(...) st_because(ST_INVALID_ARGUMENT, BAD_PLAN, __VA_ARGS__)

static int step_index(const struct plan_spec *p, const char *name) {
    for (size_t k = 0; k < p->n_steps; k++)
        if (!strcmp(p->steps[k].name, name)) return (int)k;
    return -1;
}

static status_t check_names(const struct plan_spec *p, const char *const *inputs, size_t n) {
    if (p->n_steps == 0 || p->n_steps > PLAN_MAX_STEPS)
        return bad("a plan has 1 to %d steps, found %zu", PLAN_MAX_STEPS, p->n_steps);
    for (size_t k = 0; k < p->n_steps; k++) {
        if (!*p->steps[k].name) return bad("steps[%zu] has no name", k);
        if (step_index(p, p->steps[k].name) != (int)k)
            return bad("two steps are called '%s'", p->steps[k].name);
    }
    for (size_t k = 0; k < n; k++) {
        if (!*inputs[k]) return bad("inputs[%zu] has no name", k);
        for (size_t i = 0; i < k; i++)
            if (!strcmp(inputs[i], inputs[k])) return bad("two inputs are called '%s'", inputs[k]);
    }
    return ST_OK;
}

static status_t resolve_arg(struct plan_spec *p, const struct job_plan_step *s, size_t k,
                            const char *const *inputs, size_t n_inputs) {
    struct plan_arg *a = &s->args[k];
    a->from_input = a->from_step = -1;
    if (!*a->input == !*a->step)
        return bad(
            "step '%s', input %zu '%s': expected one source (input, step or handle), found %s",
            s->name, k, a->name, *a->input ? "two" : "none");
    if (*a->step) {
        a->from_step = step_index(p, a->step);
        if (a->from_step < 0)
            return bad("step '%s', input %zu '%s': there is no step '%s'", s->name, k, a->name,
                       a->step);
        return ST_OK;
    }
    for (size_t i = 0; i < n_inputs; i++)
        if (!strcmp(inputs[i], a->input)) a->from_input = (int)i;
    if (a->from_input < 0)
        return bad("step '%s', input %zu '%s': the request has no input '%s'", s->name, k, a->name,
                   a->input);
    return ST_OK;
}

// Steps whose sources have run run next, in the order they were written.
static status_t find_order(struct plan_spec *p) {
    bool placed[PLAN_MAX_STEPS] = {0};
    const struct plan_arg *waits = NULL;
    const struct job_plan_step *who = NULL;
    for (size_t n = 0; n < p->n_steps;) {
        size_t before = n;
        for (size_t k = 0; k < p->n_steps; k++) {
            bool ready = !placed[k];
            for (size_t i = 0; i < p->steps[k].n_args && ready; i++) {
                const struct plan_arg *a = &p->steps[k].args[i];
                ready = a->from_step < 0 || placed[a->from_step];
                if (!ready) waits = a, who = &p->steps[k];
            }
            if (!ready) continue;
            placed[k] = true;
            p->order[n++] = (int)k;
        }
        if (n == before)
            return bad(
                "steps wait for one another in a circle: step '%s', input '%s', waits for step "
                "'%s'",
                who->name, waits->name, waits->step);
    }
    return ST_OK;
}

static status_t check_use(const struct plan_spec *p, const char *const *inputs, size_t n_inputs) {
    for (size_t i = 0; i < n_inputs; i++) {
        bool used = false;
        for (size_t k = 0; k < p->n_steps && !used; k++)
            for (size_t e = 0; e < p->steps[k].n_args && !used; e++)
                used = p->steps[k].args[e].from_input == (int)i;
        if (!used) return bad("no step uses the input '%s'", inputs[i]);
    }
    for (size_t s = 0; s < p->n_steps; s++) {
        bool used = false;
        for (size_t k = 0; k < p->n_steps && !used; k++)
            for (size_t e = 0; e < p->steps[k].n_args && !used; e++)
                used = p->steps[k].args[e].from_step == (int)s;
        for (size_t r = 0; r < p->n_results && !used; r++)
            used = p->results[r].from_step == (int)s;
        if (!used) return bad("nothing uses what step '%s' computes", p->steps[s].name);
    }
    return ST_OK;
}

status_t plan_resolve(struct plan_spec *p, const char *const *inputs, size_t n_inputs) {
    RETURN_IF_ERR(check_names(p, inputs, n_inputs));
    for (size_t k = 0; k < p->n_steps; k++)
        for (size_t i = 0; i < p->steps[k].n_args; i++)
            RETURN_IF_ERR(resolve_arg(p, &p->steps[k], i, inputs, n_inputs));
    if (!p->n_results) return bad("a plan has outputs: what leaves or stays");
    for (size_t r = 0; r < p->n_results; r++) {
        p->results[r].from_step = step_index(p, p->results[r].step);
        if (p->results[r].from_step < 0)
            return bad("outputs[%zu]: there is no step '%s'", r, p->results[r].step);
    }
    RETURN_IF_ERR(find_order(p));
    return check_use(p, inputs, n_inputs);
}
