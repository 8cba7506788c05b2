// SPDX-License-Identifier: Apache-2.0
#include "compiler/codegen/opencl.h"

#include "compiler/codegen/abi.h"
#include "compiler/codegen/backend.h"
#include "compiler/codegen/ctext.h"
#include "compiler/kernel/policy.h"

_Static_assert(OPENCL_MAX_BUFFERS * 16 + OPENCL_MAX_SIZES * 8 + 32 <= OPENCL_PARAMETER_BYTES,
               "all parameters together");

// ---- targets

#define POLICY(f)                                                                                  \
    {.units = (f) & OPENCL_CPU ? 256 : 16384,                                                      \
     .elements = true,                                                                             \
     .rows = true,                                                                                 \
     .tiled = true,                                                                                \
     .tiles = (f) & OPENCL_CPU     ? TILES_OF_CPU                                                  \
              : (f) & OPENCL_TILES ? TILES_OF_GPU_ALWAYS                                           \
                                   : TILES_OF_GPU,                                                 \
     .max_buffers = OPENCL_MAX_BUFFERS,                                                            \
     .has_f64 = ((f) & OPENCL_F64) != 0,                                                           \
     .has_s64 = true,                                                                              \
     .has_fma = ((f) & OPENCL_FMA) != 0,                                                           \
     .has_scratch = true}
static const struct kernel_policy policies[OPENCL_FEATURES] = {
    POLICY(0), POLICY(1), POLICY(2), POLICY(3), POLICY(4),  POLICY(5),
    POLICY(6), POLICY(7), POLICY(8), POLICY(9), POLICY(10), POLICY(11)};
#define TARGET(f, names)                                                                           \
    {.id = "opencl:1.2:abi" HLOD_KERNEL_ABI_TEXT names,                                            \
     .kind = "opencl",                                                                             \
     .backend = "opencl",                                                                          \
     .policy = &policies[f],                                                                       \
     .llvm_triple = "",                                                                            \
     .llvm_cpu = "",                                                                               \
     .llvm_features = names,                                                                       \
     .vector_bits = 256,                                                                           \
     .threads = 1}
static const struct target targets[OPENCL_FEATURES] = {TARGET(0, ""),
                                                       TARGET(1, ":fp64"),
                                                       TARGET(2, ":fma"),
                                                       TARGET(3, ":fp64:fma"),
                                                       TARGET(4, ":cpu"),
                                                       TARGET(5, ":fp64:cpu"),
                                                       TARGET(6, ":fma:cpu"),
                                                       TARGET(7, ":fp64:fma:cpu"),
                                                       TARGET(8, ":tiles"),
                                                       TARGET(9, ":fp64:tiles"),
                                                       TARGET(10, ":fma:tiles"),
                                                       TARGET(11, ":fp64:fma:tiles")};

const struct target *opencl_target(unsigned features) {
    return &targets[features % OPENCL_FEATURES];
}
const struct target *opencl_target_named(const char *name) {
    if (strcmp(name, "opencl") == 0) return opencl_target(OPENCL_F64 | OPENCL_FMA);
    if (strcmp(name, "opencl-cpu") == 0) return opencl_target(OPENCL_F64 | OPENCL_FMA | OPENCL_CPU);
    for (int k = 0; k < OPENCL_FEATURES; k++)
        if (strcmp(targets[k].id, name) == 0) return &targets[k];
    return NULL;
}

// ---- text

