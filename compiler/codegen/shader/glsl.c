// SPDX-License-Identifier: Apache-2.0
#include "compiler/codegen/ctext.h"
#include "compiler/codegen/shader/shader.h"

// A fragment writes its own texel and nothing else, and keeps nothing: a unit is an element, and
// what tiles sum is drawn first.
#define POLICY(schedule) SHADER_POLICY(schedule, .rows = false, .has_scratch = false)
static const struct kernel_policy policy = POLICY(TILES_OF_DRAWS),
                                  always = POLICY(TILES_OF_DRAWS_ALWAYS);
static const struct target *glsl_target(bool tiles) {
    static const struct target t = SHADER_TARGET("webgl:glsl", "web", "glsl", &policy, true),
                               in_tiles =
                                   SHADER_TARGET("webgl:glsl:tiles", "web", "glsl", &always, true);
    return tiles ? &in_tiles : &t;
}
const struct target *gl_target(bool tiles) {
    static const struct target t = SHADER_TARGET("gl:glsl", "gl", "glsl", &policy, false),
                               in_tiles =
                                   SHADER_TARGET("gl:glsl:tiles", "gl", "glsl", &always, false);
    return tiles ? &in_tiles : &t;
}
const struct target *gl_target_named(const char *name) {
    for (int tiles = 0; tiles < 2; tiles++) {
        const struct target *t = gl_target(tiles);
        if (strcmp(name, t->id) == 0 || strcmp(name, tiles ? "gl:tiles" : "gl") == 0) return t;
    }
    return NULL;
}

