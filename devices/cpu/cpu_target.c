// SPDX-License-Identifier: Apache-2.0
// Describes this CPU as a compile target. The id names what the code depends on: instruction sets
// that are really there (those that LLVM alone uses as bits), the channel block of library layouts,
// the kernel ABI and the version of the implementation choices, so that an entry made on one
// machine is used on another exactly when it would be made the same there. For tests:
// HLOD_CPU_ISA=avx2 makes a machine with AVX-512 act as one without; HLOD_CPU_IMPL=kernel (onednn,
// reference) forces one implementation; HLOD_CPU_CODEGEN=llvm leaves all kernels to LLVM, direct
// none of the loops that the direct generator can make; HLOD_CPU_BF16=emulated gives under
// precision fast the values of a CPU that has bf16.
#include <cpuid.h>
#include <stdio.h>
#include <stdlib.h>

#include "compiler/codegen/abi.h"
#include "devices/cpu/cpu.h"

// Operations of a kernel, some 0.1 ns each: 2 us and 20 us. What effort is worth: compiler/codegen.
enum { LITTLE_WORK = 20000, LESS_WORK = 200000 };
enum { COST_VERSION = 27 }; // raise when the choice between implementations changes

static bool takes_nothing(UNUSED const struct target *t, UNUSED const struct hlo_instr *i) {
    return false;
}

// Forced implementations that take what the passes make for a library.
static bool like_the_library(const char *impl) {
    static const char *const names[] = {"onednn", "pairs", "thin", "matmul", "winograd",
                                        "amx",    "gemm",  "sort", "fft",    "pointwise"};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        if (strcmp(impl, names[k]) == 0) return true;
    return false;
}

// Does the CPU decide, or HLOD_CPU_ISA?
static bool as_it_is(void) {
    const char *forced = getenv("HLOD_CPU_ISA");
    return !forced || !*forced;
}
bool cpu_has_int8(void) {
    __builtin_cpu_init();
    return as_it_is() && __builtin_cpu_supports("avx512vnni") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
}

static bool has_avx512(void) {
    const char *forced = getenv("HLOD_CPU_ISA");
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           !(forced && strcmp(forced, "avx2") == 0);
}
static bool has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
bool cpu_has_pairs(void) {
    __builtin_cpu_init();
    return has_avx2() && !has_avx512();
}

// AMD's CPUs before Zen 5, and its small cores, take a vector of 512 bits as two halves; they have
// no AVX-VNNI, or leaf 8000001AH says that their data path has 256 bits (AMD64 Architecture
// Programmer's Manual, volume 3, appendix E). Hypervisors may say neither.
bool cpu_has_wide_path(void) {
    enum { LEAF = (int)0x8000001a, PATH_256 = 1 << 2, PATH_512 = 1 << 3 };
    __builtin_cpu_init();
    if (!as_it_is() || !has_avx512() || !__builtin_cpu_is("amd") ||
        !__builtin_cpu_supports("avxvnni"))
        return false;
    unsigned path = 0, b, c, d;
    if (!__get_cpuid((unsigned)LEAF, &path, &b, &c, &d)) path = 0;
    return (path & PATH_512) || !(path & PATH_256);
}

// Other CPUs would be told bf16 by conversions, slower than f32.
bool cpu_has_bf16(void) {
    __builtin_cpu_init();
    return as_it_is() && __builtin_cpu_supports("avx512bf16") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
}

// Intel's instructions for bf16 without AMX take longer than those of f32 (docs/performance.md).
static bool multiplies_bf16(void) {
    return cpu_has_bf16() && (cpu_has_tiles() || !__builtin_cpu_is("intel"));
}

