// SPDX-License-Identifier: Apache-2.0
#include "compiler/kernel/policy.h"

const struct kernel_policy policy_cpu = {.units = 64,
                                         .has_f64 = true,
                                         .has_s64 = true,
                                         .has_fma = true,
                                         .has_libm = true,
                                         .has_scratch = true};

const struct kernel_policy *policy_of(const struct target *t) {
    return t && t->policy ? t->policy : &policy_cpu;
}

bool policy_elements(const struct kernel_policy *p, const struct hlo_instr *i) {
    bool row = i->op == HLO_FUSION && HLO_ATTR(i, fusion)->kind == FUSION_CUSTOM;
    return p->elements && !(row && p->rows);
}

static const char *const calls[] = {
#define LIBM(e, name, n) "a call of the library's " #name,
#include "compiler/kernel/libm.def"
#undef LIBM
};
struct look {
    const struct kernel_policy *p;
    const char *lacks;
};
static bool is_wide(enum dtype t) {
    return t == DT_S64 || t == DT_U64;
}
static void look_at(void *ctx, struct kir_val *v) {
    struct look *l = ctx;
    const struct kernel_policy *p = l->p;
    if (l->lacks) return;
    if (!p->has_f64 && (v->type == DT_F64 || v->elem == DT_F64)) l->lacks = "a value of f64";
    if (!p->has_s64 && (is_wide(v->elem) || (is_wide(v->type) && !kir_fits_32(v))))
        l->lacks = "a value of 64 bits";
    if (!p->has_fma && v->op == K_FMA) l->lacks = "a product and a sum in one rounding";
    if (!p->has_libm && v->op == K_CALL) l->lacks = calls[v->imm_i];
    if (!p->has_scratch && !p->tiled && v->lanes) l->lacks = "vectors in scratch";
}
const char *policy_lacks(const struct kernel_policy *p, const struct kir_fn *f) {
    struct look l = {.p = p};
    if (p->max_buffers && f->n_bufs > p->max_buffers) return "more buffers than the target has";
    if (p->max_results && f->n_bufs - f->n_in > p->max_results)
        return "more results than a kernel of the target may have";
    if (!p->has_scratch && f->scratch_bytes) return "scratch memory";
    kir_each((struct kir_block *)(uintptr_t)&f->top, look_at, &l);
    if (f->sums) kir_each(&f->sums->top, look_at, &l);
    return l.lacks;
}
