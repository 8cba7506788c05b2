// SPDX-License-Identifier: Apache-2.0
// What a compile worker does before its first call: one small program is compiled, so that the code
// generator's pages, tables and symbols are there when a user waits.
#include "compiler/compile.h"
#include "compiler/ir/text.h"
#include "devices/worker_calls.h"

// A softmax, a layout change and a lookup, at sizes of each effort (codegen/llvm_emit.h).
static const char program[] =
    "HloModule warm\n"
    "sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }\n"
    "ENTRY e {\n"
    "  x = f32[8,96] parameter(0)\n"
    "  i = s64[7] parameter(1)\n"
    "  y = f32[512,512] parameter(2)\n"
    "  z = f32[64,64] parameter(3)\n"
    "  zero = f32[] constant(0)\n"
    "  ex = f32[8,96] exponential(x)\n"
    "  s = f32[8] reduce(ex, zero), dimensions={1}, to_apply=sum\n"
    "  sb = f32[8,96] broadcast(s), dimensions={0}\n"
    "  q = f32[8,96] divide(ex, sb)\n"
    "  g = f32[7,96] gather(x, i), offset_dims={1}, collapsed_slice_dims={0}, "
    "start_index_map={0}, index_vector_dim=1, slice_sizes={1,96}\n"
    "  t = f32[512,512] transpose(y), dimensions={1,0}\n"
    "  u = f32[64,64] tanh(z)\n"
    "  ROOT r = (f32[8,96], f32[7,96], f32[512,512], f32[64,64]) tuple(q, g, t, u)\n"
    "}\n";

void worker_compile_warm(const struct target *t) {
    struct compile_options opt = {.disable_passes = "", .disable_rules = ""};
    struct hlo_module *m;
    struct executable *e = NULL;
    if (!t || t->emit || t->min_kernel_elements == INT64_MAX) return; // makes no kernels
    status_t st = hlo_parse(str_of(program), NULL, &m);
    if (!st) st = hlo_compile_module(m, &opt, t, NULL, &e);
    if (!st) executable_free(e);
    st_drop(st); // a user's compile will say what is wrong
}