// LLVM makes code for this CPU and may use what the other words of the id do not tell of: bits of
// these, which may be added to at the end.
static unsigned others(void) {
#define BIT(name) (__builtin_cpu_supports(name) ? 1u << n++ : (n++, 0u))
    int n = 0;
    unsigned all = BIT("popcnt");
    all |= BIT("bmi");
    all |= BIT("bmi2");
    all |= BIT("lzcnt");
    all |= BIT("f16c");
    all |= BIT("sse4a");
    all |= BIT("gfni");
    all |= BIT("avxvnni");
    all |= BIT("avx512cd");
    all |= BIT("avx512ifma");
    all |= BIT("avx512vbmi");
    all |= BIT("avx512vbmi2");
    all |= BIT("avx512vnni");
    all |= BIT("avx512bitalg");
    all |= BIT("avx512vpopcntdq");
    all |= BIT("avx512bf16");
    return all | BIT("avx512fp16");
#undef BIT
}

static bool emulates_bf16(void) {
    const char *v = getenv("HLOD_CPU_BF16");
    return v && strcmp(v, "emulated") == 0;
}

const struct target *cpu_target(void) {
    static struct target t;
    static char id[256];
    if (t.id) return &t;
    __builtin_cpu_init();
    bool avx512 = has_avx512(), avx2 = has_avx2();

    t.kind = "cpu";
    t.llvm_triple = t.llvm_cpu = t.llvm_features = "";
    t.vector_bits = avx512 ? 512 : avx2 ? 256 : 128;
    const char *codegen = getenv("HLOD_CPU_CODEGEN");
    bool direct = avx512 || (avx2 && __builtin_cpu_supports("f16c") &&
                             __builtin_cpu_supports("lzcnt") && __builtin_cpu_supports("popcnt"));
    t.direct = direct && !(codegen && strcmp(codegen, "llvm") == 0);
    t.direct_loops = t.direct && codegen && strcmp(codegen, "direct") == 0;
    t.direct_bf16 = t.direct && avx512 && cpu_has_bf16();
    t.conv_block = avx512 ? 16 : avx2 ? 8 : 0;
    t.threads = cpu_threads();

    const char *impl = cpu_forced_impl();
    bool library = !impl || like_the_library(impl);
    t.library_accepts = library ? cpu_library_accepts : takes_nothing;
    t.routine_runs = impl ? NULL : cpu_routine_runs;
    t.library_runs = library ? cpu_library_runs : NULL;
    t.wants_form = library ? cpu_wants_form : NULL; // kernels of ours read rows
    t.library_channels = !impl && t.vector_bits == 512;
    t.library_dim_maps = !impl;
    t.library_attention = !impl && t.vector_bits >= 256;
    bool takes_f32 = t.library_accepts == cpu_library_accepts;
    t.few_bits = takes_f32;
    t.few_bits_x8 = takes_f32 && cpu_has_int8();
    t.library_int8 = takes_f32 && (cpu_has_int8() || cpu_has_pairs());
    t.bf16_emulated = takes_f32 && emulates_bf16();
    t.library_bf16 = takes_f32 && !t.bf16_emulated && multiplies_bf16();
    t.library_odd = t.library_bf16 && cpu_has_tiles();
    if (!impl) t.little_work = LITTLE_WORK, t.less_work = LESS_WORK;
    if (impl && strcmp(impl, "kernel") != 0) t.min_kernel_elements = INT64_MAX; // not compiled

    snprintf(id, sizeof id, "cpu:x86-64:%s%s%s%s%s:with%x:block%d:abi%d:cost%d%s%.20s%s",
             avx512 ? "avx512f+bw+dq+vl"
             : avx2 ? "avx2+fma"
                    : "sse2",
             cpu_has_wide_path() ? "+wide" : "",
             !t.library_int8  ? ""
             : cpu_has_int8() ? "+vnni"
                              : "+pairs",
             t.library_bf16    ? "+bf16"
             : t.bf16_emulated ? "+bf16emulated"
                               : "",
             t.library_bf16 && cpu_has_tiles() ? "+amx" : "", others(), t.conv_block,
             HLOD_KERNEL_ABI, COST_VERSION, impl ? ":only-" : "", impl ? impl : "",
             direct && !t.direct ? ":llvm"
             : t.direct_loops    ? ":direct"
                                 : "");
    t.id = id;
    return &t;
}
