// SPDX-License-Identifier: Apache-2.0
// Who runs a step: what a tuning chose for it, or the first of the ordered list that takes it. And
// what else could: an implementation asked for by name is asked past the cost models
// (cpu_choice.c), by which it would leave the step to another; what it cannot do it still refuses.
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "devices/cpu/cpu_bind.h"
#include "devices/cpu/panels/cpu_matmul.h"

// ---- candidates

enum { MOST = 64 };
// Names of an implementation's schedules, NULL at the end; NULL: it has one.
static const char *const *variants_of(const struct cpu_impl *i) {
    static const char *const winograd[] = {
        [WINOGRAD_2X2 - 1] = "2x2", [WINOGRAD_4X4 - 1] = "4x4", NULL};
    return i == &cpu_impl_winograd ? winograd : i == &cpu_impl_matmul ? matmul_schedules : NULL;
}
const struct cpu_candidate *cpu_candidates(void) {
    static _Thread_local struct cpu_candidate all[MOST + 1];
    int n, used = 0;
    const struct cpu_impl *const *impls = cpu_impls(&n);
    for (int k = 0; k < n; k++) {
        if (impls[k] == &cpu_impl_control || impls[k] == &cpu_impl_reference) continue;
        const char *const *v = variants_of(impls[k]);
        for (int e = 0; used < MOST && (!e || (v && v[e])); e++)
            all[used++] = (struct cpu_candidate){impls[k], v ? e + 1 : 0};
    }
    all[used] = (struct cpu_candidate){0};
    return all;
}
const char *cpu_candidate_name(struct cpu_candidate c, char to[CPU_CANDIDATE]) {
    const char *variant = c.variant ? variants_of(c.impl)[c.variant - 1] : "";
    snprintf(to, CPU_CANDIDATE, "%s%s%s", c.impl->name, *variant ? ":" : "", variant);
    return to;
}
const char *cpu_candidates_id(void) {
    static _Thread_local struct hex_digest id;
    struct sha256 h;
    char name[CPU_CANDIDATE];
    sha256_init(&h);
    for (const struct cpu_candidate *c = cpu_candidates(); c->impl; c++)
        sha256_str(&h, str_of(cpu_candidate_name(*c, name)));
    id = digest_to_hex(sha256_end(&h));
    return id.z;
}

// ---- opening

// Do steps of it take long to open, and need neither kernels nor prepare?
static bool opens_early(const struct cpu_impl *i) {
    return i == &cpu_impl_onednn || i == &cpu_impl_int8;
}

status_t cpu_open_as(struct cpu_exe *x, struct cpu_step *s, struct cpu_candidate c) {
    const struct cpu_step before = *s;
    const char *why = "";
    status_t st = ST_OK;
    cpu_ask(c);
    s->declined = !c.impl->accepts(x, s->plan->instr, &why);
    if (!s->declined) {
        s->impl = c.impl;
        st = c.impl->open(x, s);
    }
    cpu_ask((struct cpu_candidate){0});
    if (st || !s->declined) return st;
    *s = before;
    s->declined = true;
    return ST_OK;
}

// *bound: nothing else is to be asked, now at least. Some implementations of several types have one
// name, and each takes its own.
static status_t open_chosen(struct cpu_exe *x, struct cpu_step *s, bool *bound) {
    const struct exe_choice *chosen = executable_choice(x->exe, s->plan->instr->name);
    if (!chosen || x->kernels == &x->exe->prepare_kernels || !x->choices_hold) return ST_OK;
    char name[CPU_CANDIDATE];
    for (const struct cpu_candidate *c = cpu_candidates(); c->impl && !*bound; c++) {
        if (strcmp(cpu_candidate_name(*c, name), chosen->impl) != 0) continue;
        *bound = x->early && !opens_early(c->impl);
        if (*bound) return ST_OK;
        RETURN_IF_ERR(cpu_open_as(x, s, *c));
        *bound = !s->declined;
        s->declined = false;
    }
    if (*bound) s->choice = chosen;
    x->stats.choices += *bound;
    return ST_OK;
}
status_t cpu_open_step(struct cpu_exe *x, struct cpu_step *s) {
    int n;
    const struct cpu_impl *const *impls = cpu_impls(&n);
    const char *why = "";
    bool bound = false;
    RETURN_IF_ERR(open_chosen(x, s, &bound));
    if (bound) return ST_OK;

    for (int k = s->asked; k < n; k++) {
        if (!impls[k]->accepts(x, s->plan->instr, &why)) continue;
        if (x->early && !opens_early(impls[k])) return ST_OK;
        const struct cpu_step before = *s;
        s->impl = impls[k];
        status_t st = s->impl->open(x, s);
        if (st || !s->declined) return st;
        *s = before;
        if (x->early) s->asked = k + 1;
    }
    return st_internal("no implementation accepts '%s'", s->plan->instr->name);
}
