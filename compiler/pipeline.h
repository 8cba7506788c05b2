// SPDX-License-Identifier: Apache-2.0
// pipeline: the order of passes, as lists that can be read.
#pragma once
#include "compiler/passes/pass.h"
status_t pipeline_whole(struct hlo_module *m,
                        struct pass_ctx *p) MUST_CHECK; // on the unsplit module
status_t pipeline_prepare(struct hlo_module *m, struct pass_ctx *p) MUST_CHECK; // on NAME.prepare
status_t pipeline_main(struct hlo_module *m, struct pass_ctx *p) MUST_CHECK;    // on NAME.main
// On either part when the target compiles on its own (target.emit).
status_t pipeline_portable(struct hlo_module *m, struct pass_ctx *p) MUST_CHECK;
// What the evaluator needs of a module that was only lowered: no dynamic dimensions.
status_t pipeline_evaluable(struct hlo_module *m) MUST_CHECK;
// The list called "whole", "prepare" or "main" (hlo-opt --passes=@main). INVALID_ARGUMENT
// otherwise.
status_t pipeline_run(const char *name, struct hlo_module *m, struct pass_ctx *p) MUST_CHECK;
