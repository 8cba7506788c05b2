// SPDX-License-Identifier: Apache-2.0
// Runs of one executable at the same time (docs/decisions/0027): the device's options, and whether
// an executable that was opened for one thread can run another's weight sets.
#include "devices/cpu/cpu.h"
#include "devices/cpu/cpu_pool.h"

status_t cpu_options_read(const char *text, struct cpu_options *out) {
    struct str rest = str_of(text), item, key;
    *out = (struct cpu_options){0};
    while (str_cut(&rest, ':', &item)) {
        str_cut(&item, '=', &key);
        int64_t n;
        int *at = str_is(key, "threads")   ? &out->threads
                  : str_is(key, "streams") ? &out->streams
                                           : NULL;
        if (!at)
            return st_invalid("no option " STR_FMT "=" STR_FMT "; there are threads, streams",
                              STR_ARG(key), STR_ARG(item));
        if (!str_to_i64(item, &n) || n < 1 || n > POOL_THREADS)
            return st_invalid("option " STR_FMT " cannot be '" STR_FMT "': 1 to %d", STR_ARG(key),
                              STR_ARG(item), POOL_THREADS);
        *at = (int)n;
    }
    return ST_OK;
}

// A step's weights lie where x->of left them, in the form that its step asked for.
static status_t step_fits(const struct cpu_step *s, const struct cpu_step *of) {
    const struct cpu_impl *i = s->impl;
    const char *name = s->plan->instr->name;
    if (i == &cpu_impl_random) return st_unimplemented("'%s' goes on from the run before", name);
    if (s->packed_in != of->packed_in || (s->packed_in >= 0 && s->pack_slot != of->pack_slot))
        return st_unimplemented("'%s' reads its weights differently on one thread", name);
    if (s->packed_in >= 0 && (i != of->impl || !i->same_pack || !i->same_pack(s, of)))
        return st_unimplemented("'%s' packs its weights differently on one thread", name);
    return ST_OK;
}
static status_t plan_fits(const struct cpu_plan *p, const struct cpu_plan *of) {
    for (int k = 0; k < p->plan->n_steps; k++) {
        const struct cpu_step *s = &p->steps[k], *other = &of->steps[k];
        RETURN_IF_ERR(step_fits(s, other));
        for (int c = 0; c < s->plan->instr->n_called && s->called && other->called; c++)
            RETURN_IF_ERR(plan_fits(s->called[c], other->called[c]));
        if (!s->called != !other->called)
            return st_unimplemented("'%s' runs differently on one thread", s->plan->instr->name);
    }
    return ST_OK;
}
status_t cpu_stream_fits(const struct cpu_exe *x) {
    return plan_fits(x->main, x->of->main);
}
