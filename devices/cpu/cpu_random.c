// SPDX-License-Identifier: Apache-2.0
// random: the state of a run's random numbers is taken and moved on. What is made of it are
// elementwise operations (the pass rng-expander).
#include "compiler/eval.h"
#include "devices/cpu/cpu.h"

static bool random_accepts(UNUSED const struct cpu_exe *x, const struct hlo_instr *i,
                           const char **why) {
    *why = "not the state of random numbers";
    return i->op == HLO_RNG_GET_AND_UPDATE_STATE && i->shape->dtype == DT_U64 &&
           shape_elements(i->shape) > 0;
}
static status_t random_open(UNUSED struct cpu_exe *x, struct cpu_step *s) {
    s->detail = "random";
    s->alone = true;
    return ST_OK;
}
static status_t random_run(struct cpu_exe *x, struct cpu_step *s, void **bufs) {
    uint64_t *out = bufs[s->plan->n_in];
    memset(out, 0, (size_t)s->plan->out[0].size_bytes);
    out[0] = HLO_EVAL_FIRST_STATE + x->rng_state;
    x->rng_state += (uint64_t)HLO_ATTR(s->plan->instr, rngstate)->delta;
    return ST_OK;
}
const struct cpu_impl cpu_impl_random = {"random",   random_accepts, random_open, NULL,
                                         random_run, NULL,           NULL,        NULL};
