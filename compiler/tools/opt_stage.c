// SPDX-License-Identifier: Apache-2.0
// hlo-opt's stages behind HLO: kernels as kir or LLVM IR, and the plan, of the module as it is when
// the passes have run. The code is for the named target, so the text is the same on every machine.
#include <stdio.h>

#include "compiler/codegen/codegen.h"
#include "compiler/frontend/frontend.h"
#include "compiler/frontend/hlo/hlo_proto.h"
#include "compiler/frontend/mlir/mlir_bytecode.h"
#include "compiler/frontend/mlir/mlir_text.h"
#include "compiler/frontend/stablehlo/stablehlo_out.h"
#include "compiler/plan/plan.h"
#include "compiler/tools/opt.h"

static status_t print_code(struct arena *a, const struct hlo_module *m, const struct opt_options *o,
                           bool llvm, struct strbuf *out) {
    struct target t;
    struct kernel_set set;
    RETURN_IF_ERR(opt_target(o->target ? o->target : "cpu-avx512", &t));
    return codegen_module(a, m, &t, o->strict ? PRECISION_STRICT : PRECISION_DEFAULT,
                          llvm ? NULL : out, llvm ? out : NULL, &set);
}

status_t opt_print_tree(struct str text) {
    struct span bytes = {(const uint8_t *)text.p, text.n};
    const char *format = frontend_sniff(bytes);
    struct arena a = {0};
    struct strbuf out = {0};
    struct mlir_module m;
    status_t st;
    if (format && strcmp(format, "stablehlo") == 0)
        st = mlir_read_text(&a, bytes, &mlir_default_limits, &m);
    else if (format && strcmp(format, "stablehlo-bytecode") == 0)
        st = mlir_read_bytecode(&a, bytes, &mlir_default_limits, &m);
    else
        st = st_invalid("neither StableHLO text nor its bytecode");
    if (!st) st = mlir_normal(&m);
    if (!st) m.name.n = 0;
    if (!st) mlir_print(&out, &m);
    if (!st) fwrite(out.p, 1, out.n, stdout);
    strbuf_done(&out);
    arena_done(&a);
    return st;
}

status_t opt_print_stage(const struct hlo_module *m, const struct opt_options *o) {
    struct arena a = {0};
    struct strbuf text = {0};
    struct plan *plan;
    status_t st = ST_OK;
    if (strcmp(o->stage, "hlo") == 0 && o->to && strcmp(o->to, "proto") == 0) {
        st = hlo_proto_write(m, &text);
    } else if (strcmp(o->stage, "hlo") == 0 && o->to && strcmp(o->to, "stablehlo") == 0) {
        st = stablehlo_print(&text, m);
    } else if (strcmp(o->stage, "hlo") == 0) {
        hlo_print_module(&text, m, HLO_PRINT_DEFAULT | (o->canonical ? HLO_PRINT_CANONICAL : 0));
    } else if (strcmp(o->stage, "kir") == 0 || strcmp(o->stage, "llvm") == 0) {
        st = print_code(&a, m, o, o->stage[0] == 'l', &text);
    } else if (strcmp(o->stage, "plan") == 0) {
        st = plan_make(&a, m->entry, &plan);
        if (!st) plan_print(&text, plan);
    } else {
        st = st_invalid("no stage is called '%s': tree, hlo, kir, llvm or plan", o->stage);
    }
    if (!st && text.n) fwrite(text.p, 1, text.n, stdout);
    strbuf_done(&text);
    arena_done(&a);
    return st;
}
