// SPDX-License-Identifier: Apache-2.0
// shader: kernels in the languages that browsers run on GPUs: WGSL (WebGPU) and GLSL ES 3.0
// (WebGL2, OpenGL ES). For each a back end (kernel_set.object is the text of all), the target whose
// kernels it can say, and one kernel as text for packages (compiler/web), which keep what a
// language lacks in WebAssembly. Thread: any.
//
// Both see all memory as one array of words; the buffers of a kernel are places in it, its tables
// are buffers behind the others. Types are 32-bit integers and f32; others are read by their bits,
// those of 64 bits not at all.
//
// WGSL: a kernel is an entry point. In group 0
//     binding 0  m: array<u32>               memory
//     binding 1  s: array<u32>               scratch
//     binding 2  p: array<vec4<u32>, 16>     what this dispatch is about:
//                p[0] = first unit, end of units, 0, 0
//                p[1 + k / 4][k % 4]         the word at which buffer k begins
// Invocation i of a dispatch, whose workgroups (of 64, in x and y) follow one another, computes
// unit first + i, where that is below the end, and has WORDS of scratch from word i * WORDS on.
// What it writes are words: two invocations never write one.
//
// GLSL: a kernel is a function `uint NAME(int begin, int at)`: the bits of element `at` of result
// HLOD_RESULT, which unit `begin` computes; a fragment is a word of that result. A shader is
//     #version 300 es
//     #define HLOD_KERNEL NAME
//     #define HLOD_RESULT, HLOD_PACK (elements in a word), HLOD_PARTS (elements of a unit)
//     #define HLOD_WIDTH (memory has 2^HLOD_WIDTH words a row)
//     the prologue, the kernel
// with uniforms
//     hlod_m     usampler2D        memory, R32UI
//     hlod_p     int[60]           the word at which buffer k begins
//     hlod_q     ivec3             what is added to a fragment's place (y << HLOD_WIDTH) + x to get
//                                  its word of the result; words, elements of the result
//     hlod_s     usampler2DArray   sums (unit 1), RGBA32UI
// A contraction in tiles has two parts, since a fragment writes its own place only: `void
// NAME_sums(int begin)` gives up to 16 sums of unit `begin`, and what NAME reads are these. That
// part is drawn before, to as many layers of a texture of four words as it takes, a unit a
// fragment, by a shader with
//     #define HLOD_KERNEL NAME_sums
//     #define HLOD_SUMS (layers: a quarter of its sums, rounded up)
//     #define HLOD_WIDTH (for its own width too)
// where hlod_q.y says how many units there are.
//
// The object of the back end "glsl", which devices/gl loads, is the prologue and, a line each,
// before a kernel what a device must know of it:
//     // kernel NAME 4 1             bytes that a unit writes of each result
//     // table 0011223344...         bytes of each table, in their order
//     // sums 8192 16               of one that has them: units, sums of each
// or, instead of a kernel, `// NAME: why there is none`.
#pragma once
#include "base/str.h"
#include "compiler/codegen/abi.h"
#include "compiler/codegen/backend.h"

enum { SHADER_MAX_BUFFERS = 60, SHADER_GROUP = 64, SHADER_WORK_OF_FEW = 4 << 20 };
struct shader {
    const char *name;     // of the back end; files end in it
    const char *prologue; // what stands before kernels: declarations and functions
    const struct target *(*target)(bool tiles); // lives for ever; tiles: as of gl_target
    // A kernel, appended. UNIMPLEMENTED: what the language lacks.
    status_t (*kernel)(struct strbuf *b, const struct kir_fn *f, const char *name);
    // Bytes that each unit writes of a result of such a kernel, where a word is written by itself
    // (1, 2, 4 or 8); NULL: results are written as they come.
    int (*unit_bytes)(const struct kir_fn *f, int result);
};
enum { SHADER_MOST_SUMS = KIR_SUMS_OF_UNIT, SHADER_SUM_LAYERS = SHADER_MOST_SUMS / 4 };
// Sums that a unit of f->sums draws.
static inline int shader_sums(const struct kir_fn *f) {
    return f->sums ? f->sums->own.lanes * f->sums->own.n : 0;
}
// What both policies have, and what the language has beside.
#define SHADER_POLICY(schedule, ...)                                                               \
    {.units = 16384,                                                                               \
     .elements = true,                                                                             \
     .tiled = true,                                                                                \
     .tiles = schedule,                                                                            \
     .max_buffers = SHADER_MAX_BUFFERS,                                                            \
     __VA_ARGS__}
// What both targets have. `name` is a literal: of the API and the language.
#define SHADER_TARGET(name, its_kind, language, its_policy, evaluates)                             \
    {.id = name ":abi" HLOD_KERNEL_ABI_TEXT,                                                       \
     .kind = its_kind,                                                                             \
     .backend = language,                                                                          \
     .policy = its_policy,                                                                         \
     .evaluates_prepare = evaluates,                                                               \
     .llvm_triple = "",                                                                            \
     .llvm_cpu = "",                                                                               \
     .llvm_features = "",                                                                          \
     .vector_bits = 128,                                                                           \
     .threads = 1}
extern const struct shader shader_wgsl, shader_glsl;
// Of devices/gl: GLSL, on any driver of OpenGL ES 3.0. tiles: for tests, contractions are tiles
// however few units are left. By name: "gl", "gl:tiles", or an id; NULL: it is none of these.
const struct target *gl_target(bool tiles);
const struct target *gl_target_named(const char *name);
// Few units that each do much would hold the whole GPU up, until a watchdog ends them.
bool shader_too_narrow(const struct kir_fn *f);
// backend.module of a language. What it lacks is a line that says so.
status_t shader_module(const struct shader *s, struct backend_work *w, struct span *out) MUST_CHECK;