// What operations need beside the language: minimum and maximum where NaN wins and -0 is below +0;
// bf16 by its bits, to nearest even, NaN stays NaN; a float rounded to a half.
static const char prologue[] =
    "#pragma OPENCL FP_CONTRACT OFF\n"
    "float hlod_min_float(float x, float y) {\n"
    "  if (x == y) return as_float(as_int(x) | as_int(y));\n"
    "  return x != x ? x : y != y ? y : x < y ? x : y;\n"
    "}\n"
    "float hlod_max_float(float x, float y) {\n"
    "  if (x == y) return as_float(as_int(x) & as_int(y));\n"
    "  return x != x ? x : y != y ? y : x > y ? x : y;\n"
    "}\n"
    "float hlod_from_bf16(ushort b) { return as_float((uint)b << 16); }\n"
    "ushort hlod_to_bf16(float x) {\n"
    "  uint u = as_uint(x);\n"
    "  return (ushort)((x != x ? u | 0x400000u : u + 0x7fffu + (u >> 16 & 1u)) >> 16);\n"
    "}\n"
    "float hlod_round_f16(float x) {\n"
    "  ushort h;\n"
    "  vstore_half_rte(x, 0, (half *)&h);\n"
    "  return vload_half(0, (const half *)&h);\n"
    "}\n",
                  prologue_f64[] = "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n"
                                   "double hlod_min_double(double x, double y) {\n"
                                   "  if (x == y) return as_double(as_long(x) | as_long(y));\n"
                                   "  return x != x ? x : y != y ? y : x < y ? x : y;\n"
                                   "}\n"
                                   "double hlod_max_double(double x, double y) {\n"
                                   "  if (x == y) return as_double(as_long(x) & as_long(y));\n"
                                   "  return x != x ? x : y != y ? y : x > y ? x : y;\n"
                                   "}\n";

static void find_scratch(void *found, struct kir_val *v) {
    if ((v->op == K_LOAD || v->op == K_STORE) && v->imm_i == KIR_SCRATCH) *(bool *)found = true;
}
static void tables(struct ctext *x, const struct kir_fn *f) {
    for (size_t k = 0; k < f->tables.n; k++) {
        const char *type = ctext_bits(x->language, dtype_size(f->tables.v[k].elem));
        strbuf_printf(x->out, "__constant %s %s_t%zu[] = {", type, x->symbol, k);
        ctext_table(x, f, (int)k);
        strbuf_puts(x->out, "};\n");
    }
}
static status_t kernel(struct strbuf *b, const struct target *t, const struct kernel_unit *u) {
    const struct kir_fn *f = u->fn;
    bool scratch = false;
    kir_each((struct kir_block *)(uintptr_t)&f->top, find_scratch, &scratch);
    struct ctext x = {.out = b,
                      .language = CTEXT_OPENCL,
                      .symbol = u->symbol,
                      .n_sizes = u->n_sizes,
                      .contracts = policy_of(t)->has_fma,
                      .one_unit = !scratch};

    tables(&x, f);
    strbuf_printf(b, "__kernel void %s(", u->symbol);
    for (int k = 0; k < f->n_bufs; k++)
        strbuf_printf(b, "__global %suchar *b%d, ulong o%d, ", k < f->n_in ? "const " : "", k, k);
    for (int k = 1; k <= u->n_sizes; k++)
        strbuf_printf(b, "long s%d, ", k);
    strbuf_puts(b, "ulong extent");
    strbuf_puts(b, scratch ? ", ulong per, __global uchar *scratch, ulong scratch_bytes) {\n"
                           : ") {\n");
    strbuf_puts(b, scratch ? "  const long begin = get_global_id(0) * per;\n"
                           : "  const long begin = get_global_id(0);\n");
    strbuf_puts(b, "  if (begin >= (long)extent) return;\n");
    if (scratch)
        strbuf_puts(b, "  const long end = min(begin + (long)per, (long)extent);\n"
                       "  scratch += get_global_id(0) * scratch_bytes;\n");
    for (int k = 0; k < f->n_bufs; k++)
        strbuf_printf(b, "  b%d += o%d;\n", k, k);

    status_t st = ctext_body(&x, f);
    strbuf_puts(b, "}\n");
    return st;
}
static status_t make_module(struct backend_work *w, struct span *out) {
    struct strbuf b = {0};
    status_t st = ST_OK;
    *out = (struct span){0};
    if (w->n == 0) return ST_OK;
    strbuf_puts(&b, prologue);
    if (policy_of(w->t)->has_f64) strbuf_puts(&b, prologue_f64);
    for (int k = 0; k < w->n && !st; k++)
        st = kernel(&b, w->t, &w->units[k]);
    if (!st && w->text) strbuf_add(w->text, b.p, b.n);
    if (!st) *out = (struct span){arena_dup(w->a, b.p, b.n), b.n};
    strbuf_done(&b);
    return st;
}
const struct backend backend_opencl = {"opencl", OPENCL_MAX_SIZES, false, NULL, NULL, make_module};