// What operations need beside the language. hlod_z is 0: what is joined with it is no constant, so
// that no compiler folds an infinity, a NaN or an overflow, or sees what a sum is made of. NaN is
// seen by its bits, since GLSL may take it for absent; minimum and maximum: NaN wins, -0 is below
// +0. Floats become integers by truncation, out of range the nearest, NaN 0. Halves and bf16 by
// their bits, to nearest even.
static const char prologue[] =
    "precision highp float;\n"
    "precision highp int;\n"
    "uniform highp usampler2D hlod_m;\n"
    "uniform highp usampler2DArray hlod_s;\n"
    "uniform int hlod_p[60];\n"
    "uniform ivec3 hlod_q;\n"
    "uniform uint hlod_z;\n"
    "#ifdef HLOD_SUMS\n"
    "layout(location = 0) out uvec4 hlod_s0;\n"
    "#if HLOD_SUMS > 1\n"
    "layout(location = 1) out uvec4 hlod_s1;\n"
    "#endif\n"
    "#if HLOD_SUMS > 2\n"
    "layout(location = 2) out uvec4 hlod_s2;\n"
    "#endif\n"
    "#if HLOD_SUMS > 3\n"
    "layout(location = 3) out uvec4 hlod_s3;\n"
    "#endif\n"
    "void HLOD_KERNEL(int begin);\n"
    "void main() {\n"
    "  int w = (int(gl_FragCoord.y) << HLOD_WIDTH) + int(gl_FragCoord.x);\n"
    "  if (w >= hlod_q.y) discard;\n"
    "  HLOD_KERNEL(w);\n"
    "}\n"
    "#else\n"
    "out uint hlod_out;\n"
    "uint HLOD_KERNEL(int begin, int at);\n"
    "void main() {\n"
    "  int w = (int(gl_FragCoord.y) << HLOD_WIDTH) + int(gl_FragCoord.x) + hlod_q.x;\n"
    "  if (w < 0 || w >= hlod_q.y) discard;\n"
    "  uint r = 0u;\n"
    "  for (int k = 0; k < HLOD_PACK; k++) {\n"
    "    int at = w * HLOD_PACK + k;\n"
    "    if (at < hlod_q.z) r |= HLOD_KERNEL(at / HLOD_PARTS, at) << (k * (32 / HLOD_PACK));\n"
    "  }\n"
    "  hlod_out = r;\n"
    "}\n"
    "uint hlod_sum(int i) {\n"
    "  int k = i >> 4;\n"
    "  return texelFetch(hlod_s, ivec3(k & ((1 << HLOD_WIDTH) - 1), k >> HLOD_WIDTH,\n"
    "    (i >> 2) & 3), 0)[i & 3];\n"
    "}\n"
    "#endif\n"
    "uint hlod_w(int i) {\n"
    "  return texelFetch(hlod_m, ivec2(i & ((1 << HLOD_WIDTH) - 1), i >> HLOD_WIDTH), 0).x;\n"
    "}\n"
    "float hlod_f(uint b) { return uintBitsToFloat(b | hlod_z); }\n"
    "int hlod_i(uint b) { return int(b | hlod_z); }\n"
    "uint hlod_u(uint b) { return b | hlod_z; }\n"
    "float hlod_rounded(float x) { return uintBitsToFloat(floatBitsToUint(x) + hlod_z); }\n"
    "float hlod_as_float(int x) { return intBitsToFloat(x); }\n"
    "float hlod_as_float(uint x) { return uintBitsToFloat(x); }\n"
    "int hlod_as_int(float x) { return floatBitsToInt(x); }\n"
    "int hlod_as_int(uint x) { return int(x); }\n"
    "uint hlod_as_uint(float x) { return floatBitsToUint(x); }\n"
    "uint hlod_as_uint(int x) { return uint(x); }\n"
    "int hlod_bits(int x, int at, int n) { return (x << (32 - n - at)) >> (32 - n); }\n"
    "uint hlod_bits(uint x, int at, int n) { return (x << (32 - n - at)) >> (32 - n); }\n"
    "uint hlod_clz(uint x) {\n"
    "  uint n = 0u;\n"
    "  if (x == 0u) return 32u;\n"
    "  if (x < 0x10000u) { n += 16u; x <<= 16; }\n"
    "  if (x < 0x1000000u) { n += 8u; x <<= 8; }\n"
    "  if (x < 0x10000000u) { n += 4u; x <<= 4; }\n"
    "  if (x < 0x40000000u) { n += 2u; x <<= 2; }\n"
    "  return x < 0x80000000u ? n + 1u : n;\n"
    "}\n"
    "int hlod_clz(int x) { return int(hlod_clz(uint(x))); }\n"
    "uint hlod_popcnt(uint x) {\n"
    "  x -= (x >> 1) & 0x55555555u;\n"
    "  x = (x & 0x33333333u) + ((x >> 2) & 0x33333333u);\n"
    "  return (((x + (x >> 4)) & 0x0f0f0f0fu) * 0x01010101u) >> 24;\n"
    "}\n"
    "int hlod_popcnt(int x) { return int(hlod_popcnt(uint(x))); }\n"
    "bool hlod_nan(float x) { return (floatBitsToUint(x) & 0x7fffffffu) > 0x7f800000u; }\n"
    "float hlod_min(float x, float y) {\n"
    "  if (hlod_nan(x)) return x;\n"
    "  if (hlod_nan(y)) return y;\n"
    "  if (x == y) return uintBitsToFloat(floatBitsToUint(x) | floatBitsToUint(y));\n"
    "  return x < y ? x : y;\n"
    "}\n"
    "float hlod_max(float x, float y) {\n"
    "  if (hlod_nan(x)) return x;\n"
    "  if (hlod_nan(y)) return y;\n"
    "  if (x == y) return uintBitsToFloat(floatBitsToUint(x) & floatBitsToUint(y));\n"
    "  return x > y ? x : y;\n"
    "}\n"
    "float hlod_copysign(float x, float y) {\n"
    "  return uintBitsToFloat((floatBitsToUint(x) & 0x7fffffffu) |\n"
    "    (floatBitsToUint(y) & 0x80000000u));\n"
    "}\n"
    "float hlod_round(float x) {\n"
    "  float a = abs(x);\n"
    "  float t = floor(a);\n"
    "  return hlod_copysign(a - t >= 0.5 ? t + 1.0 : t, x);\n"
    "}\n"
    "int hlod_i32(float x) {\n"
    "  if (hlod_nan(x)) return 0;\n"
    "  if (x >= 2147483648.0) return 2147483647;\n"
    "  if (x < -2147483648.0) return hlod_i(0x80000000u);\n"
    "  return int(x);\n"
    "}\n"
    "uint hlod_u32(float x) {\n"
    "  if (hlod_nan(x) || x <= 0.0) return 0u;\n"
    "  if (x >= 4294967296.0) return 4294967295u;\n"
    "  return uint(x);\n"
    "}\n"
    "float hlod_half(uint w) {\n"
    "  uint e = (w >> 10) & 31u, m = w & 1023u, sign = (w & 0x8000u) << 16;\n"
    "  if (e == 0u)\n"
    "    return uintBitsToFloat(floatBitsToUint(float(m) * uintBitsToFloat(0x33800000u)) | sign);\n"
    "  return uintBitsToFloat(sign | (e == 31u ? 0x7f800000u : (e + 112u) << 23) | (m << 13));\n"
    "}\n"
    "uint hlod_to_half(float x) {\n"
    "  uint u = floatBitsToUint(x), a = u & 0x7fffffffu, sign = (u >> 16) & 0x8000u;\n"
    "  if (a > 0x7f800000u) return sign | 0x7e00u | ((a >> 13) & 1023u);\n"
    "  if (a >= 0x47800000u) return sign | 0x7c00u;\n"
    "  if (a >= 0x38800000u) return sign | ((a - 0x38000000u) >> 13);\n"
    "  return sign | uint(uintBitsToFloat(a) * 16777216.0);\n"
    "}\n"
    "float hlod_bf16(uint w) { return uintBitsToFloat(w << 16); }\n"
    "uint hlod_to_bf16(float x) {\n"
    "  return (floatBitsToUint(x) >> 16) | (hlod_nan(x) ? 0x40u : 0u);\n"
    "}\n"
    "float hlod_round_bf16(float x) {\n"
    "  uint u = floatBitsToUint(x);\n"
    "  if (hlod_nan(x)) return x;\n"
    "  return uintBitsToFloat((u + 0x7fffu + ((u >> 16) & 1u)) & 0xffff0000u);\n"
    "}\n"
    "float hlod_round_f16(float x) {\n"
    "  uint u = floatBitsToUint(x), a = u & 0x7fffffffu, sign = u & 0x80000000u;\n"
    "  if (a > 0x7f800000u) return x;\n"
    "  if (a >= 0x477ff000u) return uintBitsToFloat(sign | 0x7f800000u);\n"
    "  if (a >= 0x38800000u)\n"
    "    return uintBitsToFloat((u + 0xfffu + ((u >> 13) & 1u)) & 0xffffe000u);\n"
    "  return hlod_copysign(roundEven(uintBitsToFloat(a) * 16777216.0) *\n"
    "    uintBitsToFloat(0x33800000u), x);\n"
    "}\n";

