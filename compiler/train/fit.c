// SPDX-License-Identifier: Apache-2.0
// A lowered model as the program that trains it; with remat=BYTES by as little computed again as
// the plan of the optimised program allows: by halves, each try derived, optimised and planned.
#include "compiler/pipeline.h"
#include "compiler/plan/plan.h"
#include "compiler/train/model.h"

// Runs f with passes' context for target t.
static status_t with_passes(struct hlo_module *m, const struct target *t,
                            status_t (*f)(struct hlo_module *m, struct pass_ctx *p)) {
    struct arena keep = {0};
    struct compile_options opt = {
        .precision = PRECISION_DEFAULT, .disable_passes = "", .disable_rules = ""};
    struct compile_observer obs = {0};
    struct pass_ctx ctx = {.opt = &opt, .target = t, .obs = &obs, .keep = &keep};
    status_t st = f(m, &ctx);
    arena_done(&ctx.scratch);
    arena_done(&keep);
    return st;
}
static status_t lapack(struct hlo_module *m, struct pass_ctx *p) {
    return pass_run(m, "lapack", p);
}
static status_t optimise(struct hlo_module *m, struct pass_ctx *p) {
    RETURN_IF_ERR(pipeline_whole(m, p));
    return pipeline_main(m, p);
}

struct trial {
    struct hlo_module *m; // lowered, stays as it is
    const struct ingest_result *r;
    struct train_spec spec;
    const struct target *t;
    struct train_program p;
    int64_t bytes; // of the arena of the last try
};
static status_t try_with(struct trial *y, enum train_remat remat, int32_t first) {
    struct hlo_module *m = hlo_module_clone(y->m);
    struct arena a = {0};
    struct plan *plan;
    y->spec.remat = remat, y->spec.remat_first = first;
    status_t st = train_module(m, y->r, &y->spec, &y->p);
    if (!st) st = with_passes(m, y->t, optimise);
    if (!st) st = plan_make(&a, m->entry, &plan);
    if (!st) y->bytes = plan->arena_bytes;
    arena_done(&a);
    hlo_module_free(m);
    return st;
}
static double mib(int64_t bytes) {
    return (double)bytes / (1 << 20);
}
static status_t fit(struct trial *y, struct train_spec *out) {
    const int64_t most = out->remat_bytes;
    out->remat = TRAIN_REMAT_NONE;
    RETURN_IF_ERR(try_with(y, TRAIN_REMAT_NONE, 0));
    if (y->bytes <= most) return ST_OK;
    const int64_t whole = y->bytes;
    out->remat = TRAIN_REMAT_SEGMENTS;
    RETURN_IF_ERR(try_with(y, TRAIN_REMAT_SEGMENTS, 0));
    int32_t low = 0, high = y->p.segments;
    if (y->bytes > most)
        return st_exhausted("training: remat=%lld (%.3g MiB): %.3g MiB are planned with all of %d "
                            "segments computed again, %.3g without",
                            (long long)most, mib(most), mib(y->bytes), high, mib(whole));
    while (high - low > 1) { // high fits, low does not
        int32_t middle = low + (high - low) / 2;
        RETURN_IF_ERR(try_with(y, TRAIN_REMAT_SEGMENTS, middle));
        *(y->bytes <= most ? &high : &low) = middle;
    }
    out->remat_first = high;
    return ST_OK;
}

status_t train_derive(struct hlo_module *m, const struct ingest_result *r,
                      const struct train_spec *spec, const struct target *t,
                      struct train_program *p) {
    struct trial y = {.m = m, .r = r, .spec = *spec, .t = t && t->emit ? NULL : t};
    RETURN_IF_ERR(with_passes(m, NULL, lapack));
    if (spec->remat == TRAIN_REMAT_BYTES && !spec->evaluate) {
        struct train_spec found = *spec;
        RETURN_IF_ERR(fit(&y, &found));
        return train_module(m, r, &found, p);
    }
    return train_module(m, r, spec, p);
}
