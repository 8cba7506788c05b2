// SPDX-License-Identifier: Apache-2.0
// What implementations and the device ask of a step and its frame: where a value lies, whether an
// operand is a bound weight, memory, what is to be done with a weight that was read, the status of
// a run that was stopped; and whether one implementation is asked for by name.
#include <stdlib.h>
#include <sys/mman.h>

#include "base/store/file.h"
#include "devices/cpu/cpu_bind.h"

enum { HUGE_PAGE = 2 << 20 };
void *cpu_address(const struct cpu_plan *p, const struct cpu_frame *f, const struct slice *s) {
    switch (s->where) {
    case SLICE_PARAM:
        return (void *)(uintptr_t)f->params[s->index];
    case SLICE_CONST:
        return p->plan->consts[s->index]->data;
    case SLICE_ARENA:
        if (s->result && f->results && f->results[s->result - 1]) return f->results[s->result - 1];
        return f->memory + s->offset;
    default:
        return NULL;
    }
}

status_t cpu_cancelled(void) {
    return st_new(ST_CANCELLED, "the call was cancelled");
}

bool cpu_is_bound(const struct cpu_exe *x, const struct cpu_step *s, int leaf) {
    const struct slice *in = &s->plan->in[leaf];
    return in->where == SLICE_PARAM && x->bound[in->index] >= 0;
}

void *cpu_memory(int64_t n) {
    void *p = NULL;
    size_t bytes = (size_t)n + 64;
    bool huge = bytes >= 2 * HUGE_PAGE;
    if (posix_memalign(&p, huge ? HUGE_PAGE : 64, bytes)) return NULL;
    if (huge) madvise(p, bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE); // or small ones
    return p;
}

// ---- asked for by name

static _Thread_local struct cpu_candidate asked;

void cpu_ask(struct cpu_candidate c) {
    asked = c;
}
const struct cpu_candidate *cpu_asked(void) {
    return &asked;
}
const char *cpu_only_impl(void) {
    const char *f = getenv("HLOD_CPU_IMPL");
    return f && *f ? f : NULL;
}
const char *cpu_forced_impl(void) {
    return asked.impl ? asked.impl->name : cpu_only_impl();
}

void cpu_has_read(const struct cpu_exe *x, const void *p, int64_t n) {
    uintptr_t at = (uintptr_t)p, file = (uintptr_t)x->base.mapped.p;
    if (at >= file && at - file < x->base.mapped.n) file_forget((struct span){p, (size_t)n});
}
