// SPDX-License-Identifier: Apache-2.0
// Simplify to a fixed point, fold scales into weights, split, then fuse what is left of main.
// Repeats are bounded: rules are monotone, so few rounds suffice. int8 comes twice: first as models
// are written, before movements and loops pull dequantised weights apart, then for what is left.
#include "compiler/pipeline.h"

// clang-format off
static const char *const open_up[] = {
    "control-order", "inline", "lapack", "sparse", "rng-expander", "dynamic-padder",
    "float-normalization", "conv-canon", "conv-phases", "dot-canon", "int8", "conv-dims", NULL};
static const char *const simplify[] = {
    "dce", "cse", "algsimp", "control-flow", "few-bits-loops", "while-motion",
    "conditional-motion", "reshape-mover", "unstack", "constfold", "dce", NULL};
static const char *const fold_weights[] = {
    "int8", "few-bits", "dce", "narrow", "bn-fold", "algsimp", "constfold", "cse", "dce",
    "change-op-data-type", "dce", NULL};
static const char *const fuse_main[] = {
    "calls", "cse", "dce", "fuse-while", "dce", "tables", "dce", "fuse-epilogue",
    "dce", "channels", "dim-maps", "fuse-row", "fuse-loop", "dce", "fuse-chain", "fuse-sibling",
    "dce", "layout", "dce", "attention", "dce", "fuse-update", NULL};
static const char *const clean[] = {"cse", "dce", "fuse-loop", "dce", NULL};
static const char *const portable[] = {"cse", "portable", "dce", NULL};
// clang-format on

status_t pipeline_whole(struct hlo_module *m, struct pass_ctx *p) {
    RETURN_IF_ERR(pass_run_list(m, open_up, 1, p));
    RETURN_IF_ERR(pass_run_list(m, simplify, 4, p));
    return pass_run_list(m, fold_weights, 1, p);
}
status_t pipeline_prepare(struct hlo_module *m, struct pass_ctx *p) {
    return pass_run_list(m, clean, 1, p);
}
status_t pipeline_main(struct hlo_module *m, struct pass_ctx *p) {
    return pass_run_list(m, fuse_main, 1, p);
}
status_t pipeline_portable(struct hlo_module *m, struct pass_ctx *p) {
    return pass_run_list(m, portable, 1, p);
}

status_t pipeline_evaluable(struct hlo_module *m) {
    struct arena keep = {0};
    struct compile_options opt = {.verify_each = true, .disable_passes = "", .disable_rules = ""};
    struct pass_ctx p = {.opt = &opt, .keep = &keep};
    status_t st = pass_run(m, "dynamic-padder", &p);
    arena_done(&p.scratch);
    arena_done(&keep);
    return st;
}

status_t pipeline_run(const char *name, struct hlo_module *m, struct pass_ctx *p) {
    static const struct {
        const char *name;
        status_t (*run)(struct hlo_module *m, struct pass_ctx *p);
    } lists[] = {{"whole", pipeline_whole},
                 {"prepare", pipeline_prepare},
                 {"main", pipeline_main},
                 {"portable", pipeline_portable}};
    for (size_t k = 0; k < sizeof lists / sizeof lists[0]; k++)
        if (strcmp(name, lists[k].name) == 0) return lists[k].run(m, p);
    return st_invalid("no list of passes is called '@%s'", name);
}
