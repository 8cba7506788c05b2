// SPDX-License-Identifier: Apache-2.0
// hlo-opt's stages behind HLO: kernels as kir or LLVM IR, and the plan, of the module as it is when
// the passes have run. The code is for the named target, so the text is the same on every machine.
#include <stdio.h>

#include "compiler/codegen/backend.h"
#include "compiler/codegen/codegen.h"
#include "compiler/frontend/frontend.h"
#include "compiler/frontend/hlo/hlo_proto.h"
#include "compiler/frontend/mlir/mlir_bytecode.h"
#include "compiler/frontend/mlir/mlir_text.h"
#include "compiler/frontend/stablehlo/stablehlo_out.h"
#include "compiler/plan/plan.h"
#include "compiler/tools/opt.h"

// Kernels as kir, or as the text of a back end, which the target must be of; none named: one that
// is.
static status_t print_code(struct arena *a, const struct hlo_module *m, const struct opt_options *o,
                           const struct backend *back, struct strbuf *out) {
    struct target t;
    struct kernel_set set;
    const char *usual = !back || strcmp(back->name, "llvm") == 0 ? "cpu-avx512"
                        : strcmp(back->name, "wasm") == 0        ? "web"
                                                                 : back->name;
    RETURN_IF_ERR(opt_target(o->target ? o->target : usual, &t));
    if (back && back != backend_of(&t))
        return st_invalid("kernels of target '%s' are made by back end '%s', not '%s'", t.id,
                          backend_of(&t)->name, back->name);
    return codegen_module(a, m, &t, o->strict ? PRECISION_STRICT : PRECISION_DEFAULT,
                          back ? NULL : out, back ? out : NULL, &set);
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
    const struct backend *back = backend_find(o->stage);
    if (strcmp(o->stage, "hlo") == 0 && o->to && strcmp(o->to, "proto") == 0) {
        st = hlo_proto_write(m, &text);
    } else if (strcmp(o->stage, "hlo") == 0 && o->to && strcmp(o->to, "stablehlo") == 0) {
        st = stablehlo_print(&text, m);
    } else if (strcmp(o->stage, "hlo") == 0) {
        hlo_print_module(&text, m, HLO_PRINT_DEFAULT | (o->canonical ? HLO_PRINT_CANONICAL : 0));
    } else if (back || strcmp(o->stage, "kir") == 0) {
        st = print_code(&a, m, o, back, &text);
    } else if (strcmp(o->stage, "plan") == 0) {
        st = plan_make(&a, m->entry, &plan);
        if (!st) plan_print(&text, plan);
    } else {
        st = st_invalid("no stage is called '%s': tree, hlo, kir, plan or a back end's: %s",
                        o->stage, backend_names());
    }
    if (!st && text.n) fwrite(text.p, 1, text.n, stdout);
    strbuf_done(&text);
    arena_done(&a);
    return st;
}
