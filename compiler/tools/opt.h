// SPDX-License-Identifier: Apache-2.0
// opt: what hlo-opt does with a module. The command line is in main_opt.c; passes and what they say
// of themselves in opt_passes.c; the stages behind HLO in opt_stage.c.
#pragma once
#include "compiler/ir/text/text.h"
#include "compiler/target.h"
#include "compiler/train/model.h"

struct opt_options {
    const char *path;
    bool weights; // of a model: as constants
    bool print, canonical, hash, counts, eval, check_passes, gradient, jvp, check_gradient;
    bool list_passes, list_rules, strict, fast, explain_fusion, explain_rules;
    const char *passes, *target;                // comma separated; "cpu-avx512", "cpu-avx2" or NULL
    const char *disable_passes, *disable_rules; // comma separated or NULL
    const char *dump_passes;  // extended regular expression over pass names, or NULL
    const char *dump_to;      // folder, or NULL: on stdout
    const char *stage;        // "tree", "hlo", "kir", "llvm", "plan" or NULL
    const char *to;           // "text", "proto" (HloModuleProto) or NULL
    const char *bind;         // ONNX: "N=1,S=128", or NULL
    const char *train;        // a spec of compiler/train, or NULL
    const char *train_rows;   // shapes of all rows: "x:1000x3x32x32;label:1000", or NULL
    const char *train_to;     // file for what --train tells of the program, or NULL
    const char *train_state;  // file for what its state begins with (safetensors), or NULL
    const char *web;          // folder for the model's package for browsers, or NULL
    const char *web_backend;  // auto, webgpu, webgl, wasm, or NULL
    const char *web_image;    // how a picture becomes an input (opt_web.c), or NULL
    const char *web_labels;   // file of the classes' names, or NULL
    const char *web_name;     // of the package, or NULL
    bool web_single, web_f16; // as one page; weights as f16
    const char *with_weights; // safetensors: print the model with these instead, or NULL
};
// *out_rc: exit code when the status is OK. Prints on stdout.
status_t opt_run(const struct opt_options *o, struct str text, int *out_rc) MUST_CHECK;

// opt_passes.c
status_t opt_run_passes(struct hlo_module *m, const struct opt_options *o) MUST_CHECK;
void opt_list_passes(void); // on stdout
void opt_list_rules(void);
// The target that --target names, the same on every machine; its library takes every f32 call.
// INVALID_ARGUMENT for other names; NULL name = no target (*out->id NULL).
status_t opt_target(const char *name, struct target *out) MUST_CHECK;

// opt_check.c: values of every module of the text before and after each pass; *out_rc 1 when some
// differ. Prints on stdout.
status_t opt_check_passes(struct str text, int *out_rc) MUST_CHECK;

// opt_gradient.c: derivatives of every module of the text against differences; *out_rc 1 when some
// differ. Prints on stdout.
status_t opt_check_gradient(struct str text, int *out_rc) MUST_CHECK;

// opt_train.c: "x:1000x3;label:1000" as shapes, in a; NULL: none. INVALID_ARGUMENT.
status_t opt_train_rows(struct arena *a, const char *text, struct train_rows **out,
                        size_t *n) MUST_CHECK;
// m becomes the program that trains it; what its parameters are, and what they begin
// with, is written where o says. r NULL: m is no model's; else that of `source`.
status_t opt_train(struct hlo_module *m, const struct opt_options *o, const struct ingest_result *r,
                   struct span source, const struct train_spec *spec) MUST_CHECK;
// The model of `source` with the weights of o->with_weights, on stdout.
status_t opt_with_weights(const struct opt_options *o, struct span source) MUST_CHECK;

// opt_stage.c: prints StableHLO as it was read, in the normal form, without the module's name.
status_t opt_print_tree(struct str text) MUST_CHECK;
// Prints kir, LLVM IR or the plan of the module as it is now.
status_t opt_print_stage(const struct hlo_module *m, const struct opt_options *o) MUST_CHECK;

// A module that stands for a model alone has sizes: those that are not given are the usual ones, or
// 1. Says on stderr what is behind the `given` ones, but for the batch (0: it too).
void opt_tell_assumed(const struct lower_request *req, int32_t given, int64_t batch);
// opt_web.c: the model of `source` as a package in the folder o->web. Prints sizes on stdout.
status_t opt_web(const struct opt_options *o, struct span source) MUST_CHECK;