// ---- results as gathers

static bool is_number(const struct kir_val *v, int64_t n) {
    int64_t is;
    return kir_is_const(v, &is) && is == n;
}
// How many times x the index is, 1 or 2, with `rest` added; 0: it is no such thing.
static int times(const struct kir_val *v, const struct kir_val *x, int *rest) {
    *rest = 0;
    if (v->op == K_ADD && (is_number(v->args[0], 1) || is_number(v->args[1], 1))) {
        v = v->args[is_number(v->args[0], 1)];
        *rest = 1;
    }
    if (v == x) return *rest ? 0 : 1;
    bool twice = v->op == K_MUL && ((v->args[0] == x && is_number(v->args[1], 2)) ||
                                    (v->args[1] == x && is_number(v->args[0], 2)));
    return twice ? 2 : 0;
}
struct gather {
    const struct kir_fn *f;
    const struct kir_loop *units;
    int bytes[SHADER_MAX_BUFFERS]; // of a unit, of each result
    bool not;
};
static void look(void *ctx, struct kir_val *v) {
    struct gather *g = ctx;
    int rest;
    if (v->op == K_FOR && v->loop->begin == g->f->begin) {
        g->not |= g->units != NULL;
        g->units = v->loop;
    }
    bool own = v->imm_i == KIR_SCRATCH || v->imm_i >= g->f->n_in;
    g->not |= v->op == K_LOAD && own;
    if (v->op != K_STORE || g->not) return;

    bool there = g->units && v->block == &g->units->body && v->imm_i >= g->f->n_in;
    int n = there ? times(v->args[0], g->units->var, &rest) : 0;
    g->not |= n == 0;
    if (n) g->bytes[v->imm_i - g->f->n_in] = n * dtype_size(v->elem);
}
static bool is_gather(const struct kir_fn *f, struct gather *g) {
    *g = (struct gather){.f = f};
    kir_each((struct kir_block *)(uintptr_t)&f->top, look, g);
    for (int k = 0; k < f->n_bufs - f->n_in; k++) {
        if (f->extent == 0) g->bytes[k] = 4;
        g->not |= g->bytes[k] == 0 || g->bytes[k] > 8;
    }
    return !g->not;
}
static int unit_bytes(const struct kir_fn *f, int result) {
    struct gather g;
    return is_gather(f, &g) ? g.bytes[result] : 0;
}

