// SPDX-License-Identifier: Apache-2.0
#include "compiler/codegen/ctext.h"
#include "compiler/codegen/shader/shader.h"

#define POLICY(schedule) SHADER_POLICY(schedule, .rows = true, .has_scratch = true)
static const struct kernel_policy policy = POLICY(TILES_OF_GPU),
                                  always = POLICY(TILES_OF_GPU_ALWAYS);
static const struct target *wgsl_target(bool tiles) {
    static const struct target t = SHADER_TARGET("webgpu:wgsl", "web", "wgsl", &policy, true),
                               in_tiles =
                                   SHADER_TARGET("webgpu:wgsl:tiles", "web", "wgsl", &always, true);
    return tiles ? &in_tiles : &t;
}

// What operations need beside the language. p[0].z is 0: what is joined with it is no constant, so
// that no compiler refuses an infinity, a NaN or an overflow, or sees what a sum is made of. NaN is
// seen by its bits, since WGSL may take it for absent; minimum and maximum: NaN wins, -0 is below
// +0. Floats become integers by truncation, out of range the nearest, NaN 0. Halves and bf16 by
// their bits, to nearest even.
static const char prologue[] =
    "@group(0) @binding(0) var<storage, read_write> m: array<u32>;\n"
    "@group(0) @binding(1) var<storage, read_write> s: array<u32>;\n"
    "@group(0) @binding(2) var<uniform> p: array<vec4<u32>, 16>;\n"
    "fn hlod_f(b: u32) -> f32 { return bitcast<f32>(b | p[0].z); }\n"
    "fn hlod_i(b: u32) -> i32 { return i32(b | p[0].z); }\n"
    "fn hlod_u(b: u32) -> u32 { return b | p[0].z; }\n"
    "fn hlod_rounded(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) + p[0].z); }\n"
    "fn hlod_nan(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }\n"
    "fn hlod_min(x: f32, y: f32) -> f32 {\n"
    "  if (hlod_nan(x)) { return x; }\n"
    "  if (hlod_nan(y)) { return y; }\n"
    "  if (x == y) { return bitcast<f32>(bitcast<u32>(x) | bitcast<u32>(y)); }\n"
    "  return select(y, x, x < y);\n"
    "}\n"
    "fn hlod_max(x: f32, y: f32) -> f32 {\n"
    "  if (hlod_nan(x)) { return x; }\n"
    "  if (hlod_nan(y)) { return y; }\n"
    "  if (x == y) { return bitcast<f32>(bitcast<u32>(x) & bitcast<u32>(y)); }\n"
    "  return select(y, x, x > y);\n"
    "}\n"
    "fn hlod_copysign(x: f32, y: f32) -> f32 {\n"
    "  return bitcast<f32>((bitcast<u32>(x) & 0x7fffffffu) | (bitcast<u32>(y) & 0x80000000u));\n"
    "}\n"
    "fn hlod_round(x: f32) -> f32 {\n"
    "  let a = abs(x);\n"
    "  let t = floor(a);\n"
    "  return hlod_copysign(select(t, t + 1.0, a - t >= 0.5), x);\n"
    "}\n"
    "fn hlod_i32(x: f32) -> i32 {\n"
    "  if (hlod_nan(x)) { return 0; }\n"
    "  if (x >= 2147483648.0) { return 2147483647; }\n"
    "  if (x < -2147483648.0) { return hlod_i(0x80000000u); }\n"
    "  return i32(x);\n"
    "}\n"
    "fn hlod_u32(x: f32) -> u32 {\n"
    "  if (hlod_nan(x) || x <= 0.0) { return 0u; }\n"
    "  if (x >= 4294967296.0) { return 4294967295u; }\n"
    "  return u32(x);\n"
    "}\n"
    "fn hlod_half(w: u32) -> f32 {\n"
    "  let e = (w >> 10u) & 31u;\n"
    "  let m = w & 1023u;\n"
    "  let sign = (w & 0x8000u) << 16u;\n"
    "  if (e == 0u) { return bitcast<f32>(bitcast<u32>(f32(m) * 0x1p-24f) | sign); }\n"
    "  return bitcast<f32>(sign | select((e + 112u) << 23u, 0x7f800000u, e == 31u) | (m << 13u));\n"
    "}\n"
    "fn hlod_bf16(w: u32) -> f32 { return bitcast<f32>(w << 16u); }\n"
    "fn hlod_round_bf16(x: f32) -> f32 {\n"
    "  let u = bitcast<u32>(x);\n"
    "  if (hlod_nan(x)) { return x; }\n"
    "  return bitcast<f32>((u + 0x7fffu + ((u >> 16u) & 1u)) & 0xffff0000u);\n"
    "}\n"
    "fn hlod_round_f16(x: f32) -> f32 {\n"
    "  let u = bitcast<u32>(x);\n"
    "  let a = u & 0x7fffffffu;\n"
    "  let sign = u & 0x80000000u;\n"
    "  if (a > 0x7f800000u) { return x; }\n"
    "  if (a >= 0x477ff000u) { return bitcast<f32>(sign | 0x7f800000u); }\n"
    "  if (a >= 0x38800000u) {\n"
    "    return bitcast<f32>((u + 0xfffu + ((u >> 13u) & 1u)) & 0xffffe000u);\n"
    "  }\n"
    "  return hlod_copysign(round(bitcast<f32>(a) * 0x1p+24f) * 0x1p-24f, x);\n"
    "}\n";

static void find_scratch(void *found, struct kir_val *v) {
    if ((v->op == K_LOAD || v->op == K_STORE) && v->imm_i == KIR_SCRATCH) *(bool *)found = true;
}
static status_t wgsl_kernel(struct strbuf *b, const struct kir_fn *f, const char *name) {
    bool scratch = false;
    int n = f->n_bufs + (int)f->tables.n;
    struct ctext x = {.out = b, .language = CTEXT_WGSL, .symbol = name, .one_unit = true};
    if (n > SHADER_MAX_BUFFERS) return st_unimplemented("more buffers than the target has");
    kir_each((struct kir_block *)(uintptr_t)&f->top, find_scratch, &scratch);

    strbuf_printf(b,
                  "@compute @workgroup_size(%d) fn %s(@builtin(workgroup_id) w: vec3u,\n"
                  " @builtin(num_workgroups) n: vec3u, @builtin(local_invocation_index) l: "
                  "u32) {\n"
                  " let i = (w.y * n.x + w.x) * %du + l;\n"
                  " let begin = i32(p[0].x + i);\n"
                  " if (u32(begin) >= p[0].y) { return; }\n",
                  SHADER_GROUP, name, SHADER_GROUP);
    for (int k = 0; k < n; k++)
        strbuf_printf(b, " let o%d = i32(p[%d].%c);\n", k, 1 + k / 4, "xyzw"[k % 4]);
    if (scratch) strbuf_printf(b, " let q = i32(i * %lldu);\n", (long long)f->scratch_bytes / 4);
    status_t st = ctext_body(&x, f);
    strbuf_puts(b, "}\n");
    return st;
}

const struct shader shader_wgsl = {"wgsl", prologue, wgsl_target, wgsl_kernel, NULL};
static status_t make_module(struct backend_work *w, struct span *out) {
    return shader_module(&shader_wgsl, w, out);
}
const struct backend backend_wgsl = {"wgsl", 0, false, NULL, NULL, make_module};