// The statements of a part, behind the places of its buffers.
static status_t put_body(struct strbuf *b, const struct kir_fn *f, const char *name) {
    struct ctext x = {.out = b, .language = CTEXT_GLSL, .symbol = name, .one_unit = true};
    for (int k = 0, n = f->n_bufs + (int)f->tables.n; k < n; k++)
        if (k < f->n_in || k >= f->n_bufs) strbuf_printf(b, "  int o%d = hlod_p[%d];\n", k, k);
    return ctext_body(&x, f);
}
// Four sums a layer: a vector, or two of two.
static status_t put_sums(struct strbuf *b, const struct kir_fn *f, const char *name) {
    const struct kir_own *own = &f->own;
    const char *bits = own->type == DT_F32 ? "floatBitsToUint"
                       : own->lanes == 2   ? "uvec2"
                                           : "uvec4";
    strbuf_printf(b, "#ifdef HLOD_SUMS\nvoid %s_sums(int begin) {\n", name);
    status_t st = put_body(b, f, name);
    for (int k = 0; k < own->n; k += 4 / own->lanes) {
        strbuf_printf(b, "  hlod_s%d = ", k * own->lanes / 4);
        if (own->lanes == 4)
            strbuf_printf(b, "%s(own[%d]);\n", bits, k);
        else if (k + 1 < own->n)
            strbuf_printf(b, "uvec4(%s(own[%d]), %s(own[%d]));\n", bits, k, bits, k + 1);
        else
            strbuf_printf(b, "uvec4(%s(own[%d]), 0u, 0u);\n", bits, k);
    }
    strbuf_puts(b, "}\n#endif\n");
    return st;
}
static status_t glsl_kernel(struct strbuf *b, const struct kir_fn *f, const char *name) {
    struct gather g;
    if (f->n_bufs + (int)f->tables.n > SHADER_MAX_BUFFERS)
        return st_unimplemented("more buffers than the target has");
    if (!is_gather(f, &g))
        return st_unimplemented("results that are not written an element a unit");

    strbuf_printf(b, "uint %s(int begin, int at) {\n  uint r = 0u;\n", name);
    if (f->sums) strbuf_puts(b, "#ifndef HLOD_SUMS\n");
    status_t st = put_body(b, f, name);
    if (f->sums) strbuf_puts(b, "#endif\n");
    strbuf_puts(b, "  return r;\n}\n");
    if (!st && f->sums) st = put_sums(b, f->sums, name);
    return st;
}

const struct shader shader_glsl = {"glsl", prologue, glsl_target, glsl_kernel, unit_bytes};

// ---- the object of a device

static void say_bytes(struct strbuf *b, const struct kir_table *t) {
    const uint8_t *p = t->data;
    strbuf_puts(b, "// table ");
    for (int64_t k = 0; k < t->n * dtype_size(t->elem); k++)
        strbuf_printf(b, "%02x", p[k]);
    strbuf_puts(b, "\n");
}
static status_t device_kernel(struct strbuf *b, const struct kir_fn *f, const char *name) {
    if (shader_too_narrow(f)) return st_unimplemented("few units with much to do");
    strbuf_printf(b, "// kernel %s", name);
    for (int k = 0; k < f->n_bufs - f->n_in; k++)
        strbuf_printf(b, " %d", unit_bytes(f, k));
    strbuf_puts(b, "\n");
    if (f->sums) strbuf_printf(b, "// sums %lld %d\n", (long long)f->sums->extent, shader_sums(f));
    for (size_t k = 0; k < f->tables.n; k++)
        say_bytes(b, &f->tables.v[k]);
    return glsl_kernel(b, f, name);
}
static status_t make_module(struct backend_work *w, struct span *out) {
    static const struct shader of_device = {"glsl", prologue, NULL, device_kernel, unit_bytes};
    return shader_module(&of_device, w, out);
}
const struct backend backend_glsl = {"glsl", 0, false, NULL, NULL, make_module};
